"""Messages for a failed turn, with the next step as a command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from clew.fronts.cli.safe_text import one_line
from clew.fronts.failure_messages import failure_message

__all__ = ["failure_text"]

_MAX_CHARS: Final = 300
_WAYS_OUT: Final = (
    "use `clew compact {session}`, `clew prune {session}`, `clew branch {session} MESSAGE --start MESSAGE`, or "
    "`clew chat` for a new session"
)
_COMMANDS: Final = {
    "context_too_large": _WAYS_OUT,
    "too_large": _WAYS_OUT,
    "no_key": "see `clew models`; choose with --model",
}
_KEYS: Final = {
    "context_too_large": "/compact, /prune, /branch, or /new for a new session",
    "too_large": "/compact, /prune, /branch, or /new for a new session",
    "no_key": "see `clew models`; choose with /model",
}


def failure_text(error: Mapping[str, Any], session_id: str | None = None) -> str:
    """Return what happened and the next step, then the first line of the original message.

    The step is a chat command, or with ``session_id`` a shell command for that session.
    """
    lines = str(error.get("message") or "the turn failed; no reason was reported").strip().splitlines()
    detail = one_line(lines[0] if lines else "", _MAX_CHARS).rstrip(".")
    known = failure_message(error)
    if known is None:
        return detail
    cause = str(error.get("cause") or error.get("code"))
    if session_id is None:
        step = _KEYS.get(cause) or ("/continue to retry" if known.again else "/model to switch")
    else:
        again = f"`clew continue {session_id}` to retry" if known.again else "choose another with --model"
        step = _COMMANDS[cause].format(session=session_id) if cause in _COMMANDS else again
    return f"{known.happened} {known.next} ({step})\n{detail}"
