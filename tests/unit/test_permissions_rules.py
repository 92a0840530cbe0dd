"""How rules are stored and read: answers, rules from outside, and the defaults."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.agents.catalog import builtin_agents
from clew.errors import InvalidInput, UnsupportedValue
from clew.permissions.approval_rules import rules_for
from clew.permissions.rules import base_rules, own_rules, parse_rules
from clew.transcript.rule import Rule, Target
from tests.unit.permission_values import bash, decide, path

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
    expected = tuple(Rule(permission, pattern, "allow", "session") for permission, pattern in rules)
    assert rules_for(target, "session") == expected


@pytest.mark.rule("PM-3")
@pytest.mark.parametrize(
    ("target", "others"),
    [
        (path("/w/a[1]*.txt"), [path("/w/a1x.txt"), path("/w/a[1]x.txt"), path("/w/a[1]*.txt/b")]),
        (path("/w/!(x)/!(y)"), [path("/w/!(x)/b"), path("/w/b/!(y)"), path("/w/b/b")]),
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
@given(st.text("ab*[]?!()\\é '\"-/.", min_size=1, max_size=12))
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

EVERY_AGENT = (*own_rules(["/data/clew", "/config/clew"], [], ["/data/clew/spill"], "ses_1"), *base_rules())
ASSISTANT = (*EVERY_AGENT, *builtin_agents()["assistant"].rules)


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
        (path("/data/clew/clew.db", "read"), "deny"),
        (path("/data/clew/spill/ses_1/x", "read"), "allow"),
        (path("/data/clew/spill/ses_1/x", "write"), "deny"),
        (path("/data/clew/spill/ses_2/x", "read"), "deny"),
        (path("/data/clew/spill", "ls"), "deny"),
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
def test_the_assistant_reads_in_the_workspace_and_leaves_clew_alone(target: Target, action: str) -> None:
    """All else is asked about. What is refused here is pinned: no session or project rule changes it."""
    assert decide(target, manifest=ASSISTANT).action == action
    everything = [Rule("*", "*", "allow"), Rule("*", "/**", "allow")]
    freed = decide(target, manifest=ASSISTANT, session=everything, project=everything).action
    assert (freed == "deny") == (action == "deny")


@pytest.mark.rule("PM-2")
def test_unattended_runs_still_read() -> None:
    """A trigger without a person can look around in the workspace, and do nothing else."""
    assert decide(path("/w/a", "read"), manifest=ASSISTANT, attended=False).action == "allow"
    assert decide(bash("ls"), manifest=ASSISTANT, attended=False).action == "deny"


@pytest.mark.rule("PM-2")
def test_an_agent_without_rules_of_its_own_may_only_talk() -> None:
    """It reads what its session put aside, and is asked about everything else, reading in the workspace too."""
    assert decide(Target("question", "plain", "x"), manifest=EVERY_AGENT).action == "allow"
    assert decide(path("/data/clew/spill/ses_1/x", "read"), manifest=EVERY_AGENT).action == "allow"
    assert {decide(path("/w/a", tool), manifest=EVERY_AGENT).action for tool in ("read", "ls", "write")} == {"ask"}
