"""An owner and a stranger: whatever the stranger asks for, what is the owner's is not there."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
from base64 import b64encode
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.errors import AliasTaken, InvalidInput, NotFound
from clew.live.base import Event
from clew.session.api.engine import ADMIN_ONLY
from clew.session.prompt.submission import TurnOutcome
from clew.testing import scripted
from clew.testing.scripted import ScriptedModel, say
from clew.triggers.values.routing import Routing

pytestmark = pytest.mark.rule("OW-1")

SECRET = "xylophone"
"""In whatever the owner has: a stranger must never be shown it."""


class Owned:
    """What an owner has: a session with turns, a file, a queue, rules, a schedule, a webhook and events."""

    def __init__(self, engine: clew.Engine, root: Path) -> None:
        self.engine, self.root = engine, root
        self.ada, self.bob = engine.scoped("ada", roots=[root]), engine.scoped("bob", roots=[root])
        self.ids: dict[str, Any] = {}

    async def fill(self) -> None:
        ada = self.ada
        finished = asyncio.Semaphore(0)

        async def count(outcome: TurnOutcome) -> None:
            finished.release()

        self.engine.hook("turn_finished", count)
        session = await ada.create_session(
            model="demo/echo", title=SECRET, alias="chat-1", workspace_root=self.root, metadata={"label": SECRET}
        )
        picture = {"type": "file", "mediaType": "text/plain", "url": "data:text/plain;base64,eHlsb3Bob25l"}
        await (await ada.submit(session.id, [{"type": "text", "text": SECRET}, picture])).wait()
        session = await ada.get_session(session.id)
        messages = await ada.messages(session.id)
        branch = await ada.branch(session.id, messages[0].id)
        rule = await ada.add_rule("project", "bash", f"{SECRET} *", "deny", workspace=self.root)
        schedule = await ada.schedules.add("0 9 * * *", SECRET, routing=Routing(session_id=session.id))
        await ada.webhooks.add("door", prompt=SECRET)
        received = await ada.events.receive("api", "1", Routing(label=SECRET), text=SECRET)
        # The event began a turn, which nobody waits for: what is compared below is compared at rest.
        for _ in range(2):
            await finished.acquire()
        await ada.save_prompt("mine", SECRET)
        self.ids = {
            "session_id": session.id,
            "turn_id": session.head_turn_id,
            "message_id": messages[0].id,
            "from_message_id": messages[0].id,
            "sha256": hashlib.sha256(SECRET.encode()).hexdigest(),
            "parent": session.id,
            "rule_id": rule.id,
            "schedule_id": schedule.id,
            "branch": branch.id,
            "event_session": received.session_id,
            "exported": await ada.export(session.id),
        }


@pytest.fixture
async def owned(tmp_path: Path) -> AsyncIterator[Owned]:
    url = f"sqlite:///{tmp_path}/store.db"
    async with clew.open(url, config=clew.Config(), config_dir=tmp_path / "settings") as engine:
        root = tmp_path / "work"
        root.mkdir()
        made = Owned(engine, root)
        await made.fill()
        yield made


VALUES: dict[str, Any] = {
    "prompt": "x",
    "title": "x",
    "approval_id": "apr_x",
    "decision": "once",
    "tool_call_id": "call",
    "output": "x",
    "rules": [],
    "tool": "read",
    "q": SECRET,
    "named": "demo/echo",
    "session_ids": [],
    "submission": None,
}
NAMES_A_SESSION = ("session_id", "turn_id", "parent", "sha256")
TELLS_NOTHING = frozenset(
    {
        "agents",
        "create_session",
        "import_session",
        "import_from",
        "models",
        "parse_model",
        "prompts",
        "remove_prompt",
        "save_prompt",
    }
    | {"rules", "add_rule", "revoke_rule", "find_files", "settings", "subscribe", "usage", "search", "list_sessions"}
)
"""They name no session, or need not: each is asked in a test of its own below."""


def operations() -> dict[str, inspect.Signature]:
    """Every public method of an engine."""
    methods = inspect.getmembers(clew.Engine, inspect.isfunction)
    return {name: inspect.signature(method) for name, method in methods if not name.startswith("_")}


async def outcome(call: Callable[..., Any], given: dict[str, Any]) -> Any:
    result = call(**given)
    if hasattr(result, "__aiter__"):
        return [one async for one in result]
    return await result if inspect.isawaitable(result) else result


def missing(name: str, value: str) -> str:
    """An id of the same form that nothing has."""
    return "0" * 64 if name == "sha256" else value[:-6] + ("000000" if value[-6:] != "000000" else "111111")


async def test_every_method_of_an_engine_is_refused_to_a_stranger_as_if_there_were_nothing(owned: Owned) -> None:
    """What names another's session, turn or file ends as what names none at all, word for word but for the name."""
    walked = set()
    for name, signature in operations().items():
        if name in ADMIN_ONLY:
            with pytest.raises(NotFound, match="whole store"):
                getattr(owned.bob, name)
            continue
        naming = [one for one in NAMES_A_SESSION if one in signature.parameters]
        if name == "statuses":
            naming = ["session_ids"]
        for about in naming:
            own = owned.ids["session_id" if about == "session_ids" else about]
            told = []
            for value in (own, missing(about, own)):
                given = {
                    one.name: owned.ids.get(one.name, VALUES.get(one.name))
                    for one in signature.parameters.values()
                    if one.name != "self" and (one.default is one.empty or one.name == about)
                }
                given[about] = [value] if about == "session_ids" else value
                if name == "rules":
                    given["scope"] = "session"
                with pytest.raises(NotFound) as error:
                    await outcome(getattr(owned.bob, name), given)
                told.append((error.value.code, str(error.value).replace(value, "…")))
            assert told[0] == told[1], (name, about)
            assert SECRET not in told[0][1]
            walked.add(name)
        assert naming or name in TELLS_NOTHING, f"nobody says what a stranger is told by {name}"
    assert {"messages", "run", "attach", "get_status", "watch_status", "delete_session", "turn", "blob"} <= walked
    assert (await owned.ada.get_session("chat-1")).title == SECRET


