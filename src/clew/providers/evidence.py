"""The canonical form of a model request and its digest.

A step stores the digest of the request that was sent. The same request, rebuilt from the store at any later time, has
the same digest unless a hook or a later write changed it. Files count by the name of their blob, which is a digest
itself, so a request is digested before the bytes of files are inserted.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec
import orjson

from clew.convert import convert_json
from clew.providers.base import ModelRequest, ToolSchema
from clew.transcript.message import Message

__all__ = ["decode_tools", "digest_messages", "encode_tools", "request_digest", "request_digest_like", "tools_digest"]

_MAX_REMEMBERED: Final = 1 << 16
"""Characters of encoded tools up to which their digest is remembered."""


def encode_tools(tools: Sequence[ToolSchema]) -> str:
    """Return the tools of a request as one text, which is stored once under its digest."""
    plain = [msgspec.structs.asdict(tool) for tool in tools]
    return orjson.dumps(plain, default=msgspec.to_builtins, option=orjson.OPT_SORT_KEYS).decode()


def decode_tools(body: str) -> tuple[ToolSchema, ...]:
    return convert_json(body, tuple[ToolSchema, ...])


def tools_digest(body: str) -> str:
    return _remembered_digest(body) if len(body) <= _MAX_REMEMBERED else sha256(body.encode()).hexdigest()


@functools.lru_cache(maxsize=8)
def _remembered_digest(body: str) -> str:
    """Return a digest from a cache, since every step has the same tools and hashing them takes time."""
    return sha256(body.encode()).hexdigest()


def request_digest(request: ModelRequest, tools: str | None = None) -> str:
    """Return the SHA-256 of a request's canonical form: model, prompt, tools, limits, and the digest of each message.

    The digest of a message covers its role and parts and is cached, since most messages were sent before. ``tools`` are
    those of the request if they are encoded already.
    """
    return _digest({**_frame(request, tools), "messages": digest_messages(request.messages)})


def digest_messages(messages: Iterable[Message]) -> list[str]:
    """Return the digest of each message, and cache it with the message."""
    return [message.memo.get("digest") or _message_digest(message) for message in messages]


def request_digest_like(request: ModelRequest, recorded: str | None) -> str:
    """Return the digest of a request in the form that was recorded: older steps have one over the messages
    themselves."""
    older = _digest({**_frame(request), "messages": _forms(request.messages)})
    return older if older == recorded else request_digest(request)


def _frame(request: ModelRequest, tools: str | None = None) -> dict[str, Any]:
    model = request.model
    return {
        "model": [model.provider_id, model.model_id, model.variant],
        "system": request.system,
        "tools": encode_tools(request.tools) if tools is None else tools,
        "max_output_tokens": request.max_output_tokens,
        "temperature": request.temperature,
    }


def _forms(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [{"role": message.role, "parts": message.parts} for message in messages]


def _message_digest(message: Message) -> str:
    known = message.memo["digest"] = _digest(_forms([message])[0])
    return known


def _digest(form: dict[str, Any]) -> str:
    return sha256(orjson.dumps(form, option=orjson.OPT_SORT_KEYS)).hexdigest()
