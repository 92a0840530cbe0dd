"""``@tool``: makes a tool from a function.

The description is the docstring, the schema comes from the type hints. A parameter annotated ``ToolContext`` is filled
in by the run and is not an argument. Arguments are converted to the types of the hints (``hints``). An async function
runs on the loop, a sync one in a thread; the model gets an exception as one sentence, a result as JSON. Each value of a
generator is shown to people and replaces the one before; the last one is the output.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, get_type_hints, overload

from clew.errors import ClewError, ToolFailed
from clew.tools.base import (
    DEFAULT_TIMEOUT_MS,
    Capabilities,
    PreviewOf,
    TargetsOf,
    ToolContext,
    ToolOutput,
    declared_capabilities,
    target_of_arguments,
)
from clew.tools.hints import Reader, ValueMismatch, reader_of, to_plain
from clew.tools.output import to_output
from clew.tools.thread import run_in_thread
from clew.transcript.rule import Target

__all__ = ["FunctionTool", "tool"]

# The names of functions that every provider accepts.
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_KEYWORD: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class FunctionTool:
    """A tool made from a function; calling it calls the function."""

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
        capabilities: Capabilities | None = None,
        cancel: bool = True,
    ) -> None:
        self.name: str = name if name is not None else str(getattr(function, "__name__", ""))
        self.description = description or inspect.getdoc(function) or ""
        self.timeout_ms = timeout_ms
        self.needs_workspace = needs_workspace
        self.asks_human = asks_human
        self.preview = preview
        self.capabilities = capabilities
        self.cancel = cancel
        """False: an abort does not cancel a call that has begun; its result is stored once it has ended."""
        if not _NAME.fullmatch(self.name):
            raise TypeError(f"a tool cannot be called {self.name!r}; use 1 to 64 of A-Z a-z 0-9 _ -")
        if not self.description:
            raise TypeError(f"the tool {self.name} needs a docstring: it is the description for the model")
        self._function = function
        self._targets = targets
        hints, self._defaults, self._context = _parameters(function, self.name)
        try:
            self._readers = {parameter: reader_of(hint) for parameter, hint in hints.items()}
        except TypeError as error:
            raise TypeError(f"the tool {self.name} has a parameter that JSON cannot represent: {error}") from error
        self.input_schema: Mapping[str, Any] = _schema(self._readers, self._defaults, self.name)
        declared_capabilities(self)
        if isinstance(capabilities, Mapping) and (unknown := sorted({*capabilities.values()} - self._readers.keys())):
            raise TypeError(f"the tool {self.name} declares capabilities for arguments it does not take: {unknown}")

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def targets(self, args: Mapping[str, Any], workspace: Path | None) -> Sequence[Target]:
        if self._targets is not None:
            return self._targets(args, workspace)
        return [target_of_arguments(self.name, args)]

    async def execute(self, args: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        if unknown := args.keys() - self._readers.keys():
            raise ToolFailed(f"{self.name} takes no {', '.join(sorted(map(str, unknown)))}")
        if missing := self._readers.keys() - args.keys() - self._defaults.keys():
            raise ToolFailed(f"{self.name} needs {', '.join(sorted(missing))}")
        values: dict[str, Any] = {}
        for name, value in args.items():
            try:
                values[name] = self._readers[name].read(value)
            except ValueMismatch as error:
                raise ToolFailed(f"{self.name}: {name} does not fit: {error}") from error
        if self._context is not None:
            values[self._context] = context
        try:
            if inspect.iscoroutinefunction(self._function):
                result = await self._function(**values)
            elif inspect.isasyncgenfunction(self._function):
                result = None
                async with contextlib.aclosing(self._function(**values)) as generator:
                    async for result in generator:
                        _report(result, context)
            elif inspect.isgeneratorfunction(self._function):
                result = await run_in_thread(_drain, self._function(**values), context, cancel=self.cancel)
            else:
                result = await run_in_thread(self._function, **values)
                if inspect.isawaitable(result):
                    result = await result
        except ClewError:
            raise
        except Exception as error:
            raise ToolFailed(f"{self.name} failed: {type(error).__name__}: {error}") from error
        return await to_output(result, context, self.name)


def _drain(generator: Generator[Any, Any, Any], context: ToolContext, *, cancel: bool) -> Any:
    """Run a generator and return its last value, or the one it returns. With ``cancel`` an abort ends it between two
    values."""
    result: Any = None
    with contextlib.closing(generator):
        while not (cancel and context.signal.aborted):
            try:
                result = next(generator)
            except StopIteration as end:
                return result if end.value is None else end.value
            _report(result, context)
    return result


def _report(value: Any, context: ToolContext) -> None:
    # A value that is not JSON fails later, if it becomes the output.
    with contextlib.suppress(TypeError, ValueError, RecursionError):
        context.report(to_plain(value))


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
    capabilities: Capabilities | None = None,
    cancel: bool = True,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool of a function: ``@tool``, or ``@tool(timeout_ms=…, targets=…, capabilities=…, cancel=…)``."""
    if function is not None:
        return FunctionTool(function)
    return partial(FunctionTool, **options)


def _parameters(function: Callable[..., Any], name: str) -> tuple[dict[str, Any], dict[str, Any], str | None]:
    """Return the hints of the arguments, the defaults, and the parameter for the context."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(f"the hints of the tool {name} use a name its module does not define: {error}") from error
    arguments: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    context = None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in _KEYWORD:
            raise TypeError(f"the tool {name} has the parameter {parameter}; only keyword parameters are supported")

        if parameter.name not in hints:
            raise TypeError(f"the parameter {parameter.name} of the tool {name} needs a type hint")
        hint = hints[parameter.name]
        if hint is ToolContext:
            context = parameter.name
            continue
        arguments[parameter.name] = hint
        if parameter.default is not inspect.Parameter.empty:
            defaults[parameter.name] = parameter.default
    return arguments, defaults, context


def _schema(readers: Mapping[str, Reader], defaults: Mapping[str, Any], name: str) -> dict[str, Any]:
    recursive: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    for parameter, reader in readers.items():
        properties[parameter] = dict(reader.schema)
        recursive |= properties[parameter].pop("$defs", {})
        if parameter in defaults:
            try:
                properties[parameter]["default"] = to_plain(defaults[parameter])
            except TypeError as error:
                message = (
                    f"the default of {parameter} of the tool {name} is not JSON: {error}; a Field goes into Annotated"
                )
                raise TypeError(message) from error
    whole = {"type": "object", "properties": properties, "additionalProperties": False}
    if required := [parameter for parameter in readers if parameter not in defaults]:
        whole["required"] = required
    if recursive:
        whole["$defs"] = recursive
    return whole
