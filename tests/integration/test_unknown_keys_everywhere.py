"""Keys that clew does not know survive every write, and every way from one store to another.

Each test puts a marked key into every object of a file of another program, at every depth, and looks for the marks.
"""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

import clew
from clew.session.history.check import check
from clew.store.files.json_message import encode_message, with_unknown_keys
from clew.testing.scripted import FakeProviders, ScriptedModel, say
from clew.transcript.message import MessageRow, PartRow
from tests.acceptance.jsonl_sessions import ULID
from tests.acceptance.test_sessions_json import UUID
from tests.acceptance.test_unknown_keys import LOG, METADATA, MOLF, records_of
from tests.integration.command_line import Run
from tests.integration.command_line import run as run

pytestmark = pytest.mark.rule("FS-7")

_MARK = re.compile(r"mark-\d+")


class Marker:
    """Puts values of every kind under new keys; each holds a mark that is found again as text."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.count = 0

    def _value(self, depth: int = 0) -> Any:
        self.count += 1
        mark = f"mark-{self.count}"
        kinds = [
            mark,
            [mark, None, 1e-7],
            {mark: True},
            {"é😀": {"deep": [mark, {"n": 2**53, "f": -0.5}]}},
            {"": [mark]},
        ]
        return self._random.choice(kinds[:3] if depth else kinds)

    def mark(self, value: Any, skip: frozenset[str] = frozenset()) -> Any:
        """The same with one more key in every object but those under keys in ``skip``."""
        if isinstance(value, list):
            return [self.mark(one, skip) for one in value]
        if not isinstance(value, dict):
            return value
        marked = {key: one if key in skip else self.mark(one, skip) for key, one in value.items()}
        return {**marked, f"x-{self._random.randrange(10**6)}": self._value()}


def marks(text: str) -> set[str]:
    return set(_MARK.findall(text))


def engine(store: str) -> Any:
    model = ScriptedModel(otherwise=lambda request: say("more"))
    return clew.open(store, providers=FakeProviders(model), config=clew.Config())


async def use(store: str) -> str:
    """Write to the one session of a store in the ways that write all of it."""
    async with engine(store) as e:
        [session] = (await e.list_sessions()).sessions
        await (await e.submit(session.id, "and now?", model="test/model")).wait()
        await e.rename_session(session.id, "renamed")
        await e.archive_session(session.id)
        await e.archive_session(session.id, archived=False)
        assert await check(e.store) == []
    return str(session.id)


def written(folder: Path) -> set[str]:
    """The marks in all that other programs read of a folder."""
    return set().union(*(marks(path.read_text()) for path in (folder / "sessions").rglob("*.json*")))


@pytest.mark.parametrize("seed", range(8))
async def test_a_json_file(tmp_path: Path, seed: int) -> None:
    """Of another program, with marks in every object of it; then through SQLite and a log, and back."""
    path = tmp_path / "a" / "sessions" / f"{UUID}.json"
    path.parent.mkdir(parents=True)
    document = Marker(seed).mark(MOLF, frozenset({"args"}))
    path.write_text(json.dumps(document))
    given = marks(json.dumps(document))
    for _ in range(2):
        await use(f"json:{tmp_path}/a")
        assert given - written(tmp_path / "a") == set()
    assert [strip(one) for one in json.loads(path.read_text())["messages"]][:8] == document["messages"]


@pytest.mark.parametrize("seed", range(8))
async def test_a_log_and_its_metadata(tmp_path: Path, seed: int) -> None:
    """Of another program; the log's records stay as they are, and the metadata file keeps every key."""
    at = tmp_path / "a" / "sessions" / ULID
    at.mkdir(parents=True)
    marker = Marker(seed)
    (at / "metadata.json").write_text(json.dumps(marker.mark(METADATA)))
    records = [json.loads(line) for line in records_of(LOG).splitlines()]
    (at / "session.jsonl").write_text("".join(json.dumps(marker.mark(record)) + "\n" for record in records))
    given = written(tmp_path / "a")
    for _ in range(2):
        await use(f"jsonl:{tmp_path}/a")
        assert given - written(tmp_path / "a") == set()


