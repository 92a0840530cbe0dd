"""Validation of an imported session. A session that passes can be written to a store unchanged.

Every id is matched as a whole, every value is checked, and every reference must have a target. The first error is
raised with its position.

Parts, metadata and data may have any keys. The values of known ones must have the types that clew writes; other keys
are not checked, nor are parts of unknown types.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Container, Iterable, Mapping
from hashlib import sha256
from typing import Annotated, Any, Final, TypeVar

import msgspec

from clew import ids
from clew.convert import convert, convert_json
from clew.errors import InvalidId, InvalidInput, UnsupportedValue
from clew.ids import SessionIdForm
from clew.transcript.message import MessageRow, Role
from clew.transcript.metadata import (
    MAX_TITLE,
    OWN_MESSAGE_KEYS,
    OWN_SESSION_KEYS,
    broken_off_usd,
    check_stored_metadata,
    usage_of,
)
from clew.transcript.part import COMPACTION_PART, output_text
from clew.transcript.portable import AT_HOME, PortableSession
from clew.transcript.session import Model, Session
from clew.transcript.tool_state import ToolState
from clew.transcript.turn_state import OPEN
from clew.transcript.usage import Usage
from clew.transcript.value_check import check_text, check_value
from clew.transcript.view import Split

__all__ = ["check_portable", "decode_json", "read_record"]

_MAX_TOKENS: Final = 1 << 40
"""More than any call uses; sums of counts below it fit in 64 bits."""
_MAX_COST: Final = 1e12
_MAX_TIME: Final = 1 << 53
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9.+-]{1,60}/[a-z0-9.+*-]{1,100}", re.ASCII | re.IGNORECASE)
# In a file that other programs write too, they chose the ids of their messages.
_MESSAGE_ID: Final = functools.partial(ids.check_shared_id, "message")
_PART_ID: Final = functools.partial(ids.check_shared_id, "part")
_DIGEST: Final = re.compile("[0-9a-f]{64}", re.ASCII)
T = TypeVar("T")
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]


def check_portable(portable: PortableSession) -> None:
    """Raise ``InvalidInput`` for an inconsistent session."""
    if not 0 <= portable.exported_at <= _MAX_TIME or not 0 <= portable.redacted <= _MAX_TIME:
        raise InvalidInput("the header has a time or a count that is out of range")
    check_text(portable.exporter, "exporter")
    _check_session(portable.session)
    messages = _index_by_id("messages", portable.messages, _MESSAGE_ID)
    turns = _index_by_id("turns", portable.turns, ids.check_turn_id)
    _index_by_id("parts", (part for row in portable.messages for part in row.parts if part.id), _PART_ID)
    for field in ("turns", "messages", "steps", "moves", "prunes", "queue"):
        for index, record in enumerate(getattr(portable, field)):
            _check_times(record, f"{field}[{index}]")
    for row in portable.messages:
        _check_message(row, portable.session.id)
    _check_turns(portable, messages)
    _check_head(portable, turns)
    roles = {row.id: row.role for row in portable.messages}
    _check_message_positions(portable, roles)
    _check_steps(portable, roles, turns)
    _check_prunes(portable)
    _check_digests(portable)


def _refuse(where: str, what: str) -> InvalidInput:
    return InvalidInput(f"{where}: {what}", where=where)


def _check_id(check: Callable[[object], str], value: object, where: str) -> str:
    try:
        return check(value)
    except InvalidId as error:
        raise _refuse(where, str(error)) from error


def _check_session_id(value: str, where: str) -> None:
    if not any(form.value.fullmatch(value) for form in SessionIdForm):
        raise _refuse(where, f"{value[:60]!r} is not a session id")


def _index_by_id(where: str, records: Iterable[Any], check: Callable[[object], str]) -> dict[str, int]:
    """Return the index of each record by its id, which must be valid and unique."""
    found: dict[str, int] = {}
    for index, record in enumerate(records):
        id_ = _check_id(check, record.id, f"{where}[{index}].id")
        if id_ in found:
            raise _refuse(f"{where}[{index}].id", f"{id_} occurs twice")
        found[id_] = index
    return found


def _check_times(record: msgspec.Struct, where: str) -> None:
    """Check all fields that are times, so that later sums and pages need no check."""
    for name in _times_of(type(record)):
        value = getattr(record, name)
        if value is not None and not 0 <= value <= _MAX_TIME:
            raise _refuse(where, f"{name} is not a valid time")


@functools.cache
def _times_of(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(name for name in kind.__struct_fields__ if name == "at" or name.endswith("_at"))


def _check_session(session: Session) -> None:
    _check_times(session, "session")
    _check_session_id(session.id, "session.id")
    if session.parent_id is not None:
        _check_session_id(session.parent_id, "session.parent_id")
    if session.parent_message_id is not None:
        _check_id(_MESSAGE_ID, session.parent_message_id, "session.parent_message_id")
    check_text(session.agent, "session.agent")
    check_text(session.workspace_root or "", "session.workspace_root")
    check_value(msgspec.to_builtins(session.model), "session.model")
    check_stored_metadata(session.metadata, OWN_SESSION_KEYS, "session.metadata")
    for key in ("title", "label"):
        value = session.metadata.get(key)
        if value is not None and not (isinstance(value, str) and len(value) <= MAX_TITLE):
            raise _refuse(f"session.metadata.{key}", f"must be text of at most {MAX_TITLE} characters")


def _check_message(row: MessageRow, session_id: str) -> None:
    where = f"message {row.id}"
    if row.session_id != session_id:
        raise _refuse(where, "it belongs to another session")
    check_stored_metadata(row.metadata, OWN_MESSAGE_KEYS, f"{where}: metadata")
    _check_keys(row.metadata, _MessageKeys, f"{where}: metadata")
    _check_usage(usage_of(row.metadata), where)
    if not 0 <= broken_off_usd(row.metadata) <= _MAX_COST:
        raise _refuse(where, "what its usage cost is not a sum of money")
    client = row.metadata.get("client_message_id")
    if client is not None:
        _check_id(ids.check_named_message_id, client, f"{where}: client_message_id")
    for index, part in enumerate(row.parts):
        _check_times(part, f"{where}: part {index}")
        check_value(part.data, f"{where}: part {index}")
        _check_part(part.data, f"{where}: part {index}")


def _check_turns(portable: PortableSession, messages: Container[str]) -> None:
    """Each turn below one that came before it in the file: a tree without cycles."""
    known: set[str] = set()
    every = {turn.id for turn in portable.turns}
    for turn in portable.turns:
        where = f"turn {turn.id}"
        parent = turn.parent_turn_id
        if parent is not None and parent not in known:
            _check_id(ids.check_turn_id, parent, f"{where}: parent_turn_id")
            what = "does not come before it" if parent in every else "is not there"
            raise _refuse(where, f"its parent {parent} {what}")
        if turn.origin_turn_id is not None:
            _check_id(ids.check_turn_id, turn.origin_turn_id, f"{where}: origin_turn_id")
        check_value(turn.data, f"{where}: data")
        _check_keys(turn.data, _TurnKeys, f"{where}: data")
        message_ids = portable.links.get(turn.id, ())
        for message_id in message_ids:
            if message_id not in messages:
                raise _refuse(where, f"it holds message {message_id[:60]!r}, which does not exist")
        if len(set(message_ids)) != len(message_ids):
            raise _refuse(where, "it holds a message twice")
        known.add(turn.id)


def _check_head(portable: PortableSession, turns: Container[str]) -> None:
    """Check that the head is the target of its last move, and that an open turn is the head or its child."""
    at: str | None = None
    for index, move in enumerate(portable.moves):
        at = move.to_turn_id
        if at is not None and at not in turns:
            raise _refuse(f"moves[{index}]", f"the head went to turn {at[:60]!r}, which is not there")
    head = portable.session.head_turn_id
    if head != at:
        raise _refuse("session.head_turn_id", f"the head is {str(head)[:60]!r}, its moves end at {at!r}")
    open_turns = [turn for turn in portable.turns if turn.status in OPEN]
    if len(open_turns) > 1:
        raise _refuse(f"turn {open_turns[1].id}", "a second turn is open; a session has at most one")
    for turn in open_turns:
        if head not in (turn.parent_turn_id, turn.id):
            raise _refuse(f"turn {turn.id}", "it is open, but is neither the head nor its child")


def _check_message_positions(portable: PortableSession, roles: Mapping[str, Role]) -> None:
    """Check that every message is in a turn, in the queue, or was cancelled."""
    linked = {message_id for turn in portable.turns for message_id in portable.links.get(turn.id, ())}
    queued: set[str] = set()
    for index, entry in enumerate(portable.queue):
        where = f"queue[{index}]"
        id_ = entry.message_id
        if roles.get(id_) != "user":
            raise _refuse(where, f"there is no user message {id_[:60]!r}")
        if id_ in linked or id_ in queued:
            raise _refuse(where, f"message {id_} is in a turn already, or queued twice")
        queued.add(id_)
    for row in portable.messages:
        if row.id not in linked and row.id not in queued and not row.is_cancelled:
            raise _refuse(f"message {row.id}", "it is in no turn, not in the queue, and was not cancelled")


def _check_steps(portable: PortableSession, roles: Mapping[str, Role], turns: Container[str]) -> None:
    seen: set[tuple[str, int]] = set()
    turn_of: dict[str, str] = {}
    for index, step in enumerate(portable.steps):
        where = f"steps[{index}]"
        id_ = step.message_id
        if step.turn_id not in turns:
            raise _refuse(where, f"there is no turn {step.turn_id[:60]!r}")
        if roles.get(id_) != "assistant" or id_ not in portable.links.get(step.turn_id, ()):
            raise _refuse(where, f"its turn holds no assistant message {id_[:60]!r}")
        if turn_of.setdefault(id_, step.turn_id) != step.turn_id:
            raise _refuse(where, f"message {id_} has steps of another turn already")
        if (step.turn_id, step.index) in seen or not 0 <= step.index < _MAX_TOKENS:
            raise _refuse(where, f"step {step.index} of turn {step.turn_id} occurs twice or has an invalid number")
        seen.add((step.turn_id, step.index))
        _check_usage(step.usage, where)
        if not 0 <= step.cost_usd <= _MAX_COST:
            raise _refuse(where, "its cost is not a sum of money")
        check_value(msgspec.to_builtins(step.model), f"{where}.model")
        check_value([step.finish_reason, step.prompt_digest], where)
        check_value(step.data, f"{where}.data")
        _check_keys(step.data, _StepKeys, f"{where}.data")


def _check_usage(usage: Usage, where: str) -> None:
    if not all(0 <= count <= _MAX_TOKENS for count in msgspec.structs.astuple(usage)):
        raise _refuse(where, "its usage is not a count of tokens")


def _check_prunes(portable: PortableSession) -> None:
    pruned = {prune.message_id for prune in portable.prunes}
    messages = {row.id: row for row in portable.messages if row.id in pruned} if pruned else {}
    seen: set[tuple[int, str, int]] = set()
    newest = 0
    for index, prune in enumerate(portable.prunes):
        where = f"prunes[{index}]"
        row = messages.get(prune.message_id)
        if row is None or not 0 <= prune.part < len(row.parts) or output_text(row.parts[prune.part].data) is None:
            raise _refuse(where, f"message {prune.message_id[:60]!r} has no output in part {prune.part}")
        if prune.seq not in (newest, newest + 1) or prune.seq < 1 or (prune.seq, prune.message_id, prune.part) in seen:
            raise _refuse(where, "prunes are numbered from 1 without a gap, and name an output once each")
        if not all(0 <= count <= _MAX_TIME for count in (prune.tokens, prune.keep)):
            raise _refuse(where, "its counts are out of range")
        newest = prune.seq
        seen.add((prune.seq, prune.message_id, prune.part))


def _check_digests(portable: PortableSession) -> None:
    """Check the digest of every prompt and blob, so that no import can replace the contents of a known digest."""
    tools = {step.tools_digest for step in portable.steps}
    for index, prompt in enumerate(portable.prompts):
        check_text(prompt.body, f"prompts[{index}].body")
        if sha256(prompt.body.encode()).hexdigest() != prompt.digest:
            raise _refuse(f"prompts[{index}]", "its text does not match its digest")
        if prompt.digest in tools:
            _check_tools(prompt.body, f"prompts[{index}]")
    for index, blob in enumerate(portable.blobs):
        if not _DIGEST.fullmatch(blob.sha256) or sha256(blob.data).hexdigest() != blob.sha256:
            raise _refuse(f"blobs[{index}]", "its bytes do not match their digest")
        if not _MEDIA_TYPE.fullmatch(blob.media_type):
            raise _refuse(f"blobs[{index}]", f"{blob.media_type[:60]!r} is not a media type")


# Values of a file


def read_record(value: Any, kind: type[T], where: str, **known: Any) -> T:
    """Convert plain values to a row of that kind. Unknown keys, of later versions, are ignored, and so are fields that
    are never exported."""
    if isinstance(value, dict):
        stays = AT_HOME.get(kind, frozenset())
        value = {key: item for key, item in value.items() if key not in stays} | known
    try:
        return convert(value, kind)
    except RecursionError as error:
        raise UnsupportedValue(f"{where} is nested too deeply", where=where) from error
    except (msgspec.ValidationError, ValueError, OverflowError) as error:
        raise InvalidInput(f"{where} is not valid in a clew session: {error}", where=where) from error


def decode_json(data: bytes, where: str) -> Any:
    """Parse untrusted JSON. Excessive depth and unsupported numbers raise ``UnsupportedValue``."""
    try:
        return msgspec.json.decode(data)
    except RecursionError as error:
        raise UnsupportedValue(f"{where} is nested too deeply", where=where) from error
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        if _reads_leniently(data):
            raise UnsupportedValue(f"{where} has a value that cannot be stored: {error}", where=where) from error
        raise InvalidInput(f"{where} is not JSON: {error}", where=where) from error


def _reads_leniently(data: bytes) -> bool:
    """Return whether it is JSON except for a value: a lone surrogate, or a number that is NaN or out of range."""
    try:
        json.loads(data.decode())
    except (json.JSONDecodeError, UnicodeDecodeError):
        return False
    except (ValueError, RecursionError):
        # The number has too many digits, or the nesting is too deep.
        return True
    return True


class _MessageKeys(msgspec.Struct):
    """Known keys of a message's metadata."""

    agent: str | None = None
    model: Model | str | None = None
    usage: Usage | None = None


