"""Sessions as files over HTTP, and the search that finds what was said in them."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clew.fronts.http.request import MAX_CHAT_BODY
from clew.store.sql.sqlite import base
from clew.testing.scripted import say
from tests.integration.http_client import AsgiClient, served, texts
from tests.integration.http_history import NOBODY, refused, talked

SECRET = "sk-ant-" + "a1B2c3D4" * 6


async def said(client: AsgiClient, session_id: str) -> list[str]:
    return [texts(message) for message in await client.messages(session_id)]


@pytest.mark.parametrize("form", ["json", "jsonl"])
async def test_an_exported_session_comes_back_as_one_that_says_the_same(form: str) -> None:
    """Out as a file with a name, in as a session of its own that goes on."""
    async with served(say("one"), say("two"), say("three")) as client:
        session_id, _ = await talked(client, "first", "second")
        out = await client.get(f"/api/sessions/{session_id}/export?format={form}")
        assert out.status == 200
        assert out.headers["content-disposition"] == f'attachment; filename="{session_id}.{form}"'
        assert out.headers["content-security-policy"] == "default-src 'none'; sandbox"
        made = await client.post("/api/import", out.body)
        assert made.status == 201
        other = made.json()["id"]
        assert other != session_id
        assert await said(client, other) == ["first", "one", "second", "two"]
        await client.prompt(other, "third")
        await client.idle(other)
        assert (await said(client, other))[-1] == "three"
        assert len(await said(client, session_id)) == 4


async def test_pages_for_reading_hold_the_text_and_no_secret() -> None:
    """What looks like a key is struck out, unless somebody asks for it."""
    async with served(say("yes")) as client:
        session_id, _ = await talked(client, f"my key is {SECRET}")
        for form, kind in (("md", "text/markdown; charset=utf-8"), ("html", "text/html; charset=utf-8")):
            page = await client.get(f"/api/sessions/{session_id}/export?format={form}")
            assert (page.headers["content-type"], b"my key is" in page.body) == (kind, True)
            assert SECRET.encode() not in page.body
            bare = await client.get(f"/api/sessions/{session_id}/export?format={form}&redact=false")
            assert SECRET.encode() in bare.body


@pytest.mark.slow
async def test_an_export_with_many_files_comes_in_again(tmp_path: Path) -> None:
    """Each message keeps to the limits of one; together they are larger than any other body may be."""
    files = [base64.b64encode(b"\xff\xd8\xff" + bytes([0xFF, n]) * 4_500_000 + b"\xff\xd9").decode() for n in range(6)]
    async with served(*[say("seen")] * 3, store=f"sqlite:///{tmp_path}/s.db") as client:
        session_id = (await client.post("/api/sessions", {})).json()["id"]
        for pair in (files[:2], files[2:4], files[4:]):
            parts = [
                {"type": "file", "mediaType": "image/jpeg", "url": f"data:image/jpeg;base64,{one}"} for one in pair
            ]
            body = {"id": session_id, "messages": [{"role": "user", "parts": parts}]}
            assert (await client.post("/api/chat", body)).status == 200
        out = await client.get(f"/api/sessions/{session_id}/export")
        assert len(out.body) > MAX_CHAT_BODY
        assert (await client.post("/api/import", out.body)).status == 201


@pytest.mark.parametrize(
    "path", [f"/api/sessions/{NOBODY}/export", "/api/sessions/../export", "/api/search", "/api/search?q=%00"]
)
async def test_what_cannot_be_exported_or_looked_for_is_told(path: str) -> None:
    """404 for nobody, 400 and 422 for what makes no sense."""
    async with served(say("x")) as client:
        answer = await client.get(path)
        assert answer.status in (400, 404, 422)
        assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"{}", b"null", b'{"format": "clew-session"}', b"\xff\xfe", b"{}\n{}\n"]
)
async def test_a_file_that_clew_did_not_write_is_refused_whole(body: bytes) -> None:
    """Nothing is written of it."""
    async with served(say("x")) as client:
        answer = await client.post("/api/import", body)
        assert answer.status in (400, 422), answer
        assert (await client.get("/api/sessions")).json()["sessions"] == []


async def test_a_search_lands_on_the_message_also_on_a_hidden_one(tmp_path: Path) -> None:
    """Text of every session; a rewound message is found and marked."""
    async with served(say("the minotaur sleeps"), say("two"), store=f"sqlite:///{tmp_path}/s.db") as client:
        session_id, [user, _] = await talked(client, "where is the thread?")
        await client.post(f"/api/sessions/{session_id}/rewind", {"message_id": user["id"], "mode": "edit"})
        found = await client.get("/api/search?q=minotaur%20sle")
        assert found.status == 200
        [hit] = found.json()["hits"]
        assert (hit["session_id"], hit["hidden"], hit["role"]) == (session_id, True, "assistant")
        assert hit["snippet"] == "the **minotaur** **sleeps**"
        assert refused(await client.get(f"/api/search?q=x&session={NOBODY}")) == (404, "session_not_found")
        nothing: dict[str, Any] = {"hits": [], "next_cursor": None, "complete": True, "total": 0, "at_least": False}
        assert (await client.get("/api/search?q=nothing")).json() == nothing


async def test_a_search_ranks_the_word_itself_before_longer_ones(tmp_path: Path) -> None:
    """Also if the longer word is in a shorter and newer message."""
    answers = (say("of all that was in the harbour that day only a cat was seen"), say("cathedral"), say("cats"))
    async with served(*answers, store=f"sqlite:///{tmp_path}/s.db") as client:
        session_id = await client.session()
        for number in range(3):
            await client.chat(session_id, "what?", f"u{number}")
            await client.idle(session_id)
        hits = (await client.get("/api/search?q=cat")).json()["hits"]
        assert ["**cat**" in hit["snippet"] for hit in hits] == [True, False, False]


async def test_a_store_that_cannot_search_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a SQLite without FTS5."""
    monkeypatch.setattr(base, "has_fts5", lambda: False)
    async with served(say("x"), store="memory:") as client:
        assert refused(await client.get("/api/search?q=x")) == (422, "not_supported")


