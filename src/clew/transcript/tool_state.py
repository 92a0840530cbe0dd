"""The states a tool call can be in, as one table. A move that is not in it is refused.

Owns which chunk may follow which. An event is the type of a chunk, or ``approval-response``: the answer of a
human, for which v6 has no chunk, so clew applies it itself. What a chunk writes into the part is the fold's
business.

A call ends once. The only output that another one may follow is a preliminary one, hence the two entries that
lead out of ``output-available``: they hold only while the part says ``preliminary``.
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
    # A call whose arguments were cut off by an abort or a crash is settled from here.
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
"""``None`` stands for a call that is not there yet."""
TOOL_EVENTS: Final = tuple(dict.fromkeys(event for _, event in TRANSITIONS))


def next_state(state: str | None, event: str, *, preliminary: bool = False) -> ToolState:
    """The state that ``event`` leads to from ``state``; :class:`IllegalChunk` when it leads nowhere.

    ``preliminary`` says that the output the part holds is not the last one.
    """
    after = TRANSITIONS.get(cast("tuple[ToolState | None, str]", (state, event)))
    if after is None or (state == "output-available" and not preliminary):
        before = "nothing: there is no such tool call" if state is None else f"{state} of a tool call"
        raise IllegalChunk(f"{event} cannot follow {before}", state=state, chunk_type=event)
    return after