async def test_no_list_no_count_and_no_name_of_another_is_told(owned: Owned) -> None:
    """Lists, searches, sums, ledgers, rules, schedules, webhooks and saved prompts of a stranger are empty."""
    bob, root = owned.bob, owned.root
    for asked in ({}, {"kind": "any", "archived": True, "ephemeral": True}, {"q": SECRET}, {"workspace": root}):
        assert (await bob.list_sessions(**asked)).sessions == ()
    page = await bob.search(SECRET, wait=True)
    assert (page.hits, page.total, page.next_cursor) == ((), 0, None)
    assert (await owned.ada.search(SECRET, wait=True)).total >= 2
    report = await bob.usage("owner")
    assert (report.groups, report.total.calls) == ((), 0)
    assert [group.key for group in (await owned.ada.usage("owner")).groups] == ["ada"]
    assert [group.key for group in (await owned.engine.usage("owner")).groups] == ["ada"]
    for source in (None, "api"):
        assert (await bob.events.list(source=source)).events == ()
    assert [event.source for event in (await owned.ada.events.list(source="api", direction="in")).events] == ["api"]
    assert await bob.schedules.list() == ()
    assert await bob.webhooks.list() == ()
    assert await bob.rules() == []
    assert await bob.rules(workspace=root) == []
    assert [rule.pattern for rule in await owned.ada.rules(workspace=root)] == [f"{SECRET} *"]
    assert await bob.prompts() == []


