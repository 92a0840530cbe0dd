"""How rules are weighed, explained, stored and read."""

from __future__ import annotations

import json
import os.path
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import InvalidInput, UnsupportedValue
from clew.permissions.answers import rules_for
from clew.permissions.commands import Command, take_apart
from clew.permissions.evaluate import (
    Considered,
    Decision,
    Judgement,
    RuleSet,
    evaluate,
    evaluate_for_child,
    strictest,
)
from clew.permissions.explain import Explanation, Step, explain
from clew.permissions.globs import matches
from clew.permissions.match import Match
from clew.permissions.rules import default_rules, parse_rules
from clew.transcript.rule import Rule, Target

Action = Literal["allow", "deny", "ask"]
FILE = Target("write", "path", "/w/a.txt", inside=True)


def rule(pattern: str, action: Action, permission: str = "write", *, pinned: bool = False) -> Rule:
    return Rule(permission, pattern, action, pinned=pinned)


def path(value: str, permission: str = "write") -> Target:
    return Target(permission, "path", value, inside=(value + "/").startswith("/w/"))


def bash(line: str) -> Target:
    return Target("bash", "command", line)


def decide(
    targets: Target | Sequence[Target],
    *,
    manifest: Sequence[Rule] = (),
    session: Sequence[Rule] = (),
    project: Sequence[Rule] = (),
    attended: bool = True,
) -> Decision:
    several = [targets] if isinstance(targets, Target) else targets
    return evaluate(
        several,
        manifest=manifest,
        session=session,
        project=project,
        workspace="/w",
        attended=attended,
        resolve=os.path.normpath,
    )


def action_of(line: str, *rules: Rule) -> str:
    return decide(bash(line), session=rules).action


# ---------------------------------------------------------------- order


@pytest.mark.rule("PM-2")
def test_without_a_matching_rule_the_answer_is_ask() -> None:
    """Neither silence nor a rule for something else lets a call through."""
    other = rule("b.txt", "allow")
    assert decide(FILE) == decide(FILE, manifest=[other], session=[other], project=[other])
    assert decide(FILE) == Decision(
        "ask",
        None,
        None,
        FILE,
        (),
        "no rule covers it",
        (Judgement(FILE, "ask", None, None, "no rule covers it"),),
    )


@pytest.mark.rule("PM-2")
def test_the_nearest_scope_with_a_match_decides() -> None:
    """Session before project before manifest, however specific the farther rule is."""
    wide, exact = rule("./**", "allow"), rule("/w/a.txt", "deny")
    assert decide(FILE, manifest=[exact], project=[exact], session=[wide]).scope == "session"
    assert decide(FILE, manifest=[exact], project=[wide]).scope == "project"
    assert decide(FILE, manifest=[exact], project=[wide]).action == "allow"
    assert decide(FILE, manifest=[exact]).scope == "manifest"
    assert decide(FILE, manifest=[exact], project=[wide], session=[rule("b", "ask")]).action == "allow"


@pytest.mark.rule("PM-1", "PM-2")
def test_a_pinned_manifest_rule_comes_before_every_other() -> None:
    """Deny before ask before allow, and no rule of a nearer scope is heard, however specific."""
    allow, ask, deny = (rule("./**", action, pinned=True) for action in ("allow", "ask", "deny"))
    mine = [rule("/w/a.txt", "allow")]
    assert decide(FILE, manifest=[deny], session=mine, project=mine).action == "deny"
    assert decide(FILE, manifest=[ask], session=mine, project=mine).action == "ask"
    assert decide(FILE, manifest=[allow, ask, deny, ask, allow], session=mine).rule == deny
    assert decide(FILE, manifest=[allow, ask, allow], session=mine).rule == ask
    no = [rule("/w/a.txt", "deny")]
    assert decide(FILE, manifest=[allow], session=no, project=no).rule == allow
    assert decide(FILE, manifest=[rule("b.txt", "deny", pinned=True)], session=mine).action == "allow"


@pytest.mark.rule("PM-1")
def test_a_pin_outside_the_manifest_means_nothing() -> None:
    """A stored rule that says it is pinned is weighed like any other."""
    pinned, exact = rule("./**", "deny", pinned=True), rule("/w/a.txt", "allow")
    assert decide(FILE, session=[pinned, exact]).rule == exact
    assert decide(FILE, project=[pinned], session=[exact]).rule == exact


