"""Transfer: a session taken out of a store as a document, and a document written into one as a session.

An import is one unit: the session arrives whole or not at all. Ids are kept when all of them are free here, so that a
session that comes back is the same; otherwise all are new. Sums and projections are worked out anew, nothing that was
open goes on, and no permission comes along.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from clew.compaction.policy import policy_for
from clew.errors import InternalError, InvalidInput, RowUndecodable, SessionNotFound
from clew.interop.arrival import renamed, settled
from clew.interop.document import BlobRecord, MoveRecord, PromptRecord, QueuedRecord, SessionDocument
from clew.interop.rows import message_record, rows_of, session_record, tree_of, turn_record
from clew.interop.soundness import check_document
from clew.live.base import Event
from clew.runtime.host import Host
from clew.store import unit as u
from clew.store.base import Store, Whole, get_session
from clew.transcript.message import MessageRow
from clew.transcript.metadata import DAMAGED, SNAPSHOT_KEY, STORE_KEYS, VIEW_KEYS
from clew.transcript.project import Hidden, project, tails_of
from clew.transcript.pruned import Pruned
from clew.transcript.rollup import booked_message
from clew.transcript.seal import seal_of
from clew.transcript.session import Session
from clew.transcript.turn import Step, Turn
from clew.transcript.turn_state import START

__all__ = ["export_document", "import_document", "plan_import"]

T = TypeVar("T")

log = logging.getLogger("clew.history")

_BLOB: Final = re.compile("/api/blobs/([0-9a-f]{64})", re.ASCII)
_WORKED_OUT: Final = (VIEW_KEYS | STORE_KEYS | {SNAPSHOT_KEY}) - {DAMAGED}
"""Message metadata that a document is not believed: the writes of the unit set it, or a view does."""


# Out


async def export_document(store: Store, session_id: str, now: int) -> SessionDocument:
    """The session as it is at this moment, whole, secrets and all. Only reads."""
    whole = await store.load_whole(session_id)
    if whole is None:
        raise SessionNotFound(f"there is no session {session_id}", session_id=session_id)
    turns = sorted(whole.tree.turns.values(), key=lambda turn: (turn.depth, turn.created_at, turn.id))
    known = {row.id for row in whole.messages}
    steps = [step for turn in turns for step in await store.load_steps(turn.id) if step.message_id in known]
    numbers = {seq: place for place, seq in enumerate(sorted({one.seq for one in whole.pruned}), start=1)}
    return SessionDocument(
        exported_at=now,
        session=session_record(whole.session),
        turns=tuple(turn_record(turn, whole.tree.links.get(turn.id, ())) for turn in turns),
        messages=tuple(message_record(row, without=SNAPSHOT_KEY) for row in whole.messages),
        steps=tuple(_renumbered(step, numbers) for step in steps),
        moves=tuple(MoveRecord(move.to_turn_id, move.at, move.why) for move in whole.tree.moves),
        prunes=tuple(msgspec.structs.replace(one, seq=numbers[one.seq]) for one in whole.pruned),
        prompts=await _load_prompts(store, steps),
        blobs=await _load_blobs(store, whole),
        queue=tuple(QueuedRecord(entry.message.id, entry.queued_at, entry.interrupt) for entry in whole.queue),
    )


def _renumbered(step: Step, numbers: Mapping[int, int]) -> Step:
    """The step with the prune it was sent under as the document counts them. A branch's prunes have gaps."""
    view = step.data.get("view")
    if not (isinstance(view, list) and len(view) > 1 and isinstance(view[1], int)):
        return step
    newest = max((place for seq, place in numbers.items() if seq <= view[1]), default=0)
    return msgspec.structs.replace(step, data={**step.data, "view": [view[0], newest, *view[2:]]})


async def _load_prompts(store: Store, steps: list[Step]) -> tuple[PromptRecord, ...]:
    found = {digest: await _sound(store.find_prompt(digest)) for step in steps for digest in step.prompts}
    return tuple(PromptRecord(digest, body) for digest, body in sorted(found.items()) if body is not None)


