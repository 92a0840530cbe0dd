"""Runs tests on a Python without POSIX: ``pytest -p tests.rig.no_posix_plugin``.

Programs that a test starts run on the whole Python. A test that meets what is off on Windows is skipped.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

import pytest

from tests.rig.no_posix import hide

__all__ = ["POSIX_TESTS", "pytest_collection_modifyitems", "pytest_load_initial_conftests", "pytest_runtest_makereport"]


POSIX_TESTS: Final = {
    "tests/unit/test_tools_paths.py::": "the tools of files",
    "test_system_prompt_environment.py::test_a_commit_checked_out": "git",
    "test_system_prompt_environment.py::test_a_git_that": "git",
    "test_system_prompt_environment.py::test_a_repository_with_filters": "git",
    "test_system_prompt_environment.py::test_a_working_copy": "git",
    "test_system_prompt_environment.py::test_filters_of_the_user": "git",
    "test_system_prompt_environment.py::test_git_is_started": "git",
    "test_system_prompt_environment.py::test_no_program_that_the_repository_names": "git",
    "test_safe_read.py::test_a_link_swapped_in": "folders that are opened one below another",
    "test_safe_read.py::test_only_text_in_regular_files": "named pipes",
    "test_agents_catalog.py::test_a_broken_manifest": "named pipes",
    "test_system_prompt_instructions.py::test_files_that_are_no_text": "named pipes",
    "test_ids.py::test_a_process_and_its_fork": "fork",
}
"""Tests of what Windows does not have, by the beginning of their names."""


def pytest_load_initial_conftests() -> None:
    """Hide POSIX before any module of clew is imported."""
    hide()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests of what Windows does not have."""
    for item in items:
        for name, what in POSIX_TESTS.items():
            if name in item.nodeid:
                item.add_marker(pytest.mark.skip(reason=f"{what}: off on Windows"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Report a test as skipped if it fails with an error that says what is off."""
    report = yield
    if call.excinfo is not None and "off on Windows" in str(call.excinfo.value):
        path, line, _ = item.reportinfo()
        report.outcome, report.longrepr = "skipped", (str(path), line or 0, str(call.excinfo.value))
    return report
