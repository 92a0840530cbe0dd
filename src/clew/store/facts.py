"""Facts: what a unit settled, for the event log. This module alone decides which facts a unit produces, in every store.

A fact holds the current state of its subject, so a log can be read from any ``session.restated`` on, and repeating a
fact does no harm. Chunks are not facts, and a part becomes one only when it will not grow any more: when it is
complete, or its message is sealed, or its turn has settled or waits for a user. A store looks up its current state for
:func:`facts_of`, numbers the returned facts, and stores them in the same transaction as the unit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec

from clew.convert import convert
from clew.errors import InternalError
from clew.store import unit as u
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.model_call import ModelCall, without_session
from clew.transcript.part import is_growing
from clew.transcript.pruned import Pruned
from clew.transcript.session import Session
from clew.transcript.turn import HeadMove, Step, Turn
from clew.transcript.turn_state import OPEN

FactType = Literal[
    "session.created",
    "session.changed",
    "session.restated",
    "session.deleted",
    "message.added",
    "message.changed",
    "message.hidden",
    "message.queued",
    "message.dequeued",
    "part.settled",
    "turn.opened",
    "turn.changed",
    "step.ended",
    "call.noted",
    "head.moved",
    "output.pruned",
    "blob.linked",
    "prompt.kept",
    "rules.replaced",
    "log.started",
    "log.stopped",
]

ALL: Final = 2**31
"""No limit, where a number is required."""
LOG_STREAM: Final = "log"
"""Records when the log was switched on and off."""
CALL_STREAM: Final = "calls"
"""Holds model calls of deleted sessions."""
PROMPT_STREAM: Final = "prompt "
"""Prefix of the name of a prompt's stream."""
_PROJECT: Final = "project "


class Fact(msgspec.Struct, frozen=True):
    """One row of the log. ``seq`` counts the facts of its stream, which is a session, a prompt or a project."""

    stream_id: str
    seq: int
    at: int
    type: FactType
    data: dict[str, Any]


class NewFact(NamedTuple):
    """A fact without a number yet. ``once``: not added to a stream that already has a fact."""

    stream_id: str
    type: FactType
    data: dict[str, Any]
    once: bool = False


class BlobName(NamedTuple):
    """A blob without its bytes, which the log does not hold."""

    sha256: str
    media_type: str
    size: int


class SessionNames(NamedTuple):
    """The ids of everything a session holds."""

    messages: tuple[str, ...]
    turns: tuple[str, ...]
    queued: tuple[str, ...]


class Present(Protocol):
    """Reads of a session's state with the unit applied. For indexes None means all."""

    def session(self, session_id: str) -> tuple[Session, int]:
        """Return the row and the epoch."""
        ...

    def message(self, session_id: str, message_id: str) -> tuple[MessageRow, str | None]:
        """Return the message, with or without its parts, and its seal."""
        ...

    def parts(self, session_id: str, message_id: str, indexes: Collection[int] | None) -> Iterable[PartRow]: ...

    def growing(self, session_id: str, message_ids: Collection[str]) -> Iterable[tuple[str, int]]:
        """Return the parts of these messages for which :func:`is_growing` is true, as (message, index)."""
        ...

    def turn(self, session_id: str, turn_id: str) -> tuple[Turn, tuple[str, ...]]:
        """Return the turn and the ids of its messages."""
        ...

    def turns_holding(self, session_id: str, message_id: str) -> Iterable[str]: ...

    def steps(self, session_id: str, turn_id: str, indexes: Collection[int] | None) -> Iterable[Step]: ...

    def calls(self, session_id: str, ids: Collection[str] | None) -> Iterable[ModelCall]:
        """Return the model calls with these ids, of the session or of those without one (``STORE_WIDE``)."""
        ...

    def moves(self, session_id: str, count: int) -> Iterable[HeadMove]:
        """Return the newest ``count`` moves of the head, oldest first."""
        ...

    def pruned(self, session_id: str, count: int) -> Iterable[Pruned]:
        """Return the outputs of the newest ``count`` prunes."""
        ...

    def queued(self, session_id: str, message_id: str) -> u.Enqueue | None: ...

    def blobs(self, session_id: str, sha256: Collection[str] | None) -> Iterable[BlobName]: ...

    def names(self, session_id: str) -> SessionNames: ...