async def _load_blobs(store: Store, whole: Whole) -> tuple[BlobRecord, ...]:
    found = [await _sound(store.find_blob(sha256)) for sha256 in sorted(_blobs_of(whole.messages))]
    return tuple(BlobRecord(blob.sha256, blob.media_type, blob.data) for blob in found if blob is not None)


async def _sound(looked_up: Awaitable[T | None]) -> T | None:
    """What is kept under a digest; what is damaged is left out like what is gone, and named in the log."""
    try:
        return await looked_up
    except RowUndecodable as error:
        log.error("left out of an export: %s", error)
        return None


def _blobs_of(rows: tuple[MessageRow, ...]) -> set[str]:
    """The digests that file parts name."""
    urls = [part.data.get("url") for row in rows for part in row.parts if part.type == "file"]
    return {named[1] for url in urls if isinstance(url, str) and (named := _BLOB.fullmatch(url))}


# In


async def import_document(host: Host, document: SessionDocument, workspace: Path | None = None) -> Session:
    """Write the document as a session of this host's store; what it became.

    It works in ``workspace``, never in the folder it names: what waits in its queue would be run there, by the
    rules of that project, for whoever wrote the document.

    The document is checked again: whoever hands it over may have made it by other means than by parsing.
    """
    check_document(document)
    if document.session.metadata.get("compaction") is not None:
        policy_for(host.config.compaction, host.config.pruning, document.session.metadata["compaction"])
    store, now = host.store, host.clock.now_ms()
    arriving = settled(document, now, host.mint)
    session = await _session_here(host, arriving, workspace, now)
    links = await _links_here(store, arriving)
    outcome: u.Outcome | None = None
    if await _is_free(store, arriving):
        try:
            outcome = await store.commit(plan_import(arriving, session, now, links))
        except InternalError:
            # A message or a part of another session has one of these ids; nothing was written.
            outcome = None
    if not isinstance(outcome, u.Committed):
        arriving = renamed(arriving, host.mint.session(store.capabilities.session_ids), host.mint)
        session = msgspec.structs.replace(session, id=arriving.session.id)
        outcome = await store.commit(plan_import(arriving, session, now, links))
    if isinstance(outcome, u.Refused):
        raise InternalError(f"an import was refused: {outcome.reason}", session_id=session.id)
    imported = await get_session(store, session.id)
    host.live.publish(Event("session_created", {"session_id": imported.id}))
    host.hooks.observe("session_create", imported)
    return imported


async def _is_free(store: Store, document: SessionDocument) -> bool:
    """Whether this store could know the session by the names it has. Messages are found out about by the commit."""
    session_id = document.session.id
    if not store.capabilities.session_ids.value.fullmatch(session_id):
        return False
    if await store.find_session(session_id) is not None:
        return False
    for turn in document.turns:
        if await store.find_turn(turn.id) is not None:
            return False
    return True


async def _session_here(host: Host, document: SessionDocument, workspace: Path | None, now: int) -> Session:
    """The session row as it will be, but for its sums: what this host does not have is noted, not believed."""
    record = document.session
    metadata = dict(record.metadata)
    came: dict[str, Any] = {
        "session_id": record.id,
        "exported_at": document.exported_at,
        "exporter": document.exporter,
        "at": now,
    }
    if record.workspace_root is not None and record.workspace_root != str(workspace):
        metadata["workspace_was"] = record.workspace_root
    catalog = await asyncio.to_thread(host.agents, workspace)
    agent = record.agent
    try:
        agent = catalog.get(record.agent).name
    except InvalidInput:
        agent = catalog.get(host.config.default_agent).name
        metadata["agent_was"] = record.agent
    parent = record.parent_id
    if parent is not None and not await _may_descend(host.store, record.id, parent):
        came["parent_id"] = parent
        parent = None
    return Session(
        id=record.id,
        agent=agent,
        model=record.model,
        created_at=record.created_at,
        updated_at=record.updated_at,
        workspace_root=str(workspace) if workspace is not None else None,
        parent_id=parent,
        parent_message_id=record.parent_message_id if parent is not None else None,
        metadata={**metadata, "imported_from": came},
        archived_at=record.archived_at,
    )


