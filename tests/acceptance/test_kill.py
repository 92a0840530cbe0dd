"""Kill -9, again and again: what was shown is stored, what is stored is whole, and recovery is done in one go.

Each test starts children that record streams into a real store, kills them, opens the store (which recovers it)
and judges. The judgement is that of the campaign, in ``tests/rig``.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from clew.store.sql.journal import short_name
from clew.store.sql.sqlite.migrate import SCHEMA_VERSION
from clew.store.sql.sqlite.opening import SqliteOptions, open_sqlite
from clew.transcript.chunk import decode_rows
from tests.rig.child import Child, Orders, StreamOf, random_plan
from tests.rig.failpoint_names import failpoint_names
from tests.rig.old_store import make_old_store
from tests.rig.streamer import KINDS
from tests.rig.witness import Witness, dump, life
from tests.rounds import rounds

pytestmark = pytest.mark.kill

KILLS = rounds(24)
BATCH = 12

PASSAGES: dict[str, tuple[int, ...]] = {
    "recorder.before_submit": (1, 2, 7, 60),
    "recorder.before_show": (1, 2, 7, 60),
    "writer.in_transaction": (1, 2, 7, 60),
    "writer.before_commit": (1, 2, 7, 60),
    "writer.after_commit_before_ack": (1, 2, 7, 60),
    "writer.checkpoint": (1, 2),
    "migrate.before_step": (1, 10, SCHEMA_VERSION - 10),
    "migrate.before_commit": (1, *(2,) * (SCHEMA_VERSION - 2), 1),
    "recovery.before_fold": (1, 2, 3),
    "recovery.before_settle": (1, 2, 3),
}
"""Every failpoint there is, and at which of its passages a child is killed."""


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    return Witness(tmp_path / "store.db")


# Random moments


@pytest.mark.rule("SV-3")
@pytest.mark.parametrize("seed", range(-(-KILLS // BATCH)), ids=lambda seed: f"seed-{seed}")
async def test_nothing_shown_is_lost_at_random_kills(witness: Witness, seed: int, record_property: Any) -> None:
    """One store lives through all kills of a batch: each start is a recovery, each judgement covers all lives."""
    random = Random(seed)
    how: Any = {"durability": "power" if seed % 2 else "process", "size": random.choice((60, 200, 500))}
    for number in range(min(BATCH, KILLS - seed * BATCH)):
        with Child(Orders(store=witness.url, seed=seed * BATCH + number, **how)) as child:
            child.kill_by(random_plan(random))
        witness.add(child)
        assert await witness.judge() == [], f"after kill {number}"
    record_property("figure", f"random kills, seed {seed}: {witness.figure}")
    # A campaign that killed only children which had not begun would pass too, and say nothing.
    if witness.kills == BATCH:
        assert witness.acknowledged >= 50 * BATCH
        assert witness.mid_stream >= BATCH // 3


async def test_every_kind_of_part_is_recorded_and_seen_by_the_judge(witness: Witness) -> None:
    """The scripts hold what the campaign claims: text, reasoning, tool input, tool output, files, and all the rest."""
    life(witness, 5, turns=len(KINDS), size=60)
    with closing(sqlite3.connect(f"file:{witness.path}?mode=ro", uri=True)) as connection:
        found = {kind for (kind,) in connection.execute("SELECT DISTINCT type FROM chat_parts")}
        states = {state for (state,) in connection.execute("SELECT DISTINCT tool_state FROM chat_parts")}
    assert {"text", "reasoning", "file", "step-start", "tool-search", "tool-read", "data-progress"} <= found
    assert {"input-streaming", "input-available", "output-available", "output-error"} <= states
    assert {stream.kind for stream in witness.streams.values()} == set(KINDS)
    assert len(witness.settled) == len(KINDS) ** 2
    assert await witness.judge() == []


# Failpoints


def test_every_failpoint_of_the_source_is_killed_at() -> None:
    """Here, or in a suite of its own that names it: one that is added to the source, or goes from it, shows here."""
    here = Path(__file__)
    others = "".join(path.read_text() for path in here.parents[1].glob("*/test_*.py") if path != here)
    elsewhere = set(re.findall(r"\b([a-z_]+\.[a-z_]+)=kill", others))
    assert set(PASSAGES) <= set(failpoint_names())
    assert set(failpoint_names()) - set(PASSAGES) - elsewhere == set()


def points(*prefixes: str) -> list[Any]:
    return [
        pytest.param(name, nth, id=f"{name}@{nth}")
        for name, passages in PASSAGES.items()
        if name.startswith(prefixes)
        for nth in passages
    ]


@pytest.mark.rule("SV-3", "SV-1")
@pytest.mark.parametrize(("name", "nth"), points("recorder.", "writer."))
async def test_nothing_shown_is_lost_at_a_failpoint(
    witness: Witness, name: str, nth: int, record_property: Any
) -> None:
    """Killed while it records, at one point of the code; judged, gone on with, judged again."""
    # The sixtieth passage is in the middle of a stream, however many chunks a loaded machine stores at once.
    child = life(witness, nth, f"{name}=kill@{nth}", size=2_000 if nth >= 60 else 200)
    assert await witness.judge() == []
    if nth >= 60:
        assert child.acks > 0
        assert child.mid_stream
    after = life(witness, nth + 1000, turns=1, size=40)
    assert len(after.settled) == len(KINDS)
    assert await witness.judge() == []
    record_property("figure", f"kill at {name}@{nth}: {witness.figure}")


@pytest.mark.rule("SV-3", "SR-4")
@pytest.mark.parametrize(("name", "nth"), points("recovery."))
async def test_a_kill_in_recovery_leaves_the_rest_for_the_next_one(witness: Witness, name: str, nth: int) -> None:
    """What was folded and settled before the kill stays so, the rest is done by whoever opens the store next."""
    with Child(Orders(store=witness.url, seed=31, stage="hold", streams=4)) as child:
        child.wait_until(lambda child: child.staged)
        child.kill()
    witness.add(child)
    streams = list(child.streams)
    assert await left_behind(witness.path) == (streams, 4)
    again = life(witness, 32, f"{name}=kill@{nth}")
    assert not again.ready
    # Every stream, then every session, is one unit: as many as were passed before the kill are done, whole.
    done = (streams[nth - 1 :], 4) if name == "recovery.before_fold" else ([], 4 - (nth - 1))
    assert await left_behind(witness.path) == done
    assert await witness.judge() == []
    assert await left_behind(witness.path) == ([], 0)


@pytest.mark.rule("ST-7")
@pytest.mark.parametrize("name", ["migrate.before_step", "migrate.before_commit"])
async def test_a_kill_in_a_migration_leaves_a_whole_version_behind(witness: Witness, name: str) -> None:
    """The steps before the kill stand, the one it hit never happened, and the next start goes on from there: one file,
    killed inside of every step on its way, and between some."""
    make_old_store(witness.path, 1)
    reached = 1
    for nth in PASSAGES[name]:
        assert not life(witness, nth, f"{name}=kill@{nth}").ready
        reached += nth - 1
        assert version(witness.path) == reached
    assert reached == SCHEMA_VERSION - 1
    life(witness, 1, turns=1, size=40)
    assert version(witness.path) == SCHEMA_VERSION
    assert await witness.judge() == []


@pytest.mark.rule("ST-7")
async def test_a_kill_while_the_schema_is_made_leaves_an_empty_file(witness: Witness) -> None:
    """A new store is there whole or not at all."""
    life(witness, 1, "migrate.before_commit=kill")
    assert version(witness.path) == 0
    assert dump(witness.path).splitlines() == ["BEGIN TRANSACTION;", "COMMIT;"]
    life(witness, 1, turns=1, size=40)
    assert await witness.judge() == []


async def left_behind(path: Path) -> tuple[list[str], int]:
    """The messages whose streams wait to be folded, and how many turns are open; reading recovers nothing."""
    store = await open_sqlite(path, SqliteOptions(read_only=True))
    try:
        waiting = [stream.message.id for stream in await store.pending_streams()]
        states = [await store.load_state(session_id) for session_id in await store.session_ids()]
        return waiting, sum(state.open_turn_id is not None for state in states)
    finally:
        await store.close()


def version(path: Path) -> int:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        found: int = connection.execute("PRAGMA user_version").fetchone()[0]
        return found


# The control


async def test_a_chunk_acknowledged_before_its_commit_is_found_to_be_lost(witness: Witness) -> None:
    """The child commits chunk by chunk and dies in the commit of the eighteenth, which it has shown already."""
    life(witness, 8, "writer.before_commit=kill@20", ack_early=True, stage="hold", streams=1)
    [stream] = witness.streams.values()
    script = stream.script()
    assert witness.shown == {stream.message_id: script[:18]}
    assert await witness.judge() == [
        f"{stream.session_id} {stream.message_id}: the stored message lacks some of what was shown",
        f"{stream.message_id} (text): it is not the fold of 18 to {len(script)} chunks of its script",
    ]


async def test_the_same_kill_loses_nothing_that_was_acknowledged_in_time(witness: Witness) -> None:
    """The control's twin: one thing differs, and so does the verdict."""
    life(witness, 8, "writer.before_commit=kill@20", stage="hold", streams=1)
    [stream] = witness.streams.values()
    assert witness.shown == {stream.message_id: stream.script()[:17]}
    assert await witness.judge() == []
    assert witness.ahead == 0


