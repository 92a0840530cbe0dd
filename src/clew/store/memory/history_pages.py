"""Pages of a session's history, for sessions that are held as values."""

from __future__ import annotations

from collections.abc import Collection

from clew.store.history_pages import Holder, KnownTurn, MovePage, TurnPage
from clew.store.memory.session_value import SessionValue
from clew.store.memory.tables import MemoryTables
from clew.transcript.line import LineTurn, turns_before_tail
from clew.transcript.session import Session
from clew.transcript.view import find_compaction

__all__ = ["MemoryHistoryPages"]


class MemoryHistoryPages(MemoryTables):
    """See :class:`clew.store.history_pages.HistoryPages` for what each method promises."""

    async def list_branches(self, parent_id: str) -> tuple[Session, ...]:
        await self._list_all()
        children = (one for one in self._sessions() if one.parent_id == parent_id and one.kind != "subagent")
        return tuple(sorted(children, key=lambda session: (session.created_at, session.id)))

    async def has_files(self, session_id: str) -> bool:
        rows = (await self._read(session_id)).messages.values()
        return any(part.type == "file" for row in rows for part in row.parts)

    async def failed_sessions(self, among: Collection[str]) -> tuple[str, ...]:
        await self._bring_unsettled()
        return tuple(session_id for session_id in among if self._has_failed(session_id))

    async def load_turns(self, session_id: str, *, limit: int | None = None, before: str | None = None) -> TurnPage:
        value = await self._read(session_id)
        older = sorted((id_ for id_ in value.turns if before is None or id_ < before), reverse=True)
        page = older if limit is None else older[:limit]
        on_line = {turn.id for turn in value.path()}.intersection(page)
        state, turns = value.state["state"], tuple(_known(value, id_) for id_ in page)
        return TurnPage(state.head_turn_id, state.open_turn_id, turns, frozenset(on_line), more=len(older) > len(page))

    async def load_moves(self, session_id: str, *, limit: int | None = None, before: int | None = None) -> MovePage:
        value = await self._read(session_id)
        older = sorted((seq for seq in value.moves if before is None or seq < before), reverse=True)
        moves = tuple(value.moves[seq] for seq in older[:limit])
        named = sorted({move.to_turn_id for move in moves if move.to_turn_id is not None})
        turns = {id_: _known(value, id_) for id_ in named if id_ in value.turns}
        summarised: dict[str, int] = {}
        for id_, known in turns.items():
            compaction = find_compaction([LineTurn(known.turn, known.described_by)])
            if compaction is not None:
                line = [(above, held) for above in value.path(id_) for held in value.links.get(above.id, ())]
                summarised[id_] = turns_before_tail(line, id_, compaction.tail_start_id)
        return MovePage(moves, turns, summarised)

    async def find_holder(self, session_id: str, message_id: str) -> Holder | None:
        value = await self._read(session_id)
        on_line = next((turn for turn in value.path() if message_id in value.links.get(turn.id, ())), None)
        if on_line is not None:
            return Holder(on_line, True)
        holders = (turn for turn in value.turns.values() if message_id in value.links.get(turn.id, ()))
        newest = max(holders, key=lambda turn: (turn.created_at, turn.id), default=None)
        return None if newest is None else Holder(newest, False)


def _known(value: SessionValue, turn_id: str) -> KnownTurn:
    turn, held = value.turns[turn_id], value.links.get(turn_id, ())
    rows = (value.message(id_) for id_ in held if id_ in value.messages)
    telling = tuple(row for row in rows if row.role == "user" or turn.kind == "compaction")
    return KnownTurn(turn, held, telling)
