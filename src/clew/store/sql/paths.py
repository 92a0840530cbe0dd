"""Reads of parts of trees for every SQL engine, each by keys and along the path."""

from __future__ import annotations

from typing import Final

import msgspec

from clew.errors import RowUndecodable
from clew.store.paths import PathTurn, is_joined
from clew.store.sql import line_reader, rows
from clew.store.sql.statements import SqlReader, Statements, reading
from clew.transcript.head import newest_rewind
from clew.transcript.turn import HeadMove, Turn

__all__ = ["SqlPaths"]

_MISPLACED: Final = "a turn, or one above it, is misplaced in the tree"


class SqlPaths(SqlReader):
    """See :class:`clew.store.paths.Paths` for the contract of each method."""

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
