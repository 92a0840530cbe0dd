"""Why a turn failed, and what to do next, as the terminal says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from clew.fronts.cli.safe_text import one_line
from clew.fronts.failure_words import words_of

__all__ = ["failure_words"]

_LONGEST: Final = 300
_KEYS: Final = {
    "context_too_large": "/compact makes room, and /new begins anew",
    "too_large": "/compact makes room, and /new begins anew",
    "no_key": "`clew models` lists what there is, and /model chooses",
}


def failure_words(error: Mapping[str, Any]) -> str:
    """What happened and the next step; below it, as detail, the first line of what a provider or Python said."""
    lines = str(error.get("message") or "the turn failed for a reason that was not told").strip().splitlines()
    said = one_line(lines[0] if lines else "", _LONGEST).rstrip(".")
    known = words_of(error)
    if known is None:
        return said
    step = _KEYS.get(str(error.get("cause") or error.get("code")))
    step = step or ("/continue tries it again" if known.again else "/model chooses another one")
    return f"{known.happened} {known.next} ({step})\n{said}"
