"""Admission: what a prompt must satisfy before anything of it is stored, and the rows that messages begin as."""

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
from clew.runtime.file_extent import extent_of
from clew.runtime.files import content_of
from clew.runtime.host import Host
from clew.runtime.setting import Setting, Told, resolve
from clew.store.base import Blob, Store
from clew.store.unit import LinkBlob, PutBlob
from clew.tools.files.access import open_plain
from clew.tools.files.paths import locate
from clew.transcript.gate import check_value
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.metadata import PICKED_KEY
from clew.transcript.part import (
    blob_of,
    file_name_of,
    is_text_type,
    kind_of,
    media_type_of,
    noted_of,
    stored_file,
    text_of,
    text_part,
    texts_of,
    url_of,
    without_notes,
)
from clew.transcript.session import Model, Session

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
_SHORT: Final = 64 * 1024
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9.+-]{1,127}/[a-z0-9.+*-]{1,127}", re.ASCII)
_SEEN_OR_HEARD: Final = ("image/", "audio/", "video/", "application/pdf")


class PromptContent(msgspec.Struct, frozen=True):
    """A prompt as it will be stored: its parts, and the bytes they name."""

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
    told: Told | None = None,
    output: Mapping[str, Any] | None = None,
) -> tuple[Setting, PromptContent]:
    """Who would answer this prompt, and the prompt as it would be stored; nothing is stored yet."""
    given: Sequence[object] = () if isinstance(prompt, str) else prompt
    media = any(isinstance(part, Mapping) and kind_of(part) == "file" for part in given)
    setting = await resolve(
        host, session, model=model, agent=agent, attended=attended, media=media, told=told, output=output
    )
    checked = None if session.owner is None else await _check_confined(setting, given)
    kept = await _load_kept(host.store, prompt, session.owner)
    asked = (prompt, setting.workspace, host.clock.now_ms(), setting.info, kept, checked)
    # Off the loop where files are read, or much has to be looked at.
    short = not media and _is_short(prompt)
    content = read_parts(*asked) if short else await asyncio.to_thread(read_parts, *asked)
    _check_size(content, setting)
    return setting, content


async def _check_confined(setting: Setting, parts: Sequence[object]) -> Mapping[str, Path]:
    """Return the paths of the files that an owner names, by name. Raise ``InvalidInput`` for one that their session's
    tools may not read. These paths hold no link: a name may lead elsewhere by the time its file is opened."""
    checked: dict[str, Path] = {}
    for part in parts:
        url = (url_of(part) if isinstance(part, Mapping) else None) or ""
        if not url.startswith("workspace:") or setting.workspace is None:
            continue
        name = url.removeprefix("workspace:")
        try:
            target = (await asyncio.to_thread(locate, name, setting.workspace)).target("read")
        except ToolFailed as error:
            raise InvalidInput(str(error)) from error
        decision = await setting.permit.decide((target,), "read")
        if decision.rule is not None and decision.rule.pinned and decision.action == "deny":
            raise InvalidInput(f"{name!r} cannot be attached: {decision.reason}")
        checked[name] = Path(target.value)
    return checked


def _is_short(prompt: str | Sequence[Mapping[str, Any]]) -> bool:
    """Whether a prompt is some words, and nothing else."""
    if isinstance(prompt, str):
        return len(prompt) <= _SHORT
    given: Sequence[object] = prompt
    values = [value for part in given if isinstance(part, Mapping) for value in part.values()]
    return all(isinstance(value, str) for value in values) and sum(map(len, values)) <= _SHORT


