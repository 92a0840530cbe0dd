"""The threats that reach the HTTP boundary, by the number of their row in the threat model: ``b01`` is the first.

Host, Origin and token on every route (b01 to b03) are in ``test_http_auth`` too; logs (b29, b31) in ``test_http_log``;
files that only their owner reads (b20), the socket itself (b01, b32) and a server's own log (b31) in ``test_serve``;
bytes and values (b32) in ``test_http_body`` and ``test_http_fuzz``. There is one user, so b08 is about sessions.
"""

from __future__ import annotations

import asyncio
import base64
import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from clew.fronts.http.body import MAX_BODY
from clew.fronts.http.events import MAX_EVENT
from clew.fronts.http.operation import Operation
from clew.fronts.http.route import Served
from clew.live.base import Event
from clew.providers.registry import ProviderConfig, ProviderRegistry
from clew.testing.scripted import call, hang, say, then
from tests.integration.http_client import HOST, TOKEN, AsgiClient, chat_body, served, texts
from tests.integration.http_document import document

OPERATIONS = [(method.upper(), path) for path, said in document()["paths"].items() for method in said]
OPEN = [("GET", "/"), ("GET", "/assets/{file}"), ("GET", "/api/health")]
GOOD = {
    "id": "ses_" + "0" * 26,
    "message_id": "m1",
    "approval_id": "apr_" + "0" * 26,
    "tool_call_id": "call_1",
    "sha256": "0" * 64,
    "file": "index-00000000.js",
    "name": "door",
}
KINDS = {"turns": "trn_", "schedules": "sch_"}


def path_of(path: str, **ids: str) -> str:
    kind = KINDS.get("/".join(path.split("/")[2:3]))
    good = GOOD if kind is None else {**GOOD, "id": kind + "0" * 26}
    return path.format(**{**good, **ids})


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
    "SES_" + "0" * 26,
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
                answer = await client.request(method, path_of(path, **{name: bad}), body)
                assert (answer.status, answer.code) == (400, "invalid_id"), (method, path, bad, answer)


BODIES: dict[str, dict[str, Any]] = {
    "prompt": {"text": "x"},
    "rewind": {"message_id": "m"},
    "head": {"turn_id": None},
    "branch": {"from_message_id": "m"},
    "permissions": {"rules": []},
    "{approval_id}": {"decision": "once"},
    "{tool_call_id}": {"output": 1},
}


class Audit:
    """What this process does of these things while the block lasts; without a choice, what a bad id could lead to."""

    _live: Audit | None = None
    _added = False
    _files = ("open", "os.remove", "os.rename", "os.listdir", "os.scandir", "socket.connect", "socket.getaddrinfo")

    def __init__(self, *events: str) -> None:
        self.seen: list[str] = []
        self._events = events or Audit._files

    def __enter__(self) -> Audit:
        if not Audit._added:
            # A hook cannot be taken away again, so there is one for all, and it looks for whoever listens.
            sys.addaudithook(Audit._hook)
            Audit._added = True
        Audit._live = self
        return self

    def __exit__(self, *_: object) -> None:
        Audit._live = None

    @staticmethod
    def _hook(event: str, args: Any) -> None:
        live = Audit._live
        if live is not None and event in live._events:
            live.seen.append(f"{event} {str(args)[:500]}")


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


