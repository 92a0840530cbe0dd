"""Failpoints: nothing unless armed, and then exactly what was asked for, once."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator

import pytest

from clew import failpoints
from clew.failpoints import FailpointRaised, arm, disarm, failpoint

PASS_THREE = "from clew.failpoints import failpoint\nfor n in range(3): print(n, flush=True); failpoint('here')"


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    """No test leaves a point armed for the next."""
    disarm()
    yield
    disarm()


def passages(name: str, count: int) -> list[int]:
    """Which of so many passages raised, counted from one."""
    raised = []
    for number in range(1, count + 1):
        try:
            failpoint(name)
        except FailpointRaised:
            raised.append(number)
    return raised


def test_a_point_that_is_not_armed_does_nothing() -> None:
    """Neither when none is, nor when another is."""
    failpoint("a")
    arm("b=raise")
    failpoint("a")


@pytest.mark.parametrize(
    ("spec", "raised"),
    [("a=raise", [1]), ("a", [1]), ("a=", [1]), ("a=raise@1", [1]), ("a=raise@3", [3]), ("a=@2", [2]), ("a@3", [])],
)
def test_a_point_fires_at_the_passage_that_was_named_and_only_there(spec: str, raised: list[int]) -> None:
    """The first without a number. A number without an action belongs to the name."""
    arm(spec)
    assert passages("a", 5) == raised


def test_an_error_names_its_point() -> None:
    """So that a test can tell two apart."""
    arm("a=raise, b=raise")
    with pytest.raises(FailpointRaised, match=r"^b$"):
        failpoint("b")
    with pytest.raises(FailpointRaised, match=r"^a$"):
        failpoint("a")


def test_points_are_counted_each_for_itself() -> None:
    """Blanks and empty pieces are no matter."""
    arm(" a=raise@2 ,, b=raise@1, ")
    assert (passages("b", 3), passages("a", 3)) == ([1], [2])


def test_arming_again_forgets_what_was_armed_and_what_was_passed() -> None:
    """And disarming forgets all."""
    arm("a=raise@2,b=raise")
    failpoint("a")
    arm("a=raise@2")
    assert (passages("a", 3), passages("b", 3)) == ([2], [])
    arm("a=raise")
    disarm()
    assert passages("a", 3) == []


@pytest.mark.parametrize("spec", ["a=kil", "a=Raise", "a=sleep", "a=full@x", "ok=raise,a=die@2"])
def test_a_misspelt_spec_is_an_error_and_arms_nothing(spec: str) -> None:
    """A point that never fires would let its test pass for nothing."""
    arm("before=raise")
    with pytest.raises(ValueError, match=r"failpoint|invalid literal"):
        arm(spec)
    assert (passages("before", 1), passages("ok", 1)) == ([1], [])


def test_a_full_disk_looks_as_sqlite_says_it() -> None:
    """The error code is what the store goes by."""
    arm("a=full")
    with pytest.raises(sqlite3.OperationalError, match=r"^database or disk is full$") as full:
        failpoint("a")
    assert full.value.sqlite_errorcode == sqlite3.SQLITE_FULL


def test_a_pause_is_in_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds up the thread that passes, and nothing is raised."""
    slept: list[float] = []
    monkeypatch.setattr("clew.failpoints.time.sleep", slept.append)
    arm("a=sleep:250@2")
    for _ in range(3):
        failpoint("a")
    assert slept == [0.25]


@pytest.mark.slow
def test_a_kill_is_a_kill_at_the_passage_that_was_named() -> None:
    """In a process of its own, armed by its environment; nothing after it runs."""
    environment = {**os.environ, "CLEW_FAILPOINTS": "here=kill@2"}
    killed = subprocess.run([sys.executable, "-c", PASS_THREE], env=environment, capture_output=True, check=False)
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, b"0\n1\n")


@pytest.mark.slow
def test_without_the_variable_a_process_runs_through() -> None:
    """As every process of a user does."""
    environment = {name: value for name, value in os.environ.items() if name != "CLEW_FAILPOINTS"}
    ran = subprocess.run([sys.executable, "-c", PASS_THREE], env=environment, capture_output=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, b"0\n1\n2\n")


def test_a_point_disarmed_by_another_thread_in_the_very_moment_does_not_fire(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look without the lock and the one with it."""
    arm("a=raise")

    class Late:
        def __enter__(self) -> None:
            failpoints._armed.clear()

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(failpoints, "_lock", Late())
    failpoint("a")
