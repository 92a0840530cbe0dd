"""The facade: what a program sees of clew."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import pytest

import clew
from clew.config import CompactionConfig
from clew.session.history.check import check
from clew.store.unit import LinkMessage, MoveHead, OpenTurn, SetHidden
from clew.testing.chunks import text
from clew.testing.scribe import Scribe, settled
from clew.testing.scripted import ScriptedModel, cut_after, fail, say, then
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.projection import compaction_tails, hidden_messages
from clew.transcript.turn import Turn


@pytest.fixture(params=["memory", "sqlite"])
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[clew.Engine]:
    url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/store.db"
    async with clew.open(url, config=clew.Config()) as engine:
        yield engine


def scribe_of(engine: clew.Engine, session_id: str) -> Scribe:
    return Scribe(engine.store, session_id, engine.mint, engine.clock)


async def compact(scribe: Scribe, tail_start_id: str, summary: str) -> str:
    """A compaction as the engine will write it: a turn on the line, its marker, and the projections."""
    state = await scribe.store.load_state(scribe.session_id)
    now = scribe.clock.now_ms()
    turn = Turn(
        id=scribe.mint.turn(),
        session_id=scribe.session_id,
        parent_turn_id=state.head_turn_id,
        created_at=now,
        kind="compaction",
        status="completed",
        settled_at=now,
    )
    body = {"summary": summary, "tail_start_id": tail_start_id, "auto": True, "summary_tokens": 1}
    part = PartRow(scribe.mint.part(), 0, {"type": "data-compaction", "data": body}, now, now)
    row = MessageRow(scribe.mint.message(), scribe.session_id, "assistant", now, now, {"synthetic": True}, (part,))
    await scribe.commit(
        OpenTurn(turn), *settled(row), LinkMessage(turn.id, row.id), MoveHead(turn.id, now, "compaction")
    )
    tree = await scribe.store.load_tree(scribe.session_id)
    rows = {message.id: message for message in await scribe.store.load_messages(scribe.session_id)}
    await scribe.commit(SetHidden(dict(hidden_messages(tree, compaction_tails(tree, rows)))))
    return row.id


async def test_a_session_can_be_made_found_renamed_archived_and_deleted(engine: clew.Engine, tmp_path: Path) -> None:
    """The life of a session through the front door."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    made = await engine.create_session(
        model="demo/echo", title="Ariadne", metadata={"a": 1}, workspace_root=tmp_path / "link"
    )
    assert made.workspace_root == str(tmp_path / "real")
    assert (made.agent, made.model, made.title) == ("assistant", clew.Model("demo", "echo"), "Ariadne")
    assert made.metadata == {"a": 1, "title": "Ariadne"}
    assert await engine.get_session(made.id) == made
    renamed = await engine.rename_session(made.id, "Theseus")
    assert (renamed.title, renamed.updated_at) == ("Theseus", made.updated_at)
    assert (await engine.rename_session(made.id, "")).title is None
    archived = await engine.archive_session(made.id)
    assert archived.archived_at is not None
    assert (await engine.list_sessions()).sessions == ()
    assert [s.id for s in (await engine.list_sessions(archived=True)).sessions] == [made.id]
    assert (await engine.archive_session(made.id, archived=False)).archived_at is None
    await engine.delete_session(made.id)
    with pytest.raises(clew.SessionNotFound):
        await engine.get_session(made.id)


async def test_a_session_that_could_never_run_is_not_made(engine: clew.Engine, tmp_path: Path) -> None:
    """A workspace that is no folder, an agent nobody knows."""
    for fields in ({"workspace_root": tmp_path / "missing"}, {"workspace_root": "\x00"}, {"agent": "nobody"}):
        with pytest.raises(clew.Invalid):
            await engine.create_session(**fields)
    assert (await engine.list_sessions()).sessions == ()


async def test_the_default_model_is_the_one_that_needs_no_key(engine: clew.Engine) -> None:
    """Without being told, a session talks to the demo provider."""
    assert (await engine.create_session()).model == clew.Model("demo", "tour")