async def test_no_trigger_rule_or_name_of_another_is_found(owned: Owned) -> None:
    """By any of its ids and names."""
    bob, ids = owned.bob, owned.ids
    for call in (
        bob.events.list(session_id=ids["session_id"]),
        bob.events.list(turn_id=ids["turn_id"]),
        bob.events.receive("api", "2", Routing(session_id=ids["session_id"]), text="x"),
        bob.schedules.get(ids["schedule_id"]),
        bob.schedules.change(ids["schedule_id"], paused=True),
        bob.schedules.pause(ids["schedule_id"]),
        bob.schedules.resume(ids["schedule_id"]),
        bob.schedules.run(ids["schedule_id"]),
        bob.schedules.remove(ids["schedule_id"]),
        bob.schedules.add("0 9 * * *", "x", routing=Routing(session_id=ids["session_id"])),
        bob.webhooks.get("door"),
        bob.webhooks.change("door", paused=True),
        bob.webhooks.rotate("door"),
        bob.webhooks.remove("door"),
        bob.webhooks.add("other", routing=Routing(session_id=ids["session_id"])),
        bob.revoke_rule(ids["rule_id"]),
        bob.remove_prompt("mine"),
        bob.get_session("chat-1"),
    ):
        with pytest.raises(NotFound):
            await call


async def test_two_owners_use_the_same_names_without_meeting(owned: Owned) -> None:
    """Aliases, labels, webhooks, event identities and rules of a folder; each finds what is theirs."""
    bob = owned.bob
    mine = await bob.create_session(model="demo/echo", alias="chat-1")
    assert (await bob.get_session("chat-1")).id == mine.id
    with pytest.raises(AliasTaken):
        await bob.create_session(model="demo/echo", alias="chat-1")
    door = await bob.webhooks.add("door")
    assert (door.name, door.owner) == ("door", "bob")
    assert door.key != (await owned.ada.webhooks.get("door")).key
    received = await bob.events.receive("api", "1", Routing(label=SECRET, model="demo/echo"), text="other words")
    made = await bob.get_session(received.session_id)
    assert (made.owner, made.label) == ("bob", SECRET)
    await bob.add_rule("project", "bash", "ls *", "allow", workspace=owned.root)
    assert [rule.pattern for rule in await owned.ada.rules(workspace=owned.root)] == [f"{SECRET} *"]
    decided = await owned.ada.explain_permission(owned.ids["session_id"], "bash", f"{SECRET} now")
    assert decided.action == "deny"


async def test_a_file_of_another_cannot_be_brought_in_by_its_digest(owned: Owned) -> None:
    """Sent as a kept one; its owner may do that."""
    part = {"type": "file", "mediaType": "text/plain", "url": f"/api/blobs/{owned.ids['sha256']}"}
    session = await owned.bob.create_session(model="demo/echo")
    with pytest.raises(InvalidInput):
        await owned.bob.submit(session.id, [part])
    with pytest.raises(NotFound):
        await owned.bob.blob(owned.ids["sha256"])
    await (await owned.ada.submit("chat-1", [part])).wait()
    assert (await owned.ada.blob(owned.ids["sha256"])).data == SECRET.encode()


@pytest.mark.parametrize("kind", ["memory:", "sqlite:///{}/s.db", "jsonl:{}/s"])
async def test_a_file_of_another_is_not_had_by_an_import_that_names_it(kind: str, tmp_path: Path) -> None:
    """It stays a name: the model is told that there is nothing, and an export brings nothing."""
    model = ScriptedModel([say("ok")] * 3)
    async with clew.open(kind.format(tmp_path), providers={"test": model}) as engine:
        ada, bob = engine.scoped("ada"), engine.scoped("bob")
        hers, session = await ada.create_session(), await bob.create_session()
        for owner, own, held in ((ada, hers, SECRET), (bob, session, "decoy")):
            url = f"data:text/plain;base64,{b64encode(held.encode()).decode()}"
            await (await owner.submit(own.id, [{"type": "file", "mediaType": "text/plain", "url": url}])).wait()
        named = (await bob.export(session.id)).decode()
        his, other = (hashlib.sha256(held.encode()).hexdigest() for held in ("decoy", SECRET))
        named = named.replace(his, other)
        brought = await bob.import_session(json.dumps(json.loads(named) | {"blobs": [], "seals": []}).encode())
        await (await bob.submit(brought.id, "What is in it?")).wait()
        sent = str([message.parts for message in model.requests[-1].messages])
        assert ("is missing or damaged where it is stored" in sent, SECRET in sent) == (True, False)
        assert json.loads(await bob.export(brought.id))["blobs"] == []
        assert [blob["data"] for blob in json.loads(await bob.export(session.id))["blobs"]] == ["ZGVjb3k="]


