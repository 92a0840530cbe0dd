"""Damage as a user meets it: shown for what it is, sent to no model, and let stand only by a human's word."""

from __future__ import annotations

import base64
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clew.errors import ClewError, InvalidId, MessageNotFound, RowUndecodable
from clew.session.history.check import check
from clew.testing.scenario import Scenario
from clew.testing.scripted import FakeProviders, ScriptedModel, call, say, then
from clew.transcript.damage import STUB
from tests.integration.http_client import served
from tests.integration.test_cli_history import Say, messages, talk
from tests.integration.test_cli_history import say as say_fixture

from .conftest import Open
from .conversations import echo, summarise

pytestmark = pytest.mark.rule("ST-14")

command = say_fixture
CHANGED = "it was changed after it had settled: its seal does not match"


def write(path: Path, statement: str, *values: Any) -> None:
    """Change rows behind clew's back, as a broken disk does: nothing that hangs on them is told."""
    with closing(sqlite3.connect(path / "store.db", isolation_level=None)) as connection:
        assert connection.execute(statement, values).rowcount > 0


def reword(path: Path, before: str, after: str) -> None:
    write(
        path,
        "UPDATE chat_parts SET data_json = replace(data_json, ?, ?) WHERE instr(data_json, ?)",
        before,
        after,
        before,
    )


def sent(model: ScriptedModel) -> list[str]:
    """Every text of the newest request."""
    return [str(part.get("text")) for message in model.requests[-1].messages for part in message.parts]


async def test_over_http_a_changed_answer_is_shown_as_damaged_and_sent_as_a_stub_until_it_is_accepted(
    tmp_path: Path,
) -> None:
    """The rest of the session goes on; what a human has accepted is sent as it is, and says so."""
    store = f"sqlite:///{tmp_path}/store.db"
    async with served(say("the gate is red"), store=store) as client:
        session = await client.session()
        await client.chat(session, "which gate?")
        answer = (await client.messages(session))[1]
    reword(tmp_path, "gate is red", "gate is rad")
    model = ScriptedModel([say("well"), say("so")])
    async with served(store=store, providers=FakeProviders(model)) as client:
        shown = (await client.messages(session))[1]
        mark = {"type": "data-damaged", "data": {"message_id": answer["id"], "reason": CHANGED}}
        assert (shown["metadata"]["damaged"], shown["parts"][-1]) == (CHANGED, mark)
        assert [part.get("text") for part in shown["parts"]] == [None, "the gate is rad", None]
        await client.chat(session, "and now?", "u2")
        assert sent(model) == ["which gate?", STUB, "and now?"]
        path = f"/api/sessions/{session}/messages/{answer['id']}/accept"
        accepted = (await client.post(path, {})).json()
        assert accepted["metadata"]["damage_accepted"]["damage"] == CHANGED
        assert (await client.post(path, {})).status == 409
        await client.chat(session, "once more?", "u3")
        assert sent(model)[1:3] == ["None", "the gate is rad"]
        assert await check(client.engine.store) == []


async def test_a_message_to_accept_is_named_by_either_id_and_what_is_no_id_is_no_damage(tmp_path: Path) -> None:
    """In the library and over HTTP: the client's own id finds it, one nobody has is not found, another is refused."""
    store = f"sqlite:///{tmp_path}/store.db"
    async with served(say("a"), say("b"), store=store) as client:
        session = await client.session()
        await client.chat(session, "first", "u1")
        await client.chat(session, "second", "u2")
    reword(tmp_path, '"text":"first"', '"text":"fyrst"')
    reword(tmp_path, '"text":"second"', '"text":"sekond"')
    async with served(store=store) as client:
        wrongs: list[tuple[str, str, type[ClewError], int]] = [
            ("\ud800", "%ED%A0%80", InvalidId, 400),
            ("a\tb", "a%09b", InvalidId, 400),
            ("nobody", "nobody", MessageNotFound, 404),
        ]
        for id_, in_path, error, status in wrongs:
            with pytest.raises(error):
                await client.engine.accept_message(session, id_)
            assert (await client.post(f"/api/sessions/{session}/messages/{in_path}/accept", {})).status == status
        accepted = await client.engine.accept_message(session, "u1")
        assert accepted.metadata["damage_accepted"]["damage"] == CHANGED
        answer = await client.post(f"/api/sessions/{session}/messages/u2/accept", {})
        assert answer.json()["metadata"]["damage_accepted"]["damage"] == CHANGED
        assert await check(client.engine.store) == []


