"""Rules on capabilities: which tools they apply to, what allows and what only asks, and what a shell line uses."""

from __future__ import annotations

import os.path
from pathlib import Path
from random import Random
from typing import Any

import pytest

import clew
from clew.convert import convert
from clew.permissions.capabilities import Declared
from clew.permissions.evaluate import Decision, denies_all, evaluate
from clew.tools.base import declared_capabilities
from clew.tools.builtin import BUILTIN
from clew.tools.targets import call_targets
from clew.transcript.rule import CAPABILITIES, Capability, Rule, Target
from tests.rounds import rounds
from tests.unit.permission_values import bash

pytestmark = [pytest.mark.rule("PM-10"), pytest.mark.rule("PM-2")]
DECLARED: Declared = {tool.name: declared_capabilities(tool) for tool in BUILTIN}
WIDE = {"fs.read": "./**", "fs.write": "./**"}

USED: dict[str, tuple[dict[str, Any], set[str]]] = {
    "read": ({"path": "a"}, {"fs.read"}),
    "write": ({"path": "a", "content": ""}, {"fs.write"}),
    "edit": ({"path": "a", "old": "x", "new": "y"}, {"fs.read", "fs.write"}),
    "ls": ({}, {"fs.read"}),
    "glob": ({"pattern": "*"}, {"fs.read"}),
    "grep": ({"pattern": "x"}, {"fs.read"}),
    "bash": ({"command": "echo a > b"}, {"shell.run", "fs.write"}),
    "web_fetch": ({"url": "https://example.com/a"}, {"net.fetch"}),
    "todo": ({"items": []}, set()),
    "question": ({"question": "x"}, set()),
    "task": ({"prompt": "x"}, {"agent.spawn"}),
    "skill": ({"name": "x"}, set()),
    "recall": ({"query": "x"}, set()),
    "schedule": ({"prompt": "x", "in_minutes": 1}, {"agent.spawn"}),
}
"""A call of each built-in tool, and the capabilities it uses."""


def decide(
    targets: Any, *session: Rule, project: tuple[Rule, ...] = (), declared: Declared = DECLARED, **more: Any
) -> Decision:
    given = [targets] if isinstance(targets, Target) else targets
    more = {"workspace": "/w", "resolve": os.path.normpath, **more}
    return evaluate(given, session=session, project=project, declared=declared, **more)


def deny(permission: str, pattern: str = "*", **more: Any) -> Rule:
    return Rule(permission, pattern, "deny", **more)


def allow(permission: str, pattern: str = "*", **more: Any) -> Rule:
    return Rule(permission, pattern, "allow", **more)


def test_every_built_in_tool_declares_what_it_uses() -> None:
    """A new one must be added here, and says at least that it uses nothing."""
    assert set(USED) == {tool.name for tool in BUILTIN}
    assert [name for name, found in DECLARED.items() if found is None] == []


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("tool", BUILTIN, ids=lambda tool: tool.name)
def test_a_rule_on_a_capability_applies_to_the_built_in_tools_that_use_it(
    tool: clew.Tool, capability: str, tmp_path: Path
) -> None:
    """A denial and a question count above an allowance of the tool in a farther scope; an allowance suffices alone."""
    args, used = USED[tool.name]
    targets = call_targets(tool, args, tmp_path)
    given: dict[str, Any] = {"workspace": str(tmp_path), "tool": tool.name}
    everything = (allow("*", "**"), allow("*", "./**"))
    for action in ("deny", "ask"):
        found = decide(targets, Rule(capability, "*", action), project=everything, **given)
        assert found.action == (action if capability in used else "allow"), found.reason
    allowed = decide(targets, allow(capability, WIDE.get(capability, "*")), **given).action
    # `edit` reads nothing but what it may change.
    assert (allowed == "allow") is (used == {capability} or (tool.name == "edit" and capability == "fs.write"))


@clew.tool
async def undeclared(path: str) -> str:
    """Do something."""
    return path


@clew.tool(capabilities=())
async def harmless(path: str) -> str:
    """Do nothing."""
    return path


