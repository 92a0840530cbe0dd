"""Values of JSON texts that have not all arrived. A real client checks the same in the integration tests."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import UNSET

from clew.transcript.partial_json import parse_partial_json

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", UNSET),
        ("  ", UNSET),
        ("{", {}),
        ('{"a', {}),
        ('{"a"', {}),
        ('{"a":', {}),
        ('{"a":1', {"a": 1}),
        ('{"a":1,', {"a": 1}),
        ('{"a":1,"b"', {"a": 1}),
        ('{"a":tr', {"a": True}),
        ('{"a":n', {"a": None}),
        ('{"a":"x', {"a": "x"}),
        ('{"a":"x\\', {"a": "x"}),
        ('{"a":"x\\n', {"a": "x\n"}),
        ('{"a":"\\u00', {"a": ""}),
        ('{"a":"\\u00e9', {"a": "é"}),
        ('{"a":[1,{"b":[', {"a": [1, {"b": []}]}),
        ("[1, 2", [1, 2]),
        ("[1, -", [1]),
        ("[1.", [1]),
        ("[1.5e", [1.5]),
        ("1.5", 1.5),
        ("-", UNSET),
        ('"open', "open"),
        ("fal", False),
        ("{} and then some", {}),
        ("nonsense", UNSET),
    ],
)
def test_a_text_cut_off_has_the_value_of_what_is_whole(text: str, value: Any) -> None:
    """Half a key, half an escape and half a number wait; half a string and half a literal do not."""
    assert parse_partial_json(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[-", UNSET),
        ("[x", UNSET),
        ('{"a":1 x', {"a": 1}),
        ("[1 x", UNSET),
        ("[1}", [1]),
        ('{"a":1,}', {"a": 1}),
        ("[1,]", [1]),
        ("[1e+5", [100000.0]),
        ('{"a":1e+5', {"a": 1}),
        ('{"a\\":1', UNSET),
        ('{"a\\"b":1', {'a"b': 1}),
        ('["\\u12", "ab', UNSET),
        ('"\\u12" xyz', ""),
    ],
)
def test_the_habits_of_the_client_are_kept(text: str, value: Any) -> None:
    """Odd, but a viewer who reloads must see what the others see."""
    assert parse_partial_json(text) == value


@pytest.mark.parametrize(
    "text",
    ['{"__proto__": 1}', '{"a": [{"__proto__": {', '{"\\u005f_proto__": 1', '{"constructor": {"prototype": 1'],
)
def test_a_value_that_names_a_prototype_is_no_value(text: str) -> None:
    """A client refuses to build it, however it is spelled."""
    assert parse_partial_json(text) is UNSET


@pytest.mark.rule("ST-4")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":"\\ud83d', {"a": "\ufffd"}),
        ('{"a":"\\ud83d\\ude00', {"a": "😀"}),
        ('["x\\u0000', ["x\ufffd"]),
        ('{"\\udc00":1', {"\ufffd": 1}),
        ("[1e999", [None]),
        ("[-1e999, 1", [None, 1]),
        ("[123456789012345678901234567890", [123456789012345678901234567890.0]),
        ("[9223372036854775807, 9223372036854775808", [9223372036854775807, 9223372036854775808.0]),
        ("1" * 5000, None),
    ],
)
def test_every_value_can_be_stored(text: str, value: Any) -> None:
    """Halves of characters, U+0000 and endless numbers come as something every store keeps."""
    assert parse_partial_json(text) == value
    msgspec.json.encode(parse_partial_json(text))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000, "[" * 201])
def test_what_is_nested_too_deeply_has_no_value(text: str) -> None:
    """No depth breaks the parser."""
    assert parse_partial_json(text) is UNSET


def test_two_hundred_levels_are_not_too_deep() -> None:
    """The gate's own limit."""
    assert parse_partial_json("[" * 200) == json.loads("[" * 200 + "]" * 200)


@given(JSON_VALUES)
def test_a_whole_text_has_its_value(value: Any) -> None:
    """Whatever was written can be read, but for a key that clients refuse."""
    assume("__proto__" not in json.dumps(value))
    assert parse_partial_json(json.dumps(value)) == value
    assert parse_partial_json(json.dumps({"value": value}, ensure_ascii=False)) == {"value": value}


@pytest.mark.slow
@given(JSON_VALUES, st.data())
def test_every_beginning_of_a_text_can_be_read(value: Any, data: st.DataObject) -> None:
    """A cut may leave no value, but never an error, and what it leaves can be stored."""
    text = json.dumps(value, ensure_ascii=data.draw(st.booleans()))
    for cut in range(len(text)):
        part = parse_partial_json(text[:cut])
        if part is not UNSET:
            msgspec.json.encode(part)


@given(st.text(alphabet='{}[]",:\\ \n019eE+-.truefalsnxu'))
def test_no_text_at_all_breaks_it(text: str) -> None:
    """Models write what they like."""
    parse_partial_json(text)