async def test_what_comes_of_an_owners_session_is_theirs(owned: Owned) -> None:
    """Branches, imports, and what events and schedules begin."""
    ada, ids = owned.ada, owned.ids
    imported = await ada.import_session(ids["exported"])
    ran = await ada.schedules.add("0 9 * * *", "x", routing=Routing(model="demo/echo"))
    fired = await ada.schedules.run(ran.id)
    for session_id in (ids["branch"], imported.id, fired.session_id, ids["event_session"]):
        assert (await owned.engine.get_session(session_id)).owner == "ada"
    taken = await owned.bob.import_session(ids["exported"])
    assert (taken.owner, taken.alias, taken.parent_id) == ("bob", None, None)


async def test_a_subagent_and_what_it_asks_for_is_its_owners(tmp_path: Path) -> None:
    """Two deep: seen and paid for by the owner, and by nobody else; tools are told whom they work for."""
    told: list[tuple[str, str | None]] = []

    @clew.tool
    def look(context: clew.ToolContext) -> str:
        """Look."""
        told.append((context.session_id, context.owner))
        return SECRET

    tasks = [scripted.call("task", {"prompt": words}) for words in ("look", "look closer")]
    said = [scripted.say(words) for words in ("seen", "found", "done")]
    model = scripted.ScriptedModel([*tasks, scripted.call("look", {}), *said])
    rules = [clew.Rule("*", "*", "allow")]
    url = f"sqlite:///{tmp_path}/store.db"
    async with clew.open(url, tools=[look], rules=rules, providers={"test": model}) as engine:
        ada, bob = engine.scoped("ada"), engine.scoped("bob")
        session = await ada.create_session()
        assert (await (await ada.submit(session.id, "go")).wait()).status == "completed"
        children = (await engine.list_sessions(kind="subagent")).sessions
        assert [one.owner for one in children] == ["ada", "ada"]
        assert told == [(next(one.id for one in children if one.parent_id != session.id), "ada")]
        assert (await ada.list_sessions(kind="subagent")).sessions == children
        assert (await bob.list_sessions(kind="any")).sessions == ()
        for child in children:
            with pytest.raises(NotFound):
                await bob.messages(child.id)
        groups = (await engine.usage("owner")).groups
        assert [(group.key, group.calls) for group in groups] == [("ada", 6)]
        await ada.delete_session(session.id)
        assert (await engine.list_sessions(kind="any")).sessions == ()


async def test_what_lies_in_anothers_session_is_not_in_ones_own(owned: Owned) -> None:
    """Messages and turns of a stranger's, named in a session of one's own, end as what nobody has, word for word."""
    bob, ids = owned.bob, owned.ids
    await bob.create_session(model="demo/echo", alias="mine")
    await (await bob.submit("mine", "hello")).wait()
    first = (await bob.messages("mine"))[0].id

    def asked(message: str, turn: str) -> list[Any]:
        return [
            bob.messages("mine", before=message),
            bob.files("mine", cursor=turn),
            bob.rewind("mine", message),
            bob.set_head("mine", turn),
            bob.branch("mine", message),
            bob.branch("mine", first, start_message_id=message),
            bob.accept_message("mine", message),
            bob.compaction("mine", message),
            bob.cancel_queued("mine", message),
            bob.find_prompt_of("mine", message),
            bob.events.list(turn_id=turn),
        ]

    told: list[list[tuple[str, str]]] = []
    for message, turn in (
        (ids["message_id"], ids["turn_id"]),
        (missing("", ids["message_id"]), missing("", ids["turn_id"])),
    ):
        told.append([])
        for one in asked(message, turn):
            with pytest.raises(NotFound) as error:
                await one
            told[-1].append((error.value.code, str(error.value).replace(message, "…").replace(turn, "…")))
    assert told[0] == told[1]
    part = {"type": "file", "mediaType": "text/plain", "url": f"/api/blobs/{ids['sha256']}"}
    with pytest.raises(InvalidInput):
        await bob.rewind("mine", first, mode="edit", parts=[part], run=True)


