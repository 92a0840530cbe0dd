"""How rules are weighed and explained, and how they fail."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.permissions.evaluate import Considered, Decision, Judgement, evaluate, strictest
from clew.permissions.explain import Explanation, Subject, explain
from clew.permissions.rules import Certainty
from clew.transcript.rule import Rule, Target
from tests.unit.permission_values import FILE, Action, bash, decide, path, rule

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
        "this run is unattended, and the session rule `write b` asks",
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

    def broken(*_: object) -> Certainty:
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
    adrift = "no rule covers it: another command of the line may change where a redirect leads"
    assert why == Explanation(
        "ask",
        None,
        None,
        (),
        "no rule covers it",
        (
            Subject("bash", "command", "rm 'a\\b'", "ask", None, None, "no rule covers it"),
            Subject("bash", "command", "ls -l", "allow", allow, "session", "the session rule `bash ls*` allows it"),
            Subject("write", "path", "/w/out", "ask", None, None, adrift),
        ),
    )
    assert json.loads(msgspec.json.encode(why))["subjects"][1]["rule"]["pattern"] == "ls*"
    hidden = explain(decide(bash("ls \u202egpj.exe\x1b[2J")))
    assert hidden.subjects[0].shown == "ls \\u202egpj.exe\\x1b[2J"


@pytest.mark.rule("PM-4", "PM-5")
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("FOO=1 ls", "it sets a variable, so only a rule that writes its program out could allow it"),
        ("sudo ls", "it runs another command, so only a rule that writes its program out could allow it"),
        ("export A", "it changes what later commands are or do, so only a rule for exactly this command could"),
        ("echo {a,b}", "it uses braces that make several words, so only a rule for exactly this command could"),
        ("find . -delete", "`-delete` makes `find` write or change files, so only a rule that begins with `find"),
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
    free = evaluate([FILE], workspace="/w", manifest=[rule("./**", "allow")])
    asks = evaluate([FILE], workspace="/w")
    denies = evaluate([FILE], workspace="/w", manifest=[rule("./**", "allow")], session=[rule("a.txt", "deny")])

    def child(own: Decision, *ancestors: Decision, attended: bool = False) -> str:
        return strictest(own, *ancestors, attended=attended).action

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
