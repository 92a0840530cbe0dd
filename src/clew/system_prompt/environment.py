"""Collects the environment of a turn: the platform, the working copy, the date and its time zone, the model."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

from clew.clock import Clock
from clew.system_prompt.git import find_git_state
from clew.system_prompt.inputs import Environment
from clew.transcript.session import Model

__all__ = ["collect_environment", "date_and_zone"]

_LOCALTIME = Path("/etc/localtime")


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
