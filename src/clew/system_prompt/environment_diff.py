"""Changes of the environment since it was described in a session's system prompt.

A prompt describes the environment once: if it changed with every file, the provider's cache of the whole conversation
would be invalidated in every turn. Differences are sent before the message of the turn instead. Pure.
"""

from __future__ import annotations

from typing import Final

__all__ = ["environment_change", "mentions_media"]

_HEAD: Final = "[The environment has changed:]"
_NONE: Final = "none"


def environment_change(now: str, frozen: str, previous: str | None) -> str | None:
    """Return the notice to send before the message of a turn; None if the prompt is accurate.

    ``now`` and ``frozen`` are the section as it would be and as it is sent; ``previous`` is the notice of the previous
    turn. It is repeated while the prompt is inaccurate, because an earlier notice may have been summarised.
    """
    current, shown, before = _facts(now), _facts(frozen), _facts(previous or "")
    changed = {name for name in current.keys() | shown.keys() if current.get(name) != shown.get(name)}
    # A value that matches the prompt again has to be announced once, if the previous notice differed.
    changed |= {name for name, value in before.items() if value != shown.get(name, _NONE)}
    if not changed:
        return None
    names = [name for name in (current | shown | before) if name in changed]
    return "\n".join([_HEAD, *(f"{name}: {current.get(name, _NONE)}" for name in names)])


def mentions_media(section: str) -> bool:
    """Return whether the section says that messages contain files."""
    return _facts(section).get("Media", _NONE) != _NONE


def _facts(section: str) -> dict[str, str]:
    pairs = (line.partition(": ") for line in section.splitlines())
    return {name: value for name, colon, value in pairs if colon}
