"""Modes (PM-7): default rules of a session, which a person's rules override."""

from __future__ import annotations

from typing import Final

from clew.permissions.rules import READING, SPEAKING
from clew.transcript.rule import Mode, Rule

__all__ = ["is_reading", "mode_rules"]

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
# A subagent is limited to its parent's rules, so starting one changes nothing by itself.
_READING: Final = frozenset({*READING, *SPEAKING, "task", "fs.read"})


def mode_rules(mode: Mode) -> tuple[Rule, ...]:
    """Return the rules of a mode, which rank below a person's and above an agent's."""
    return _ACCEPT_EDITS if mode == "accept_edits" else ()


def is_reading(permission: str) -> bool:
    """Return whether a read-only session may use the permission at all."""
    return permission in _READING