async def test_b21_nothing_of_a_cloned_project_is_run_by_looking_at_it(tmp_path: Path) -> None:
    """Agents, skills, hooks and settings of a folder may be read; none of it is started or imported, by git neither."""
    traces = tmp_path / "traces"
    folder = tmp_path / ".clew"
    (folder / "agents").mkdir(parents=True)
    (folder / "skills" / "evil").mkdir(parents=True)
    (folder / "agents" / "evil.md").write_text(f"---\nname: evil\ndescription: x\n---\n!`touch {traces}`")
    (folder / "skills" / "evil" / "SKILL.md").write_text(f"---\nname: evil\ndescription: x\n---\n!`touch {traces}`")
    for name in ("hooks.py", "config.toml", "mcp.json", "__init__.py", "conftest.py", ".env", ".mcp.json"):
        (folder / name).write_text(f"import os\nos.system('touch {traces}')\n")
        (tmp_path / name).write_text(f"import os\nos.system('touch {traces}')\n")
    for name in ("objects", "refs", "hooks"):
        (tmp_path / ".git" / name).mkdir(parents=True)
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / ".git" / "config").write_text(f"[core]\n\tfsmonitor = touch {traces}\n\tpager = touch {traces}\n")
    (tmp_path / ".git" / "hooks" / "post-index-change").write_text(f"#!/bin/sh\ntouch {traces}\n")
    (tmp_path / ".git" / "hooks" / "post-index-change").chmod(0o755)
    audit = Audit("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "import")
    with audit:
        async with served(say("ok")) as client:
            await client.get(f"/api/agents?workspace={tmp_path}")
            session_id = await client.session(workspace_root=str(tmp_path))
            await client.prompt(session_id, "hello")
            await client.idle(session_id)
            await client.get(f"/api/sessions/{session_id}/context")
    # git is asked where the working copy stands, with all turned off that the copy could bring along.
    started = [
        one for one in audit.seen if str(tmp_path) in one and not re.match(r"subprocess\.Popen \('[^']*/git'", one)
    ]
    assert (started, await asyncio.to_thread(traces.exists)) == ([], False)


async def test_b22_a_project_cannot_say_where_keys_are_sent(tmp_path: Path) -> None:
    """Provider settings in the folder, and in the session's own metadata, change nothing of the user's."""
    settings = '[providers.local]\nkind = "openai-compatible"\nbase_url = "http://evil.example/v1"\n'
    for name in ("config.toml", ".clew/config.toml", "clew.toml"):
        await asyncio.to_thread((tmp_path / name).parent.mkdir, exist_ok=True)
        await asyncio.to_thread((tmp_path / name).write_text, settings)
    config = ProviderConfig(kind="openai-compatible", base_url="http://127.0.0.1:9/v1", api_key="user-key-1234567")
    registry = ProviderRegistry({"local": config}, environ={})
    async with served(providers=registry) as client:
        metadata = {"providers": {"local": {"base_url": "http://evil.example/v1"}}, "base_url": "http://evil.example"}
        session_id = await client.session(workspace_root=str(tmp_path), model="demo/echo", metadata=metadata)
        await client.prompt(session_id, "hi")
        await client.idle(session_id)
        listed = await client.get("/api/models")
        assert "evil.example" not in listed.body.decode()
        assert registry._configs == {"local": config}


async def test_b28_what_a_user_or_a_model_wrote_is_never_a_page_of_ours() -> None:
    """Bytes come as attachments in a sandbox whatever they say they are; text comes as JSON; nothing is sniffed."""
    script = b"<script>alert(1)</script>"
    kinds = ["text/html", "image/svg+xml", "application/xhtml+xml", "text/xml", "application/javascript", "text/plain"]
    async with served(*[say("<img src=x onerror=alert(1)>")] * len(kinds)) as client:
        session_id = await client.session(title="<script>alert(1)</script>")
        for number, kind in enumerate(kinds):
            url = f"data:{kind};base64,{base64.b64encode(script + str(number).encode()).decode()}"
            parts = [{"type": "text", "text": "look"}, {"type": "file", "mediaType": kind, "url": url}]
            sent = await client.post(f"/api/sessions/{session_id}/prompt", {"parts": parts})
            assert sent.status in (202, 422), sent
            await client.idle(session_id)
        stored = [part for message in await client.messages(session_id) for part in message["parts"]]
        urls = [part["url"] for part in stored if part["type"] == "file"]
        assert urls
        for url in urls:
            blob = await client.get(url)
            assert blob.headers["content-disposition"] == "attachment"
            assert blob.headers["content-security-policy"] == "default-src 'none'; sandbox"
            assert blob.headers["x-content-type-options"] == "nosniff"
        for path in (f"/api/sessions/{session_id}", f"/api/sessions/{session_id}/messages", "/api/<script>"):
            answer = await client.get(path)
            assert answer.headers["content-type"] in ("application/json", "application/problem+json")
            assert answer.headers["x-content-type-options"] == "nosniff"


async def test_b28_the_page_runs_and_loads_nothing_but_its_own_files() -> None:
    """Nothing inline, nothing from elsewhere, no frame around it, no address leaked; the policy says so too."""
    async with served() as client:
        page = await client.get("/", headers={"authorization": None})
        policy = dict(part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";"))
        assert policy == {
            "default-src": "'none'",
            "script-src": "'self'",
            "style-src": "'self'",
            "img-src": "'self' data: blob:",
            "font-src": "'self'",
            "connect-src": "'self'",
            "base-uri": "'none'",
            "form-action": "'none'",
            "frame-ancestors": "'none'",
        }
        assert page.headers["referrer-policy"] == "no-referrer"
        assert page.headers["x-frame-options"] == "DENY"
        text = page.body.decode()
        assert re.findall(r"<(?:style|img|iframe|form)\b|\son\w+=|\sstyle=|javascript:|//", text) == []
        loaded = re.findall(r"<(script|link)\b[^>]*?\b(?:src|href)=\"([^\"]*)\"[^>]*>(</script>)?", text)
        assert {kind for kind, _, _ in loaded} == {"script", "link"}
        assert text.count("<script") == text.count("</script>")
        for _, address, _ in loaded:
            assert re.fullmatch(r"\./assets/[\w-]+\.(?:js|css|svg)", address), address
            assert (await client.get(address[1:], headers={"authorization": None})).status == 200


