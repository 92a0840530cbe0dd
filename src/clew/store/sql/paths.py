"""Parts of trees as every SQL engine answers for them, each by keys and along the path."""

from __future__ import annotations

from clew.errors import RowUndecodable
from clew.store.paths import PathTurn
from clew.store.sql import lines, rows
from clew.store.sql.statements import SqlReader, Statements, reading
from clew.transcript.head import newest_rewind
from clew.transcript.turn import HeadMove, Turn

__all__ = ["SqlPaths"]


class SqlPaths(SqlReader):
    """See :class:`clew.store.paths.Paths` for what each method promises."""

    @reading
    def load_path(
        self, sql: Statements, session_id: str, turn_id: str | None, *, turns: int | None = None, depth: int = 0
    ) -> tuple[PathTurn, ...]:
        return lines.load_path(sql, session_id, turn_id, turns, depth)

    @reading
    def find_on_path(self, sql: Statements, session_id: str, message_id: str, through: str | None) -> Turn | None:
        holders = sql.rows("holders_of", {"message_id": message_id, "session_id": session_id})
        for turn in sorted(map(rows.to_turn, holders), key=lambda turn: turn.depth):
            asked = {"id": through, "session_id": session_id, "depth": turn.depth}
            if sql.first("turn_above", asked) == (turn.id,):
                return turn
        return None

    @reading
    def has_child(self, sql: Statements, session_id: str, turn_id: str) -> bool:
        return sql.first("has_child", {"session_id": session_id, "id": turn_id}) is not None

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