async def user_row(
    host: Host,
    session: Session,
    setting: Setting | None,
    content: PromptContent,
    client_id: str | None,
    given: Mapping[str, Any] | None,
    newest_at: int | None = None,
) -> MessageRow:
    """The message of an admitted prompt, as it will be stored. Without a ``setting`` who answers is known when its
    turn comes. ``newest_at`` is when the newest message came, where that was just read."""
    newest_at = await host.store.newest_message_at(session.id) if newest_at is None else newest_at
    now = next_row_at(host, newest_at)
    if session.metadata.get(PICKED_KEY) == now:
        now += 1  # sent after the session's model was chosen, and read as such
    metadata: dict[str, Any] = dict(given or {})
    if setting is not None:
        metadata["model"] = msgspec.to_builtins(setting.model)
    # An agent that is only missing here is asked for again when its turn comes.
    if setting is not None and setting.agent.name != session.agent and "agent" not in setting.fallback_for:
        metadata["agent"] = setting.agent.name
    if client_id is not None:
        metadata["client_message_id"] = client_id
    parts = tuple(PartRow(host.mint.part(), n, data, now, now) for n, data in enumerate(content.parts))
    return MessageRow(host.mint.message(), session.id, "user", now, now, metadata, parts)


def next_row_at(host: Host, newest_at: int) -> int:
    """Return when a message is added: now, or after the newest one of its session when the clock went back.

    Programs that know no turns sort messages by their times, and ids only follow each other within a process.
    """
    now = host.clock.now_ms()
    return now if now >= newest_at else newest_at + 1


def synthetic_row(host: Host, session_id: str, text: str, newest_at: int) -> MessageRow:
    """Return a message that clew itself puts into the conversation."""
    now = next_row_at(host, newest_at)
    part = PartRow(host.mint.part(), 0, text_part(text), now, now)
    return MessageRow(host.mint.message(), session_id, "user", now, now, {"synthetic": True}, (part,))


def assistant_row(session_id: str, message_id: str, now: int, metadata: dict[str, Any]) -> MessageRow:
    """An assistant message before its first chunk."""
    return MessageRow(message_id, session_id, "assistant", now, now, metadata)


async def _load_kept(store: Store, prompt: str | Sequence[Mapping[str, Any]], owner: str | None) -> dict[str, Blob]:
    """The blobs that a prompt names as a stored message does, by digest: files of a message of the owner's that is sent
    again."""
    kept: dict[str, Blob] = {}
    parts: Sequence[object] = () if isinstance(prompt, str) else prompt
    for part in parts:
        sha256 = blob_of(part) if isinstance(part, Mapping) else None
        # More than a prompt may hold are refused in a moment; they need not be read for that.
        if sha256 is not None and sha256 not in kept and len(kept) <= MAX_FILES:
            blob = await store.find_blob(sha256, owner)
            if blob is not None:
                kept[blob.sha256] = blob
    return kept


def read_parts(
    prompt: str | Sequence[Mapping[str, Any]],
    workspace: Path | None,
    now: int,
    info: ModelInfo,
    kept: Mapping[str, Blob] | None = None,
    checked: Mapping[str, Path] | None = None,
) -> PromptContent:
    """The parts of a user message, checked; files by value or from the workspace become blobs, ``kept`` ones stay.

    ``info`` is of the model that would answer: a file that it does not take is refused. With ``checked`` only these
    files of the workspace are read, at these paths.
    """
    given = [text_part(prompt)] if isinstance(prompt, str) else [dict(part) for part in prompt]
    if not given:
        raise InvalidInput("a prompt needs at least one part")
    # Files come as base64, a third larger than they are; their own limits are held below.
    check_value(given, "parts", max_bytes=2 * MAX_FILES_BYTES)
    files = [part for part in given if kind_of(part) == "file"]
    if len(files) > MAX_FILES:
        raise TooManyFiles(f"a prompt takes at most {MAX_FILES} files, not {len(files)}")
    parts: list[dict[str, Any]] = []
    blobs: list[PutBlob | LinkBlob] = []
    total = 0
    for part in given:
        if text_of(part) is not None:
            parts.append(without_notes(part))
        elif kind_of(part) == "file":
            part = without_notes(_named(part))
            blob = _read_file(part, workspace, now, info, kept or {}, checked)
            total += len(blob.data)
            if total > MAX_FILES_BYTES:
                raise MessageTooLarge(f"the files of a prompt may have {MAX_FILES_BYTES} bytes together")
            blobs.append(LinkBlob(blob.sha256) if blob.sha256 in (kept or {}) else blob)
            noted = {"size": len(blob.data), **extent_of(blob.data, blob.media_type)}
            parts.append(stored_file(part, blob.sha256, blob.media_type, noted))
        else:
            raise InvalidInput(f"a prompt holds text and file parts, not {kind_of(part)!r}")
    if not any(kind_of(part) == "file" or text_of(part) for part in parts):
        raise InvalidInput("the prompt is empty")
    return PromptContent(tuple(parts), tuple(blobs))


