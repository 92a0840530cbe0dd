"""History pages on a SQL engine: turns, moves, and the turn of a message. Reads no more than is shown."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from clew.errors import RowUndecodable
from clew.store.facts import ALL
from clew.store.history_pages import Holder, KnownTurn, MovePage, TurnPage
from clew.store.sql import rows
from clew.store.sql.line_reader import LOST_MESSAGES, find_holders, load_state
from clew.store.sql.messages import MessageReader
from clew.store.sql.statements import SqlReader, Statements, reading, reading_session
from clew.transcript.line import LineTurn, end_of_line
from clew.transcript.session import Session, SessionState
from clew.transcript.turn import HeadMove, Turn
from clew.transcript.view import Compaction, find_compaction

__all__ = ["SqlHistoryPages"]


class SqlHistoryPages(SqlReader):
    """See :class:`clew.store.history_pages.HistoryPages` for the contract of each method."""

    @reading
    def list_branches(self, sql: Statements, parent_id: str) -> tuple[Session, ...]:
        found = sql.rows("list_branches", {"id": parent_id})
        return tuple(rows.to_session(row, keep_damaged=True) for row in found)

    @reading
    def has_files(self, sql: Statements, session_id: str) -> bool:
        return sql.first("has_files", {"id": session_id}) is not None

    @reading_session
    def load_turns(
        self, sql: Statements, session_id: str, *, limit: int | None = None, before: str | None = None
    ) -> TurnPage:
        return _TreeReader(sql, session_id).turns(limit, before)

    @reading_session
    def load_moves(
        self, sql: Statements, session_id: str, *, limit: int | None = None, before: int | None = None
    ) -> MovePage:
        return _TreeReader(sql, session_id).moves(limit, before)

    @reading
    def find_holder(self, sql: Statements, session_id: str, message_id: str) -> Holder | None:
        return _TreeReader(sql, session_id).holder(message_id)


class _TreeReader:
    """Reads the tree of one session inside one read transaction."""

    def __init__(self, sql: Statements, session_id: str) -> None:
        self._sql = sql
        self._session_id = session_id

    def holder(self, message_id: str) -> Holder | None:
        """See ``HistoryPages.find_holder``."""
        found = [rows.to_turn(row) for row in find_holders(self._sql, self._session_id, message_id)]
        for turn in sorted(found, key=lambda turn: turn.depth):
            if self._above(self._end, turn.depth) == turn.id:
                return Holder(turn, True)
        newest = max(found, key=lambda turn: (turn.created_at, turn.id), default=None)
        return None if newest is None else Holder(newest, False)

    def turns(self, limit: int | None, before: str | None) -> TurnPage:
        """See ``HistoryPages.load_turns``."""
        max_rows = ALL if limit is None else limit + 1
        # A tilde sorts after every id.
        params = {"id": self._session_id, "before": before or "~", "limit": max_rows}
        found = list(self._sql.rows("list_turns", params))
        page = found if limit is None else found[:limit]
        known = self._to_known_turns(page)
        line = self._on_line([one.turn.depth for one in known])
        on_line = frozenset(one.turn.id for one in known if one.turn.id in line)
        state = self._state
        return TurnPage(state.head_turn_id, state.open_turn_id, tuple(known), on_line, len(found) > len(page))

    def moves(self, limit: int | None, before: int | None) -> MovePage:
        """See ``HistoryPages.load_moves``."""
        params = {"id": self._session_id, "before": before or ALL, "limit": ALL if limit is None else limit}
        moves = tuple(HeadMove(*row) for row in self._sql.rows("list_moves", params))
        named = sorted({move.to_turn_id for move in moves if move.to_turn_id is not None})
        found = self._sql.rows("load_turns_by_id", {"ids": rows.encode(named), "session_id": self._session_id})
        turns = {one.turn.id: one for one in self._to_known_turns(list(found))}
        found_compactions = (
            (one.turn, find_compaction([LineTurn(one.turn, one.described_by)])) for one in turns.values()
        )
        summarised = {turn.id: self._summarised(turn, one) for turn, one in found_compactions if one is not None}
        return MovePage(moves, turns, summarised)

    def _to_known_turns(self, found: Sequence[tuple[Any, ...]]) -> list[KnownTurn]:
        turns = [rows.to_turn(row) for row in found]
        ids = {"ids": rows.encode([turn.id for turn in turns])}
        links: dict[str, list[str]] = {}
        for turn_id, message_id, _ in self._sql.rows("load_links_of_turns", ids):
            links.setdefault(turn_id, []).append(message_id)
        for row in found:
            if len(links.get(row[0], ())) != row[11]:
                raise RowUndecodable(LOST_MESSAGES, session_id=self._session_id, turn_id=row[0])
        described_by: dict[str, list[str]] = {}
        for turn_id, message_id in self._sql.rows("telling_messages", ids):
            described_by.setdefault(turn_id, []).append(message_id)
        wanted = {message_id for links in described_by.values() for message_id in links}
        loaded = MessageReader(self._sql).load(self._session_id, wanted, keep_damaged=True) if wanted else {}
        return [
            KnownTurn(
                turn,
                tuple(links.get(turn.id, ())),
                tuple(loaded[id_] for id_ in described_by.get(turn.id, ()) if id_ in loaded),
            )
            for turn in turns
        ]

    # Positions

    @functools.cached_property
    def _state(self) -> SessionState:
        return load_state(self._sql, self._session_id)

    @functools.cached_property
    def _end(self) -> str | None:
        return end_of_line(self._state.head_turn_id, self._state.open_turn_id)

    def _above(self, turn_id: str | None, depth: int) -> str | None:
        """Return the turn at this depth on the path to a turn."""
        row = self._sql.first("turn_above", {"id": turn_id, "session_id": self._session_id, "depth": depth})
        return row[0] if row else None

    def _on_line(self, depths: Iterable[int]) -> set[str]:
        """Return the turns of the line at these depths, and those in between where the depths are close together."""
        wanted = sorted(set(depths))
        gaps = [index for index, (above, below) in enumerate(pairwise(wanted), 1) if below - above > 64]
        found: set[str] = set()
        for start, stop in pairwise([0, *gaps, len(wanted)] if wanted else []):
            top, bottom = wanted[start], wanted[stop - 1]
            end = self._above(self._end, bottom) or self._end
            params = {"id": end, "session_id": self._session_id, "depth": top}
            found |= {row[0] for row in self._sql.rows("path_ids", params)}
        return found

    def _summarised(self, turn: Turn, compaction: Compaction) -> int:
        """Count the turns above the tail without the compactions among them, as ``turns_before_tail`` does with the
        whole path."""
        tail = compaction.tail_start_id
        if tail is None:
            return 0
        for row in sorted(find_holders(self._sql, self._session_id, tail), key=lambda row: row[5]):
            if self._above(turn.id, row[5]) == row[0]:
                inside = row[12] > 0 and rows.to_turn(row).kind == "normal"
                return int(row[5]) - self._compactions_above(row[0]) + inside
        return turn.depth - self._compactions_above(turn.id)

    def _compactions_above(self, turn_id: str) -> int:
        row = self._sql.first("compactions_above", {"id": turn_id})
        return row[0] if row else 0
