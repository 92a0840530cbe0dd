"""Reads from the source what Python does not keep at run time: docstrings of fields, comments of literals, types.

For ``tools/reference.py``. A field is described by the string below it, as documentation tools have it; a value of a
``Literal`` or a key of a ``TypedDict`` by the comment above it.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

_TICKS = re.compile(r"``(.+?)``", re.DOTALL)
_ROLE = re.compile(r":(?:class|func|meth|mod|data|attr):`~?([^`]+)`")
_STARS: Mapping[object, str] = {inspect.Parameter.VAR_KEYWORD: "**", inspect.Parameter.VAR_POSITIONAL: "*"}
_LIMITS = {"ge": "at least {}", "gt": "above {}", "le": "at most {}", "lt": "below {}", "max_length": "at most {} long"}


class Field(NamedTuple):
    name: str
    type: str
    default: str | None
    """None: required."""
    doc: str


def head(title: str, purpose: str, source: str) -> str:
    return f"# {title}\n\n{purpose}\n\n*This page is generated from {source} by `make reference`.*\n"


def markdown(doc: str | None) -> str:
    """Return a docstring as Markdown: paragraphs on one line each, code in single backticks."""
    found = _ROLE.sub(r"`\1`", _TICKS.sub(r"`\1`", inspect.cleandoc(doc or "")))
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in found.split("\n\n"))


def first_sentence(text: str) -> str:
    """Return the first sentence of a description."""
    return re.split(r"(?<=[.])\s+(?=[A-Z`])", text.partition("\n\n")[0])[0]


def cell(text: str) -> str:
    """Return a text for the cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a Markdown table, without the columns that are empty in every row."""
    used = [at for at in range(len(head)) if any(row[at] for row in rows)]
    lines = [[head[at] for at in used], ["---"] * len(used), *([cell(row[at]) for at in used] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def signature(function: Callable[..., Any], name: str) -> str:
    """Return the signature of a function, on one line or with a line for each parameter."""
    function = inspect.unwrap(function)
    parts: list[str] = []
    is_keyword = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not is_keyword:
            parts.append("*")
            is_keyword = True
        prefix = _STARS.get(parameter.kind, "")
        default = "" if parameter.default is parameter.empty else f" = {literal(parameter.default)}"
        annotation = "" if parameter.annotation is parameter.empty else f": {plain_type(str(parameter.annotation))}"
        parts.append(f"{prefix}{parameter.name}{annotation}{default}")
    returned = plain_type(str(function.__annotations__.get("return", "None")))
    line = f"{name}({', '.join(parts)}) -> {returned}"
    if len(line) <= 110:
        return line
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), f") -> {returned}"])


def literal(value: object) -> str:
    if value is msgspec.UNSET:
        return "UNSET"
    if isinstance(value, str):
        return '"' + value.replace('"', '\\"') + '"'
    return repr(value)


def plain_type(annotation: str) -> str:
    """Return an annotation as its author wrote it, without the quotes that the future import leaves."""
    return annotation.strip("'\"").replace("'", '"')


def fields(kind: type[msgspec.Struct]) -> list[Field]:
    """Return the fields of a struct with their types, defaults and descriptions."""
    docs: dict[str, tuple[str, str]] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            docs |= _field_docs(base)
    try:
        resolved = {field.name: shown_type(field.type) for field in msgspec.structs.fields(kind)}
        encoded = {field.name: field.encode_name for field in msgspec.structs.fields(kind)}
    except (NameError, TypeError):
        resolved, encoded = {name: annotation for name, (annotation, _) in docs.items()}, {}
    found = []
    defaults = _defaults(kind)
    for name in kind.__struct_fields__:
        annotation, doc = docs.get(name, ("", ""))
        found.append(Field(encoded.get(name, name), resolved.get(name, annotation), defaults[name], doc))
    return found


def field_table(found: list[Field]) -> str:
    rows = [
        (f"`{one.name}`", code(one.type), "required" if one.default is None else code(one.default), one.doc)
        for one in found
    ]
    return table(("field", "type", "default", "meaning"), rows)


def _defaults(kind: type[msgspec.Struct]) -> dict[str, str | None]:
    names, given = kind.__struct_fields__, kind.__struct_defaults__
    found: dict[str, str | None] = dict.fromkeys(names)
    for name, default in zip(names[len(names) - len(given) :], given, strict=True):
        factory = getattr(default, "factory", None)
        if default is msgspec.NODEFAULT:
            continue
        found[name] = literal(factory()) if factory is not None else _default(default)
    return found


def _default(value: object) -> str:
    if isinstance(value, msgspec.Struct):
        return f"{type(value).__name__}()"
    return "" if inspect.isroutine(value) or value is msgspec.UNSET else literal(value)


def _field_docs(kind: type) -> dict[str, tuple[str, str]]:
    """Return annotation and docstring of each field that a class defines itself."""
    try:
        [body] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except OSError:
        return {}
    assert isinstance(body, ast.ClassDef)
    found: dict[str, tuple[str, str]] = {}
    for node, after in zip(body.body, [*body.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            doc = ""
            if (
                isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
                and isinstance(after.value.value, str)
            ):
                doc = markdown(after.value.value)
            found[node.target.id] = (plain_type(ast.unparse(node.annotation)), doc)
    return found


def shown_type(kind: Any) -> str:
    """Return a resolved type in the form of an annotation, with the limits of a number or a text."""
    if kind is Any:
        return "any"
    if kind is None or kind is type(None):
        return "None"
    if isinstance(kind, str):
        return kind
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        metas = [meta for meta in arguments[1:] if isinstance(meta, msgspec.Meta)]
        limits = [
            form.format(f"{getattr(meta, key):,}")
            for meta in metas
            for key, form in _LIMITS.items()
            if getattr(meta, key) is not None
        ]
        return shown_type(arguments[0]) + (f" ({', '.join(limits)})" if limits else "")
    if origin is typing.Literal:
        return " | ".join(literal(value) for value in arguments)
    if origin in (typing.Union, types.UnionType):
        shown = [shown_type(one) for one in arguments if one is not msgspec.UnsetType]
        return " | ".join(sorted(shown, key=lambda one: one == "None"))
    if origin is not None and arguments:
        inner = ", ".join("…" if one is ... else shown_type(one) for one in arguments if not isinstance(one, list))
        return f"{getattr(origin, '__name__', str(origin))}[{inner}]"
    return getattr(kind, "__name__", str(kind))


def structs_in(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """Yield the structs that a type is made of, without those inside of them."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for one in typing.get_args(kind):
        if one is not ... and not isinstance(one, (list, str, int)):
            yield from structs_in(one)


def commented(module: types.ModuleType, name: str) -> Mapping[str, str]:
    """Return the strings of an assignment to ``name``, each with the comment lines above it."""
    lines = inspect.getsource(module).splitlines()
    [node] = [
        one
        for one in ast.parse("\n".join(lines)).body
        if (isinstance(one, ast.Assign) and getattr(one.targets[0], "id", "") == name)
        or (isinstance(one, ast.AnnAssign) and getattr(one.target, "id", "") == name)
    ]
    value = node.value
    assert value is not None
    inside = (
        value.keys
        if isinstance(value, ast.Dict)
        else [key for one in ast.walk(value) for key in (one.keys if isinstance(one, ast.Dict) else [])]
    )
    strings = inside or [one for one in ast.walk(value) if isinstance(one, ast.Constant)]
    found = {}
    for one in sorted((one for one in strings if isinstance(one, ast.Constant)), key=lambda one: one.lineno):
        at = one.lineno - 2
        above: list[str] = []
        while lines[at].lstrip().startswith("#"):
            above.insert(0, lines[at].strip().removeprefix("#").strip())
            at -= 1
        if isinstance(one.value, str):
            found[one.value] = markdown(" ".join(above))
    return found
