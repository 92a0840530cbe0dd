"""The guide ``demo/tour``: answers to questions about clew, and tool calls on request.

Topics are found by words in the question. A request for a file, a folder or a command becomes a call of an offered
tool, whose result is shown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from clew.providers.base import ToolSchema
from clew.providers.demo.reading import Asked, Result, arguments, compact
from clew.providers.demo.script import script

__all__ = ["answer", "show_results", "wanted_call"]

_LONGEST_SHOWN: Final = 1_200

_PLEASE: Final = r"\A\W*(?:(?:please|now|then|ok|can you|could you|would you)\W+)*"
"""A request begins with its verb; a question about running something is not a request."""
_FILE: Final = r"[`'\"]?([\w./~-]*\w[\w.-]*\.\w+|[\w.-]+/[\w./-]*|Makefile|LICENSE)[`'\"]?"
_LIST: Final = re.compile(
    _PLEASE
    + r"(?:(?:list|show)\b[^.?!]*?\b(?:files|folder|directory)\b|what\s+files\b|what(?:'s| is)\s+in\s+th\w+\s+folder)"
    r"(?:[^.?!]*?\b(?:in|of|under)\s+[`'\"]?([\w./~-]+))?",
    re.IGNORECASE,
)
_RUN: Final = re.compile(_PLEASE + r"(?:run|execute)\s+(?:the command\s+)?(?:`([^`]+)`|(.+))", re.IGNORECASE)
_WRITE: Final = re.compile(
    rf"{_PLEASE}(?:write|create|make|save)\b(?:.*?\bfile\b)?.*?{_FILE}(?:\s+(?:with|saying|containing)\s+(.+))?",
    re.IGNORECASE | re.DOTALL,
)
_READ: Final = re.compile(rf"{_PLEASE}(?:read|open|show|print|cat)\b.*?{_FILE}", re.IGNORECASE)
_THIS_FOLDER: Final = frozenset({"this", "the", "here", "my", "current"})


def answer(question: str) -> str:
    """Return the answer to a question: the texts of at most two topics, or a welcome."""
    texts = script()
    found = [topic.text for topic in texts.topics if topic.fits(question)][:2]
    if not found and not texts.about.fits(question):
        return texts.welcome.replace("{hints}", texts.hints)
    return "\n".join(found or [texts.about.text]) + "\n" + texts.hints


def wanted_call(question: str, tools: Sequence[ToolSchema]) -> Asked | str | None:
    """Return the call a prompt requests; a sentence if no tool for it is offered; None if it requests none."""
    offered = {tool.name: tool for tool in tools}
    for names, rest in _wishes(question):
        for name in names:
            if name in offered:
                return Asked(name, arguments(name, rest, offered[name]))
        return (
            "I would use a tool for that, but none is offered here. A session that was started in a folder "
            "(`clew run` does that, and over HTTP `workspace_root`) has tools for files and commands.\n\n"
            + script().hints
        )
    return None


def _wishes(question: str) -> list[tuple[tuple[str, ...], str]]:
    """Return the tools that can serve the request, by preference, with their arguments."""
    if (match := _RUN.search(question)) is not None:
        command = (match[1] or match[2]).strip()
        return [(("bash",), command if match[1] else command.rstrip(".?!"))]
    if (match := _LIST.search(question)) is not None:
        folder = match[1] if match[1] and match[1].lower() not in _THIS_FOLDER else "."
        return [(("ls", "list", "list_directory", "glob"), folder)]
    if (match := _WRITE.search(question)) is not None:
        return [(("write", "write_file"), f"{match[1]} {(match[2] or 'Written by demo/tour.').strip()}")]
    if (match := _READ.search(question)) is not None:
        return [(("read", "read_file"), match[1].rstrip("."))]
    return []


def show_results(results: Sequence[Result]) -> str:
    """Return tool results as Markdown."""
    return "\n\n".join(_shown(result) for result in results) + "\n\nAnything else? " + script().hints


def _shown(result: Result) -> str:
    asked = f"`{result.tool}` {compact(result.input) if result.input is not None else ''}".strip()
    if result.outcome == "denied":
        return f"{asked} was denied{f': {result.text}' if result.text else ''}. That is fine, nothing was done."
    if result.outcome == "failed":
        return f"{asked} did not work: {result.text}"
    text = result.text if len(result.text) <= _LONGEST_SHOWN else result.text[:_LONGEST_SHOWN] + "\n…"
    fence = "`" * max(3, max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    return f"{asked} says:\n\n{fence}\n{text}\n{fence}"