async def test_a_large_file_is_handed_over_in_pieces_as_the_client_takes_them() -> None:
    """What is handed to a server in one go it copies in one go, while everybody else waits."""
    async with served(say("words " * 25_000)) as client:
        session_id, _ = await talked(client, "at length")
        async with client.open("GET", f"/api/sessions/{session_id}/export?redact=false") as reply:
            pieces = [piece async for piece in reply._body]
            assert int(reply.headers["content-length"]) == sum(map(len, pieces)) > 150_000
            assert max(map(len, pieces)) == 64 * 1024
        assert msgspec.json.decode(b"".join(pieces))["session"]["id"] == session_id


async def test_an_owners_imports_come_one_after_another_and_do_not_hold_up_another_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each holds several times its file: the next one is not even read before."""
    from clew.session.history import transfer

    begun, gate, whole = [], asyncio.Event(), transfer.import_session

    async def slow(host: Any, portable: Any, workspace: Any, owner: str | None, **more: Any) -> Any:
        begun.append(owner)
        if owner is None:
            await gate.wait()
        return await whole(host, portable, workspace, owner, **more)

    async with served(say("one")) as client:
        session_id = await client.session()
        await client.prompt(session_id, "hello")
        await client.idle(session_id)
        data = (await client.get(f"/api/sessions/{session_id}/export?format=jsonl")).body
        monkeypatch.setattr(transfer, "import_session", slow)
        imports = [asyncio.create_task(client.post("/api/import", data)) for _ in range(3)]
        while not begun:  # noqa: ASYNC110  # nobody is told of it
            await asyncio.sleep(0)
        await client.engine.scoped("anna").import_session(data)
        assert begun == [None, "anna"]
        gate.set()
        assert [one.status for one in await asyncio.gather(*imports)] == [201] * 3
        assert begun == [None, "anna", None, None]
