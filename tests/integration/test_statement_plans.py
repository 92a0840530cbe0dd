"""How SQLite runs each statement: which of them walk a whole session or a whole table, and that no other does."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from pathlib import Path

import clew
from clew.store.sql.sqlite.connection import QUERIES, connect

# Rows of what the session holds now, or all of the session because that is what is asked for.
BY_SESSION = {
    "delete_messages_of_session",
    "delete_parts_of_session",
    "delete_queued_of_session",
    "delete_schedules_of_session",
    "delete_session",
    "delete_turns_of_session",
    "delete_webhooks_of_session",
    "detach_calls_of_session",
    "has_more_turns",
    "load_calls",
    "load_snapshots",
    "load_links",
    "load_links_of_session",
    "load_marks_of_session",
    "load_messages",
    "load_parts_by_session",  # only where another index was found to be damaged
    "load_queue",
    "load_seals",
    "load_session_messages",
    "load_session_parts",
    "load_session_steps",
    "load_spend",
    "load_turns",
    "load_view_of_session",
    "lost_open_parts",  # once, as a store is opened in which a turn is open
    "loose_messages",
    "message_ids",
    "names_of_unfinished",
    "next_search_docs",
    "open_events_of_session",
    "print_messages",
    "queued_metadata",
    "sum_session",
    "turn_ids",
}
_MADE_LATER = re.compile(r"temp\.copied|search_(index|texts)")
"""Tables that are there once somebody branches or searches."""


async def test_no_statement_walks_a_session_but_those_that_are_asked_for_all_of_it(tmp_path: Path) -> None:
    """One that looks for a row it could name by a better key would hold up the one writer, longer with every turn."""
    file = tmp_path / "store.db"
    async with clew.open(f"sqlite:///{file}"):
        pass
    db = connect(file, writer=False)
    try:
        walking = {name for name, query in QUERIES.items() if _walks_a_session(db, query)}
    finally:
        db.close()
    assert walking == BY_SESSION


async def test_what_a_list_asks_about_its_page_reads_no_more_than_the_page(tmp_path: Path) -> None:
    """Whether any of its sessions has something open is found by their ids, however many sessions there are."""
    file = tmp_path / "store.db"
    async with clew.open(f"sqlite:///{file}"):
        pass
    db = connect(file, writer=False)
    try:
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {QUERIES['unsettled_among']}", {"ids": "[]"})]
    finally:
        db.close()
    assert [step for step in plan if step.startswith("SCAN")] == ["SCAN j VIRTUAL TABLE INDEX 1:"]


async def test_no_statement_is_worked_out_anew_for_other_values(tmp_path: Path) -> None:
    """SQLite plans one again each time where a value could make a partial index fit; a plus before the column tells it
    not to. To plan takes several times as long as to run."""
    file = tmp_path / "store.db"
    async with clew.open(f"sqlite:///{file}"):
        pass
    db = connect(file, writer=True)
    planned = 0

    def asked(*_: object) -> int:
        nonlocal planned
        planned += 1
        return sqlite3.SQLITE_OK

    db.set_authorizer(asked)
    try:
        again: set[str] = set()
        for name, query in QUERIES.items():
            names = re.findall(r":([a-z_0-9]+)", query)
            if not names or _MADE_LATER.search(query):
                continue
            db.execute("SAVEPOINT probe")
            for value in ("[]", "{}"):
                planned = 0
                with contextlib.suppress(sqlite3.Error):  # values that no table takes are bound all the same
                    db.execute(query, dict.fromkeys(names, value)).fetchall()
            again |= {name} if planned else set()
            db.execute("ROLLBACK TO probe")
            db.execute("RELEASE probe")
    finally:
        db.close()
    assert again == set()


def _walks_a_session(db: sqlite3.Connection, query: str) -> bool:
    if _MADE_LATER.search(query):
        return False
    params = dict.fromkeys(re.findall(r":([a-z_0-9]+)", query))
    plan = list(db.execute(f"EXPLAIN QUERY PLAN {query}", params or ("",) * query.count("?")))
    # A subquery that asks whether there is any stops at the first.
    any_of = {row[0] for row in plan if "SCALAR SUBQUERY" in row[3]}
    return any("_by_session (session_id=?)" in step for _, parent, _, step in plan if parent not in any_of)
