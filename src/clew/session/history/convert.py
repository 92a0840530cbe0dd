"""Conversion: copy everything of one store into another, with session ids valid there, and compare the result.

A session is one unit, so it arrives completely or not at all. Nothing is settled or left out: rewound turns, the
queue, rules, prunes and pending requests are copied. Only session ids change and, if the target already uses the
others, those too, with every reference to them. Shared data follows (:mod:`clew.session.history.convert_shared`), and
what was skipped is reported. The source is only read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum, isclose
from pathlib import Path
from typing import Any, Final

import msgspec

from clew.errors import InternalError, RowUndecodable, StoreError
from clew.ids import Mint
from clew.session.acquire.recovery import recover
from clew.session.history.convert_shared import Skipped, Tally, carry_shared, left_behind
from clew.session.history.views import View, load_messages
from clew.store.base import Damage, Store
from clew.store.portable import load_portable, plan_insert
from clew.store.unit import DeleteSession, Refused, Unit
from clew.transcript.message import Message
from clew.transcript.part import input_of
from clew.transcript.portable import PortableSession, Rename, rename_part, rename_session, rename_value
from clew.transcript.rollup import with_usage
from clew.transcript.usage import Usage
from clew.transcript.wait import digest_call, waits_of

__all__ = ["ORIGIN_KEY", "Conversion", "ConvertedSession", "convert"]

ORIGIN_KEY: Final = "converted_from"
_VIEWS: Final[tuple[View, ...]] = ("visible", "model", "all")
replace, astuple = msgspec.structs.replace, msgspec.structs.astuple


class ConvertedSession(msgspec.Struct, frozen=True):
    """A session and its id in the target."""

    session_id: str
    as_id: str


class Conversion(msgspec.Struct, frozen=True):
    """The result of a conversion: sessions that were written, that had been written before, and that are damaged.

    ``carried`` counts shared data that was copied, by kind, ``there`` what the target already had; ``left`` lists what
    was skipped.
    """

    moved: tuple[ConvertedSession, ...]
    known: tuple[ConvertedSession, ...]
    damaged: tuple[Damage, ...] = ()
    carried: dict[str, int] = {}
    there: dict[str, int] = {}
    left: tuple[Skipped, ...] = ()


async def convert(source: Store, target: Store, mint: Mint, now: int, spill: Path | None = None) -> Conversion:
    """Copy everything of the source into the target, and compare the sessions of both.

    ``spill`` is the folder with stored tool outputs, by session id.
    """
    origin = source.url.partition(":")[0]
    known = await _known(target)
    rows = [session for id_ in await source.session_ids() if (session := await source.find_session(id_)) is not None]
    rows.sort(key=lambda session: (session.created_at, session.id))
    names: dict[str, str] = {}
    for session in rows:
        here = known.get(session.id)
        names[session.id] = here if here is not None else await _name(target, session.id, mint)
    moved: list[ConvertedSession] = []
    damaged: list[Damage] = []
    for session in rows:
        if session.id not in known:
            try:
                given = await load_portable(source, session.id)
            except RowUndecodable as error:
                id_ = error.ids.get("id")
                damaged.append(Damage(str(error), session.id, str(id_) if id_ is not None else None))
                continue
            # A branch comes after its parent and refers to it by its new id.
            names |= await _move(source, target, given, names, origin, mint, now)
            moved.append(ConvertedSession(session.id, names[session.id]))
    tally = Tally()
    await carry_shared(source, target, names, {one.session_id or "" for one in damaged}, tally, now)
    await left_behind(source, spill, [one.session_id for one in moved if one.session_id != one.as_id], tally)
    # A turn that a dead process left open is settled there as it would have been here.
    await recover(target, mint, now)
    return Conversion(
        tuple(moved),
        tuple(ConvertedSession(old, new) for old, new in known.items() if old in names),
        tuple(damaged),
        tally.carried,
        tally.known,
        tally.left(),
    )


async def _known(target: Store) -> dict[str, str]:
    """Return the sessions of the target that came from another store, by their id there."""
    found: dict[str, str] = {}
    for id_ in await target.session_ids():
        session = await target.find_session(id_)
        origin_record = session.metadata.get(ORIGIN_KEY) if session is not None else None
        if isinstance(origin_record, dict) and isinstance(origin_record.get("session_id"), str):
            found[origin_record["session_id"]] = id_
    return found


async def _name(target: Store, session_id: str, mint: Mint) -> str:
    form = target.capabilities.session_ids
    if form.accepts_foreign_id(session_id) and await target.find_session(session_id) is None:
        return session_id
    return mint.session(form)


async def _move(
    source: Store, target: Store, given: PortableSession, names: Mapping[str, str], origin: str, mint: Mint, now: int
) -> dict[str, str]:
    """Write one session and compare; return the new ids of everything in it."""
    session_id = given.session.id
    is_taken = any([await target.find_turn(turn.id) is not None for turn in given.turns])
    new_ids = dict(names)
    if is_taken:
        new_ids |= {turn.id: mint.turn() for turn in given.turns}
        new_ids |= {row.id: mint.message() for row in given.messages}
        new_ids |= {call.id: mint.call() for call in given.calls}
    new_ids |= _digests(given, new_ids[session_id])

    def rename(old: str) -> str:
        return new_ids.get(old, old)

    origin_record: dict[str, Any] = {"store": origin, "session_id": session_id, "at": now}
    session, parent = given.session, given.session.parent_id
    if parent is not None and parent not in names and not target.capabilities.session_ids.value.fullmatch(parent):
        # Its parent is gone, and its id is not valid here.
        origin_record["parent_id"] = parent
        session = replace(session, parent_id=None, parent_message_id=None)
    if given.rules and session.project is not None:
        # The rules of the target stay; a difference is reported with the rules of projects.
        given = replace(given, rules=await target.load_project_rules(session.project) or given.rules)
    written = rename_session(replace(given, session=session), rename, mint, new_parts=is_taken)
    metadata = {**written.session.metadata, ORIGIN_KEY: origin_record}
    written = replace(written, session=replace(written.session, metadata=metadata))
    outcome = await target.commit(Unit(written.session.id, plan_insert(_without_steps(written), now), sync="power"))
    if isinstance(outcome, Refused):
        raise InternalError(f"a converted session was refused: {outcome.reason}", session_id=session_id)
    wrong = await _differences(source, target, session_id, written, rename)
    if wrong:
        await target.commit(Unit(written.session.id, (DeleteSession(),), sync="power"))
        raise StoreError(f"the copy of session {session_id} differs in {', '.join(wrong)}; it was deleted again")
    return new_ids


def _digests(given: PortableSession, session_id: str) -> dict[str, str]:
    """Return the new digests that answers to pending requests are bound to; they contain the session id."""
    inputs = {part.tool_call_id: input_of(part.data) for row in given.messages for part in row.parts}
    return {
        wait.digest: digest_call(
            session_id, wait.tool_call_id, wait.tool, inputs.get(wait.tool_call_id), given.session.workspace_root
        )
        for turn in given.turns
        for wait in waits_of(turn)
    }


def _without_steps(given: PortableSession) -> PortableSession:
    """Return the session before its steps are recorded, as their writes add to its sums."""
    session = given.session
    used = sum((step.usage for step in given.steps), Usage())
    before = (was - of_steps for was, of_steps in zip(astuple(session.usage), astuple(used), strict=True))
    cost = fsum(step.cost_usd for step in given.steps)
    session = replace(
        with_usage(session, Usage(*before)),
        total_tokens=session.total_tokens - used.total,
        cost_usd=0.0 if isclose(cost, session.cost_usd, abs_tol=1e-9) else session.cost_usd - cost,
    )
    return replace(given, session=session)


# Verification


async def _differences(
    source: Store, target: Store, session_id: str, written: PortableSession, rename: Rename
) -> list[str]:
    """Return what differs between source and target: view by view, then everything that no view shows."""
    wrong = []
    for view in _VIEWS:
        before = _renamed(await load_messages(source, session_id, view, None, None), rename)
        after = _renamed(await load_messages(target, written.session.id, view, None, None), str)
        if before != after:
            wrong.append(f"the view {view}")
    try:
        stored = await load_portable(target, written.session.id)
    except RowUndecodable as error:
        return [*wrong, f"readability: {error}"]
    # A sum of fractions depends on the order of addition.
    if isclose(written.session.cost_usd, stored.session.cost_usd, abs_tol=1e-9):
        stored = replace(stored, session=replace(stored.session, cost_usd=written.session.cost_usd))
    fields = PortableSession.__struct_fields__
    return wrong + [f"its {name}" for name in fields if getattr(written, name) != getattr(stored, name)]


def _renamed(messages: Sequence[Message], rename: Rename) -> list[Any]:
    return [
        (
            rename(message.id.removesuffix("-boundary")),
            message.role,
            [rename_part(part, rename) for part in message.parts],
            rename_value(message.metadata, rename),
        )
        for message in messages
    ]
