"""Messages as session updates: each update has only what was not sent before.

Chunks of a stream are sent as they come. A whole message, stored or streamed from its first part, is compared with what
was sent of it, and the difference is sent as chunks.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from clew.fronts.acp.content import FindBlob, blocks_of, text_block
from clew.transcript import part as p
from clew.transcript.chunk import Chunk, ReasoningDelta, TextDelta
from clew.transcript.replay import Diverged
from clew.transcript.shown_messages import ShownChunk, ShownMessages

__all__ = ["UpdateSender", "describe_call"]

log = logging.getLogger("clew.acp")
_MAX_CALLS: Final = 10_000
_TEXTS: Final = {"text": "agent_message_chunk", "reasoning": "agent_thought_chunk"}
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


class UpdateSender:
    """Sends the updates of one session to one client. ``folder`` is the session's workspace."""

    def __init__(
        self,
        send: Callable[[dict[str, Any]], Awaitable[None]],
        find_blob: FindBlob,
        folder: str | None,
        *,
        shows_compaction: bool,
    ) -> None:
        self._send = send
        self._find_blob = find_blob
        self._folder = folder
        self._shows_compaction = shows_compaction
        self._messages = ShownMessages()
        self._first_texts: dict[str, int] = {}
        self._wholes: set[tuple[str, int]] = set()
        self._calls: dict[tuple[str, str], dict[str, bytes] | None] = {}
        self._message_of_call: dict[str, str] = {}
        self._terminals: dict[str, str] = {}
        self.compacting: str | None = None
        """The id that was sent for the running compaction; the next summary is sent with the same one."""

    def knows(self, message_id: str) -> bool:
        return message_id in self._messages

    def mark_sent(self, message_id: str, parts: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Mark these parts of a message as sent; without ``parts`` it is the client's own message."""
        self._messages.mark(message_id, parts)

    async def send_message(self, message_id: str, role: str, parts: Sequence[Mapping[str, Any]]) -> bool:
        """Send what is new in a stored message; return whether a growing message has grown."""
        if role == "assistant":
            try:
                new = self._messages.catch_up(message_id, parts)
            except Diverged as error:
                log.warning("message %s is not what was sent of it: %s", message_id, error)
                return False
            await self._send_new(message_id, new)
            return bool(new)
        if not self.knows(message_id):
            self._messages.mark(message_id, None)
            for part in parts:
                await self._send_whole(message_id, role, part)
        return False

    async def send_chunk(self, message_id: str, chunk: Chunk, cursor: str | None) -> None:
        """Send what is new with a chunk of a stream; see :class:`ShownMessages`."""
        await self._send_new(message_id, self._messages.take(chunk, cursor))

    async def _send_new(self, message_id: str, chunks: Sequence[ShownChunk]) -> None:
        for index, chunk in chunks:
            if index is None:
                continue
            if isinstance(chunk, TextDelta | ReasoningDelta):
                await self._send_text(message_id, index, chunk)
                continue
            part = self._messages.part(message_id, index)
            if p.is_call(part):
                # All chunks are in the part by now, so a call that has ended is sent once.
                await self._send_call(message_id, part)
            elif p.kind_of(part) not in _TEXTS and (message_id, index) not in self._wholes:
                self._wholes.add((message_id, index))
                await self._send_whole(message_id, "assistant", part)

    async def _send_text(self, message_id: str, index: int, chunk: TextDelta | ReasoningDelta) -> None:
        id_ = message_id
        if not isinstance(chunk, TextDelta) or self._first_texts.setdefault(message_id, index) != index:
            # Texts separated by a call are two messages in an editor; the first has the message's own id.
            id_ = f"{message_id}:{index}"
        if chunk.delta:
            kind = _TEXTS[chunk.type.partition("-")[0]]
            await self._send({"sessionUpdate": kind, "content": text_block(chunk.delta), "messageId": id_})

    async def _send_whole(self, message_id: str, role: str, part: Mapping[str, Any]) -> None:
        summary = p.data_of(part, p.COMPACTION_PART)
        if summary is not None and self._shows_compaction:
            id_, self.compacting = self.compacting or message_id, None
            await self.send_compaction(id_, "completed", str(summary.get("summary") or ""))
            return
        kind = "user_message_chunk" if role == "user" and summary is None else "agent_message_chunk"
        for block in await blocks_of(part, self._find_blob):
            await self._send({"sessionUpdate": kind, "content": block, "messageId": message_id})

    async def send_compaction(
        self, compaction_id: str, status: str, summary: str | None = None, error: str | None = None
    ) -> None:
        """Send the status of a compaction, if the client can show it."""
        if not self._shows_compaction:
            return
        more: dict[str, Any] = {} if summary is None else {"summary": [text_block(summary)] if summary else []}
        more |= {} if error is None else {"error": error}
        await self._send(
            {"sessionUpdate": "compaction_update", "compactionId": compaction_id, "status": status, **more}
        )

    # Calls

    def call_id(self, message_id: str, part: Mapping[str, Any]) -> str:
        """Return the id of a call: its own, prefixed with the message's id if another message has a call of that id."""
        own = str(p.call_id_of(part))
        while len(self._message_of_call) > _MAX_CALLS:
            self._message_of_call.pop(next(iter(self._message_of_call)))
        return own if self._message_of_call.setdefault(own, message_id) == message_id else f"{message_id}:{own}"

    async def send_terminal(self, call_id: str, terminal_id: str) -> None:
        """Tell the client that a call runs in a terminal of the editor, which then shows its output."""
        self._terminals[call_id] = terminal_id
        content = [{"type": "terminal", "terminalId": terminal_id}]
        await self._send({"sessionUpdate": "tool_call_update", "toolCallId": call_id, "content": content})

    async def _send_call(self, message_id: str, part: Mapping[str, Any]) -> None:
        key = message_id, str(p.call_id_of(part))
        sent = self._calls.get(key, {})
        if sent is None or (sent and p.state_of(part) == "input-streaming"):
            return  # sent with its result, or nothing to send before its arguments are complete
        fields = describe_call(part, self._folder)
        if (terminal_id := self._terminals.get(key[1])) is not None:
            fields["content"] = [{"type": "terminal", "terminalId": terminal_id}]
        encoded = {name: msgspec.json.encode(value) for name, value in fields.items()}
        kind, changed = "tool_call", fields
        if sent:
            kind = "tool_call_update"
            changed = {name: fields[name] for name in fields if encoded[name] != sent.get(name)}
            if p.state_of(part) in ("input-available", "approval-responded"):
                # Keep what the approval request showed, such as a diff, until the result replaces it.
                changed = {name: new for name, new in changed.items() if name == "status" or name not in sent}
            if not changed:
                return
        self._calls[key] = {**sent, **encoded}
        while len(self._calls) > _MAX_CALLS:
            self._calls.pop(next(iter(self._calls)))
        await self._send({"sessionUpdate": kind, "toolCallId": self.call_id(message_id, part), **changed})
        if fields["status"] == "completed" and (entries := _plan_of(part)) is not None:
            await self._send({"sessionUpdate": "plan", "entries": entries})
        if fields["status"] in ("completed", "failed"):
            self._terminals.pop(key[1], None)
            self._calls[key] = None


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


def _plan_of(part: Mapping[str, Any]) -> list[dict[str, Any]] | None:
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
