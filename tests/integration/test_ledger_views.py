"""When a copied turn is the same as its origin and when it stands for itself, on rows written by hand."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

from clew.store.sql.statements import read_sql

pytestmark = pytest.mark.rule("BR-8")


class Rows:
    """A store's tables, filled turn by turn. Session ``A`` holds ``a1`` and below it ``a2`` of two messages."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.db = connection
        connection.execute("PRAGMA foreign_keys = ON")
        connection.executescript(read_sql("sqlite/schema.sql"))
        for id_ in "ABC":
            connection.execute(
                "INSERT INTO chat_sessions (id, agent, model_json, created_at, updated_at) VALUES (?, 'x', '{}', 1, 1)",
                (id_,),
            )
            connection.execute("INSERT INTO session_state (session_id) VALUES (?)", (id_,))
        self.turn("a1", None, ["d1"])
        self.turn("a2", "a1", ["d2", "d3"])

    def turn(
        self,
        id_: str,
        parent: str | None,
        seals: Sequence[str | None],
        origin: str | None = None,
        *,
        status: str = "completed",
        summary: dict[str, Any] | None = None,
    ) -> None:
        """A turn, and messages with these seals; the last turn of a session is its head."""
        session, kind = id_[0].upper(), "normal" if summary is None else "compaction"
        self.db.execute(
            "INSERT INTO chat_turns (id, session_id, parent_turn_id, turn_type, status, depth, origin_turn_id,"
            " created_at) VALUES (?, ?, ?, ?, ?, ifnull((SELECT depth + 1 FROM chat_turns WHERE id = ?), 0), ?, 1)",
            (id_, session, parent, kind, status, parent, origin),
        )
        for position, seal in enumerate(seals):
            self.hold(id_, f"{id_}-{position}", position, seal, summary)
        self.db.execute("UPDATE session_state SET head_turn_id = ? WHERE session_id = ?", (id_, session))

    def hold(self, turn: str, message: str, position: int, seal: str | None, summary: Any = None) -> None:
        session = turn[0].upper()
        self.db.execute("INSERT INTO chat_messages VALUES (?, ?, 'user', '{}', 1, 1)", (message, session))
        self.link(turn, position, message)
        if seal is not None:
            self.db.execute("INSERT INTO message_seals VALUES (?, ?)", (message, seal))
        if summary is not None:
            data = json.dumps({"type": "data-compaction", "data": summary})
            self.db.execute(
                "INSERT INTO chat_parts VALUES (?, ?, ?, 0, 'data-compaction', ?, NULL, NULL, 1, 1)",
                (f"p-{message}", message, session, data),
            )

    def link(self, turn: str, position: int, message: str) -> None:
        self.db.execute("INSERT INTO turn_messages VALUES (?, ?, ?)", (turn, position, message))

    def shown(self) -> dict[str, str | None]:
        """The turns of the ledger, each with its parent."""
        return dict(self.db.execute("SELECT id, parent_turn_id FROM ledger_turns ORDER BY id").fetchall())

    def head(self, session: str) -> str | None:
        [(turn_id,)] = self.db.execute("SELECT current_turn_id FROM ledger_sessions WHERE id = ?", (session,))
        assert turn_id is None or isinstance(turn_id, str)
        return turn_id


@pytest.fixture
def rows() -> Iterator[Rows]:
    with closing(sqlite3.connect(":memory:")) as connection:
        yield Rows(connection)


ORIGIN = {"a1": None, "a2": "a1"}


@pytest.mark.parametrize("seals", [("d1", "d2", "d3"), (None, None, None)], ids=["sealed", "unsealed"])
def test_a_copy_that_is_the_same_is_led_to_its_origin(rows: Rows, seals: tuple[str | None, ...]) -> None:
    """By seals that are equal, or that neither has; and so is a copy of the copy."""
    if seals[0] is None:
        rows.db.execute("DELETE FROM message_seals")
    rows.turn("b1", None, seals[:1], "a1")
    rows.turn("b2", "b1", seals[1:], "a2")
    rows.turn("c1", None, seals[:1], "b1")
    rows.turn("c2", "c1", seals[1:], "b2")
    assert rows.shown() == ORIGIN
    assert [rows.head(session) for session in "ABC"] == ["a2"] * 3
    rows.turn("c3", "c2", ["d4"])
    assert rows.shown() == {**ORIGIN, "c3": "a2"}
    assert rows.head("C") == "c3"
    assert len(rows.db.execute("SELECT * FROM ledger_messages").fetchall()) == 4


