"""The gate for values: what a client may not send, and what becomes of it when a model or a tool does."""

from __future__ import annotations

import enum
import json
import math
from collections import OrderedDict, namedtuple
from datetime import date
from decimal import Decimal
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import UnsupportedValue
from clew.transcript.value_check import MAX_DEPTH, MAX_VALUE_BYTES, check_text, check_value, clean_text, clean_value

HIGH, LOW = "\ud83d", "\ude00"  # the two halves of 😀
GONE = "\ufffd"
BIG = 10**5000  # 5,001 digits, more than str() is willing to write

Point = namedtuple("Point", "x y")


class Text(str):
    """As libraries make them."""


class Real(float):
    """As numpy makes them."""


class FullSession(int):
    """As pydantic makes them; of any length, and still to be shown by a failing test."""

    def __repr__(self) -> str:
        return f"FullSession({hex(self)[:20]})"


class Colour(str, enum.Enum):  # noqa: UP042
    """Text by another name."""

    RED = "red"


class Mute:
    """Something that cannot be written down."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def nested(levels: int, inside: Any = 1) -> Any:
    """Arrays in arrays, ``levels`` of them around ``inside``."""
    for _ in range(levels):
        inside = [inside]
    return inside


def nested_objects(levels: int, inside: Any = 1) -> Any:
    for _ in range(levels):
        inside = {"a": inside}
    return inside


# Strategies: what every store keeps, and what not every store does.

kept_text = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
any_text = st.text(st.characters(exclude_categories=[]) | st.sampled_from(["\x00", HIGH, LOW, GONE]))
kept_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | kept_text
)
other_scalars = (
    st.integers()
    | st.floats()
    | any_text
    | st.sampled_from(
        [
            FullSession(BIG),
            FullSession(-BIG),
            2**63,
            -(2**63) - 1,
            b"\xff",
            date(2026, 8, 14),
            Decimal("1.5"),
            Real("nan"),
            Mute(),
        ]
    )
    | st.sampled_from([Text("a\x00"), Real(1.5), FullSession(2**70), Colour.RED, Point(1, HIGH), 1j, object()])
)


def values(scalars: st.SearchStrategy[Any], keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(keys, inner), max_leaves=20)


kept_values = values(kept_scalars, kept_text)
any_values = values(
    kept_scalars | other_scalars,
    any_text | st.integers() | st.booleans() | st.none() | st.just(FullSession(BIG)) | st.just(Mute()),
)


# From a client: refused, with the place.


@pytest.mark.rule("ST-4")
@pytest.mark.parametrize(
    ("value", "sentence", "where"),
    [
        ("a\x00b", "$ contains U+0000, which not every store supports; remove it", "$"),
        (HIGH, "$ contains half of a surrogate pair at character 0; send whole characters", "$"),
        (
            {"a": [1, "x" + LOW]},
            "$.a[1] contains half of a surrogate pair at character 1; send whole characters",
            "$.a[1]",
        ),
        # Also a whole pair, as two: no JSON text holds it so, and no store could keep it.
        ({"a": HIGH + LOW}, "$.a contains half of a surrogate pair at character 0; send whole characters", "$.a"),
        (
            {"a": {"b\x00": 1}},
            "a key of $.a contains U+0000, which not every store supports; remove it",
            "a key of $.a",
        ),
        (
            [{HIGH: 1}],
            "a key of $[0] contains half of a surrogate pair at character 0; send whole characters",
            "a key of $[0]",
        ),
        ({"a": {"b": math.nan}}, "$.a.b is not a finite number", "$.a.b"),
        ([0.0, math.inf], "$[1] is not a finite number", "$[1]"),
        ([-math.inf], "$[0] is not a finite number", "$[0]"),
        ({"n": 2**63}, "$.n is an integer beyond 64 bits; send it as text", "$.n"),
        ({"n": -(2**63) - 1}, "$.n is an integer beyond 64 bits; send it as text", "$.n"),
        ([BIG], "$[0] is an integer beyond 64 bits; send it as text", "$[0]"),
        ({"a": {1: 2}}, "$.a has a key that is not text", "$.a"),
        ([{None: 2}], "$[0] has a key that is not text", "$[0]"),
        ({"a": b"bytes"}, "$.a is a bytes, not JSON", "$.a"),
        ([{1, 2}], "$[0] is a set, not JSON", "$[0]"),
        (date(2026, 8, 14), "$ is a date, not JSON", "$"),
        ([object()], "$[0] is a object, not JSON", "$[0]"),
        # These two are numbers and arrays to Python, and to no JSON encoder.
        ([Real(1.5)], "$[0] is a Real, not JSON", "$[0]"),
        ([Point(1, 2)], "$[0] is a Point, not JSON", "$[0]"),
        (nested(201), "$ is nested deeper than 200 levels", "$"),
        (nested_objects(201), "$ is nested deeper than 200 levels", "$"),
        (nested(100_000), "$ is nested deeper than 200 levels", "$"),
    ],
)
def test_what_some_store_could_not_keep_is_refused_with_its_place(value: Any, sentence: str, where: str) -> None:
    """One kind at a time; the sentence says what to do, `where` is for programs."""
    with pytest.raises(UnsupportedValue) as refusal:
        check_value(value)
    assert (str(refusal.value), refusal.value.ids, refusal.value.code) == (
        sentence,
        {"where": where},
        "unsupported_value",
    )


@pytest.mark.rule("ST-4")
def test_the_place_begins_where_the_caller_says() -> None:
    """A path into the request, not into some value of ours."""
    with pytest.raises(UnsupportedValue) as refusal:
        check_value({"tags": ["a", "b\x00"]}, "metadata")
    assert refusal.value.ids == {"where": "metadata.tags[1]"}


@pytest.mark.rule("ST-4")
def test_the_first_thing_wrong_is_the_one_named() -> None:
    """In the order of the text, so that people find it."""
    with pytest.raises(UnsupportedValue) as refusal:
        check_value({"a": ["\x00", math.nan], "b": 2**64})
    assert refusal.value.ids == {"where": "$.a[0]"}


@pytest.mark.rule("ST-4")
def test_a_place_shows_no_more_than_the_beginning_of_a_long_key() -> None:
    """It goes into a log line."""
    with pytest.raises(UnsupportedValue) as refusal:
        check_value({"k" * 10_000: math.nan})
    assert refusal.value.ids == {"where": "$." + "k" * 60}


@pytest.mark.rule("ST-4")
@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        2**63 - 1,
        -(2**63),
        1.7976931348623157e308,
        5e-324,
        -0.0,
        "",
        "plain",
        "\x01\x1f\x7f\x80\u2028\ufeff\uffff",
        "😀 é ü 漢字",
        GONE,
        [],
        {},
        {"": ""},
        {"\u0001": [None, {"é": "😀"}]},
        (1, ("a",)),
        Text("a"),
        nested(200),
        nested_objects(200),
        nested(200, "text inside"),
        {"a": nested(199)},
    ],
)
def test_everything_else_is_let_in(value: Any) -> None:
    """The gate refuses what cannot be kept, not what is unusual."""
    check_value(value)


@pytest.mark.rule("ST-4")
@pytest.mark.parametrize("value", ["x" * 100, ["x" * 10] * 10, {"x" * 50: "x" * 50}, "é" * 50, ["é" * 25, {"é": 1}]])
def test_a_value_over_size_is_refused(value: Any) -> None:
    """Counted in UTF-8, keys included; the same value passes where there is room."""
    check_value(value, max_bytes=400)
    with pytest.raises(UnsupportedValue, match=r"^\$ is larger than 50 bytes$"):
        check_value(value, max_bytes=50)


@pytest.mark.slow
@pytest.mark.rule("ST-4")
def test_the_size_is_twenty_mebibytes_unless_said_otherwise() -> None:
    """Many small values count like one large one."""
    check_value("x" * (MAX_VALUE_BYTES - 8))
    for value in ("x" * MAX_VALUE_BYTES, [0] * (MAX_VALUE_BYTES // 8), [""] * (MAX_VALUE_BYTES // 8)):
        with pytest.raises(UnsupportedValue, match="larger than 20971520 bytes"):
            check_value(value)


@pytest.mark.rule("ST-4")
@given(kept_values)
def test_what_json_can_say_everywhere_is_let_in_and_comes_back(value: Any) -> None:
    """Through both encoders that stores use."""
    check_value(value)
    assert orjson.loads(orjson.dumps(value)) == value
    assert msgspec.json.decode(msgspec.json.encode(value)) == value


@pytest.mark.rule("ST-4")
def test_text_is_measured_in_utf_8() -> None:
    """What `check_text` returns."""
    assert [check_text(text) for text in ("", "abc", "é", "漢", "😀")] == [0, 3, 2, 3, 4]


# From a model or a tool: replaced, and flagged.


@pytest.mark.rule("ST-4")
@pytest.mark.parametrize(
    ("given_", "cleaned", "replaced"),
    [
        ("plain", "plain", False),
        ("é 😀", "é 😀", False),
        ("", "", False),
        (HIGH + LOW, "😀", False),
        ("é" + HIGH + LOW + "!", "é😀!", False),
        (HIGH + LOW + HIGH + LOW, "😀😀", False),
        ("a\x00b", f"a{GONE}b", True),
        ("é\x00", f"é{GONE}", True),
        (HIGH, GONE, True),
        (LOW, GONE, True),
        (LOW + HIGH, GONE + GONE, True),
        (HIGH + HIGH + LOW, GONE + "😀", True),
        (HIGH + LOW + LOW, "😀" + GONE, True),
        (HIGH + "\x00" + LOW, GONE * 3, True),
        (HIGH + LOW + "\x00", "😀" + GONE, True),
        # What was U+FFFD already is text like any other.
        (GONE, GONE, False),
        (GONE + HIGH + LOW, GONE + "😀", False),
        (GONE + HIGH, GONE + GONE, True),
        (HIGH + GONE + LOW, GONE * 3, True),
    ],
)
def test_text_is_joined_where_it_can_be_and_replaced_where_not(given_: str, cleaned: str, replaced: bool) -> None:
    """Joining a pair loses nothing and is no replacement."""
    assert clean_text(given_) == (cleaned, replaced)


@pytest.mark.rule("ST-4")
@given(any_text)
def test_clean_text_does_what_utf_16_does(text: str) -> None:
    """Unit by unit: a high half followed by a low one is a character, any other half is replaced, so is U+0000."""
    units = text.encode("utf-16-le", "surrogatepass")
    rest = [int.from_bytes(units[at : at + 2], "little") for at in range(0, len(units), 2)]
    out, replaced = "", False
    while rest:
        unit = rest.pop(0)
        if 0xD800 <= unit < 0xDC00 and rest and 0xDC00 <= rest[0] < 0xE000:
            out += chr(0x10000 + ((unit - 0xD800) << 10) + (rest.pop(0) - 0xDC00))
        elif 0xD800 <= unit < 0xE000 or unit == 0:
            out, replaced = out + GONE, True
        else:
            out += chr(unit)
    assert clean_text(text) == (out, replaced)


@pytest.mark.rule("ST-4")
@pytest.mark.parametrize(
    ("given_", "cleaned"),
    [
        ("a\x00", "a" + GONE),
        ([HIGH], [GONE]),
        ({HIGH: 1}, {GONE: 1}),
        ({"a\x00": {"b": LOW}}, {"a" + GONE: {"b": GONE}}),
        (math.nan, "nan"),
        ([math.inf, -math.inf], ["inf", "-inf"]),
        (2**63, "9223372036854775808"),
        (-(2**63) - 1, "-9223372036854775809"),
        ([BIG, -BIG], [hex(BIG), hex(-BIG)]),
        ({1: 2}, {"1": 2}),
        ({None: 1, True: 2}, {"None": 1, "True": 2}),
        ({BIG: 1}, {hex(BIG): 1}),
        ({math.nan: 1}, {"nan": 1}),
        (b"\xff", "b'\\xff'"),
        (date(2026, 8, 14), "2026-08-14"),
        (Decimal("1.50"), "1.50"),
        (FullSession(2**63), "9223372036854775808"),
        (Real("inf"), "inf"),
        (Text("\x00"), GONE),
        (nested(201), nested(200, "(nested too deeply to keep)")),
        (nested_objects(201), nested_objects(200, "(nested too deeply to keep)")),
        (nested(100_000), nested(200, "(nested too deeply to keep)")),
    ],
)
def test_what_cannot_be_kept_is_replaced_and_flagged(given_: Any, cleaned: Any) -> None:
    """Numbers become the text of themselves; nothing is refused."""
    assert clean_value(given_) == (cleaned, True)


@pytest.mark.rule("ST-4")
def test_what_cannot_even_be_written_down_is_replaced_by_its_type() -> None:
    """A tool's own object that raises when it is asked for text."""
    cleaned, replaced = clean_value({"a": Mute()})
    assert "Mute object" in cleaned["a"]
    assert replaced


