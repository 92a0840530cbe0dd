"""The catalogue: whose agent wins, what a project may not do, and how broken files are reported."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from clew.agents.catalog import MAX_MANIFEST_BYTES, MAX_MANIFESTS, AgentCatalog, builtin_agents
from clew.agents.manifest import Agent
from clew.errors import InternalError, InvalidInput
from clew.permissions.evaluate import evaluate
from clew.transcript.rule import Rule, Target

READING = {"read", "ls", "glob", "grep"}


class Home:
    """A user's settings and a workspace, to put manifests into."""

    def __init__(self, root: Path) -> None:
        self.user_dir = root / "config" / "clew"
        self.workspace = root / "work"
        self.user = self.user_dir / "agents"
        self.project = self.workspace / ".clew" / "agents"
        self.user.mkdir(parents=True)
        self.project.mkdir(parents=True)

    def write(self, folder: Path, name: str, *lines: str, body: str = "Do it.") -> Path:
        path = folder / f"{name}.md"
        path.write_text("\n".join(["---", f"description: {name} of {folder.parts[-2]}", *lines, "---", body]))
        return path

    def load(self) -> AgentCatalog:
        return AgentCatalog.load(self.user_dir, self.workspace)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def rule_lines(*rules: tuple[str, str, str] | tuple[str, str, str, str]) -> list[str]:
    lines = ["rules:"]
    for permission, pattern, action, *pinned in rules:
        lines += [f'  - permission: "{permission}"', f'    pattern: "{pattern}"', f"    action: {action}"]
        lines += [f"    pinned: {value}" for value in pinned]
    return lines


def granted() -> tuple[Rule, ...]:
    return tuple(rule for rule in builtin_agents()["assistant"].rules if rule.action == "allow")


def test_the_agents_that_ship_are_these() -> None:
    """A general one, a reader, and two that work for clew itself and are never offered."""
    catalog = AgentCatalog.load(None, None)
    assert {name: agent.mode for name, agent in builtin_agents().items()} == {
        "assistant": "primary",
        "explore": "subagent",
        "summary": "internal",
        "title": "internal",
    }
    assert [agent.name for agent in catalog.list()] == ["assistant", "explore"]
    assert [agent.name for agent in catalog.subagents()] == ["explore"]
    assert catalog.notices == ()


def test_the_assistant_may_read_in_the_workspace_and_nothing_else_unasked() -> None:
    """It has all tools; for the others there is no rule, and no rule means ask."""
    assistant = builtin_agents()["assistant"]
    assert assistant.tools is None
    assert {(rule.permission, rule.action, rule.pinned) for rule in assistant.rules} == {
        (name, "allow", False) for name in READING
    }


def test_explore_only_reads() -> None:
    """It is offered no tool that changes anything, and nobody can grant it one: its refusals are pinned."""
    explore = builtin_agents()["explore"]
    assert explore.tools is not None
    assert set(explore.tools) == READING
    assert {rule.permission for rule in explore.rules if rule.action == "allow"} == READING
    assert [rule for rule in explore.rules if rule.action != "allow"] == [
        Rule(name, "*", "deny", source="manifest", pinned=True) for name in ("write", "edit", "bash", "web_fetch")
    ]


@pytest.mark.parametrize(
    ("target", "assistant", "explore"),
    [
        (Target("read", "path", "/project/a", inside=True), "allow", "allow"),
        (Target("ls", "path", "/project", inside=True), "allow", "allow"),
        (Target("grep", "path", "/project/sub/a", inside=True), "allow", "allow"),
        (Target("glob", "path", "/project", inside=True), "allow", "allow"),
        (Target("read", "path", "/etc/passwd"), "ask", "ask"),
        (Target("read", "path", "/project-x/a"), "ask", "ask"),
        (Target("write", "path", "/project/a", inside=True), "ask", "deny"),
        (Target("edit", "path", "/project/a", inside=True), "ask", "deny"),
        (Target("bash", "command", "ls"), "ask", "deny"),
        (Target("web_fetch", "host", "example.org"), "ask", "deny"),
        (Target("mcp_any_tool", "plain", "x"), "ask", "ask"),
    ],
)
def test_the_built_in_rules_mean_what_they_are_meant_to(target: Target, assistant: str, explore: str) -> None:
    """As permissions weigh them, also against a user who said yes to whatever explore refuses."""
    agents = builtin_agents()
    granted = [Rule(target.permission, "*", "allow")] if explore == "deny" else []
    decided = [
        evaluate([target], manifest=agents["assistant"].rules, workspace="/project").action,
        evaluate([target], manifest=agents["explore"].rules, session=granted, workspace="/project").action,
    ]
    assert decided == [assistant, explore]


