"""The targets of a call: what its tool names, and the arguments that the tool declares capabilities for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from clew.errors import ToolFailed
from clew.tools.base import Tool, target_of_arguments
from clew.tools.files.paths import locate
from clew.tools.web.url import parse_url
from clew.transcript.rule import Capability, Target

__all__ = ["call_targets", "capability_targets"]

_URL: Final = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://)?(?:[^@/?#\\]*@)?([^@/?#\\]*)(?:[/?#][^\\]*)?")


def call_targets(tool: Tool, args: Mapping[str, Any], workspace: Path | None) -> Sequence[Target]:
    """Return what a call would touch. Raises ``ToolFailed`` as :meth:`Tool.targets` does."""
    own = tool.targets(args, workspace)
    declared = getattr(tool, "capabilities", None)
    if not isinstance(declared, Mapping):
        return own
    named: dict[Target, list[Capability]] = {}
    unknown: list[Capability] = []
    for capability, argument in declared.items():
        schema = tool.input_schema.get("properties", {}).get(argument, {})
        value = args.get(argument, schema.get("default"))
        targets = list(capability_targets(tool.name, capability, value, workspace))
        if not targets or not _is_text(value):
            unknown.append(capability)
        for target in targets:
            named.setdefault(target, []).append(capability)
    found = [
        Target(target.permission, target.kind, target.value, target.inside, tuple(capabilities))
        for target, capabilities in named.items()
    ]
    arguments = target_of_arguments(tool.name, args)
    if not named or list(own) != [arguments]:
        return [*own, *found]
    # The arguments as text say nothing that these do not, except what is not known: it may be anything.
    return [*found, msgspec.structs.replace(arguments, capabilities=tuple(unknown))] if unknown else found


def _is_text(value: Any) -> bool:
    """Return whether a value is text, or a list of nothing else."""
    return all(map(_is_text, value)) if isinstance(value, list | tuple) else isinstance(value, str)


def capability_targets(name: str, capability: Capability, value: Any, workspace: Path | None) -> Iterator[Target]:
    """Yield what the value of an argument names; nothing for one that cannot be read, which then counts as unknown."""
    if isinstance(value, list | tuple):
        for one in value:
            yield from capability_targets(name, capability, one, workspace)
    if not isinstance(value, str):
        return
    match capability:
        case "fs.read" | "fs.write":
            # Tools may expand a tilde, or not.
            for text in dict.fromkeys((value, os.path.expanduser(value))):
                if workspace is not None:
                    yield locate(text, workspace).target(name)
                elif os.path.isabs(text):
                    yield Target(name, "path", str(locate(text, Path("/")).path))
        case "net.fetch":
            yield Target(name, "host", _host(value))
        case "shell.run":
            yield Target(name, "command", value)
        case _:
            yield Target(name, "plain", value)


def _host(text: str) -> str:
    """Return the host of a URL with any scheme, or of an address. What programs could read as another host is returned
    as it is: no host, so that it asks."""
    found = _URL.fullmatch(text)
    if found is None:
        return text
    try:
        return parse_url(f"https://{found[1]}/").host
    except ToolFailed:
        return text
