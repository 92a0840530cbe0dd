"""The tool behind `make web-types`, and the file it has written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools import web_types

ROOT = Path(__file__).parents[2]


def document(schemas: dict[str, Any], paths: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"components": {"schemas": schemas}, "paths": paths or {}}


def test_a_component_is_an_interface_with_comments_of_one_line() -> None:
    """What is not required has a question mark; names that are no identifiers are quoted."""
    written = web_types.write_types(
        document(
            {
                "Thing": {
                    "type": "object",
                    "description": "A thing,\n``told`` over two lines, with */ in it.",
                    "properties": {
                        "id": {"type": "string", "description": "Its name."},
                        "from-part": {"type": "integer"},
                        "of": {"$ref": "#/components/schemas/Owner"},
                    },
                    "required": ["id"],
                },
                "Owner": {"type": "object", "properties": {}, "additionalProperties": True},
            }
        )
    )
    assert written == (
        "// Generated from the API's own document by `make web-types`. Do not edit.\n\n"
        "export interface Owner {\n  [key: string]: unknown;\n}\n\n"
        "/** A thing, `told` over two lines, with * / in it. */\n"
        "export interface Thing {\n"
        "  /** Its name. */\n"
        "  id: string;\n"
        '  "from-part"?: number;\n'
        "  of?: Owner;\n"
        "}\n\n"
        "/** The request and response of each operation; `frame` is one frame of a stream. */\n"
        "export interface Operations {\n}\n"
    )


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({}, "unknown"),
        ({"type": "boolean", "default": False}, "boolean"),
        ({"type": "number"}, "number"),
        ({"enum": ["b", "a"]}, '"b" | "a"'),
        ({"const": 1}, "1"),
        ({"anyOf": [{"type": "null"}, {"type": "string"}, {"type": "string"}]}, "string | null"),
        ({"type": "array"}, "unknown[]"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, '("a" | "b")[]'),
        ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]}, "[string, number]"),
        ({"type": "object"}, "Record<string, unknown>"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "Record<string, number>"),
        (
            {"type": "object", "properties": {"a": {"type": "string"}, "b": {}}, "required": ["a"]},
            "{ a: string; b?: unknown }",
        ),
    ],
)
def test_a_schema_is_a_type(schema: dict[str, Any], written: str) -> None:
    """Nothing of it is guessed."""
    assert web_types.type_of(schema) == written


def test_a_schema_that_is_not_understood_is_an_error() -> None:
    """A type that is quietly wrong would be worse than none."""
    with pytest.raises(ValueError, match="there is no type"):
        web_types.type_of({"type": "tape"})


def test_an_operation_names_what_it_takes_and_gives() -> None:
    """Path and query by name, the body, every good answer, and the frames of a stream."""
    json_ = "application/json"
    said = {
        "summary": "Does it.",
        "parameters": [
            {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
            {"name": "view", "in": "query", "required": False, "schema": {"enum": ["all"]}},
        ],
        "requestBody": {"required": False, "content": {json_: {"schema": {"$ref": "#/components/schemas/Body"}}}},
        "responses": {
            "200": {"content": {json_: {"schema": {"$ref": "#/components/schemas/Done"}}}},
            "202": {"content": {json_: {"schema": {"$ref": "#/components/schemas/Done"}}}},
            "204": {},
            "404": {"$ref": "#/components/responses/404"},
        },
    }
    stream = {"responses": {"200": {"content": {"text/event-stream": {"x-itemSchema": {"type": "string"}}}}}}
    page = {"responses": {"200": {"content": {"text/html": {"schema": {"type": "string"}}}}}}
    blob: dict[str, Any] = {"responses": {"200": {"content": {"*/*": {"schema": {}}}}}}
    paths = {"/a/{id}": {"post": said}, "/b": {"get": stream}, "/c": {"get": page}, "/d": {"get": blob}}
    written = web_types.write_types(document({}, paths))
    none = "    path: Record<string, never>;\n    query: Record<string, never>;\n    body: undefined;\n"
    assert written.partition("export interface Operations ")[2] == (
        "{\n"
        "  /** Does it. */\n"
        '  "POST /a/{id}": {\n'
        "    path: { id: string };\n"
        '    query: { view?: "all" };\n'
        "    body: Body | undefined;\n"
        "    answer: Done | undefined;\n"
        "  };\n"
        f'  "GET /b": {{\n{none}    answer: undefined;\n    frame: string;\n  }};\n'
        f'  "GET /c": {{\n{none}    answer: string;\n  }};\n'
        f'  "GET /d": {{\n{none}    answer: Blob;\n  }};\n'
        "}\n"
    )


def test_the_committed_types_are_what_the_tool_writes_now() -> None:
    """Client and page are checked against the API as it is; `make web-types` brings the files up to date."""
    for target, text in web_types.generate().items():
        assert target.read_text(encoding="utf-8") == text, "run `make web-types`"


@pytest.mark.slow
def test_another_process_writes_the_same_bytes_where_it_is_told(tmp_path: Path) -> None:
    """No order of a set or of a hash is in it."""
    subprocess.run([sys.executable, "-m", "tools.web_types", str(tmp_path / "new")], cwd=ROOT, check=True)
    for target in web_types.generate():
        assert (tmp_path / "new" / target.name).read_bytes() == target.read_bytes()
