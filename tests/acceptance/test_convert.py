"""Converting: a store written as another of any kind, with everything in it, and compared."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

import clew
from bench.fill import fill_turns
from clew.errors import StoreError
from clew.fronts.cli.app import run_command
from clew.ids import SessionIdForm
from clew.session.history.check import check
from clew.session.history.convert import ORIGIN_KEY, convert
from clew.store.files import folder
from clew.store.portable import plan_insert
from clew.store.unit import (
    MoveHead,
    PatchSession,
    PutBlob,
    PutParts,
    PutProjectRules,
    SealMessage,
    SetEpoch,
    Unit,
    Write,
)
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, call, say, wait
from clew.transcript.damage import seal_of
from clew.transcript.message import PartRow
from clew.transcript.metadata import local_place
from tests.acceptance.history_machine import ACTIONS, Machine
from tests.contract.test_random_histories import History

KINDS = ("sqlite", "jsonl", "json")
FORMS = {"sqlite": SessionIdForm.CLEW, "jsonl": SessionIdForm.ULID, "json": SessionIdForm.UUID}


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_sync", lambda fd: None)


def url(kind: str, path: Path) -> str:
    return f"sqlite:///{path}" if kind == "sqlite" else f"{kind}:{path}"


def digest(path: Path) -> str:
    """Every byte of a store, but for who has it open."""
    files = [path] if path.is_file() else [p for p in sorted(path.rglob("*")) if p.is_file() and p.suffix != ".owner"]
    return hashlib.sha256(b"".join(str(p).encode() + p.read_bytes() for p in files)).hexdigest()


@asynccontextmanager
async def engine(kind: str, path: Path, *script: Any, **options: Any) -> Any:
    providers = FakeProviders(ScriptedModel(script))
    async with clew.open(url(kind, path), config=clew.Config(), providers=providers, **options) as opened:
        yield opened


async def moved(kind: str, source: Path, to: str, target: Path) -> dict[str, str]:
    """Convert; what each session is called now."""
    before = digest(source)
    async with engine(kind, source, read_only=True) as old, engine(to, target) as new:
        done = await convert(old.store, new.store, new.host.mint, 1_900_000_000_000)
        assert await check(new.store) == []
    assert digest(source) == before, "the source was touched"
    return {one.session_id: one.as_id for one in done.moved}


@pytest.mark.slow
@pytest.mark.rule("FS-4")
async def test_a_long_session_is_imported_and_converted_whole(tmp_path: Path) -> None:
    """More turns than the writer remembers; an import is one unit, and its moves come back to the first of them."""
    async with engine("sqlite", tmp_path / "a.db") as old:
        session = await old.create_session()
        await fill_turns(old.store, old.host.mint, session.id, range(300))
        copy = await old.import_session(await old.export(session.id, redact=False))
        said = []
        for id_ in (session.id, copy.id):
            line = await old.store.load_line(id_)
            said.append([[part.data for row in entry.messages for part in row.parts] for entry in line.turns])
        assert len(said[0]) == 300
        assert said[0] == said[1]
    assert len(await moved("sqlite", tmp_path / "a.db", "sqlite", tmp_path / "b.db")) == 2


@pytest.mark.rule("FS-4")
@pytest.mark.parametrize("kind", ["sqlite", "jsonl", "json"])
async def test_a_step_whose_tools_ended_after_its_message_was_written_is_converted(kind: str, tmp_path: Path) -> None:
    """A message knows when its model call ended, the step when its tools had: both come along as they are."""
    async with engine("sqlite", tmp_path / "old") as old:
        history = History(old.store, 1)
        await history.start()
        for action in ("turn", "turn", "rewind", "turn", "compact", "turn", "refuse"):
            await history.run(action)
        rows = {row.id: row for row in await old.store.load_messages(history.scribe.session_id)}
        turns = (await old.store.load_tree(history.scribe.session_id)).turns
        steps = [step for turn_id in turns for step in await old.store.load_steps(turn_id)]
    assert any(step.finished_at > rows[step.message_id].updated_at for step in steps)
    assert len(await moved("sqlite", tmp_path / "old", kind, tmp_path / "new")) == 1


async def ask(engine: clew.Engine, session_id: str, prompt: str) -> None:
    async for _ in engine.run(session_id, prompt):
        pass


async def fill(path: Path, kind: str) -> dict[str, str]:
    """One session for everything that is hard to carry; their ids by what is in them."""
    workspace = path.parent / "workspace"
    workspace.mkdir(exist_ok=True)
    gate = Gate()
    script = (
        *(say("one"), say("two"), say("three")),
        [call("write", {"path": "a.txt", "content": "x"})],
        [say("busy"), wait(gate)],
    )
    async with engine(kind, path, *script) as e:
        talk = await e.create_session(title="talk", workspace_root=workspace, metadata=local_place(None))
        for prompt in ("a", "b"):
            await ask(e, talk.id, prompt)
        first, _, second, _ = await e.messages(talk.id)
        branch = await e.branch(talk.id, second.id)
        await e.rewind(talk.id, second.id, mode="edit")
        await ask(e, talk.id, "c")
        rules = ({"permission": "bash", "pattern": "ls *", "action": "allow"},)
        sha = hashlib.sha256(b"file").hexdigest()
        file = {"type": "file", "mediaType": "text/plain", "url": f"/api/blobs/{sha}"}
        row = await e.store.find_message(talk.id, first.id)
        part = row.parts[0]
        added = PartRow(e.host.mint.part(), 1, file, part.created_at, part.updated_at)
        await e.store.commit(
            Unit(
                talk.id,
                (
                    PatchSession(permissions=rules),
                    PutBlob(sha, "text/plain", b"file", 1),
                    PutParts(first.id, (added,)),
                    SealMessage(first.id, seal_of([part.data, file])),
                    PutProjectRules(str(workspace.resolve()), rules, 1),
                ),
            )
        )
        waits = await e.create_session(title="waits", workspace_root=workspace, metadata=local_place(None))
        await ask(e, waits.id, "write it")
        queue = await e.create_session(title="queue", metadata=local_place(None))
        await e.submit(queue.id, "long")
        await gate.reached.wait()
        await e.submit(queue.id, "later")
    return {"talk": talk.id, "branch": branch.id, "waits": waits.id, "queue": queue.id, "second": second.id}


@pytest.mark.slow
@pytest.mark.rule("FS-4")
@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize("kind", KINDS)
async def test_everything_arrives_and_goes_on(kind: str, to: str, tmp_path: Path) -> None:
    """Branches with parents, rewinds, files, rules, a request that waits, a queue: each still does what it does."""
    known = await fill(tmp_path / "old", kind)
    names = await moved(kind, tmp_path / "old", to, tmp_path / "new")
    assert all(FORMS[to].value.fullmatch(new) for new in names.values())
    assert (kind == to) == all(old == new for old, new in names.items())
    async with engine(to, tmp_path / "new", say("written"), say("queued")) as e:
        talk, branch = names[known["talk"]], names[known["branch"]]
        assert [m.parts[0]["text"] for m in await e.messages(talk) if m.role == "user"] == ["a", "c"]
        session = await e.get_session(branch)
        assert (session.parent_id, session.parent_message_id) == (talk, known["second"])
        came = (await e.get_session(talk)).metadata[ORIGIN_KEY]
        assert came == {"store": kind, "session_id": known["talk"], "at": 1_900_000_000_000}
        rewound = [entry.to_turn_id for entry in await e.reflog(talk)][2]
        await e.set_head(talk, rewound)
        assert [m.parts[0]["text"] for m in await e.messages(talk) if m.role == "user"] == ["a", "b"]
        [rule] = await e.permissions(talk)
        assert (rule.permission, rule.pattern, rule.action) == ("bash", "ls *", "allow")
        assert len(await e.store.load_project_rules(str((tmp_path / "workspace").resolve()))) == 1
        blob = await e.store.find_blob(hashlib.sha256(b"file").hexdigest())
        assert blob is not None
        assert blob.data == b"file"
        # The answer is bound to the session it was asked in, which has another name here.
        waits = names[known["waits"]]
        [request] = (await e.get_status(waits)).waiting
        assert await e.answer(waits, request.approval_id, "once") == 0
        while not e.is_idle(waits):
            async for _ in e.attach(waits):
                pass
        assert (await e.messages(waits))[-1].parts[-1]["text"] == "written"
        queue = names[known["queue"]]
        assert [message.parts[0]["text"] for message in await e.queue(queue)] == ["later"]
        assert await check(e.store) == []


@pytest.mark.rule("FS-4")
async def test_a_second_time_changes_nothing_and_a_way_back_gives_new_names(tmp_path: Path) -> None:
    """What is there already stays; into the store it came from it goes under other names, every one of them."""
    await fill(tmp_path / "old", "sqlite")
    names = await moved("sqlite", tmp_path / "old", "jsonl", tmp_path / "new")
    assert await moved("sqlite", tmp_path / "old", "jsonl", tmp_path / "new") == {}
    back = await moved("jsonl", tmp_path / "new", "sqlite", tmp_path / "old")
    assert set(back) == set(names.values())
    assert set(back.values()).isdisjoint(names)
    async with engine("sqlite", tmp_path / "old", read_only=True) as e:
        rows = [row for id_ in await e.store.session_ids() for row in await e.store.load_messages(id_)]
        assert len({row.id for row in rows}) == len(rows)


@pytest.mark.slow
@pytest.mark.rule("FS-4", "CP-3")
@pytest.mark.parametrize("seed", range(3))
async def test_random_histories_go_around_and_stay_what_they_are(seed: int, tmp_path: Path) -> None:
    """Summaries of every kind, prunes, splits, forks: from kind to kind, each copy compared view by view."""
    random = Random(seed)
    machine = Machine(tmp_path, seed, kind=KINDS[seed], settings={"preset": random.choice(["guide", "checkpoint"])})
    await machine.open()
    for action in [*["prompt"] * 5, "prune", "compact", *random.choices(ACTIONS, k=25)]:
        await machine.act(action)
    await machine.close()
    kind, path = KINDS[seed], machine.path
    for step in range(1, 4):
        to = KINDS[(seed + step) % 3]
        assert await moved(kind, path, to, tmp_path / f"copy-{step}")
        kind, path = to, tmp_path / f"copy-{step}"


@pytest.mark.slow
@pytest.mark.rule("FS-4")
@pytest.mark.parametrize("harm", ["turns", "epoch", "rules"])
async def test_a_copy_that_differs_is_found_and_taken_back(
    harm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: whatever is left out or changed on the way is named."""
    await fill(tmp_path / "old", "sqlite")

    def harmed(given: Any, now: int) -> tuple[Write, ...]:
        writes = list(plan_insert(given, now))
        if harm == "turns":
            del writes[max(place for place, write in enumerate(writes) if isinstance(write, MoveHead))]
        elif harm == "epoch":
            writes.append(SetEpoch(99))
        else:
            writes.append(PatchSession(permissions=({"permission": "*", "pattern": "*", "action": "allow"},)))
        return tuple(writes)

    monkeypatch.setattr("clew.session.history.convert.plan_insert", harmed)
    async with engine("sqlite", tmp_path / "old", read_only=True) as old, engine("json", tmp_path / "new") as new:
        with pytest.raises(StoreError, match="differs in"):
            await convert(old.store, new.store, new.host.mint, 1)
        assert await new.store.session_ids() == ()


