"""Reader of pi's sessions: a header, then JSON lines with their id and their parent's, which form a tree.

Three versions are read: 1 has no ids, and each line follows the previous one; 2 has them; 3 has ``custom`` messages for
those of hooks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from clew.interop.programs.foreign import (
    FORKED,
    Entry,
    ForeignSession,
    Reading,
    Record,
    call_part,
    count,
    money,
    read_json,
    read_lines,
    sealed,
    text,
    time_of,
    used,
)
from clew.interop.programs.remainder import ignore, peek, plain
from clew.transcript.session import Model
from clew.transcript.usage import Usage
from clew.transcript.value_check import clean_value

__all__ = ["SIGNERS", "item_of", "read_pi"]

SIGNERS: Final = {"anthropic-messages": "anthropic"}
"""APIs whose signatures are accepted by every provider of the API, with the name of these signatures."""

_STOP_REASONS: Final = {"toolUse": "tool_use", "length": "length", "stop": "stop"}


def read_pi(data: bytes | BinaryIO) -> list[ForeignSession]:
    """Return the session in these lines."""
    return read_lines(data, _Reader())


class _Reader:
    def __init__(self) -> None:
        self.reading = Reading("pi")
        self._header: Record = {}
        self._title: str | None = None
        self._at = 0
        self._names: list[str] = []
        self._leaf: str | None = None

    def take(self, record: Record, where: str) -> None:
        kind = text(record, "type") or "unknown"
        if kind == "session" and not self._header:
            self._header, self._at = record, time_of(record.get("timestamp"), 0)
            self._names.append("")
            ignore(record, *_HEADER)
            rest = plain({key: value for key, value in record.items() if key not in _HEADER and value is not None})
            if rest:
                what = f"keys of the header: {', '.join(sorted(rest))[:80]}"
                self.reading.preserve(what, {"type": "header", **rest}, where)
            return
        self._at = time_of(record.get("timestamp"), self._at)
        if count(self._header, "version") < 2 and text(record, "id") is None:
            record |= {"id": f"n{len(self._names)}", "parentId": self._leaf}
        own = text(record, "id") or where
        if self.reading.has(own):
            self.reading.remark("duplicate lines", "changed", where)
            return
        self._names.append(own)
        entry = self._entry(record, kind, own, where)
        self._leaf = entry.id
        message = record.get("message")
        ignore(record, "parentId")
        position: Record = {}
        if text(message, "role") == "toolResult" and entry.id != own:
            position = {"call_id": text(message, "toolCallId")}
        elif isinstance(message, dict) and isinstance(content := message.get("content"), list):
            position = {"at": -1} if len(content) != len(entry.parts) else {}
        self.reading.preserve_rest(record, where, entry, id=own, **position)

    def done(self) -> ForeignSession:
        head = self.reading.find(self._leaf)
        parent = text(self._header, "parentSession") or text(self._header, "branchedFrom")
        if parent is not None:
            self.reading.remark(FORKED, "changed")
        if parent is not None and parent.endswith(".jsonl"):
            # A path: the file's name ends with the session's id.
            parent = parent.replace("\\", "/").rpartition("/")[2].removesuffix(".jsonl").rpartition("_")[2]
        return self.reading.done(
            text(self._header, "id"),
            title=self._title,
            folder=text(self._header, "cwd"),
            version=f"format {max(count(self._header, 'version'), 1)}",
            parent_id=parent,
            created_at=time_of(self._header.get("timestamp"), 0),
            head=head.id if head is not None else None,
        )

    def _entry(self, record: Record, kind: str, own: str, where: str) -> Entry:
        reading, message = self.reading, record.get("message")
        made = Entry(id=own, parent=text(record, "parentId"), at=self._at, kind="note")
        if kind == "message" and isinstance(message, dict):
            return self._message(made, message, record, where)
        if kind == "compaction" and (summary := text(record, "summary")) is not None:
            made.kind, made.tail = "compaction", self._tail_of(record)
            details = record.get("details")
            made.summary = {
                "summary": reading.cut(summary, where),
                "auto": True,
                "summarised_tokens": count(record, "tokensBefore"),
                "read_files": _names(details, "readFiles"),
                "modified_files": _names(details, "modifiedFiles"),
            }
            reading.attach_deferred(reading.add(made, where))
            return made
        if kind == "custom_message":
            made.kind, made.parts = "aside", list(self._content(record.get("content"), where))
            reading.attach_deferred(reading.add(made, where))
            reading.preserve("extension messages: type and metadata", _without(record, "content"), where, made)
            return made
        if kind == "branch_summary" and (summary := text(record, "summary")) is not None:
            made.kind = "aside"
            made.parts = [reading.text_part(f"Summary of a branch that was left:\n\n{summary}", where)]
            reading.add(made, where)
            reading.preserve("summaries of branches that were left: as a synthetic message", record, where, made)
            return made
        reading.add(made, where)
        if kind == "session_info" and (name := text(record, "name")) is not None:
            self._title = name
            return made
        reading.preserve(f"entries of kind {kind[:40]}", record, where, made)
        return made

    def _tail_of(self, record: Record) -> str | None:
        index = record.get("firstKeptEntryIndex")
        if isinstance(index, int) and 0 < index < len(self._names):
            return self._names[index]
        return text(record, "firstKeptEntryId")

    def _message(self, made: Entry, message: Record, record: Record, where: str) -> Entry:
        reading, role = self.reading, text(message, "role")
        made.at = time_of(message.get("timestamp"), made.at)
        match role:
            case "user":
                made.kind, made.parts = "prompt", list(self._content(message.get("content"), where))
            case "assistant":
                return self._answer(made, message, where)
            case "toolResult":
                return self._result(made, message, record, where)
            case "custom" | "hookMessage":
                made.kind, made.parts = "aside", list(self._content(message.get("content"), where))
                reading.attach_deferred(reading.add(made, where))
                metadata = {**_without(record), "message": _without(message, "content")}
                reading.preserve("extension messages: type and metadata", metadata, where, made)
                return made
            case "bashExecution":
                return self._command(made, message, record, where)
        reading.attach_deferred(reading.add(made, where))
        if made.kind == "note":
            reading.preserve(f"messages of role {str(role)[:40]}", record, where, made)
        return made

    def _answer(self, made: Entry, message: Record, where: str) -> Entry:
        provider = text(message, "provider") or "unknown"
        made.kind = "answer"
        signer = SIGNERS.get(str(peek(message, "api")), provider)
        made.parts = list(self._content(message.get("content"), where, signer, state="done"))
        made.model = Model(provider, text(message, "model") or "unknown")
        counts = message.get("usage")
        if isinstance(counts, dict):
            kinds = ("input", "output", "cacheRead", "cacheWrite")
            sent, received, read, written = (count(counts, kind) for kind in kinds)
            ignore(counts, "totalTokens")
            made.usage = used(Usage(input=sent, output=received, cache_read=read, cache_write=written))
            made.cost_usd = money(counts.get("cost"), "total")
        # Without usage there is no step to store the API and the reason with: both are preserved like unknown keys.
        made.noted = {"api": api} if made.usage is not None and (api := text(message, "api")) is not None else {}
        reason = str(found) if isinstance(found := peek(message, "stopReason"), str) else None
        made.finish = _STOP_REASONS.get(reason or "", reason)
        if made.usage is not None or reason in ("aborted", "error"):
            ignore(message, "stopReason")
        if reason in ("aborted", "error"):
            made.stopped = "aborted" if reason == "aborted" else "failed"
            made.why = text(message, "errorMessage")
        self.reading.attach_deferred(self.reading.add(made, where))
        return made

    def _result(self, made: Entry, message: Record, record: Record, where: str) -> Entry:
        """Store a result with the answer that made the call. The children of the result are children of that answer."""
        reading = self.reading
        files: list[dict[str, Any]] = []
        texts: list[dict[str, Any]] = []
        for part in self._content(message.get("content"), where):
            (texts if part["type"] == "text" else files).append(part)
        failed = message.get("isError") is True
        key, state = ("errorText", "output-error") if failed else ("output", "output-available")
        outcome = {"state": state, key: "\n".join(part["text"] for part in texts)}
        caller = reading.call_entry(message.get("toolCallId"))
        at = made.at
        if caller is None or not reading.result(message.get("toolCallId"), outcome, at, files):
            reading.attach_deferred(reading.add(made, where))
            reading.preserve("results of calls that are missing or already have one", record, where, made)
            return made
        reading.alias(made.id, caller)
        reading.last = caller
        ignore(message, "toolName")
        reading.attach_deferred(caller)
        if message.get("details") is not None:
            noted = {"type": "toolResult", "toolCallId": message["toolCallId"], "details": message["details"]}
            reading.preserve("the program's notes on a tool result", noted, where, caller)
        return caller

    def _command(self, made: Entry, message: Record, record: Record, where: str) -> Entry:
        """Read a command that the user ran, which pi sends to the model as a message."""
        command, output = text(message, "command") or "", text(message, "output") or ""
        if message.get("excludeFromContext") is not True:
            made.kind = "aside"
            made.parts = [self.reading.text_part(f"$ {command}\n{output}", where)]
        self.reading.add(made, where)
        metadata = {**_without(record), "message": _without(message, "output")}
        preserved = record if made.kind == "note" else metadata
        self.reading.preserve("commands run by the user", preserved, where, made)
        return made

    def _content(self, content: object, where: str, signer: str = "", **more: Any) -> Iterator[dict[str, Any]]:
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks if isinstance(blocks, list) else ():
            part = self._part(block, where, signer, more) if isinstance(block, dict) else None
            if part is not None:
                yield part
            else:
                unknown = block if isinstance(block, dict) else {"block": block}
                self.reading.defer(f"blocks of kind {str(unknown.get('type'))[:40]}", unknown, where)

    def _part(self, block: Record, where: str, signer: str, more: dict[str, Any]) -> dict[str, Any] | None:
        match block.get("type"):
            case "text" if isinstance(block.get("text"), str):
                signature = text(block, "textSignature")
                seal = sealed("pi", textSignature=signature)
                return self.reading.text_part(block["text"], where, **more, **seal)
            case "thinking":
                return self.reading.text_part(
                    block.get("thinking"), where, "reasoning", **more, **_seal_of(block, signer)
                )
            case "toolCall" if isinstance(block.get("id"), str):
                thought = text(block, "thoughtSignature")
                return call_part(
                    block.get("name"), block["id"], plain(block.get("arguments", {})), "pi", thoughtSignature=thought
                )
            case "image":
                return self.reading.file_part(block.get("mimeType"), block.get("data"), where)
        return None


_HEADER: Final = frozenset({"type", "version", "id", "timestamp", "cwd", "parentSession", "branchedFrom"})


def _seal_of(block: Record, signer: str) -> dict[str, Any]:
    """Return the metadata that the signer of a thought requires to be sent back. OpenAI's is a complete item, as
    JSON."""
    signature = text(block, "thinkingSignature")
    item = read_json(signature.encode(errors="surrogatepass")) if signature and signature.startswith("{") else None
    if not isinstance(item, dict):
        name = "redacted_thinking" if block.get("redacted") is True else None
        return sealed(signer, id=name, signature=signature)
    item, _ = clean_value(item, 10)
    seal = sealed(signer, id=item.get("id"), signature=item.get("encrypted_content"))
    if item == item_of(block.get("thinking"), item.get("id"), item.get("encrypted_content")):
        return seal
    rest = {key: value for key, value in item.items() if key != "encrypted_content" or not isinstance(value, str)}
    return {"providerMetadata": {**seal.get("providerMetadata", {}), "pi": {"item": rest}}}


def item_of(thought: object, id_: object, signature: object) -> Record:
    """Return a reasoning item of OpenAI's, as pi stores it."""
    summary = [{"type": "summary_text", "text": thought}] if thought else []
    sealed = {} if signature is None else {"encrypted_content": signature}
    return {"type": "reasoning", "id": id_, "summary": summary, **sealed}


def _names(details: object, key: str) -> list[str]:
    found = details.get(key) if isinstance(details, dict) else None
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def _without(record: Record, left: str = "") -> Record:
    """Return a record to preserve, without the content that becomes parts."""
    ignore(record, *record)
    return {key: value for key, value in record.items() if key != left}