@pytest.mark.parametrize(
    ("seals", "status"),
    [
        pytest.param(["d2", "other"], "completed", id="other words"),
        pytest.param(["d2", None], "completed", id="not sealed"),
        pytest.param(["d3", "d2"], "completed", id="another order"),
        pytest.param(["d2"], "completed", id="cut"),
        pytest.param(["d2", "d3", "d4"], "completed", id="grown"),
        pytest.param(["d2", "d3"], "aborted", id="another end"),
    ],
)
def test_a_copy_that_differs_stands_for_itself_below_what_is_shared(rows: Rows, seals: Any, status: str) -> None:
    """What both hold is still one."""
    rows.turn("b1", None, ["d1"], "a1")
    rows.turn("b2", "b1", seals, "a2", status=status)
    assert rows.shown() == {**ORIGIN, "b2": "a1"}
    assert (rows.head("A"), rows.head("B")) == ("a2", "b2")


def test_below_a_copy_that_differs_nothing_is_shared(rows: Rows) -> None:
    """Else its turns would hang below what it does not hold."""
    rows.turn("b1", None, ["other"], "a1")
    rows.turn("b2", "b1", ["d2", "d3"], "a2")
    assert rows.shown() == {**ORIGIN, "b1": None, "b2": "b1"}


def test_a_slice_is_a_tree_of_its_own(rows: Rows) -> None:
    """From the middle; and from the beginning, from where on a summary was left out."""
    rows.turn("a3", "a2", ["s"], summary={"summary": "so far", "tail_start_id": None})
    rows.turn("a4", "a3", ["d5"])
    rows.turn("b2", None, ["d2", "d3"], "a2")
    rows.turn("c1", None, ["d1"], "a1")
    rows.turn("c2", "c1", ["d2", "d3"], "a2")
    rows.turn("c4", "c2", ["d5"], "a4")
    assert rows.shown() == {**ORIGIN, "a3": "a2", "a4": "a3", "b2": None, "c4": "a2"}


def test_a_copy_whose_origin_is_gone_stands_for_itself(rows: Rows) -> None:
    """Deleting one side leaves the other whole."""
    rows.turn("b1", None, ["d1"], "a1")
    rows.turn("b2", "b1", ["d2", "d3"], "a2")
    rows.db.execute("DELETE FROM chat_sessions WHERE id = 'A'")
    assert rows.shown() == {"b1": None, "b2": "b1"}
    assert rows.head("B") == "b2"


def test_a_summary_is_the_same_by_its_text(rows: Rows) -> None:
    """Its record names messages, which have other ids in the copy."""
    for session, through, kept, text in (("a", "a1-0", "a2-0", "so far"), ("b", "b1-0", "b2-0", "so far")):
        if session == "b":
            rows.turn("b1", None, ["d1"], "a1")
            rows.turn("b2", "b1", ["d2", "d3"], "a2")
        record: dict[str, Any] = {"summary": text, "tail_start_id": kept, "range": {"through_message_id": through}}
        record.update(tokens_before=900, tokens_after=90)
        rows.turn(f"{session}3", f"{session}2", [session], None if session == "a" else "a3", summary=record)
    assert rows.shown() == {**ORIGIN, "a3": "a2"}
    asked = (
        "SELECT summary, summarized_through_turn_id, first_kept_turn_id, tokens_before, tokens_after FROM ledger_turns"
        " WHERE turn_type = 'compaction'"
    )
    assert rows.db.execute(asked).fetchall() == [("so far", "a1", "a2", 900, 90)]
    rows.db.execute("UPDATE chat_parts SET data_json = replace(data_json, 'so far', 'other') WHERE session_id = 'B'")
    assert rows.shown() == {**ORIGIN, "a3": "a2", "b3": "a2"}
    # Those of the branch's own are led to the tree they are in.
    assert rows.db.execute(f"{asked} AND id = 'b3'").fetchall() == [("other", "a1", "a2", 900, 90)]


