"""Owners over HTTP: a table over every operation, tokens of owners, an app as a part of another, other pages."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.routing import Mount

import clew
from clew.errors import InvalidInput
from clew.fronts.http.auth import BearerTokens
from clew.fronts.http.serve import load_app
from clew.fronts.http.sse import Streams
from clew.fronts.operations.table import OPERATIONS, Operation
from clew.fronts.owner_tokens import OwnerTokens
from clew.server import Authenticate, Owner, make_app
from tests.integration.http_client import HOST, AsgiClient
from tests.integration.test_owners import SECRET, Owned


def who(request: HTTPConnection) -> Owner | str | None:
    """A host that knows two users by a header of its own."""
    return request.headers.get("x-user") or None


@pytest.fixture
async def owned(tmp_path: Path) -> AsyncIterator[Owned]:
    url = f"sqlite:///{tmp_path}/store.db"
    async with clew.open(url, config=clew.Config(), config_dir=tmp_path / "settings") as engine:
        root = tmp_path / "work"
        root.mkdir()
        made = Owned(engine, root)
        await made.fill()
        yield made


def client_of(owned: Owned, **options: Any) -> AsgiClient:
    streams = Streams()
    return AsgiClient(make_app(owned.engine, authenticate=who, streams=streams, **options), owned.engine, streams)


BODIES: dict[str, Any] = {
    "submit": {"text": "x"},
    "rewind": {"message_id": "message_id"},
    "set_head": {"turn_id": None},
    "branch": {"from_message_id": "message_id"},
    "revert_change": {"path": "a.txt"},
    "answer": {"decision": "once"},
    "answer_all": {"decision": "once"},
    "answer_question": {"output": "x"},
    "set_permissions": {"rules": []},
    "give_mcp_servers": {"servers": {}},
    "chat": {"id": "session_id", "messages": [{"role": "user", "parts": [{"type": "text", "text": "x"}]}]},
    "events.receive": {"source": "api", "source_id": "9", "text": "x", "routing": {"session_id": "session_id"}},
    "schedules.add": {"cron": "0 9 * * *", "prompt": "x", "routing": {"session_id": "session_id"}},
    "schedules.watch": {"session_id": "session_id", "server": "x", "uri": "x:y"},
    "webhooks.add": {"name": "new", "routing": {"session_id": "session_id"}},
    "add_rule": {"scope": "session", "permission": "bash", "pattern": "x", "action": "deny", "session": "session_id"},
    "edit_queued": {"text": "x"},
    "move_queued": {},
    "patch_session": {"title": "x"},
}
QUERIES = {
    "change_diff": "path=a.txt",
    "compare_files": "other_id={session_id}",
    "preview_restore": "message_id={message_id}",
    "explain_permission": "tool=read",
    "search": f"q={SECRET}&session={{session_id}}",
    "rules": "session={session_id}",
    "events.list": "session={session_id}",
    "list_sessions": "parent={session_id}",
    "revoke_rule": "id={rule_id}",
    "find_files": "session={session_id}",
    "import_from": "program=pi",
}
"""With ids of the owner's in them: so asked, they are not found either."""
NOBODYS = frozenset(
    {"page", "asset", "health", "ready", "document", "models", "agents", "settings", "server", "prompts", "usage"}
    | {
        "create_session",
        "import_session",
        "import_from",
        "save_prompt",
        "schedules.list",
        "webhooks.list",
        "subscribe",
        "examples",
    }
    | {"schedules.preview"}
)
"""They name nothing of another's; what they answer is looked at in words."""


