"""The targets of a call: what its tool names, and the arguments that the tool declares capabilities for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from clew.errors import ToolFailed
from clew.tools.base import Tool, target_of_arguments
from clew.tools.files.paths import locate
from clew.tools.web.url import parse_url
from clew.transcript.rule import Capability, Target

__all__ = ["call_targets", "capability_targets"]


def call_targets(tool: Tool, args: Mapping[str, Any], workspace: Path | None) -> Sequence[Target]:
    """Return what a call would touch. Raises ``ToolFailed`` as :meth:`Tool.targets` does."""
    own = tool.targets(args, workspace)
    declared = getattr(tool, "capabilities", None)
    if not isinstance(declared, Mapping):
        return own
    named: dict[Target, list[Capability]] = {}
    for capability, argument in declared.items():
        schema = tool.input_schema.get("properties", {}).get(argument, {})
        for target in capability_targets(tool.name, capability, args.get(argument, schema.get("default")), workspace):
            named.setdefault(target, []).append(capability)
    # The arguments as text say nothing that these do not.
    if named and list(own) == [target_of_arguments(tool.name, args)]:
        own = ()
    return [
        *own,
        *(
            Target(target.permission, target.kind, target.value, target.inside, tuple(capabilities))
            for target, capabilities in named.items()
        ),
    ]


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
    """Return the host of a URL with any scheme, or of an address; the text itself is no host, so that it asks."""
    rest = text.partition("://")[2] or text
    authority, slash, path = rest.partition("/")
    try:
        return parse_url(f"https://{authority.rpartition('@')[2]}{slash}{path}").host
    except ToolFailed:
        return text
