"""Rewind: the head moves back, or anywhere else, and nothing is deleted.

Rewind, un-rewind and going to a turn are one operation: the head moves, the reflog notes it, and the projections
follow in the same unit. What may be moved to is decided by :mod:`clew.history.rewind_plan`; :class:`Rewinding` acts,
under the session's lock, on a session that nothing runs on.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from clew.errors import NotSupported, RewindTargetInvalid, SnapshotFailed
from clew.failpoints import failpoint
from clew.history import rewind_plan as plans
from clew.history.lookup import get_place, get_turn_of
from clew.history.snapshot import SnapshotLayer
from clew.runtime.admission import PromptContent, admit, user_row
from clew.runtime.head_move import load_move, plan_begun_anew
from clew.runtime.host import Host
from clew.runtime.reach import Reach, load_reach, load_reach_above
from clew.runtime.ready import idle_session
from clew.runtime.runtime import Runtime
from clew.runtime.setting import Setting, model_for, resolve_for
from clew.runtime.submission import Submission
from clew.store.base import Moment
from clew.store.unit import EpochIs, HeadIs, NoOpenTurn, Unit
from clew.transcript.head import Added
from clew.transcript.message import MessageRow
from clew.transcript.metadata import from_client
from clew.transcript.turn import HeadMove, MoveReason, Tree, Turn
from clew.transcript.turn_state import OPEN

__all__ = ["Rewinding", "Rewound"]

_WITHDRAWN = "withdrawn: the conversation went back"
_MOVES = 16


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
        async with idle_session(host, self._runtime.sessions, session_id) as session:
            place = await get_place(host.store, session_id, message_id)
            turn, row = plans.check_target(place), place.row
            admitted: tuple[Setting, PromptContent] | None = None
            if run and mode == "edit":
                admitted = await admit(
                    host,
                    session,
                    plans.parts_to_send(row, edit),
                    model=edit.model if edit.model is not None else model_for(session, row),
                    agent=edit.agent if edit.agent is not None else row.asked_agent,
                    attended=row.is_attended,
                )
            elif run:
                # Who would answer it must still be there. It is resolved anew once the head has moved: whether there is
                # something to recall, and so which tools are offered, depends on the line.
                await resolve_for(host, session, row)
            if restore_files:
                await self._restore(session_id, row)
            begun = turn
            reach = await self._reach(
                session_id, lambda held: load_reach_above(held, begun, host.clock.now_ms()), runs=run
            )
            tree, turn = reach.tree, reach.tree.turns[turn.id]
            parent, carried = plan_begun_anew(reach, turn, host.mint.turn())
            if admitted is not None:
                # The head moves, and the new turn is opened below it, as one unit.
                setting, content = admitted
                given = from_client(row.metadata if edit.metadata is None else edit.metadata)
                given |= {key: value for key, value in row.metadata.items() if key in ("unattended", "output")}
                said = await user_row(host, session, setting, content, edit.client_message_id, given)
                after, moving = await load_move(host.store, reach, parent, host.clock.now_ms(), "rewind", new=carried)
                failpoint("history.before_rewind")
                noted = self._runtime.outbound.plan_prompt(said)
                sent = await self._runtime.runner.open(
                    session, setting, said, content, before=moving, below=parent, also=noted
                )
                return Rewound(parent, plans.left_line(tree, after), None, sent)
            if mode == "edit":
                rewound = await self._move(reach, parent, "rewind", new=carried)
                text = edit.text if edit.text is not None else "\n".join(row.texts)
                return msgspec.structs.replace(rewound, draft=text)
            sibling = plans.plan_resend(tree, turn, parent, host.mint.turn(), host.clock.now_ms())
            continuation, submission = self._runtime.continuation, None
            if sibling is None:
                rewound = Rewound(turn.id, ())
                submission = await continuation.go_on_locked(session_id) if run else None
            else:
                new = (*carried, Added(sibling, tree.links[turn.id][:1]))
                rewound = await self._move(reach, sibling.id, "rewind", new=new)
                submission = await continuation.answer(session, sibling, row) if run else None
            return msgspec.structs.replace(rewound, submission=submission)

    async def unrewind(self, session_id: str) -> Rewound:
        """Undo the newest rewind that is not undone yet."""
        store, clock = self._host.store, self._host.clock
        async with idle_session(self._host, self._runtime.sessions, session_id):
            tree = await store.at_once(session_id, lambda held: load_since_rewind(held, session_id, clock.now_ms()))
            undone = plans.plan_undo(tree)
            to = undone.from_turn_id
            reach = await self._reach(session_id, lambda held: load_reach(held, session_id, to, clock.now_ms()))
            return await self._move(reach, to, "unrewind")

    async def set_head(self, session_id: str, turn_id: str | None) -> Rewound:
        """Go to any turn of the session, on the line or not; None is the empty beginning."""

        async def ask(held: Moment) -> Reach:
            turn = await get_turn_of(held, session_id, turn_id) if turn_id is not None else None
            if turn is not None and turn.status == "refused":
                raise RewindTargetInvalid("this turn was refused; there is nothing to go to", turn_id=turn.id)
            return await load_reach(held, session_id, turn_id, self._host.clock.now_ms())

        async with idle_session(self._host, self._runtime.sessions, session_id):
            reach = await self._reach(session_id, ask)
            if reach.state.head_turn_id == turn_id:
                return Rewound(turn_id, ())
            return await self._move(reach, turn_id, "goto")

    async def _reach(
        self, session_id: str, ask: Callable[[Moment], Coroutine[Any, Any, Reach]], *, runs: bool = False
    ) -> Reach:
        """What a move may touch once nothing waits for a human: that is withdrawn, and then it is asked again.

        The queue is fired by nothing but what ``runs`` then.
        """
        store = self._host.store
        reach = await store.at_once(session_id, ask)
        opened = reach.state.open_turn_id
        turn = await store.find_turn(opened) if opened is not None else None
        if turn is None or turn.status not in OPEN:
            return reach
        if not runs:
            await self._runtime.queue.pause(session_id, "abort")
        await self._runtime.runner.withdraw(session_id, turn, _WITHDRAWN)
        return await store.at_once(session_id, ask)

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
        self, reach: Reach, to_turn_id: str | None, why: MoveReason, *, new: Sequence[Added] = ()
    ) -> Rewound:
        """Move the head, as one unit, and say so."""
        session_id, state = reach.session_id, reach.state
        after, writes = await load_move(self._host.store, reach, to_turn_id, self._host.clock.now_ms(), why, new=new)
        guards = (EpochIs(state.epoch), HeadIs(state.head_turn_id), NoOpenTurn())
        failpoint("history.before_rewind")
        await self._runtime.sessions.commit(Unit(session_id, writes, guards, sync="power"))
        self._runtime.sessions.show_changed(session_id)
        return Rewound(to_turn_id, plans.left_line(reach.tree, after))


async def load_since_rewind(held: Moment, session_id: str, now: int) -> Tree:
    """As much of the tree as it takes to say whether the newest rewind can be undone, as if nothing waited any more.

    Its moves are that rewind and those after it, as far as it takes to see that the conversation went on. An older one
    stands before them for every turn they led to that was there already.
    """
    state, rewind = await held.load_state(session_id), await held.find_rewind(session_id)
    tree = Tree(state.head_turn_id, state.open_turn_id, {}, {}, ())
    if rewind is None:
        return tree
    turns: dict[str, Turn] = {}
    known: list[HeadMove] = []
    moves = [rewind]
    left_at = await held.find_turn(rewind.to_turn_id) if rewind.to_turn_id is not None else None

    async def climb(turn_id: str | None) -> None:
        """Take a turn in, with those above it that lie below where the rewind led."""
        while turn_id is not None and turn_id not in turns:
            turn = await held.find_turn(turn_id)
            if turn is None or turn.depth <= (left_at.depth if left_at is not None else -1):
                return
            turns[turn_id], turn_id = turn, turn.parent_turn_id

    if left_at is not None:
        turns[left_at.id] = left_at
    if (await held.newest_move(session_id)) != rewind:
        depth = left_at.depth + 1 if left_at is not None else 0
        turns |= {turn.id: turn for turn, _ in await held.load_path(session_id, rewind.from_turn_id, depth=depth)}
    while True:
        found = await held.moves_after(session_id, moves[-1].seq, _MOVES)
        for move in found:
            if move.to_turn_id is not None and move.to_turn_id not in turns:
                await climb(move.to_turn_id)
                if await held.was_head(session_id, move.to_turn_id, rewind.seq):
                    known.append(HeadMove(0, session_id, None, move.to_turn_id, 0, "goto"))
        moves += found
        # Rewinds after it were undone, all of them; what is read here may end between the two.
        told = [move for move in moves[1:] if move.why not in ("rewind", "unrewind")]
        tree = Tree(state.head_turn_id, state.open_turn_id, turns, {}, (*known, rewind, *told))
        if len(found) < _MOVES or plans.has_grown(tree, rewind):
            break
    await climb(state.open_turn_id)
    return plans.tree_after_withdrawal(tree, session_id, now)
