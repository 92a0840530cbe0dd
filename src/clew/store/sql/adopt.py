"""Adoption in SQL: what another program wrote into a session is looked for, and taken in, in one transaction.

What that comes to is decided in :mod:`clew.store.adoption`. A look that finds nothing costs a walk over the index of
the session's messages; what moves nothing writes nothing, so that a second adoption does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
import orjson

from clew.errors import RowUndecodable
from clew.fit import fit
from clew.ids import Mint, is_shared_id
from clew.store.adoption import Adoption, Shared, plan_adoption
from clew.store.base import Damage
from clew.store.sql import rows
from clew.store.sql.apply import UnitWriter
from clew.store.sql.lines import load_state, load_tree
from clew.store.sql.messages import ROLES
from clew.store.sql.statements import Statements
from clew.store.unit import Enqueue
from clew.transcript.line import end_of_line
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.metadata import projection_of
from clew.transcript.session import Session

__all__ = ["Adopter", "any_untaken", "untaken_sessions"]


_MOST_SEEN: Final = 10_000


class Adopter:
    """Takes in what others wrote. ``again`` are sessions where something is left that the next unit may settle."""

    def __init__(self, sql: Statements, units: UnitWriter, mint: Mint, is_as_noted: Callable[[str], bool]) -> None:
        """``is_as_noted``: whether nothing has come into a session since it was looked at, as far as somebody noted."""
        self._sql = sql
        self._is_as_noted = is_as_noted
        self._units = units
        self._mint = mint
        self._seen: dict[str, int] = {}
        self.again: set[str] = set()

    def new_sessions(self) -> list[str]:
        """Sessions of other programs that can be taken in."""
        return [id_ for id_, why in _untaken(self._sql) if why is None]

    def has_news(self, session_id: str) -> bool:
        """Whether there may be something to take in, or to seal. Only reads."""
        sql, asked = self._sql, {"id": session_id}
        if sql.first("get_state", asked) is None:
            is_new = sql.first("find_session", asked) is None and sql.first("find_shared_session", asked) is not None
            return is_new and not _why_not(sql, session_id)
        if (not self._is_as_noted(session_id) and sql.first("loose_messages", asked)) or self._has_grown(session_id):
            return True
        if any(_moved_on(metadata, at) for metadata, at in sql.rows("queued_metadata", asked)):
            return True
        state = load_state(sql, session_id)
        ends = sql.rows("ends_of_line", {"turn_id": end_of_line(state.head_turn_id, state.open_turn_id)})
        return any(projection_of(_loads(metadata) or {})[0] is not None for (metadata,) in ends)

    def _has_grown(self, session_id: str) -> bool:
        """Whether what was taken in before is not as it was when it was looked at last, or has something behind it."""
        ids = [id_ for (id_,) in self._sql.rows("adopted_messages", {"id": session_id})]
        if not ids:
            return False
        asked = {"ids": rows.encode(sorted(ids))}
        found = [tuple(self._sql.rows(name, asked)) for name in ("load_messages_by_id", "load_parts_by_message")]
        before, now = self._seen.get(session_id), hash((load_state(self._sql, session_id), *found))
        if len(self._seen) > _MOST_SEEN:
            self._seen.clear()
        self._seen[session_id] = now
        return now != before

    def adopt(self, session_id: str) -> bool:
        """Take in what there is; whether anything was written. Inside a transaction."""
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
            raise RowUndecodable("the session went away while it was taken in", session_id=session_id)
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
        """The parts of these messages in order, numbered from 0 on; which of them do not all read."""
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
        """Number the parts of what may be written into from 0 on: others only promise that they grow."""
        moved = [
            {"id": part.id, "index": place}
            for id_ in shared.loose | shared.growing
            if id_ in shared.rows and id_ not in shared.unread
            for place, part in enumerate(shared.rows[id_].parts)
            if part.index != place
        ]
        self._sql.many("number_part", moved)
        return bool(moved)


def any_untaken(sql: Statements) -> bool:
    """Whether there is something that an opening for writing would take in."""
    if any(why is None for _, why in _untaken(sql)):
        return True
    return sql.first("any_loose_message", {}) is not None


def untaken_sessions(sql: Statements) -> list[Damage]:
    """Sessions of other programs that cannot be taken in, with the reason; what will be is nothing wrong."""
    left = "another program wrote this session, and it is left alone"
    return [Damage(f"{left}: {why}", id_) for id_, why in _untaken(sql) if why is not None]


def _untaken(sql: Statements) -> list[tuple[str, str | None]]:
    ids = [(raw or b"").decode(errors="replace") for (raw,) in sql.rows("untaken_sessions", {})]
    return [(id_, _why_not(sql, id_)) for id_ in ids]


def _why_not(sql: Statements, session_id: str) -> str | None:
    """Why a session of another program cannot be taken in."""
    if not is_shared_id(session_id):
        return "its id is not 1 to 64 letters, digits, _ or -"
    try:
        row = sql.first("find_shared_session", {"id": session_id})
        if row is None:
            return "its id is not text"
        fit(msgspec.structs.asdict(rows.to_session(row)), Session)
    except Exception as error:  # of this row, and no reason to pass over the others
        return str(error)
    return None


def _moved_on(metadata: Any, queued_at: int) -> bool:
    told = _loads(metadata)
    return told is not None and (told.get("queued_at") != queued_at or projection_of(told)[0] is not None)


def _loads(text: Any) -> dict[str, Any] | None:
    try:
        value = orjson.loads(text)
    except (orjson.JSONDecodeError, TypeError):
        return None
    return value if isinstance(value, dict) else None
