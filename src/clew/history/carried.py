"""Carried: all there is of one session on its way to another store, and that under other names. Pure.

Every table that holds an id is gone through, and every bag in which clew itself puts one; a text that only looks like
an id is a text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from clew.ids import Mint
from clew.runtime.waiting import digest_of, waits_of
from clew.store import unit as u
from clew.store.base import Whole
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.part import COMPACTION_PART
from clew.transcript.session import SessionState
from clew.transcript.turn import HeadMove, Step, Tree

__all__ = ["ORIGIN_KEY", "Carried", "digests", "remapped", "renamed", "renamed_part"]

ORIGIN_KEY: Final = "converted_from"
replace = msgspec.structs.replace


class Carried(msgspec.Struct, frozen=True):
    """All there is of one session."""

    whole: Whole
    state: SessionState
    steps: tuple[Step, ...]
    prompts: dict[str, str]
    blobs: tuple[u.PutBlob, ...]
    rules: tuple[u.PutProjectRules, ...]


def digests(given: Carried, session_id: str) -> dict[str, str]:
    """What answers to open requests are bound to, which has the session in it."""
    whole = given.whole
    inputs = {part.tool_call_id: part.data.get("input") for row in whole.messages for part in row.parts}
    return {
        wait.digest: digest_of(
            session_id, wait.tool_call_id, wait.tool, inputs.get(wait.tool_call_id), whole.session.workspace_root
        )
        for turn in whole.tree.turns.values()
        for wait in waits_of(turn)
    }


def renamed(
    given: Carried,
    names: Mapping[str, str],
    came: dict[str, Any],
    mint: Mint,
    *,
    new_parts: bool,
    form: re.Pattern[str],
) -> Carried:
    """The session under its new names."""
    whole = given.whole
    session_id = names[whole.session.id]
    parent = whole.session.parent_id
    if parent is not None and parent not in names and not form.fullmatch(parent):
        # Its parent is gone, and what it was called is no name here.
        came, parent = {**came, "parent_id": parent}, None
    session = replace(
        whole.session,
        id=session_id,
        parent_id=names.get(parent, parent) if parent is not None else None,
        parent_message_id=_name_of(whole.session.parent_message_id, names) if parent is not None else None,
        head_turn_id=_name_of(whole.session.head_turn_id, names),
        metadata={**remapped(whole.session.metadata, names), ORIGIN_KEY: came},
    )
    messages = tuple(_renamed_row(row, session_id, names, mint, new_parts) for row in whole.messages)
    numbers = {seq: place for place, seq in enumerate(sorted({one.seq for one in whole.pruned}), start=1)}
    tree = _renamed_tree(whole.tree, session_id, names)
    by_id = {row.id: row for row in messages}
    queue = tuple(replace(entry, message=by_id[_name_of(entry.message.id, names) or ""]) for entry in whole.queue)
    return replace(
        given,
        whole=replace(
            whole,
            session=session,
            messages=messages,
            tree=tree,
            queue=queue,
            seals={names.get(id_, id_): digest for id_, digest in whole.seals.items()},
            pending=(),
            pruned=tuple(
                replace(one, seq=numbers[one.seq], message_id=names.get(one.message_id, one.message_id))
                for one in whole.pruned
            ),
        ),
        state=SessionState(tree.head_turn_id, tree.open_turn_id, given.state.epoch),
        steps=tuple(_renamed_step(step, names, numbers) for step in given.steps),
    )


def _renamed_row(row: MessageRow, session_id: str, names: Mapping[str, str], mint: Mint, new_parts: bool) -> MessageRow:
    parts = tuple(
        replace(part, id=mint.part() if new_parts or not part.id else part.id, data=renamed_part(part, names))
        for part in row.parts
    )
    metadata = remapped(row.metadata, names)
    return replace(row, id=names.get(row.id, row.id), session_id=session_id, metadata=metadata, parts=parts)


def renamed_part(part: PartRow, names: Mapping[str, str]) -> dict[str, Any]:
    """Where clew itself puts a name: in a summary, in what a subagent came to, and in a request to a human."""
    data = part.data
    if part.type == COMPACTION_PART:
        return {**data, "data": remapped(data.get("data"), names)}
    if part.tool_call_id is not None:
        return {key: remapped(one, names) if key in ("output", "approval") else one for key, one in data.items()}
    return data


def _renamed_tree(tree: Tree, session_id: str, names: Mapping[str, str]) -> Tree:
    turns = {}
    for turn in sorted(tree.turns.values(), key=lambda turn: (turn.depth, turn.created_at, turn.id)):
        new = replace(
            turn,
            id=names.get(turn.id, turn.id),
            session_id=session_id,
            parent_turn_id=_name_of(turn.parent_turn_id, names),
            compaction_turn_id=_name_of(turn.compaction_turn_id, names),
            origin_turn_id=_name_of(turn.origin_turn_id, names),
            data=remapped(turn.data, names),
        )
        turns[new.id] = new
    links = {names.get(id_, id_): tuple(names.get(m, m) for m in held) for id_, held in tree.links.items()}
    moves = tuple(
        HeadMove(
            move.seq,
            session_id,
            _name_of(move.from_turn_id, names),
            _name_of(move.to_turn_id, names),
            move.at,
            move.why,
        )
        for move in tree.moves
    )
    return Tree(_name_of(tree.head_turn_id, names), _name_of(tree.open_turn_id, names), turns, links, moves)


def _renamed_step(step: Step, names: Mapping[str, str], numbers: Mapping[int, int]) -> Step:
    """The step with the prune it was sent under as the copy counts them: a branch's prunes have gaps."""
    data, view = step.data, step.data.get("view")
    if isinstance(view, list) and len(view) > 1 and isinstance(view[1], int):
        newest = max((place for seq, place in numbers.items() if seq <= view[1]), default=0)
        data = {**data, "view": [view[0], newest, *view[2:]]}
    turn_id, message_id = names.get(step.turn_id, step.turn_id), names.get(step.message_id, step.message_id)
    return replace(step, turn_id=turn_id, message_id=message_id, data=remapped(data, names))


def _name_of(id_: str | None, names: Mapping[str, str]) -> str | None:
    return None if id_ is None else names.get(id_, id_)


def remapped(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, dict):
        return {key: remapped(item, names) for key, item in value.items()}
    return [remapped(item, names) for item in value] if isinstance(value, list) else value