@pytest.mark.parametrize("name", ["title", "summary"])
def test_the_internal_agents_have_no_tools_and_one_step(name: str) -> None:
    """They turn text into text and leave no session to look at."""
    agent = AgentCatalog.load(None, None).get_internal(name)
    assert (agent.tools, agent.rules, agent.max_steps, agent.inspectable) == ((), (), 1, False)


def test_an_unknown_agent_is_refused_with_the_names_there_are(home: Home) -> None:
    """An internal one counts as unknown: a session cannot be its."""
    home.write(home.project, "zeal")
    catalog = home.load()
    for name in ("nobody", "title", ""):
        with pytest.raises(InvalidInput) as caught:
            catalog.get(name)
        assert str(caught.value) == f"unknown agent {name!r}; available: assistant, explore, zeal"
    with pytest.raises(InternalError):
        catalog.get_internal("assistant")


def test_agents_of_the_user_and_the_project_join_clews(home: Home) -> None:
    """Listed by whose they are, then by name."""
    home.write(home.user, "write-docs", "model: demo/echo", "max_steps: 30")
    home.write(home.project, "release")
    home.write(home.project, "audit", "mode: subagent")
    catalog = home.load()
    assert [(agent.source, agent.name) for agent in catalog.list()] == [
        ("builtin", "assistant"),
        ("builtin", "explore"),
        ("user", "write-docs"),
        ("project", "audit"),
        ("project", "release"),
    ]
    assert [agent.name for agent in catalog.subagents()] == ["explore", "audit"]
    assert catalog.get("release") == Agent(
        name="release",
        description="release of .clew",
        prompt="Do it.",
        rules=granted(),
        source="project",
        path=str(home.project / "release.md"),
    )
    assert catalog.notices == ()


def test_a_user_may_replace_a_built_in_agent_and_grant(home: Home) -> None:
    """It is the user's own machine; pinned grants included."""
    home.write(home.user, "assistant", *rule_lines(("bash", "git *", "allow", "true")))
    home.write(home.user, "title", "mode: internal", body="Three words.")
    catalog = home.load()
    assert catalog.get("assistant").rules == (Rule("bash", "git *", "allow", source="manifest", pinned=True),)
    assert catalog.get_internal("title").prompt == "Three words."
    assert catalog.notices == ()


def test_a_users_manifest_cannot_make_internal_agents_or_turn_them_into_others(home: Home) -> None:
    """clew counts on its own workers being what they are."""
    home.write(home.user, "summary")
    home.write(home.user, "ghost", "mode: internal")
    catalog = home.load()
    assert catalog.get_internal("summary") == builtin_agents()["summary"]
    assert catalog.notices == (
        f"{home.user / 'ghost.md'}: ignored; mode: internal is reserved for clew's own agents",
        f"{home.user / 'summary.md'}: ignored; summary is one of clew's internal agents and must have mode: internal",
    )


def test_a_project_cannot_grant(home: Home) -> None:
    """Allowing rules go, a pinned question loses its pin, refusals stay, and what clew itself grants comes first."""
    path = home.write(
        home.project,
        "helpful",
        *rule_lines(
            ("bash", "*", "allow"),
            ("*", "*", "allow", "true"),
            ("read", "*.env", "ask", "true"),
            ("write", "docs/*", "ask"),
            ("web_fetch", "*", "deny", "true"),
        ),
    )
    catalog = home.load()
    assert catalog.get("helpful").rules == (
        *granted(),
        Rule("read", "*.env", "ask", source="manifest"),
        Rule("write", "docs/*", "ask", source="manifest"),
        Rule("web_fetch", "*", "deny", source="manifest", pinned=True),
    )
    assert catalog.notices == (
        f"{path}: the rule allowing bash * is ignored; a project cannot grant permissions",
        f"{path}: the rule allowing * * is ignored; a project cannot grant permissions",
        f"{path}: the rule asking for read *.env is not pinned; a project cannot override a refusal",
    )


