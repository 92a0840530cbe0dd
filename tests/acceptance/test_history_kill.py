"""The past of a session, killed while it is being changed: what was ordered happened whole, or not at all.

A child does one thing and dies at one point of it. What it made up follows from its clock, so the file it leaves is
compared, row by row, with the file before and with the one an unharmed child leaves.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from signal import SIGKILL
from typing import Final

import msgspec
import pytest

import clew
from clew.session.api import Engine
from clew.session.history.check import check
from clew.store.base import FullSession, Store
from clew.transcript.turn import Tree
from tests.rig.fork_server import run_forked
from tests.rig.history_child import DEEDS, Deed, Orders, open_at

pytestmark = pytest.mark.kill

START_MS: Final = 1_800_000_000_000
HOUR_MS: Final = 3_600_000

NEVER: Final = ("writer.before_commit=kill",)
"""At the end of the transaction: it is as if nothing had been ordered."""
DONE: Final = ("writer.after_commit_before_ack=kill",)
POINTS: Final[dict[Deed, tuple[str, ...]]] = {
    "rewind": ("history.before_rewind=kill", *NEVER),
    "resend": ("history.before_rewind=kill", *NEVER),
    "unrewind": ("history.before_rewind=kill", *NEVER),
    "goto": ("history.before_rewind=kill", *NEVER),
    "branch": ("history.before_branch=kill", *NEVER),
    "slice": ("history.before_branch=kill", *NEVER),
    "fork": ("history.before_branch=kill", *NEVER),
    "compact": ("compact.before_commit=kill", *NEVER),
    "prune": ("writer.in_transaction=kill", *NEVER),
}
"""What happens as one unit, and where it is killed before that is committed."""
IN_PORTIONS: Final[dict[Deed, tuple[str, ...]]] = {
    "branch_long": (
        *("history.between_portions=kill", "history.between_portions=kill@3"),
        *("writer.before_commit=kill@2", "writer.after_commit_before_ack=kill@4", "files.before_cache=kill@2"),
    ),
    "delete": ("store.between_deletions=kill", "writer.before_commit=kill@2", "files.before_cache=kill@2"),
}
"""What happens in several units, and where it is killed between the first and the last of them."""
ROOM: Final = (
    *("run.before_model_call=kill", "compact.before_commit=kill", "compact.before_commit=kill@2"),
    *("run.before_model_call=kill@2", "run.before_model_call=kill@3", "run.before_settle=kill"),
    *(f"writer.before_commit=kill@{nth}" for nth in (1, 2, 3, 5, 8, 12)),
    *(f"writer.after_commit_before_ack=kill@{nth}" for nth in (1, 2, 3, 5, 8, 12)),
)
"""A turn that has to make room, before its first call and inside of it."""
_BESIDE: Final = ('INSERT INTO "store_marks"', 'INSERT INTO "model_calls"')
_CHANCE: Final = re.compile(r"(prt_[0-9a-f]{22})[0-9a-f]{4}")
"""The end of the id of a copied part, which SQLite makes up."""


def url_of(kind: str, path: Path) -> str:
    return f"sqlite:///{path}" if kind == "sqlite" else f"{kind}:{path}"


async def everything(store: Store) -> list[FullSession]:
    """All sessions that the store says it has."""
    found = [await store.find_full_session(id_) for id_ in await store.session_ids()]
    return [one for one in found if one is not None]


def do(
    path: Path, deed: Deed, hour: int, session_id: str | None = None, failpoints: str = "", kind: str = "sqlite"
) -> int:
    """Have a child do it; how it ended."""
    orders = Orders(
        store=url_of(kind, path),
        deed=deed,
        now_ms=START_MS + hour * HOUR_MS,
        session_id=session_id,
        failpoints=failpoints,
    )
    done = run_forked("tests.rig.history_child", msgspec.json.encode(orders).decode())
    assert done.returncode in (0, -SIGKILL), done.stderr.decode()[-4000:]
    return done.returncode


def dump(path: Path) -> list[str]:
    """Every table of the file with every row, as SQL text; copied parts without the chance in their ids.

    But not how many commits there were: units that arrive together are committed together, as the machine has time.
    And not what models were asked: that was spent, whatever came of it.
    """
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        lines = [line for line in connection.iterdump() if not line.startswith(_BESIDE)]
        return [_CHANCE.sub(r"\1", line) for line in lines]


def session_of(path: Path) -> str:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        (found,) = connection.execute("SELECT id FROM chat_sessions WHERE parent_id IS NULL").fetchone()
    return str(found)


def copied(path: Path, name: str) -> Path:
    """A copy of a store that nobody has open."""
    target = path.with_name(name)
    for suffix in ("", "-wal"):
        if Path(f"{path}{suffix}").exists():
            shutil.copy(f"{path}{suffix}", f"{target}{suffix}")
    return target


@pytest.fixture(scope="module")
def talked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session of eight turns, the first ones summarised."""
    path = tmp_path_factory.mktemp("talked") / "talked.db"
    assert do(path, "talk", 0) == 0
    return path


