"""The environment of a turn: the platform, the working copy, the date and its time zone, the model.

A prompt describes the environment once: if it changed with every file, the provider's cache of the whole conversation
would be invalidated in every turn. Differences are sent before the message of the turn instead.
"""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from clew.clock import Clock
from clew.system_prompt.git import find_git_state
from clew.system_prompt.inputs import Environment
from clew.transcript.session import Model

__all__ = ["collect_environment", "date_and_zone", "environment_change", "mentions_media", "time_of_day"]

_LOCALTIME = Path("/etc/localtime")
_CHANGE_HEADING: Final = "[The environment has changed:]"
_TIME_HEADING: Final = "[When this was sent:]"
_TIME: Final = "Time"
_NONE: Final = "none"


def collect_environment(
    *,
    clock: Clock,
    model: Model,
    workspace: Path | None = None,
    media: bool = False,
    use_git: bool = True,
    zone: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Environment:
    """Return where and when a turn runs. Blocking if ``use_git`` is set. ``zone`` is an IANA name; default: the
    machine's."""
    date, zone_name = date_and_zone(clock.now_ms(), zone, environ)
    return Environment(
        platform=f"{platform.system()} {platform.machine()}".strip(),
        date=date,
        zone=zone_name,
        model=str(model),
        variant=model.variant,
        workspace=str(workspace) if workspace is not None else None,
        git=find_git_state(workspace, environ=environ) if workspace is not None and use_git else None,
        media=media,
    )


def date_and_zone(now_ms: int, zone: str | None = None, environ: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """Return the day (``YYYY-MM-DD``) at a time, and the name of its time zone; UTC if none is known."""
    name, info = _find_zone(zone, environ)
    return datetime.fromtimestamp(now_ms / 1000.0, info).date().isoformat(), name


def time_of_day(now_ms: int, zone: str) -> str:
    """Return the line of a note that says when a turn began. It is in no prompt: each call would change that."""
    _, info = _find_zone(zone, {})
    return f"{_TIME}: {datetime.fromtimestamp(now_ms / 1000.0, info):%Y-%m-%d %H:%M} ({zone})"


def _find_zone(zone: str | None, environ: Mapping[str, str]) -> tuple[str, tzinfo]:
    """Return a zone by name, not by its current offset: a name stays the same when the clocks change."""
    for name in (zone, environ.get("TZ", "").removeprefix(":"), _machine_zone()):
        if name:
            try:
                return name, ZoneInfo(name)
            except (LookupError, OSError, ValueError):
                continue
    return "UTC", UTC


def _machine_zone() -> str | None:
    """Return the zone name that /etc/localtime, a link into the zone files, points to."""
    try:
        return _resolve_zone(_LOCALTIME, os.readlink(_LOCALTIME))
    except OSError:
        return None


@functools.lru_cache(maxsize=4)
def _resolve_zone(link: Path, target: str) -> str | None:
    """Resolve the link; cached per target, because every prompt needs it."""
    _, found, name = os.path.realpath(link, strict=True).partition("/zoneinfo/")
    return name if found else None


def environment_change(now: str, frozen: str, previous: str | None) -> str | None:
    """Return the notice to send before the message of a turn; None if the prompt is accurate.

    ``now`` and ``frozen`` are the section as it would be and as it is sent; ``previous`` is the notice of the previous
    turn. It is repeated while the prompt is inaccurate, because an earlier notice may have been summarised.
    """
    current, shown, before = _facts(now), _facts(frozen), _facts(previous or "")
    before.pop(_TIME, None)
    changed = {name for name in current.keys() | shown.keys() if current.get(name) != shown.get(name)}
    # A value that matches the prompt again has to be announced once, if the previous notice differed.
    changed |= {name for name, value in before.items() if value != shown.get(name, _NONE)}
    if not changed:
        return None
    names = [name for name in (current | shown | before) if name in changed]
    heading = _TIME_HEADING if changed == {_TIME} else _CHANGE_HEADING
    return "\n".join([heading, *(f"{name}: {current.get(name, _NONE)}" for name in names)])


def mentions_media(section: str) -> bool:
    """Return whether the section says that messages contain files."""
    return _facts(section).get("Media", _NONE) != _NONE


def _facts(section: str) -> dict[str, str]:
    pairs = (line.partition(": ") for line in section.splitlines())
    return {name: value for name, colon, value in pairs if colon}
