"""Lists and what puts a session back into them, as somebody with the library meets it."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

import clew
from clew.errors import InvalidInput


async def test_a_workspace_is_found_by_every_name_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a link, from the folder itself, with dots in it, and after it is gone."""
    folder = tmp_path / "work"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    async with clew.open("memory:") as engine:
        made = await engine.create_session(workspace_root=tmp_path / "link")
        await engine.create_session()
        monkeypatch.chdir(folder)
        for name in (folder, tmp_path / "link", ".", f"{tmp_path}/link/../work"):
            page = await engine.list_sessions(workspace=name)
            assert [session.id for session in page.sessions] == [made.id]
        monkeypatch.chdir(tmp_path)
        folder.rmdir()
        assert [session.id for session in (await engine.list_sessions(workspace=folder)).sessions] == [made.id]
        assert (await engine.list_sessions(workspace="~nobody-of-that-name/x")).sessions == ()


async def test_a_prompt_brings_an_archived_session_back() -> None:
    """Who speaks to it wants to see it."""
    async with clew.open("memory:") as engine:
        made = await engine.create_session(model="demo/echo")
        await engine.archive_session(made.id)
        assert (await engine.list_sessions()).sessions == ()
        await (await engine.submit(made.id, "hello again")).wait()
        (listed,) = (await engine.list_sessions()).sessions
        assert (listed.id, listed.archived_at) == (made.id, None)


async def test_an_empty_address_names_no_store() -> None:
    """A variable that is not set must not open the user's own."""
    with pytest.raises(InvalidInput, match="'' is not a store"):
        async with clew.open(""):
            pass


_TITLES = (
    *("Plain words", "plain WORDS too", "Straße", "STRASSE", "\u212aelvin", "kelvin", "long \u017f", "50% of_it"),
    *('say "hi"', "back\\slash", "two\nlines", "na\u00efve", "\U0001f600 face", "a/b", "<tag>", "ok"),
)
_WANTED = (
    *(
        "plain",
        "WORDS",
        "ss",
        "strasse",
        "\u00df",
        "kelvin",
        "K",
        "long s",
        "%",
        "_",
        "50%",
        '"hi"',
        "\\",
        "\\s",
        "o l",
    ),
    *("\n", "s\nl", "NA\u00cfVE", "\U0001f600", "A/B", "<TAG>", "title", "nobody has this", " ", "{", "ok"),
)


async def test_a_title_is_found_by_any_piece_of_it_whatever_its_case(tmp_path: Path) -> None:
    """What is left out early, without a look into the JSON, is nothing that would be found by one."""
    async with clew.open(f"sqlite:///{tmp_path}/clew.db") as engine:
        for title in _TITLES:
            await engine.create_session(title=title)
        # Another program may have written it with escapes.
        with contextlib.closing(sqlite3.connect(tmp_path / "clew.db", timeout=5)) as other, other:
            other.execute("UPDATE chat_sessions SET metadata_json = replace(metadata_json, '\"ok\"', '\"\\u006fk\"')")
        for wanted in _WANTED:
            found = (await engine.list_sessions(q=wanted)).sessions
            expected = {title for title in _TITLES if wanted.casefold() in title.casefold()}
            assert (wanted, {session.title for session in found}) == (wanted, expected)
            # Where fewer have it than a page holds they are found in another way.
            page = await engine.list_sessions(q=wanted, limit=2)
            paged = page.sessions
            while page.next_cursor is not None:
                page = await engine.list_sessions(q=wanted, limit=2, cursor=page.next_cursor)
                paged += page.sessions
            assert paged == found