@pytest.mark.rule("ST-4")
@pytest.mark.parametrize(
    ("given_", "cleaned"),
    [
        ({"a\x00": 1, "a" + GONE: 2}, {"a" + GONE * 2: 1, "a" + GONE: 2}),
        ({"a" + GONE: 2, "a\x00": 1}, {"a" + GONE: 2, "a" + GONE * 2: 1}),
        ({HIGH: 1, LOW: 2, "\x00": 3}, {GONE: 1, GONE * 2: 2, GONE * 3: 3}),
        ({1: "a", "1": "b"}, {"1" + GONE: "a", "1": "b"}),
        ({HIGH + LOW: 1, "😀": 2}, {"😀" + GONE: 1, "😀": 2}),
    ],
)
def test_two_keys_that_become_one_keep_both_values(given_: Any, cleaned: Any) -> None:
    """The one that had to change gives way."""
    assert clean_value(given_) == (cleaned, True)


@pytest.mark.rule("ST-4")
@pytest.mark.parametrize(
    ("given_", "cleaned"),
    [
        ([HIGH + LOW], ["😀"]),
        ({HIGH + LOW: 1}, {"😀": 1}),
        ((1, (2,)), [1, [2]]),
        (Point(1, 2), [1, 2]),
        (OrderedDict(a=1), {"a": 1}),
        (Text("a"), "a"),
        (Colour.RED, "red"),
        ([Real(1.5), FullSession(2)], [1.5, 2]),
        ({Text("a"): 1}, {"a": 1}),
    ],
)
def test_what_is_only_put_another_way_is_not_flagged(given_: Any, cleaned: Any) -> None:
    """The same JSON; and both encoders take it, which they would not before."""
    result, replaced = clean_value(given_)
    assert (result, replaced) == (cleaned, False)
    assert json.loads(orjson.dumps(result)) == msgspec.json.decode(msgspec.json.encode(result)) == cleaned


