"""Export in pi's format, version 3: a header, then lines with their id and their parent's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

import orjson

from clew.interop.programs.export_session import (
    ExportedEntry,
    Remainders,
    as_lines,
    base64_of,
    export_entries,
    ids_in,
    own_id,
    parent_of,
    preserved_fields,
    results_of,
    rewritten,
    title_of,
    unknown_keys_of,
)
from clew.interop.programs.pi import SIGNERS, item_of
from clew.transcript import part as p
from clew.transcript.iso_time import iso
from clew.transcript.portable import Blob, PortableSession

__all__ = ["format_pi"]

_APIS: Final = {"anthropic": "anthropic-messages", "openai": "openai-responses", "google": "google-generative-ai"}
_STOP_REASONS: Final = {
    **dict.fromkeys(("tool_use", "tool_calls", "tool-calls", "tool_call"), "toolUse"),
    **dict.fromkeys(("length", "max_tokens"), "length"),
    **dict.fromkeys(("error", "aborted"), "error"),
}
_CUSTOM_TYPE: Final = "clew"


def format_pi(portable: PortableSession) -> bytes:
    """Return the session as lines, branches included."""
    return as_lines(_Writer(portable).lines())


class _Writer:
    def __init__(self, portable: PortableSession) -> None:
        self._portable = portable
        self._blobs: Mapping[str, Blob] = {blob.sha256: blob for blob in portable.blobs}
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()
        self._renamed: dict[str, str] = {}
        """Ids of the imported file, each with the one that replaces it."""
        self._tips: dict[str, str] = {}

    def lines(self) -> Iterator[dict[str, Any]]:
        session, (entries, head) = self._portable.session, export_entries(self._portable)
        records = [record for entry in entries for record in preserved_fields(entry.parts, "pi")]
        self._taken = {record["id"] for record in records if isinstance(record.get("id"), str)}
        folder = session.metadata.get("workspace_was")
        header = {
            "type": "session",
            "version": 3,
            "id": own_id(self._portable, "pi"),
            "timestamp": iso(session.created_at),
            "cwd": folder if isinstance(folder, str) else session.workspace_root or "/",
        }
        if (parent := parent_of(self._portable, "pi")) is not None:
            header["parentSession"] = parent
        for record in records:
            if record.get("type") == "header":
                header = {**record, **header}
        yield header
        after: str | None = None
        for entry in entries:
            after = self._tips.get(entry.after or "")
            for line in self._entry_lines(entry):
                if "unread" in line:
                    yield line
                    continue
                line = {**line, "parentId": after}
                yield line
                after = str(line["id"])
            self._tips[entry.key] = after or ""
        at = self._tips.get(head or "")
        if (title := title_of(self._portable)) is not None:
            line = self._line("session_info", f"{session.id}/title", session.updated_at, name=title)
            yield {**line, "parentId": at}
        elif at != after:
            # pi resumes at the last line.
            noted = self._line(
                "custom", f"{session.id}/head", session.updated_at, customType=_CUSTOM_TYPE, data={"head": at}
            )
            yield {**noted, "parentId": at}

    def _line(self, kind: str, key: str, at: int, **more: Any) -> dict[str, Any]:
        name, number = self._names.get(key), 0
        while name is None or (name in self._taken and key not in self._names):
            name = sha256(f"{key}/{number}".encode()).hexdigest()[:8]
            number += 1
        self._names[key] = name
        self._taken.add(name)
        return {"type": kind, "id": name, "parentId": None, "timestamp": iso(at), **more}

    def _entry_lines(self, entry: ExportedEntry) -> Iterator[dict[str, Any]]:
        """Yield the lines of an entry: its own, those of tool results, and preserved records."""
        preserved = preserved_fields(entry.parts, "pi")
        remainders = Remainders(entry.parts, "pi", self._renamed)
        match entry.kind:
            case "prompt":
                yield remainders.put(self._line("message", entry.key, entry.at, message=self._user(entry)))
            case "answer":
                yield remainders.put(self._line("message", entry.key, entry.at, message=self._answer(entry, preserved)))
                yield from self._results(entry, preserved, remainders)
            case "compaction":
                yield remainders.put(self._compaction(entry))
            case "aside":
                yield remainders.put(self._aside(entry, preserved))
        for first, *more in ids_in(entry.parts, "pi"):
            self._renamed |= dict.fromkeys((first, *more), self._names[entry.key])
        for record in preserved:
            if "unread" in record or (
                str(record.get("type")) not in _INNER_KINDS and isinstance(record.get("id"), str)
            ):
                yield rewritten(record, self._renamed)

    def _user(self, entry: ExportedEntry) -> dict[str, Any]:
        return {"role": "user", "content": list(self._content(entry)), "timestamp": entry.at}

    def _content(self, entry: ExportedEntry) -> Iterator[dict[str, Any]]:
        for part in entry.parts:
            text, file = p.text_of(part.data), base64_of(part.data, self._blobs)
            if text is not None:
                yield {"type": "text", "text": text}
            elif file is not None and file[0].startswith("image/"):
                yield {"type": "image", "data": file[1], "mimeType": file[0]}
            elif p.kind_of(part.data) == "file":
                yield {"type": "text", "text": f"[{p.name_of(part.data) or 'a file'}]"}

    def _answer(self, entry: ExportedEntry, preserved: list[dict[str, Any]]) -> dict[str, Any]:
        provider, step = entry.model.provider_id, entry.step
        content: list[dict[str, Any]] = []
        for part in entry.parts:
            data = part.data
            if (thought := p.text_of(data, "reasoning")) is not None:
                content.append({"type": "thinking", "thinking": thought, **_sealed(data, provider)})
            elif (text := p.text_of(data)) is not None:
                signature = (p.provider_data(data, "pi") or {}).get("textSignature")
                content.append({"type": "text", "text": text, **({"textSignature": signature} if signature else {})})
            elif p.is_call(data):
                given = p.input_of(data)
                call: dict[str, Any] = {"type": "toolCall", "id": p.call_id_of(data), "name": p.tool_name(data)}
                thought = (p.provider_data(data, "pi") or {}).get("thoughtSignature")
                call |= {"arguments": given if isinstance(given, dict) else {"input": given}}
                content.append({**call, **({"thoughtSignature": thought} if thought else {})})
        for record in preserved:
            index = record.get("at")
            if record.get("type") == "block" and isinstance(index, int) and 0 <= index < len(content):
                content[index] |= {key: value for key, value in record.items() if key not in ("type", "at")}
        used = step.usage if step is not None else None
        counts = (used.input, used.output + used.reasoning, used.cache_read, used.cache_write) if used else (0, 0, 0, 0)
        cost = step.cost_usd if step is not None else 0.0
        usage = dict(zip(("input", "output", "cacheRead", "cacheWrite"), counts, strict=True))
        reason = (step.finish_reason if step is not None else None) or "stop"
        ended: dict[str, Any] = {"stopReason": _STOP_REASONS.get(reason, "stop")}
        if entry.is_stopped:
            ended = {"stopReason": "aborted", "errorMessage": entry.turn.stopped or "it was stopped"}
        elif entry.last and entry.turn.status == "failed":
            ended = {"stopReason": "error", "errorMessage": str(entry.turn.error.get("message") or "it failed")}
        api = step.data.get("api") if step is not None else None
        rest = {key: value for record in preserved for key, value in unknown_keys_of(record).items()}
        return {
            **rest,
            "role": "assistant",
            "content": content,
            "api": api if isinstance(api, str) else _APIS.get(provider, "openai-completions"),
            "provider": provider,
            "model": entry.model.model_id,
            "usage": {
                **usage,
                "totalTokens": sum(counts),
                "cost": {**dict.fromkeys(usage, 0.0), "total": cost},
            },
            **ended,
            "timestamp": entry.at,
        }

    def _results(
        self, entry: ExportedEntry, preserved: list[dict[str, Any]], remainders: Remainders
    ) -> Iterator[dict[str, Any]]:
        details = {
            record.get("toolCallId"): record.get("details")
            for record in preserved
            if record.get("type") == "toolResult"
        }
        for part, files in results_of(entry):
            id_ = p.call_id_of(part.data) or ""
            pictures = [held for file in files if (held := base64_of(file.data, self._blobs)) is not None]
            content = [{"type": "text", "text": p.result_text(part.data)}]
            content += [{"type": "image", "data": data, "mimeType": kind} for kind, data in pictures]
            message = {
                "role": "toolResult",
                "toolCallId": id_,
                "toolName": p.tool_name(part.data),
                "content": content,
                "isError": p.state_of(part.data) != "output-available",
                "timestamp": part.updated_at,
            }
            noted = {"details": details[id_]} if id_ in details else {}
            line = self._line("message", f"{entry.key}/{id_}", part.updated_at, message={**message, **noted})
            yield remainders.put(line, id_)

    def _compaction(self, entry: ExportedEntry) -> dict[str, Any]:
        about = next((held for part in entry.parts if (held := p.data_of(part.data, p.COMPACTION_PART))), {})
        files = {"readFiles": about.get("read_files") or [], "modifiedFiles": about.get("modified_files") or []}
        line = self._line("compaction", entry.key, entry.at, summary=str(about.get("summary", "")))
        # Without an unsummarised message, the compaction itself is the first.
        first = self._names.get(entry.tail or "") or line["id"]
        tokens = about.get("summarised_tokens", about.get("tokens_before"))
        return {
            **line,
            "firstKeptEntryId": first,
            "tokensBefore": tokens if isinstance(tokens, int) else 0,
            "details": files,
        }

    def _aside(self, entry: ExportedEntry, preserved: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the line of an aside: the imported one, or for one of clew's a message of an extension."""
        asides = (record for record in preserved if str(record.get("type")) in _ASIDES)
        record = next((record for record in asides if isinstance(record.get("id"), str)), None)
        content = list(self._content(entry))
        if record is None:
            return self._line(
                "custom_message", entry.key, entry.at, customType=_CUSTOM_TYPE, content=content, display=True
            )
        preserved.remove(record)
        record = dict(rewritten(record, self._renamed))
        self._names[entry.key] = str(record["id"])
        if record["type"] == "branch_summary":
            return record
        if record["type"] == "custom_message":
            return {**record, "content": content}
        message = record.get("message")
        message = message if isinstance(message, dict) else {}
        if message.get("role") != "bashExecution":
            return {**record, "message": {**message, "role": "custom", "content": content}}
        output = "".join(block.get("text", "") for block in content).partition("\n")[2]
        return {**record, "message": {**message, "output": output}}


_INNER_KINDS: Final = frozenset({"toolResult", "text", "thinking", "image"})
_ASIDES: Final = frozenset({"branch_summary", "custom_message", "message"})


def _sealed(part: p.Part, provider: str) -> dict[str, Any]:
    """Return the metadata that the signer of a thought requires to be sent back, in pi's form."""
    own = p.seal_of(part, (provider, *SIGNERS.values())) or {}
    name, signature = own.get("id"), own.get("signature")
    item = (p.provider_data(part, "pi") or {}).get("item")
    if isinstance(item, dict):
        sealed = {} if signature is None else {"encrypted_content": signature}
        return {"thinkingSignature": orjson.dumps({**item, **sealed}).decode()}
    if name == "redacted_thinking":
        return {"thinkingSignature": signature, "redacted": True}
    if isinstance(name, str):
        return {"thinkingSignature": orjson.dumps(item_of(p.text_of(part, "reasoning"), name, signature)).decode()}
    return {"thinkingSignature": signature} if isinstance(signature, str) else {}
