"""What a tool's program may see of the host's environment: a short list, so that keys are not there to be read."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

__all__ = ["environment"]

_KEPT: Final = ("PATH", "HOME", "LANG", "TMPDIR", "USER")
# git must not treat a folder as a repository because of the files in it: its config would name programs to run.
# Nor may a `.git` that came out of an archive start a monitor. Filters and drivers that its config names still run:
# their names are not known here.
_GIT: Final = {
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "safe.bareRepository",
    "GIT_CONFIG_VALUE_0": "explicit",
    "GIT_CONFIG_KEY_1": "core.fsmonitor",
    "GIT_CONFIG_VALUE_1": "false",
}
_SECRET: Final = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|COOKIE|PRIVATE", re.IGNORECASE)


def environment(host: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of such a program, made from the host's.

    Entries of the path that begin where the program runs are left out: a file `ls` of a workspace is not `ls`.
    """
    kept = {name: value for name, value in host.items() if name in _KEPT or name.startswith("LC_")}
    absolute = os.pathsep.join(filter(os.path.isabs, kept.pop("PATH", "").split(os.pathsep)))
    kept["PATH"] = absolute or os.defpath
    return {**{k: v for k, v in kept.items() if not _SECRET.search(k)}, "TERM": "dumb", **_GIT}
