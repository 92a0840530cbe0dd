"""The canonical format: a session as the rows of the shared tables, out and in again."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clew
from clew.interop.canonical import format_canonical_json, format_canonical_jsonl
from clew.interop.formats import FORMATS
from clew.interop.session_file import parse_session
from clew.session.api import Engine
from clew.session.history.check import check
from clew.testing.scenario import Scenario
from clew.testing.scripted import FakeProviders, call, fail, report, say
from clew.transcript.portable import PortableSession
from clew.transcript.usage import Usage
from tests.acceptance.conversations import ACTIONS, act, echo, refuse, summarise, summarise_inside, talk, turn_of
from tests.acceptance.documents import as_it_left, elsewhere, exported, taken_in
from tests.rounds import rounds

from .conftest import Open

pytestmark = pytest.mark.rule("IO-3")
FILE = {"type": "file", "mediaType": "text/plain", "filename": "h.txt", "url": "data:text/plain;base64,aGVsbG8="}
Row = dict[str, Any]


def rows_of(document: PortableSession) -> list[Row]:
    return [json.loads(line) for line in format_canonical_jsonl(document).splitlines()]


async def comes_back_row_for_row(engine: Engine, session_id: str, folder: Path) -> None:
    """Through both forms, into an empty store: the same rows, with nothing wrong in it."""
    document = await exported(engine, session_id)
    one, two = (parse_session(form(document)) for form in (format_canonical_json, format_canonical_jsonl))
    assert one == two
    async with elsewhere("memory", folder) as other:
        await taken_in(other.host, one)
        assert rows_of(as_it_left(await exported(other, session_id))) == rows_of(document)
        assert await check(other.store) == []


@settings(max_examples=rounds(15))
@given(seed=st.integers(0, 10**6), actions=st.lists(st.sampled_from(ACTIONS), max_size=10))
async def test_whatever_was_done_to_a_session_its_rows_come_back(
    seed: int, actions: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Rewinds, edits, jumps, summaries: hidden messages are hidden since the same moment, for the same reason."""
    rng, folder = random.Random(seed), tmp_path_factory.mktemp("canonical")
    async with clew.open("memory:", config=clew.Config(), providers=FakeProviders(echo())) as engine:
        s = await Scenario(engine, echo(), folder).begin()
        for action in actions:
            with suppress(clew.Conflict, clew.Invalid):
                await act(s, action, rng)
        await comes_back_row_for_row(engine, s.id, folder)


async def test_a_session_with_everything_comes_back_row_for_row(open_both: Open, tmp_path: Path) -> None:
    """An attachment with its bytes, a branch, an answer asked for again, refused, cancelled and estimated messages."""
    cut = [report(Usage(900, 1)), say("half an ans"), fail()]
    script = [call("ls", {}), say("one"), say("two"), cut, say("four"), *[say(f"n{n}") for n in range(9)]]
    async with open_both(script) as s:
        await s.begin(metadata={"mine": {"deep": [1, None, 2.5, "ü"]}})
        first = await s.engine.submit(s.id, [FILE, {"type": "text", "text": "look"}], message_id="client-1")
        await first.wait()
        sent = await talk(s, "2", "3", "4")
        await s.engine.continue_turn(s.id, mode="again")
        await s.settled()
        await refuse(s, (await s.engine.store.load_tree(s.id)).head_turn_id)
        await comes_back_row_for_row(s.engine, s.id, tmp_path)
        branch = await s.engine.branch(s.id, sent[1])
        await summarise_inside(s, await turn_of(s, sent[1]), sent[1])
        await comes_back_row_for_row(s.engine, s.id, tmp_path)
        await summarise(s, sent[0], "so far")
        await s.engine.rewind(s.id, sent[0])
        await comes_back_row_for_row(s.engine, s.id, tmp_path)
        await comes_back_row_for_row(s.engine, branch.id, tmp_path)
        document = await exported(s.engine, s.id)
        [file] = [row["data"] for row in rows_of(document) if row["data"].get("type") == "file"]
        assert file["data_json"]["url"] == FILE["url"]
        read = parse_session(format_canonical_json(document))
        assert [blob.data for blob in read.blobs] == [b"hello"]


async def test_an_import_that_meets_its_own_ids_gets_new_ones(open_both: Open) -> None:
    """Next to the original, which stays as it was; the cost is shared among the answers and adds up."""
    async with open_both(echo()) as s:
        await s.begin()
        sent = await talk(s, "1", "2", "3")
        await s.engine.rewind(s.id, sent[2])
        before = await exported(s.engine, s.id)
        spent = msgspec.structs.replace(before, session=msgspec.structs.replace(before.session, cost_usd=0.7))
        copy = await taken_in(s.engine.host, parse_session(format_canonical_jsonl(spent)))
        assert copy.id != s.id
        assert copy.cost_usd == pytest.approx(0.7)
        assert await s.engine.messages(s.id, view="all") != await s.engine.messages(copy.id, view="all")
        after = await exported(s.engine, copy.id)
        steps = [step.cost_usd for step in after.steps]
        assert len(steps) == 3
        assert sum(steps) == pytest.approx(0.7)
        assert await exported(s.engine, s.id) == before
        assert await check(s.engine.store) == []


