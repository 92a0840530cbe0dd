"""Parsing of a shell line into every simple command and every redirect that bash would execute.

Two parsers must agree. :mod:`clew.permissions.shell.tokens` reads words and operators as bash does and removes quotes;
the tree-sitter grammar gives each of them its role: a keyword, a program's name, the list of a loop. Each has been
wrong where the other was right (the grammar reads ``b`` in ``a > out b`` as a second file, and ``r\\⏎m`` as two words),
so a token that only one of them sees, or sees at another position, makes the whole line unreadable. An unreadable line
is never allowed.

Text that only a running shell knows is unknown, and only a ``*`` of a rule covers it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from clew.permissions.shell.tokens import UNKNOWN, Level, Token, Unreadable, read_tokens, word_set

if TYPE_CHECKING:
    from tree_sitter import Language, Node

__all__ = ["Redirect", "ShellLine", "SimpleCommand", "read_line"]

_MAX_DEPTH: Final = 200

# The role of a token in the grammar. Between double brackets an operator is an operand, and separates no commands.
_Role = Literal["structure", "command", "test"]

# Nodes that are one word. Their content is read by the other parser, except for substitutions.
_WORDS: Final = word_set("""
    ansi_c_string arithmetic_expansion brace_expression command_substitution concatenation expansion extglob_pattern
    file_descriptor heredoc_start number process_substitution raw_string regex simple_expansion special_variable_name
    string test_operator translated_string variable_assignment variable_name word
""")
_SUBSTITUTIONS: Final = word_set("command_substitution process_substitution")
# Nodes that contain the words of a simple command, and nodes around commands. A node of any other kind makes the line
# unreadable.
_COMMANDS: Final = word_set("""
    command command_name declaration_command file_redirect heredoc_redirect herestring_redirect redirected_statement
    test_command unset_command variable_assignments
""")
_EXPRESSIONS: Final = word_set("binary_expression parenthesized_expression unary_expression")
_AROUND: Final = word_set("""
    case_item case_statement compound_statement do_group elif_clause else_clause for_statement function_definition
    if_statement list negated_command pipeline program subshell while_statement
