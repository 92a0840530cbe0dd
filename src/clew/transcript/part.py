"""A part: one piece of a message, as the AI SDK writes it down. Typed access to what is in it.

The dict is the part and is kept verbatim: keys and kinds nobody here knows pass through untouched. This module alone
knows the keys; everybody else asks it. It reads what anybody may have stored, so a key of the wrong type reads as one
that is not there.

A part is a *call* when its kind says so (``tool-NAME``, or ``dynamic-tool`` with the name in a key of its own) and it
has an id. The states of a call are :mod:`clew.transcript.tool_state`; what a chunk makes of a part is
:mod:`clew.transcript.fold_part`.
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
KEPT_PART: Final = "data-kept"
"""Holds records of another program that have no place here. It is neither shown nor sent."""
MOST_FILES: Final = 200
"""So many files that were read, and as many that were changed, a compaction names; of others it says how many."""
STEP_START: Final = "step-start"
UNSEEN: Final = frozenset({STEP_START, KEPT_PART})
"""Kinds of parts that are not shown to people."""
OWN: Final = "clew"
"""Whose ``providerMetadata`` is clew's own."""
ANSWER_KEYS: Final = ("answered_by", "via", "answered_at")
"""What is stored with the answer to a request, or to a question: who gave it, through which front, and when."""
MOST_GIVEN_TEXT: Final = 30_000
"""Characters of a text file that a call gave which a model is sent."""
_CHILD: Final = "session_id"
_CHILD_TOLD: Final = frozenset({_CHILD, "steps", "tokens", "cost_usd", "text", "tool", "doing"})
"""All that is told of a subagent while it works."""
_NOTED: Final = ("size", "width", "height", "pages")
_BLOB: Final = re.compile("/api/blobs/([0-9a-f]{64})", re.ASCII)
_TEXT_TYPES: Final = re.compile(r"text/.*|application/(json|xml|yaml|toml|javascript)(;.*)?", re.ASCII)


def kind_of(part: Part) -> str:
    """Its type; ``unknown`` for a part without one."""
    kind = part.get("type")
    return kind if isinstance(kind, str) else "unknown"


def state_of(part: Part) -> str | None:
    return text_at(part, "state")


def text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def text_of(part: Part, *kinds: str) -> str | None:
    """The text of a part of these kinds (none given: of a ``text``); None for any other part."""
    return text_at(part, "text") if kind_of(part) in (kinds or ("text",)) else None


def cut_text(part: Part, length: int) -> dict[str, Any]:
    """Return a part that streams text with no more of it than that, ended."""
    return {**part, "text": part["text"][:length], **({"state": "done"} if "state" in part else {})}


def texts_of(parts: Iterable[Part]) -> list[str]:
    """What the text parts among these say, each; nothing that clew put there."""
    return [text for part in parts if (text := text_of(part)) is not None and not is_notice(part)]


def notice_part(text: str) -> dict[str, Any]:
    """A text that clew puts in front of a person's own, in what a model is sent."""
    return {**text_part(text), "providerMetadata": {OWN: {"notice": True}}}


def is_notice(part: Part) -> bool:
    return (provider_data(part, OWN) or {}).get("notice") is True