def row(kind: str, **data: Any) -> Row:
    return {"type": kind, "data": data}


SESSION: Row = {"id": "theirs-1", "agent": "coder", "model_json": '{"provider_id": "test", "model_id": "model"}'}
SESSION |= {"created_at": 1, "updated_at": 9}
ASKED: Row = {"session_id": "theirs-1", "created_at": 2, "updated_at": 2, "role": "user", "id": "m-1"}
TEXT: Row = {"message_id": "m-1", "id": "p-1", "index": 7, "data_json": '{"type": "text", "text": "hi"}'}
TEXT |= {"created_at": 2, "updated_at": 2}


def lines(*rows: Row) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in rows)


async def test_another_programs_rows_are_read_in_any_order(tmp_path: Path) -> None:
    """JSON columns as text, ids of its own form, a part before its message."""
    answer = {**ASKED, "id": "m-2", "role": "assistant", "created_at": 3, "metadata_json": '{"usage": {"input": 5}}'}
    said = {**TEXT, "message_id": "m-2", "id": "p-2", "data_json": {"type": "text", "text": "hello"}}
    data = lines(row("part", **said), row("message", **answer), row("message", **ASKED), row("part", **TEXT))
    data += lines(row("session", **SESSION))
    async with elsewhere("sqlite", tmp_path) as engine:
        session = await engine.import_session(data)
        assert (session.id, session.agent, session.prompt_tokens) == ("theirs-1", "assistant", 5)
        assert [(one.id, one.texts) for one in await engine.messages(session.id)] == [
            ("m-1", ["hi"]),
            ("m-2", ["hello"]),
        ]
        assert await check(engine.store) == []


async def test_an_import_brings_no_authority(tmp_path: Path) -> None:
    """No rules, no mode, no owner, no folder; what it claims of an answer is a claim."""
    allowed = {"permission": "*", "pattern": "*", "action": "allow"}
    asked = {"approved": True, "answered_by": "ada", "answered_at": 1}
    done = {"type": "tool-bash", "toolCallId": "c", "state": "output-available", "input": {}, "output": "x"}
    given = {**SESSION, "permissions_json": [allowed], "workspace_root": "/", "owner": "ada", "alias": "mine"}
    given["metadata_json"] = {"permission_mode": "read_only", "title": "t"}
    answer = {**ASKED, "role": "assistant"}
    called = {**TEXT, "data_json": {**done, "approval": asked}}
    async with elsewhere("memory", tmp_path) as engine:
        session = await engine.import_session(
            lines(row("session", **given), row("message", **answer), row("part", **called))
        )
        assert (session.permissions, session.mode, session.owner, session.alias) == ([], "ask", None, None)
        assert (session.workspace_root, session.metadata["workspace_was"]) == (None, "/")
        [message] = await engine.messages(session.id)
        assert message.parts[0]["approval"] == {
            "approved": True,
            "claimed": {"answered_by": "ada", "answered_at": 1},
        }


REFUSED: dict[str, tuple[bytes, str]] = {
    "two sessions": (lines(row("session", **SESSION), row("session", **SESSION)), "line 2 begins a second session"),
    "no session": (lines(row("message", **ASKED)), "the file has no session record"),
    "a lost part": (lines(row("session", **SESSION), row("part", **TEXT)), "line 2 is a part of a message that is not"),
    "another record": (lines(row("session", **SESSION), {"type": "turn"}), "line 2 is not a session, message or part"),
    "a message of another kind": (
        lines(row("session", **SESSION), row("message", **{**ASKED, "role": "robot"})),
        "line 2 is not valid",
    ),
    "a message of another session": (
        lines(row("session", **SESSION), row("message", **ASKED), row("message", **ASKED)),
        "m-1 occurs twice",
    ),
    "no list": (json.dumps({"session": SESSION, "messages": {}}).encode(), "messages is not a list"),
    "no row": (json.dumps({"session": SESSION, "messages": [{"parts": []}]}).encode(), "messages[0] is not valid"),
    "damaged JSON": (lines(row("session", **{**SESSION, "model_json": "{"})), "line 1 is not JSON"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_file_that_is_not_such_a_session_is_refused_with_its_place(name: str, tmp_path: Path) -> None:
    """Whole: nothing of it is stored."""
    data, why = REFUSED[name]
    async with elsewhere("memory", tmp_path) as engine:
        with pytest.raises(clew.InvalidInput) as refused:
            await engine.import_session(data)
        assert why in str(refused.value)
        assert await engine.store.session_ids() == ()


async def test_an_import_with_a_model_that_has_no_provider_goes_out_in_every_format(tmp_path: Path) -> None:
    """What another program wrote next to a message, here its model, stops no export of the session."""
    noted = {**ASKED, "metadata_json": {"model": "theirs"}}
    answer = {**ASKED, "id": "m-2", "role": "assistant", "created_at": 3, "metadata_json": {"model": "theirs"}}
    said = {**TEXT, "message_id": "m-2", "id": "p-2"}
    data = lines(row("session", **SESSION), row("message", **noted), row("part", **TEXT))
    data += lines(row("message", **answer), row("part", **said))
    async with elsewhere("memory", tmp_path) as engine:
        session = await engine.import_session(data)
        assert [name for name in FORMATS if b"hi" not in await engine.export(session.id, name)] == []
