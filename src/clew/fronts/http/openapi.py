"""The OpenAPI 3.1 document, generated from the table of operations and their types."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from http import HTTPStatus
from importlib import resources
from typing import Any, Final

import msgspec

from clew import __version__
from clew.fronts.operations.operation import JSON
from clew.fronts.operations.results import Part, Problem
from clew.fronts.operations.table import OPERATIONS, Operation

__all__ = ["make_document"]

_REF: Final = "#/components/schemas/{name}"
# Schemas with fields beyond those listed, which a client may use.
_OPEN_SCHEMAS: Final = ("Chunk", "EventFrame", "Part", "Problem")
_HEADERS: Final = {"x-request-id": {"$ref": "#/components/headers/RequestId"}}
_TEXTS: Final = tomllib.loads(resources.files(__package__).joinpath("openapi.toml").read_text(encoding="utf-8"))


@functools.cache
def make_document() -> dict[str, Any]:
    """Return the document."""
    types: list[Any] = [Problem, Part]
    for operation in OPERATIONS:
        types += [kind for kind in (*operation.answers.values(), operation.body, operation.streams) if kind is not None]
    # Types may be unions, which are equal without being identical.
    types = list(dict.fromkeys(types))
    generated, components = msgspec.json.schema_components(types, ref_template=_REF)
    schemas: Mapping[Any, dict[str, Any]] = dict(zip(types, generated, strict=True))
    for name, component in components.items():
        # Parts are passed through unchanged; all they share is a type.
        parts = component.get("properties", {}).get("parts", {})
        for branch in (parts, *parts.get("anyOf", ())):
            if "items" in branch:
                branch["items"] = {"$ref": _REF.format(name="Part")}
        if name in _OPEN_SCHEMAS:
            component["additionalProperties"] = True
        for field, schema in component.get("properties", {}).items():
            _add_pattern(schema, name, field)
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        methods = paths.setdefault(operation.path, {})
        methods[operation.method.lower()] = _describe(operation, schemas)
    refused = {"headers": _HEADERS, "content": {"application/problem+json": {"schema": schemas[Problem]}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "clew", "version": __version__, "description": _TEXTS["description"]},
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {status: {"description": text, **refused} for status, text in _TEXTS["refusals"].items()},
            "headers": {"RequestId": {"description": "Names this request in the log.", "schema": {"type": "string"}}},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe(operation: Operation, schemas: Mapping[Any, dict[str, Any]]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": "_".join([operation.method.lower(), *re.findall(r"[a-z0-9_]+", operation.path)]),
        "summary": operation.summary,
        "responses": {str(status): _answer(status, operation, schemas) for status in operation.answers}
        | {status: {"$ref": f"#/components/responses/{status}"} for status in _refusals(operation)},
    }
    parameters = _parameters(operation)
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        content = {JSON: {"schema": schemas[operation.body]}}
        described["requestBody"] = {"required": not operation.optional, "content": content}
    if operation.open:
        described["security"] = []
    return described


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = []
    for name in re.findall(r"{(\w+)}", operation.path):
        schema = {"type": "string", **_TEXTS["ids"][operation.parameter(name)]}
        described = {"description": schema.pop("description")} if "description" in schema else {}
        parameters.append({"name": name, "in": "path", "required": True, "schema": schema, **described})
    if operation.query is not None:
        _, components = msgspec.json.schema_components([operation.query])
        schema = components[operation.query.__name__]
        required = schema.get("required", ())
        for name, value in schema["properties"].items():
            _add_pattern(value, "query", name)
            parameters.append({"name": name, "in": "query", "required": name in required, "schema": value})
    return parameters


def _add_pattern(schema: dict[str, Any], owner: str, field: str) -> None:
    """Add the pattern of a field that is an id or a cursor; ``owner`` is the schema of the field."""
    fields = _TEXTS["fields"]
    pattern = fields.get(f"{owner}.{field}", fields.get(field))
    if not pattern:
        return
    for branch in (schema, *schema.get("anyOf", ())):
        if branch.get("type") == "string":
            branch["pattern"] = _TEXTS["patterns"][pattern]


def _refusals(operation: Operation) -> list[str]:
    """Return the statuses of an operation's problems: those common to its kind, and its own."""
    refusals = {403, *operation.refusals, *(() if operation.open else (401, 429))}
    if "{" in operation.path:
        refusals |= {400, 404}
    if operation.method != "GET" and operation.path.startswith(("/api/sessions/{id}", "/api/turns/{id}")):
        refusals.add(409)
    if operation.body is not None:
        refusals |= {400, 408, 413, 422}
    if operation.query is not None:
        refusals.add(422)
    return [*(str(status) for status in sorted(refusals)), "5XX"]


def _answer(status: int, operation: Operation, schemas: Mapping[Any, dict[str, Any]]) -> dict[str, Any]:
    kind = operation.answers[status]
    content: dict[str, Any] = {}
    if kind is not None and operation.media == JSON:
        content[JSON] = {"schema": schemas[kind]}
    elif kind is not None:
        content[operation.media] = {"schema": {"type": "string"} if operation.media.startswith("text/") else {}}
    if operation.streams is not None and status == 200:
        item = schemas[operation.streams]
        content["text/event-stream"] = {"schema": item, "x-itemSchema": item}
    described = {"description": HTTPStatus(status).phrase, "headers": _HEADERS}
    return {**described, "content": content} if content else described
