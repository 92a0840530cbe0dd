"""Arguments against a schema: None, or one sentence that says where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clew.tools.arguments import check_arguments

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "maxLength": 10},
        "items": {"type": "array", "items": {"type": "object", "properties": {"status": {"enum": ["a", "b"]}}}},
    },
    "required": ["path"],
    "additionalProperties": False,
}


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize("args", [{"path": "x"}, {"path": "x", "items": [{"status": "a"}, {}]}])
def test_arguments_that_fit_need_no_words(args: dict[str, Any]) -> None:
    """None means go on."""
    assert check_arguments(SCHEMA, args) is None


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ({}, 'the arguments do not fit: at the top: "path" is a required property'),
        ({"path": 1}, 'the arguments do not fit: at path: the value is not of type "string"'),
        ({"path": "x" * 100_000}, "the arguments do not fit: at path: the value is longer than 10 characters"),
        (
            {"path": "x", "items": [{"status": "a"}, {"status": "c"}]},
            'the arguments do not fit: at items[1].status: the value is not one of "a" or "b"',
        ),
        (None, "the arguments must be a JSON object, but nothing was sent"),
        ([], "the arguments must be a JSON object, but an array was sent"),
        ("{}", "the arguments must be a JSON object, but text was sent"),
        (7, "the arguments must be a JSON object, but a number was sent"),
    ],
)
def test_the_sentence_names_the_place_and_never_quotes_the_value(args: object, sentence: str) -> None:
    """A value can be a whole file; the model knows what it sent."""
    assert check_arguments(SCHEMA, args) == sentence


def test_an_unknown_argument_is_named() -> None:
    """So that a typing error is found."""
    said = check_arguments(SCHEMA, {"path": "x", "pth": 1})
    assert said is not None
    assert "pth" in said


def test_many_errors_are_cut_to_a_few() -> None:
    """Five are enough to act on."""
    said = check_arguments(SCHEMA, {"path": "x", "items": [{"status": "z"}] * 50})
    assert said is not None
    assert said.count("at items[") == 5
    assert said.endswith("; and more")


@pytest.mark.parametrize("value", ["\ud800", nested(3_000)], ids=["half a surrogate", "too deep"])
def test_what_is_not_json_is_a_sentence_too(value: Any) -> None:
    """Never an exception: a model can send anything."""
    said = check_arguments({"properties": {"x": {"enum": ["y"]}}}, {"x": value})
    assert said is not None
    assert said.startswith("the arguments are not valid JSON")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "#/$defs/missing"},
        {"properties": {"x": {"pattern": "("}}},
    ],
)
def test_a_schema_that_is_broken_or_points_elsewhere_is_said_so_and_never_fetched(schema: dict[str, Any]) -> None:
    """A server's schema must not make clew read files or call addresses."""
    said = check_arguments(schema, {"x": "y"})
    assert said is not None
    assert said.startswith("the tool cannot be called: its schema is not valid")


def test_a_schema_in_a_file_is_not_read_even_when_it_is_there(tmp_path: Path) -> None:
    """It would do: only that it was never asked for shows in the answer."""
    (tmp_path / "schema.json").write_text('{"type": "object"}')
    said = check_arguments({"$ref": f"file://{tmp_path}/schema.json"}, {})
    assert said is not None
    assert "cannot be called" in said


@pytest.mark.parametrize("pattern", [r"^(a+)+$", r"^(?=a)(a+)+$", r"^(?:(a+)\1?)+$", r"(a|aa)+(?!a)b"])
def test_a_pattern_that_would_run_away_does_not(pattern: str) -> None:
    """The answer comes, and it is no."""
    assert check_arguments({"properties": {"x": {"pattern": pattern}}}, {"x": "a" * 60 + "!"}) is not None


def twice(reference: str) -> dict[str, Any]:
    return {"allOf": [{"$ref": reference}, {"$ref": reference}]}


@pytest.mark.rule("MC-1")
@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/d0", "$defs": {**{f"d{at}": twice(f"#/$defs/d{at + 1}") for at in range(40)}, "d40": {}}},
        {"properties": {"x": twice("#")}},
        {
            "properties": {"x": {"$ref": "#"}},
            "additionalProperties": {"$ref": "#"},
            "patternProperties": {"x": twice("#")},
        },
        {"properties": {"x": {"items": {"$ref": "#"}, **twice("#")}}},
        {"properties": {"x": {"$ref": "#"}}, "unevaluatedProperties": False, **twice("#/properties/x")},
        {"allOf": [{"$ref": "#"}]},
        {"properties": {"x": {"$id": "x:y", **twice("#")}}},
        {"$defs": {"a": {"$anchor": "a"}}, "properties": {"x": twice("#a")}},
    ],
)
def test_a_schema_that_means_more_steps_than_there_is_time_for_is_never_walked(schema: dict[str, Any]) -> None:
    """By references that double, in one place or with each level of the value; the process would stand still."""
    value: dict[str, Any] = {}
    for _ in range(40):
        value = {"x": value}
    problem = check_arguments(schema, value)
    assert problem is not None
    assert "would take too long" in problem or "it refers to" in problem or "$id" in problem


def test_a_schema_of_a_tree_and_large_values_are_held_against_one_another() -> None:
    """What people write is far below the bound: alternatives that meet themselves, lists of many things."""
    kinds = [{"properties": {"of": {"$ref": "#"}, "kind": {"const": at}}, "required": ["kind"]} for at in range(3)]
    tree: dict[str, Any] = {}
    for at in range(8):
        tree = {"kind": at % 3, "of": tree} if at else {"kind": 0}
    assert check_arguments({"type": "object", "anyOf": kinds}, tree) is None
    rows = {"type": "object", "properties": {"rows": {"items": {"properties": {"n": {"enum": list(range(50))}}}}}}
    assert check_arguments(rows, {"rows": [{"n": at % 50} for at in range(50_000)]}) is None
    large = {"type": "object", "properties": {"rows": {"items": {"enum": [f"{at}" for at in range(5_000)]}}}}
    problem = check_arguments(large, {"rows": ["x"] * 50_000})
    assert problem == "the arguments cannot be checked against the schema: it would take too long"
