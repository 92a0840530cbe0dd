"""Flipped bits: one bit of one file of a store is flipped, and the store is read twice.

The second time reads what the first one left behind: opening a damaged store must not turn the damage into valid data.
A reported seed repeats a round; the specimens are the same each time.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.rig.budget import Budget, Outcome
from tests.rig.observation import Observation, compare, observe
from tests.rig.specimen import KINDS, LATER, Kind, Specimen, make_specimen

__all__ = ["ROUNDS", "Flipping", "figure", "index_pages", "overlooked", "run"]

ROUNDS: Final = 1_000
_PATIENCE_S: Final = 60.0


class Flipping:
    """One specimen of each kind, and the observation of an undamaged copy."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[Kind, tuple[Specimen, Observation]] = {}

    @property
    def known(self) -> list[Kind]:
        return list(self._known)

    def specimen(self, kind: Kind) -> tuple[Specimen, Observation]:
        if kind not in self._known:
            specimen = make_specimen(kind, self._folder / kind)
            copy = specimen.copied(self._folder / f"{kind}-truth")
            truth = asyncio.run(observe(copy.url, LATER))
            other = specimen.copied(self._folder / f"{kind}-undamaged")
            kinds, silent = asyncio.run(_judge(other.url, truth))
            full = truth.messages and truth.blobs and truth.evidence and truth.sent
            if truth.reports_damage or not full or kinds != {"no difference"}:
                raise AssertionError(
                    f"the specimen {kind} is invalid: {truth.problems} {truth.errors} {kinds} {silent}"
                )
            self._known[kind] = (specimen, truth)
        return self._known[kind]

    def flip(self, seed: int, kind: Kind | None = None) -> tuple[str, set[str], list[str]]:
        """Flip one bit; return what was hit, the kinds of differences, and the unreported ones."""
        random = Random(seed)
        specimen, truth = self.specimen(kind or KINDS[seed % len(KINDS)])
        copy = specimen.copied(self._folder / "flipped")
        try:
            path, bit, index = _choose(copy, random)
            _flip(path, bit)
            where = f" ({index})" if index else ""
            what = f"{specimen.kind} {path.relative_to(copy.folder)} byte {bit // 8} bit {bit % 8}{where}"
            newest = path.name.endswith(("-wal", "stream.jsonl"))
            kinds, silent = asyncio.run(_judge(copy.url, truth, rolls_back=newest, by_check=index is None))
        finally:
            shutil.rmtree(copy.folder)
        return what, kinds, silent


def overlooked(truth: Observation) -> list[str]:
    """Return the kinds of changes that the judge does not detect, out of one of each kind."""
    changed: dict[str, Callable[[Observation], object]] = {
        "a text": lambda seen: _change_text(next(iter(seen.messages.values()))),
        "a message": lambda seen: next(iter(seen.messages.values())).popitem(),
        "a blob": lambda seen: seen.blobs.update({next(iter(seen.blobs)): b"other"}),
        "a session": lambda seen: seen.sessions.pop(),
        "a page": lambda seen: seen.pages.update({next(iter(seen.pages)): "other"}),
        "evidence": lambda seen: next(iter(seen.evidence.values()))[1].append("other"),
        "what is sent": lambda seen: next(iter(seen.sent.values())).append("other"),
    }
    passed = []
    for name, change in changed.items():
        seen = copy.deepcopy(truth)
        change(seen)
        if not compare(truth, seen)[1]:
            passed.append(name)
    return passed


def _change_text(shown: dict[str, Any]) -> None:
    part = next(part for one in shown.values() for part in one["parts"] if part.get("type") == "text")
    part["text"] = part["text"][:-1] + chr(ord(part["text"][-1]) ^ 1)


