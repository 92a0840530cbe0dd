"""Sample sessions for demos and manual testing: one for each state a conversation can be in.

Each front fills the engine it has. A store has one owner, so two fronts never fill it concurrently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from clew.errors import InternalError
from clew.session.acquire.acquire import plan_end
from clew.session.api import Engine
from clew.store import unit as u
from clew.transcript.damage import seal_of
from clew.transcript.message import MessageRow, PartRow, Role
from clew.transcript.metadata import local_place
from clew.transcript.part import text_part
from clew.transcript.session import Session
from clew.transcript.turn import Step, Turn
from clew.transcript.usage import Usage

__all__ = ["SAMPLES", "fill"]

TURNS: Final = 2_000
_TURNS_PER_UNIT: Final = 100
_SAMPLE_KEY: Final = "sample"
_DAY_MS: Final = 86_400_000
_TALE: Final = (
    "Ariadne gives Theseus a ball of thread at the door of the labyrinth",
    "he ties one end to the gate and lets it run through his fingers",
    "every corner looks like the last one, and the torch burns low",
    "something breathes in the dark, very near, and very slowly",
    "the thread is the only thing in here that remembers the way",
    "he follows it back, past the corners, to the light of the gate",
)


async def fill(engine: Engine, workspace_root: Path, tell: Callable[[str], None] = lambda _: None) -> list[Session]:
    """Create the missing samples in ``workspace_root`` and return all of them, in their order."""
    known = await _find_samples(engine)
    sessions: list[Session] = []
    for label, (title, make) in SAMPLES.items():
        if label not in known:
            tell(title)
            location = local_place(str(workspace_root)) if engine.store.capabilities.required_metadata else {}
            session = await engine.create_session(
                model="demo/echo", title=title, workspace_root=workspace_root, metadata={_SAMPLE_KEY: label, **location}
            )
            await make(engine, session.id)
            # The label is set last, so that a half-made session does not count as a sample.
            known[label] = await engine.patch_session(session.id, metadata={"label": label, _SAMPLE_KEY: None})
        sessions.append(known[label])
    return sessions


async def _find_samples(engine: Engine) -> dict[str, Session]:
    """Return the samples by label. Half-made ones, left by an interrupted run, are deleted with their branches."""
    found: dict[str, Session] = {}
    for session in await _list_all(engine, q="Sample: "):
        if session.label in SAMPLES:
            found[str(session.label)] = session
        elif session.metadata.get(_SAMPLE_KEY) in SAMPLES and session.parent_id is None:
            for branch in await _list_all(engine, parent=session.id):
                await engine.delete_session(branch.id, force=True)
            await engine.delete_session(session.id, force=True)
    return found


async def _list_all(engine: Engine, *, q: str | None = None, parent: str | None = None) -> list[Session]:
    sessions: list[Session] = []
    cursor: str | None = None
    while True:
        page = await engine.list_sessions(limit=200, cursor=cursor, archived=True, q=q, parent=parent)
        sessions += page.sessions
        cursor = page.next_cursor
        if cursor is None:
            return sessions


async def _make_branches(engine: Engine, session_id: str) -> None:
    """Make diverging lines: a rewind, an undone rewind, a jump, a branch and a fork."""
    await _send_all(engine, session_id, *_TALE[:3])
    first, _, second, answer, third, _ = await engine.messages(session_id)
    rewound = await engine.rewind(session_id, third.id, mode="edit", text="what if he lets go of it?", run=True)
    if rewound.submission is not None:
        await rewound.submission.wait()
    await engine.rewind(session_id, first.id)
    await engine.unrewind(session_id)
    await engine.set_head(session_id, str(third.turn_id))
    await _send_all(engine, session_id, _TALE[5])
    aside = await engine.branch(session_id, answer.id, metadata={"title": "Sample: a branch of it", "label": "aside"})
    await _send_all(engine, aside.id, "he turns back and asks her for a second ball")
    forked = await engine.fork(str(second.turn_id), label="another way")
    await engine.rename_session(forked.id, "Sample: a fork of it")


async def _make_compacted(engine: Engine, session_id: str) -> None:
    """Fill a small context window and compact it twice."""
    for _ in range(2):
        await _send_all(engine, session_id, *(f"{line}. {' '.join(_TALE)}" for line in _TALE[:5]))
        await engine.compact(session_id, "who holds the thread")
    await _send_all(engine, session_id, "who holds the thread now?")


async def _make_waiting(engine: Engine, session_id: str) -> None:
    """Leave a tool call waiting for approval."""
    await engine.submit(session_id, "!bash echo hello from the labyrinth", model="demo/tools")
    async for status in engine.watch_status(session_id):
        if status.waiting:
            return


async def _make_queue(engine: Engine, session_id: str) -> None:
    """Queue prompts behind a call that waits for approval."""
    await _make_waiting(engine, session_id)
    for line in _TALE[:3]:
        await engine.submit(session_id, line, model="demo/echo")


async def _make_long(engine: Engine, session_id: str) -> None:
    """Write many turns directly as units, without asking a model."""
    session = await engine.get_session(session_id)
    start = session.created_at - _DAY_MS
    parent: str | None = None
    writes: list[u.Write] = []
    for number in range(TURNS):
        now = start + number * (_DAY_MS // TURNS)
        turn = Turn(id=engine.mint.turn(), session_id=session_id, parent_turn_id=parent, created_at=now)
        line = f"{_TALE[number % len(_TALE)]} (turn {number + 1})"
        writes += [u.OpenTurn(turn), *_message_writes(engine, session, turn.id, "user", line, now, number)]
        writes += _message_writes(engine, session, turn.id, "assistant", line, now, number)
        writes += plan_end(turn.id, "completed", now)
        parent = turn.id
        if (number + 1) % _TURNS_PER_UNIT == 0:
            outcome = await engine.store.commit(u.Unit(session_id, (*writes, u.PatchSession(updated_at=now))))
            if isinstance(outcome, u.Refused):
                raise InternalError(f"a unit was refused: {outcome.reason}", session_id=session_id)
            writes.clear()
            # Not every store yields to the event loop while it writes.
            await asyncio.sleep(0)


def _message_writes(
    engine: Engine, session: Session, turn_id: str, role: Role, line: str, now: int, number: int
) -> list[u.Write]:
    mint = engine.mint
    parts = [text_part(line)]
    if role == "assistant":
        parts = [{"type": "step-start"}, {"type": "text", "text": line, "state": "done"}]
    rows = tuple(PartRow(mint.part(), index, part, now, now) for index, part in enumerate(parts))
    metadata = {"model": msgspec.to_builtins(session.model)}
    message = MessageRow(mint.message(), session.id, role, now, now, metadata, rows)
    writes: list[u.Write] = [u.InsertMessage(message), u.LinkMessage(turn_id, message.id)]
    if role == "assistant":
        # Count all earlier text on both sides as input, as if it had been sent.
        used = Usage(input=number * len(line) // 2, output=len(line) // 4)
        about: Any = {"model": session.model, "started_at": now, "finished_at": now, "finish_reason": "stop"}
        writes.append(u.RecordStep(Step(turn_id=turn_id, index=0, message_id=message.id, usage=used, **about)))
    return [*writes, u.SealMessage(message.id, seal_of(parts))]


async def _send_all(engine: Engine, session_id: str, *lines: str) -> None:
    for line in lines:
        await (await engine.submit(session_id, line)).wait()


SAMPLES: Final[Mapping[str, tuple[str, Callable[[Engine, str], Awaitable[None]]]]] = {
    "demo:branches": ("Sample: diverging branches", _make_branches),
    "demo:compacted": ("Sample: compacted twice", _make_compacted),
    "demo:waiting": ("Sample: waiting for approval", _make_waiting),
    "demo:queue": ("Sample: queued prompts", _make_queue),
    "demo:long": ("Sample: 2,000 turns", _make_long),
}
"""Title and maker of each sample, by label."""
