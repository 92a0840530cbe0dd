"""Finds words that clew's code does not use, and says what to write instead.

``python tools/words.py [PATH...]`` checks files and folders, all of clew's own code unless some are named. These are
words for which plain technical English has a better term; CONTRIBUTING.md says how to write.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
CHECKED: Final = ("src/clew", "bench", "tools", "tests/rig", "web/src", "web/client/src")

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
"""Not in docstrings, comments or texts."""
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
"""Not a part of a name that is assigned or defined."""
FIRST_WORDS: Final = {
    "What": "begin with a verb (functions) or a noun (classes)",
    "Whoever": "begin with a verb or a noun",
    "Nobody": "begin with a verb or a noun",
    "Somebody": "begin with a verb or a noun",
    "Who": "begin with a verb or a noun",
    "How": "begin with a verb or a noun",
    "Where": "begin with a verb or a noun",
}
"""Not the first word of a docstring."""
_TEXT_PATTERN: Final = re.compile(r"\b(" + "|".join(map(re.escape, TEXT)) + r")\b", re.IGNORECASE)
_SCRIPT_TEXT: Final = re.compile(r"/\*.*?\*/|//[^\n]*|\"[^\"\n]*\"|`[^`]*`", re.DOTALL)


class Finding(NamedTuple):
    path: Path
    line: int
    word: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word!r}; write instead: {self.instead}"


def find_words(paths: Iterator[Path]) -> list[Finding]:
    """Return what is found in these Python, TypeScript and SQL files, in order."""
    found: list[Finding] = []
    for path in paths:
        source = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            found += _in_python(path, source)
        else:
            found += _in_script(path, source)
    return sorted(found)


def checked_files(*places: str) -> Iterator[Path]:
    """Yield the files below the places, without builds and this module, which has to name the words."""
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
            for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name):
                if instead := IDENTIFIERS.get(part.lower()):
                    yield Finding(path, getattr(node, "lineno", 1), name, instead)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = re.match(r"\w+", ast.get_docstring(node) or "")
            if first and (instead := FIRST_WORDS.get(first[0])):
                yield Finding(path, getattr(node, "lineno", 1), first[0], instead)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            for match in _TEXT_PATTERN.finditer(token.string):
                line = token.start[0] + token.string.count("\n", 0, match.start())
                yield Finding(path, line, match[0], TEXT[match[0].lower()])


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node defines or assigns, but for tests, whose names are sentences."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            if not name.startswith("test_"):
                yield name
        case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield name


def _in_script(path: Path, source: str) -> Iterator[Finding]:
    text = _SCRIPT_TEXT if path.suffix in (".ts", ".tsx") else re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
    for piece in text.finditer(source):
        for match in _TEXT_PATTERN.finditer(piece[0]):
            line = 1 + source.count("\n", 0, piece.start() + match.start())
            yield Finding(path, line, match[0], TEXT[match[0].lower()])


if __name__ == "__main__":
    findings = find_words(checked_files(*sys.argv[1:]))
    print("\n".join(f"{finding._replace(path=finding.path.relative_to(ROOT))}" for finding in findings))
    print(f"{len(findings)} found")
    sys.exit(bool(findings))