@pytest.mark.parametrize("below", [False, True])
def test_a_summary_names_the_turn_of_its_own_way(rows: Rows, below: bool) -> None:
    """A message that was sent again is held by several turns; the one that counts is above the summary, or below it."""
    way, other = ("a4", "a5") if below else ("a5", "a4")
    for turn in ("a4", "a5"):
        rows.turn(turn, "a2", [])
    record = {"summary": "so far", "tail_start_id": "m", "range": {"through_message_id": "a2-0"}}
    if below:
        rows.turn("a3", "a2", ["s"], summary=record)
        rows.db.execute("UPDATE chat_turns SET parent_turn_id = 'a3', depth = depth + 1 WHERE id = ?", (way,))
    else:
        rows.turn("a3", way, ["s"], summary=record)
    rows.hold(way, "m", 0, "dm")
    rows.link(other, 0, "m")
    asked = "SELECT summarized_through_turn_id, first_kept_turn_id FROM ledger_turns WHERE id = 'a3'"
    assert rows.db.execute(asked).fetchall() == [("a2", way)]


@pytest.mark.rule("BR-8")
@pytest.mark.parametrize("again", [False, True])
def test_a_long_history_with_many_summaries_is_read_in_few_steps(rows: Rows, again: bool) -> None:
    """In proportion to its turns: for a summary nobody walks up to the beginning, also not when messages came again."""
    length, each = 3_000, 20
    for number in range(length):
        id_, parent = f"c{number:04}", f"c{number - 1:04}" if number else None
        if number % each:
            rows.turn(id_, parent, ["d"])
            if again and number % each == each - 2:
                rows.turn(f"{id_}x", parent, [])
                rows.link(f"{id_}x", 0, f"{id_}-0")
        else:
            record = {"summary": "so far", "range": {"through_message_id": f"c{max(number - 2, 0):04}-0"}}
            rows.turn(id_, parent, ["s"], summary={**record, "tail_start_id": f"c{max(number - 1, 0):04}-0"})
    steps = [0]

    def step() -> int:
        steps[0] += 1
        return steps[0] > 100

    rows.db.set_progress_handler(step, 10_000)
    asked = "SELECT count(*), sum(summarized_through_turn_id = printf('c%04d', depth - 2)) FROM ledger_turns"
    summaries = "WHERE turn_type = 'compaction' AND depth > 0"
    assert rows.db.execute(f"{asked} {summaries}").fetchall() == [(length // each - 1, length // each - 1)]


def test_a_summary_that_kept_nothing_says_so(rows: Rows) -> None:
    """Its record names itself as what follows."""
    record = {"summary": "all", "tail_start_id": "a3-0", "range": {"through_message_id": "a2-1"}}
    rows.turn("a3", "a2", ["s"], summary=record)
    asked = "SELECT summarized_through_turn_id, first_kept_turn_id FROM ledger_turns WHERE id = 'a3'"
    assert rows.db.execute(asked).fetchall() == [("a2", None)]


def test_a_row_that_no_longer_reads_costs_itself(rows: Rows) -> None:
    """Damaged metadata and parts leave the views readable."""
    rows.turn("a3", "a2", ["s"], summary={"summary": "x"})
    rows.db.execute("UPDATE chat_parts SET data_json = '{'")
    rows.db.execute("UPDATE chat_sessions SET metadata_json = '{'")
    rows.db.execute("INSERT INTO chat_parts VALUES ('p', 'a1-0', 'A', 0, 'tool-x', '{', 'c', 'x', 1, 1)")
    assert rows.shown() == {**ORIGIN, "a3": "a2"}
    assert rows.db.execute("SELECT summary FROM ledger_turns WHERE id = 'a3'").fetchall() == [(None,)]
    assert rows.db.execute("SELECT label, kind FROM ledger_sessions WHERE id = 'A'").fetchall() == [(None, "chat")]
    assert rows.db.execute("SELECT * FROM ledger_tool_calls").fetchall() == []
