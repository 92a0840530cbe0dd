"""Runs tests on a Python without POSIX: ``pytest -p tests.rig.no_posix_plugin``.

Programs that a test starts run on the whole Python. A test that meets what is off on Windows is skipped.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from tests.rig.no_posix import hide

__all__ = ["pytest_load_initial_conftests", "pytest_runtest_makereport"]


def pytest_load_initial_conftests() -> None:
    """Hide POSIX before any module of clew is imported."""
    hide()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Report a test as skipped if it fails with an error that says what is off."""
    report = yield
    if call.excinfo is not None and "off on Windows" in str(call.excinfo.value):
        path, line, _ = item.reportinfo()
        report.outcome, report.longrepr = "skipped", (str(path), line or 0, str(call.excinfo.value))
    return report
