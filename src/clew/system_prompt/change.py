"""What has changed around a session since its system prompt told of it.

A prompt tells the environment as it was once: were it to change with every file, a provider would have to read the
whole conversation anew with every turn. What is different in a turn is told in front of that turn's message. Pure.
"""

from __future__ import annotations

from typing import Final

__all__ = ["environment_change", "tells_media"]

_HEAD: Final = "[The environment has changed:]"
_GONE: Final = "none"


def environment_change(now: str, frozen: str, told: str | None) -> str | None:
    """What a turn has to be told in front of its message; None when the prompt is right.

    ``now`` and ``frozen`` are the section as it would be and as it is sent, ``told`` is what the turn before was told.
    It is told again for as long as the prompt is not right: what an earlier turn was told may be summarised by then.
    """
    current, shown, before = _facts(now), _facts(frozen), _facts(told or "")
    changed = {name for name in current.keys() | shown.keys() if current.get(name) != shown.get(name)}
    # What is again as the prompt says has to be told once, to whoever was told otherwise.
    changed |= {name for name, value in before.items() if value != shown.get(name, _GONE)}
    if not changed:
        return None
    names = [name for name in (current | shown | before) if name in changed]
    return "\n".join([_HEAD, *(f"{name}: {current.get(name, _GONE)}" for name in names)])


def tells_media(section: str) -> bool:
    """That messages hold files was told there."""
    return _facts(section).get("Media", _GONE) != _GONE


def _facts(section: str) -> dict[str, str]:
    pairs = (line.partition(": ") for line in section.splitlines())
    return {name: value for name, colon, value in pairs if colon}
