"""Pages of sessions on a SQL engine, with each session's spend and whether it has pending work."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

import msgspec

from clew.store.base import Cursor, SessionPage, SessionQuery, ShownPage
from clew.store.sql import rows
from clew.store.sql.statements import SqlReader, Statements, reading, reading_list
from clew.transcript.session import Session, Spend
from clew.transcript.spend import NANO

__all__ = ["SqlLists"]

_END: Final = Cursor(2**63 - 1, "")
_PLAIN: Final = re.compile(r"[ !#-$&-\[\]^`-~]+", re.ASCII)
"""Characters that appear unescaped in JSON and have no special meaning for ``LIKE``."""


class SqlLists(SqlReader):
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
