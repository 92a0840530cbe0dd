"""Parts of trees of sessions that are held as values."""

from __future__ import annotations

from clew.store.copies import is_plain
from clew.store.memory.tables import MemoryTables
from clew.store.paths import PathTurn, join_runs
from clew.transcript.head import newest_rewind
from clew.transcript.line import path_to
from clew.transcript.turn import HeadMove, Turn

__all__ = ["MemoryPaths"]


class MemoryPaths(MemoryTables):
    """See :class:`clew.store.paths.Paths` for what each method promises."""

    async def load_path(
        self, session_id: str, turn_id: str | None, *, turns: int | None = None, depth: int = 0
    ) -> tuple[PathTurn, ...]:
        value = await self._read(session_id)
        path = path_to(value.turns, turn_id)
        start = max(depth, 0 if turns is None else len(path) - turns)
        return value.held(path[start:] or path[-1:])

    async def load_runs(
        self, session_id: str, turn_id: str | None, *, depth: int = 0, apart: str | None = None
    ) -> tuple[PathTurn, ...]:
        value = await self._read(session_id)
        return join_runs(value.held(path_to(value.turns, turn_id)[depth:]), apart)

    async def find_meeting(self, session_id: str, one: str | None, other: str | None) -> Turn | None:
        turns = (await self._read(session_id)).turns
        both = zip(path_to(turns, one), path_to(turns, other), strict=False)
        return next((a for a, b in reversed([*both]) if a is b), None)

    async def find_on_path(self, session_id: str, message_id: str, through: str | None) -> Turn | None:
        value = await self._read(session_id)
        path = path_to(value.turns, through)
        return next((turn for turn in path if message_id in value.links.get(turn.id, ())), None)

    async def has_child(self, session_id: str, turn_id: str, *, refused: bool = False) -> bool:
        turns = (await self._read(session_id)).turns.values()
        return any(turn.parent_turn_id == turn_id and (refused or turn.status != "refused") for turn in turns)

    async def load_marked(self, session_id: str, turn_id: str) -> tuple[PathTurn, ...]:
        path = await self.load_path(session_id, turn_id)
        return tuple(one for n, one in enumerate(path) if n in (0, len(path) - 1) or not is_plain(one.turn))

    async def load_refused(self, session_id: str, since: int) -> tuple[PathTurn, ...]:
        value = await self._read(session_id)
        late = [turn for turn in value.turns.values() if turn.status == "refused" and (turn.settled_at or 0) >= since]
        return value.held(sorted(late, key=lambda turn: (turn.settled_at or 0, turn.id)))

    async def newest_move(self, session_id: str) -> HeadMove | None:
        return next(reversed((await self._read(session_id)).moves.values()), None)

    async def find_rewind(self, session_id: str) -> HeadMove | None:
        return newest_rewind(reversed((await self._read(session_id)).moves.values()))

    async def moves_after(self, session_id: str, after: int, limit: int) -> tuple[HeadMove, ...]:
        moves = (await self._read(session_id)).moves.values()
        return tuple([move for move in moves if move.seq > after][:limit])

    async def was_head(self, session_id: str, turn_id: str, through: int) -> bool:
        value = await self._read(session_id)
        ends = (value.turns.get(move.to_turn_id or "") for move in value.moves.values() if move.seq <= through)
        return any(turn_id in (turn.id, turn.parent_turn_id) for turn in ends if turn is not None)
