"""Parts of trees as every SQL engine answers for them, each by keys and along the path."""

from __future__ import annotations

from typing import Final

import msgspec

from clew.errors import RowUndecodable
from clew.store.paths import PathTurn, is_joined
from clew.store.sql import lines, rows
from clew.store.sql.statements import SqlReader, Statements, reading
from clew.transcript.head import newest_rewind
from clew.transcript.turn import HeadMove, Turn

__all__ = ["SqlPaths"]

_MISPLACED: Final = "a turn is not where it belongs, or one above it is not"


class SqlPaths(SqlReader):
    """See :class:`clew.store.paths.Paths` for what each method promises."""

    @reading
    def load_path(
        self, sql: Statements, session_id: str, turn_id: str | None, *, turns: int | None = None, depth: int = 0
    ) -> tuple[PathTurn, ...]:
        return lines.load_path(sql, session_id, turn_id, turns, depth)

    @reading
    def load_runs(
        self, sql: Statements, session_id: str, turn_id: str | None, *, depth: int = 0, apart: str | None = None
    ) -> tuple[PathTurn, ...]:
        found: list[PathTurn] = []
        place: int | None = None
        while turn_id is not None and place != depth - 1:
            turn = _get_turn(sql, session_id, turn_id)
            if place is None and turn.depth < depth:
                break
            if place not in (None, turn.depth):
                raise RowUndecodable(_MISPLACED, session_id=session_id, turn_id=turn_id)
            if is_joined(turn, apart):
                run = _load_run(sql, turn, depth, apart)
                if run is None:
                    # Read one by one, it is told what is wrong with them, or they are taken as they are.
                    return (*lines.load_path(sql, session_id, turn_id, None, depth), *reversed(found))
                one, first = run
            else:
                (one,), first = lines.load_path(sql, session_id, turn_id, 1, 0), turn.depth
            found.append(one)
            turn_id, place = one.turn.parent_turn_id, first - 1
            if (place < 0) != (turn_id is None):
                raise RowUndecodable(_MISPLACED, session_id=session_id, turn_id=turn.id)
        return tuple(reversed(found))

    @reading
    def find_meeting(self, sql: Statements, session_id: str, one: str | None, other: str | None) -> Turn | None:
        if one is None or other is None:
            return None
        ends = [_get_turn(sql, session_id, turn_id) for turn_id in (one, other)]
        depth = min(turn.depth for turn in ends)
        asked = {"session_id": session_id, "depth": depth}
        level = [sql.first("turn_above", {**asked, "id": turn.id}) or (None,) for turn in ends]
        row = sql.first("find_meeting", {"one": level[0][0], "other": level[1][0], "depth": depth})
        met, beside, at = row or (None, None, depth)
        found = _get_turn(sql, session_id, met) if met is not None and met == beside else None
        if met is None or beside is None or at != (found.depth if found is not None else 0):
            raise RowUndecodable(_MISPLACED, session_id=session_id, turn_id=max(ends, key=lambda turn: turn.depth).id)
        return found

    @reading
    def find_on_path(self, sql: Statements, session_id: str, message_id: str, through: str | None) -> Turn | None:
        holders = lines.find_holders(sql, session_id, message_id)
        for turn in sorted(map(rows.to_turn, holders), key=lambda turn: turn.depth):
            asked = {"id": through, "session_id": session_id, "depth": turn.depth}
            if sql.first("turn_above", asked) == (turn.id,):
                return turn
        return None

    @reading
    def has_child(self, sql: Statements, session_id: str, turn_id: str, *, refused: bool = False) -> bool:
        return sql.first("has_child", {"session_id": session_id, "id": turn_id, "refused": refused}) is not None

    @reading
    def load_marked(self, sql: Statements, session_id: str, turn_id: str) -> tuple[PathTurn, ...]:
        found = list(sql.rows("load_marked", {"id": turn_id, "session_id": session_id}))
        path = lines.with_links(sql, session_id, found)
        if not path or path[0].turn.depth or path[0].turn.parent_turn_id is not None:
            raise RowUndecodable("the turns above this one are not all there", session_id=session_id, turn_id=turn_id)
        return path

    @reading
    def load_refused(self, sql: Statements, session_id: str, since: int) -> tuple[PathTurn, ...]:
        return lines.with_links(sql, session_id, list(sql.rows("load_refused", {"id": session_id, "since": since})))

    @reading
    def newest_move(self, sql: Statements, session_id: str) -> HeadMove | None:
        row = sql.first("newest_move", {"id": session_id})
        return HeadMove(*row) if row else None

    @reading
    def find_rewind(self, sql: Statements, session_id: str) -> HeadMove | None:
        return newest_rewind(lines.rewinds(sql, session_id))

    @reading
    def moves_after(self, sql: Statements, session_id: str, after: int, limit: int) -> tuple[HeadMove, ...]:
        found = sql.rows("moves_after", {"id": session_id, "after": after, "limit": limit})
        return tuple(HeadMove(*row) for row in found)

    @reading
    def was_head(self, sql: Statements, session_id: str, turn_id: str, through: int) -> bool:
        asked = {"session_id": session_id, "id": turn_id, "through": through}
        return sql.first("was_head", asked) is not None


def _get_turn(sql: Statements, session_id: str, turn_id: str) -> Turn:
    row = sql.first("get_turn", {"id": turn_id, "session_id": session_id})
    if row is None:
        raise RowUndecodable("a turn of this session is not there", session_id=session_id, turn_id=turn_id)
    return rows.to_turn(row)


def _load_run(sql: Statements, turn: Turn, depth: int, apart: str | None) -> tuple[PathTurn, int] | None:
    """The run that ends with this turn, and the depth it begins at; None where not every message is in its place."""
    asked = {"id": turn.id, "session_id": turn.session_id, "depth": depth, "apart": apart}
    row = sql.first("load_run", asked)
    if row is None or row[2] != row[3] or row[2] != row[4]:
        return None
    messages = _in_order(row[5])
    if len(messages) != row[2]:
        return None
    return PathTurn(msgspec.structs.replace(turn, parent_turn_id=row[0]), messages), row[1]


def _in_order(named: str | None) -> tuple[str, ...]:
    """The messages of a run, of which the last turn is named first; an id holds neither sign."""
    turns = (named or "").split(";")[:0:-1]
    return tuple(",".join(turns).split(",")) if turns else ()
