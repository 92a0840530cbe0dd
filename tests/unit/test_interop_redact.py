"""Redaction: known secrets go, each leaves a mark, and what only looks a little like one stays."""

from __future__ import annotations

import time
from hashlib import sha256
from typing import Any

import msgspec
import orjson
import pytest

from clew.interop.redact import Redaction, redact_session
from clew.interop.session_file import format_json, parse_session
from clew.transcript.portable import Blob, Prompt

from .test_interop_forms import sample

KEY = "sk-proj-abcDEF1234567890abcd"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTYifQ.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc\n-----END RSA PRIVATE KEY-----"

SECRETS = [
    (KEY, "[redacted: api key]"),
    ("sk-ant-api03-0123456789abcdefghij", "[redacted: api key]"),
    (f"export OPENAI={KEY};", "export OPENAI=[redacted: api key];"),
    ("AKIAIOSFODNN7EXAMPLE", "[redacted: aws key]"),
    ("ghp_0123456789abcdefghij0123456789abcdef", "[redacted: github token]"),
    ("github_pat_11ABCDEFG0123456789_abcdefghij", "[redacted: github token]"),
    ("xoxb-123456789012-abcdefghij", "[redacted: slack token]"),
    ("AIzaSyA0123456789abcdefghijklmnopqrstuv", "[redacted: google key]"),
    (f"cookie {JWT} end", "cookie [redacted: jwt] end"),
    (f"key:\n{PEM}\nrest", "key:\n[redacted: private key]\nrest"),
    ("-----BEGIN PRIVATE KEY-----\ncut off", "[redacted: private key]"),
    ("Authorization: Bearer abcdefgh12", "Authorization: Bearer [redacted: authorization]"),
    ("curl -H 'authorization: basic dXNlcjpwdw=='", "curl -H 'authorization: basic [redacted: authorization]'"),
    ("Bearer 0123456789abcdef0123", "Bearer [redacted: authorization]"),
    ("password=hunter2hunter2", "password=[redacted: password]"),
    ("DB_PASSWORD='correct horse battery'", "DB_PASSWORD='[redacted: password]'"),
    ("?api_key=0123456789&x=1", "?api_key=[redacted: password]&x=1"),
    ("token=abcdefgh", "token=[redacted: password]"),
    ('{"access_token": "abc def ghi"}', '{"access_token": "[redacted: password]"}'),
    ("postgres://user:s3cretpw@host/db", "postgres://user:[redacted: password]@host/db"),
    ("my own phrase", "my own [redacted: secret]"),
]
HARMLESS = [
    "a risk-assessment-of-2024-and-more",
    "task-1234567890abcdefghij",
    "max_tokens=12345678",
    "token=short",
    "def login(password: str, token: Optional[str]) -> None:",
    "https://example.org/path:with:colons@x",
    "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----",
    "eyJust a word",
    "msg_0123456789abABCDEFGHIJKLMN",
]


@pytest.mark.parametrize(("given", "expected"), SECRETS, ids=range(len(SECRETS)))
def test_a_secret_leaves_a_mark(given: str, expected: str) -> None:
    """Once; redacting again changes nothing."""
    redaction = Redaction(["phrase"])
    assert redaction.text(given) == expected
    assert redaction.count == 1
    assert (redaction.text(expected), redaction.count) == (expected, 1)


@pytest.mark.parametrize("given", HARMLESS, ids=range(len(HARMLESS)))
def test_what_is_no_secret_stays(given: str) -> None:
    """A redaction too many makes an export useless."""
    assert Redaction().text(given) == given


def test_a_value_under_a_telling_name_goes_whole() -> None:
    """Whatever it looks like; short ones and numbers stay."""
    redaction = Redaction()
    given = {
        "password": "a b c d e",
        "token": "short",
        "n": {"API-KEY": ["12345678"], "tokens": "12345678"},
    }
    assert redaction.value(given) == {
        "password": "[redacted: password]",
        "token": "short",
        "n": {"API-KEY": ["[redacted: password]"], "tokens": "12345678"},
    }
    assert redaction.count == 2


@pytest.mark.parametrize(
    "name",
    ["AWS_SECRET_ACCESS_KEY", "POSTGRES_DB_PASSWORD", "clientSecret", "spring.datasource.password", "Authorization"],
)
def test_a_name_tells_whatever_stands_before_it(name: str) -> None:
    """As it does where the same name stands in a text."""
    assert Redaction().value({name: "Basic dXNlcjpwYXNz"}) == {name: "[redacted: password]"}


