"""Matching of rules against each kind of target.

A rule that allows must match with certainty: it covers the target however the running shell, a resolver or a file
system interprets it. A rule that denies or asks matches as soon as it may apply to the target; if that is possible but
not certain the result is :attr:`Certainty.MAYBE`, which asks.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

import msgspec

from clew.permissions import globs, hosts, paths
from clew.permissions.capabilities import COPYING, KINDS, NO_USES, Uses, grants, match_command
from clew.permissions.paths import FileSystem
from clew.permissions.rules import Certainty
from clew.permissions.shell.command_paths import CommandPaths, LookupBudget, working_folders
from clew.permissions.shell.commands import DYNAMIC, Command, is_builtin, only_reads, take_apart
from clew.permissions.shell.parse import Redirect
from clew.permissions.shell.programs.catalog import find_program
from clew.permissions.shell.tokens import UNKNOWN, Unreadable, word_set
from clew.transcript.rule import CAPABILITIES, Rule, Target

__all__ = ["FileSystem", "Subject", "literals", "match", "permission_rank", "show_unknown", "subjects_of"]

# The line sets another home folder, so the value of a tilde is unknown.
_HOME_SET: Final = re.compile(r"(?<![$\w{])HOME\b")
# With these variables `cd` goes to folders that its argument does not name.
_CHANGES_CD: Final = re.compile(r"CDPATH|cdable_vars")
# Programs that write the file a word names.
_WRITERS: Final = COPYING | word_set("rsync tar unzip")
# Those with a table whose operands may be written; their options do not name files of git.
_OPERANDS_ONLY: Final = word_set("rsync")
# They may create links, and run nothing from the workspace (a program that does could read any file itself).
_LINKING: Final = _WRITERS | word_set("bsdtar cpio gtar patch")
# They unpack files, also through the folders that links of the workspace lead to: their letters and long options.
_UNPACKING: Final[Mapping[str, tuple[str, str]]] = {
    **dict.fromkeys(("tar", "bsdtar", "gtar"), ("x", "--ext --get")),
    "cpio": ("ip", "--extract --pass-through"),
    **dict.fromkeys(("7z", "7za", "7zr", "7zz", "unzip"), ("", "")),
}
_GIT_LINKING: Final = word_set(
    """am apply bisect checkout checkout-index cherry-pick clone merge mv pull read-tree rebase reset restore revert
    sparse-checkout stash submodule switch worktree"""
)
# Their operands are not files, or they run programs of the workspace.
_NOT_READING: Final = word_set(
    """: bun cargo cd cmake docker echo exit false gh go gradle kill make mvn node npm npx pip pnpm poetry pwd pytest
    python python3 ruff sleep tox true tsc uv yarn"""
)
# Options of git that read a file at any path.
_GIT_FILES: Final = (
    "-F",
    "-f",
    "-O",
    "-S",
    "-X",
    "--no-i",
    "--fi",
    "--con",
    "--pathspec-",
    "--ignore-rev",
    "--exclude",
)
# Git's own folder, in a word or behind an option.
_GIT_FOLDER: Final = re.compile(r"(?i)(?:^|[/=])\.git(?:/|$)")
_GLOB: Final = re.compile(r"[*?\[]")
# The system's limit for a path.
_MAX_PATH: Final = 4096
_MAX_LOOKUPS: Final = 2_000
_WORD_START: Final = re.compile(r"(?<![A-Za-z0-9_.-])(?=\S)")


class Subject(msgspec.Struct, frozen=True):
    """One thing that rules are matched against: a target, or one command or redirect of a shell line.

    ``problem`` is the reason why no rule can allow it; ``command`` is set for a simple command that could be parsed,
    ``command_paths`` for every part of a shell line except its redirects. ``uses`` are the capabilities it needs.
    """

    target: Target
    command: Command | None = None
    problem: str = ""
    command_paths: CommandPaths | None = None
    uses: Uses = NO_USES


# ---------------------------------------------------------------- subjects


def subjects_of(target: Target, file_system: FileSystem, uses: Uses = NO_USES) -> tuple[Subject, ...]:
    """Return the subjects of ``target``, which needs the capabilities ``uses``; never empty."""
    if target.kind == "path" and not paths.is_resolved(target.value):
        return (Subject(target, problem="it is not a resolved path", uses=uses),)
    if target.kind == "host" and hosts.normal_host(target.value) is None:
        return (Subject(target, problem="it is not a host name", uses=uses),)
    if target.kind != "command":
        return (Subject(target, uses=uses),)
    try:
        parts = take_apart(target.value)
    except Unreadable as error:
        problem = f"the command line is not certain to mean what it seems to: {error}"
        mentioned = CommandPaths((), (target.value,), (), file_system, LookupBudget())
        return (Subject(target, problem=problem, command_paths=mentioned, uses=uses),)
    known_files = msgspec.structs.replace(file_system, home=None) if _HOME_SET.search(target.value) else file_system
    folders = working_folders((command.words for command in parts.commands), known_files)
    if _CHANGES_CD.search(target.value):
        folders = None
    budget = LookupBudget()
    changing = sum(not only_reads(command) for command in parts.commands)
    linking = sum(map(_makes_links, parts.commands))
    # `find -execdir` starts its command in an unknown folder.
    moved = folders is None or any(word.value == "-execdir" for one in parts.commands for word in one.words)

    def links_elsewhere(command: Command) -> bool:
        """Return whether another command of the line may create a link where this one opens a file."""
        return linking > _makes_links(command)

    def may_be_redirected(command: Command) -> bool:
        changed = changing > (not only_reads(command))
        return (changed and _program(command) in _WRITERS) or (links_elsewhere(command) and _reads_files(command))

    commands = [
        _confine(command, None if moved else folders, known_files, steady=not links_elsewhere(command))
        for command in parts.commands
    ]
    subjects = [
        Subject(
            msgspec.structs.replace(target, value=show_unknown(command.text)),
            command,
            command_paths=CommandPaths(
                command.words, command.texts, None if may_be_redirected(command) else folders, known_files, budget
            ),
            uses=uses,
        )
        for command in commands
    ]
    for redirect in parts.redirects:
        subjects += _opened(redirect, file_system, moves=parts.moves)
    return tuple(subjects)


def _program(command: Command) -> str:
    return command.words[0].value.rpartition("/")[2] if command.words else ""


def _makes_links(command: Command) -> bool:
    program = _program(command)
    return program in _LINKING or (program == "git" and any(word.value in _GIT_LINKING for word in command.words[1:]))


def _reads_files(command: Command) -> bool:
    """Return whether the command may read a file that one of its words names."""
    program = _program(command)
    if program == "git":
        return any(word.value.startswith(_GIT_FILES) for word in command.words[1:])
    return program not in _NOT_READING and any(not word.value.startswith("-") for word in command.words[1:])


def _confine(command: Command, folders: Sequence[str] | None, file_system: FileSystem, *, steady: bool) -> Command:
    """Return the command, covered only by an exact rule where a path it writes may lead out of the workspace."""
    root, why = file_system.workspace, ""
    if command.cover not in ("any", "named") or root is None:
        return command
    if _may_write(command):
        words = [word.value for word in command.words[1:]]
        if _program(command) in _OPERANDS_ONLY:
            words = [word for word in words if not word.startswith("-")]
        named = [word[at:] for word in words for at in {0, word.find("=") + 1}]
        start_folders = folders or (root,)
        if len(named) * len(start_folders) > _MAX_LOOKUPS:
            return msgspec.structs.replace(command, cover="exact", why="it names too many files to look at each")
        reached = [_lead_to(word, folder, file_system) or [] for folder in start_folders for word in named]
        if any(map(_GIT_FOLDER.search, (*words, *start_folders, *chain.from_iterable(reached)))):
            why = "it may change git's own folder, whose settings and hooks are run"
    # Each folder of `tar -C` is relative to the one before it.
    if "tar" in _program(command) and len(command.places) > 2:
        why = "the folder it writes to depends on several options"
    if _unpacks(command) and file_system.finds is not None and file_system.resolve is not None:
        for folder in folders or (root,):
            found = file_system.finds(f"{folder.rstrip('/')}/**/")
            real_paths = None if found is None else list(map(file_system.resolve, found))
            if real_paths is None or not all(paths.path_matches("./**", one, root) for one in real_paths):
                why = "it may unpack through a link that leads out of the workspace"
    for path in command.places:
        if folders is None or not (steady or _program(command) in _NOT_READING):
            why = f"where `{show_unknown(path)}` leads may change before the command opens it"
        elif file_system.resolve is not None:
            real_paths_by_folder = [_lead_to(path, folder, file_system) for folder in folders]
            real_paths = [one for each in real_paths_by_folder for one in each or ()]
            if None in real_paths_by_folder or not all(paths.path_matches("./**", one, root) for one in real_paths):
                why = f"`{show_unknown(path)}` leads out of the workspace"
            elif any(map(_GIT_FOLDER.search, real_paths)):
                why = f"`{show_unknown(path)}` leads into git's own folder, whose settings and hooks are run"
    return msgspec.structs.replace(command, cover="exact", why=why) if why else command


def _may_write(command: Command) -> bool:
    """Return whether the command may write the files that its arguments name; a program without a table may."""
    program = command.words[0].value if command.words else ""
    name = _program(command)
    if is_builtin(program) or program in DYNAMIC or name in DYNAMIC or not command.words:
        return False
    return name in COPYING or name in _OPERANDS_ONLY or find_program(name) is None


def _lead_to(word: str, folder: str, file_system: FileSystem) -> list[str] | None:
    """Return the real path of a word in a folder; of a glob, the real paths of the links it may match. None if it
    matches too many files."""
    path = posixpath.join(folder, word)
    if file_system.resolve is None or len(path) > _MAX_PATH or UNKNOWN in path:
        return []
    if not _GLOB.search(word):
        return [file_system.resolve(path)]
    found = () if file_system.finds is None else file_system.finds(path)
    return None if found is None else list(map(file_system.resolve, found))


def _unpacks(command: Command) -> bool:
    """Return whether the command writes files by the names in an archive."""
    letters, long = _UNPACKING.get(_program(command), (None, ""))
    if letters is None:
        return False
    words = [word.value for word in command.words[1:]]
    # The letters of `tar` need no dash.
    bundles = [word for word in words if word.startswith("-") and not word.startswith("--")] + words[:1]
    return (
        not letters
        or any(not set(letters).isdisjoint(bundle) for bundle in bundles)
        or any(word.startswith("--") and any(one.startswith(word[:5]) for one in long.split()) for word in words)
    )


def _opened(redirect: Redirect, file_system: FileSystem, *, moves: bool) -> list[Subject]:
    """Return a redirect as the path it opens, and as the path it names where that is a link of the workspace that is
    written through: what `.envrc` leads to is run as `.envrc`."""
    path, problem = redirect.path, ""
    relative = not path.startswith("/")
    if not redirect.known:
        problem = "the file of a redirect is not written out"
    elif relative and file_system.workspace is None:
        problem = "there is no workspace that a redirect could be relative to"
    elif relative and moves:
        problem = "the folder changes before a redirect is opened"
    elif not redirect.steady:
        problem = "another command of the line may change where a redirect leads"
    elif file_system.resolve is None:
        problem = "the file of a redirect was not resolved"
    if relative and file_system.workspace is not None:
        path = posixpath.join(file_system.workspace, path)
    named = paths.normal(path)
    if not problem and file_system.resolve is not None:
        path = file_system.resolve(path)
        if not paths.is_resolved(path):
            problem = "the file of a redirect cannot be resolved"
    # Uses the path without links, if known: a link out of the workspace leads outside.
    inside = file_system.workspace is not None and paths.path_matches("./**", path, file_system.workspace)
    uses = Uses((f"fs.{redirect.permission}",))
    target = Target(redirect.permission, "path", show_unknown(path), inside)
    opened = [Subject(target, problem=problem, uses=uses)]
    linked = named != path and inside and paths.path_matches("./**", named, file_system.workspace)
    if redirect.permission == "write" and not problem and linked:
        opened += [Subject(Target("write", "path", named, inside), uses=uses)]
    return opened


def show_unknown(text: str) -> str:
    """Replace parts that only the shell knows by an ellipsis, to show and store the text."""
    return text.replace(UNKNOWN, "…")


# ---------------------------------------------------------------- rules


def permission_rank(rule: Rule, target: Target) -> int:
    """Return how specifically a rule names the target's permission: 3 by name, 2 by its beginning, 1 by a capability, 0
    by ``*``, -1 not. Whether the target needs the capability is up to :func:`match`.

    A rule whose permission is unknown ranks as one that names this very tool.
    """
    if rule.is_general or rule.permission == target.permission:
        return 3
    if rule.permission == "*":
        return 0
    if rule.permission in CAPABILITIES:
        return 1
    return 2 if rule.permission.endswith("*") and target.permission.startswith(rule.permission[:-1]) else -1


def literals(rule: Rule, subject: Subject, file_system: FileSystem) -> int:
    """Return the number of literal characters in the rule's pattern."""
    if subject.target.kind == "path":
        return paths.path_literals(rule.pattern, file_system.workspace)
    return globs.literal_count(rule.pattern)


