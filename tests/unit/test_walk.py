"""The tool that counts what an operation takes, and its table in the documentation."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import CodeType

import pytest

from tests.unit.pages import DOCS
from tools.walk import MARKED, MAX_FIRST_BYTE_MODULES, PACKAGE, WALKS, Trace, measure, package_of, visits


def code(file: str, name: str) -> CodeType:
    """Return the code of a function that is said to be in a file of the package."""
    return compile("0", str(PACKAGE / file), "eval").replace(co_name=name)


def test_a_trace_is_counted() -> None:
    """A module is visited again when another one was called in between; a package switch needs another package."""
    trace = Trace()
    trace.calls += [
        code("session/turn/run.py", "execute"),
        code("session/turn/run.py", "settle"),
        code("session/turn/loop.py", "run"),
        code("session/context/compact.py", "prune"),
        code("ids.py", "mint"),
        code("session/turn/run.py", "execute"),
    ]
    assert list(visits(trace)) == [
        "session/turn/run.py:1 execute (+1)",
        "session/turn/loop.py:1 run (+0)",
        "session/context/compact.py:1 prune (+0)",
        "ids.py:1 mint (+0)",
    ]
    assert (len(trace.modules), trace.functions, trace.package_switches) == (4, 5, 3)


def test_each_folder_of_the_session_is_a_package() -> None:
    """Its own modules are in the package above them."""
    files = ["session/turn/run.py", "session/turn/__init__.py", "session/runtime.py", "store/sql/apply.py", "ids.py"]
    packages = ["session/turn", "session/turn", "session", "store", "ids"]
    assert [package_of(str(PACKAGE / file)) for file in files] == packages


@pytest.mark.slow
def test_the_way_to_the_first_byte_stays_within_its_guide(record_property: Callable[[str, object], None]) -> None:
    """It begins in the HTTP front and passes the store; a longer way needs a reason and another guide."""
    trace = measure("first-byte")
    found = list(visits(trace))
    # The store's writer may still be ending the execution before.
    assert next(visit for visit in found if visit.startswith("fronts/")).startswith("fronts/http/problem.py:")
    assert {"session", "store", "live"} <= {visit.split("/")[0] for visit in found}
    assert len(trace.modules) <= MAX_FIRST_BYTE_MODULES
    record_property("figure", f"first byte: {len(trace.modules)} modules")


@pytest.mark.slow
def test_a_branch_is_traced_without_its_preparation() -> None:
    """The conversation before it belongs to no walk, nor does importing: the second execution is measured."""
    found = list(visits(measure("branch")))
    first = next(visit for visit in found if visit.startswith("session/"))
    assert first.startswith("session/api/history.py:")
    assert " branch (" in first
    assert [visit for visit in found if "session/turn/loop.py" in visit or "<module>" in visit] == []


def test_every_walk_is_in_the_table_of_the_design() -> None:
    """`make walk` writes it between the markers."""
    [(_, table, _)] = MARKED.findall((DOCS / "design.md").read_text(encoding="utf-8"))
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*?) \| \d+ \| [\d,]+ \| [\d,]+ \|$", table, re.MULTILINE)
    assert rows == [(name, description) for name, (description, _) in WALKS.items()]
    assert re.search(r"`clew ls` loads \d+ of the \d+ modules", table)