async def test_an_import_hangs_below_no_session_of_another(owned: Owned) -> None:
    """Not for another owner, nor for whoever sees all: the owner's tree shows what is theirs, and can be deleted."""
    exported = await owned.ada.export(owned.ids["branch"])
    tree = await owned.ada.tree("chat-1")
    for engine, expected in ((owned.bob, None), (owned.engine, None), (owned.ada, owned.ids["session_id"])):
        assert (await engine.import_session(exported)).parent_id == expected
        if expected is None:
            assert await owned.ada.tree("chat-1") == tree


async def test_a_name_of_ones_own_is_no_ear_for_the_session_whose_id_it_is(owned: Owned) -> None:
    """Ids that other programs give may be anything that an alias is, too."""
    mine = await owned.bob.create_session(model="demo/echo", alias="their-id")
    for session_id, expected in ((mine.id, True), ("their-id", False), (owned.ids["session_id"], False)):
        assert await owned.bob._is_own(Event("status", {"session_id": session_id})) is expected


async def test_an_owner_works_in_their_own_folders_alone(owned: Owned, tmp_path: Path) -> None:
    """Another folder, and a link out of one's own, are refused; without any there is no workspace."""
    (owned.root / "way-out").symlink_to(tmp_path)
    (owned.root / "below").mkdir()
    made = await owned.ada.create_session(model="demo/echo", workspace_root=owned.root / "below")
    assert made.workspace_root == str((owned.root / "below").resolve())
    for folder in (tmp_path, owned.root / "way-out", tmp_path / "not-there"):
        for call in (
            owned.ada.create_session(model="demo/echo", workspace_root=folder),
            owned.ada.import_session(owned.ids["exported"], workspace_root=folder),
            owned.ada.add_rule("project", "bash", "*", "deny", workspace=folder),
            owned.ada.agents(folder),
            owned.ada.rules(agent="explore", workspace=folder),
            owned.ada.rules(session_id="chat-1", workspace=folder),
            owned.ada.find_files(workspace=folder),
            owned.ada.schedules.add("0 9 * * *", "x", routing=Routing(workspace_root=str(folder))),
        ):
            with pytest.raises(InvalidInput, match="none of the folders"):
                await call
    with pytest.raises(InvalidInput, match="none of the folders"):
        await owned.engine.scoped("eve").create_session(model="demo/echo", workspace_root=owned.root)


async def test_a_folder_of_an_owners_that_leads_elsewhere_by_now_is_theirs_no_more(
    owned: Owned, tmp_path: Path
) -> None:
    """Neither for a session in it, nor for what a schedule begins, whoever has it fired."""
    away, below = tmp_path / "away", owned.root / "below"
    for folder in (away, below):
        folder.mkdir()
    (away / "note.txt").write_text(SECRET)
    session = await owned.ada.create_session(model="demo/echo", workspace_root=below)
    kept = await owned.ada.schedules.add("0 9 * * *", "x", routing=Routing(workspace_root=str(below)))
    below.rmdir()
    below.symlink_to(away)
    part = {"type": "file", "mediaType": "text/plain", "url": "workspace:note.txt"}
    for call in (
        owned.ada.submit(session.id, [part]),
        owned.engine.submit(session.id, "look"),
        owned.ada.find_files(session_id=session.id),
        owned.ada.schedules.run(kept.id),
        owned.engine.schedules.run(kept.id),
    ):
        with pytest.raises(InvalidInput, match=r"is now a link to another folder|none of the folders"):
            await call