@clew.tool(capabilities=["fs.write", "net.fetch"])
async def vague(path: str) -> str:
    """Write and fetch something."""
    return path


@clew.tool(capabilities={"fs.read": "path", "net.fetch": "url", "shell.run": "commands", "memory.write": "note"})
async def exact(path: str, url: str = "https://a.test", commands: tuple[str, ...] = (), note: str | None = None) -> str:
    """Send a file somewhere."""
    return path + url


OWN = {tool.name: declared_capabilities(tool) for tool in (undeclared, harmless, vague, exact)}
SERVED = {"mcp__files__write": {"mcp.call"}, "mcp__files": {"mcp.call"}}


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("name", [*OWN, *SERVED])
def test_what_a_tool_does_not_say_is_asked_about_and_never_allowed(name: str, capability: Capability) -> None:
    """Tools of hosts and servers. The definitions of a server are accepted by a rule for it, not by one on calls."""
    tools = {tool.name: tool for tool in (undeclared, harmless, vague, exact)}
    targets = (
        call_targets(tools[name], {"path": "a", "commands": ["ls"], "note": "n"}, Path("/w"))
        if name in tools
        else [Target(name, "plain", "{}")]
    )
    used = SERVED.get(name, set(OWN.get(name) or ()))
    unknown = name in ("undeclared", "mcp__files__write")
    found = decide(targets, deny(capability), project=(allow("*"),), declared=OWN, tool=name)
    assert found.action == ("deny" if capability in used else "ask" if unknown else "allow"), found.reason
    unless = decide(targets, deny(capability), allow(name), project=(allow("*"),), declared=OWN, tool=name)
    assert unless.action == "allow"
    allowed = decide(targets, allow(capability), declared=OWN, tool=name).action
    assert (allowed == "allow") is ((name, capability) == ("mcp__files__write", "mcp.call"))
    unattended = decide(targets, deny(capability), project=(allow("*"),), declared=OWN, tool=name, attended=False)
    assert unattended.action == ("deny" if capability in used or unknown else "allow")


def test_targets_are_taken_from_the_arguments_a_tool_declares() -> None:
    """Each with the capability it is for, so that rules may be as narrow as for clew's own tools."""
    args = {"path": "sub/../a", "url": "https://me@B.test:8/x", "commands": ["ls", "pwd"], "note": "n"}
    found = call_targets(exact, args, Path("/w"))
    assert list(found) == [
        Target("exact", "path", "/w/a", True, ("fs.read",)),
        Target("exact", "host", "b.test", False, ("net.fetch",)),
        Target("exact", "command", "ls", False, ("shell.run",)),
        Target("exact", "command", "pwd", False, ("shell.run",)),
        Target("exact", "plain", "n", False, ("memory.write",)),
    ]
    rules = [allow("fs.read", "./a"), allow("net.fetch", "*.test"), allow("shell.run", "ls"), allow("memory.write")]
    assert decide(found, *rules, declared=OWN, tool="exact").action == "ask"
    assert decide(found, *rules, allow("shell.run", "pwd"), declared=OWN, tool="exact").action == "allow"
    # The default of an argument counts; one that is not given leaves open what its capability is used on.
    found = call_targets(exact, {"path": "/etc/x", "commands": 1}, Path("/w"))
    assert list(found) == [
        Target("exact", "path", "/etc/x", False, ("fs.read",)),
        Target("exact", "host", "a.test", False, ("net.fetch",)),
        Target("exact", "plain", '{"commands":1,"path":"/etc/x"}', False, ("shell.run", "memory.write")),
    ]
    assert decide(found, deny("memory.write", "x"), allow("*", "/**"), declared=OWN, tool="exact").action == "ask"
    assert call_targets(undeclared, {"path": "a"}, Path("/w")) == undeclared.targets({"path": "a"}, Path("/w"))
    assert [one.value for one in call_targets(exact, {"path": "~/x"}, Path("/w"))][:2] == [
        "/w/~/x",
        os.path.realpath(os.path.expanduser("~/x")),
    ]


