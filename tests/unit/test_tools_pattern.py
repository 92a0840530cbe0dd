"""Glob patterns: what fits, what could hold something that fits, and what is refused."""

from __future__ import annotations

import pytest

from clew.errors import ToolFailed
from clew.tools.files.pattern import Glob


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        ("*.py", ["a.py", ".py", ".hidden.py"], ["a/b.py", "a.pyc", "a.PY"]),
        ("**/*.py", ["a.py", "a/b.py", "a/b/c.py"], ["a.txt"]),
        ("src/**", ["src", "src/a", "src/a/b"], ["srcs/a", "a/src"]),
        ("src/**/t?.py", ["src/t1.py", "src/a/b/t2.py"], ["src/t.py", "t1.py"]),
        ("**/a/**/b", ["a/b", "x/a/b", "a/x/y/b", "x/a/y/b"], ["a", "b", "a/b/c"]),
        ("*.{ts,tsx}", ["a.ts", "a.tsx"], ["a.js", "a.{ts,tsx}"]),
        ("{a,b{c,d}}", ["a", "bc", "bd"], ["b", "ac"]),
        ("{x}", ["{x}"], ["x"]),
        ("[ab].txt", ["a.txt", "b.txt"], ["c.txt", "[ab].txt"]),
        ("[!a]", ["b"], ["a"]),
        ("./a/./b", ["a/b"], ["b"]),
        ("a//b", ["a/b"], ["a"]),
        ("**", ["a", "a/b"], []),
        ("**/**/x", ["x", "a/x", "a/b/x"], ["a"]),
        ("new\nline*", ["new\nline!"], ["new"]),
    ],
)
def test_a_pattern_fits_whole_paths(pattern: str, fits: list[str], does_not: list[str]) -> None:
    """Stars stay within a name; two stars are any number of folders; a point is a character like any other."""
    glob = Glob(pattern)
    assert ([path for path in fits + does_not if glob.matches(path)]) == fits


@pytest.mark.parametrize(
    ("pattern", "entered", "not_entered"),
    [
        ("src/*.py", ["src"], ["lib", "src/a"]),
        ("src/**/x", ["src", "src/a", "src/a/b"], ["lib"]),
        ("*.py", [], ["a", "src"]),
        ("**/x", ["a", "a/b"], []),
    ],
)
def test_only_folders_that_could_hold_a_fit_are_entered(
    pattern: str, entered: list[str], not_entered: list[str]
) -> None:
    """So that a narrow pattern does not walk the whole tree."""
    glob = Glob(pattern)
    assert [folder for folder in entered + not_entered if glob.may_hold(folder)] == entered


@pytest.mark.parametrize("pattern", ["", "/etc/*", "../*", "a/../../b", "..", "a\x00", "x" * 1001, "{a,b}" * 7])
def test_a_pattern_that_climbs_or_explodes_is_refused(pattern: str) -> None:
    """Another folder is named by path, where it is judged."""
    with pytest.raises(ToolFailed):
        Glob(pattern)


@pytest.mark.parametrize("pattern", ["*a" * 100 + "b", "**/" * 300 + "b", "[a-z]*" * 150 + "!"])
def test_no_arrangement_of_stars_takes_long(pattern: str) -> None:
    """The watchdog of the test run is the judge."""
    assert not Glob(pattern).matches("/".join(["a" * 200] * 20))