async def test_b29_control_characters_are_kept_and_leave_as_escapes() -> None:
    """The store keeps what was said; an answer and a frame of a stream are printable JSON all the same."""
    odd = "\x1b]52;c;aGk=\x07 \x1b[2J \x9b31m \u202e \r\n"
    async with served(say(odd)) as client:
        session_id = await client.session(title=odd)
        async with client.open("POST", "/api/chat", chat_body(session_id, odd)) as reply:
            raw = await reply.read()
        messages = await client.get(f"/api/sessions/{session_id}/messages")
        for data in (raw.replace(b"\n\n", b""), messages.body, (await client.get("/api/sessions")).body):
            assert not re.search(rb"[\x00-\x1f\x7f]", data), data
        assert [texts(message) for message in messages.json()["messages"]] == [odd, odd]


async def test_b30_only_the_named_filters_filter() -> None:
    """Other keys do nothing, and what looks like a query language is looked for as it is written."""
    async with served() as client:
        session_id = await client.session(title="100% sure_thing 'quoted'")
        await client.session(title="other")

        async def listed(query: str) -> list[str]:
            answer = await client.get(f"/api/sessions?{query}")
            assert answer.status == 200, answer
            return [session["id"] for session in answer.json()["sessions"]]

        for query in (
            "id=1",
            "metadata.x=1",
            "1=1;--",
            "a'b=c",
            "order=title%3BDROP%20TABLE%20sessions",
            "__proto__=1",
        ):
            assert len(await listed(query)) == 2, query
        for text in ("%", "100%", "sure_thing", "'quoted'"):
            assert await listed(f"q={quote(text)}") == [session_id], text
        for text in ("' OR '1'='1", "_", "%%", "*", "o.her", "\\"):
            expected = [session_id] if text in ("_",) else []
            assert await listed(f"q={quote(text)}") == expected, text


async def test_b31_an_error_says_nothing_about_the_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """No trace, no path, no key; one sentence, a code, and an id to find the rest in the log by."""
    async with served() as client:

        async def broken(*_: Any, **__: Any) -> Any:
            raise RuntimeError(f"secret-of-the-house at {__file__}")

        monkeypatch.setattr(client.engine, "list_sessions", broken)
        answer = await client.get("/api/sessions")
        assert (answer.status, answer.json()) == (
            500,
            {
                "type": "about:blank",
                "title": "Internal Server Error",
                "status": 500,
                "detail": "something went wrong inside clew; the server's log has more",
                "code": "internal_error",
            },
        )
        assert re.fullmatch(r"[0-9a-f]{16}", answer.headers["x-request-id"])


async def test_b31_a_keys_value_is_in_no_answer() -> None:
    """Models that can and cannot be used are listed with the reason; no route shows what a key is."""
    secret = "user-key-1234567890"
    config = ProviderConfig(kind="openai-compatible", base_url="http://127.0.0.1:9/v1", api_key=secret, models=["m"])
    registry = ProviderRegistry({"local": config}, environ={"OPENAI_API_KEY": secret, "ANTHROPIC_API_KEY": secret})
    async with served(providers=registry) as client:
        session_id = await client.session(model="demo/echo")
        for _, path in [one for one in OPERATIONS if one[0] == "GET"]:
            if path not in ("/api/events", "/api/chat/{id}/stream"):
                ids = {"id": session_id} if path.startswith("/api/sessions/") else {}
                answer = await client.get(path_of(path, **ids))
                assert secret not in answer.body.decode(errors="replace"), path


