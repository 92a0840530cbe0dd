"""What a line of a log costs that is lost, garbled, or changed: itself, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import clew
from clew.session.history.check import check
from clew.store.base import FullSession
from clew.store.files import folder
from clew.store.files.opening import FilesOptions, open_files
from clew.testing.scripted import FakeProviders, ScriptedModel, call, say
from clew.transcript.line import line_messages
from clew.transcript.message import MessageRow

SAID = (say("one"), [call("ls", {"path": "."})], say("two"), say("three"), say("four"))


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_sync", lambda fd: None)


async def written(root: Path) -> Path:
    """The log of a session of four turns: one with a call, one that was rewound and asked anew."""
    providers = FakeProviders(ScriptedModel(SAID))
    async with clew.open(f"jsonl:{root}", config=clew.Config(), providers=providers) as engine:
        session = await engine.create_session(title="lines", workspace_root=root)
        for prompt in ("a", "b", "c"):
            async for _ in engine.run(session.id, prompt):
                pass
        last = [message for message in await engine.messages(session.id) if message.role == "user"][-1]
        await engine.rewind(session.id, last.id, mode="edit")
        async for _ in engine.run(session.id, "d"):
            pass
    return root / "sessions" / session.id / "session.jsonl"


async def read(root: Path, session_id: str) -> tuple[FullSession, list[str]]:
    store = await open_files("jsonl", root, FilesOptions(read_only=True))
    whole = await store.find_full_session(session_id)
    problems = [problem.what for problem in await check(store)]
    await store.close()
    assert whole is not None
    return whole, problems


def line_of(whole: FullSession) -> list[str]:
    return [message_id for _, message_id in line_messages(whole.tree)]


def lose(line: bytes) -> bytes:
    return b""


def garble(line: bytes) -> bytes:
    return b"\xff" * 8 + line[8:]


def change(line: bytes) -> bytes:
    """Another letter somewhere in it that is still JSON."""
    place = [match.start() for match in re.finditer(rb"[a-z]", line)][len(line) // 3 % 7]
    return line[:place] + bytes([line[place] ^ 1]) + line[place + 1 :]


def same(row: MessageRow, other: MessageRow) -> bool:
    return [part.data for part in row.parts] == [part.data for part in other.parts]


HARMS: tuple[Callable[[bytes], bytes], ...] = (lose, garble, change)


@pytest.mark.rule("FS-5", "ST-14")
async def test_a_lost_line_costs_what_it_said_and_no_more(tmp_path: Path) -> None:
    """Any of them: what follows is on the line, what is not as it was says so, and the judge names it."""
    log = await written(tmp_path)
    session_id = log.parent.name
    truth, problems = await read(tmp_path, session_id)
    assert (problems, len(line_of(truth))) == ([], 6)
    lines = log.read_bytes().splitlines(keepends=True)
    rows = {row.id: row for row in truth.messages}
    for place, line in enumerate(lines):
        harm = lose if b'"recordType":"turn"' in line else HARMS[place % 3]
        log.write_bytes(b"".join((*lines[:place], harm(line), *lines[place + 1 :])))
        whole, problems = await read(tmp_path, session_id)
        at = f"line {place + 1}: {line[:60]!r}"
        assert problems, at
        assert set(line_of(truth)) <= set(line_of(whole)), at
        changed = [row.id for row in whole.messages if not same(row, rows[row.id])]
        marked = [row.id for row in whole.messages if "damaged" in row.metadata]
        assert changed == marked, at
        assert len(changed) <= 1, at
        assert {row.id for row in whole.messages} == set(rows), at
        assert whole.tree.head_turn_id == truth.tree.head_turn_id, at
        lost = {turn.id for turn in whole.tree.turns.values() if turn.data.get("error")}
        assert msgspec.to_builtins({id_: whole.tree.turns[id_].parent_turn_id for id_ in truth.tree.turns}) == {
            id_: turn.parent_turn_id for id_, turn in truth.tree.turns.items()
        }, at
        assert len(lost) <= 1, at


@pytest.mark.rule("FS-5")
async def test_a_complete_record_without_its_newline_counts_and_the_next_one_begins_a_line(tmp_path: Path) -> None:
    """Also when it is the last of a unit of many; nothing of it is said to be lost."""
    log = await written(tmp_path)
    session_id = log.parent.name
    truth, _ = await read(tmp_path, session_id)
    whole = log.read_bytes()
    log.write_bytes(whole[:-1])
    assert await read(tmp_path, session_id) == (truth, [])
    providers = FakeProviders(ScriptedModel([say("five")]))
    async with clew.open(f"jsonl:{tmp_path}", config=clew.Config(), providers=providers) as engine:
        async for _ in engine.run(session_id, "e"):
            pass
        assert [part["text"] for part in (await engine.messages(session_id))[-1].parts if "text" in part] == ["five"]
    assert log.read_bytes().startswith(whole)
    after, problems = await read(tmp_path, session_id)
    assert (line_of(after)[:6], problems) == (line_of(truth), [])


@pytest.mark.rule("FS-5")
async def test_a_newline_that_is_no_newline_any_more_costs_nothing(tmp_path: Path) -> None:
    """Between two lines, and at the end of the file."""
    log = await written(tmp_path)
    truth, _ = await read(tmp_path, log.parent.name)
    whole = log.read_bytes()
    for place in [place for place, byte in enumerate(whole) if byte == 10][::7]:
        log.write_bytes(whole[:place] + b"\x0b" + whole[place + 1 :])
        assert await read(tmp_path, log.parent.name) == (truth, [])
    log.write_bytes(whole[:-1] + b"\x0b")
    assert await read(tmp_path, log.parent.name) == (truth, [])


@pytest.mark.rule("ST-14", "FS-5")
async def test_appends_that_a_cut_file_lost_are_named_now_and_once_it_went_on(tmp_path: Path) -> None:
    """The metadata says how far the log went; the log itself says so once there is more in it."""
    log = await written(tmp_path)
    session_id = log.parent.name
    lines = log.read_bytes().splitlines(keepends=True)
    last = [place for place, line in enumerate(lines) if b'"unit":[1,' in line][-1]
    log.write_bytes(b"".join(lines[:last]))
    _, problems = await read(tmp_path, session_id)
    # Numbers of a stream that was folded into what is lost are lost with it.
    first = int(lines[last].split(b'"after":')[1].split(b",")[0]) + 1
    end = int(lines[-1].split(b'"seq":')[1].split(b",")[0])
    named = f"numbers {first} to {end} of session.jsonl are lost"
    assert named in problems
    providers = FakeProviders(ScriptedModel([say("five")]))
    async with clew.open(f"jsonl:{tmp_path}", config=clew.Config(), providers=providers) as engine:
        async for _ in engine.run(session_id, "e"):
            pass
    _, problems = await read(tmp_path, session_id)
    assert named in problems
