"""Points in the code where a test may make the process die, fail, wait, or find the disk full.

``failpoint("name")`` costs one dictionary look-up and does nothing unless ``CLEW_FAILPOINTS`` was set when the process
started, as comma-separated ``name=action[@n]`` pairs. Actions: ``kill`` (SIGKILL to itself), ``raise``, ``sleep:MS``,
``full`` (SQLite's error for a full disk). With ``@n`` the n-th call fires, else the first one. ``tests.rig`` lists the
names in the source; a test checks that each is exercised.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time

from clew.platform.processes import SIGKILL

__all__ = ["FailpointRaised", "arm", "disarm", "failpoint"]


class FailpointRaised(Exception):
    """Raised by the action ``raise``; no code in clew catches it by name."""


_ACTIONS = frozenset({"kill", "raise", "full"})
_armed: dict[str, tuple[str, int]] = {}
_passed: dict[str, int] = {}
_lock = threading.Lock()


def failpoint(name: str) -> None:
    if _armed and name in _armed:
        _fire(name)


def arm(spec: str) -> None:
    """Arm the points named in ``spec`` instead of those armed before. A misspelt action is an error."""
    wanted: dict[str, tuple[str, int]] = {}
    for pair in filter(None, (piece.strip() for piece in spec.split(","))):
        name, _, action = pair.partition("=")
        action, _, nth = action.partition("@")
        action = action or "raise"
        if action not in _ACTIONS and not action.startswith("sleep:"):
            raise ValueError(f"{pair!r} is no failpoint; write name=kill, name=raise, name=full or name=sleep:MS")
        wanted[name] = (action, int(nth or 1))
    with _lock:
        _armed.clear()
        _passed.clear()
        _armed.update(wanted)


def disarm() -> None:
    arm("")


def _fire(name: str) -> None:
    with _lock:
        if name not in _armed:
            return  # disarmed by another thread in the meantime
        action, nth = _armed[name]
        _passed[name] = _passed.get(name, 0) + 1
        if _passed[name] != nth:
            return
    if action == "kill":
        os.kill(os.getpid(), SIGKILL)
    elif action.startswith("sleep:"):
        time.sleep(float(action[6:]) / 1000.0)
    elif action == "full":
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error
    else:
        raise FailpointRaised(name)


if os.environ.get("CLEW_FAILPOINTS"):
    arm(os.environ["CLEW_FAILPOINTS"])
