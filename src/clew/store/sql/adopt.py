"""Adoption in SQL: finding what another program wrote into a session and adopting it, in one transaction.

:mod:`clew.store.adoption` decides what to write. A check that finds nothing costs a walk over the index of the
session's messages; an adoption without changes writes nothing, so repeating one does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

from clew.convert import convert
from clew.errors import RowUndecodable
from clew.ids import Mint, is_shared_id
from clew.store.adoption import Adoption, Shared, plan_adoption
from clew.store.base import Damage
from clew.store.sql import rows
from clew.store.sql.line_reader import load_state, load_tree
from clew.store.sql.messages import ROLES
from clew.store.sql.statements import Statements
from clew.store.unit import Enqueue
from clew.transcript.line import end_of_line
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.metadata import projection_of
from clew.transcript.session import Session

if TYPE_CHECKING:
    from clew.store.sql.apply import UnitWriter

__all__ = ["Adopter", "any_unadopted", "unadopted_sessions"]


_MAX_SEEN: Final = 10_000


class Adopter:
    """Adopts what other programs wrote. ``again`` are sessions with something left that the next unit may settle."""

    def __init__(self, sql: Statements, units: UnitWriter, mint: Mint, is_unchanged: Callable[[str], bool]) -> None:
        """``is_unchanged``: whether nothing was added to a session since it was last checked, according to the adoption
        notes."""
        self._sql = sql
        self._is_unchanged = is_unchanged
        self._units = units
        self._mint = mint
        self._seen: dict[str, int] = {}
        self.again: set[str] = set()

    def new_sessions(self) -> list[str]:
        """Return sessions of other programs that can be adopted."""
        return [id_ for id_, why in _find_unadopted(self._sql) if why is None]

    def has_news(self, session_id: str) -> bool:
        """Return whether there may be something to adopt or to seal. Only reads."""
        sql, asked = self._sql, {"id": session_id}
        if sql.first("get_state", asked) is None:
            is_new = sql.first("find_session", asked) is None and sql.first("find_shared_session", asked) is not None
            return is_new and not _why_not(sql, session_id)
        if (not self._is_unchanged(session_id) and sql.first("loose_messages", asked)) or self._has_grown(session_id):
            return True
        if any(_has_left_queue(metadata, at) for metadata, at in sql.rows("queued_metadata", asked)):
            return True
        state = load_state(sql, session_id)
        ends = sql.rows("ends_of_line", {"turn_id": end_of_line(state.head_turn_id, state.open_turn_id)})
        if any(projection_of(_loads(metadata) or {})[0] is not None for (metadata,) in ends):
            return True
        head = sql.first("find_turn", {"id": state.head_turn_id})
        below = sql.rows("ends_after_head", {**asked, "head": state.head_turn_id, "parent": head[2] if head else None})
        if not any(projection_of(_loads(metadata) or {"hidden_at": 0}) == (None, None) for (metadata,) in below):
            return False
        # Where the head differs from its last move, it is damaged: not left behind by a rewind.
        last_move = sql.first("last_move", asked)
        return bool(state.head_turn_id == (last_move[0] if last_move else None))

    def _has_grown(self, session_id: str) -> bool:
        """Return whether adopted messages have changed since the last check, or have a message after them."""
        ids = [id_ for (id_,) in self._sql.rows("adopted_messages", {"id": session_id})]
        if not ids:
            return False
        asked = {"ids": rows.encode(sorted(ids))}
        found = [tuple(self._sql.rows(name, asked)) for name in ("load_messages_by_id", "load_parts_by_message")]
        before, now = self._seen.get(session_id), hash((load_state(self._sql, session_id), *found))
        if len(self._seen) > _MAX_SEEN:
            self._seen.clear()
        self._seen[session_id] = now
        return now != before

    def adopt(self, session_id: str) -> bool:
        """Adopt what there is; return whether anything was written. Called inside a transaction."""
        is_new = self._sql.first("get_state", {"id": session_id}) is None
        if is_new and (self._sql.first("find_session", {"id": session_id}) or _why_not(self._sql, session_id)):
            return False
        shared = self._load(session_id)
        plan = plan_adoption(shared, self._mint)
        numbered = self._number(shared)
        summed = shared.session.usage == plan.usage and shared.session.total_tokens == plan.usage.total
        self._note_again(session_id, plan)
        if not (is_new or plan.writes or numbered or plan.growing != shared.growing or not summed):
            return False
        sums = {**msgspec.structs.asdict(plan.usage), "total": plan.usage.total}
        self._sql.run("set_session_sums", {**sums, "id": session_id})
        added, dropped = plan.growing - shared.growing, shared.growing - plan.growing
        for name, ids in (("add_adopted", added), ("drop_adopted", dropped)):
            self._sql.many(name, ({"session_id": session_id, "message_id": id_} for id_ in sorted(ids)))
        self._units.adopt(session_id, plan.writes, is_new=is_new)
        return True

    def _note_again(self, session_id: str, plan: Adoption) -> None:
        if plan.growing or plan.waits:
            self.again.add(session_id)
        else:
            self.again.discard(session_id)

    def _load(self, session_id: str) -> Shared:
        sql, asked = self._sql, {"id": session_id}
        row = sql.first("find_shared_session", asked)
        if row is None:
            raise RowUndecodable("the session was removed while it was being imported", session_id=session_id)
        tree = load_tree(sql, session_id)
        loose = frozenset(id_ for (id_,) in sql.rows("loose_messages", asked) if is_shared_id(id_))
        growing = frozenset(id_ for (id_,) in sql.rows("adopted_messages", asked))
        queue = {id_: Enqueue(id_, at, bool(interrupt)) for id_, at, interrupt in sql.rows("load_queue", asked)}
        markers = {id_ for turn in tree.turns.values() if turn.kind == "compaction" for id_ in tree.links[turn.id]}
        wanted = loose | growing | queue.keys() | markers
        parts, unread = self._parts(wanted)
        messages: dict[str, MessageRow] = {}
        for found in sql.rows("load_messages", asked):
            metadata = _loads(found[3])
            if metadata is None or found[2] not in ROLES or not all(isinstance(at, int) for at in found[4:6]):
                unread.add(found[0])
            else:
                id_, of_session, role, _, created_at, updated_at = found
                held = tuple(parts.get(id_, ()))
                messages[id_] = MessageRow(id_, of_session, role, created_at, updated_at, metadata, held)
        sealed = {id_ for (id_, _) in sql.rows("load_seals", asked)} & queue.keys() if queue else set()
        session = rows.to_session(row)
        return Shared(session, tree, messages, queue, loose, growing, frozenset(sealed), frozenset(unread))

    def _parts(self, message_ids: Iterable[str]) -> tuple[dict[str, list[PartRow]], set[str]]:
        """Return the parts of these messages in order, and the messages with parts that cannot be decoded."""
        parts: dict[str, list[PartRow]] = {}
        unread: set[str] = set()
        found = self._sql.rows("load_parts_by_message", {"ids": rows.encode(sorted(message_ids))})
        for row in sorted(found, key=lambda part: (part[1], part[2], part[4], part[0])):
            data = _loads(row[3])
            is_part = data is not None and isinstance(data.get("type"), str) and is_shared_id(row[0])
            if data is None or not is_part or not all(isinstance(at, int) for at in row[4:6]):
                unread.add(row[1])
            else:
                parts.setdefault(row[1], []).append(PartRow(row[0], row[2], data, row[4], row[5]))
        return parts, unread

    def _number(self, shared: Shared) -> bool:
        """Number the parts of messages that may be written to from 0 on; other programs only guarantee that the numbers
        grow."""
        moved = [
            {"id": part.id, "index": index}
            for id_ in shared.loose | shared.growing
            if id_ in shared.rows and id_ not in shared.unread
            for index, part in enumerate(shared.rows[id_].parts)
            if part.index != index
        ]
        self._sql.many("number_part", moved)
        return bool(moved)


def any_unadopted(sql: Statements) -> bool:
    """Return whether opening the store for writing would adopt something."""
    if any(why is None for _, why in _find_unadopted(sql)):
        return True
    return sql.first("any_loose_message", {}) is not None


def unadopted_sessions(sql: Statements) -> list[Damage]:
    """Return sessions of other programs that cannot be adopted, with the reason; those that will be are not damage."""
    left = "another program wrote this session, and it cannot be imported"
    return [Damage(f"{left}: {why}", id_) for id_, why in _find_unadopted(sql) if why is not None]


def _find_unadopted(sql: Statements) -> list[tuple[str, str | None]]:
    ids = [(raw or b"").decode(errors="replace") for (raw,) in sql.rows("untaken_sessions", {})]
    return [(id_, _why_not(sql, id_)) for id_ in ids]


def _why_not(sql: Statements, session_id: str) -> str | None:
    """Return why a session of another program cannot be adopted; None if it can."""
    if not is_shared_id(session_id):
        return "its id is not 1 to 64 letters, digits, _ or -"
    try:
        row = sql.first("find_shared_session", {"id": session_id})
        if row is None:
            return "its id is not text"
        convert(msgspec.structs.asdict(rows.to_session(row)), Session)
    except Exception as error:  # about this row alone; the other sessions are not affected
        return str(error)
    return None


def _has_left_queue(metadata: Any, queued_at: int) -> bool:
    values = _loads(metadata)
    return values is not None and (values.get("queued_at") != queued_at or projection_of(values)[0] is not None)


def _loads(text: Any) -> dict[str, Any] | None:
    try:
        value = orjson.loads(text)
    except (orjson.JSONDecodeError, TypeError):
        return None
    return value if isinstance(value, dict) else None