@pytest.mark.rule("ST-4")
@given(any_values)
def test_whatever_comes_out_of_cleaning_can_be_kept(value: Any) -> None:
    """It passes the client's gate, goes through both encoders, and a second cleaning changes nothing."""
    cleaned, replaced = clean_value(value)
    check_value(cleaned, max_bytes=1 << 40)
    assert orjson.loads(orjson.dumps(cleaned)) == cleaned
    assert msgspec.json.decode(msgspec.json.encode(cleaned)) == cleaned
    again, replaced_again = clean_value(cleaned)
    assert again is cleaned
    assert not replaced_again
    if not replaced:
        assert _plain(value) == cleaned


@pytest.mark.rule("ST-4")
@given(kept_values)
def test_what_could_be_kept_is_not_touched(value: Any) -> None:
    """Not even copied."""
    before = json.dumps(value)
    cleaned, replaced = clean_value(value)
    assert cleaned is value
    assert not replaced
    assert json.dumps(value) == before


@pytest.mark.rule("ST-4")
@given(st.integers(190, 210), st.booleans(), kept_scalars | st.just([]) | st.just({}))
def test_both_sides_count_depth_alike(levels: int, objects: bool, inside: Any) -> None:
    """What the client's side lets in, the model's side keeps, and the other way round."""
    value = nested_objects(levels, inside) if objects else nested(levels, inside)
    fits = levels + isinstance(inside, (list, dict)) <= MAX_DEPTH
    assert clean_value(value)[1] is not fits
    if fits:
        check_value(value)
    else:
        with pytest.raises(UnsupportedValue):
            check_value(value)


def _plain(value: Any) -> Any:
    """The value in JSON's own types, pairs joined; for values in which nothing was replaced."""
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return str.__str__(value).encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    return value
