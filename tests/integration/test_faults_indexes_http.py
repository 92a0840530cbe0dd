"""A damaged index over HTTP: nothing is done twice, nothing that waits disappears, nothing is left out of a list."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from clew.testing.scripted import call, say
from tests.integration.http_client import AsgiClient, served
from tests.integration.sqlite_files import path
from tests.integration.test_faults_indexes import damage
from tests.rig.flip import index_pages

__all__ = ["path"]

pytestmark = pytest.mark.rule("ST-14")
EVENT = {"source": "github", "source_id": "42", "type": "push", "text": "look", "routing": {"key": "door"}}


def url(path: Path) -> str:
    return f"sqlite:///{path}"


async def test_a_prompt_that_is_sent_again_is_not_answered_again(path: Path) -> None:
    prompt = {"text": "hello", "message_id": "client-1"}
    async with served(say("hi"), store=url(path)) as client:
        session = await client.session()
        sent = (await client.post(f"/api/sessions/{session}/prompt", prompt)).json()
        await client.idle(session)
        known = await client.messages(session)
    damage(path, "chat_messages_by_client_id", "client-1")
    async with served(store=url(path)) as client:
        again = await client.post(f"/api/sessions/{session}/prompt", prompt)
        assert (again.status, again.json()) == (202, sent)
        assert await client.messages(session) == known


@pytest.mark.parametrize(
    ("index", "entry"),
    [("ledger_events_once", "github42"), ("ledger_events_by_source", "github"), ("ledger_events_by_session", None)],
)
async def test_an_event_is_taken_once_and_the_ledger_lists_it(path: Path, index: str, entry: str | None) -> None:
    async with served(say("done"), store=url(path)) as client:
        taken = (await client.post("/api/events", EVENT)).json()
        await client.idle(taken["session_id"])
        known = await ledger(client, taken["session_id"])
    damage(path, index, entry or taken["session_id"])
    async with served(store=url(path)) as client:
        assert await ledger(client, taken["session_id"]) == known
        again = await client.post("/api/events", EVENT)
        assert (again.status, again.json()) == (202, taken)
        assert await ledger(client, taken["session_id"]) == known


async def ledger(client: AsgiClient, session: str) -> list[Any]:
    filters = ("", "?source=github", f"?session={session}")
    return [(await client.get(f"/api/events/ledger{one}")).json() for one in filters]


@pytest.mark.parametrize(
    "index",
    ["chat_parts_by_session", "chat_parts_by_message", "chat_parts_open_calls", "sqlite_autoindex_chat_parts_1"],
)
@pytest.mark.parametrize("place", range(4))
async def test_a_call_that_waits_is_shown_and_answered(path: Path, index: str, place: int) -> None:
    """No seal covers what an open turn has written so far; whichever of its entries is damaged."""
    calls = [call("bash", {"command": f"echo {n}"}, id=f"call-{n}") for n in range(2)]
    async with served(calls, store=url(path)) as client:
        session = await client.session(workspace_root=str(path.parent))
        await client.prompt(session, "go")
        status = await client.idle(session)
        known = {view: await client.messages(session, view) for view in ("all", "visible")}
    damage_entry(path, index, place)
    async with served(say("done"), store=url(path)) as client:
        assert {view: await client.messages(session, view) for view in known} == known
        assert await client.status(session) == status
        for one in status["waiting"]:
            answer = await client.post(f"/api/sessions/{session}/approvals/{one['approval_id']}", {"decision": "deny"})
            assert answer.status == 200, answer
        assert await client.idle(session) == {"state": "idle"}


def damage_entry(path: Path, index: str, place: int) -> None:
    """Flip a bit of the first letters of an entry, counted from the newest."""
    pages, size = index_pages(path)
    [page] = pages[index]
    data = bytearray(path.read_bytes())
    start = (page - 1) * size
    count = int.from_bytes(data[start + 3 : start + 5], "big")
    cell = start + 8 + 2 * (count - 1 - place % count)
    at = start + int.from_bytes(data[cell : cell + 2], "big")
    data[at + 12] ^= 1
    path.write_bytes(data)


def damage_page(path: Path, index: str, byte: int) -> None:
    pages, size = index_pages(path)
    data = bytearray(path.read_bytes())
    data[(pages[index][0] - 1) * size + byte] ^= 2
    path.write_bytes(data)


@pytest.mark.parametrize("byte", [4, 8, 9])
async def test_a_page_of_an_index_that_does_not_read_is_built_again(path: Path, byte: int) -> None:
    """The number of its entries, or where the first of them is: the list reads as before."""
    async with served(store=url(path)) as client:
        for number in range(3):
            await client.session(title=f"{number}", workspace_root=str(path.parent))
        query = f"/api/sessions?workspace={path.parent}"
        known = (await client.get(query)).json()
        assert len(known["sessions"]) == 3
    damage_page(path, "chat_sessions_by_workspace", byte)
    async with served(store=url(path)) as client:
        assert (await client.get(query)).json() == known


PART_INDEXES = ["chat_parts_by_message", "sqlite_autoindex_chat_parts_1"]


async def make_harbours(path: Path) -> None:
    """Store a session of two turns; each part of it says "harbour", and nothing has searched for it yet."""
    asked = [call("bash", {"command": "echo harbour 港"}, id="call-1")]
    async with served(asked, say("a harbour 港"), say("the harbour 港"), store=url(path)) as client:
        session = await client.session(workspace_root=str(path.parent))
        await client.prompt(session, "which harbour 港?")
        [wait] = (await client.idle(session))["waiting"]
        await client.post(f"/api/sessions/{session}/approvals/{wait['approval_id']}", {"decision": "once"})
        await client.idle(session)
        await client.prompt(session, "that harbour 港?")
        await client.idle(session)


async def hits(path: Path, query: str = "harbour") -> Any:
    async with served(store=url(path)) as client:
        answer = await client.get(f"/api/search?q={quote(query)}&limit=100")
        assert answer.status == 200, answer
        return answer.json()


@pytest.mark.parametrize("index", PART_INDEXES)
@pytest.mark.parametrize("place", range(7))
async def test_the_first_search_finds_what_a_damaged_index_hides(path: Path, index: str, place: int) -> None:
    """Whichever of its entries is damaged; parts are compared with their seals as they are indexed."""
    await make_harbours(path)
    unharmed = path.with_name("unharmed.db")
    shutil.copy(path, unharmed)
    known = await hits(unharmed)
    assert len(known["hits"]) == 5
    damage_entry(path, index, place)
    assert await hits(path) == known
    assert await hits(path) == known


@pytest.mark.parametrize("query", ["harbour", "港"])
@pytest.mark.parametrize("index", PART_INDEXES)
@pytest.mark.parametrize("place", range(7))
async def test_a_later_search_finds_what_a_damaged_index_hides(path: Path, index: str, place: int, query: str) -> None:
    await make_harbours(path)
    known = await hits(path, query)
    assert len(known["hits"]) == 5
    damage_entry(path, index, place)
    assert await hits(path, query) == known


@pytest.mark.parametrize("index", PART_INDEXES)
@pytest.mark.parametrize("byte", [8, 9])
async def test_a_search_reads_past_a_page_of_an_index_that_does_not_read(path: Path, index: str, byte: int) -> None:
    await make_harbours(path)
    unharmed = path.with_name("unharmed.db")
    shutil.copy(path, unharmed)
    damage_page(path, index, byte)
    assert await hits(path) == await hits(unharmed)


async def test_a_search_names_a_message_that_lost_a_part(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its row is gone, so no index can be rebuilt from it: the log names the message, and the rest is found."""
    await make_harbours(path)
    unharmed = path.with_name("unharmed.db")
    shutil.copy(path, unharmed)
    known = (await hits(unharmed))["hits"]
    lost = known[-1]
    delete_part(path, lost["part_id"])
    caplog.clear()
    found = (await hits(path))["hits"]
    assert [one["part_id"] for one in found] == [one["part_id"] for one in known if one != lost]
    warnings = [record.getMessage() for record in caplog.records if record.name == "clew.store"]
    assert warnings == [f"searches may miss damaged messages: {lost['message_id']}"]


async def test_a_part_that_another_program_deletes_after_a_search_is_not_looked_for_again(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await make_harbours(path)
    known = (await hits(path))["hits"]
    delete_part(path, known[-1]["part_id"])
    for _ in range(2):
        caplog.clear()
        found = (await hits(path))["hits"]
        assert {one["part_id"] for one in found} == {one["part_id"] for one in known[:-1]}
    assert not [record for record in caplog.records if "chat_parts" in record.getMessage()]


def delete_part(path: Path, part_id: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM chat_parts WHERE id = ?", (part_id,))