async def test_streams_acknowledged_too_early_are_found_out_under_load_too(
    witness: Witness, record_property: Any
) -> None:
    """The random campaign's own control: many streams at once, killed in a commit."""
    caught = 0
    for seed in range(4):
        early = Witness(witness.path.with_name(f"early-{seed}.db"))
        child = life(early, seed, "writer.before_commit=kill@60", ack_early=True)
        assert child.acks > 0
        problems = await early.judge()
        caught += any(text.endswith("the stored message lacks some of what was shown") for text in problems)
    record_property("figure", f"control, acknowledged before the commit: loss found in {caught} of 4 kills")
    assert caught >= 1


@pytest.mark.parametrize(
    "change",
    [
        pytest.param("substr(data_json, 1, length(data_json) - 30) || '\"}'", id="torn"),
        pytest.param("replace(data_json, 'the ', 'the the ')", id="doubled"),
        pytest.param("replace(data_json, 'the ', '')", id="lost"),
        pytest.param("replace(data_json, 'the of ', 'of the ')", id="out of order"),
    ],
)
async def test_the_judgement_finds_what_was_changed_by_hand(witness: Witness, change: str) -> None:
    """In a store that is sound but for one part: the script, the judge and the seal each say so."""
    life(witness, 3, turns=1, size=400, streams=1)
    assert await witness.judge() == []
    [message_id] = witness.streams
    with closing(sqlite3.connect(witness.path, isolation_level=None)) as connection:
        connection.execute(
            f"UPDATE chat_parts SET data_json = {change} WHERE type = 'text' AND message_id = ?", (message_id,)
        )
    session_id = witness.streams[message_id].session_id
    script = len(witness.streams[message_id].script())
    fresh = Witness(witness.path)
    fresh.streams, fresh.shown, fresh.settled = witness.streams, witness.shown, witness.settled
    assert await fresh.judge() == [
        f"{session_id} {message_id}: it was changed after it had settled: its seal does not match",
        f"{session_id} {message_id}: the stored message lacks some of what was shown",
        f"{message_id} (text): it is not the fold of {script} to {script} chunks of its script",
        f"{message_id} was settled, but its seal does not match",
    ]


