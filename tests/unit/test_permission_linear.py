"""Reading a line, and holding rules against it, takes time in proportion to the line (PM-8).

No time is asserted, only how it grows: four times the line may take nine times as long, where a square takes sixteen.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from clew.permissions.evaluate import evaluate
from clew.permissions.shell.commands import take_apart
from clew.permissions.shell.tokens import MAX_LINE_CHARS, Unreadable
from clew.transcript.rule import Rule, Target

SHORT, LONG = 3_000, 12_000
# What a line is made of, and what it begins with. The first ones were read in time that grew with the square.
SHAPES = [
    ("", "{"),
    ("ls ", "{a}"),
    ("", "a{b"),
    ("a[", "]"),
    ("a[", "$x"),
    ("", "a[=~"),
    ("a[", "a=~:~"),
    ("ls ", "=~{, "),
    ("", "( "),
    ("", "$("),
    ("", "if "),
    ("", "<<A "),
    ("", "ls|"),
    ("ls ", "a "),
    ("", "[[ "),
    ("", "case x in "),
    ("", "`a` "),
    ("ls ", "\\a"),
    ("ls ", "*"),
    ("", "<a "),
    ("", "f() "),
    ("", "{a,"),
    ("ls ", '"$x"'),
    ("", "x=1 "),
    ("ls ", "$(a) "),
    ("", "a <<A\nb\nA\n"),
    ("git log ", "-p "),
    ("git log ", "--outp=f "),
    ("find . ", "-exec a {} \\; "),
    ("sed '", "s/a/b/;"),
    ("awk '", "print;"),
]


def cpu(work: Callable[[], object]) -> float:
    """Processor time of the quicker of two tries."""
    tries = []
    gc.disable()
    try:
        for _ in range(2):
            begin = time.process_time()
            with suppress(Unreadable):
                work()
            tries.append(time.process_time() - begin)
    finally:
        gc.enable()
    return min(tries)


def growth(work: Callable[[str], object], begin: str, piece: str, end: str = "") -> float:
    short, long = (begin + piece * (size // len(piece)) + end for size in (SHORT, LONG))
    # What is over at once is not measured: a clock's step would decide.
    return (cpu(lambda: work(long)) + 0.001) / (cpu(lambda: work(short)) + 0.001)


@pytest.mark.slow
@pytest.mark.rule("PM-8")
def test_reading_a_line_takes_time_in_proportion_to_it(record_property: Callable[[str, object], None]) -> None:
    """Whatever the line is made of: 29,500 braces once took seconds, eight calls of them froze a server."""
    grown = {
        f"{begin}{piece}": growth(take_apart, begin, piece, "'" if begin.endswith("'") else "")
        for begin, piece in SHAPES
    }
    assert {shape: round(factor, 1) for shape, factor in grown.items() if factor > 9} == {}
    worst = max(grown.values())
    record_property("figure", f"reading a line four times as long: at most {worst:.1f} times the time")


@pytest.mark.rule("PM-8")
@pytest.mark.parametrize("line", ["rm ", "a,", "\\a\n", "'a' "])
def test_holding_rules_against_a_line_takes_time_in_proportion_to_it(line: str) -> None:
    """Also against one that could not be read, in which a denial is looked for at every word."""
    rules = [Rule("bash", pattern, "deny") for pattern in ("rm *x", "a,b*c", "* y *", "zz*")]

    def work(text: str) -> object:
        return evaluate([Target("bash", "command", text)], session=rules, workspace="/w")

    assert growth(work, "ls '", line) < 9


@pytest.mark.rule("PM-8")
def test_the_longest_lines_are_still_read_to_their_end() -> None:
    """A limit on words is not what makes it quick: a line of the largest size with one long word is read."""
    line = "cat '" + "x" * (MAX_LINE_CHARS - 6) + "'"
    assert [len(command.text) for command in take_apart(line).commands] == [MAX_LINE_CHARS - 2]
