"""Flipped bits: one bit of one file of a store is another, and the store is looked at twice.

The second look is at what the first one left behind: whoever opens a damaged store must not make its damage true.
Repeat a round with the seed it is told by; the specimens are the same each time.
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
from tests.rig.looking import Seen, compare, look_at
from tests.rig.specimen import KINDS, LATER, Kind, Specimen, make_specimen

__all__ = ["ROUNDS", "Flipping", "figure", "index_pages", "overlooked", "run"]

ROUNDS: Final = 1_000
_PATIENCE_S: Final = 60.0


class Flipping:
    """One specimen of each kind, and what an unharmed copy of it shows."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[Kind, tuple[Specimen, Seen]] = {}

    @property
    def known(self) -> list[Kind]:
        return list(self._known)

    def specimen(self, kind: Kind) -> tuple[Specimen, Seen]:
        if kind not in self._known:
            specimen = make_specimen(kind, self._folder / kind)
            copy = specimen.copied(self._folder / f"{kind}-truth")
            truth = asyncio.run(look_at(copy.url, LATER))
            other = specimen.copied(self._folder / f"{kind}-unharmed")
            kinds, silent = asyncio.run(_judge(other.url, truth))
            full = truth.messages and truth.blobs and truth.evidence and truth.sent
            if truth.spoke or not full or kinds != {"no difference"}:
                raise AssertionError(
                    f"the specimen {kind} is no good: {truth.problems} {truth.errors} {kinds} {silent}"
                )
            self._known[kind] = (specimen, truth)
        return self._known[kind]

    def flip(self, seed: int, kind: Kind | None = None) -> tuple[str, set[str], list[str]]:
        """One flip: what was hit, the kinds of difference it made, and those without a word."""
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


def overlooked(truth: Seen) -> list[str]:
    """What the judge would let pass: each kind of thing, once with one letter changed, once taken away."""
    changed: dict[str, Callable[[Seen], object]] = {
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
    url: str, truth: Seen, *, rolls_back: bool = False, by_check: bool = True
) -> tuple[set[str], list[str]]:
    """``by_check``: a loss that ``clew check`` alone names counts as named."""
    kinds: set[str] = set()
    silent: list[str] = []
    named: list[str] = []
    for look in range(2):
        try:
            async with asyncio.timeout(_PATIENCE_S):
                seen = await look_at(url, LATER + look * 3_600_000, truth, ask=look == 0)
        except TimeoutError:
            return {"hangs"}, ["it did not come to an end"]
        if look:
            seen = _as_before(seen, truth)
        if not by_check:
            seen.problems = []
        # What is missing for good and was named once need not be named for ever.
        seen.problems += named
        named = [*seen.problems, *seen.errors]
        more, without = compare(truth, seen, rolls_back=rolls_back)
        kinds |= more
        silent += [f"look {look + 1}: {one}" for one in without]
    return kinds - {"no difference"} or kinds, silent


def _as_before(seen: Seen, truth: Seen) -> Seen:
    """Without what the prompts of the first look have added."""
    for name, shown in seen.messages.items():
        known = truth.messages[name]
        seen.messages[name] = {message_id: one for message_id, one in shown.items() if message_id in known}
    seen.pages, seen.reads = {}, {}
    return seen


def _choose(specimen: Specimen, random: Random) -> tuple[Path, int, str | None]:
    """Choose a bit of any file, or of the whole store, where large files are hit more often.

    Half of the bits of a SQLite file that is closed are on its free pages and those of its indexes. There the name of
    the index is returned too: it holds nothing that the tables do not, so ``clew check`` may not be the only one to say
    that rows are missing.
    """
    files = specimen.files()
    if specimen.kind == "sqlite" and random.random() < 0.5:
        database = specimen.folder / "store.db"
        pages, size = index_pages(database)
        name = random.choice(sorted(pages))
        start = (random.choice(pages[name]) - 1) * size
        data = database.read_bytes()[start : start + size]
        # Most of a page is empty; what is worth hitting is what holds something.
        byte = random.choice([place for place, one in enumerate(data) if one] or [0])
        return database, (start + byte) * 8 + random.randrange(8), name
    if random.random() < 0.5:
        path = random.choice(files)
    else:
        path = random.choices(files, weights=[path.stat().st_size for path in files])[0]
    return path, random.randrange(path.stat().st_size * 8), None


def index_pages(database: Path) -> tuple[dict[str, list[int]], int]:
    """The pages of each index, and the free ones, by name; and the size of a page."""
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
            outcome.broken += [f"control: {kind}: {name} was changed, and the judge did not mind" for name in passed]
    return outcome


def figure(counts: Counter[str]) -> str:
    kinds = ", ".join(f"{name[6:]} {n}" for name, n in sorted(counts.items()) if name.startswith("kind: "))
    return f"flip: {counts['rounds']} flipped bits, {counts['silent']} without a word ({kinds})"
