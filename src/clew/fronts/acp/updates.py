"""Messages as session updates: each update has only what was not sent before.

Stored messages and messages that are still being written are handled alike: an update has the new content of each part
since the last one. So a resumed message, a stream attached twice and a lost connection are not special cases.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from clew.fronts.acp.calls import describe_call, plan_of
from clew.fronts.acp.content import FindBlob, blocks_of, text_block
from clew.transcript import part as p
from clew.transcript.chunk import Chunk, ReasoningDelta, TextDelta
from clew.transcript.fold import Fold

__all__ = ["UpdateSender"]

_MAX_MESSAGES: Final = 200
"""The number of newest messages whose sent content is remembered; older messages no longer change."""
_MAX_CALLS: Final = 10_000
_TEXTS: Final = {"text": "agent_message_chunk", "reasoning": "agent_thought_chunk"}


class _Sent:
    """The sent content of one message: the sent length of each part, and the index of the first text."""

    def __init__(self, parts: Sequence[Mapping[str, Any]], *, is_own: bool = False) -> None:
        self.is_own = is_own
        # A call without a result is sent again when it has one.
        self.parts: list[Any] = [None if p.is_open_call(part) else _extent(part) for part in parts]
        self.first_text: int | None = None


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
        self._sent: dict[str, _Sent] = {}
        self._message_of_call: dict[str, str] = {}
        self._terminals: dict[str, str] = {}
        self.compacting: str | None = None
        """The id that was sent for the running compaction; the next summary is sent with the same one."""

    def knows(self, message_id: str) -> bool:
        return message_id in self._sent

    def mark_sent(self, message_id: str, parts: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Mark these parts of a message as sent; without ``parts`` it is the client's own message."""
        self._sent[message_id] = _Sent(parts or (), is_own=parts is None)
        while len(self._sent) > _MAX_MESSAGES:
            self._sent.pop(next(iter(self._sent)))

    async def send_message(self, message_id: str, role: str, parts: Sequence[Mapping[str, Any]]) -> None:
        """Send what is new in a message."""
        for index, part in enumerate(parts):
            await self._send_part(message_id, role, index, part)

    async def send_chunk(self, fold: Fold, chunk: Chunk) -> None:
        """Send what a chunk adds to a growing message."""
        index = fold.apply_shown(chunk)
        if index is None:
            return
        sent = self._sent.get(fold.message_id)
        if sent is None or len(sent.parts) < index:
            await self.send_message(fold.message_id, "assistant", fold.parts)
        elif (
            isinstance(chunk, TextDelta | ReasoningDelta)
            and index < len(sent.parts)
            and sent.parts[index] == fold.text_length(index) - len(chunk.delta)
        ):
            # The common case: do not rebuild a long text for each chunk.
            await self._send_text(fold.message_id, sent, index, chunk.type.partition("-")[0], chunk.delta)
        else:
            await self._send_part(fold.message_id, "assistant", index, fold.part(index))

    async def _send_part(self, message_id: str, role: str, index: int, part: Mapping[str, Any]) -> None:
        if message_id not in self._sent:
            self.mark_sent(message_id, ())
        sent = self._sent[message_id]
        if sent.is_own:
            return
        while index >= len(sent.parts):
            sent.parts.append(None)
        kind = p.kind_of(part)
        if p.is_call(part):
            sent.parts[index] = await self._send_call(message_id, part, sent.parts[index])
        elif role == "assistant" and kind in _TEXTS:
            await self._send_text(
                message_id, sent, index, kind, (p.text_of(part, kind) or "")[sent.parts[index] or 0 :]
            )
        elif sent.parts[index] is None:
            sent.parts[index] = 0
            await self._send_whole(message_id, role, part)

    async def _send_text(self, message_id: str, sent: _Sent, index: int, kind: str, new: str) -> None:
        if kind == "text" and sent.first_text is None:
            sent.first_text = index
        if new:
            # Texts separated by a call are two messages in an editor; the first has the message's own id.
            id_ = message_id if index == sent.first_text else f"{message_id}:{index}"
            await self._send({"sessionUpdate": _TEXTS[kind], "content": text_block(new), "messageId": id_})
        sent.parts[index] = (sent.parts[index] or 0) + len(new)

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

    async def _send_call(
        self, message_id: str, part: Mapping[str, Any], sent: dict[str, bytes] | int | None
    ) -> dict[str, bytes] | int:
        if isinstance(sent, int):
            return sent  # already sent with its result
        if sent is not None and p.state_of(part) == "input-streaming":
            return sent
        fields = describe_call(part, self._folder)
        if (terminal_id := self._terminals.get(str(p.call_id_of(part)))) is not None:
            fields["content"] = [{"type": "terminal", "terminalId": terminal_id}]
        encoded = {name: msgspec.json.encode(value) for name, value in fields.items()}
        if sent is None:
            update = {"sessionUpdate": "tool_call", "toolCallId": self.call_id(message_id, part), **fields}
        else:
            changed = {name: fields[name] for name in fields if encoded[name] != sent.get(name)}
            if p.state_of(part) in ("input-available", "approval-responded"):
                # Keep what the approval request showed, such as a diff, until the result replaces it.
                changed = {name: new for name, new in changed.items() if name == "status" or name not in sent}
            if not changed:
                return sent
            update = {"sessionUpdate": "tool_call_update", "toolCallId": self.call_id(message_id, part), **changed}
        await self._send(update)
        if fields["status"] == "completed" and (entries := plan_of(part)) is not None:
            await self._send({"sessionUpdate": "plan", "entries": entries})
        if fields["status"] in ("completed", "failed"):
            self._terminals.pop(str(p.call_id_of(part)), None)
            return 0
        return {**(sent or {}), **encoded}


def _extent(part: Mapping[str, Any]) -> int:
    """Return the number of characters that count as sent for a part that was sent completely."""
    return len(p.text_of(part, *_TEXTS) or "")
