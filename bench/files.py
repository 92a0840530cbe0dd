"""FILES: many sessions in a folder, as ``jsonl:`` and as ``json:``.

The floor reads and parses the same files with the standard library and orjson, without a cache. The sessions are
copies of one, each with ids of its own.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import orjson

from bench.measure import Bench, Goal, Line, median, ratios, settle
from clew.ids import Mint
from clew.store.base import SearchQuery, SessionQuery
from clew.store.files.json_file import JsonCodec
from clew.store.files.jsonl import JsonlCodec
from clew.store.files.opening import FilesOptions, open_files
from clew.store.files.session_value import ABSENT
from clew.store.files.store import FileStore
from clew.store.unit import PatchSession, Unit
from clew.testing.chunks import text
from clew.testing.scribe import Scribe

__all__ = ["measure"]

Kind = Literal["jsonl", "json"]
_PAGE = 50
_TURNS = 2
_FEW = 100
_MEMORY = """
import asyncio, gc, sys
from pathlib import Path
import orjson
from bench.files import raw_list
from clew.store.files.opening import open_files

def rss():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

async def main(kind, root, what):
    before = rss()
    if what == "raw":
        result = raw_list(kind, Path(root))
        print(rss() - before)
        return
    store = await open_files(kind, Path(root))
    if what == "all":
        for session_id in await store.session_ids():
            await store.load_messages(session_id)
    print(rss() - before)
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


def raw_list(kind: Kind, root: Path) -> list[Any]:
    """Read what a session list shows, newest first."""
    folder = str(root / "sessions")
    names = os.listdir(folder)
    paths = [f"{folder}/{name}/metadata.json" if kind == "jsonl" else f"{folder}/{name}" for name in names]
    key = "lastMessageAt" if kind == "jsonl" else "updatedAt"
    large = ("messages", "clew") if kind == "json" else ()
    found = [{name: value for name, value in _parsed(path).items() if name not in large} for path in paths]
    return sorted(found, key=lambda one: str(one[key]), reverse=True)


def _parsed(path: str) -> Any:
    with open(path, "rb") as file:
        return orjson.loads(file.read())


def _raw_session(kind: Kind, root: Path, name: str) -> int:
    if kind == "json":
        return len(_parsed(f"{root}/sessions/{name}.json"))
    with open(f"{root}/sessions/{name}/session.jsonl", "rb") as file:
        return len([orjson.loads(line) for line in file])


def _raw_all(kind: Kind, root: Path) -> int:
    names = (name.removesuffix(".json") for name in os.listdir(root / "sessions"))
    return sum(_raw_session(kind, root, name) for name in names)


async def _fill(kind: Kind, root: Path, count: int) -> None:
    store = await open_files(kind, root)
    scribe = await Scribe.create(store, metadata={"title": "A session about the thing", "label": "bench"})
    for n in range(_TURNS):
        await scribe.turn(f"prompt {n}", text("a word and another one, " * 20))
    await store.close()
    source = root / "sessions" / (scribe.session_id + (".json" if kind == "json" else ""))
    mint, codec = Mint(), JsonCodec(root) if kind == "json" else JsonlCodec(root)
    for _ in range(count - 1):
        session_id = mint.session(codec.capabilities.session_ids)
        target = source.with_name(session_id + source.suffix)
        (shutil.copyfile if kind == "json" else shutil.copytree)(source, target)
        # A copy by hand gets ids of its own whenever it is read; written again, its files have them.
        loaded = codec.load(session_id)
        assert loaded is not None
        codec.remove(session_id)
        tables = loaded.value.tables().items()
        entries = {(name, key): (ABSENT, entry) for name, table in tables for key, entry in table.items()}
        saving = codec.plan(loaded.value, None, entries, sync=False, power=False)
        assert saving is not None
        saving.persist()
    (root / "clew" / "cache.db").unlink()


def _timed(action: Callable[[], object]) -> float:
    settle()
    begin = time.perf_counter()
    found = action()
    took = time.perf_counter() - begin
    del found
    return took * 1000


async def _awaited(action: Callable[[], Awaitable[object]]) -> float:
    settle()
    begin = time.perf_counter()
    await action()
    return (time.perf_counter() - begin) * 1000


