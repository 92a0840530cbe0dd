"""What a rule covers: paths, redirects, commands and plain targets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.permissions.evaluate import evaluate
from clew.permissions.globs import matches
from clew.permissions.shell.commands import take_apart
from clew.transcript.rule import Rule, Target
from tests.unit.permission_values import FILE, bash, decide, rule


def action_of(line: str, *rules: Rule) -> str:
    return decide(bash(line), session=rules).action


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
    assert action_of("git log $x", allow, deny) == "ask"
    assert action_of("git log", allow, deny) == "allow"


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("git  'status'", [("git status", "any")]),
        ("cat 'a b' '' \"it's\"", [("cat 'a b' '' 'it'\\''s'", "any")]),
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
        ("python3 - <<'E'\nx\nE", [("python3 - << 'x\n'", "exact")]),
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
    (command,) = take_apart("A=1 /bin/LS 'x y'").commands
    assert command.text == "A=1 /bin/LS 'x y'"
    assert command.loose == (
        "A=1 /bin/LS 'x y'",
        "/bin/LS x y",
        "LS x y",
        "/bin/ls x y",
        "ls x y",
        "A=1 /bin/LS x y",
        "A=1 LS x y",
        "A=1 /bin/ls x y",
        "A=1 ls x y",
    )
    assert (command.head, command.cover, command.why) == ("A=1 /bin/LS", "named", "it sets a variable")


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
