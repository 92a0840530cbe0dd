"""Converting: every session of one store written into another, under ids of that store's kind, and compared.

A session is one unit, so it arrives whole or not at all. Nothing is settled or left out on the way: rewound turns, the
queue, rules, prunes and requests that wait for a human come along. Only session ids change, and where the target knows
the others already, they do too; whatever names one names the new one. The source is only read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import fsum, isclose
from typing import Any, Final

import msgspec

from clew.errors import InternalError, RowUndecodable, SessionNotFound, StoreError
from clew.history.carried import ORIGIN_KEY, Carried, digests, remapped, renamed, renamed_part
from clew.history.views import View, load_messages
from clew.ids import Mint
from clew.runtime.recovery import recover
from clew.store import unit as u
from clew.store.base import Damage, Store
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.metadata import merged
from clew.transcript.project import Hidden, project, tails_of
from clew.transcript.seal import seal_of
from clew.transcript.session import Session
from clew.transcript.turn import Step, Tree, Turn
from clew.transcript.turn_state import OPEN, START
from clew.transcript.usage import Usage

__all__ = ["ORIGIN_KEY", "Conversion", "Moved", "convert"]

_BLOB: Final = re.compile("/api/blobs/([0-9a-f]{64})", re.ASCII)
_VIEWS: Final[tuple[View, ...]] = ("visible", "model", "all")
_SET_BY_WRITES: Final = ("hidden_at", "hidden_by", "queued_at")
replace = msgspec.structs.replace


class Moved(msgspec.Struct, frozen=True):
    """A session and what it is called in the target."""

    session_id: str
    as_id: str


class Conversion(msgspec.Struct, frozen=True):
    """What was written, which sessions had been written before, and which do not read and were left."""

    moved: tuple[Moved, ...]
    known: tuple[Moved, ...]
    damaged: tuple[Damage, ...] = ()


async def convert(source: Store, target: Store, mint: Mint, now: int) -> Conversion:
    """Write every session of the source into the target, and compare what the two then show."""
    origin = source.url.partition(":")[0]
    known = await _known(target)
    rows = [session for id_ in await source.session_ids() if (session := await source.find_session(id_)) is not None]
    rows.sort(key=lambda session: (session.created_at, session.id))
    names: dict[str, str] = {}
    for session in rows:
        here = known.get(session.id)
        names[session.id] = here if here is not None else await _name(target, session.id, mint)
    moved: list[Moved] = []
    damaged: list[Damage] = []
    for session in rows:
        if session.id not in known:
            try:
                given = await _load(source, session.id, now)
            except RowUndecodable as error:
                damaged.append(Damage(str(error), session.id))
                continue
            if given.whole.damaged:
                damaged.append(given.whole.damaged[0])
                continue
            # A branch, which comes after its parent, names what is the parent's by what it is called now.
            names |= await _move(source, target, given, names, origin, mint, now)
            moved.append(Moved(session.id, names[session.id]))
    # A turn that a dead process left is settled there as it would have been here.
    await recover(target, mint, now)
    return Conversion(
        tuple(moved), tuple(Moved(old, new) for old, new in known.items() if old in names), tuple(damaged)
    )


async def _known(target: Store) -> dict[str, str]:
    """The sessions of the target that came from somewhere else, by what they were called there."""
    found: dict[str, str] = {}
    for id_ in await target.session_ids():
        session = await target.find_session(id_)
        came = session.metadata.get(ORIGIN_KEY) if session is not None else None
        if isinstance(came, dict) and isinstance(came.get("session_id"), str):
            found[came["session_id"]] = id_
    return found


async def _name(target: Store, session_id: str, mint: Mint) -> str:
    form = target.capabilities.session_ids
    if form.value.fullmatch(session_id) and await target.find_session(session_id) is None:
        return session_id
    return mint.session(form)


async def _move(
    source: Store, target: Store, given: Carried, names: Mapping[str, str], origin: str, mint: Mint, now: int
) -> dict[str, str]:
    """Write one session and compare; what everything of it is called now."""
    session_id = given.whole.session.id
    turns = given.whole.tree.turns
    taken = [turn_id for turn_id in turns if await target.find_turn(turn_id) is not None]
    own = dict(names)
    if taken:
        own |= {turn_id: mint.turn() for turn_id in turns}
        own |= {row.id: mint.message() for row in given.whole.messages}
    own |= digests(given, own[session_id])
    came = {"store": origin, "session_id": session_id, "at": now}
    written = renamed(given, own, came, mint, new_parts=bool(taken), form=target.capabilities.session_ids.value)
    outcome = await target.commit(_plan(written))
    if isinstance(outcome, u.Refused):
        raise InternalError(f"a converted session was refused: {outcome.reason}", session_id=session_id)
    wrong = await _differences(source, target, given, written, own)
    if wrong:
        await target.commit(u.Unit(own[session_id], (u.DeleteSession(),), sync="power"))
        raise StoreError(f"the copy of session {session_id} differs in {', '.join(wrong)}; it was taken back")
    return own


# Reading


async def _load(store: Store, session_id: str, now: int) -> Carried:
    whole = await store.load_whole(session_id)
    if whole is None:
        raise SessionNotFound(f"there is no session {session_id}", session_id=session_id)
    steps = [step for turn_id in whole.tree.turns for step in await store.load_steps(turn_id)]
    named = {digest for step in steps for digest in step.prompts}
    prompts = {digest: await store.find_prompt(digest) for digest in sorted(named)}
    urls = [part.data.get("url") for row in whole.messages for part in row.parts if part.type == "file"]
    shas = {found[1] for url in urls if isinstance(url, str) and (found := _BLOB.fullmatch(url))}
    blobs = [await store.find_blob(sha) for sha in sorted(shas)]
    project = whole.session.workspace_root
    rules = await store.load_project_rules(project) if project is not None else ()
    return Carried(
        whole,
        await store.load_state(session_id),
        tuple(sorted(steps, key=lambda step: (step.finished_at, step.index))),
        {digest: body for digest, body in prompts.items() if body is not None},
        tuple(u.PutBlob(blob.sha256, blob.media_type, blob.data, now) for blob in blobs if blob is not None),
        (u.PutProjectRules(project, tuple(rules), now),) if project is not None and rules else (),
    )


# The unit


def _plan(given: Carried) -> u.Unit:
    whole, tree = given.whole, given.whole.tree
    rows = {row.id: row for row in whole.messages}
    at = whole.session.updated_at
    writes: list[u.Write] = [u.InsertSession(_unbooked(whole.session, given.steps))]
    writes += [u.PutPrompt(digest, body, at) for digest, body in given.prompts.items()]
    writes += given.blobs
    writes += given.rules
    over = {id_ for turn in tree.turns.values() if turn.status not in OPEN for id_ in tree.links.get(turn.id, ())}
    for row in rows.values():
        writes.append(u.InsertMessage(replace(row, metadata=merged(row.metadata, {}, (*_SET_BY_WRITES, "usage")))))
        # All of it was held against its seals when it was read; what older versions left without one gets its first.
        if row.id in whole.seals or row.id in over:
            writes.append(u.SealMessage(row.id, seal_of(part.data for part in row.parts)))
    for turn in tree.turns.values():
        writes += _turn_writes(turn)
        writes += [
            u.LinkMessage(turn.id, message_id) for message_id in tree.links.get(turn.id, ()) if message_id in rows
        ]
    writes += [u.EndStep(step) for step in given.steps if step.message_id in rows]
    writes += [_as_it_was(row) for row in rows.values()]
    writes += [u.MoveHead(move.to_turn_id, move.at, move.why) for move in tree.moves]
    for seq in sorted({one.seq for one in whole.pruned}):
        writes.append(u.AddPruned(tuple(one for one in whole.pruned if one.seq == seq)))
    writes += [u.Enqueue(entry.message.id, entry.queued_at, entry.interrupt) for entry in whole.queue]
    hidden: dict[str, Hidden | None] = dict(project(tree, tails_of(tree, rows)))
    if hidden:
        writes.append(u.SetHidden(hidden))
    writes.append(u.SetEpoch(given.state.epoch))
    return u.Unit(whole.session.id, tuple(writes), sync="power")


def _unbooked(session: Session, steps: Sequence[Step]) -> Session:
    """The row before its steps are booked: what they will add is not in it yet."""
    used = sum((step.usage for step in steps), Usage())
    cost = fsum(step.cost_usd for step in steps)
    return replace(
        session,
        head_turn_id=None,
        prompt_tokens=session.prompt_tokens - used.input,
        completion_tokens=session.completion_tokens - used.output,
        reasoning_tokens=session.reasoning_tokens - used.reasoning,
        cache_read=session.cache_read - used.cache_read,
        cache_write=session.cache_write - used.cache_write,
        total_tokens=session.total_tokens - used.total,
        cost_usd=0.0 if isclose(cost, session.cost_usd, abs_tol=1e-9) else session.cost_usd - cost,
    )


def _turn_writes(turn: Turn) -> Iterator[u.Write]:
    if turn.status in START:
        yield u.OpenTurn(turn)
    else:
        yield u.OpenTurn(replace(turn, status="running", settled_at=None))
        yield u.SetTurn(turn.id, turn.status, settled_at=turn.settled_at)


def _as_it_was(row: MessageRow) -> u.PatchMessage:
    """Steps note their model, prompt and usage on a message; this gives it its own word back."""
    wanted = merged(row.metadata, {}, _SET_BY_WRITES)
    drop = tuple(key for key in ("usage", "model", "system_prompt_digest") if key not in wanted)
    return u.PatchMessage(row.id, row.updated_at, wanted, drop)


# The proof


async def _differences(
    source: Store, target: Store, given: Carried, written: Carried, names: Mapping[str, str]
) -> list[str]:
    """What the target shows otherwise than the source: view by view, then everything that no view shows."""
    old, new = given.whole.session.id, written.whole.session.id
    wrong = []
    for view in _VIEWS:
        before = _shown(await load_messages(source, old, view, None, None), names)
        if before != _shown(await load_messages(target, new, view, None, None), {}):
            wrong.append(f"the view {view}")
    stored = await _load(target, new, 0)
    wrong += [name for name, same in _compared(written, stored) if not same]
    return wrong


def _shown(messages: Sequence[Any], names: Mapping[str, str]) -> list[Any]:
    return [
        (
            remapped(message.id.removesuffix("-boundary"), names),
            message.role,
            [renamed_part(PartRow("", 0, part, 0, 0), names) for part in message.parts],
            remapped(message.metadata, names),
        )
        for message in messages
    ]


def _compared(written: Carried, stored: Carried) -> Iterator[tuple[str, bool]]:
    ours, theirs = written.whole, stored.whole
    cost = isclose(ours.session.cost_usd, theirs.session.cost_usd, abs_tol=1e-9)
    yield "the session", cost and replace(ours.session, cost_usd=0.0) == replace(theirs.session, cost_usd=0.0)
    yield "the messages", {row.id: row for row in ours.messages} == {row.id: row for row in theirs.messages}
    yield "the turns", dict(ours.tree.turns) == dict(theirs.tree.turns)
    yield "the links", _held(ours.tree) == _held(theirs.tree)
    yield "the reflog", (ours.tree.moves, ours.tree.head_turn_id) == (theirs.tree.moves, theirs.tree.head_turn_id)
    yield "the open turn", ours.tree.open_turn_id == theirs.tree.open_turn_id
    yield "the queue", ours.queue == theirs.queue
    yield "the seals", set(ours.seals) <= set(theirs.seals)
    yield "the prunes", ours.pruned == theirs.pruned
    yield "the steps", _by_turn(written.steps) == _by_turn(stored.steps)
    yield "the prompts", written.prompts == stored.prompts
    yield "the blobs", [(b.sha256, b.data) for b in written.blobs] == [(b.sha256, b.data) for b in stored.blobs]
    yield "the rules", [rule.rules for rule in written.rules] == [rule.rules for rule in stored.rules]
    yield "the run", written.state == stored.state
    yield "what reads", not theirs.damaged


def _held(tree: Tree) -> dict[str, tuple[str, ...]]:
    return {turn_id: held for turn_id, held in tree.links.items() if held}


def _by_turn(steps: Sequence[Step]) -> list[Step]:
    return sorted(steps, key=lambda step: (step.turn_id, step.index))