def asked(operation: Operation, ids: dict[str, Any]) -> tuple[str, str, Any]:
    """A request for what is the owner's, made of the table."""
    names = {"session_id": ids["session_id"], "turn_id": ids["turn_id"], "schedule_id": ids["schedule_id"]}
    other = {"message_id": ids["message_id"], "sha256": ids["sha256"], "approval_id": "apr_x", "tool_call_id": "x"}
    held = {**names, **other, "name": "door" if "hooks" in operation.path else "mine", "loss_id": "1", "file": "x.js"}
    path = operation.path
    for piece in [one for one in path.split("/") if one.startswith("{")]:
        path = path.replace(piece, held[operation.parameter(piece[1:-1])], 1)
    if operation.name in QUERIES:
        path += "?" + QUERIES[operation.name].format(**ids)
    text = json.dumps(BODIES.get(operation.name, {}))
    for name in ("session_id", "message_id"):
        text = text.replace(f': "{name}"', f': "{ids[name]}"')
    return operation.method, path, json.loads(text) if operation.method in ("POST", "PUT", "PATCH") else None


@pytest.mark.rule("OW-1", "EM-4")
async def test_every_operation_of_the_table_tells_a_stranger_nothing(owned: Owned) -> None:
    """What names another's is 404, as what names nobody's; nothing else holds a word, an id or a count of theirs."""
    bob = client_of(owned)
    secrets = [SECRET, *(owned.ids[name] for name in ("session_id", "turn_id", "message_id", "schedule_id", "branch"))]
    for path in ("/api/sessions?kind=any&archived=true", "/api/schedules", "/api/hooks", "/api/usage?by=owner"):
        told = (await bob.get(path, headers={"x-user": "bob"})).json()
        assert [value for value in told.values() if isinstance(value, list) and value] == []
    page = (await bob.get(f"/api/search?q={SECRET}&wait=true", headers={"x-user": "bob"})).json()
    assert (page["hits"], page["total"]) == ([], 0)
    for operation in OPERATIONS:
        if operation.name == "subscribe":
            continue
        method, path, body = asked(operation, owned.ids)
        answer = await bob.request(method, path, body, headers={"x-user": "bob", "authorization": None})
        told = answer.body.decode("utf-8", "replace")
        if operation.name == "webhooks.deliver":
            assert answer.status == 401
        elif operation.name not in NOBODYS:
            assert (answer.status, operation.name) == (404, operation.name), told
        said = [one for one in secrets if one in told and one not in f"{path} {body}"]
        assert said == [], operation.name
    assert (await owned.ada.get_session("chat-1")).title == SECRET


@pytest.mark.rule("OW-1")
async def test_a_stranger_neither_follows_a_stream_nor_hears_an_event(owned: Owned) -> None:
    """By SSE: status, the live run and the events of the host."""
    client = client_of(owned)
    session_id = owned.ids["session_id"]
    headers = {"x-user": "bob", "accept": "text/event-stream"}
    for path in (f"/api/sessions/{session_id}/status", f"/api/chat/{session_id}/stream"):
        assert (await client.get(path, headers=headers)).status == 404
    # Under an alias of their own that nobody has used yet, there is nothing to resume.
    for name in ("chat-1", "chat-none"):
        assert (await client.get(f"/api/chat/{name}/stream", headers=headers)).status == 204
    heard: list[str] = []
    mine = ""
    async with client.open("GET", "/api/events", headers={"x-user": "bob"}) as reply:
        async for event in reply.frames():
            heard.append(event["type"])
            if event["type"] == "hello":
                await owned.ada.rename_session(session_id, SECRET)
                mine = (await owned.bob.create_session(model="demo/echo")).id
            elif event["session_id"] == mine:
                break
    assert heard == ["hello", "session_created"]


