"""The table of operations: each is asked of a running server by the remote engine and by the clients, and drops nothing
on the way."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import pytest

import clew
from clew import fronts
from clew.client import AsyncClient, Client, Moved, Sent
from clew.fronts.http.app import make_app
from clew.fronts.http.auth import loopback_hosts
from clew.fronts.http.serve import Server
from clew.fronts.operations.table import BY_NAME, OPERATIONS, Operation
from clew.fronts.remote import blocking, blocking_call, blocking_operations
from clew.fronts.remote.engine import RemoteEngine, RemoteEvents, RemoteSchedules, RemoteWebhooks
from clew.fronts.remote.wire import Wire
from clew.mcp_server import McpServer
from clew.session.api import Engine, Operations
from clew.session.api.sessions import SessionList
from clew.session.history.rewind import Rewound
from clew.session.prompt.submission import Submission
from clew.transcript.session import Model, Session
from clew.triggers.events import Events
from clew.triggers.schedules import Schedules
from clew.triggers.values.routing import Routing
from clew.triggers.values.webhook import Webhook
from clew.triggers.webhooks import Webhooks
from tools import blocking_client

TOKEN = "test-token-0123456789"
ECHO = {"provider_id": "demo", "model_id": "echo"}
FACADE = [one for one in OPERATIONS if not one.served]
# Put together of other operations, so that they are the same everywhere; and what only the owner of a store does.
COMPOSED = {"rename_session", "archive_session", "losses", "schedules.pause", "schedules.resume"}
OWNERS_ALONE = {"schedules.tick", "webhooks.deliver"}


@contextlib.asynccontextmanager
async def serving(engine: Engine, app: Any = None) -> AsyncIterator[RemoteEngine]:
    """The engine behind a real server, as a command reaches it; in an app of its host's where that is given."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        server = Server(
            app or make_app(engine, token=TOKEN, hosts=loopback_hosts(port), workspace_root=Path("/")),
            listener,
            engine.config.server,
        )
        server.config.load()
        await server.startup()
        try:
            yield RemoteEngine(Wire(f"http://127.0.0.1:{port}", TOKEN))
        finally:
            for listening in server.servers:
                listening.close()
            for connection in list(server.server_state.connections):
                connection.transport.abort()
            while server.server_state.tasks:
                await asyncio.wait(server.server_state.tasks)


