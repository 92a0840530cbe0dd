"""The chunk vocabulary: every unit of a v6 UI message stream as an immutable value.

Owns the names, fields and types of the 25 kinds of chunk, and converts chunks to and from the wire form. A field that
is absent on the wire is ``UNSET`` here, so an explicit ``false`` or ``null`` is not lost. Unknown fields stay in
``extra`` and written again after the known ones. The effect of a chunk on a message is defined in
:mod:`clew.transcript.fold`.

A chunk may hold mutable JSON (an input, a metadata object) that must not be changed: chunks are shared between the
fold, the journal and the viewers.

Stricter than the reference schema in two ways: ``messageMetadata`` is an object or null (merging anything else into an
object is meaningless), and ``input``, ``output`` and ``data`` are always present, null if empty, because some versions
of the client's schema library reject a chunk without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias, cast, get_args

import msgspec
from msgspec import UNSET as UNSET
from msgspec import Struct
from msgspec import UnsetType as UnsetType

from clew.convert import convert, convert_json
from clew.errors import IllegalChunk

Object: TypeAlias = dict[str, Any]
ProviderMetadata: TypeAlias = dict[str, Object]
FinishReason: TypeAlias = Literal["stop", "length", "content-filter", "tool-calls", "error", "other"]


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


class _Base(Struct, frozen=True, kw_only=True, gc=False, rename=_camel, tag_field="type"):
    # gc=False: a chunk holds JSON, and JSON has no cycles to collect.
    extra: Object | UnsetType = UNSET

    @property
    def type(self) -> str:
        """The type on the wire."""
        return cast(str, self.__struct_config__.tag)


class _WithMetadata(_Base, frozen=True, kw_only=True, gc=False):
    provider_metadata: ProviderMetadata | UnsetType = UNSET


class _Tool(_WithMetadata, frozen=True, kw_only=True, gc=False):
    """Common fields of chunks about a tool call; ``dynamic`` means that the tool is not known at build time."""

    provider_executed: bool | UnsetType = UNSET
    tool_metadata: Object | UnsetType = UNSET
    dynamic: bool | UnsetType = UNSET


class Start(_Base, frozen=True, gc=False, tag="start"):
    message_id: str | UnsetType = UNSET
    message_metadata: Object | UnsetType | None = UNSET


class StartStep(_Base, frozen=True, gc=False, tag="start-step"):
    pass


class FinishStep(_Base, frozen=True, gc=False, tag="finish-step"):
    pass


class TextStart(_WithMetadata, frozen=True, gc=False, tag="text-start"):
    id: str


class TextDelta(_WithMetadata, frozen=True, gc=False, tag="text-delta"):
    id: str
    delta: str


class TextEnd(_WithMetadata, frozen=True, gc=False, tag="text-end"):
    id: str


class ReasoningStart(_WithMetadata, frozen=True, gc=False, tag="reasoning-start"):
    id: str


class ReasoningDelta(_WithMetadata, frozen=True, gc=False, tag="reasoning-delta"):
    id: str
    delta: str


class ReasoningEnd(_WithMetadata, frozen=True, gc=False, tag="reasoning-end"):
    id: str


class ToolInputStart(_Tool, frozen=True, gc=False, tag="tool-input-start"):
    tool_call_id: str
    tool_name: str
    input_encoding: Literal["json", "text"] | UnsetType = UNSET
    title: str | UnsetType = UNSET


class ToolInputDelta(_Base, frozen=True, gc=False, tag="tool-input-delta"):
    tool_call_id: str
    input_text_delta: str


class ToolInputAvailable(_Tool, frozen=True, gc=False, tag="tool-input-available"):
    tool_call_id: str
    tool_name: str
    input: Any
    title: str | UnsetType = UNSET


class ToolInputError(_Tool, frozen=True, gc=False, tag="tool-input-error"):
    """Arguments that did not validate. ``input`` is whatever the model wrote."""

    tool_call_id: str
    tool_name: str
    input: Any
    error_text: str
    title: str | UnsetType = UNSET


class ToolApprovalRequest(_Base, frozen=True, gc=False, tag="tool-approval-request"):
    approval_id: str
    tool_call_id: str
    approval_descriptor: Any = UNSET
    input_schema_input: Any = UNSET
    signature: str | UnsetType = UNSET


class ToolOutputAvailable(_Tool, frozen=True, gc=False, tag="tool-output-available"):
    tool_call_id: str
    output: Any
    preliminary: bool | UnsetType = UNSET


class ToolOutputError(_Tool, frozen=True, gc=False, tag="tool-output-error"):
    tool_call_id: str
    error_text: str


class ToolOutputDenied(_Base, frozen=True, gc=False, tag="tool-output-denied"):
    tool_call_id: str


class SourceUrl(_WithMetadata, frozen=True, gc=False, tag="source-url"):
    source_id: str
    url: str
    title: str | UnsetType = UNSET


class SourceDocument(_WithMetadata, frozen=True, gc=False, tag="source-document"):
    source_id: str
    media_type: str
    title: str
    filename: str | UnsetType = UNSET


class File(_WithMetadata, frozen=True, gc=False, tag="file"):
    url: str
    media_type: str


class Data(_Base, frozen=True, gc=False, tag=False):
    """``data-NAME``. The name is part of the type on the wire, so it is always encoded as a dict."""

    name: str
    data: Any
    id: str | UnsetType = UNSET
    transient: bool | UnsetType = UNSET

    @property
    def type(self) -> str:
        return f"data-{self.name}"


class MessageMetadata(_Base, frozen=True, gc=False, tag="message-metadata"):
    message_metadata: Object | None


class Finish(_Base, frozen=True, gc=False, tag="finish"):
    finish_reason: FinishReason | UnsetType = UNSET
    message_metadata: Object | UnsetType | None = UNSET


class Abort(_Base, frozen=True, gc=False, tag="abort"):
    reason: str | UnsetType = UNSET


class Error(_Base, frozen=True, gc=False, tag="error"):
    error_text: str


_Opening: TypeAlias = Start | StartStep | FinishStep
_Text: TypeAlias = TextStart | TextDelta | TextEnd | ReasoningStart | ReasoningDelta | ReasoningEnd
_ToolInput: TypeAlias = ToolInputStart | ToolInputDelta | ToolInputAvailable | ToolInputError
ToolChunk: TypeAlias = _ToolInput | ToolApprovalRequest | ToolOutputAvailable | ToolOutputError | ToolOutputDenied
_Single: TypeAlias = SourceUrl | SourceDocument | File | Data
_Closing: TypeAlias = MessageMetadata | Finish | Abort | Error
Chunk: TypeAlias = _Opening | _Text | ToolChunk | _Single | _Closing

JournalRow: TypeAlias = tuple[str, int, int | None, Chunk]
"""(stream, n within the message, index of the part or None, chunk): one entry of a journal row."""


class EncodedRow(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A journal entry in its compact form.

    Nearly every chunk is a delta, so deltas are written without field names: ``what`` is then the id, and ``kind`` says
    what the delta belongs to if not to a text.
    """

    stream: str
    n: int
    part: int | None
    what: msgspec.Raw
    delta: str | UnsetType = UNSET
    kind: Literal["reasoning", "tool-input"] | UnsetType = UNSET


