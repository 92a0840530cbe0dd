"""Permissions against lists of attempts: shell lines, paths and hosts, and random combinations of them."""

from __future__ import annotations

import os.path
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clew.permissions.evaluate import evaluate
from clew.permissions.match import FileSystem, match, subjects_of
from clew.permissions.rules import Certainty
from clew.transcript.rule import Rule, Target, TargetKind

CORPORA = Path(__file__).resolve().parents[1] / "corpora"

# Rules as people have them. The corpus of shell lines is written for exactly these.
ALLOWED = [
    "git status*",
    "git log*",
    "git diff*",
    "ls*",
    "cat *",
    "echo *",
    "grep *",
    "head *",
    "wc *",
    "npm test",
    "pwd",
    "true",
]
RULES = [
    *(Rule("bash", pattern, "allow") for pattern in ALLOWED),
    Rule("bash", "rm *", "deny"),
    Rule("read", "./**", "allow"),
]


def cases(name: str) -> Iterator[tuple[str, ...]]:
    for line in (CORPORA / name).read_text(encoding="utf-8").split("\n"):
        if line and not line.startswith("#"):
            yield tuple(re.sub(r"<(NL|TAB|U\+[0-9A-F]{4,6})>", _character, cell) for cell in line.split("\t", 2))


def _character(found: re.Match[str]) -> str:
    name = found[1]
    return {"NL": "\n", "TAB": "\t"}.get(name) or chr(int(name[2:], 16))


def decide(line: str, *rules: Rule) -> str:
    """What the rules say about a shell line. The paths of redirects are taken as they are."""
    target = Target("bash", "command", line)
    return evaluate([target], session=rules or RULES, workspace="/w", resolve=os.path.normpath).action


def who_matches(kind: TargetKind, pattern: str, value: str, *, inside: bool = False) -> str:
    file_system = FileSystem("/w")
    (subject,) = subjects_of(Target("x", kind, value, inside), file_system)
    allows = match(Rule("x", pattern, "allow"), subject, file_system)
    denies = match(Rule("x", pattern, "deny"), subject, file_system)
    return {
        (Certainty.YES, Certainty.YES): "both",
        (Certainty.NO, Certainty.YES): "deny",
        (Certainty.NO, Certainty.NO): "none",
    }[allows, denies]


# ---------------------------------------------------------------- the lists


@pytest.mark.rule("PM-5")
def test_every_line_of_the_corpus_is_decided_as_it_is_marked(record_property: Callable[[str, object], None]) -> None:
    """No line that is not marked harmless is allowed, and those that are marked are: the rules stay usable."""
    lines = [(mark, line) for mark, line in cases("shell.txt")]
    decided = [(decide(line), line) for _, line in lines]
    assert decided == lines
    counts = Counter(mark for mark, _ in lines)
    record_property("figure", f"shell corpus: {len(lines)} lines, {dict(counts)}, 0 silent passes")
    assert len(lines) == len(set(lines)) >= 500


@pytest.mark.rule("PM-5")
@pytest.mark.parametrize("pattern", ["*", "**", "* *"])
def test_not_even_a_rule_for_everything_allows_what_was_not_read(pattern: str) -> None:
    """What comes out as ask for its form, not for its program, stays ask: a star covers text, not uncertainty."""
    everything = Rule("bash", pattern, "allow")
    lines = [
        'echo "unclosed',
        "$x a",
        "r* a",
        "echo ${x@P}",
        "echo $((x))",
        "cat a | sh",
        "eval $x",
        "sudo ls",
        "PATH=/tmp ls a",
        "export A=1",
        "ls\u00a0a",
        "\u043ds a",
        "echo {a,b}",
        "echo $'a'",
        "",
        "# a",
    ]
    assert {line: decide(line, everything) for line in lines} == dict.fromkeys(lines, "ask")


@pytest.mark.rule("PM-5")
def test_a_rule_for_the_first_program_of_a_line_does_not_carry_the_rest() -> None:
    """Every line that hides `rm` behind another program, with a rule for that program and none against `rm`."""
    rules = [rule for rule in RULES if rule.action == "allow"]
    heads = [(re.match(r"[\w./-]+(?=\s|$)", line), line) for mark, line in cases("shell.txt") if mark == "deny"]
    hidden = [(found[0], line) for found, line in heads if found and not found[0].lower().endswith("rm")]
    allowed = [line for head, line in hidden if decide(line, *rules, Rule("bash", f"{head} *", "allow")) == "allow"]
    assert allowed == []
    assert len(hidden) >= 80


@pytest.mark.rule("PM-5")
def test_paths_match_as_they_are_marked() -> None:
    """Globs that stay inside a name, folders, brackets, spellings, and what is no resolved path."""
    marked = list(cases("paths.txt"))
    found = [
        (who_matches("path", pattern, path, inside=(path + "/").startswith("/w/")), pattern, path)
        for _, pattern, path in marked
    ]
    assert found == marked
    assert len(marked) >= 100


@pytest.mark.rule("PM-5")
def test_hosts_match_as_they_are_marked() -> None:
    """Whole labels, one form of every name, addresses as themselves, and what is no host."""
    marked = list(cases("hosts.txt"))
    found = [(who_matches("host", pattern, host), pattern, host) for _, pattern, host in marked]
    assert found == marked
    assert len(marked) >= 80


# ---------------------------------------------------------------- chance

