"""Tests of the batch with a scripted model: no key, no network. One of them kills it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import clew
from batch import Done, Job, Verdict, main, open_batch, run_jobs
from clew.testing.scripted import Entry, ScriptedModel, call, fail

JOBS = [Job("a", "Great."), Job("b", "Broken."), Job("c", "So so.")]
STARS = {"Great.": 5, "Broken.": 1, "So so.": 3}


def answer(request: clew.ModelRequest) -> Entry:
    """Answer a review as a model would: by a call with the verdict."""
    text = request.messages[0].texts[0]
    return call("final_answer", {"stars": STARS[text], "reason": text})


def providers(model: ScriptedModel) -> clew.ProviderSet:
    """Each token costs a thousandth of a dollar."""
    return clew.ProviderSet({"test": model}, default=clew.Model("test", "m"), cost=lambda _, used: used.total / 1000)


def verdicts(found: list[Done]) -> dict[str, int | None]:
    return {done.job.id: done.verdict.stars if done.verdict else None for done in found}


async def run(folder: Path, model: ScriptedModel) -> tuple[list[Done], clew.UsageSums]:
    async with open_batch(f"sqlite:///{folder}/batch.db", providers=providers(model)) as engine:
        found = [done async for done in run_jobs(engine, JOBS)]
        return found, (await engine.usage("day")).total


KILLED = """
import asyncio, sys
from batch import *
from clew.testing.scripted import ScriptedModel, hang
from test_batch import JOBS, answer, providers

def stop(request):
    print("the model was called", flush=True)
    return hang()

async def run():
    model = ScriptedModel([answer, stop])
    async with open_batch(f"sqlite:///{sys.argv[1]}/batch.db", providers=providers(model)) as engine:
        first = [done async for done in run_jobs(engine, JOBS[:1])]
        [done async for done in run_jobs(engine, JOBS[1:2])]

asyncio.run(run())
"""


def test_a_batch_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    """In the middle of the second job. The first is not paid for again, each job has one session."""
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "the model was called\n"
        process.kill()
    model = ScriptedModel([answer] * 2)
    found, total = asyncio.run(run(tmp_path, model))
    assert verdicts(found) == {"a": 5, "b": 1, "c": 3}
    assert sorted(request.messages[0].texts[0] for request in model.requests) == ["Broken.", "So so."]
    assert (total.calls, total.estimated) == (4, 1)  # the call that was cut off counts, by an estimate
    again, total = asyncio.run(run(tmp_path, ScriptedModel([])))
    assert (verdicts(again), total.calls) == (verdicts(found), 4)


def test_a_job_that_failed_is_tried_again_by_the_next_run(tmp_path: Path) -> None:
    """The other jobs are not held up by it, and not done again."""
    refused = fail(401, "the key was revoked")
    script = [lambda request: refused if "Broken." in request.messages[0].texts else answer(request)] * 3
    found, _ = asyncio.run(run(tmp_path, ScriptedModel(script)))
    assert verdicts(found) == {"a": 5, "b": None, "c": 3}
    assert [done.error for done in found if done.verdict is None] == ["the key was revoked"]
    model = ScriptedModel([answer])
    found, _ = asyncio.run(run(tmp_path, model))
    assert (verdicts(found), len(model.requests)) == ({"a": 5, "b": 1, "c": 3}, 1)


def test_the_program_prints_each_answer_and_the_sum(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each job, then the calls, tokens and cost."""
    file = tmp_path / "jobs.jsonl"
    file.write_text('{"id": "a", "text": "Great."}\n\n{"id": "b", "text": "Broken."}\n', "utf-8")
    given = {"providers": providers(ScriptedModel([answer] * 2))}
    assert asyncio.run(main(file, f"sqlite:///{tmp_path}/batch.db", **given)) == 0
    *lines, total = capsys.readouterr().out.splitlines()
    assert sorted(lines) == [f"a {Verdict(5, 'Great.')}", f"b {Verdict(1, 'Broken.')}"]
    assert total == "2 model calls, 30 tokens, $0.0300"
