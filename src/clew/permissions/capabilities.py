"""Capabilities (PM-10): what the targets of a call need, and what a command of a shell line may need.

A tool that declares nothing may need any capability, and so may a tool of an MCP server besides ``mcp.call``: a rule
that denies or asks may apply to it, and no rule on a capability allows it. What a program does is not known either,
except for those that only print and those that only write the files they name; every other command asks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from clew.permissions import globs, hosts, paths
from clew.permissions.rules import Certainty
from clew.permissions.shell.command_paths import CommandPaths
from clew.permissions.shell.commands import DYNAMIC, LITERAL, Command, only_reads
from clew.permissions.shell.tokens import word_set
from clew.transcript.rule import CAPABILITIES, Capability, Target, TargetKind

__all__ = ["COPYING", "KINDS", "NO_USES", "Declared", "Uses", "grants", "match_command", "uses_of"]

Declared = Mapping[str, Collection[Capability] | None]
"""The capabilities that each tool declares, by its name; None for a tool that declares nothing."""

KINDS: Final[Mapping[str, TargetKind]] = {
    **dict.fromkeys(CAPABILITIES, "plain"),
    "fs.read": "path",
    "fs.write": "path",
    "shell.run": "command",
    "net.fetch": "host",
}
"""The kind of target that the patterns of a capability are written for."""
COPYING: Final = word_set("cp dd install ln mkdir mv rm rmdir shred tee touch truncate")
"""Programs without a table that write the files they name, and no others."""

_SERVED: Final = "mcp__"
_INCLUDED: Final[Mapping[str, frozenset[str]]] = {"fs.write": frozenset({"fs.write", "fs.read"})}
# Of these, only the last operand is written.
_WRITING_LAST: Final = word_set("cp install ln")
# Their operands are text or numbers.
_NO_FILES: Final = word_set(": basename dirname echo exit false kill printf pwd return seq sleep true type wait")
_READERS: Final = word_set(
    """cat cksum cmp comm cut expand fold head ls md5sum nl od paste rev sha1sum sha256sum sha512sum strings tac
    tail wc"""
)
# The options with which they read files that are not named: letters, and the start of long ones. `du` always does.
_READ_MORE: Final[Mapping[str, tuple[str, str]]] = {
    **dict.fromkeys(("grep", "egrep", "fgrep"), ("rRd", "--r --d")),
    **dict.fromkeys(("md5sum", "sha1sum", "sha256sum", "sha512sum"), ("c", "--c")),
    "ls": ("R", "--r"),
    "wc": ("", "--f"),
}
# With options they write folders above those they name.
_WRITING_ABOVE: Final = word_set("install mkdir rmdir")
_CONNECTING: Final = word_set("curl ftp nc ncat netcat ping scp sftp socat ssh telnet wget")
_GIT_CONNECTING: Final = word_set("clone fetch ls-remote pull push")


class Uses(msgspec.Struct, frozen=True):
    """The capabilities that a target needs. ``more``: it may need others, too. ``by_name``: only a rule that names the
    tool, or ``*``, can allow it."""

    needs: tuple[str, ...] = ()
    more: bool = False
    by_name: bool = False


NO_USES: Final = Uses()


def uses_of(targets: Sequence[Target], tool: str | None, declared: Declared) -> list[Uses]:
    """Return the capabilities of each target of a call; ``tool`` is the called tool, if it is a whole call."""
    found = [_uses_of_target(target, declared) for target in targets]
    if tool is None or tool in CAPABILITIES or _is_served(tool, declared):
        return found
    own = declared.get(tool)
    if own is None:
        # Its targets are what it says; what else it does is not known.
        return [msgspec.structs.replace(uses, more=True) for uses in found]
    # Declared without a target: what it is used on is not known, so it counts for every target.
    unnamed = tuple(name for name in own if not any(name in uses.needs for uses in found))
    return [msgspec.structs.replace(uses, needs=(*uses.needs, *unnamed)) for uses in found]


def _is_served(name: str, declared: Declared) -> bool:
    return name.startswith(_SERVED) and name not in declared


def _uses_of_target(target: Target, declared: Declared) -> Uses:
    name = target.permission
    if target.capabilities is not msgspec.UNSET:
        return Uses(target.capabilities)
    if name in CAPABILITIES:
        return Uses((name,))
    if _is_served(name, declared):
        is_tool = "__" in name.removeprefix(_SERVED)
        # Accepting the definitions of a server is a decision of its own, which allowing calls does not include.
        return Uses(("mcp.call",), more=is_tool, by_name=not is_tool)
    own = declared.get(name)
    if own is None:
        needs = tuple(one for one in ("shell.run", "net.fetch") if KINDS[one] == target.kind)
        return Uses(needs, more=True, by_name=True)
    return Uses(tuple(one for one in own if target.kind in ("plain", KINDS[one])))


def grants(capability: str, uses: Uses, kind: TargetKind) -> bool:
    """Return whether a rule on the capability can allow the target: it needs nothing else, and says what it touches."""
    included = _INCLUDED.get(capability, {capability})
    return not uses.by_name and KINDS[capability] == kind and capability in uses.needs and included >= {*uses.needs}


# ---------------------------------------------------------------- shell


def match_command(
    capability: str, pattern: str, command: Command | None, command_paths: CommandPaths | None, workspace: str | None
) -> Certainty:
    """Return whether a command of a shell line uses the capability on what the pattern matches, for a rule that denies
    or asks. ``command`` is None for a line that cannot be read."""
    if capability not in ("fs.read", "fs.write", "net.fetch"):
        return Certainty.NO
    if command is None or command_paths is None:
        return Certainty.MAYBE
    if not command.words:
        # It only sets variables; the commands in their values are judged by themselves.
        return Certainty.NO
    program = command.words[0].value.rpartition("/")[2]
    if capability == "net.fetch":
        return _connects(pattern, program, command)
    if globs.is_everything(pattern):
        return _touches_any(capability, program, command)
    absolute = _absolute(pattern, workspace)
    if absolute is None:
        return Certainty.NO
    if capability == "fs.write":
        return _writes(absolute, program, command, command_paths)
    return _reads(absolute, program, command, command_paths)


def _only_prints(command: Command) -> bool:
    """Return whether the command changes no file and connects to nothing."""
    return only_reads(command) or _is_one_of(command, LITERAL)


def _is_one_of(command: Command, programs: Collection[str]) -> bool:
    """Return whether the command certainly runs one of these programs: ``./touch`` is another one."""
    return command.cover == "any" and command.words[0].value in programs


def _absolute(pattern: str, workspace: str | None) -> str | None:
    if pattern.startswith("~/"):
        # The user is unknown here, so it matches every home folder.
        return f"/**/{pattern[2:]}"
    pattern = paths.without_parents(pattern, workspace)
    if not paths.is_relative(pattern):
        return pattern
    return None if workspace is None else f"{paths.exact_path(workspace)}/{pattern}"


def _operands(command: Command) -> list[str]:
    return [word.value for word in command.words[1:] if not word.value.startswith("-")]


def _touches_any(capability: str, program: str, command: Command) -> Certainty:
    if capability == "fs.write":
        if _only_prints(command):
            return Certainty.NO
        return Certainty.YES if program in COPYING else Certainty.MAYBE
    if _is_one_of(command, _NO_FILES):
        return Certainty.NO
    return Certainty.YES if program in _READERS and _operands(command) else Certainty.MAYBE


def _writes(pattern: str, program: str, command: Command, command_paths: CommandPaths) -> Certainty:
    if _only_prints(command):
        return Certainty.NO
    if program not in COPYING:
        return Certainty.MAYBE
    options = [word.value for word in command.words[1:] if word.value.startswith("-")]
    if program in _WRITING_LAST and (len(_operands(command)) < 2 or command.words[-1].value in options):
        return Certainty.MAYBE
    # `-t` names the folder, `install -d` makes each of its operands, and a hard link is one more name of a file.
    if program in ("cp", "install") and not _has_option(options, "tdl", "--t --d --l"):
        command_paths = command_paths.of_last_word()
    found = command_paths.match(pattern)
    # The files of a folder that is copied to are named after what is copied.
    is_certain = _is_one_of(command, COPYING) and not command_paths.names_workspace
    is_certain = is_certain and not (options and program in _WRITING_ABOVE)
    return Certainty.MAYBE if found is Certainty.NO and not is_certain else found


def _reads(pattern: str, program: str, command: Command, command_paths: CommandPaths) -> Certainty:
    if _is_one_of(command, _NO_FILES):
        return Certainty.NO
    found = command_paths.match(pattern)
    if found is not Certainty.NO:
        return found
    options = [word.value for word in command.words[1:] if word.value.startswith("-")]
    reads_more = program == "du" or (program in _READ_MORE and _has_option(options, *_READ_MORE[program]))
    return Certainty.NO if _is_one_of(command, DYNAMIC | LITERAL) and not reads_more else Certainty.MAYBE


def _has_option(options: Sequence[str], letters: str, long: str) -> bool:
    """Return whether one of the options is among these: in a bundle of letters, or by the start of a long one."""
    return any(
        option.startswith(tuple(long.split())) if option.startswith("--") else not set(letters).isdisjoint(option)
        for option in options
    )


def _connects(pattern: str, program: str, command: Command) -> Certainty:
    if _only_prints(command) or _is_one_of(command, COPYING):
        return Certainty.NO
    connecting = program in _CONNECTING or (
        program == "git" and any(word.value in _GIT_CONNECTING for word in command.words[1:])
    )
    named = globs.is_everything(pattern) or any(hosts.host_may_match(pattern, word.value) for word in command.words[1:])
    # Where it is redirected to, or what its settings name, is not known.
    return Certainty.YES if connecting and named else Certainty.MAYBE
