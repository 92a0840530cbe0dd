"""Facts: what a unit has settled, for the event log. The one place that decides what is told, whatever the store.

A fact holds the present state of what it tells of, so a log can be read from any ``session.restated`` on, and telling
a fact twice does no harm. Chunks are no facts, and a part is one only when it will not grow any more: when it is
complete, or when its message is sealed or its turn has settled or waits for a human. A store looks its own present up
for :func:`facts_of`, numbers what comes back, and keeps it in the same transaction as the unit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec

from clew.store import unit as u
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.part import is_growing
from clew.transcript.pruned import Pruned
from clew.transcript.session import Session
from clew.transcript.turn import HeadMove, Step, Turn
from clew.transcript.turn_state import OPEN

__all__ = [
    "LOG_STREAM",
    "PROMPT_STREAM",
    "BlobName",
    "Everything",
    "Fact",
    "FactType",
    "Present",
    "Told",
    "facts_of",
    "facts_of_session",
    "is_session_stream",
    "prompt_fact",
    "rules_fact",
]

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
    "head.moved",
    "output.pruned",
    "blob.linked",
    "prompt.kept",
    "rules.replaced",
    "log.started",
    "log.stopped",
]

LOG_STREAM: Final = "log"
"""Says from when to when the log was kept."""
PROMPT_STREAM: Final = "prompt "
"""What the name of a prompt's stream begins with."""
_PROJECT: Final = "project "


class Fact(msgspec.Struct, frozen=True):
    """One row of the log. ``seq`` counts the facts of its stream, which is a session, a prompt or a project."""

    stream_id: str
    seq: int
    at: int
    type: FactType
    data: dict[str, Any]


class Told(NamedTuple):
    """A fact that has no number yet. ``once``: not told again to a stream that has one."""

    stream_id: str
    type: FactType
    data: dict[str, Any]
    once: bool = False


class BlobName(NamedTuple):
    """A blob without its bytes, which the log does not hold."""

    sha256: str
    media_type: str
    size: int


class Everything(NamedTuple):
    """The names of all that a session holds."""

    messages: tuple[str, ...]
    turns: tuple[str, ...]
    queued: tuple[str, ...]


class Present(Protocol):
    """What a store can be asked about a session, as it is with the unit applied. None stands for all."""

    def session(self, session_id: str) -> tuple[Session, int]:
        """The row, and the epoch."""
        ...

    def message(self, session_id: str, message_id: str) -> tuple[MessageRow, str | None]:
        """The message, with or without its parts, and its seal."""
        ...

    def parts(self, session_id: str, message_id: str, indexes: Collection[int] | None) -> Iterable[PartRow]: ...

    def growing(self, session_id: str, message_ids: Collection[str]) -> Iterable[tuple[str, int]]:
        """The parts of these messages that :func:`is_growing` holds for, by message and index."""
        ...

    def turn(self, session_id: str, turn_id: str) -> tuple[Turn, tuple[str, ...]]:
        """The turn, and the messages it holds."""
        ...

    def turns_holding(self, session_id: str, message_id: str) -> Iterable[str]: ...

    def steps(self, session_id: str, turn_id: str, indexes: Collection[int] | None) -> Iterable[Step]: ...

    def moves(self, session_id: str, count: int | None) -> Iterable[HeadMove]:
        """The newest so many moves of the head, the oldest of them first."""
        ...

    def pruned(self, session_id: str, count: int | None) -> Iterable[Pruned]:
        """What the newest so many prunes took."""
        ...

    def queued(self, session_id: str, message_id: str) -> u.Enqueue | None: ...

    def blobs(self, session_id: str, sha256: Collection[str] | None) -> Iterable[BlobName]: ...

    def everything(self, session_id: str) -> Everything: ...


def is_session_stream(stream_id: str) -> bool:
    return stream_id != LOG_STREAM and not stream_id.startswith((PROMPT_STREAM, _PROJECT))


def prompt_fact(digest: str, body: str, created_at: int) -> Told:
    """A prompt may outlive the session that used it first, so it has a stream of its own, with one fact in it."""
    data = {"digest": digest, "body": body, "created_at": created_at}
    return Told(PROMPT_STREAM + digest, "prompt.kept", data, once=True)


def rules_fact(project: str, rules: Iterable[Mapping[str, Any]], updated_at: int) -> Told:
    data = {"project": project, "rules": [dict(rule) for rule in rules], "updated_at": updated_at}
    return Told(_PROJECT + project, "rules.replaced", data)


def facts_of(unit: u.Unit, present: Present) -> list[Told]:
    """What a unit that was just applied has settled, in the order in which it can be put together again."""
    touched = Touched(unit.session_id)
    for write in unit.writes:
        _NOTE[type(write)](touched, write)
    if touched.deleted:
        return [Told(unit.session_id, "session.deleted", {}), *touched.shared]
    return [*touched.tell(present), *touched.shared]


