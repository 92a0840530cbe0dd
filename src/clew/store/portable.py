"""A portable session read out of a store, and the writes that put one into a store."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import msgspec

from clew.errors import RowUndecodable, SessionNotFound
from clew.long_work import run_long
from clew.store import unit as u
from clew.store.base import Store, Whole
from clew.transcript.message import MessageRow
from clew.transcript.metadata import merge
from clew.transcript.portable import Blob, PortableSession, Prompt, Queued, in_order, named_blobs, tree_of
from clew.transcript.projection import Hidden, hidden_messages, kept_tails_of
from clew.transcript.rollup import book_message
from clew.transcript.turn import Step
from clew.transcript.turn_state import OPEN, START

__all__ = ["load_portable", "plan_insert", "plan_rows"]

log = logging.getLogger("clew.store")


async def load_portable(store: Store, session_id: str, *, keep_damaged: bool = False) -> PortableSession:
    """The session as it is at this moment. Only reads.

    What is damaged raises :class:`RowUndecodable`; with ``keep_damaged`` a message says so itself, and a prompt or a
    file is left out like one that is gone, and named in the log.
    """
    whole = await store.find_whole(session_id)
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
            # An import may name a file of somebody else's, and has it not by that.
            blob = await store.find_blob(sha256, whole.session.owner)
            blobs += [blob] if blob is not None else []
        except RowUndecodable as error:
            _leave_out(error, keep_damaged)
    project = whole.session.project
    rules = tuple(await store.load_project_rules(project)) if project is not None else ()
    epoch = (await store.load_state(session_id)).epoch
    return await run_long(_portable, whole, tuple(prompts), tuple(blobs), epoch, rules)


def _portable(
    whole: Whole, prompts: tuple[Prompt, ...], blobs: tuple[Blob, ...], epoch: int, rules: tuple[dict[str, Any], ...]
) -> PortableSession:
    tree, known = whole.tree, {row.id for row in whole.messages}
    turns = sorted(tree.turns.values(), key=lambda turn: turn.depth)
    steps: dict[str, list[Step]] = {}
    for step in whole.steps:
        steps.setdefault(step.turn_id, []).append(step)
    # Older versions left settled messages without a seal; they get their first where they are written next.
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


def plan_insert(portable: PortableSession, now: int) -> tuple[u.Write, ...]:
    """The writes that make a session of this one. Its sums are those from before its steps, which are booked anew."""
    tree, rows = tree_of(portable), {row.id: row for row in portable.messages}
    writes: list[u.Write] = [u.InsertSession(msgspec.structs.replace(portable.session, head_turn_id=None))]
    writes += plan_rows(portable, now)
    hidden: dict[str, Hidden | None] = dict(hidden_messages(tree, kept_tails_of(tree, rows)))
    if hidden:
        writes.append(u.SetHidden(hidden))
    return (*writes, u.SetEpoch(portable.epoch)) if portable.epoch else tuple(writes)


def plan_rows(portable: PortableSession, now: int) -> list[u.Write]:
    """The writes that add all of this to a session that is there, but for what they hide."""
    session, tree = portable.session, tree_of(portable)
    rows = {row.id: row for row in portable.messages}
    writes: list[u.Write] = [u.PutPrompt(prompt.digest, prompt.body, now) for prompt in portable.prompts]
    writes += [u.PutBlob(blob.sha256, blob.media_type, blob.data, now) for blob in portable.blobs]
    if portable.rules and session.project is not None:
        writes.append(u.PutProjectRules(session.project, portable.rules, now))
    for row in rows.values():
        # What other writes set, they set: the queue, the projections, the steps.
        bare = msgspec.structs.replace(row, metadata=merge(row.metadata, {}, (*_set_by_writes(row), "usage")))
        writes.append(u.InsertMessage(bare))
        if row.id in portable.seals:
            writes.append(u.SealMessage(row.id, row.seal))
    for turn in tree.turns.values():
        if turn.status in START:
            writes.append(u.OpenTurn(turn))
        else:  # no turn begins as refused
            writes.append(u.OpenTurn(msgspec.structs.replace(turn, status="running", settled_at=None)))
            writes.append(u.SetTurn(turn.id, turn.status, settled_at=turn.settled_at))
        writes += [u.LinkMessage(turn.id, id_) for id_ in tree.links.get(turn.id, ()) if id_ in rows]
    writes += _book_steps(portable)
    writes += [u.PutCall(call) for call in portable.calls]
    writes += [u.MoveHead(move.to_turn_id, move.at, move.why) for move in portable.moves]
    # One write for each prune: its number is the store's to give, and they are without gaps.
    for seq in sorted({one.seq for one in portable.prunes}):
        writes.append(u.AddPruned(tuple(one for one in portable.prunes if one.seq == seq)))
    return writes + [u.Enqueue(entry.message_id, entry.queued_at, entry.interrupt) for entry in portable.queue]


def _book_steps(portable: PortableSession) -> Iterator[u.Write]:
    """The steps in the order they ended.

    A step notes its model, its prompt and its usage on its message; one that says otherwise is given its word back.
    """
    booked: dict[str, dict[str, Any]] = {
        row.id: merge(row.metadata, {}, (*_set_by_writes(row), "usage")) for row in portable.messages
    }
    known_at = {row.id: row.updated_at for row in portable.messages}
    for step in sorted(portable.steps, key=lambda step: step.finished_at):
        booked[step.message_id] = book_message(booked[step.message_id], step)
        # A message knows when its model call ended, and not by itself when the tools of the step had.
        ended_at = min(step.finished_at, known_at[step.message_id])
        yield u.BookStep(msgspec.structs.replace(step, finished_at=ended_at))
        if ended_at != step.finished_at:
            yield u.FinishStep(step.turn_id, step.index, step.finished_at)
    for row in portable.messages:
        noted, wanted = booked[row.id], merge(row.metadata, {}, _set_by_writes(row))
        if noted != wanted:
            yield u.PatchMessage(row.id, row.updated_at, wanted, tuple(key for key in noted if key not in wanted))


def _set_by_writes(row: MessageRow) -> tuple[str, ...]:
    """Keys that other writes set. A cancelled message is in no turn: that it is hidden, it says itself."""
    return ("queued_at",) if row.is_cancelled else ("hidden_at", "hidden_by", "queued_at")
