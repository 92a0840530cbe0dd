"""Finds banned words in clew's code and suggests replacements.

``python tools/words.py [PATH...]`` checks files and folders, by default all of clew's own code. Plain technical English
has a better term for each of these words; CONTRIBUTING.md says how to write.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
CHECKED: Final = ("src/clew", "bench", "tools", "tests/rig", "tests/services", "web/src", "web/client/src")

TEXT: Final = {
    "whoever": "name the actor: the client, the caller, the process",
    "nobody": "no client, no process, or the passive",
    "somebody": "name the actor: a person, another process",
    "everybody": "every client, all processes",
    "anew": "again",
    "in its time": "before the deadline",
    "on the spot": "immediately",
    "for good": "permanently",
    "all the same": "still",
    "goes by": "follows, depends on",
    "comes to": "equals, results in",
}
"""Words banned from docstrings, comments and strings."""
IDENTIFIERS: Final = {
    "told": "sent, announced, reported",
    "kept": "cached, stored, preserved",
    "nobody": "no_one is rarely a value: none, unowned",
    "whoever": "the actor",
    "somebody": "the actor",
    "anew": "again, renewed",
    "beside": "alongside, sibling",
    "most": "max",
    "usual": "default",
    "harmed": "damaged",
    "mend": "repair",
    "clues": "hints",
    "figures": "metrics, counts",
    "outset": "start",
    "went": "name the event: resumed, moved",
    "came": "name the event: arrived, origin",
}
"""Words banned from names that are assigned or defined."""
SCRIPT_IDENTIFIERS: Final = IDENTIFIERS | {
    "gist": "summary",
    "handed": "detached, sent",
    "look": "tone, style, class",
    "looks": "tones, styles, classes",
    "sought": "requested, target",
    "unbegun": "draft",
    "wanted": "requested, expected",
    "whose": "owner",
}
"""The same for TypeScript."""
FIRST_WORDS: Final = {
    "What": "begin with a verb (functions) or a noun (classes)",
    "Whoever": "begin with a verb or a noun",
    "Nobody": "begin with a verb or a noun",
    "Somebody": "begin with a verb or a noun",
    "Who": "begin with a verb or a noun",
    "How": "begin with a verb or a noun",
    "Where": "begin with a verb or a noun",
}
"""Words banned as the first word of a docstring or documentation comment."""
_TEXT_PATTERN: Final = re.compile(r"\b(" + "|".join(map(re.escape, TEXT)) + r")\b", re.IGNORECASE)
_NAME_PART: Final = r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])"
_SQL_TEXT: Final = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_SCRIPT_COMMENT: Final = re.compile(r"/\*.*?\*/|(?<![:'\"/])//[^\n]*", re.DOTALL)
_SCRIPT_STRING: Final = re.compile(r"'(?:\\.|[^'\\\n])*'|\"[^\"\n]*\"")
_SCRIPT_FIRST_WORD: Final = re.compile(r"/\*\*[\s*]*(\w+)")
_SCRIPT_NAME: Final = re.compile(
    r"\b(?:const|let|function\*?|class|type|interface)\s+([A-Za-z_$][\w$]*)"  # a declaration
    r"|(?<![\w$?.])([A-Za-z_$][\w$]*)\??:(?=\s)"  # a property, or a parameter with a type
    r"|(?<![\w$.])([A-Za-z_$][\w$]*)\s*=>"  # the parameter of a function
)
_SCRIPT_NAMES: Final = re.compile(r"\b(?:const|let)\s+[\[{]([^=;]*?)[\]}]\s*=|\(([\w$,\s]+)\)\s*=>")
"""Several names at once: destructured, or the parameters of a function."""
_API: Final = ROOT / "web" / "client" / "schema.d.ts"


class Finding(NamedTuple):
    path: Path
    line: int
    word: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word!r}; write instead: {self.instead}"


def find_words(paths: Iterator[Path]) -> list[Finding]:
    """Return the findings in these Python, TypeScript and SQL files, in order."""
    found: list[Finding] = []
    for path in paths:
        source = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            found += _in_python(path, source)
        else:
            found += _in_script(path, source)
    return sorted(found)


def checked_files(*places: str) -> Iterator[Path]:
    """Yield the files below the places, without builds and this module, which contains the words."""
    for place in places or CHECKED:
        at = ROOT / place
        for path in [at] if at.is_file() else sorted(at.rglob("*")):
            built = {"dist", "node_modules", "__pycache__"}.intersection(path.parts)
            if path.suffix in (".py", ".ts", ".tsx", ".sql") and not built and path != Path(__file__).resolve():
                yield path


def _in_python(path: Path, source: str) -> Iterator[Finding]:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for name in _names(node):
            for part in re.findall(_NAME_PART, name):
                if instead := IDENTIFIERS.get(part.lower()):
                    yield Finding(path, getattr(node, "lineno", 1), name, instead)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = re.match(r"\w+", ast.get_docstring(node) or "")
            if first and (instead := FIRST_WORDS.get(first[0])):
                yield Finding(path, getattr(node, "lineno", 1), first[0], instead)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            for match in _TEXT_PATTERN.finditer(token.string):
                if token.string == f'"{match[0]}"':
                    continue  # a value, not a text
                line = token.start[0] + token.string.count("\n", 0, match.start())
                yield Finding(path, line, match[0], TEXT[match[0].lower()])


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node defines or assigns, except those of tests, which are sentences."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            if not name.startswith("test_"):
                yield name
        case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield name


def _in_script(path: Path, source: str) -> Iterator[Finding]:
    if path.suffix == ".sql":
        for piece in _SQL_TEXT.finditer(source):
            yield from _in_text(path, source, piece.start(), piece[0])
        return
    yield from _in_text(path, source, 0, source)
    for comment in _SCRIPT_FIRST_WORD.finditer(source):
        if instead := FIRST_WORDS.get(comment[1]):
            yield Finding(path, _line(source, comment.start()), comment[1], instead)
    # Of the same length, so that positions stay valid.
    code = _SCRIPT_COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), source)
    code = _SCRIPT_STRING.sub(lambda found: " " * len(found[0]), code)
    for position, name, is_property in _script_names(code):
        for part in re.findall(_NAME_PART, name):
            instead = SCRIPT_IDENTIFIERS.get(part.lower())
            if instead and not (is_property and name in _api_names()):
                yield Finding(path, _line(source, position), name, instead)


def _script_names(code: str) -> Iterator[tuple[int, str, bool]]:
    """Yield each name that TypeScript code defines, found without a parser: position, name, may be a property."""
    for found in _SCRIPT_NAME.finditer(code):
        yield found.start(), next(filter(None, found.groups())), found[2] is not None
    for found in _SCRIPT_NAMES.finditer(code):
        for name in re.findall(r"[A-Za-z_$][\w$]*", found[1] or found[2]):
            yield found.start(), name, True


@functools.cache
def _api_names() -> frozenset[str]:
    """Return the names of the API, which the page cannot change."""
    return frozenset(re.findall(r"\w+", _SCRIPT_COMMENT.sub("", _API.read_text(encoding="utf-8"))))


def _in_text(path: Path, source: str, start: int, text: str) -> Iterator[Finding]:
    for match in _TEXT_PATTERN.finditer(text):
        yield Finding(path, _line(source, start + match.start()), match[0], TEXT[match[0].lower()])


def _line(source: str, position: int) -> int:
    return 1 + source.count("\n", 0, position)


if __name__ == "__main__":
    findings = find_words(checked_files(*sys.argv[1:]))
    print("\n".join(f"{finding._replace(path=finding.path.relative_to(ROOT))}" for finding in findings))
    print(f"{len(findings)} found")
    sys.exit(bool(findings))
