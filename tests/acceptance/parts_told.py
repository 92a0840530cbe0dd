"""Parts of a history as they were told: the same whether pruned or not, settled or left behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from clew.compaction.context import Context, RequestFrame
from clew.compaction.policy import policy_for
from clew.config import CompactionConfig, PruningConfig
from clew.providers.base import ModelRequest
from clew.providers.evidence import request_digest
from clew.session.api import Engine
from clew.session.history.branch_plan import LEFT_BEHIND
from clew.store.base import LineSlice
from clew.transcript.line import LineTurn
from clew.transcript.message import Message
from clew.transcript.part import is_notice
from clew.transcript.session import Model
from clew.transcript.view import compactions_of, summarised_messages


def known_parts(parts: Iterable[dict[str, Any]]) -> list[Any]:
    """Parts by what makes them the same, pruned or not; the notes that clew sends with a turn are in no message."""
    return [part.get("toolCallId") or part for part in parts if not is_notice(part)]


def lost_parts(held: list[Any], pieces: Iterable[list[Any]]) -> list[Any]:
    """What of a message is in none of the pieces it was told in. Each has to be a stretch of it."""
    found: set[int] = set()
    for piece in pieces:
        starts = [at for at in range(len(held) - len(piece) + 1) if held[at : at + len(piece)] == piece]
        assert starts
        found.update(at + n for at in starts for n in range(len(piece)))
    return [part for n, part in enumerate(held) if n not in found and part != {"type": "step-start"}]


def settled_part(part: dict[str, Any]) -> dict[str, Any]:
    """A part as a branch holds it: a call that waits for a human is denied there."""
    approval = part.get("approval") or {}
    waits = "toolCallId" in part and not str(part["state"]).startswith("output-")
    if waits or approval.get("reason") == LEFT_BEHIND:
        return {"toolCallId": part["toolCallId"], "input": part.get("input"), "state": "left behind"}
    return part


def said_on_line(line: Sequence[LineTurn], through: str | None = None) -> list[Any]:
    """What people and the model said on a line, up to a message, without the summaries."""
    said: list[Any] = []
    for entry in line:
        for row in entry.messages:
            if entry.turn.kind == "normal":
                said.append((row.role, [settled_part(part.data) for part in row.parts]))
            if row.id == through and entry is line[-1]:
                return said
    return said


def sent_messages(messages: Iterable[Message]) -> list[Any]:
    return [(message.role, [settled_part(part) for part in message.parts]) for message in messages]


async def judge_kept(engine: Engine, session_id: str) -> None:
    """What a store still has of the line, and what was worked out from it, is what it would be if read anew."""
    await engine.context(session_id)
    lines = [
        await engine.store.find_view(session_id, keep_damaged=True, kept=kept) or LineSlice((), True)
        for kept in (True, True, False)
    ]
    assert lines[0] == lines[1] == lines[2]
    frame = RequestFrame(model=Model("test", "model"), window=4_000, max_output=800, system_chars=9, tools_chars=9)
    told = [
        Context(frame, policy_for(CompactionConfig(preset="guide"), PruningConfig(), None), line.turns, line.pruned)
        for line in lines
    ]
    seen = [(one.messages, one.size, one.settled_call, one.plan_prune(1), one.estimated) for one in told]
    requests = [ModelRequest(model=frame.model, system="", messages=one.messages) for one in told]
    assert (seen[0], request_digest(requests[0])) == (seen[2], request_digest(requests[2]))


async def judge_told(engine: Engine, session_id: str) -> Counter[str]:
    """Every part of the line is told by a summary or sent; every call has one result. What there was to be seen."""
    happened: Counter[str] = Counter()
    tree = await engine.store.load_tree(session_id)
    line = (await engine.store.load_line(session_id)).turns
    told: dict[str, list[list[Any]]] = {}
    on_line = {row.id for entry in line for row in entry.messages}
    compactions = list(compactions_of(line))
    for before, compaction in zip((None, *compactions), compactions, strict=False):
        report = await engine.compaction(session_id, compaction.marker.id)
        # Once the head has left the turn a summary made room in, the summary tells of more than is on the line.
        found = [message for message in report.messages if message.id in on_line]
        assert found == summarised_messages(line, compaction, before)
        for message in found:
            told.setdefault(message.id, []).append(known_parts(message.parts))
    model = await engine.messages(session_id, view="model")
    for message in model:
        if not message.metadata.get("summary"):
            told.setdefault(message.id, []).append(known_parts(message.parts))
    normal = [entry for entry in line if entry.turn.kind == "normal"]
    for turn, row in ((entry.turn, row) for entry in normal for row in entry.messages):
        # What a step that was cut had said is told to nobody once the turn went on.
        happened["unsent"] += row.id in turn.unsent
        sent = [part.data for part in row.parts][: turn.unsent.get(row.id)]
        held, pieces = known_parts(sent), told.get(row.id, [])
        assert lost_parts(held, pieces) == []
        happened["told twice"] += sum(map(len, pieces)) > len(held)
    calls = [part for message in model for part in message.parts if "toolCallId" in part]
    assert len({part["toolCallId"] for part in calls}) == len(calls)
    if tree.open_turn_id is None:
        assert [part for part in calls if not part["state"].startswith("output-")] == []
    return happened