def match(rule: Rule, subject: Subject, file_system: FileSystem) -> Certainty:
    if permission_rank(rule, subject.target) < 0:
        return Certainty.NO
    if rule.permission in CAPABILITIES:
        return _match_capability(rule, subject, file_system)
    return _match_pattern(rule, subject, file_system)


def _match_capability(rule: Rule, subject: Subject, file_system: FileSystem) -> Certainty:
    uses, kind, capability = subject.uses, subject.target.kind, rule.permission
    if rule.action == "allow":
        granted = grants(capability, uses, kind)
        return _match_pattern(rule, subject, file_system) if granted else Certainty.NO
    if kind == "command" and capability not in uses.needs:
        found = match_command(capability, rule.pattern, subject.command, subject.command_paths, file_system.workspace)
        return Certainty.MAYBE if found is Certainty.NO and uses.more else found
    if not uses.more and capability not in uses.needs:
        return Certainty.NO
    if kind == KINDS[capability] and (capability in uses.needs or kind != "plain"):
        found = _match_pattern(rule, subject, file_system)
    else:
        # The target is of another kind: what the capability is used on is not known.
        found = Certainty.YES if globs.is_everything(rule.pattern) else Certainty.MAYBE
    return Certainty.MAYBE if found is Certainty.YES and capability not in uses.needs else found


