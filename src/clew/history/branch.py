"""Branches: a new session that starts as a copy of a line of another.

Everything in it has an id of its own, and nothing in it names a message of its parent, so deleting either leaves the
other whole. What is copied is decided by pure functions over the ids of the line; one unit writes it, and the store
copies most messages without their ever being read. Only those that cannot stay as they are, are: summaries, which
name other messages, and calls that wait for a human.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from clew import ids
from clew.errors import BranchPointInvalid, InvalidId, InvalidInput, TurnNotFound
from clew.failpoints import failpoint
from clew.history.pointing import Pointed, find_message, get_turn
from clew.history.rewind import load_quiet_tree
from clew.ids import Mint
from clew.runtime.desk import Desk
from clew.runtime.heading import condensed_after
from clew.runtime.host import Host
from clew.store.base import Store, get_session
from clew.store.unit import (
    CopiedMessage,
    CopiedTurn,
    CopyLine,
    InsertMessage,
    InsertSession,
    MoveHead,
    SealMessage,
    SetHidden,
    Unit,
    Write,
)
from clew.transcript.gate import check_value
from clew.transcript.line import LineTurn, path_to, tail_place
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.part import COMPACTION_PART
from clew.transcript.project import Hidden, project, tails_of
from clew.transcript.seal import seal_of
from clew.transcript.session import Model, Session, parse_model
from clew.transcript.turn import HeadMove, Tree, Turn, placed
from clew.transcript.turn_state import OPEN
from clew.transcript.view import Compaction, compaction_data, find_compaction

__all__ = ["LEFT_BEHIND", "Branching", "Held", "Names", "check_point", "cut_line", "plan_branch", "start_line"]

LEFT_BEHIND: Final = "left behind by a branch"
_OWN_METADATA: Final = frozenset({"kind", "depth", "label"})
"""Session metadata that says what a session is to its parent; a branch is none of that."""
_NOT_COPIED: Final = frozenset({"hidden_at", "hidden_by", "queued_at", "snapshot_id"})
_ENDINGS: Final = frozenset({"error", "stopped", "max_steps", "budget_from", "warned"})
"""Turn data that tells how the whole turn went and ended, which a part of it did not."""


class Names:
    """New ids for old ones. What is not copied gets an id that names nothing, the same one each time."""

    def __init__(self, mint: Mint) -> None:
        self._mint = mint
        self._new: dict[str, str] = {}

    def __getitem__(self, old: str) -> str:
        if old not in self._new:
            self._new[old] = self._mint.turn() if old.startswith("trn_") else self._mint.message()
        return self._new[old]

    def remapped(self, value: Any) -> Any:
        """The same JSON value with every message and turn id in it replaced."""
        if isinstance(value, str):
            return self[value] if _is_id(value) else value
        if isinstance(value, dict):
            return {key: self.remapped(item) for key, item in value.items()}
        return [self.remapped(item) for item in value] if isinstance(value, list) else value


def _is_id(value: str) -> bool:
    try:
        return bool((ids.check_turn_id if value.startswith("trn_") else ids.check_message_id)(value))
    except InvalidId:
        return False


# What is copied


class Held(msgspec.Struct, frozen=True):
    """A turn of the line with the ids of its messages, in order."""

    turn: Turn
    messages: tuple[str, ...]


def check_point(pointed: Pointed) -> Turn:
    """The turn a branch at this message ends with; :class:`BranchPointInvalid` when there is none to be had."""
    if pointed.turn is None:
        raise BranchPointInvalid(
            "this message was never sent; there is nothing to branch from", message_id=pointed.row.id
        )
    return _check_turn(pointed.turn)


def _check_turn(turn: Turn) -> Turn:
    if turn.status == "refused":
        raise BranchPointInvalid("this turn was refused; there is nothing to branch from", turn_id=turn.id)
    return turn


def cut_line(line: Sequence[Held], point_id: str, rows: Mapping[str, MessageRow]) -> tuple[Held, ...]:
    """The line up to and including a message of its last turn. ``rows`` holds its summaries.

    A compaction that made room inside that turn, after the message, was not there yet when the message was the newest.
    """
    *above, last = line
    end = last.messages.index(point_id) + 1
    cut_off = last.messages[end:]
    while above and condensed_after(_compaction(above[-1], rows), cut_off):
        above.pop()
    return (*above, Held(last.turn, last.messages[:end]))


def _compaction(entry: Held, rows: Mapping[str, MessageRow]) -> Compaction | None:
    return find_compaction((LineTurn(entry.turn, tuple(rows[id_] for id_ in entry.messages if id_ in rows)),))


def start_line(line: Sequence[Held], start: MessageRow) -> tuple[Held, ...]:
    """The line from a message on: a user message, without the summaries of what came before it, or a summary with
    what it kept."""
    held = [(entry.turn, message_id) for entry in line for message_id in entry.messages]
    at = next((place for place, (_, message_id) in enumerate(held) if message_id == start.id), None)
    if at is None:
        raise BranchPointInvalid("start_message_id is not at or before the branch point", message_id=start.id)
    turn = held[at][0]
    data = compaction_data(start) if turn.kind == "compaction" else None
    if data is not None:
        tail = data.get("tail_start_id")
        places = [(turn.id, message_id) for turn, message_id in held]
        first = min(tail_place(places, turn.id, tail if isinstance(tail, str) else None), at)
        kept = [n for n in range(first, len(held)) if n >= at or held[n][0].kind != "compaction"]
    else:
        leads = at == 0 or held[at - 1][0] is not turn
        if start.role != "user" or start.metadata.get("synthetic") or not leads:
            raise BranchPointInvalid(
                "start_message_id must be a user message that begins a turn, or a summary", message_id=start.id
            )
        kept = [n for n in range(at, len(held)) if held[n][0].kind != "compaction"]
    messages: dict[str, list[str]] = {}
    for n in kept:
        messages.setdefault(held[n][0].id, []).append(held[n][1])
    return tuple(Held(entry.turn, tuple(messages[entry.turn.id])) for entry in line if entry.turn.id in messages)


def plan_branch(
    source: Session,
    line: Sequence[Held],
    rows: Mapping[str, MessageRow],
    child: Session,
    mint: Mint,
    now: int,
    *,
    whole: bool,
) -> tuple[Write, ...]:
    """The writes that make ``child`` a copy of this line. ``whole``: its last turn was not cut.

    ``rows`` holds the last message, and every one that cannot be copied as it is.
    """
    names = Names(mint)
    turns: list[CopiedTurn] = []
    inserted: list[MessageRow] = []
    parent: Turn | None = None
    for entry in line:
        last = entry is line[-1]
        turn = _copied_turn(entry.turn, names, child.id, now, whole=whole or not last)
        if last and rows[entry.messages[-1]].role == "user":
            turn = _unanswered(turn)
        parent = placed(turn, parent)
        messages: list[CopiedMessage] = []
        for message_id in entry.messages:
            copy = _changed_row(rows[message_id], names, child.id, mint) if message_id in rows else None
            if copy is not None:
                inserted.append(copy)
            messages.append(CopiedMessage(message_id, names[message_id], inserted=copy is not None))
        turns.append(CopiedTurn(parent, tuple(messages)))
    writes: list[Write] = [InsertSession(child)]
    for row in inserted:
        writes += [InsertMessage(row), SealMessage(row.id, seal_of(part.data for part in row.parts))]
    writes.append(CopyLine(source.id, tuple(turns)))
    if parent is not None:
        writes.append(MoveHead(parent.id, now, "branch"))
    hidden: dict[str, Hidden | None] = dict(_hidden(turns, inserted, child.id, now))
    return (*writes, SetHidden(hidden)) if hidden else tuple(writes)


def _copied_turn(turn: Turn, names: Names, session_id: str, now: int, *, whole: bool) -> Turn:
    data = {key: value for key, value in turn.data.items() if key != "waiting"}
    status = turn.status
    if not whole:
        status, data = "completed", _without_ending(data)
    elif status in OPEN:
        status, data = "aborted", {**data, "stopped": LEFT_BEHIND}
    return Turn(
        id=names[turn.id],
        session_id=session_id,
        parent_turn_id=None,
        created_at=turn.created_at,
        kind=turn.kind,
        status=status,
        origin_turn_id=turn.id,
        settled_at=turn.settled_at or now,
        data=names.remapped(data),
    )


def _unanswered(turn: Turn) -> Turn:
    """Whatever came of it there, here nobody has answered it yet."""
    return msgspec.structs.replace(turn, status="unanswered", data=_without_ending(turn.data))


def _without_ending(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in _ENDINGS}


def _changed_row(row: MessageRow, names: Names, session_id: str, mint: Mint) -> MessageRow | None:
    """The copy of a message that cannot be copied as it is: it names other messages, or waits for a human."""
    data = [_changed_part(part, names, mint) for part in row.parts]
    if all(new is part.data for new, part in zip(data, row.parts, strict=True)):
        return None
    return MessageRow(
        names[row.id],
        session_id,
        row.role,
        row.created_at,
        row.updated_at,
        {key: value for key, value in row.metadata.items() if key not in _NOT_COPIED},
        tuple(
            PartRow(mint.part(), part.index, new, part.created_at, part.updated_at)
            for new, part in zip(data, row.parts, strict=True)
        ),
    )


def _changed_part(part: PartRow, names: Names, mint: Mint) -> dict[str, Any]:
    """The part as the branch holds it; the very same value when nothing in it changes."""
    if part.type == COMPACTION_PART:
        return {**part.data, "data": names.remapped(part.data.get("data"))}
    if part.tool_state is None or part.tool_state.startswith("output-"):
        return part.data
    asked = part.data.get("approval") or {}
    denied = {**asked, "id": asked.get("id") or mint.approval(), "approved": False, "reason": LEFT_BEHIND}
    return {**part.data, "state": "output-denied", "approval": denied}


def _hidden(
    turns: Sequence[CopiedTurn], inserted: Sequence[MessageRow], session_id: str, now: int
) -> dict[str, Hidden]:
    """What the compactions of the copied line hide in it."""
    if all(copied.turn.kind != "compaction" for copied in turns):
        return {}
    links = {copied.turn.id: tuple(message.id for message in copied.messages) for copied in turns}
    head = turns[-1].turn.id if turns else None
    moves = (HeadMove(1, session_id, None, head, now, "branch"),)
    tree = Tree(head, None, {copied.turn.id: copied.turn for copied in turns}, links, moves)
    return project(tree, tails_of(tree, {row.id: row for row in inserted}))


class Branching:
    """Makes branches of the sessions of one engine."""

    def __init__(self, host: Host, desk: Desk) -> None:
        self._host = host
        self._desk = desk

    async def branch(
        self,
        session_id: str,
        from_message_id: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        model: str | Model | dict[str, Any] | None = None,
        start_message_id: str | None = None,
    ) -> Session:
        """A new session that holds the line of that message, up to and including it."""
        changes = _check_metadata(metadata)
        chosen = parse_model(model) if model is not None else None
        check_value(msgspec.to_builtins(chosen), "model")
        if start_message_id is not None:
            ids.check_client_message_id(start_message_id)
        async with self._desk.lock(session_id):
            source = await self._desk.take(session_id)
            tree = await load_quiet_tree(self._host, self._desk, session_id)
            pointed = await find_message(self._host.store, session_id, from_message_id, tree)
            turn = check_point(pointed)
            return await self._copy(source, tree, turn, pointed.row.id, changes, chosen, start_message_id)

    async def fork(self, turn_id: str, *, label: str | None = None) -> Session:
        """A new session at a turn, whatever came after it there."""
        changes = _check_metadata({"label": label if label is not None else f"fork-{self._host.mint.turn()[-8:]}"})
        found = await self._host.store.find_turn(ids.check_turn_id(turn_id))
        if found is None:
            raise TurnNotFound(f"there is no turn {turn_id}", turn_id=turn_id)
        async with self._desk.lock(found.session_id):
            source = await self._desk.take(found.session_id)
            tree = await load_quiet_tree(self._host, self._desk, source.id)
            turn = _check_turn(get_turn(tree, turn_id))
            held = tree.links.get(turn.id, ())
            if not held:
                raise BranchPointInvalid("this turn holds no message to fork from", turn_id=turn.id)
            return await self._copy(source, tree, turn, held[-1], changes, None, None)

    async def _copy(
        self,
        source: Session,
        tree: Tree,
        turn: Turn,
        point_id: str,
        changes: Mapping[str, Any],
        model: Model | None,
        start_message_id: str | None,
    ) -> Session:
        host, now = self._host, self._host.clock.now_ms()
        path = [Held(above, tree.links.get(above.id, ())) for above in path_to(tree.turns, turn.id)]
        rows = await _load_rows(host.store, source.id, path, point_id)
        line = cut_line(path, point_id, rows)
        if start_message_id is not None:
            line = start_line(line, await self._find_start(source.id, tree, line, start_message_id))
            # Where the point is a summary that the slice leaves out, it ends before it.
            rows |= await _load_rows(host.store, source.id, line[-1:], line[-1].messages[-1])
        bag = {key: value for key, value in source.metadata.items() if key not in _OWN_METADATA}
        child = Session(
            id=host.mint.session(host.store.capabilities.session_ids),
            agent=source.agent,
            model=model if model is not None else source.model,
            workspace_root=source.workspace_root,
            parent_id=source.id,
            parent_message_id=point_id,
            metadata={key: value for key, value in {**bag, **changes}.items() if value is not None},
            created_at=now,
            updated_at=now,
        )
        whole = path[-1].messages[-1] == point_id
        writes = plan_branch(source, line, rows, child, host.mint, now, whole=whole)
        failpoint("history.before_branch")
        await self._desk.commit(Unit(child.id, writes, sync="power"))
        session = await get_session(host.store, child.id)
        self._desk.publish("session_created", session.id)
        host.hooks.observe("session_create", session)
        return session

    async def _find_start(self, session_id: str, tree: Tree, line: Sequence[Held], message_id: str) -> MessageRow:
        """The message of that name on this line, client id before own id; else wherever it is."""
        store = self._host.store
        places = {held: place for place, held in enumerate(held for entry in line for held in entry.messages)}
        named = [row for row in await store.find_client_message(session_id, message_id) if row.id in places]
        if named:
            return min(named, key=lambda row: places[row.id])
        own = await store.find_message(session_id, message_id) if message_id in places else None
        return own if own is not None else (await find_message(store, session_id, message_id, tree)).row


async def _load_rows(store: Store, session_id: str, path: Sequence[Held], point_id: str) -> dict[str, MessageRow]:
    """The messages of a path that have to be looked at: summaries, those with calls that have no result, the point."""
    waiting = {call.message_id for call in await store.open_calls(session_id)}
    rows: dict[str, MessageRow] = {}
    for entry in path:
        for message_id in entry.messages:
            if entry.turn.kind == "compaction" or message_id in waiting or message_id == point_id:
                row = await store.find_message(session_id, message_id)
                if row is not None:
                    rows[row.id] = row
    return rows


def _check_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    if metadata is not None and not isinstance(metadata, Mapping):
        raise InvalidInput("metadata is an object")
    changes = dict(metadata or {})
    check_value(changes, "metadata")
    for key in ("title", "label"):
        value = changes.get(key)
        if value is not None and not (isinstance(value, str) and len(value) <= 500):
            raise InvalidInput(f"a {key} is text of at most 500 characters")
    return changes
