"""Converting a store with everything in it, in every direction: equal, but for what this says by name."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import sqlite3
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

import clew
from clew.config import CompactionConfig
from clew.errors import StoreUnavailable
from clew.fronts.cli.app import run_command
from clew.session.history.check import check
from clew.session.history.convert import ORIGIN_KEY, Conversion, Skipped, convert
from clew.store.sql.sqlite.store import SqliteStore
from clew.store.unit import STORE_WIDE, PutProjectRules, Unit
from clew.testing.clock import FakeClock
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, call, fail, say, wait
from clew.transcript.metadata import local_place
from clew.triggers.values.ledger import PERSON
from clew.triggers.values.routing import Routing
from tests.acceptance.test_convert import KINDS, _no_sync, url
from tests.acceptance.test_own_schedules import DAILY
from tests.acceptance.test_schedules import NOON
from tests.acceptance.triggered import ended
from tests.rig.history_child import SUMMARY

__all__ = ["_no_sync"]

FILE = {"type": "file", "mediaType": "text/plain", "url": "data:text/plain;base64,aGVsbG8="}
RULES = [{"permission": "bash", "pattern": "ls *", "action": "allow"}]
ALLOWED = [{"permission": name, "pattern": "*", "action": "allow"} for name in ("schedule", "task")]
ONCE = call("schedule", {"prompt": "once", "at": "2028-01-01T00:00"})
LATER = 1_900_000_000_000


def opened(kind: str, path: Path, *script: Any, **options: Any) -> Any:
    given = {"config": clew.Config(), "clock": FakeClock(NOON), "triggers": False, **options}
    return clew.open(url(kind, path), providers=FakeProviders(ScriptedModel(script)), **given)


async def fill(kind: str, path: Path) -> dict[str, str]:
    """A store in which there is one of everything; the sessions by what they are."""
    workspace = path.parent / "workspace"
    workspace.mkdir(exist_ok=True)
    gate = Gate()
    script = (
        *[say(f"answer {n} " + "and more of it " * 60) for n in range(6)],
        say(SUMMARY),
        say("after the summary"),
        *([call("task", {"prompt": "look"}), DAILY, ONCE], say("the subagent has looked"), say("done")),
        [call("write", {"path": "a.txt", "content": "x"})],
        *(say("to an event"), [fail(400, "no")], say("to a person"), say("of a session that will be gone")),
        [say("busy"), wait(gate)],
    )
    room = CompactionConfig(preset="guide", tail_turns=1, keep_recent_tokens=50, tail_budget_pct=0.001)
    config = clew.Config(ledger_prompts=True, event_log=kind == "sqlite", compaction=room)
    clock = FakeClock(NOON)
    async with opened(kind, path, *script, config=config, clock=clock) as e:

        async def session(title: str) -> str:
            clock.advance(1)
            return str((await e.create_session(title=title, workspace_root=workspace, metadata=local_place(None))).id)

        async def ask(session_id: str, prompt: Any) -> None:
            async for _ in e.run(session_id, prompt):
                pass
            await ended(e)

        talk = await session("talk")
        for n in range(5):
            await ask(talk, [{"type": "text", "text": f"ask {n}"}, *([FILE] if n == 0 else [])])
        users = [message for message in await e.messages(talk) if message.role == "user"]
        branch = await e.branch(talk, users[3].id)
        clock.advance(1)
        fork = await e.fork((await e.tree(talk)).turns[1].id, label="another way")
        await e.rewind(talk, users[4].id, mode="edit")
        await ask(talk, "instead")
        assert (await e.compact(talk)).compacted
        await ask(talk, "and then?")
        works = await session("works")
        await e.set_permissions(works, ALLOWED)
        await ask(works, "have it looked at, every day")
        waits = await session("waits")
        await ask(waits, "write it")
        inbox = await e.events.receive(
            "mail", "1", Routing(label="inbox", title="i"), payload={"from": talk}, type="letter"
        )
        await ended(e)
        await e.schedules.add("0 9 * * *", "in talk", routing=Routing(session_id=talk), missed="once", name="daily")
        broken = await e.schedules.add(
            "0 * * * *", "by key", timezone="Europe/Vienna", routing=Routing(key="k", title="k")
        )
        await e.schedules.run(broken.id)
        await ended(e)
        await e.webhooks.add("door", prompt="look", routing=Routing(session_id=talk))
        await e.webhooks.add("pay", scheme="stripe", secret="whsec_0123456789abcdef", paused=True)
        await ask(inbox.session_id, "a person's word")
        gone = await e.events.receive("mail", "2", Routing(key="gone", title="g"), text="this goes")
        await ended(e)
        await e.delete_session(gone.session_id)
        await e.store.commit(Unit(STORE_WIDE, (PutProjectRules("/nobody/works/here", tuple(RULES), 1),)))
        await e.store.commit(Unit(STORE_WIDE, (PutProjectRules(str(workspace), tuple(RULES), 1),)))
        await e.archive_session(await session("put away"))
        queue = await session("queue")
        await e.submit(queue, "long")
        await gate.reached.wait()
        await e.submit(queue, "later")
        await e.events.receive("mail", "3", Routing(session_id=queue), text="after that")
    # What a restart does to what was left open, the copy has been through, too.
    async with opened(kind, path):
        pass
    [child] = [one.id for one in await _sessions(kind, path) if one.kind == "subagent"]
    named = {"branch": branch.id, "fork": fork.id, "inbox": inbox.session_id, "gone": gone.session_id, "child": child}
    return {"talk": talk, "works": works, "waits": waits, "queue": queue, **named}


_filled: dict[str, tuple[Path, dict[str, str]]] = {}


async def filled(kind: str, factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Such a store, made once: converting only reads it."""
    if kind not in _filled:
        path = factory.mktemp(kind) / "old"
        _filled[kind] = path, await fill(kind, path)
    return _filled[kind]