def is_session_stream(stream_id: str) -> bool:
    return stream_id not in (LOG_STREAM, CALL_STREAM) and not stream_id.startswith((PROMPT_STREAM, _PROJECT))


def prompt_fact(digest: str, body: str, created_at: int) -> NewFact:
    """Return the fact of a prompt, in its own stream: the prompt may outlive the session that used it first."""
    data = {"digest": digest, "body": body, "created_at": created_at}
    return NewFact(PROMPT_STREAM + digest, "prompt.kept", data, once=True)


def rules_fact(project: str, rules: Iterable[Mapping[str, Any]], updated_at: int) -> NewFact:
    data = {"project": project, "rules": [dict(rule) for rule in rules], "updated_at": updated_at}
    return NewFact(_PROJECT + project, "rules.replaced", data)


def call_facts(recorded: Iterable[Mapping[str, Any]]) -> list[NewFact]:
    """Return the facts that preserve the model calls of a session when it is deleted."""
    newest = {data["id"]: without_session(convert(data, ModelCall)) for data in recorded}
    return [NewFact(CALL_STREAM, "call.noted", _builtins(call)) for call in newest.values()]


def facts_of(unit: u.Unit, present: Present) -> list[NewFact]:
    """Return what a unit that was just applied settled, in an order that can be restored."""
    if _is_unfinished(unit.writes):
        return []
    scope = Scope(unit.session_id)
    for write in unit.writes:
        scope.take(write, present)
    if scope.deleted:
        return [NewFact(unit.session_id, "session.deleted", {}), *scope.shared]
    return [*scope.facts(present), *scope.shared]


def facts_of_session(session_id: str, present: Present) -> list[NewFact]:
    """Return a complete restatement of a session, which replaces everything its stream held before."""
    scope = Scope(session_id)
    scope.take_all("session.restated", present.names(session_id))
    return scope.facts(present)


def _is_unfinished(writes: Iterable[u.Write]) -> bool:
    """Return whether a unit fills a session that no read returns yet; its facts are noted once it is finished."""
    return any(isinstance(write, u.CopyLine) and write.is_portion for write in writes)


