"""The JSON form of a session's tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from clew.convert import convert
from clew.store import unit as u
from clew.store.files.session_value import SessionValue
from clew.transcript.chunk import chunk_dict, parse_chunk
from clew.transcript.message import MessageRow
from clew.transcript.model_call import ModelCall
from clew.transcript.pruned import Pruned
from clew.transcript.session import Session, SessionState
from clew.transcript.turn import HeadMove, Step, Turn
from clew.transcript.workspace_snapshot import WorkspaceSnapshot

__all__ = ["TABLES", "TABLE_OF", "Table", "decode_entry", "dump_table", "load_entry"]

_NAMING: Final = frozenset({"messages", "turns", "moves", "calls", "snapshots"})
"""Tables whose entries name their session."""


class Table(NamedTuple):
    """The encoding of a table's entries: of the values, and of the keys.

    ``record_type`` is the type of its records in a log. Readers ignore unknown types. Messages have none: they are
    written in the form that other programs read.
    """

    record_type: str | None
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    decode_key: Callable[[Any], Any] = str


def _of(record_type: str | None, kind: Any, decode_key: Callable[[Any], Any] = str) -> Table:
    return Table(record_type, msgspec.to_builtins, lambda value: convert(value, kind), decode_key)


def _encode_journal(entries: tuple[u.JournalEntry, ...]) -> list[Any]:
    return [[entry.n, entry.part, chunk_dict(entry.chunk)] for entry in entries]


def _decode_journal(entries: list[Any]) -> tuple[u.JournalEntry, ...]:
    return tuple(u.JournalEntry(n, part, parse_chunk(chunk)) for n, part, chunk in entries)


def _encode_session(session: Session) -> dict[str, Any]:
    encoded: dict[str, Any] = msgspec.to_builtins(session)
    del encoded["spend"]  # it is added up from the calls
    return encoded


def _encode_state(state: SessionState) -> dict[str, Any]:
    encoded: dict[str, Any] = msgspec.to_builtins(state)
    if state.runner is None:
        del encoded["runner"]  # a folder has a single owner
    return encoded


TABLES: Final[dict[str, Table]] = {
    "row": Table("session", _encode_session, lambda value: convert(value, Session)),
    "state": Table("state", _encode_state, lambda value: convert(value, SessionState)),
    "messages": _of(None, MessageRow),
    "turns": _of("turn", Turn),
    "links": _of("link", tuple[str, ...]),
    "moves": _of("move", HeadMove, int),
    "steps": _of("step", tuple[Step, ...]),
    "queue": _of("queue", u.Enqueue),
    "journal": Table("chunks", _encode_journal, _decode_journal),
    "marks": _of("mark", int),
    "seals": _of("seal", str),
    "blobs": Table("blob", lambda _: None, lambda _: None),
    "pruned": _of("prune", Pruned, lambda key: (int(key[0]), str(key[1]), int(key[2]))),
    "calls": _of("call", ModelCall),
    "snapshots": _of("snapshot", WorkspaceSnapshot),
}
"""Every table of a session. One that is added to :class:`SessionValue` must be added here."""
TABLE_OF: Final = {table.record_type: name for name, table in TABLES.items() if table.record_type is not None}
"""Tables by the type of their records."""


def load_entry(value: SessionValue, name: str, key: Any, encoded: Any) -> None:
    """Put an entry into its table."""
    getattr(value, name)[TABLES[name].decode_key(key)] = decode_entry(value, name, encoded)


def decode_entry(value: SessionValue, name: str, encoded: Any) -> Any:
    """Return an entry with the id of this session: the path of a file determines the session, not its contents."""
    one = TABLES[name].decode(encoded)
    session_id = value.row["session"].id
    if name == "row":
        return replace(one, id=session_id) if one.id != session_id else one
    if name in _NAMING and one.session_id != session_id:
        return replace(one, session_id=session_id)
    return one


def dump_table(value: SessionValue, name: str) -> list[list[Any]]:
    """Return a table as pairs of key and value."""
    return [[key, TABLES[name].encode(one)] for key, one in getattr(value, name).items()]
