"""Export as chat messages, in the formats of the AI SDK and of OpenAI's chat API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from clew.interop.export_sections import Passage, passages_of
from clew.transcript import part as p
from clew.transcript.message import shown_message
from clew.transcript.part import Part
from clew.transcript.portable import Blob, PortableSession, with_bytes

__all__ = ["format_ai_sdk", "format_openai"]


def format_ai_sdk(portable: PortableSession, *, hidden: bool = False) -> bytes:
    """Return a list of ``UIMessage``, with files as ``data:`` URLs, since a reader of the export has no access to
    blobs."""
    blobs = {blob.sha256: blob for blob in portable.blobs}
    messages = [shown_message(passage.row, None) for passage in passages_of(portable, hidden=hidden)]
    exported = [
        {
            "id": message.id,
            "role": message.role,
            "metadata": message.metadata,
            "parts": [with_bytes(part, blobs) for part in message.parts],
        }
        for message in messages
    ]
    return orjson.dumps(exported, option=orjson.OPT_INDENT_2)


def format_openai(portable: PortableSession, *, hidden: bool = False) -> bytes:
    """Return ``{"messages": […]}`` of the chat API: an answer step by step, each call followed by its result.

    Reasoning is left out. A call that was not executed gets an error as its result, since each call needs one.
    """
    blobs = {blob.sha256: blob for blob in portable.blobs}
    messages = [one for passage in passages_of(portable, hidden=hidden) for one in _of_openai(passage, blobs)]
    return orjson.dumps({"messages": messages}, option=orjson.OPT_INDENT_2)


def _of_openai(passage: Passage, blobs: Mapping[str, Blob]) -> list[dict[str, Any]]:
    row = passage.row
    parts = [part.data for part in row.parts]
    if row.role != "assistant":
        content = [one for part in parts if (one := _content(part, blobs)) is not None]
        plain = all(one["type"] == "text" for one in content)
        body = "\n\n".join(one["text"] for one in content) if plain else content
        return [{"role": row.role, "content": body}] if content else []
    messages: list[dict[str, Any]] = []
    for step in p.steps_of(parts):
        summaries = [(p.data_of(part, p.COMPACTION_PART) or {}).get("summary") for part in step]
        texts = [*p.texts_of(step), *(one for one in summaries if isinstance(one, str))]
        calls = [part for part in step if p.is_call(part)]
        answer: dict[str, Any] = {"role": "assistant", "content": "\n\n".join(texts) or None}
        if calls:
            answer["tool_calls"] = [
                {
                    "id": p.call_id_of(part),
                    "type": "function",
                    "function": {"name": p.tool_name(part), "arguments": p.input_text(part)},
                }
                for part in calls
            ]
        if texts or calls:
            messages.append(answer)
        messages += [
            {"role": "tool", "tool_call_id": p.call_id_of(part), "content": p.result_text(part)} for part in calls
        ]
        # Results are text only; files follow them in a user message, as in requests to the chat API.
        given = [_content(part, blobs) for part in step if p.giver_of(part) is not None]
        if given:
            messages.append({"role": "user", "content": given})
    return messages


def _content(part: Part, blobs: Mapping[str, Blob]) -> dict[str, Any] | None:
    text = p.text_of(part, "text")
    if text is not None:
        return {"type": "text", "text": text}
    if p.kind_of(part) != "file":
        return None
    filled, media_type = with_bytes(part, blobs), p.media_type_of(part) or ""
    if media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": p.url_of(filled) or ""}}
    return {"type": "file", "file": {"filename": p.name_of(part) or "file", "file_data": p.url_of(filled) or ""}}