class _Section(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A section of a step's prompt: its name and length, and how it was sent if not as text."""

    name: str
    length: _Count
    native: str = ""


class _StepKeys(msgspec.Struct):
    """Known keys of a step's data."""

    prompt: list[_Section] | None = None
    tools: str | None = None
    request: str | None = None
    view: Annotated[list[int | None], msgspec.Meta(min_length=2)] | None = None
    limits: tuple[int | None, float | None] | None = None
    sized: tuple[_Count, _Count] | None = None


class _TurnKeys(msgspec.Struct):
    """Known keys of a turn's data."""

    stopped: str | None = None
    budget_from: _Count = 0
    error: dict[str, Any] | None = None
    waiting: list[dict[str, Any]] = []
    unsent: list[Split] | None = None
    resumed: _Count | None = None
    warned: list[str] | None = None
    reminded: _Count | None = None


class _Text(msgspec.Struct):
    text: str


class _File(msgspec.Struct):
    url: str
    mediaType: str = ""  # noqa: N815 (the AI SDK's key)


class _Approval(msgspec.Struct):
    id: str | None = None
    approved: bool | None = None
    reason: str | None = None


class _Call(msgspec.Struct):
    type: str
    toolCallId: str  # noqa: N815 (the AI SDK's key)
    state: ToolState
    errorText: str | None = None  # noqa: N815 (the AI SDK's key)
    approval: _Approval | None = None


class _DynamicCall(_Call, kw_only=True):
    toolName: str  # noqa: N815 (the AI SDK's key)


class _Done(msgspec.Struct):
    output: Any


class _Failed(msgspec.Struct):
    errorText: str  # noqa: N815 (the AI SDK's key)


class _Summary(msgspec.Struct):
    summary: str
    tail_start_id: str | None = None
    split: Split | None = None


class _Compaction(msgspec.Struct):
    data: _Summary


class _Tool(msgspec.Struct):
    name: str
    description: str
    input_schema: dict[str, Any]


_PARTS: Final[dict[object, type[Any]]] = {
    "text": _Text,
    "reasoning": _Text,
    "file": _File,
    "dynamic-tool": _DynamicCall,
    COMPACTION_PART: _Compaction,
}
_ENDS: Final[dict[object, type[Any]]] = {"output-available": _Done, "output-error": _Failed}


def _check_keys(value: dict[str, Any], keys: type[Any], where: str) -> None:
    """Raise ``InvalidInput`` unless the values of known keys have their types."""
    try:
        convert(value, keys)
    except (msgspec.ValidationError, ValueError, OverflowError) as error:
        raise InvalidInput(f"{where}: {error}", where=where) from error


def _check_tools(body: str, where: str) -> None:
    """Raise ``InvalidInput`` unless a text is the tools of a request as they are stored."""
    try:
        convert_json(body, list[_Tool])
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InvalidInput(f"{where}: invalid tool definitions: {error}", where=where) from error


def _check_part(data: dict[str, Any], where: str) -> None:
    """Raise ``InvalidInput`` unless a part of a known type has valid keys."""
    kind = data.get("type")
    called = "toolCallId" in data or (isinstance(kind, str) and kind.startswith("tool-"))
    shape = _PARTS.get(kind) if isinstance(kind, str) else None
    if shape is None and called:
        shape = _Call
    if shape is not None:
        _check_keys(data, shape, where)
    state = data.get("state")
    if called and isinstance(state, str) and state in _ENDS:
        _check_keys(data, _ENDS[state], where)