@pytest.mark.rule("ST-11")
async def test_deleting_a_session_takes_its_subagents_and_leaves_its_branches(engine: clew.Engine) -> None:
    """However deep the subagents are; the branch's parent then resolves to nothing."""
    parent = await engine.create_session()
    store, mint, clock = engine.store, engine.mint, engine.clock
    child = await Scribe.create(store, mint=mint, clock=clock, parent_id=parent.id, metadata={"kind": "subagent"})
    await Scribe.create(store, mint=mint, clock=clock, parent_id=child.session_id, metadata={"kind": "subagent"})
    branch = await Scribe.create(store, mint=mint, clock=clock, parent_id=parent.id)
    await engine.delete_session(parent.id)
    assert await store.session_ids() == (branch.session_id,)
    assert (await engine.get_session(branch.session_id)).parent_id == parent.id


@pytest.mark.rule("ID-3")
@pytest.mark.parametrize("bad", ["", "ses.", "../../etc/passwd", "ses_" + "0" * 26 + "\n", "ses_" + "é" * 26, 7, None])
async def test_a_malformed_id_is_refused_before_anything_else_looks_at_it(engine: clew.Engine, bad: Any) -> None:
    """By every call that takes one."""
    calls = [
        engine.get_session(bad),
        engine.rename_session(bad, "x"),
        engine.archive_session(bad),
        engine.delete_session(bad),
        engine.messages(bad),
    ]
    for call in calls:
        with pytest.raises(clew.InvalidId):
            await call


@pytest.mark.rule("ST-4")
@pytest.mark.parametrize(
    "value", ["\x00", "\ud800", float("nan"), float("inf"), 2**63, -(2**63) - 1, {"k\x00": 1}, {1: 2}, b"x", {"x"}]
)
async def test_a_value_no_store_could_keep_is_refused_and_nothing_is_written(engine: clew.Engine, value: Any) -> None:
    """From a program, in metadata at any depth, as on every other door."""
    session = await engine.create_session(title="before")
    with pytest.raises(clew.UnsupportedValue):
        await engine.create_session(metadata={"deep": [{"x": value}]})
    if isinstance(value, str):
        with pytest.raises(clew.UnsupportedValue):
            await engine.rename_session(session.id, value)
        with pytest.raises(clew.UnsupportedValue):
            await engine.create_session(agent=value)
        with pytest.raises(clew.UnsupportedValue):
            await engine.list_sessions(q=value)
    assert (await engine.list_sessions()).sessions == (session,)


@pytest.mark.rule("ST-6")
async def test_listing_checks_what_it_is_asked(engine: clew.Engine) -> None:
    """Page sizes from 1 to 200, cursors that clew made, known kinds."""
    for _ in range(3):
        await engine.create_session()
    page = await engine.list_sessions(limit=2)
    rest = await engine.list_sessions(limit=2, cursor=page.next_cursor)
    assert (len(page.sessions), len(rest.sessions), rest.next_cursor) == (2, 1, None)
    for limit in (0, 201, -1):
        with pytest.raises(clew.InvalidInput):
            await engine.list_sessions(limit=limit)
    for cursor in ("", "nonsense", "é", "W10", "WzEsMl0", "eyJhIjoxfQ", "AAAA" * 1000):
        with pytest.raises(clew.InvalidInput):
            await engine.list_sessions(cursor=cursor)
    with pytest.raises(clew.InvalidInput):
        await engine.list_sessions(kind="robot")  # type: ignore[arg-type]
    with pytest.raises(clew.InvalidId):
        await engine.list_sessions(parent="x y")