async def _sessions(kind: str, path: Path) -> list[Any]:
    async with opened(kind, path, read_only=True) as e:
        return [await e.store.find_session(id_) for id_ in await e.store.session_ids()]


async def everything(e: clew.Engine) -> dict[str, Any]:
    """All that a store shows, as one JSON value; lists in an order that ids have no part in."""
    store = e.store
    sessions = {}
    for id_ in await store.session_ids():
        found = await store.find_session(id_)
        assert found is not None
        sessions[id_] = {
            "session": found,
            "status": await e.get_status(id_),
            "views": {view: await e.messages(id_, view=view) for view in ("visible", "model", "all")},
            "tree": await e.tree(id_),
            "reflog": await e.reflog(id_),
            "queue": await e.queue(id_),
            "rules": await e.permissions(id_),
            "calls": await store.load_calls(id_),
            "children": [child.id for child in await store.list_children(id_)],
            "usage": (await store.load_spend([id_]))[id_],
        }
    shared = {
        "events": (await e.events.list(limit=200)).events,
        "open": [(event.source, event.source_id) for event in await store.open_events()],
        "schedules": await e.schedules.list(),
        "webhooks": await e.webhooks.list(),
        "secrets": [one.secret for one in await e.webhooks.list()],
        "rules": {project: await store.load_project_rules(project) for project in await store.list_projects()},
        "gone": await store.load_calls(None),
        "usage": [await e.usage(by) for by in ("day", "model", "workspace")],
        "file": await store.find_blob(hashlib.sha256(b"hello").hexdigest()),
    }
    value: dict[str, Any] = json.loads(msgspec.json.encode({"sessions": sessions, **shared}))
    return value


NAMED = {
    "session.metadata.converted_from": "where a session came from is noted on it",
    "approval.signature": "an answer is bound to the name of its session, which is another in a store of another kind",
}
"""Every difference between a store and its copy, and why it is there, beside the names of sessions themselves."""


