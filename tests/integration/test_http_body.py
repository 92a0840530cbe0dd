"""Bodies: whatever bytes a client sends, it is told what is wrong with them, and nothing breaks."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from clew.fronts.http.request import MAX_BODY
from clew.testing.scripted import say
from tests.integration.http_client import AsgiClient, served

DEEP = b"[" * 3000 + b"]" * 3000
NOT_JSON = {
    "empty": b"",
    "text": b"hello",
    "cut": b'{"text": "he',
    "two": b"{} {}",
    "comma": b'{"a": 1,}',
    "single quotes": b"{'a': 1}",
    "bytes": b"\x00\x01\x02\xff\xfe",
    "not utf-8": b'{"text": "\xff"}',
    "surrogate bytes": b'{"text": "\xed\xa0\x80"}',
    "utf-16": '{"text": "a"}'.encode("utf-16"),
    "bom": b"\xef\xbb\xbf{}",
    "control": b'{"text": "a\x01b"}',
    "form": b"text=hello&id=1",
    "array": b'[{"text": "a"}]',
    "string": b'"text"',
    "number": b"1",
    "null": b"null",
}
UNKEEPABLE = {
    "NaN": b'{"id": NaN, "text": NaN}',
    "infinity": b'{"text": "a", "metadata": {"x": Infinity}}',
    "huge float": b'{"text": "a", "metadata": {"x": 1e999}}',
    "lone surrogate": rb'{"text": "\ud83d", "title": "\ud83d", "id": "\ud83d"}',
    "surrogate in a key": rb'{"text": "a", "metadata": {"\udc00": 1}}',
    "NUL": rb'{"text": "a\u0000b", "title": "\u0000", "id": "\u0000", "decision": "\u0000"}',
    "2^63": b'{"text": "a", "metadata": {"x": 9223372036854775808}}',
    "5000 digits": b'{"text": "a", "metadata": {"x": ' + b"9" * 5000 + b"}}",
    "deep": b'{"text": "a", "metadata": ' + DEEP + b"}",
    "depth 201": b'{"text": "a", "metadata": ' + b"[" * 201 + b"]" * 201 + b"}",
}
ODD = {
    "unknown keys": b'{"nobody": "knows", "these": [1, 2, {"x": null}]}',
    "all null": b'{"id": null, "messages": null, "text": null, "parts": null, "decision": null, "output": null}',
    "wrong types": b'{"id": 1, "messages": {}, "text": [], "parts": "x", "title": 3, "metadata": [], "decision": 1}',
    "wrong depth": b'{"id": {"id": "x"}, "messages": [[]], "parts": [[]], "model": [], "agent": {}, "output": {}}',
    "messages of nothing": b'{"id": "ses_00000000000000000000000000", "messages": [null, 1, "x", []]}',
    "duplicate keys": b'{"text": "a", "text": 1, "title": "a", "title": []}',
    "paths": b'{"agent": "../../etc/passwd", "workspace_root": "/\\u0000", "message_id": "../x\\n"}',
    "models": b'{"text": "a", "model": {"provider_id": "demo", "model_id": "x/../y"}}',
    "negative": b'{"limit": -1, "text": "", "parts": []}',
}
BODIED = [
    ("POST", "/api/sessions"),
    ("PATCH", "/api/sessions/{id}"),
    ("POST", "/api/sessions/{id}/prompt"),
    ("POST", "/api/sessions/{id}/approvals/apr_000000000000xxxxxxxxxxxxxx"),
    ("POST", "/api/sessions/{id}/answers/call_1"),
    ("POST", "/api/chat"),
]
UNBODIED = [
    ("POST", "/api/sessions/{id}/continue"),
    ("POST", "/api/sessions/{id}/abort"),
    ("DELETE", "/api/sessions/{id}/queue/nope"),
]


@pytest.fixture
async def client() -> AsyncIterator[AsgiClient]:
    async with served(*[say("ok")] * 50) as client:
        yield client


@pytest.mark.parametrize("what", NOT_JSON)
async def test_what_is_no_json_object_is_400(client: AsgiClient, what: str) -> None:
    """On every route that reads a body; nothing is written."""
    session_id = await client.session()
    for method, path in BODIED:
        answer = await client.request(method, path.format(id=session_id), NOT_JSON[what])
        assert (answer.status, answer.code) == (400, "invalid_input"), (path, answer)
    assert await client.messages(session_id, "all") == []


@pytest.mark.rule("ST-4")
@pytest.mark.parametrize("what", UNKEEPABLE)
async def test_what_no_store_could_keep_is_422(client: AsgiClient, what: str) -> None:
    """Refused as unsupported_value, wherever in the body it is; nothing is written."""
    session_id = await client.session()
    before = (await client.get("/api/sessions")).json()
    for method, path in BODIED[:-1]:
        answer = await client.request(method, path.format(id=session_id), UNKEEPABLE[what])
        assert (answer.status, answer.code) == (422, "unsupported_value"), (path, answer)
    assert await client.messages(session_id, "all") == []
    assert (await client.get("/api/sessions")).json() == before


@pytest.mark.rule("ST-4")
@pytest.mark.parametrize(
    "bad", [rb'"a\u0000b"', rb'"\ud83d"', b"NaN", b"1e999", b"9223372036854775808", b"[" * 300 + b"]" * 300]
)
async def test_what_no_store_could_keep_is_422_in_a_chat_too(client: AsgiClient, bad: bytes) -> None:
    """In the message that is taken, and beside it; of the history only that it is JSON is looked at."""
    session_id = await client.session()
    head = b'{"id": "%b", "messages": [' % session_id.encode()
    part = b'{"role": "user", "parts": [{"type": "text", "text": "hi", "x": %b}]}' % bad
    for body in (head + part + b"]}", head + b'{"role": "user", "parts": []}], "model": {"provider_id": %b}}' % bad):
        answer = await client.post("/api/chat", body)
        assert (answer.status, answer.code) == (422, "unsupported_value"), answer
    assert await client.messages(session_id, "all") == []


@pytest.mark.parametrize("what", [*NOT_JSON, *UNKEEPABLE, *ODD])
async def test_garbage_is_the_clients_fault_on_every_route(client: AsgiClient, what: str) -> None:
    """Whatever the bytes and whatever the route: never a 5xx; and afterwards everything still works."""
    session_id = await client.session()
    data = {**NOT_JSON, **UNKEEPABLE, **ODD}[what]
    for method, path in [*BODIED, *UNBODIED]:
        answer = await client.request(method, path.format(id=session_id), data)
        assert answer.status < 500, (path, answer)
        assert answer.status < 300 or answer.code, (path, answer)
    await client.idle(session_id)
    assert (await client.chat(session_id, "still there?"))[-1]["type"] == "finish"


@pytest.mark.rule("ID-3")
@pytest.mark.parametrize(
    "bad",
    [
        "nonsense",
        "ses_",
        "ses_" + "0" * 25,
        "ses_" + "0" * 27,
        "SES_" + "0" * 26,
        "ses_" + "0" * 26 + "%0A",
        "ses_" + "0" * 25 + "%00",
        "ses_" + "%D9%A0" * 26,
        "..%5C..%5Cetc",
        "*",
        "%20",
        "x" * 10_000,
    ],
)
async def test_a_malformed_id_is_400_before_anything_is_touched(client: AsgiClient, bad: str) -> None:
    """On every route that takes a session id, also those that read a body first."""
    for method, path, body in [
        ("GET", f"/api/sessions/{bad}", None),
        ("PATCH", f"/api/sessions/{bad}", {"title": "x"}),
        ("DELETE", f"/api/sessions/{bad}", None),
        ("GET", f"/api/sessions/{bad}/messages", None),
        ("POST", f"/api/sessions/{bad}/prompt", {"text": "x"}),
        ("POST", f"/api/sessions/{bad}/continue", None),
        ("POST", f"/api/sessions/{bad}/abort", None),
        ("GET", f"/api/sessions/{bad}/status", None),
        ("GET", f"/api/sessions/{bad}/queue", None),
        ("DELETE", f"/api/sessions/{bad}/queue/m1", None),
        ("POST", f"/api/sessions/{bad}/approvals/a1", {"decision": "once"}),
        ("POST", f"/api/sessions/{bad}/answers/c1", {"output": 1}),
        ("GET", f"/api/chat/{bad}/stream", None),
        ("GET", f"/api/blobs/{bad}", None),
    ]:
        answer = await client.request(method, path, body)
        assert (answer.status, answer.code) == (400, "invalid_id"), (path, answer)


async def test_a_body_that_is_too_large_is_413_before_it_is_read(client: AsgiClient) -> None:
    """By what it says of itself, and by what comes when it says nothing."""
    session_id = await client.session()
    path = f"/api/sessions/{session_id}/prompt"
    said = await client.post(path, headers={"content-length": str(MAX_BODY + 1)})
    assert (said.status, said.code) == (413, "body_too_large")
    came = await client.post(path, b" " * (MAX_BODY + 1), headers={"content-length": None})
    assert (came.status, came.code) == (413, "body_too_large")
    assert (await client.post(path, b'{"text":"a"}', headers={"content-length": "x" * 30})).status == 202


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/api/sessions?limit=0", "invalid_input"),
        ("/api/sessions?limit=201", "invalid_input"),
        ("/api/sessions?limit=ten", "invalid_input"),
        ("/api/sessions?limit=%D9%A1", "invalid_input"),
        ("/api/sessions?limit=99999999999999999999", "invalid_input"),
        ("/api/sessions?cursor=nonsense", "invalid_input"),
        ("/api/sessions?kind=other", "invalid_input"),
        ("/api/sessions?archived=maybe", "invalid_input"),
        ("/api/sessions?q=%00", "unsupported_value"),
        ("/api/sessions/{id}/messages?view=none", "invalid_input"),
        ("/api/sessions/{id}/messages?limit=501", "invalid_input"),
        ("/api/sessions/{id}/messages?limit=0", "invalid_input"),
    ],
)
async def test_a_query_that_makes_no_sense_is_422(client: AsgiClient, path: str, code: str) -> None:
    """With the name of the parameter."""
    answer = await client.get(path.format(id=await client.session()))
    assert (answer.status, answer.code) == (422, code)