async def test_messages_page_back_from_the_end(engine: clew.Engine) -> None:
    """``limit`` takes the newest, ``before`` goes back from clew's id or the client's own."""
    session = await engine.create_session()
    scribe = scribe_of(engine, session.id)
    turns = [await scribe.turn(f"prompt {n}", text(f"answer {n}")) for n in range(9)]
    ids = [id_ for turn in turns for id_ in turn[1:]]
    every = await engine.messages(session.id)
    assert [message.id for message in every] == ids
    assert every[3].metadata["turn_id"] == turns[1][0]
    seen: list[str] = []
    before = None
    while True:
        page = await engine.messages(session.id, limit=4, before=before)
        if not page:
            break
        seen = [message.id for message in page] + seen
        before = page[0].id
    assert seen == ids
    for limit in (0, 501):
        with pytest.raises(clew.InvalidInput):
            await engine.messages(session.id, limit=limit)
    with pytest.raises(clew.MessageNotFound):
        await engine.messages(session.id, limit=2, before="msg_nobody")
    with pytest.raises(clew.InvalidInput):
        await engine.messages(session.id, view="secret")  # type: ignore[arg-type]


async def test_the_three_views_of_a_compacted_session(engine: clew.Engine) -> None:
    """Visible: the marker, then the tail. Model: the summary, then the tail. All: every row."""
    session = await engine.create_session()
    scribe = scribe_of(engine, session.id)
    turns = [await scribe.turn(f"prompt {n}", text(f"answer {n}")) for n in range(4)]
    marker = await compact(scribe, turns[2][1], "the first two turns")
    last = await scribe.turn("and then", text("this"))
    tail = [*turns[2][1:], *turns[3][1:], *last[1:]]
    visible = await engine.messages(session.id)
    assert [message.id for message in visible] == [marker, *tail]
    model = await engine.messages(session.id, view="model")
    assert next((message.id, message.role) for message in model) == (marker, "user")
    assert "<summary>\nthe first two turns\n</summary>" in model[0].parts[0]["text"]
    assert [message.id for message in model[1:]] == tail
    rows = await engine.messages(session.id, view="all")
    assert len(rows) == 11
    hidden = [message.id for message in rows if "hidden_at" in message.metadata]
    assert hidden == [id_ for turn in turns[:2] for id_ in turn[1:]]
    assert [message.id for message in await engine.messages(session.id, limit=2)] == tail[-2:]
    assert await check(engine.store) == []


@pytest.mark.rule("ST-8")
async def test_a_backup_is_a_store_of_its_own(tmp_path: Path) -> None:
    """It opens, reads the same, and passes the judge."""
    async with clew.open(f"sqlite:///{tmp_path}/a.db") as engine:
        session = await engine.create_session(title="kept")
        await scribe_of(engine, session.id).turn("hello", text("hi"))
        await engine.backup(tmp_path / "b.db")
        messages = await engine.messages(session.id)
    async with clew.open(f"sqlite:///{tmp_path}/b.db") as copy:
        assert await copy.messages(session.id) == messages
        assert await check(copy.store) == []


async def test_a_closed_engine_says_so(tmp_path: Path) -> None:
    """Reading and writing alike."""
    async with clew.open(f"sqlite:///{tmp_path}/a.db") as engine:
        session = await engine.create_session()
    with pytest.raises(clew.ClewError):
        await engine.create_session()
    with pytest.raises(clew.StoreClosed):
        await engine.get_session(session.id)


@pytest.mark.parametrize("url", ["", "sqlite:", "sqlite://", "sqlite:///", "mysql://x", "/tmp/x.db", "memory:x"])
async def test_a_url_that_names_no_store_is_refused(url: str) -> None:
    """With the forms that work."""
    with pytest.raises(clew.InvalidInput, match="sqlite:///"):
        async with clew.open(url or "x"):
            pass
    with pytest.raises(clew.InvalidInput, match=r"^'postgress://…@db/x' is not a store") as told:
        async with clew.open("postgress://me:secret@db/x"):
            pass
    assert "secret" not in str(told.value)


@pytest.mark.rule("ST-12")
@pytest.mark.parametrize("url", ["postgres://127.0.0.1:1/x", "postgresql://me:secret@127.0.0.1:1/x"])
async def test_a_server_that_is_not_there_is_said_so_without_the_password(url: str) -> None:
    """And what to do."""
    with pytest.raises(clew.StoreUnavailable, match=r"//127.0.0.1:1/x cannot be reached .* try again") as told:
        async with clew.open(url):
            pass
    assert "secret" not in str(told.value)