async def _judge(
    url: str, truth: Observation, *, rolls_back: bool = False, by_check: bool = True
) -> tuple[set[str], list[str]]:
    """Compare two observations with the truth. ``by_check``: a loss that only ``clew check`` reports counts too."""
    kinds: set[str] = set()
    silent: list[str] = []
    reported: list[str] = []
    for attempt in range(2):
        try:
            async with asyncio.timeout(_PATIENCE_S):
                seen = await observe(url, LATER + attempt * 3_600_000, truth, ask=attempt == 0)
        except TimeoutError:
            return {"hangs"}, ["it did not finish"]
        if attempt:
            seen = _as_before(seen, truth)
        if not by_check:
            seen.problems = []
        # A permanent loss needs to be reported only once.
        seen.problems += reported
        reported = [*seen.problems, *seen.errors]
        more, unreported = compare(truth, seen, rolls_back=rolls_back)
        kinds |= more
        silent += [f"observation {attempt + 1}: {one}" for one in unreported]
    return kinds - {"no difference"} or kinds, silent


def _as_before(seen: Observation, truth: Observation) -> Observation:
    """Remove what the prompts of the first observation added."""
    for name, shown in seen.messages.items():
        known = truth.messages[name]
        seen.messages[name] = {message_id: one for message_id, one in shown.items() if message_id in known}
    seen.pages, seen.reads = {}, {}
    return seen


def _choose(specimen: Specimen, random: Random) -> tuple[Path, int, str | None]:
    """Choose a bit of any file, or of the whole store, where large files are hit more often.

    For a closed SQLite file half of the bits are on free pages or index pages; then the name of the index is returned
    too. An index has no data of its own, so ``clew check`` must not be the only one to report missing rows.
    """
    files = specimen.files()
    if specimen.kind == "sqlite" and random.random() < 0.5:
        database = specimen.folder / "store.db"
        pages, size = index_pages(database)
        name = random.choice(sorted(pages))
        start = (random.choice(pages[name]) - 1) * size
        data = database.read_bytes()[start : start + size]
        # Most of a page is empty; choose among the bytes in use.
        byte = random.choice([offset for offset, one in enumerate(data) if one] or [0])
        return database, (start + byte) * 8 + random.randrange(8), name
    if random.random() < 0.5:
        path = random.choice(files)
    else:
        path = random.choices(files, weights=[path.stat().st_size for path in files])[0]
    return path, random.randrange(path.stat().st_size * 8), None


def index_pages(database: Path) -> tuple[dict[str, list[int]], int]:
    """Return the pages of each index and the free pages, by name, and the page size."""
    pages: dict[str, list[int]] = {}
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        size: int = connection.execute("PRAGMA page_size").fetchone()[0]
        count: int = connection.execute("PRAGMA page_count").fetchone()[0]
        used = {row[0] for row in connection.execute("SELECT pageno FROM dbstat")}
        found = "SELECT s.name, s.pageno FROM dbstat s JOIN sqlite_master m ON m.name = s.name WHERE m.type = 'index'"
        for name, page in connection.execute(found):
            pages.setdefault(name, []).append(page)
    free = [page for page in range(1, count + 1) if page not in used]
    return {**pages, **({"free pages": free} if free else {})}, size


def _flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ (1 << bit % 8)]))


def run(budget: Budget) -> Outcome:
    outcome = Outcome()
    with tempfile.TemporaryDirectory(prefix="clew-flip-") as folder:
        flipping = Flipping(Path(folder))
        for seed in budget.rounds():
            what, kinds, silent = flipping.flip(seed)
            outcome.counts["rounds"] += 1
            outcome.counts.update(f"kind: {kind}" for kind in kinds)
            outcome.counts["silent"] += bool(silent)
            if silent:
                outcome.broken.append(f"seed {seed}: {what}: {'; '.join(silent[:3])} [{', '.join(sorted(kinds))}]")
        for kind in flipping.known:
            passed = overlooked(flipping.specimen(kind)[1])
            outcome.broken += [f"control: {kind}: {name} was changed, undetected" for name in passed]
    return outcome


def figure(counts: Counter[str]) -> str:
    kinds = ", ".join(f"{name[6:]} {n}" for name, n in sorted(counts.items()) if name.startswith("kind: "))
    return f"flip: {counts['rounds']} flipped bits, {counts['silent']} unreported ({kinds})"
