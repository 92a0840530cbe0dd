"""A turn whose row does not read in full: its session is not stuck, the damage is named, a human may let it stand."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from clew.session.history.check import check, repair
from clew.testing.scripted import Gate, call, say, wait
from tests.integration.http_client import AsgiClient, served, texts

DAMAGES = pytest.mark.parametrize(
    ("change", "what"),
    [
        ("data_json = '{'", "the data of a turn cannot be decoded: unexpected end of data: line 1 column 2 (char 1)"),
        ("status = 'odd'", "its status is invalid: 'odd'"),
        ("turn_type = 'odd'", "its type is invalid: 'odd'"),
    ],
)
pytestmark = pytest.mark.rule("ST-14")


def damage(path: Path, change: str, turn_id: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute(f"UPDATE chat_turns SET {change} WHERE id = ?", (turn_id,)).rowcount == 1


async def named(client: AsgiClient) -> list[tuple[str, str | None]]:
    return [(problem.what, problem.id) for problem in await check(client.engine.store)]


@DAMAGES
@pytest.mark.parametrize("place", [pytest.param(0, marks=pytest.mark.slow), 1])
async def test_a_session_goes_on_with_a_settled_turn_that_is_damaged(
    tmp_path: Path, change: str, what: str, place: int
) -> None:
    """Also after a restart: all is shown, a prompt is answered, check names the row, and repair lets it stand."""
    store = f"sqlite:///{tmp_path}/store.db"
    async with served(say("one"), say("two"), store=store) as client:
        session_id = await client.session()
        for text in ("first", "second"):
            await client.prompt(session_id, text)
            await client.idle(session_id)
        turns = (await client.get(f"/api/sessions/{session_id}/tree")).json()["turns"]
    damage(tmp_path / "store.db", change, turns[place]["id"])
    async with served(say("three"), store=store) as client:
        # Read as failed, the newest turn is what the session is in.
        failed = place == 1 and "status" in change
        assert (await client.status(session_id))["state"] == ("error" if failed else "idle")
        assert (await client.post(f"/api/sessions/{session_id}/abort")).json() == {"aborted": False}
        await client.prompt(session_id, "third")
        await client.idle(session_id)
        told = [texts(message) for message in await client.messages(session_id)]
        assert told == ["first", "one", "second", "two", "third", "three"]
        assert await named(client) == [(f"its row is damaged: {what}", turns[place]["id"])]
        [mended] = await repair(client.engine.store)
        assert (mended.what, mended.id) == (
            f"its row was accepted without the unreadable part: {what}",
            turns[place]["id"],
        )
        assert await named(client) == []
        shown = (await client.get(f"/api/sessions/{session_id}/tree")).json()["turns"][place]
        ended = "failed" if "status" in change else "completed"
        assert shown == {**turns[place], "status": ended, "is_head": False}


@DAMAGES
async def test_a_turn_that_runs_ends_although_its_row_is_damaged(tmp_path: Path, change: str, what: str) -> None:
    """It can be stopped, its session goes on, and others never notice."""
    gate, store = Gate(), f"sqlite:///{tmp_path}/store.db"
    async with served([wait(gate), say("never")], say("theirs"), say("on"), store=store) as client:
        session_id, other = await client.session(), await client.session()
        await client.prompt(session_id, "first")
        await gate.reached.wait()
        turn_id = (await client.get(f"/api/sessions/{session_id}/tree")).json()["open_turn_id"]
        damage(tmp_path / "store.db", change, turn_id)
        await client.prompt(other, "mine")
        await client.idle(other)
        assert (await client.post(f"/api/sessions/{session_id}/abort")).json() == {"aborted": True}
        assert await client.idle(session_id) == {"state": "idle"}
        await client.prompt(session_id, "second")
        await client.idle(session_id)
        assert [texts(message) for message in await client.messages(session_id)][-2:] == ["second", "on"]
        assert await named(client) == [(f"its row is damaged: {what}", turn_id)]


@DAMAGES
async def test_a_turn_that_waits_can_be_stopped_although_its_row_is_damaged(
    tmp_path: Path, change: str, what: str
) -> None:
    """The status says what is the matter and what to do; the next prompt is answered."""
    store = f"sqlite:///{tmp_path}/store.db"
    async with served(call("question", {"question": "?"}), say("on"), store=store) as client:
        session_id = await client.session()
        await client.prompt(session_id, "first")
        assert len((await client.idle(session_id))["waiting"]) == 1
        turn_id = (await client.get(f"/api/sessions/{session_id}/tree")).json()["open_turn_id"]
    damage(tmp_path / "store.db", change, turn_id)
    async with served(say("on"), store=store) as client:
        status = await client.status(session_id)
        # Where nobody can tell any more what it waits for, opening the store has ended it.
        if "turn_type" in change:
            assert (status["state"], len(status["waiting"])) == ("idle", 1)
            assert f"its newest turn is damaged: {what}; answer, abort or send a prompt" in status["message"]
        else:
            assert status == {"state": "idle"}
        assert (await client.post(f"/api/sessions/{session_id}/abort")).status == 202
        await client.prompt(session_id, "second")
        await client.idle(session_id)
        assert [texts(message) for message in await client.messages(session_id)][-2:] == ["second", "on"]
        assert (f"its row is damaged: {what}", turn_id) in await named(client)


async def test_a_session_whose_open_turn_is_gone_says_so_and_what_to_do(tmp_path: Path) -> None:
    """Nothing can be begun on it; it can be deleted, and others go on."""
    store = f"sqlite:///{tmp_path}/store.db"
    async with served(call("question", {"question": "?"}), say("theirs"), store=store) as client:
        session_id, other = await client.session(), await client.session()
        await client.prompt(session_id, "first")
        await client.idle(session_id)
        turn_id = (await client.get(f"/api/sessions/{session_id}/tree")).json()["open_turn_id"]
        client.engine._host.live.forget(session_id)
        with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as connection:
            connection.execute("DELETE FROM chat_turns WHERE id = ?", (turn_id,))
        status = await client.status(session_id)
        what = "the turn that the session points at is missing"
        told = f"this session is damaged: {what}; run `clew check`, then restore a backup or delete it"
        problem = {"code": "row_undecodable", "message": told}
        assert status == {"state": "error", "message": told, "problem": problem}
        for name, body in (("abort", None), ("prompt", {"text": "second"})):
            answer = await client.post(f"/api/sessions/{session_id}/{name}", body)
            assert (answer.code, answer.json()["detail"]) == ("row_undecodable", what)
        await client.prompt(other, "mine")
        await client.idle(other)
        assert (await client.request("DELETE", f"/api/sessions/{session_id}")).status == 204


async def test_a_place_that_is_no_number_is_named_on_the_last_page_too(tmp_path: Path) -> None:
    """A page read turns and places by one statement, and was refused whole; all of the session said what is damaged."""
    store = f"sqlite:///{tmp_path}/store.db"
    async with served(say("one"), store=store) as client:
        session_id = await client.session()
        await client.prompt(session_id, "first")
        await client.idle(session_id)
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as connection:
        assert connection.execute("UPDATE turn_messages SET position = 'x' WHERE position = 1").rowcount == 1
    async with served(store=store) as client:
        load = client.engine.messages
        whole, page = await load(session_id), await load(session_id, limit=50)
        assert (page, [part["type"] for part in page[-1].parts]) == (whole, ["data-damaged"])
