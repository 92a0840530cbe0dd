"""Where in a kept line something was touched is looked up, and never further on than it was."""

from __future__ import annotations

import random

from clew.store.base import LineSlice
from clew.store.sql.line_cache import LineCache
from clew.store.unit import LinkMessage, MoveHead, PatchMessage, SetTurn, Unit
from clew.transcript.line import LineTurn
from clew.transcript.message import MessageRow
from clew.transcript.turn import Turn
from tests.rounds import rounds

SESSION = "ses_1"


def turn(number: int) -> LineTurn:
    messages = tuple(MessageRow(f"msg_{number}_{n}", SESSION, "user", 1, 1, {}) for n in range(2))
    about = Turn(id=f"trn_{number}", session_id=SESSION, parent_turn_id=None, status="completed", created_at=1)
    return LineTurn(about, messages)


def test_what_is_touched_in_a_kept_line_is_found_whatever_became_of_the_line() -> None:
    """It goes on, is read again from some turn on, goes back and on elsewhere; old messages and turns are touched."""
    chance = random.Random(3)
    for _ in range(rounds(200)):
        lines, made, commit = LineCache(lambda _: True), 0, 1
        turns: list[LineTurn] = []
        for _ in range(12):
            commit += 1
            known = lines.find(SESSION, commit)
            kept = known.untouched if known is not None else 0
            before = set(known.touched) if known is not None else set()
            for place, entry in enumerate(turns[:kept]):
                assert not before & {entry.turn.id, *(row.id for row in entry.messages)}, place
            # What was touched is read again, and is another value.
            fresh = chance.randint(0, 3)
            turns = [*turns[:kept], *(turn(int(one.turn.id[4:])) for one in turns[kept:])]
            turns += [turn(made + n) for n in range(fresh)]
            made += fresh
            lines.keep(SESSION, commit, LineSlice(tuple(turns), complete=True), known)
            for _ in range(chance.randint(0, 2)):
                commit += 1
                entry = chance.choice(turns) if turns and chance.random() < 0.8 else turn(made)
                write = chance.choice(
                    [
                        PatchMessage(entry.messages[-1].id, 1),
                        SetTurn(entry.turn.id, None),
                        LinkMessage(entry.turn.id, "msg_new"),
                    ]
                )
                lines.committed(commit, [Unit(SESSION, (write,))])
            if turns and chance.random() < 0.3:
                commit += 1
                place = chance.randrange(len(turns))
                lines.committed(commit, [Unit(SESSION, (MoveHead(turns[place].turn.id, 1, "goto"),))])
                turns = turns[: place + 1]
            else:
                lines.committed(commit + 1, [])