def test_on_the_command_line_damage_is_told_and_accepted(command: Say, tmp_path: Path) -> None:
    """What is printed says so, check names it and ends with 7, and with the word given all is well."""
    session = talk("what is this?")
    answer = messages(session)[1]
    write(
        tmp_path,
        "UPDATE chat_parts SET data_json = json_set(data_json, '$.text', 'no') WHERE message_id = ? AND type = 'text'",
        answer.id,
    )
    told = f"[damaged: {CHANGED}; to accept it as it is: clew check --accept {answer.id}]"
    assert f"assistant: {told}" in command("show", session)[1].splitlines()
    assert f"**Damaged: {CHANGED}**" in command("export", session, "--format", "md")[1]
    code, out, _ = command("check")
    assert (code, out.splitlines()) == (7, [f"{session} {answer.id}: {CHANGED}", "1 sessions, 1 problems"])
    assert command("check", "--accept", "msg_none")[0] == 2
    assert command("check", "--accept", answer.id)[0] == 0
    assert command("check")[0] == 0


LOST = [
    pytest.param("DELETE FROM message_seals WHERE message_id = ?", 1, id="the seal"),
    pytest.param("DELETE FROM chat_messages WHERE id = ?", 1, id="the message"),
    pytest.param("UPDATE chat_messages SET role = 'assistent' WHERE id = ?", 1, id="the role"),
    pytest.param("DELETE FROM chat_parts WHERE message_id = ? AND type = 'text'", 1, id="a part"),
    pytest.param("UPDATE chat_parts SET \"index\" = 7 WHERE message_id = ? AND type = 'text'", 1, id="a place"),
    pytest.param(
        "UPDATE chat_turns SET messages = 3 WHERE id IN (SELECT turn_id FROM turn_messages WHERE message_id = ?)",
        2,
        id="a link",
    ),
]


@pytest.mark.parametrize(("statement", "place"), LOST)
async def test_whatever_of_a_message_is_lost_it_is_shown_as_damaged_and_the_session_goes_on(
    open_scenario: Open, tmp_path: Path, statement: str, place: int
) -> None:
    """Not a word of it is sent, nobody is told that it is whole, and the judge names it."""
    async with open_scenario(echo()) as s:
        await s.begin()
        await s.prompt("first")
        await s.prompt("second")
        shown = await s.engine.messages(s.id)
    write(tmp_path, statement, shown[1].id)
    async with open_scenario(echo()) as s:
        await s.begin()
        found = await s.engine.messages(s.id)
        assert [message for message in found if "damaged" not in message.metadata] == [
            message for message in shown if message.id != found[place].id
        ]
        assert found[place].parts[-1]["type"] == "data-damaged"
        await s.prompt("third")
        assert STUB in sent(s.model)
        assert await s.check() != []


async def test_a_session_that_lost_its_place_is_not_shown_as_an_empty_one(open_scenario: Open, tmp_path: Path) -> None:
    """Where the head is gone the reflog still knows of it; where a turn is gone, the turns below it do."""
    async with open_scenario(echo()) as s:
        await s.begin()
        await s.prompt("first")
        await s.prompt("second")
        turn_id = (await s.engine.messages(s.id))[0].metadata["turn_id"]
    write(tmp_path, "UPDATE session_state SET head_turn_id = NULL")
    async with open_scenario(echo()) as s:
        await s.begin()
        with pytest.raises(RowUndecodable, match="head differs from its last move"):
            await s.engine.messages(s.id)
    write(
        tmp_path,
        "UPDATE session_state SET head_turn_id = (SELECT to_turn_id FROM head_moves ORDER BY seq DESC LIMIT 1)",
    )
    write(tmp_path, "DELETE FROM chat_turns WHERE id = ?", turn_id)
    async with open_scenario(echo()) as s:
        await s.begin()
        with pytest.raises(RowUndecodable, match="the parent of this turn is missing"):
            await s.engine.messages(s.id)


async def test_a_damaged_message_is_not_sealed_anew_when_its_open_call_is_ended(
    open_scenario: Open, tmp_path: Path
) -> None:
    """Opening a store ends calls that were left open; that made changed words pass for what was stored."""
    async with open_scenario([then(say("hm"), call("todo", {"todos": []})), say("done")]) as s:
        await s.begin()
        await s.prompt("go")
        message_id = (await s.engine.messages(s.id))[1].id
    reword(tmp_path, '"text":"hm"', '"text":"HM"')
    open_again = (
        "UPDATE chat_parts SET tool_state = 'input-available',"
        " data_json = json_set(data_json, '$.state', 'input-available') WHERE message_id = ? AND tool_call_id NOT NULL"
    )
    write(tmp_path, open_again, message_id)
    for _ in range(2):
        async with open_scenario([]) as s:
            await s.begin()
            assert (await s.engine.messages(s.id))[1].metadata["damaged"] == CHANGED


