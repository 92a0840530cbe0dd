"""Webhooks of GitHub, Stripe and Slack over HTTP: each by its own headers, once, and refused for anything else.

What they send is put together by the words of their documentation, not by clew's own functions.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from clew.config import Config
from clew.testing.clock import FakeClock
from tests.acceptance.triggered import ended
from tests.integration.http_client import Answer, AsgiClient, served
from tests.integration.test_http_triggers import NOW, talking

SECRET = "whsec_test_0123456789abcdef"
JSON, FORM = "application/json", "application/x-www-form-urlencoded"


def mac(text: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()


def headers_of(scheme: str, body: bytes, stamp: int = NOW, secret: str = SECRET, guid: str = "g-1") -> dict[str, str]:
    if scheme == "github":
        signature = f"sha256={mac(body, secret)}"
        return {"X-Hub-Signature-256": signature, "X-GitHub-Delivery": guid, "X-GitHub-Event": "push"}
    if scheme == "stripe":
        return {"Stripe-Signature": f"t={stamp},v1={mac(f'{stamp}.'.encode() + body, secret)}"}
    signature = f"v0={mac(f'v0:{stamp}:'.encode() + body, secret)}"
    return {"X-Slack-Signature": signature, "X-Slack-Request-Timestamp": str(stamp)}


BODIES: dict[str, dict[str, Any]] = {
    "github": {"ref": "refs/heads/main"},
    "stripe": {"id": "evt_1", "object": "event", "type": "invoice.paid"},
    "slack": {"type": "event_callback", "event_id": "Ev1", "event": {"type": "app_mention", "text": "hi"}},
}
TOLD = {
    "github": ("push", "g-1", {"content-type": JSON, "x-github-delivery": "g-1", "x-github-event": "push"}),
    "stripe": ("invoice.paid", "evt_1", {"content-type": JSON}),
    "slack": ("app_mention", "Ev1", {"content-type": JSON, "x-slack-request-timestamp": str(NOW)}),
}


async def sent(client: AsgiClient, body: bytes, headers: dict[str, str], kind: str = JSON) -> Answer:
    given: dict[str, str | None] = {"authorization": None, "content-type": kind}
    return await client.post("/api/hooks/door", body, headers={**given, **headers})


async def opened(client: AsgiClient, scheme: str, **fields: Any) -> None:
    answer = await client.post("/api/hooks", {"name": "door", "scheme": scheme, "secret": SECRET, **fields})
    assert (answer.status, answer.json()["scheme"]) == (201, scheme), answer


@pytest.mark.rule("EV-2")
@pytest.mark.parametrize("scheme", BODIES)
async def test_a_delivery_signed_as_its_sender_does_starts_one_turn(scheme: str) -> None:
    """Sent again, also signed anew, it is the same; its type, id and headers are known. Others are refused."""
    async with served(providers=talking(), clock=FakeClock(NOW * 1000)) as client:
        await opened(client, scheme, routing={"key": "k"})
        body = json.dumps(BODIES[scheme]).encode()
        first = await sent(client, body, headers_of(scheme, body))
        assert first.status == 202, first
        for again in (headers_of(scheme, body), headers_of(scheme, body, NOW - 60)):
            assert (await sent(client, body, again)).json() == first.json()
        await ended(client.engine)
        good = headers_of(scheme, body)
        wrong = [
            await sent(client, body, headers_of(scheme, body, secret="another-secret-0123")),
            await sent(client, body + b" ", good),
            *[await sent(client, body, {**good, name: "nonsense"}) for name in good if not name.startswith("X-GitHub")],
            *[await sent(client, body, {key: one for key, one in good.items() if key != name}) for name in good
              if name != "X-GitHub-Event"],
        ]  # fmt: skip
        if scheme != "github":
            wrong.append(await sent(client, body, headers_of(scheme, body, NOW - 301)))
            wrong.append(await sent(client, body, headers_of(scheme, body, NOW + 301)))
        assert {(one.status, one.code) for one in wrong} == {(401, "signature_invalid")}
        [out, inbound] = (await client.get("/api/events/ledger")).json()["events"]
        type_, delivery_id, kept = TOLD[scheme]
        assert (inbound["type"], inbound["source_id"], inbound["data"], out["status"]) == (
            type_,
            delivery_id,
            {"payload": BODIES[scheme]},
            "completed",
        )
        [user, _] = await client.messages(first.json()["session_id"])
        assert user["metadata"]["trigger"] == {
            "source": "webhook",
            "fired_at": NOW * 1000,
            "delivery_id": delivery_id,
            "headers": kept,
            "auth_subject": "hook:door",
        }


@pytest.mark.rule("EV-2")
async def test_slack_hears_its_challenge_back_once_it_has_signed_it() -> None:
    """Before that it sends nothing. No turn is started, and a challenge of nobody's is refused like anything else."""
    async with served(providers=talking(), clock=FakeClock(NOW * 1000)) as client:
        await opened(client, "slack")
        body = b'{"type": "url_verification", "challenge": "3eZbrw1aB"}'
        answer = await sent(client, body, headers_of("slack", body))
        assert (answer.status, answer.json()) == (200, {"challenge": "3eZbrw1aB"})
        assert (await sent(client, body, headers_of("slack", body, secret="another-secret-0123"))).status == 401
        command = urlencode({"command": "/ask", "text": "what is new?"}).encode()
        first = await sent(client, command, headers_of("slack", command), FORM)
        assert (first.status, (await sent(client, command, headers_of("slack", command), FORM)).json()) == (
            202,
            first.json(),
        )
        [one] = (await client.get("/api/events/ledger?direction=in")).json()["events"]
        assert one["data"] == {"payload": {"command": "/ask", "text": "what is new?"}}
        await ended(client.engine)