@clew.tool(capabilities={"fs.read": "source", "fs.write": "target", "net.fetch": "url"})
async def copy(source: str, target: str | dict[str, str] | list[Any] | None = None, url: str = "https://a.test") -> str:
    """Copy something somewhere."""
    return source


@pytest.mark.parametrize("target", [{"path": "secret/k"}, ["a", {"path": "secret/k"}], ["a", 5], None, 5])
def test_a_denial_of_a_path_asks_about_an_argument_that_is_no_path(target: Any) -> None:
    """A part of a list that cannot be read is not left out, and another capability's path does not stand for it."""
    found = call_targets(copy, {"source": "a", "target": target}, Path("/w"))
    declared, project = {"copy": declared_capabilities(copy)}, (allow("*"), allow("*", "./**"))
    given: dict[str, Any] = {"declared": declared, "tool": "copy", "workspace": "/w"}
    assert decide(found, deny("fs.write", "./secret/**"), project=project, **given).action == "ask"
    narrow = (allow("fs.write", "./**"), allow("fs.read", "./**"), allow("net.fetch"))
    assert decide(found, *narrow, **given).action == "ask"


@pytest.mark.parametrize(
    "url",
    [
        "http://bad.test#@a.test/",
        "http://bad.test?@a.test/",
        "http://bad.test\\@a.test/",
        "http://a.test@b@bad.test/",
        "http://a.test/@bad.test://a.test/",
        "bad.test/?x=://a.test/",
        "//bad.test/",
    ],
)
def test_a_url_with_two_readings_reaches_no_host_that_is_denied(url: str) -> None:
    """The host ends before a path, a query and a fragment, as for what connects to it."""
    found = call_targets(copy, {"source": "a", "target": "b", "url": url}, Path("/w"))
    given: dict[str, Any] = {"declared": {"copy": declared_capabilities(copy)}, "tool": "copy", "workspace": "/w"}
    files = (allow("fs.write", "./**"), allow("fs.read", "./**"))
    allowed = decide(found, *files, allow("net.fetch", "a.test"), **given)
    assert allowed.action == ("allow" if url.startswith("http://a.test/") else "ask"), allowed.target
    if allowed.action == "ask":
        assert (
            decide(found, deny("net.fetch", "bad.test"), project=(allow("*"), allow("*", "./**")), **given).action
            == "deny"
        )


def test_a_tool_cannot_declare_what_does_not_exist() -> None:
    """A misspelt capability or argument would leave a denial without effect."""
    wrongs: tuple[Any, ...] = (["fs.wirte"], {"fs.read": "file"}, "fs.read")
    for wrong in wrongs:
        with pytest.raises(TypeError, match=r"fs\.wirte|file|not a text"):
            clew.tool(name="one", description="x", capabilities=wrong)(undeclared._function)


def test_a_tool_comes_before_a_capability_and_that_before_everything() -> None:
    """Within a scope; of two capabilities of one call the stricter result decides."""
    target = Target("mcp__x__a", "plain", "{}")
    assert decide(target, deny("mcp.call"), allow("mcp__x__a")).action == "allow"
    assert decide(target, deny("mcp.call"), allow("mcp__x__*")).action == "allow"
    assert decide(target, deny("*"), allow("mcp.call")).action == "allow"
    assert decide(target, allow("*", "{*"), deny("mcp.call")).action == "deny"
    asked = decide(target, allow("mcp.call", "{*"), deny("fs.write"))
    assert (asked.action, asked.rule) == ("ask", deny("fs.write"))
    assert [one.why for one in asked.considered] == ["fs.write is decided by itself, and at least as strictly"]
    assert asked.reason == ("the session rule `fs.write *` may apply: mcp__x__a does not say all that it uses")