@pytest.mark.parametrize("pieces", [1, 40])
async def test_b32_a_large_body_is_refused_without_being_held(pieces: int) -> None:
    """By its length, or when it is reached; the answer closes the connection."""
    async with served() as client:
        session_id = await client.session()
        headers = {"content-length": str(MAX_BODY + 1) if pieces == 1 else None}
        body = b"" if pieces == 1 else b" " * (MAX_BODY + pieces)
        answer = await client.post(f"/api/sessions/{session_id}/prompt", body, headers=headers)
        assert (answer.status, answer.code, answer.headers["connection"]) == (413, "body_too_large", "close")


async def test_b32_every_field_of_a_body_has_an_end() -> None:
    """Titles, reasons, patterns, ids, files and numbers of things: more than can be meant is 422 or 400."""
    async with served(call("question", {"question": "q"})) as client:
        session_id = await client.session()
        path = f"/api/sessions/{session_id}"
        long = "x" * 100_000
        for method, where, body in [
            ("PATCH", path, {"title": long}),
            ("POST", "/api/sessions", {"title": long}),
            ("POST", "/api/sessions", {"agent": long}),
            ("POST", f"{path}/prompt", {"text": "x", "message_id": long}),
            ("POST", f"{path}/prompt", {"text": "x", "agent": long}),
            ("POST", f"{path}/prompt", {"parts": [{"type": "text", "text": "x"}] * 100_000}),
            ("POST", f"{path}/approvals/apr_1", {"decision": "deny", "reason": long}),
            ("PUT", f"{path}/permissions", {"rules": [{"permission": "x", "pattern": long, "action": "deny"}]}),
        ]:
            answer = await client.request(method, where, body)
            assert answer.status in (400, 422), (where, answer)
        assert await client.messages(session_id, "all") == []


async def test_b32_patterns_that_blow_up_do_not() -> None:
    """Rules whose matching would take for ever in a backtracking engine are weighed at once."""
    async with served() as client:
        session_id = await client.session()
        rules = [{"permission": "bash", "pattern": "*a" * 200 + "b", "action": "allow"}] * 50
        put = await client.request("PUT", f"/api/sessions/{session_id}/permissions", {"rules": rules})
        assert put.status == 200
        path = f"/api/sessions/{session_id}/permissions/explain?tool=bash&target=echo%20{'a' * 2000}"
        async with asyncio.timeout(20):
            assert (await client.get(path)).json()["action"] == "ask"


async def test_b32_many_streams_of_one_client_hold_up_nobody() -> None:
    """A hundred viewers that read nothing, and the server answers as ever; all are gone when they leave."""
    async with served(hang(), say("ok")) as client:
        busy, free = await client.session(), await client.session()
        await client.prompt(busy, "go")
        opened = [client.open("GET", f"/api/chat/{busy}/stream") for _ in range(100)]
        replies = [await one.__aenter__() for one in opened]
        assert {reply.status for reply in replies} == {200}
        assert client.streams.count == 100
        assert (await client.chat(free, "hello"))[-1]["type"] == "finish"
        for one in opened:
            await one.__aexit__(None, None, None)
        assert client.streams.count == 0


async def test_b32_an_event_has_an_end() -> None:
    """One that holds a whole prompt goes to every listener without it, and says so; the state has the rest."""
    async with served() as client, client.open("GET", "/api/events") as reply:
        events = reply.frames()
        assert (await anext(events))["type"] == "hello"
        data = {"session_id": GOOD["id"], "turn_id": "trn", "reason": "refused", "error": {"text": "x" * MAX_EVENT}}
        client.engine.host.live.publish(Event("turn_finished", data))
        assert await anext(events) == {
            "type": "turn_finished",
            "session_id": GOOD["id"],
            "turn_id": "trn",
            "reason": "refused",
            "cut": True,
        }


def test_every_answer_that_holds_text_is_declared() -> None:
    """An operation whose answer has no type could say anything; only the page and files are not JSON."""
    from clew.fronts.http.app import make_routes
    from clew.fronts.http.sse import Streams

    routes = [one for one in make_routes(None, Streams()) if isinstance(one, Served)]  # type: ignore[arg-type]
    said: list[tuple[str, Operation]] = [(one.path, held) for one in routes for held in one.operations.values()]
    other = {path for path, held in said if held.media != "application/json"}
    assert other == {"/", "/assets/{file}", "/api/blobs/{sha256}", "/api/sessions/{id}/export"}
