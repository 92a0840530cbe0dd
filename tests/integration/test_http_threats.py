"""The threats that reach the HTTP boundary, by the number of their row in the threat model: ``b01`` is the first.

Host, Origin and token on every route (b01 to b03) are in ``test_http_auth`` too; logs (b29, b31) in ``test_http_log``;
files that only their owner reads (b20), the socket itself (b01, b32) and a server's own log (b31) in ``test_serve``;
bytes and values (b32) in ``test_http_body`` and ``test_http_fuzz``. There is one user, so b08 is about sessions.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

from clew.testing.scripted import call, say, then
from tests.integration.http_client import HOST, TOKEN, AsgiClient, chat_body, served
from tests.integration.http_operations import OPERATIONS, Audit, path_of

OPEN = [("GET", "/"), ("GET", "/assets/{file}"), ("GET", "/api/health"), ("GET", "/api/health/ready")]


async def test_b01_no_operation_of_the_document_answers_a_stranger() -> None:
    """Without the token 401, with it anything else, on every operation there is; the open ones say nothing of use."""
    async with served() as client:
        for method, path in OPERATIONS:
            answer = await client.request(method, path_of(path), headers={"authorization": None})
            assert (answer.status in (401, 429)) is ((method, path) not in OPEN), path
            # A delivery is let in by its signature, and by nothing else.
            if (method, path) not in (("GET", "/api/events"), ("POST", "/api/chat"), ("POST", "/api/hooks/{name}")):
                assert (await client.request(method, path_of(path))).status != 401, path


async def test_b01_b10_the_token_counts_in_one_place_only() -> None:
    """Not in the query, a cookie, a body, another header, twice, or with something around it."""
    async with served() as client:
        for path, headers in [
            (f"/api/sessions?token={TOKEN}", {}),
            (f"/api/sessions?access_token={TOKEN}&authorization=Bearer%20{TOKEN}", {}),
            ("/api/sessions", {"cookie": f"token={TOKEN}"}),
            ("/api/sessions", {"x-api-key": TOKEN}),
            ("/api/sessions", {"proxy-authorization": f"Bearer {TOKEN}"}),
            ("/api/sessions", {"authorization": f"Bearer {TOKEN}, Bearer {TOKEN}"}),
            ("/api/sessions", {"authorization": f"Bearer Bearer {TOKEN}"}),
            ("/api/sessions", {"authorization": TOKEN}),
        ]:
            sent = {"authorization": None, **headers}
            assert (await client.get(path, headers=sent)).status == 401, (path, headers)


async def test_b02_a_simple_post_of_another_page_is_refused_and_curl_is_not() -> None:
    """What a form can send needs no preflight, so it is known by its Origin; a program has none."""
    forms = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", None]
    async with served() as client:
        for kind in forms:
            body = b'{"title": "from a form"}'
            for headers in (
                {"origin": "https://evil.example"},
                {"origin": "null"},
                {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
                {"sec-fetch-site": " Cross-Site "},
            ):
                answer = await client.post("/api/sessions", body, headers={"content-type": kind, **headers})
                assert (answer.status, answer.code) == (403, "forbidden_host"), (kind, headers)
        assert (await client.get("/api/sessions")).json()["sessions"] == []
        for kind in forms:
            assert (await client.post("/api/sessions", {}, headers={"content-type": kind})).status == 201


async def test_b02_no_answer_tells_a_browser_that_another_page_may_read_it() -> None:
    """No CORS header, whatever is asked and from wherever; a preflight gets nothing."""
    async with served() as client:
        for origin in (f"http://{HOST}", "https://evil.example", "null", None):
            for method in ("GET", "OPTIONS", "POST"):
                headers = {"origin": origin, "access-control-request-method": "POST"}
                answer = await client.request(method, "/api/sessions", {}, headers=headers)
                assert [name for name in answer.headers if name.startswith("access-control")] == []
                assert method != "OPTIONS" or answer.status in (403, 405)


async def test_b03_a_second_host_header_is_one_too_many() -> None:
    """The check and whoever comes after it must see the same one."""
    async with served() as client:
        headers = [("host", HOST), ("host", "evil.example"), ("authorization", f"Bearer {TOKEN}")]
        async with client._exchange("GET", "/api/sessions", headers, b"") as reply:
            assert reply.status == 403
        async with client._exchange("GET", "http://evil.example/api/sessions", headers[1:], b"") as reply:
            assert reply.status == 403


async def test_b04_there_is_no_websocket() -> None:
    """An upgrade is closed before it is opened, with the token too."""
    async with served() as client:
        sent: list[Any] = []
        headers = [(b"host", HOST.encode()), (b"authorization", f"Bearer {TOKEN}".encode())]

        async def receive() -> Any:
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None:
            sent.append(message)

        for path in ("/api/events", "/", "/api/chat"):
            await client.app({"type": "websocket", "path": path, "headers": headers}, receive, send)
        assert sent == [{"type": "websocket.close", "code": 1008}] * 3


BAD_IDS = [
    "%2e%2e",
    "..%5c..%5cetc%5cpasswd",
    "C:%5cwindows",
    "*",
    "ses_%2a",
    "ses_" + "0" * 26 + "%0a",
    "%0ases_" + "0" * 26,
    "ses_" + "0" * 25 + "%00",
    "ses_" + "%D9%A0" * 26,
    "ses_" + "%EF%BC%90" * 26,
    "SES." + "0" * 26,
    "ses_" + "0" * 10_000,
    "%F0%9F%92%A9",
    "%FF%FE",
    "~root",
    "$HOME",
    "'%20OR%20'1'='1",
]


async def test_b05_b07_a_bad_id_is_400_on_every_operation_and_touches_nothing(tmp_path: Path) -> None:
    """No file is opened, no folder listed, no address looked up for it: an audit hook would have seen."""
    async with served(store=f"sqlite:///{tmp_path}/store.db") as client:
        await ask_with(client, BAD_IDS[:1])  # modules that are loaded when first used are loaded now
        with Audit() as touched:
            await ask_with(client, BAD_IDS)
        assert touched.seen == []


async def ask_with(client: AsgiClient, bad_ids: list[str]) -> None:
    for method, path in OPERATIONS:
        for name in re.findall(r"{(id|sha256)}", path):
            for bad in bad_ids:
                body = None if method in ("GET", "DELETE") else BODIES.get(path.rpartition("/")[2], {})
                asked = path_of(path, **{name: bad}) + QUERIES.get(path.rpartition("/")[2], "")
                answer = await client.request(method, asked, body)
                assert (answer.status, answer.code) == (400, "invalid_id"), (method, path, bad, answer)


QUERIES: dict[str, str] = {"diff": "?path=x", "compare": "?other_id=x"}

BODIES: dict[str, dict[str, Any]] = {
    "prompt": {"text": "x"},
    "rewind": {"message_id": "m"},
    "head": {"turn_id": None},
    "branch": {"from_message_id": "m"},
    "revert": {"path": "x"},
    "permissions": {"rules": []},
    "{approval_id}": {"decision": "once"},
    "{tool_call_id}": {"output": 1},
}


def test_b05_the_audit_sees_what_is_opened(tmp_path: Path) -> None:
    """The control: without it the test above would be content with anything."""
    with Audit() as touched:
        (tmp_path / "x").write_text("x")
    assert len(touched.seen) == 1


async def test_b06_ids_in_bodies_and_queries_are_checked_like_those_in_paths() -> None:
    """A chat, a branch, a rewind, a head, a parent to list, a message to page from."""
    async with served(say("ok")) as client:
        session_id = await client.session()
        path = f"/api/sessions/{session_id}"
        for bad in ("../../etc", "ses_" + "0" * 26 + "\n", "\u0660" * 30, "x" * 5_000):
            for where, body in [
                ("/api/chat", chat_body(bad, "hi")),
                (f"{path}/branch", {"from_message_id": bad + "\n"}),
                (f"{path}/rewind", {"message_id": bad + "\n"}),
                (f"{path}/head", {"turn_id": bad}),
                (f"{path}/prompt", {"text": "x", "message_id": bad + "\n"}),
            ]:
                answer = await client.post(where, body)
                assert (answer.status, answer.code) == (400, "invalid_id"), (where, bad, answer)
            for where in (f"/api/sessions?parent={quote(bad)}", f"{path}/messages?before={quote(bad)}%0a"):
                answer = await client.get(where)
                assert (answer.status, answer.code) == (400, "invalid_id"), (where, answer)
        assert await client.messages(session_id, "all") == []


async def test_b08_what_belongs_to_one_session_cannot_be_reached_through_another(tmp_path: Path) -> None:
    """Messages, turns, requests and questions of one are not found under the id of another."""
    ask = then(call("question", {"question": "q"}), call("bash", {"command": "echo hi"}))
    async with served(say("one"), ask) as client:
        own = await client.session(workspace_root=str(tmp_path))
        other = await client.session()
        await client.prompt(own, "mine")
        await client.idle(own)
        await client.prompt(own, "ask")
        waiting = (await client.idle(own))["waiting"]
        [approval] = [one["approval_id"] for one in waiting if one["approval_id"]]
        [question] = [one["tool_call_id"] for one in waiting if not one["approval_id"]]
        messages = await client.messages(own)
        message_id, turn_id = messages[0]["id"], messages[0]["metadata"]["turn_id"]
        path = f"/api/sessions/{other}"
        for method, where, body in [
            ("POST", "/rewind", {"message_id": message_id}),
            ("POST", "/head", {"turn_id": turn_id}),
            ("POST", "/branch", {"from_message_id": message_id}),
            ("GET", f"/messages?before={message_id}", None),
            ("GET", f"/compactions/{message_id}", None),
            ("DELETE", f"/queue/{message_id}", None),
            ("POST", f"/approvals/{approval}", {"decision": "once"}),
            ("POST", f"/answers/{question}", {"output": "x"}),
        ]:
            assert (await client.request(method, path + where, body)).status == 404, where
        assert (await client.status(own))["waiting"] == waiting
