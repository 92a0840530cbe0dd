"""The environment of a tool's program: a short list of the host's variables, so that it cannot read keys."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

__all__ = ["environment"]

_INHERITED: Final = ("PATH", "HOME", "LANG", "TMPDIR", "USER")
# git must not use a bare repository that it finds in a folder: its config could name programs to run. Nor may a `.git`
# from an archive start a monitor. Filters and drivers in its config still run: their names are unknown.
_GIT: Final = {
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "safe.bareRepository",
    "GIT_CONFIG_VALUE_0": "explicit",
    "GIT_CONFIG_KEY_1": "core.fsmonitor",
    "GIT_CONFIG_VALUE_1": "false",
}
_SECRET: Final = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|COOKIE|PRIVATE", re.IGNORECASE)


def environment(host: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for a tool's program, from the host's.

    Relative entries of the path are left out: a file `ls` in the workspace must not replace `ls`.
    """
    variables = {name: value for name, value in host.items() if name in _INHERITED or name.startswith("LC_")}
    absolute = os.pathsep.join(filter(os.path.isabs, variables.pop("PATH", "").split(os.pathsep)))
    variables["PATH"] = absolute or os.defpath
    return {**{k: v for k, v in variables.items() if not _SECRET.search(k)}, "TERM": "dumb", **_GIT}
