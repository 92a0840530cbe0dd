"""The states of a tool call and the allowed transitions, as one table. Any other transition is refused.

Owns which chunk may follow which. An event is the type of a chunk, or ``approval-response``: a person's answer, which
has no chunk in v6, so clew applies it itself. What a chunk writes into the part is defined by the fold.

A call ends once. Only a preliminary output may be followed by another one, hence the two transitions out of
``output-available``: they apply only while the part is marked ``preliminary``.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, cast, get_args

from clew.errors import IllegalChunk

__all__ = ["TOOL_EVENTS", "TOOL_STATES", "TRANSITIONS", "ToolState", "next_state"]

ToolState: TypeAlias = Literal[
    "input-streaming",
    "input-available",
    "approval-requested",
    "approval-responded",
    "output-available",
    "output-error",
    "output-denied",
]
TOOL_STATES: Final[tuple[str, ...]] = get_args(ToolState)

TRANSITIONS: Final[dict[tuple[ToolState | None, str], ToolState]] = {
    (None, "tool-input-start"): "input-streaming",
    (None, "tool-input-available"): "input-available",
    (None, "tool-input-error"): "output-error",
    ("input-streaming", "tool-input-delta"): "input-streaming",
    ("input-streaming", "tool-input-available"): "input-available",
    ("input-streaming", "tool-input-error"): "output-error",
    # Settles a call whose arguments were cut off by an abort or a crash.
    ("input-streaming", "tool-output-error"): "output-error",
    ("input-available", "tool-approval-request"): "approval-requested",
    ("input-available", "tool-output-available"): "output-available",
    ("input-available", "tool-output-error"): "output-error",
    ("input-available", "tool-output-denied"): "output-denied",
    ("approval-requested", "approval-response"): "approval-responded",
    ("approval-responded", "tool-output-available"): "output-available",
    ("approval-responded", "tool-output-error"): "output-error",
    ("approval-responded", "tool-output-denied"): "output-denied",
    ("output-available", "tool-output-available"): "output-available",
    ("output-available", "tool-output-error"): "output-error",
}
"""``None`` stands for a call that does not exist yet."""
TOOL_EVENTS: Final = tuple(dict.fromkeys(event for _, event in TRANSITIONS))


def next_state(state: str | None, event: str, *, preliminary: bool = False) -> ToolState:
    """Return the state that ``event`` leads to from ``state``; raise :class:`IllegalChunk` if there is none.

    ``preliminary`` means that the output in the part is not final.
    """
    after = TRANSITIONS.get(cast("tuple[ToolState | None, str]", (state, event)))
    if after is None or (state == "output-available" and not preliminary):
        before = "nothing: there is no such tool call" if state is None else f"{state} of a tool call"
        raise IllegalChunk(f"{event} cannot follow {before}", state=state, chunk_type=event)
    return after