_CLASSES: Final[tuple[type[Chunk], ...]] = get_args(Chunk)
DELTAS: Final = (TextDelta, ReasoningDelta, ToolInputDelta)
"""Check for these first, since nearly every chunk is one: ``isinstance`` of a struct is ten times slower when false."""
TERMINAL_CHUNKS: Final = frozenset[type[Any]]({Finish, Abort, Error})
"""The chunks that end the stream of a message. After an error, ``finish`` may still follow."""
CHUNK_TYPES: Final = tuple("data-*" if cls is Data else cast(str, cls.__struct_config__.tag) for cls in _CLASSES)
"""Every chunk type. ``data-*`` stands for the open family ``data-NAME``."""
_BY_TYPE: Final[dict[str, type[Chunk]]] = {
    cast(str, cls.__struct_config__.tag): cls for cls in _CLASSES if cls is not Data
}
_FIELDS: Final[dict[type[Chunk], tuple[tuple[str, str], ...]]] = {
    cls: tuple(
        (field, key)
        for field, key in zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True)
        if field not in ("extra", "name")
    )
    for cls in _CLASSES
}
_KEYS: Final[dict[type[Chunk], frozenset[str]]] = {
    cls: frozenset(("type", *(key for _, key in fields))) for cls, fields in _FIELDS.items()
}
_encode: Final[Callable[[Any], bytes]] = msgspec.json.Encoder().encode
_decode: Final[Callable[[bytes | str | msgspec.Raw], Any]] = msgspec.json.Decoder().decode
_ROWS: Final = list[EncodedRow]
_decode_id: Final = msgspec.json.Decoder(str).decode


def parse_chunk(obj: Mapping[str, Any]) -> Chunk:
    """Return the chunk of a wire object; raise :class:`IllegalChunk` if it is not one."""
    try:
        kind = obj["type"]
    except (LookupError, TypeError):
        kind = None
    if not isinstance(kind, str):
        raise IllegalChunk("a chunk must be an object with a string in 'type'")
    cls = _BY_TYPE.get(kind)
    if cls is None:
        if not kind.startswith("data-"):
            raise IllegalChunk(f"unknown chunk type {kind[:60]!r}", chunk_type=kind[:60])
        cls = Data
    known = _KEYS[cls]
    extra = {key: value for key, value in obj.items() if key not in known}
    fields = {key: value for key, value in obj.items() if key in known} if extra else dict(obj)
    if cls is Data:
        fields["name"] = kind[5:]
    try:
        chunk: Chunk = convert(fields, cls)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        # Half a surrogate pair in an enum field fails to encode before it can be validated.
        raise IllegalChunk(f"invalid {kind[:60]} chunk: {error}", chunk_type=kind[:60]) from error
    return msgspec.structs.replace(chunk, extra=extra) if extra else chunk


