"""The tables of the kill matrix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from bench.kill_matrix.script import PAST, WORDS

__all__ = ["page_with", "tables"]

Facts = Mapping[str, Any]
_BEGIN: Final = "<!-- kill-matrix -->"
_END: Final = "<!-- /kill-matrix -->"


def _yes(value: object) -> str:
    return "yes" if value else "**no**"


def _times(count: int) -> str:
    return ("never", "once", "**twice**")[count] if count < 3 else f"**{count} times**"


def _text(facts: Facts) -> tuple[str, ...]:
    prompted = facts["prompted"]
    stored = f"{prompted['stored']} of {facts['shown']}"
    going_on = "asks the model again" if facts["asked_by_itself"] else "not offered"
    return stored, _yes(prompted["next_prompt"]), str(prompted["next_words"]), going_on


def _tool(facts: Facts) -> tuple[str, ...]:
    if facts["next_released"]:
        known = "that it succeeded"
    elif facts["next_result"]:
        known = f"“{facts['next_result'][:80]}”"
    else:
        known = "**nothing**" if not facts["next_call"] else "**a call without a result**"
    return _times(facts["ran"]), known, _yes(facts["next_prompt"])


def _approval(facts: Facts) -> tuple[str, ...]:
    once = facts["ran_before_answer"] == 0 and facts["ran_after_answer"] == 1 and facts["as_shown"]
    return _yes(facts["answered"]), _yes(once), _times(facts["ran"]), _yes(facts["next_released"])


def _compaction(facts: Facts) -> tuple[str, ...]:
    of = len(PAST)
    holds = "the summary, made again" if facts["next_summary"] else f"{facts['next_questions']} of {of} turns"
    sent = _yes(facts["next_prompt"]) if facts["submitted"] else "none was sent"
    return f"{facts['stored']} of {of}", holds, sent


_TABLES: Final[dict[str, tuple[str, tuple[str, ...], Callable[[Facts], tuple[str, ...]]]]] = {
    "text": (
        f"In an answer, after 20 of {len(WORDS)} words were shown",
        ("words stored", "next request has the prompt", "words in it", "resuming"),
        _text,
    ),
    "tool": (
        "In a tool, after its effect",
        ("the effect happened", "the model is told of the call", "next request has the prompt"),
        _tool,
    ),
    "approval": (
        "At an approval, and again after the approved tool has run",
        (
            *("answered in a new process", "the call that was shown, once"),
            *("runs after the second kill", "the model gets its result"),
        ),
        _approval,
    ),
    "compaction": (
        f"In the compaction of {len(PAST)} turns",
        ("turns stored", "next request has", "and the prompt sent at that time"),
        _compaction,
    ),
}


def tables(found: Mapping[str, Mapping[str, Facts]]) -> str:
    """Return a table for each scenario, in Markdown."""
    parts = []
    for scenario, (title, columns, cells) in _TABLES.items():
        lines = [f"### {title}", "", f"| | {' | '.join(columns)} |", "|---|" + "---|" * len(columns)]
        for name, scenarios in found.items():
            facts = scenarios[scenario]
            ended = [facts[key] for key in ("no_such_feature", "broken", "problem") if key in facts]
            row = ended[:1] or [*cells(facts)]
            row += [""] * (len(columns) - len(row))
            lines.append(f"| {name} | {' | '.join(row)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def page_with(page: str, text: str) -> str:
    """Return the page with the tables between its markers."""
    before, _, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        raise ValueError(f"the page needs the markers {_BEGIN} and {_END}")
    return f"{before}{_BEGIN}\n\n{text}\n\n{_END}{after}"
