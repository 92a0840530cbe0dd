"""The confinement of an owner's session to the files of its workspace.

The owner answers the approvals of the session and does not run the server, so the confinement is checked before any
rule, answer or mode. It follows from the session as it is stored, so it applies in every process that runs the session.
The workspace was in one of the owner's folders when the session was created. A path is checked as resolved, never by
its name, and a file with several names is allowed only where all of them are in the workspace. What a command does by
itself is limited by the sandbox (:mod:`clew.tools.process.owner_sandbox`).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from clew.permissions.evaluate import Decision, Judgement
from clew.permissions.paths import is_resolved
from clew.permissions.rules import READING
from clew.tools.files.hard_links import Identity, count_names, has_names
from clew.transcript.rule import Rule, Target

__all__ = ["Confinement"]

_MAX_FILES: Final = 200_000
_OUTSIDE: Final = "a path outside the workspace"


class Confinement:
    """The check of a session's paths. ``workspace`` is the only folder it may use, None for none; ``spill`` has its
    long outputs.

    It caches which files have several names there, so each call gets a new one.
    """

    def __init__(self, workspace: Path | None, spill: Path) -> None:
        self._workspace = workspace
        self._spill = spill
        self._names: Counter[Identity] | None = None

    def refuse(self, targets: Sequence[Target]) -> Decision | None:
        """Return the refusal of a call that would leave the workspace, else None. Reads the file system."""
        outside = next((one for one in targets if one.kind == "path" and not self._is_inside(one)), None)
        if outside is None:
            return None
        pattern = "/**" if self._workspace is None else f"!({self._workspace})/**"
        limit = "and this session has none" if self._workspace is None else f"which is {self._workspace}"
        rule = Rule("*", pattern, "deny", "manifest", pinned=True)
        # The resolved path would reveal to the owner where another user's link leads.
        outside = msgspec.structs.replace(outside, value=_OUTSIDE)
        reason = f"an owner's session can use only the files of its workspace, {limit}"
        judged = (Judgement(outside, "deny", rule, "manifest", reason),)
        return Decision("deny", rule, "manifest", outside, (), reason, judged)

    def must_look(self, target: Target) -> bool:
        """Return whether checking this target walks the whole workspace, which takes too long for the event loop."""
        status = _status_of(Path(target.value)) if self._names is None and target.kind == "path" else None
        return status is not None and has_names(status)

    def _is_inside(self, target: Target) -> bool:
        if not is_resolved(target.value):
            return False
        path = Path(target.value)
        if target.permission in READING and path.is_relative_to(os.path.realpath(self._spill)):
            return True
        if self._workspace is None or not path.is_relative_to(self._workspace):
            return False
        status = _status_of(path)
        if status is None or not has_names(status):
            return True
        if self._names is None:
            self._names = count_names(self._workspace, _MAX_FILES)
        return self._names[status.st_dev, status.st_ino] >= status.st_nlink


def _status_of(path: Path) -> os.stat_result | None:
    """Return None for a path that does not exist or cannot be read: then it cannot be opened, either."""
    try:
        return path.lstat()
    except (OSError, ValueError):
        return None
