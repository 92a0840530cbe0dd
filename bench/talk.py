"""The text of the workloads: turns of a fixed size, the same in every run.

A turn is a prompt of 200 characters, a tool call whose output is 2 KB, and a reply of 800 characters.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any, Final

from clew.testing import chunks as b
from clew.transcript import chunk as c

__all__ = ["DELTA", "MODEL_JSON", "START_MS", "USAGE", "assistant_parts", "prompt", "reply_steps", "stepping", "text"]

START_MS = 1_800_000_000_000
MODEL_JSON = {"provider_id": "demo", "model_id": "echo"}
USAGE = (1200, 200, 0, 300, 0)
"""Input, output, reasoning, cache read and cache write of each step."""
DELTA = "tok "
"""The text of one chunk where only the number of chunks counts."""

_WORDS: Final = tuple(
    re.findall(
        r"\w+",
        "the session keeps every word an agent writes and shows it only after it is stored so that a crash loses "
        "nothing while people rewind branch and compact what they have said before with a model that answers slowly",
    )
)


def text(seed: int, length: int) -> str:
    """Return words of this total length, the same for the same seed."""
    rng = random.Random(seed)
    words: list[str] = []
    size = 0
    while size <= length:
        word = rng.choice(_WORDS)
        words.append(word)
        size += len(word) + 1
    return " ".join(words)[:length]


def prompt(n: int) -> str:
    return text(n, 200)


def assistant_parts(n: int) -> list[dict[str, Any]]:
    """Return the parts of the stored answer: two steps, with a tool call in the first."""
    call, output = _call(n)
    return [
        {"type": "step-start"},
        {
            "type": "tool-read_file",
            "toolCallId": f"call_{n}",
            "state": "output-available",
            "input": call,
            "output": output,
        },
        {"type": "step-start"},
        {"type": "text", "text": text(n + 2_000_000, 800), "state": "done"},
    ]


def reply_steps(n: int) -> tuple[list[c.Chunk], list[c.Chunk]]:
    """Return the same turn as streamed chunks: two steps, without their start and finish chunks."""
    call, output = _call(n)
    tool = [*b.tool_call("read_file", call, id=f"call_{n}"), *b.tool_output(output, call=f"call_{n}")]
    return tool, b.text(text(n + 2_000_000, 800))


def _call(n: int) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"path": f"src/module_{n}.py"}, {"path": f"src/module_{n}.py", "content": text(n + 1_000_000, 2000)}


def stepping(streams: int, chunks: int) -> Iterator[int]:
    """Yield the stream of each chunk, round robin."""
    for _ in range(chunks // streams):
        yield from range(streams)
