"""Signatures of deliveries, and what of a delivery is kept."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from clew.triggers.envelope import Trigger, safe_headers
from clew.triggers.signature import TOLERANCE_S, is_signed, new_secret, sign
from clew.triggers.webhook import Webhook, payload_of

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
NOW = 1_800_000_000
BODY = b'{"type": "push"}'


def told(body: bytes = BODY, now: int = NOW, secret: str = SECRET, **changes: str | None) -> bool:
    headers: dict[str, str | None] = {
        "delivery_id": "d1",
        "timestamp": str(NOW),
        "signature": sign(SECRET, "d1", NOW, BODY),
    }
    return is_signed(secret, body, now * 1000 + 999, **{**headers, **changes})


@pytest.mark.rule("EV-2")
def test_a_signature_is_an_hmac_over_id_time_and_body() -> None:
    """Worked out here by hand, as a sender in any language would."""
    digest = hmac.new(b"k" * 32, b"d1.1800000000." + BODY, hashlib.sha256).digest()
    assert sign(SECRET, "d1", NOW, BODY) == "v1," + base64.b64encode(digest).decode()
    assert told()
    assert told(signature=f"v2,abc v1,AAAA {sign(SECRET, 'd1', NOW, BODY)}")


@pytest.mark.rule("EV-2")
@pytest.mark.parametrize(
    "changes",
    [
        {"body": BODY + b" "},
        {"secret": new_secret()},
        {"delivery_id": "d2"},
        {"delivery_id": None},
        {"delivery_id": ""},
        {"delivery_id": "d 1"},
        {"timestamp": str(NOW + 1)},
        {"timestamp": None},
        {"timestamp": "-1"},
        {"timestamp": "٣"},
        {"timestamp": "9" * 5000},
        {"signature": None},
        {"signature": ""},
        {"signature": "v1,"},
        {"signature": "v1,%%%"},
        {"signature": "v1,\u20ac"},
        {"signature": "v2," + sign(SECRET, "d1", NOW, BODY)[3:]},
        {"signature": "v1,x " * 5000 + sign(SECRET, "d1", NOW, BODY)},
        {"now": NOW + TOLERANCE_S + 1},
        {"now": NOW - TOLERANCE_S - 1},
    ],
)
def test_anything_else_is_not_signed(changes: dict) -> None:
    """Another body, secret, id or time; forms that are none; a delivery that was kept back."""
    assert not told(**changes)


@pytest.mark.rule("EV-2")
@pytest.mark.parametrize(("delivery_id", "body"), [("d1", f"{NOW}.5 degrees".encode()), (f"d1.{NOW}", b"5 degrees")])
def test_what_is_signed_can_be_read_in_one_way_only(delivery_id: str, body: bytes) -> None:
    """The dots between id, time and body are no others: a delivery is not a second one under a longer id."""
    signature = sign(SECRET, delivery_id, NOW, body)
    assert not told(delivery_id=f"d1.{NOW}", body=b"5 degrees", signature=signature)
    assert told(delivery_id="d1.a.b2", signature=sign(SECRET, "d1.a.b2", NOW, BODY))


@pytest.mark.parametrize(
    ("body", "payload"),
    [
        (b'{"id": 123456789012345678901}', {"id": 123456789012345678901}),
        (b'{"id": 1.5}', {"id": 1.5}),
        (b"1e400", "1e400"),
        (b"[" * 5000, "[" * 5000),
        (b"[" * 5000 + b"]" * 5000, "[" * 5000 + "]" * 5000),
        (b"a line", "a line"),
    ],
)
def test_a_payload_is_what_was_sent(body: bytes, payload: object) -> None:
    """A number that no store keeps stays what it is until it is refused; what is no JSON is text."""
    assert payload_of(body) == payload


def test_a_delivery_is_good_for_five_minutes() -> None:
    """Either way, since clocks differ."""
    assert told(now=NOW + TOLERANCE_S)
    assert told(now=NOW - TOLERANCE_S)


def test_secrets_are_long_and_differ_and_are_not_shown() -> None:
    """32 bytes of chance; a webhook in a log shows its name alone."""
    one, other = new_secret(), new_secret()
    assert one != other
    assert len(base64.b64decode(one.removeprefix("whsec_"))) == 32
    assert repr(Webhook(name="door", secret=one, created_at=1)) == "Webhook(name='door')"


def test_headers_that_may_hold_a_secret_are_not_kept() -> None:
    """What the delivery is about is; long ones are cut."""
    given = [
        ("Content-Type", "application/json"),
        ("X-GitHub-Event", "push"),
        ("Authorization", "Bearer x"),
        ("Cookie", "a=b"),
        ("Webhook-Signature", "v1,x"),
        ("X-Hub-Signature-256", "x"),
        ("X-Api-Key", "x"),
        ("X-Forwarded-For", "203.0.113.1"),
        ("X-Odd", "a\x00b"),
        ("X-Goog-Iap-Jwt-Assertion", "x"),
        ("X-Shopify-Hmac-Sha256", "x"),
        ("X-Ssl-Client-Cert", "x"),
        ("X-User-Pass", "x"),
        ("X-Original-Url", "/?token=x"),
        ("X-Client-Ip", "203.0.113.1"),
        ("User-Agent", "u" * 500),
    ]
    assert safe_headers(given) == {
        "content-type": "application/json",
        "x-github-event": "push",
        "user-agent": "u" * 200,
    }
    assert len(safe_headers([(f"x-{n}", "1") for n in range(100)])) == 20


@pytest.mark.rule("EV-2")
def test_the_envelope_holds_what_is_known_and_nothing_else() -> None:
    """Names as the format has them."""
    assert Trigger(source="schedule", fired_at=5, schedule_id="sch_x").metadata() == {
        "source": "schedule",
        "fired_at": 5,
        "schedule_id": "sch_x",
    }
    whole = Trigger(source="webhook", fired_at=5, delivery_id="d", headers={"a": "b"}, auth_subject="hook:x")
    assert whole.metadata() == {
        "source": "webhook",
        "fired_at": 5,
        "delivery_id": "d",
        "headers": {"a": "b"},
        "auth_subject": "hook:x",
    }
