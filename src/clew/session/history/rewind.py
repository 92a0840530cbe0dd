"""Rewind: moves the head back, or to any turn; nothing is deleted.

Rewind, un-rewind and going to a turn are one operation: the head moves, the reflog records it, and the projections
are updated in the same unit. :mod:`clew.session.history.rewind_plan` decides where it may move; :class:`Rewinding`
acts, under the session's lock, on an idle session. Files of the workspace go back, too, where that is wanted
(:mod:`clew.session.history.restore`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from clew.errors import InvalidInput, RewindTargetInvalid, SnapshotFailed
from clew.failpoints import failpoint
from clew.session.acquire.prepare import locked_idle_session
from clew.session.affected_tree import AffectedTree, load_affected, load_affected_above
from clew.session.head_move import load_move, plan_restart
from clew.session.history import rewind_plan as plans
from clew.session.history.file_values import FilesRequest, FilesRestored, RestorePreview
from clew.session.history.lookup import get_turn_of, locate_message
from clew.session.history.restore import Preparation, Restoring, Target
from clew.session.host import Host
from clew.session.prompt.admission import PromptContent, admit, user_row
from clew.session.prompt.submission import Submission
from clew.session.prompt.turn_config import TurnConfig, model_for, resolve_for
from clew.session.runtime import Runtime
from clew.store.base import Moment, get_session
from clew.store.unit import EpochIs, HeadIs, NoOpenTurn, Unit
from clew.transcript.head import Added
from clew.transcript.message import MessageRow
from clew.transcript.metadata import from_client
from clew.transcript.session import Session
from clew.transcript.turn import HeadMove, MoveReason, Tree, Turn
from clew.transcript.turn_state import OPEN

__all__ = ["Rewinding", "Rewound"]

_KEEP = FilesRequest()
_WITHDRAWN = "withdrawn: the conversation went back"
_MOVES_PER_READ = 16


class Rewound(msgspec.Struct, frozen=True):
    """The result of a move. ``hidden`` are the messages that left the line; ``draft`` is the text to edit, ``files``
    what was restored."""

    head_turn_id: str | None
    hidden: tuple[str, ...]
    draft: str | None = None
    submission: Submission | None = None
    files: FilesRestored | None = None


class Rewinding:
    """The service that moves the heads of one engine's sessions."""

    def __init__(self, host: Host, runtime: Runtime) -> None:
        self._host = host
        self._runtime = runtime
        self._restoring = Restoring(host, runtime)

    async def rewind(
        self,
        session_id: str,
        message_id: str,
        *,
        mode: plans.RewindMode = "resend",
        edit: plans.Edit | None = None,
        run: bool = False,
        files: FilesRequest = _KEEP,
    ) -> Rewound:
        """Go back to a user message of the line, to have it answered again or to edit it.

        Every check happens before anything is changed. A turn that waits for a human is settled first, which withdraws
        its requests; the queue stays as it is.
        """
        edit, host = edit or plans.Edit(), self._host
        plans.check_request(mode, edit, run=run)
        if files.mode == "only" and (run or edit != plans.Edit()):
            raise InvalidInput("files=only restores files and sends nothing; leave out run and the edit")
        async with locked_idle_session(host, self._runtime.sessions, session_id) as session:
            located = await locate_message(host.store, session_id, message_id)
            turn, row = plans.check_target(located), located.row
            admitted: tuple[TurnConfig, PromptContent] | None = None
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
                # Its agent and model must still exist. They are resolved again once the head has moved, since the tools
                # offered depend on the line: recall needs something to recall.
                await resolve_for(host, session, row)
            find = lambda: self._restoring.find_message(session, turn, row.id)  # noqa: E731
            async with self._restoring.prepare(session, files, find) as restore:
                if files.mode == "only":
                    return await self._restore_only(session, restore)
                return await self._rewind(session, row, turn, mode, edit, run, admitted, restore)

    async def _rewind(
        self,
        session: Session,
        row: MessageRow,
        turn: Turn,
        mode: plans.RewindMode,
        edit: plans.Edit,
        run: bool,
        admitted: tuple[TurnConfig, PromptContent] | None,
        restore: Preparation | None,
    ) -> Rewound:
        host, session_id, target = self._host, session.id, turn
        affected = await self._load_affected(
            session_id, lambda moment: load_affected_above(moment, target, host.clock.now_ms()), runs=run
        )
        tree, turn = affected.tree, affected.tree.turns[turn.id]
        parent, carried = plan_restart(affected, turn, host.mint.turn())
        if admitted is not None:
            config, content = admitted
            metadata = from_client(row.metadata if edit.metadata is None else edit.metadata)
            metadata |= {key: value for key, value in row.metadata.items() if key in ("unattended", "output")}
            new_row = await user_row(host, session, config, content, edit.client_message_id, metadata)
            ledger = self._runtime.event_replies.plan_prompt(new_row)
            open_run = self._runtime.runner.open
            if restore is not None:
                # The files must be back before the run may change them, and they only are once the head has moved.
                rewound = await self._move(affected, parent, "rewind", new=carried, restore=restore)
                sent = await open_run(session, config, new_row, content, also=ledger)
                return msgspec.structs.replace(rewound, submission=sent)
            # The head's move and the new turn below it are one unit.
            after, move_writes = await load_move(
                host.store, affected, parent, host.clock.now_ms(), "rewind", new=carried
            )
            failpoint("history.before_rewind")
            sent = await open_run(session, config, new_row, content, before=move_writes, below=parent, also=ledger)
            return Rewound(parent, plans.left_line(tree, after), None, sent)
        if mode == "edit":
            rewound = await self._move(affected, parent, "rewind", new=carried, restore=restore)
            text = edit.text if edit.text is not None else "\n".join(row.texts)
            return msgspec.structs.replace(rewound, draft=text)
        sibling = plans.plan_resend(tree, turn, parent, host.mint.turn(), host.clock.now_ms())
        continuation, submission = self._runtime.continuation, None
        if sibling is None:
            rewound = Rewound(turn.id, (), files=await self._apply(session, restore))
            submission = await continuation.go_on_locked(session_id) if run else None
        else:
            new = (*carried, Added(sibling, tree.links[turn.id][:1]))
            rewound = await self._move(affected, sibling.id, "rewind", new=new, restore=restore)
            submission = await continuation.answer(session, sibling, row) if run else None
        return msgspec.structs.replace(rewound, submission=submission)

    async def unrewind(self, session_id: str, files: FilesRequest = _KEEP) -> Rewound:
        """Undo the newest rewind that has not been undone; or only the newest restore of files."""
        clock = self._host.clock
        async with locked_idle_session(self._host, self._runtime.sessions, session_id) as session:
            if files.mode == "only":
                find = lambda: self._restoring.find_undo(session, None)  # noqa: E731
                async with self._restoring.prepare(session, files, find) as restore:
                    return await self._restore_only(session, restore)
            undone = await self._find_undone(session_id)
            to = undone.from_turn_id
            find = lambda: self._restoring.find_undo(session, undone)  # noqa: E731
            async with self._restoring.prepare(session, files, find) as restore:
                affected = await self._load_affected(
                    session_id, lambda moment: load_affected(moment, session_id, to, clock.now_ms())
                )
                return await self._move(affected, to, "unrewind", restore=restore)

    async def _find_undone(self, session_id: str) -> HeadMove:
        """Return the newest rewind that has not been undone; raise an error if it cannot be."""
        now = self._host.clock.now_ms()
        load = lambda moment: load_since_rewind(moment, session_id, now)  # noqa: E731
        return plans.plan_undo(await self._host.store.at_once(session_id, load))

    async def set_head(self, session_id: str, turn_id: str | None, files: FilesRequest = _KEEP) -> Rewound:
        """Go to any turn of the session, on the line or not; None is the empty start."""

        async def ask(moment: Moment) -> AffectedTree:
            if turn_id is not None:
                await self._get_target(moment, session_id, turn_id)
            return await load_affected(moment, session_id, turn_id, self._host.clock.now_ms())

        async with locked_idle_session(self._host, self._runtime.sessions, session_id) as session:
            find = lambda: self._find_turn(session, turn_id)  # noqa: E731
            async with self._restoring.prepare(session, files, find) as restore:
                if files.mode == "only":
                    return await self._restore_only(session, restore)
                affected = await self._load_affected(session_id, ask)
                if affected.state.head_turn_id == turn_id:
                    return Rewound(turn_id, (), files=await self._apply(session, restore))
                return await self._move(affected, turn_id, "goto", restore=restore)

    @staticmethod
    async def _get_target(moment: Moment, session_id: str, turn_id: str) -> Turn:
        turn = await get_turn_of(moment, session_id, turn_id)
        if turn.status == "refused":
            raise RewindTargetInvalid("this turn was refused; there is nothing to go to", turn_id=turn.id)
        return turn

    # Files

    async def preview(
        self, session_id: str, message_id: str | None, turn_id: str | None, to: plans.RestoreTo
    ) -> RestorePreview:
        """Return what restoring the files would do."""
        session, restoring = await get_session(self._host.store, session_id), self._restoring
        if (message_id is not None) + (turn_id is not None) + (to is not None) != 1:
            raise InvalidInput("name a message, a turn, or one of start, unrewind and undo")
        if message_id is not None:
            located = await locate_message(self._host.store, session_id, message_id)
            target = await restoring.find_message(session, plans.check_target(located), located.row.id)
        elif to == "undo":
            target = await restoring.find_undo(session, None)
        elif to == "unrewind":
            target = await restoring.find_undo(session, await self._find_undone(session_id))
        else:
            target = await self._find_turn(session, turn_id)
        return await restoring.preview(session, target)

    async def _find_turn(self, session: Session, turn_id: str | None) -> Target:
        if turn_id is None:
            return await self._restoring.find_start(session)
        return await self._restoring.find_end(session, await self._get_target(self._host.store, session.id, turn_id))

    async def _restore_only(self, session: Session, restore: Preparation | None) -> Rewound:
        files = await self._apply(session, restore)
        return Rewound(session.head_turn_id, (), files=files)

    async def _apply(self, session: Session, restore: Preparation | None) -> FilesRestored | None:
        return None if restore is None else await self._restoring.apply(session, restore)

    async def _load_affected(
        self, session_id: str, ask: Callable[[Moment], Coroutine[Any, Any, AffectedTree]], *, runs: bool = False
    ) -> AffectedTree:
        """Load the part of the tree that a move affects; a turn that waits for a human is settled first.

        The queue is paused unless ``runs``, as only the run may start it then.
        """
        store = self._host.store
        affected = await store.at_once(session_id, ask)
        opened = affected.state.open_turn_id
        turn = await store.find_turn(opened) if opened is not None else None
        if turn is None or turn.status not in OPEN:
            return affected
        if not runs:
            await self._runtime.queue.pause(session_id, "abort")
        await self._runtime.runner.withdraw(session_id, turn, _WITHDRAWN)
        return await store.at_once(session_id, ask)

    async def _move(
        self,
        affected: AffectedTree,
        to_turn_id: str | None,
        why: MoveReason,
        *,
        new: Sequence[Added] = (),
        restore: Preparation | None = None,
    ) -> Rewound:
        """Move the head, as one unit, and publish that. Files are restored after it; if that fails, it moves back."""
        session_id, state, now = affected.session_id, affected.state, self._host.clock.now_ms()
        after, writes = await load_move(self._host.store, affected, to_turn_id, now, why, new=new)
        also = () if restore is None else restore.plan(now, to_turn_id, move=True)
        guards = (EpochIs(state.epoch), HeadIs(state.head_turn_id), NoOpenTurn())
        failpoint("history.before_rewind")
        await self._runtime.sessions.commit(Unit(session_id, (*writes, *also), guards, sync="power"))
        self._runtime.sessions.show_changed(session_id)
        moved = Rewound(to_turn_id, plans.left_line(affected.tree, after))
        if restore is None:
            return moved
        try:
            return msgspec.structs.replace(moved, files=await restore.finish())
        except SnapshotFailed:
            back, load = state.head_turn_id, load_affected
            affected = await self._load_affected(session_id, lambda moment: load(moment, session_id, back, now))
            await self._move(affected, back, "unrewind" if why == "rewind" else "goto")
            raise


