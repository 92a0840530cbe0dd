"""Moving the head and branching cost what they change, in a short session and in a long one: counted, not timed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clew.ids import Mint
from clew.testing.clock import FakeClock
from clew.testing.scribe import Scribe
from clew.testing.scripted import say, then
from clew.transcript.usage import Usage
from tests.integration.http_client import AsgiClient, served
from tests.integration.test_looking_does_not_grow import _MODEL, Steps, fill

_HEADINGS = ("Goal", "Constraints & Preferences", "Progress", "Key Decisions", "Next Steps", "Critical Context")
SUMMARY = "\n".join(f"## {heading}\n- something" for heading in _HEADINGS)


async def costs(client: AsgiClient, steps: Steps, turns: int, *, compacted: bool) -> dict[str, int]:
    """What each move in a session of so many turns takes."""
    scribe = await Scribe.create(client.engine.store, clock=FakeClock(), mint=Mint(), model=_MODEL)
    users = await fill(scribe, turns, compacted=compacted)
    base = f"/api/sessions/{scribe.session_id}"
    await client.prompt(scribe.session_id, "go on")
    await client.idle(scribe.session_id)
    path = await client.engine.store.load_path(scribe.session_id, await head_of(client, scribe.session_id), turns=3)
    found: dict[str, int] = {}

    async def count(name: str, path: str, body: Any = None) -> Any:
        before = steps.count
        answer = await client.post(f"{base}/{path}", body)
        assert answer.status in (200, 201), (name, answer.json())
        found[name] = steps.count - before
        return answer.json()

    back = users[-4 if compacted else -10]
    rewound = await count("rewind", "rewind", {"message_id": back, "mode": "edit"})
    await count("un-rewind", "unrewind")
    again = await count("to where it was", "head", {"turn_id": rewound["head_turn_id"]})
    await count("and to the end", "head", {"turn_id": path[-1].turn.id})
    assert len(rewound["hidden"]) == len(again["hidden"]) > 4
    await count("ask again", "rewind", {"message_id": back, "mode": "resend"})
    await count("branch near the start", "branch", {"from_message_id": users[20]})
    await count("branch from a message on", "branch", {"from_message_id": users[30], "start_message_id": users[25]})
    if compacted:
        # Whoever goes on sends all that is in force: where nothing was summarised that is everything.
        before = steps.count
        await client.post(f"{base}/continue", {})
        await client.idle(scribe.session_id)
        found["continue"] = steps.count - before
        done = await count("summarise once more", "compact")
        assert done["compacted"], done
    return found


async def head_of(client: AsgiClient, session_id: str) -> str | None:
    return (await client.engine.store.load_state(session_id)).head_turn_id


@pytest.mark.slow
@pytest.mark.rule("ST-15", "RW-1", "BR-1")
@pytest.mark.parametrize("compacted", [False, True], ids=["as it is", "compacted"])
async def test_a_move_in_a_long_session_takes_what_it_takes_in_a_short_one(
    compacted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rewind, un-rewind, set head, ask again, continue, summarise, branch at a point, by HTTP: 70 turns and 1,400."""
    steps = Steps(monkeypatch)
    said, told = then(say("one"), usage=Usage(5_000, 10)), then(say(SUMMARY), usage=Usage(5_000, 10))
    async with served(said, said, told, said, said, told, store=f"sqlite:///{tmp_path / 'store.db'}") as client:
        short = await costs(client, steps, 70, compacted=compacted)
        long = await costs(client, steps, 1_400, compacted=compacted)
    assert min(short.values()) > 0
    assert {name: (count, long[name]) for name, count in short.items() if long[name] > 1.5 * count + 150} == {}