@pytest.mark.rule("PM-2")
def test_in_a_scope_the_most_specific_rule_decides() -> None:
    """A named permission before `*`, then more literal characters; the order of the list does not matter then."""
    named, starred = rule("./**", "allow"), rule("/w/a.txt", "deny", "*")
    assert decide(FILE, session=[named, starred]).rule == named
    assert decide(FILE, session=[starred, named]).rule == named
    wide, narrow = rule("./**", "deny"), rule("./a*", "allow")
    assert decide(FILE, session=[wide, narrow]).rule == narrow
    assert decide(FILE, session=[narrow, wide]).rule == narrow
    either, one = rule("[ab].tx?", "deny"), rule("a.tx*", "allow")
    assert decide(FILE, session=[one, either]).rule == one
    assert decide(FILE, session=[one, rule("a[.]tx?", "deny")]).rule == one
    beginning = rule("./**", "ask", "wri*")
    assert decide(FILE, session=[beginning, starred]).rule == beginning
    assert decide(FILE, session=[named, beginning]).rule == named


@pytest.mark.rule("PM-2")
def test_a_relative_pattern_is_as_specific_as_its_absolute_twin() -> None:
    """Which of two spellings was used decides nothing; the later rule does."""
    relative, absolute = rule("./src/**", "allow"), rule("/w/src/**", "deny")
    target = path("/w/src/a")
    assert decide(target, session=[relative, absolute]).rule == absolute
    assert decide(target, session=[absolute, relative]).rule == relative


@pytest.mark.rule("PM-2")
def test_of_equally_specific_rules_the_later_decides() -> None:
    """The last word counts, in both directions."""
    allow, deny = rule("./a.*", "allow"), rule("./*.t*", "deny")
    same = [rule("/w/a.txt", "deny"), rule("/w/a.txt", "allow")]
    assert decide(FILE, session=same).action == "allow"
    assert decide(FILE, session=same[::-1]).action == "deny"
    assert decide(FILE, session=[allow, deny]).rule == deny


@pytest.mark.rule("PM-2")
def test_of_several_targets_the_strictest_decides() -> None:
    """Deny over ask over allow, wherever it stands among them."""
    rules = [rule("a", "allow"), rule("d", "deny")]
    a, b, d = path("/w/a"), path("/w/b"), path("/w/d")
    assert decide([a, a], session=rules).action == "allow"
    assert decide([a, b, a], session=rules).target == b
    assert decide([a, b, d, b, a], session=rules).target == d
    assert decide([d, b], session=rules).action == "deny"


@pytest.mark.rule("PM-2")
def test_a_call_that_names_nothing_is_asked_about() -> None:
    """An empty list is not an empty threat."""
    everything = [rule("*", "allow", "*")]
    assert decide([], session=everything).action == "ask"


@pytest.mark.rule("PM-2")
def test_unattended_runs_deny_what_they_would_ask() -> None:
    """Only that: what is allowed stays allowed, and the reason says why."""
    rules = [rule("a", "allow"), rule("b", "ask")]
    assert decide(path("/w/a"), session=rules, attended=False).action == "allow"
    denied = decide(path("/w/b"), session=rules, attended=False)
    assert (denied.action, denied.reason) == (
        "deny",
        "nobody is there to ask, and the session rule `write b` asks",
    )
    assert decide(path("/w/c"), session=rules, attended=False).action == "deny"
    assert decide([], attended=False).action == "deny"


@pytest.mark.rule("PM-2")
@given(
    st.lists(
        st.builds(
            Rule,
            st.sampled_from(["*", "x", "y"]),
            st.sampled_from(["*", "a*", "ab", "*b", "b"]),
            st.sampled_from(["allow", "deny", "ask"]),
            st.sampled_from(["manifest", "session", "project"]),
            st.none(),
            st.booleans(),
        ),
        max_size=8,
    )
)
def test_the_order_is_that_of_the_rule_book(rules: list[Rule]) -> None:
    """PM-2 once more, written as one sort, against random rules."""
    target = Target("x", "plain", "ab")
    strictness = {"allow": 0, "ask": 1, "deny": 2}
    nearness = {"manifest": 0, "project": 1, "session": 2}

    def weight(entry: tuple[int, Rule]) -> tuple[Any, ...]:
        at, one = entry
        specific = (one.permission != "*", len(one.pattern.replace("*", "")), at)
        if one.source == "manifest" and one.pinned:
            return (3, strictness[one.action], *specific)
        return (nearness[one.source], 0, *specific)

    matching_ = [
        (at, one)
        for at, one in enumerate(rules)
        if one.permission in ("*", "x") and one.pattern in ("*", "a*", "ab", "*b")
    ]
    expected = max(matching_, key=weight)[1] if matching_ else None
    found = evaluate(
        [target],
        manifest=[one for one in rules if one.source == "manifest"],
        session=[one for one in rules if one.source == "session"],
        project=[one for one in rules if one.source == "project"],
    )
    assert found.rule is expected
    assert found.action == (expected.action if expected else "ask")


# ---------------------------------------------------------------- failing


