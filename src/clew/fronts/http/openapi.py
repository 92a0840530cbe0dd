"""The OpenAPI 3.1 document: made from the table of operations and the types they read and answer."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

from clew import __version__
from clew.fronts.operations import OPERATIONS, Operation
from clew.fronts.operations.operation import JSON
from clew.fronts.operations.results import Part, Problem
from clew.ids import SessionIdForm

__all__ = ["make_document"]

_PROBLEM: Final = "application/problem+json"
_STREAM: Final = "text/event-stream"
_REF: Final = "#/components/schemas/{name}"
_CLEW: Final = "[0-9a-f]{12}[0-9A-Za-z]{14}"
_IDS: Final[Mapping[str, dict[str, Any]]] = {
    "turn_id": {"pattern": f"^trn_{_CLEW}$"},
    "message_id": {"pattern": r"^[\x20-\x7e]{1,128}$", "description": "A message, by the client's id or clew's."},
    "loss_id": {"pattern": "^loss-[0-9a-f]{1,18}$", "description": "A loss, by the id it is told with."},
    "approval_id": {"minLength": 1, "description": "A request, as it stands in the part and in the status."},
    "tool_call_id": {"minLength": 1, "description": "A call, as it stands in the part."},
    "file": {"minLength": 1, "description": "A file, as the page names it."},
    "sha256": {"pattern": "^[0-9a-f]{64}$"},
    "schedule_id": {"pattern": f"^sch_{_CLEW}$"},
    "name": {"pattern": "^[a-z0-9][a-z0-9_-]{0,63}$", "description": "The name of a webhook."},
}
# These hold more than is operation of all of their kind; a client may look at the rest.
_OPEN: Final = ("Chunk", "EventFrame", "Part", "Problem")
_EVERYBODY: Final = (401, 429)
_HEADERS: Final = {"x-request-id": {"$ref": "#/components/headers/RequestId"}}
_INFO: Final = """\
The durable session engine for AI agents. Every GET that does not stream can be asked with HEAD too. Bodies are JSON
objects of at most 32 MiB, 64 MiB for a chat, 256 MiB for an import, which may be lines of JSON as they were exported;
keys that are not known are ignored. A frame of a stream is one `data:` line; `x-itemSchema` is what it holds. Every
answer has an `x-request-id`, which the log has too."""


@functools.cache
def make_document(session_ids: SessionIdForm = SessionIdForm.CLEW) -> dict[str, Any]:
    """The document, for a store whose session ids have this form."""
    schemas = _Schemas()
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        methods = paths.setdefault(operation.path, {})
        methods[operation.method.lower()] = _describe(operation, schemas, session_ids)
    return {
        "openapi": "3.1.0",
        "info": {"title": "clew", "version": __version__, "description": _INFO},
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "responses": _refusals(schemas),
            "headers": {"RequestId": {"description": "Names this request in the log.", "schema": {"type": "string"}}},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


class _Schemas:
    """The schema of each type that an operation names, and the components they share."""

    def __init__(self) -> None:
        types: list[Any] = [Problem, Part]
        for one in OPERATIONS:
            types += [kind for kind in (*one.answers.values(), one.body, one.streams) if kind is not None]
        # Types may be unions, which are equal and not the same.
        self._types = list(dict.fromkeys(types))
        made, self.components = msgspec.json.schema_components(self._types, ref_template=_REF)
        self._made = dict(zip(self._types, made, strict=True))
        for component in self.components.values():
            _tell_parts(component.get("properties", {}).get("parts", {}))
        for name in _OPEN:
            if name in self.components:
                self.components[name]["additionalProperties"] = True

    def of(self, type_: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._made[type_]
        return found


def _tell_parts(schema: dict[str, Any]) -> None:
    """Parts pass through as they are; what can be operation of all of them is that they have a type."""
    for one in (schema, *schema.get("anyOf", ())):
        if "items" in one:
            one["items"] = {"$ref": _REF.format(name="Part")}


def _describe(operation: Operation, schemas: _Schemas, session_ids: SessionIdForm) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": "_".join([operation.method.lower(), *re.findall(r"[a-z0-9_]+", operation.path)]),
        "summary": operation.summary,
        "responses": _responses(operation, schemas),
    }
    parameters = [_path_parameter(operation, name, session_ids) for name in re.findall(r"{(\w+)}", operation.path)]
    if operation.query is not None:
        parameters += _query_parameters(operation.query)
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        described["requestBody"] = {
            "required": not operation.optional,
            "content": {JSON: {"schema": schemas.of(operation.body)}},
        }
    if operation.open:
        described["security"] = []
    return described


def _path_parameter(operation: Operation, name: str, session_ids: SessionIdForm) -> dict[str, Any]:
    schema = _IDS.get(operation.parameter(name)) or {"pattern": f"^{session_ids.value.pattern}$"}
    described = {key: value for key, value in schema.items() if key == "description"}
    schema = {"type": "string", **{key: value for key, value in schema.items() if key != "description"}}
    return {"name": name, "in": "path", "required": True, "schema": schema, **described}


def _query_parameters(type_: type[msgspec.Struct]) -> list[dict[str, Any]]:
    _, components = msgspec.json.schema_components([type_])
    schema = components[type_.__name__]
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": value}
        for name, value in schema["properties"].items()
    ]


def _responses(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    refusals = {403, *operation.refusals, *(() if operation.open else _EVERYBODY)}
    if "{" in operation.path:
        refusals |= {400, 404}
    if operation.method != "GET" and operation.path.startswith(("/api/sessions/{id}", "/api/turns/{id}")):
        refusals.add(409)
    if operation.body is not None:
        refusals |= {400, 408, 413, 422}
    if operation.query is not None:
        refusals.add(422)
    found = {str(status): _answer(status, type_, operation, schemas) for status, type_ in operation.answers.items()}
    for status in (*(str(status) for status in sorted(refusals)), "5XX"):
        found[status] = {"$ref": f"#/components/responses/{status}"}
    return found


def _answer(status: int, type_: Any, operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if operation.media != JSON and type_ is not None:
        content[operation.media] = {"schema": {"type": "string"} if operation.media.startswith("text/") else {}}
    elif operation.media == JSON and type_ is not None:
        content[JSON] = {"schema": schemas.of(type_)}
    if operation.streams is not None and status == 200:
        content[_STREAM] = {"schema": {"type": "string"}, "x-itemSchema": schemas.of(operation.streams)}
    described = {"description": HTTPStatus(status).phrase, "headers": _HEADERS}
    return {**described, "content": content} if content else described


def _refusals(schemas: _Schemas) -> dict[str, Any]:
    """The problems that operations refer to, by status."""
    content = {_PROBLEM: {"schema": schemas.of(Problem)}}
    described = {str(status): HTTPStatus(status).phrase for status in (400, 401, 403, 404, 408, 409, 413, 422, 429)}
    described["5XX"] = (
        "500 a fault of clew's own, 503 the store cannot be used or too much is asked at once, 507 it is full."
    )
    return {
        status: {"description": text, "headers": _HEADERS, "content": content} for status, text in described.items()
    }
