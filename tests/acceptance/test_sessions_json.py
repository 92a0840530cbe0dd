"""Sessions as JSON files: when they are written, what others read in them, and what stays in memory."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.config import SavePolicy
from clew.errors import InvalidInput, NotSupported, RowUndecodable
from clew.ids import Mint, SessionIdForm
from clew.session.history.check import check
from clew.session.history.convert import convert
from clew.store.files import folder
from clew.store.sql.sqlite.opening import open_sqlite
from clew.testing.clock import FakeClock
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, call, say, wait
from clew.transcript.metadata import local_place
from tests.readers import reader_001

from .compacting import bulk, opened, settings

UUID = "2f1c3b6e-8a4d-4c57-9b1e-0d6a7f3e5c21"
HAND = {
    "id": UUID,
    "workerId": "worker-1",
    "workspaceId": "harbour",
    "title": "Boats",
    "createdAt": "2025-02-11T10:00:00Z",
    "updatedAt": "2025-02-11T10:00:03Z",
    "tags": ["kept"],
    "messages": [
        {
            "role": "user",
            "text": "Which boats are in?",
            "files": [{"name": "list.txt", "mediaType": "text/plain", "url": "https://example.invalid/list.txt"}],
            "createdAt": "2025-02-11T10:00:00Z",
        },
        {
            "role": "assistant",
            "text": "I will look.",
            "toolCalls": [
                {"id": "c1", "name": "bash", "arguments": {"command": "ls"}, "result": "argo", "isError": False}
            ],
            "usage": {"inputTokens": 30, "outputTokens": 7},
            "model": "test/model",
            "createdAt": "2025-02-11T10:00:02Z",
        },
        {"role": "assistant", "text": "The argo.", "model": "test/model", "createdAt": "2025-02-11T10:00:03Z"},
    ],
}


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_sync", lambda fd: None)


def path_of(tmp_path: Path, session_id: str) -> Path:
    return tmp_path / "store" / "sessions" / f"{session_id}.json"


@asynccontextmanager
async def engine(tmp_path: Path, *script: Any, **options: Any) -> Any:
    options.setdefault("config", clew.Config())
    url = f"json:{tmp_path / 'store'}"
    async with clew.open(url, providers=FakeProviders(ScriptedModel(script)), **options) as opened:
        yield opened


async def ask(engine: clew.Engine, session_id: str, prompt: str, **options: Any) -> None:
    async for _ in engine.run(session_id, prompt, **options):
        pass


@pytest.mark.rule("FS-3", "ID-3")
async def test_a_session_is_one_file_that_others_can_read(tmp_path: Path) -> None:
    """Under a UUID the server made, for its owner alone: text, files, calls, usage, model."""
    async with engine(tmp_path, [say("let me see"), call("ls", {"path": "."})], say("done")) as e:
        session = await e.create_session(
            workspace_root=tmp_path, title="t", metadata={"workerId": "w", "workspaceId": "s"}
        )
        await ask(e, session.id, "what is here?")
        modes = {p.stat().st_mode & 0o777 for p in (tmp_path / "store").rglob("*") if p.is_file()}
        assert modes == {0o600}
        with pytest.raises(clew.InvalidId):
            await e.messages("../" + session.id)
    read = reader_001.read_session(tmp_path / "store", session.id)
    assert (read["workerId"], read["workspaceId"], read["title"]) == ("w", "s", "t")
    user, answer = read["messages"]
    assert (user["role"], user["text"]) == ("user", "what is here?")
    assert (answer["text"], answer["model"]) == ("let me see\n\ndone", "test/model")
    [told] = answer["toolCalls"]
    assert (told["name"], told["arguments"], told["isError"]) == ("ls", {"path": "."}, False)
    assert set(answer["usage"]) == {"inputTokens", "outputTokens"}


@pytest.mark.rule("FS-3", "CP-9")
async def test_a_checkpoint_stands_before_what_it_kept(tmp_path: Path) -> None:
    """The preset is this store's own; what a reader builds from the file is what clew sends, but for the time."""
    config = settings(tail_turns=1)
    async with opened(tmp_path, url=f"json:{tmp_path / 'store'}", config=config, window=20_000) as s:
        await s.begin()
        assert s.engine.config.compaction.preset == "checkpoint"
        for word in ("alpha", "beta", "gamma", "delta"):
            await s.say(bulk(word, 300))
        await s.engine.compact(s.id)
        await s.say("epsilon")
        await s.rest()
        sent = await s.engine.messages(s.id, view="model")
        session_id = s.id
    read = reader_001.read_session(tmp_path / "store", session_id)
    context = reader_001.build_context(read)
    assert [role for role, _ in context] == [message.role for message in sent]
    assert [text for _, text in context[1:]] == ["\n\n".join(message.texts) for message in sent[1:]]
    flags = [message for message in read["messages"] if message.get("summary")]
    assert [(message["role"], message["synthetic"]) for message in flags] == [("user", True), ("assistant", True)]