@pytest.mark.rule("EM-4")
async def test_the_app_is_mounted_under_any_path_with_its_page_its_health_and_its_webhooks(owned: Owned) -> None:
    """With the host's own users; who is none of them is 401, and nobody else's token counts."""
    inner = make_app(owned.engine, authenticate=who)
    app = Starlette(routes=[Mount("/deep/x", app=inner)])
    client = AsgiClient(app, owned.engine, Streams())
    base = "/deep/x"

    async def get(path: str, **headers: str | None) -> Any:
        async with client.open("GET", base + path, headers=headers) as reply:
            return reply.status, await reply.read()

    status, page = await get("/")
    assert status == 200
    script = page.decode().partition('src="./')[2].partition('"')[0]
    assert (await get(f"/{script}"))[0] == 200
    assert (await get("/api/health"))[0] == 200
    assert (await get("/api/sessions"))[0] == 401
    status, body = await get("/api/sessions/chat-1", **{"x-user": "ada"})
    assert (status, json.loads(body)["owner"], json.loads(body)["alias"]) == (200, "ada", "chat-1")
    assert (await get("/api/sessions/chat-1", **{"x-user": "bob"}))[0] == 404
    door = await owned.ada.webhooks.get("door")
    async with client.open("POST", f"{base}/api/hooks/{door.key}", {}) as reply:
        assert (reply.status, "signature_invalid" in (await reply.read()).decode()) == (401, True)


@pytest.mark.rule("EM-4")
async def test_pages_of_allowed_origins_may_call_and_no_others(owned: Owned) -> None:
    """Asked before the call, and told with each answer, a refusal included."""
    client = client_of(owned, origins=["https://shop.example"])
    asking = {"origin": "https://shop.example", "access-control-request-method": "POST", "sec-fetch-site": "cross-site"}
    async with client.open("OPTIONS", "/api/chat", headers={**asking, "x-user": None}) as reply:
        assert reply.status == 204
        assert reply.headers["access-control-allow-origin"] == "https://shop.example"
        assert "authorization" in reply.headers["access-control-allow-headers"]
    # A host's own header, by which it knows its users.
    own = {**asking, "access-control-request-headers": "content-type,x-user"}
    async with client.open("OPTIONS", "/api/chat", headers=own) as reply:
        assert reply.headers["access-control-allow-headers"] == "content-type,x-user"
    for user, expected in (("ada", 200), (None, 401)):
        answer = await client.get("/api/sessions", headers={"origin": "https://shop.example", "x-user": user})
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (expected, "https://shop.example")
    for origin in ("https://evil.example", "https://shop.example.evil", "null"):
        async with client.open("OPTIONS", "/api/chat", headers={**asking, "origin": origin}) as reply:
            assert (reply.status, "access-control-allow-origin" in reply.headers) == (403, False)
        assert (await client.get("/api/sessions", headers={"origin": origin, "x-user": "ada"})).status == 403
    assert (await client.get("/api/sessions", headers={"origin": f"http://{HOST}", "x-user": "ada"})).status == 200


@pytest.mark.rule("EM-4")
async def test_a_chat_of_the_clients_own_id_is_made_where_the_app_allows_it(owned: Owned) -> None:
    """As ``useChat`` sends it; the same id is another chat of another owner, and 404 where nobody makes it."""
    body = {"id": "K3x9qPz0", "messages": [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}]}
    strict, kind = client_of(owned, create_chats=False), client_of(owned)
    assert (await strict.post("/api/chat", body, headers={"x-user": "ada"})).status == 404
    for user in ("ada", "bob", "ada"):
        async with kind.open("POST", "/api/chat", body, headers={"x-user": user}) as reply:
            assert reply.status == 200
            assert [one async for one in reply.frames()][-1] == "[DONE]"
    for engine in (owned.ada, owned.bob):
        assert len(await engine.messages("K3x9qPz0")) == 2
    assert (await owned.ada.get_session("K3x9qPz0")).id != (await owned.bob.get_session("K3x9qPz0")).id
    # What is to be answered again, or was said by a model, begins no chat.
    answered = {"id": "m2", "role": "assistant", "parts": []}
    for more in ({"trigger": "regenerate-message"}, {"messages": [*body["messages"], answered]}):
        assert (
            await kind.post("/api/chat", {**body, "id": "unknown", **more}, headers={"x-user": "ada"})
        ).status == 404
    with pytest.raises(clew.errors.SessionNotFound):
        await owned.ada.get_session("unknown")


