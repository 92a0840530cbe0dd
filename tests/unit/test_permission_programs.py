"""What programs really do with arguments that generous rules allow: the programs themselves are the judges (PM-8)."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import string
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clew.permissions.shell.programs.catalog import Program, load_programs
from tests.corpora.options import decide

# Commands that only read, and what they are given at the least.
READERS = {
    "awk": (["awk"], ["{print}", "a"]),
    "find": (["find"], ["."]),
    "git blame": (["git", "blame"], ["a"]),
    "git diff": (["git", "diff"], ["HEAD"]),
    "git grep": (["git", "grep"], ["foo"]),
    "git log": (["git", "log"], ["HEAD"]),
    "git ls-files": (["git", "ls-files"], []),
    "git show": (["git", "show"], ["HEAD"]),
    "git status": (["git", "status"], []),
    "make": (["make"], ["all"]),
    "sed": (["sed"], ["p", "a"]),
    "sort": (["sort"], ["a"]),
    "tar": (["tar"], ["tf", "t.tar"]),
    "uniq": (["uniq"], ["a"]),
}
NEEDED = ("awk", "find", "git", "make", "sed", "sort", "tar", "uniq")
ROUNDS = int(os.environ.get("CLEW_ROUNDS", "300"))

pytestmark = pytest.mark.skipif(
    any(shutil.which(name) is None for name in NEEDED), reason="the programs that would be the judges are not here"
)


def long_options(table: Program) -> Iterator[str]:
    yield from (name for name in table.options if name.startswith("--"))
    for command in (table.commands or {}).values():
        yield from long_options(command)


LONG = {
    name: sorted(set(long_options(load_programs()[head[0]][1]))) or ["--help"] for name, (head, _) in READERS.items()
}


def chance_line(chance: random.Random) -> list[str]:
    """A reader with a few arguments: bundles of letters, long options whole or cut short, values that are a program."""
    name = chance.choice(sorted(READERS))
    head, least = READERS[name]
    words = []
    for _ in range(chance.randint(1, 3)):
        kind = chance.random()
        if kind < 0.35:
            letters = "".join(chance.choices(string.ascii_letters + string.digits, k=chance.randint(1, 3)))
            words.append(f"-{letters}{chance.choice(('', '', './evil', 'x'))}")
        elif kind < 0.75:
            option = chance.choice(LONG[name])
            cut = chance.randint(min(4, len(option)), len(option)) if chance.random() < 0.4 else len(option)
            words.append(option[:cut] + chance.choice(("", "=./evil", "=x", "=1")))
        else:
            words.append(chance.choice(("./evil", "x", "1", "a", "--", "-")))
    return [*head, *words, *least] if chance.random() < 0.5 else [*head, *least, *words]


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file but git's own; of those its settings."""
    files = [path for path in folder.rglob("*") if path.is_file() and ".git" not in path.relative_to(folder).parts]
    return {str(path): path.read_bytes() for path in (*files, folder / ".git" / "config")}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "a").write_text("foo\nbar\nfoo\n")
    (tmp_path / "Makefile").write_text("all:\n\t@true\n")
    (tmp_path / "evil").write_text(f"#!/bin/sh\ntouch '{tmp_path}/ran'\ncat\n")
    (tmp_path / "evil").chmod(0o755)
    who = {f"GIT_{role}_{what}": "a@a" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    for line in ("git init -q", "tar cf t.tar a", "git add .", "git commit -qm x"):
        subprocess.run(
            shlex.split(line), cwd=tmp_path, env={**os.environ, **who, "HOME": str(tmp_path)}, check=True, timeout=60
        )
    return tmp_path


@pytest.mark.rule("PM-8")
def test_what_is_allowed_to_a_reading_program_makes_it_write_and_run_nothing(
    workspace: Path, record_property: Callable[[str, object], None]
) -> None:
    """Arguments at random; those that pass are tried. CLEW_ROUNDS sets how many are drawn."""
    chance, before, allowed = random.Random(11), snapshot(workspace), 0
    environment = {"PATH": os.environ["PATH"], "HOME": str(workspace), "GIT_PAGER": "cat", "LANG": "C.UTF-8"}
    for _ in range(ROUNDS):
        words = chance_line(chance)
        if decide(shlex.join(words)).action != "allow":
            continue
        allowed += 1
        subprocess.run(
            words,
            cwd=workspace,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert (words, snapshot(workspace)) == (words, before)
    assert allowed > ROUNDS / 20
    record_property(
        "figure", f"arguments at random: {ROUNDS} lines, {allowed} allowed and run, 0 wrote or ran anything"
    )
