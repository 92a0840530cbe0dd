"""What bash really runs, against what the permissions thought it would: the shell itself is the judge.

Bash is started without programs, with its builtins switched off, and writes down every command it would have run.
"""

from __future__ import annotations

import os
import os.path
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.permissions.evaluate import evaluate
from clew.permissions.shell import commands
from clew.transcript.rule import Rule, Target
from tests.rounds import rounds

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="there is no bash to compare with")

# Every command ends up in the handler, because there is nothing to find and nothing built in.
PREPARE = r"""
command_not_found_handle() { IFS=$'\2'; printf '%s\1' "$*" >> "$CLEW_LOG"; return $((RANDOM % 2)); }
enable -n . : [ alias bg bind break builtin caller cd command compgen complete compopt continue declare dirs disown \
  echo eval exec exit export false fc fg getopts hash help history jobs kill let local logout mapfile popd pushd pwd \
  read readarray readonly set shift shopt source suspend test times trap true type typeset ulimit umask unalias \
  unset
enable -n enable
"""


@pytest.fixture(scope="module", autouse=True)
def _programs_that_only_print() -> Iterator[None]:
    """The two programs of the rules count as ones that take any argument, as `cat` and `grep` do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands, "DYNAMIC", commands.DYNAMIC | {"aa", "bb"})
        yield


RULES = [Rule("bash", "aa*", "allow"), Rule("bash", "bb *", "allow"), Rule("read", "./**", "allow")]

SEEDS = [
    "aa b",
    "aa 'x y' \"z\"",
    "aa && bb c || aa",
    "aa | bb; aa & bb",
    "aa $(bb c) `aa`",
    'aa "$(bb "$(aa)")"',
    "aa <<E\nx $(bb) $q\nE\nbb",
    "aa <<'E' && bb\n$(xx)\nE\n",
    "aa <<-E\n\tx\n\tE\n",
    "aa <(bb) < f",
    "for q in a b; do aa $q; done",
    "if aa; then bb; else aa; fi",
    "while aa; do bb; done",
    "case $q in a) aa;; b|c) bb;; esac",
    "{ aa; (bb); } 2>&1",
    "aa \\\n  b # c\nbb",
    "! aa; f() { bb; }",
    'aa \\; \'xx\' \\$q "\\""',
    "aa <<< '$(xx)' > /dev/null",
    "aa ${q:-b} ${q} $((1 + 2)) a#b",
]
PIECES = [
    *"'\"`\\;&|()<>{}!#$ \t\n*?~[]=-,1",
    "xx",
    " xx ",
    ";xx",
    "aa",
    "bb ",
    "$(xx)",
    "`xx`",
    "$(",
    "&&",
    "||",
    "\\\n",
    "$\\\n",
    "\nxx\n",
    "\nE\n",
    "<<E\n",
    "<<'E'\n",
    "<(xx)",
    ">(xx)",
    ">&",
    "2>&1",
    "&>",
    "$'",
    '$"',
    "${",
    "$((",
    "))",
    ";;",
    "do ",
    "done",
    "then ",
    "fi",
    "in ",
    "esac",
    "time ",
    "coproc ",
    "function ",
    "() { ",
    "; }",
    "q=1 ",
    "[[ ",
    " ]]",
    "é",
    "{a,b}",
    "$q",
    "$@",
]


@st.composite
def lines(draw: st.DrawFn) -> str:
    """A line that would be allowed, with a few pieces put in or taken out anywhere."""
    line = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(line)))
        if draw(st.booleans()):
            line = line[:at] + draw(st.sampled_from(PIECES)) + line[at:]
        else:
            line = line[:at] + line[at + draw(st.integers(1, 3)) :]
    return line


def run(line: str) -> tuple[set[str], set[str]]:
    """The names of the commands that bash would have run, and the files it made."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "prepare").write_text(PREPARE)
        work = Path(folder) / "work"
        work.mkdir()
        (work / "f").touch()
        log = Path(folder) / "log"
        environment = {
            "PATH": "/nonexistent",
            "BASH_ENV": str(Path(folder) / "prepare"),
            "CLEW_LOG": str(log),
            "FUNCNEST": "3",
            "LANG": "C.UTF-8",
        }
        command = [str(BASH), "--norc", "--noprofile", "-c", f"{line}\nwait"]
        process = subprocess.Popen(
            command,
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
        ran = log.read_text(errors="replace").split("\1")[:-1] if log.exists() else []
        return {text.partition("\2")[0] for text in ran}, {path.name for path in work.iterdir()} - {"f"}


def decide(line: str) -> str:
    return evaluate([Target("bash", "command", line)], session=RULES, workspace="/w", resolve=os.path.normpath).action


def test_bash_tells_what_it_would_run() -> None:
    """The judge sees commands, hidden ones too, and files; otherwise the comparison below would prove nothing."""
    assert run('aa b; echo $(xx) > out | "yy" z') == ({"aa", "xx", "yy", "echo"}, {"out"})


@pytest.mark.parametrize("line", SEEDS)
def test_the_lines_to_start_from_are_allowed(line: str) -> None:
    """A comparison that only ever saw refusals would prove nothing either."""
    assert decide(line) == "allow"


@pytest.mark.slow
@pytest.mark.rule("PM-5")
@given(lines())
@settings(max_examples=rounds(400))
def test_an_allowed_line_runs_nothing_but_what_the_rules_allow(line: str) -> None:
    """If the rules let a line through, bash runs only the two programs they name, and makes no file."""
    if decide(line) != "allow":
        return
    ran, made = run(line)
    assert ran <= {"aa", "bb"}
    assert made == set()