@pytest.mark.rule("OW-1")
async def test_tokens_of_owners_are_kept_by_digest_and_good_until_revoked(owned: Owned, tmp_path: Path) -> None:
    """A small team on one server: each sees their own, and whoever has the server's own token sees all."""
    home = {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}
    kept = OwnerTokens(home)
    ada, bob = kept.add("ada", 1, (str(owned.root),)), kept.add("bob", 2)
    assert stat.S_IMODE(kept.path.stat().st_mode) == 0o600
    assert ada not in kept.path.read_text()

    def find(given: str) -> Owner | None:
        found = kept.find(given)
        return None if found is None else Owner(found.name, found.roots)

    tokens = BearerTokens("the-servers-own", find)
    client = AsgiClient(make_app(owned.engine, authenticate=tokens), owned.engine, Streams())

    async def listed(token: str) -> Any:
        answer = await client.get("/api/sessions", headers={"authorization": f"Bearer {token}"})
        return answer.status if answer.status != 200 else len(answer.json()["sessions"])

    theirs = len((await owned.ada.list_sessions()).sessions)
    assert [await listed(one) for one in (ada, bob, "the-servers-own", ada[:-1], "")] == [theirs, 0, theirs, 401, 401]
    told = await client.get("/api/server", headers={"authorization": f"Bearer {ada}"})
    assert (told.json()["owner"], told.json()["workspace_root"]) == ("ada", str(owned.root))
    kept.revoke("ada")
    assert await listed(ada) == 401
    os.chmod(kept.path, 0o644)
    assert [one.name for one in OwnerTokens({"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}).list()] == [
        "bob"
    ]
    assert stat.S_IMODE(kept.path.stat().st_mode) == 0o600
    one = '{"name": "%s", "sha256": "' + "0" * 64 + '", "created_at": 1, "roots": ["%s"]}'
    twice, anywhere = one % ("a", "/a") + "," + one % ("b", "/b"), one % ("a", ".")
    for garbage in ("{}", "[{}]", "no", one % ("a b", "/a"), f"[{twice}]", f"[{anywhere}]", one % ("\xff", "/a")):
        kept.path.write_bytes(garbage.encode("latin-1"))
        with pytest.raises(InvalidInput, match="fix or delete it"):
            kept.list()
        # Nobody is let in by it, and it says nothing to a stranger; who has the server's own token is.
        assert [await listed(one) for one in (bob, "the-servers-own")] == [500, theirs]
    kept.path.unlink()
    kept.path.mkdir()
    with pytest.raises(InvalidInput, match="fix or delete it"):
        kept.list()


@pytest.mark.rule("OW-1")
async def test_tokens_that_are_made_and_revoked_at_once_are_all_of_them(tmp_path: Path) -> None:
    """Each by a process of its own, as far as the file can tell: none takes back what another did."""
    home = {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}
    for n in range(8):
        OwnerTokens(home).add(f"old{n}", 1)
    changes: list[Callable[[], object]] = [functools.partial(OwnerTokens(home).add, f"new{n}", 1) for n in range(8)]
    changes += [functools.partial(OwnerTokens(home).revoke, f"old{n}") for n in range(8)]
    await asyncio.gather(*map(asyncio.to_thread, changes))
    assert [one.name for one in OwnerTokens(home).list()] == [f"new{n}" for n in range(8)]


@pytest.mark.rule("OW-1")
async def test_a_stream_ends_when_the_token_it_began_with_is_revoked(owned: Owned, tmp_path: Path) -> None:
    """At its next heartbeat, and is refused when it comes again; another owner's goes on."""
    kept = OwnerTokens({"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)})
    headers = [{"authorization": f"Bearer {kept.add(name, 1)}"} for name in ("ada", "bob")]
    tokens = BearerTokens("the-servers-own", lambda given: Owner(one.name) if (one := kept.find(given)) else None)
    streams = Streams(heartbeat_s=0.01)
    client = AsgiClient(make_app(owned.engine, authenticate=tokens, streams=streams), owned.engine, streams)
    async with (
        asyncio.timeout(60),
        client.open("GET", "/api/events", headers=headers[0]) as adas,
        client.open("GET", "/api/events", headers=headers[1]) as bobs,
    ):
        heard, going_on = adas.frames(), bobs.frames()
        assert (await anext(heard))["type"] == (await anext(going_on))["type"] == "hello"
        kept.revoke("ada")
        # What was on its way may still come.
        async for _ in heard:
            pass
        made = await owned.bob.create_session(model="demo/echo")
        assert (await anext(going_on))["session_id"] == made.id
    assert (await client.get("/api/events", headers=headers[0])).status == 401


@pytest.mark.rule("EM-4")
async def test_a_host_that_cannot_say_who_asks_lets_nobody_in_and_answers(owned: Owned) -> None:
    """What it raises for the client goes there as it is; anything else is a 500 that gives nothing away."""

    def raises(error: Exception) -> Authenticate:
        def authenticate(_: HTTPConnection) -> Owner:
            raise error

        return authenticate

    async def answered(authenticate: Any, path: str, **more: str) -> tuple[int, str]:
        app = Starlette(routes=[Mount("/x", app=make_app(owned.engine, authenticate=authenticate))])
        async with AsgiClient(app, owned.engine, Streams()).open("GET", f"/x{path}", headers=more) as reply:
            return reply.status, (await reply.read()).decode()

    said = HTTPException(403, "your plan has no chats", {"x-plan": "free"})
    assert await answered(raises(said), "/api/sessions") == (403, "your plan has no chats")
    for wrong in (raises(ValueError(SECRET)), raises(InvalidInput(SECRET)), raises(OSError(SECRET))):
        status, told = await answered(wrong, "/api/sessions")
        assert (status, json.loads(told)["code"], SECRET in told) == (500, "internal_error", False)
    for garbage in (False, True, 7, "", b"ada", {"name": "ada"}, Owner(""), object()):
        for path in ("/api/sessions", "/api/server", "/openapi.json", "/api/models"):
            assert (await answered(lambda _, given=garbage: given, path))[0] == 500, (garbage, path)
    status, told = await answered(lambda _: Owner("ada", [str(owned.root)]), "/api/server")  # type: ignore[arg-type]
    assert (status, json.loads(told)["workspace_root"]) == (200, str(owned.root))


@pytest.mark.rule("EM-4")
async def test_origins_that_would_let_in_everybody_or_nobody_are_refused(owned: Owned) -> None:
    """A star, the null of any sandboxed page, a text in the place of a list, and what no browser sends."""
    for wrong in (["*"], ["null"], "https://a.example", ["https://a.example/"], ["https://*.example"], ["a.example"]):
        with pytest.raises(InvalidInput, match="origins"):
            make_app(owned.engine, authenticate=who, origins=wrong)


@pytest.mark.rule("EM-4")
async def test_a_host_names_what_opens_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function called as ``clew.open`` is; what cannot be one is refused in words."""
    (tmp_path / "my_shop.py").write_text(
        "import clew\n\n"
        "@clew.tool\n"
        "async def stock(item: str) -> str:\n"
        "    'How many there are.'\n"
        "    return '7'\n\n"
        "def opened(url, **given):\n"
        "    return clew.open(url, tools=[stock], **given)\n\n"
        "wrong = 7\n"
    )
    monkeypatch.chdir(tmp_path)
    async with load_app("my_shop:opened")("memory:", config=clew.Config()) as engine:
        assert "stock" in engine.host.tools
    for named, said in (
        ("my_shop", "module:attr"),
        ("my_shop:nothing", "cannot be"),
        ("my_shop:wrong", "is not a function"),
    ):
        with pytest.raises(InvalidInput, match=said):
            load_app(named)