class OnThreads:
    """The client without a loop as something that can be awaited: each call waits on a thread of its own."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.target, name)
        if not callable(value):
            return wrapped(value)

        async def call(*args: Any, **kwargs: Any) -> Any:
            return wrapped(await asyncio.to_thread(value, *args, **kwargs))

        async def draw(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            drawn = value(*args, **kwargs)
            try:
                while (one := await asyncio.to_thread(next, drawn, None)) is not None:
                    yield one
            finally:
                await asyncio.to_thread(drawn.close)

        return draw if name in ("attach", "subscribe", "watch_status") else call


def wrapped(value: Any) -> Any:
    return OnThreads(value) if type(value).__module__.startswith("clew.fronts.remote.blocking") else value


class Walk:
    """Calls operations from elsewhere, and holds what reached the local engine, and what came of it, against them."""

    def __init__(self, engine: Engine, remote: Any) -> None:
        self.engine = engine
        self.remote = remote
        self.walked: set[str] = set()
        self._seen: list[tuple[str, Mapping[str, Any], Any]] = []
        for operation in FACADE:
            if operation.answers != {200: None} and operation.name != "attach":
                self._spy(operation.name)

    def _spy(self, name: str) -> None:
        owner = attrgetter(name.rpartition(".")[0])(self.engine) if "." in name else self.engine
        method = attrgetter(name)(self.engine)
        signature = inspect.signature(method)

        async def spied(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            try:
                value = await method(*args, **kwargs)
            except clew.ClewError as error:
                self._seen.append((name, bound.arguments, error))
                raise
            self._seen.append((name, bound.arguments, value))
            return value

        setattr(owner, name.rpartition(".")[2], spied)

    async def __call__(self, name: str, /, **arguments: Any) -> Any:
        """One operation with every argument set. What it returned there, or the error it raised."""
        signature = inspect.signature(attrgetter(name)(Engine if "." not in name else self.engine))
        parameters = [one for one in signature.parameters.values() if one.name != "self"]
        if not any(one.kind is one.VAR_KEYWORD for one in parameters):
            assert arguments.keys() == {one.name for one in parameters}, name
        try:
            there = await attrgetter(name)(self.remote)(**arguments)
        except clew.ClewError as error:
            there = error
        _, given, here = next(seen for seen in reversed(self._seen) if seen[0] == name)
        flat = {**given, **given.get("changes", {})}
        assert {key: plain(flat[key]) for key in arguments} == {key: plain(arguments[key]) for key in arguments}, name
        assert plain(there) == plain(here), name
        self.walked.add(name)
        return there


def plain(value: Any) -> Any:
    """A value as both sides have it. A session's rules and a webhook's secret are not shown again, on purpose."""
    value = value.target if isinstance(value, OnThreads) else value
    if isinstance(value, clew.ClewError):
        return (value.code, str(value), value.ids)
    if isinstance(value, Submission | Sent):
        return (value.message_id, value.queued)
    if isinstance(value, Rewound | Moved):
        return (value.head_turn_id, tuple(value.hidden), value.draft, plain(value.submission))
    if isinstance(value, Session):
        return msgspec.structs.replace(value, permissions=[])
    if isinstance(value, SessionList):
        # What each is doing is answered with it.
        return (plain(value.sessions), value.next_cursor)
    if isinstance(value, Webhook):
        return msgspec.structs.replace(value, secret="")
    if isinstance(value, Model):
        return msgspec.to_builtins(value)
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    return value


@pytest.mark.parametrize("who", ["remote engine", pytest.param("client", marks=pytest.mark.slow)])
@pytest.mark.rule("EM-5")
async def test_every_operation_arrives_whole_and_gives_what_the_facade_gives(who: str, tmp_path: Path) -> None:
    """Every argument of every operation, and its result or its error, over a socket and back.

    The client without a loop stands on the other one, which stands on the remote engine.
    """
    folder = str(tmp_path)
    async with contextlib.AsyncExitStack() as stack:
        store = clew.open(f"sqlite:///{tmp_path}/store.db", triggers=False)
        engine = await stack.enter_async_context(store)
        remote: Any = await stack.enter_async_context(serving(engine))
        if who == "client":
            remote = OnThreads(Client(remote.url, token=TOKEN))
            stack.push_async_callback(remote.close)
        walk = Walk(engine, remote)
        made = await walk(
            "create_session",
            model={**ECHO, "variant": "slow"},
            agent="assistant",
            workspace_root=folder,
            title="Ünï",
            metadata={"label": "a"},
            system_prompt="be brief",
            mode="read_only",
            alias="mine",
        )
        s = made.id
        await walk("get_session", session_id=s)
        await walk(
            "patch_session",
            session_id=s,
            title="other",
            archived=True,
            metadata={"label": None, "x": 1},
            model="demo/long:slow",
            mode="ask",
            pinned=True,
        )
        rest = {"model": "demo/echo", "mode": "ask", "pinned": False}
        await walk("patch_session", session_id=s, title="", archived=False, metadata={}, **rest)
        await walk(
            "list_sessions",
            limit=3,
            cursor=None,
            agent="assistant",
            workspace=folder,
            parent=s,
            q="x",
            kind="any",
            archived=True,
            ephemeral=True,
            pinned=True,
        )
        await walk("find_files", q="sto", session_id=s, workspace=None, limit=3, folders=True)
        given = {"mine": McpServer(command="/nowhere/at-all")}
        await walk("give_mcp_servers", session_id=s, servers=given)
        await walk("start_mcp_server", name="mine", session_id=s, workspace=None)
        await walk("mcp_servers", session_id=s, workspace=None)
        await walk("mcp_servers", session_id=None, workspace=folder)
        await walk("change_settings", default_model="demo/tour", default_agent="explore", max_steps=7)
        await walk("change_settings", default_model=None, default_agent=None, max_steps=None)
        await walk("settings")
        await walk("save_prompt", name="tidy", text="Tidy up.")
        await walk("prompts")
        await walk("remove_prompt", name="tidy")
        await walk("models")
        await walk("replicas")
        await walk("disk_use")
        await walk("usage", by="model", since="2026-01-31", until="2026-02-01T08:00Z")
        await walk("agents", workspace=folder)
        first = await walk(
            "submit",
            session_id=s,
            prompt=[{"type": "text", "text": "one"}],
            model=ECHO,
            agent="assistant",
            message_id="u1",
            on_busy="reject",
            attended=False,
            output=None,
            metadata={"plan": "free"},
        )
        assert (await first.wait()).status == "completed"
        await (await remote.submit(s, "two words")).wait()
        [u1, _, u2, a2] = await walk("messages", session_id=s, view="all", limit=4, before=None)
        await walk("messages", session_id=s, view="visible", limit=1, before=u2.id)
        turn = u1.metadata["turn_id"]
        await walk("files", session_id=s, limit=1, cursor=turn)
        await walk("accept_message", session_id=s, message_id=u1.id)
        await walk("accept_loss", loss_id="loss-1")
        assert await remote.losses() == await engine.losses() == ()
        await walk("blob", sha256="0" * 64)
        await walk("get_status", session_id=s)
        assert [await anext(aiter(one.watch_status(s))) for one in (engine, remote)] == [await engine.get_status(s)] * 2
        await walk("search", q="two", limit=5, cursor=None, session_id=s, wait=True)
        await walk("reflog", session_id=s, limit=2, before=3)
        await walk("tree", session_id=s, limit=1, cursor=turn)
        await walk("turn", turn_id=turn)
        await walk("turn_messages", turn_id=turn)
        await walk("request", turn_id=turn, step=0)
        await walk("context", session_id=s, model="demo/small")
        await walk("context", session_id=s, model=Model("demo", "small", "slow"))
        await walk("compact", session_id=s, focus="the numbers")
        await walk("prune", session_id=s)
        await walk("compaction", session_id=s, message_id=a2.id)
        start = {"metadata": {"b": 1}, "model": ECHO, "start_message_id": u2.id}
        await walk("branch", session_id=s, from_message_id=a2.id, worktree=None, **start)
        await walk("branch", session_id=s, from_message_id=a2.id, worktree=str(tmp_path / "aside"), **start)
        await walk("fork", turn_id=turn, label="aside", text="go on")
        back = await walk(
            "rewind",
            session_id=s,
            message_id=u2.id,
            mode="edit",
            text=None,
            run=True,
            files="keep",
            force=False,
            paths=[],
            restore_files=False,
            parts=[{"type": "text", "text": "zwei"}],
            model=ECHO,
            agent="explore",
            client_message_id="u9",
            metadata={"plan": "paid"},
        )
        assert (await back.submission.wait()).status == "completed"
        newest = (await engine.messages(s))[-2]
        assert (newest.parts[0]["text"], newest.metadata["client_message_id"]) == ("zwei", "u9")
        assert (u1.metadata["plan"], newest.metadata["plan"]) == ("free", "paid")
        rest = {"parts": None, "model": None, "agent": None, "client_message_id": None, "metadata": None}
        files = {"files": "restore", "force": True, "paths": ["a.txt"]}
        rest |= {"mode": "edit", "text": "eins", "run": False, "restore_files": True}
        await walk("rewind", session_id=s, message_id=u1.id, **files, **rest)
        await walk("rewind", session_id=s, message_id=u1.id, **rest, files="keep", force=False, paths=[])
        await remote.rewind(s, u1.id)
        await walk("unrewind", session_id=s, **files)
        await remote.unrewind(s)
        await walk("set_head", session_id=s, turn_id=None, **files)
        await remote.set_head(s, None)
        await walk("preview_restore", session_id=s, message_id=u1.id, turn_id=None, to=None)
        await walk("preview_restore", session_id=s, message_id=None, turn_id=turn, to="undo")
        await walk("changes", session_id=s, turn_id=turn, step=0)
        await walk("change_diff", session_id=s, path="a.txt", turn_id=turn, step=0)
        await walk("compare_files", session_id=s, other_id=s, path="a.txt")
        revert = {"path": "a.txt", "hunk": "@@ -1 +1 @@", "turn_id": turn, "step": 0, "force": True}
        await walk("revert_change", session_id=s, **revert)
        await walk("continue_turn", session_id=s, mode="again", queue=False)
        await waiting(walk, s)
        await walk_triggers(walk, s, folder)
        document = await walk("export", session_id=s, format="json", redact=False, hidden=True)
        await walk("import_session", data=document, workspace_root=folder)
        await walk("import_from", program="pi", data=PI, workspace_root=folder)
        await walk("delete_session", session_id=s, force=True)
        streams = {"attach", "subscribe"}
        assert {operation.name for operation in FACADE} - walk.walked == streams
        await follow_streams(engine, remote)


PI = b"""{"type":"session","version":3,"id":"s","timestamp":"2026-03-01T09:00:00Z","cwd":"/"}
{"type":"message","id":"1","parentId":null,"timestamp":"2026-03-01T09:00:01Z","message":{"role":"user","content":"hi"}}
"""
"""A session of another program."""


async def waiting(walk: Walk, s: str) -> None:
    """What is done with a session that waits, and what waits behind it."""
    rules = [{"permission": "bash", "pattern": "ls*", "action": "ask", "added_at": 5}]
    await walk("set_permissions", session_id=s, rules=rules)
    await walk("permissions", session_id=s)
    added = await walk(
        "add_rule",
        scope="session",
        permission="bash",
        pattern="touch *",
        action="ask",
        session_id=s,
        workspace=None,
    )
    await walk("rules", scope="session", session_id=s, workspace=None, agent=None)
    await walk("revoke_rule", rule_id=added.id, session_id=s, workspace=None)
    await walk("explain_permission", session_id=s, tool="bash", target="ls; touch x")
    await walk.remote.submit(s, "!bash touch made", model="demo/tools")
    async for status in walk.engine.watch_status(s):
        if status.waiting:
            break
    queued = await walk.remote.submit(s, "later", message_id="q1")
    assert queued.queued
    await walk("queue", session_id=s)
    await walk("edit_queued", session_id=s, message_id="q1", text="later still")
    await walk("move_queued", session_id=s, message_id="q1", before=queued.message_id)
    await walk("pause_queue", session_id=s, paused=True)
    await walk("send_queued", session_id=s, message_id="q9")
    await walk("cancel_queued", session_id=s, message_id="q1")
    [asked] = status.waiting
    await walk("answer_question", session_id=s, tool_call_id="call", output=None)
    assert asked.approval_id is not None
    await walk("answer", session_id=s, approval_id=asked.approval_id, decision="deny", reason="no", pattern=None)
    await walk("answer_all", session_id=s, decision="deny", reason="none waits", approval_ids=["apr_x"])
    await walk("abort", session_id=s, queue="go_on")


async def walk_triggers(walk: Walk, s: str, folder: str) -> None:
    routing = Routing(label="l", model=Model("demo", "echo"), agent="assistant", workspace_root=folder, title="t")
    await walk("events.receive", source="x", source_id="1", routing=routing, text="hi", payload={"a": 1}, type="made.x")
    everything = {"limit": 5, "cursor": None, "session_id": s, "source": "x", "turn_id": None, "direction": "in"}
    await walk("events.list", **everything)
    schedule = await walk(
        "schedules.add",
        cron="0 9 * * *",
        prompt="go",
        timezone="Europe/Vienna",
        name="n",
        missed="once",
        paused=True,
        routing=routing,
    )
    await walk("schedules.watch", session_id=s, server="nobody", uri="x:y", prompt="x", name="y")
    await walk("schedules.preview", cron="0 9 * * 1-5", timezone="Europe/Vienna")
    await walk("schedules.list")
    await walk("schedules.get", schedule_id=schedule.id)
    changes = {"cron": "1 9 * * *", "prompt": "went", "timezone": "UTC", "name": None, "missed": "skip", "paused": True}
    await walk("schedules.change", schedule_id=schedule.id, **changes)
    assert (await walk.remote.schedules.resume(schedule.id)).paused is False
    await walk("schedules.run", schedule_id=schedule.id)
    await walk("schedules.remove", schedule_id=schedule.id)
    assert len((await walk("webhooks.add", name="w", prompt="p", paused=True, routing=routing)).secret) > 20
    await walk("webhooks.list")
    assert (await walk("webhooks.get", name="w")).secret == ""
    await walk("webhooks.change", name="w", paused=False, prompt="")
    assert len((await walk("webhooks.rotate", name="w")).secret) > 20
    await walk("webhooks.remove", name="w")


async def follow_streams(engine: Engine, remote: Any) -> None:
    """What runs, and what happens: the same chunks and the same events from both."""
    session = await engine.create_session(model="demo/long")
    events = aiter(remote.subscribe())
    assert str((await anext(events)).type) == "hello"
    heard = aiter(engine.subscribe())
    listening = asyncio.ensure_future(anext(heard))
    await asyncio.sleep(0)
    await engine.submit(session.id, "50 words", model={"provider_id": "demo", "model_id": "long", "variant": "slow"})
    following = [[chunk async for chunk in one.attach(session.id)] for one in (engine, remote)]
    assert following[0][0]["type"] == "start"
    assert following[1] == [] or following[0][-1] == following[1][-1]
    assert await anext(events) == await listening


# The table itself


def parameters_of(operation: Operation, method: Callable[..., Any]) -> set[str]:
    """What the facade's method takes, as far as it has names."""
    named = inspect.signature(method).parameters.values()
    return {one.name for one in named if one.name != "self" and one.kind is not one.VAR_KEYWORD}