def test_scopes_and_pins_count_as_for_tools() -> None:
    """A nearer scope decides, a pinned denial always; what may apply never weakens a denial of the tool."""
    target = Target("write", "path", "/w/a", inside=True)
    assert decide(target, deny("fs.write"), project=(allow("write", "./**"),)).action == "deny"
    assert decide(target, allow("write", "./**"), project=(deny("fs.write"),)).action == "allow"
    assert decide(target, allow("fs.write", "./**"), project=(deny("write"),)).action == "allow"
    pinned = deny("fs.write", "/w/a", pinned=True)
    assert decide(target, allow("write", "./**"), manifest=(pinned, allow("write", pinned=True))).action == "deny"
    assert decide(target, allow("write", "./**"), manifest=(deny("fs.read", pinned=True),)).action == "allow"
    line = bash("make")
    assert decide(line, allow("shell.run"), project=(deny("fs.write"),)).action == "ask"
    assert decide(line, deny("fs.write"), project=(deny("bash"),)).action == "deny"
    assert decide(line, allow("bash"), project=(deny("fs.write"),)).action == "allow"
    secret = Target("read", "path", "/w/b", inside=True)
    alias: dict[str, Any] = {"aliases": lambda path: ["/home/secret"] if path == "/w/b" else []}
    closed = (deny("fs.read", "/home/secret", pinned=True),)
    assert decide(secret, allow("read", "./**"), manifest=closed, **alias).action == "deny"


NOTHING = {"fs.write": "allow", "fs.read": "allow", "net.fetch": "allow"}
LINES: dict[str, dict[str, str]] = {
    # Nothing, reading, writing, connecting: known.
    "pwd": NOTHING,
    "echo a b": NOTHING,
    "cd sub": {**NOTHING, "fs.read": "ask"},
    "cat a": {**NOTHING, "fs.read": "deny"},
    "touch a": {"fs.write": "deny", "fs.read": "ask", "net.fetch": "allow"},
    "rm -rf sub": {"fs.write": "deny", "fs.read": "ask", "net.fetch": "allow"},
    "git log -3": {**NOTHING, "fs.read": "ask"},
    "echo a > b": {**NOTHING, "fs.write": "deny"},
    "cat < a": {**NOTHING, "fs.read": "deny"},
    "curl https://a.test": {"fs.write": "ask", "fs.read": "ask", "net.fetch": "deny"},
    "git push origin": {"fs.write": "ask", "fs.read": "ask", "net.fetch": "deny"},
    # Not known.
    "echo a > /dev/tcp/a.test/80": dict.fromkeys(NOTHING, "ask"),
    "make": dict.fromkeys(NOTHING, "ask"),
    "./touch a": {**dict.fromkeys(NOTHING, "ask"), "fs.write": "deny"},
    "git log --output=a": dict.fromkeys(NOTHING, "ask"),
    "xargs cat": {**dict.fromkeys(NOTHING, "ask"), "fs.read": "deny"},
    "for": dict.fromkeys(NOTHING, "ask"),
    "FOO=1 ls": dict.fromkeys(NOTHING, "ask"),
}


@pytest.mark.parametrize("line", LINES)
def test_a_shell_line_uses_what_its_commands_are_known_to_use(line: str) -> None:
    """Commands that print, or only write the files they name, are known, and so are redirects. The rest asks."""
    allowed = (allow("bash", "**"), allow("bash", line), allow("write", "/**"), allow("read", "/**"))
    base = decide(bash(line), project=allowed, tool="bash").action
    found = {}
    for capability in NOTHING:
        action = decide(bash(line), deny(capability), project=allowed, tool="bash").action
        found[capability] = action
    expected = LINES[line] if base == "allow" else {k: "ask" if v == "allow" else v for k, v in LINES[line].items()}
    assert found == expected
    assert decide(bash(line), deny("shell.run"), project=allowed).action == "deny"
    assert decide(bash(line), deny("mcp.call"), project=allowed).action == base


