"""Telling: messages as updates of a session, as far as they were not told yet.

A message that is stored and one that grows are told by the same steps: what is new in each part since the last time. So
a run that goes on with a message, a stream that is joined twice, and what was missed while nobody could listen need no
steps of their own.
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
"""Of so many of the newest messages is known what was told; those before them do not change any more."""
_MAX_CALLS: Final = 10_000
_TEXTS: Final = {"text": "agent_message_chunk", "reasoning": "agent_thought_chunk"}


class _Told:
    """Of one message: how much of each part, and which is its first text."""

    def __init__(self, parts: Sequence[Mapping[str, Any]], *, is_own: bool = False) -> None:
        self.is_own = is_own
        # A call without a result is still to be told, whoever saw it begin.
        self.parts: list[Any] = [None if p.is_open_call(part) else _extent(part) for part in parts]
        self.first_text: int | None = None


class UpdateSender:
    """What one client was told of one session. ``send`` takes an update, ``folder`` is where the session works."""

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
        self._told: dict[str, _Told] = {}
        self._callers: dict[str, str] = {}
        self._terminals: dict[str, str] = {}
        self.compacting: str | None = None
        """Under which id a summary in the making was told; the next one that is there is that."""

    def knows(self, message_id: str) -> bool:
        return message_id in self._told

    def pass_over(self, message_id: str, parts: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Take it as told: these parts of it were there before; without any, it is the client's own."""
        self._told[message_id] = _Told(parts or (), is_own=parts is None)
        while len(self._told) > _MAX_MESSAGES:
            self._told.pop(next(iter(self._told)))

    async def tell(self, message_id: str, role: str, parts: Sequence[Mapping[str, Any]]) -> None:
        """What is new in a message."""
        for index, part in enumerate(parts):
            await self._tell_part(message_id, role, index, part)

    async def tell_chunk(self, fold: Fold, chunk: Chunk) -> None:
        """What is new by a chunk of a message that grows."""
        index = fold.apply_shown(chunk)
        if index is None:
            return
        told = self._told.get(fold.message_id)
        if told is None or len(told.parts) < index:
            await self.tell(fold.message_id, "assistant", fold.parts)
        elif (
            isinstance(chunk, TextDelta | ReasoningDelta)
            and index < len(told.parts)
            and told.parts[index] == fold.text_length(index) - len(chunk.delta)
        ):
            # Nearly every chunk: a long text is not put together again for each word.
            await self._tell_text(fold.message_id, told, index, chunk.type.partition("-")[0], chunk.delta)
        else:
            await self._tell_part(fold.message_id, "assistant", index, fold.part(index))

    async def _tell_part(self, message_id: str, role: str, index: int, part: Mapping[str, Any]) -> None:
        if message_id not in self._told:
            self.pass_over(message_id, ())
        told = self._told[message_id]
        if told.is_own:
            return
        while index >= len(told.parts):
            told.parts.append(None)
        kind = p.kind_of(part)
        if p.is_call(part):
            told.parts[index] = await self._tell_call(message_id, part, told.parts[index])
        elif role == "assistant" and kind in _TEXTS:
            await self._tell_text(
                message_id, told, index, kind, (p.text_of(part, kind) or "")[told.parts[index] or 0 :]
            )
        elif told.parts[index] is None:
            told.parts[index] = 0
            await self._tell_whole(message_id, role, part)

    async def _tell_text(self, message_id: str, told: _Told, index: int, kind: str, new: str) -> None:
        if kind == "text" and told.first_text is None:
            told.first_text = index
        if new:
            # Texts with a call between them are two messages to an editor: the first has the message's own id.
            id_ = message_id if index == told.first_text else f"{message_id}:{index}"
            await self._send({"sessionUpdate": _TEXTS[kind], "content": text_block(new), "messageId": id_})
        told.parts[index] = (told.parts[index] or 0) + len(new)

    async def _tell_whole(self, message_id: str, role: str, part: Mapping[str, Any]) -> None:
        summary = p.data_of(part, p.COMPACTION_PART)
        if summary is not None and self._shows_compaction:
            id_, self.compacting = self.compacting or message_id, None
            await self.tell_compaction(id_, "completed", str(summary.get("summary") or ""))
            return
        kind = "user_message_chunk" if role == "user" and summary is None else "agent_message_chunk"
        for block in await blocks_of(part, self._find_blob):
            await self._send({"sessionUpdate": kind, "content": block, "messageId": message_id})

    async def tell_compaction(
        self, compaction_id: str, status: str, summary: str | None = None, error: str | None = None
    ) -> None:
        """How far a summary of earlier turns is, to whoever can show that."""
        if not self._shows_compaction:
            return
        more: dict[str, Any] = {} if summary is None else {"summary": [text_block(summary)] if summary else []}
        more |= {} if error is None else {"error": error}
        await self._send(
            {"sessionUpdate": "compaction_update", "compactionId": compaction_id, "status": status, **more}
        )

    # Calls

    def call_id(self, message_id: str, part: Mapping[str, Any]) -> str:
        """What a call is known by: its own id, unless another message of the session has used that."""
        own = str(p.call_id_of(part))
        while len(self._callers) > _MAX_CALLS:
            self._callers.pop(next(iter(self._callers)))
        return own if self._callers.setdefault(own, message_id) == message_id else f"{message_id}:{own}"

    async def tell_terminal(self, call_id: str, terminal_id: str) -> None:
        """A call runs in a terminal of the editor's, which shows all that is to be seen of it."""
        self._terminals[call_id] = terminal_id
        content = [{"type": "terminal", "terminalId": terminal_id}]
        await self._send({"sessionUpdate": "tool_call_update", "toolCallId": call_id, "content": content})

    async def _tell_call(
        self, message_id: str, part: Mapping[str, Any], told: dict[str, bytes] | int | None
    ) -> dict[str, bytes] | int:
        if isinstance(told, int):
            return told  # over before anybody looked
        if told is not None and p.state_of(part) == "input-streaming":
            return told
        fields = describe_call(part, self._folder)
        if (terminal_id := self._terminals.get(str(p.call_id_of(part)))) is not None:
            fields["content"] = [{"type": "terminal", "terminalId": terminal_id}]
        seen = {name: msgspec.json.encode(value) for name, value in fields.items()}
        if told is None:
            update = {"sessionUpdate": "tool_call", "toolCallId": self.call_id(message_id, part), **fields}
        else:
            changed = {name: fields[name] for name in fields if seen[name] != told.get(name)}
            if p.state_of(part) in ("input-available", "approval-responded"):
                # What its request said of the change stands until its result says more.
                changed = {name: new for name, new in changed.items() if name == "status" or name not in told}
            if not changed:
                return told
            update = {"sessionUpdate": "tool_call_update", "toolCallId": self.call_id(message_id, part), **changed}
        await self._send(update)
        if fields["status"] == "completed" and (entries := plan_of(part)) is not None:
            await self._send({"sessionUpdate": "plan", "entries": entries})
        if fields["status"] in ("completed", "failed"):
            self._terminals.pop(str(p.call_id_of(part)), None)
            return 0
        return {**(told or {}), **seen}


def _extent(part: Mapping[str, Any]) -> int:
    """How much of a part was told, once all that is there was."""
    return len(p.text_of(part, *_TEXTS) or "")