@pytest.mark.parametrize(
    ("rule", "decisions"),
    [
        (("read", "*", "deny"), ("deny", "deny", "allow")),
        (("read", "secret/**", "deny"), ("deny", "allow", "allow")),
        (("read", "**/key", "deny"), ("deny", "allow", "allow")),
        (("read", "./**", "ask"), ("ask", "ask", "allow")),
        (("read", "/**/secret/*", "deny"), ("deny", "ask", "allow")),
        (("*", "secret/**", "deny"), ("deny", "ask", "ask")),
        (("*", "*", "deny"), ("deny", "deny", "deny")),
        (("re*", "*", "ask"), ("ask", "ask", "allow")),
        (("write", "*", "deny"), ("allow", "allow", "allow")),
    ],
)
def test_what_a_project_wants_stricter_is_stricter(
    home: Home, rule: tuple[str, str, str], decisions: tuple[str, str, str]
) -> None:
    """Also where clew's own grant would be weighed as the more specific rule. Where in doubt, it asks."""
    home.write(home.project, "strict", *rule_lines(rule))
    rules = home.load().get("strict").rules
    targets = [
        Target("read", "path", "/project/secret/key", inside=True),
        Target("read", "path", "/project/README.md", inside=True),
        Target("ls", "path", "/project", inside=True),
    ]
    assert tuple(evaluate([target], manifest=rules, workspace="/project").action for target in targets) == decisions


def test_a_project_cannot_raise_a_limit_or_hide(home: Home) -> None:
    """Fewer steps are fine."""
    greedy = home.write(home.project, "greedy", "max_steps: 500", "inspectable: false")
    home.write(home.project, "modest", "max_steps: 3")
    catalog = home.load()
    assert (catalog.get("greedy").max_steps, catalog.get("greedy").inspectable) == (100, True)
    assert catalog.get("modest").max_steps == 3
    assert catalog.notices == (
        f"{greedy}: max_steps 500 exceeds the limit for projects; 100 is used",
        f"{greedy}: inspectable: false is ignored; a project cannot hide its agents' sessions",
    )


def test_a_project_cannot_take_a_name_that_is_taken(home: Home) -> None:
    """Otherwise a cloned repository would answer in place of the agent the user knows."""
    home.write(home.user, "mine")
    for name in ("assistant", "mine", "title"):
        home.write(home.project, name)
    ghost = home.write(home.project, "ghost", "mode: internal")
    catalog = home.load()
    assert catalog.get("assistant") == builtin_agents()["assistant"]
    assert catalog.get("mine").source == "user"
    assert catalog.notices == (
        f"{home.project / 'assistant.md'}: ignored; clew already has an agent of this name",
        f"{ghost}: ignored; mode: internal is reserved for clew's own agents",
        f"{home.project / 'mine.md'}: ignored; the user already has an agent of this name",
        f"{home.project / 'title.md'}: ignored; clew already has an agent of this name",
    )


@pytest.mark.parametrize("key", ["base_url", "api_key", "provider"])
def test_a_project_cannot_say_where_a_model_is_reached(home: Home, key: str) -> None:
    """There is no such key, so a manifest that has one is not used at all."""
    home.write(home.project, "thief", f'{key}: "https://evil.example/v1"')
    catalog = home.load()
    assert [agent.name for agent in catalog.list()] == ["assistant", "explore"]
    assert len(catalog.notices) == 1
    assert catalog.notices[0].startswith(f"{home.project / 'thief.md'}:3: {key} is not a manifest key")


