"""Wrappers: commands that run other commands.

A wrapper is judged by itself and for each command inside it. All its options must be known: an option that is not in
the table, or an argument that only the running shell knows, could move the start of the inner command. Such a wrapper
is closed (:class:`ClosedWrapper`), and no rule can allow it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from clew.permissions.shell.parse import SimpleCommand
from clew.permissions.shell.programs.catalog import load_wrappers
from clew.permissions.shell.tokens import UNKNOWN, Token, word_set

__all__ = ["SHELLS", "ClosedWrapper", "InnerCommands", "look_inside", "starting_options"]


SHELLS: Final = word_set(
    """ash bash csh dash elvish es fish ion ksh ksh93 loksh lksh mksh nu oksh osh posh rbash rc rzsh sash scsh sh tcsh
    xonsh yash ysh zsh"""
)
# Their language differs, so a line has another meaning. Korn shells evaluate the operands of `test`.
_FOREIGN: Final = word_set(
    "csh elvish es fish ion ksh ksh93 lksh loksh mksh nu oksh osh rc rzsh sash scsh tcsh xonsh yash ysh zsh"
)
# Options that do not change how a line is read.
_SHELL_LETTERS: Final = frozenset("ceuxvnfhml")
_SHELL_SETTINGS: Final = word_set("errexit nounset pipefail xtrace")
# The same programs under the names they have next to those of another system.
_OTHER_NAMES: Final = {f"g{name}": name for name in word_set("env find nice nohup stdbuf time timeout xargs")}
# They run commands, too, in ways that are not analysed.
_CLOSED: Final = word_set(
    """abduco apt-key at autossh batch bpftrace bsd-csh busctl bwrap c_rehash capsh cgexec choom chpst chroot clush
    concurrently corepack coresched cpan cpulimit crontab cross-env daemonize dbus-launch dbus-run-session
    dbus-send deb-systemd-invoke debconf debconf-apt-progress debconf-communicate debuild direnv dotenv dotenvx
    dpkg-buildpackage dpkg-preconfigure dpkg-reconfigure dtach dumb-init eatmydata editor entr env-cmd env_parallel
    expect fakeroot-sysv fakeroot-tcp faketime firejail flock fstab-decode gcore gdb gdb-add-index gdbtui gdbus
    git-receive-pack git-shell git-upload-archive git-upload-pack gosu gp-collect-app gpg-agent gpg-connect-agent
    gprofng heaptrack hyperfine i386 ifne init inotifywait instmodsh invoke-rc.d jexec kcov lckdo ld.so ldd lldb
    lli logsave ltrace luit machinectl make-first-existing-target memusage mimeopen mispipe mosh mpiexec mpirun
    msgexec msgfilter newgrp niceload nodemon not nsenter numactl open openvt pager parallel parset pdb3 pdsh pee
    perf perlbug perldoc perlthanks pg_virtualenv pgbench pinentry pkexec prename prlimit proot prove proxychains
    proxychains4 pssh py-spy pydoc pydoc3 red rename rlwrap run-one run-parts runcon runuser s6-setuidgid sbatch
    scalar screen script scriptlive sem sensible-browser sensible-editor sensible-pager service setlock setpriv sg
    slogin socat softlimit sotruss srun ssh-agent ssh-argv0 ssh-copy-id sshpass start-stop-daemon strace su su-exec
    switch_root systemd systemd-cat systemd-inhibit systemd-nspawn systemd-run systemd-socket-activate
    systemd-stdio-bridge telinit timelimit tini tmux torify torsocks tsocks uclampset uname26 unshare update-rc.d
    valgrind valgrind.bin vidir vipe visudo watchexec x-terminal-emulator x86_64 xdg-email xdg-open xterm xvfb-run
    zrun"""
)
# The loader runs the program it is given.
_LOADER: Final = re.compile(
    r"ld(?:-linux[\w-]*|-musl[\w-]*|64|-[0-9.]+)?\.so(?:\.[0-9.]+)?|(?:i[3-6]86|linux|ppc)(?:32|64)?"
)
_COMPILER: Final = re.compile(
    r"(?:[\w-]+-)?(?:gcc(?:-ar|-nm|-ranlib)?|g\+\+|cc|c\+\+|cpp|clang(?:\+\+)?|c89|c99|gfortran|gold|lto-dump"
    r"|ld(?:\.bfd|\.gold|\.lld)?)(?:-[0-9.]+)?"
)
# Affixes of a program's name: the architecture of a build, and a version.
_BUILD: Final = re.compile(r"^(?:x86_64|i686|aarch64|arm)-linux-gnu\w*-(?=\w)|(?<=[a-z]3)\.[0-9]+$|(?<=[a-z])-[0-9]+$")
_GPG_STARTS: Final = (
    *("--agent-program", "--dirmngr-program", "--keyboxd-program", "--photo-viewer", "--options", "--homedir"),
    *("--load-extension", "--exec-path", "--gpg", "--tar", "--launch", "--daemon", "--server"),
)
_COMPILER_STARTS: Final = (
    *("-wrapper", "-B", "-specs", "--specs", "-fplugin", "-iplugindir", "-fuse-ld", "-Wl,", "-X", "@", "-plugin"),
    *("--plugin", "-load", "-cc1", "--config", "--ld-path", "-ccc-", "--gcc-toolchain", "--prefix"),
)
# Options of programs without a table that start another program or load code.
_STARTING_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(word_set("dirmngr gpg gpg-wks-server gpg-zip gpg2 gpgcompose gpgconf gpgsm gpgtar"), _GPG_STARTS),
    **dict.fromkeys(word_set("gpic groff neqn nroff pic troff"), ("-U", "-F", "-X")),
    "ar": ("--plugin", "-M"),
    "aria2c": ("--on-", "--conf-path"),
    "cpack": ("--config", "-D", "-P"),
    "cpio": ("--rsh-command", "-F", "-I", "-O", "--file"),
    # Each of its requests may be `!cmd`.
    "debugfs": ("-R", "-f"),
    "cvs": ("-d", "-e"),
    "diff3": ("--diff-program",),
    "dpkg": ("--pre-invoke", "--post-invoke", "--status-logger", "--root", "--admindir", "-i", "--install", "--unpack",
        "--configure"),
    "dpkg-architecture": ("-c", "--command"),
    "grog": ("--run",),
    "hg": ("--config", "--cwd", "--remotecmd", "--repository", "--ssh", "--tool", "-R", "-t"),
    "install": ("--strip-program", "-s", "--strip"),
    # Its words may be abbreviated: `ip net exec`.
    "ip": ("-b", "net", "vr"),
    "man": ("-P", "--pager", "-H", "--html", "-C", "--config-file", "-X", "--gxditview", "-T", "--troff-device",
        "-t", "--troff", "-l", "--local-file", "-K"),
    **dict.fromkeys(("javac", "javadoc"), ("-J", "-processor", "--processor", "-Xplugin", "-doclet", "@")),
    "json_pp": ("-f", "--f"),
    "mkfs": ("-t", "--type"),
    "mt": ("--rsh-command",),
    "nc": ("-e", "-c"),
    "nm": ("--plugin",),
    "pandoc": ("-F", "--filter", "-L", "--lua-filter", "--pdf-engine", "-d", "--defaults", "--syntax-definition"),
    "ranlib": ("--plugin",),
    # It accepts each option with one dash or two.
    "openssl": ("-engine", "-provider", "engine", "-config", "--engine", "--provider", "--config"),
    "patch": ("-e", "--ed", "-o", "--output", "-d", "--directory", "-g", "--get"),
    "ssh-add": ("-s", "-e", "-S"),
    "rpm": ("-D", "-E", "--define", "--eval", "--load", "--macros", "--pipe", "--rcfile"),
    # The linker is a program, and so is the runner of doc examples.
    **dict.fromkeys(("rustc", "rustdoc"), ("-C", "-Z", "--codegen", "--runtool", "--test-builder", "--test-run", "@")),
    "savelog": ("-x",),
    "scp": ("-S", "-o", "-F", "-J"),
    "sdiff": ("--diff-program",),
    "sftp": ("-S", "-o", "-F", "-b", "-D", "-s", "-J"),
    "ssh-keygen": ("-D", "-w"),
    "svn": ("--config-dir", "--config-option", "--diff-cmd", "--diff3-cmd", "--editor-cmd", "--extensions", "-x"),
    "tc": ("exec", "-b"),
    "tcpdump": ("-z",),
    **dict.fromkeys(("updatedb", "updatedb.findutils"), ("--findoptions",)),
    "wget": ("--use-askpass", "-e", "--execute"),
}  # fmt: skip


class ClosedWrapper(Exception):
    """A wrapper whose inner command is uncertain; the text says why."""


class InnerCommands(msgspec.Struct, frozen=True):
    """The commands a wrapper runs, and its lines for a shell; with ``elsewhere`` they run on another machine.

    ``read_by`` is the shell that reads the lines: the one that runs the wrapper, bash, or another one.
    """

    commands: tuple[SimpleCommand, ...] = ()
    lines: tuple[str, ...] = ()
    elsewhere: bool = False
    read_by: Literal["same", "bash", "other"] = "same"


def look_inside(command: SimpleCommand) -> InnerCommands | None:
    """Return the commands that ``command`` runs, or None if it is not a wrapper. Raises :class:`ClosedWrapper`."""
    if not command.words:
        return None
    name = command.words[0].value.rpartition("/")[2]
    name = _OTHER_NAMES.get(name, name)
    if name in _READERS:
        return _READERS[name](command)
    if name in SHELLS:
        return _shell(command)
    if name in load_wrappers():
        words, options = _after_options(command, name)
        wrapper = load_wrappers()[name]
        return (
            InnerCommands()
            if options.keys() & wrapper.quiet
            else _inner(words, command.inputs, assigns=wrapper.assigns)
        )
    if name in _CLOSED or _BUILD.sub("", name) in _CLOSED or _LOADER.fullmatch(name):
        raise ClosedWrapper(f"`{name}` runs other commands in ways that are not analysed")
    starts = starting_options(name)
    for word in command.words[1:]:
        if any(_may_be_option(word.value, option) for option in starts):
            raise ClosedWrapper(f"`{word.value}` makes `{name}` start another program")
    return None


def starting_options(name: str) -> tuple[str, ...]:
    """Return the options that make a program without a table start another one or load code."""
    return _COMPILER_STARTS if _COMPILER.fullmatch(name) else _STARTING_OPTIONS.get(_BUILD.sub("", name), ())


def _may_be_option(text: str, option: str) -> bool:
    """Return whether ``text`` is the option, with a value or other letters after it, or one of its abbreviations."""
    if text.startswith("--"):
        name = text.partition("=")[0]
        return (len(name) > 2 and option.startswith(name)) or text.startswith(option)
    if len(option) == 2 and option.startswith("-"):
        return text.startswith("-") and option[1] in text
    return text.startswith(option)


def _after_options(command: SimpleCommand, name: str) -> tuple[Sequence[Token], dict[str, str]]:
    """Return the words after the options and operands of the wrapper ``name``, and those options with their values."""
    wrapper, words = load_wrappers()[name], command.words
    at = 1
    options: dict[str, str] = {}
    while at < len(words):
        text = words[at].value
        if not text.startswith("-") and UNKNOWN not in text:
            break
        # Unknown text may be an option or empty, and then another word is the command.
        _require_certain(words[at])
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
            _require_certain(words[at])
            options[text] = words[at].value
            at += 1
        elif text[:2] in wrapper.valued:
            options[text[:2]] = text[2:]
        elif text != "-" and all(f"-{letter}" in wrapper.alone for letter in text[1:]):
            options |= {f"-{letter}": "" for letter in text[1:]}
        elif not (wrapper.numbers and text[1:].isdecimal()):
            raise ClosedWrapper(f"the option `{text}` is not known")
    for word in words[at : at + wrapper.operands]:
        _require_certain(word)
    return words[at + wrapper.operands :], options


def _require_certain(word: Token) -> None:
    if UNKNOWN in word.value or word.glob or word.odd:
        raise ClosedWrapper("an argument that only the running shell knows stands before the inner command")


def _inner(words: Sequence[Token], inputs: tuple[str, ...], *, assigns: bool) -> InnerCommands:
    at = 0
    while assigns and at < len(words) and "=" in words[at].value and not words[at].value.startswith("="):
        at += 1
    if not words:
        return InnerCommands()
    # Also without a program: after the keyword `time` bash sets the variable for later commands.
    return InnerCommands((SimpleCommand(tuple(words[:at]), tuple(words[at:]), inputs),))


def _xargs(command: SimpleCommand) -> InnerCommands:
    words, options = _after_options(command, "xargs")
    if not words:
        return InnerCommands()
    placeholder = options.get("-I")
    inner = (
        [_fill_placeholder(word, placeholder) for word in words]
        if placeholder
        else [*words, Token("word", 0, 0, UNKNOWN, several=True)]
    )
    return InnerCommands((SimpleCommand((), tuple(inner)),))


def _fill_placeholder(word: Token, placeholder: str) -> Token:
    """Return the word with ``placeholder`` replaced by unknown text."""
    return msgspec.structs.replace(word, value=word.value.replace(placeholder, UNKNOWN), bare=False)


def _find(command: SimpleCommand) -> InnerCommands:
    inner: list[SimpleCommand] = []
    words = iter(command.words[1:])
    for word in words:
        _require_certain(word)
        if word.value not in ("-exec", "-execdir", "-ok", "-okdir"):
            continue
        action: list[Token] = []
        for part in words:
            if part.value == ";" or (part.value == "+" and action and action[-1].value == UNKNOWN):
                break
            # A word that becomes several could contain the end of the action, and another action.
            _require_certain(part)
            action.append(_fill_placeholder(part, "{}"))
        else:
            action.clear()
        if not action:
            raise ClosedWrapper("an action of `find` has no end")
        inner.append(SimpleCommand((), tuple(action)))
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
    words, options = _after_options(command, "watch")
    if not words:
        return InnerCommands()
    if options.keys() & {"-x", "--exec"}:
        return _inner(words, (), assigns=False)
    return InnerCommands(lines=(_line_of(words),), read_by="other")


def _ssh(command: SimpleCommand) -> InnerCommands:
    words, options = _after_options(command, "ssh")
    host = len(command.words) - len(words) - 1
    if host > 0 and command.words[host].value.startswith("-"):
        raise ClosedWrapper("a host whose name could be an option")
    # Options may also follow the host.
    if words and words[0].value.startswith("-"):
        raise ClosedWrapper("an option of `ssh` behind the host")
    if not words and not options.keys() & {"-N", "-V"}:
        raise ClosedWrapper("a shell on another machine that runs what it is fed")
    if not words:
        return InnerCommands()
    return InnerCommands(lines=(_line_of(words),), elsewhere=True, read_by="other")


def _shell(command: SimpleCommand) -> InnerCommands:
    """Return the commands of a shell: with ``-c`` it runs a line, with a file that file, otherwise its input."""
    name = command.words[0].value.rpartition("/")[2]
    if name in _FOREIGN:
        raise ClosedWrapper("a shell with a language of its own")
    read_by: Literal["bash", "other"] = "bash" if name in ("bash", "rbash") else "other"
    words = command.words[1:]
    takes_line = False
    while words:
        word = words[0]
        _require_certain(word)
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
        # The arguments after the line are its parameters, which it may run (`bash -c '"$@"' _ rm`) as unknown text.
        if not words:
            raise ClosedWrapper("`-c` has no line")
        return InnerCommands(lines=(_line_of(words[:1]),), read_by=read_by)
    if not words or words[0].value in ("-", "/dev/stdin", "/dev/fd/0"):
        if len(command.inputs) != 1 or UNKNOWN in command.inputs[0]:
            raise ClosedWrapper("a shell that runs what it is fed")
        return InnerCommands(lines=command.inputs, read_by=read_by)
    return InnerCommands()


_READERS: Final[Mapping[str, Callable[[SimpleCommand], InnerCommands]]] = {
    "eval": _eval,
    "find": _find,
    "ssh": _ssh,
    "trap": _trap,
    "watch": _watch,
    "xargs": _xargs,
}
