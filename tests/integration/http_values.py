"""Values for requests, drawn from the OpenAPI document: what fits a schema, and what is bent out of shape."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from tests.integration.http_document import document

TEXT = st.text(max_size=40)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXT
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=6
)
# What parsers, stores and patterns trip over.
HOSTILE: list[Any] = [
    None,
    True,
    0,
    -1,
    2**53,
    2**63,
    -(2**64),
    1e308,
    0.1,
    "",
    " ",
    "\x00",
    "\ud800",
    "\u202e",
    "x" * 10_000,
    "../../etc/passwd",
    "ses_" + "0" * 26 + "\n",
    "~nobody-of-that-name",
    "%00",
    "' OR 1=1 --",
    [],
    {},
    [[]],
    {"": ""},
    {"type": None},
]  # fmt: skip


def resolve(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema that a reference stands for."""
    if "$ref" in schema:
        return dict(document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    return schema


def fitting(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that the schema allows. Knows what these schemas use, and no more."""
    schema = resolve(schema)
    if "anyOf" in schema:
        return st.one_of([fitting(one) for one in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kind = schema.get("type")
    if kind == "string":
        if "pattern" in schema:
            return st.from_regex(schema["pattern"], fullmatch=True)
        return st.text(min_size=schema.get("minLength", 0), max_size=min(schema.get("maxLength", 40), 40))
    if kind == "integer":
        return st.integers(schema.get("minimum", -(2**31)), schema.get("maximum", 2**31))
    if kind == "array":
        return st.lists(fitting(schema.get("items", {})), max_size=3)
    if kind == "object":
        return _objects(schema)
    simple = {"boolean": st.booleans(), "null": st.none(), "number": st.floats(allow_nan=False, allow_infinity=False)}
    return JSON if kind is None else simple[kind]


def _objects(schema: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    properties = schema.get("properties")
    if properties is None:
        return st.dictionaries(TEXT, JSON, max_size=3)
    required = schema.get("required", [])
    return st.fixed_dictionaries(
        {name: fitting(properties[name]) for name in required},
        optional={name: fitting(inner) for name, inner in properties.items() if name not in required},
    )


@st.composite
def bent(draw: st.DrawFn, schema: dict[str, Any]) -> Any:
    """A fitting value with something in it, or all of it, replaced, left out or added."""
    value = draw(fitting(schema))
    places = list(_places(value))
    place = draw(st.sampled_from(places))
    odd = draw(st.sampled_from(HOSTILE))
    if not place:
        return odd
    value = json.loads(json.dumps(value))
    holder = value
    for step in place[:-1]:
        holder = holder[step]
    if draw(st.booleans()):
        holder[place[-1]] = odd
    else:
        del holder[place[-1]]
    return value


def _places(value: Any, above: tuple[Any, ...] = ()) -> Any:
    yield above
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from _places(one, (*above, key))