@pytest.mark.rule("PM-2")
def test_an_error_inside_denies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail closed: the call is not let through, and the reason names the error."""

    def broken(*_: object) -> Match:
        raise RuntimeError("a bug")

    monkeypatch.setattr("clew.permissions.evaluate.match", broken)
    decision = decide(FILE, session=[rule("./**", "allow")])
    assert decision == Decision(
        "deny",
        None,
        None,
        None,
        (),
        "the rules could not be evaluated (RuntimeError: a bug), so nothing is allowed",
    )


def test_values_of_the_wrong_type_deny() -> None:
    """What type checkers would catch is caught here too."""
    wrong: Any = [None]
    assert decide(wrong).action == "deny"
    assert decide(FILE, session=wrong).action == "deny"


def test_a_resolver_that_fails_denies() -> None:
    """A circle of links must not end as an allow."""

    def resolve(_: str) -> str:
        raise OSError("too many links")

    rules = [Rule("bash", "*", "allow"), Rule("write", "/**", "allow")]
    assert evaluate([bash("ls > x")], session=rules, workspace="/w", resolve=resolve).action == "deny"
    nowhere = evaluate([bash("ls > x")], session=rules, workspace="/w", resolve=lambda _: "x")
    assert (nowhere.action, nowhere.reason) == (
        "ask",
        "no rule covers it: the file of a redirect cannot be resolved",
    )


# ---------------------------------------------------------------- explaining


@pytest.mark.rule("PM-4")
def test_a_decision_says_which_rule_which_scope_and_what_else_matched() -> None:
    """Everything that matched is listed with why it did not decide; what did not match is not."""
    winner = rule("./a*", "deny")
    wide, later, everyone = rule("./**", "allow"), rule("./*.t", "ask"), rule("*", "ask", "*")
    project, manifest = rule("/w/a.txt", "allow"), rule("./**", "allow")
    equal = rule("./*t", "deny")
    unmatched = rule("b.txt", "deny")
    session = [equal, winner, wide, everyone, unmatched, later]
    decision = decide(FILE, session=session, project=[project], manifest=[manifest, unmatched])
    assert decision == Decision(
        "deny",
        winner,
        "session",
        FILE,
        (
            Considered(equal, "session", "the other rule is later"),
            Considered(wide, "session", "the other pattern is more specific"),
            Considered(everyone, "session", "the other names the permission more exactly"),
            Considered(project, "project", "the session is nearer"),
            Considered(manifest, "manifest", "the session is nearer"),
        ),
        "the session rule `write ./a*` denies it",
        decision.judgements,
    )


@pytest.mark.rule("PM-4")
def test_what_a_pinned_rule_overrules_is_listed_too() -> None:
    """Also the pinned rules that were less strict."""
    deny, ask, mine = rule("./**", "deny", pinned=True), rule("./**", "ask", pinned=True), rule("a.txt", "allow")
    decision = decide(FILE, manifest=[deny, ask], session=[mine])
    assert (decision.reason, decision.considered) == (
        "the pinned manifest rule `write ./**` denies it",
        (
            Considered(mine, "session", "a pinned rule of the manifest decides"),
            Considered(ask, "manifest", "a stricter or closer pinned rule decides"),
        ),
    )


@pytest.mark.rule("PM-4")
def test_an_explanation_shows_every_part_of_a_line_the_deciding_one_first() -> None:
    """As values that become JSON, with what cannot be seen written out."""
    allow = Rule("bash", "ls*", "allow")
    decision = decide(bash("ls -l; rm 'a\\b' > out\n"), session=[allow])
    why = explain(decision)
    assert why == Explanation(
        "ask",
        None,
        None,
        "no rule covers it",
        (
            Step("bash", "command", "rm 'a\\b'", "ask", None, None, "no rule covers it"),
            Step("bash", "command", "ls -l", "allow", allow, "session", "the session rule `bash ls*` allows it"),
            Step("write", "path", "/w/out", "ask", None, None, "no rule covers it"),
        ),
    )
    assert json.loads(msgspec.json.encode(why))["steps"][1]["rule"]["pattern"] == "ls*"
    hidden = explain(decide(bash("ls \u202egpj.exe\x1b[2J")))
    assert hidden.steps[0].shown == "ls \\u202egpj.exe\\x1b[2J"


@pytest.mark.rule("PM-4", "PM-5")
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("FOO=1 ls", "it sets a variable, so only a rule that writes its program out could allow it"),
        ("sudo ls", "it runs another command, so only a rule that writes its program out could allow it"),
        ("export A", "it changes what later commands are or do, so only a rule that writes its program out could"),
        ("echo {a,b}", "it uses braces that make several words, so only a rule for exactly this command could"),
        ("find . -delete", "an option makes it write or run something else, so only a rule for exactly this"),
        ("$x", "its program is not written out, so only you could allow it"),
        ("ls | python3", "it runs what it is fed, so only you could allow it"),
        ("ls 'a", "the command line is not certain to mean what it seems to: a quote is not closed"),
        ("ls > $x", "the file of a redirect is not written out"),
        ("cd a; ls > x", "the folder changes before a redirect is opened"),
    ],
)
def test_the_reason_says_why_no_rule_covers_a_command(line: str, reason: str) -> None:
    """A person who wonders why a rule for everything did not help can read it."""
    everything = [Rule("bash", "*", "allow"), Rule("write", "/**", "allow")]
    assert decide(bash(line), session=everything).reason.startswith(f"no rule covers it: {reason}")


# ---------------------------------------------------------------- children


@pytest.mark.rule("PM-2")
def test_a_child_is_never_freer_than_its_parent() -> None:
    """What the child's rules allow and any ancestor's do not is refused, and nobody is asked."""
    free = RuleSet(manifest=(rule("./**", "allow"),))
    asks = RuleSet()
    denies = RuleSet(manifest=(rule("./**", "allow"),), session=(rule("a.txt", "deny"),))

    def child(own: RuleSet, *ancestors: RuleSet, attended: bool = False) -> str:
        return evaluate_for_child([FILE], child=own, ancestors=ancestors, workspace="/w", attended=attended).action

    assert child(free, free, free) == "allow"
    assert child(free, asks) == "deny"
    assert child(free, denies) == "deny"
    assert child(free, free, denies) == "deny"
    assert child(denies, free) == "deny"
    assert child(asks, free) == "deny"
    assert child(free, asks, attended=True) == "ask"
    assert child(asks, denies, attended=True) == "deny"


@given(st.lists(st.sampled_from(["allow", "ask", "deny"]), min_size=1, max_size=4), st.booleans())
def test_the_strictest_decision_is_the_maximum(actions: list[Action], attended: bool) -> None:
    """Order does not matter but for which of equals speaks, and unattended never asks."""
    decisions = [Decision(action, None, None, None, (), action) for action in actions]
    worst = max(actions, key=["allow", "ask", "deny"].index)
    expected = "deny" if worst == "ask" and not attended else worst
    assert strictest(*decisions, attended=attended).action == expected


# ---------------------------------------------------------------- targets


@pytest.mark.rule("PM-5")
def test_a_relative_pattern_allows_only_what_the_tool_says_is_inside() -> None:
    """Text and resolution must agree; a refusal needs only one of them."""
    outside = Target("read", "path", "/w/a.txt", inside=False)
    assert decide(outside, session=[rule("./**", "allow", "read")]).action == "ask"
    assert decide(outside, session=[rule("/w/**", "allow", "read")]).action == "allow"
    assert decide(outside, session=[rule("./**", "deny", "read")]).action == "deny"


@pytest.mark.rule("PM-5")
def test_without_a_workspace_relative_patterns_name_nothing() -> None:
    """A pattern has no place to begin at."""
    rules = [rule("./**", "allow"), rule("**", "allow")]
    assert evaluate([FILE], session=rules, workspace=None).action == "ask"
    assert evaluate([FILE], session=[rule("/w/**", "allow")], workspace=None).action == "allow"
    redirect = evaluate([bash("ls > x")], session=[Rule("bash", "*", "allow"), rule("/**", "allow")])
    assert redirect.reason == "no rule covers it: there is no workspace that a redirect could be relative to"


def test_the_name_of_the_workspace_is_not_a_pattern() -> None:
    """A folder called `a[1]` or `*` is just that."""
    rules = [rule("./**", "allow", "read")]
    odd = Target("read", "path", "/w[1]*/a", inside=True)
    other = Target("read", "path", "/w1x/a", inside=True)
    assert evaluate([odd], session=rules, workspace=Path("/w[1]*")).action == "allow"
    assert evaluate([other], session=rules, workspace=Path("/w[1]*")).action == "ask"


@pytest.mark.rule("PM-5")
def test_redirects_are_judged_as_paths_of_their_own() -> None:
    """With the permission to write or to read, as they are resolved."""
    run = Rule("bash", "*", "allow")
    write, read = rule("./out/**", "allow"), rule("./in/**", "allow", "read")
    assert action_of("ls > out/a", run) == "ask"
    assert action_of("ls > out/a", run, write) == "allow"
    assert action_of("ls >> ./out/a 2>&1", run, write) == "allow"
    assert action_of("ls > in/a", run, write, read) == "ask"
    assert action_of("cat < in/a", run, read) == "allow"
    assert action_of("cat < in/a > out/b", run, read, write) == "allow"
    assert action_of("cat <> out/b", run, read, write) == "ask"
    assert action_of("ls > out/../../etc/x", run, write) == "ask"
    assert action_of("ls > out/a", run, write, rule("out/a", "deny")) == "deny"
    assert action_of("cd x && ls > out/a", run, write) == "ask"
    assert action_of("bash -c 'ls > out/a'", run, Rule("bash", "bash *", "allow"), write) == "ask"


@pytest.mark.rule("PM-5")
def test_a_redirect_through_a_link_is_judged_where_it_leads() -> None:
    """Links are followed by whoever can look; with nobody to look no redirect is allowed."""
    rules = [Rule("bash", "*", "allow"), rule("./**", "allow")]
    leads = {"/w/link": "/etc/passwd", "/w/plain": "/w/plain"}
    decisions = {
        name: evaluate([bash(f"ls > {name}")], session=rules, workspace="/w", resolve=leads.__getitem__).action
        for name in ("link", "plain")
    }
    assert decisions == {"link": "ask", "plain": "allow"}
    unresolved = evaluate([bash("ls > plain")], session=rules, workspace="/w")
    assert (unresolved.action, unresolved.reason) == (
        "ask",
        "no rule covers it: the file of a redirect was not resolved",
    )


@pytest.mark.rule("PM-5")
def test_a_star_at_the_end_of_a_command_pattern_means_arguments() -> None:
    """It does not lengthen the last word of a rule that allows, and it does of one that denies."""
    lines = ["git status", "git status -s", "git statusx", "git status-x", "git stat"]
    allow = {line: action_of(line, Rule("bash", "git status*", "allow")) for line in lines}
    deny = {line: action_of(line, Rule("bash", "git status*", "deny")) for line in lines}
    assert allow == dict(zip(lines, ["allow", "allow", "ask", "ask", "ask"], strict=True))
    assert deny == dict(zip(lines, ["deny", "deny", "deny", "deny", "ask"], strict=True))
    assert action_of("ls", Rule("bash", "ls *", "allow")) == "allow"
    assert action_of("npm run test:unit", Rule("bash", "npm run test:*", "allow")) == "allow"
    assert action_of("cat src/a.py", Rule("bash", "cat src/*", "allow")) == "allow"
    assert action_of("cat a b", Rule("bash", "cat * b", "allow")) == "allow"
    assert action_of("echo '*'", Rule("bash", "echo '\\*'", "allow")) == "allow"
    assert action_of("echo x", Rule("bash", "echo \\*", "allow")) == "ask"


@pytest.mark.rule("PM-5")
def test_a_program_given_by_its_path_is_found_by_rules_that_deny_and_not_by_those_that_allow() -> None:
    """`./ls` is not `ls`; `/bin/rm` is `rm`."""
    assert action_of("/bin/ls", Rule("bash", "ls*", "allow")) == "ask"
    assert action_of("/bin/ls", Rule("bash", "/bin/ls*", "allow")) == "allow"
    assert action_of("/bin/rm x", Rule("bash", "rm *", "deny")) == "deny"
    assert action_of("/bin/rm x", Rule("bash", "rm *", "ask"), Rule("bash", "*", "allow")) == "ask"


@pytest.mark.rule("PM-5")
def test_a_wrapper_needs_a_rule_that_names_it_and_one_for_what_it_runs() -> None:
    """Both, and a rule for everything names nothing."""
    everything, timeout, ls = (Rule("bash", pattern, "allow") for pattern in ("*", "timeout *", "ls*"))
    assert action_of("timeout 5 ls", everything) == "ask"
    assert action_of("timeout 5 ls", timeout) == "ask"
    assert action_of("timeout 5 ls", ls) == "ask"
    assert action_of("timeout 5 ls", timeout, ls) == "allow"
    assert action_of("timeout 5 ls", Rule("bash", "timeout 5 *", "allow"), ls) == "allow"
    assert action_of("timeout 5 ls", Rule("bash", "time*", "allow"), ls) == "ask"
    assert action_of("timeout 5 rm x", timeout, ls) == "ask"
    assert action_of("bash -c 'ls; rm x'", Rule("bash", "bash *", "allow"), ls) == "ask"
    assert action_of("bash -c 'ls; ls'", Rule("bash", "bash *", "allow"), ls) == "allow"


@pytest.mark.rule("PM-5")
def test_a_rule_that_denies_and_may_be_meant_by_what_the_shell_fills_in_asks() -> None:
    """Unknown text is no way around a refusal, and no reason to refuse what cannot be meant."""
    allow, deny = Rule("bash", "git *", "allow"), Rule("bash", "git push --force*", "deny")
    assert action_of("git push --force", allow, deny) == "deny"
    assert action_of("git push $x", allow, deny) == "ask"
    assert action_of("git $x", allow, deny) == "ask"
    assert action_of("git p* origin", allow, deny) == "ask"
    assert action_of("git log $x", allow, deny) == "allow"
    assert action_of("git log", allow, deny) == "allow"


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("git  'status'", [("git status", "any")]),
        ("git 'a b' '' \"it's\"", [("git 'a b' '' 'it'\\''s'", "any")]),
        ("ls *.py '*.py'", [("ls *.py '*.py'", "any")]),
        ("cat src/$x.py", [("cat src/\0.py", "any")]),
        ("A=1 B='2 3' ls", [("A=1 'B=2 3' ls", "named")]),
        ("cat <<E\nbody\nE", [("cat << 'body\n'", "any")]),
        ("cat <<< word", [("cat << word", "any")]),
        ("env -i A=1 ls -l", [("env -i A=1 ls -l", "named"), ("A=1 ls -l", "named")]),
        ("sudo nice -n 5 ls", [("sudo nice -n 5 ls", "named"), ("nice -n 5 ls", "named"), ("ls", "any")]),
        ("ls | xargs -n 1 cat -n", [("ls", "any"), ("xargs -n 1 cat -n", "named"), ("cat -n \0", "any")]),
        ("find . -exec cat {} +", [("find . -exec cat {} +", "named"), ("cat \0", "any")]),
        ("ssh h 'ls; pwd'", [("ssh h 'ls; pwd'", "named"), ("ls", "any"), ("pwd", "any")]),
        ("sh -c 'ls'", [("sh -c ls", "named"), ("ls", "any")]),
        ("python3 - <<'E'\nx\nE", [("python3 - << 'x\n'", "any")]),
        ("python3 x.py", [("python3 x.py", "any")]),
        ("python3 -W ignore", [("python3 -W ignore", "none")]),
        ("python3 --version", [("python3 --version", "any")]),
        ("node", [("node", "none")]),
        ("strace ls", [("strace ls", "none")]),
    ],
)
def test_a_line_is_taken_apart_into_canonical_commands(line: str, commands: list[tuple[str, str]]) -> None:
    """One text for each command that would run, with how far a rule may cover it."""
    assert [(command.text, command.cover) for command in take_apart(line).commands] == commands


def test_a_command_says_what_a_rule_must_write_out() -> None:
    """Variables and program make the head; refusals see looser spellings."""
    assert take_apart("A=1 /bin/LS 'x y'").commands == (
        Command(
            "A=1 /bin/LS 'x y'",
            (
                "A=1 /bin/LS 'x y'",
                "/bin/LS x y",
                "LS x y",
                "/bin/ls x y",
                "ls x y",
                "A=1 /bin/LS x y",
                "A=1 LS x y",
                "A=1 /bin/ls x y",
                "A=1 ls x y",
            ),
            "A=1 /bin/LS",
            "named",
            "it sets a variable",
        ),
    )


@pytest.mark.rule("PM-5")
def test_plain_targets_are_matched_as_a_whole() -> None:
    """A star is any text, newlines included; nothing else is special."""
    target = Target("task", "plain", "line [1]\nline 2?")
    patterns = ["*", "line*", "*2?", "*[1]*", "line [1]\nline 2?", "line", "*3*", "line [1]?line 2?"]
    matched = [pattern for pattern in patterns if decide(target, session=[rule(pattern, "allow", "task")]).rule]
    assert matched == ["*", "line*", "*2?", "*[1]*", "line [1]\nline 2?"]


@given(st.text("ab*", max_size=8), st.text("ab", max_size=10))
def test_stars_match_as_a_regular_expression_would(pattern: str, text: str) -> None:
    """Pieces must not overlap nor come back; compared with a slow second opinion."""
    expected = re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), text) is not None
    assert matches(pattern, text) == expected


@pytest.mark.parametrize(("pattern", "text"), [("ab*ba", "aba"), ("*ab*ab*", "xaby"), ("a*b*a", "aab")])
def test_pieces_of_a_pattern_do_not_share_characters(pattern: str, text: str) -> None:
    """Each needs a place of its own, in order."""
    assert not matches(pattern, text)


# ---------------------------------------------------------------- answers


@pytest.mark.rule("PM-3")
@pytest.mark.parametrize(
    ("target", "rules"),
    [
        (path("/w/a[1]*.txt"), [("write", "/w/a\\[1]\\*.txt")]),
        (Target("web_fetch", "host", "Example.com"), [("web_fetch", "Example.com")]),
        (Target("task", "plain", "do * now"), [("task", "do \\* now")]),
        (bash("npm test"), [("bash", "npm test")]),
        (bash("npm  'test' && ls *.py && npm test"), [("bash", "npm test"), ("bash", "ls \\*.py")]),
        (bash("FOO=1 make > 'build log'"), [("bash", "FOO=1 make"), ("write", "./build log")]),
        (bash("sort < in > /tmp/out"), [("bash", "sort"), ("read", "./in"), ("write", "/tmp/out")]),
        (bash("timeout 5 make"), [("bash", "timeout 5 make"), ("bash", "make")]),
        (bash("cat <<E\nx\nE"), [("bash", "cat << 'x\n'")]),
        (bash("cat $x"), []),
        (bash("for f in *; do rm $f; done"), []),
        (bash("ls; cat 'open"), []),
        (bash("ls | sh"), []),
        (bash("cd x && ls > out"), []),
        (bash("ls > $x"), []),
        (bash("cat <<E\n" + "x" * 9_000 + "\nE"), []),
        (path("/w/../etc/passwd"), []),
        (Target("web_fetch", "host", "a@b.com"), []),
    ],
)
def test_an_answer_stores_exactly_what_was_asked_about(target: Target, rules: list[tuple[str, str]]) -> None:
    """One rule for each command and redirect; none at all where the same text could mean something else next time."""
    expected = tuple(Rule(permission, pattern, "allow", "session", 7) for permission, pattern in rules)
    assert rules_for(target, "session", added_at=7) == expected


@pytest.mark.rule("PM-3")
@pytest.mark.parametrize(
    ("target", "others"),
    [
        (path("/w/a[1]*.txt"), [path("/w/a1x.txt"), path("/w/a[1]x.txt"), path("/w/a[1]*.txt/b")]),
        (
            Target("web_fetch", "host", "example.com"),
            [Target("web_fetch", "host", "a.example.com"), Target("web_fetch", "host", "example.org")],
        ),
        (
            bash("git push"),
            [bash("git push --force"), bash("git push; ls"), bash("git  push x"), bash("/bin/git push")],
        ),
        (bash("ls *.py"), [bash("ls a.py"), bash("ls 'x' *.py"), bash("ls '*.py'")]),
        (bash("echo '*'"), [bash("echo *"), bash("echo x")]),
        (bash("FOO=1 make"), [bash("FOO=2 make"), bash("make"), bash("FOO=1 BAR=2 make"), bash("FOO=1 make x")]),
        (bash("make > log"), [bash("make > log2"), bash("make > a/log"), bash("make > ../log")]),
        (bash("python3 - <<E\nx\nE"), [bash("python3 - <<E\ny\nE"), bash("python3 -"), bash("ls | python3 -")]),
        (bash("find . -delete"), [bash("find / -delete"), bash("find . -delete -print")]),
        (bash("timeout 5 make"), [bash("timeout 5 make x"), bash("timeout 9 make"), bash("nice make")]),
        (bash("echo $'a'"), [bash("echo $'b'"), bash("echo a b")]),
    ],
)
def test_a_stored_answer_allows_the_same_again_and_nothing_like_it(target: Target, others: list[Target]) -> None:
    """ "For this session" is not "anything of the kind"."""
    stored = rules_for(target, "session")
    assert decide(target, session=stored).action == "allow"
    assert [decide(other, session=stored).action for other in others] == ["ask"] * len(others)


@pytest.mark.rule("PM-3")
@given(st.text("ab*[]?\\é '\"-/.", min_size=1, max_size=12))
def test_a_stored_path_or_text_matches_itself(name: str) -> None:
    """Whatever special characters are in it."""
    plain = Target("task", "plain", name)
    assert decide(plain, project=rules_for(plain, "project")).action == "allow"
    file = path("/w/" + name.strip("/"))
    if rules_for(file, "project"):
        assert decide(file, project=rules_for(file, "project")).action == "allow"


# ---------------------------------------------------------------- rules from outside


@pytest.mark.rule("PM-1")
def test_rules_from_a_client_are_read_in_their_order_and_belong_to_the_scope() -> None:
    """What a client says about the source is not believed; its own stamps are kept."""
    values: list[dict[str, Any]] = [
        {"permission": "bash", "pattern": "ls *", "action": "allow"},
        {"permission": "*", "pattern": "*", "action": "ask", "source": "manifest", "added_at": 5, "pinned": False},
        {"permission": "mcp_x_*", "pattern": "*", "action": "deny", "note": "kept by nobody"},
    ]
    assert parse_rules(values, "project", added_at=9) == [
        Rule("bash", "ls *", "allow", "project", 9),
        Rule("*", "*", "ask", "project", 5),
        Rule("mcp_x_*", "*", "deny", "project", 9),
    ]
    assert parse_rules([], "session") == []


@pytest.mark.rule("PM-1")
@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"permission": "a", "pattern": "*", "action": "deny", "pinned": True}, "rules[0] is pinned"),
        ({"pattern": "*", "action": "deny"}, "rules[0].permission is"),
        ({"permission": "", "pattern": "*", "action": "deny"}, "rules[0].permission is"),
        ({"permission": "a b", "pattern": "*", "action": "deny"}, "rules[0].permission is"),
        ({"permission": "a\n", "pattern": "*", "action": "deny"}, "rules[0].permission is"),
        ({"permission": 1, "pattern": "*", "action": "deny"}, "rules[0].permission is"),
        ({"permission": "a", "action": "deny"}, "rules[0].pattern is missing"),
        ({"permission": "a", "pattern": " ", "action": "deny"}, "rules[0].pattern is missing"),
        ({"permission": "a", "pattern": "x" * 9_000, "action": "deny"}, "rules[0].pattern is longer"),
        ({"permission": "a", "pattern": "*"}, "rules[0].action is"),
        ({"permission": "a", "pattern": "*", "action": "Allow"}, "rules[0].action is"),
        ({"permission": "a", "pattern": "*", "action": ["allow"]}, "rules[0].action is"),
        ({"permission": "a", "pattern": "*", "action": "ask", "added_at": "now"}, "rules[0].added_at is"),
        ({"permission": "a", "pattern": "*", "action": "ask", "added_at": True}, "rules[0].added_at is"),
        ("allow", "rules[0] is not an object"),
    ],
)
def test_a_rule_that_cannot_be_kept_is_refused_with_its_place(value: Any, sentence: str) -> None:
    """The whole list is refused; a client never gets half of what it sent."""
    with pytest.raises(InvalidInput) as caught:
        parse_rules([value], "session")
    assert str(caught.value).startswith(sentence)


def test_patterns_that_no_store_keeps_and_lists_that_are_none_are_refused() -> None:
    """NUL, half characters, too many rules, and things that are not lists."""
    for pattern in ("a\0", "\ud800"):
        with pytest.raises(UnsupportedValue):
            parse_rules([{"permission": "a", "pattern": pattern, "action": "ask"}], "session")
    wrong: list[Any] = [{}, "rules", None, [{}] * 1_001]
    for value in wrong:
        with pytest.raises(InvalidInput):
            parse_rules(value, "session")


# ---------------------------------------------------------------- defaults

DEFAULTS = default_rules(own=[Path("/data/clew")], secret=["/config/clew/"], readable=[Path("/data/clew/spill")])


@pytest.mark.rule("PM-2")
@pytest.mark.parametrize(
    ("target", "action"),
    [
        (path("/w/a", "read"), "allow"),
        (path("/w", "ls"), "allow"),
        (path("/w/src", "glob"), "allow"),
        (path("/w/.env", "grep"), "allow"),
        (path("/w2/a", "read"), "ask"),
        (path("/etc/passwd", "read"), "ask"),
        (path("/w/a", "write"), "ask"),
        (path("/w/a", "edit"), "ask"),
        (bash("ls"), "ask"),
        (bash("cat < a"), "ask"),
        (Target("web_fetch", "host", "example.com"), "ask"),
        (Target("task", "plain", "x"), "ask"),
        (Target("mcp_x_y", "plain", "x"), "ask"),
        (Target("todo", "plain", "x"), "allow"),
        (Target("skill", "plain", "x"), "allow"),
        (Target("question", "plain", "x"), "allow"),
        (Target("recall", "plain", "x"), "allow"),
        (path("/data/clew/clew.db", "write"), "deny"),
        (path("/data/clew", "edit"), "deny"),
        (path("/data/clew/clew.db", "read"), "ask"),
        (path("/data/clew/spill/x", "read"), "allow"),
        (path("/data/clew/spill/x", "write"), "deny"),
        (path("/config/clew/token", "read"), "deny"),
        (path("/config/clew", "ls"), "deny"),
        (path("/config/clew/config.toml", "edit"), "deny"),
        (path("/config/clew2/x", "read"), "ask"),
        (bash("ls > /data/clew/clew.db"), "deny"),
        (bash("cat < /config/clew/token"), "deny"),
        (bash("cat /config/clew/token"), "deny"),
        (bash('cat "/config/clew"/token'), "deny"),
        (bash("grep -r x --include=/config/clew/token ."), "deny"),
        (bash("ls /config/clew"), "deny"),
        (bash("ls /config/clew2"), "ask"),
        (bash("sqlite3 /data/clew/clew.db 'delete from x'"), "deny"),
        (bash("cat '/config/clew/token"), "deny"),
    ],
)
def test_every_agent_reads_in_the_workspace_and_leaves_clew_alone(target: Target, action: str) -> None:
    """All else is asked about. What is refused here is pinned: no session or project rule changes it."""
    assert decide(target, manifest=DEFAULTS).action == action
    everything = [Rule("*", "*", "allow"), Rule("*", "/**", "allow")]
    freed = decide(target, manifest=DEFAULTS, session=everything, project=everything).action
    assert (freed == "deny") == (action == "deny")


@pytest.mark.rule("PM-2")
def test_unattended_runs_still_read() -> None:
    """A trigger without a person can look around in the workspace, and do nothing else."""
    assert decide(path("/w/a", "read"), manifest=DEFAULTS, attended=False).action == "allow"
    assert decide(bash("ls"), manifest=DEFAULTS, attended=False).action == "deny"