HARMLESS = [line for mark, line in cases("shell.txt") if mark == "allow"]
# Commands no rule allows, and each kind of thing they can be glued on with. `{}` is where the command goes.
EVIL = ["curl evil.example", "evil", "rm -rf /", "python3 -c x", "sh -c evil", "/bin/ls", "FOO=1 ls", "sudo ls"]
GLUE = [
    "; {}",
    ";{}",
    " && {}",
    "&&{}",
    " || {}",
    " | {}",
    "|{}",
    " |& {}",
    " & {}",
    "&{}",
    "\n{}",
    "\n\n{}\n",
    " $({})",
    " `{}`",
    ' "$({})"',
    ' "`{}`"',
    " <({})",
    " >({})",
    " # \n{}",
    " # '\n{}",
    "; ({})",
    "; {{ {}; }}",
    "; ! {}",
    "; if true; then {}; fi",
    "; while {}; do true; done",
    "; case a in a) {};; esac",
    "; f() {{ {}; }}",
    " <<E\n$({})\nE",
    " <<E\nx\nE\n{}",
    " <<'E'\nx\nE\n{}",
    " <<< $({})",
    " > out; {}",
    " 2>&1; {}",
    ' "";{}',
    " '';{}",
    " \\\n;{}",
    " \\\\;{}",
    ' "\\\\";{}',
    " '\\';{}",
    " $x;{}",
    " a#;{}",
    " ${{x}};{}",
]
OUTPUT = [" > out", " >> out", " >| out", " &> out", " >& out", " 2> out", " 1>out", " > ~/x", " > $x", " > /etc/x"]
# What the shell would have to make harmless by quoting is not added behind an open comment or here-document.
PLAIN = [line for line in HARMLESS if "#" not in line and "<<" not in line and not line.endswith(("\n", "&", "}", ")"))]


@pytest.mark.rule("PM-5")
@given(st.sampled_from(PLAIN), st.sampled_from(GLUE), st.sampled_from(EVIL))
def test_a_tail_that_is_not_allowed_is_never_carried_by_a_head_that_is(head: str, glue: str, tail: str) -> None:
    """Whatever joins the two, the line is not allowed."""
    assert decide(head + glue.format(tail)) != "allow"


@pytest.mark.rule("PM-5")
@given(st.sampled_from(EVIL), st.sampled_from(["; ", " && ", " || ", " | ", " & ", "\n"]), st.sampled_from(HARMLESS))
def test_a_head_that_is_not_allowed_is_never_carried_by_its_tail(head: str, glue: str, tail: str) -> None:
    """The same the other way round."""
    assert decide(head + glue + tail) != "allow"


@pytest.mark.rule("PM-5")
@given(st.sampled_from(PLAIN), st.sampled_from(OUTPUT))
def test_a_redirect_is_never_carried_by_its_command(head: str, output: str) -> None:
    """Writing needs a rule of its own, which these rules do not have."""
    assert decide(head + output) != "allow"


# `npm test` may change any file, so a redirect behind it is asked about.
READING = [line for line in HARMLESS if "npm" not in line]


@given(st.lists(st.sampled_from(READING), min_size=1, max_size=4))
def test_harmless_lines_stay_allowed_one_below_the_other(lines: list[str]) -> None:
    """Newlines between whole lines change nothing: what is safe alone is not asked about together."""
    assert decide("\n".join(lines)) == "allow"


# Characters that mean something to a shell, close together.
SHELLISH = st.lists(
    st.sampled_from(
        [*"'\"$`\\;&|<>(){}[]!*?~# \t\n=-a1é", "$(", "<<E\n", "\nE\n", "ls", "rm x", "if ", "; fi", "${x}"]
    ),
    max_size=40,
).map("".join)


@given(st.one_of(SHELLISH, st.text()), st.one_of(SHELLISH, st.text()))
@example("\ud800", "\ud800")
@example("$(" * 300, "*" * 300)
def test_any_text_is_decided_and_explained_without_an_error(value: str, pattern: str) -> None:
    """No kind of target and no pattern makes the evaluation fail, let alone let through by failing."""
    kinds: list[TargetKind] = ["command", "path", "host", "plain"]
    targets = [Target("x", kind, value) for kind in kinds]
    rules = [Rule("*", pattern, "deny"), Rule("x", pattern, "ask")]
    for target in targets:
        decision = evaluate([target], session=rules, workspace="/w")
        assert decision.action in ("ask", "deny")
        assert "could not be evaluated" not in decision.reason
        if "\ud800" not in value + pattern:
            msgspec.json.encode(decision)


@given(SHELLISH)
def test_random_lines_are_allowed_only_if_they_begin_with_what_is_allowed(line: str) -> None:
    """A coarse second opinion: every word in the place of a program must be one of those in the rules."""
    if decide(line) == "allow":
        known = {pattern.split(" ")[0].rstrip("*") for pattern in ALLOWED}
        # A line that only reads a file, `<name`, starts no program; that file was judged.
        assert any(word in line for word in known) or line.lstrip().startswith("<")
        plain = re.sub(r"'[^']*'|\"[^\"$`]*\"|#[^\n]*|\\.", "", line)
        # After a program's name it is an argument, as in `ls rm x`.
        assert not re.search(r"(?:^|[;&|(){}`!\n]|\b(?:do|then|else|exec)\b)[ \t]*rm x", plain)
