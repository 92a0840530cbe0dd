"""Every program whose arguments are known, by the names it goes by."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from clew.permissions.programs.building import BUILDING
from clew.permissions.programs.files import FILES
from clew.permissions.programs.git import GIT
from clew.permissions.programs.languages import LANGUAGES
from clew.permissions.programs.network import NETWORK
from clew.permissions.programs.system import SYSTEM
from clew.permissions.programs.table import Program
from clew.permissions.programs.text import TEXT

__all__ = ["PROGRAMS", "find_program"]

PROGRAMS: Final[Mapping[str, Program]] = {
    "git": GIT,
    **BUILDING,
    **FILES,
    **LANGUAGES,
    **NETWORK,
    **SYSTEM,
    **TEXT,
}
_ALSO: Final = {
    also: name
    for name, others in {
        "apt": "apt-cache apt-get aptitude",
        "awk": "gawk mawk nawk original-awk",
        "bat": "batcat",
        "docker": "podman",
        "env": "genv",
        "fd": "fdfind",
        "find": "gfind",
        "less": "more most zless",
        "lua": "luajit",
        "make": "gmake",
        "nc": "ncat netcat",
        "node": "nodejs",
        "npx": "bunx",
        "pytest": "py.test",
        "python": "py pypy",
        "rg": "ripgrep",
        "sed": "gsed",
        "sftp": "ftp lftp",
        "sort": "gsort",
        "tar": "bsdtar gtar",
        "vim": "ed emacs ex nano nvim pico rvim vi view vimdiff",
    }.items()
    for also in others.split()
}
_VERSION: Final = re.compile(r"-?[0-9][0-9.]*$")


def find_program(name: str) -> tuple[str, Program] | None:
    """The table for a program of this name, in any case and with or without a version behind it."""
    name = name.lower()
    for spelling in (name, _VERSION.sub("", name)):
        known = _ALSO.get(spelling, spelling)
        if known in PROGRAMS:
            return known, PROGRAMS[known]
    return None