class Scope:
    """The ids that a unit's writes name, each once. None means all of a kind."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.session: FactType | None = None
        self.deleted = False
        self.messages: dict[str, FactType] = {}
        self.parts: dict[str, set[int] | None] = {}
        self.sealed: set[str] = set()
        self.growing: set[str] = set()
        self.turns: dict[str, FactType] = {}
        self.steps: dict[str, set[int] | None] = {}
        self.calls: set[str] | None = set()
        self.moves = 0
        self.prunes = 0
        self.hidden: dict[str, Any] = {}
        self.queue: dict[str, None] = {}
        self.blobs: set[str] | None = set()
        self.shared: list[NewFact] = []

    def take(self, write: u.Write, present: Present) -> None:
        match write:
            case u.InsertSession():
                self.session = "session.created"
            case u.DeleteSession() | u.BeginDeletion():
                self.deleted = True
            case u.DeletePortion():
                pass  # recorded when the deletion began
            case u.FinishCopy():
                self.take_all("session.created", present.names(self.session_id))
            case u.PatchSession() | u.SetTitle() | u.SetEpoch():
                self.session = self.session or "session.changed"
            case u.InsertMessage(message):
                self.messages[message.id] = "message.added"
                self._put_parts(message.id, message.parts)
            case u.PutParts(message_id, parts):
                self._put_parts(message_id, parts)
            case u.PatchMessage(message_id):
                self.messages.setdefault(message_id, "message.changed")
            case u.SetHidden(hidden):
                self.hidden |= {id_: one and {"at": one.at, "by": one.by} for id_, one in hidden.items()}
            case u.SealMessage(message_id):
                self.messages.setdefault(message_id, "message.changed")
                self.sealed.add(message_id)
            case u.OpenTurn(turn):
                self.turns[turn.id] = "turn.opened"
            case u.SetTurn(turn_id) | u.MoveTurn(turn_id) | u.LinkMessage(turn_id):
                self.turns.setdefault(turn_id, "turn.changed")
            case u.MoveHead():
                self.moves += 1
            case u.RecordStep(step):
                self.session = self.session or "session.changed"
                self.messages.setdefault(step.message_id, "message.changed")
                _add(self.steps, step.turn_id, step.index)
            case u.FinishStep(turn_id, index):
                self.session = self.session or "session.changed"
                _add(self.steps, turn_id, index)
            case u.RecordUsage(message_id):
                self.session = self.session or "session.changed"
                self.messages.setdefault(message_id, "message.changed")
            case u.PutCall(call):
                if self.calls is not None:
                    self.calls.add(call.id)
            case u.AddPruned(pruned):
                self.prunes += bool(pruned)
            case u.CopyLine():
                self.session = self.session or "session.changed"
                # It fills an empty session: all its turns are copies, one below the other.
                for turn_id in present.names(self.session_id).turns:
                    held = present.turn(self.session_id, turn_id)[1]
                    self.turns[turn_id] = "turn.opened"
                    self.steps[turn_id] = None
                    self.messages |= dict.fromkeys(held, "message.added")
                    self.parts |= dict.fromkeys(held, None)
                self.prunes, self.blobs = ALL, None
            case u.Enqueue(message_id) | u.Dequeue(message_id):
                self.messages.setdefault(message_id, "message.changed")
                self.queue[message_id] = None
            case u.PutPrompt(digest, body, created_at):
                self.shared.append(prompt_fact(digest, body, created_at))
            case u.PutProjectRules(project, rules, updated_at):
                self.shared.append(rules_fact(project, rules, updated_at))
            case u.PutBlob(sha256) | u.LinkBlob(sha256):
                if self.blobs is not None:
                    self.blobs.add(sha256)
            case u.AppendChunks() | u.MarkFolded():
                pass  # settled with the parts they are folded into
            case u.AddEvent() | u.PutSchedule() | u.DropSchedule() | u.PutWebhook() | u.DropWebhook():
                pass  # the ledger is itself a log; triggers are configuration, not facts of a session
            case u.PutSnapshot():
                pass  # it names a saved state on this machine, which a store made from the log does not have
            case u.SetRunner() | u.JoinReplica() | u.BeatReplica() | u.LeaveReplica():
                pass  # the runner is only valid while it runs
            case _:
                raise InternalError(f"unknown kind of write for the event log: {type(write).__name__}")

    def take_all(self, kind: FactType, names: SessionNames) -> None:
        """Take all that the session holds."""
        self.session = kind
        self.messages = dict.fromkeys(names.messages, "message.added")
        self.parts = dict.fromkeys(names.messages, None)
        self.turns = dict.fromkeys(names.turns, "turn.opened")
        self.steps = dict.fromkeys(names.turns, None)
        self.queue = dict.fromkeys(names.queued)
        self.calls = None
        self.moves = self.prunes = ALL
        self.blobs = None

    def _put_parts(self, message_id: str, parts: Iterable[PartRow]) -> None:
        for part in parts:
            if not is_growing(part.data):
                _add(self.parts, message_id, part.index)
                continue
            self.growing.add(message_id)
            held = self.parts.setdefault(message_id, set())
            if held is not None:
                held.discard(part.index)

    def facts(self, present: Present) -> list[NewFact]:
        id_ = self.session_id
        turns = {turn_id: present.turn(id_, turn_id) for turn_id in self.turns}
        found: list[tuple[FactType, dict[str, Any]]] = []
        if self.session is not None:
            session, epoch = present.session(id_)
            data = {**_builtins(session), "epoch": epoch}
            del data["head_turn_id"], data["spend"]  # derived from its moves and its calls
            found.append((self.session, data))
        for message_id, kind in self.messages.items():
            row, seal = present.message(id_, message_id)
            values = {name: getattr(row, name) for name in ("id", "role", "created_at", "updated_at", "metadata")}
            found.append((kind, {**values, "seal": seal}))
        for message_id, indexes in self._settled(present, turns).items():
            parts = present.parts(id_, message_id, indexes) if indexes is None or indexes else ()
            found += [("part.settled", {"message_id": message_id, **_builtins(part)}) for part in parts]
        for turn_id, (turn, held) in turns.items():
            found.append((self.turns[turn_id], {**_builtins(turn), "messages": list(held)}))
        for turn_id, indexes in self.steps.items():
            found += [("step.ended", _builtins(step)) for step in present.steps(id_, turn_id, indexes)]
        if self.calls is None or self.calls:
            found += [("call.noted", _builtins(call)) for call in present.calls(id_, self.calls)]
        if self.moves:
            found += [("head.moved", _builtins(move)) for move in present.moves(id_, self.moves)]
        if self.prunes and (pruned := [_builtins(one) for one in present.pruned(id_, self.prunes)]):
            found.append(("output.pruned", {"pruned": pruned}))
        if self.hidden:
            found.append(("message.hidden", {"hidden": self.hidden}))
        for message_id in self.queue:
            queued = present.queued(id_, message_id)
            if queued is None:
                found.append(("message.dequeued", {"message_id": message_id}))
            else:
                entry = {"queued_at": queued.queued_at, "interrupt": queued.interrupt}
                found.append(("message.queued", {"message_id": message_id, **entry}))
        if self.blobs is None or self.blobs:
            found += [("blob.linked", blob._asdict()) for blob in present.blobs(id_, self.blobs)]
        return [NewFact(id_ or CALL_STREAM, kind, data) for kind, data in found]

    def _settled(self, present: Present, turns: Mapping[str, tuple[Turn, tuple[str, ...]]]) -> dict[str, Any]:
        """Return the parts to record by message: the complete ones, and all of them where the stream has ended."""
        found: dict[str, set[int] | None] = {id_: None if put is None else set(put) for id_, put in self.parts.items()}
        ended = set(self.sealed)
        for turn, held in turns.values():
            if not _is_flowing(turn):
                ended.update(held)
        ended.update(id_ for id_ in self.growing - ended if not self._flows(present, id_))
        for message_id, index in present.growing(self.session_id, ended) if ended else ():
            _add(found, message_id, index)
        for message_id, put in list(found.items()):
            if put is None and message_id not in ended and self._flows(present, message_id):
                # All parts except those still streaming.
                growing = {index for _, index in present.growing(self.session_id, {message_id})}
                parts = present.parts(self.session_id, message_id, None)
                found[message_id] = {part.index for part in parts} - growing
        return found

    def _flows(self, present: Present, message_id: str) -> bool:
        holders = present.turns_holding(self.session_id, message_id)
        return any(_is_flowing(present.turn(self.session_id, turn_id)[0]) for turn_id in holders)


def _add(indexes: dict[str, set[int] | None], key: str, index: int) -> None:
    held = indexes.setdefault(key, set())
    if held is not None:
        held.add(index)


def _is_flowing(turn: Turn) -> bool:
    """Return whether chunks may be arriving: a turn that waits for a user is open but receives none."""
    return turn.status in OPEN and turn.status != "waiting"


def _builtins(value: Any) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(value)
    return data
