"""Admission: checks that a prompt passes before anything is stored, and the rows that new messages start as."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson

from clew.errors import InvalidInput, MessageTooLarge, ToolFailed, TooManyFiles, UnsupportedFile
from clew.providers.base import ModelInfo
from clew.session.host import Host
from clew.session.prompt.file_content import content_of, extent_of
from clew.session.prompt.turn_config import LastEnvironment, TurnConfig, resolve
from clew.store.base import Blob, Store
from clew.store.unit import LinkBlob, PutBlob
from clew.tools.files.access import open_plain
from clew.tools.files.paths import locate
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.metadata import PICKED_KEY
from clew.transcript.part import (
    blob_of,
    clew_metadata_of,
    file_name_of,
    is_text_type,
    kind_of,
    media_type_of,
    stored_file,
    text_of,
    text_part,
    texts_of,
    url_of,
    without_notes,
)
from clew.transcript.session import Model, Session
from clew.transcript.value_check import check_value

__all__ = [
    "PromptContent",
    "admit",
    "assistant_row",
    "content_digest",
    "media_type_from",
    "next_row_at",
    "read_parts",
    "synthetic_row",
    "user_row",
]

MAX_FILES: Final = 10
MAX_FILE_BYTES: Final = 10 * 1024 * 1024
MAX_FILES_BYTES: Final = 20 * 1024 * 1024
_MAX_INLINE_CHARS: Final = 64 * 1024
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9.+-]{1,127}/[a-z0-9.+*-]{1,127}", re.ASCII)
_MEDIA_PREFIXES: Final = ("image/", "audio/", "video/", "application/pdf")


class PromptContent(msgspec.Struct, frozen=True):
    """A prompt as it will be stored: its parts and the blobs they refer to."""

    parts: tuple[dict[str, Any], ...]
    blobs: tuple[PutBlob | LinkBlob, ...]


async def admit(
    host: Host,
    session: Session,
    prompt: str | Sequence[Mapping[str, Any]],
    *,
    model: str | Model | dict[str, Any] | None,
    agent: str | None,
    attended: bool,
    last_environment: LastEnvironment | None = None,
    output: Mapping[str, Any] | None = None,
) -> tuple[TurnConfig, PromptContent]:
    """Resolve the turn config for a prompt and check the prompt; store nothing yet."""
    given: Sequence[object] = () if isinstance(prompt, str) else prompt
    media = any(isinstance(part, Mapping) and kind_of(part) == "file" for part in given)
    config = await resolve(
        host,
        session,
        model=model,
        agent=agent,
        attended=attended,
        media=media,
        last_environment=last_environment,
        output=output,
    )
    checked = None if session.owner is None else await _check_confined(config, given)
    linked = await _load_linked_blobs(host.store, prompt, session.owner)
    args = (prompt, config.workspace, host.clock.now_ms(), config.info, linked, checked)
    # In a thread when there are files to read or a lot of text to check.
    short = not media and _is_short(prompt)
    content = read_parts(*args) if short else await asyncio.to_thread(read_parts, *args)
    _check_size(content, config)
    return config, content


async def _check_confined(config: TurnConfig, parts: Sequence[object]) -> Mapping[str, Path]:
    """Return the paths of the files that an owner names, by name. Raise ``InvalidInput`` for one that their session's
    tools may not read. These paths hold no link: a name may lead elsewhere by the time its file is opened."""
    checked: dict[str, Path] = {}
    for part in parts:
        url = (url_of(part) if isinstance(part, Mapping) else None) or ""
        if not url.startswith("workspace:") or config.workspace is None:
            continue
        name = url.removeprefix("workspace:")
        try:
            target = (await asyncio.to_thread(locate, name, config.workspace)).target("read")
        except ToolFailed as error:
            raise InvalidInput(str(error)) from error
        decision = await config.permit.decide((target,), "read")
        if decision.rule is not None and decision.rule.pinned and decision.action == "deny":
            raise InvalidInput(f"{name!r} cannot be attached: {decision.reason}")
        checked[name] = Path(target.value)
    return checked


def _is_short(prompt: str | Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a prompt is short text without files."""
    if isinstance(prompt, str):
        return len(prompt) <= _MAX_INLINE_CHARS
    given: Sequence[object] = prompt
    values = [value for part in given if isinstance(part, Mapping) for value in part.values()]
    return all(isinstance(value, str) for value in values) and sum(map(len, values)) <= _MAX_INLINE_CHARS