@pytest.mark.rule("EV-2")
async def test_a_webhook_of_one_scheme_takes_no_other_and_its_secret_can_be_changed() -> None:
    """A form of GitHub's is its JSON; the secret of a sender that makes its own is handed in, and shown to nobody."""
    async with served(providers=talking(), clock=FakeClock(NOW * 1000)) as client:
        await opened(client, "github")
        body = urlencode({"payload": json.dumps({"zen": "x"})}).encode()
        for other in ("stripe", "slack"):
            assert (await sent(client, body, headers_of(other, body), FORM)).status == 401
        assert (await sent(client, body, headers_of("github", body), FORM)).status == 202
        turned = await client.post("/api/hooks/door/rotate", {"secret": "another-secret-0123"})
        assert (turned.status, turned.json()["secret"]) == (200, "another-secret-0123")
        assert (await sent(client, body, headers_of("github", body, guid="g-2"), FORM)).status == 401
        anew = headers_of("github", body, secret="another-secret-0123", guid="g-2")
        assert (await sent(client, body, anew, FORM)).status == 202
        [shown] = (await client.get("/api/hooks")).json()["webhooks"]
        assert (shown["scheme"], "secret" in shown) == ("github", False)
        for wrong in ({"scheme": "stripe"}, {"scheme": "paypal"}, {"scheme": "slack", "secret": "short"}):
            assert (await client.post("/api/hooks", {"name": "other", **wrong})).status == 422
        [event, *_] = (await client.get("/api/events/ledger?direction=in")).json()["events"]
        assert event["data"] == {"payload": {"zen": "x"}}
        await ended(client.engine)


@pytest.mark.rule("EV-2")
@pytest.mark.parametrize("scheme", BODIES)
async def test_a_header_that_nobody_signed_makes_no_second_delivery_of_one_that_was_heard(scheme: str) -> None:
    """Nor does it change what was said: JSON that is called a form is JSON, and the id in it counts."""
    async with served(providers=talking(), clock=FakeClock(NOW * 1000)) as client:
        await opened(client, scheme)
        body = json.dumps({**BODIES[scheme], "url": "https://example.org/?a=b"}).encode()
        headers = headers_of(scheme, body)
        first = await sent(client, body, headers)
        for more, kind in (({}, FORM), ({"Webhook-Id": "other"}, FORM), ({"X-Request-Id": "2"}, "text/plain")):
            again = await sent(client, body, {**headers, **more}, kind)
            assert (again.status, again.json()) == (202, first.json())
        await ended(client.engine)
        assert len((await client.engine.list_sessions()).sessions) == 1


def body_of(name: str) -> bytes:
    return json.dumps({"ref": f"refs/heads/{name}"}).encode()


async def ledger(client: AsgiClient) -> list[tuple[str, str, str | None]]:
    events = (await client.get("/api/events/ledger")).json()["events"]
    return [(one["direction"], one["source_id"], one["status"]) for one in reversed(events)]