async def _may_descend(store: Store, session_id: str, parent_id: str) -> bool:
    """Whether the parent could be one here, and nobody above it descends from the session itself.

    Rules are looked for upwards and deleting goes downwards; in a circle neither would end.
    """
    if not store.capabilities.session_ids.value.fullmatch(parent_id):
        return False
    seen = {session_id}
    at: str | None = parent_id
    while at is not None:
        if at in seen:
            return False
        seen.add(at)
        above = await store.find_session(at)
        at = above.parent_id if above is not None else None
    return True


async def _links_here(store: Store, document: SessionDocument) -> tuple[u.LinkBlob, ...]:
    """Files that the document names and does not bring, and that are here: they must stay as long as it does."""
    missing = _blobs_of(tuple(rows_of(document).values())) - {blob.sha256 for blob in document.blobs}
    return tuple([u.LinkBlob(sha256) for sha256 in sorted(missing) if await store.find_blob(sha256) is not None])


# The unit


def plan_import(document: SessionDocument, session: Session, now: int, links: tuple[u.LinkBlob, ...] = ()) -> u.Unit:
    """The unit that writes a settled document as this session."""
    rows = {
        id_: msgspec.structs.replace(row, session_id=session.id, metadata=_believed(row.metadata))
        for id_, row in rows_of(document).items()
    }
    writes: list[u.Write] = [u.InsertSession(session)]
    writes += [u.PutPrompt(prompt.digest, prompt.body, now) for prompt in document.prompts]
    writes += [u.PutBlob(blob.sha256, blob.media_type, blob.data, now) for blob in document.blobs]
    writes += links
    writes += _message_writes(rows)
    tree = tree_of(document)
    for turn in tree.turns.values():
        writes += _turn_writes(msgspec.structs.replace(turn, session_id=session.id))
        writes += [u.LinkMessage(turn.id, message_id) for message_id in tree.links[turn.id]]
    writes += _step_writes(document, rows)
    writes += [u.MoveHead(move.to_turn_id, move.at, move.why) for move in document.moves]
    writes += _prune_writes(document.prunes)
    writes += [u.Enqueue(entry.message_id, entry.queued_at, entry.interrupt) for entry in document.queue]
    hidden: dict[str, Hidden | None] = dict(project(tree, tails_of(tree, rows)))
    if hidden:
        writes.append(u.SetHidden(hidden))
    return u.Unit(session.id, tuple(writes), sync="power")


def _believed(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if key not in _WORKED_OUT}


def _message_writes(rows: Mapping[str, MessageRow]) -> Iterator[u.Write]:
    for row in rows.values():
        yield u.InsertMessage(row)
        yield u.SealMessage(row.id, seal_of(part.data for part in row.parts))


def _turn_writes(turn: Turn) -> Iterator[u.Write]:
    if turn.status in START:
        yield u.OpenTurn(turn)
    else:  # no turn begins as refused
        yield u.OpenTurn(msgspec.structs.replace(turn, status="running", settled_at=None))
        yield u.SetTurn(turn.id, turn.status, settled_at=turn.settled_at)


def _step_writes(document: SessionDocument, rows: Mapping[str, MessageRow]) -> Iterator[u.Write]:
    """The steps in the order they ended, which book what was used.

    A step also notes its model and its prompt on its message. A message that says otherwise is given its word back.
    """
    booked: dict[str, dict[str, Any]] = {}
    for step in sorted(document.steps, key=lambda step: step.finished_at):
        booked[step.message_id] = booked_message(booked.get(step.message_id, rows[step.message_id].metadata), step)
        yield u.EndStep(step)
    for message_id, noted in booked.items():
        row = rows[message_id]
        wanted = {**row.metadata, "usage": noted["usage"]}
        if noted != wanted:
            yield u.PatchMessage(message_id, row.updated_at, wanted, tuple(key for key in noted if key not in wanted))


def _prune_writes(prunes: tuple[Pruned, ...]) -> Iterator[u.Write]:
    """One write for each prune: its number is the store's to give, and they are without gaps."""
    groups: dict[int, list[Pruned]] = {}
    for one in prunes:
        groups.setdefault(one.seq, []).append(one)
    for seq in sorted(groups):
        yield u.AddPruned(tuple(groups[seq]))