async def test_a_damaged_summary_is_not_sent_and_what_it_stood_for_comes_back(
    open_scenario: Open, tmp_path: Path
) -> None:
    """The originals are all there: they are shown and sent again until the summary was accepted."""

    async def told(s: Scenario) -> list[str]:
        view = await s.engine.messages(s.id, view="model")
        return [str(part.get("text")) for message in view for part in message.parts if part["type"] != "step-start"]

    async with open_scenario(echo()) as s:
        await s.begin()
        for word in ("one", "two"):
            await s.prompt(word)
        kept = (await s.engine.messages(s.id))[2].id
        _, marker_id = await summarise(s, kept, "what was one")
        assert [text for text in await told(s) if text == "one"] == []
    reword(tmp_path, "what was one", "what was two")
    async with open_scenario(echo()) as s:
        await s.begin()
        assert await told(s) == ["one", "re one", "two", "re two", STUB]
        await s.engine.accept_message(s.id, marker_id)
        summary, *rest = await told(s)
        assert ("what was two" in summary, rest) == (True, ["two", "re two"])


async def test_what_is_exported_imported_and_found_still_says_that_it_is_damaged(
    open_scenario: Open, tmp_path: Path
) -> None:
    """An import seals what it writes; that does not make changed words pass for what was stored."""
    async with open_scenario([say("a")]) as s:
        await s.begin()
        await s.prompt("first")
    reword(tmp_path, '"text":"first"', '"text":"fyrst"')
    async with open_scenario(echo()) as s:
        await s.begin()
        document = await s.engine.export(s.id)
        await s.engine.delete_session(s.id)
        again = await s.engine.import_session(document)
        [prompt, _] = await s.engine.messages(again.id)
        assert prompt.metadata["damaged"] == CHANGED
        assert (await s.engine.search("fyrst")).hits[0].snippet.startswith("[damaged]")


async def test_a_branch_of_a_damaged_message_is_damaged_too(open_scenario: Open, tmp_path: Path) -> None:
    """A copy takes the seal along, not a new one."""
    async with open_scenario(echo()) as s:
        await s.begin()
        await s.prompt("first")
        await s.prompt("second")
    reword(tmp_path, "re first", "re fyrst")
    async with open_scenario(echo()) as s:
        await s.begin()
        shown = await s.engine.messages(s.id)
        child = await s.engine.branch(s.id, shown[3].id)
        copied = await s.engine.messages(child.id)
        assert [message.metadata.get("damaged") for message in copied] == [None, CHANGED, None, None]


async def test_a_damaged_system_prompt_proves_nothing_and_is_whole_again_once_it_is_used(
    open_scenario: Open, tmp_path: Path
) -> None:
    """The evidence of a step is not shown with words that nobody sent."""
    async with open_scenario(echo()) as s:
        await s.begin()
        await s.prompt("first")
        turn_id = (await s.engine.messages(s.id))[0].metadata["turn_id"]
        told = await s.engine.request(turn_id)
    write(tmp_path, "UPDATE system_prompts SET body = replace(body, 'You are', 'You ere')")
    async with open_scenario(echo()) as s:
        await s.begin()
        report = await s.engine.request(turn_id)
        assert (told.proven, report.proven, report.prompt) == (True, False, ())
        assert [problem.what for problem in await s.check()] == ["a system prompt does not match its digest"]
        await s.prompt("second")
        assert await s.engine.request(turn_id) == told


async def test_a_damaged_blob_is_given_to_nobody_and_a_missing_one_is_named(tmp_path: Path) -> None:
    """Not over HTTP, not to the model; the judge names both."""
    store = f"sqlite:///{tmp_path}/store.db"
    url = "data:text/plain;base64," + base64.b64encode(b"the thread is red").decode()
    file = {"type": "file", "mediaType": "text/plain", "url": url}
    async with served(say("I see"), store=store) as client:
        session = await client.session()
        await client.post(f"/api/sessions/{session}/prompt", {"parts": [{"type": "text", "text": "look"}, file]})
        await client.idle(session)
        [prompt, _] = await client.messages(session)
    sha256 = prompt["parts"][1]["url"].removeprefix("/api/blobs/")
    write(tmp_path, "UPDATE blobs SET data = CAST('the thread is rad' AS BLOB)")
    model = ScriptedModel([say("well")])
    async with served(store=store, providers=FakeProviders(model)) as client:
        answer = await client.get(f"/api/blobs/{sha256}")
        assert (answer.status, answer.json()["code"]) == (500, "row_undecodable")
        await client.chat(session, "and now?")
        assert sent(model)[:2] == [
            "look",
            "[a file of type text/plain is missing or damaged where it is stored, and is left out.]",
        ]
        problems = [(problem.what, problem.id) for problem in await check(client.engine.store)]
        assert problems == [
            ("a blob does not match its digest", sha256),
            (f"its file {sha256} is damaged", prompt["id"]),
        ]
    write(tmp_path, "DELETE FROM blobs")
    async with served(store=store) as client:
        assert [(problem.what, problem.id) for problem in await check(client.engine.store)] == [
            (f"its file {sha256} is missing", prompt["id"])
        ]
