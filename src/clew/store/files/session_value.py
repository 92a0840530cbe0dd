"""A session as a value: everything its files say, as tables of entries, and the JSON form of the tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from clew.convert import convert
from clew.ids import derived_id
from clew.store import unit as u
from clew.transcript.chunk import chunk_dict, parse_chunk
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.model_call import ModelCall
from clew.transcript.portable import rename_part, rename_row
from clew.transcript.pruned import Pruned
from clew.transcript.session import Session, SessionState, Spend
from clew.transcript.spend import add_costs
from clew.transcript.turn import HeadMove, Step, Tree, Turn
from clew.transcript.workspace_snapshot import WorkspaceSnapshot

__all__ = [
    "ABSENT",
    "TABLES",
    "TABLE_OF",
    "Entries",
    "OwnIds",
    "SessionValue",
    "decode_entry",
    "dump_table",
    "load_entry",
]

_STAMP: Final = re.compile("[0-9a-f]{12}")
ABSENT: Final = object()
"""The entry of a table under a key that it does not have."""

Entries = Mapping[tuple[str, Any], tuple[Any, Any]]
"""The changes of a unit: by table and key, the entry before and after it."""
_NAMING: Final = frozenset({"messages", "turns", "moves", "calls", "snapshots"})
"""Tables whose entries name their session."""


class SessionValue(msgspec.Struct, eq=True):
    """Everything of one session. Each field is a table, which the file formats write and read by its name."""

    row: dict[str, Session]
    state: dict[str, SessionState]
    messages: dict[str, MessageRow] = {}
    turns: dict[str, Turn] = {}
    links: dict[str, tuple[str, ...]] = {}
    moves: dict[int, HeadMove] = {}
    steps: dict[str, tuple[Step, ...]] = {}
    queue: dict[str, u.Enqueue] = {}
    journal: dict[str, tuple[u.JournalEntry, ...]] = {}
    marks: dict[str, int] = {}
    seals: dict[str, str] = {}
    blobs: dict[str, None] = {}
    pruned: dict[tuple[int, str, int], Pruned] = {}
    calls: dict[str, ModelCall] = {}
    snapshots: dict[str, WorkspaceSnapshot] = {}

    @classmethod
    def of(cls, session: Session) -> SessionValue:
        """Return a session without turns and messages."""
        return cls({"session": session}, {"state": SessionState()})

    def tables(self) -> dict[str, dict[Any, Any]]:
        """Return the tables by name."""
        return msgspec.structs.asdict(self)

    def copy(self) -> SessionValue:
        """Return the same entries in tables of their own; an entry itself never changes."""
        return SessionValue(**{name: dict(table) for name, table in self.tables().items()})

    def apply(self, entries: Entries) -> None:
        """Set the changed entries."""
        for (name, key), (_, after) in entries.items():
            table = getattr(self, name)
            if after is ABSENT:
                table.pop(key, None)
            else:
                table[key] = after

    @property
    def session(self) -> Session:
        return replace(self.row["session"], head_turn_id=self.state["state"].head_turn_id)

    @property
    def spend(self) -> Spend:
        """The session's own spend, without its subagents."""
        calls = self.calls.values()
        cost = add_costs(call.cost_usd for call in calls)
        return Spend(len(calls), sum(call.usage.total for call in calls), cost, 0)

    def tree(self) -> Tree:
        state = self.state["state"]
        moves = tuple(self.moves[seq] for seq in sorted(self.moves))
        return Tree(state.head_turn_id, state.open_turn_id, dict(self.turns), dict(self.links), moves)


class OwnIds:
    """Renames a session that a user copied by hand: its ids are derived from its own id and the original's.

    The original may be in the same folder, and ids are unique in a store.
    """

    def __init__(self, value: SessionValue, session_id: str) -> None:
        self._session_id = session_id
        self._at = value.row["session"].created_at
        self._known = {*value.messages, *value.turns, *value.calls}

    def __call__(self, old: str) -> str:
        if old not in self._known:
            return old
        prefix = old[: old.find("_") + 1]
        new, stamp = derived_id(prefix, self._session_id, old, self._at), _STAMP.match(old, len(prefix))
        # The stamp of the original: messages of one moment are ordered by their ids.
        return new if stamp is None else f"{prefix}{stamp[0]}{new[stamp.end() :]}"

    def apply(self, value: SessionValue) -> None:
        """Rename everything in a session."""
        value.snapshots = {}  # the saved states belong to the original
        sound = {id_ for id_, row in value.messages.items() if value.seals.get(id_) == row.seal}
        for name, table in value.tables().items():
            setattr(value, name, {self.key(name, key): self.entry(name, key, one) for key, one in table.items()})
        value.row["session"] = replace(value.row["session"], alias=None)  # which names the original
        for id_ in sound:  # a seal covers the ids inside the parts
            value.seals[self(id_)] = value.messages[self(id_)].seal

    def key(self, name: str, key: Any) -> Any:
        """Return the new key of an entry."""
        if name == "pruned":
            return (key[0], self(key[1]), key[2])
        return self(key) if isinstance(key, str) and name not in ("row", "state", "blobs") else key

    def entry(self, name: str, key: Any, entry: Any) -> Any:
        """Return an entry of a table with new ids."""
        match name:
            case "messages":
                return replace(rename_row(entry, self), parts=tuple(self._part(key, part) for part in entry.parts))
            case "links":
                return tuple(map(self, entry))
            case "steps":
                return tuple(rename_row(step, self) for step in entry)
            case "state" | "turns" | "moves" | "queue" | "pruned" | "calls":
                return rename_row(entry, self)
        return entry

    def _part(self, message_id: str, part: PartRow) -> PartRow:
        id_ = derived_id("prt_", self._session_id, f"{message_id}/{part.index}", part.created_at)
        return replace(part, id=id_, data=rename_part(part.data, self))


class _Table(NamedTuple):
    """The encoding of a table's entries: of the values, and of the keys.

    ``record_type`` is the type of its records in a log. Readers ignore unknown types. Messages have none: they are
    written in the form that other programs read.
    """

    record_type: str | None
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    decode_key: Callable[[Any], Any] = str


def _of(record_type: str | None, kind: Any, decode_key: Callable[[Any], Any] = str) -> _Table:
    return _Table(record_type, msgspec.to_builtins, lambda value: convert(value, kind), decode_key)


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


TABLES: Final[dict[str, _Table]] = {
    "row": _Table("session", _encode_session, lambda value: convert(value, Session)),
    "state": _Table("state", _encode_state, lambda value: convert(value, SessionState)),
    "messages": _of(None, MessageRow),
    "turns": _of("turn", Turn),
    "links": _of("link", tuple[str, ...]),
    "moves": _of("move", HeadMove, int),
    "steps": _of("step", tuple[Step, ...]),
    "queue": _of("queue", u.Enqueue),
    "journal": _Table("chunks", _encode_journal, _decode_journal),
    "marks": _of("mark", int),
    "seals": _of("seal", str),
    "blobs": _Table("blob", lambda _: None, lambda _: None),
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
