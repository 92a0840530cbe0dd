"""Chunk builders, so that a test reads like the stream it describes.

Every builder returns a list of one or more chunks; :func:`step` and :func:`reply` join such lists into steps and
streams. Streams are not validated, since tests also need invalid ones.

::

    reply(
        step(reasoning("the weather, then"), tool_call("weather", {"city": "Oslo"}), tool_output({"celsius": 3})),
        step(text("Three degrees in Oslo.")),
    )
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, TypeAlias

from clew.transcript import chunk as c
from clew.transcript.chunk import UNSET, Chunk, FinishReason

__all__ = [
    "abort",
    "approval",
    "data",
    "document",
    "error",
    "file",
    "metadata",
    "reasoning",
    "reply",
    "source",
    "step",
    "text",
    "tool_call",
    "tool_denied",
    "tool_error",
    "tool_input_error",
    "tool_output",
]

Chunks: TypeAlias = list[Chunk]


def _words(content: str) -> list[str]:
    """Return words with the space after them, as models tend to send them."""
    return re.findall(r"\s*\S+\s?|\s+", content)


def text(content: str, *, id: str = "t1", open: bool = False) -> Chunks:
    """Return a text, word by word; ``open`` leaves its end out."""
    end: Chunks = [] if open else [c.TextEnd(id)]
    return [c.TextStart(id), *(c.TextDelta(id, word) for word in _words(content)), *end]


def reasoning(content: str, *, id: str = "r1", open: bool = False) -> Chunks:
    """Return reasoning, word by word; ``open`` leaves its end out."""
    end: Chunks = [] if open else [c.ReasoningEnd(id)]
    return [c.ReasoningStart(id), *(c.ReasoningDelta(id, word) for word in _words(content)), *end]


def tool_call(
    name: str, input: Any, *, id: str = "c1", streamed: bool = True, open: bool = False, dynamic: bool = False
) -> Chunks:
    """Return a call whose arguments are streamed; ``open`` stops before they are complete.

    With ``streamed=False`` the call is a single chunk.
    """
    kind = True if dynamic else UNSET
    available: Chunks = [] if open else [c.ToolInputAvailable(id, name, input, dynamic=kind)]
    if not streamed:
        return available
    written = json.dumps(input, ensure_ascii=False)
    if open:
        written = written[:-1]
    bits = [written[at : at + 8] for at in range(0, len(written), 8)]
    return [c.ToolInputStart(id, name, dynamic=kind), *(c.ToolInputDelta(id, bit) for bit in bits), *available]


def tool_input_error(name: str, input: Any, error_text: str, *, id: str = "c1") -> Chunks:
    """Return a call with invalid arguments."""
    return [c.ToolInputError(id, name, input, error_text)]


def approval(*, id: str = "a1", call: str = "c1") -> Chunks:
    """Return the request to approve a call."""
    return [c.ToolApprovalRequest(id, call)]


def tool_output(output: Any, *, call: str = "c1", preliminary: bool = False) -> Chunks:
    return [c.ToolOutputAvailable(call, output, True if preliminary else UNSET)]


def tool_error(error_text: str, *, call: str = "c1") -> Chunks:
    return [c.ToolOutputError(call, error_text)]


def tool_denied(*, call: str = "c1") -> Chunks:
    return [c.ToolOutputDenied(call)]


def source(url: str, *, id: str = "s1", title: str | None = None) -> Chunks:
    return [c.SourceUrl(id, url, UNSET if title is None else title)]


def document(title: str, *, id: str = "s1", media_type: str = "text/plain") -> Chunks:
    return [c.SourceDocument(id, media_type, title)]


def file(url: str, *, media_type: str = "image/png") -> Chunks:
    return [c.File(url, media_type)]


def data(name: str, value: Any, *, id: str | None = None, transient: bool = False) -> Chunks:
    return [c.Data(name, value, UNSET if id is None else id, True if transient else UNSET)]


def metadata(**values: Any) -> Chunks:
    return [c.MessageMetadata(values)]


def error(error_text: str) -> Chunks:
    return [c.Error(error_text)]


def abort(reason: str | None = None) -> Chunks:
    return [c.Abort(UNSET if reason is None else reason)]


def step(*pieces: Iterable[Chunk]) -> Chunks:
    """Return one step around its chunks."""
    return [c.StartStep(), *(chunk for piece in pieces for chunk in piece), c.FinishStep()]


def reply(*pieces: Iterable[Chunk], id: str = "m1", finish: FinishReason | None = "stop") -> Chunks:
    """Return a complete stream for the message ``id``; ``finish=None`` leaves its end out."""
    end: Chunks = [] if finish is None else [c.Finish(finish)]
    return [c.Start(id), *(chunk for piece in pieces for chunk in piece), *end]
