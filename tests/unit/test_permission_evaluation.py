"""What bash evaluates beyond its expansions, links made by the same line, and programs that start others."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from clew.permissions.approval_rules import offers_for
from clew.permissions.evaluate import evaluate
from clew.permissions.rules import own_rules
from clew.permissions.shell.commands import CHANGING, LITERAL, STATEFUL, is_builtin
from clew.tools.process.environment import environment
from clew.transcript.rule import Rule
from tests.unit.permission_values import bash, path


def action(line: str, *patterns: str, manifest: tuple[Rule, ...] = ()) -> str:
    rules = [*(Rule("bash", pattern, "allow") for pattern in patterns), Rule("write", "./**", "allow")]
    return evaluate(
        [bash(line)], manifest=manifest, session=rules, workspace="/w", resolve=lambda one: one, home="/home/u"
    ).action


@pytest.mark.rule("PM-8")
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash to compare with")
def test_every_builtin_of_bash_is_in_the_table() -> None:
    listed = subprocess.run(["bash", "-c", "compgen -b"], capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in listed if not is_builtin(name)] == []
    assert not LITERAL & STATEFUL
    assert CHANGING < STATEFUL


@pytest.mark.rule("PM-8")
@pytest.mark.parametrize(
    "line",
    [
        "for x in '-v a[$(cmd)] x'; do printf $x; done",
        """printf "-$x" 'a[$(cmd)]'""",
        "printf *",
        "printf -- *",
        "printf -nv 'a[$(cmd)]' x",
        "test $x",
        'test "$x" "$y"',
        "test -f *",
        "[ $x ]",
        "[ -n $x -o b ]",
        "[[ $x -eq 1 ]]",
        "[[ -v $x ]]",
        "wait $x",
        "wait -np 'a[$(cmd)]'",
        "let $x",
        "let 'a[$(cmd)]'",
        "declare 'a[$(cmd)]=1'",
        "typeset -n x=y",
        "export 'a[$(cmd)]=1'",
        "readonly 'a[$(cmd)]=1'",
        "unset 'a[$(cmd)]'",
        "read 'a[$(cmd)]'",
        "mapfile -C cmd a",
        "getopts x 'a[$(cmd)]'",
        "printf %n PATH",
        "printf '123%-5n' PATH",
        "printf '%s%hn' a GIT_CONFIG_COUNT",
        "jobs -x cmd",
        "jobs -lx cmd",
        "compgen -C cmd",
        "compgen -W '$(cmd)'",
        "complete -C cmd x",
        "cd $x",
        "kill $x",
        "type $x",
        "help $x",
    ],
)
def test_code_runs_silently(line: str) -> None:
    """A wildcard rule covers a builtin only where every argument is literal and none of them is evaluated."""
    name = line.split()[0] if not line.startswith("for") else "printf"
    assert action(line, f"{name} *", "cd *", "printf *") == "ask"


@pytest.mark.rule("PM-5", "PM-8")
@pytest.mark.parametrize(
    "line",
    [
        "echo $(PATH=evil; ls)",
        'echo "$(PATH=evil\nls)"',
        "echo `PATH=evil; ls`",
        "cat <(PATH=evil; ls)",
        "cat <<E\n$(PATH=evil; ls)\nE",
        "echo $(ls; PATH=evil; ls)",
        "echo $(x=1; ls)",
        "time PATH=evil; ls",
        "time -p PATH=evil; ls",
        "! time PATH=evil; ls",
    ],
)
def test_an_assignment_is_judged_wherever_it_stands(line: str) -> None:
    """It decides which programs the commands behind it are."""
    assert action(line, "echo *", "cat *", "ls *", "time *") == "ask"


@pytest.mark.rule("PM-8")
@pytest.mark.parametrize(
    "line",
    [
        "env -i git status",
        "env - git status",
        "env --ignore-environment git status",
        "env -u GIT_CONFIG_COUNT git status",
        "env GIT_CONFIG_COUNT=0 git status",
        "GIT_CONFIG_COUNT=0 git status",
        "export GIT_CONFIG_COUNT=0; git status",
        "unset GIT_CONFIG_COUNT; git status",
        "for GIT_CONFIG_COUNT in 0; do git status; done",
        "read GIT_CONFIG_COUNT <<< 0; git status",
        "git -c safe.bareRepository=all status",
        "git -C bare status",
        "timeout 5 env -i git status",
    ],
)
def test_no_covered_line_runs_git_without_its_settings(line: str) -> None:
    names = ("env *", "git *", "export *", "unset *", "read *", "timeout *")
    assert action(line, *names) == "ask"


@pytest.mark.rule("PM-8")
def test_literal_arguments_of_a_builtin_are_covered_as_before() -> None:
    lines = ["test -f setup.py", "[ -d src ]", "printf '%s 100%\\n' a", "wait 12", "[[ -f a ]]", "kill 12", "cd src"]
    assert [action(line, f"{line.split()[0]} *") for line in lines] == ["allow"] * len(lines)


@pytest.mark.rule("PM-8")
def test_dynamic_arguments_need_a_program_that_is_known() -> None:
    """Of a program without a table only paths whose beginning is certain may be left to the shell."""
    assert [action(line, "tool *") for line in ("tool a", "tool src/*.py", "tool ~/a")] == ["allow"] * 3
    assert [action(line, "tool *") for line in ("tool $x", 'tool "$x"', "tool *", "tool -*", "tool $(ls)")] == [
        "ask"
    ] * 5
    assert [action(line, "cat *", "ls *") for line in ("cat $x", "cat *", "cat $(ls)")] == ["allow"] * 3


@pytest.mark.rule("PM-7")
@pytest.mark.parametrize("line", ["test -f setup.py", "printf a", "wait 1", "cd src", "kill 1"])
def test_a_builtin_that_evaluates_is_offered_exactly(line: str) -> None:
    assert [offer.pattern for offer in offers_for([bash(line)], "/w", "session")] == [f"bash {line}"]
    assert [offer.pattern for offer in offers_for([bash("[ -f a ]")], "/w", "session")] == ["bash [ -f a ']'"]


@pytest.mark.rule("PM-9")
@pytest.mark.parametrize("line", ["printf x $d", "test -f $d", "tee d/x < a; make"])
def test_builtins_and_writes_are_not_exempt_from_closed_places(line: str) -> None:
    own = own_rules(["/home/u/.config/clew"], [])
    assert action(line, "printf *", "test *", "tee *", "make*", manifest=own) == "ask"


@pytest.mark.rule("PM-5")
@pytest.mark.parametrize(
    "line",
    [
        "git checkout -q evil; echo x > d/profile",
        "ln -s a d; echo x > d/profile",
        "echo x > d/profile & git checkout -q evil",
        "echo x > d/profile | git checkout -q evil",
        "echo $(git checkout -q evil) > d/profile",
        "for i in a b; do git checkout -q evil > d/profile; done",
        "timeout 5 git checkout -q evil; cat a > d/profile",
        "bash -c 'git checkout -q evil; echo x > /w/d/profile'",
    ],
)
def test_a_redirect_through_a_link_that_the_same_line_creates(line: str) -> None:
    assert (
        action(line, "git *", "git checkout *", "ln *", "echo *", "cat *", "timeout *", "bash *", "bash -c *") == "ask"
    )


def test_a_redirect_of_the_only_command_or_among_reading_ones_is_covered_as_before() -> None:
    lines = ["make > log", "make > log 2>&1", "echo a > b; cat b", "cat a | grep x > b", "timeout 5 make > log"]
    assert [action(line, "make*", "echo *", "cat *", "grep *", "timeout *") for line in lines] == ["allow"] * 5


@pytest.mark.rule("PM-7")
@pytest.mark.parametrize(
    "name",
    [
        "HEAD",
        "sub/HEAD",
        "sub/config",
        "sub/objects/x",
        "sub/refs/heads/x",
        "pkg/node_modules/.bin/x",
        "PKG/Node_Modules/.BIN/x",
        "Sub/HEAD",
        ".kshrc",
        ".gitconfig",
        ".hooks/pre-commit",
        "env/bin/python",
        "config",
        "objects/ab/cd",
        "refs/heads/main",
        "x.git/hooks/post-checkout",
        ".git/config",
        ".envrc",
        ".husky/pre-commit",
        ".npmrc",
        ".venv/bin/python",
        "node_modules/.bin/tsc",
        ".vscode/tasks.json",
        ".idea/a.xml",
        ".pre-commit-config.yaml",
        ".ENVRC",
        ".github/workflows/ci.yml",
        "a/.Husky/x",
        ".gitmodules",
        "sitecustomize.py",
        "x.pth",
        ".cargo/config.toml",
        ".mcp.json",
        "sub/.git",
        ".hg/hgrc",
        ".Rprofile",
        ".mvn/extensions.xml",
        ".terraform/providers/x",
        ".tox/py/bin/python",
        "bitbucket-pipelines.yml",
    ],
)
def test_accept_edits_asks_about_places_whose_content_is_executed_later(name: str) -> None:
    decided = [
        evaluate([path(f"/w/{name}", one)], mode="accept_edits", workspace="/w").action for one in ("write", "edit")
    ]
    assert decided == ["ask", "ask"]


def test_accept_edits_still_writes_ordinary_files() -> None:
    names = [
        "src/a.py",
        "src/hooks/use_a.ts",
        "Makefile",
        "config/app.toml",
        "src/config.py",
        "package.json",
        "a.config",
    ]
    decided = [evaluate([path(f"/w/{name}")], mode="accept_edits", workspace="/w").action for name in names]
    assert decided == ["allow"] * len(names)


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_git_run_by_the_bash_tool_uses_no_bare_repository_it_was_not_told_of(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run(["git", "init", "-q", "--bare", str(bare)], check=True)
    (bare / "config").write_text(
        f"[core]\n\tbare = false\n\tworktree = {tmp_path}\n\tfsmonitor = touch {tmp_path}/ran\n"
    )
    ran = subprocess.run(["git", "status"], cwd=bare, env=environment(os.environ), capture_output=True, text=True)
    assert (ran.returncode, (tmp_path / "ran").exists()) == (128, False)
    assert "bareRepository" in ran.stderr


STARTERS = """jobs -x cmd|compgen -C cmd|prlimit --nofile=10 cmd|choom -n 5 -- cmd|i386 cmd|x86_64 cmd|linux64 cmd
logsave log cmd|sg group -c cmd|capsh -- -c cmd|ssh-agent cmd|gpg-agent --daemon cmd|dpkg-architecture -c cmd
dpkg-architecture --comm=cmd|/lib64/ld-linux-x86-64.so.2 ./cmd|ld.so ./cmd|install -s --strip-program=cmd a b
install --strip-prog cmd a b|gcc -wrapper cmd a.c|gcc-12 -wrapper cmd a.c|x86_64-linux-gnu-gcc -B. a.c|g++ @file
gcc -fplugin=./a.so a.c|gcc -Wl,-plugin,./a.so a.c|debconf cmd|sdiff --diff-program=cmd a b|man -P cmd ls|ldd ./cmd
uclampset -m 5 cmd|rename 's/a/b/e' x|ed a|vim -c '!cmd'|socat - EXEC:cmd|nc -e cmd h 1|patch -e a
systemd-cat cmd|ip netns exec a cmd|prove a.t|openssl engine ./a.so|tcpdump -z cmd|scp -S cmd a b|wget -e x=y u
sem cmd|env_parallel cmd ::: a|niceload cmd|json_pp -f eval|numactl cmd|direnv exec . cmd|tini -- cmd"""


@pytest.mark.rule("PM-8")
@pytest.mark.parametrize("line", [one for row in STARTERS.split("\n") for one in row.split("|")])
def test_wrappers_not_known(line: str) -> None:
    """No wildcard rule for a program of Debian's common packages covers a command that it starts."""
    assert action(line, f"{line.split()[0]} *") == "ask"