def _match_pattern(rule: Rule, subject: Subject, file_system: FileSystem) -> Certainty:
    """Return whether the rule's pattern matches the subject, once its permission does."""
    target = subject.target
    # Most rules of a session are about other paths; that is found without matching.
    disjoint = target.kind == "path" and not subject.problem and paths.is_disjoint(rule.pattern, target.value)
    if rule.action == "allow":
        return Certainty.YES if not disjoint and _allows(rule.pattern, subject, file_system) else Certainty.NO
    found = Certainty.NO if disjoint else _catches(rule.pattern, subject, file_system)
    if found is Certainty.YES or not rule.pinned or not rule.pattern.startswith("/"):
        return found
    # A pinned rule about a path applies to every name of it; one for all tools applies to shell lines, too.
    if subject.command_paths is not None and rule.permission == "*":
        return subject.command_paths.match(rule.pattern)
    if target.kind == "path" and file_system.aliases is not None:
        return _yes(any(_catches_path(rule.pattern, name, file_system) for name in file_system.aliases(target.value)))
    return found


def _allows(pattern: str, subject: Subject, file_system: FileSystem) -> bool:
    target = subject.target
    if subject.problem:
        return False
    if target.kind == "path":
        # Both the text and the resolved target must be in the workspace.
        if paths.is_relative(pattern) and not target.inside:
            return False
        return paths.path_matches(pattern, target.value, file_system.workspace)
    if target.kind == "host":
        return hosts.host_matches(pattern, target.value)
    if target.kind == "plain":
        return globs.matches(pattern, target.value)
    return subject.command is not None and _covers(pattern.strip(), subject.command)


