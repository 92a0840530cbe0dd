"""Front matter: YAML without guessed types, anchors or tags, with errors that name the line."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import InvalidInput
from clew.front_matter import Field, FrontMatter, Scalar, parse_front_matter

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
        ("---\nname: a", "1: the front matter that starts here is not closed with a line ---"),
        (head("just words"), "2: expected `key: value`"),
        (head("name:tidy"), "2: expected `key: value`"),
        (head("a: b", "a: c"), "3: a is given twice"),
        (head("a:", "  - b: c", "    b: d"), "4: b is given twice"),
        (head("a: b", "--- c"), "3: a second document begins here"),
        (head("? [a]", ": b"), "2: a key is a single text"),
        (head("a: " + "[" * 20 + "]" * 20), "2: more than 8 levels"),
        (head("a: &anchor b"), "2: anchors, aliases and tags are not read here; write the value in quotes"),
        (head("a: *b"), "2: anchors, aliases and tags are not read here; write the value in quotes"),
        (head("a: !!python/object b"), "2: anchors, aliases and tags are not read here; write the value in quotes"),
        (head("a: b\u202ec"), "2: the line holds a character that cannot be seen"),
        (head('a: "\\u202e"'), "2: the text holds a character that cannot be seen"),
        (head("a: " + "b" * 70_000), "1: the front matter is longer than 65536 characters"),
    ],
)
def test_what_is_outside_the_grammar_is_an_error_with_file_and_line(text: str, message: str) -> None:
    """In the form that editors and terminals can follow."""
    assert refusal(text) == f"{PATH}:{message}"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (head("a: b", "  c: d"), 3),
        (head("a:", "  - b: c", "     d: e"), 4),
        (head("a: [b"), 2),
        (head("a: [b] c"), 2),
        (head("a: [,]"), 2),
        (head("a: *"), 2),
        (head("a: b: c"), 2),
        (head('a: "b'), 2),
        (head("a: 'b' c"), 2),
        (head('a: "\\q"'), 2),
        (head('a: "\\ud800"'), 2),
        (head("\ta: b"), 2),
    ],
)
def test_what_is_not_yaml_is_an_error_with_the_line_and_a_way_out(text: str, line: int) -> None:
    """The words about it are the library's."""
    said = refusal(text)
    assert said.startswith(f"{PATH}:{line}: ")
    assert said.endswith("; a text with a colon, a quote or a sign belongs in quotes")


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


@pytest.mark.parametrize("piece", ["[", "{", "- ", '"x",', "''", "\\\\", "? ", "a: ", "&a ", "#"])
def test_a_head_made_to_hurt_costs_no_more_than_its_length(piece: str) -> None:
    """The suite's time limit is the judge."""
    with contextlib.suppress(InvalidInput):
        parse_front_matter(head("a: " + piece * (60_000 // len(piece))), PATH)
