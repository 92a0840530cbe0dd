"""What people look at costs the same in a short session and in a long one: counted, not timed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from clew.store.sql.sqlite import connection
from clew.store.unit import LinkMessage, MoveHead, OpenTurn, RecordStep, Write
from clew.testing.clock import FakeClock
from clew.testing.scribe import Scribe, settled, user_row
from clew.testing.scripted import say, then
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.session import Model
from clew.transcript.turn import Step, Turn, TurnKind
from clew.transcript.usage import Usage
from tests.integration.http_client import AsgiClient, served

_MODEL: Final = Model("test", "model")


class Steps:
    """Counts what a store's connections do, in tens of steps of SQLite's machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        step = self._step

        class Counted(connection._Counted):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                self.set_progress_handler(step, 10)

        monkeypatch.setattr(connection, "_Counted", Counted)

    def _step(self) -> int:
        self.count += 1
        return 0


async def fill(scribe: Scribe, turns: int, *, compacted: bool) -> list[str]:
    """So many turns, every hundredth asked twice, and with a summary of all but the last twelve."""
    parent: str | None = None
    users: list[str] = []
    now = scribe.clock.now_ms()
    for start in range(0, turns, 100):
        writes: list[Write] = []
        for number in range(start, min(start + 100, turns)):
            asked = user_row(scribe.mint, scribe.session_id, f"prompt {number}", now)
            read = {"type": "tool-read", "toolCallId": f"c{number}", "state": "output-available", "output": "x" * 500}
            said = _row(scribe, now, {**read, "input": {"path": f"file{number % 7}"}})
            above, parent = parent, scribe.mint.turn()
            writes += [*settled(asked), *settled(said), *_turn(scribe, parent, above, "normal", asked.id, said.id)]
            first = parent
            if number % 100 == 99:
                parent = scribe.mint.turn()
                writes += _turn(scribe, parent, above, "normal", asked.id)
            if number % 100 >= 60:
                booked = Step(
                    turn_id=first,
                    index=0,
                    message_id=said.id,
                    usage=Usage(1_000, 10),
                    model=_MODEL,
                    started_at=now,
                    finished_at=now,
                    data={"sized": [4_000, 100]},
                )
                writes.append(RecordStep(booked))
            users.append(asked.id)
        await scribe.commit(*writes)
    if compacted:
        marker = _row(scribe, now, {"type": "data-compaction", "data": {"summary": "s", "tail_start_id": users[-12]}})
        await scribe.commit(*settled(marker), *_turn(scribe, scribe.mint.turn(), parent, "compaction", marker.id))
    return users


def _turn(scribe: Scribe, id_: str, parent: str | None, kind: TurnKind, *messages: str) -> list[Write]:
    now = scribe.clock.now_ms()
    about: dict[str, Any] = {"kind": kind, "status": "completed", "created_at": now, "settled_at": now}
    turn = Turn(id=id_, session_id=scribe.session_id, parent_turn_id=parent, **about)
    return [OpenTurn(turn), *(LinkMessage(id_, message) for message in messages), MoveHead(id_, now, "turn")]


def _row(scribe: Scribe, now: int, part: dict[str, Any]) -> MessageRow:
    both = ({"type": "step-start"}, part)
    parts = tuple(PartRow(scribe.mint.part(), index, one, now, now) for index, one in enumerate(both))
    return MessageRow(scribe.mint.message(), scribe.session_id, "assistant", now, now, {}, parts)


async def costs(client: AsgiClient, steps: Steps, turns: int, *, compacted: bool) -> dict[str, int]:
    """What each look at a session of so many turns takes."""
    scribe = await Scribe.create(client.engine.store, clock=FakeClock(), model=_MODEL)
    users = await fill(scribe, turns, compacted=compacted)
    base = f"/api/sessions/{scribe.session_id}"
    await client.prompt(scribe.session_id, "go on")
    await client.idle(scribe.session_id)
    newest = (await client.get(f"{base}/tree?limit=20")).json()
    looks = {
        "last page": "messages?limit=10",
        "page before it": f"messages?limit=10&before={users[-6]}",
        "page in the middle": f"messages?limit=10&before={users[-10 if compacted else len(users) // 2]}",
        "tree": "tree?limit=20",
        "tree before that": f"tree?limit=20&cursor={newest['next_cursor']}",
        "tree in the middle": f"tree?limit=20&cursor={newest['turns'][0]['parent_turn_id']}",
        "reflog": "reflog?limit=20",
        "reflog in the middle": f"reflog?limit=20&before={turns // 2}",
        "gauge": "context",
        "status": "status",
        "files": "files?limit=20",
        "files before that": f"files?limit=20&cursor={newest['next_cursor']}",
    }
    found: dict[str, int] = {}
    for name, path in looks.items():
        before = steps.count
        answer = await client.get(f"{base}/{path}")
        assert answer.status == 200, (name, answer.json())
        found[name] = steps.count - before
    return found


@pytest.mark.slow
@pytest.mark.rule("ST-15")
@pytest.mark.parametrize("compacted", [False, True], ids=["as it is", "compacted"])
async def test_a_look_at_a_long_session_takes_what_it_takes_in_a_short_one(
    compacted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of messages anywhere, of the tree, the reflog and the files, over HTTP: 70 turns against 1,400."""
    steps = Steps(monkeypatch)
    said = then(say("one"), usage=Usage(5_000, 10))
    async with served(said, said, store=f"sqlite:///{tmp_path / 'store.db'}") as client:
        short = await costs(client, steps, 70, compacted=compacted)
        long = await costs(client, steps, 1_400, compacted=compacted)
    assert min(short.values()) > 0
    assert {name: (count, long[name]) for name, count in short.items() if long[name] > 1.5 * count + 150} == {}
