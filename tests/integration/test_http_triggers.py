"""Events, schedules and webhooks over HTTP: what is answered, who is let in, and what hostile bytes come to."""

from __future__ import annotations

import base64
import json
import logging
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from clew.testing.clock import FakeClock
from clew.testing.scripted import FakeProviders, ScriptedModel, say
from clew.triggers.values.signature import TOLERANCE_S, sign
from clew.triggers.webhooks import MAX_DELIVERY
from tests.acceptance.triggered import answered, ended
from tests.integration.http_client import Answer, AsgiClient, served, texts
from tests.integration.http_fuzzed import bodies
from tests.integration.http_values import HOSTILE

NOBODY = "sch_" + "0" * 26
EVENT = {"source": "github", "source_id": "42", "type": "push", "text": "look", "routing": {"label": "inbox"}}
NOW = 1_800_000_000


def talking() -> FakeProviders:
    return FakeProviders(ScriptedModel([say("done")] * 200))


async def delivered(
    client: AsgiClient,
    secret: str,
    body: bytes,
    delivery_id: str = "d1",
    *,
    name: str = "door",
    stamp: int = NOW,
    headers: dict[str, str | None] | None = None,
) -> Answer:
    """A delivery, signed with the secret; without the token."""
    signed: dict[str, str | None] = {
        "authorization": None,
        "webhook-id": delivery_id,
        "webhook-timestamp": str(stamp),
        "webhook-signature": sign(secret, delivery_id, stamp, body),
    }
    return await client.post(f"/api/hooks/{name}", body, headers={**signed, **(headers or {})})


async def opened_door(client: AsgiClient, **fields: Any) -> str:
    answer = await client.post("/api/hooks", {"name": "door", **fields})
    assert answer.status == 201, answer
    return str(answer.json()["secret"])


# Events


@pytest.mark.rule("EV-1")
async def test_an_event_is_taken_once_and_stands_in_the_ledger_with_what_went_out() -> None:
    """The same again is answered alike, other content is 409, and the stream of events is where it was."""
    async with served(providers=talking()) as client:
        first = await client.post("/api/events", EVENT)
        assert (first.status, sorted(first.json())) == (202, ["event_id", "message_id", "session_id"])
        await answered(client.engine, 1)
        again = await client.post("/api/events", EVENT)
        assert (again.status, again.json()) == (202, first.json())
        other = await client.post("/api/events", {**EVENT, "text": "other"})
        assert (other.status, other.code, other.json()["event_id"]) == (
            409,
            "duplicate_event",
            first.json()["event_id"],
        )
        session_id = first.json()["session_id"]
        page = (await client.get(f"/api/events/ledger?session={session_id}")).json()
        assert [(one["direction"], one["status"], one["source_id"]) for one in page["events"]] == [
            ("out", "completed", "42"),
            ("in", None, "42"),
        ]
        turn_id = page["events"][0]["turn_id"]
        assert (await client.get(f"/api/events/ledger?turn={turn_id}")).json() == page
        assert (await client.get("/api/events/ledger?source=nobody")).json() == {"events": [], "next_cursor": None}
        [one] = (await client.get("/api/events/ledger?limit=1")).json()["events"]
        cursor = (await client.get("/api/events/ledger?limit=1")).json()["next_cursor"]
        [two] = (await client.get(f"/api/events/ledger?limit=1&cursor={cursor}")).json()["events"]
        assert [one, two] == page["events"]
        [user, _] = await client.messages(session_id)
        assert user["metadata"]["trigger"]["source"] == "github"
        async with client.open("GET", "/api/events") as reply:
            assert (await anext(reply.frames()))["type"] == "hello"


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"source": "schedule"}, 422),
        ({"source_id": "a b"}, 422),
        ({"text": None}, 422),
        ({"routing": {}}, 422),
        ({"routing": {"label": "a", "key": "b"}}, 422),
        ({"routing": {"session_id": "x"}}, 400),
        ({"routing": {"session_id": "ses_" + "0" * 26}}, 404),
        ({"model": "nonsense"}, 422),
        ({"model": {"x": 1}}, 422),
        ({"agent": "nobody"}, 422),
        ({"workspace_root": "/not/there"}, 422),
        ({"payload": "x" * 1_100_000}, 422),
        ({"payload": "x" * 2_100_000}, 413),
    ],
)
async def test_an_event_that_cannot_be_taken_makes_no_session(changes: dict[str, Any], status: int) -> None:
    """It is refused before anything is stored."""
    async with served() as client:
        answer = await client.post("/api/events", {**EVENT, **changes})
        assert answer.status == status, answer
        assert (await client.get("/api/sessions")).json()["sessions"] == []
        assert (await client.get("/api/events/ledger")).json()["events"] == []


# Schedules


