"""Commands that run other commands, and what they run.

A wrapper is judged as itself and for each command inside it. Its options are known here one by one: an option that
is not in the table, or an argument that only the running shell knows, could move the place where the inner command
begins, so the wrapper then counts as closed (:class:`ClosedWrapper`) and no rule can allow it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from clew.permissions.programs.catalog import load_wrappers
from clew.permissions.shell import SimpleCommand
from clew.permissions.tokens import UNKNOWN, Token, word_set

__all__ = ["SHELLS", "ClosedWrapper", "InnerCommands", "look_inside"]


SHELLS: Final = word_set("ash bash csh dash fish ksh mksh rbash sh tcsh yash zsh")
# Their language is another one, in which a line means something else.
_FOREIGN: Final = word_set("csh fish tcsh zsh")
# Options that do not change how a line is read.
_SHELL_LETTERS: Final = frozenset("ceuxvnfhml")
_SHELL_SETTINGS: Final = word_set("errexit nounset pipefail xtrace")
# The same programs beside those of another system.
_BY_ANOTHER_NAME: Final = {f"g{name}": name for name in word_set("env find nice nohup stdbuf time timeout xargs")}
# They run commands too, in ways that are not taken apart here.
_CLOSED: Final = word_set(
    """at batch bwrap chroot crontab entr expect firejail flock gdb lldb ltrace nsenter parallel perf pkexec proot
    proxychains proxychains4 rlwrap run-parts runuser script setpriv start-stop-daemon strace su systemd-run tmux
    torify torsocks tsocks unshare valgrind xvfb-run screen inotifywait hyperfine"""
)


class ClosedWrapper(Exception):
    """A wrapper whose inner command cannot be told for certain; the text says why."""


class InnerCommands(msgspec.Struct, frozen=True):
    """What a wrapper runs: commands, and lines for a shell. ``elsewhere`` says that those run on another machine."""

    commands: tuple[SimpleCommand, ...] = ()
    lines: tuple[str, ...] = ()
    elsewhere: bool = False


def look_inside(command: SimpleCommand) -> InnerCommands | None:
    """What ``command`` runs, or None when it is no wrapper. Raises :class:`ClosedWrapper`."""
    if not command.words:
        return None
    name = command.words[0].value.rpartition("/")[2]
    name = _BY_ANOTHER_NAME.get(name, name)
    if name in _READERS:
        return _READERS[name](command)
    if name in SHELLS:
        return _shell(command)
    if name in load_wrappers():
        words, options = _behind_options(command, name)
        wrapper = load_wrappers()[name]
        return (
            InnerCommands()
            if options.keys() & wrapper.quiet
            else _inner(words, command.inputs, assigns=wrapper.assigns)
        )
    if name in _CLOSED:
        raise ClosedWrapper(f"`{name}` runs other commands in ways that are not taken apart")
    return None


def _behind_options(command: SimpleCommand, name: str) -> tuple[Sequence[Token], dict[str, str]]:
    """The words behind the options and operands of the wrapper ``name``, and those options with their values."""
    wrapper, words = load_wrappers()[name], command.words
    at = 1
    options: dict[str, str] = {}
    while at < len(words):
        text = words[at].value
        if not text.startswith("-") and UNKNOWN not in text:
            break
        # Text that is not known may be an option, or nothing, and then another word is the command.
        _certain(words[at])
        at += 1
        if text == "--":
            break
        option, equals, value = text.partition("=") if text.startswith("--") else (text, "", "")
        if equals and option in wrapper.valued:
            options[option] = value
        elif text in wrapper.alone:
            options[text] = ""
        elif text in wrapper.valued:
            if at >= len(words):
                raise ClosedWrapper(f"`{text}` has no value")
            _certain(words[at])
            options[text] = words[at].value
            at += 1
        elif text[:2] in wrapper.valued:
            options[text[:2]] = text[2:]
        elif text != "-" and all(f"-{letter}" in wrapper.alone for letter in text[1:]):
            options |= {f"-{letter}": "" for letter in text[1:]}
        elif not (wrapper.numbers and text[1:].isdecimal()):
            raise ClosedWrapper(f"the option `{text}` is not known")
    for word in words[at : at + wrapper.operands]:
        _certain(word)
    return words[at + wrapper.operands :], options


def _certain(word: Token) -> None:
    if UNKNOWN in word.value or word.glob or word.odd:
        raise ClosedWrapper("an argument that only the running shell knows stands before the inner command")


def _inner(words: Sequence[Token], inputs: tuple[str, ...], *, assigns: bool) -> InnerCommands:
    at = 0
    while assigns and at < len(words) and "=" in words[at].value and not words[at].value.startswith("="):
        at += 1
    if at == len(words):
        return InnerCommands()
    return InnerCommands((SimpleCommand(tuple(words[:at]), tuple(words[at:]), inputs),))


def _xargs(command: SimpleCommand) -> InnerCommands:
    words, options = _behind_options(command, "xargs")
    if not words:
        return InnerCommands()
    mark = options.get("-I")
    inner = [_filled(word, mark) for word in words] if mark else [*words, Token("word", 0, 0, UNKNOWN, several=True)]
    return InnerCommands((SimpleCommand((), tuple(inner)),))


def _filled(word: Token, mark: str) -> Token:
    """The word with what will be put in place of ``mark``, which nobody knows yet."""
    return msgspec.structs.replace(word, value=word.value.replace(mark, UNKNOWN), bare=False)


def _find(command: SimpleCommand) -> InnerCommands:
    inner: list[SimpleCommand] = []
    words = iter(command.words[1:])
    for word in words:
        _certain(word)
        if word.value not in ("-exec", "-execdir", "-ok", "-okdir"):
            continue
        taken: list[Token] = []
        for part in words:
            if part.value == ";" or (part.value == "+" and taken and taken[-1].value == UNKNOWN):
                break
            # Several words from one could bring the end of the action with them, and another action.
            _certain(part)
            taken.append(_filled(part, "{}"))
        else:
            taken.clear()
        if not taken:
            raise ClosedWrapper("an action of `find` has no end")
        inner.append(SimpleCommand((), tuple(taken)))
    return InnerCommands(tuple(inner))


def _line_of(words: Sequence[Token]) -> str:
    for word in words:
        if UNKNOWN in word.value or word.glob or word.odd:
            raise ClosedWrapper("the line it runs is not written out")
    return " ".join(word.value for word in words)


def _eval(command: SimpleCommand) -> InnerCommands:
    words = command.words[1:]
    if words and words[0].value == "--":
        words = words[1:]
    return InnerCommands(lines=(_line_of(words),)) if words else InnerCommands()


def _trap(command: SimpleCommand) -> InnerCommands:
    words = command.words[1:]
    if not words or words[0].value in ("", "-", "-l", "-p"):
        return InnerCommands()
    if words[0].value == "--":
        words = words[1:]
    return InnerCommands(lines=(_line_of(words[:1]),))


def _watch(command: SimpleCommand) -> InnerCommands:
    words, options = _behind_options(command, "watch")
    if not words:
        return InnerCommands()
    if options.keys() & {"-x", "--exec"}:
        return _inner(words, (), assigns=False)
    return InnerCommands(lines=(_line_of(words),))


def _ssh(command: SimpleCommand) -> InnerCommands:
    words, options = _behind_options(command, "ssh")
    host = len(command.words) - len(words) - 1
    if host > 0 and command.words[host].value.startswith("-"):
        raise ClosedWrapper("a host whose name could be an option")
    # Options may also stand behind the host.
    if words and words[0].value.startswith("-"):
        raise ClosedWrapper("an option of `ssh` behind the host")
    if not words and not options.keys() & {"-N", "-V"}:
        raise ClosedWrapper("a shell on another machine that runs what it is fed")
    return InnerCommands(lines=(_line_of(words),), elsewhere=True) if words else InnerCommands()


def _shell(command: SimpleCommand) -> InnerCommands:
    """A shell with ``-c`` runs a line, with a file runs that file, with neither runs whatever it is fed."""
    if command.words[0].value.rpartition("/")[2] in _FOREIGN:
        raise ClosedWrapper("a shell with a language of its own")
    words = command.words[1:]
    takes_line = False
    while words:
        word = words[0]
        _certain(word)
        text = word.value
        if text in ("--help", "--version"):
            return InnerCommands()
        if text in ("--norc", "--noprofile", "--posix"):
            words = words[1:]
            continue
        if not text.startswith(("-", "+")) or text == "-":
            break
        letters = text[1:]
        if letters.endswith("o") and len(words) > 1 and words[1].value in _SHELL_SETTINGS:
            letters, words = letters[:-1], words[1:]
        if text.startswith("+") or text == "--" or not set(letters) <= _SHELL_LETTERS:
            raise ClosedWrapper(f"the option `{text}` is not known")
        takes_line = takes_line or "c" in letters
        words = words[1:]
    if takes_line:
        # What follows the line are its parameters, which the line may run: `bash -c '"$@"' _ rm`; it is unknown then.
        if not words:
            raise ClosedWrapper("`-c` has no line")
        return InnerCommands(lines=(_line_of(words[:1]),))
    if not words or words[0].value in ("-", "/dev/stdin", "/dev/fd/0"):
        if len(command.inputs) != 1 or UNKNOWN in command.inputs[0]:
            raise ClosedWrapper("a shell that runs what it is fed")
        return InnerCommands(lines=command.inputs)
    return InnerCommands()


_READERS: Final[Mapping[str, Callable[[SimpleCommand], InnerCommands]]] = {
    "eval": _eval,
    "find": _find,
    "ssh": _ssh,
    "trap": _trap,
    "watch": _watch,
    "xargs": _xargs,
}
