"""Reads of trees on a SQL engine: history pages, paths and previous heads. Reads no more than is shown or needed."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec

from clew.errors import RowUndecodable
from clew.store.facts import ALL
from clew.store.sql import line_reader, rows
from clew.store.sql.line_reader import LOST_MESSAGES, find_holders, load_state
from clew.store.sql.messages import MessageReader
from clew.store.sql.statements import SqlReader, Statements, reading, reading_session
from clew.store.trees import Holder, KnownTurn, MovePage, PathTurn, TurnPage, is_joined
from clew.transcript.head import newest_rewind
from clew.transcript.line import LineTurn, end_of_line
from clew.transcript.session import Session, SessionState
from clew.transcript.turn import HeadMove, Turn
from clew.transcript.view import Compaction, find_compaction

__all__ = ["SqlHistoryPages", "SqlPaths"]


class SqlHistoryPages(SqlReader):
    """See :class:`clew.store.trees.HistoryPages` for the contract of each method."""

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


_MISPLACED: Final = "a turn, or one above it, is misplaced in the tree"


class SqlPaths(SqlReader):
    """See :class:`clew.store.trees.Paths` for the contract of each method."""

    @reading
    def load_path(
        self, sql: Statements, session_id: str, turn_id: str | None, *, turns: int | None = None, depth: int = 0
    ) -> tuple[PathTurn, ...]:
        return line_reader.load_path(sql, session_id, turn_id, turns, depth)

    @reading
    def load_runs(
        self, sql: Statements, session_id: str, turn_id: str | None, *, depth: int = 0, apart: str | None = None
    ) -> tuple[PathTurn, ...]:
        found: list[PathTurn] = []
        expected_depth: int | None = None
        while turn_id is not None and expected_depth != depth - 1:
            turn = _get_turn(sql, session_id, turn_id)
            if expected_depth is None and turn.depth < depth:
                break
            if expected_depth not in (None, turn.depth):
                raise RowUndecodable(_MISPLACED, session_id=session_id, turn_id=turn_id)
            if is_joined(turn, apart):
                run = _load_run(sql, turn, depth, apart)
                if run is None:
                    # Reading turn by turn either reports the damage or succeeds.
                    return (*line_reader.load_path(sql, session_id, turn_id, None, depth), *reversed(found))
                one, first = run
            else:
                (one,), first = line_reader.load_path(sql, session_id, turn_id, 1, 0), turn.depth
            found.append(one)
            turn_id, expected_depth = one.turn.parent_turn_id, first - 1
            if (expected_depth < 0) != (turn_id is None):
                raise RowUndecodable(_MISPLACED, session_id=session_id, turn_id=turn.id)
        return tuple(reversed(found))

    @reading
    def find_meeting(self, sql: Statements, session_id: str, one: str | None, other: str | None) -> Turn | None:
        if one is None or other is None:
            return None
        ends = [_get_turn(sql, session_id, turn_id) for turn_id in (one, other)]
        depth = min(turn.depth for turn in ends)
        params = {"session_id": session_id, "depth": depth}
        at_depth = [sql.first("turn_above", {**params, "id": turn.id}) or (None,) for turn in ends]
        row = sql.first("find_meeting", {"one": at_depth[0][0], "other": at_depth[1][0], "depth": depth})
        met, other_met, at = row or (None, None, depth)
        found = _get_turn(sql, session_id, met) if met is not None and met == other_met else None
        if met is None or other_met is None or at != (found.depth if found is not None else 0):
            raise RowUndecodable(_MISPLACED, session_id=session_id, turn_id=max(ends, key=lambda turn: turn.depth).id)
        return found

    @reading
    def find_on_path(self, sql: Statements, session_id: str, message_id: str, through: str | None) -> Turn | None:
        holders = line_reader.find_holders(sql, session_id, message_id)
        for turn in sorted(map(rows.to_turn, holders), key=lambda turn: turn.depth):
            params = {"id": through, "session_id": session_id, "depth": turn.depth}
            if sql.first("turn_above", params) == (turn.id,):
                return turn
        return None

    @reading
    def has_child(self, sql: Statements, session_id: str, turn_id: str, *, refused: bool = False) -> bool:
        return sql.first("has_child", {"session_id": session_id, "id": turn_id, "refused": refused}) is not None

    @reading
    def load_marked(self, sql: Statements, session_id: str, turn_id: str) -> tuple[PathTurn, ...]:
        found = list(sql.rows("load_marked", {"id": turn_id, "session_id": session_id}))
        path = line_reader.with_links(sql, session_id, found)
        if not path or path[0].turn.depth or path[0].turn.parent_turn_id is not None:
            raise RowUndecodable("some turns above this one are missing", session_id=session_id, turn_id=turn_id)
        return path

    @reading
    def path_every(self, sql: Statements, session_id: str, turn_id: str, every: int) -> tuple[str, ...]:
        found = sql.rows("path_every", {"id": turn_id, "session_id": session_id, "every": every})
        return tuple(row[0] for row in found)

    @reading
    def load_refused(self, sql: Statements, session_id: str, since: int) -> tuple[PathTurn, ...]:
        return line_reader.with_links(
            sql, session_id, list(sql.rows("load_refused", {"id": session_id, "since": since}))
        )

    @reading
    def newest_move(self, sql: Statements, session_id: str) -> HeadMove | None:
        row = sql.first("newest_move", {"id": session_id})
        return HeadMove(*row) if row else None

    @reading
    def find_rewind(self, sql: Statements, session_id: str) -> HeadMove | None:
        return newest_rewind(line_reader.rewinds(sql, session_id))

    @reading
    def moves_after(self, sql: Statements, session_id: str, after: int, limit: int) -> tuple[HeadMove, ...]:
        found = sql.rows("moves_after", {"id": session_id, "after": after, "limit": limit})
        return tuple(HeadMove(*row) for row in found)

    @reading
    def was_head(self, sql: Statements, session_id: str, turn_id: str, through: int) -> bool:
        params = {"session_id": session_id, "id": turn_id, "through": through}
        return sql.first("was_head", params) is not None


def _get_turn(sql: Statements, session_id: str, turn_id: str) -> Turn:
    row = sql.first("get_turn", {"id": turn_id, "session_id": session_id})
    if row is None:
        raise RowUndecodable("a turn of this session is missing", session_id=session_id, turn_id=turn_id)
    return rows.to_turn(row)


def _load_run(sql: Statements, turn: Turn, depth: int, apart: str | None) -> tuple[PathTurn, int] | None:
    """Return the run that ends with this turn, and the depth where it begins; None where a message is missing or
    misplaced."""
    params = {"id": turn.id, "session_id": turn.session_id, "depth": depth, "apart": apart}
    row = sql.first("load_run", params)
    if row is None or row[2] != row[3] or row[2] != row[4]:
        return None
    messages = _in_order(row[5])
    if len(messages) != row[2]:
        return None
    return PathTurn(msgspec.structs.replace(turn, parent_turn_id=row[0]), messages), row[1]


def _in_order(named: str | None) -> tuple[str, ...]:
    """Parse the messages of a run, whose last turn comes first; ids contain neither separator."""
    turns = (named or "").split(";")[:0:-1]
    return tuple(",".join(turns).split(",")) if turns else ()
