"""A batch of jobs, one session each: ``python batch.py jobs.jsonl``. After a kill it continues where it was.

The answer to each job is a value of a type. That of a job which is done is read from the store, not paid for again.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

import clew

MAX_AT_ONCE = 8


class Job(Struct):
    id: str
    text: str


class Verdict(Struct):
    """The answer to a review. The model's arguments are checked against it."""

    stars: Annotated[int, Meta(ge=1, le=5, description="How content the customer is.")]
    reason: Annotated[str, Meta(description="In at most ten words.")]


class Done(Struct):
    job: Job
    verdict: Verdict | None
    error: str | None = None


AGENT = clew.Agent(
    name="reviewer", description="Rates reviews.", prompt="You rate a customer's review of our shop.", tools=()
)


def open_batch(url: str, **given: Any) -> AbstractAsyncContextManager[clew.Engine]:
    """Open the batch's sessions, one for each job."""
    return clew.open(url, **{"agents": [AGENT], "builtin_tools": False, **given})


def read_jobs(file: Path) -> list[Job]:
    return [Job(**json.loads(line)) for line in file.read_text("utf-8").splitlines() if line.strip()]


async def run_job(engine: clew.Engine, job: Job, model: str | None) -> Done:
    """Return the answer to a job: from the store if it is there, else from the model."""
    name, is_known = f"job/{job.id}", False
    try:
        await engine.create_session(alias=name, model=model, title=job.id)
    except clew.AliasTaken:  # by an earlier run of this batch
        is_known = True

    async def start() -> clew.TurnStream[Verdict]:
        # With the same message id this is the same prompt: it starts one turn, and finds that turn from then on.
        return await engine.start(name, job.text, message_id=job.id, attended=False, output=Verdict)

    if is_known and (await (await start()).wait()).status != "completed":
        await (await engine.continue_turn(name)).wait()  # it was killed, stopped, or failed
    try:
        return Done(job, await (await start()).output())
    except clew.ModelFailed as failure:
        return Done(job, None, str(failure))


async def run_jobs(engine: clew.Engine, jobs: Iterable[Job], model: str | None = None) -> AsyncIterator[Done]:
    """Run all jobs, at most ``MAX_AT_ONCE`` at once, and yield each when it is done."""
    limit = asyncio.Semaphore(MAX_AT_ONCE)

    async def run_one(job: Job) -> Done:
        async with limit:
            return await run_job(engine, job, model)

    for done in asyncio.as_completed([run_one(job) for job in jobs]):
        yield await done


async def main(file: Path, url: str = "sqlite:///batch.db", **given: Any) -> int:
    failed = 0
    async with open_batch(url, **given) as engine:
        async for done in run_jobs(engine, read_jobs(file)):
            failed += done.verdict is None
            print(done.job.id, done.verdict or f"failed: {done.error}", flush=True)
        total = (await engine.usage("day")).total
    print(f"{total.calls} model calls, {total.input + total.output:,} tokens, ${total.cost_usd:.4f}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(Path(sys.argv[1]))))