def renamed(value: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """The same with every name of a session replaced, but for what came in from outside, which nobody changes."""
    payloads = [event.pop("data") for event in value["events"]]
    text = json.dumps(value)
    for old, new in names.items():
        text = text.replace(json.dumps(old), json.dumps(new))
    told: dict[str, Any] = json.loads(text)
    for schedule in told["schedules"]:
        for old, new in names.items():
            schedule["last_error"] = schedule["last_error"] and schedule["last_error"].replace(old, new)
    for event, payload in zip(told["events"], payloads, strict=True):
        event["data"] = payload
    return told


def differences(there: Any, here: Any, path: str = "") -> list[str]:
    """Where two JSON values differ, place by place."""
    if isinstance(there, dict) and isinstance(here, dict):
        keys = sorted(there.keys() | here.keys())
        return [line for key in keys for line in differences(there.get(key), here.get(key), f"{path}.{key}")]
    if isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        pairs = enumerate(zip(there, here, strict=True))
        return [line for n, (one, other) in pairs for line in differences(one, other, f"{path}[{n}]")]
    return [] if there == here else [f"{path}: {here!r} became {there!r}"]


async def converted(kind: str, source: Path, to: str, target: Path) -> Conversion:
    async with opened(kind, source, read_only=True) as old, opened(to, target) as new:
        return await convert(old.store, new.store, new.mint, LATER)


@pytest.mark.slow
@pytest.mark.rule("EV-4", "FS-4")
@pytest.mark.parametrize(("kind", "to"), list(product(KINDS, KINDS)))
async def test_a_store_with_everything_in_it_arrives_equal_or_each_difference_is_named(
    kind: str, to: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Rewound, compacted, branched, forked, subagents, files, waiting, queued, schedules, webhooks, ledger, spend."""
    source, _ = await filled(kind, tmp_path_factory)
    async with opened(kind, source, read_only=True) as e:
        before = await everything(e)
        facts = sum([len(await e.store.load_facts(id_)) for id_ in await e.store.session_ids()])
    done = await converted(kind, source, to, tmp_path / "new")
    names = {one.session_id: one.as_id for one in done.moved}
    async with opened(to, tmp_path / "new", read_only=True) as e:
        after = await everything(e)
        assert await check(e.store) == []
    found = differences(after, renamed(before, names))
    assert [line for line in found if not line.partition(": ")[0].endswith(tuple(NAMED))] == []
    came = {id_: one["session"]["metadata"][ORIGIN_KEY] for id_, one in after["sessions"].items()}
    assert came == {new: {"store": kind, "session_id": old, "at": LATER} for old, new in names.items()}
    assert (done.carried, done.there) == (
        {
            "events": len(before["events"]),
            "schedules": 4,
            "webhooks": 2,
            "rules of projects": 1,
            "model calls of deleted sessions": 1,
        },
        {"rules of projects": 1},
    )
    log = Skipped("facts of the event log", facts, "the target starts its own log", ())
    assert done.left == ((log,) if kind == "sqlite" else ())


@pytest.mark.slow
@pytest.mark.rule("EV-4")
async def test_a_replayed_delivery_is_known_in_the_copy_and_schedules_go_on_there(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Also one whose session was deleted before; what was open is answered there, and a second time changes nothing."""
    source, known = await filled("sqlite", tmp_path_factory)
    done = await converted("sqlite", source, "jsonl", tmp_path / "new")
    again = await converted("sqlite", source, "jsonl", tmp_path / "new")
    assert (again.moved, again.carried) == ((), {})
    assert again.there == {**done.carried, "rules of projects": 2}
    names = {one.session_id: one.as_id for one in done.moved}
    async with opened("jsonl", tmp_path / "new", *[say("there")] * 4) as e:
        count = len(await e.store.session_ids())
        first = await e.events.receive(
            "mail", "1", Routing(label="inbox"), payload={"from": known["talk"]}, type="letter"
        )
        assert first.session_id == names[known["inbox"]]
        deleted = await e.events.receive("mail", "2", Routing(key="gone"), text="this goes")
        assert deleted.session_id == known["gone"]
        assert len(await e.store.session_ids()) == count
        daily = next(one for one in await e.schedules.list() if one.name == "daily")
        assert daily.routing.session_id == names[known["talk"]]
        assert (await e.schedules.run(daily.id)).session_id == names[known["talk"]]
        await ended(e)


@pytest.mark.slow
@pytest.mark.rule("EV-4")
async def test_a_conversion_that_is_cut_off_is_made_whole_by_another(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At moments all over it: the same sessions, and each row of the ledger once."""
    source, _ = await filled("sqlite", tmp_path_factory)
    commits, last, commit = 0, 10**9, SqliteStore.commit

    async def counted(self: SqliteStore, unit: Unit) -> Any:
        nonlocal commits
        commits += 1
        if commits > last:
            raise StoreUnavailable("cut off")
        return await commit(self, unit)

    async def held(name: str) -> Any:
        async with opened("sqlite", tmp_path / name, read_only=True) as new:
            events = (await new.events.list(limit=200)).events
            keys = sorted((one.direction, one.source, one.source_id, one.attempt, one.status or "") for one in events)
            return sorted(await new.store.session_ids()), keys, await check(new.store)

    monkeypatch.setattr(SqliteStore, "commit", counted)
    whole = await converted("sqlite", source, "sqlite", tmp_path / "whole")
    total, expected = commits, await held("whole")
    for cut in range(1, total, total // 6):
        commits, last = 0, cut
        with pytest.raises(StoreUnavailable, match="cut off"):
            await converted("sqlite", source, "sqlite", tmp_path / f"cut-{cut}")
        last = 10**9
        again = await converted("sqlite", source, "sqlite", tmp_path / f"cut-{cut}")
        assert (await held(f"cut-{cut}"), again.left) == (expected, whole.left)


@pytest.mark.slow
@pytest.mark.rule("EV-4")
async def test_into_a_copy_of_itself_every_name_is_a_new_one_and_the_ledger_says_which_events_are_there(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What a person typed is known by its message, which has another name there; what came from outside came once."""
    source, _ = await filled("jsonl", tmp_path_factory)
    shutil.copytree(source, tmp_path / "new")
    done = await converted("jsonl", source, "jsonl", tmp_path / "new")
    async with opened("jsonl", source, read_only=True) as old, opened("jsonl", tmp_path / "new", read_only=True) as new:
        rows = (await old.events.list(limit=200)).events
        typed = [event for event in rows if event.source == PERSON]
        outside = [
            event for event in rows if event.source != PERSON and event.session_id in await old.store.session_ids()
        ]
        there = (await new.events.list(limit=200)).events
        assert await check(new.store) == []
    assert (done.carried, done.there["schedules"], done.there["webhooks"]) == ({"events": len(typed)}, 4, 2)
    [left] = done.left
    assert (left.kind, left.count) == ("events", len(outside))
    assert len({(event.direction, event.source, event.source_id, event.attempt) for event in there}) == len(there)
    assert len(there) == len(rows) + len(typed)


@pytest.mark.rule("EV-4")
async def test_what_cannot_come_along_is_named_and_what_is_there_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A webhook of the same name with another secret, rules of the same project, an event of another session, a row
    that does not read, an output that was put aside: each by kind, count and reason, in words and in JSON. It ends with
    1."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    spilled, ids = tmp_path / "clew" / "spill", []
    for name, kind in (("new", "jsonl"), ("old", "sqlite")):
        async with opened(kind, tmp_path / name, say("x")) as e:
            await e.webhooks.add("door")
            received = await e.events.receive("mail", "1", Routing(key="k", title="t"), text=name)
            await ended(e)
            (spilled / received.session_id).mkdir(parents=True)
            ids.append(received.session_id)
            rules = ({**RULES[0], "pattern": f"{name} *"},)
            await e.store.commit(Unit(STORE_WIDE, (PutProjectRules("/project", rules, 1),)))
            await e.schedules.add("0 9 * * *", "x")
    with closing(sqlite3.connect(tmp_path / "old", isolation_level=None)) as raw:
        raw.execute("UPDATE schedules SET data_json = '{'")
    words = ["convert", url("sqlite", tmp_path / "old"), url("jsonl", tmp_path / "new")]
    async with opened("jsonl", tmp_path / "new", read_only=True) as e:
        before = await everything(e)
    assert await asyncio.to_thread(run_command, [*words, "--json"]) == 1
    told = capsys.readouterr()
    answer = json.loads(told.out)
    left = {(one["kind"], one["count"], one["why"]) for one in answer["left"]}
    assert [one["ids"] for one in answer["left"] if one["kind"].startswith("folders")] == [ids[1:]]
    assert left == {
        ("folders of outputs put aside", 1, "they stay under the old id of their session"),
        ("webhooks", 1, "another one with this name exists, with its own secret"),
        ("rules of projects", 1, "the project has its own rules there, which stay"),
        ("events", 2, "the target has an event with this source and id, with another result"),
        ("damage", 1, next(why for kind, _, why in left if kind == "damage")),
    }
    assert "clew: not copied: 2 events: the target has an event with this source and id" in told.err
    assert any("schedule" in why for kind, _, why in left if kind == "damage")
    async with opened("jsonl", tmp_path / "new", read_only=True) as e:
        after = await everything(e)
    for kind in ("events", "webhooks", "secrets", "rules", "schedules"):
        assert after[kind] == before[kind]