@pytest.mark.rule("FS-3", "FS-4")
async def test_a_session_written_by_hand_loads_and_goes_on(tmp_path: Path) -> None:
    """In the shape of the description; left as it is until there is something new to say."""
    path = path_of(tmp_path, UUID)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(HAND))
    async with engine(tmp_path, say("Still there.")) as e:
        [session] = (await e.list_sessions()).sessions
        assert (session.id, session.title, session.total_tokens) == (UUID, "Boats", 37)
        before = await e.messages(UUID)
        assert [message.role for message in before] == ["user", "assistant"]
        assert before[0].parts[1]["filename"] == "list.txt"
        assert [part.get("output") for part in before[1].parts if "toolCallId" in part] == ["argo"]
        assert await check(e.store) == []
        assert json.loads(path.read_text()) == HAND
        await ask(e, UUID, "And now?", model="test/model")
        assert (await e.messages(UUID))[:2] == before
        assert await check(e.store) == []
    read = reader_001.read_session(tmp_path / "store", UUID)
    assert (read["workerId"], read["workspaceId"], read["tags"]) == ("worker-1", "harbour", ["kept"])
    assert [(m["role"], m["text"]) for m in read["messages"]] == [
        ("user", "Which boats are in?"),
        ("assistant", "I will look."),
        ("assistant", "The argo."),
        ("user", "And now?"),
        ("assistant", "Still there."),
    ]
    async with engine(tmp_path) as e:
        assert (await e.messages(UUID))[:2] == before


@pytest.mark.rule("FS-3")
async def test_a_checkpoint_written_by_hand_hides_what_is_before_it(tmp_path: Path) -> None:
    """A pair of summaries: the model is sent the summary and what follows, and the rest is still there."""
    pair = [
        {"role": "user", "text": "boundary", "synthetic": True, "summary": True},
        {"role": "assistant", "text": "They looked at boats.", "summary": True},
        {"role": "user", "text": "go on"},
        {"role": "assistant", "text": "gone on"},
    ]
    path = path_of(tmp_path, UUID)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({**HAND, "messages": [*HAND["messages"], *pair]}))
    async with engine(tmp_path, say("ok")) as e:
        sent = await e.messages(UUID, view="model")
        assert "They looked at boats." in str(sent[0].parts)
        assert [" ".join(m.texts) for m in sent[-2:]] == ["go on", "gone on"]
        assert len(await e.messages(UUID, view="all")) == 5
        assert await check(e.store) == []
        await ask(e, UUID, "more", model="test/model")
        assert await check(e.store) == []


@pytest.mark.rule("FS-3", "SV-1")
async def test_the_file_is_written_at_a_user_message_and_at_the_end_of_a_step(tmp_path: Path) -> None:
    """And at no word in between, however long the answer; a crash then costs that step."""
    gate, clock = Gate(), FakeClock()
    async with engine(tmp_path, [say("thread of Ariadne " * 20), wait(gate)], say("x"), clock=clock) as e:
        session = await e.create_session(metadata=local_place(None))
        path = path_of(tmp_path, session.id)
        submission = await e.submit(session.id, "go")
        stored = json.loads(path.read_text())
        assert [message["text"] for message in stored["messages"]] == ["go"]
        await gate.reached.wait()
        clock.advance(100)
        while "text" not in (await e.messages(session.id))[-1].parts[-1]:
            await e.store.load_state(session.id)
            await asyncio.sleep(0)
        assert "Ariadne" in (await e.messages(session.id))[-1].parts[-1]["text"]
        assert "Ariadne" not in path.read_text()
        gate.set()
        await submission.wait()
        assert "Ariadne" in path.read_text()
    assert not [p for p in path.parent.iterdir() if p != path]


@pytest.mark.rule("FS-3", "FS-4")
async def test_it_saves_at_each_step_at_best(tmp_path: Path) -> None:
    """Which is what it does unless it is told otherwise; every chunk is refused, with a code."""
    async with engine(tmp_path) as e:
        assert e.config.save.save_on == "step"
    with pytest.raises(NotSupported, match="every chunk"):
        async with engine(tmp_path, config=clew.Config(save=SavePolicy(save_on="chunk"))):
            pass
    async with engine(tmp_path, config=clew.Config(save=SavePolicy(save_on="turn"))) as e:
        assert e.config.save.save_on == "turn"


@pytest.mark.rule("FS-3")
async def test_a_session_leaves_memory_when_released(tmp_path: Path) -> None:
    """After its run; reading it does not bring it back."""
    async with engine(tmp_path, say("one"), say("two")) as e:
        store: Any = e.store
        session = await e.create_session(title="kept", metadata=local_place(None))
        await ask(e, session.id, "a")
        while store.in_memory:  # noqa: ASYNC110  # what is done after a turn
            await asyncio.sleep(0)
        assert [one.id for one in (await e.list_sessions()).sessions] == [session.id]
        assert len(await e.messages(session.id)) == 2
        tree = await e.store.load_tree(session.id)
        assert await e.store.find_turn(tree.head_turn_id) is not None
        assert store.in_memory == ()
        await ask(e, session.id, "b")
        assert len(await e.messages(session.id)) == 4
        assert await check(e.store) == []


