"""Export and import: a session read from a store as a portable value, and one written to a store.

An import is one unit: the session arrives completely or not at all. Ids are kept if all of them are free, so a session
that comes back is the same; otherwise all are new. Sums and projections are recomputed, nothing that was open
continues, and no permissions are imported.
"""

from __future__ import annotations

import asyncio
from math import fsum
from pathlib import Path
from typing import Any, Final

import msgspec

from clew.compaction.policy import policy_for
from clew.errors import AliasTaken, InternalError, InvalidInput
from clew.ids import Mint, SessionIdForm
from clew.interop.validate_import import check_portable
from clew.live.base import Event
from clew.long_work import let_go, run_long
from clew.session.host import Host
from clew.store.base import Store, get_session
from clew.store.portable import load_portable, plan_insert
from clew.store.unit import AliasIsFree, Committed, LinkBlob, Outcome, Refused, Unit
from clew.transcript.damage import DAMAGED
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.metadata import (
    MODE_KEY,
    PAUSED_KEY,
    STORE_KEYS,
    VIEW_KEYS,
    broken_off_usd,
    hidden_if_cancelled,
    is_estimated,
    usage_of,
)
from clew.transcript.model_call import book_usage, with_usage
from clew.transcript.packed import mapped
from clew.transcript.part import close_call, is_open_call, state_of, text_of, with_claims
from clew.transcript.portable import LEFT_BEHIND, PortableSession, for_export, named_blobs, rename_session
from clew.transcript.session import Session
from clew.transcript.turn import CHUNKS, HeadMove, Step
from clew.transcript.turn_state import OPEN
from clew.transcript.usage import Usage

__all__ = ["close_open", "export_session", "import_session"]

_DERIVED_METADATA: Final = (VIEW_KEYS | STORE_KEYS) - {DAMAGED}
"""Message metadata that is not trusted from a file: writes of the unit set it, or a view does."""
replace = msgspec.structs.replace


async def export_session(store: Store, session_id: str, now: int) -> PortableSession:
    """Return the session as it is now, complete, including secrets. Only reads."""
    return await run_long(for_export, await load_portable(store, session_id, keep_damaged=True), now)


async def import_session(
    host: Host,
    portable: PortableSession,
    workspace: Path | None = None,
    owner: str | None = None,
    *,
    alias: str | None = None,
) -> Session:
    """Write a portable session to this host's store and return it.

    It works in ``workspace``, never in the folder it names: its queued messages would run there, under the rules of
    that project, on behalf of the file's author.

    With ``alias`` it is found again by that name; raise :class:`AliasTaken` if that exists already.

    It is checked again, since the caller may not have obtained it by parsing.
    """
    await run_long(check_portable, portable)
    if portable.session.compaction is not None:
        policy_for(host.config.compaction, host.config.pruning, portable.session.compaction)
    store, mint, now = host.store, host.mint, host.clock.now_ms()
    arriving = await run_long(lambda: close_open(for_export(portable, portable.exported_at), now, mint))
    session = replace(await _session_here(host, arriving, workspace, now, owner), owner=owner, alias=alias)
    guards = () if alias is None else (AliasIsFree(alias, owner),)
    # Files that it names without including them, but that exist here, must stay as long as it does.
    named = await run_long(named_blobs, arriving.messages)
    missing = sorted(named - {blob.sha256 for blob in arriving.blobs})
    links = tuple([LinkBlob(sha256) for sha256 in missing if await store.find_blob(sha256, owner) is not None])
    outcome: Outcome | None = None
    if await _is_free(store, arriving):
        try:
            writes = await run_long(plan_insert, replace(arriving, session=session), now, links)
            outcome = await store.commit(Unit(session.id, writes, guards, sync="power"))
        except InternalError:
            # A message or part of another session has one of these ids; nothing was written.
            outcome = None
    if outcome == Refused("alias_taken"):
        raise AliasTaken("this session was already imported, concurrently")
    if not isinstance(outcome, Committed):
        arriving = await run_long(_renamed, arriving, mint, store.capabilities.session_ids)
        session = replace(session, id=arriving.session.id, head_turn_id=arriving.session.head_turn_id)
        writes = await run_long(plan_insert, replace(arriving, session=session), now, links)
        outcome = await store.commit(Unit(session.id, writes, guards, sync="power"))
    if isinstance(outcome, Refused):
        raise InternalError(f"an import was refused: {outcome.reason}", session_id=session.id)
    imported = await get_session(store, session.id)
    host.live.publish(Event("session_created", {"session_id": imported.id}))
    host.hooks.observe("session_create", imported, imported)
    let_go(arriving.turns, portable.turns, arriving.steps)
    return imported


def _renamed(arriving: PortableSession, mint: Mint, form: SessionIdForm) -> PortableSession:
    # Minted in order, so that they sort like the old ones.
    names = {row.id: mint.message() for row in arriving.messages}
    names |= {turn.id: mint.turn() for turn in arriving.turns}
    names[arriving.session.id] = mint.session(form)
    return rename_session(arriving, lambda old: names.get(old, old), mint, new_parts=True)


async def _is_free(store: Store, portable: PortableSession) -> bool:
    """Return whether the session's ids are valid and free here. Message ids are checked by the commit."""
    session_id = portable.session.id
    if not store.capabilities.session_ids.accepts_foreign_id(session_id):
        return False
    if await store.find_session(session_id) is not None:
        return False
    return not any([await store.find_turn(turn.id) is not None for turn in portable.turns])


