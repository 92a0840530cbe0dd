"""The builtins of bash and what they evaluate.

Bash evaluates more than its expansions: a subscript (``test -v 'a[$(cmd)]'``), an operand of arithmetic, a name that a
builtin assigns to. Such an argument must be written out, so a wildcard covers a builtin only where every argument is
literal. :data:`DYNAMIC` lists the exceptions. A test compares these tables with the builtins of the installed bash.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from clew.permissions.shell.tokens import word_set

__all__ = ["CHANGING", "DYNAMIC", "EVALUATING", "LITERAL", "STATEFUL", "evaluates", "is_builtin"]

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
# No argument is evaluated but for those in EVALUATING; each must still be literal.
LITERAL: Final = word_set("[ [[ bg break cd continue exit fg help jobs kill printf return test type wait")

EVALUATING: Final = {
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


def is_builtin(name: str) -> bool:
    return name in STATEFUL or name in LITERAL or name in (":", "echo", "false", "pwd", "times", "true")


def evaluates(program: str, arguments: Sequence[str]) -> bool:
    """Return whether an argument may be evaluated, so that a substitution can hide in it."""
    if program in EVALUATING:
        return any(argument in EVALUATING[program] for argument in arguments)
    if program == "printf" and any(map(_PRINTF_ASSIGNMENT.search, arguments)):
        return True
    if program in _OPTIONS:
        return any(argument.startswith("-") and _OPTIONS[program] in argument for argument in arguments)
    return program in _ASSIGNING and any("[" in argument for argument in arguments)
