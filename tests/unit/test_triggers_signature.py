"""Signatures of deliveries, and what of a delivery is kept."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from clew.errors import InvalidInput
from clew.triggers.router import Trigger, safe_headers
from clew.triggers.values.signature import TOLERANCE_S, Scheme, check_secret, is_signed, new_secret, sign
from clew.triggers.values.webhook import Webhook, delivery_id_of, payload_of

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
NOW = 1_800_000_000
BODY = b'{"type": "push"}'


def told(body: bytes = BODY, now: int = NOW, secret: str = SECRET, **changes: str | None) -> bool:
    headers: dict[str, str | None] = {
        "delivery_id": "d1",
        "timestamp": str(NOW),
        "signature": sign(SECRET, "d1", NOW, BODY),
    }
    given = {{"delivery_id": "id"}.get(name, name): value for name, value in {**headers, **changes}.items()}
    sent = {f"webhook-{name}": value for name, value in given.items() if value is not None}
    return is_signed("standard", secret, body, sent, now * 1000 + 999)


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
        (b"[" * 50_000, "[" * 50_000),
        (b"[" * 50_000 + b"]" * 50_000, "[" * 50_000 + "]" * 50_000),
        (b"a line", "a line"),
    ],
)
def test_a_payload_is_what_was_sent(body: bytes, payload: object) -> None:
    """A number that no store keeps stays what it is until it is refused; what is no JSON is text."""
    assert payload_of(body) == payload


# The schemes of single senders. What they sign is put together here by the words of their documentation.

HUSH = "It's-a-Secret-to-Everybody"
AT = {"stripe": NOW, "slack": NOW}


def mac(text: bytes, secret: str = HUSH) -> str:
    return hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()


SENT: dict[Scheme, dict[str, str]] = {
    "github": {
        "x-hub-signature-256": f"sha256={mac(BODY)}",
        "x-github-delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
    },
    "stripe": {"stripe-signature": f"t={NOW},v0={'0' * 64},v1={mac(f'{NOW}.'.encode() + BODY)}"},
    "slack": {
        "x-slack-signature": f"v0={mac(f'v0:{NOW}:'.encode() + BODY)}",
        "x-slack-request-timestamp": str(NOW),
    },
}


@pytest.mark.rule("EV-2")
def test_published_examples_are_signed() -> None:
    """GitHub's own test values, and Slack's, as their documentation has them."""
    github = {
        "x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
        "x-github-delivery": "d",
    }
    assert is_signed("github", "It's a Secret to Everybody", b"Hello, World!", github, 0)
    slack = {
        "x-slack-request-timestamp": "1531420618",
        "x-slack-signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    }
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
        b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
        b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    assert is_signed("slack", "8f742231b10e8888abcd99yyyzzz85a5", body, slack, 1531420618_000)


@pytest.mark.rule("EV-2")
@pytest.mark.parametrize("scheme", SENT)
def test_a_sender_with_a_scheme_of_its_own_is_known_by_it_and_by_no_other(scheme: Scheme) -> None:
    """Its secret is the text itself. Another body, secret or scheme is none; a time within five minutes counts."""
    sent = SENT[scheme]
    assert is_signed(scheme, HUSH, BODY, sent, NOW * 1000)
    assert not is_signed(scheme, HUSH, BODY + b" ", sent, NOW * 1000)
    assert not is_signed(scheme, HUSH + "x", BODY, sent, NOW * 1000)
    others = [is_signed(other, HUSH, BODY, sent, NOW * 1000) for other in SENT if other != scheme]
    assert not any([*others, is_signed("standard", SECRET, BODY, sent, NOW * 1000)])
    for off in (TOLERANCE_S, -TOLERANCE_S):
        assert is_signed(scheme, HUSH, BODY, sent, (NOW + off) * 1000)
        late = is_signed(scheme, HUSH, BODY, sent, (NOW + off + (1 if off > 0 else -1)) * 1000)
        assert late == (scheme not in AT), "only a time that is signed can be too old"


GARBAGE = (
    "",
    "=",
    "\u20ac",
    "sha256",
    "\x00",
    "v1=,t=",
    "0" * 64,
    "sha256=" + "0" * 64,
    "9" * 5000,
    "t=1,t=2,v1=" * 900,
)


@pytest.mark.rule("EV-2")
@pytest.mark.parametrize(("scheme", "header"), [(scheme, name) for scheme, sent in SENT.items() for name in sent])
def test_garbage_in_any_header_is_not_signed(scheme: Scheme, header: str) -> None:
    """Nor is one that is missing, cut, in capitals, or of another time."""
    good = SENT[scheme][header]
    wrong = [*GARBAGE, good[:-1], good + "0", good + " ", " " + good, good.upper(), good.replace(str(NOW), f"0{NOW}")]
    wrong.append(good.replace(str(NOW), str(NOW + 1)))
    if header == "x-github-delivery":
        # Not signed: any name will do, but it must be one.
        wrong = ["", "a b", "\u20ac", "x" * 300, "d\n"]
    for value in [one for one in wrong if one != good]:
        assert not is_signed(scheme, HUSH, BODY, {**SENT[scheme], header: value}, NOW * 1000), value
    missing = {name: value for name, value in SENT[scheme].items() if name != header}
    assert not is_signed(scheme, HUSH, BODY, missing, NOW * 1000)


def test_stripe_signs_by_two_secrets_while_one_is_rolled() -> None:
    """Any of the signatures counts, wherever it stands; the old scheme v0, and two times, never do."""
    good, other = mac(f"{NOW}.".encode() + BODY), mac(f"{NOW}.".encode() + BODY, "another")

    def told(header: str) -> bool:
        return is_signed("stripe", HUSH, BODY, {"stripe-signature": header}, NOW * 1000)

    assert told(f"t={NOW},v1={other},v1={good}")
    assert told(f"v1={good},t={NOW}")
    assert not told(f"t={NOW},v0={good}")
    assert not told(f"t={NOW},t={NOW},v1={good}")
    assert not told(f"t={NOW}," + f"v1={other}," * 5000 + f"v1={good}")


@pytest.mark.rule("EV-2")
def test_a_delivery_is_named_by_what_its_sender_signed() -> None:
    """By the id in its body where that has one, else by the bytes themselves; GitHub's header is all there is."""
    sent = SENT["stripe"]
    assert delivery_id_of("stripe", b'{"id": "evt_1"}', sent) == "evt_1"
    assert delivery_id_of("slack", b'{"event_id": "Ev1"}', SENT["slack"]) == "Ev1"
    assert delivery_id_of("github", b'{"id": "x"}', SENT["github"]) == SENT["github"]["x-github-delivery"]
    for body in (b"text", b"{}", b'{"id": 7}', b'{"id": "a b"}', b'{"id": ""}', b"id=evt_1"):
        named = hashlib.sha256(f"{NOW}.".encode() + body).hexdigest()
        assert delivery_id_of("stripe", body, sent) == f"sha256-{named}"