async def _listed(kind: Kind, root: Path) -> float:
    async def cold() -> None:
        store = await open_files(kind, root, FilesOptions(read_only=True))
        page = await store.list_sessions(SessionQuery(limit=_PAGE))
        await store.load_spend([session.id for session in page.sessions])
        await store.close()

    return await _awaited(cold)


async def _opened(kind: Kind, root: Path) -> tuple[float, FileStore]:
    settle()
    begin = time.perf_counter()
    store = await open_files(kind, root)
    return (time.perf_counter() - begin) * 1000, store


async def _changes(store: FileStore, session_id: str, times: int) -> float:
    """Commit small changes, each durable before the next, and return the median time."""
    took = []
    for n in range(times):
        unit = Unit(session_id, (PatchSession(metadata={"n": n}),), sync="power")
        took.append(await _awaited(lambda unit=unit: store.commit(unit)))  # type: ignore[misc]
    return median(took)


def _memory(kind: Kind, root: Path, what: str) -> float:
    """Return the memory that a new process uses for it, in bytes."""
    ended = subprocess.run(
        [sys.executable, "-c", _MEMORY, kind, str(root), what], capture_output=True, check=True, text=True
    )
    return float(ended.stdout)


async def _measure_kind(bench: Bench, kind: Kind) -> list[Line]:
    count = bench.size(10_000, 1_000)
    root, small = bench.path(f"many-{kind}"), bench.path(f"few-{kind}")
    await _fill(kind, root, count)
    await _fill(kind, small, _FEW)
    rounds = range(bench.rounds)
    many = f"{kind}: {count:,} sessions"
    lines: list[Line] = []

    def line(what: str, unit: str, raw: list[float], ours: list[float], goal: Goal | None = None) -> None:
        judged = ratios(ours, raw) if raw else ()
        lines.append(Line("FILES", f"{many}, {what}", unit, raw, ours, judged, goal))

    # The first open has no cache and reads everything.
    raw_read = [_timed(lambda: _raw_all(kind, root))]
    took, store = await _opened(kind, root)
    await store.close()
    line("open for writing without a cache (raw: parse all of them)", "ms", raw_read, [took])
    raw_lists, lists, opens, pages, ones, raw_ones = [], [], [], [], [], []
    for _ in rounds:
        raw_lists.append(_timed(lambda: raw_list(kind, root)))
        lists.append(await _listed(kind, root))
        took, store = await _opened(kind, root)
        opens.append(took)
        opened = store
        pages.append(await _awaited(lambda: opened.list_sessions(SessionQuery(limit=_PAGE))))  # noqa: B023
        session_id = (await store.session_ids())[count // 2]
        raw_ones.append(_timed(lambda: _raw_session(kind, root, session_id)))  # noqa: B023
        ones.append(await _awaited(lambda: opened.load_messages(session_id)))  # noqa: B023
        await store.close()
    line(f"newest {_PAGE} and their spend, by a new reader (raw: parse the listed data)", "ms", raw_lists, lists)
    line("open for writing (raw: the same)", "ms", raw_lists, opens)
    line(f"newest {_PAGE}, by the owner (raw: the same)", "ms", raw_lists, pages)
    line(f"open one of {_TURNS} turns (raw: parse it)", "ms", raw_ones, ones)
    few: list[float] = []
    full: list[float] = []
    for _ in rounds:
        for folder, into in ((small, few), (root, full)):
            _, store = await _opened(kind, folder)
            into.append(await _changes(store, (await store.session_ids())[0], bench.size(100, 30)))
            await store.close()
    line(f"one durable change (raw: among {_FEW})", "ms", few, full, Goal("≤", 1.5))
    raw_held, held, read = ([_memory(kind, root, what) / count] for what in ("raw", "open", "all"))
    line("memory per session, open (raw: the listed data)", "bytes", raw_held, held)
    line("memory per session, after reading each (raw: the same)", "bytes", raw_held, read)
    _, store = await _opened(kind, root)
    first = [await _awaited(lambda: store.search(SearchQuery("another prompt")))]
    again = [await _awaited(lambda: store.search(SearchQuery("another prompt"))) for _ in rounds]
    await store.close()
    line("the first search, which builds the index", "ms", [], first)
    line("a search", "ms", [], again)
    await asyncio.to_thread(shutil.rmtree, root)
    return lines


async def measure(bench: Bench) -> list[Line]:
    return [line for kind in ("jsonl", "json") for line in await _measure_kind(bench, kind)]