def _covers(pattern: str, command: Command) -> bool:
    pieces = globs.pieces_of(pattern)
    if command.cover == "none":
        return False
    if command.cover == "exact":
        return pieces == (command.text,)
    if command.cover == "named":
        # The rule must contain the program, its variables and its dangerous arguments before the first star.
        head = pieces[0] if len(pieces) == 1 else pieces[0].rstrip(" ")
        if head != command.head and not head.startswith(f"{command.head} "):
            return False
    # Parts that only the shell knows are a character that no pattern contains, so only a star covers them.
    return any(globs.find_pieces(reading, command.text) for reading in _readings(pieces))


def _readings(pieces: Sequence[str]) -> list[Sequence[str]]:
    """A star at the end of a pattern means "with any arguments or none": it never lengthens the last word."""
    if len(pieces) > 1 and pieces[-1] == "":
        stem = pieces[-2]
        if stem.endswith(" ") and stem.strip():
            return [pieces, [*pieces[:-2], stem.rstrip(" ")]]
        if stem and (stem[-1].isalnum() or stem[-1] == "_"):
            return [[*pieces[:-2], stem], [*pieces[:-2], f"{stem} ", ""]]
    return [pieces]


def _catches(pattern: str, subject: Subject, file_system: FileSystem) -> Certainty:
    target = subject.target
    # First of all: a rule against everything applies to unreadable lines, too.
    if globs.is_everything(pattern):
        return Certainty.YES
    if target.kind == "path":
        return _yes(_catches_path(pattern, target.value, file_system))
    if target.kind == "host":
        return _yes(hosts.host_may_match(pattern, target.value))
    if target.kind == "plain":
        return _yes(globs.matches(pattern, target.value))
    pattern = pattern.strip()
    if subject.command is None:
        return _yes(_mentions(pattern, target.value))
    return _catches_command(pattern, subject.command)


