"""The difference between what a model was sent in two turns: prompt by section, tools, messages."""

from __future__ import annotations

import difflib
import json as jsonlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from clew.fronts.cli.command import Json, Store, end, opened, print_json
from clew.fronts.cli.plain import plain
from clew.history.report import RequestReport
from clew.transcript.part import kind_of, text_of

__all__ = ["COMMANDS", "difference"]

_COLOURS: Final = {"+": "\x1b[32m", "-": "\x1b[31m", "@": "\x1b[36m"}
_RESET: Final = "\x1b[0m"


def diff(turn: str, other: str, /, *, store: Store = None, json: Json = False) -> int:
    """Compare the last requests of two turns, also of two sessions: prompt, tools and messages.

    Example: clew diff trn_… trn_…
    """

    async def run() -> int:
        async with opened(store) as engine:
            before, after = await engine.request(turn), await engine.request(other)
        lines = list(difference(before, after))
        if json:
            print_json({"from": before, "to": after, "diff": lines})
            return 0
        coloured = sys.stdout.isatty()
        for line in lines:
            colour = _COLOURS.get(line[:1], "") if coloured else ""
            print(f"{colour}{plain(line)}{_RESET if colour else ''}")
        if not lines:
            print("the requests are the same")
        return 0

    return end(run())


COMMANDS: Final[Mapping[str, Callable[..., int]]] = {"diff": diff}


def difference(before: RequestReport, after: RequestReport) -> Iterator[str]:
    """A unified diff of two requests; nothing when they are the same."""
    names = (before.turn_id, after.turn_id)
    return difflib.unified_diff(list(_lines(before)), list(_lines(after)), *names, lineterm="")


def _lines(request: RequestReport) -> Iterator[str]:
    """A request as text. Ids are left out: in a branch the same words have others."""
    yield f"model {request.model}" + (f" {request.model.variant}" if request.model.variant else "")
    yield f"max_output_tokens {request.max_output_tokens} temperature {request.temperature}"
    for section in request.prompt:
        yield f"# prompt: {section.name}"
        yield from section.text.splitlines()
    for tool in request.tools:
        yield f"# tool: {tool.name}"
        yield from tool.description.splitlines()
        yield from jsonlib.dumps(tool.input_schema, indent=1, ensure_ascii=False, sort_keys=True).splitlines()
    for message in request.messages:
        yield f"# {message.role}"
        for part in message.parts:
            yield from _part_lines(part)


def _part_lines(part: Mapping[str, Any]) -> list[str]:
    kind, text = kind_of(part), text_of(part, "text", "reasoning")
    if text is not None:
        said = text.splitlines()
        return said if kind == "text" else [f"({line})" for line in said]
    kept = {name: value for name, value in part.items() if name not in ("toolCallId", "id")}
    return jsonlib.dumps(kept, indent=1, ensure_ascii=False, sort_keys=True).splitlines()