@pytest.mark.rule("FS-3", "RN-6")
async def test_hooks_are_told_of_sessions_that_are_made_saved_and_removed(tmp_path: Path) -> None:
    """Each after it has happened on disk."""
    told: list[tuple[str, bool]] = []
    async with engine(tmp_path, say("one")) as e:

        def watch(name: Any) -> None:
            async def hook(value: Any) -> None:
                id_ = value if isinstance(value, str) else value.id
                told.append((name, path_of(tmp_path, id_).exists()))

            e.hook(name, hook)

        for name in ("session_create", "session_save", "session_delete"):
            watch(name)
        session = await e.create_session(metadata=local_place(None))
        await ask(e, session.id, "a")
        await asyncio.gather(*e._runtime.sessions._tasks)  # titles are made beside, and told of
        await e.host.hooks.drain()
        told.append(("and then", True))
        await e.rename_session(session.id, "b")
        await e.archive_session(session.id)
        await e.set_permissions(session.id, [])
        await e.host.hooks.drain()
        assert told[-4:] == [("and then", True), *[("session_save", True)] * 3]
        await e.delete_session(session.id)
    # The prompt, the model that was asked, the end of the turn with that of its step; and the title.
    assert told[:2] == [("session_save", True), ("session_create", True)]
    assert 2 <= told.index(("and then", True)) - 2 <= 10
    assert told[-1] == ("session_delete", False)


@pytest.mark.rule("ST-6")
async def test_pages_hold_1_to_200_sessions(tmp_path: Path) -> None:
    """Of sessions that are not in memory, too."""
    async with engine(tmp_path) as e:
        made = {(await e.create_session(metadata=local_place(None))).id for _ in range(7)}
        for session_id in made:
            await e.store.release(session_id)
        assert e.store.in_memory == ()
        seen, cursor = [], None
        while True:
            page = await e.list_sessions(limit=3, cursor=cursor)
            seen += [session.id for session in page.sessions]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert sorted(seen) == sorted(made)
        for limit in (0, 201):
            with pytest.raises(InvalidInput):
                await e.list_sessions(limit=limit)


@pytest.mark.rule("FS-3")
async def test_a_file_that_does_not_read_is_told_and_never_written_over(tmp_path: Path) -> None:
    """The others are not harmed by it."""
    async with engine(tmp_path, say("one")) as e:
        good, bad = (
            await e.create_session(metadata=local_place(None)),
            await e.create_session(metadata=local_place(None)),
        )
        await ask(e, good.id, "a")
    harmed = path_of(tmp_path, bad.id).read_bytes()[:-30]
    path_of(tmp_path, bad.id).write_bytes(harmed)
    async with engine(tmp_path) as e:
        assert len((await e.list_sessions()).sessions) == 2
        assert [problem.session_id for problem in await check(e.store)] == [bad.id]
        with pytest.raises(RowUndecodable):
            await e.rename_session(bad.id, "x")
        assert len(await e.messages(good.id)) == 2
    assert path_of(tmp_path, bad.id).read_bytes() == harmed


@pytest.mark.rule("FS-3", "FS-6")
@pytest.mark.parametrize("times", [(None, None, None, None), (3, 1, 2, 0), (1, 1, 1, 1)])
async def test_a_file_of_another_program_is_shown_in_its_own_order(
    tmp_path: Path, times: tuple[int | None, ...]
) -> None:
    """In every view, whatever it says of when; and the same once clew has gone on with it, and in another store."""
    session_id = Mint().session(SessionIdForm.UUID)
    said = ["where?", "in the maze", "and now?", "by the thread"]
    messages = [
        {"role": role, "text": text, **({} if at is None else {"createdAt": f"2025-02-11T10:00:0{at}Z"})}
        for role, text, at in zip(("user", "assistant") * 2, said, times, strict=True)
    ]
    path_of(tmp_path, session_id).parent.mkdir(parents=True)
    plain = {"id": session_id, "createdAt": "2025-02-11T10:00:00Z", "model": "test/model", "messages": messages}
    path_of(tmp_path, session_id).write_bytes(json.dumps(plain).encode())
    async with engine(tmp_path, say("out")) as e:
        for view in ("all", "visible", "model"):
            assert [" ".join(one.texts) for one in await e.messages(session_id, view=view)] == said
        await ask(e, session_id, "who?")
        assert [" ".join(one.texts) for one in await e.messages(session_id, view="all")] == [*said, "who?", "out"]
        target = await open_sqlite(tmp_path / "other.db")
        done = await convert(e.store, target, e.mint, 1)
        rows = await target.load_messages(done.moved[0].as_id)
        assert [" ".join(row.texts) for row in rows] == [*said, "who?", "out"]
        await target.close()