@pytest.mark.rule("EV-2")
async def test_a_github_delivery_under_another_id_is_a_duplicate_for_ten_minutes() -> None:
    """GitHub signs neither id nor event name: a replay runs nothing, says so, and is in the ledger; later it is new."""
    clock = FakeClock(NOW * 1000)
    async with served(providers=talking(), clock=clock) as client:
        await opened(client, "github", routing={"key": "k"})
        first = await sent(client, body_of("main"), headers_of("github", body_of("main")))
        await ended(client.engine)
        same = {**first.json(), "duplicate": True}
        for _ in range(2):
            replay = await sent(
                client,
                body_of("main"),
                {**headers_of("github", body_of("main"), guid="g-2"), "X-GitHub-Event": "release"},
            )
            assert (replay.status, replay.json()) == (208, same)
        other = await sent(client, body_of("other"), headers_of("github", body_of("other"), guid="g-3"))
        assert other.status == 202
        await ended(client.engine)
        clock.advance(599_000)
        replay = await sent(client, body_of("main"), headers_of("github", body_of("main"), guid="g-4"), "text/plain")
        assert (replay.status, replay.json()) == (208, same)
        clock.advance(2_000)
        later = await sent(client, body_of("main"), headers_of("github", body_of("main"), guid="g-5"))
        assert (later.status, "duplicate" in later.json()) == (202, False)
        await ended(client.engine)
        # What was known keeps its answer: each id is one delivery.
        for guid, answer in (("g-1", first), ("g-5", later)):
            again = await sent(client, body_of("main"), headers_of("github", body_of("main"), guid=guid))
            assert (again.status, again.json()) == (202, answer.json())
        assert await ledger(client) == [
            *[("in", "g-1", None), ("out", "g-1", "completed")],
            *[("in", "g-2", "duplicate"), ("out", "g-2", "duplicate")],
            *[("in", "g-3", None), ("out", "g-3", "completed")],
            *[("in", "g-4", "duplicate"), ("out", "g-4", "duplicate")],
            *[("in", "g-5", None), ("out", "g-5", "completed")],
        ]
        turns = [one for one in await client.messages(first.json()["session_id"]) if one["role"] == "user"]
        assert len(turns) == 3


@pytest.mark.rule("EV-2")
async def test_duplicates_are_known_after_a_restart_a_deletion_and_as_config_says(tmp_path: Path) -> None:
    """In seconds, none by 0; the ledger is all that is needed, also without the session."""
    url, clock = f"sqlite:///{tmp_path}/clew.db", FakeClock(NOW * 1000)
    async with served(store=url, providers=talking(), clock=clock) as client:
        await opened(client, "github")
        first = await sent(client, body_of("main"), headers_of("github", body_of("main")))
        assert first.status == 202
        await ended(client.engine)
        await client.engine.delete_session(first.json()["session_id"])
    async with served(store=url, providers=talking(), clock=clock) as client:
        replay = await sent(client, body_of("main"), headers_of("github", body_of("main"), guid="g-2"))
        assert (replay.status, replay.json()) == (208, {**first.json(), "duplicate": True})
        assert not (await client.engine.list_sessions()).sessions
    clock.advance(60_000)
    for seconds, status in ((61, 208), (59, 202), (0, 202)):
        async with served(
            store=url, providers=talking(), clock=clock, config=Config(duplicate_delivery_s=seconds)
        ) as client:
            answer = await sent(client, body_of("main"), headers_of("github", body_of("main"), guid=f"s-{seconds}"))
            assert answer.status == status, answer
            await ended(client.engine)


@pytest.mark.rule("EV-2")
@pytest.mark.parametrize(
    "kind", ["memory", "sqlite", "json", "jsonl", pytest.param("postgresql", marks=pytest.mark.service)]
)
async def test_of_replays_at_the_same_moment_one_runs(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Under ids of their own, each to a session of its own; on PostgreSQL through two replicas."""
    url = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/clew.db"}.get(kind, f"{kind}:{tmp_path}/sessions")
    url = request.getfixturevalue("postgres_store_url") if kind == "postgresql" else url
    clock, body = FakeClock(NOW * 1000), body_of("main")
    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(served(store=url, providers=talking(), clock=clock))
            for _ in range(2 if kind == "postgresql" else 1)
        ]
        await opened(clients[0], "github")
        answers = await asyncio.gather(
            *(sent(clients[n % len(clients)], body, headers_of("github", body, guid=f"g-{n}")) for n in range(8))
        )
        assert sorted(one.status for one in answers) == [202, *[208] * 7], answers
        assert len({one.json()["message_id"] for one in answers}) == 1
        for client in clients:
            await ended(client.engine)
        assert len((await clients[0].engine.list_sessions()).sessions) == 1
        assert [one[0] for one in await ledger(clients[0])].count("in") == 8