def facade_method(name: str) -> Callable[..., Any]:
    group, _, own = name.rpartition(".")
    method: Callable[..., Any] = getattr({"": Engine, **GROUPS}[group], own)
    return method


GROUPS: dict[str, type] = {"events": Events, "schedules": Schedules, "webhooks": Webhooks}
REMOTE: dict[str, type] = {
    "": RemoteEngine,
    "events": RemoteEvents,
    "schedules": RemoteSchedules,
    "webhooks": RemoteWebhooks,
}


@pytest.mark.parametrize("operation", FACADE, ids=lambda operation: operation.name)
def test_an_operation_is_a_method_of_both_engines_and_every_parameter_travels(operation: Operation) -> None:
    """In the path, the query or the body, with the facade's own default; nothing else does."""
    method = facade_method(operation.name)
    group, _, own = operation.name.rpartition(".")
    assert getattr(REMOTE[group], own) is not method
    path = {operation.parameter(part[1:-1]) for part in operation.path.split("/") if part.startswith("{")}
    fields: dict[str, Any] = {}
    for kind in (operation.query, operation.body):
        if inspect.isclass(kind) and issubclass(kind, msgspec.Struct):
            fields |= {field.name: field for field in msgspec.structs.fields(kind)}
    travelling = path | fields.keys() | ({operation.raw} if operation.raw else set())
    # Said in other words: a prompt is a text or parts, a routing has what a new session gets beside it.
    if operation.name == "submit":
        travelling = (travelling - {"text", "parts"}) | {"prompt"}
    if "routing" in fields:
        travelling -= {"model", "agent", "workspace_root", "title"}
    if operation.name == "schedules.change":
        travelling -= {"cron", "prompt", "timezone", "name", "missed", "paused"}
    if operation.name == "patch_session":
        travelling -= {"agent"}  # named to be refused
    assert travelling == parameters_of(operation, method)
    for name, parameter in inspect.signature(method).parameters.items():
        default = fields[name].default if name in fields else None
        if default not in (None, msgspec.UNSET, msgspec.NODEFAULT):
            assert default == parameter.default, name


