"""The events ledger over HTTP: it outlives its sessions, knows each attempt, and has prompts where asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clew.config import Config
from clew.failpoints import arm, disarm
from clew.testing.scripted import Gate, fail, hang, say, wait
from tests.acceptance.triggered import answered, ended
from tests.integration.http_client import AsgiClient, served
from tests.integration.http_history import said, turn_of

EVENT = {"source": "mail", "source_id": "1", "text": "look", "routing": {"key": "room-7"}}
FILES = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("jsonl", "json")]
STORES = pytest.mark.parametrize("kind", ["sqlite", "memory", *FILES])
KEPT = pytest.mark.parametrize("kind", ["sqlite", *FILES])


def url_of(kind: str, folder: Path) -> str:
    return {"sqlite": f"sqlite:///{folder}/store.db", "memory": "memory:"}.get(kind, f"{kind}:{folder}/store")


async def rows(client: AsgiClient, query: str = "") -> list[dict[str, Any]]:
    """The ledger, oldest first."""
    return list(reversed((await client.get(f"/api/events/ledger{query}")).json()["events"]))


async def told(client: AsgiClient, query: str = "") -> list[tuple[Any, ...]]:
    return [(row["direction"], row["attempt"], row["status"], row["data"]) for row in await rows(client, query)]


@STORES
@pytest.mark.rule("EV-4")
async def test_an_event_is_known_after_its_session_is_deleted(kind: str, tmp_path: Path) -> None:
    """Who, where, when and what came of it stay, also over a restart; what was said is gone; a replay runs nothing."""
    store = url_of(kind, tmp_path)
    async with served(say("other"), say("seen"), store=store) as client:
        await client.post("/api/events", {**EVENT, "source_id": "2", "routing": {"key": "other"}})
        await answered(client.engine, 1)
        others = await rows(client)
        got = (await client.post("/api/events", EVENT)).json()
        await answered(client.engine, 2)
        [inbound, out] = (await rows(client))[2:]
        assert inbound["routing"] == {"key": "room-7"}
        assert (await client.request("DELETE", f"/api/sessions/{got['session_id']}")).status == 204
        bare = [{**inbound, "data": {}, "turn_id": None}, {**out, "data": {}}]
        assert await rows(client) == [*others, *bare]
        assert await rows(client, f"?turn={out['turn_id']}") == bare[1:]
        assert await rows(client, f"?session={got['session_id']}") == bare
    if kind == "memory":
        return
    async with served(store=store) as client:
        again = await client.post("/api/events", EVENT)
        assert (again.status, again.json()) == (202, got)
        assert (await client.post("/api/events", {**EVENT, "text": "changed"})).code == "duplicate_event"
        assert await rows(client) == [*others, *bare]
        assert (await client.get(f"/api/sessions/{got['session_id']}")).status == 404
        # Its key is free: what comes next by it makes a session anew.
        anew = (await client.post("/api/events", {**EVENT, "source_id": "3"})).json()
        assert anew["session_id"] != got["session_id"]


@STORES
@pytest.mark.rule("EV-4")
async def test_an_event_that_was_never_answered_goes_out_as_deleted_with_its_session(kind: str, tmp_path: Path) -> None:
    """One that ran as aborted, one that waited as deleted, and nothing is open after a restart."""
    store = url_of(kind, tmp_path)
    async with served(hang(), store=store) as client:
        got = (await client.post("/api/events", EVENT)).json()
        await client.post("/api/events", {**EVENT, "source_id": "2"})
        assert (await client.request("DELETE", f"/api/sessions/{got['session_id']}?force=true")).status == 204
        ends = [(row["source_id"], row["direction"], row["status"]) for row in await rows(client)]
        assert ends == [("1", "in", None), ("2", "in", None), ("1", "out", "aborted"), ("2", "out", "deleted")]
        assert await client.engine.store.open_events() == ()
    if kind != "memory":
        async with served(store=store) as client:
            assert [(row["source_id"], row["direction"], row["status"]) for row in await rows(client)] == ends
            assert await client.engine.store.open_events() == ()


@STORES
@pytest.mark.rule("EV-4")
async def test_a_turn_that_is_continued_and_then_succeeds_says_so(kind: str, tmp_path: Path) -> None:
    """Each attempt has its own row in and out, the newest counts; asking anew is an attempt too."""
    async with served(fail(400), say("now"), say("anew"), store=url_of(kind, tmp_path)) as client:
        got = (await client.post("/api/events", EVENT)).json()
        await answered(client.engine, 1)
        base = f"/api/sessions/{got['session_id']}"
        assert (await client.post(f"{base}/continue")).status == 202
        await answered(client.engine, 2)
        [failed] = [row for row in await rows(client) if row["status"] == "failed"]
        looked = ("in", 1, None, {"text": "look"})
        broke = ("out", 1, "failed", failed["data"])
        went = [("in", 2, None, {"why": "continued"}), ("out", 2, "completed", {"text": "now"})]
        assert await told(client) == [looked, broke, *went]
        assert {row["turn_id"] for row in await rows(client)} == {failed["turn_id"]}
        await ended(client.engine)
        assert (await client.post(f"{base}/continue", {"mode": "again"})).status == 202
        await answered(client.engine, 3)
        anew = [("in", 3, None, {"why": "again"}), ("out", 3, "completed", {"text": "anew"})]
        assert await told(client) == [looked, broke, *went, *anew]
        [*_, reply] = await client.messages(got["session_id"])
        assert (await rows(client))[-1]["turn_id"] == turn_of(reply) != failed["turn_id"]
        out = await client.engine.store.find_event("out", "mail", "1")
        assert out is not None
        assert (out.attempt, out.status) == (3, "completed")
        # The same delivery is still the same.
        assert (await client.post("/api/events", EVENT)).json() == got


@KEPT
@pytest.mark.rule("EV-4")
async def test_what_did_not_go_out_for_another_attempt_goes_out_once_at_the_next_open(
    kind: str, tmp_path: Path
) -> None:
    """The host is lost between the end of the turn and the row that says so."""
    store = url_of(kind, tmp_path)
    async with served(fail(400), say("now"), store=store) as client:
        got = (await client.post("/api/events", EVENT)).json()
        await answered(client.engine, 1)
        arm("ledger.before_outbound=raise")
        try:
            await client.post(f"/api/sessions/{got['session_id']}/continue")
            await client.idle(got["session_id"])
        finally:
            disarm()
        assert [row[:3] for row in await told(client)] == [("in", 1, None), ("out", 1, "failed"), ("in", 2, None)]
    for _ in range(2):
        async with served(store=store) as client:
            assert [row[:3] for row in await told(client)][2:] == [("in", 2, None), ("out", 2, "completed")]


@pytest.mark.rule("EV-2", "EV-4")
async def test_a_schedule_does_not_overlap_a_run_that_is_gone_on_with() -> None:
    """What it went out as before is not the last word on it."""
    gate = Gate()
    async with served(fail(400), [wait(gate), say("now")]) as client:
        made = (await client.post("/api/schedules", {"cron": "0 9 1 1 *", "prompt": "go"})).json()
        path = f"/api/schedules/{made['id']}/run"
        got = (await client.post(path)).json()
        await answered(client.engine, 1)
        await client.post(f"/api/sessions/{got['session_id']}/continue")
        await gate.reached.wait()
        assert (await client.post(path)).code == "run_in_flight"
        gate.set()
        await answered(client.engine, 2)


@STORES
@pytest.mark.rule("EV-4")
async def test_what_people_type_is_in_the_ledger_where_that_is_switched_on(kind: str, tmp_path: Path) -> None:
    """Prompts that ran, waited, were edited or began a fork, each with what went out; without the setting none is."""
    gate = Gate()
    script = [[wait(gate), say("one")], say("two"), say("edited"), say("aside")]
    config = Config(ledger_prompts=True)
    async with served(*script, store=url_of(kind, tmp_path), config=config) as client:
        session_id = await client.session(metadata={"workerId": "local", "workspaceId": "here"})
        await client.prompt(session_id, "first")
        await gate.reached.wait()
        await client.prompt(session_id, "second")
        gate.set()
        await answered(client.engine, 2)
        await ended(client.engine)
        [u1, _, u2, _] = await client.messages(session_id)
        body = {"message_id": u2["id"], "mode": "edit", "text": "second!", "run": True}
        assert (await client.post(f"/api/sessions/{session_id}/rewind", body)).status == 202
        await answered(client.engine, 3)
        await ended(client.engine)
        fork = (await client.post(f"/api/turns/{turn_of(u1)}/fork", {"text": "and if?"})).json()
        await answered(client.engine, 4)
        assert await said(client, fork["id"]) == ["first", "one", "and if?", "aside"]
        found = await rows(client)
        assert {row["source"] for row in found} == {"person:local"}
        came = {row["source_id"]: row for row in found if row["direction"] == "in"}
        assert [row["data"]["text"] for row in came.values()] == ["first", "second", "second!", "and if?"]
        assert [row["message_id"] for row in came.values()] == list(came)
        went = [
            (came[row["source_id"]]["data"]["text"], row["status"], row["data"]["text"])
            for row in found
            if row["status"]
        ]
        assert went == [
            ("first", "completed", "one"),
            ("second", "completed", "two"),
            ("second!", "completed", "edited"),
            ("and if?", "completed", "aside"),
        ]
    async with served(say("one")) as client:
        session_id = await client.session()
        await client.prompt(session_id, "first")
        await client.idle(session_id)
        assert await rows(client) == []
