"""Rewind: the head moves back, or anywhere else, and nothing is deleted.

Rewind, un-rewind and going to a turn are one operation: the head moves, the reflog notes it, and the projections
follow in the same unit. What may be moved to is decided by pure functions; :class:`Rewinding` acts, under the
session's lock, on a session that nothing runs on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from clew.errors import (
    InvalidInput,
    NewerTurns,
    NothingToUndo,
    NotSupported,
    RewindTargetInvalid,
    SessionBusy,
    SnapshotFailed,
)
from clew.failpoints import failpoint
from clew.history.pointing import Pointed, find_message, get_turn, leads, text_of
from clew.history.snapshot import SnapshotLayer
from clew.history.tree import ReflogEntry, load_reflog
from clew.ids import check_client_message_id
from clew.runtime.admission import Prompted
from clew.runtime.desk import Desk, Submission
from clew.runtime.heading import load_compactions, load_tails, moved, parent_before, plan_move, with_turn
from clew.runtime.host import Host, Setting
from clew.store.unit import EpochIs, HeadIs, NoOpenTurn, Unit
from clew.transcript.gate import check_value
from clew.transcript.line import line_turns
from clew.transcript.message import MessageRow
from clew.transcript.session import Model, Session
from clew.transcript.turn import HeadMove, MoveReason, Tree, Turn
from clew.transcript.turn_state import OPEN

__all__ = ["Edited", "RewindMode", "Rewinding", "Rewound", "check_target", "load_quiet_tree", "plan_undo"]

RewindMode = Literal["resend", "edit"]
_WITHDRAWN = "withdrawn: the conversation went back"


class Rewound(msgspec.Struct, frozen=True):
    """Where the head is now. ``hidden`` left the line, in its order; ``draft`` is the text handed back for editing."""

    head_turn_id: str | None
    hidden: tuple[str, ...]
    draft: str | None = None
    submission: Submission | None = None


class Edited(msgspec.Struct, frozen=True, kw_only=True):
    """What an edit changes of a message that is sent again; what is None stays as it was.

    ``parts`` replace all of the message, ``text`` only its text. ``client_message_id`` is kept with the new row.
    """

    text: str | None = None
    parts: Sequence[Mapping[str, Any]] | None = None
    model: str | Model | dict[str, Any] | None = None
    agent: str | None = None
    client_message_id: str | None = None


# What may be done


def check_target(tree: Tree, pointed: Pointed) -> Turn:
    """The turn that a rewind to this message starts over; :class:`RewindTargetInvalid` says what to name instead."""
    row, turn = pointed.row, pointed.turn
    if turn is None:
        if "cancelled_at" in row.metadata:
            raise _invalid(row, "this message was cancelled before it was sent; send it again")
        raise _invalid(row, "this message still waits in the queue; cancel it there to take it back")
    if turn.status == "refused":
        raise _invalid(row, "this message was refused and never became part of the conversation; send it again")
    if not leads(tree, turn, row):
        user = next(iter(tree.links.get(turn.id, ())), None)
        if turn.kind == "compaction":
            raise _invalid(row, "this is a summary; rewind to a user message before it to bring the originals back")
        raise _invalid(row, f"a rewind goes to a user message; the one that led to this message is {user}")
    if not pointed.on_line:
        raise _invalid(row, f"this message is not part of the conversation as it stands; go to turn {turn.id} first")
    return turn


def _invalid(row: MessageRow, sentence: str) -> RewindTargetInvalid:
    return RewindTargetInvalid(sentence, message_id=row.id)


def plan_undo(tree: Tree) -> HeadMove:
    """The rewind that un-rewind undoes: the newest not yet undone, while nothing was added to where it led."""
    rewinds: list[HeadMove] = []
    for move in tree.moves:
        if move.why == "rewind":
            rewinds.append(move)
        elif move.why == "unrewind" and rewinds:
            rewinds.pop()
    if not rewinds:
        raise NothingToUndo("there is no rewind to undo; the reflog lists where the conversation has been")
    last = rewinds[-1]
    if _has_grown(tree, last):
        raise NewerTurns(
            "the conversation went on after the newest rewind that was not undone; every place it has been at is in "
            "the reflog: go to a turn of it instead",
            turn_id=last.from_turn_id,
        )
    return last


def _has_grown(tree: Tree, rewind: HeadMove) -> bool:
    """Whether a turn was added below where that rewind left the head, or a message in it."""
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


def _as_withdrawn(tree: Tree, session_id: str, now: int) -> Tree:
    """The tree as it will be once the turn that waits for a human is settled."""
    if tree.open_turn_id is None:
        return tree
    return moved(msgspec.structs.replace(tree, open_turn_id=None), session_id, tree.open_turn_id, now, "turn")


def _left(before: Tree, after: Tree) -> tuple[str, ...]:
    """The messages that are on the line before and not after."""
    old, new = ({turn.id: None for turn in line_turns(tree)} for tree in (before, after))
    # A turn that starts over holds the same message as the one it stands beside.
    entered = {message_id for turn_id in new if turn_id not in old for message_id in after.links.get(turn_id, ())}
    left = (message_id for turn_id in old if turn_id not in new for message_id in before.links.get(turn_id, ()))
    return tuple(message_id for message_id in left if message_id not in entered)


def _edited_parts(row: MessageRow, edited: Edited) -> list[Mapping[str, Any]]:
    """The message as it is sent again: other text in the place of the old, the same files."""
    if edited.parts is not None:
        return list(edited.parts)
    parts: list[Mapping[str, Any]] = [part.data for part in row.parts if part.type in ("text", "file")]
    if edited.text is None:
        return parts
    place = next((n for n, part in enumerate(parts) if part["type"] == "text"), 0)
    files = [(n, part) for n, part in enumerate(parts) if part["type"] == "file"]
    text = {"type": "text", "text": edited.text}
    return [*(part for n, part in files if n < place), text, *(part for n, part in files if n >= place)]


async def load_quiet_tree(host: Host, desk: Desk, session_id: str) -> Tree:
    """The tree of a session that nothing runs on; what a dead run left open is settled on the way.

    Held under the session's lock. A turn that waits for a human may still be open.
    """
    busy = await desk.busy(session_id)
    if isinstance(busy, SessionBusy):
        raise busy
    return await host.store.load_tree(session_id)


class Rewinding:
    """Moves the heads of one engine's sessions. ``snapshots`` brings files back too, where there is such a layer."""

    def __init__(self, host: Host, desk: Desk, snapshots: SnapshotLayer | None = None) -> None:
        self._host = host
        self._desk = desk
        self._snapshots = snapshots

    async def rewind(
        self,
        session_id: str,
        message_id: str,
        *,
        mode: RewindMode = "resend",
        edited: Edited | None = None,
        run: bool = False,
        restore_files: bool = False,
    ) -> Rewound:
        """Go back to a user message of the line: to have it answered anew, or to edit it.

        Whatever refuses this does so before anything is changed. A turn that waits for a human is settled first, its
        requests withdrawn; the queue stays as it is.
        """
        edited = edited or Edited()
        _check_request(mode, edited, run=run)
        async with self._desk.lock(session_id):
            session = await self._desk.take(session_id)
            tree = await load_quiet_tree(self._host, self._desk, session_id)
            pointed = await find_message(self._host.store, session_id, message_id, tree)
            turn = check_target(tree, pointed)
            row = pointed.row
            admitted: tuple[Setting, Prompted] | None = None
            if run and mode == "edit":
                admitted = await self._admit(session, row, edited)
            elif run:
                await self._desk.setting_of(session_id, turn)  # who would answer it must still be there
            if restore_files:
                await self._restore(session_id, row)
            before = await self._withdraw(session_id, tree)
            parent = parent_before(
                before, await load_compactions(self._host.store, session_id, before), before.turns[turn.id]
            )
            if admitted is not None:
                return await self._send_edited(session, row, edited, admitted, before, parent)
            if mode == "edit":
                rewound = await self._move(session_id, before, parent, "rewind")
                text = edited.text if edited.text is not None else text_of(row)
                return msgspec.structs.replace(rewound, draft=text)
            rewound = await self._resend(session_id, before, before.turns[turn.id], parent)
            submission = await self._desk.continuing.go_on_held(session_id) if run else None
            return msgspec.structs.replace(rewound, submission=submission)

    async def _resend(self, session_id: str, tree: Tree, turn: Turn, parent: str | None) -> Rewound:
        """A sibling turn that holds the same message and has no answer yet."""
        held = tree.links[turn.id][:1]
        if tree.head_turn_id == turn.id and turn.status == "unanswered" and tree.links[turn.id] == held:
            return Rewound(turn.id, ())
        now = self._host.clock.now_ms()
        sibling = Turn(
            id=self._host.mint.turn(),
            session_id=session_id,
            parent_turn_id=parent,
            created_at=now,
            status="unanswered",
            settled_at=now,
        )
        return await self._move(session_id, tree, sibling.id, "rewind", new=sibling, holding=held)

    async def _admit(self, session: Session, row: MessageRow, edited: Edited) -> tuple[Setting, Prompted]:
        return await self._desk.admit(
            session,
            _edited_parts(row, edited),
            model=edited.model if edited.model is not None else row.metadata.get("model"),
            agent=edited.agent if edited.agent is not None else row.metadata.get("agent"),
            attended=row.metadata.get("unattended") is not True,
        )

    async def _send_edited(
        self,
        session: Session,
        row: MessageRow,
        edited: Edited,
        admitted: tuple[Setting, Prompted],
        tree: Tree,
        parent: str | None,
    ) -> Rewound:
        """Move the head and open the new turn below it, as one unit."""
        setting, prompted = admitted
        now = self._host.clock.now_ms()
        tails = await load_tails(self._host.store, session.id, tree)
        given = {"unattended": True} if row.metadata.get("unattended") is True else None
        new = await self._desk.user_row(session, setting, prompted, edited.client_message_id, given)
        moving = plan_move(tree, tails, session.id, parent, now, "rewind")
        failpoint("history.before_rewind")
        submission = await self._desk.open(session, setting, new, prompted, moving=moving, below=parent)
        hidden = _left(tree, moved(tree, session.id, parent, now, "rewind"))
        return Rewound(parent, hidden, None, submission)

    async def unrewind(self, session_id: str) -> Rewound:
        """Undo the newest rewind that is not undone yet."""
        async with self._desk.lock(session_id):
            await self._desk.take(session_id)
            tree = await load_quiet_tree(self._host, self._desk, session_id)
            undone = plan_undo(_as_withdrawn(tree, session_id, self._host.clock.now_ms()))
            tree = await self._withdraw(session_id, tree)
            return await self._move(session_id, tree, undone.from_turn_id, "unrewind")

    async def set_head(self, session_id: str, turn_id: str | None) -> Rewound:
        """Go to any turn of the session, on the line or not; None is the empty beginning."""
        async with self._desk.lock(session_id):
            await self._desk.take(session_id)
            tree = await load_quiet_tree(self._host, self._desk, session_id)
            turn = get_turn(tree, turn_id) if turn_id is not None else None
            if turn is not None and turn.status == "refused":
                raise RewindTargetInvalid("this turn was refused; there is nothing to go to", turn_id=turn.id)
            tree = await self._withdraw(session_id, tree)
            if tree.head_turn_id == turn_id:
                return Rewound(turn_id, ())
            return await self._move(session_id, tree, turn_id, "goto")

    async def reflog(self, session_id: str) -> list[ReflogEntry]:
        """Every move of the head, newest first."""
        return await load_reflog(self._host.store, session_id)

    # Inside

    async def _withdraw(self, session_id: str, tree: Tree) -> Tree:
        """Withdraw what waits for a human; the queue is not fired by it. The tree as it is then."""
        turn = tree.turns.get(tree.open_turn_id or "")
        if turn is None or turn.status not in OPEN:
            return tree
        await self._desk.answers.withdraw(session_id, turn, _WITHDRAWN)
        return await self._host.store.load_tree(session_id)

    async def _restore(self, session_id: str, row: MessageRow) -> None:
        if self._snapshots is None:
            raise NotSupported("files cannot be brought back: this engine was opened without a snapshot layer")
        snapshot_id = row.snapshot_id
        if snapshot_id is None:
            raise _invalid(row, "no snapshot was taken before this message; rewind without restoring files")
        try:
            await self._snapshots.restore(session_id, snapshot_id)
        except Exception as error:
            raise SnapshotFailed(f"the files could not be brought back: {error}", session_id=session_id) from error

    async def _move(
        self,
        session_id: str,
        tree: Tree,
        to_turn_id: str | None,
        why: MoveReason,
        *,
        new: Turn | None = None,
        holding: Sequence[str] = (),
    ) -> Rewound:
        """Move the head, as one unit, and say so."""
        store, now = self._host.store, self._host.clock.now_ms()
        state = await store.load_state(session_id)
        tails = await load_tails(store, session_id, tree)
        writes = plan_move(tree, tails, session_id, to_turn_id, now, why, new=new, holding=holding)
        guards = (EpochIs(state.epoch), HeadIs(tree.head_turn_id), NoOpenTurn())
        failpoint("history.before_rewind")
        await self._desk.commit(Unit(session_id, writes, guards, sync="power"))
        self._desk.updated(session_id)
        after = tree if new is None else with_turn(tree, new, holding)
        return Rewound(to_turn_id, _left(tree, moved(after, session_id, to_turn_id, now, why)))


def _check_request(mode: str, edited: Edited, *, run: bool) -> None:
    if mode not in ("resend", "edit"):
        raise InvalidInput(f"mode must be resend or edit, not {mode!r}")
    if edited.text is not None and not isinstance(edited.text, str):
        raise InvalidInput("text must be text")
    if mode == "resend" and edited != Edited():
        raise InvalidInput("a resend sends the message as it was; to change it, use mode edit")
    sent = (edited.parts, edited.model, edited.agent, edited.client_message_id)
    if not run and any(value is not None for value in sent):
        raise InvalidInput("parts, model, agent and a message id go with an edit that is run")
    check_value(edited.text, "text")
    if edited.client_message_id is not None:
        check_client_message_id(edited.client_message_id)