@pytest.mark.parametrize(
    ("capability", "line", "action"),
    [
        ("fs.write", "touch open/a", "allow"),
        ("fs.write", "touch secret/a", "deny"),
        ("fs.write", "touch open/../secret/a", "deny"),
        ("fs.write", "cd secret && touch a", "deny"),
        ("fs.write", "cp secret/a open/b", "allow"),
        ("fs.write", "cp open/b secret/a", "deny"),
        ("fs.write", "cp open/b .", "ask"),
        ("fs.write", "cp -t secret open/a", "deny"),
        ("fs.write", "./touch open/a", "ask"),
        ("fs.write", "PATH=. touch open/a", "ask"),
        ("fs.write", "cp -at secret open/a", "deny"),
        ("fs.write", "install -d secret/x open/y", "deny"),
        ("fs.write", "mkdir -p open/x", "ask"),
        ("fs.write", "mkdir open/x", "allow"),
        ("fs.write", "mv secret/a b", "deny"),
        ("fs.write", "rm -rf .", "ask"),
        ("fs.write", "rm -rf *", "ask"),
        ("fs.write", 'touch "$x"', "ask"),
        ("fs.write", "ln -s /x/secret", "ask"),
        ("fs.write", "ln secret/a open/b", "deny"),
        ("fs.write", "cp -al secret/a open/b", "deny"),
        ("fs.write", "echo a > secret/b", "deny"),
        ("fs.write", "echo a > open/b", "allow"),
        ("fs.write", "cat secret/a", "allow"),
        ("fs.write", "python x.py", "ask"),
        ("fs.read", "cat open/a", "allow"),
        ("fs.read", "cat secret/a", "deny"),
        ("fs.read", "cat < secret/a", "deny"),
        ("fs.read", "cat *", "ask"),
        ("fs.read", 'cat "$x"', "ask"),
        ("fs.read", "grep -r x", "ask"),
        ("fs.read", "grep x open/a", "allow"),
        ("fs.read", "ls -R", "ask"),
        ("fs.read", "du", "ask"),
        ("fs.read", "md5sum -c open/a", "ask"),
        ("fs.read", "wc --files0-from=open/a", "ask"),
        ("fs.read", "grep --color x open/a", "allow"),
        ("fs.read", "cp secret/a open", "deny"),
        ("fs.read", "git show HEAD", "ask"),
        ("fs.read", "echo secret/a", "allow"),
        ("fs.read", "python x.py", "ask"),
    ],
)
def test_a_path_of_a_rule_is_compared_with_the_files_of_a_line(capability: str, line: str, action: str) -> None:
    """As far as the words of the line tell them; a program that may open others is asked about."""
    allowed = (allow("bash", "**"), allow("bash", line), allow("write", "/**"), allow("read", "/**"))
    for pattern in ("./secret/**", "/w/secret/**"):
        found = decide(bash(line), deny(capability, pattern), project=allowed, tool="bash")
        # A line that no rule covers is asked about anyway.
        base = decide(bash(line), project=allowed, tool="bash").action
        assert found.action == ("ask" if action == "allow" and base == "ask" else action), found.reason


def test_a_host_of_a_rule_is_compared_with_the_words_of_a_line() -> None:
    """A name that is written out is denied; where else a program connects is not known."""
    allowed = (allow("bash", "**"),)
    for line, action in {"curl https://a.test/x": "deny", "curl https://b.test": "ask", "cat a.test": "allow"}.items():
        assert decide(bash(line), deny("net.fetch", "a.test"), project=(*allowed, allow("bash", line))).action == action


def test_allowing_shell_run_covers_commands_as_a_rule_for_bash_does_and_no_redirect() -> None:
    """A dangerous argument must be written out in it, too."""
    assert decide(bash("git status -s"), allow("shell.run", "git *")).action == "allow"
    assert decide(bash("git -c core.pager=x log"), allow("shell.run", "git *")).action == "ask"
    assert decide(bash("git log > a"), allow("shell.run", "git *")).action == "ask"
    assert decide(bash("git log > a"), allow("shell.run", "git *"), allow("fs.write", "./a")).action == "allow"
    assert decide(bash("git log > a"), allow("fs.write", "./**")).action == "ask"


