"""The plan of a rewind: where the head may go, what is undone, and what is sent again. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Literal

import msgspec

from clew.errors import InvalidInput, NewerTurns, NothingToUndo, RewindTargetInvalid
from clew.ids import check_named_message_id
from clew.session.history.lookup import LocatedMessage, begins_turn
from clew.transcript.head import moved, newest_rewind
from clew.transcript.line import line_turns
from clew.transcript.message import MessageRow
from clew.transcript.part import kind_of, text_part
from clew.transcript.session import Model
from clew.transcript.turn import HeadMove, Tree, Turn
from clew.transcript.value_check import check_value

__all__ = [
    "Edit",
    "RestoreTo",
    "RewindMode",
    "check_request",
    "check_target",
    "has_grown",
    "left_line",
    "parts_to_send",
    "plan_resend",
    "plan_undo",
    "tree_after_withdrawal",
]

RewindMode = Literal["resend", "edit"]
RestoreTo = Literal["start", "unrewind", "undo"] | None
"""A state of the files that is no message's or turn's: the first one, that before the newest rewind that was not
undone, or that before the newest restore."""


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of an edit to a message that is sent again; None keeps a value.

    ``parts`` replaces the whole message, ``text`` only its text. ``client_message_id`` and ``metadata`` are stored with
    the new row.
    """

    text: str | None = None
    parts: Sequence[Mapping[str, Any]] | None = None
    model: str | Model | dict[str, Any] | None = None
    agent: str | None = None
    client_message_id: str | None = None
    metadata: Mapping[str, Any] | None = None


def check_request(mode: str, edit: Edit, *, run: bool) -> None:
    if mode not in ("resend", "edit"):
        raise InvalidInput(f"mode must be resend or edit, not {mode!r}")
    if edit.text is not None and not isinstance(edit.text, str):
        raise InvalidInput("text must be a string")
    if mode == "resend" and edit != Edit():
        raise InvalidInput("mode resend sends the message unchanged; to change it, use mode edit")
    sent = (edit.parts, edit.model, edit.agent, edit.client_message_id)
    if not run and any(value is not None for value in sent):
        raise InvalidInput("parts, model, agent and a message id require run")
    check_value(edit.text, "text")
    if edit.client_message_id is not None:
        check_named_message_id(edit.client_message_id)


def check_target(target: LocatedMessage) -> Turn:
    """Return the turn that a rewind to this message restarts; else raise an error that says what to name instead."""
    row, turn = target.row, target.turn
    if turn is None:
        if row.is_cancelled:
            raise _invalid(row, "this message was cancelled before it was sent; send it again")
        raise _invalid(row, "this message is still queued; cancel it there to take it back")
    if turn.status == "refused":
        raise _invalid(row, "this message was refused and never became part of the conversation; send it again")
    if not begins_turn(target):
        user = next(iter(target.turn_messages), None)
        if turn.kind == "compaction":
            raise _invalid(row, "this is a summary; rewind to a user message before it to bring the originals back")
        raise _invalid(row, f"a rewind needs a user message; the one that led to this message is {user}")
    if not target.on_line:
        raise _invalid(row, f"this message is not on the current line of the conversation; go to turn {turn.id} first")
    return turn


def _invalid(row: MessageRow, sentence: str) -> RewindTargetInvalid:
    return RewindTargetInvalid(sentence, message_id=row.id)


def plan_resend(tree: Tree, turn: Turn, parent: str | None, sibling_id: str, now: int) -> Turn | None:
    """Return an unanswered sibling turn with the same message; None if this turn already is unanswered."""
    if tree.head_turn_id == turn.id and turn.status == "unanswered" and len(tree.links[turn.id]) == 1:
        return None
    return Turn(
        id=sibling_id,
        session_id=turn.session_id,
        parent_turn_id=parent,
        created_at=now,
        status="unanswered",
        settled_at=now,
    )


def plan_undo(tree: Tree) -> HeadMove:
    """Return the rewind to undo: the newest one not undone, provided nothing was added after it."""
    last = newest_rewind(reversed(tree.moves))
    if last is None:
        raise NothingToUndo("no rewind to undo; the reflog (clew reflog) lists the session's earlier heads")
    if has_grown(tree, last):
        raise NewerTurns(
            "the conversation continued after the newest rewind that was not undone; go to a turn listed in the reflog "
            "instead (clew reflog, clew goto)",
            turn_id=last.from_turn_id,
        )
    return last


def has_grown(tree: Tree, rewind: HeadMove) -> bool:
    """Return whether a turn was added below the head of that rewind, or a message in it."""
    left_at = rewind.to_turn_id
    if any(m.seq > rewind.seq and m.why == "turn" and m.to_turn_id == left_at for m in tree.moves):
        return True
    known: set[str] = set()
    for move in tree.moves:
        if move.seq <= rewind.seq:
            for end in (move.from_turn_id, move.to_turn_id):
                turn = tree.turns.get(end or "")
                while turn is not None and turn.id not in known:
                    known.add(turn.id)
                    turn = tree.turns.get(turn.parent_turn_id or "")
    below: set[str] = set()
    for turn in sorted(tree.turns.values(), key=lambda turn: turn.depth):
        if turn.parent_turn_id == left_at or turn.parent_turn_id in below:
            below.add(turn.id)
            if turn.id not in known and turn.status != "refused":
                return True
    return False


def tree_after_withdrawal(tree: Tree, session_id: str, now: int) -> Tree:
    """Return the tree after the turn that waits for a human is settled."""
    if tree.open_turn_id is None:
        return tree
    return moved(msgspec.structs.replace(tree, open_turn_id=None), session_id, tree.open_turn_id, now, "turn")


def left_line(before: Tree, after: Tree) -> tuple[str, ...]:
    """Return the messages that are on the line before and not after."""
    old, new = ({turn.id: None for turn in line_turns(tree)} for tree in (before, after))
    # A restarted turn contains the same message as its sibling.
    entered = {message_id for turn_id in new if turn_id not in old for message_id in after.links.get(turn_id, ())}
    left = chain.from_iterable(before.links.get(turn_id, ()) for turn_id in old if turn_id not in new)
    return tuple(message_id for message_id in left if message_id not in entered) if entered else tuple(left)


def parts_to_send(row: MessageRow, edit: Edit) -> list[Mapping[str, Any]]:
    """Return the message to send: new text in place of the old, and the same files."""
    if edit.parts is not None:
        return list(edit.parts)
    parts: list[Mapping[str, Any]] = [part.data for part in row.parts if part.type in ("text", "file")]
    if edit.text is None:
        return parts
    text_index = next((n for n, part in enumerate(parts) if kind_of(part) == "text"), 0)
    files = [(n, part) for n, part in enumerate(parts) if kind_of(part) == "file"]
    text = text_part(edit.text)
    return [*(part for n, part in files if n < text_index), text, *(part for n, part in files if n >= text_index)]
