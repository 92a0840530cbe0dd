"""A model request as evidence: one canonical form, and the digest that proves it.

A step keeps the digest of what was really sent. The same request, put together again from the store at any later
time, has the same one; if it has not, something changed it on the way (a hook) or since. Files count by the name of
their blob, which is a digest itself, so a request is digested before their bytes are put in.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec
import orjson

from clew.providers.base import ModelRequest, ToolSchema

__all__ = ["decode_tools", "encode_tools", "request_digest", "tools_digest"]


def encode_tools(tools: Sequence[ToolSchema]) -> str:
    """The tools of a request as one text, kept once under its digest."""
    return orjson.dumps([msgspec.to_builtins(tool) for tool in tools], option=orjson.OPT_SORT_KEYS).decode()


def decode_tools(body: str) -> tuple[ToolSchema, ...]:
    return msgspec.json.decode(body, type=tuple[ToolSchema, ...])


def tools_digest(body: str) -> str:
    return sha256(body.encode()).hexdigest()


def request_digest(request: ModelRequest) -> str:
    """SHA-256 over the canonical form of a request: model, prompt, tools, roles and parts of the messages, limits."""
    model = request.model
    form: dict[str, Any] = {
        "model": [model.provider_id, model.model_id, model.variant],
        "system": request.system,
        "tools": encode_tools(request.tools),
        "messages": [{"role": message.role, "parts": message.parts} for message in request.messages],
        "max_output_tokens": request.max_output_tokens,
        "temperature": request.temperature,
    }
    return sha256(orjson.dumps(form, option=orjson.OPT_SORT_KEYS)).hexdigest()
