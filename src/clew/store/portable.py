"""Portable sessions: reading one out of a store, and the writes that insert one into a store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import msgspec

from clew.errors import RowUndecodable, SessionNotFound
from clew.long_work import run_long
from clew.store import unit as u
from clew.store.base import FullSession, Store
from clew.transcript.message import MessageRow
from clew.transcript.metadata import merge
from clew.transcript.model_call import book_message
from clew.transcript.packed import PackedRows
from clew.transcript.portable import Blob, PortableSession, Prompt, Queued, in_order, named_blobs, tree_of
from clew.transcript.projection import Hidden, compaction_tails, hidden_messages
from clew.transcript.turn import Step
from clew.transcript.turn_state import OPEN, START

__all__ = ["load_portable", "plan_insert", "plan_rows"]

log = logging.getLogger("clew.store")


async def load_portable(store: Store, session_id: str, *, keep_damaged: bool = False) -> PortableSession:
    """Read the session as of now.

    Damage raises :class:`RowUndecodable`. With ``keep_damaged`` a damaged message reports it itself; a damaged prompt
    or file is left out, as if it were missing, and logged.
    """
    whole = await store.find_full_session(session_id)
    if whole is None:
        raise SessionNotFound(f"there is no session {session_id}", session_id=session_id)
    if whole.damaged and not keep_damaged:
        raise RowUndecodable(whole.damaged[0].what, session_id=session_id, id=whole.damaged[0].id)
    prompts: list[Prompt] = []
    blobs: list[Blob] = []
    for digest in await run_long(lambda: sorted({digest for step in whole.steps for digest in step.prompts})):
        try:
            body = await store.find_prompt(digest)
            prompts += [Prompt(digest, body)] if body is not None else []
        except RowUndecodable as error:
            _leave_out(error, keep_damaged)
    for sha256 in sorted(await run_long(named_blobs, whole.messages)):
        try:
            # An import may name another owner's file; naming it does not grant access.
            blob = await store.find_blob(sha256, whole.session.owner)
            blobs += [blob] if blob is not None else []
        except RowUndecodable as error:
            _leave_out(error, keep_damaged)
    project = whole.session.project
    rules = tuple(await store.load_project_rules(project)) if project is not None else ()
    epoch = (await store.load_state(session_id)).epoch
    return await run_long(_portable, whole, tuple(prompts), tuple(blobs), epoch, rules)


def _portable(
    whole: FullSession,
    prompts: tuple[Prompt, ...],
    blobs: tuple[Blob, ...],
    epoch: int,
    rules: tuple[dict[str, Any], ...],
) -> PortableSession:
    tree, known = whole.tree, {row.id for row in whole.messages}
    turns = sorted(tree.turns.values(), key=lambda turn: turn.depth)
    steps: dict[str, list[Step]] = {}
    for step in whole.steps:
        steps.setdefault(step.turn_id, []).append(step)
    # Older versions left settled messages without a seal; they get one where they are written next.
    settled = {id_ for turn in turns if turn.status not in OPEN for id_ in tree.links.get(turn.id, ())}
    return in_order(
        PortableSession(
            session=whole.session,
            turns=tuple(turns),
            links={turn.id: tree.links.get(turn.id, ()) for turn in turns},
            messages=whole.messages,
            steps=tuple(step for turn in turns for step in steps.get(turn.id, ()) if step.message_id in known),
            moves=tree.moves,
            prunes=whole.pruned,
            prompts=prompts,
            blobs=blobs,
            queue=tuple(Queued(entry.message.id, entry.queued_at, entry.interrupt) for entry in whole.queue),
            seals=frozenset({*whole.seals, *settled} & known),
            epoch=epoch,
            calls=whole.calls,
            rules=rules,
        )
    )


def _leave_out(error: RowUndecodable, keep_damaged: bool) -> None:
    if not keep_damaged:
        raise error
    log.error("left out: %s", error)


class _Writes(Sequence[u.Write]):
    """A sequence of writes generated on each iteration, always the same: holding all of them would take much memory."""

    def __init__(self, plan: Callable[[], Iterator[u.Write]]) -> None:
        self._plan = plan

    def __iter__(self) -> Iterator[u.Write]:
        return self._plan()

    def __bool__(self) -> bool:
        return True  # the first write inserts the session

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @overload
    def __getitem__(self, index: int) -> u.Write: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[u.Write]: ...

    def __getitem__(self, index: int | slice) -> u.Write | Sequence[u.Write]:
        return next(self._plan()) if index == 0 else tuple(self)[index]


def plan_insert(portable: PortableSession, now: int, more: Sequence[u.Write] = ()) -> Sequence[u.Write]:
    """Return the writes that insert this session, followed by ``more``; those of a packed session are generated while
    reading.

    The session's sums are those from before its steps, which are recorded again.
    """
    tree = tree_of(portable)
    marking = {id_ for turn in tree.turns.values() if turn.kind == "compaction" for id_ in tree.links.get(turn.id, ())}
    rows = {row.id: row for row in portable.messages if row.id in marking} if marking else {}
    hidden: dict[str, Hidden | None] = dict(hidden_messages(tree, compaction_tails(tree, rows)))

    def plan() -> Iterator[u.Write]:
        yield u.InsertSession(msgspec.structs.replace(portable.session, head_turn_id=None))
        yield from plan_rows(portable, now)
        if hidden:
            yield u.SetHidden(hidden)
        if portable.epoch:
            yield u.SetEpoch(portable.epoch)
        yield from more

    return _Writes(plan) if isinstance(portable.messages, PackedRows) else tuple(plan())


def plan_rows(portable: PortableSession, now: int) -> Iterator[u.Write]:
    """Return the writes that add all of this to an existing session, except what they hide."""
    session, tree, known = portable.session, tree_of(portable), set[str]()
    for prompt in portable.prompts:
        yield u.PutPrompt(prompt.digest, prompt.body, now)
    for blob in portable.blobs:
        yield u.PutBlob(blob.sha256, blob.media_type, blob.data, now)
    if portable.rules and session.project is not None:
        yield u.PutProjectRules(session.project, portable.rules, now)
    for row in portable.messages:
        known.add(row.id)
        # Other writes set the queue, the projections and the steps.
        yield u.InsertMessage(msgspec.structs.replace(row, metadata=_bare(row)))
        if row.id in portable.seals:
            yield u.SealMessage(row.id, row.seal)
    for turn in tree.turns.values():
        if turn.status in START:
            yield u.OpenTurn(turn)
        else:  # no turn begins as refused
            yield u.OpenTurn(msgspec.structs.replace(turn, status="running", settled_at=None))
            yield u.SetTurn(turn.id, turn.status, settled_at=turn.settled_at)
        for id_ in tree.links.get(turn.id, ()):
            if id_ in known:
                yield u.LinkMessage(turn.id, id_)
    yield from _plan_steps(portable)
    for call in portable.calls:
        yield u.PutCall(call)
    for move in portable.moves:
        yield u.MoveHead(move.to_turn_id, move.at, move.why)
    # One write per prune: the store assigns its number, without gaps.
    for seq in sorted({one.seq for one in portable.prunes}):
        yield u.AddPruned(tuple(one for one in portable.prunes if one.seq == seq))
    for entry in portable.queue:
        yield u.Enqueue(entry.message_id, entry.queued_at, entry.interrupt)


def _plan_steps(portable: PortableSession) -> Iterator[u.Write]:
    """Record the steps in the order they ended.

    A step sets the model, prompt and usage of its message; a message that had other values gets them back.
    """
    known_at = {row.id: row.updated_at for row in portable.messages} if portable.steps else {}
    of_message: dict[str, list[Step]] = {}
    for step in sorted(portable.steps, key=lambda step: step.finished_at):
        of_message.setdefault(step.message_id, []).append(step)
        # A message's time is when its model call ended, not when the tools of the step did.
        ended_at = min(step.finished_at, known_at[step.message_id])
        yield u.RecordStep(msgspec.structs.replace(step, finished_at=ended_at))
        if ended_at != step.finished_at:
            yield u.FinishStep(step.turn_id, step.index, step.finished_at)
    for row in portable.messages:
        recorded, wanted = _bare(row), merge(row.metadata, {}, _set_by_writes(row))
        for step in of_message.get(row.id, ()):
            recorded = book_message(recorded, step)
        if recorded != wanted:
            yield u.PatchMessage(row.id, row.updated_at, wanted, tuple(key for key in recorded if key not in wanted))


def _bare(row: MessageRow) -> dict[str, Any]:
    """Return the metadata of a message before any step is recorded on it."""
    return merge(row.metadata, {}, (*_set_by_writes(row), "usage"))


def _set_by_writes(row: MessageRow) -> tuple[str, ...]:
    """Return the keys that other writes set. A cancelled message is in no turn: its own metadata says that it is
    hidden."""
    return ("queued_at",) if row.is_cancelled else ("hidden_at", "hidden_by", "queued_at")