async def test_the_command_says_what_it_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line for each session; a wrong place, the same place and no place are refused."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    async with engine("sqlite", tmp_path / "old", say("x")) as e:
        session = await e.create_session(metadata=local_place(None))
        await ask(e, session.id, "a")
    old, new = url("sqlite", tmp_path / "old"), url("jsonl", tmp_path / "new")

    def run(*words: str) -> tuple[int, str, str]:
        code = run_command(["convert", *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    code, out, _ = await asyncio.to_thread(run, old, new)
    assert (code, out.splitlines()[-1]) == (0, "1 sessions written and compared, 0 already there")
    assert out.startswith(session.id)
    code, out, _ = await asyncio.to_thread(run, old, new, "--json")
    assert (code, '"moved":[]' in out) == (0, True)
    for bad in ((old, old), ("memory:", new), (url("json", tmp_path / "nowhere"), new), (old, "nothing")):
        code, _, err = await asyncio.to_thread(run, *bad)
        assert (code in (2, 7), err.startswith("clew: ")) == (True, True), bad


@pytest.mark.rule("FS-4")
@pytest.mark.parametrize("kind", ["jsonl", "json"])
async def test_a_session_that_cannot_be_read_is_left_and_named(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others arrive; an empty session that stands for it does not."""
    source, target = tmp_path / "source", tmp_path / "target.db"
    async with engine(kind, source, say("hi")) as opened:
        good = await opened.create_session(metadata=local_place(None))
        await ask(opened, good.id, "hello")
        bad = await opened.create_session(metadata=local_place(None))
    path = source / "sessions" / (f"{bad.id}/session.jsonl" if kind == "jsonl" else f"{bad.id}.json")
    path.unlink()
    path.mkdir()
    async with engine(kind, source, read_only=True) as old, engine("sqlite", target) as new:
        done = await convert(old.store, new.store, new.host.mint, 1)
        assert [one.session_id for one in done.moved] == [good.id]
        assert [one.session_id for one in done.damaged] == [bad.id]
        assert [await new.store.session_ids()] == [(done.moved[0].as_id,)]
    words = ["convert", url(kind, source), url("json", tmp_path / "other")]
    assert await asyncio.to_thread(run_command, words) == 1
    assert f"{bad.id} not copied" in capsys.readouterr().err


@pytest.mark.rule("FS-4")
async def test_a_branch_names_the_message_of_its_parent_as_it_is_called_now(tmp_path: Path) -> None:
    """Also where every id was taken, as in a copy of the source itself."""
    source, target = tmp_path / "source", tmp_path / "target"
    async with engine("jsonl", source, say("hi")) as opened:
        session = await opened.create_session(metadata=local_place(None))
        await ask(opened, session.id, "hello")
        message = (await opened.store.load_messages(session.id))[0]
        branch = await opened.branch(session.id, message.id)
    shutil.copytree(source, target)
    names = await moved("jsonl", source, "jsonl", target)
    async with engine("jsonl", target) as opened:
        row = await opened.store.find_session(names[branch.id])
        assert row.parent_id == names[session.id]
        assert row.parent_message_id in {one.id for one in await opened.store.load_messages(names[session.id])}