def test_a_read_only_session_may_be_asked_about_reading() -> None:
    """The capability stands for any tool that reads."""
    target = Target("fs.read", "path", "/w/a", inside=True)
    assert decide(target, allow("fs.read", "./**"), mode="read_only", tool="fs.read").action == "allow"
    assert decide(target, allow("fs.read", "./**"), mode="read_only", tool="undeclared").action == "deny"


@pytest.mark.parametrize(
    ("session", "manifest", "denied"),
    [
        ([deny("mcp.call")], [], True),
        ([deny("fs.write")], [], False),
        ([deny("mcp.call"), allow("mcp__x__a")], [], False),
        ([allow("mcp.call", '{"a*')], [deny("mcp__x__*")], False),
        ([deny("fs.write")], [deny("mcp__x__*")], True),
        ([allow("mcp__*")], [deny("mcp.call", pinned=True)], True),
        ([allow("*"), deny("mcp.call")], [], True),
    ],
)
def test_a_server_whose_calls_are_all_denied_is_known_beforehand(
    session: list[Rule], manifest: list[Rule], denied: bool
) -> None:
    """It is not started then; each call would be denied as well."""
    scopes: dict[str, Any] = {"session": session, "manifest": manifest}
    assert denies_all("mcp__x__*", "{", capability="mcp.call", **scopes) is denied
    calls = [Target(f"mcp__x__{name}", "plain", value) for name in ("a", "b") for value in ("{}", '{"a":1}')]
    assert all(evaluate([one], **scopes).action == "deny" for one in calls) is denied


TARGETS = [
    Target("write", "path", "/w/a", inside=True),
    Target("edit", "path", "/w/a", inside=True),
    Target("web_fetch", "host", "a.test"),
    Target("mcp__x__a", "plain", "{}"),
    Target("undeclared", "plain", "{}"),
    *map(bash, ("make", "cat a", "cp a b", "ls > a", "curl a.test")),
]


@pytest.mark.parametrize("seed", [0, 1])
def test_a_denial_of_a_capability_never_makes_a_call_freer(seed: int) -> None:
    """Wherever it stands among random rules, pinned or not, and whatever may only apply."""
    chance = Random(seed)
    strictness = {"allow": 0, "ask": 1, "deny": 2}

    def drawn() -> Rule:
        permission = chance.choice(("*", "write", "edit", "web*", "bash", "mcp__*", "undeclared", *CAPABILITIES))
        pattern = chance.choice(("*", "**", "./**", "/w/a", "a.test", "c*", "{*"))
        action = chance.choice(("allow", "allow", "ask", "deny"))
        pinned = chance.random() < 0.2
        return convert({"permission": permission, "pattern": pattern, "action": action, "pinned": pinned}, Rule)

    for _ in range(rounds(400)):
        scopes: dict[str, Any] = {
            name: tuple(drawn() for _ in range(chance.randint(0, 3))) for name in ("session", "project", "manifest")
        }
        added = deny(chance.choice(CAPABILITIES), chance.choice(("*", "./**", "a.test")), pinned=chance.random() < 0.3)
        where = chance.choice(list(scopes))
        stricter = {**scopes, where: (*scopes[where], added)}
        target = chance.choice(TARGETS)
        options: dict[str, Any] = {"declared": DECLARED, "workspace": "/w", "resolve": os.path.normpath}
        before = evaluate([target], **scopes, **options)
        after = evaluate([target], **stricter, **options)
        assert strictness[after.action] >= strictness[before.action], (target, scopes, where, added, after.reason)


def test_a_tool_that_names_a_target_of_another_tool_may_still_do_more() -> None:
    """Its targets are what it says; without a declaration the rest is not known."""
    target = Target("read", "path", "/w/a", inside=True)
    given: dict[str, Any] = {"project": (allow("read", "./**"),), "declared": {**DECLARED, **OWN}}
    for tool, action in (("undeclared", "ask"), ("harmless", "allow"), ("read", "allow")):
        assert decide(target, deny("net.fetch"), tool=tool, **given).action == action
        assert decide(target, deny("fs.read"), tool=tool, **given).action == "deny"
