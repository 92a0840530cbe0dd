"""Export in Claude Code's format: lines with their id and their parent's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from clew.interop.programs.claude_code import BOUNDARIES, BOUNDARY, HEAD_LINE, LEFT_BOUNDARY
from clew.interop.programs.export_session import (
    ExportedEntry,
    Remainders,
    as_lines,
    base64_of,
    export_entries,
    ids_in,
    named,
    origin_of,
    own_id,
    preserved_fields,
    results_of,
    rewritten,
    title_of,
    unknown_keys_of,
)
from clew.transcript import part as p
from clew.transcript.iso_time import iso
from clew.transcript.portable import Blob, PortableSession

__all__ = ["format_claude_code"]

_PROVIDER: Final = "anthropic"
_VERSION: Final = "2.1.37"
"""The version of Claude Code whose format is written."""
_STOP_REASONS: Final = {
    "stop": "end_turn",
    "length": "max_tokens",
    **dict.fromkeys(("tool_calls", "tool-calls", "tool_call"), "tool_use"),
}
_REFUSED: Final = re.compile(r"[^a-zA-Z0-9_-]")
"""Characters that Anthropic's API refuses in ids and names of calls."""
_LONGEST_NAME: Final = 128
_INTERRUPTED: Final = "[Request interrupted by user]"
_INNER_KINDS: Final = frozenset({"toolUseResult", "message", "block", "envelope"})


def format_claude_code(portable: PortableSession, signers: Sequence[str] = (_PROVIDER,)) -> bytes:
    """Return the session as lines, branches included. Thoughts of providers that are not among the ``signers``, those
    with Anthropic's API, are left out: they could not be sent back."""
    return as_lines(_Writer(portable, signers).lines())


