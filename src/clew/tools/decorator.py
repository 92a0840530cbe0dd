"""``@tool``: a plain function becomes a tool.

The description is the docstring, the schema comes from the type hints. A parameter annotated ``ToolContext`` is
handed in by the run and is no argument. Arguments arrive in the types of the hints. An async function runs on the
loop, a sync one in a thread; what it raises reaches the model as one sentence, what it returns as JSON.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, get_type_hints, overload

import msgspec

from clew.errors import ClewError, ToolFailed
from clew.misfit import misfit
from clew.tools.base import DEFAULT_TIMEOUT_MS, PreviewOf, TargetsOf, ToolContext, ToolOutput
from clew.tools.output import to_output
from clew.tools.thread import run_in_thread
from clew.transcript.rule import Target

__all__ = ["FunctionTool", "tool"]

# What every provider takes as the name of a function.
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_KEYWORD: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_EXACT: Final = 2.0**53


class FunctionTool:
    """A tool made of a function, which it still can be called as."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        targets: TargetsOf | None = None,
        needs_workspace: bool = False,
        asks_human: bool = False,
        preview: PreviewOf | None = None,
    ) -> None:
        self.name: str = name if name is not None else str(getattr(function, "__name__", ""))
        self.description = description or inspect.getdoc(function) or ""
        self.timeout_ms = timeout_ms
        self.needs_workspace = needs_workspace
        self.asks_human = asks_human
        self.preview = preview
        if not _NAME.fullmatch(self.name):
            raise TypeError(f"a tool cannot be called {self.name!r}; 1 to 64 of A-Z a-z 0-9 _ - are taken")
        if not self.description:
            raise TypeError(f"the tool {self.name} needs a docstring: it is what the model is told")
        self._function = function
        self._targets = targets
        self._hints, self._defaults, self._context = _parameters(function, self.name)
        self.input_schema: Mapping[str, Any] = _schema(self._hints, self._defaults, self.name)

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def targets(self, args: Mapping[str, Any], workspace: Path | None) -> Sequence[Target]:
        if self._targets is not None:
            return self._targets(args, workspace)
        try:
            # On one line, keys in order, so that a pattern can be written for them.
            compact = msgspec.json.encode(dict(args), order="deterministic").decode()
        except (TypeError, ValueError, RecursionError) as error:
            raise ToolFailed(f"the arguments are not JSON: {error}") from error
        return [Target(self.name, "plain", compact)]

    async def execute(self, args: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        if unknown := args.keys() - self._hints.keys():
            raise ToolFailed(f"{self.name} takes no {', '.join(sorted(map(str, unknown)))}")
        if missing := self._hints.keys() - args.keys() - self._defaults.keys():
            raise ToolFailed(f"{self.name} needs {', '.join(sorted(missing))}")
        values: dict[str, Any] = {}
        for name, value in args.items():
            try:
                values[name] = msgspec.convert(_whole(value), self._hints[name])
            except (msgspec.ValidationError, RecursionError) as error:
                why = misfit(error, self._hints[name]) if isinstance(error, msgspec.ValidationError) else error
                raise ToolFailed(f"{self.name}: {name} does not fit: {why}") from error
        if self._context is not None:
            values[self._context] = context
        try:
            if inspect.iscoroutinefunction(self._function):
                result = await self._function(**values)
            else:
                result = await run_in_thread(self._function, **values)
                if inspect.isawaitable(result):
                    result = await result
        except ClewError:
            raise
        except Exception as error:
            raise ToolFailed(f"{self.name} failed: {type(error).__name__}: {error}") from error
        return await to_output(result, context, self.name)


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
    targets: TargetsOf | None = None,
    needs_workspace: bool = False,
    asks_human: bool = False,
    preview: PreviewOf | None = None,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool of a function: ``@tool``, or ``@tool(timeout_ms=…, targets=…, needs_workspace=…)``."""
    if function is not None:
        return FunctionTool(function)
    return partial(FunctionTool, **options)


def _parameters(function: Callable[..., Any], name: str) -> tuple[dict[str, Any], dict[str, Any], str | None]:
    """The hints of the arguments, the defaults, and which parameter is the context."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(f"the hints of the tool {name} name something its module does not hold: {error}") from error
    taken: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    context = None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in _KEYWORD:
            raise TypeError(f"the tool {name} has the parameter {parameter}; only keywords can be handed in")
        if parameter.name not in hints:
            raise TypeError(f"the parameter {parameter.name} of the tool {name} needs a type hint")
        hint = hints[parameter.name]
        if hint is ToolContext:
            context = parameter.name
            continue
        taken[parameter.name] = hint
        if parameter.default is not inspect.Parameter.empty:
            defaults[parameter.name] = parameter.default
    return taken, defaults, context


def _schema(hints: Mapping[str, Any], defaults: Mapping[str, Any], name: str) -> dict[str, Any]:
    try:
        schemas, components = msgspec.json.schema_components(list(hints.values()))
    except TypeError as error:
        raise TypeError(f"the tool {name} has a parameter that JSON cannot carry: {error}") from error
    recursive: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    for parameter, schema in zip(hints, schemas, strict=True):
        properties[parameter] = dict(_inlined(schema, components, (), recursive))
        if parameter in defaults:
            properties[parameter]["default"] = msgspec.to_builtins(defaults[parameter])
    whole = {"type": "object", "properties": properties, "additionalProperties": False}
    if required := [parameter for parameter in hints if parameter not in defaults]:
        whole["required"] = required
    if recursive:
        whole["$defs"] = recursive
    return whole


def _inlined(node: Any, components: Mapping[str, Any], within: tuple[str, ...], recursive: dict[str, Any]) -> Any:
    """Models follow references badly, so each is replaced by what it names; only a type within itself keeps one."""
    if isinstance(node, list):
        return [_inlined(item, components, within, recursive) for item in node]
    if not isinstance(node, dict):
        return node
    reference = node.get("$ref")
    if not isinstance(reference, str):
        return {key: _inlined(value, components, within, recursive) for key, value in node.items()}
    name = reference.rpartition("/")[2]
    if name not in within:
        return _inlined(components[name], components, (*within, name), recursive)
    if name not in recursive:
        recursive[name] = None  # A place holder, so that the type is not entered a second time.
        recursive[name] = _inlined(components[name], components, (name,), recursive)
    return node


def _whole(value: Any) -> Any:
    """1.0 is an integer in JSON Schema, and some providers send all their numbers so; msgspec would refuse it."""
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return int(value)
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return value