@pytest.mark.parametrize("first", ["json", "jsonl"])
def test_a_journey_through_every_kind_of_store(run: Run, tmp_path: Path, first: str) -> None:
    """Of messages and of the session: SQLite, a folder of logs, a folder of files, an export, and SQLite again."""
    at = tmp_path / "a" / "sessions"
    at.mkdir(parents=True)
    marker = Marker(3)
    if first == "json":
        document = marker.mark(MOLF, frozenset({"args"}))
        (at / f"{UUID}.json").write_text(json.dumps(document))
    else:
        (at / ULID).mkdir()
        (at / ULID / "metadata.json").write_text(json.dumps(marker.mark(METADATA)))
        records = [json.loads(line) for line in records_of(LOG).splitlines()]
        text = "".join(json.dumps(marker.mark(record)) + "\n" for record in records)
        (at / ULID / "session.jsonl").write_text(text)
    given = written(tmp_path / "a")
    stores = [f"{first}:{tmp_path}/a", f"sqlite:///{tmp_path}/b.db", f"jsonl:{tmp_path}/c", f"json:{tmp_path}/d"]
    stores.append(f"sqlite:///{tmp_path}/e.db")
    whole = ""
    for source, target in itertools.pairwise(stores):
        code, out, err = run("convert", source, target, "--json")
        assert code == 0, err or out
        [session] = json.loads(run("ls", "--json", "--store", target)[1])["sessions"]
        _, whole, _ = run("export", session["id"], "--keep-secrets", "--store", target)
        assert given - marks(whole) == set(), target
    assert given - written(tmp_path / "d") == set()
    (tmp_path / "whole.json").write_text(whole)
    code, out, err = run("import", str(tmp_path / "whole.json"), "--json", "--store", f"sqlite:///{tmp_path}/f.db")
    assert code == 0, err
    session_id = json.loads(out)["id"]
    assert (
        given - marks(run("export", session_id, "--keep-secrets", "--store", f"sqlite:///{tmp_path}/f.db")[1]) == set()
    )


def strip(message: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in message.items() if key not in ("clew", "check")}


@pytest.mark.parametrize("kind", ["json", "jsonl"])
def test_the_file_of_a_copy_is_what_another_program_makes_of_it(run: Run, tmp_path: Path, kind: str) -> None:
    """Keys it removes stay removed and those it changes stay changed, here and in the next copy."""
    at = tmp_path / "a" / "sessions" / f"{UUID}.json"
    at.parent.mkdir(parents=True)
    at.write_text(json.dumps({**MOLF, "theme": "dark", "pane": 1}))
    assert run("convert", f"json:{tmp_path}/a", f"{kind}:{tmp_path}/b")[0] == 0
    [file] = (tmp_path / "b" / "sessions").rglob("*.json")
    document = json.loads(file.read_text())
    assert {key: document[key] for key in ("config", "metadata", "theme", "pane")} == {
        **{key: MOLF[key] for key in ("config", "metadata")},
        "theme": "dark",
        "pane": 1,
    }
    assert document["id"] == (UUID if kind == "json" else file.parent.name)
    del document["theme"]
    file.write_text(json.dumps({**document, "pane": 2}))
    [session] = json.loads(run("ls", "--json", "--store", f"{kind}:{tmp_path}/b")[1])["sessions"]
    assert run("archive", session["id"], "--store", f"{kind}:{tmp_path}/b")[0] == 0
    assert run("convert", f"{kind}:{tmp_path}/b", f"json:{tmp_path}/c")[0] == 0
    [copy] = (tmp_path / "c" / "sessions").rglob("*.json")
    for path in (file, copy):
        found = json.loads(path.read_text())
        assert (found["config"], found.get("theme"), found["pane"]) == (MOLF["config"], None, 2)


async def test_results_that_clew_writes_beside_calls_of_another_program(tmp_path: Path) -> None:
    """Its keys in such a result, and new ones in its own message, stay; and no message is called changed."""
    calls: list[dict[str, Any]] = [{"toolCallId": id_, "toolName": "bash", "args": {}} for id_ in ("c1", "c2")]
    messages = [{"role": "user", "content": "Which?"}, {"role": "assistant", "content": "", "toolCalls": calls}]
    path = tmp_path / "sessions" / f"{UUID}.json"
    path.parent.mkdir()
    path.write_text(json.dumps({**MOLF, "messages": messages}))
    await use(f"json:{tmp_path}")
    document = json.loads(path.read_text())
    results = [one for one in document["messages"] if one["role"] == "tool"]
    assert [one["toolCallId"] for one in results] == ["c1", "c2"]
    path.write_text(json.dumps(Marker(3).mark(document, frozenset({"clew", "check", "args"}))))
    given = marks(path.read_text())
    for _ in range(2):
        await use(f"json:{tmp_path}")
        assert given - written(tmp_path) == set()


def test_keys_in_a_result_stay_with_it_when_an_earlier_call_has_its_result_later() -> None:
    def row(*answered: str) -> MessageRow:
        data: list[dict[str, Any]] = [
            {"type": "tool-ls", "toolCallId": id_, "input": {}, "state": "input-available"}
            | ({"state": "output-available", "output": "x"} if id_ in answered else {})
            for id_ in ("c1", "c2")
        ]
        parts = tuple(PartRow(f"p{place}", place, one, 0, 0) for place, one in enumerate(data))
        return MessageRow("m", "s", "assistant", 0, 0, {}, parts)

    call, result = encode_message(row("c2"))
    read = with_unknown_keys(row("c2"), [call, {**result, "rating": {"stars": 5}}])
    _, *results = encode_message(replace(row("c1", "c2"), metadata=read.metadata))
    assert [(one["toolCallId"], one.get("rating")) for one in results] == [("c1", None), ("c2", {"stars": 5})]
