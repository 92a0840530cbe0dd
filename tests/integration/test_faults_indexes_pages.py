"""A bit of an index's inner page: it then leads to a page of something else, which a rebuild must not free."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clew.session.history.check import check
from clew.testing.scripted import say
from tests.integration.http_client import AsgiClient, served
from tests.integration.sqlite_files import engine_on, path

__all__ = ["path"]

pytestmark = pytest.mark.rule("ST-14")


def owners_of_pages(path: Path) -> dict[int, tuple[str, str, str]]:
    """Of each page in use: to what it belongs, what kind that is, and whether it is a leaf, inner or overflow page."""
    query = "SELECT s.pageno, s.name, m.type, s.pagetype FROM dbstat s JOIN sqlite_master m ON m.name = s.name"
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return {page: (name, kind, place) for page, name, kind, place in connection.execute(query)}


def astray(path: Path, index: str, kind: str) -> Iterator[tuple[int, int]]:
    """Bits of a child pointer in the index's inner page that make it name a leaf of another table or index."""
    data, owners = path.read_bytes(), owners_of_pages(path)
    size = int.from_bytes(data[16:18], "big")
    for page, (name, _, place) in owners.items():
        if name != index or place != "internal":
            continue
        start = (page - 1) * size
        count = int.from_bytes(data[start + 3 : start + 5], "big")
        slots = range(start + 12, start + 12 + 2 * count, 2)
        cells = [start + int.from_bytes(data[slot : slot + 2], "big") for slot in slots]
        for at, bit in itertools.product([start + 8, *cells], range(16)):
            other = int.from_bytes(data[at : at + 4], "big") ^ 1 << bit
            if other in owners and owners[other][0] != index and owners[other][1:] == (kind, "leaf"):
                yield at + 3 - bit // 8, bit % 8


def content(path: Path) -> bytes:
    return path.read_bytes()


def flip(path: Path, unharmed: bytes, byte: int, bit: int) -> None:
    data = bytearray(unharmed)
    data[byte] ^= 1 << bit
    path.write_bytes(data)


async def shown(client: AsgiClient, sessions: list[str], folder: Path) -> list[Any]:
    listed = (await client.get(f"/api/sessions?limit=200&workspace={folder}")).json()
    return [listed, [await client.messages(session, "all") for session in sessions]]


@pytest.mark.parametrize("kind", ["table", "index"])
async def test_a_pointer_that_leads_astray_costs_nothing_else_its_page(path: Path, kind: str) -> None:
    """The index is built anew in other pages; what the old one claimed is given back only where it was its own."""
    url, folder = f"sqlite:///{path}", path.parent
    async with served(*[say("harbour " * 900)] * 12, store=url) as client:
        sessions = [await client.session(title=f"{n}", workspace_root=str(folder)) for n in range(120)]
        for session in sessions[:12]:
            await client.prompt(session, "where?")
            await client.idle(session)
        known = await shown(client, sessions, folder)
        assert len(known[0]["sessions"]) == 120
    unharmed = content(path)
    places = [*astray(path, "chat_sessions_by_workspace", kind)]
    assert places
    for byte, bit in places[:6]:
        flip(path, unharmed, byte, bit)
        async with served(store=url) as client:
            assert await shown(client, sessions, folder) == known
        async with engine_on(path) as engine:
            assert await check(engine.store) == []