class _Writer:
    def __init__(self, portable: PortableSession, signers: Sequence[str]) -> None:
        self._portable = portable
        self._signers = signers
        self._call_ids = _call_ids(portable)
        self._id = own_id(portable, "claude-code")
        self._blobs: Mapping[str, Blob] = {blob.sha256: blob for blob in portable.blobs}
        self._tips: dict[str, str] = {}
        self._lines: dict[str, tuple[str | None, list[str]]] = {}
        """For each entry, the key of the entry it follows and the uuids of its lines."""
        self._line_of_head: set[str] = set()
        self._names: dict[str, str] = {}
        """Uuids of the imported file, each with the one that replaces it."""
        self._version = origin_of(portable, "claude-code", "version") or _VERSION
        self._branch = origin_of(portable, "claude-code", "git_branch") or ""
        folder = portable.session.metadata.get("workspace_was")
        self._folder = folder if isinstance(folder, str) else portable.session.workspace_root or "/"

    def lines(self) -> Iterator[dict[str, Any]]:
        entries, head = export_entries(self._portable)
        follows, ancestor = {entry.key: entry.after for entry in entries}, head
        while ancestor is not None:
            self._line_of_head.add(ancestor)
            ancestor = follows[ancestor]
        for entry in entries:
            uuids = [named(key) for key in _line_keys(entry)]
            for first, *more in ids_in(entry.parts, "claude-code"):
                self._names |= {first: uuids[0], **dict.fromkeys(more, uuids[-1])}
        last_prompt: dict[str, Any] | None = None
        for entry in entries:
            after = self._tips.get(entry.after or "")
            own: list[str] = []
            self._lines[entry.key] = entry.after, own
            for line in self._entry_lines(entry):
                if line.get("type") == "last-prompt":
                    if last_prompt is not None:
                        yield last_prompt
                    last_prompt = line
                    continue
                if "uuid" not in line:
                    yield line
                    continue
                # Each tool result follows the answer; the next entry follows the last result.
                line = {**line, "parentUuid": line["parentUuid"] or after, "sessionId": self._id}
                if line.get("subtype") == BOUNDARY:
                    line |= {"logicalParentUuid": after, "parentUuid": None}
                yield line
                after = str(line["uuid"])
                own.append(after)
            self._tips[entry.key] = after or ""
        leaf = self._tips.get(head or "")
        if head is not None and entries[-1].key != head:
            end = self._line(
                "system", f"{head}/head", entries[-1].ended_at, subtype=HEAD_LINE, content="", level="info"
            )
            yield {**end, "parentUuid": leaf}
            leaf = end["uuid"]
        if last_prompt is not None:
            # The program resumes at the line that the last of these lines refers to.
            yield {**last_prompt, "leafUuid": leaf} if leaf else last_prompt
        if (title := title_of(self._portable)) is not None:
            yield {"type": "custom-title", "customTitle": title, "sessionId": self._id}

    def _line(self, kind: str, key: str, at: int, **more: Any) -> dict[str, Any]:
        return {
            "parentUuid": None,
            "isSidechain": False,
            "userType": "external",
            "cwd": self._folder,
            "sessionId": self._id,
            "version": self._version,
            "gitBranch": self._branch,
            "type": kind,
            **more,
            "uuid": named(key),
            "timestamp": iso(at),
        }

    def _entry_lines(self, entry: ExportedEntry) -> Iterator[dict[str, Any]]:
        preserved = rewritten(preserved_fields(entry.parts, "claude-code"), self._names)
        remainders = Remainders(entry.parts, "claude-code", self._names)
        match entry.kind:
            case "answer":
                yield self._answer(entry, preserved, remainders)
                yield from self._results(entry, preserved, remainders)
                if entry.is_stopped:
                    text = {"role": "user", "content": [{"type": "text", "text": _INTERRUPTED}]}
                    yield self._line("user", f"{entry.key}/stopped", entry.ended_at, message=text)
            case "compaction":
                boundary, summary = self._compaction(entry, preserved)
                yield from (boundary, remainders.put(summary, later=True))
            case kind:
                content = list(self._content(entry))
                plain = len(content) == 1 and content[0]["type"] == "text"
                message = {"role": "user", "content": content[0]["text"] if plain else content}
                meta = kind == "aside" and not (plain and content[0]["text"].startswith(_INTERRUPTED[:-1]))
                line = self._line("user", entry.key, entry.at, message=message, **({"isMeta": True} if meta else {}))
                yield remainders.put(line)
        for record in preserved:
            if str(record.get("type")) not in _INNER_KINDS and record.get("subtype") not in BOUNDARIES:
                yield {**record, "parentUuid": None} if "uuid" in record else record

    def _content(self, entry: ExportedEntry) -> Iterator[dict[str, Any]]:
        for part in entry.parts:
            if (text := p.text_of(part.data)) is not None:
                yield {"type": "text", "text": text}
            elif p.kind_of(part.data) == "file":
                yield self._file(part.data)

    def _file(self, part: p.Part) -> dict[str, Any]:
        held = base64_of(part, self._blobs)
        if held is None:
            return {"type": "text", "text": f"[{p.name_of(part) or 'a file'}]"}
        kind = "image" if held[0].startswith("image/") else "document"
        block = {"type": kind, "source": {"type": "base64", "media_type": held[0], "data": held[1]}}
        return {**block, "title": p.file_name_of(part)} if kind == "document" and p.file_name_of(part) else block

    def _answer(self, entry: ExportedEntry, preserved: list[dict[str, Any]], remainders: Remainders) -> dict[str, Any]:
        content: list[dict[str, Any]] = []
        for part in entry.parts:
            data = part.data
            if (thought := p.text_of(data, "reasoning")) is not None:
                own = p.seal_of(data, self._signers) or {}
                if own.get("id") == "redacted_thinking":
                    content.append({"type": "redacted_thinking", "data": own.get("signature")})
                elif isinstance(own.get("signature"), str):
                    content.append({"type": "thinking", "thinking": thought, "signature": own["signature"]})
                else:
                    # An omitted thought still has a position among the blocks.
                    content.append({})
            elif (text := p.text_of(data)) is not None:
                content.append({"type": "text", "text": text})
            elif p.is_call(data):
                given = p.input_of(data)
                name = _REFUSED.sub("_", p.tool_name(data))[:_LONGEST_NAME] or "tool"
                call = {"type": "tool_use", "id": self._call_ids[p.call_id_of(data) or ""], "name": name}
                content.append({**call, "input": given if isinstance(given, dict) else {"input": given}})
        step = entry.step
        reason = step.finish_reason if step is not None else None
        used = step.usage if step is not None else None
        usage = {
            "input_tokens": used.input if used else 0,
            "cache_creation_input_tokens": used.cache_write if used else 0,
            "cache_read_input_tokens": used.cache_read if used else 0,
            "output_tokens": used.output + used.reasoning if used else 0,
        }
        message = {
            "id": f"msg_{named(entry.key).replace('-', '')[:24]}",
            "type": "message",
            "role": "assistant",
            "model": entry.model.model_id,
            "content": content,
            "stop_reason": _STOP_REASONS.get(reason or "", reason),
            "stop_sequence": None,
            "usage": usage,
        }
        for record in preserved:
            message = {**unknown_keys_of(record), **message}
        asked = step.data.get("request_id") if step is not None else None
        more = {"requestId": asked} if isinstance(asked, str) else {}
        failed = {"isApiErrorMessage": True} if entry.last and entry.turn.status == "failed" else {}
        line = remainders.put(self._line("assistant", entry.key, entry.at, message=message, **more, **failed))
        # The usage of a line with this key is not counted on import.
        line.pop("forkedFrom", None)
        line["message"]["content"] = [block for block in line["message"]["content"] if "type" in block]
        return line

    def _results(
        self, entry: ExportedEntry, preserved: list[dict[str, Any]], remainders: Remainders
    ) -> Iterator[dict[str, Any]]:
        noted = [record["toolUseResult"] for record in preserved if record.get("type") == "toolUseResult"]
        results = list(results_of(entry))
        for index, (part, files) in enumerate(results):
            output, pictures = p.result_text(part.data), [self._file(file.data) for file in files]
            id_ = self._call_ids[p.call_id_of(part.data) or ""]
            block: dict[str, Any] = {"tool_use_id": id_, "type": "tool_result"}
            # The API refuses an empty text.
            texts = [{"type": "text", "text": output}] if output.strip() else []
            block["content"] = [*texts, *pictures] if pictures else output
            if p.state_of(part.data) != "output-available":
                block["is_error"] = True
            # Used only if there is one for each result: they are matched by order.
            more = {"toolUseResult": noted[index]} if len(noted) == len(results) else {}
            key = f"{entry.key}/{p.call_id_of(part.data)}"
            line = self._line("user", key, part.updated_at, message={"role": "user", "content": [block]}, **more)
            yield remainders.put(line, p.call_id_of(part.data))

    def _compaction(
        self, entry: ExportedEntry, preserved: list[dict[str, Any]]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        about = next((held for part in entry.parts if (held := p.data_of(part.data, p.COMPACTION_PART))), {})
        preserved_boundary = next((record for record in preserved if record.get("subtype") in BOUNDARIES), {})
        tokens = about.get("summarised_tokens", about.get("tokens_before"))
        noted: dict[str, Any] = {
            "trigger": "auto" if about.get("auto") is True else "manual",
            "preTokens": tokens if isinstance(tokens, int) else 0,
        }
        if isinstance(preserved_metadata := preserved_boundary.get("compactMetadata"), dict):
            noted |= preserved_metadata
        # The program finds the messages it did not summarise by their uuids in this file.
        before = (noted.pop(key, None) for key in ("preservedSegment", "preservedMessages"))
        segment, messages = (value if isinstance(value, dict) else {} for value in before)
        if (tail := self._tail(entry)) is not None:
            anchor = named(f"{entry.key}/summary")
            noted["preservedSegment"] = {**segment, "headUuid": tail[0], "anchorUuid": anchor, "tailUuid": tail[-1]}
            noted["preservedMessages"] = {**messages, "anchorUuid": anchor, "uuids": tail, "allUuids": tail}
        words = {"content": "Conversation compacted", "isMeta": False, "level": "info"}
        boundary = preserved_boundary or self._line("system", entry.key, entry.at, **words)
        # At the last boundary of a file the program drops all lines above it, those of other branches too.
        subtype = BOUNDARY if entry.key in self._line_of_head else LEFT_BOUNDARY
        boundary |= {"subtype": subtype, "compactMetadata": noted, "uuid": named(entry.key)}
        message = {"role": "user", "content": str(about.get("summary", ""))}
        marks = {"isCompactSummary": True, "isVisibleInTranscriptOnly": True}
        return {**boundary, "parentUuid": None}, self._line(
            "user", f"{entry.key}/summary", entry.at, message=message, **marks
        )

    def _tail(self, entry: ExportedEntry) -> list[str] | None:
        """Return the uuids of the lines that a compaction left unsummarised, oldest first."""
        tail: list[str] = []
        key = entry.after if entry.tail is not None else None
        while key is not None:
            before, uuids = self._lines[key]
            tail[:0] = uuids
            if key == entry.tail:
                return tail or None
            key = before
        return None


def _call_ids(portable: PortableSession) -> dict[str, str]:
    """Return an id that the API accepts for each call. Valid ids stay; all are distinct."""
    found = {p.call_id_of(part.data) or "" for row in portable.messages for part in row.parts if p.is_call(part.data)}
    ids = {id_: id_ for id_ in found if id_ and _REFUSED.search(id_) is None}
    taken = set(ids)
    for id_ in sorted(found - taken):
        plain = known = _REFUSED.sub("_", id_) or "call"
        number = 2
        while known in taken:
            known, number = f"{plain}_{number}", number + 1
        ids[id_] = known
        taken.add(known)
    return ids


def _line_keys(entry: ExportedEntry) -> list[str]:
    """Return the keys of an entry's lines."""
    if entry.kind == "compaction":
        return [entry.key, f"{entry.key}/summary"]
    calls = [p.call_id_of(part.data) for part, _ in results_of(entry)] if entry.kind == "answer" else []
    return [entry.key, *(f"{entry.key}/{call_id}" for call_id in calls)]