def chunk_dict(chunk: Chunk) -> Object:
    """Return the wire form as a dict, ``type`` first. Values are shared with the chunk, not copied."""
    if isinstance(chunk, (TextDelta, ReasoningDelta)) and chunk.provider_metadata is UNSET and chunk.extra is UNSET:
        # Fast path: nearly every chunk is a delta, and nothing in it would be copied.
        return cast(Object, msgspec.to_builtins(chunk))
    out = known_fields(chunk)
    if chunk.extra is not UNSET:
        for key, value in chunk.extra.items():
            out.setdefault(key, value)
    return out


def known_fields(chunk: Chunk) -> Object:
    """Return the wire form without unknown fields."""
    fields = ((key, getattr(chunk, field)) for field, key in _FIELDS[chunk.__class__])
    return {"type": chunk.type, **{key: value for key, value in fields if value is not UNSET}}


def wire(chunk: Chunk) -> Any:
    """Return the chunk in a form that msgspec can encode inside a larger value: itself, if possible."""
    return chunk if chunk.extra is UNSET and chunk.__class__ is not Data else chunk_dict(chunk)


def is_transient(chunk: Chunk) -> bool:
    """Return whether the chunk is shown but never stored."""
    return chunk.__class__ is Data and chunk.transient is True


def joined_deltas(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Yield the stream with consecutive deltas of the same part joined; it folds to the same message."""
    pieces: list[str] = []
    kind: type[TextDelta | ReasoningDelta] = TextDelta
    id_ = ""
    for chunk in chunks:
        is_plain = isinstance(chunk, (TextDelta, ReasoningDelta)) and chunk.provider_metadata is UNSET
        if is_plain and pieces and chunk.__class__ is kind and chunk.id == id_:
            pieces.append(chunk.delta)
            continue
        if pieces:
            yield kind(id_, "".join(pieces))
            pieces = []
        if isinstance(chunk, (TextDelta, ReasoningDelta)) and is_plain:
            kind, id_, pieces = chunk.__class__, chunk.id, [chunk.delta]
        else:
            yield chunk
    if pieces:
        yield kind(id_, "".join(pieces))


def encode_chunk(chunk: Chunk) -> bytes:
    """Return the wire form as JSON."""
    return _encode(wire(chunk))


def encode_rows(rows: Iterable[JournalRow], *, in_full: bool = False) -> bytes:
    """Encode journal entries as a JSON array of arrays; ``in_full`` in the form every version of clew reads."""
    if in_full:
        return _encode([(stream, n, index, wire(chunk)) for stream, n, index, chunk in rows])
    return _encode([_short_row(*row) for row in rows])


def _short_row(stream: str, n: int, index: int | None, chunk: Chunk) -> tuple[Any, ...]:
    if chunk.extra is UNSET:
        if type(chunk) is TextDelta and chunk.provider_metadata is UNSET:
            return stream, n, index, chunk.id, chunk.delta
        if type(chunk) is ReasoningDelta and chunk.provider_metadata is UNSET:
            return stream, n, index, chunk.id, chunk.delta, "reasoning"
        if type(chunk) is ToolInputDelta:
            return stream, n, index, chunk.tool_call_id, chunk.input_text_delta, "tool-input"
    return stream, n, index, wire(chunk)


def split_rows(data: bytes | str) -> list[EncodedRow]:
    """Decode journal entries without parsing their chunks: most readers need those of one message only."""
    rows: list[EncodedRow] = convert_json(data, _ROWS)
    return rows


def parse_row(row: EncodedRow) -> Chunk:
    """Return the chunk of a row."""
    if row.delta is UNSET:
        return parse_encoded(row.what)
    id_ = _decode_id(row.what)
    if row.kind is UNSET:
        return TextDelta(id_, row.delta)
    return ReasoningDelta(id_, row.delta) if row.kind == "reasoning" else ToolInputDelta(id_, row.delta)


def parse_encoded(data: bytes | msgspec.Raw) -> Chunk:
    """Return the chunk of a wire form as JSON."""
    return parse_chunk(_decode(data))


def decode_rows(data: bytes | str) -> list[JournalRow]:
    """Decode what :func:`encode_rows` has encoded."""
    return [(row.stream, row.n, row.part, parse_row(row)) for row in split_rows(data)]
