"""clew where POSIX is missing: its core on a Python without it, and what its modules may name."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.processes import environment
from tests.rig.no_posix import MODULES, NAMES

SRC = Path(__file__).parents[2] / "src" / "clew"
PROGRAMS = {"tools/process/supervisor.py", "tools/process/private_root.py", "tools/files/search_worker.py"}
"""Programs of their own, which only POSIX systems start."""
CONVERSATION = {
    "asked for": "refund",
    "outputs": ["order 7 is paid back"],
    "after the rewind": ["again", "Once more."],
    "in the branch": ["order seven", "Done."],
    "found": [False, True],
}
NO_PROGRAMS = "programs of tools are off on Windows: ending all their processes needs a POSIX system"
NO_FILES = "files of a workspace are off on Windows: the rules for paths are proven on POSIX systems only"


WINDOWS: dict[str, Any] = {
    "modules": [],
    "functions": [],
    "off": {
        "tools": "question todo",
        "jsonl:": "not_supported: jsonl: and json: are off on Windows, which cannot lock a folder; use sqlite:",
        "bash": f"not_supported: bash: {NO_PROGRAMS}",
        "read": f"not_supported: read: {NO_FILES}",
        "workspace file": f"invalid_input: 'notes.txt' cannot be read: {NO_FILES}",
        "owner": "not_supported: tokens of owners are off on Windows: folders are kept apart on POSIX systems only",
    },
}
MACOS: dict[str, Any] = {
    "modules": ["fcntl", "resource", "termios"],
    "functions": ["fork", "getuid", "killpg", "setsid"],
    "off": {
        "tools": "bash edit glob grep ls question read todo write",
        "jsonl:": "no error",
        "bash": "no error",
        "read": "no error",
        "workspace file": "invalid_input: 'notes.txt' cannot be read: No such file or directory",
        "owner": "no error",
    },
}


@pytest.mark.slow
@pytest.mark.rule("ST-9")
@pytest.mark.parametrize(("system", "expected"), [("win32", WINDOWS), ("darwin", MACOS)])
def test_the_core_works_on_a_python_without_posix_or_without_linux(
    system: str, expected: dict[str, Any], tmp_path: Path
) -> None:
    """One process without `fcntl`, `os.fork` and the like uses the library, the stores, the server and commands; what
    is off says so in one line. Locks exclude one another, in one process and between two."""
    words = [sys.executable, "-m", "tests.rig.core_child", system, str(tmp_path)]
    env = {**os.environ, **environment(tmp_path)}
    done = subprocess.run(words, capture_output=True, text=True, env=env, cwd=SRC.parents[1], check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        **expected,
        "memory:": CONVERSATION,
        "sqlite:": CONVERSATION,
        "second opening": {
            "here": "store_owned",
            "there": "store_owned",
            "names": "True",
            "afterwards": "no error",
            "lock": "one at a time",
        },
        "server": {"type": "text/event-stream", "text": "over the wire", "end": "data: [DONE]", "exit code": 0},
        "run": [0, "hello there\n", ""],
        "chat": [0, "from a pipe\n", ""],
        "ls": 3,
    }


def test_posix_is_named_in_one_folder_or_below_a_check_of_the_system() -> None:
    """No other module names a module or function that Windows lacks, but below `if sys.platform` or `hasattr`: quicker
    than the type checker, which `make test-platforms` runs for both other systems."""
    hidden = {module.__name__: set(names) for module, names in NAMES.items()} | {"sys": set()}
    names = "|".join((*MODULES, *(f"{module}.{name}" for module, names in hidden.items() for name in names)))
    some = re.compile(rf"\b({names})\b")
    found = [
        f"{path}:{line} {name}"
        for path in sorted(SRC.rglob("*.py"))
        if (inside := path.relative_to(SRC)).parts[0] != "platform" and str(inside) not in PROGRAMS
        if some.search(source := path.read_text(encoding="utf-8"))  # parsing all of them takes seconds
        for line, name in _named(ast.parse(source), hidden)
    ]
    assert found == []


def test_the_search_for_posix_names_finds_them() -> None:
    """It sees an import, an attribute and a name behind another condition, and nothing behind a check."""
    source = """
import fcntl, sys
if sys.platform != "win32":
    import termios
    os.fork()
def f():
    if ready:
        signal.SIGKILL
    return os.fchmod if hasattr(os, "fchmod") else None
os.O_NOFOLLOW
"""
    hidden = {module.__name__: set(names) for module, names in NAMES.items()}
    assert list(_named(ast.parse(source), hidden)) == [
        (2, "fcntl"),
        (8, "signal.SIGKILL"),
        (10, "os.O_NOFOLLOW"),
    ]


def _named(tree: ast.AST, hidden: dict[str, set[str]]) -> Iterator[tuple[int, str]]:
    """Yield the POSIX names that a check does not guard, with their lines."""
    for node in ast.iter_child_nodes(tree):
        test: Any = getattr(node, "test", None) or (node.values[0] if isinstance(node, ast.BoolOp) else None)
        if test is not None and ("sys.platform" in ast.unparse(test) or "hasattr(" in ast.unparse(test)):
            continue
        match node:
            case ast.Import(names):
                yield from ((node.lineno, name.name) for name in names if name.name in MODULES)
            case ast.Attribute(ast.Name(module), name) if name in hidden.get(module, ()):
                yield node.lineno, f"{module}.{name}"
        yield from _named(node, hidden)
