"""The event log in SQL: facts of units, numbered and written in the units' own transaction.

:mod:`clew.store.facts` decides which facts there are; this module looks up the current state and adds the rows. Where
the log begins in a store with content, or resumes after a pause, everything is recorded once.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from clew.clock import Clock
from clew.errors import InternalError, RowUndecodable
from clew.store import facts as f
from clew.store.sql import rows
from clew.store.sql.line_reader import load_calls
from clew.store.sql.statements import Statements
from clew.store.unit import STORE_WIDE, DeletePortion, DeleteSession, Enqueue, Unit
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.model_call import ModelCall
from clew.transcript.pruned import Pruned
from clew.transcript.session import Session
from clew.transcript.turn import HeadMove, Step, Turn

__all__ = ["EventLog", "SqlPresent", "is_log_complete", "to_fact"]

log = logging.getLogger("clew.store")

_MAX_STREAMS = 10_000


def to_fact(row: tuple[Any, ...]) -> f.Fact:
    return f.Fact(row[0], row[1], row[2], row[3], rows.decode(row[4], "data of a fact", stream_id=row[0]))


def is_log_complete(sql: Statements) -> bool:
    """Return whether every unit since the log began is in it."""
    last = sql.first("last_fact", {"stream_id": f.LOG_STREAM})
    return last is not None and last[1] == "log.started"


class EventLog:
    """Adds facts to the log of one store. Called with every unit right after it was applied."""

    def __init__(self, sql: Statements, clock: Clock) -> None:
        self._sql = sql
        self._clock = clock
        self._state = SqlPresent(sql)
        self._last: dict[str, int] = {}
        self._n: int | None = None

    def reset(self) -> None:
        """Forget the numbers assigned; required after every rollback."""
        self._last.clear()
        self._n = None

    def note(self, unit: Unit) -> None:
        if any(isinstance(write, DeleteSession | DeletePortion) for write in unit.writes):
            # Prompts and their facts may have been deleted with it; a prompt that returns is recorded again.
            self.reset()
        self._add(f.facts_of(unit, self._state))

    def restate(self, session_id: str) -> None:
        self._add(f.facts_of_session(session_id, self._state))

    def start(self) -> None:
        """Start the log: record everything, and the deletion of recorded sessions that no longer exist."""
        for (session_id,) in self._sql.rows("all_session_ids", {}):
            try:
                facts = f.facts_of_session(session_id, self._state)
            except RowUndecodable as error:
                log.warning(
                    "session %s cannot be written to the event log; run `clew check` for details: %s", session_id, error
                )
            else:
                self._add(facts)
        self.record_deleted(self.gone())
        self._add(f.prompt_fact(*row) for row in self._sql.rows("all_prompts", {}))
        for project, rules, updated_at in self._sql.rows("all_project_rules", {}):
            self._add([f.rules_fact(project, rows.decode(rules, "rules of a project", project=project), updated_at)])
        self._add(f.call_facts(map(msgspec.to_builtins, self._state.calls(STORE_WIDE, None))))
        self._add([f.NewFact(f.LOG_STREAM, "log.started", {})])

    def gone(self) -> list[str]:
        """Return recorded sessions that no longer exist: deleted while the log was off, or by another program."""
        found = []
        for (stream_id,) in self._sql.rows("streams_without_session", {}):
            last = self._sql.first("last_fact", {"stream_id": stream_id})
            if f.is_session_stream(stream_id) and last is not None and last[1] != "session.deleted":
                found.append(stream_id)
        return found

    def record_deleted(self, session_ids: Iterable[str]) -> None:
        self._add(f.NewFact(session_id, "session.deleted", {}) for session_id in session_ids)

    def stop(self) -> None:
        """Stop the log: units from here on are not in it."""
        self._add([f.NewFact(f.LOG_STREAM, "log.stopped", {})])

    def _add(self, facts: Iterable[f.NewFact]) -> None:
        now = self._clock.now_ms()
        if self._n is None:
            newest = self._sql.first("last_n", {})
            self._n = newest[0] if newest else 0
        for new in facts:
            id_ = new.stream_id
            if id_ not in self._last:
                if len(self._last) > _MAX_STREAMS:
                    self._last.clear()
                row = self._sql.first("last_fact", {"stream_id": id_})
                self._last[id_] = row[0] if row else 0
            if (new.once and self._last[id_]) or (new.type == "session.deleted" and not self._last[id_]):
                continue  # known already, or never known
            if new.type == "session.deleted":
                # Its facts are deleted; the numbers continue, so that a follower notices.
                recorded = self._sql.rows("calls_told", {"stream_id": id_})
                call_facts = f.call_facts([rows.decode(row[0], "data of a fact", stream_id=id_) for row in recorded])
                self._sql.run("delete_facts", {"stream_id": id_})
                self._add(call_facts)
            self._n += 1
            self._last[id_] += 1
            fact = {"stream_id": id_, "seq": self._last[id_], "at": now, "type": new.type}
            self._sql.run("add_fact", {"n": self._n, **fact, "data_json": rows.encode(new.data)})


class SqlPresent:
    """Current contents of the tables, for :func:`clew.store.facts.facts_of`."""

    def __init__(self, sql: Statements) -> None:
        self._sql = sql

    def _get(self, name: str, **params: Any) -> tuple[Any, ...]:
        row = self._sql.first(name, params)
        if row is None:
            raise InternalError(f"{name}: the log would record a row that does not exist", **params)
        return row

    def session(self, session_id: str) -> tuple[Session, int]:
        row = self._get("find_session", id=session_id)
        return rows.to_session(row, keep_damaged=True), self._get("get_state", id=session_id)[2]

    def message(self, session_id: str, message_id: str) -> tuple[MessageRow, str | None]:
        row = self._get("get_message_and_seal", id=message_id, session_id=session_id)
        return rows.to_message(row, (), True), row[rows.MESSAGE_SEAL]

    def parts(self, session_id: str, message_id: str, indexes: Collection[int] | None) -> Iterable[PartRow]:
        params: dict[str, Any] = {"session_id": session_id, "message_id": message_id}
        if indexes is None:
            found = self._sql.rows("load_parts_of", params)
        else:
            found = self._sql.rows("load_parts_at", {**params, "indexes": rows.encode(sorted(indexes))})
        return [rows.to_part(row, True) for row in found]

    def growing(self, session_id: str, message_ids: Collection[str]) -> Iterable[tuple[str, int]]:
        found = self._sql.rows("load_growing", {"session_id": session_id, "ids": rows.encode(sorted(message_ids))})
        return [(row[0], row[1]) for row in found]

    def turn(self, session_id: str, turn_id: str) -> tuple[Turn, tuple[str, ...]]:
        turn = rows.to_turn(self._get("get_turn", id=turn_id, session_id=session_id))
        links = self._sql.rows("load_links_of_turns", {"ids": rows.encode([turn_id])})
        return turn, tuple(row[1] for row in links)

    def turns_holding(self, session_id: str, message_id: str) -> Iterable[str]:
        params = {"session_id": session_id, "message_id": message_id}
        return [row[0] for row in self._sql.rows("turns_holding", params)]

    def steps(self, session_id: str, turn_id: str, indexes: Collection[int] | None) -> Iterable[Step]:
        found = self._sql.rows("load_steps", {"id": turn_id})
        return [rows.to_step(row) for row in found if indexes is None or row[1] in indexes]

    def calls(self, session_id: str, ids: Collection[str] | None) -> Iterable[ModelCall]:
        if ids is not None:
            return [rows.to_call(self._get("find_call", id=id_)) for id_ in sorted(ids)]
        return load_calls(self._sql, session_id or None)

    def moves(self, session_id: str, count: int) -> Iterable[HeadMove]:
        return [HeadMove(*row) for row in self._sql.rows("newest_moves", {"id": session_id, "count": count})]

    def pruned(self, session_id: str, count: int) -> Iterable[Pruned]:
        return [Pruned(*row) for row in self._sql.rows("newest_pruned", {"id": session_id, "count": count})]

    def queued(self, session_id: str, message_id: str) -> Enqueue | None:
        row = self._sql.first("get_queued", {"session_id": session_id, "message_id": message_id})
        return Enqueue(row[0], row[1], bool(row[2])) if row else None

    def blobs(self, session_id: str, sha256: Collection[str] | None) -> Iterable[f.BlobName]:
        found = [f.BlobName(*row) for row in self._sql.rows("blobs_of_session", {"id": session_id})]
        return [blob for blob in found if sha256 is None or blob.sha256 in sha256]

    def names(self, session_id: str) -> f.SessionNames:
        params = {"id": session_id}
        messages = tuple(row[0] for row in self._sql.rows("message_ids", params))
        turns = tuple(row[0] for row in self._sql.rows("turn_ids", params))
        return f.SessionNames(messages, turns, tuple(row[0] for row in self._sql.rows("load_queue", params)))
