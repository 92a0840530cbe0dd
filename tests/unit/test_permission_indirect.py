"""Code that reaches a program by another way than its own words: operators of a test, handles, options."""

from __future__ import annotations

import pytest

from clew.permissions.approval_rules import offers_for
from clew.permissions.evaluate import evaluate
from clew.permissions.file_system import FileSystem
from clew.permissions.match import subjects_of
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
    ],
)
def test_programs_that_start_others_by_an_option(line: str) -> None:
    assert action(line, f"{line.split()[0]} *", "git *") == "ask"
    assert [offer for offer in offers_for([bash(line)], "/w", "session") if offer.pattern.endswith("*")] == []