def first_words(text: str, length: int) -> str:
    """The beginning of a text as one line of at most ``length`` characters."""
    # Only a text of nothing but blanks loses by this, and a text of megabytes is not split for one line.
    line = " ".join(text[: 4 * length].split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


def steps_in(parts: Iterable[Part]) -> list[int]:
    """At which index each step begins."""
    return [index for index, part in enumerate(parts) if part.get("type") == STEP_START]


def data_values(parts: Iterable[Part], kind: str) -> list[Any]:
    """What the ``data-KIND`` parts hold, whatever that is."""
    return [part.get("data") for part in parts if kind_of(part) == f"data-{kind}"]


def data_of(part: Part, kind: str) -> dict[str, Any] | None:
    """What a data part of this kind holds; None for any other part."""
    held = part.get("data") if part.get("type") == kind else None
    return held if isinstance(held, dict) else None


def with_fewer_files(part: Part) -> dict[str, Any]:
    """A part as it is shown: of a compaction that names more files than it may, the last of them and a count."""
    told = data_of(part, COMPACTION_PART) or {}
    fewer: dict[str, Any] = {}
    for key in ("read_files", "modified_files"):
        names, more = told.get(key), told.get(f"more_{key}")
        if isinstance(names, list) and len(names) > MOST_FILES:
            left_out = len(names) - MOST_FILES + (more if isinstance(more, int) else 0)
            fewer |= {key: names[-MOST_FILES:], f"more_{key}": left_out}
    return {**part, "data": {**told, **fewer}} if fewer else {**part}


def steps_of(parts: Iterable[Part]) -> list[list[Part]]:
    """The parts step by step, without what only begins one; the first may have no beginning."""
    steps: list[list[Part]] = [[]]
    for part in parts:
        if kind_of(part) == STEP_START:
            steps.append([])
        else:
            steps[-1].append(part)
    return [step for step in steps if step]


def provider_data(part: Part, provider_id: str) -> Mapping[str, Any] | None:
    """What a provider noted with a text or a call of its own, to be given back; None where it noted nothing."""
    about = part.get("callProviderMetadata" if is_call(part) else "providerMetadata")
    own = about.get(provider_id) if isinstance(about, Mapping) else None
    return own if isinstance(own, Mapping) else None


def seal_of(part: Part, names: Iterable[str]) -> Mapping[str, Any] | None:
    """Return what the first of these providers noted with a reasoning; None where none of them made it."""
    return next((own for name in names if (own := provider_data(part, name)) is not None), None)


# Calls


def is_call(part: Part) -> bool:
    return call_id_of(part) is not None


def call_id_of(part: Part) -> str | None:
    """The id of a tool call; None for any other part."""
    id_, kind = part.get("toolCallId"), part.get("type")
    if not isinstance(id_, str) or not isinstance(kind, str):
        return None
    return id_ if kind.startswith("tool-") or kind == "dynamic-tool" else None


def tool_name(part: Part) -> str:
    """The tool a call names; empty for any other part."""
    if not is_call(part):
        return ""
    kind = kind_of(part)
    return text_at(part, "toolName") or "" if kind == "dynamic-tool" else kind.removeprefix("tool-")


def input_of(part: Part) -> Any:
    """The arguments of a call; as far as they were written, where they are not whole."""
    return part.get("input", part.get("rawInput"))


def input_text(part: Part) -> str:
    """The arguments of a call as they are sent."""
    given = input_of(part)
    return "" if given is None else _as_text(given)


def output_of(part: Part) -> Any:
    return part.get("output")


def exit_code_of(part: Part) -> int | None:
    """How a command of ``bash`` ended, a signal as a negative number; None for any other part; old outputs are text."""
    output = part.get("output") if tool_name(part) == "bash" else None
    code = output.get("exit_code") if isinstance(output, Mapping) and text_at(output, "text") is not None else None
    return code if isinstance(code, int) else None


def read_output(part: Part) -> Any:
    """The output of a call as a model reads it: of a command its text, which says how it ended, or what it has
    written so far."""
    output = part.get("output")
    written = exit_code_of(part) is not None or (is_preliminary(part) and tool_name(part) == "bash")
    text = text_at(output, "text") if written and isinstance(output, Mapping) else None
    return output if text is None else text


def output_text(part: Part) -> str | None:
    """The output of a completed call as text; None for any other part."""
    return _as_text(read_output(part)) if is_call(part) and state_of(part) == "output-available" else None


def error_text(part: Part) -> str | None:
    return text_at(part, "errorText")


def result_text(part: Part) -> str:
    """The output, the error, or why it was denied; empty for a call that has no result, and for any other part."""
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
    """What a human was asked about the call, and said; empty where nobody was."""
    asked = part.get("approval")
    return asked if isinstance(asked, Mapping) else {}


def answer_note_of(part: Part) -> Mapping[str, Any]:
    """Return who answered the request of a call, when and through which front; empty without an answer."""
    about = part.get("resultProviderMetadata")
    result = about.get(OWN) if isinstance(about, Mapping) else None
    for held in (approval_of(part), result):
        if isinstance(held, Mapping) and "answered_at" in held:
            return {key: held[key] for key in ANSWER_KEYS if key in held}
    return {}


def with_claims(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part of another host: who answered a call there is what its file claims, and kept as that."""

    def claimed(held: Any) -> Any:
        if not isinstance(held, Mapping) or not held.keys() & set(ANSWER_KEYS):
            return held
        claims = {key: held[key] for key in ANSWER_KEYS if key in held}
        return {**{key: one for key, one in held.items() if key not in claims}, "claimed": claims}

    if not is_call(part):
        return {**part}
    about = part.get("resultProviderMetadata")
    changed = {"approval": claimed(part["approval"])} if "approval" in part else {}
    if isinstance(about, Mapping) and OWN in about:
        changed["resultProviderMetadata"] = {**about, OWN: claimed(about[OWN])}
    return {**part, **changed}


def change_of(part: Part) -> Mapping[str, Any] | None:
    """What a call made of its file, as a difference; before it has, what its request says that it would."""
    about = part.get("resultProviderMetadata")
    for held in (about.get(OWN) if isinstance(about, Mapping) else None, approval_of(part).get("descriptor")):
        change = held.get("change") if isinstance(held, Mapping) else None
        if isinstance(change, Mapping):
            return change
    return None


def is_preliminary(part: Part) -> bool:
    """What the call has given is not its result."""
    return part.get("preliminary") is True


def is_open_call(part: Part) -> bool:
    """A call without its result: it runs, or waits for a human."""
    return is_call(part) and (not (state_of(part) or "").startswith("output-") or is_preliminary(part))


def is_growing(part: Part) -> bool:
    """Whether more of it may still come: a text that streams, a call without its final result, data with an id."""
    if is_call(part):
        return is_open_call(part)
    return state_of(part) == "streaming" or ("id" in part and kind_of(part).startswith("data-"))


def close_call(part: Part, reason: str) -> dict[str, Any]:
    """An open call ended as an error. What nobody answered is gone; a yes stays, for it may have had effects, and so
    does what it had given so far."""
    ended = ("approval", "inputEncoding", "rawInput", "output", "preliminary")
    left = {key: value for key, value in part.items() if key not in ended}
    given = output_text(part) if is_preliminary(part) else None
    reason = f"{reason}\n\nbefore that it gave:\n{given}" if given else reason
    if approval_of(part).get("approved") is True:
        left["approval"] = part["approval"]
    if child := child_data(output_of(part)):
        left["resultProviderMetadata"] = {OWN: child}
    left.setdefault("input", {})
    return {**left, "state": "output-error", "errorText": reason}


def is_subagent_call(part: Part) -> bool:
    """Return whether a subagent works for a call: one of the tool ``task``, or one that has told of its child."""
    return kind_of(part) == "tool-task" or bool(child_data(output_of(part)))


def child_data(report: object) -> dict[str, Any]:
    """Of what a call has told of its subagent, what people still want to know when it has no result: which session that
    is, and what it took. Nothing where it has told of none, or of more than is ever told of one."""
    if not isinstance(report, Mapping) or not report.keys() <= _CHILD_TOLD:
        return {}
    if not is_session_id(report.get(_CHILD), SessionIdForm.SHARED):
        return {}
    taken = {key: report[key] for key in ("steps", "tokens", "cost_usd") if type(report.get(key)) in (int, float)}
    return {_CHILD: report[_CHILD], **taken}


def halve(part: Part, least: int) -> list[dict[str, Any]]:
    """Two parts that say what the one says; only the one where it has no text of more than ``least`` characters."""
    if not is_call(part):
        text = text_of(part) or ""
        middle = len(text) // 2
        return [{**part, "text": text[:middle]}, {**part, "text": text[middle:]}] if len(text) > least else [{**part}]
    given, result = input_text(part), result_text(part)
    key = {"output-available": "output", "output-error": "errorText"}.get(str(state_of(part)))
    if len(given) > max(len(result), least):
        middle = len(given) // 2
        goes_on = {"state": "output-available", "output": "(more of this call follows)"}
        return [{**part, "input": given[:middle], **goes_on}, {**part, "input": given[middle:]}]
    if key is not None and len(result) > least:
        middle = len(result) // 2
        return [{**part, key: result[:middle]}, {**part, key: result[middle:], "input": "(continued)"}]
    return [{**part}]


# Files


def file_name_of(part: Part) -> str | None:
    """What a file is called; that of a call's noted it, since a stream of v6 has no place for names."""
    return text_at(part, "filename") or text_at(provider_data(part, OWN) or {}, "name")


def giver_of(part: Part) -> str | None:
    """Return the id of the call that gave a file; None for other parts. Imported files name it ``result_of``."""
    own = provider_data(part, OWN) if kind_of(part) == "file" else None
    return None if own is None else text_at(own, "call") or text_at(own, "result_of")


def stub_file(part: Part, text: str) -> dict[str, Any]:
    """A file that a call gave, as a text in its place; whose it is and its name stay."""
    own = {key: value for key, value in (provider_data(part, OWN) or {}).items() if key not in _NOTED}
    body = base64.b64encode(text.encode("utf-8", "replace")).decode()
    url = f"data:text/plain;base64,{body}"
    return {**part, "mediaType": "text/plain", "url": url, "providerMetadata": {OWN: own}}


def name_of(part: Part) -> str | None:
    """What a file or a source is called: its name, its title, or where it lies."""
    return file_name_of(part) or text_at(part, "title") or url_of(part)


def media_type_of(part: Part) -> str | None:
    return text_at(part, "mediaType")


def is_text_type(media_type: str) -> bool:
    """Whether this is what a text is called."""
    return _TEXT_TYPES.fullmatch(media_type) is not None


def url_of(part: Part) -> str | None:
    return text_at(part, "url")


def blob_url(sha256: str) -> str:
    """What a stored file part names instead of the bytes."""
    return f"/api/blobs/{sha256}"


def blob_of(part: Part) -> str | None:
    """The digest of the blob a file part names; None for one that names none, and for any other part."""
    named = _BLOB.fullmatch(url_of(part) or "") if part.get("type") == "file" else None
    return named[1] if named else None


def bytes_in(url: str) -> bytes | None:
    """The bytes of a ``data:`` URL; None for any other, which is nothing this side may fetch."""
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
    """A file part that names its blob instead of the bytes, with what is ``noted`` of them.

    That is their ``size`` and, where it is known, the ``width`` and ``height`` of a picture or the ``pages`` of a
    document. A client that notes such things itself is not believed.
    """
    about = part.get("providerMetadata")
    about = about if isinstance(about, Mapping) else {}
    own = {key: value for key, value in (provider_data(part, OWN) or {}).items() if key not in _NOTED}
    metadata = {**about, OWN: {**own, **noted}}
    return {**part, "url": blob_url(sha256), "mediaType": media_type, "providerMetadata": metadata}


def without_notes(part: Part) -> dict[str, Any]:
    """Return a client's part without clew's own notes: only clew says what is a notice, or what a call gave."""
    about = part.get("providerMetadata")
    if not isinstance(about, Mapping) or OWN not in about:
        return dict(part)
    left = {key: value for key, value in about.items() if key != OWN}
    return {**part, "providerMetadata": left} if left else {k: v for k, v in part.items() if k != "providerMetadata"}


def noted_of(part: Part, key: str) -> int | None:
    """What was noted of a file when it was taken in, such as its ``size``: a request is sized without reading it."""
    noted = (provider_data(part, OWN) or {}).get(key)
    return noted if isinstance(noted, int) and noted >= 0 else None


def text_at(value: Mapping[str, Any], key: str) -> str | None:
    """The text under a key; None for what is not there, or no text."""
    text = value.get(key)
    return text if isinstance(text, str) else None


class TextKey:
    """An attribute that is the text under a key of its object's metadata, or of another bag of it; None without."""

    def __init__(self, key: str, bag: str = "metadata") -> None:
        self._key, self._bag = key, bag

    def __get__(self, holder: object, _: type | None = None) -> str | None:
        text = getattr(holder, self._bag).get(self._key)
        return text if isinstance(text, str) else None


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