@pytest.mark.rule("ST-12")
@pytest.mark.parametrize(
    "url", ["postgresql://me:secret@[::1/x", "postgresql://me:secret%zz@h/x", "postgresql://h/x?secret=1"]
)
async def test_an_address_that_postgresql_cannot_read_is_refused_without_the_password(url: str) -> None:
    """And how one is written, with what is special in a password."""
    with pytest.raises(
        clew.InvalidInput, match=r"use postgresql://user:password@host:5432/database, .* %40 for @"
    ) as told:
        async with clew.open(url):
            pass
    assert "secret" not in str(told.value)
    assert told.value.__suppress_context__


@pytest.mark.rule("ST-12")
async def test_without_its_extra_postgresql_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver is imported by whoever opens such a store, and by nobody else."""
    for name in [name for name in sys.modules if name.startswith(("psycopg", "clew.store.sql.postgres"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(clew.NotSupported, match=r"pip install 'clew-sessions\[postgres\]'"):
        async with clew.open("postgresql://127.0.0.1:1/x"):
            pass


async def test_reading_beside_the_owner(tmp_path: Path) -> None:
    """A second engine may look, and only look."""
    async with clew.open(f"sqlite:///{tmp_path}/a.db") as owner:
        session = await owner.create_session(title="seen")
        async with clew.open(f"sqlite:///{tmp_path}/a.db", read_only=True) as reader:
            assert (await reader.get_session(session.id)).title == "seen"
            with pytest.raises(clew.StoreReadOnly):
                await reader.create_session()
    with pytest.raises(clew.StoreUnavailable):
        async with clew.open(f"sqlite:///{tmp_path}/missing.db", read_only=True):
            pass
    assert not (tmp_path / "missing.db").exists()


@pytest.mark.parametrize(
    ("kind", "preset", "limit"), [("json", None, 10), ("json", "guide", 100), ("jsonl", None, 100)]
)
async def test_agents_are_told_with_the_step_limit_in_force(
    kind: str, preset: Literal["guide"] | None, limit: int, tmp_path: Path
) -> None:
    """That of the preset which the store brings, unless the user chose one; an agent's own limit stays."""
    config = clew.Config(compaction=CompactionConfig(preset=preset))
    async with clew.open(f"{kind}:{tmp_path}/store", config=config) as engine:
        limits = {agent.name: agent.max_steps for agent in (await engine.agents()).agents}
    assert (limits["assistant"], limits["explore"]) == (limit, 20)


@pytest.mark.rule("RN-8")
@pytest.mark.parametrize("store", ["sqlite:///{}/s.db", "jsonl:{}/s", "json:{}/s"])
async def test_a_turn_that_is_asked_for_again_has_the_outcome_it_had(tmp_path: Path, store: str) -> None:
    """A failed one has its error, also after a restart; so has any other end what was said of it."""
    ends: dict[str, list[Any]] = {
        "failed": [fail(400, "no such thing")],
        "cut": [cut_after(2, say("one two three"), by=fail(kind="unknown"))],
        "completed": [say("done")],
        "short": [then(say("so far"), finish="length")],
    }
    metadata = {"workerId": "local", "workspaceId": "test"}
    url = store.format(tmp_path)
    told: dict[str, tuple[str, clew.TurnOutcome]] = {}
    for restarted in (False, True):
        model = ScriptedModel([] if restarted else [entry for script in ends.values() for entry in script])
        async with clew.open(url, providers={"test": model}) as engine:
            for name in ends:
                if not restarted:
                    session = await engine.create_session(metadata=metadata)
                    first = await (await engine.submit(session.id, "go", message_id=name)).wait()
                    told[name] = (session.id, first)
                session_id, outcome = told[name]
                assert await (await engine.submit(session_id, "go", message_id=name)).wait() == outcome
    assert [told[name][1].status for name in ends] == ["failed", "failed", "completed", "completed"]
    assert [told[name][1].error is None for name in ends] == [False, False, True, True]
