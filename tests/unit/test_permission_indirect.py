"""Code that reaches a program by another way than its own words: operators, other shells, handles, options."""

from __future__ import annotations

import pytest

from clew.permissions.approval_rules import offers_for
from clew.permissions.evaluate import evaluate
from clew.permissions.match import subjects_of
from clew.permissions.paths import FileSystem
from clew.transcript.rule import Rule
from tests.unit.permission_values import bash


def action(line: str, *patterns: str) -> str:
    rules = [Rule("bash", pattern, "allow") for pattern in patterns]
    return evaluate([bash(line)], session=rules, workspace="/w", resolve=lambda one: one, home="/home/u").action


HIDDEN = "a[$(cmd)]"


@pytest.mark.rule("PM-8")
@pytest.mark.parametrize(
    "line",
    [
        f"[[ -n x && ls -eq '{HIDDEN}' ]]",
        f"[[ -z x || cat -lt '{HIDDEN}' ]]",
        f"[[ ( ls -eq '{HIDDEN}' ) ]]",
        f"[[ ! ( -n x && ls -eq '{HIDDEN}' ) ]]",
        f"if [[ -n x && ls -v '{HIDDEN}' ]]; then ls; fi",
        f"ls | while [[ -n x && ls -eq '{HIDDEN}' ]]; do ls; done",
        f"echo $([[ -n x && ls -eq '{HIDDEN}' ]])",
        f"time [[ -n x && ls -eq '{HIDDEN}' ]]",
    ],
)
def test_what_stands_behind_an_operator_of_a_test_is_an_operand_and_no_command(line: str) -> None:
    assert action(line, "[[ *", "ls *", "cat *", "echo *", "time *") == "ask"


@pytest.mark.rule("PM-8")
def test_a_test_with_several_conditions_is_one_command() -> None:
    lines = ["[[ -f a && -d b ]]", "[[ ( -f a || ! -d b ) && c == d ]] && ls x", "if [[ -f a || -f b ]]; then ls x; fi"]
    assert [action(line, "[[ *", "ls *") for line in lines] == ["allow"] * 3
    found = subjects_of(bash("[[ -f a && ( -d 'b c' ) ]]"), FileSystem("/w"))
    assert [one.target.value for one in found] == ["[[ -f a && ( -d 'b c' ) ']]'"]


@pytest.mark.rule("PM-8")
@pytest.mark.parametrize(
    "line",
    [
        "python3 <(echo x)",
        "python3 -u <(echo x)",
        "perl <(echo x)",
        "node <(echo x)",
        "ruby -w <(echo x)",
        "dc <(echo x)",
        "source <(echo x)",
        ". <(echo x)",
        "echo x | source /dev/stdin",
        "echo x | . /dev/stdin",
        "source /dev/stdin <<< x",
    ],
)
def test_a_program_handed_over_by_a_substitution_or_the_input_is_covered_by_no_star(line: str) -> None:
    names = ("python3", "perl", "node", "ruby", "dc", "source", ".", "echo")
    assert action(line, *(f"{name} *" for name in names)) == "ask"


@pytest.mark.rule("PM-8")
@pytest.mark.parametrize(
    "line",
    [
        "dc -e '!cmd'",
        "guile -c '(system \"cmd\")'",
        "Rscript -e 'system(\"cmd\")'",
        "julia -e 'run(`cmd`)'",
        "m4 -Da='esyscmd(cmd)' f",
        "octave --eval 'system(\"cmd\")'",
        "tsx --import ./evil.js a.ts",
        "julia --project=evil a.jl",
    ],
)
def test_an_option_of_an_interpreter_without_a_table_must_be_written_out(line: str) -> None:
    program, option = line.split(" ")[:2]
    assert action(line, f"{program} *") == "ask"
    assert len(offers_for([bash(line)], "/w", "session")) <= 1
    # Written out it is covered: the rule means it.
    if "=" not in option:
        assert action(line, f"{program} {option} *") == "allow"


@pytest.mark.rule("PM-8")
def test_a_script_and_its_own_arguments_need_no_more_than_the_program() -> None:
    lines = ["python3 x.py <(cat f)", "julia x.jl -e 1", "julia --project=. x.jl", "Rscript --vanilla x.R", "dc f"]
    names = ("python3", "julia", "Rscript", "dc", "cat")
    assert [action(line, *(f"{name} *" for name in names)) for line in lines] == ["allow"] * 5


