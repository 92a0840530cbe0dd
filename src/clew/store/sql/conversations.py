"""Conversations on a SQL engine. Each method runs inside one read transaction, ``sql``, and so sees one state.

A message whose stream is in flight is read as its stored parts plus the chunks the journal holds above its mark, in the
same state; so a reader in another process sees everything that was acknowledged, and nothing is written.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Final, TypeVar

import msgspec

from clew.errors import RowUndecodable
from clew.store.base import (
    Blob,
    Cursor,
    LineSlice,
    Moment,
    OpenCall,
    PendingStream,
    QueuedMessage,
    Replica,
    SessionPage,
    SessionQuery,
    ShownPage,
)
from clew.store.pending_work import StreamTail
from clew.store.sql import line_reader, rows
from clew.store.sql.messages import MessageReader
from clew.store.sql.statements import (
    SqlReader,
    Statements,
    has_longer_view,
    reading,
    reading_list,
    reading_session,
    reading_view,
)
from clew.store.sql.trees import SqlHistoryPages, SqlPaths
from clew.store.sql.workspaces import SqlWorkspaces
from clew.transcript.message import MessageRow
from clew.transcript.model_call import ModelCall
from clew.transcript.pruned import Pruned
from clew.transcript.session import Session, SessionState, Spend
from clew.transcript.spend import NANO
from clew.transcript.turn import Step, Tree, Turn

__all__ = ["SqlConversations", "SqlMoment"]

_END: Final = Cursor(2**63 - 1, "")
_PLAIN: Final = re.compile(r"[ !#-$&-\[\]^`-~]+", re.ASCII)
"""Characters that appear unescaped in JSON and have no special meaning for ``LIKE``."""
T = TypeVar("T")


class _SqlReplicas(SqlReader):
    """See :class:`clew.store.base.Replicas` for the contract of each method."""

    @reading
    def find_replica(self, sql: Statements, replica_id: str) -> Replica | None:
        row = sql.first("find_replica", {"id": replica_id})
        return rows.to_replica(row) if row is not None else None

    @reading
    def list_replicas(self, sql: Statements) -> tuple[Replica, ...]:
        return tuple(map(rows.to_replica, sql.rows("list_replicas", {})))

    @reading
    def run_by(self, sql: Statements, replica_id: str) -> tuple[str, ...]:
        return tuple(row[0] for row in sql.rows("run_by", {"replica_id": replica_id}))

    @reading
    def orphaned_sessions(self, sql: Statements, replica_id: str) -> tuple[str, ...]:
        return tuple(row[0] for row in sql.rows("orphaned_sessions", {"replica_id": replica_id}))


class _SqlLists(SqlReader):
    """Pages of the session list; :class:`clew.store.base.Conversations` has the contract of each method."""

    @reading_list
    def list_sessions(self, sql: Statements, query: SessionQuery) -> SessionPage:
        found, more = _find(sql, query)
        page = tuple(rows.to_session(row, keep_damaged=True) for row in found)
        return SessionPage(page, _end_of(page) if more else None)

    @reading_list
    def list_shown(self, sql: Statements, query: SessionQuery) -> ShownPage:
        found, more = _find(sql, query)
        ids = [row[0] for row in found]
        spent = _spent(sql, ids)
        page = tuple(rows.to_session(row, keep_damaged=True, spend=spent[row[0]]) for row in found)
        unsettled, failed = frozenset(_unsettled(sql, ids)), frozenset(_failed(sql, ids))
        return ShownPage(page, _end_of(page) if more else None, unsettled, failed)

    @reading
    def unsettled_sessions(self, sql: Statements, among: Collection[str] | None = None) -> tuple[str, ...]:
        if among is None:
            return tuple(row[0] for row in sql.rows("unsettled_sessions", {}))
        return _unsettled(sql, among)

    @reading
    def failed_sessions(self, sql: Statements, among: Collection[str]) -> tuple[str, ...]:
        return _failed(sql, among)

    @reading
    def load_spend(self, sql: Statements, session_ids: Collection[str]) -> dict[str, Spend]:
        return _spent(sql, session_ids)


def _find(sql: Statements, query: SessionQuery) -> tuple[list[tuple[Any, ...]], bool]:
    """Return the rows of a page, and whether there are more."""
    plain = f"%{query.title}%" if query.title and _PLAIN.fullmatch(query.title) else None
    # The narrowest index first: the other conditions are checked row by row.
    if query.parent is not None:
        name = "list_sessions_of_parent"
    elif query.owner is not None:
        name = "list_sessions_of_owner"
    elif query.agent is not None:
        name = "list_sessions_of_agent"
    elif query.workspace is not None:
        name = "list_sessions_of_workspace"
    elif query.archived or query.ephemeral or query.kind != "chat":
        name = "list_flagged_sessions"
    else:
        name = "list_sessions" if plain is None else "list_titled_sessions"
    params = {**msgspec.structs.asdict(query), **msgspec.structs.asdict(query.cursor or _END)}
    found = list(sql.rows(name, {**params, "plain": plain, "limit": query.limit + 1}))
    return found[: query.limit], len(found) > query.limit


def _end_of(page: tuple[Session, ...]) -> Cursor:
    return Cursor(page[-1].updated_at, page[-1].id)


def _unsettled(sql: Statements, among: Collection[str]) -> tuple[str, ...]:
    return tuple(row[0] for row in sql.rows("unsettled_among", {"ids": rows.encode(list(among))}))


def _failed(sql: Statements, among: Collection[str]) -> tuple[str, ...]:
    return tuple(row[0] for row in sql.rows("failed_among", {"ids": rows.encode(list(among))}))


def _spent(sql: Statements, session_ids: Collection[str]) -> dict[str, Spend]:
    found = sql.rows("load_spend", {"ids": rows.encode(list(session_ids))})
    return {id_: Spend(calls, tokens, nano / NANO, subagents) for id_, calls, tokens, nano, subagents in found}


class SqlConversations(_SqlLists):
    """See :class:`clew.store.base.Conversations` for what each method promises."""

    # Sessions

    @reading
    def find_session(self, sql: Statements, session_id: str) -> Session | None:
        row = sql.first("find_session", {"id": session_id})
        return rows.to_session(row) if row else None

    @reading
    def list_children(self, sql: Statements, parent_id: str) -> tuple[Session, ...]:
        found = sql.rows("list_children", {"id": parent_id})
        return tuple(rows.to_session(row, keep_damaged=True) for row in found)

    @reading
    def load_state(self, sql: Statements, session_id: str) -> SessionState:
        return line_reader.load_state(sql, session_id)

    # Messages

    @reading_session
    def load_line(
        self,
        sql: Statements,
        session_id: str,
        *,
        through: str | None = None,
        turns: int | None = None,
        back_to_message: str | None = None,
        keep_damaged: bool = False,
        viewed: bool = False,
    ) -> LineSlice:
        reader = line_reader.LineReader(sql, session_id, keep_damaged=keep_damaged)
        return reader.load(through, turns, back_to_message, viewed=viewed)

    @reading_view
    def find_view(
        self,
        sql: Statements,
        session_id: str,
        *,
        turns: int | None = None,
        keep_damaged: bool = False,
        kept: bool = False,
        near: bool = False,
    ) -> LineSlice | None:
        reader, cached_lines = line_reader.LineReader(sql, session_id, keep_damaged=keep_damaged), self._reads.lines
        if reader.state is None:
            return None
        is_cached = kept and cached_lines is not None and cached_lines.holds(session_id)
        if near and not is_cached and has_longer_view(sql, session_id, turns):
            return None
        if kept and keep_damaged and turns is None and cached_lines is not None:
            return reader.cached_view(cached_lines)
        return reader.view(turns)

    @reading_session
    def load_messages(
        self, sql: Statements, session_id: str, *, keep_damaged: bool = False, among: Collection[str] | None = None
    ) -> tuple[MessageRow, ...]:
        if sql.first("is_unfinished", {"id": session_id}) is not None:
            return ()
        return MessageReader(sql).load_all(session_id, keep_damaged=keep_damaged, among=among)

    @reading
    def find_message(self, sql: Statements, session_id: str, message_id: str) -> MessageRow | None:
        if sql.first("find_message", {"id": message_id, "session_id": session_id}) is None:
            return None
        return MessageReader(sql).load(session_id, {message_id}, keep_damaged=True)[message_id]

    @reading
    def load_client_messages(self, sql: Statements, session_id: str, client_message_id: str) -> tuple[MessageRow, ...]:
        params = {"session_id": session_id, "client_message_id": client_message_id}
        ids = [row[0] for row in sql.rows("load_client_messages", params)]
        messages = MessageReader(sql).load(session_id, set(ids), keep_damaged=True)
        return tuple(messages[id_] for id_ in ids if id_ in messages)

    @reading
    def open_calls(self, sql: Statements, session_id: str) -> tuple[OpenCall, ...]:
        found = sql.rows("open_calls", {"id": session_id})
        calls = (OpenCall(row[1], rows.to_part(row, keep_damaged=True)) for row in found)
        return tuple(call for call in calls if call.part.tool_call_id is not None)

    @reading
    def newest_message_at(self, sql: Statements, session_id: str) -> int:
        row = sql.first("newest_message_at", {"id": session_id})
        return row[0] or 0 if row else 0

    @reading
    def load_queue(self, sql: Statements, session_id: str) -> tuple[QueuedMessage, ...]:
        return MessageReader(sql).queue(session_id)

    @reading
    def pending_streams(self, sql: Statements, session_id: str | None = None) -> tuple[PendingStream, ...]:
        return MessageReader(sql).pending(session_id)

    @reading
    def load_tail(self, sql: Statements, session_id: str, message_id: str) -> StreamTail:
        tail = MessageReader(sql).tails(session_id).get(message_id)
        if tail is not None and tail.entries:
            return StreamTail(tail.entries[0].n - 1, tuple(tail.entries), tail.last)
        row = sql.first("get_mark", {"message_id": message_id})
        folded = row[0] if row else None
        return StreamTail(folded, last=max(folded or 0, tail.last if tail is not None else 0))

    # The tree

    @reading_session
    def load_tree(self, sql: Statements, session_id: str) -> Tree:
        return line_reader.load_tree(sql, session_id)

    @reading
    def find_turn(self, sql: Statements, turn_id: str) -> Turn | None:
        row = sql.first("find_turn", {"id": turn_id})
        return rows.to_turn(row) if row else None

    @reading
    def load_steps(self, sql: Statements, turn_id: str) -> tuple[Step, ...]:
        return tuple(rows.to_step(row) for row in sql.rows("load_steps", {"id": turn_id}))

    @reading
    def load_calls(self, sql: Statements, session_id: str | None) -> tuple[ModelCall, ...]:
        return line_reader.load_calls(sql, session_id)

    @reading
    def open_model_calls(self, sql: Statements, session_id: str | None = None) -> tuple[ModelCall, ...]:
        return tuple(rows.to_call(row) for row in sql.rows("open_model_calls", {"id": session_id}))

    @reading
    def load_pruned(
        self, sql: Statements, session_id: str, messages: Collection[str] | None = None
    ) -> tuple[Pruned, ...]:
        return line_reader.load_pruned(sql, session_id, messages)

    # What sessions share

    @reading
    def find_prompt(self, sql: Statements, digest: str) -> str | None:
        row = sql.first("find_prompt", {"digest": digest})
        if row is not None and hashlib.sha256(row[0].encode("utf-8", "surrogatepass")).hexdigest() != digest:
            raise RowUndecodable("a system prompt is damaged: it does not match its digest", digest=digest)
        return row[0] if row else None

    @reading
    def find_blob(self, sql: Statements, sha256: str, owner: str | None = None) -> Blob | None:
        if owner is not None and sql.first("is_blob_of", {"sha256": sha256, "owner": owner}) is None:
            return None
        row = sql.first("find_blob", {"sha256": sha256})
        if row is None:
            row = sql.first("find_linked_blob", {"sha256": sha256})
        if row is not None and hashlib.sha256(row[2]).hexdigest() != sha256:
            raise RowUndecodable("a blob is damaged: it does not match its digest", sha256=sha256)
        return Blob(*row) if row else None

    @reading
    def load_project_rules(self, sql: Statements, project: str) -> tuple[dict[str, object], ...]:
        row = sql.first("load_project_rules", {"project": project})
        return tuple(rows.decode(row[0], "rules of a project", project=project)) if row else ()

    @reading
    def list_projects(self, sql: Statements) -> tuple[str, ...]:
        return tuple(str(project) for project, *_ in sql.rows("all_project_rules", {}))


class SqlMoment(SqlConversations, SqlHistoryPages, SqlPaths, _SqlReplicas, SqlWorkspaces):
    """See :class:`clew.store.base.Moment`."""

    async def at_once(self, session_id: str, ask: Callable[[Moment], Coroutine[Any, Any, T]]) -> T:
        """See :meth:`clew.store.base.Moment.at_once`."""
        return await self._reads.at_once(lambda reads: ask(SqlMoment(reads)), session_id)

    @reading_session
    def seals(self, sql: Statements, session_id: str) -> dict[str, str]:
        return dict(sql.rows("load_seals", {"id": session_id}))