async def user_row(
    host: Host,
    session: Session,
    config: TurnConfig | None,
    content: PromptContent,
    client_id: str | None,
    given: Mapping[str, Any] | None,
    newest_at: int | None = None,
) -> MessageRow:
    """Return the message of an admitted prompt, as it will be stored.

    Without a ``config`` the model is chosen when the prompt's turn starts. ``newest_at`` is the time of the newest
    message, if it was just read.
    """
    newest_at = await host.store.newest_message_at(session.id) if newest_at is None else newest_at
    now = next_row_at(host, newest_at)
    if session.metadata.get(PICKED_KEY) == now:
        now += 1  # sent after the session's model was chosen, and must sort after that choice
    metadata: dict[str, Any] = dict(given or {})
    if config is not None:
        metadata["model"] = msgspec.to_builtins(config.model)
    # An agent that is missing only here is requested again when the turn starts.
    if config is not None and config.agent.name != session.agent and "agent" not in config.fallback_for:
        metadata["agent"] = config.agent.name
    if client_id is not None:
        metadata["client_message_id"] = client_id
    parts = tuple(PartRow(host.mint.part(), n, data, now, now) for n, data in enumerate(content.parts))
    return MessageRow(host.mint.message(), session.id, "user", now, now, metadata, parts)


def next_row_at(host: Host, newest_at: int) -> int:
    """Return the time of a new message: now, or just after the session's newest one if the clock went back.

    Programs that do not know turns sort messages by time, and ids are ordered only within one process.
    """
    now = host.clock.now_ms()
    return now if now >= newest_at else newest_at + 1


def synthetic_row(host: Host, session_id: str, text: str, newest_at: int) -> MessageRow:
    """Return a message that clew itself adds to the conversation."""
    now = next_row_at(host, newest_at)
    part = PartRow(host.mint.part(), 0, text_part(text), now, now)
    return MessageRow(host.mint.message(), session_id, "user", now, now, {"synthetic": True}, (part,))


def assistant_row(session_id: str, message_id: str, now: int, metadata: dict[str, Any]) -> MessageRow:
    """Return an assistant message before its first chunk."""
    return MessageRow(message_id, session_id, "assistant", now, now, metadata)


async def _load_linked_blobs(
    store: Store, prompt: str | Sequence[Mapping[str, Any]], owner: str | None
) -> dict[str, Blob]:
    """Load the stored blobs that a prompt refers to, by digest.

    A client that sends a message again refers to its files this way.
    """
    linked: dict[str, Blob] = {}
    parts: Sequence[object] = () if isinstance(prompt, str) else prompt
    for part in parts:
        sha256 = blob_of(part) if isinstance(part, Mapping) else None
        # A prompt with more files than allowed is refused below; its files need not be read.
        if sha256 is not None and sha256 not in linked and len(linked) <= MAX_FILES:
            blob = await store.find_blob(sha256, owner)
            if blob is not None:
                linked[blob.sha256] = blob
    return linked


def read_parts(
    prompt: str | Sequence[Mapping[str, Any]],
    workspace: Path | None,
    now: int,
    info: ModelInfo,
    linked: Mapping[str, Blob] | None = None,
    checked: Mapping[str, Path] | None = None,
) -> PromptContent:
    """Return the checked parts of a user message; inline and workspace files become blobs, ``kept`` ones are linked.

    ``info`` describes the model that would answer; files it does not accept are refused. With ``checked``, only these
    workspace files are read, at these paths.
    """
    given = [text_part(prompt)] if isinstance(prompt, str) else [dict(part) for part in prompt]
    if not given:
        raise InvalidInput("a prompt needs at least one part")
    # Files arrive as base64, a third larger than their content; their own limits are checked below.
    check_value(given, "parts", max_bytes=2 * MAX_FILES_BYTES)
    files = [part for part in given if kind_of(part) == "file"]
    if len(files) > MAX_FILES:
        raise TooManyFiles(f"a prompt may have at most {MAX_FILES} files, not {len(files)}")
    parts: list[dict[str, Any]] = []
    blobs: list[PutBlob | LinkBlob] = []
    total = 0
    for part in given:
        if text_of(part) is not None:
            parts.append(without_notes(part))
        elif kind_of(part) == "file":
            part = without_notes(_with_file_name(part))
            blob = _read_file(part, workspace, now, info, linked or {}, checked)
            total += len(blob.data)
            if total > MAX_FILES_BYTES:
                raise MessageTooLarge(f"the files of a prompt may have at most {MAX_FILES_BYTES} bytes in total")
            blobs.append(LinkBlob(blob.sha256) if blob.sha256 in (linked or {}) else blob)
            details = {"size": len(blob.data), **extent_of(blob.data, blob.media_type)}
            parts.append(stored_file(part, blob.sha256, blob.media_type, details))
        else:
            raise InvalidInput(f"a prompt takes text and file parts, not {kind_of(part)!r}")
    if not any(kind_of(part) == "file" or text_of(part) for part in parts):
        raise InvalidInput("the prompt is empty")
    return PromptContent(tuple(parts), tuple(blobs))


def _with_file_name(part: dict[str, Any]) -> dict[str, Any]:
    """Return a file part with its file name; a blank name is dropped."""
    left = {key: value for key, value in part.items() if key != "filename"}
    url = url_of(part) or ""
    inside = Path(url.removeprefix("workspace:")).name if url.startswith("workspace:") else ""
    name = (file_name_of(part) or "").strip() or inside
    return {**left, "filename": name} if name else left


