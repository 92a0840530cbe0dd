"""Typed access to a part: one piece of a message in the AI SDK's shape.

The dict is the part and is stored verbatim: unknown keys and kinds pass through untouched. Only this module knows the
keys; other modules call it. Stored parts may hold anything, so a key with a value of the wrong type reads as missing.

A part is a *call* when its kind says so (``tool-NAME``, or ``dynamic-tool`` with the name in its own key) and it has an
id. The states of a call are defined in :mod:`clew.transcript.tool_state`; :mod:`clew.transcript.fold_part` applies
chunks to parts.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import unquote_to_bytes

import msgspec

from clew.ids import SessionIdForm, is_session_id

Part: TypeAlias = Mapping[str, Any]

COMPACTION_PART: Final = "data-compaction"
PRESERVED_PART: Final = "data-kept"
"""Holds records imported from another program that have no equivalent in clew. Neither shown nor sent."""
MAX_LISTED_FILES: Final = 200
"""Read files, and as many modified ones, that a compaction lists by name; the rest are only counted."""
STEP_START: Final = "step-start"
UNSEEN: Final = frozenset({STEP_START, PRESERVED_PART})
"""Kinds of parts that are not shown to people."""
OWN: Final = "clew"
"""The key of clew's own data in ``providerMetadata``."""
ANSWER_KEYS: Final = ("answered_by", "via", "answered_at")
"""Keys stored with an answer: who gave it, through which front end, and when."""
MAX_GIVEN_TEXT: Final = 30_000
"""Characters sent to a model of a text file that a tool call returned."""
_CHILD_ID_KEY: Final = "session_id"
_CHILD_KEYS: Final = frozenset({_CHILD_ID_KEY, "steps", "tokens", "cost_usd", "text", "tool", "doing"})
"""All keys a call reports about a running subagent."""
_MEASURED_KEYS: Final = ("size", "width", "height", "pages")
_BLOB: Final = re.compile("/api/blobs/([0-9a-f]{64})", re.ASCII)
_TEXT_TYPES: Final = re.compile(r"text/.*|application/(json|xml|yaml|toml|javascript)(;.*)?", re.ASCII)


def kind_of(part: Part) -> str:
    """Return the type of a part; ``unknown`` if it has none."""
    kind = part.get("type")
    return kind if isinstance(kind, str) else "unknown"


def state_of(part: Part) -> str | None:
    return text_at(part, "state")


def text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def text_of(part: Part, *kinds: str) -> str | None:
    """Return the text of a part of these kinds (default: ``text``); None for any other part."""
    return text_at(part, "text") if kind_of(part) in (kinds or ("text",)) else None


def cut_text(part: Part, length: int) -> dict[str, Any]:
    """Return a streaming text part truncated to ``length`` characters and marked as done."""
    return {**part, "text": part["text"][:length], **({"state": "done"} if "state" in part else {})}


def texts_of(parts: Iterable[Part]) -> list[str]:
    """Return the text of each text part, without clew's own notices."""
    return [text for part in parts if (text := text_of(part)) is not None and not is_notice(part)]


def notice_part(text: str) -> dict[str, Any]:
    """Return a text part that clew inserts before a person's text in a request."""
    return {**text_part(text), "providerMetadata": {OWN: {"notice": True}}}


def is_notice(part: Part) -> bool:
    return (provider_data(part, OWN) or {}).get("notice") is True