@pytest.fixture(scope="module")
def talks(talked: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same in a store of each kind."""
    found = {"sqlite": talked}
    for kind in ("jsonl", "json"):
        found[kind] = tmp_path_factory.mktemp(kind) / "talked"
        assert do(found[kind], "talk", 0, kind=kind) == 0
    return found


@pytest.fixture(scope="module")
def afterwards(talked: Path) -> dict[Deed, tuple[Path, Path]]:
    """For each deed a store before it, and one after an unharmed child did it."""
    session_id, rewound = session_of(talked), copied(talked, "rewound.db")
    assert do(rewound, "rewind", 1, session_id) == 0
    found: dict[Deed, tuple[Path, Path]] = {}
    for deed in POINTS:
        before = rewound if deed == "unrewind" else talked
        after = copied(before, f"{deed}.db")
        assert do(after, deed, 2, session_id) == 0
        found[deed] = (before, after)
    return found


async def goes_on(path: Path, session_id: str) -> Tree:
    """The store is sound, and the session takes a prompt and answers it; the tree before that."""
    async with open_at(f"sqlite:///{path}", START_MS + 3 * HOUR_MS) as engine:
        assert await check(engine.store) == []
        tree = await engine.store.load_tree(session_id)
        for one in await engine.store.session_ids():
            last = [chunk async for chunk in engine.run(one, "And now?")][-1]
            assert last == {"type": "finish", "finishReason": "stop"}
            await is_whole(engine, one)
        assert await check(engine.store) == []
        return tree


async def is_whole(engine: Engine, session_id: str) -> None:
    """Every call the model is sent has its result."""
    for message in await engine.messages(session_id, view="model"):
        for part in message.parts:
            assert "toolCallId" not in part or part["state"].startswith("output-")


def test_every_deed_is_killed_at_every_point_on_its_way() -> None:
    """The tables above leave none out."""
    assert {*POINTS, *IN_PORTIONS, "make_room", "talk"} == set(DEEDS)


@pytest.mark.rule("BR-1", "BR-7", "SV-3")
@pytest.mark.parametrize(
    ("kind", "deed", "point"),
    [
        (kind, deed, point)
        for kind in ("sqlite", "jsonl", "json")
        for deed, points in IN_PORTIONS.items()
        for point in points
        if not point.startswith("files." if kind == "sqlite" else "writer.")
    ],
)
async def test_a_copy_or_a_deletion_killed_between_two_portions_leaves_no_half_session(
    talks: dict[str, Path], tmp_path: Path, kind: str, deed: Deed, point: str
) -> None:
    """No list has the session before recovery; after it nothing of the copy is left, and nothing of the deleted one."""
    path = tmp_path / "killed"
    (shutil.copytree if talks[kind].is_dir() else shutil.copy)(talks[kind], path)
    url = url_of(kind, path)
    async with open_at(url, START_MS + HOUR_MS) as engine:
        before = await everything(engine.store)
    assert do(path, deed, 2, before[0].session.id, point, kind) == -SIGKILL
    left = [] if deed == "delete" else before
    async with clew.open(url, read_only=True) as reader:
        assert await everything(reader.store) == left
        assert await reader.store.unfinished_sessions() != ()
    async with open_at(url, START_MS + 3 * HOUR_MS) as engine:
        assert await engine.store.unfinished_sessions() == ()
        assert await check(engine.store) == []
        assert await everything(engine.store) == left


@pytest.mark.rule("RW-1", "RW-3", "BR-1", "BR-7", "CP-2", "PR-4")
@pytest.mark.parametrize(("deed", "point"), [(deed, point) for deed, points in POINTS.items() for point in points])
async def test_what_is_killed_before_its_commit_never_happened(
    afterwards: dict[Deed, tuple[Path, Path]], tmp_path: Path, deed: Deed, point: str
) -> None:
    """Not a row differs; the session goes on; and what was ordered can be ordered again, with the same outcome."""
    before, after = afterwards[deed]
    session_id = session_of(before)
    path = Path(shutil.copy(before, tmp_path / "killed.db"))
    assert do(path, deed, 2, session_id, point) == -SIGKILL
    assert dump(path) == dump(before) != dump(after)
    again = copied(path, "again.db")
    assert do(again, deed, 2, session_id) == 0
    assert dump(again) == dump(after)
    await goes_on(path, session_id)


@pytest.mark.rule("RW-1", "RW-3", "BR-1", "BR-7", "CP-2", "PR-4")
@pytest.mark.parametrize("deed", POINTS)
@pytest.mark.parametrize("point", DONE)
async def test_what_is_killed_after_its_commit_has_happened_whole(
    afterwards: dict[Deed, tuple[Path, Path]], tmp_path: Path, deed: Deed, point: str
) -> None:
    """Though nobody was told: every row is as the unharmed child leaves it."""
    before, after = afterwards[deed]
    session_id = session_of(before)
    path = Path(shutil.copy(before, tmp_path / "killed.db"))
    assert do(path, deed, 2, session_id, point) == -SIGKILL
    assert dump(path) == dump(after)
    await goes_on(path, session_id)


@pytest.mark.rule("CP-1", "CP-2", "CP-4", "SR-4")
@pytest.mark.parametrize("point", ROOM)
async def test_a_turn_killed_while_it_makes_room_keeps_every_summary_whole_or_none(
    talked: Path, tmp_path: Path, point: str
) -> None:
    """Each summary is there with its turn, its place and what it hides, or the originals are as they were."""
    session_id = session_of(talked)
    path = Path(shutil.copy(talked, tmp_path / "killed.db"))
    assert do(path, "make_room", 2, session_id, point) == -SIGKILL
    async with open_at(f"sqlite:///{talked}", START_MS + 3 * HOUR_MS) as engine:
        earlier = {row.id: row.parts for row in await engine.store.load_messages(session_id)}
        summaries = sum(t.kind == "compaction" for t in (await engine.store.load_tree(session_id)).turns.values())
    tree = await goes_on(path, session_id)
    made = sum(turn.kind == "compaction" for turn in tree.turns.values()) - summaries
    assert made in (0, 1, 2, 3)
    if point == "compact.before_commit=kill":
        assert made == 0
    async with open_at(f"sqlite:///{path}", START_MS + 4 * HOUR_MS) as engine:
        now = {row.id: row.parts for row in await engine.store.load_messages(session_id)}
    assert {id_: now[id_] for id_ in earlier} == earlier


async def test_an_unharmed_turn_makes_room_before_its_first_call_and_inside(talked: Path, tmp_path: Path) -> None:
    """The control: there are two summaries to be killed at, and the same orders leave the same bytes."""
    session_id = session_of(talked)
    dumps = []
    for name in ("one.db", "two.db"):
        path = Path(shutil.copy(talked, tmp_path / name))
        assert do(path, "make_room", 2, session_id) == 0
        dumps.append(dump(path))
    assert dumps[0] == dumps[1]
    tree = await goes_on(tmp_path / "one.db", session_id)
    assert sum(turn.kind == "compaction" for turn in tree.turns.values()) >= 3
