"""The tables of states as Mermaid diagrams, as the documentation shows them."""

from __future__ import annotations

from clew.transcript import tool_state, turn_state


def tool_diagram() -> str:
    arrows: dict[tuple[str, str], list[str]] = {}
    for (before, event), after in tool_state.TRANSITIONS.items():
        label = f"{event} while preliminary" if before == "output-available" else event
        arrows.setdefault((_box(before), _box(after)), []).append(label)
    lines = ["stateDiagram-v2"]
    lines += [f'    state "{state}" as {_box(state)}' for state in tool_state.TOOL_STATES]
    lines += [f"    {before} --> {after}: {', '.join(labels)}" for (before, after), labels in arrows.items()]
    lines += [f"    {_box(state)} --> [*]" for state in tool_state.TOOL_STATES if state.startswith("output-")]
    return "\n".join(lines) + "\n"


def turn_diagram() -> str:
    lines = ["stateDiagram-v2"]
    lines += [f"    [*] --> {state}" for state in sorted(turn_state.START)]
    lines += [f"    {before} --> {after}: {why}" for (before, after), why in turn_state.TRANSITIONS.items()]
    lines += [f"    {state} --> [*]" for state in sorted(turn_state.SETTLED)]
    return "\n".join(lines) + "\n"


def _box(state: str | None) -> str:
    # To Mermaid a hyphen begins an arrow: states are named without it and shown with it.
    return "[*]" if state is None else state.replace("-", "_")