def test_only_a_part_s_own_type_and_state_are_words_of_the_format() -> None:
    """What a tool was given, or gave back, may use the same names for anything."""
    held = {"state": {"password": "correct horse"}, "type": KEY, "list": [{"state": JWT}]}
    part = {"type": "tool-plan", "state": "output-available", "input": {"state": KEY}, "output": held}
    assert Redaction().part(part) == {
        "type": "tool-plan",
        "state": "output-available",
        "input": {"state": "[redacted: api key]"},
        "output": {
            "state": {"password": "[redacted: password]"},
            "type": "[redacted: api key]",
            "list": [{"state": "[redacted: jwt]"}],
        },
    }


def test_given_values_are_taken_literally_the_longest_first() -> None:
    """Also in keys; an empty one means nothing."""
    redaction = Redaction(["", "a.b", "a.bc*"])
    assert redaction.value({"x a.bc* y": ["a.b", "axb"]}) == {"x [redacted: secret] y": ["[redacted: secret]", "axb"]}


def test_every_text_of_a_document_is_looked_at() -> None:
    """Title, metadata, parts, turns, steps, prompts and files; digests follow, and the document is still sound."""
    document = sample()
    tools = orjson.dumps([{"name": "t", "description": f"uses {KEY}", "input_schema": {}}]).decode()
    prompt, note = f"the key is {KEY}", f"note: {KEY}".encode()
    digests = [sha256(body.encode()).hexdigest() for body in (prompt, tools)]
    blob = Blob(sha256(note).hexdigest(), "text/plain", note)
    user, answer, *rest = document.messages
    part = msgspec.structs.replace(answer.parts[0], data={**answer.parts[0].data, "input": {"k": KEY}, "output": [KEY]})
    attached = {"type": "file", "mediaType": "text/plain", "url": f"/api/blobs/{blob.sha256}"}
    replace = msgspec.structs.replace
    document = replace(
        document,
        redacted=0,
        session=replace(document.session, metadata={"title": f"{KEY} " * 20, "label": KEY}),
        messages=(
            replace(user, metadata={"note": KEY}, parts=(replace(user.parts[0], data=attached),)),
            replace(answer, metadata={"system_prompt_digest": digests[0]}, parts=(part, *answer.parts[1:])),
            *rest,
        ),
        turns=(replace(document.turns[0], data={"error": {"message": KEY}}), *document.turns[1:]),
        steps=(replace(document.steps[0], prompt_digest=digests[0], data={"tools": digests[1], "x": KEY}),),
        prompts=(Prompt(digests[0], prompt), Prompt(digests[1], tools)),
        blobs=(blob, *document.blobs),
    )
    made = redact_session(document)
    assert KEY.encode() not in format_json(made)
    assert KEY.encode() not in b"".join(blob.data for blob in made.blobs)
    assert made.redacted == 29
    assert parse_session(format_json(made)) == made
    bodies: dict[str, Any] = {one.digest: one.body for one in made.prompts}
    assert bodies[str(made.steps[0].prompt_digest)] == "the key is [redacted: api key]"
    assert orjson.loads(bodies[made.steps[0].data["tools"]])[0]["description"] == "uses [redacted: api key]"
    assert made.messages[1].metadata == {"system_prompt_digest": made.steps[0].prompt_digest}
    assert made.messages[0].parts[0].data["url"] in {f"/api/blobs/{blob.sha256}" for blob in made.blobs}
    assert redact_session(made) == made


def test_a_document_without_secrets_is_not_changed() -> None:
    """Not even its digests."""
    assert redact_session(sample()) == sample()


@pytest.mark.slow
@pytest.mark.parametrize(
    "evil",
    [
        "-----BEGIN " * 20_000,
        "eyJ" + "a" * 100_000,
        "eyJaaaaaaaa.eyJ" * 10_000,
        "sk-" * 50_000,
        "bearer " * 20_000,
        "password= " * 20_000,
        "a://b:" * 20_000,
        "token_" * 20_000,
        'password="' * 20_000,
    ],
    ids=range(9),
)
def test_no_text_takes_long_to_redact(evil: str) -> None:
    """Every pattern is bounded, or eats what it has begun."""
    began = time.process_time()
    Redaction(["x"]).text(evil)
    assert time.process_time() - began < 5
