"""Why a turn failed, and what to do next, as the terminal says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from clew.fronts.cli.safe_text import one_line
from clew.fronts.failure_messages import words_of

__all__ = ["failure_words"]

_LONGEST: Final = 300
_COMMANDS: Final = {
    "context_too_large": "`clew compact {session}` makes room",
    "too_large": "`clew compact {session}` makes room",
    "no_key": "`clew models` lists what there is, and --model chooses",
}
_KEYS: Final = {
    "context_too_large": "/compact makes room, and /new begins anew",
    "too_large": "/compact makes room, and /new begins anew",
    "no_key": "`clew models` lists what there is, and /model chooses",
}


def failure_words(error: Mapping[str, Any], session_id: str | None = None) -> str:
    """What happened and the next step; below it, as detail, the first line of what a provider or Python said. The step
    is a command of the chat; of the shell for whoever is not in it, on this session."""
    lines = str(error.get("message") or "the turn failed for a reason that was not told").strip().splitlines()
    said = one_line(lines[0] if lines else "", _LONGEST).rstrip(".")
    known = words_of(error)
    if known is None:
        return said
    cause = str(error.get("cause") or error.get("code"))
    if session_id is None:
        step = _KEYS.get(cause) or ("/continue tries it again" if known.again else "/model chooses another one")
    else:
        again = f"`clew continue {session_id}` tries it again" if known.again else "--model chooses another one"
        step = _COMMANDS[cause].format(session=session_id) if cause in _COMMANDS else again
    return f"{known.happened} {known.next} ({step})\n{said}"
