"""The script of a turn: a prompt, a tool call with 8 argument deltas, 2 KB of output, and a reply of 200 deltas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from bench import talk

__all__ = ["TOOL", "TurnWork", "history", "turn_work"]

TOOL: Final = "look_up"
_DELTAS: Final = 200
_ARGUMENT_DELTAS: Final = 8


@dataclass(frozen=True, slots=True)
class TurnWork:
    """A turn: ``arguments`` and ``deltas`` as a model streams them, and the ``output`` of the tool."""

    number: int
    prompt: str
    arguments: tuple[str, ...]
    output: str
    deltas: tuple[str, ...]

    @property
    def call_input(self) -> dict[str, Any]:
        return dict(json.loads("".join(self.arguments)))

    @property
    def reply(self) -> str:
        return "".join(self.deltas)

    @property
    def call_id(self) -> str:
        return f"call_{self.number}"

    def parts(self) -> list[dict[str, Any]]:
        """Return the parts of the stored answer."""
        call = {"type": f"tool-{TOOL}", "toolCallId": self.call_id, "state": "output-available"}
        return [
            {"type": "step-start"},
            {**call, "input": self.call_input, "output": self.output},
            {"type": "step-start"},
            {"type": "text", "text": self.reply, "state": "done"},
        ]


def turn_work(n: int) -> TurnWork:
    arguments = json.dumps({"path": f"src/module_{n}.py", "about": talk.text(n + 3_000_000, 60)})
    return TurnWork(
        n,
        talk.prompt(n),
        tuple(_cut(arguments, _ARGUMENT_DELTAS)),
        talk.text(n + 1_000_000, 2_000),
        tuple(_cut(talk.text(n + 2_000_000, 800), _DELTAS)),
    )


def history(turns: int) -> Iterator[TurnWork]:
    """Return the turns before those that are measured."""
    return (turn_work(n) for n in range(turns))


def _cut(text: str, pieces: int) -> Iterator[str]:
    size = -(-len(text) // pieces)
    return (text[at : at + size] for at in range(0, len(text), size))
