"""Files of sessions that another program wrote again with equal content are no damage, however JSON can be written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clew.session.api import Engine
from clew.session.history.check import check
from clew.store.files import folder
from clew.store.unit import SealMessage, Unit
from clew.testing.scripted import call, say

from . import jsonl_sessions, test_sessions_json
from .jsonl_sessions import place

pytestmark = pytest.mark.rule("FS-7")

Rewrite = Callable[[str], str]


def reversed_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(value)}
    return [reversed_keys(one) for one in value] if isinstance(value, list) else value


def whole_floats(value: Any) -> Any:
    """Numbers as a language with one kind of number writes them again, the other way round."""
    if isinstance(value, dict):
        return {key: whole_floats(one) for key, one in value.items()}
    if isinstance(value, list):
        return [whole_floats(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def dumped(**options: Any) -> Rewrite:
    return lambda text: json.dumps(json.loads(text), ensure_ascii=False, **options)


WAYS: dict[str, Rewrite] = {
    "spaces": dumped(),
    "no spaces": dumped(separators=(",", ":")),
    "sorted keys": dumped(sort_keys=True),
    "reversed keys": lambda text: json.dumps(reversed_keys(json.loads(text)), ensure_ascii=False),
    "escapes": lambda text: json.dumps(json.loads(text), ensure_ascii=True),
    "slashes": lambda text: text.replace("/", "\\/"),
    "whole floats": lambda text: json.dumps(whole_floats(json.loads(text)), ensure_ascii=False),
    "spaces around": lambda text: f"  {text.strip()} \t",
}
_OTHER_BYTES = {"sorted keys", "reversed keys", "whole floats"}
LAYOUTS: dict[str, Rewrite] = {
    "newline": lambda text: text.rstrip("\n") + "\n\n",
    "no newline": lambda text: text.rstrip("\n"),
    "CRLF": lambda text: json.dumps(json.loads(text), indent=2, ensure_ascii=False).replace("\n", "\r\n") + "\r\n",
    "indented": dumped(indent="\t"),
    "mark": lambda text: "\ufeff" + text,
}


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_sync", lambda fd: None)


async def converse(engine: Engine) -> str:
    metadata = {
        "workerId": "w",
        "workspaceId": "w",
        "weight": 2.0,
        "half": 0.5,
        "small": 1e-7,
        "path": "a/b",
        "ü": "é😀",
    }
    session = await engine.create_session(metadata=metadata, title="Über 😀")
    for text in ("look/here é😀", "again"):
        await (await engine.submit(session.id, text, model="test/model")).wait()
    await engine.rename_session(session.id, "Schön / neu")
    return session.id


SCRIPT = (say("one 😀/é"), [say("two"), call("look", {"weight": 3.0, "of": ["é", 1e22]})], say("three"))


async def assert_sound(engine: Engine, session_id: str, before: Any) -> None:
    assert await check(engine.store) == []
    assert await engine.messages(session_id) == before


@pytest.mark.parametrize("way", [*WAYS, *LAYOUTS])
async def test_a_json_file(tmp_path: Path, way: str) -> None:
    """The file of a session of a ``json:`` store; after that it is written and read as before."""
    async with test_sessions_json.engine(tmp_path, *SCRIPT) as engine:
        session_id = await converse(engine)
        before, session = await engine.messages(session_id), await engine.get_session(session_id)
    path = test_sessions_json.path_of(tmp_path, session_id)
    path.write_bytes({**WAYS, **LAYOUTS}[way](path.read_text()).encode())
    async with test_sessions_json.engine(tmp_path, say("four")) as engine:
        await assert_sound(engine, session_id, before)
        assert await engine.get_session(session_id) == session
        await test_sessions_json.ask(engine, session_id, "more", model="test/model")
        assert await check(engine.store) == []
    async with test_sessions_json.engine(tmp_path) as engine:
        assert (await engine.messages(session_id))[: len(before)] == before
        assert await check(engine.store) == []
    assert not (tmp_path / "store" / "clew" / "damaged").exists()


@pytest.mark.parametrize("way", [*WAYS, *LAYOUTS])
async def test_the_metadata_of_a_log(tmp_path: Path, way: str) -> None:
    """``metadata.json`` of a ``jsonl:`` session."""
    async with jsonl_sessions.engine(tmp_path, *SCRIPT) as engine:
        session_id = await converse(engine)
        before, session = await engine.messages(session_id), await engine.get_session(session_id)
    path = place(tmp_path, session_id) / "metadata.json"
    path.write_bytes({**WAYS, **LAYOUTS}[way](path.read_text()).encode())
    await log_is_sound(tmp_path, session_id, before, session)


@pytest.mark.parametrize("lines", ["LF", "CRLF", "blank lines", "no newline at the end", "mark"])
@pytest.mark.parametrize("way", sorted(WAYS.keys() - _OTHER_BYTES))
async def test_the_lines_of_a_log(tmp_path: Path, way: str, lines: str) -> None:
    """``session.jsonl``: each record written again, and the lines kept apart in other ways.

    The order of keys and the way a number is written are part of a line: its check is over them.
    """
    async with jsonl_sessions.engine(tmp_path, *SCRIPT) as engine:
        session_id = await converse(engine)
        before, session = await engine.messages(session_id), await engine.get_session(session_id)
    path = place(tmp_path, session_id) / "session.jsonl"
    between = {"CRLF": "\r\n", "blank lines": "\n\n"}.get(lines, "\n")
    text = "".join(WAYS[way](line) + between for line in path.read_text().splitlines())
    text = "\ufeff" + text if lines == "mark" else text
    path.write_bytes((text.rstrip() if lines == "no newline at the end" else text).encode())
    await log_is_sound(tmp_path, session_id, before, session)


async def log_is_sound(tmp_path: Path, session_id: str, before: Any, session: Any) -> None:
    async with jsonl_sessions.engine(tmp_path, say("four")) as engine:
        await assert_sound(engine, session_id, before)
        assert await engine.get_session(session_id) == session
        await jsonl_sessions.ask(engine, session_id, "more", model="test/model")
        assert await check(engine.store) == []
    async with jsonl_sessions.engine(tmp_path) as engine:
        assert (await engine.messages(session_id))[: len(before)] == before
        assert await check(engine.store) == []
    assert not (tmp_path / "store" / "clew" / "damaged").exists()


@pytest.mark.rule("ST-14")
@pytest.mark.parametrize("way", ["spaces", "sorted keys", "whole floats"])
async def test_what_was_damaged_before_stays_damaged(tmp_path: Path, way: str) -> None:
    """A message that did not fit its seal when its file was written; writing the file again accepts nothing."""
    async with test_sessions_json.engine(tmp_path, *SCRIPT) as engine:
        session_id = await converse(engine)
        message = (await engine.messages(session_id))[-1]
        await engine.store.commit(Unit(session_id, (SealMessage(message.id, "0" * 32),), sync="power"))
    path = test_sessions_json.path_of(tmp_path, session_id)
    for _ in range(2):
        path.write_bytes(WAYS[way](path.read_text()).encode())
        async with test_sessions_json.engine(tmp_path) as engine:
            assert [problem.id for problem in await check(engine.store)] == [message.id]
            await engine.rename_session(session_id, "still")
