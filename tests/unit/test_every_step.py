"""Steps of a new write or a new store method that were forgotten are named here."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import clew.testing.store_suite
from clew.store.base import Store
from clew.store.sql.sqlite.connection import connect_in_memory
from clew.store.sql.sqlite.migrate import migrate
from clew.transcript.portable import PortableSession
from tests.unit.test_every_write import WRITES

SUITE = [ast.parse(file.read_text("utf-8")) for file in Path(clew.testing.store_suite.__file__).parent.glob("*.py")]
NODES = [node for tree in SUITE for node in ast.walk(tree)]
MADE = {getattr(node.func, "attr", getattr(node.func, "id", "")) for node in NODES if isinstance(node, ast.Call)}
ASKED = {node.attr for node in NODES if isinstance(node, ast.Attribute)}

ELSEWHERE = {
    # Only a store with an owner of its files:
    "accept_loss": "tests/integration/test_no_false_alarm.py",
    "losses": "tests/integration/test_acknowledged.py",
    "announce": "tests/integration/test_one_owner.py",
    "backup": "tests/integration/test_faults_sqlite.py",
    "write_ledger": "tests/integration/test_cli_ledger.py",
    # Only with an event log, or with an index to search:
    "load_facts": "tests/contract/test_facts.py",
    "rebuild": "tests/acceptance/test_rebuild.py",
    "rebuild_search": "tests/contract/test_search.py",
    # Every recorder of the suite writes through it:
    "hub": "tests/integration/test_hub.py",
}
"""Methods of a store without a case in the suite, and where they are tested."""

CARRIED = {
    "chat_sessions": "session",
    "session_state": "epoch",  # the head and the open turn follow from the moves and the turns
    "chat_messages": "messages",
    "chat_parts": "messages",
    "chat_turns": "turns",
    "turn_messages": "links",
    "head_moves": "moves",
    "turn_steps": "steps",
    "message_queue": "queue",
    "message_seals": "seals",
    "blob_links": "blobs",
    "pruned_outputs": "prunes",
    "model_calls": "calls",
}
"""The field of a portable session that has the rows of a table."""

NOT_CARRIED = {
    "journal_marks": "a stream in flight is in the parts of its message",
    "search_docs": "derived from the parts",
    "search_marks": "derived from the parts",
    "adopted_messages": "about another program that writes to this store",
    "workspace_snapshots": "a saved state is on this machine, and belongs to this session alone",
    "ledger_events": "of the store: what arrived there, and what was answered",
    "schedules": "of the store, which runs them",
    "webhooks": "of the store, which is called",
}
"""Tables that name a session and stay behind, and why."""


@pytest.mark.parametrize("kind", WRITES, ids=lambda kind: kind.__name__)
def test_every_write_has_a_case_in_the_store_suite(kind: type) -> None:
    """The suite makes one; what the recorder writes is not made there by itself."""
    assert kind.__name__ in MADE


def test_every_method_of_a_store_has_a_case_in_the_store_suite() -> None:
    """Or it is named above with the place where it is tested instead."""
    contracts = [one for one in Store.__mro__ if one.__module__.startswith("clew.store")]
    methods = {
        name
        for contract in contracts
        for name, one in vars(contract).items()
        if not name.startswith("_") and (inspect.isfunction(one) or isinstance(one, property))
    }
    assert methods - ASKED == ELSEWHERE.keys()
    root = Path(__file__).parents[2]
    assert [name for name, file in ELSEWHERE.items() if not (root / file).is_file()] == []


def test_every_table_of_a_session_is_carried_or_is_named_here() -> None:
    """A table that names a session is part of branches, conversions, exports and imports, or stays for a reason."""
    database = connect_in_memory()
    migrate(database, Path(":memory:"))
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    of_session = {"chat_sessions"}
    for _ in tables:  # what refers to a table of a session is one too
        of_session |= {
            table
            for table in tables
            if any(key[2] in of_session for key in database.execute(f"PRAGMA foreign_key_list({table})"))
            or any(column[1] == "session_id" for column in database.execute(f"PRAGMA table_info({table})"))
        }
    assert CARRIED.keys() | NOT_CARRIED.keys() == of_session
    assert CARRIED.keys().isdisjoint(NOT_CARRIED)
    assert set(CARRIED.values()) <= set(PortableSession.__struct_fields__)
