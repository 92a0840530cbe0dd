"""Front matter: a small part of YAML, read strictly, with errors that name the line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.agents.front_matter import Field, FrontMatter, Scalar, parse_front_matter
from clew.errors import InvalidInput

PATH = "agents/tidy.md"


def refusal(text: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        parse_front_matter(text, PATH)
    return str(caught.value)


def head(*lines: str) -> str:
    return "\n".join(["---", *lines, "---", "Body."])


def test_texts_lists_and_maps_are_read_with_their_lines() -> None:
    """Everything the grammar has, once."""
    text = head(
        "# what it is",
        "name: tidy   # a comment",
        "",
        'description: "says #1: \\"hello\\""',
        "note: 'it''s'",
        'tools: [read, "ls", ]  # two',
        "none: []",
        "more:",
        "  - one",
        '  - "two: 2"',
        "rules:",
        "- permission: write",
        '  pattern: "a #b"',
        "- permission: bash   # all of it",
        "  pattern: '*'",
    )
    assert parse_front_matter(text, PATH) == FrontMatter(
        {
            "name": Field(3, Scalar("tidy", 3)),
            "description": Field(5, Scalar('says #1: "hello"', 5)),
            "note": Field(6, Scalar("it's", 6)),
            "tools": Field(7, (Scalar("read", 7), Scalar("ls", 7))),
            "none": Field(8, ()),
            "more": Field(9, (Scalar("one", 10), Scalar("two: 2", 11))),
            "rules": Field(
                12,
                (
                    {"permission": Scalar("write", 13), "pattern": Scalar("a #b", 14)},
                    {"permission": Scalar("bash", 15), "pattern": Scalar("*", 16)},
                ),
            ),
        },
        "Body.",
    )


def test_words_stay_words() -> None:
    """Whether `no`, `1.0` or `null` is a flag, a number or nothing is for the field to say."""
    fields = parse_front_matter(head("a: no", "b: 1.0", "c: null", "d: 0x10", "e: 2026-01-01"), PATH).fields
    assert [field.value for field in fields.values()] == [
        Scalar("no", 2),
        Scalar("1.0", 3),
        Scalar("null", 4),
        Scalar("0x10", 5),
        Scalar("2026-01-01", 6),
    ]


def test_the_body_may_hold_fences_of_its_own() -> None:
    """Only the first two count."""
    assert parse_front_matter("---\na: b\n---\n\none\n---\ntwo\n\n", PATH) == FrontMatter(
        {"a": Field(2, Scalar("b", 2))}, "one\n---\ntwo"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1: the file must begin with a line ---"),
        ("\n---\n---", "1: the file must begin with a line ---"),
        ("---\nname: a", "1: the front matter opened here is never closed with a line ---"),
        (head("just words"), "2: expected `key: value`"),
        (head("name:tidy"), "2: expected `key: value`"),
        (head("1st: a"), "2: expected `key: value`"),
        (head("a: b", "a: c"), "3: a is given twice"),
        (head("name:"), "2: the key has no value; give it one or leave the key out"),
        (head("name:   # nothing"), "2: the key has no value; give it one or leave the key out"),
        (head("a: b", "  c: d"), "3: the indentation does not fit the lines above"),
        (head("a:", "  c: d"), "2: the key has no value; give it one or leave the key out"),
        (head("a:", "  - b", "    - c"), "4: the entries of a list must stand below one another"),
        (head("a:", "  - b", "  - c: d"), "4: a list holds either texts or maps"),
        (head("a:", "  -"), "3: the entry is empty"),
        (head("a:", "  - b: c", "    b: d"), "4: b is given twice"),
        (head("a:", "  - b: c", "     d: e"), "4: the indentation does not fit the lines above"),
        (head("a:", "  - b:", "      c: d"), "3: the key has no value; give it one or leave the key out"),
        (head("a: [b, [c]]"), "2: the list is not of the form [one, two]"),
        (head("a: [b"), "2: the list is not of the form [one, two]"),
        (head("a: [b] c"), "2: the list is not of the form [one, two]"),
        (head("a: [,]"), "2: the list is not of the form [one, two]"),
        (head("a: *"), '2: write the value in quotes: "*"'),
        (head("a: &anchor b"), '2: write the value in quotes: "&anchor b"'),
        (head("a: !!python/object b"), '2: write the value in quotes: "!!python/object b"'),
        (head("a: |"), '2: write the value in quotes: "|"'),
        (head("a: {b: c}"), '2: write the value in quotes: "{b: c}"'),
        (head("a: b: c"), '2: write the value in quotes: "b: c"'),
        (head('a: "b'), "2: the quotes are not closed, or something stands behind them"),
        (head("a: 'b' c"), "2: the quotes are not closed, or something stands behind them"),
        (head('a: "\\q"'), "2: the quoted text holds an escape that JSON does not know"),
        (head('a: "\\ud800"'), "2: the quoted text holds a character that cannot be seen"),
        (head("\ta: b"), "2: indent with spaces"),
        (head("a: b\tc"), "2: the line holds a tab or another character that cannot be seen; use spaces"),
        (head("a: b\u202ec"), "2: the line holds a tab or another character that cannot be seen; use spaces"),
        (head("a: " + "b" * 2_000), "2: the line is longer than 2000 characters"),
    ],
)
def test_what_is_outside_the_grammar_is_an_error_with_file_and_line(text: str, message: str) -> None:
    """In the form that editors and terminals can follow."""
    assert refusal(text) == f"{PATH}:{message}"


def test_an_error_names_file_and_line_for_programs_too() -> None:
    """The sentence is for people, the ids are for logs."""
    with pytest.raises(InvalidInput) as caught:
        parse_front_matter(head("a: b", "a: c"), PATH)
    assert caught.value.ids == {"path": PATH, "line": 3}


@given(st.lists(st.text(alphabet="ab:-[]{}\"'#, \t*&|>\\\u2028é", max_size=12), max_size=8))
def test_any_text_is_read_or_refused_with_a_line(lines: list[str]) -> None:
    """No input makes the parser fail in another way."""
    text = head(*lines)
    outcome: FrontMatter | InvalidInput
    try:
        outcome = parse_front_matter(text, PATH)
    except InvalidInput as error:
        outcome = error
    if isinstance(outcome, InvalidInput):
        assert outcome.ids["line"] in range(1, len(text.split("\n")) + 1)
    else:
        assert outcome.body.endswith("Body.")


@pytest.mark.parametrize(
    "line", ["a: [" + " " * 1_900, "a: [" + '"x",' * 490, "a: '" + "''" * 900, 'a: "' + "\\\\" * 900]
)
def test_an_unfinished_line_costs_no_more_than_its_length(line: str) -> None:
    """Patterns that went back and forth would need minutes for these; the suite's time limit is the judge."""
    for _ in range(100):
        with pytest.raises(InvalidInput):
            parse_front_matter(head(line), PATH)