def facts_of_session(session_id: str, present: Present) -> list[Told]:
    """All of a session told anew: whatever its stream said before is to be forgotten."""
    touched = Touched(session_id)
    all_ = present.everything(session_id)
    touched.session = "session.restated"
    touched.messages = dict.fromkeys(all_.messages, "message.added")
    touched.put = dict.fromkeys(all_.messages, None)
    touched.turns = dict.fromkeys(all_.turns, "turn.opened")
    touched.steps = dict.fromkeys(all_.turns, None)
    touched.queue = dict.fromkeys(all_.queued)
    touched.moves = touched.prunes = touched.blobs = None
    return touched.tell(present)


class Touched:
    """What the writes of a unit name, each thing once. None stands for all of a kind."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.session: FactType | None = None
        self.deleted = False
        self.messages: dict[str, FactType] = {}
        self.put: dict[str, set[int] | None] = {}
        self.sealed: set[str] = set()
        self.grown: set[str] = set()
        self.turns: dict[str, FactType] = {}
        self.steps: dict[str, set[int] | None] = {}
        self.moves: int | None = 0
        self.prunes: int | None = 0
        self.hidden: dict[str, Any] = {}
        self.queue: dict[str, None] = {}
        self.blobs: set[str] | None = set()
        self.shared: list[Told] = []

    def change_session(self) -> None:
        self.session = self.session or "session.changed"

    def change_message(self, message_id: str) -> None:
        self.messages.setdefault(message_id, "message.changed")

    def change_turn(self, turn_id: str) -> None:
        self.turns.setdefault(turn_id, "turn.changed")

    def put_parts(self, message_id: str, parts: Iterable[PartRow]) -> None:
        for part in parts:
            if is_growing(part.data):
                self.grown.add(message_id)
            held = self.put.setdefault(message_id, set())
            if held is not None:
                (held.discard if is_growing(part.data) else held.add)(part.index)

    # Telling

    def tell(self, present: Present) -> list[Told]:
        id_ = self.session_id
        turns = {turn_id: present.turn(id_, turn_id) for turn_id in self.turns}
        pieces: list[tuple[FactType, dict[str, Any]]] = []
        if self.session is not None:
            pieces.append((self.session, _session_data(*present.session(id_))))
        for message_id, kind in self.messages.items():
            pieces.append((kind, _message_data(*present.message(id_, message_id))))
        for message_id, indexes in self._settled(present, turns).items():
            parts = present.parts(id_, message_id, indexes) if indexes is None or indexes else ()
            pieces += [("part.settled", {"message_id": message_id, **_builtins(part)}) for part in parts]
        for turn_id, (turn, held) in turns.items():
            pieces.append((self.turns[turn_id], {**_builtins(turn), "messages": list(held)}))
        for turn_id, indexes in self.steps.items():
            pieces += [("step.ended", _builtins(step)) for step in present.steps(id_, turn_id, indexes)]
        if self.moves != 0:
            pieces += [("head.moved", _builtins(move)) for move in present.moves(id_, self.moves)]
        if self.prunes != 0 and (pruned := [_builtins(one) for one in present.pruned(id_, self.prunes)]):
            pieces.append(("output.pruned", {"pruned": pruned}))
        if self.hidden:
            pieces.append(("message.hidden", {"hidden": self.hidden}))
        pieces += self._queue(present)
        if self.blobs is None or self.blobs:
            pieces += [("blob.linked", blob._asdict()) for blob in present.blobs(id_, self.blobs)]
        return [Told(id_, kind, data) for kind, data in pieces]

    def _settled(self, present: Present, turns: Mapping[str, tuple[Turn, tuple[str, ...]]]) -> dict[str, Any]:
        """By message the parts to tell of: those that are complete, and where the flow has ended the others too."""
        found: dict[str, set[int] | None] = {id_: None if put is None else set(put) for id_, put in self.put.items()}
        ended = set(self.sealed)
        for turn, held in turns.values():
            if not _is_flowing(turn):
                ended.update(held)
        ended.update(id_ for id_ in self.grown - ended if not self._flows(present, id_))
        for message_id, index in present.growing(self.session_id, ended) if ended else ():
            held_by = found.setdefault(message_id, set())
            if held_by is not None:
                held_by.add(index)
        for message_id, put in list(found.items()):
            if put is None and message_id not in ended and self._flows(present, message_id):
                # All of it, but for what is still coming in.
                growing = {index for _, index in present.growing(self.session_id, {message_id})}
                parts = present.parts(self.session_id, message_id, None)
                found[message_id] = {part.index for part in parts} - growing
        return found

    def _flows(self, present: Present, message_id: str) -> bool:
        holders = present.turns_holding(self.session_id, message_id)
        return any(_is_flowing(present.turn(self.session_id, turn_id)[0]) for turn_id in holders)

    def _queue(self, present: Present) -> Iterator[tuple[FactType, dict[str, Any]]]:
        for message_id in self.queue:
            waiting = present.queued(self.session_id, message_id)
            if waiting is None:
                yield "message.dequeued", {"message_id": message_id}
            else:
                data = {"message_id": message_id, "queued_at": waiting.queued_at, "interrupt": waiting.interrupt}
                yield "message.queued", data


def _is_flowing(turn: Turn) -> bool:
    """Whether chunks may be coming in: a turn that waits for a human is open, and nothing comes."""
    return turn.status in OPEN and turn.status != "waiting"


def _builtins(value: Any) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(value)
    return data


def _session_data(session: Session, epoch: int) -> dict[str, Any]:
    data = _builtins(session)
    # Where the head is follows from its moves.
    del data["head_turn_id"]
    return {**data, "epoch": epoch}


def _message_data(row: MessageRow, seal: str | None) -> dict[str, Any]:
    return {
        "id": row.id,
        "role": row.role,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "metadata": row.metadata,
        "seal": seal,
    }


# What each write touches


def _insert_session(touched: Touched, write: u.InsertSession) -> None:
    touched.session = "session.created"


def _delete_session(touched: Touched, write: u.DeleteSession) -> None:
    touched.deleted = True


def _insert_message(touched: Touched, write: u.InsertMessage) -> None:
    touched.messages[write.message.id] = "message.added"
    touched.put_parts(write.message.id, write.message.parts)


def _set_hidden(touched: Touched, write: u.SetHidden) -> None:
    for message_id, hidden in write.hidden.items():
        touched.hidden[message_id] = None if hidden is None else {"at": hidden.at, "by": hidden.by}


def _seal_message(touched: Touched, write: u.SealMessage) -> None:
    touched.change_message(write.message_id)
    touched.sealed.add(write.message_id)


def _open_turn(touched: Touched, write: u.OpenTurn) -> None:
    touched.turns[write.turn.id] = "turn.opened"


def _move_head(touched: Touched, write: u.MoveHead) -> None:
    touched.moves = None if touched.moves is None else touched.moves + 1


def _end_step(touched: Touched, write: u.EndStep) -> None:
    touched.change_session()
    touched.change_message(write.step.message_id)
    held = touched.steps.setdefault(write.step.turn_id, set())
    if held is not None:
        held.add(write.step.index)


def _add_pruned(touched: Touched, write: u.AddPruned) -> None:
    if write.pruned:
        touched.prunes = None if touched.prunes is None else touched.prunes + 1


def _copy_line(touched: Touched, write: u.CopyLine) -> None:
    touched.change_session()
    for copied in write.turns:
        touched.turns[copied.turn.id] = "turn.opened"
        touched.steps[copied.turn.id] = None
        for message in copied.messages:
            touched.messages[message.id] = "message.added"
            touched.put[message.id] = None
    touched.prunes = touched.blobs = None


def _queue(touched: Touched, write: u.Enqueue | u.Dequeue) -> None:
    touched.change_message(write.message_id)
    touched.queue[write.message_id] = None


def _link_blob(touched: Touched, write: u.PutBlob | u.LinkBlob) -> None:
    if touched.blobs is not None:
        touched.blobs.add(write.sha256)


def _nothing(touched: Touched, write: u.Write) -> None:
    """Chunks, and how far they were folded: settled by the parts they end up in."""


_NOTE: dict[type, Callable[[Touched, Any], None]] = {
    u.InsertSession: _insert_session,
    u.PatchSession: lambda touched, write: touched.change_session(),
    u.DeleteSession: _delete_session,
    u.InsertMessage: _insert_message,
    u.PutParts: lambda touched, write: touched.put_parts(write.message_id, write.parts),
    u.PatchMessage: lambda touched, write: touched.change_message(write.message_id),
    u.SetHidden: _set_hidden,
    u.SealMessage: _seal_message,
    u.OpenTurn: _open_turn,
    u.SetTurn: lambda touched, write: touched.change_turn(write.turn_id),
    u.MoveTurn: lambda touched, write: touched.change_turn(write.turn_id),
    u.LinkMessage: lambda touched, write: touched.change_turn(write.turn_id),
    u.MoveHead: _move_head,
    u.SetEpoch: lambda touched, write: touched.change_session(),
    u.EndStep: _end_step,
    u.AddPruned: _add_pruned,
    u.CopyLine: _copy_line,
    u.AppendChunks: _nothing,
    u.MarkFolded: _nothing,
    u.Enqueue: _queue,
    u.Dequeue: _queue,
    u.PutPrompt: lambda touched, write: touched.shared.append(prompt_fact(write.digest, write.body, write.created_at)),
    u.PutBlob: _link_blob,
    u.LinkBlob: _link_blob,
    u.PutProjectRules: lambda touched, write: touched.shared.append(
        rules_fact(write.project, write.rules, write.updated_at)
    ),
    # The events ledger is a log already; what fires turns is set up by people and is no fact of a session.
    u.AddEvent: _nothing,
    u.PutSchedule: _nothing,
    u.DropSchedule: _nothing,
    u.PutWebhook: _nothing,
    u.DropWebhook: _nothing,
}