async def test_a_stranger_hears_nothing_and_the_owner_all(owned: Owned) -> None:
    """Of a session that is made, runs and goes."""
    told: dict[str, list[str]] = {"ada": [], "bob": [], "all": []}
    streams = {"ada": owned.ada.subscribe(), "bob": owned.bob.subscribe(), "all": owned.engine.subscribe()}

    heard: defaultdict[tuple[str, str], asyncio.Event] = defaultdict(asyncio.Event)

    async def hear(who: str) -> None:
        async for event in streams[who]:
            told[who].append(event.type)
            heard[who, event.data["session_id"]].set()
            if event.type == "session_deleted":
                return

    hearing = [asyncio.get_running_loop().create_task(hear(who)) for who in told]
    await asyncio.sleep(0)
    session = await owned.ada.create_session(model="demo/echo", title=SECRET)
    await (await owned.ada.submit(session.id, "hello")).wait()
    # Whose an event is can be asked while its session is there: whoever hears of the next one has heard all before it.
    marks = {"ada": await owned.ada.create_session(model="demo/echo")}
    marks["bob"] = await owned.bob.create_session(model="demo/echo")
    async with asyncio.timeout(60):
        for who, mark in marks.items():
            await heard[who, mark.id].wait()
        await owned.ada.delete_session(session.id)
        await owned.bob.delete_session(marks["bob"].id)
        await asyncio.gather(*hearing)
    assert told["bob"] == ["session_created", "session_deleted"]
    assert [*told["ada"][:-1], "session_created", "session_deleted"] == told["all"]
    assert {"session_created", "turn_started", "turn_finished", "session_deleted"} <= set(told["ada"])


@pytest.mark.rule("EM-4")
async def test_an_alias_that_could_be_an_id_or_cannot_be_written_is_refused(owned: Owned) -> None:
    """1 to 128 printable ASCII characters, and nothing that begins like an id."""
    for alias in ("", "ses_x", owned.ids["session_id"], "a" * 129, "tab\there", "naïve"):
        with pytest.raises(clew.ClewError) as error:
            await owned.ada.create_session(model="demo/echo", alias=alias)
        assert error.value.code == "invalid_id"


@pytest.mark.rule("EM-4")
async def test_an_alias_is_good_wherever_an_id_is_also_without_an_owner(owned: Owned) -> None:
    """The chat of a caller's own, by the name it has there."""
    made = await owned.engine.create_session(model="demo/echo", alias="my chat/7")
    await (await owned.engine.submit("my chat/7", "hello")).wait()
    assert len(await owned.engine.messages("my chat/7")) == 2
    assert (await owned.engine.get_status("my chat/7")).state == "idle"
    await owned.engine.delete_session("my chat/7")
    with pytest.raises(NotFound):
        await owned.engine.get_session(made.id)


async def test_schedules_of_one_owner_leave_room_for_those_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent adds its own through the whole store, where those of all owners were counted together."""
    monkeypatch.setattr("clew.triggers.schedules.MAX_SCHEDULES", 2)
    async with clew.open("memory:") as engine:
        for name in ("ada", "bob"):
            session = await engine.scoped(name).create_session(model="demo/echo")
            for _ in range(2):
                kept = await engine.schedules.add("0 9 * * *", "look", routing=Routing(session_id=session.id))
                assert kept.owner == name
            with pytest.raises(InvalidInput, match="the limit of 2 schedules is reached"):
                await engine.schedules.add("0 9 * * *", "look", routing=Routing(session_id=session.id))
