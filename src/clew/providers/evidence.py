"""A model request as evidence: one canonical form, and the digest that proves it.

A step keeps the digest of what was really sent. The same request, put together again from the store at any later
time, has the same one; if it has not, something changed it on the way (a hook) or since. Files count by the name of
their blob, which is a digest itself, so a request is digested before their bytes are put in.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec
import orjson

from clew.convert import fit_json
from clew.providers.base import ModelRequest, ToolSchema
from clew.transcript.message import Message

__all__ = ["decode_tools", "digest_messages", "encode_tools", "request_digest", "request_digest_like", "tools_digest"]

_USUAL: Final = 1 << 16
"""Tools that are no longer than this in all have a digest that is remembered."""


def encode_tools(tools: Sequence[ToolSchema]) -> str:
    """The tools of a request as one text, kept once under its digest."""
    told = [msgspec.structs.asdict(tool) for tool in tools]
    return orjson.dumps(told, default=msgspec.to_builtins, option=orjson.OPT_SORT_KEYS).decode()


def decode_tools(body: str) -> tuple[ToolSchema, ...]:
    return fit_json(body, tuple[ToolSchema, ...])


def tools_digest(body: str) -> str:
    return _digest_of_usual(body) if len(body) <= _USUAL else sha256(body.encode()).hexdigest()


@functools.lru_cache(maxsize=8)
def _digest_of_usual(body: str) -> str:
    """Worked out once: every step has the same tools, and to hash that much is to give up one's turn."""
    return sha256(body.encode()).hexdigest()


def request_digest(request: ModelRequest, tools: str | None = None) -> str:
    """SHA-256 over the canonical form of a request: model, prompt, tools, limits, and the digest of each message.

    That of a message is over its role and its parts, and worked out once: most of a request was sent before. ``tools``
    are those of the request, where they are encoded already.
    """
    return _digest({**_frame(request, tools), "messages": digest_messages(request.messages)})


def digest_messages(messages: Iterable[Message]) -> list[str]:
    """The digest of each message, noted in it."""
    return [message.memo.get("digest") or _message_digest(message) for message in messages]


def request_digest_like(request: ModelRequest, recorded: str | None) -> str:
    """The digest of a request as it was recorded: older steps have one over the messages themselves."""
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
