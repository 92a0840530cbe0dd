"""The tool behind `make rules`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import rules
from tools.rules import Mark

DOCUMENT = """
# The rules

## ST: storage

| id | rule |
|---|---|
| ST-1 | Three tables. |
| ST-2 | Nothing else. |

## AC: ACP

| id | rule |
|---|---|
| AC-10 | One id. |
"""


def marks(source: str) -> list[Mark]:
    return list(rules.find_marks("tests/test_x.py", source))


def project(root: Path, test: str) -> Path:
    (root / "tests" / "unit").mkdir(parents=True)
    (root / "tests" / "rules.md").write_text(DOCUMENT)
    (root / "tests" / "unit" / "test_x.py").write_text(test)
    return root


def test_rules_are_the_rows_of_the_tables_in_their_order() -> None:
    """Headings, header rows and separators are not rules."""
    assert rules.read_rules(DOCUMENT) == {
        "ST-1": "Three tables.",
        "ST-2": "Nothing else.",
        "AC-10": "One id.",
    }


def test_a_rule_that_is_there_twice_is_an_error() -> None:
    """Two meanings of one id would hide a rule."""
    with pytest.raises(ValueError, match="duplicate rule ST-1"):
        rules.read_rules(DOCUMENT + "| ST-1 | Four tables. |\n")


def test_a_function_may_have_several_marks_with_several_ids() -> None:
    """Sync and async tests alike; an id named twice counts once."""
    source = """
import pytest

@pytest.mark.rule("ST-1", "ST-2")
@pytest.mark.slow
@pytest.mark.rule("ST-1")
async def test_a(): ...

@pytest.mark.rule("AC-10")
def test_b(): ...

@pytest.mark.rule("AC-10")
def not_a_test(): ...
"""
    assert marks(source) == [
        Mark("ST-1", "tests/test_x.py::test_a"),
        Mark("ST-2", "tests/test_x.py::test_a"),
        Mark("AC-10", "tests/test_x.py::test_b"),
    ]


def test_marks_of_modules_and_classes_count_for_the_tests_inside() -> None:
    """`pytestmark` may be one mark or a list, and a class may have its own."""
    source = """
from pytest import mark

pytestmark = [mark.slow, mark.rule("ST-1")]

@mark.rule("ST-2")
class TestStore:
    pytestmark: object = mark.rule("AC-10")

    def test_a(self): ...
"""
    assert marks(source) == [
        Mark("ST-1", "tests/test_x.py::TestStore::test_a"),
        Mark("ST-2", "tests/test_x.py::TestStore::test_a"),
        Mark("AC-10", "tests/test_x.py::TestStore::test_a"),
    ]


def test_a_marked_class_that_inherits_its_tests_counts_itself() -> None:
    """So does a module whose tests are made at run time."""
    inherited = """
@pytest.mark.rule("ST-1")
class TestSqlite(StoreSuite): ...
"""
    made = """
pytestmark = pytest.mark.rule("ST-2")
TestMachine = Machine.TestCase
"""
    assert marks(inherited) == [Mark("ST-1", "tests/test_x.py::TestSqlite")]
    assert marks(made) == [Mark("ST-2", "tests/test_x.py")]


def test_a_mark_on_one_parameter_counts_for_the_test() -> None:
    """`pytest.param(marks=...)` is found inside the decorator."""
    source = """
@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.rule("ST-2"))])
def test_a(n): ...
"""
    assert marks(source) == [Mark("ST-2", "tests/test_x.py::test_a")]


def test_the_text_shows_each_rule_with_its_tests_and_then_those_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rules without tests are no failure."""
    root = project(tmp_path, '@pytest.mark.rule("ST-2")\ndef test_a(): ...\n')
    assert rules.main(["--root", str(root)]) == 0
    assert capsys.readouterr().out == (
        "ST-1  Three tables.\n"
        "ST-2  Nothing else.\n"
        "    tests/unit/test_x.py::test_a\n"
        "AC-10  One id.\n"
        "\n"
        "1 of 3 rules have a test\n"
        "without a test: ST-1 AC-10\n"
    )


def test_the_json_holds_the_same_and_an_unknown_rule_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An id that is not in the document, or not a literal, is the test's mistake."""
    root = project(
        tmp_path,
        '@pytest.mark.rule("ST-1", "ST-99")\ndef test_a(): ...\n\n@pytest.mark.rule(ID)\ndef test_b(): ...\n',
    )
    assert rules.main(["--json", "--root", str(root)]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "rules": [
            {"id": "ST-1", "rule": "Three tables.", "tests": ["tests/unit/test_x.py::test_a"]},
            {"id": "ST-2", "rule": "Nothing else.", "tests": []},
            {"id": "AC-10", "rule": "One id.", "tests": []},
        ],
        "untested": ["ST-2", "AC-10"],
        "unknown": [{"id": "ST-99", "test": "tests/unit/test_x.py::test_a"}],
        "unreadable": ["tests/unit/test_x.py::test_b"],
    }


def test_the_marks_of_this_project_name_only_rules_that_exist() -> None:
    """The project's own marks and rules fit together."""
    report = rules.build_report(
        rules.read_rules((rules.ROOT / "tests" / "rules.md").read_text(encoding="utf-8")),
        rules.scan(rules.ROOT, ["tests"]),
    )
    assert (report.unknown, report.unreadable) == ([], [])
