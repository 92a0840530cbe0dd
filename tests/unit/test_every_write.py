"""A write that somebody forgot is found here, and not by whoever stores the first one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

import msgspec
import pytest

from clew.errors import InternalError, RowUndecodable
from clew.ids import Mint
from clew.store.facts import Fact, FactType, Scope
from clew.store.files.session_value import SessionValue
from clew.store.sql.apply import UnitWriter
from clew.store.sql.log import SqlPresent
from clew.store.sql.sqlite.rebuild import restore
from clew.store.sql.sqlite.transactions import CommitJournal
from clew.store.unit import SharedWrite, Write
from clew.transcript.portable import PortableSession


def leaves(kind: type[Write]) -> list[type[Write]]:
    below = kind.__subclasses__()
    return [leaf for one in below for leaf in leaves(one)] if below else [kind]


WRITES = [kind for kind in leaves(Write) if kind.__module__ == Write.__module__]


class Nothing:
    """An engine, and an index, that have nothing and can do nothing."""

    tails = None

    def run(self, name: str, params: Mapping[str, Any]) -> int:
        raise LookupError(name)

    def many(self, name: str, params: Iterable[Mapping[str, Any]]) -> int:
        raise LookupError(name)

    def first(self, name: str, params: Mapping[str, Any]) -> tuple[Any, ...] | None:
        raise LookupError(name)

    def rows(self, name: str, params: Mapping[str, Any]) -> Iterable[tuple[Any, ...]]:
        raise LookupError(name)

    def each(self, name: str, params: Mapping[str, Any]) -> Iterable[tuple[Any, ...]]:
        raise LookupError(name)

    def note(self, message_ids: Iterable[str]) -> None:
        raise LookupError

    def forget_message(self, message_id: str) -> None:
        raise LookupError

    def forget_session(self, session_id: str) -> bool:
        raise LookupError


def in_sql(write: Write) -> None:
    UnitWriter(Nothing(), Mint(), Nothing(), CommitJournal(Nothing()))._apply_write("s", write)


def in_the_log(write: Write) -> None:
    Scope("s").take(write, SqlPresent(Nothing()))


@pytest.mark.parametrize("say", [in_sql, in_the_log])
@pytest.mark.parametrize("kind", WRITES, ids=lambda kind: kind.__name__)
def test_every_write_is_carried_out_by_every_store_and_known_to_the_log(
    kind: type[Write], say: Callable[[Write], None]
) -> None:
    """With nothing in it a write may fail in every way but one: that nobody knows it."""
    why = ""
    try:
        say(kind(**dict.fromkeys(kind.__struct_fields__)))
    except (InternalError, AttributeError, LookupError, TypeError) as error:
        why = str(error)
    assert not why.startswith(("unknown kind of write", "nobody "))


@pytest.mark.parametrize("base", [Write, SharedWrite])
@pytest.mark.parametrize("say", [in_sql, in_the_log])
def test_a_write_that_nobody_knows_is_refused(base: type[Write], say: Callable[[Write], None]) -> None:
    """Which is what the test above stands on. The classes of the vocabulary above the writes are such."""
    with pytest.raises(InternalError, match=r"^(unknown kind of write|nobody )"):
        say(base())


def test_every_fact_is_restored_and_one_of_no_known_type_is_damage() -> None:
    """None is passed over in silence: a store made from its log would lack what it told."""
    for kind in get_args(FactType):
        # With nothing in it a fact fails, but not by its type.
        with contextlib.suppress(KeyError, LookupError, msgspec.ValidationError):
            restore(Nothing(), Fact("s", 1, 1, kind, {}))
    with pytest.raises(RowUndecodable, match=r"unknown fact type: 'message\.pinned'"):
        restore(Nothing(), Fact("s", 1, 1, "message.pinned", {}))  # type: ignore[arg-type]


def test_every_table_of_a_session_travels_or_is_named_here() -> None:
    """A table that a session gains is carried by branches, conversions, exports and imports, or it is said why not."""
    carried_as = {
        "row": "session",
        "state": "epoch",  # the head and the open turn follow from the moves and the turns
        "messages": "messages",
        "turns": "turns",
        "links": "links",
        "moves": "moves",
        "steps": "steps",
        "queue": "queue",
        "seals": "seals",
        "blobs": "blobs",
        "pruned": "prunes",
        "calls": "calls",
    }
    # A stream in flight is in the parts of its message; a snapshot names a saved state on this machine.
    not_carried = {"journal", "marks", "snapshots"}
    assert carried_as.keys() | not_carried == set(SessionValue.__struct_fields__)
    assert set(carried_as.values()) <= set(PortableSession.__struct_fields__)
