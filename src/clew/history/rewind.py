"""Rewind: the head moves back, or anywhere else, and nothing is deleted.

Rewind, un-rewind and going to a turn are one operation: the head moves, the reflog notes it, and the projections
follow in the same unit. What may be moved to is decided by :mod:`clew.history.rewind_plan`; :class:`Rewinding` acts,
under the session's lock, on a session that nothing runs on.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from clew.errors import NotSupported, RewindTargetInvalid, SnapshotFailed
from clew.failpoints import failpoint
from clew.history import rewind_plan as plans
from clew.history.lookup import get_place, turn_of
from clew.history.snapshot import SnapshotLayer
from clew.runtime.admission import PromptContent, admit, user_row
from clew.runtime.head_move import load_begun_anew, load_kept_tails, plan_move
from clew.runtime.host import Host
from clew.runtime.ready import idle_session
from clew.runtime.runtime import Runtime
from clew.runtime.setting import Setting, resolve_for
from clew.runtime.submission import Submission
from clew.store.unit import EpochIs, HeadIs, NoOpenTurn, Unit
from clew.transcript.head import Added
from clew.transcript.message import MessageRow
from clew.transcript.turn import MoveReason, Tree
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
        mode: plans.RewindMode = "resend",
        edit: plans.Edit | None = None,
        run: bool = False,
        restore_files: bool = False,
    ) -> Rewound:
        """Go back to a user message of the line: to have it answered anew, or to edit it.

        Whatever refuses this does so before anything is changed. A turn that waits for a human is settled first, its
        requests withdrawn; the queue stays as it is.
        """
        edit, host = edit or plans.Edit(), self._host
        plans.check_request(mode, edit, run=run)
        async with idle_session(host, self._runtime.sessions, session_id) as (session, tree):
            place = await get_place(host.store, session_id, message_id, tree)
            turn, row = plans.check_target(tree, place), place.row
            admitted: tuple[Setting, PromptContent] | None = None
            if run and mode == "edit":
                admitted = await admit(
                    host,
                    session,
                    plans.parts_to_send(row, edit),
                    model=edit.model if edit.model is not None else row.asked_model,
                    agent=edit.agent if edit.agent is not None else row.asked_agent,
                    attended=row.is_attended,
                )
            elif run:
                # Who would answer it must still be there. It is resolved anew once the head has moved: whether there is
                # something to recall, and so which tools are offered, depends on the line.
                await resolve_for(host, session, row)
            if restore_files:
                await self._restore(session_id, row)
            tree = await self._withdraw(session_id, tree, runs=run)
            turn = tree.turns[turn.id]
            parent, carried = await load_begun_anew(host.store, session_id, tree, turn, host.mint.turn())
            if admitted is not None:
                # The head moves, and the new turn is opened below it, as one unit.
                (setting, content), now = admitted, host.clock.now_ms()
                tails = await load_kept_tails(host.store, session_id, tree)
                given = None if row.is_attended else {"unattended": True}
                said = await user_row(host, session, setting, content, edit.client_message_id, given)
                after, moving = plan_move(tree, tails, session_id, parent, now, "rewind", new=carried)
                failpoint("history.before_rewind")
                noted = self._runtime.outbound.plan_prompt(said)
                sent = await self._runtime.runner.open(
                    session, setting, said, content, before=moving, below=parent, also=noted
                )
                return Rewound(parent, plans.left_line(tree, after), None, sent)
            if mode == "edit":
                rewound = await self._move(session_id, tree, parent, "rewind", new=carried)
                text = edit.text if edit.text is not None else "\n".join(row.texts)
                return msgspec.structs.replace(rewound, draft=text)
            sibling = plans.plan_resend(tree, turn, parent, host.mint.turn(), host.clock.now_ms())
            continuation, submission = self._runtime.continuation, None
            if sibling is None:
                rewound = Rewound(turn.id, ())
                submission = await continuation.go_on_locked(session_id) if run else None
            else:
                new = (*carried, Added(sibling, tree.links[turn.id][:1]))
                rewound = await self._move(session_id, tree, sibling.id, "rewind", new=new)
                submission = await continuation.answer(session, sibling, row) if run else None
            return msgspec.structs.replace(rewound, submission=submission)

    async def unrewind(self, session_id: str) -> Rewound:
        """Undo the newest rewind that is not undone yet."""
        async with idle_session(self._host, self._runtime.sessions, session_id) as (_, tree):
            undone = plans.plan_undo(plans.tree_after_withdrawal(tree, session_id, self._host.clock.now_ms()))
            tree = await self._withdraw(session_id, tree)
            return await self._move(session_id, tree, undone.from_turn_id, "unrewind")

    async def set_head(self, session_id: str, turn_id: str | None) -> Rewound:
        """Go to any turn of the session, on the line or not; None is the empty beginning."""
        async with idle_session(self._host, self._runtime.sessions, session_id) as (_, tree):
            turn = turn_of(tree, turn_id) if turn_id is not None else None
            if turn is not None and turn.status == "refused":
                raise RewindTargetInvalid("this turn was refused; there is nothing to go to", turn_id=turn.id)
            tree = await self._withdraw(session_id, tree)
            if tree.head_turn_id == turn_id:
                return Rewound(turn_id, ())
            return await self._move(session_id, tree, turn_id, "goto")

    async def _withdraw(self, session_id: str, tree: Tree, *, runs: bool = False) -> Tree:
        """Withdraw what waits for a human; the queue is fired by nothing but what ``runs`` then. The tree after it."""
        turn = tree.turns.get(tree.open_turn_id or "")
        if turn is None or turn.status not in OPEN:
            return tree
        if not runs:
            await self._runtime.queue.pause(session_id, "abort")
        await self._runtime.runner.withdraw(session_id, turn, _WITHDRAWN)
        return await self._host.store.load_tree(session_id)

    async def _restore(self, session_id: str, row: MessageRow) -> None:
        if self._snapshots is None:
            raise NotSupported("files cannot be brought back: this engine was opened without a snapshot layer")
        if row.snapshot_id is None:
            raise RewindTargetInvalid(
                "no snapshot was taken before this message; rewind without restoring files", message_id=row.id
            )
        try:
            await self._snapshots.restore(session_id, row.snapshot_id)
        except Exception as error:
            raise SnapshotFailed(f"the files could not be brought back: {error}", session_id=session_id) from error

    async def _move(
        self,
        session_id: str,
        tree: Tree,
        to_turn_id: str | None,
        why: MoveReason,
        *,
        new: Sequence[Added] = (),
    ) -> Rewound:
        """Move the head, as one unit, and say so."""
        store, now = self._host.store, self._host.clock.now_ms()
        state = await store.load_state(session_id)
        tails = await load_kept_tails(store, session_id, tree)
        after, writes = plan_move(tree, tails, session_id, to_turn_id, now, why, new=new)
        guards = (EpochIs(state.epoch), HeadIs(tree.head_turn_id), NoOpenTurn())
        failpoint("history.before_rewind")
        await self._runtime.sessions.commit(Unit(session_id, writes, guards, sync="power"))
        self._runtime.sessions.show_changed(session_id)
        return Rewound(to_turn_id, plans.left_line(tree, after))