@pytest.mark.rule("EV-2")
async def test_a_schedule_is_made_listed_changed_paused_run_and_removed() -> None:
    """And says when it fires next."""
    clock = FakeClock(NOW * 1000)
    async with served(providers=talking(), clock=clock, triggers=False) as client:
        body = {"cron": "0 9 * * *", "prompt": "hello", "timezone": "Europe/Vienna"}
        made = await client.post("/api/schedules", body)
        assert made.status == 201
        schedule = made.json()
        nine = datetime(2027, 1, 16, 9, tzinfo=ZoneInfo("Europe/Vienna"))
        assert schedule == {**schedule, **body, "next_fire_at": nine.timestamp() * 1000, "paused": False}
        path = f"/api/schedules/{schedule['id']}"
        assert (await client.get("/api/schedules")).json() == {"schedules": [schedule]}
        paused = await client.request("PATCH", path, {"paused": True})
        assert (paused.json()["paused"], paused.json()["next_fire_at"]) == (True, None)
        assert (await client.request("PATCH", path, {"paused": False})).json() == schedule
        assert (await client.request("PATCH", path, {})).json() == schedule
        run = await client.post(f"{path}/run")
        assert run.status == 202
        await ended(client.engine)
        assert [texts(one) for one in await client.messages(run.json()["session_id"])] == ["hello", "done"]
        assert (await client.request("PATCH", path, {"cron": "nonsense"})).status == 422
        assert (await client.request("DELETE", path)).status == 204
        for method, at in [("GET", path), ("PATCH", path), ("DELETE", path), ("POST", f"{path}/run")]:
            answer = await client.request(method, at, {})
            assert (answer.status, answer.code) == (404, "trigger_not_found")
        assert (await client.get("/api/schedules/x")).status == 400


# Webhooks


@pytest.mark.rule("EV-2")
async def test_a_signed_delivery_starts_a_turn_and_the_same_again_does_not() -> None:
    """Its envelope has the id and the headers that matter; with other content the id is a conflict."""
    async with served(providers=talking(), clock=FakeClock(NOW * 1000)) as client:
        secret = await opened_door(client, prompt="A build ended.", routing={"key": "builds"})
        body = b'{"type": "build.failed", "id": 7}'
        more: dict[str, str | None] = {"x-github-event": "push", "x-api-key": "hush", "cookie": "a=b"}
        first = await delivered(client, secret, body, headers=more)
        assert first.status == 202, first
        await answered(client.engine, 1)
        assert (await delivered(client, secret, body, stamp=NOW + 60)).json() == first.json()
        other = await delivered(client, secret, b'{"type": "build.failed", "id": 8}')
        assert (other.status, other.code) == (409, "duplicate_event")
        session = (await client.get(f"/api/sessions/{first.json()['session_id']}")).json()
        assert {key: session["metadata"][key] for key in ("source", "webhook", "routing_key")} == {
            "source": "webhook",
            "webhook": "door",
            "routing_key": "builds",
        }
        [user, _] = await client.messages(session["id"])
        assert [part["text"] for part in user["parts"]] == [
            "A build ended.",
            '{\n  "type": "build.failed",\n  "id": 7\n}',
        ]
        assert user["metadata"]["trigger"] == {
            "source": "webhook",
            "fired_at": NOW * 1000,
            "delivery_id": "d1",
            "headers": {"content-type": "application/json", "x-github-event": "push"},
            "auth_subject": "hook:door",
        }
        [out, inbound] = (await client.get("/api/events/ledger?source=hook:door")).json()["events"]
        assert (inbound["type"], inbound["data"], out["status"]) == (
            "build.failed",
            {"payload": {"type": "build.failed", "id": 7}},
            "completed",
        )


@pytest.mark.rule("EV-2")
async def test_nobody_without_the_secret_is_let_in_or_told_anything() -> None:
    """A wrong signature, another body, an old one, none, the token, a webhook that is not there: one and the same."""
    async with served(providers=talking(), clock=FakeClock(NOW * 1000)) as client:
        secret = await opened_door(client)
        wrong = "whsec_" + base64.b64encode(b"x" * 32).decode()
        good = sign(secret, "d1", NOW, b"{}")
        tries = [
            await delivered(client, wrong, b"{}"),
            await delivered(client, secret, b"{}", name="not-there"),
            await delivered(client, secret, b"{ }", headers={"webhook-signature": good}),
            await delivered(client, secret, b"{}", "d2", headers={"webhook-signature": good}),
            await delivered(client, secret, b"{}", stamp=NOW - TOLERANCE_S - 1),
            await delivered(client, secret, b"{}", stamp=NOW + TOLERANCE_S + 1),
            await client.post("/api/hooks/door", b"{}"),
            await client.post("/api/hooks/door", b"{}", headers={"authorization": None}),
        ]
        assert {(one.status, one.code, one.json()["detail"]) for one in tries} == {
            (401, "signature_invalid", "this delivery is not signed for this webhook, or not within five minutes")
        }
        assert (await client.get("/api/sessions")).json()["sessions"] == []
        limited = [await delivered(client, wrong, b"{}") for _ in range(40)]
        assert limited[-1].status == 429
        # Whoever knows the secret is not held up by those who do not.
        assert (await delivered(client, secret, b'{"a": 1}')).status == 202