def _read_file(
    part: Mapping[str, Any],
    workspace: Path | None,
    now: int,
    info: ModelInfo,
    linked: Mapping[str, Blob],
    checked: Mapping[str, Path] | None,
) -> PutBlob:
    """Return a file's bytes with the media type detected; the claimed type may be missing or wrong."""
    url = url_of(part)
    claimed = media_type_from(media_type_of(part) or "")
    if url is None:
        raise InvalidInput("a file part needs a url")
    if url.startswith("data:"):
        data = _read_data_url(url)
    elif url.startswith("workspace:"):
        data = _read_workspace_file(url.removeprefix("workspace:"), workspace, checked)
    elif digest := blob_of(part):
        if digest not in linked:
            raise InvalidInput(f"there is no stored file {url}; send it as a data: url")
        # Part of the history already: a model that does not accept it gets a description, as for other history.
        data = linked[digest].data
        return PutBlob(digest, content_of(data, claimed).media_type, data, now)
    else:
        raise InvalidInput("a file's url must be data:… or workspace:PATH; other urls are not fetched")
    if len(data) > MAX_FILE_BYTES:
        raise MessageTooLarge(f"a file may have at most {MAX_FILE_BYTES} bytes")
    content = content_of(data, claimed)
    name = repr(file_name_of(part) or "a file")
    if not content.whole or (not data and claimed.startswith(_MEDIA_PREFIXES)):
        what = f"{name} ({claimed if not data else content.media_type}, {len(data):,} bytes)"
        raise UnsupportedFile(f"{what} is truncated; remove it or attach it again")
    if content.text is None and not info.takes(content.media_type):
        accepted = ", ".join(["text in UTF-8", *info.files])
        raise UnsupportedFile(
            f"{name} ({content.media_type}) cannot be sent to {info.model}, which accepts {accepted}. Remove the file, "
            "convert it to one of these, or choose another model"
        )
    return PutBlob(sha256(data).hexdigest(), content.media_type, data, now)


def media_type_from(claimed: str) -> str:
    """Return a claimed media type without its parameters, or the type for arbitrary bytes if it is malformed."""
    plain = claimed.partition(";")[0].strip().lower()
    return plain if _MEDIA_TYPE.fullmatch(plain) else "application/octet-stream"


def _read_data_url(url: str) -> bytes:
    head, comma, body = url.partition(",")
    if not comma or not head.endswith(";base64"):
        raise InvalidInput("a data: url must be base64")
    if len(body) > MAX_FILE_BYTES * 2:
        raise MessageTooLarge(f"a file may have at most {MAX_FILE_BYTES} bytes")
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInput(f"a data: url is not base64: {error}") from error


def _read_workspace_file(name: str, workspace: Path | None, checked: Mapping[str, Path] | None) -> bytes:
    if workspace is None:
        raise InvalidInput("this session has no workspace to read files from")
    path = (workspace / name).resolve() if checked is None else checked[name]
    if checked is None and not path.is_relative_to(workspace.resolve()):
        raise InvalidInput(f"{name!r} is outside the workspace")
    try:
        # Opened relative to directory handles: no link created meanwhile is followed, no pipe or device is opened.
        with open_plain(path) as (handle, _), open(handle, "rb", closefd=False) as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except ToolFailed as error:
        raise InvalidInput(f"{name!r} is not a file") from error
    except OSError as error:
        raise InvalidInput(f"{name!r} cannot be read: {error.strerror}") from error
    if len(data) > MAX_FILE_BYTES:
        raise MessageTooLarge(f"{name!r} has more than {MAX_FILE_BYTES} bytes")
    return data


def content_digest(parts: Sequence[Mapping[str, Any]]) -> str:
    """Return a digest by which two prompts count as the same one, for a client that sends it again."""
    linked = [{key: part.get(key) for key in ("type", "text", "url", "mediaType", "filename")} for part in parts]
    return sha256(orjson.dumps(linked)).hexdigest()


def _check_size(content: PromptContent, config: TurnConfig) -> None:
    """Refuse a message that, with system prompt and tools, could not fit even an empty context window."""
    text = sum(map(len, texts_of(content.parts)))
    # Text files are sent as text.
    text += sum(
        clew_metadata_of(part, "size") or 0 for part in content.parts if is_text_type(media_type_of(part) or "")
    )
    tools = config.encoded_tools if config.schemas else ""
    needed = sum(-(-chars // 4) for chars in (text, len(config.system_prompt.text), len(tools)))
    if needed > config.info.window:
        raise MessageTooLarge(
            f"this message needs about {needed} tokens with system prompt and tools; {config.model} takes "
            f"{config.info.window}. Send less, or choose a model with a larger window"
        )