async def test_the_judgement_finds_chunks_shown_twice_or_out_of_order(witness: Witness) -> None:
    """What was shown must be how the script begins, chunk for chunk."""
    life(witness, 3, turns=1, streams=1)
    [(message_id, chunks)] = witness.shown.items()
    for wrong in ([*chunks[:5], *chunks[4:]], [*chunks[:4], chunks[5], chunks[4], *chunks[6:]], chunks[1:]):
        witness.shown = {message_id: wrong}
        assert f"{message_id} (text): the shown chunks are not a prefix of its script" in await witness.judge()


# Two streams in one journal row


def journal(path: Path) -> list[dict[str, int]]:
    """Each journal row as the number of the last chunk it holds, by message."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        rows = connection.execute("SELECT data FROM stream_journal ORDER BY n").fetchall()
        called = {short_name(id_): id_ for (id_,) in connection.execute("SELECT message_id FROM journal_marks")}
    return [{called[name]: n for name, n, _, _ in decode_rows(data)} for (data,) in rows]


def marks(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return dict(connection.execute("SELECT message_id, folded_through FROM journal_marks"))


def stage(witness: Witness, name: Any) -> tuple[StreamOf, StreamOf]:
    """Kill a child that has brought two streams into one journal row and folded the first of them."""
    with Child(Orders(store=witness.url, seed=8, stage=name, size=40)) as child:
        child.wait_until(lambda child: child.staged)
        child.kill()
    witness.add(child)
    folded, waiting = child.streams.values()
    return folded, waiting


@pytest.mark.rule("SV-3")
async def test_a_row_shared_by_a_folded_and_a_waiting_stream_is_recovered_once(witness: Witness) -> None:
    """The one that is folded is not folded again, the one that waits is; then the row goes."""
    folded, waiting = stage(witness, "shared-row")
    assert journal(witness.path) == [{folded.message_id: 12, waiting.message_id: 12}]
    assert marks(witness.path) == {folded.message_id: len(witness.shown[folded.message_id]), waiting.message_id: 2}
    assert await left_behind(witness.path) == ([waiting.message_id], 2)
    assert await witness.judge() == []
    assert journal(witness.path) == []
    assert marks(witness.path) == {}
    # All of the text of the first and its end, ten chunks of the other's: what was shown is what is stored.
    assert [len(witness.shown[stream.message_id]) for stream in (folded, waiting)] == [len(folded.script()) - 2, 12]
    assert witness.ahead == 0


@pytest.mark.rule("ST-11", "SV-3")
async def test_deleting_one_session_of_a_shared_row_takes_its_chunks_and_leaves_the_other_whole(
    witness: Witness,
) -> None:
    """Nothing of the deleted session is left in the journal, though the row is still needed."""
    gone, kept = stage(witness, "shared-row-delete")
    witness.deleted.add(gone.session_id)
    assert journal(witness.path) == [{kept.message_id: 12}]
    assert marks(witness.path) == {kept.message_id: 2}
    before = dump(witness.path)
    assert gone.message_id not in before
    assert gone.session_id not in before
    assert await witness.judge() == []
    assert journal(witness.path) == []
