"""Two programs on one file of the three tables, clew and one that follows only their description, in random steps.

In a tenure clew has the file open in its own process, while the other program also works on it; the other also works
between tenures. After every step both must see the same sessions, conversations and queues, everything listed must be
readable, and the judge must find no problem. Some tenures end with a kill.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, Final

import clew
from clew.failpoints import arm
from clew.session.history.check import check
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, say, wait
from tests.rig.budget import Budget, Outcome
from tests.rig.program_002 import Program002, make_plain

__all__ = ["ROUNDS", "figure", "run"]

ROUNDS: Final = 4_000
_TENURE: Final = 20
_TENURES: Final = 8
_SESSIONS: Final = 6
_PATIENCE_S: Final = 60.0
_KILLS: Final = ("writer.adopted", "writer.before_commit", "writer.after_commit_before_ack", "writer.in_transaction")


def run(budget: Budget) -> Outcome:
    outcome = Outcome()
    folder = Path(tempfile.mkdtemp(prefix="clew-share-"))
    try:
        for number, (first, count) in enumerate(budget.batches(_TENURE)):
            path = folder / f"{number // _TENURES}.db"
            dice = Random(first)
            if not path.exists() and dice.random() < 0.5:
                make_plain(path)
            kill = f"{dice.choice(_KILLS)}=kill@{dice.randint(1, 30)}" if dice.random() < 0.4 else ""
            _tenure(path, first, count, kill, outcome)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome


def figure(counts: Counter[str]) -> str:
    return (
        f"share: {counts['rounds']} steps of two programs on one file, {counts['theirs']} of them by the other "
        f"program, {counts['kills']} kills"
    )


def _tenure(path: Path, first: int, count: int, kill: str, outcome: Outcome) -> None:
    """Run a tenure in a child, which reports its steps through a pipe, one per line."""
    reports, child_reports = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reports)
        code = 1
        try:
            arm(kill)
            asyncio.run(asyncio.wait_for(_Walk(path, first, child_reports).go(count), _PATIENCE_S))
            code = 0
        except BaseException as error:
            at = " < ".join(
                f"{one.name}:{one.lineno}" for one in reversed(traceback.extract_tb(error.__traceback__)[-4:])
            )
            os.write(child_reports, f"BROKEN {type(error).__name__}: {error} ({at})".replace("\n", " ").encode())
        finally:
            os._exit(code)
    os.close(child_reports)
    with os.fdopen(reports) as lines:
        steps = lines.read().splitlines()
    _, status = os.waitpid(pid, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL and bool(kill)
    outcome.counts.update(rounds=count, kills=killed, theirs=sum(step.startswith("they ") for step in steps))
    if not killed and os.waitstatus_to_exitcode(status) != 0:
        outcome.broken.append(f"seed {first}: {'; '.join(steps[-6:])}")


class _Walk:
    """The steps of one tenure, and the checks after each."""

    def __init__(self, path: Path, seed: int, reports: int) -> None:
        self.path = path
        self.dice = Random(seed)
        self.reports = reports
        self.gate = Gate()
        self.is_open = True
        self.engine: clew.Engine
        self.others: Program002

    async def go(self, count: int) -> None:
        model = ScriptedModel(otherwise=self._reply)
        url = f"sqlite:///{self.path}"
        async with clew.open(url, config=clew.Config(), providers=FakeProviders(model)) as self.engine:
            self.others = Program002(self.path)
            await self._compare()
            for _ in range(count):
                await self._step()
                await self._compare()
            problems = await check(self.engine.store)
            assert not problems, f"the judge finds {[str(problem) for problem in problems]}"
            self.others.close()
        # Written while clew has the file closed, and read at the next open.
        self.others = Program002(self.path)
        self.is_open = False
        await self._theirs()

    def _reply(self, request: Any) -> Any:
        text = request.messages[-1].parts[0].get("text", "")
        return [wait(self.gate), say("held")] if text.startswith("hold") else say(f"re {text}")

    def _report(self, what: str) -> None:
        os.write(self.reports, f"{what}\n".encode())

    async def _step(self) -> None:
        await (self._theirs() if self.dice.random() < 0.5 else self._ours())

    def _pick(self) -> str | None:
        known = self.others.sessions()
        return self.dice.choice(known) if known else None

    async def _theirs(self) -> None:
        others, dice, session_id = self.others, self.dice, self._pick()
        if session_id is None or (len(others.sessions()) < _SESSIONS and dice.random() < 0.15):
            id_ = dice.choice([None, f"other-{dice.randrange(10**9)}"])
            self._report("they open a session")
            others.open_session(id_, other=dice.random())
            return
        shown = others.conversation(session_id)
        prompts = [message["id"] for message in shown if message["role"] == "user"]
        queued = others.queued(session_id)
        operations = "talk talk talk ask answer stream call compact rewind queue queued archive delete"
        what = dice.choice(operations.split())
        self._report(f"they {what} in {session_id}")
        if what in ("talk", "ask"):
            others.say(session_id, f"they ask {dice.randrange(99)}")
            if what == "talk":
                others.answer(session_id, "they answer", tool=dice.random() < 0.3, usage=dice.randrange(9))
        elif what == "answer" and shown and shown[-1]["role"] == "user":
            others.answer(session_id, "a late answer")
        elif what == "stream":
            others.say(session_id, "they stream")
            message_id = others.begin_answer(session_id)
            await self._compare()
            part_id = others.put_part(message_id, {"type": "text", "text": "gro"})
            await self._compare()
            others.put_part(message_id, {"type": "text", "text": "growing"}, part_id)
            await self._compare()
            others.finish(message_id, 3)
        elif what == "call":
            await self._call(session_id)
        elif what == "compact" and prompts:
            others.compact(session_id, f"so far {dice.randrange(99)}", dice.choice(prompts))
        elif what == "rewind" and prompts:
            others.rewind(session_id, dice.choice(prompts), keep_first=dice.random() < 0.5)
        elif what == "queue":
            others.queue(session_id, f"they queue {dice.randrange(99)}")
        elif what == "queued" and queued:
            if dice.random() < 0.5:
                others.hide(queued[0])
            else:
                others.fire(queued[0])
                others.answer(session_id, "to what waited")
        elif what == "archive" and dice.random() < 0.2:
            others.archive(session_id)
        elif what == "delete" and dice.random() < 0.1:
            others.delete(session_id)

    async def _call(self, session_id: str) -> None:
        """Store a running call of the other program, which may never end."""
        self.others.say(session_id, "they call")
        message_id = self.others.begin_answer(session_id)
        call = {"type": "tool-look", "toolCallId": f"c{self.dice.randrange(10**9)}", "input": {}}
        part_id = self.others.put_part(message_id, {**call, "state": "input-available"})
        await self._compare()
        if self.dice.random() < 0.5:
            self.others.put_part(message_id, {**call, "state": "output-available", "output": 1}, part_id)

    async def _ours(self) -> None:
        engine, dice, session_id = self.engine, self.dice, self._pick()
        if session_id is None or (len(self.others.sessions()) < _SESSIONS and dice.random() < 0.15):
            self._report("we open a session")
            await engine.create_session(title="ours")
            return
        shown = await engine.messages(session_id)
        prompts = [message.id for message in shown if message.role == "user"]
        queue = await engine.queue(session_id)
        what = dice.choice(
            ["talk", "talk", "rewind", "edit", "unrewind", "branch", "queue", "cancel", "fire", "delete"]
        )
        self._report(f"we {what} in {session_id}")
        if what == "talk":
            await self._settled(session_id, await engine.submit(session_id, f"we ask {dice.randrange(99)}"))
        elif what == "rewind" and prompts:
            await engine.rewind(session_id, dice.choice(prompts))
        elif what == "edit" and prompts:
            await engine.rewind(session_id, dice.choice(prompts), mode="edit")
        elif what == "unrewind":
            with contextlib.suppress(clew.Conflict):
                await engine.unrewind(session_id)
        elif what == "branch" and shown:
            await engine.branch(session_id, dice.choice(prompts or [message.id for message in shown]))
        elif what == "queue":
            await self._queue(session_id)
        elif what == "cancel" and queue:
            await engine.cancel_queued(session_id, queue[0].id)
        elif what == "fire" and queue:
            await self._settled(session_id, await engine.continue_turn(session_id, queue=True))
        elif what == "delete" and dice.random() < 0.1:
            await engine.delete_session(session_id)

    async def _queue(self, session_id: str) -> None:
        """Queue a prompt of ours behind one that is stopped; meanwhile the other program continues."""
        self.gate = Gate()
        running = await self.engine.submit(session_id, "hold on")
        if running.queued:
            return
        await self.gate.reached.wait()
        await self.engine.submit(session_id, f"we queue {self.dice.randrange(99)}")
        if self.dice.random() < 0.5:
            self._report("they write during a run")
            self.others.say(session_id, "during a run")
            self.others.answer(session_id, "and its answer")
            await self.engine.messages(session_id)
        await self.engine.abort(session_id)
        await self._settled(session_id, running)

    async def _settled(self, session_id: str, submission: Any) -> None:
        with contextlib.suppress(clew.ClewError):
            await submission.wait()
        # Queued prompts are sent automatically, unless the queue is paused.
        async for status in self.engine.watch_status(session_id):
            queued = await self.engine.queue(session_id) and not status.paused
            state = await self.engine.store.load_state(session_id)
            if not queued and state.open_turn_id is None and self.engine.is_idle(session_id):
                break

    async def _compare(self) -> None:
        """Check that both see the same."""
        if not self.is_open:
            return
        theirs = self.others.sessions()
        page = await self.engine.list_sessions(limit=200)
        assert sorted(session.id for session in page.sessions) == theirs, "they list other sessions than we do"
        for session_id in theirs:
            ours = [(one.id, one.role, one.parts) for one in await self.engine.messages(session_id)]
            # clew lists a summary first, the other program where it was written.
            shown = sorted(self.others.conversation(session_id), key=lambda one: not _is_summary(one))
            seen_by_others = [(one["id"], one["role"], one["parts"]) for one in shown]
            assert ours == seen_by_others, f"in {session_id} we see {ours}, they see {seen_by_others}"
            waiting = sorted(message.id for message in await self.engine.queue(session_id))
            assert waiting == sorted(self.others.queued(session_id)), f"in {session_id} the queues differ"


def _is_summary(message: dict[str, Any]) -> bool:
    return any(part["type"] == "data-compaction" for part in message["parts"])
