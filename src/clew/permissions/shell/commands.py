"""The commands of a shell line as rules match them: the text of each, and which rules may cover it.

The text is canonical: one blank between words, and quotes only around a word that needs them, so that a rule for ``git
status`` covers ``git  "status"`` and not a program named ``git status``. Rules that deny or ask also match looser
spellings (no quotes, no folder, lower case), because for them a missed match is the worse mistake.

The builtins of bash evaluate more than its expansions: a subscript (``test -v 'a[$(cmd)]'``), an operand of arithmetic,
a name that a builtin assigns to. Such an argument must be written out, so a wildcard covers a builtin only where every
argument is literal. :data:`DYNAMIC` lists the exceptions. A test compares these tables with the builtins of the
installed bash.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal

import msgspec

from clew.permissions.shell.options import examine
from clew.permissions.shell.parse import Redirect, SimpleCommand, read_line
from clew.permissions.shell.programs.catalog import find_program
from clew.permissions.shell.tokens import UNKNOWN, Token, Unreadable, word_set
from clew.permissions.shell.wrappers import SHELLS, ClosedWrapper, look_inside

__all__ = [
    "CHANGING",
    "DYNAMIC",
    "LITERAL",
    "STATEFUL",
    "Command",
    "Cover",
    "Parts",
    "is_builtin",
    "is_interpreter",
    "only_reads",
    "take_apart",
]

_MAX_NESTING: Final = 5

Cover = Literal["any", "named", "exact", "none"]
"""The rules that can allow a command: any that matches, only one that contains its program and its dangerous
arguments, only one without a star, or none."""

_GIT_READS: Final = word_set("blame diff grep log ls-files ls-tree rev-list rev-parse shortlog show status")
# Interpreters, with the letters of the options whose value is their program.
_INTERPRETERS: Final = (
    (re.compile(r"(?:python|pypy)[0-9.]*"), "cm"),
    (re.compile(r"perl[0-9.]*"), "eE"),
    (re.compile(r"node|nodejs|bun|deno"), "ep"),
    (re.compile(r"php[0-9.]*"), "rfBRF"),
    (re.compile(r"(?:groovy|guile|irb|jshell|julia|lua|luajit|osascript|R|Rscript|ruby|scala)[0-9.]*"), "e"),
    (re.compile(r"powershell|pwsh|tclsh[0-9.]*|wish[0-9.]*"), "cC"),
    (
        re.compile(
            r"clisp|clj|clojure|coffee|dc|elixir|erl|fennel|ghci|gnuplot|hy|iex|ipython3?|janet|jruby|m4|micropython"
            r"|mongosh|ocaml|octave|qjs|racket|raku|runghc|runhaskell|sbcl|scheme|swift|ts-node|tsx"
        ),
        "ce",
    ),
)
# Harmless options of interpreters without a table: they load nothing and run nothing.
_PLAIN_OPTIONS: Final = word_set("--help --project --project=. --vanilla --version -h -V -v")
# Their options whose value could be mistaken for the file of a program.
_VALUED: Final = word_set("-C -d -I -r -W -X")
_FED: Final = word_set("- /dev/stdin /dev/fd/0 /proc/self/fd/0")
_PROGRAM: Final = re.compile(r"[A-Za-z0-9_@%+:,./-]+|\[\[?", re.ASCII)
_NEEDS_QUOTES: Final = re.compile(r"[\s|&;<>()$`\\\"'*?\[\]~#]")
_GLOB: Final = re.compile(r"[*?\[]")
# These only read files and print, with any arguments: none of their options writes, runs or evaluates.
DYNAMIC: Final = word_set(
    """: basename cat cksum cmp comm cut df dirname du echo egrep expand false fgrep fold grep head ls md5sum nl od
    paste pwd readlink realpath rev seq sha1sum sha256sum sha512sum sleep stat strings tac tail times tr true wc"""
)
# Their arguments change later commands (`export LD_PRELOAD=…`, `alias git=…`, `set -a`), or are evaluated as code, as
# expressions or as names with a subscript: only an exact rule covers them.
CHANGING: Final = word_set(
    """alias bind caller compgen complete compopt declare enable export fc getopts hash history let local mapfile read
    readarray readonly set shopt typeset unalias unset"""
)
# They change the shell or run something that is judged by itself.
STATEFUL: Final = CHANGING | word_set(
    ". builtin command dirs disown eval exec logout popd pushd shift source suspend trap ulimit umask"
)
# No argument is evaluated but for those in _EVALUATING; each must still be literal.
LITERAL: Final = word_set("[ [[ bg break cd continue exit fg help jobs kill printf return test type wait")
_EVALUATING: Final = {
    "[[": word_set("-eq -ne -lt -le -gt -ge -v -R"),
    "[": word_set("-v -R"),
    "test": word_set("-v -R"),
}
"""Operators whose operand is an expression or a name with a subscript."""
_OPTIONS: Final = {"jobs": "x", "printf": "v", "wait": "p"}
"""Options that run a command or assign to a name, by the letter in a bundle."""
_PRINTF_ASSIGNMENT: Final = re.compile(r"%[-+ #'0-9.*hjlqtzL]*n")
"""A conversion of `printf` that assigns to the name in the argument: `printf %n PATH`."""
_ASSIGNING: Final = word_set("declare export getopts let local mapfile read readarray readonly typeset unset")
"""They assign to names, whose subscripts are evaluated."""


class Command(msgspec.Struct, frozen=True):
    """One command. ``head`` is the text a rule must contain if the cover is ``named``; ``why`` explains the cover.

    ``head_words`` is the number of words of the head, without the variables before the program. ``words`` are those of
    the command itself, ``texts`` its variables and its input. ``places`` are the paths that must be in the workspace
    for a rule with a star to cover it.
    """

    text: str
    loose: tuple[str, ...]
    head: str
    cover: Cover
    why: str = ""
    head_words: int = 1
    words: tuple[Token, ...] = ()
    texts: tuple[str, ...] = ()
    places: tuple[str, ...] = ()


class Parts(msgspec.Struct, frozen=True):
    """A parsed line. With ``moves``, a relative redirect may be opened in another folder."""

    commands: tuple[Command, ...]
    redirects: tuple[Redirect, ...]
    moves: bool


def take_apart(line: str, depth: int = 0, *, bash: bool = True) -> Parts:
    """Return every command and redirect of ``line``, including those inside wrappers. Raises :class:`Unreadable`.

    ``depth`` is the number of shells around the line; with ``bash`` the innermost of them is bash.
    """
    if depth > _MAX_NESTING:
        raise Unreadable("shells are nested too deeply")
    read = read_line(line)
    if read.only_bash and not bash:
        raise Unreadable(f"to a shell other than bash `{read.only_bash}` has another meaning")
    redirects = list(read.redirects)
    commands: list[Command] = []
    moves = read.moves
    for simple in read.commands:
        for part in _judge(simple, depth, bash=bash):
            if isinstance(part, Command):
                commands.append(part)
            else:
                commands += part.commands
                redirects += part.redirects
                moves = moves or part.moves
    # A command that changes files may create a link where a redirect of the same line is opened afterwards.
    if redirects and not (read.single and redirects == list(read.redirects)) and not all(map(only_reads, commands)):
        redirects = [msgspec.structs.replace(one, steady=False) for one in redirects]
    return Parts(tuple(commands), tuple(redirects), moves)


def only_reads(command: Command) -> bool:
    """Return whether the command is known to change no file, by itself or through what it starts."""
    # The destination of `cd` is checked elsewhere (``moves``).
    if command.cover != "any":
        return False
    program, second = (*(word.value for word in command.words[:2]), "")[:2]
    return program in DYNAMIC or program == "cd" or (program == "git" and second in _GIT_READS)


def is_interpreter(program: str) -> bool:
    """Return whether the program executes code it is given."""
    name = program.rpartition("/")[2]
    return name in SHELLS or any(pattern.fullmatch(name) for pattern, _ in _INTERPRETERS)


def _judge(simple: SimpleCommand, depth: int, *, bash: bool) -> Iterator[Command | Parts]:
    """Yield the command itself, then the commands it runs."""
    if depth > _MAX_NESTING:
        raise Unreadable("commands are nested too deeply")
    cover, why, head_words, places = _cover(simple)
    try:
        inner = look_inside(simple)
    except ClosedWrapper as closed:
        # Fail closed: an inner command that was not found would run without any rule having seen it.
        yield _command(simple, "none", str(closed))
        return
    # A rule such as `*` must not allow `sudo` by itself; one that contains its name may, and the commands it runs are
    # judged as well.
    if inner is not None and cover == "any":
        cover, why = "named", "it runs another command"
    yield _command(simple, cover, why, head_words, places)
    if inner is None:
        return
    for below in inner.commands:
        yield from _judge(below, depth + 1, bash=bash)
    bash = inner.read_by == "bash" or (bash and inner.read_by == "same")
    for line in inner.lines:
        part = take_apart(line, depth + 1, bash=bash)
        if inner.elsewhere and part.redirects:
            raise Unreadable("a redirect on another machine")
        # The wrapper may have changed the folder (`env -C`, `sudo -i`), so a relative path is unknown.
        redirects = [
            one if one.path.startswith("/") else msgspec.structs.replace(one, known=False) for one in part.redirects
        ]
        yield msgspec.structs.replace(part, redirects=tuple(redirects))


def _cover(simple: SimpleCommand) -> tuple[Cover, str, int, tuple[str, ...]]:
    """Return which rules can cover a command, why, how many of its words they must contain, and its places."""
    cover, why = _cover_by_form(simple)
    if cover in ("none", "exact") or not simple.words:
        return cover, why, 1, ()
    findings = examine(simple.words)
    if findings is None:
        if count := _count_option_words(simple.words):
            return "named", "an option of its interpreter may run code", count, ()
        return cover, why, 1, ()
    if findings.head_words is None:
        return "none", findings.why, 1, ()
    if findings.head_words:
        cover, why = "named", findings.why
    return cover, why, findings.head_words or 1, findings.places


def _cover_by_form(simple: SimpleCommand) -> tuple[Cover, str]:
    """Return the same from the form alone, without knowing the program. The strictest results are checked first."""
    if not simple.words:
        return "named", "it sets a variable"
    program = simple.words[0]
    name = program.value.rpartition("/")[2]
    if UNKNOWN in program.value or (program.glob and program.value not in ("[", "[[")):
        return "none", "its program is not written out"
    arguments = [word.value for word in simple.words[1:]]
    if _evaluates(program.value, arguments):
        return "none", "an argument may run code or set a variable"
    if _runs_its_input(name, simple.words[1:]):
        written = simple.inputs and not any(UNKNOWN in text for text in simple.inputs)
        return ("exact", "it runs the text it is fed") if written else ("none", "it runs what it is fed")
    # A star of a rule would cover look-alikes of the program's name, so the rule must contain it.
    if not _PROGRAM.fullmatch(program.value):
        return "named", "its program has unusual characters"
    odd = next((word.odd for word in simple.words if word.odd), "")
    if odd:
        return "exact", f"it uses {odd}"
    if _has_unknown_argument(simple):
        return "none", "an argument is known only to the running shell, and its program may evaluate it"
    if program.value in CHANGING and len(simple.words) > 1:
        return "exact", "it changes what later commands are or do"
    # `LD_PRELOAD=x.so git status` is not `git status`, so a rule for the latter must not cover it.
    if simple.assignments:
        return "named", "it sets a variable"
    if program.value in STATEFUL:
        return "named", "it changes what later commands are or do"
    if name in SHELLS:
        return "named", "it is a shell"
    return "any", ""


def _has_unknown_argument(simple: SimpleCommand) -> bool:
    """Return whether an argument is known only to the running shell and the program may do more than print it.

    The table of a program decides by itself whether such an argument is harmless.
    """
    program = simple.words[0].value
    name = program.rpartition("/")[2]
    if program in DYNAMIC or (not is_builtin(program) and (name in DYNAMIC or find_program(name) is not None)):
        return False
    # A path with a known start cannot become an option or an operator, whatever the names of files.
    return any(
        word.several
        or (UNKNOWN in word.value and not word.rooted)
        or (word.glob and word.value != "[" and (is_builtin(program) or word.value[0] in "-*?["))
        for word in simple.words[1:]
    )


def _runs_its_input(name: str, words: Sequence[Token]) -> bool:
    """Return whether an interpreter reads its program from its input, or from a command of the line."""
    if name in (".", "source"):
        return any(word.value in _FED or _is_handle(word) for word in words)
    letters = _letters_with_code(name)
    if letters is None:
        return False
    arguments = [word.value for word in words]
    if any(argument in _FED for argument in arguments):
        return True
    if len(arguments) == 1 and arguments[0] in ("--version", "--help", "-V", "-v", "-h"):
        return False
    previous = ""
    for word, argument in zip(words, arguments, strict=True):
        if _is_handle(word):
            return True
        short = argument.startswith("-") and not argument.startswith("--")
        if short and any(letter in letters for letter in argument[1:]):
            return False
        if argument.startswith(("--eval", "--print", "--command")) or (
            not argument.startswith("-") and previous not in _VALUED
        ):
            return False
        previous = argument
    return True


def _is_handle(word: Token) -> bool:
    """Return whether the word is the file of a process substitution: ``<(cmd)``."""
    return word.rooted and not word.home and word.value.startswith(UNKNOWN)


def _letters_with_code(name: str) -> str | None:
    return next((letters for pattern, letters in _INTERPRETERS if pattern.fullmatch(name)), None)


def _count_option_words(words: Sequence[Token]) -> int:
    """Return how many words of an interpreter without a table a rule must contain: up to its last option that may run
    code, 0 if it has none."""
    count = 0
    if _letters_with_code(words[0].value.rpartition("/")[2]) is None:
        return count
    for at, word in enumerate(words[1:], 2):
        # Unknown words were refused before. After the file of its program the options are the program's.
        if not word.value.startswith("-") and words[at - 2].value not in _VALUED:
            break
        count = count if word.value in _PLAIN_OPTIONS else at
    return count


def _command(
    simple: SimpleCommand, cover: Cover, why: str, head_words: int = 1, places: tuple[str, ...] = ()
) -> Command:
    inputs = "".join(f" << {_quoted(text)}" for text in simple.inputs)
    words = [_shown(word) for word in (*simple.assignments, *simple.words)]
    head = " ".join(words[: len(simple.assignments) + head_words])
    text = " ".join(words) + inputs
    texts = (*(word.value for word in simple.assignments), *simple.inputs)
    return Command(text, _loose(simple, text), head, cover, why, head_words, simple.words, texts, places)


def _loose(simple: SimpleCommand, text: str) -> tuple[str, ...]:
    """Return the spellings that a rule that denies or asks may match."""
    values = [_GLOB.sub(UNKNOWN, word.value) if word.glob else word.value for word in simple.words]
    if not values:
        return (text,)
    rest = "".join(f" {value}" for value in values[1:]) + "".join(f" << {text}" for text in simple.inputs)
    base = values[0].rpartition("/")[2] or values[0]
    names = (values[0], base, values[0].lower(), base.lower())
    prefix = "".join(f"{word.value} " for word in simple.assignments)
    spellings = [text, *(name + rest for name in names)]
    if prefix:
        spellings += [prefix + name + rest for name in names]
    return tuple(dict.fromkeys(spellings))


def _shown(word: Token) -> str:
    if word.kind == "operator":
        return word.value
    if not word.glob:
        return _quoted(word.value)
    # Quoted text next to a glob can no longer be told from it, so it becomes unknown.
    if word.bare and not _NEEDS_QUOTES.search(_GLOB.sub("", word.value).replace("]", "")):
        return word.value
    return _quoted(_GLOB.sub(UNKNOWN, word.value))


def _quoted(text: str) -> str:
    if text and not _NEEDS_QUOTES.search(text):
        return text
    return "'" + text.replace("'", "'\\''") + "'"


def is_builtin(name: str) -> bool:
    return name in STATEFUL or name in LITERAL or name in (":", "echo", "false", "pwd", "times", "true")


def _evaluates(program: str, arguments: Sequence[str]) -> bool:
    """Return whether an argument may be evaluated, so that a substitution can hide in it."""
    if program in _EVALUATING:
        return any(argument in _EVALUATING[program] for argument in arguments)
    if program == "printf" and any(map(_PRINTF_ASSIGNMENT.search, arguments)):
        return True
    if program in _OPTIONS:
        return any(argument.startswith("-") and _OPTIONS[program] in argument for argument in arguments)
    return program in _ASSIGNING and any("[" in argument for argument in arguments)
