"""Lists the tests of each rule.

Reads the rules from tests/rules.md and the marks `@pytest.mark.rule("ST-1", ...)` from the source of the tests, without
importing it. Prints every rule with its tests, then the rules without tests. Exits with 1 if a mark names an unknown
rule or cannot be read.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

FOLDERS = ["tests", "src/clew/testing/store_suite"]
ROOT = Path(__file__).resolve().parent.parent
ROW = re.compile(r"^\|\s*([A-Z]{2}-[0-9]+)\s*\|\s*(.*?)\s*\|\s*$")


@dataclass(frozen=True)
class Mark:
    """A rule named by a test; `rule` is None if the mark is not a literal string."""

    rule: str | None
    test: str


@dataclass
class Report:
    """The rules in the order of the document, each with its tests."""

    rules: dict[str, str]
    tests: dict[str, list[str]]
    unknown: list[Mark] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    @property
    def untested(self) -> list[str]:
        return [rule for rule in self.rules if not self.tests[rule]]

    @property
    def ok(self) -> bool:
        return not self.unknown and not self.unreadable


def read_rules(text: str) -> dict[str, str]:
    """Read the rows `| ST-1 | one line |` of a Markdown text. A repeated id is an error."""
    rules: dict[str, str] = {}
    for line in text.splitlines():
        if row := ROW.match(line):
            rule, sentence = row.groups()
            if rule in rules:
                raise ValueError(f"duplicate rule {rule}")
            rules[rule] = sentence
    return rules


def find_marks(path: str, source: str) -> Iterator[Mark]:
    """Yield the marks of a file. A mark on a module or class counts for each test in it, or for the module or class
    itself if its tests are inherited or generated."""
    module = ast.parse(source, filename=path)
    yield from _marks_in(module.body, path, [])


def _marks_in(body: Sequence[ast.stmt], name: str, outer: list[str | None]) -> Iterator[Mark]:
    marks = [*outer, *_ids(value for statement in body if (value := _pytestmark(statement)))]
    found_test = False
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if statement.name.startswith("test"):
                found_test = True
                for rule in _unique([*marks, *_ids(statement.decorator_list)]):
                    yield Mark(rule, f"{name}::{statement.name}")
            case ast.ClassDef() if statement.name.startswith("Test"):
                found_test = True
                inherited = [*marks, *_ids(statement.decorator_list)]
                yield from _marks_in(statement.body, f"{name}::{statement.name}", inherited)
            case _:
                pass
    if not found_test:
        for rule in _unique(marks):
            yield Mark(rule, name)


def _pytestmark(statement: ast.stmt) -> ast.expr | None:
    match statement:
        case ast.Assign(targets=[ast.Name(id="pytestmark")], value=value):
            return value
        case ast.AnnAssign(target=ast.Name(id="pytestmark"), value=value):
            return value
        case _:
            return None


def _ids(expressions: Iterable[ast.expr]) -> list[str | None]:
    """Return the ids of all marks within the expressions, including those of `pytest.param(marks=...)`."""
    ids: list[str | None] = []
    for expression in expressions:
        for node in ast.walk(expression):
            match node:
                case ast.Call(func=ast.Attribute(attr="rule", value=owner), args=args) if _is_mark(owner):
                    ids += [_literal(argument) for argument in args] or [None]
                case _:
                    pass
    return ids


def _is_mark(owner: ast.expr) -> bool:
    match owner:
        case ast.Name(id="mark") | ast.Attribute(attr="mark"):
            return True
        case _:
            return False


def _literal(argument: ast.expr) -> str | None:
    match argument:
        case ast.Constant(value=str() as text):
            return text
        case _:
            return None


def _unique(ids: Iterable[str | None]) -> list[str | None]:
    return list(dict.fromkeys(ids))


def build_report(rules: dict[str, str], marks: Iterable[Mark]) -> Report:
    report = Report(rules, {rule: [] for rule in rules})
    for mark in marks:
        if mark.rule is None:
            report.unreadable.append(mark.test)
        elif mark.rule in rules:
            report.tests[mark.rule].append(mark.test)
        else:
            report.unknown.append(mark)
    return report


def scan(root: Path, folders: Sequence[str]) -> Iterator[Mark]:
    """Yield the marks of all Python files in the folders, which are relative to the root."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            relative = path.relative_to(root)
            if "node_modules" not in relative.parts:
                yield from find_marks(relative.as_posix(), path.read_text(encoding="utf-8"))


def as_text(report: Report) -> str:
    lines: list[str] = []
    for rule, sentence in report.rules.items():
        lines.append(f"{rule}  {sentence}")
        lines += [f"    {test}" for test in report.tests[rule]]
    lines.append("")
    lines += [f"unknown rule {mark.rule} in {mark.test}" for mark in report.unknown]
    lines += [f"rule mark without literal ids in {test}" for test in report.unreadable]
    proven = len(report.rules) - len(report.untested)
    lines.append(f"{proven} of {len(report.rules)} rules have a test")
    if report.untested:
        lines.append("without a test: " + " ".join(report.untested))
    return "\n".join(lines)


def as_json(report: Report) -> str:
    value = {
        "rules": [
            {"id": rule, "rule": sentence, "tests": report.tests[rule]} for rule, sentence in report.rules.items()
        ],
        "untested": report.untested,
        "unknown": [{"id": mark.rule, "test": mark.test} for mark in report.unknown],
        "unreadable": report.unreadable,
    }
    return json.dumps(value, indent=2, ensure_ascii=False)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="rules", description="List the tests of each rule.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--root", type=Path, default=ROOT, help="the project's folder")
    parser.add_argument("folders", nargs="*", default=FOLDERS, help=f"folders of tests ({' '.join(FOLDERS)})")
    options = parser.parse_args(arguments)

    rules = read_rules((options.root / "tests" / "rules.md").read_text(encoding="utf-8"))
    report = build_report(rules, scan(options.root, options.folders))
    print(as_json(report) if options.json else as_text(report))
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