async def test_a_signature_opens_one_door_and_nothing_else() -> None:
    """Everything around it needs the token; no way of writing the path gets past that."""
    async with served(clock=FakeClock(NOW * 1000)) as client:
        secret = await opened_door(client)
        without = {"authorization": None}
        for method, path in [
            ("GET", "/api/hooks"),
            ("POST", "/api/hooks"),
            ("POST", "/api/hooks/"),
            ("GET", "/api/hooks/door"),
            ("PATCH", "/api/hooks/door"),
            ("DELETE", "/api/hooks/door"),
            ("POST", "/api/hooks/door/rotate"),
            ("POST", "/api/hooks/door/"),
            ("POST", "/api/hooks/../sessions"),
            ("POST", "/api/hooks%2Fdoor/rotate"),
            ("POST", "/api/hooks/door%2Frotate"),
        ]:
            answer = await client.request(method, path, b"{}", headers=without)
            assert answer.status == 401, (method, path, answer)
        host = await delivered(client, secret, b"{}", headers={"host": "evil.example"})
        assert (host.status, host.code) == (403, "forbidden_host")


async def test_paused_rotated_and_removed_webhooks_take_nothing() -> None:
    """A paused one says so to whoever has the secret."""
    async with served(providers=talking(), clock=FakeClock(NOW * 1000)) as client:
        secret = await opened_door(client)
        await client.request("PATCH", "/api/hooks/door", {"paused": True})
        answer = await delivered(client, secret, b'{"a": 1}')
        assert (answer.status, answer.code) == (409, "trigger_paused")
        shape = (await client.request("PATCH", "/api/hooks/door", {"paused": False, "prompt": "go"})).json()
        assert (shape["paused"], shape["prompt"]) == (False, "go")
        new = (await client.post("/api/hooks/door/rotate")).json()["secret"]
        assert (await delivered(client, secret, b'{"a": 1}')).status == 401
        assert (await delivered(client, new, b'{"a": 1}')).status == 202
        assert (await client.post("/api/hooks", {"name": "door"})).status == 409
        assert (await client.request("DELETE", "/api/hooks/door")).status == 204
        assert (await delivered(client, new, b'{"a": 2}', "d2")).status == 401
        assert (await client.get("/api/hooks/door")).status == 404


async def test_a_secret_is_answered_once_and_is_nowhere_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Not in a list, an export, the ledger, the document or the log; the store itself is its owner's alone."""
    caplog.set_level(logging.DEBUG)
    async with served(providers=talking(), store=f"sqlite:///{tmp_path}/s.db", clock=FakeClock(NOW * 1000)) as client:
        secret = await opened_door(client)
        got = (await delivered(client, secret, b'{"a": 1}')).json()
        await answered(client.engine, 1)
        await delivered(client, secret, b"\xff")
        seen = [
            (await client.get(path)).body
            for path in (
                "/api/hooks",
                "/api/hooks/door",
                "/api/events/ledger",
                "/openapi.json",
                f"/api/sessions/{got['session_id']}/export?redact=false",
                f"/api/sessions/{got['session_id']}/messages?view=all",
            )
        ]
        seen.append((await client.request("PATCH", "/api/hooks/door", {"paused": True})).body)
        assert [body for body in seen if secret.encode() in body or b"whsec_" in body] == []
        assert secret not in caplog.text
        assert ((tmp_path / "s.db").stat().st_mode & 0o077) == 0


async def test_hostile_deliveries_that_are_signed_are_refused_or_taken_and_break_nothing() -> None:
    """The corpus of bytes and of values, from somebody who has the secret: no 5xx, and what is refused is not kept."""
    async with served(providers=talking(), clock=FakeClock(NOW * 1000)) as client:
        secret = await opened_door(client, routing={"key": "k"})
        corpus = [
            *bodies().values(),
            *(json.dumps(value).encode() for value in HOSTILE),
            b"",
            b"x" * (MAX_DELIVERY - 10),
        ]
        taken = 0
        for number, body in enumerate(corpus):
            answer = await delivered(client, secret, body, f"d{number}")
            assert answer.status in (202, 413, 422), (body[:80], answer)
            taken += answer.status == 202
        large = await delivered(client, secret, b"x" * (MAX_DELIVERY + 1), "large")
        assert large.status == 413
        await ended(client.engine)
        page = (await client.get("/api/events/ledger?direction=in&limit=200")).json()
        assert len(page["events"]) == taken > 10
        for odd in ("", "a b", "x" * 300, "ü"):
            assert (await delivered(client, secret, b"{}", odd.encode().decode("latin-1"))).status == 401