def _named(part: dict[str, Any]) -> dict[str, Any]:
    """A file part with the name the file has; one of nothing but space is none."""
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
    kept: Mapping[str, Blob],
    checked: Mapping[str, Path] | None,
) -> PutBlob:
    """The bytes of a file, under the type they have; what was claimed may be nothing, or wrong."""
    url = url_of(part)
    claimed = media_type_from(media_type_of(part) or "")
    if url is None:
        raise InvalidInput("a file part needs a url")
    if url.startswith("data:"):
        data = _read_data_url(url)
    elif url.startswith("workspace:"):
        data = _read_workspace_file(url.removeprefix("workspace:"), workspace, checked)
    elif named := blob_of(part):
        if named not in kept:
            raise InvalidInput(f"there is no file {url}; send it as a data: url")
        # Of the history already: a model that does not take it is told what it is, as about the rest of that.
        data = kept[named].data
        return PutBlob(named, content_of(data, claimed).media_type, data, now)
    else:
        raise InvalidInput("a file's url is data:… or workspace:PATH; others are not fetched")
    if len(data) > MAX_FILE_BYTES:
        raise MessageTooLarge(f"a file may have at most {MAX_FILE_BYTES} bytes")
    content = content_of(data, claimed)
    name = repr(file_name_of(part) or "a file")
    if not content.whole or (not data and claimed.startswith(_SEEN_OR_HEARD)):
        what = f"{name} ({claimed if not data else content.media_type}, {len(data):,} bytes)"
        raise UnsupportedFile(f"{what} is not whole: leave it out, or attach it again from where it is")
    if content.text is None and not info.takes(content.media_type):
        taken = ", ".join(["text in UTF-8", *info.files])
        raise UnsupportedFile(
            f"{name} ({content.media_type}) cannot be sent to {info.model}, which takes {taken}. Leave the file out, "
            "turn it into one of these, or choose another model"
        )
    return PutBlob(sha256(data).hexdigest(), content.media_type, data, now)


def media_type_from(claimed: str) -> str:
    """A media type as somebody wrote it, without what follows it; what is none is bytes."""
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
        raise InvalidInput("this session has no workspace to take files from")
    path = (workspace / name).resolve() if checked is None else checked[name]
    if checked is None and not path.is_relative_to(workspace.resolve()):
        raise InvalidInput(f"{name!r} is outside the workspace")
    try:
        # Opened by handles: a link created meanwhile is not followed, and no pipe or device is opened.
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
    """What makes two prompts the same one, for a client that sends it again."""
    kept = [{key: part.get(key) for key in ("type", "text", "url", "mediaType", "filename")} for part in parts]
    return sha256(orjson.dumps(kept)).hexdigest()


def _check_size(content: PromptContent, setting: Setting) -> None:
    """A message that with prompt and tools could not fit an empty window is refused before it is stored."""
    text = sum(map(len, texts_of(content.parts)))
    # A file of text is sent as its text.
    text += sum(noted_of(part, "size") or 0 for part in content.parts if is_text_type(media_type_of(part) or ""))
    tools = setting.encoded_tools if setting.schemas else ""
    needed = sum(-(-chars // 4) for chars in (text, len(setting.system_prompt.text), len(tools)))
    if needed > setting.info.window:
        raise MessageTooLarge(
            f"this message needs about {needed} tokens with its prompt and tools; {setting.model} takes "
            f"{setting.info.window}. Send less, or choose a model with a larger window"
        )
