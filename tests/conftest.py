"""What every suite shares: the async backend, hypothesis profiles, and the table of suites at the end."""

from __future__ import annotations

import gc
import os
import tempfile
from collections import defaultdict

import pytest
from hypothesis import HealthCheck, settings

from tests.rounds import rounds
from tests.services.fixtures import *  # noqa: F403

# "ci" draws the same examples every time; "dev" draws new ones and remembers failures.
settings.register_profile(
    "ci",
    max_examples=rounds(100),
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("dev", max_examples=rounds(100), deadline=None, print_blob=True)
settings.load_profile(os.environ.get("CLEW_HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "dev"))

# Tests ask for whatever there is, and some of it is kept in the folder of settings: never in that of who runs them.
_SETTINGS = tempfile.TemporaryDirectory(prefix="clew-settings-", ignore_cleanup_errors=True)
os.environ["XDG_CONFIG_HOME"] = _SETTINGS.name


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio, the only backend clew supports."""
    return "asyncio"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever speaks over a provider's wire is slow: each worker would import the libraries, seconds of them."""
    for item in items:
        if isinstance(item, pytest.Function) and "wire" in item.fixturenames:
            item.add_marker("slow")


def pytest_collection_finish() -> None:
    """Thousands of tests stay in memory to the end of the run; the garbage collector need not go through them again."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line per suite, then the figures that tests reported."""
    seconds: defaultdict[str, float] = defaultdict(float)
    tests: defaultdict[str, set[str]] = defaultdict(set)
    figures: list[str] = []
    unseen: list[str] = []
    for reports in terminalreporter.stats.values():
        for report in reports:
            if not isinstance(report, pytest.TestReport):
                continue
            suite = _suite_of(report.nodeid)
            seconds[suite] += report.duration
            tests[suite].add(report.nodeid)
            if suite == "browser" and report.skipped:
                unseen.append(str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr))
            if report.when == "call":
                figures += [str(value) for name, value in report.user_properties if name == "figure"]
    if not tests:
        return
    terminalreporter.section("suites (seconds added up over all workers)")
    terminalreporter.write_line(f"{'suite':<16}{'tests':>8}{'seconds':>10}")
    for suite in sorted(tests):
        terminalreporter.write_line(f"{suite:<16}{len(tests[suite]):>8}{seconds[suite]:>10.1f}")
    if unseen:
        # A skip that nobody reads would pass for a test.
        terminalreporter.section("BROWSER TESTS SKIPPED", red=True, bold=True)
        for reason in sorted(set(unseen)):
            terminalreporter.write_line(f"{unseen.count(reason)} tests: {reason}", red=True, bold=True)
    if figures:
        terminalreporter.section("figures")
        for figure in sorted(figures):
            terminalreporter.write_line(figure)


def _suite_of(nodeid: str) -> str:
    parts = nodeid.split("::")[0].split("/")
    return parts[1] if len(parts) > 2 else "tests"