def first_words(text: str, length: int) -> str:
    """Return the start of a text as one line of at most ``length`` characters."""
    # Limit the input, so that a text of megabytes is not split for one line.
    line = " ".join(text[: 4 * length].split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


def steps_in(parts: Iterable[Part]) -> list[int]:
    """Return the index at which each step begins."""
    return [index for index, part in enumerate(parts) if part.get("type") == STEP_START]


def data_values(parts: Iterable[Part], kind: str) -> list[Any]:
    """Return the values of all ``data-KIND`` parts, whatever their type."""
    return [part.get("data") for part in parts if kind_of(part) == f"data-{kind}"]


def data_of(part: Part, kind: str) -> dict[str, Any] | None:
    """Return the object in a data part of this kind; None for any other part."""
    data = part.get("data") if part.get("type") == kind else None
    return data if isinstance(data, dict) else None


def with_fewer_files(part: Part) -> dict[str, Any]:
    """Return the part as shown: a compaction lists at most ``MAX_LISTED_FILES`` files per kind and counts the rest."""
    data = data_of(part, COMPACTION_PART) or {}
    fewer: dict[str, Any] = {}
    for key in ("read_files", "modified_files"):
        names, more = data.get(key), data.get(f"more_{key}")
        if isinstance(names, list) and len(names) > MAX_LISTED_FILES:
            omitted = len(names) - MAX_LISTED_FILES + (more if isinstance(more, int) else 0)
            fewer |= {key: names[-MAX_LISTED_FILES:], f"more_{key}": omitted}
    return {**part, "data": {**data, **fewer}} if fewer else {**part}


def steps_of(parts: Iterable[Part]) -> list[list[Part]]:
    """Group the parts by step, without the step markers. The first step may have no marker."""
    steps: list[list[Part]] = [[]]
    for part in parts:
        if kind_of(part) == STEP_START:
            steps.append([])
        else:
            steps[-1].append(part)
    return [step for step in steps if step]


def provider_data(part: Part, provider_id: str) -> Mapping[str, Any] | None:
    """Return what a provider attached to a text or call and expects back; None if it attached nothing."""
    metadata = part.get("callProviderMetadata" if is_call(part) else "providerMetadata")
    own = metadata.get(provider_id) if isinstance(metadata, Mapping) else None
    return own if isinstance(own, Mapping) else None


def seal_of(part: Part, names: Iterable[str]) -> Mapping[str, Any] | None:
    """Return the data the first of these providers attached to a reasoning; None if none of them wrote it."""
    return next((own for name in names if (own := provider_data(part, name)) is not None), None)


# Calls


def is_call(part: Part) -> bool:
    return call_id_of(part) is not None


def call_id_of(part: Part) -> str | None:
    """Return the id of a tool call; None for any other part."""
    id_, kind = part.get("toolCallId"), part.get("type")
    if not isinstance(id_, str) or not isinstance(kind, str):
        return None
    return id_ if kind.startswith("tool-") or kind == "dynamic-tool" else None


def tool_name(part: Part) -> str:
    """Return the tool a call names; empty for any other part."""
    if not is_call(part):
        return ""
    kind = kind_of(part)
    return text_at(part, "toolName") or "" if kind == "dynamic-tool" else kind.removeprefix("tool-")


def input_of(part: Part) -> Any:
    """Return the arguments of a call; the raw input so far while they are incomplete."""
    return part.get("input", part.get("rawInput"))


def input_text(part: Part) -> str:
    """Return the arguments of a call as text, as they are sent."""
    arguments = input_of(part)
    return "" if arguments is None else _as_text(arguments)


def output_of(part: Part) -> Any:
    return part.get("output")


def exit_code_of(part: Part) -> int | None:
    """Return the exit code of a ``bash`` call, negative for a signal; None for any other part.

    Older outputs are plain text and have none.
    """
    output = part.get("output") if tool_name(part) == "bash" else None
    code = output.get("exit_code") if isinstance(output, Mapping) and text_at(output, "text") is not None else None
    return code if isinstance(code, int) else None


def read_output(part: Part) -> Any:
    """Return the output of a call as a model reads it.

    For a command this is its text, which includes how it ended, or what it has printed so far.
    """
    output = part.get("output")
    written = exit_code_of(part) is not None or (is_preliminary(part) and tool_name(part) == "bash")
    text = text_at(output, "text") if written and isinstance(output, Mapping) else None
    return output if text is None else text


def output_text(part: Part) -> str | None:
    """Return the output of a completed call as text; None for any other part."""
    return _as_text(read_output(part)) if is_call(part) and state_of(part) == "output-available" else None


def error_text(part: Part) -> str | None:
    return text_at(part, "errorText")


def result_text(part: Part) -> str:
    """Return the output, the error or the reason for denial as text; empty without a result and for other parts."""
    if not is_call(part):
        return ""
    match state_of(part):
        case "output-available":
            return output_text(part) or ""
        case "output-error":
            return error_text(part) or ""
        case "output-denied":
            return text_at(approval_of(part), "reason") or ""
        case _:
            return ""


def approval_of(part: Part) -> Mapping[str, Any]:
    """Return the approval request of a call and its answer; empty if there was none."""
    approval = part.get("approval")
    return approval if isinstance(approval, Mapping) else {}


def answer_note_of(part: Part) -> Mapping[str, Any]:
    """Return who answered the request of a call, when and through which front end; empty without an answer."""
    metadata = part.get("resultProviderMetadata")
    result = metadata.get(OWN) if isinstance(metadata, Mapping) else None
    for value in (approval_of(part), result):
        if isinstance(value, Mapping) and "answered_at" in value:
            return {key: value[key] for key in ANSWER_KEYS if key in value}
    return {}


def with_claims(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return an imported part with its answer recorded as a claim: nothing proves who answered on another host."""

    def claimed(value: Any) -> Any:
        if not isinstance(value, Mapping) or not value.keys() & set(ANSWER_KEYS):
            return value
        claims = {key: value[key] for key in ANSWER_KEYS if key in value}
        return {**{key: item for key, item in value.items() if key not in claims}, "claimed": claims}

    if not is_call(part):
        return {**part}
    metadata = part.get("resultProviderMetadata")
    changed = {"approval": claimed(part["approval"])} if "approval" in part else {}
    if isinstance(metadata, Mapping) and OWN in metadata:
        changed["resultProviderMetadata"] = {**metadata, OWN: claimed(metadata[OWN])}
    return {**part, **changed}


def change_of(part: Part) -> Mapping[str, Any] | None:
    """Return the diff a call made to its file; before it ran, the diff its request proposes."""
    metadata = part.get("resultProviderMetadata")
    for source in (metadata.get(OWN) if isinstance(metadata, Mapping) else None, approval_of(part).get("descriptor")):
        change = source.get("change") if isinstance(source, Mapping) else None
        if isinstance(change, Mapping):
            return change
    return None


def is_preliminary(part: Part) -> bool:
    """Return whether the output of the call is not yet its final result."""
    return part.get("preliminary") is True


def is_open_call(part: Part) -> bool:
    """Return whether a call has no final result yet: it is running, or waiting for a person."""
    return is_call(part) and (not (state_of(part) or "").startswith("output-") or is_preliminary(part))


def is_growing(part: Part) -> bool:
    """Return whether the part may still change: a streaming text, an open call, or data with an id."""
    if is_call(part):
        return is_open_call(part)
    return state_of(part) == "streaming" or ("id" in part and kind_of(part).startswith("data-"))


def close_call(part: Part, reason: str) -> dict[str, Any]:
    """End an open call as an error.

    An unanswered request is dropped. An approval stays, because the call may have had effects, and so does the output
    so far.
    """
    ended = ("approval", "inputEncoding", "rawInput", "output", "preliminary")
    rest = {key: value for key, value in part.items() if key not in ended}
    output_so_far = output_text(part) if is_preliminary(part) else None
    reason = f"{reason}\n\nbefore that it gave:\n{output_so_far}" if output_so_far else reason
    if approval_of(part).get("approved") is True:
        rest["approval"] = part["approval"]
    if child := child_data(output_of(part)):
        rest["resultProviderMetadata"] = {OWN: child}
    rest.setdefault("input", {})
    return {**rest, "state": "output-error", "errorText": reason}


def is_subagent_call(part: Part) -> bool:
    """Return whether a subagent runs for a call: it is a ``task`` call, or its output names a child session."""
    return kind_of(part) == "tool-task" or bool(child_data(output_of(part)))


def child_data(report: object) -> dict[str, Any]:
    """Return the session and the usage of a subagent from the report of its call.

    Empty if the report names no session or has keys that no such report has.
    """
    if not isinstance(report, Mapping) or not report.keys() <= _CHILD_KEYS:
        return {}
    if not is_session_id(report.get(_CHILD_ID_KEY), SessionIdForm.SHARED):
        return {}
    usage = {key: report[key] for key in ("steps", "tokens", "cost_usd") if type(report.get(key)) in (int, float)}
    return {_CHILD_ID_KEY: report[_CHILD_ID_KEY], **usage}


def halve(part: Part, least: int) -> list[dict[str, Any]]:
    """Split a part into two with the same content; return it alone if it has no text longer than ``least``."""
    if not is_call(part):
        text = text_of(part) or ""
        middle = len(text) // 2
        return [{**part, "text": text[:middle]}, {**part, "text": text[middle:]}] if len(text) > least else [{**part}]
    arguments, result = input_text(part), result_text(part)
    key = {"output-available": "output", "output-error": "errorText"}.get(str(state_of(part)))
    if len(arguments) > max(len(result), least):
        middle = len(arguments) // 2
        continued = {"state": "output-available", "output": "(more of this call follows)"}
        return [{**part, "input": arguments[:middle], **continued}, {**part, "input": arguments[middle:]}]
    if key is not None and len(result) > least:
        middle = len(result) // 2
        return [{**part, key: result[:middle]}, {**part, key: result[middle:], "input": "(continued)"}]
    return [{**part}]


# Files


def file_name_of(part: Part) -> str | None:
    """Return the name of a file. Tool files store it in their metadata, since v6 file chunks have no name field."""
    return text_at(part, "filename") or text_at(provider_data(part, OWN) or {}, "name")


def giver_of(part: Part) -> str | None:
    """Return the id of the call that produced a file; None for other parts. Imported files use ``result_of``."""
    own = provider_data(part, OWN) if kind_of(part) == "file" else None
    return None if own is None else text_at(own, "call") or text_at(own, "result_of")


def stub_file(part: Part, text: str) -> dict[str, Any]:
    """Return a tool file with its content replaced by a text; its origin and name stay."""
    own = {key: value for key, value in (provider_data(part, OWN) or {}).items() if key not in _MEASURED_KEYS}
    body = base64.b64encode(text.encode("utf-8", "replace")).decode()
    url = f"data:text/plain;base64,{body}"
    return {**part, "mediaType": "text/plain", "url": url, "providerMetadata": {OWN: own}}


def name_of(part: Part) -> str | None:
    """Return the label of a file or source: its name, its title, or its URL."""
    return file_name_of(part) or text_at(part, "title") or url_of(part)


def media_type_of(part: Part) -> str | None:
    return text_at(part, "mediaType")


def is_text_type(media_type: str) -> bool:
    """Return whether a media type denotes text."""
    return _TEXT_TYPES.fullmatch(media_type) is not None


def url_of(part: Part) -> str | None:
    return text_at(part, "url")


def blob_url(sha256: str) -> str:
    """Return the URL that a stored file part has in place of its bytes."""
    return f"/api/blobs/{sha256}"


def blob_of(part: Part) -> str | None:
    """Return the digest of the blob a file part refers to; None for any other part."""
    match = _BLOB.fullmatch(url_of(part) or "") if part.get("type") == "file" else None
    return match[1] if match else None


def bytes_in(url: str) -> bytes | None:
    """Return the bytes of a ``data:`` URL; None for any other URL, since the server must not fetch it."""
    head, comma, data = url.partition(",")
    if not head.startswith("data:") or not comma:
        return None
    if head.endswith(";base64"):
        try:
            return base64.b64decode(data, validate=False)
        except (binascii.Error, ValueError):
            return None
    return unquote_to_bytes(data)


def stored_file(part: Part, sha256: str, media_type: str, noted: Mapping[str, int]) -> dict[str, Any]:
    """Return a file part that refers to a blob, with the metadata measured from its bytes in ``noted``.

    These are its ``size`` and, if known, the ``width`` and ``height`` of an image or the ``pages`` of a document.
    Values a client sends for these keys are discarded.
    """
    metadata = part.get("providerMetadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    own = {key: value for key, value in (provider_data(part, OWN) or {}).items() if key not in _MEASURED_KEYS}
    merged = {**metadata, OWN: {**own, **noted}}
    return {**part, "url": blob_url(sha256), "mediaType": media_type, "providerMetadata": merged}


def without_notes(part: Part) -> dict[str, Any]:
    """Return a client's part without clew's own notes: only clew says what is a notice, or what a call gave."""
    about = part.get("providerMetadata")
    if not isinstance(about, Mapping) or OWN not in about:
        return dict(part)
    left = {key: value for key, value in about.items() if key != OWN}
    return {**part, "providerMetadata": left} if left else {k: v for k, v in part.items() if k != "providerMetadata"}


def clew_metadata_of(part: Part, key: str) -> int | None:
    """Return a number measured when the file was stored, such as its ``size``, so that its bytes need not be read."""
    value = (provider_data(part, OWN) or {}).get(key)
    return value if isinstance(value, int) and value >= 0 else None


def text_at(value: Mapping[str, Any], key: str) -> str | None:
    """Return the text under a key; None if it is missing or not text."""
    text = value.get(key)
    return text if isinstance(text, str) else None


class TextKey:
    """A descriptor for the text under a key of an object's metadata, or of another mapping of it; None if missing."""

    def __init__(self, key: str, bag: str = "metadata") -> None:
        self._key, self._bag = key, bag

    def __get__(self, holder: object, _: type | None = None) -> str | None:
        text = getattr(holder, self._bag).get(self._key)
        return text if isinstance(text, str) else None


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
