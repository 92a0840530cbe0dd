"""Rules that are given: parsed from clients and hosts, those every agent starts with, and those of a mode (PM-7).

The rules of a mode are a session's defaults, which a person's rules override.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Literal

import msgspec

from clew.convert import convert
from clew.errors import InvalidInput
from clew.permissions.paths import exact_path
from clew.transcript.rule import Mode, Rule, is_known, unknown_permission
from clew.transcript.value_check import check_text

__all__ = [
    "MAX_PATTERN_CHARS",
    "MAX_RULES",
    "READING",
    "SPEAKING",
    "Certainty",
    "base_rules",
    "check_known",
    "host_rules",
    "is_reading",
    "mode_rules",
    "own_rules",
    "parse_rules",
]

MAX_RULES: Final = 1_000
MAX_PATTERN_CHARS: Final = 8_192
_PERMISSION: Final = re.compile(r"\*|[A-Za-z0-9_.:-]{1,128}\*?", re.ASCII)
_ACTIONS: Final = ("allow", "deny", "ask")
READING: Final = ("read", "ls", "glob", "grep")
SPEAKING: Final = ("todo", "skill", "question", "recall")
# The system's files about processes: their environment, memory, open files, and other names for files.
_PROCESSES: Final = ("/proc/[0-9]*/**", "/proc/self/**", "/proc/thread-self/**")
_EDITING: Final = ("write", "edit")
# Programs run these files, or commands named in them, without a request by a person, so an edit has further effects.
# Build files, which run only when a person builds, are not included.
_RUN_LATER: Final = (
    # git: its own folder, and what makes any folder a bare repository, whose config and hooks git would use.
    *(".git/**", "*.git/**", "HEAD", "config", "objects/**", "refs/**", "packed-refs", ".gitmodules"),
    # Other version control: hooks and settings in its own folder.
    *(".hg/**", ".jj/**", ".svn/**", ".bzr/**"),
    # Managers of git hooks.
    *(".husky/**", ".githooks/**", ".pre-commit-config.y*ml", "lefthook*.y*ml", ".lefthook*.y*ml", ".lefthook/**"),
    *(".hooks/**", ".simple-git-hooks.*", "simple-git-hooks.*", ".overcommit.y*ml", ".huskyrc*", "captainhook.json"),
    *("lefthook*.toml", ".lefthook*.toml", "lefthook*.json", ".lefthook*.json"),
    # Agents: clew and others that find tools, hooks and rules here.
    *(".clew/**", ".claude/**", ".opencode/**", "opencode.json*", ".mcp.json", ".cursor/**", ".codex/**", ".gemini/**"),
    *(".windsurf/**", ".continue/**", ".roo/**", ".kiro/**", ".aider*", ".agents/**", ".qwen/**", ".crush.json"),
    # Shells and version managers that read a file when a folder is entered or a shell starts.
    *(".envrc", ".mise*.toml", "mise*.toml", ".bashrc", ".bash_*", ".profile", ".zsh*", ".zprofile", ".zlog*"),
    *(".inputrc", ".config/**", ".local/**", ".ssh/**", ".direnv/**", ".autoenv*", ".*shrc", ".login", ".logout"),
    *(".env", ".mise/**", ".tool-versions", ".asdfrc", ".pam_environment"),
    # Files that other programs read from a home folder when they start, if the workspace is one.
    *(".rvmrc", ".gitconfig", ".hgrc", ".xprofile", ".xinitrc", ".xsession*", ".tmux.conf", ".screenrc", ".gnupg/**"),
    *(".emacs", ".emacs.d/**", ".vim/**", ".nvim/**", ".curlrc", ".wgetrc", ".psqlrc", ".sqliterc", ".ghci"),
    *(".gdbearlyinit", ".ocamlinit", ".iex.exs", "Library/LaunchAgents/**", ".lessfilter", ".lesskey", ".ackrc"),
    *(".mailcap", ".docker/**", ".kube/**", ".aws/**", ".m2/**", ".ipython/**", ".jupyter/**", ".terraform.d/**"),
    # Programs found before others of the same name, and code that an interpreter loads by itself.
    *(".venv/**", "venv/**", "env/bin/**", "node_modules/**", "*.pth", "sitecustomize.py", "usercustomize.py"),
    *("site-packages/**", "pyvenv.cfg", "bin/activate*", "bunfig.toml", ".bunfig.toml"),
    *(".tox/**", ".nox/**", "vendor/bin/**", ".pnp.*js", ".Rprofile", ".pdbrc*", ".irbrc", ".pryrc", ".pythonrc*"),
    # Package managers: registries, scripts and plugins.
    *(".npmrc", ".yarnrc*", ".yarn/**", ".pnpmfile.*js", ".cargo/**", ".pypirc", "pip.conf", ".bazelrc"),
    *(".mvn/**", ".gradle/**", "gradle/wrapper/**", ".bundle/**", ".terraform/**", ".terraformrc", ".gemrc"),
    *("rust-toolchain*", ".bazeliskrc", "tools/bazel", ".jvmopts", ".sbtopts", "gradle.properties", "nuget.config"),
    *("Directory.Build.*", ".Renviron", ".erlang", ".perldb", ".procmailrc", ".forward", ".pylintrc", "pylintrc"),
    # Editors and debuggers: tasks, settings that name programs, scripts that run on opening.
    *(".vscode/**", ".idea/**", ".zed/**", ".devcontainer/**", ".devcontainer.json", "*.code-workspace"),
    *(".gitpod.y*ml", ".codesandbox/**", ".fleet/**", ".run/**", ".vs/**", ".replit"),
    *(
        ".vimrc",
        "_vimrc",
        ".gvimrc",
        ".lvimrc",
        ".nvimrc",
        ".exrc",
        ".nvim.lua",
        ".dir-locals.el",
        ".gdbinit",
        ".lldbinit",
    ),
    # Automation that runs with the next push.
    *(".github/workflows/**", ".github/actions/**", ".gitlab-ci.y*ml", ".circleci/**", "Jenkinsfile"),
    *("azure-pipelines.y*ml", ".travis.y*ml", ".woodpecker*/**", ".buildkite/**", ".forgejo/**", ".gitea/**"),
    *(".drone.y*ml", ".cirrus.y*ml", ".semaphore/**", "bitbucket-pipelines.y*ml", "appveyor.y*ml", ".appveyor.y*ml"),
)
# A subagent is limited to its parent's rules, so starting one changes nothing by itself.
_READING: Final = frozenset({*READING, *SPEAKING, "task", "fs.read"})


class Certainty(Enum):
    """The three possible results of matching a rule."""

    NO = "no"
    MAYBE = "maybe"
    YES = "yes"


def parse_rules(
    values: Sequence[Mapping[str, Any]], source: Literal["session", "project"], *, added_at: int | None = None
) -> list[Rule]:
    """Return the rules a client sent, in its order, for the scope ``source``. Raises ``InvalidInput``.

    ``source`` in a value is ignored, ``pinned`` is refused: only a manifest can pin. A value's own ``added_at`` is
    preserved, because a client that changes one rule sends all of them back; ``added_at`` is for those without.
    """
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Sequence):
        raise InvalidInput("rules are a list of objects with permission, pattern and action")
    if len(values) > MAX_RULES:
        raise InvalidInput(f"{len(values)} rules given; at most {MAX_RULES} are allowed")
    return [_parse(value, f"rules[{index}]", source, added_at) for index, value in enumerate(values)]


def _parse(value: Any, position: str, source: Literal["session", "project"], added_at: int | None) -> Rule:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{position} is not an object with permission, pattern and action")
    if value.get("pinned"):
        raise InvalidInput(f"{position} is pinned, which only the rules of an agent's manifest can be")
    permission, pattern, action = (value.get(key) for key in ("permission", "pattern", "action"))
    if not isinstance(permission, str) or not _PERMISSION.fullmatch(permission):
        raise InvalidInput(f"{position}.permission is the name of a tool or a capability, or `*`")
    if not isinstance(pattern, str) or not pattern.strip():
        raise InvalidInput(f'{position}.pattern is missing; "*" matches everything')
    if len(pattern) > MAX_PATTERN_CHARS:
        raise InvalidInput(f"{position}.pattern is longer than {MAX_PATTERN_CHARS} characters")
    check_text(pattern, f"{position}.pattern")
    if action not in _ACTIONS:
        raise InvalidInput(f"{position}.action is allow, deny or ask")
    # In Python a boolean is an integer; beyond 2**53 a JavaScript client would show another time.
    stamp = value.get("added_at", added_at)
    if stamp is not None and (isinstance(stamp, bool) or not isinstance(stamp, int) or not 0 <= stamp < 2**53):
        raise InvalidInput(f"{position}.added_at is a time in epoch milliseconds")
    return convert(
        {"permission": permission, "pattern": pattern, "action": action, "source": source, "added_at": stamp}, Rule
    )


def base_rules() -> tuple[Rule, ...]:
    """Return the rules of every agent before its manifest's own: talking is allowed. Even reading in the workspace must
    be allowed by the manifest (``assistant`` does so); everything else asks."""
    return tuple(Rule(permission, "*", "allow", "manifest") for permission in SPEAKING)


def check_known(rules: Iterable[Rule], names: Collection[str], servers: Collection[str] | None = None) -> None:
    """Raise ``InvalidInput`` for a rule with an unknown permission; the error lists the known ones."""
    for rule in rules:
        if not is_known(rule.permission, names, servers):
            raise InvalidInput(unknown_permission(rule.permission, names, servers))


def host_rules(given: Iterable[Rule], names: Collection[str]) -> tuple[Rule, ...]:
    """Return the rules of the program that opened the store, for every agent it has; it may pin them, as a manifest
    may. ``names`` are those of the tools."""
    rules = tuple(given)
    check_known(rules, names)
    parse_rules(
        [{"permission": one.permission, "pattern": one.pattern, "action": one.action} for one in rules], "session"
    )
    return tuple(msgspec.structs.replace(rule, source="manifest", added_at=None) for rule in rules)


def own_rules(
    folders: Iterable[str], files: Iterable[str], spills: Iterable[str] = (), session_id: str | None = None
) -> tuple[Rule, ...]:
    """Return the rules that keep every tool out of clew's own files (PM-9), from absolute paths in every spelling.

    A file is closed together with its siblings whose names are its name and a suffix. ``spills`` are the folders for
    long outputs, with one folder per session: the session ``session_id`` may read in its own only. They may be inside
    one of ``folders``.
    """
    spills = tuple(spills)
    closed = [pattern for folder in folders for pattern in _closed(folder, spills, session_id)]
    closed += [f"{exact_path(file)}{end}" for file in files for end in ("", "-*", ".*")]
    closed += _PROCESSES
    rules = [Rule("*", pattern, "deny", "manifest", pinned=True) for pattern in dict.fromkeys(closed)]
    # To a command these are its own handles: harmless unless it opened something under another name before.
    rules.append(Rule("*", "/dev/fd/**", "ask", "manifest", pinned=True))
    for spill in spills if session_id is not None else ():
        own = exact_path(f"{spill}/{session_id}")
        rules += [Rule(permission, f"{own}/**", "allow", "manifest") for permission in READING]
        rules += [Rule(permission, f"{own}/**", "deny", "manifest", pinned=True) for permission in ("write", "edit")]
    return tuple(rules)


def _closed(folder: str, spills: Sequence[str], session_id: str | None) -> list[str]:
    """Return the patterns that close a folder, except the session's own part of a spill folder in it."""
    spill = next((one for one in spills if f"{one}/".startswith(f"{folder}/")), None)
    if spill is None or session_id is None:
        return [f"{exact_path(folder)}/**"]
    patterns = []
    path = folder
    for name in filter(None, (*spill.removeprefix(folder).split("/"), session_id)):
        patterns += [exact_path(path), f"{exact_path(path)}/!({name})/**"]
        path = f"{path}/{name}"
    return patterns


def _in_any_case(pattern: str) -> str:
    """Return the pattern for every letter case: some file systems ignore case."""
    return "".join(f"[{one.lower()}{one.upper()}]" if one.isalpha() else one for one in pattern)


_NOT_TEXT: Final = tuple(f"./**/{_in_any_case(pattern)}" for pattern in _RUN_LATER)
_ACCEPT_EDITS: Final = tuple(
    rule
    for permission in _EDITING
    for rule in (
        Rule(permission, "./**", "allow", "mode"),
        *(Rule(permission, pattern, "ask", "mode") for pattern in _NOT_TEXT),
    )
)


def mode_rules(mode: Mode) -> tuple[Rule, ...]:
    """Return the rules of a mode, which rank below a person's and above an agent's."""
    return _ACCEPT_EDITS if mode == "accept_edits" else ()


def is_reading(permission: str) -> bool:
    """Return whether a read-only session may use the permission at all."""
    return permission in _READING
