"""Tool calls as editors show them: kind, status, files and changes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from clew.fronts.acp.content import text_block
from clew.transcript import part as p

__all__ = ["describe_call", "plan_of"]

_KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("read", "ls", "recall", "skill"), "read"),
    **dict.fromkeys(("write", "edit"), "edit"),
    **dict.fromkeys(("grep", "glob"), "search"),
    "bash": "execute",
    "web_fetch": "fetch",
    **dict.fromkeys(("todo", "question"), "think"),
}
_STATUSES: Final[Mapping[str, str]] = {
    "input-streaming": "pending",
    "approval-requested": "pending",
    "input-available": "in_progress",
    "approval-responded": "in_progress",
    "output-available": "completed",
    "output-error": "failed",
    "output-denied": "failed",
}
_ABOUT: Final = ("path", "command", "pattern", "url", "question", "query", "name", "description", "prompt")
"""The arguments that can stand in a title; the first one present is used."""
_MAX_TITLE: Final = 120
_HUNK: Final = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)(?:,\d+)? @@")


def describe_call(part: Mapping[str, Any], folder: str | None) -> dict[str, Any]:
    """Return the fields of an update for a call in its current state."""
    name, state = p.tool_name(part), p.state_of(part) or ""
    status = "in_progress" if p.is_preliminary(part) else _STATUSES.get(state, "in_progress")
    given = p.input_of(part)
    given = given if isinstance(given, Mapping) else {}
    fields: dict[str, Any] = {"title": _title(name, given), "name": name, "kind": _KINDS.get(name, "other")}
    fields["status"] = status
    if state == "input-streaming":
        return {**fields, "title": name}
    fields["rawInput"] = p.input_of(part)
    path = _path(given, folder)
    content: list[dict[str, Any]] = []
    change = p.change_of(part)
    if path is not None:
        hunks = _hunks(change)
        line = hunks[0][0] if hunks else given.get("offset")
        fields["locations"] = [{"path": path, "line": line} if isinstance(line, int) and line >= 1 else {"path": path}]
        content = _diffs(name, given, path, hunks)
    elif change is not None:
        # A change of something other than a file, such as the tool definitions of an MCP server.
        content = [{"type": "content", "content": text_block(str(change.get("diff") or ""))}]
    if state == "approval-requested" and given and not content:
        # A title is one line and may be cut; for an approval the whole call must be visible.
        command = given.get("command")
        whole = command if isinstance(command, str) else msgspec.json.format(msgspec.json.encode(given)).decode()
        if fields["title"] != f"{name} {whole}":
            content = [{"type": "content", "content": text_block(whole)}]
    if state in ("output-available", "output-error", "output-denied"):
        # Next to a diff the text of a successful edit adds nothing; an error does.
        output = p.output_of(part)
        result = p.text_at(output, "text") if isinstance(output, Mapping) else None
        result = p.result_text(part) if result is None else result
        if result and (not content or status == "failed"):
            content = [*content, {"type": "content", "content": text_block(result)}]
        if status == "completed":
            fields["rawOutput"] = output
    if content:
        fields["content"] = content
    return fields


def plan_of(part: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the entries of a to-do call as a plan; None for other calls."""
    given = p.input_of(part)
    items = given.get("items") if p.tool_name(part) == "todo" and isinstance(given, Mapping) else None
    if not isinstance(items, list):
        return None
    entries = [item for item in items if isinstance(item, Mapping)]
    return [
        {"content": str(item.get("text")), "priority": "medium", "status": str(item.get("status"))} for item in entries
    ]


def _title(name: str, given: Mapping[str, Any]) -> str:
    about = next((given[key] for key in _ABOUT if isinstance(given.get(key), str) and given[key]), None)
    return name if about is None else p.first_words(f"{name} {about}", _MAX_TITLE)


def _path(given: Mapping[str, Any], folder: str | None) -> str | None:
    path = given.get("path")
    if not isinstance(path, str) or not path or "\x00" in path:
        return None
    whole = Path(folder or "/") / path
    return str(whole) if whole.is_absolute() else None


def _hunks(change: Mapping[str, Any] | None) -> list[tuple[int, str, str]]:
    """Return for each hunk of a diff its first line in the new text, the old text and the new text."""
    found: list[tuple[int, list[str], list[str]]] = []
    for line in str((change or {}).get("diff") or "").splitlines():
        if (head := _HUNK.match(line)) is not None:
            found.append((int(head[1]), [], []))
        elif found:
            _, old, new = found[-1]
            for side, signs in ((old, " -"), (new, " +")):
                if line[:1] in signs:
                    side.append(line[1:])
    return [(at, "\n".join(old), "\n".join(new)) for at, old, new in found]


def _diffs(name: str, given: Mapping[str, Any], path: str, hunks: list[tuple[int, str, str]]) -> list[dict[str, Any]]:
    if name not in ("write", "edit"):
        return []
    if hunks:
        return [{"type": "diff", "path": path, "oldText": old or None, "newText": new} for _, old, new in hunks]
    old, new = (given.get("old"), given.get("new")) if name == "edit" else (None, given.get("content"))
    return [{"type": "diff", "path": path, "oldText": old, "newText": new}] if isinstance(new, str) else []
