"""Rewind: the head moves back, or anywhere else, and nothing is deleted.

Rewind, un-rewind and going to a turn are one operation: the head moves, the reflog notes it, and the projections
follow in the same unit. What may be moved to is decided by :mod:`clew.history.rewind_plan`; :class:`Rewinding` acts,
under the session's lock, on a session that nothing runs on.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from clew.errors import (
    NotSupported,
    RewindTargetInvalid,
    SnapshotFailed,
)
from clew.failpoints import failpoint
from clew.history.lookup import find_message, get_turn
from clew.history.rewind_plan import (
    Edit,
    RewindMode,
    check_request,
    check_target,
    left_line,
    parts_to_send,
    plan_undo,
    withdrawn,
)
from clew.history.snapshot import SnapshotLayer
from clew.history.tree import ReflogEntry, load_reflog
from clew.runtime.admission import PromptContent, admit, user_row
from clew.runtime.head_move import load_compactions, load_tails, plan_move
from clew.runtime.host import Host, Setting
from clew.runtime.ready import settle_idle
from clew.runtime.runtime import Runtime
from clew.runtime.setting import resolve_for
from clew.runtime.submission import Submission
from clew.store.unit import EpochIs, HeadIs, NoOpenTurn, Unit
from clew.transcript.head import moved, parent_before, with_turn
from clew.transcript.message import MessageRow
from clew.transcript.session import Session
from clew.transcript.turn import MoveReason, Tree, Turn
from clew.transcript.turn_state import OPEN

__all__ = ["Rewinding", "Rewound"]

_WITHDRAWN = "withdrawn: the conversation went back"


class Rewound(msgspec.Struct, frozen=True):
    """Where the head is now. ``hidden`` left the line, in its order; ``draft`` is the text handed back for editing."""

    head_turn_id: str | None
    hidden: tuple[str, ...]
    draft: str | None = None
    submission: Submission | None = None


class Rewinding:
    """Moves the heads of one engine's sessions. ``snapshots`` brings files back too, where there is such a layer."""

    def __init__(self, host: Host, runtime: Runtime, snapshots: SnapshotLayer | None = None) -> None:
        self._host = host
        self._runtime = runtime
        self._snapshots = snapshots

    async def rewind(
        self,
        session_id: str,
        message_id: str,
        *,
        mode: RewindMode = "resend",
        edited: Edit | None = None,
        run: bool = False,
        restore_files: bool = False,
    ) -> Rewound:
        """Go back to a user message of the line: to have it answered anew, or to edit it.

        Whatever refuses this does so before anything is changed. A turn that waits for a human is settled first, its
        requests withdrawn; the queue stays as it is.
        """
        edited = edited or Edit()
        check_request(mode, edited, run=run)
        async with self._runtime.sessions.lock(session_id):
            session = await self._runtime.sessions.get_open(session_id)
            tree = await self._load_settled_tree(session_id)
            place = await find_message(self._host.store, session_id, message_id, tree)
            turn = check_target(tree, place)
            row = place.row
            admitted: tuple[Setting, PromptContent] | None = None
            if run and mode == "edit":
                admitted = await self._admit(session, row, edited)
            elif run:
                await resolve_for(self._host, session, row)  # who would answer it must still be there
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
                text = edited.text if edited.text is not None else "\n".join(row.texts)
                return msgspec.structs.replace(rewound, draft=text)
            rewound = await self._resend(session_id, before, before.turns[turn.id], parent)
            submission = await self._runtime.continuation.go_on_locked(session_id) if run else None
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

    async def _admit(self, session: Session, row: MessageRow, edited: Edit) -> tuple[Setting, PromptContent]:
        return await admit(
            self._host,
            session,
            parts_to_send(row, edited),
            model=edited.model if edited.model is not None else row.asked_model,
            agent=edited.agent if edited.agent is not None else row.asked_agent,
            attended=row.is_attended,
        )

    async def _send_edited(
        self,
        session: Session,
        row: MessageRow,
        edited: Edit,
        admitted: tuple[Setting, PromptContent],
        tree: Tree,
        parent: str | None,
    ) -> Rewound:
        """Move the head and open the new turn below it, as one unit."""
        setting, content = admitted
        now = self._host.clock.now_ms()
        tails = await load_tails(self._host.store, session.id, tree)
        given = {"unattended": True} if row.metadata.get("unattended") is True else None
        new = await user_row(self._host, session, setting, content, edited.client_message_id, given)
        moving = plan_move(tree, tails, session.id, parent, now, "rewind")
        failpoint("history.before_rewind")
        submission = await self._runtime.runner.open(session, setting, new, content, before=moving, below=parent)
        hidden = left_line(tree, moved(tree, session.id, parent, now, "rewind"))
        return Rewound(parent, hidden, None, submission)

    async def unrewind(self, session_id: str) -> Rewound:
        """Undo the newest rewind that is not undone yet."""
        async with self._runtime.sessions.lock(session_id):
            await self._runtime.sessions.get_open(session_id)
            tree = await self._load_settled_tree(session_id)
            undone = plan_undo(withdrawn(tree, session_id, self._host.clock.now_ms()))
            tree = await self._withdraw(session_id, tree)
            return await self._move(session_id, tree, undone.from_turn_id, "unrewind")

    async def set_head(self, session_id: str, turn_id: str | None) -> Rewound:
        """Go to any turn of the session, on the line or not; None is the empty beginning."""
        async with self._runtime.sessions.lock(session_id):
            await self._runtime.sessions.get_open(session_id)
            tree = await self._load_settled_tree(session_id)
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

    async def _load_settled_tree(self, session_id: str) -> Tree:
        """The tree of a session that nothing runs on. A turn that waits for a human may still be open."""
        await settle_idle(self._host, self._runtime.sessions, session_id)
        return await self._host.store.load_tree(session_id)

    async def _withdraw(self, session_id: str, tree: Tree) -> Tree:
        """Withdraw what waits for a human; the queue is not fired by it. The tree as it is then."""
        turn = tree.turns.get(tree.open_turn_id or "")
        if turn is None or turn.status not in OPEN:
            return tree
        await self._runtime.runner.withdraw(session_id, turn, _WITHDRAWN)
        return await self._host.store.load_tree(session_id)

    async def _restore(self, session_id: str, row: MessageRow) -> None:
        if self._snapshots is None:
            raise NotSupported("files cannot be brought back: this engine was opened without a snapshot layer")
        snapshot_id = row.snapshot_id
        if snapshot_id is None:
            raise RewindTargetInvalid(
                "no snapshot was taken before this message; rewind without restoring files", message_id=row.id
            )
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
        await self._runtime.sessions.commit(Unit(session_id, writes, guards, sync="power"))
        self._runtime.sessions.show_changed(session_id)
        after = tree if new is None else with_turn(tree, new, holding)
        return Rewound(to_turn_id, left_line(tree, moved(after, session_id, to_turn_id, now, why)))