@pytest.mark.parametrize(
    ("scheme", "secret", "taken"),
    [
        ("standard", None, True),
        ("github", None, True),
        ("stripe", None, False),
        ("slack", None, False),
        ("standard", SECRET, True),
        ("standard", "k" * 32, False),
        ("standard", "whsec_%%%%%%%%%%%%", False),
        ("github", "too-short", False),
        ("github", "with a space in it", False),
        ("stripe", "whsec_0123456789abcdef", True),
        ("slack", "8f742231b10e8888abcd99yyyzzz85a5", True),
    ],
)
def test_a_secret_is_made_or_taken_as_the_sender_needs_it(scheme: Scheme, secret: str | None, taken: bool) -> None:
    """Stripe and Slack make theirs; what could be guessed, or decodes to nothing, is refused."""
    if taken:
        assert check_secret(scheme, secret).startswith(secret or "whsec_")
    else:
        with pytest.raises(InvalidInput):
            check_secret(scheme, secret)


@pytest.mark.parametrize(
    ("body", "payload"),
    [
        (b"payload=%7B%22zen%22%3A%22x%22%7D", {"zen": "x"}),
        (b"command=%2Fask&text=hi+there&empty=", {"command": "/ask", "text": "hi there", "empty": ""}),
        (b"payload=%7B&more=1", {"payload": "{", "more": "1"}),
        (b"no form at all", "no form at all"),
        (b'{"a": 1}', {"a": 1}),
    ],
)
def test_a_form_is_its_fields(body: bytes, payload: object) -> None:
    """As GitHub sends unless it is told otherwise, and Slack for commands."""
    assert payload_of(body, "application/x-www-form-urlencoded; charset=utf-8") == payload


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
