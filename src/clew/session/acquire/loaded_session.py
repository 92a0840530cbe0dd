"""The loaded session: everything read of a session before it is settled or acquired."""

from __future__ import annotations

import logging

import msgspec

from clew.errors import RowUndecodable
from clew.store.base import Moment, PendingStream, Replica
from clew.transcript.line import LineTurn, path_to
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.model_call import ModelCall
from clew.transcript.session import SessionState
from clew.transcript.turn import Step, Turn
from clew.transcript.wait import is_answered, waits_of

__all__ = ["CutOff", "LoadedSession", "load_session_state"]

log = logging.getLogger("clew.recovery")


class CutOff(msgspec.Struct, frozen=True):
    """A message with calls that have no result, and its turn."""

    message: MessageRow
    calls: tuple[PartRow, ...]
    turn: Turn | None


class LoadedSession(msgspec.Struct, frozen=True):
    """The state of a session before it is acquired: its open turn with messages and steps, and interrupted calls.

    ``sealed`` are the ids of sealed messages, read only if a turn is open. ``pending`` are journaled chunks of a run
    that could not store its end, ``open_model_calls`` its calls without an end. ``runner`` is the replica of that run,
    in a shared store.
    """

    session_id: str
    state: SessionState = SessionState()
    open: LineTurn | None = None
    cut_off: tuple[CutOff, ...] = ()
    sealed: frozenset[str] = frozenset()
    steps: tuple[Step, ...] = ()
    pending: tuple[PendingStream, ...] = ()
    open_model_calls: tuple[ModelCall, ...] = ()
    runner: Replica | None = None
    open_above_head: bool = False

    @property
    def waiting(self) -> Turn | None:
        """The open turn, while it waits for a human.

        None if all its requests are answered, since the run that should have resumed it did not start, or if it was
        stopped or is above the head.
        """
        turn = self.open.turn if self.open is not None and not self.open_above_head else None
        over = turn is None or turn.stopped is not None or is_answered(waits_of(turn))
        return turn if turn is not None and turn.status == "waiting" and not over else None

    @property
    def is_resumable(self) -> bool:
        """Return whether a run may resume the open turn automatically: none of its calls was in flight.

        A call whose arguments were still being written was not.
        """
        if self.open is None or self.open_above_head or self.waiting is not None:
            return False
        if any(row.damage for row in self.open.messages):
            return False
        own = {row.id for row in self.open.messages}
        calls = [part for interrupted in self.cut_off if interrupted.message.id in own for part in interrupted.calls]
        return all(part.tool_state == "input-streaming" for part in calls)

    @property
    def next_epoch(self) -> int:
        return self.state.epoch + 1

    @property
    def head_turn_id(self) -> str | None:
        """The head once everything is settled: an open turn that is ended becomes the head."""
        ended = self.open is not None and self.waiting is None and not self.open_above_head
        return self.open.turn.id if self.open is not None and ended else self.state.head_turn_id


async def load_session_state(store: Moment, session_id: str) -> LoadedSession:
    """Load a session as of one moment."""
    return await store.at_once(session_id, lambda moment: _load(moment, session_id))


async def _load(store: Moment, session_id: str) -> LoadedSession:
    state = await store.load_state(session_id)
    opened: LineTurn | None = None
    sealed: frozenset[str] = frozenset()
    steps: tuple[Step, ...] = ()
    if state.open_turn_id is not None:
        opened = (await store.load_line(session_id, turns=1, keep_damaged=True)).turns[-1]
        sealed = frozenset(await store.seals(session_id))
        steps = tuple(await store.load_steps(opened.turn.id))
    calls: dict[str, list[PartRow]] = {}
    for call in await store.open_calls(session_id):
        calls.setdefault(call.message_id, []).append(call.part)
    cut_off: list[CutOff] = []
    if calls:
        holders = {row.id: opened.turn for row in opened.messages} if opened is not None else {}
        if calls.keys() - holders.keys():
            try:
                tree = await store.load_tree(session_id)
                holders |= {id_: tree.turns[turn_id] for turn_id, messages in tree.links.items() for id_ in messages}
            except RowUndecodable as error:
                # The cause of the interruption is unknown then; that is no reason to leave a call open.
                log.error("cannot read all turns of session %s: %s", session_id, error)
        for message_id, parts in calls.items():
            message = await store.find_message(session_id, message_id)
            if message is not None:
                cut_off.append(CutOff(message, tuple(parts), holders.get(message_id)))
    pending = await store.pending_streams(session_id)
    # Only the session's own run asks for answers, while a title may be in progress.
    open_model_calls = tuple(call for call in await store.open_model_calls(session_id) if call.purpose == "answer")
    runner = await store.find_replica(state.runner) if state.runner is not None else None
    above_head = opened is not None and await _is_above(store, session_id, opened.turn, state.head_turn_id)
    return LoadedSession(
        session_id, state, opened, tuple(cut_off), sealed, steps, pending, open_model_calls, runner, above_head
    )


async def _is_above(store: Moment, session_id: str, turn: Turn, head_turn_id: str | None) -> bool:
    """Return whether a turn is above the head: another program has gone on below it."""
    if head_turn_id in (None, turn.id, turn.parent_turn_id):
        return False  # a message that is sent again is answered in the head itself
    return turn in path_to((await store.load_tree(session_id)).turns, head_turn_id)