@pytest.mark.rule("PM-8")
@pytest.mark.parametrize(
    "line",
    [
        "debugfs -R '!cmd'",
        "debugfs -wR '!cmd' x",
        "mkfs -t a/../cmd x",
        "grog --run -U f",
        "savelog -x cmd f",
        "cpack -D CPACK_INSTALL_COMMANDS=cmd",
        "cpack --config evil.cmake",
        "ip net exec a cmd",
        "ip -o netn e a cmd",
        "ip vr exec a cmd",
        "tc exec bpf import x run cmd",
        "updatedb --findoptions='-exec cmd ;'",
        "nu -c cmd",
        "exec -c git status",
        "openssl dgst --engine ./x.so f",
        "openssl list --provider-path . --provider x",
        "rustc -Clinker=cmd x.rs",
        "rustc --codegen linker=cmd x.rs",
        "javac -J-XX:OnError=cmd A.java",
        "javac -processor Evil -processorpath . A.java",
        "svn diff --diff-cmd cmd",
        "hg log --config alias.log=!cmd",
        "rpm -q --pipe cmd",
        "pandoc -F ./cmd a.md",
        "aria2c --on-download-complete=cmd u",
    ],
)
def test_programs_that_start_others_by_an_option(line: str) -> None:
    assert action(line, f"{line.split()[0]} *", "git *") == "ask"
    assert [offer for offer in offers_for([bash(line)], "/w", "session") if offer.pattern.endswith("*")] == []


ANY_SHELL = ("sh *", "dash *", "bash *", "busybox *", "ksh *", "watch *", "ssh *", "find *", "xargs *", "env *",
             "eval *", "trap *", "timeout *", "[[ *", "ls *", "cat *", "echo *")  # fmt: skip


@pytest.mark.rule("PM-5")
@pytest.mark.parametrize(
    "line",
    [
        "sh -c '[[ x || cmd ]]'",
        "dash -c '[[ -f a && ( cmd ) ]]'",
        "sh -c '[[ a > ../home/profile ]]'",
        "sh -c 'if [[ x || cmd ]]; then ls; fi'",
        "sh -c 'ls a &> /dev/null cmd'",
        "sh -c 'ls a &>> /dev/null cmd'",
        "sh -c 'function ls { cmd; }'",
        "sh -c 'ls |& cat'",
        "sh -c 'cat <(ls)'",
        "sh -c 'cat <<< a'",
        "sh <<< '[[ x || cmd ]]'",
        "sh <<'E'\nls &> /dev/null cmd\nE",
        "watch '[[ x || cmd ]]'",
        "ssh host 'ls &> /dev/null cmd'",
        "env sh -c '[[ x || cmd ]]'",
        "timeout 5 sh -c '[[ x || cmd ]]'",
        "busybox sh -c '[[ x || cmd ]]'",
        "find . -exec sh -c '[[ x || cmd ]]' \\;",
        "sh -c \"eval '[[ x || cmd ]]'\"",
        "sh -c \"trap '[[ x || cmd ]]' EXIT\"",
        "bash -c \"sh -c '[[ x || cmd ]]'\"",
        "ksh -c \"[ 'a[ls]' -eq 0 ]\"",
    ],
)
def test_a_line_for_another_shell_than_bash_holds_nothing_that_only_bash_reads_so(line: str) -> None:
    """To dash `[[` is the name of a program, and `||` and `&` behind it begin commands that no rule has seen."""
    assert action(line, *ANY_SHELL) == "ask"


@pytest.mark.rule("PM-5")
def test_a_line_that_all_shells_read_alike_is_judged_as_before() -> None:
    lines = ["sh -c 'ls a > /dev/null 2>&1; ls | cat'", "sh -c 'for x in a b; do echo \"$x\"; done'", "watch ls",
             "ssh host ls a", "bash -c '[[ -f a || -f b ]] && ls &> /dev/null'", "bash -c \"eval '[[ -f a ]]'\"",
             "sh -c \"bash -c '[[ -f a || -f b ]]'\"", "eval '[[ -f a || -f b ]]'"]  # fmt: skip
    assert [line for line in lines if action(line, *ANY_SHELL) != "allow"] == []