""")
_STRUCTURE: Final = word_set("! case do done elif else esac fi for function if in then until while { }")
_CASE_ENDS: Final = word_set(";; ;& ;;&")
# Bash gives these a meaning that the grammar does not know, or knows only in part.
_REFUSED: Final = word_set("coproc select")
_KEYWORDS: Final = _STRUCTURE | _REFUSED | {"[[", "]]"}
_WRITES: Final = word_set("> >> >| &> &>> >& <>")
_READS: Final = word_set("< <> <&")
_COPIES: Final = word_set(">& <&")
_REDIRECTS: Final = _WRITES | _READS | _COPIES | {"<<", "<<-", "<<<"}
_BASH_OPERATORS: Final = word_set("&> &>> |& <<< ;& ;;&")
_BASH_WORDS: Final = word_set("[[ function")
_PLAIN_ASSIGNMENT: Final = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*=")
_DESCRIPTOR: Final = re.compile(r"[0-9]*-|[0-9]+")
_LOOP_NAME: Final = re.compile(r"(?!path$)[a-z][a-z0-9]{0,15}")
_HARMLESS: Final = word_set("/dev/null /dev/stdin /dev/stdout /dev/stderr")


class Redirect(msgspec.Struct, frozen=True):
    """A file that a line opens. ``path`` is as written, with :data:`UNKNOWN` for text that only the shell knows. It is
    not ``steady`` if another command of the line may replace it by a link first."""

    permission: Literal["read", "write"]
    path: str
    known: bool
    steady: bool = True


class SimpleCommand(msgspec.Struct, frozen=True):
    """One command as the shell would start it. ``inputs`` are its here-documents and here-strings."""

    assignments: tuple[Token, ...]
    words: tuple[Token, ...]
    inputs: tuple[str, ...] = ()


class ShellLine(msgspec.Struct, frozen=True):
    """All commands and redirects of a line. ``moves``: the folder may change before a redirect is opened. ``single``:
    there is one command, run once, so its redirects are opened before it starts. ``only_bash`` is a construct that
    another shell reads as other commands; empty if there is none."""

    commands: tuple[SimpleCommand, ...]
    redirects: tuple[Redirect, ...]
    moves: bool = False
    single: bool = False
    only_bash: str = ""


def read_line(line: str) -> ShellLine:
    """Parse ``line``. Raises :class:`Unreadable` if the two parsers disagree or one of them fails."""
    levels = read_tokens(line)
    roles = _roles(line)
    tokens_by_extent: dict[tuple[int, int], Token] = {
        (token.start, token.end): token for level in levels for token in level if token.kind != "newline"
    }
    for level in levels:
        for dash, operator in pairwise(level):
            # The grammar loses a lone dash in front of a here-document (`python3 - <<E`).
            if dash.value == "-" and dash.bare and operator.value in ("<<", "<<-"):
                roles.setdefault((dash.start, dash.end), "command")
    # Fail closed: where the two disagree about a single token, one of them is wrong about where a command begins.
    if tokens_by_extent.keys() != roles.keys():
        raise Unreadable("the line can be read in more than one way")
    commands: list[SimpleCommand] = []
    redirects: list[Redirect] = []
    for level in levels:
        for run in _split_commands(level, roles):
            command, input_count = _command(run, roles)
            redirects += input_count
            if command is not None:
                commands.append(command)
    if not commands and not redirects:
        raise Unreadable("the line holds no command")
    moves = any(c.words and c.words[0].value in ("cd", "pushd", "popd") for c in commands)
    loops = any(token.bare and token.value in ("for", "while", "until") for level in levels for token in level)
    only_bash = next(filter(None, (_only_bash(token, line) for level in levels for token in level)), "")
    return ShellLine(tuple(commands), tuple(redirects), moves, len(commands) <= 1 and not loops, only_bash)


def _only_bash(token: Token, line: str) -> str:
    """Return the token if it has another meaning outside of bash: in dash, `[[ a || cmd ]]` runs `cmd`."""
    if token.kind == "operator":
        return token.value if token.value in _BASH_OPERATORS else ""
    if token.bare and token.value in _BASH_WORDS:
        return token.value
    raw = line.encode()[token.start : token.end] if token.assigns or token.rooted or UNKNOWN in token.value else b""
    special = b"<(" in raw or b">(" in raw or (token.assigns and not _PLAIN_ASSIGNMENT.match(raw))
    return raw.decode() if special else ""


# ---------------------------------------------------------------- the grammar


_language: Language | None = None


def _roles(line: str) -> dict[tuple[int, int], _Role]:
    """Return the role of each token in the grammar, by its extent."""
    global _language
    # Imported for the first line: importing clew stays fast.
    from tree_sitter import Language, Parser

    if _language is None:
        import tree_sitter_bash

        _language = Language(tree_sitter_bash.language())
    tree = Parser(_language).parse(line.encode())
    # The grammar recovers from errors; bash would run something else.
    if tree.root_node.has_error:
        raise Unreadable("the line is not one that the grammar knows")
    roles: dict[tuple[int, int], _Role] = {}
    _collect(tree.root_node, "structure", roles, 0)
    return roles


def _collect(node: Node, role: _Role, roles: dict[tuple[int, int], _Role], depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise Unreadable("the line is nested too deeply")
    kind = node.type
    if kind in ("comment", "\n", "heredoc_end"):
        return
    if kind == "heredoc_body":
        _substitutions(node, roles, depth)
    elif not node.is_named or kind in _WORDS:
        extent = (node.start_byte, node.end_byte)
        if extent[0] == extent[1]:
            raise Unreadable("the line is not complete")
        roles[extent] = role
        if node.is_named:
            _substitutions(node, roles, depth)
    elif kind in _COMMANDS or kind in _AROUND or kind in _EXPRESSIONS:
        # The operands of a test belong to it; everything else is decided by the nearest node.
        inner: _Role = role if kind in _EXPRESSIONS else "command" if kind in _COMMANDS else "structure"
        for child in node.children:
            if child.type in _CASE_ENDS and kind != "case_item":
                raise Unreadable("the end of a case where there is none")
            if kind == "test_command" and node.children[0].type == "[[":
                inner = "test"
            assigned = child.type == "variable_assignment" and kind not in ("case_item", "for_statement")
            _collect(child, "command" if assigned else inner, roles, depth + 1)
    else:
        raise Unreadable(f"the line holds something that is not judged: {kind.replace('_', ' ')}")


def _substitutions(node: Node, roles: dict[tuple[int, int], _Role], depth: int) -> None:
    """Collect the tokens inside the substitutions of a word. Their brackets belong to the word."""
    if depth > _MAX_DEPTH:
        raise Unreadable("the line is nested too deeply")
    if node.type in _SUBSTITUTIONS:
        for child in node.children[1:-1]:
            _collect(child, "command" if child.type == "variable_assignment" else "structure", roles, depth + 1)
        return
    for child in node.children:
        _substitutions(child, roles, depth + 1)


# ---------------------------------------------------------------- commands


def _split_commands(level: Level, roles: dict[tuple[int, int], _Role]) -> Iterator[list[Token]]:
    """Yield the tokens between separators. Each group has at most one simple command."""
    run: list[Token] = []
    for token in level:
        if roles.get((token.start, token.end)) == "test":
            run.append(token)
        elif token.kind == "newline" or (token.kind == "operator" and token.value not in _REDIRECTS):
            if run:
                yield run
                run = []
        else:
            run.append(token)
    if run:
        yield run


def _command(run: Sequence[Token], roles: dict[tuple[int, int], _Role]) -> tuple[SimpleCommand | None, list[Redirect]]:
    """Return the simple command of a group, after its leading keywords; None if it has only those."""
    begin = 0
    while begin < len(run) and roles[run[begin].start, run[begin].end] == "structure":
        keyword = run[begin]
        begin += 1
        if keyword.bare and keyword.value in _REFUSED:
            raise Unreadable(f"`{keyword.value}` is not judged")
        # Skipped tokens are not judged, and an assignment would change the commands after it.
        if keyword.assigns:
            raise Unreadable("an assignment where none is expected")
        # The variable of a loop is an assignment: `for PATH in ...` would change which programs are found.
        if (
            keyword.bare
            and keyword.value == "for"
            and not (begin < len(run) and _LOOP_NAME.fullmatch(run[begin].value))
        ):
            raise Unreadable("a loop over a variable that may mean something to a program")
    tokens = run[begin:]
    # A keyword counts only at the start of a command; here the two parsers mean different commands.
    if any(roles[token.start, token.end] == "structure" for token in tokens):
        raise Unreadable("a keyword stands inside a command")
    words: list[Token] = []
    redirects: list[Redirect] = []
    inputs: list[str] = []
    input_count = 0
    descriptor = ""
    at = 0
    while at < len(tokens):
        token = tokens[at]
        following = tokens[at + 1] if at + 1 < len(tokens) else None
        if token.kind == "operator" and (token.value in _REDIRECTS or roles[token.start, token.end] != "test"):
            if following is None or following.kind != "word":
                raise Unreadable("a redirect without a file")
            is_input = int(descriptor) == 0 if descriptor else token.value.startswith("<")
            input_count += is_input
            if token.value.startswith("<<") and not is_input:
                raise Unreadable("a here-document that is not the input")
            descriptor = ""
            if token.value in ("<<", "<<-"):
                inputs.append(token.body or "")
            elif token.value == "<<<":
                inputs.append(following.value)
            else:
                redirects += _redirects(token.value, following)
            at += 2
        elif _is_descriptor(token, following):
            descriptor = token.value
            at += 1
        else:
            words.append(token)
            at += 1
    if inputs and input_count > 1:
        # The last one counts, even if it is a file.
        raise Unreadable("a command with several inputs")
    first = next((index for index, word in enumerate(words) if not word.assigns), len(words))
    assignments, words = words[:first], words[first:]
    _refuse_keywords(words, roles)
    if not words and not assignments:
        return None, redirects
    return SimpleCommand(tuple(assignments), tuple(words), tuple(inputs)), redirects


def _refuse_keywords(words: Sequence[Token], roles: dict[tuple[int, int], _Role]) -> None:
    """Refuse keywords in the position of a program; `time`, a keyword of bash and a program here, may precede one."""
    for word in words:
        if not word.bare or roles[word.start, word.end] == "test":
            return
        if word.value in _KEYWORDS:
            raise Unreadable("a keyword stands where a program should")
        if word.value not in ("time", "-p", "--"):
            return


def _is_descriptor(token: Token, following: Token | None) -> bool:
    return (
        following is not None
        and following.kind == "operator"
        and following.start == token.end
        and token.bare
        and token.value.isascii()
        and token.value.isdigit()
        and not following.value.startswith("&")
    )


def _redirects(operator: str, word: Token) -> Iterator[Redirect]:
    path = word.value
    # After `>&` bash has its own rules for quotes.
    known = UNKNOWN not in path and not word.glob and not word.odd and (word.bare or operator not in _COPIES)
    if known and operator in _COPIES and _DESCRIPTOR.fullmatch(path):
        return
    if known and path in _HARMLESS:
        return
    if operator in _COPIES and path.startswith("-") and path != "-":
        # Bash reads the dash as a word here, and the rest of it as an argument.
        raise Unreadable("a redirect that also holds an argument")
    # For these names bash opens a connection, to which rules for paths do not apply.
    if path.startswith(("/dev/tcp/", "/dev/udp/")):
        raise Unreadable("a redirect to the network")
    if operator in _WRITES:
        yield Redirect("write", path, known)
    if operator in _READS:
        yield Redirect("read", path, known)
