"""A session as a value: everything its files say, as tables of entries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from clew.ids import derived_id
from clew.store import unit as u
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.model_call import ModelCall
from clew.transcript.portable import rename_part, rename_row
from clew.transcript.pruned import Pruned
from clew.transcript.session import Session, SessionState, Spend
from clew.transcript.spend import add_costs
from clew.transcript.turn import HeadMove, Step, Tree, Turn
from clew.transcript.workspace_snapshot import WorkspaceSnapshot

__all__ = ["ABSENT", "Entries", "OwnIds", "SessionValue"]

_STAMP: Final = re.compile("[0-9a-f]{12}")
ABSENT: Final = object()
"""The entry of a table under a key that it does not have."""

Entries = Mapping[tuple[str, Any], tuple[Any, Any]]
"""The changes of a unit: by table and key, the entry before and after it."""


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