@pytest.mark.rule("PM-8")
@pytest.mark.parametrize(
    "line",
    [
        "cmake --build b -- SHELL=cmd",
        "cmake --build b --target SHELL=cmd",
        "cmake --build b -t SHELL=cmd",
        "cmake --build b --target all SHELL=cmd",
        "cmake --build b -- CMAKE_COMMAND=cmd",
    ],
)
def test_no_variable_reaches_the_make_that_cmake_starts(line: str) -> None:
    assert action(line, "cmake *") == "ask"
    assert action(line.replace("SHELL=cmd", "all").replace("CMAKE_COMMAND=cmd", "all"), "cmake *") == "allow"


@pytest.mark.rule("PM-8")
@pytest.mark.parametrize(
    "line",
    ["make S*", "make [S]HELL*", "git fetch e*", "git push gi*", "rsync a* b", "scp a* b", "sqlite3 a.db s*",
     "npm install a*", "pip install a*", "jq f* a.json"],
)  # fmt: skip
def test_a_file_whose_name_means_something_to_the_program_is_not_let_in_by_a_glob(line: str) -> None:
    """`make S*` finds a file called `SHELL=cmd`."""
    assert action(line, f"{line.split()[0]} *", "npm install *", "pip install *") == "ask"


def test_globs_below_a_folder_or_for_paths_alone_are_covered_as_before() -> None:
    lines = ["make src/*.o", "rsync -a src/* out/", "pytest tests/*.py", "pytest test_*.py", "git mv src/*.py lib/"]
    assert [line for line in lines if action(line, f"{line.split()[0]} *") != "allow"] == []


@pytest.mark.rule("PM-8")
def test_a_rule_for_date_does_not_cover_setting_the_clock() -> None:
    lines = ["date -s x", "date --se=x", "date -us 1", "date 010100002030", "date -u 0101000020", "date $x"]
    assert [action(line, "date *") for line in lines] == ["ask"] * len(lines)
    lines = ["date", "date +%s", "date -u '+%F %T'", "date -d yesterday +%F", "date -Iseconds", "date +$x"]
    assert [line for line in lines if action(line, "date *") != "allow"] == ["date +$x"]


@pytest.mark.rule("PM-8")
def test_the_client_of_mariadb_is_judged_as_that_of_mysql() -> None:
    assert action("echo '\\! cmd' | mariadb", "echo *", "mariadb *") == "ask"
    assert action("mariadb --version", "mariadb *") == "allow"


FEEDS = ("bash *", "sh *", "ls *", "echo *", "env *", "timeout *", "cat *")


@pytest.mark.rule("PM-5")
@pytest.mark.parametrize(
    "line",
    [
        "bash <<E\nls \\`cmd\\`\nE",
        'bash <<E\nls "\\$(cmd)"\nE',
        'bash <<E\nls "a\\\\\\" ; cmd #"\nE',
        "sh <<-E\n\tls \\`cmd\\`\n\tE",
        "timeout 5 bash <<E\nls \\`cmd\\`\nE",
        "bash <<E\nbash <<'F'\nls \\`cmd\\`\nF\nE",
        "bash <<'E'\nbash <<F\nls \\`cmd\\`\nF\nE",
        "echo cmd | bash 3<<< ls",
        "echo cmd | sh 3<<'E'\nls\nE",
        "bash <<< ls < evil",
        "bash <<'E' <&3\nls\nE",
        "bash <<'E' 0<>evil\nls\nE",
        "bash <<'E' 00<evil\nls\nE",
        "bash <<'E' 0>&3\nls\nE",
    ],
)
def test_a_shell_is_judged_by_the_input_that_it_really_gets(line: str) -> None:
    """A shell takes backslashes out of a here-document, and only the last thing opened as its input is read."""
    assert action(line, *FEEDS) == "ask"


def test_a_here_document_that_is_plain_is_judged_as_before() -> None:
    lines = ["bash <<'E'\nls a\nE", "bash <<E\nls \\$x\nE", "sh 0<<< 'ls a'", "cat <<E\na\nE",
             "bash <<'E' 2>&1\nls \\`cmd\\`\nE", "bash <<< 'ls a' 2> /dev/null"]  # fmt: skip
    assert [line for line in lines if action(line, *FEEDS) != "allow"] == []
