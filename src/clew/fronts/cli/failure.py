"""Why a turn failed, in one sentence, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from clew.fronts.cli.safe_text import one_line

__all__ = ["failure_words"]

_LONGEST: Final = 300
_NEXT: Final = (
    (r"\b40[13]\b|api.?key|unauthori[sz]ed|authentication", "see `clew models` for the key that it wants"),
    (r"\b402\b|credit|billing|quota", "look at the account with the provider, or take another model with /model"),
    (r"\b404\b|no such model|not.?found", "/model chooses another one"),
    (r"\b429\b|rate.?limit|too many requests", "wait a little, then /continue goes on; or take another /model"),
    (r"\b5\d\d\b|overloaded|unavailable", "the provider has a problem of its own: /continue tries it again"),
    (r"connect|network|resol|timed? ?out|reset by peer|ssl", "look at the network, then /continue tries it again"),
)
_BY_CODE: Final = {
    "context_too_large": "/compact makes room, and /new begins anew",
    "storage_full": "make room on the disk, then /continue goes on",
    "internal_error": "/continue tries it again; if it stays, please report it with what the log says",
    "unsupported_file": "",
}


def failure_words(error: Mapping[str, Any]) -> str:
    """One sentence of what went wrong and the next step; a page of a provider's or of Python's is cut to its first."""
    lines = str(error.get("message") or "the turn failed for a reason that was not told").strip().splitlines()
    said = one_line(lines[0] if lines else "", _LONGEST).rstrip(".")
    code = str(error.get("code"))
    step = _BY_CODE.get(code)
    if step is None:
        found = (words for pattern, words in _NEXT if re.search(pattern, said, re.IGNORECASE))
        step = next(found, "/continue tries it again")
    return f"{said}; {step}" if step else said
