"""The OpenAPI 3.1 document: made from the routes that are served and the types they read and answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.routing import BaseRoute

from clew import __version__
from clew.engine import Engine
from clew.fronts.http.answer import answer
from clew.fronts.http.operation import JSON, Operation, operation
from clew.fronts.http.route import Served, route
from clew.fronts.http.shapes import Part, Problem
from clew.ids import SessionIdForm

__all__ = ["OpenApi", "make_document"]

_PROBLEM: Final = "application/problem+json"
_STREAM: Final = "text/event-stream"
_REF: Final = "#/components/schemas/{name}"
_CLEW: Final = "[0-9a-f]{12}[0-9A-Za-z]{14}"
_IDS: Final[Mapping[str, dict[str, Any]]] = {
    "turn": {"pattern": f"^trn_{_CLEW}$"},
    "message_id": {"pattern": r"^[\x20-\x7e]{1,128}$", "description": "A message, by the client's id or clew's."},
    "loss_id": {"pattern": "^loss-[0-9a-f]{1,18}$", "description": "A loss, by the id it is told with."},
    "approval_id": {"minLength": 1, "description": "A request, as it stands in the part and in the status."},
    "tool_call_id": {"minLength": 1, "description": "A call, as it stands in the part."},
    "file": {"minLength": 1, "description": "A file, as the page names it."},
    "sha256": {"pattern": "^[0-9a-f]{64}$"},
    "schedule": {"pattern": f"^sch_{_CLEW}$"},
    "name": {"pattern": "^[a-z0-9][a-z0-9_-]{0,63}$", "description": "The name of a webhook."},
}
# These hold more than is said of all of their kind; a client may look at the rest.
_OPEN: Final = ("Chunk", "EventFrame", "Part", "Problem")
_EVERYBODY: Final = (401, 429)
_HEADERS: Final = {"x-request-id": {"$ref": "#/components/headers/RequestId"}}
_INFO: Final = """\
The durable session engine for AI agents. Every GET that does not stream can be asked with HEAD too. Bodies are JSON
objects of at most 32 MiB, 64 MiB for a chat, 256 MiB for an import, which may be lines of JSON as they were exported;
keys that are not known are ignored. A frame of a stream is one `data:` line; `x-itemSchema` is what it holds. Every
answer has an `x-request-id`, which the log has too."""


class OpenApi:
    """``GET /openapi.json``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._routes: list[BaseRoute] = []
        self._made: dict[str, Any] | None = None

    def routes(self, others: Iterable[BaseRoute]) -> list[BaseRoute]:
        """The route of the document about the others and itself."""
        own = route("/openapi.json", GET=self._get)
        self._routes = [*others, own]
        return [own]

    @operation("This document.", {200: dict[str, Any]})
    async def _get(self, _: Request) -> Any:
        if self._made is None:
            self._made = make_document(self._routes, self._engine.store.capabilities.session_ids)
        return answer(self._made)


def make_document(routes: Iterable[BaseRoute], session_ids: SessionIdForm = SessionIdForm.CLEW) -> dict[str, Any]:
    """The document of these routes, for a store whose session ids have this form."""
    served = [one for one in routes if isinstance(one, Served)]
    schemas = _Schemas(one for path in served for one in path.operations.values())
    paths: dict[str, Any] = {}
    for one in served:
        paths[one.path] = {
            method.lower(): _describe(one.path, method, said, schemas, session_ids)
            for method, said in one.operations.items()
        }
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

    def __init__(self, operations: Iterable[Operation]) -> None:
        types: list[Any] = [Problem, Part]
        for one in operations:
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
    """Parts pass through as they are; what can be said of all of them is that they have a type."""
    for one in (schema, *schema.get("anyOf", ())):
        if "items" in one:
            one["items"] = {"$ref": _REF.format(name="Part")}


def _describe(path: str, method: str, said: Operation, schemas: _Schemas, ids: SessionIdForm) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": "_".join([method.lower(), *re.findall(r"[a-z0-9_]+", path)]),
        "summary": said.summary,
        "responses": _responses(path, said, schemas),
    }
    parameters = [_path_parameter(path, name, ids) for name in re.findall(r"{(\w+)}", path)]
    if said.query is not None:
        parameters += _query_parameters(said.query)
    if parameters:
        described["parameters"] = parameters
    if said.body is not None:
        described["requestBody"] = {
            "required": not said.body_optional,
            "content": {JSON: {"schema": schemas.of(said.body)}},
        }
    if said.open:
        described["security"] = []
    return described


def _path_parameter(path: str, name: str, ids: SessionIdForm) -> dict[str, Any]:
    if name != "id":
        said = _IDS[name]
    else:
        kind = {"turns": "turn", "schedules": "schedule"}.get(path.split("/")[2], "")
        said = _IDS.get(kind) or {"pattern": f"^{ids.value.pattern}$"}
    schema = {"type": "string", **{key: value for key, value in said.items() if key != "description"}}
    described = {"description": said["description"]} if "description" in said else {}
    return {"name": name, "in": "path", "required": True, "schema": schema, **described}


def _query_parameters(type_: type[msgspec.Struct]) -> list[dict[str, Any]]:
    _, components = msgspec.json.schema_components([type_])
    schema = components[type_.__name__]
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": value}
        for name, value in schema["properties"].items()
    ]


def _responses(path: str, said: Operation, schemas: _Schemas) -> dict[str, Any]:
    refusals = {403, *said.refusals, *(() if said.open else _EVERYBODY)}
    if "{" in path:
        refusals |= {400, 404}
    if said.body is not None:
        refusals |= {400, 408, 413, 422}
    if said.query is not None:
        refusals.add(422)
    found = {str(status): _answer(status, type_, said, schemas) for status, type_ in said.answers.items()}
    for status in (*(str(status) for status in sorted(refusals)), "5XX"):
        found[status] = {"$ref": f"#/components/responses/{status}"}
    return found


def _answer(status: int, type_: Any, said: Operation, schemas: _Schemas) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if said.media != JSON and type_ is not None:
        content[said.media] = {"schema": {"type": "string"} if said.media.startswith("text/") else {}}
    elif said.media == JSON and type_ is not None:
        content[JSON] = {"schema": schemas.of(type_)}
    if said.streams is not None and status == 200:
        content[_STREAM] = {"schema": {"type": "string"}, "x-itemSchema": schemas.of(said.streams)}
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
