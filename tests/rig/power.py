"""Power cuts: the writes and syncs of a run are recorded, and cut off at many points.

For each cut the possible files are created (see :mod:`tests.rig.disk`), and the store is opened and judged. User
messages, finished steps and ends of turns must be stored; with ``durability="power"`` also every chunk that was shown
(``json:`` stores steps only). Of the rest only an end may be missing, and the judge must find no problem.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import shutil
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final, Literal, NamedTuple
from unittest import mock

import msgspec

from clew.session.api import Engine
from clew.session.history.check import check
from clew.store import boot_id
from clew.store.sql.sqlite import opening as sqlite_opening
from clew.store.sql.sqlite import owned_file
from clew.transcript.chunk import Chunk, parse_chunk
from clew.transcript.damage import LOST
from clew.transcript.metadata import local_place
from tests.rig import streamer
from tests.rig.budget import Budget, Outcome
from tests.rig.disk import Disk, Loss
from tests.rig.history_child import open_at
from tests.rig.recording import record_os, recording_connections
from tests.rig.streamer import Orders, StreamOf
from tests.rig.witness import Witness

__all__ = ["BATCH", "ROUNDS", "Recorded", "figure", "judge_cut", "record", "run"]

ROUNDS: Final = 2_000
BATCH: Final = 20
"""Number of cuts per recorded run."""

_STORES: Final = ("sqlite", "jsonl", "json")
_LOSSES: Final[tuple[Loss, ...]] = ("none", "prefix", "half")
_CHECKPOINTS: Final = {"idle": 1, "quiet": 4, "busy": 16}
"""Commits between checkpoints, few enough to hit checkpoints with cuts."""
_START_MS: Final = 1_790_000_000_000

_REPORTED_LOSS: Final = re.compile(
    rf" loss-|something of this message is lost|{re.escape(LOST)}|parts of message \S+ are lost|^a second recovery"
)
"""Reports of a file store about unreadable data. The second open may complete such a message."""

Durability = Literal["process", "power"]
Work = Literal["streams", "history"]


class Recorded(NamedTuple):
    """A successful run and its file operations."""

    store: str
    durability: Durability
    work: Work
    disk: Disk

    def __str__(self) -> str:
        return f"{self.store} durability={self.durability} {self.work}"


# Recording


def record(seed: int, folder: Path) -> Recorded:
    """Record a run: the seed selects the store, and streams with either durability or history operations."""
    store = _STORES[seed % 3]
    work: Work = "history" if seed // 6 % 3 == 2 else "streams"
    # History operations use the default durability.
    durability: Durability = "power" if work == "streams" and seed // 3 % 2 else "process"
    folder.mkdir(parents=True)
    disk = Disk(folder, names_last=store == "sqlite")
    with recording_connections(disk) as connect, record_os(disk):
        opening = functools.partial(sqlite_opening.open_sqlite, connect=connect)
        with (
            mock.patch.object(sqlite_opening, "open_sqlite", opening),
            mock.patch.object(streamer, "_report", disk.report),
            mock.patch.dict(owned_file._CHECKPOINT_COMMITS, _CHECKPOINTS if seed // 2 % 2 else {}),
        ):
            url = url_of(store, folder)
            if work == "streams":
                asyncio.run(streamer._record_all(_orders(url, seed, durability)))
            else:
                asyncio.run(_make_history(url, disk))
    disk.check_recording(lambda path: path.name.endswith((".owner", "-shm")) or path.stem == "cache")
    return Recorded(store, durability, work, disk)


def _orders(url: str, seed: int, durability: Durability) -> Orders:
    random = Random(seed)
    size, streams, turns = random.choice((20, 120, 600)), random.choice((1, 3)), random.choice((1, 2))
    return Orders(store=url, seed=seed, streams=streams, turns=turns, size=size, durability=durability)


def url_of(store: str, folder: Path) -> str:
    return f"sqlite:///{folder}/store.db" if store == "sqlite" else f"{store}:{folder}/store"


async def _make_history(url: str, disk: Disk) -> None:
    """Perform history operations, and report after each what must be stored from then on."""
    async with open_at(url, _START_MS) as engine:
        session_id = (await engine.create_session(title="a past", metadata=local_place(None))).id

        async def ask(text: str) -> None:
            async for _ in engine.run(session_id, text):
                pass
            await _report_state(engine, disk)

        for number in range(3):
            await ask(f"What of {number}?")
        await engine.compact(session_id)
        await _report_state(engine, disk)
        users = [one.id for one in await engine.messages(session_id, view="all") if one.role == "user"]
        await engine.rewind(session_id, users[-1], mode="edit")
        await _report_state(engine, disk)
        await ask("Then what of the thread?")
        await engine.branch(session_id, users[1], metadata={"title": "another way"})
        await _report_state(engine, disk)


async def _report_state(engine: Engine, disk: Disk) -> None:
    disk.report("state", await _state(engine))


async def _state(engine: Engine) -> dict[str, Any]:
    """Return every settled message of every session, and its head moves."""
    found: dict[str, Any] = {}
    for session_id in await engine.store.session_ids():
        rows = await engine.store.load_messages(session_id)
        tree = await engine.store.load_tree(session_id)
        found[session_id] = {
            "messages": {row.id: [part.data for part in row.parts] for row in rows},
            "heads": [move.to_turn_id for move in tree.moves],
        }
    return found


# Judging


class _CutWitness(Witness):
    """A witness of the reports before the cut."""

    def __init__(self, recorded: Recorded, folder: Path, end: int, loss: Loss) -> None:
        super().__init__(folder / "store.db")
        self.url = url_of(recorded.store, folder)
        self.folder = folder
        self.requires_chunks = recorded.durability == "power" and recorded.store != "json"
        self.in_order = recorded.store == "sqlite"
        self.allows_loss_marks = _may_name_losses(recorded, loss)
        self._steps: dict[str, int] = {}
        self._acks: list[tuple[str, int]] = []
        for line in recorded.disk.reports(end):
            self._record(line)

    def _record(self, line: Any) -> None:
        match line:
            case ("shown", message_id, chunks):
                self.shown[message_id] += [_parsed(chunk) for chunk in chunks]
                self._acks.append((message_id, len(self.shown[message_id])))
            case ("stream", StreamOf() as stream):
                self.streams[stream.message_id] = stream
                self.shown[stream.message_id] = []
            case ("step", message_id):
                self._steps[message_id] = len(self.shown[message_id])
            case ("settled", message_id):
                self.settled.add(message_id)

    def min_chunks(self, stream: StreamOf) -> int:
        return max(super().min_chunks(stream), self._steps.get(stream.message_id, 0))

    @property
    def lost(self) -> int:
        """Return the number of shown chunks that are not stored."""
        return sum(max(len(shown) - self.lengths.get(id_, (0, 0))[1], 0) for id_, shown in self.shown.items())

    def out_of_order(self) -> list[str]:
        """Check that a chunk is stored only if all chunks shown before it are."""
        missing: tuple[str, int] | None = None
        for message_id, count in self._acks:
            fewest, maximum = self.lengths.get(message_id, (0, 0))
            if maximum < count:
                missing = missing or (message_id, count)
            elif missing is not None and fewest >= count:
                return [
                    f"chunk {count} of {message_id} is stored, and {missing[1]} of {missing[0]}, shown before, is not"
                ]
        return []

    def dump(self) -> str:
        if self.in_order:
            return super().dump()
        files = [path for path in sorted(self.folder.rglob("*")) if path.is_file() and path.suffix != ".owner"]
        files = [path for path in files if path.stem != "cache"]  # derived from the others
        return "\n".join(f"{path}\n{path.read_text(errors='replace')}" for path in files)


def _parsed(chunk: Any) -> Chunk:
    return parse_chunk(msgspec.to_builtins(chunk))


def judge_cut(
    recorded: Recorded, end: int, loss: Loss, random: Random, folder: Path, *, lies: bool = False
) -> tuple[list[str], int]:
    """Create the files after a cut and judge them; return the problems and the number of lost chunks."""
    folder.mkdir()
    recorded.disk.put(recorded.disk.left(end, loss, random, lies=lies), folder)
    with contextlib.ExitStack() as after:
        after.callback(shutil.rmtree, folder)
        # After a reboot only synced data is known to be on disk.
        after.enter_context(mock.patch.object(boot_id, "boot_id", return_value=str(uuid.UUID(int=1))))
        if recorded.work == "history":
            problems, lost = asyncio.run(_judge_history(recorded, end, folder)), 0
        else:
            witness = _CutWitness(recorded, folder, end, loss)
            problems = asyncio.run(witness.judge())
            if not problems and witness.in_order:
                problems = witness.out_of_order()
            lost = witness.lost
    if _may_name_losses(recorded, loss):
        problems = [problem for problem in problems if not _REPORTED_LOSS.search(problem)]
    return problems, lost


def _may_name_losses(recorded: Recorded, loss: Loss) -> bool:
    """Return whether unsynced lines may be lost in the middle of a file, which the store then reports permanently."""
    return recorded.store == "jsonl" and recorded.durability == "process" and loss == "half"


async def _judge_history(recorded: Recorded, end: int, folder: Path) -> list[str]:
    expected: dict[str, Any] = {}
    for line in recorded.disk.reports(end):
        if line[0] == "state":
            expected = line[1]
    async with open_at(url_of(recorded.store, folder), _START_MS + 3_600_000) as engine:
        problems = [str(problem) for problem in await check(engine.store)]
        found = await _state(engine)
        problems += list(_compare(expected, found))
        for session_id in found:
            last = [chunk async for chunk in engine.run(session_id, "And now?")][-1]
            if last != {"type": "finish", "finishReason": "stop"}:
                problems.append(f"{session_id} does not continue: {last}")
    return problems


def _compare(expected: dict[str, Any], found: dict[str, Any]) -> Iterator[str]:
    for session_id, was in expected.items():
        is_ = found.get(session_id, {"messages": {}, "heads": []})
        for message_id, parts in was["messages"].items():
            if is_["messages"].get(message_id) != parts:
                yield f"{session_id}: {message_id} was settled and has changed"
        if is_["heads"][: len(was["heads"])] != was["heads"]:
            yield f"{session_id}: a move of the head is lost"


# The campaign


def run(budget: Budget) -> Outcome:
    outcome = Outcome()
    with tempfile.TemporaryDirectory(prefix="clew-power-") as name:
        folder = Path(name)
        for first, rounds in budget.batches(BATCH):
            recorded = record(first // BATCH, folder / "recorded")
            for seed in range(first, first + rounds):
                if budget.spent:
                    break
                _round(recorded, seed, folder, outcome)
            shutil.rmtree(folder / "recorded")
        for number, store in enumerate(_STORES):
            if not _detects_lie(number, folder):
                outcome.broken.append(f"control: {store} on a disk that ignores syncs was not detected")
    return outcome


def _round(recorded: Recorded, seed: int, folder: Path, outcome: Outcome) -> None:
    random = Random(seed)
    end = random.randrange(1, len(recorded.disk.events) + 1)
    loss = random.choice(_LOSSES)
    try:
        problems, lost = judge_cut(recorded, end, loss, random, folder / "cut")
    except Exception as error:
        problems, lost = [f"it does not open: {error!r}"], 0
    outcome.counts["rounds"] += 1
    outcome.counts[f"{recorded.store}/{recorded.durability}"] += 1
    outcome.counts[f"lost {recorded.store}/{recorded.durability}"] += bool(lost)
    if problems:
        outcome.counts["broken"] += 1
        outcome.broken.append(
            f"seed {seed}: {recorded}, cut at {end} of {len(recorded.disk.events)}, {loss} left: {problems[:3]}"
        )


def _detects_lie(seed: int, folder: Path) -> bool:
    """Return whether the judge detects a disk that ignores syncs; otherwise passing rounds would mean nothing."""
    recorded = record(seed, folder / "control")
    random = Random(seed)
    try:
        for _ in range(10):
            end = random.randrange(len(recorded.disk.events) // 2, len(recorded.disk.events))
            try:
                if judge_cut(recorded, end, "none", random, folder / "cut", lies=True)[0]:
                    return True
            except Exception:
                return True
        return False
    finally:
        shutil.rmtree(folder / "control")


def figure(counts: Counter[str]) -> str:
    kinds = ", ".join(
        f"{name} {counts[name]}, {counts[f'lost {name}']} of them with an unsynced end lost"
        for name in sorted(counts)
        if "/" in name and " " not in name
    )
    return f"power: {counts['rounds']} cuts, {counts['broken']} broke a guarantee ({kinds})"
