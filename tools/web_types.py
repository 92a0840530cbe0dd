"""Generates TypeScript: the schemas and operations of the OpenAPI document for the client in `web/client`, used by the
page, and the page's failure messages.

No server is started: the document is built from the table of operations. The output depends on the code alone.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

ROOT: Final = Path(__file__).parent.parent
TARGET: Final = ROOT / "web" / "client" / "schema.d.ts"
FAILURE_MESSAGES: Final = ROOT / "web" / "src" / "api" / "failures.ts"
HEADER: Final = "// Generated from the API's own document by `make web-types`. Do not edit."

_JSON: Final = "application/json"
_STREAM: Final = "text/event-stream"
_NAME: Final = re.compile(r"[A-Za-z_$][\w$]*", re.ASCII)
_PLAIN: Final = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
_NONE: Final = "Record<string, never>"


def main(arguments: list[str]) -> int:
    """Write both files, into the named folder if there is one."""
    for target, text in generate().items():
        target = Path(arguments[0]) / target.name if arguments else target
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return 0


def generate() -> dict[Path, str]:
    """Return the content of each generated file."""
    from clew.fronts.http.openapi import make_document

    return {TARGET: write_types(make_document()), FAILURE_MESSAGES: f"{HEADER}\n\n{write_failures()}"}


def write_failures() -> str:
    """Return the failure messages as a value, under the names of :mod:`clew.fronts.failure_messages`."""
    from clew.fronts.failure_messages import FAILURES

    rows = [
        f"  {_key(name)}: {json.dumps(msgspec.to_builtins(messages), ensure_ascii=False)},"
        for name, messages in FAILURES.items()
    ]
    head = "/** The problem and the next step, by cause or by code. */"
    kind = "Record<string, { happened: string; next: string; again: boolean }>"
    return "\n".join([head, f"export const FAILURES: {kind} = {{", *rows, "};"]) + "\n"


def write_types(document: Mapping[str, Any]) -> str:
    """Return the document as TypeScript: a type per component, then ``Operations``."""
    schemas = document["components"]["schemas"]
    components = [_component(name, schemas[name]) for name in sorted(schemas)]
    operations = [
        _operation(f"{method.upper()} {path}", operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    head = "/** The request and response of each operation; `frame` is one frame of a stream. */"
    listed = "\n".join([head, "export interface Operations {", *operations, "}"])
    return "\n\n".join([HEADER, *components, listed]) + "\n"


def type_of(schema: Mapping[str, Any]) -> str:
    """Return a schema as a type expression."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema:
        return _literal(schema["const"])
    if "enum" in schema:
        return _union(_literal(value) for value in schema["enum"])
    if "anyOf" in schema:
        return _union(type_of(one) for one in schema["anyOf"])
    kind = schema.get("type")
    if kind is None:
        return "unknown"
    if kind == "array":
        return _array(schema)
    if kind == "object":
        return _object(schema)
    if kind not in _PLAIN:
        raise ValueError(f"there is no type for {json.dumps(schema)}")
    return _PLAIN[kind]


def _component(name: str, schema: Mapping[str, Any]) -> str:
    comment = _comment(schema, "")
    if "properties" not in schema:
        return f"{comment}export type {name} = {type_of(schema)};"
    lines = [f"{comment}export interface {name} {{", *_fields(schema, "  ")]
    if schema.get("additionalProperties") is True:
        lines.append("  [key: string]: unknown;")
    return "\n".join([*lines, "}"])


def _fields(schema: Mapping[str, Any], indent: str) -> list[str]:
    required = schema.get("required", ())
    return [
        f"{_comment(field, indent)}{indent}{_key(name)}{'' if name in required else '?'}: {type_of(field)};"
        for name, field in schema["properties"].items()
    ]


def _operation(name: str, operation: Mapping[str, Any]) -> str:
    parameters = operation.get("parameters", ())
    answers = [one for status, one in operation["responses"].items() if status.startswith("2")]
    frames = [one["content"][_STREAM]["x-itemSchema"] for one in answers if _STREAM in one.get("content", {})]
    lines = [
        f'  "{name}": {{',
        f"    path: {_parameters(one for one in parameters if one['in'] == 'path')};",
        f"    query: {_parameters(one for one in parameters if one['in'] == 'query')};",
        f"    body: {_body(operation.get('requestBody'))};",
        f"    answer: {_union(_answer(one) for one in answers)};",
    ]
    if frames:
        lines.append(f"    frame: {_union(type_of(one) for one in frames)};")
    summary = _comment({"description": operation.get("summary", "")}, "  ")
    return summary + "\n".join([*lines, "  };"])


def _parameters(parameters: Iterable[Mapping[str, Any]]) -> str:
    fields = [f"{_key(one['name'])}{'' if one['required'] else '?'}: {type_of(one['schema'])}" for one in parameters]
    return f"{{ {'; '.join(fields)} }}" if fields else _NONE


def _body(body: Mapping[str, Any] | None) -> str:
    if body is None:
        return "undefined"
    kind = type_of(body["content"][_JSON]["schema"])
    return kind if body.get("required") else f"{kind} | undefined"


def _answer(answer: Mapping[str, Any]) -> str:
    """Return the type of a response: of its JSON, or string, or Blob. A stream has frames and no answer."""
    content = {kind: media for kind, media in answer.get("content", {}).items() if kind != _STREAM}
    if not content:
        return "undefined"
    if _JSON in content:
        return type_of(content[_JSON]["schema"])
    return "string" if all(kind.startswith("text/") for kind in content) else "Blob"


def _array(schema: Mapping[str, Any]) -> str:
    if "prefixItems" in schema:
        return f"[{', '.join(type_of(one) for one in schema['prefixItems'])}]"
    item = type_of(schema.get("items", {}))
    return f"({item})[]" if " | " in item else f"{item}[]"


def _object(schema: Mapping[str, Any]) -> str:
    if "properties" in schema:
        return f"{{ {' '.join(_fields(schema, '')).rstrip(';')} }}"
    values = schema.get("additionalProperties", True)
    return f"Record<string, {type_of(values) if isinstance(values, dict) else 'unknown'}>"


def _union(types: Iterable[str]) -> str:
    """Join the types, each once, in order, null last."""
    found = list(dict.fromkeys(types))
    return " | ".join(sorted(found, key=lambda one: one == "null"))


def _literal(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _key(name: str) -> str:
    return name if _NAME.fullmatch(name) else _literal(name)


def _comment(schema: Mapping[str, Any], indent: str) -> str:
    text = " ".join(str(schema.get("description", "")).replace("``", "`").replace("*/", "* /").split())
    return f"{indent}/** {text} */\n" if text else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
