"""A program that performs one history operation on a session, to be killed at any point.

``python -m tests.rig.history_child ORDERS``. Its clock is fixed and its ids follow from the time, so the same orders on
the same file produce the same bytes: what a killed child left can be compared with the state before, and with the
result of an undisturbed run. Failpoints are armed once the store is open, so that the first hit belongs to the
operation.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final, Literal, get_args

import msgspec

from clew.compose import open as open_engine
from clew.config import Config
from clew.failpoints import arm
from clew.providers.base import ModelInfo, ModelRequest
from clew.session.api import Engine
from clew.session.context import compact
from clew.session.history import branch_line, branch_plan
from clew.testing.clock import FakeClock
from clew.testing.scripted import FakeProviders, ScriptedModel, call, say, then
from clew.tools.decorator import tool
from clew.transcript.metadata import local_place
from clew.transcript.rule import Target
from clew.transcript.session import Model
from clew.transcript.usage import Usage

__all__ = ["DEEDS", "SUMMARY", "Deed", "Orders", "look", "main", "open_at"]

Deed = Literal[
    "talk",
    "rewind",
    "resend",
    "unrewind",
    "goto",
    "branch",
    "branch_long",
    "slice",
    "fork",
    "compact",
    "prune",
    "delete",
    "make_room",
]
DEEDS: Final[tuple[Deed, ...]] = get_args(Deed)

SUMMARY: Final = """## Goal
{goal}
## Constraints & Preferences
(none)
## Progress
### Done
- talked
## Key Decisions
(none)
## Next Steps
- go on
## Critical Context
(none)
"""

_TOOLS_CHARS: Final = 2_500
_WIDE: Final = Model("test", "wide")
_NARROW: Final = Model("test", "narrow")


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """The operation, its store and its time. Without a ``session_id`` a session is created first."""

    store: str
    deed: Deed
    now_ms: int
    session_id: str | None = None
    failpoints: str = ""
    event_log: bool = False


@tool(targets=lambda arguments, workspace: [Target("todo", "plain", "look")])
async def look(number: int, size: int) -> str:
    """Look at something large."""
    return f"{number} " + "seen " * (size // 5)


def _model(now_ms: int) -> ScriptedModel:
    """Return a model that calls ``look`` three times per turn and then answers, and writes summaries on request."""
    calls = 0

    def reply(request: ModelRequest) -> Any:
        nonlocal calls
        if not request.tools:
            return say(SUMMARY.format(goal="to find the way out"))
        calls += 1
        piece = say("That is what I saw.")
        if calls % 4:
            # Call ids restart in each process and must be unique in a session.
            piece = call("look", {"number": calls, "size": 3_500}, id=f"call-{now_ms}-{calls}")
        chars = len(request.system) + len(msgspec.json.encode([message.parts for message in request.messages]))
        return then(piece, usage=Usage(input=(chars + _TOOLS_CHARS) // 4, output=20))

    return ScriptedModel(otherwise=reply)


@asynccontextmanager
async def open_at(url: str, now_ms: int, *, event_log: bool = False) -> AsyncIterator[Engine]:
    """Open an engine at a fixed time, from which all its ids follow."""
    infos = [
        ModelInfo(model=_WIDE, window=60_000, max_output=800, summariser=_WIDE),
        ModelInfo(model=_NARROW, window=4_400, max_output=800, summariser=_WIDE),
    ]
    providers = FakeProviders(_model(now_ms), infos=infos, default=_WIDE)
    clock = FakeClock(now_ms)
    config = Config(event_log=event_log)
    async with open_engine(url, config=config, clock=clock, providers=providers, tools=[look]) as engine:
        engine.mint._random = Random(now_ms).randrange
        yield engine


async def _talk(engine: Engine, session_id: str) -> None:
    """Run enough turns for a summary, and more after it."""
    for number in range(8):
        await _ask(engine, session_id, f"What of {number}?")
        if number == 3:
            await engine.compact(session_id)


async def _ask(engine: Engine, session_id: str, prompt: str, **options: Any) -> None:
    async for _ in engine.run(session_id, prompt, **options):
        pass


async def _users(engine: Engine, session_id: str) -> list[str]:
    """Return the user messages of the line, including summarised ones."""
    line = await engine.store.load_line(session_id)
    return [row.id for entry in line.turns for row in entry.messages if row.role == "user"]


async def _rewind(engine: Engine, session_id: str) -> None:
    await engine.rewind(session_id, (await _users(engine, session_id))[2], mode="edit")


async def _resend(engine: Engine, session_id: str) -> None:
    await engine.rewind(session_id, (await _users(engine, session_id))[5])


async def _goto(engine: Engine, session_id: str) -> None:
    await engine.set_head(session_id, (await engine.reflog(session_id))[-2].to_turn_id)


async def _branch(engine: Engine, session_id: str) -> None:
    await engine.branch(session_id, (await _users(engine, session_id))[6], metadata={"title": "another way"})


async def _branch_long(engine: Engine, session_id: str) -> None:
    """Copy the line two turns at a time, as a long one is copied in portions."""
    branch_line.__dict__["MAX_TURNS_PER_UNIT"] = branch_plan.__dict__["MAX_TURNS_PER_UNIT"] = 2
    await _branch(engine, session_id)


async def _slice(engine: Engine, session_id: str) -> None:
    users = await _users(engine, session_id)
    await engine.branch(session_id, users[6], start_message_id=users[5])


async def _fork(engine: Engine, session_id: str) -> None:
    await engine.fork((await engine.tree(session_id)).turns[-3].id, label="fork-here")


async def _make_room(engine: Engine, session_id: str) -> None:
    await _ask(engine, session_id, "What of all this?", model=str(_NARROW))


_OPERATIONS: Final[dict[Deed, Callable[[Engine, str], Any]]] = {
    "talk": _talk,
    "rewind": _rewind,
    "resend": _resend,
    "unrewind": lambda engine, session_id: engine.unrewind(session_id),
    "goto": _goto,
    "branch": _branch,
    "branch_long": _branch_long,
    "slice": _slice,
    "fork": _fork,
    "compact": lambda engine, session_id: engine.compact(session_id),
    "prune": lambda engine, session_id: engine.prune(session_id),
    "delete": lambda engine, session_id: engine.delete_session(session_id),
    "make_room": _make_room,
}


async def _run(orders: Orders) -> None:
    async with open_at(orders.store, orders.now_ms, event_log=orders.event_log) as engine:
        session_id = orders.session_id
        if session_id is None:
            session_id = (await engine.create_session(title="a past", metadata=local_place(None))).id
        if orders.deed == "compact" and orders.failpoints.startswith("writer."):
            # The cost of the summary is committed first; arm the failpoint for the compaction itself.
            compact.__dict__["failpoint"] = lambda name: arm(orders.failpoints)
        else:
            arm(orders.failpoints)
        await _OPERATIONS[orders.deed](engine, session_id)


def main() -> int:
    asyncio.run(_run(msgspec.json.decode(sys.argv[1], type=Orders)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