async def load_since_rewind(moment: Moment, session_id: str, now: int) -> Tree:
    """Load the part of the tree that decides whether the newest rewind can be undone, as if no turn were waiting.

    Its moves are that rewind and later ones, as far as needed to see whether the conversation continued. Each turn they
    led to that existed before the rewind is represented by an older move to it.
    """
    state, rewind = await moment.load_state(session_id), await moment.find_rewind(session_id)
    tree = Tree(state.head_turn_id, state.open_turn_id, {}, {}, ())
    if rewind is None:
        return tree
    turns: dict[str, Turn] = {}
    known: list[HeadMove] = []
    moves = [rewind]
    left_at = await moment.find_turn(rewind.to_turn_id) if rewind.to_turn_id is not None else None

    async def climb(turn_id: str | None) -> None:
        """Add a turn, with those above it that lie below the rewind's target."""
        while turn_id is not None and turn_id not in turns:
            turn = await moment.find_turn(turn_id)
            if turn is None or turn.depth <= (left_at.depth if left_at is not None else -1):
                return
            turns[turn_id], turn_id = turn, turn.parent_turn_id

    if left_at is not None:
        turns[left_at.id] = left_at
    if (await moment.newest_move(session_id)) != rewind:
        depth = left_at.depth + 1 if left_at is not None else 0
        turns |= {turn.id: turn for turn, _ in await moment.load_path(session_id, rewind.from_turn_id, depth=depth)}
    while True:
        found = await moment.moves_after(session_id, moves[-1].seq, _MOVES_PER_READ)
        for move in found:
            if move.to_turn_id is not None and move.to_turn_id not in turns:
                await climb(move.to_turn_id)
                if await moment.was_head(session_id, move.to_turn_id, rewind.seq):
                    known.append(HeadMove(0, session_id, None, move.to_turn_id, 0, "goto"))
        moves += found
        # All later rewinds were undone; the moves read here may end between a rewind and its undo.
        other_moves = [move for move in moves[1:] if move.why not in ("rewind", "unrewind")]
        tree = Tree(state.head_turn_id, state.open_turn_id, turns, {}, (*known, rewind, *other_moves))
        if len(found) < _MOVES_PER_READ or plans.has_grown(tree, rewind):
            break
    await climb(state.open_turn_id)
    return plans.tree_after_withdrawal(tree, session_id, now)
