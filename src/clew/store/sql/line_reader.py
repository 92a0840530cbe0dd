"""Reading lines: the path of turns up from an end, with their messages, checked against what was stored."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from clew.errors import InternalError, RowUndecodable
from clew.store.base import LineSlice
from clew.store.facts import ALL
from clew.store.sql import rows
from clew.store.sql.line_cache import CachedLine, LineCache
from clew.store.sql.messages import MessageReader, placeholder
from clew.store.sql.statements import Statements
from clew.store.trees import PathTurn
from clew.transcript.damage import MISSING
from clew.transcript.line import LineTurn, end_of_line
from clew.transcript.model_call import ModelCall
from clew.transcript.pruned import Pruned
from clew.transcript.session import SessionState
from clew.transcript.turn import HeadMove, Tree, Turn
from clew.transcript.view import find_compaction
from clew.transcript.workspace_snapshot import WorkspaceSnapshot

__all__ = [
    "LOST_MESSAGES",
    "LineReader",
    "find_holders",
    "load_calls",
    "load_path",
    "load_pruned",
    "load_snapshots",
    "load_state",
    "load_tree",
    "rewinds",
    "with_links",
]

_HeldMessages: TypeAlias = tuple[dict[str, list[tuple[str, int]]], list[rows.Row]]
"""The messages of turns with their positions, and the rows of those that exist, with their seals."""

LOST_MESSAGES: Final = "some messages of this turn are missing or out of order"


def load_state(sql: Statements, session_id: str) -> SessionState:
    row = sql.first("get_state", {"id": session_id})
    return SessionState(*row) if row else SessionState()


def load_tree(sql: Statements, session_id: str) -> Tree:
    state = load_state(sql, session_id)
    found = list(sql.rows("load_turns", {"id": session_id}))
    links: dict[str, list[str]] = {}
    for turn_id, message_id in sql.rows("load_links", {"id": session_id}):
        links.setdefault(turn_id, []).append(message_id)
    for row in found:
        if len(links.get(row[0], ())) != row[11]:
            raise RowUndecodable(LOST_MESSAGES, session_id=session_id, turn_id=row[0])
    return Tree(
        state.head_turn_id,
        state.open_turn_id,
        {row[0]: rows.to_turn(row) for row in found},
        {turn_id: tuple(ids) for turn_id, ids in links.items()},
        tuple(HeadMove(*row) for row in sql.rows("load_moves", {"id": session_id})),
    )


def load_path(
    sql: Statements, session_id: str, turn_id: str | None, turns: int | None, depth: int
) -> tuple[PathTurn, ...]:
    """See ``Conversations.load_path``."""
    params = {"id": turn_id, "session_id": session_id, "depth": depth, "turns": ALL if turns is None else turns}
    found = list(sql.rows("load_path", params))
    found.reverse()
    path = with_links(sql, session_id, found)
    through_root = turns is None and depth == 0
    _check_path(session_id, turn_id, [one.turn for one in path], through_root=through_root)
    return path


def with_links(sql: Statements, session_id: str, found: Sequence[rows.Row]) -> tuple[PathTurn, ...]:
    """Convert turn columns, followed by the number of messages they hold, to turns with their messages."""
    links: dict[str, list[str]] = {row[0]: [] for row in found}
    for turn_id, message_id, _ in sql.rows("load_links_of_turns", {"ids": rows.encode(list(links))}):
        links[turn_id].append(message_id)
    for row in found:
        if len(links[row[0]]) != row[11]:
            raise RowUndecodable(LOST_MESSAGES, session_id=session_id, turn_id=row[0])
    return tuple(PathTurn(rows.to_turn(row), tuple(links[row[0]])) for row in found)


def find_holders(sql: Statements, session_id: str, message_id: str) -> list[rows.Row]:
    """Return the turns that hold a message: their columns, the number of messages they hold, and its position.

    An existing message that no turn holds according to the index is searched in all turns of the session: the index may
    be damaged, and the line would lack the message.
    """
    found: list[rows.Row] = list(sql.rows("holders_of", {"message_id": message_id, "session_id": session_id}))
    if found or sql.first("find_message", {"id": message_id, "session_id": session_id}) is None:
        return found
    links = sql.rows("load_links_of_session", {"id": session_id})
    positions = {turn_id: position for turn_id, held, position, _ in links if held == message_id}
    turns = sql.rows("load_turns", {"id": session_id}) if positions else ()
    return [(*row, positions[row[0]]) for row in turns if row[0] in positions]


def rewinds(sql: Statements, session_id: str) -> Iterator[HeadMove]:
    """Yield the moves that rewind or undo a rewind, newest first, reading more as needed."""
    before = ALL
    while found := list(sql.rows("rewinds_before", {"id": session_id, "before": before})):
        yield from (HeadMove(*row) for row in found)
        before = found[-1][0]


def load_pruned(sql: Statements, session_id: str, messages: Collection[str] | None = None) -> tuple[Pruned, ...]:
    if messages is None:
        return tuple(Pruned(*row) for row in sql.rows("load_pruned", {"id": session_id}))
    newest = sql.first("newest_prune", {"id": session_id})
    if newest is None or not newest[0]:
        # True of most sessions, and faster to find out than for each message.
        return ()
    params = {"id": session_id, "ids": rows.encode(sorted(messages))}
    return tuple(Pruned(*row) for row in sql.rows("load_pruned_of_messages", params))


def load_calls(sql: Statements, session_id: str | None) -> tuple[ModelCall, ...]:
    return tuple(rows.to_call(row) for row in sql.rows("load_calls", {"id": session_id}))


def load_snapshots(sql: Statements, session_id: str) -> tuple[WorkspaceSnapshot, ...]:
    return tuple(rows.to_snapshot(row) for row in sql.rows("load_snapshots", {"id": session_id}))


class LineReader:
    """Reads lines of one session inside one read transaction."""

    def __init__(self, sql: Statements, session_id: str, *, keep_damaged: bool) -> None:
        self._sql = sql
        self._session_id = session_id
        self._keep_damaged = keep_damaged

    def load(
        self, through: str | None, turns: int | None, back_to_message: str | None, *, viewed: bool = False
    ) -> LineSlice:
        """See ``Conversations.load_line``, and ``find_view`` for ``viewed``."""
        session_id = self._session_id
        end = through or self._end
        whole = turns is None and back_to_message is None
        depth = 0 if back_to_message is None else self._holder_depth(end, back_to_message) or 0
        params = {"id": end, "session_id": session_id, "depth": depth, "turns": ALL if turns is None else turns}
        held: _HeldMessages | None = None
        if whole:
            found = self._whole_path(end)
        elif viewed:
            found, held = self._viewed_path(params)
        else:
            found = list(self._sql.rows("load_path", params))
        found.reverse()
        path = [rows.to_turn(row) for row in found]
        _check_path(session_id, end, path, through_root=whole)
        complete = not path or path[0].parent_turn_id is None
        counts = [row[11] for row in found]
        return LineSlice(self._with_messages(path, counts, whole=whole, viewed=viewed, held=held), complete)

    def _whole_path(self, end: str | None) -> list[tuple[Any, ...]]:
        """Return the rows of the turns from the end up. Reading the whole session at once is faster than one turn at a
        time."""
        found = {row[0]: row for row in self._sql.rows("load_turns", {"id": self._session_id})}
        path: list[tuple[Any, ...]] = []
        while end is not None and (row := found.pop(end, None)) is not None:
            path.append(row)
            end = row[2]
        return path

    def _viewed_path(self, params: rows.Params) -> tuple[list[tuple[Any, ...]], _HeldMessages]:
        """Return the rows of the turns from the end up, and their messages, by one statement."""
        found: list[tuple[Any, ...]] = []
        links: dict[str, list[tuple[str, int]]] = {}
        heads: list[rows.Row] = []
        for row in self._sql.rows("load_viewed_path", params):
            named = links.get(row[0])
            if named is None:
                named = links[row[0]] = []
                found.append(row)
            position, message_id = row[12], row[13]
            if position is not None:
                # A damaged position may not be a number; it sorts after those that are, and is reported below.
                if named and type(position) is int and named[-1][1] > position:
                    raise InternalError("the messages of a turn are read out of order", turn_id=row[0])
                named.append((message_id, position))
                heads.append(row[13:])
        return found, (links, heads)

    def _links(self, path: Sequence[Turn], *, whole: bool) -> dict[str, list[tuple[str, int]]]:
        links: dict[str, list[tuple[str, int]]] = {turn.id: [] for turn in path}
        by_session = "load_links_of_session", {"id": self._session_id}
        by_turn = "load_links_of_turns", {"ids": rows.encode(list(links))}
        for turn_id, message_id, position, *_ in self._sql.rows(*(by_session if whole else by_turn)):
            if turn_id in links:
                links[turn_id].append((message_id, position))
        return links

    def _with_messages(
        self,
        path: Sequence[Turn],
        counts: Sequence[int],
        *,
        whole: bool,
        viewed: bool,
        held: _HeldMessages | None = None,
    ) -> tuple[LineTurn, ...]:
        """Return the turns with their messages; ``counts`` is how many each held when it was last written."""
        session_id = self._session_id
        links, heads = held or (self._links(path, whole=whole), None)
        wanted = {message_id for named in links.values() for message_id, _ in named}
        reader = MessageReader(self._sql)
        if viewed:
            messages = reader.view(session_id, wanted, whole=whole, keep_damaged=self._keep_damaged, heads=heads)
        else:
            messages = reader.load(session_id, wanted, whole=whole, keep_damaged=self._keep_damaged)
        line: list[LineTurn] = []
        positions = [*range(max(counts, default=0))]
        for turn, count in zip(path, counts, strict=True):
            named = links[turn.id]
            there = tuple([messages[message_id] for message_id, _ in named if message_id in messages])
            if self._keep_damaged and len(there) == count and [index for _, index in named] == positions[:count]:
                line.append(LineTurn(turn, there))
                continue
            entries = [
                messages.get(message_id)
                or placeholder(message_id, session_id, "assistant" if position else "user", turn.created_at, MISSING)
                for message_id, position in named
            ]
            # Positions are ordered and unique: the count and the first and last position prove that all are there.
            if len(named) != count or (named and (named[0][1], named[-1][1]) != (0, count - 1)):
                entries.append(placeholder(turn.id, session_id, "assistant", turn.created_at, LOST_MESSAGES))
            lost = None if self._keep_damaged else next((one for one in entries if one.damage is not None), None)
            if lost is not None:
                raise RowUndecodable(
                    f"a turn holds a message that cannot be read: {lost.damage}",
                    session_id=session_id,
                    turn_id=turn.id,
                    message_id=lost.id,
                )
            line.append(LineTurn(turn, tuple(entries)))
        return tuple(line)

    def view(self, turns: int | None) -> LineSlice:
        """See ``Conversations.find_view``."""
        load = functools.partial(self.load, viewed=True)
        end = self._sql.first("get_turn", {"id": self._end, "session_id": self._session_id})
        compaction = rows.to_turn(end).compaction_turn_id if end else None
        line = _view_line(load, lambda id_: self._holder_depth(self._end, id_) is not None, compaction, turns)
        return replace(line, pruned=load_pruned(self._sql, self._session_id))

    def cached_view(self, lines: LineCache) -> LineSlice:
        """Return the view, reading only what is not cached or has changed since, and cache it."""
        commits = self._sql.first("get_commits", {})
        commit = commits[0] if commits else -1
        known = lines.find(self._session_id, commit)
        line = self._extend_cached(known) if known is not None else None
        if line is None:
            line = self.view(None)
        lines.keep(self._session_id, commit, line, known)
        return line

    def _extend_cached(self, known: CachedLine) -> LineSlice | None:
        """Return the cached line as far as it still matches, extended by the new turns; None when the line is another
        one."""
        clean, top = known.untouched, known.turns[0].turn.depth if known.turns else 0
        # Usually there is one new turn, or none.
        for limit in (2, 64, 1024, ALL) if clean else ():
            params = {"id": self._end, "session_id": self._session_id, "depth": top, "turns": limit}
            found = list(self._sql.rows("load_path", params))
            path = [rows.to_turn(row) for row in found]
            if not path or path[0].compaction_turn_id != known.compaction_turn_id:
                return None
            for new, turn in enumerate(path):
                index = turn.depth - top
                if 0 <= index < clean and known.turns[index].turn.id == turn.id:
                    path, counts = path[new::-1], [row[11] for row in found[:new]][::-1]
                    _check_path(self._session_id, self._end, path, through_root=False)
                    below = self._with_messages(path[1:], counts, whole=False, viewed=True)
                    pruned = known.known_pruned
                    pruned = load_pruned(self._sql, self._session_id) if pruned is None else pruned
                    return LineSlice((*known.turns[: index + 1], *below), complete=True, pruned=pruned)
            if len(path) < limit:
                return None
        return None

    @functools.cached_property
    def state(self) -> SessionState | None:
        row = self._sql.first("get_state", {"id": self._session_id})
        return SessionState(*row) if row else None

    @functools.cached_property
    def _end(self) -> str | None:
        """Return the turn where the line ends."""
        state = self.state or SessionState()
        moved = self._sql.first("last_move", {"id": self._session_id})
        if state.head_turn_id != (moved[0] if moved else None):
            what = "the session's head differs from its last move"
            raise RowUndecodable(what, session_id=self._session_id)
        return end_of_line(state.head_turn_id, state.open_turn_id)

    def _holder_depth(self, end: str | None, message_id: str) -> int | None:
        """Return the depth of the first turn on the path to ``end`` that holds the message; None without one."""
        about = {"session_id": self._session_id, "id": end}
        holders = find_holders(self._sql, self._session_id, message_id)
        for depth, turn_id in sorted((row[5], row[0]) for row in holders):
            if self._sql.first("turn_above", {**about, "depth": depth}) == (turn_id,):
                return int(depth)
        return None


def _check_path(session_id: str, end: str | None, path: Sequence[Turn], *, through_root: bool) -> None:
    """Raise if a line has lost a turn, so that it is not shown as complete."""
    ids: dict[str, object] = {"session_id": session_id}
    if end is not None and not path:
        raise RowUndecodable("the turn that the session points at is missing", turn_id=end, **ids)
    for above, turn in pairwise(path):
        if turn.depth != above.depth + 1:
            raise RowUndecodable("a turn is misplaced in the tree", turn_id=turn.id, **ids)
    if path and (path[0].depth == 0) != (path[0].parent_turn_id is None):
        raise RowUndecodable("a turn is misplaced in the tree", turn_id=path[0].id, **ids)
    if path and through_root and path[0].parent_turn_id is not None:
        raise RowUndecodable("the parent of this turn is missing", turn_id=path[0].id, **ids)


_LoadLine = Callable[[str | None, int | None, str | None], LineSlice]
"""(end turn, maximum number of turns, first message) as in ``Store.load_line``."""

_HoldsMessage = Callable[[str], bool]
"""Return whether a turn on the line holds this message."""


def _view_line(load: _LoadLine, holds: _HoldsMessage, compaction_turn: str | None, turns: int | None) -> LineSlice:
    """Load the line back to the tail of the newest compaction; without one, the last ``turns`` turns, or all."""
    if compaction_turn is None:
        return load(None, turns, None)
    compaction = find_compaction(load(compaction_turn, 1, None).turns)
    if compaction is None or compaction.tail_start_id is None:
        return LineSlice(load(None, None, None).turns, complete=True)
    # If no turn of the line holds the tail, it begins right below the compaction: nothing above that is needed.
    tail = compaction.tail_start_id
    line = load(None, None, tail if holds(tail) else compaction.marker.id)
    if all(entry.turn.id != compaction_turn for entry in line.turns):
        # The tail of a compaction made for an open turn begins below it; the slice must include the summary.
        line = load(None, None, compaction.marker.id)
    return LineSlice(line.turns, complete=True)
