"""The store check: verifies that everything in a store is consistent, and rebuilds derived data that is not.

Derived values are never trusted: sums are added up again, projections are rebuilt from the tree, seals are recomputed,
and acknowledged streams must be stored completely and in order.

Opening a store for writing has already folded and settled what a dead process left. A repair rebuilds the projections
of every session, which follow from its tree, and accepts turns whose row is partly unreadable without that part. Text
is never changed; only the user can accept a damaged message, and that is recorded with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from clew.errors import ClewError, Conflict, IllegalChunk, MessageNotFound
from clew.long_work import let_go, run_long
from clew.session.history.lookup import get_named
from clew.store.base import FullSession, QueuedMessage, Store
from clew.store.unit import PatchMessage, PutParts, SealMessage, SetHidden, SetTurn, Unit, Write
from clew.transcript.chunk import Chunk
from clew.transcript.damage import CHANGED, DAMAGE_ACCEPTED, DAMAGED, DAMAGED_PART
from clew.transcript.fold import Fold
from clew.transcript.fold_part import continues
from clew.transcript.message import MessageRow
from clew.transcript.metadata import projection_of
from clew.transcript.model_call import sum_usage
from clew.transcript.part import blob_of, output_text
from clew.transcript.projection import Hidden, compaction_tails, hidden_messages
from clew.transcript.pruned import Pruned
from clew.transcript.spend import UsageQuery
from clew.transcript.tool_state import TOOL_STATES
from clew.transcript.turn import Tree
from clew.transcript.turn_state import OPEN

__all__ = ["Problem", "check", "plan_accept", "repair", "wrong_projections"]

Finding = tuple[str, str | None]
"""A problem in a session, and the id of the damaged item."""


class Problem(msgspec.Struct, frozen=True):
    """A problem found in a store, and where."""

    what: str
    session_id: str | None = None
    id: str | None = None

    def __str__(self) -> str:
        position = " ".join(filter(None, (self.session_id, self.id)))
        return f"{position}: {self.what}" if position else self.what


async def check(store: Store, acknowledged: Mapping[str, Sequence[Chunk]] | None = None) -> list[Problem]:
    """Return every problem found; empty if there are none.

    ``acknowledged`` has the chunks shown to clients, by message: all of them must be stored.
    """
    stored: dict[str, MessageRow] = {}
    problems: list[Problem] = []
    session_ids: Sequence[str] = ()
    try:
        problems += [Problem(damage.what, damage.session_id, damage.id) for damage in await store.verify()]
        session_ids = await store.session_ids()
        problems += await _check_calls(store, session_ids)
    except ClewError as error:
        problems.append(Problem(str(error)))
    blobs: dict[str, str | None] = {}
    for session_id in session_ids:
        try:
            found = await _check_session(store, session_id, acknowledged or {}, stored, blobs)
            problems += [problem for problem in found if problem not in problems]
        except ClewError as error:
            named = (error.ids[key] for key in ("part_id", "message_id", "turn_id") if key in error.ids)
            problems.append(Problem(str(error), session_id, next((str(id_) for id_ in named), None)))
    for message_id, chunks in (acknowledged or {}).items():
        problems += _check_acknowledged(stored.get(message_id), message_id, chunks)
    return problems


async def _check_calls(store: Store, session_ids: Sequence[str]) -> list[Problem]:
    """Find model calls that name a session that does not exist; those of deleted sessions name none."""

    async def named() -> set[str]:
        return {group.key for group in await store.load_usage(UsageQuery("session")) if group.key is not None}

    if not await named() - set(session_ids):
        return []
    # Read again: sessions may have been created or deleted since they were listed.
    lost = [session_id for session_id in sorted(await named()) if await store.find_session(session_id) is None]
    return [Problem("model calls name a session that does not exist", session_id) for session_id in lost]


async def _check_session(
    store: Store,
    session_id: str,
    shown: Collection[str],
    stored: dict[str, MessageRow],
    blobs: dict[str, str | None],
) -> list[Problem]:
    whole = await store.find_full_session(session_id)
    if whole is None:
        return []  # deleted since it was listed
    if shown:
        stored.update({row.id: row for row in whole.messages if row.id in shown})
    found, named = await run_long(lambda: (_check_full_session(whole), _named_blobs(whole.messages)))
    found += await _check_blobs(store, named, blobs)
    let_go(whole.messages, whole.tree.turns.values(), whole.steps)
    problems = [Problem(damage.what, session_id, damage.id) for damage in whole.damaged]
    problems += [Problem(what, session_id, id_) for what, id_ in found]
    return list(dict.fromkeys(problems))


def _check_full_session(whole: FullSession) -> list[Finding]:
    messages = {row.id: row for row in whole.messages}
    found: list[Finding] = []
    found += _check_messages(messages, whole.seals)
    found += _check_changed_later(whole, messages)
    found += (broken := list(_check_tree(whole.tree, messages)))
    found += [(f"its row is damaged: {turn.damage}", turn.id) for turn in whole.tree.turns.values() if turn.damage]
    found += _check_moves(whole.tree)
    found += _check_membership(whole.tree, messages, whole.queue, whole.seals)
    if not broken:  # no projections follow from a broken tree
        for id_, hidden in wrong_projections(whole.tree, messages).items():
            written = projection_of(messages[id_].metadata)
            expected = (hidden.at, hidden.by) if hidden else (None, None)
            found.append((f"hidden_at and hidden_by are {written}, the tree says {expected}", id_))
    found += _check_pruned(whole.pruned, messages)
    total = sum_usage(whole.messages)
    if whole.session.usage != total:
        found.append((f"its sums are {whole.session.usage}, its messages add up to {total}", None))
    if whole.session.total_tokens != total.total:
        found.append((f"its total is {whole.session.total_tokens}, its messages add up to {total.total}", None))
    for stream in whole.pending:
        numbers = [entry.n for entry in stream.entries]
        if any(after != before + 1 for before, after in pairwise(numbers)):
            found.append((f"the journal has a gap: {numbers[:20]}", stream.message.id))
    return found


def _check_messages(messages: Mapping[str, MessageRow], seals: Mapping[str, str]) -> Iterator[Finding]:
    for row in messages.values():
        if [part.index for part in row.parts] != list(range(len(row.parts))):
            yield f"its parts are numbered {[part.index for part in row.parts]}", row.id
        for part in row.parts:
            if part.tool_state is not None and part.tool_state not in TOOL_STATES:
                yield f"a tool call is in state {part.tool_state!r}, which does not exist", part.id
        if row.damage is not None:
            yield row.damage, row.id
        elif row.id in seals and row.seal != seals[row.id]:
            yield CHANGED, row.id


def _check_changed_later(whole: FullSession, messages: Mapping[str, MessageRow]) -> Iterator[Finding]:
    """Find messages of settled turns that were changed afterwards, by whatever process."""
    ends: dict[str, int | None] = {}
    for turn in whole.tree.turns.values():
        at = None if turn.status in OPEN or turn.id == whole.tree.open_turn_id else turn.settled_at
        for message_id in whole.tree.links.get(turn.id, ()):
            before = ends.get(message_id, at)
            ends[message_id] = None if at is None or before is None else max(at, before)
    streaming = {stream.message.id for stream in whole.pending}
    for message_id, at in ends.items():
        row = messages.get(message_id)
        if at is None or row is None or row.damage is not None:
            continue
        if message_id in streaming:
            yield "it grew after its turn had settled: the journal has more of it", message_id
        elif message_id not in whole.seals and any(part.updated_at > at for part in row.parts):
            yield "it grew after its turn had settled: it was changed later", message_id


def _named_blobs(messages: Sequence[MessageRow]) -> list[tuple[str, str]]:
    """Return every file that a part names, with its message."""
    named = ((blob_of(part.data), row.id) for row in messages for part in row.parts)
    return [(sha256, message_id) for sha256, message_id in named if sha256 is not None]


async def _check_blobs(store: Store, named: Sequence[tuple[str, str]], known: dict[str, str | None]) -> list[Finding]:
    """Find files that are missing or do not match their digest. ``known`` caches earlier results."""
    found: list[Finding] = []
    for sha256, message_id in named:
        if sha256 not in known:
            try:
                is_missing = await store.find_blob(sha256) is None
                known[sha256] = f"its file {sha256} is missing" if is_missing else None
            except ClewError:
                known[sha256] = f"its file {sha256} is damaged"
        if (what := known[sha256]) is not None:
            found.append((what, message_id))
    return found


def _check_tree(tree: Tree, messages: Mapping[str, MessageRow]) -> Iterator[Finding]:
    for turn in tree.turns.values():
        parent = tree.turns.get(turn.parent_turn_id or "")
        if turn.parent_turn_id is not None and parent is None:
            yield f"its parent {turn.parent_turn_id} is missing", turn.id
        if turn.depth != (parent.depth + 1 if parent else 0):
            yield f"its depth is {turn.depth}, its parent's is {parent.depth if parent else None}", turn.id
        above = parent.compaction_turn_id if parent else None
        if turn.compaction_turn_id != (turn.id if turn.kind == "compaction" else above):
            yield f"its nearest compaction is recorded as {turn.compaction_turn_id}", turn.id
        if turn.status in OPEN and turn.id != tree.open_turn_id:
            yield f"it is {turn.status}, but the session's open turn is {tree.open_turn_id}", turn.id
        for message_id in tree.links.get(turn.id, ()):
            if message_id not in messages:
                yield f"it contains {message_id}, which is missing", turn.id
    if tree.head_turn_id is not None and tree.head_turn_id not in tree.turns:
        yield "the head points at a turn that is missing", tree.head_turn_id
    if tree.open_turn_id is None:
        return
    open_turn = tree.turns.get(tree.open_turn_id)
    if open_turn is None:
        yield "the open turn is missing", tree.open_turn_id
    elif open_turn.status not in OPEN:
        yield f"the open turn is {open_turn.status}", open_turn.id
    elif tree.head_turn_id not in (open_turn.parent_turn_id, open_turn.id):
        yield "the open turn is not below the head", open_turn.id


def _check_moves(tree: Tree) -> Iterator[Finding]:
    at: str | None = None
    for number, move in enumerate(tree.moves, start=1):
        if move.seq != number:
            yield f"head move {number} is numbered {move.seq}", move.to_turn_id
        if move.from_turn_id != at:
            yield f"head move {move.seq} starts at {move.from_turn_id}, the one before ended at {at}", move.to_turn_id
        at = move.to_turn_id
    if at != tree.head_turn_id:
        yield f"the reflog ends at {at}, the head is {tree.head_turn_id}", tree.head_turn_id


def _check_membership(
    tree: Tree, messages: Mapping[str, MessageRow], queue: Sequence[QueuedMessage], seals: Mapping[str, str]
) -> Iterator[Finding]:
    linked = {message_id for ids in tree.links.values() for message_id in ids}
    waiting = {entry.message.id: entry.queued_at for entry in queue}
    for row in messages.values():
        if row.queued_at != waiting.get(row.id):
            yield f"its queued_at is {row.queued_at}, the queue says {waiting.get(row.id)}", row.id
        if row.id in linked and row.id in waiting:
            yield "it is in a turn and in the queue", row.id
        if row.id in linked or row.id in waiting or row.is_cancelled:
            continue
        # Messages of another program are adopted once no turn is open.
        if tree.open_turn_id is None or row.id in seals:
            yield "it is in no turn and not in the queue", row.id


def wrong_projections(tree: Tree, messages: Mapping[str, MessageRow]) -> dict[str, Hidden | None]:
    """Return the messages whose ``hidden_at`` and ``hidden_by`` contradict the tree, each with the right value."""
    truth = hidden_messages(tree, compaction_tails(tree, messages))
    wrong: dict[str, Hidden | None] = {}
    for row in messages.values():
        hidden = truth.get(row.id)
        # In no turn, and hidden since its cancellation; older versions and file stores may not have recorded that.
        if row.is_cancelled:
            continue
        if projection_of(row.metadata) != ((hidden.at, hidden.by) if hidden else (None, None)):
            wrong[row.id] = hidden
    return wrong


def _check_pruned(pruned: Sequence[Pruned], messages: Mapping[str, MessageRow]) -> Iterator[Finding]:
    for prune in pruned:
        row = messages.get(prune.message_id)
        part = next((part for part in row.parts if part.index == prune.part), None) if row else None
        if part is None or output_text(part.data) is None:
            yield f"prune {prune.seq} names its part {prune.part}, which has no output", prune.message_id


def _check_acknowledged(row: MessageRow | None, message_id: str, chunks: Sequence[Chunk]) -> Iterator[Problem]:
    fold = Fold(message_id)
    try:
        for chunk in chunks:
            fold.apply(chunk)
    except IllegalChunk as error:
        yield Problem(f"the shown chunks are not a valid stream: {error}", row.session_id if row else None, message_id)
        return
    if row is None:
        if fold.part_count:
            yield Problem("it was shown but is not stored", None, message_id)
        return
    if not continues([part.data for part in row.parts], fold.parts):
        yield Problem("the stored message lacks some of what was shown", row.session_id, message_id)


async def repair(store: Store) -> list[Problem]:
    """Repair what can be repaired; return what that was, one entry per message."""
    repaired: list[Problem] = []
    for session_id in await store.session_ids():
        # A session that cannot be read at all stays as it is; the check reports why.
        with contextlib.suppress(ClewError):
            whole = await store.find_full_session(session_id)
            if whole is None or whole.damaged:
                continue
            changes = wrong_projections(whole.tree, {row.id: row for row in whole.messages})
            if changes:
                await store.commit(Unit(session_id, (SetHidden(changes),), sync="power"))
            what = "hidden_at and hidden_by were rebuilt"
            repaired += [Problem(what, session_id, message_id) for message_id in changes]
            for turn in whole.tree.turns.values():
                if turn.damage is not None:
                    # Its messages have the content. Other data of the row is lost, which is recorded.
                    accepted = {DAMAGED: None, DAMAGE_ACCEPTED: {"damage": turn.damage}}
                    await store.commit(Unit(session_id, (SetTurn(turn.id, None, data=accepted),), sync="power"))
                    repaired.append(
                        Problem(f"its row was accepted without the unreadable part: {turn.damage}", session_id, turn.id)
                    )
    return repaired


async def plan_accept(store: Store, session_id: str, message_id: str, now: int) -> tuple[MessageRow, Unit]:
    """Return the damaged message, and the unit that seals it as it is now. Unreadable parts stay marked as such."""
    try:
        rows = await get_named(store, session_id, message_id)
    except MessageNotFound as error:
        raise MessageNotFound(
            f"there is no message {message_id} in this session; a missing message cannot be accepted, only restored",
            session_id=session_id,
            message_id=message_id,
        ) from error
    row = next((row for row in rows if row.damage is not None), rows[0])
    if row.damage is None:
        raise Conflict("this message is not damaged: there is nothing to accept", message_id=row.id)
    writes: list[Write] = []
    unread = tuple(part for part in row.parts if part.type == DAMAGED_PART)
    if unread:
        writes.append(PutParts(row.id, unread))
    writes.append(SealMessage(row.id, row.seal))
    writes.append(PatchMessage(row.id, now, {DAMAGE_ACCEPTED: {"at": now, "damage": row.damage}}, (DAMAGED,)))
    return row, Unit(session_id, tuple(writes), sync="power")