async def _session_here(
    host: Host, portable: PortableSession, workspace: Path | None, now: int, owner: str | None
) -> Session:
    """Return the session row without its sums; what this host lacks is replaced and recorded."""
    given = portable.session
    metadata = dict(given.metadata)
    origin: dict[str, Any] = {
        "session_id": given.id,
        "exported_at": portable.exported_at,
        "exporter": portable.exporter,
        "at": now,
    }
    if given.workspace_root is not None and given.workspace_root != str(workspace):
        metadata["workspace_was"] = given.workspace_root
    if given.mode == "accept_edits":
        # No user of this host has accepted edits.
        del metadata[MODE_KEY]
    catalog = await asyncio.to_thread(host.agents, workspace, owner)
    try:
        agent = catalog.get(given.agent).name
    except InvalidInput:
        agent = catalog.get(host.choices.default_agent).name
        metadata["agent_was"] = given.agent
    if portable.queue and given.paused_by is None:
        # No user of this host has resumed the queue.
        metadata[PAUSED_KEY] = "restart"
    is_child = given.parent_id is not None and await _is_valid_parent(host.store, given.id, given.parent_id, owner)
    if given.parent_id is not None and not is_child:
        origin["parent_id"] = given.parent_id
    return replace(
        given,
        agent=agent,
        workspace_root=str(workspace) if workspace is not None else None,
        parent_id=given.parent_id if is_child else None,
        parent_message_id=given.parent_message_id if is_child else None,
        metadata={**metadata, "imported_from": origin},
    )


async def _is_valid_parent(store: Store, session_id: str, parent_id: str, owner: str | None) -> bool:
    """Return whether the parent is valid here, of the same owner, and not a descendant of the session itself.

    Rules are looked up through parents and deletion goes to children; a cycle would never end.
    """
    if not store.capabilities.session_ids.value.fullmatch(parent_id):
        return False
    parent = await store.find_session(parent_id)
    if owner != (None if parent is None else parent.owner):
        return False
    visited = {session_id}
    current_id: str | None = parent_id
    while current_id is not None:
        if current_id in visited:
            return False
        visited.add(current_id)
        above = await store.find_session(current_id)
        current_id = above.parent_id if above is not None else None
    return True


def close_open(portable: PortableSession, now: int, mint: Mint) -> PortableSession:
    """Return the session with nothing open, as its runs do not continue here: turns aborted, calls and texts ended.

    Untrusted message metadata is dropped, parts without an id get one, and every message may be sealed.
    """
    steps: dict[str, list[Step]] = {}
    for step in portable.steps:
        steps.setdefault(step.message_id, []).append(step)
    rest, broken_off = Usage(), list[float]()

    def part(row: PartRow) -> PartRow:
        row = replace(row, id=row.id or mint.part(), data=with_claims(row.data))
        if text_of(row.data, "text", "reasoning") is not None and state_of(row.data) == "streaming":
            return replace(row, data={**row.data, "state": "done"}, updated_at=now)
        return replace(row, data=close_call(row.data, LEFT_BEHIND), updated_at=now) if is_open_call(row.data) else row

    def closed(row: MessageRow) -> MessageRow:
        nonlocal rest
        used: dict[str, Any] = {}
        for step in steps.get(row.id, ()):
            used = book_usage(used, step.usage, estimated=step.is_estimated)
        metadata = {key: value for key, value in row.metadata.items() if key not in _DERIVED_METADATA}
        metadata |= used
        if row.role == "assistant" and is_estimated(row.metadata):
            # An interrupted call is no step: only its message has its usage, and that it is an estimate.
            counts = zip(*(msgspec.structs.astuple(usage_of(one)) for one in (row.metadata, metadata)), strict=True)
            beyond = Usage(*(max(reported - booked, 0) for reported, booked in counts))
            cost = broken_off_usd(row.metadata)
            metadata = book_usage(metadata, beyond, estimated=True, broken_off=cost)
            rest += beyond
            broken_off.append(cost)
        # A cancelled message is in no turn, so nothing else would hide it from other readers.
        metadata = hidden_if_cancelled(metadata)
        return replace(row, metadata=metadata, parts=tuple(part(one) for one in row.parts))

    messages = mapped(portable.messages, closed)
    turns = []
    head, moves = portable.session.head_turn_id, portable.moves
    for turn in portable.turns:
        is_open = turn.status in OPEN
        # No user of this host could answer its requests.
        data = {key: value for key, value in turn.data.items() if key != "waiting" or not (value or is_open)}
        turns.append(replace(turn, data=data))
        if is_open:
            data.pop(CHUNKS, None)
            turns[-1] = replace(turn, status="aborted", settled_at=now, data={**data, "stopped": LEFT_BEHIND})
        if is_open and head != turn.id:
            moves = (*moves, HeadMove(len(moves) + 1, turn.session_id, head, turn.id, now, "turn"))
            head = turn.id
    session = replace(portable.session, head_turn_id=head, cost_usd=fsum(broken_off))
    return replace(
        portable,
        session=with_usage(session, rest),
        turns=tuple(turns),
        messages=messages,
        moves=moves,
        seals=frozenset(row.id for row in messages),
    )