@pytest.mark.rule("EM-5")
def test_both_clients_have_every_operation() -> None:
    """By the same name, and what waits or follows in one does so in the other."""
    groups = {"": (AsyncClient, Client), "events": (RemoteEvents, blocking_operations.Events)}
    groups |= {
        "schedules": (RemoteSchedules, blocking.Schedules),
        "webhooks": (RemoteWebhooks, blocking_operations.Webhooks),
    }
    names = {name for one in FACADE for name in (one.name, one.watched_by) if name}
    for name in sorted(names | COMPOSED | {"start", "follow", "outcome", "examples", "close"}):
        group, _, own = name.rpartition(".")
        waiting, plain_one = (vars_with_bases(kind)[own] for kind in groups[group])
        follows = isinstance(plain_one, blocking_call.Iterator)
        assert follows == inspect.isasyncgenfunction(waiting), name


@pytest.mark.rule("EM-5")
def test_the_blocking_client_is_written_from_the_table() -> None:
    """`make client` changes nothing: no operation is missing, and none has another form."""
    assert blocking_client.TARGET.read_text(encoding="utf-8") == blocking_client.written()


def vars_with_bases(kind: type) -> dict[str, Any]:
    return {name: value for base in reversed(kind.__mro__) for name, value in vars(base).items()}


def test_everything_the_facade_offers_is_an_operation() -> None:
    """What is added to it and not to the table is missing in the remote engine, and found here."""
    offered = {name for name in vars_of(Operations) if not name.startswith("_")}
    offered |= {f"{group}.{name}" for group, kind in GROUPS.items() for name in vars_of(kind) if name[0] != "_"}
    known = {name for one in FACADE for name in (one.name, one.watched_by) if name}
    assert offered - known == COMPOSED | OWNERS_ALONE
    assert known - offered == set()
    assert len(BY_NAME) == len(OPERATIONS) == len({operation.route for operation in OPERATIONS})


def vars_of(kind: type) -> Iterator[str]:
    for name, _ in inspect.getmembers(kind, inspect.isfunction):
        yield name


def test_fronts_ask_the_facade_and_nothing_behind_it() -> None:
    """``engine.host`` is everything that runs stand on; what a front needs of it the facade has."""
    reached = [
        f"{path.name}:{node.lineno}"
        for path in sorted(Path(str(fronts.__file__)).parent.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ("host", "_host") and "engine" in ast.unparse(node.value)
    ]
    assert reached == []
