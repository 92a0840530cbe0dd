"""Conversations to go back in: made, looked at, and judged."""

from __future__ import annotations

import random
from typing import Any

from clew.store.unit import (
    InsertMessage,
    LinkMessage,
    MoveHead,
    MoveTurn,
    OpenTurn,
    SealMessage,
    SetHidden,
    SetTurn,
    Unit,
    Write,
)
from clew.testing.scenario import Scenario
from clew.testing.scribe import settled
from clew.testing.scripted import ScriptedModel, say
from clew.transcript.damage import seal_of
from clew.transcript.line import line_messages, line_turns
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.projection import compaction_tails, hidden_messages
from clew.transcript.turn import Tree, Turn


def echo() -> ScriptedModel:
    """A model that answers whatever it is asked with the words it was asked."""
    return ScriptedModel(otherwise=lambda request: say(f"re {request.messages[-1].parts[0]['text']}"))


async def talk(s: Scenario, *prompts: str) -> list[str]:
    """Prompts, each answered; the ids of their messages."""
    sent = []
    for text in prompts:
        submission = await s.send(text)
        await submission.wait()
        await s.settled()
        sent.append(submission.message_id)
    return sent


async def rows_of(s: Scenario) -> dict[str, MessageRow]:
    """Every message as it is stored."""
    return {row.id: row for row in await s.engine.store.load_messages(s.id)}


async def tree_of(s: Scenario) -> Tree:
    return await s.engine.store.load_tree(s.id)


async def turn_of(s: Scenario, message_id: str) -> Turn:
    """The turn on the line that holds a message."""
    return next(turn for turn, held in line_messages(await tree_of(s)) if held == message_id)


async def project_again(s: Scenario) -> None:
    """Bring the projections up to date after the tree was written by hand."""
    tree = await tree_of(s)
    rows = await rows_of(s)
    truth = hidden_messages(tree, compaction_tails(tree, rows))
    await commit(s, SetHidden({id_: truth.get(id_) for id_ in rows}))


async def commit(s: Scenario, *writes: Write) -> None:
    await s.engine.store.commit(Unit(s.id, writes))


async def summarise(s: Scenario, tail_start_id: str | None, summary: str = "so far", **data: Any) -> tuple[str, str]:
    """A compaction as the runtime writes one; the ids of its turn and its marker."""
    host = s.engine.host
    tree, now = await tree_of(s), host.clock.now_ms()
    turn = Turn(
        id=host.mint.turn(),
        session_id=s.id,
        parent_turn_id=tree.head_turn_id,
        created_at=now,
        kind="compaction",
        status="completed",
        settled_at=now,
        data={"tail_start_id": tail_start_id},
    )
    body = {"summary": summary, "tail_start_id": tail_start_id, "auto": False, "summary_tokens": 2, **data}
    part = PartRow(host.mint.part(), 0, {"type": "data-compaction", "data": body}, now, now)
    row = MessageRow(host.mint.message(), s.id, "assistant", now, now, {"synthetic": True}, (part,))
    await commit(
        s,
        OpenTurn(turn),
        InsertMessage(row),
        SealMessage(row.id, seal_of([part.data])),
        LinkMessage(turn.id, row.id),
        MoveHead(turn.id, now, "compaction"),
    )
    await project_again(s)
    return turn.id, row.id


async def refuse(s: Scenario, parent_turn_id: str | None = None) -> tuple[str, str]:
    """A turn that was refused below another, with a message; the ids of both."""
    mint = s.engine.mint
    turn = Turn(id=mint.turn(), session_id=s.id, parent_turn_id=parent_turn_id, created_at=1)
    row = MessageRow(mint.message(), s.id, "user", 1, 1, {}, ())
    await commit(s, OpenTurn(turn), *settled(row), LinkMessage(turn.id, row.id))
    await commit(s, SetTurn(turn.id, "refused", settled_at=2))
    await project_again(s)
    return turn.id, row.id


async def is_sound(s: Scenario) -> None:
    """The judge finds nothing."""
    assert await s.check() == []


async def summarise_inside(s: Scenario, turn: Turn, tail_start_id: str, **data: Any) -> tuple[str, str]:
    """A compaction that made room for a turn while it was open."""
    tree = await tree_of(s)
    parent = tree.turns[turn.id].parent_turn_id
    now = s.engine.clock.now_ms()
    # Back to how it was: the turn open below its parent.
    await commit(s, MoveHead(parent, now, "rewind"), SetTurn(turn.id, "running"))
    made = await summarise(s, tail_start_id, **data)
    await commit(s, MoveTurn(turn.id, made[0]))
    await commit(s, SetTurn(turn.id, "completed", settled_at=now), MoveHead(turn.id, now, "turn"))
    await project_again(s)
    return made


ACTIONS = ["prompt", "prompt", "prompt", "resend", "edit", "undo", "undo", "goto", "compact", "continue", "run"]


async def act(s: Scenario, action: str, rng: random.Random) -> None:
    tree = await tree_of(s)
    users = [tree.links[turn.id][0] for turn in line_turns(tree) if turn.kind == "normal"]
    if action == "prompt":
        await talk(s, f"p{rng.random()}")
    elif action in ("resend", "edit", "run") and users:
        before, head = await rows_of(s), tree.head_turn_id
        mode: Any = "edit" if action == "edit" else "resend"
        await s.engine.rewind(s.id, rng.choice(users), mode=mode, run=action == "run")
        await s.settled()
        if action != "run" and len((await tree_of(s)).moves) > len(tree.moves) and rng.random() < 0.5:
            assert (await s.engine.unrewind(s.id)).head_turn_id == head
            assert await rows_of(s) == before
    elif action == "undo":
        await s.engine.unrewind(s.id)
    elif action == "goto":
        await s.engine.set_head(s.id, rng.choice([None, *sorted(tree.turns)]))
    elif action == "compact" and users:
        await summarise(
            s, rng.choice([*users, *(tree.links[t.id][-1] for t in line_turns(tree) if t.kind == "normal")])
        )
    elif action == "continue":
        await s.engine.continue_turn(s.id)
        await s.settled()