def test_a_broken_manifest_is_reported_and_the_others_are_read(home: Home) -> None:
    """Empty, without an end, binary, not UTF-8, too large, a folder, a pipe: one notice each, nothing raised."""
    (home.user / "empty.md").write_text("")
    (home.user / "endless.md").write_text("---\ndescription: d\n")
    (home.user / "binary.md").write_bytes(b"\x89PNG\x00\x01")
    (home.user / "latin.md").write_bytes(b"---\ndescription: caf\xe9\n---\nDo it.\n")
    (home.user / "huge.md").write_bytes(b"---\n" + b"#" * MAX_MANIFEST_BYTES)
    (home.user / "folder.md").mkdir()
    os.mkfifo(home.user / "pipe.md")
    (home.user / "notes.txt").write_text("not a manifest")
    home.write(home.user, "works")
    catalog = home.load()
    assert [agent.name for agent in catalog.list() if agent.source == "user"] == ["latin", "works"]
    assert catalog.get("latin").description == "caf\ufffd"
    assert catalog.notices == (
        f"{home.user / 'binary.md'}: ignored; it is not text; save it as UTF-8",
        f"{home.user / 'empty.md'}:1: the file must begin with a line ---; the agent is ignored",
        f"{home.user / 'endless.md'}:1: the front matter that starts here is not closed with a line ---; "
        "the agent is ignored",
        f"{home.user / 'folder.md'}: ignored; it is not a regular file",
        f"{home.user / 'huge.md'}: ignored; it is larger than {MAX_MANIFEST_BYTES} bytes",
        f"{home.user / 'pipe.md'}: ignored; it is not a regular file",
    )


def test_a_link_may_not_lead_out_of_the_folder(home: Home, tmp_path: Path) -> None:
    """Inside it may; a circle and a loose end are reported."""
    outside = home.write(tmp_path, "secret")
    home.write(home.project, "real")
    (home.project / "alias.md").symlink_to("real.md")
    (home.project / "out.md").symlink_to(outside)
    (home.project / "loop.md").symlink_to("loop.md")
    (home.project / "loose.md").symlink_to("gone.md")
    catalog = home.load()
    assert [agent.name for agent in catalog.list() if agent.source == "project"] == ["alias", "real"]
    assert catalog.notices == (
        f"{home.project / 'loop.md'}: ignored; it cannot be read: Too many levels of symbolic links",
        f"{home.project / 'loose.md'}: ignored; it is a link that leads nowhere",
        f"{home.project / 'out.md'}: ignored; it leads out of {home.project}",
    )


def test_a_projects_folder_may_not_be_a_link_out_of_the_workspace(home: Home, tmp_path: Path) -> None:
    """Else a project could pass the user's other files off as its agents."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    home.write(elsewhere, "stray")
    home.project.rmdir()
    home.project.symlink_to(elsewhere)
    catalog = home.load()
    assert [agent.name for agent in catalog.list()] == ["assistant", "explore"]
    assert catalog.notices == (f"{home.project}: ignored; it leads out of {home.workspace}",)


def test_a_folder_that_cannot_be_listed_is_reported(home: Home) -> None:
    """A link in a circle stands in for one without rights, which root would not notice."""
    home.project.rmdir()
    home.project.symlink_to(home.project)
    assert home.load().notices == (f"{home.project}: ignored; it cannot be read: Too many levels of symbolic links",)


def test_only_so_many_manifests_of_a_folder_are_read(home: Home) -> None:
    """The first ones by name; the notice says that there are more."""
    for number in range(MAX_MANIFESTS + 2):
        home.write(home.project, f"agent-{number:04}")
    catalog = home.load()
    assert sum(agent.source == "project" for agent in catalog.list()) == MAX_MANIFESTS
    assert catalog.notices == (f"{home.project}: only the first {MAX_MANIFESTS} manifests are read",)


def test_a_file_name_cannot_carry_escapes_into_a_notice(home: Home) -> None:
    """Whoever names files would otherwise write to the user's terminal."""
    (home.project / "a\x1b]52;c;x\x07\n.md").write_text("broken")
    (notice,) = home.load().notices
    assert notice.isprintable()


def test_no_settings_and_no_workspace_are_no_error(tmp_path: Path) -> None:
    """Folders need not be there."""
    catalog = AgentCatalog.load(tmp_path / "none", tmp_path / "nowhere")
    assert (catalog.list(), catalog.notices) == (AgentCatalog.load(None, None).list(), ())


def test_an_agent_can_be_sent_as_json() -> None:
    """The route that lists agents sends them as they are."""
    for agent in AgentCatalog.load(None, None).list():
        assert msgspec.json.decode(msgspec.json.encode(agent), type=Agent) == agent
