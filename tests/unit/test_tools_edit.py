"""What an edit makes of a text, decided without touching a file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import ToolFailed
from clew.tools.builtin.edit import EditPlan, plan_edit
from clew.tools.files.change import change_between


@pytest.mark.parametrize(
    ("text", "old", "new", "after"),
    [
        ("one two three", "two", "2", "one 2 three"),
        ("a\nb\nc\n", "b", "B", "a\nB\nc\n"),
        ("a\nb\nc", "c", "C", "a\nb\nC"),
        ("a\nb\n", "b\n", "", "a\n"),
        ("a\nb", "a\n", "", "b"),
        ("a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", "x\r\ny\r\nz\r\nc\r\n"),
        ("a\r\nb\r\nc\r\n", "a\r\nb", "x\r\ny", "x\r\ny\r\nc\r\n"),
        ("a\r\nb\r\n", "b", "b\nc", "a\r\nb\r\nc\r\n"),
        ("a\nb\n", "a\r\nb", "x\r\ny", "x\ny\n"),
        ("a\nb\r\nc\nd\n", "b\nc", "B\nC", "a\nB\r\nC\nd\n"),
        ("a\nb\r\nc\n", "c", "c\nd", "a\nb\r\nc\nd\n"),
        ("a\r\n\r\nb", "a\n\nb", "a\nb", "a\r\nb"),
        ("a\r\nb", "\nb", "\nc", "a\r\nc"),
        ("\ufeffa b", "a", "A", "\ufeffA b"),
        ("a.b a+b", "a+b", "x", "a.b x"),
        (r"a\d b", r"\d", r"\1\g<0>", r"a\1\g<0> b"),
        ("tab\there", "\t", "    ", "tab    here"),
        ("é", "é", "e\u0301", "e\u0301"),
    ],
)
def test_one_passage_is_replaced_and_the_rest_is_kept(text: str, old: str, new: str, after: str) -> None:
    """Line ends stay as the file has them, a missing last one stays missing, nothing is a pattern."""
    assert plan_edit(text, old, new).text == after


@pytest.mark.parametrize(
    ("text", "old", "new", "words"),
    [
        ("abc", "x", "y", "does not occur"),
        ("abc", "ABC", "y", "does not occur"),
        ("abc", " abc", "y", "does not occur"),
        ("", "a", "b", "does not occur"),
        ("a b a", "a", "y", "more than once, on lines 1 and 1"),
        ("a\nb\na\n", "a", "y", "more than once, on lines 1 and 3"),
        ("aaa", "aa", "b", "more than once"),
        ("a\r\na\r\n", "a\n", "b", "more than once, on lines 1 and 2"),
        ("abc", "", "y", "old is empty"),
        ("abc", "b", "b", "nothing to change"),
        ("a\r\nb", "a\nb", "a\r\nb", "nothing to change"),
    ],
)
def test_what_is_missing_ambiguous_or_empty_is_refused(text: str, old: str, new: str, words: str) -> None:
    """Occurrences that overlap are two; the sentence says which lines."""
    with pytest.raises(ToolFailed, match=words):
        plan_edit(text, old, new)


def test_every_occurrence_is_replaced_when_asked() -> None:
    """Each with the line end it had; the lines are those of the new text."""
    edited = plan_edit("a\nb\r\na\nb\nc", "a\nb", "x\ny", every=True)
    assert edited == EditPlan("x\ny\r\nx\ny\nc", (1, 3))
    assert plan_edit("aaa", "aa", "b", every=True) == EditPlan("ba", (1,))
    assert plan_edit("a a\na", "a", "a\na", every=True).lines == (1, 2, 4)


LINES = st.lists(st.tuples(st.text("ab ", max_size=4), st.sampled_from(["\n", "\r\n"])), max_size=8)


@given(before=LINES, after=LINES, new=st.text("xy\n", max_size=6))
def test_what_stands_around_the_passage_is_kept_to_the_byte(before: list, after: list, new: str) -> None:
    """With any mix of line ends on both sides."""
    head = "".join(line + end for line, end in before)
    tail = "".join(line + end for line, end in after)
    edited = plan_edit(f"{head}<<old>>{tail}", "<<old>>", new).text
    assert edited.startswith(head)
    assert edited.endswith(tail)
    assert edited[len(head) : len(edited) - len(tail)].replace("\r\n", "\n") == new


def test_a_passage_that_would_fill_the_memory_is_refused_before_anybody_is_asked() -> None:
    """What an edit would make of a file is shown with the request."""
    with pytest.raises(ToolFailed, match="would have more than"):
        plan_edit("a" * 100_000, "a", "b" * 1_000_000, every=True)


def test_lines_that_take_long_to_compare_are_not_compared() -> None:
    """Many lines, each of them there many times; those of a usual file are."""
    many = [f"{n % 150}" for n in range(90_000)]
    assert change_between("\n".join(many), "\n".join(reversed(many))) is None
    usual = [f"line {n}\n\n" for n in range(8_000)]
    change = change_between("".join(usual), "".join(usual[:-1]))
    assert change is not None
    assert (change.added, change.removed) == (0, 2)