def _yes(found: bool) -> Certainty:
    return Certainty.YES if found else Certainty.NO


def _catches_path(pattern: str, path: str, file_system: FileSystem) -> bool:
    if pattern.startswith("~/"):
        # The user is unknown here, so it matches every home folder.
        pattern = f"/**/{pattern[2:]}"
    pattern = paths.without_parents(pattern, file_system.workspace)
    return any(paths.path_matches(pattern, spelling, file_system.workspace) for spelling in {path, paths.normal(path)})


def _catches_command(pattern: str, command: Command) -> Certainty:
    pieces = globs.pieces_of(pattern)
    readings: list[Sequence[str]] = [pieces]
    if len(pieces) > 1 and pieces[-1] == "" and pieces[-2].endswith(" ") and pieces[-2].strip():
        readings.append([*pieces[:-2], pieces[-2].rstrip(" ")])
    for text in command.loose:
        if any(globs.find_pieces(reading, text) for reading in readings):
            return Certainty.YES
    if command.cover == "none" and any(_mentions(pattern, text) for text in command.loose):
        return Certainty.YES
    if pieces[0] and any(_compatible(pieces, text) for text in command.loose if UNKNOWN in text):
        return Certainty.MAYBE
    return Certainty.NO


def _compatible(pieces: Sequence[str], text: str) -> bool:
    """Return whether some value of the unknown parts of ``text`` matches: its known start and end must agree."""
    begin, end = text.partition(UNKNOWN)[0], text.rpartition(UNKNOWN)[2]
    if len(pieces) == 1:
        return pieces[0].startswith(begin) and pieces[0].endswith(end) and len(begin) + len(end) <= len(pieces[0])
    first, last = pieces[0], pieces[-1]
    starts_agree = begin.startswith(first) or first.startswith(begin)
    return starts_agree and (end.endswith(last) or last.endswith(end))


def _mentions(pattern: str, line: str) -> bool:
    """Return whether an unreadable line contains the pattern at the start of a word."""
    text = re.sub(r"\\\n|['\"\\]", "", line)
    text = re.sub(r"\s+", " ", text).lower()
    pieces = globs.pieces_of(pattern.lower())
    if not pieces[0]:
        return globs.find_pieces([*pieces, ""], text)
    stem = pieces[0].rstrip(" ") if len(pieces) == 2 and not pieces[1] else pieces[0]
    # The first match leaves the most text for the rest, so no other has to be tried.
    starts = (found.start() for found in _WORD_START.finditer(text))
    at = next((start for start in starts if text.startswith(stem, start)), None)
    return at is not None and globs.find_pieces([stem, *pieces[1:], ""], text[at:])
