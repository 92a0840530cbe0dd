"""The OpenAPI document as a test has it: which operation a request is, and whether an answer is what it promises."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

from clew.fronts.http.openapi import make_document

PROBLEM = "application/problem+json"
# What is answered where no operation is: no such path, a method that is not for it, and who may not ask at all.
OUTSIDE = (401, 403, 404, 405, 429)


@functools.cache
def document() -> dict[str, Any]:
    """The document, as a client reads it."""
    return json.loads(json.dumps(make_document()))


@functools.cache
def _templates() -> list[tuple[re.Pattern[str], str]]:
    found = []
    for path in document()["paths"]:
        pattern = re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))
        found.append((re.compile(pattern, re.DOTALL), path))
    # A path that is written out wins over one with a name in its place.
    return sorted(found, key=lambda one: one[1].count("{"))


def find_operation(method: str, path: str) -> tuple[str, dict[str, Any]] | None:
    """The template of a path and what the document says of the method there."""
    target = unquote(path.partition("?")[0])
    template = next((name for pattern, name in _templates() if pattern.fullmatch(target)), None)
    if template is None:
        return None
    said = document()["paths"][template].get("get" if method == "HEAD" else method.lower())
    return None if said is None else (template, said)


@functools.cache
def validator(reference: str) -> jsonschema_rs.Draft202012Validator:
    """For a schema by its JSON text, with the components it may refer to."""
    schema = {**json.loads(reference), "components": document()["components"]}
    return jsonschema_rs.Draft202012Validator(schema)


def _check(schema: Any, value: Any) -> None:
    validator(json.dumps(schema, sort_keys=True)).validate(value)


def check_answer(method: str, path: str, status: int, headers: Mapping[str, str], body: bytes) -> None:
    """The status is one the operation has, with a body of the kind and the shape that goes with it."""
    kind = headers.get("content-type", "")
    found = find_operation(method, path)
    if found is None:
        assert status in OUTSIDE, (method, path, status)
        _check({"$ref": "#/components/schemas/Problem"}, json.loads(body))
        return
    _, said = found
    if status == 405:
        assert headers["allow"], (method, path)
        return
    responses = said["responses"]
    answer = responses.get(str(status)) or (responses["5XX"] if status >= 500 else None)
    assert answer is not None, f"{method} {path} answered {status}, which the document does not know: {body[:300]!r}"
    if "$ref" in answer:
        answer = document()["components"]["responses"][answer["$ref"].rpartition("/")[2]]
    content = answer.get("content", {})
    if not content:
        assert body == b"", (method, path, status, body[:300])
        return
    media = content.get(kind) or content.get("*/*")
    assert media is not None, f"{method} {path} answered {status} with {kind}, not {list(content)}"
    if kind in ("application/json", PROBLEM) and body and method != "HEAD":
        _check(media["schema"], json.loads(body))


def check_frame(method: str, path: str, value: Any) -> None:
    """A frame of a stream is what the document says of it."""
    found = find_operation(method, path)
    assert found is not None, (method, path)
    _check(found[1]["responses"]["200"]["content"]["text/event-stream"]["x-itemSchema"], value)
