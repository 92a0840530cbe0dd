"""Programs of Debian's essential and common packages that can start others: each has a verdict (PM-8).

The list is committed; where the release it was written for is installed, it is compared with the programs themselves: a
binary that imports a function of the exec family, or a script, must be listed.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from clew.permissions.evaluate import evaluate
from clew.permissions.shell.commands import is_interpreter
from clew.permissions.shell.parse import read_line
from clew.permissions.shell.programs.catalog import find_program, load_wrappers
from clew.permissions.shell.wrappers import ClosedWrapper, look_inside, starting_options
from clew.transcript.rule import Rule
from tests.unit.permission_values import bash

FOLDERS = ("/bin", "/sbin", "/usr/bin", "/usr/sbin")
STARTS = re.compile(rb"\0(?:exec[vl]p?e?|execvpe|fexecve|popen|system|posix_spawnp?|wordexp)\0")


def read_list() -> dict[str, list[str]]:
    """The sections of the list: the release, its packages, and the names under each verdict."""
    text = (Path(__file__).resolve().parents[1] / "corpora/programs.txt").read_text("utf-8")
    sections = re.split(r"^\[(\w+)\].*\n", text, flags=re.MULTILINE)[1:]
    return {name: body.split() for name, body in zip(sections[::2], sections[1::2], strict=True)}


LISTED = read_list()
VERDICTS = ("closed", "judged", "table", "options", "interpreter", "fixed")


def is_covered(line: str) -> bool:
    rule = Rule("bash", f"{line.split()[0]} *", "allow")
    return evaluate([bash(line)], session=[rule], workspace="/w", home="/home/u").action == "allow"


def is_closed(name: str) -> bool:
    try:
        look_inside(read_line(f"{name} cmd x").commands[0])
    except ClosedWrapper:
        return True
    return False


@pytest.mark.rule("PM-8")
def test_every_program_that_starts_others_is_treated_as_its_verdict_says(
    record_property: Callable[[str, object], None],
) -> None:
    """`fixed` are those that start only helpers of their own, or nothing without being root."""
    names = [name for verdict in VERDICTS for name in LISTED[verdict]]
    assert sorted(names) == sorted(set(names))
    assert [name for name in LISTED["closed"] if not is_closed(name)] == []
    assert [name for name in LISTED["closed"] if is_covered(f"{name} cmd x")] == []
    assert [name for name in LISTED["judged"] if is_covered(f"{name} 1 cmd x")] == []
    assert [name for name in LISTED["judged"] if name not in load_wrappers()] == []
    assert [name for name in LISTED["table"] if find_program(name) is None] == []
    assert [name for name in LISTED["options"] if not starting_options(name)] == []
    assert [name for name in LISTED["interpreter"] if not is_interpreter(name)] == []
    record_property("figure", f"programs that start others: {len(names)} of {len(LISTED['packages'])} packages judged")


def starts_others(path: Path) -> bool:
    content = path.read_bytes()
    return content.startswith(b"#!") or (content.startswith(b"\x7fELF") and STARTS.search(content) is not None)


@pytest.mark.rule("PM-8")
@pytest.mark.skipif(
    shutil.which("dpkg-query") is None or platform.freedesktop_os_release().get("VERSION_ID") != LISTED["release"][0],
    reason="the list was written for another system",
)
def test_no_installed_program_that_starts_others_is_missing_in_the_list() -> None:
    listed = subprocess.run(["dpkg-query", "-L", *LISTED["packages"]], capture_output=True, text=True, check=False)
    files = [Path(line) for line in listed.stdout.split("\n") if os.path.dirname(line) in FOLDERS]
    known = {name for verdict in VERDICTS for name in LISTED[verdict]}
    installed = {file.name: file for file in files if file.is_file() and os.access(file, os.R_OK)}
    # The same program under the name of its machine or with its version is judged like it.
    assert sorted(name for name, file in installed.items() if name not in known and starts_others(file)) == []
