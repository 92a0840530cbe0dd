"""Commands that run other commands, and what they run.

A wrapper is judged as itself and for each command inside it. Its options are known here one by one: an option that
is not in the table, or an argument that only the running shell knows, could move the place where the inner command
begins, so the wrapper then counts as closed (:class:`Closed`) and no rule can allow it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from clew.permissions.shell import SimpleCommand
from clew.permissions.tokens import UNKNOWN, Token, names

__all__ = ["SHELLS", "Closed", "Inside", "look_inside"]


class Closed(Exception):
    """A wrapper whose inner command cannot be told for certain; the text says why."""


class Inside(msgspec.Struct, frozen=True):
    """What a wrapper runs: commands, and lines for a shell. ``elsewhere`` says that those run on another machine."""

    commands: tuple[SimpleCommand, ...] = ()
    lines: tuple[str, ...] = ()
    elsewhere: bool = False


class _Options(msgspec.Struct, frozen=True):
    """The options before an inner command: those alone, those with a value, and how many operands follow them."""

    alone: frozenset[str] = frozenset()
    valued: frozenset[str] = frozenset()
    operands: int = 0
    assigns: bool = False
    numbers: bool = False
    quiet: frozenset[str] = frozenset()
    """With one of these nothing is run."""


def _options(
    alone: str = "",
    valued: str = "",
    *,
    operands: int = 0,
    assigns: bool = False,
    numbers: bool = False,
    quiet: str = "",
) -> _Options:
    return _Options(
        frozenset((alone + " " + quiet).split()),
        frozenset(valued.split()),
        operands,
        assigns,
        numbers,
        frozenset(quiet.split()),
    )


_PLAIN: Final[Mapping[str, _Options]] = {
    "builtin": _options(),
    "busybox": _options(quiet="--list --help"),
    "catchsegv": _options(),
    "chronic": _options("-v -e"),
    "chrt": _options("-a -b -f -i -o -r -R", operands=1),
    "command": _options("-p", quiet="-v -V"),
    "dbus-run-session": _options(),
    "doas": _options("-n", "-u"),
    "env": _options("-i - -0 -v --ignore-environment --null --debug", "-u -C --unset --chdir", assigns=True),
    "exec": _options("-c -l", "-a"),
    "fakeroot": _options(),
    "ionice": _options("-t", "-c -n"),
    "linux32": _options(),
    "linux64": _options(),
    "nice": _options("", "-n --adjustment", numbers=True),
    "nohup": _options(quiet="--help --version"),
    "setarch": _options("-R", operands=1),
    "setsid": _options("-c -f -w --ctty --fork --wait"),
    "stdbuf": _options("", "-i -o -e --input --output --error"),
    "sudo": _options(
        "-A -b -E -H -k -n -P -S --non-interactive --preserve-env --set-home --stdin",
        "-g -u --group --user",
        assigns=True,
        quiet="-K -l -V -v --list --validate --version",
    ),
    "taskset": _options("-c --cpu-list", operands=1),
    "time": _options("-p -v --portability --verbose", "", assigns=True),
    "timeout": _options(
        "-v --foreground --preserve-status --verbose", "-k -s --kill-after --signal", operands=1
    ),
    "toybox": _options(),
    "unbuffer": _options("-p"),
}  # fmt: skip
_XARGS: Final = _options(
    "-0 -r -t -x --null --no-run-if-empty --verbose --exit",
    "-d -E -I -L -n -P -s --delimiter --max-args --max-chars --max-procs",
)
_WATCH: Final = _options(
    "-b -c -d -e -g -t -w -x --beep --color --differences --errexit --chgexit --no-title --exec", "-n --interval"
)
_SSH: Final = _options("-4 -6 -a -C -k -n -N -q -T -t -v -x", "-i -l -p", operands=1, quiet="-V")
SHELLS: Final = names("ash bash csh dash fish ksh mksh rbash sh tcsh yash zsh")
# Their language is another one, in which a line means something else.
_FOREIGN: Final = names("csh fish tcsh zsh")
# Options that do not change how a line is read.
_SHELL_LETTERS: Final = frozenset("ceuxvnfhml")
_SHELL_SETTINGS: Final = names("errexit nounset pipefail xtrace")
# The same programs beside those of another system.
_BY_ANOTHER_NAME: Final = {f"g{name}": name for name in names("env find nice nohup stdbuf time timeout xargs")}
# They run commands too, in ways that are not taken apart here.
_CLOSED: Final = names(
    """at batch bwrap chroot crontab entr expect firejail flock gdb lldb ltrace nsenter parallel perf pkexec proot
    proxychains proxychains4 rlwrap run-parts runuser script setpriv start-stop-daemon strace su systemd-run tmux
    torify torsocks tsocks unshare valgrind xvfb-run screen inotifywait hyperfine"""
)


def look_inside(command: SimpleCommand) -> Inside | None:
    """What ``command`` runs, or None when it is no wrapper. Raises :class:`Closed`."""
    if not command.words:
        return None
    name = command.words[0].value.rpartition("/")[2]
    name = _BY_ANOTHER_NAME.get(name, name)
    reader = _READERS.get(name)
    if reader is not None:
        return reader(command)
    if name in SHELLS:
        return _shell(command)
    if name in _PLAIN:
        return _plain(command, _PLAIN[name])
    if name in _CLOSED:
        raise Closed(f"`{name}` runs other commands in ways that are not taken apart")
    return None


def _skip(words: Sequence[Token], options: _Options) -> tuple[int, dict[str, str]]:
    """Where the inner command begins, and the options before it."""
    at = 1
    found: dict[str, str] = {}
    while at < len(words):
        word = words[at]
        text = word.value
        if not text.startswith("-") and UNKNOWN not in text:
            break
        _certain(word)
        at += 1
        if text == "--":
            break
        name, equals, value = text.partition("=") if text.startswith("--") else (text, "", "")
        if equals and name in options.valued:
            found[name] = value
        elif text in options.alone:
            found[text] = ""
        elif text in options.valued:
            if at >= len(words):
                raise Closed(f"`{text}` has no value")
            _certain(words[at])
            found[text] = words[at].value
            at += 1
        elif text[:2] in options.valued:
            found[text[:2]] = text[2:]
        elif text != "-" and all(f"-{letter}" in options.alone for letter in text[1:]):
            found |= {f"-{letter}": "" for letter in text[1:]}
        elif not (options.numbers and text[1:].isdecimal()):
            raise Closed(f"the option `{text}` is not known")
    for word in words[at : at + options.operands]:
        _certain(word)
    return min(at + options.operands, len(words)), found


def _certain(word: Token) -> None:
    if UNKNOWN in word.value or word.glob or word.odd:
        raise Closed("an argument that only the running shell knows stands before the inner command")


def _inner(words: Sequence[Token], inputs: tuple[str, ...], *, assigns: bool) -> Inside:
    at = 0
    while assigns and at < len(words) and "=" in words[at].value and not words[at].value.startswith("="):
        at += 1
    if at == len(words):
        return Inside()
    return Inside((SimpleCommand(tuple(words[:at]), tuple(words[at:]), inputs),))


def _plain(command: SimpleCommand, options: _Options) -> Inside:
    at, found = _skip(command.words, options)
    if found.keys() & options.quiet:
        return Inside()
    return _inner(command.words[at:], command.inputs, assigns=options.assigns)


def _xargs(command: SimpleCommand) -> Inside:
    at, found = _skip(command.words, _XARGS)
    words = list(command.words[at:])
    mark = found.get("-I")
    if mark:
        words = [_replaced(word, mark) for word in words]
    else:
        words.append(_unknown())
    return Inside((SimpleCommand((), tuple(words)),)) if at < len(command.words) else Inside()


def _replaced(word: Token, mark: str) -> Token:
    return msgspec.structs.replace(word, value=word.value.replace(mark, UNKNOWN), bare=False)


def _unknown() -> Token:
    return Token("word", 0, 0, UNKNOWN, several=True)


def _find(command: SimpleCommand) -> Inside:
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
            taken.append(_replaced(part, "{}"))
        else:
            taken.clear()
        if not taken:
            raise Closed("an action of `find` has no end")
        inner.append(SimpleCommand((), tuple(taken)))
    return Inside(tuple(inner))


def _line_of(words: Sequence[Token]) -> str:
    for word in words:
        if UNKNOWN in word.value or word.glob or word.odd:
            raise Closed("the line it runs is not written out")
    return " ".join(word.value for word in words)


def _eval(command: SimpleCommand) -> Inside:
    words = command.words[1:]
    if words and words[0].value == "--":
        words = words[1:]
    return Inside(lines=(_line_of(words),)) if words else Inside()


def _trap(command: SimpleCommand) -> Inside:
    words = command.words[1:]
    if not words or words[0].value in ("", "-", "-l", "-p"):
        return Inside()
    if words[0].value == "--":
        words = words[1:]
    return Inside(lines=(_line_of(words[:1]),))


def _watch(command: SimpleCommand) -> Inside:
    at, found = _skip(command.words, _WATCH)
    words = command.words[at:]
    if not words:
        return Inside()
    if found.keys() & {"-x", "--exec"}:
        return _inner(words, (), assigns=False)
    return Inside(lines=(_line_of(words),))


def _ssh(command: SimpleCommand) -> Inside:
    at, found = _skip(command.words, _SSH)
    if command.words[at - 1].value.startswith("-") and at > 1:
        raise Closed("a host whose name could be an option")
    # Options may also stand behind the host.
    if at < len(command.words) and command.words[at].value.startswith("-"):
        raise Closed("an option of `ssh` behind the host")
    words = command.words[at:]
    if not words and not found.keys() & {"-N", "-V"}:
        raise Closed("a shell on another machine that runs what it is fed")
    return Inside(lines=(_line_of(words),), elsewhere=True) if words else Inside()


def _shell(command: SimpleCommand) -> Inside:
    """A shell with ``-c`` runs a line, with a file runs that file, with neither runs whatever it is fed."""
    if command.words[0].value.rpartition("/")[2] in _FOREIGN:
        raise Closed("a shell with a language of its own")
    words = command.words[1:]
    takes_line = False
    while words:
        word = words[0]
        _certain(word)
        text = word.value
        if text in ("--help", "--version"):
            return Inside()
        if text in ("--norc", "--noprofile", "--posix"):
            words = words[1:]
            continue
        if not text.startswith(("-", "+")) or text == "-":
            break
        letters = text[1:]
        if letters.endswith("o") and len(words) > 1 and words[1].value in _SHELL_SETTINGS:
            letters, words = letters[:-1], words[1:]
        if text.startswith("+") or text == "--" or not set(letters) <= _SHELL_LETTERS:
            raise Closed(f"the option `{text}` is not known")
        takes_line = takes_line or "c" in letters
        words = words[1:]
    if takes_line:
        if not words:
            raise Closed("`-c` has no line")
        return Inside(lines=(_line_of(words[:1]),))
    if not words or words[0].value in ("-", "/dev/stdin", "/dev/fd/0"):
        if len(command.inputs) != 1 or UNKNOWN in command.inputs[0]:
            raise Closed("a shell that runs what it is fed")
        return Inside(lines=command.inputs)
    return Inside()


_READERS: Final[Mapping[str, Callable[[SimpleCommand], Inside]]] = {
    "eval": _eval,
    "find": _find,
    "ssh": _ssh,
    "trap": _trap,
    "watch": _watch,
    "xargs": _xargs,
}
