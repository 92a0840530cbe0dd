"""Reader of Claude Code's sessions: JSON lines, each with its id and its parent's, which form a tree.

An answer of the model takes several lines, one for each block, with one ``message.id`` and one usage. Tool results are
in lines of the user. Lines of subagents are marked as sidechains, in the same file or one of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from clew.interop.programs.foreign import (
    Entry,
    ForeignSession,
    Reading,
    Record,
    call_part,
    count,
    lines_of,
    sealed,
    text,
    time_of,
    used,
)
from clew.interop.programs.remainder import ignore, plain
from clew.transcript.part import giver_of
from clew.transcript.session import Model
from clew.transcript.usage import Usage

__all__ = ["BOUNDARIES", "BOUNDARY", "HEAD_LINE", "LEFT_BOUNDARY", "read_claude_code"]

BOUNDARY: Final = "compact_boundary"
LEFT_BOUNDARY: Final = "clew_left_boundary"
"""A compaction that is not on the path to the head, in files that clew writes. The program ignores the line."""
BOUNDARIES: Final = (BOUNDARY, LEFT_BOUNDARY)  # a tuple: the value compared with it may not be hashable
HEAD_LINE: Final = "clew_head"
"""The last line of a file that clew writes for a session whose head has child turns. Its parent is the head."""
_TITLES: Final = {"custom-title": "customTitle", "ai-title": "aiTitle", "agent-name": "agentName", "summary": "summary"}
"""Types of lines with a title of the session, the one to prefer first."""
_ENVELOPE: Final = (
    *("parentUuid", "logicalParentUuid", "isSidechain", "userType", "cwd", "sessionId", "version", "gitBranch", "uuid"),
    *("isMeta", "isVisibleInTranscriptOnly", "isApiErrorMessage"),
    *("sourceToolAssistantUUID", "agentId", "slug", "entrypoint"),
)
"""Keys of a line whose values the session or the parent has."""
_INTERRUPTED: Final = "[Request interrupted by user"
_PROVIDER: Final = "anthropic"
_NO_MODEL: Final = "<synthetic>"


def read_claude_code(data: bytes | BinaryIO) -> list[ForeignSession]:
    """Return the session in these lines, followed by its subagents."""
    main = _Reader()
    sides: dict[str, _Reader] = {}
    chains: dict[str, str] = {}
    for where, record in lines_of(data, main.reading):
        main.see(record)
        if record.get("isSidechain") is not True:
            main.take(record, where)
            continue
        parent, own = text(record, "parentUuid"), text(record, "uuid") or where
        # Older files have no id for a subagent: a chain of lines is one.
        agent = text(record, "agentId") or chains.get(parent or "") or own
        chains[own] = agent
        side = sides.setdefault(agent, _Reader())
        side.see(record)
        side.take(record, where)
    whole = main.done(main.session_id)
    return [whole, *(side.done(f"{whole.id}/{agent}", whole.id) for agent, side in sides.items())]


class _Reader:
    def __init__(self) -> None:
        self.reading = Reading("claude-code")
        self.session_id: str | None = None
        self._folder: str | None = None
        self._version: str | None = None
        self._branch: str | None = None
        self._forked_from: str | None = None
        self._titles: dict[str, str] = {}
        self._summaries: list[Record] = []
        self._at = 0
        self._answers: dict[str, Entry] = {}
        self._paid: dict[str, Entry] = {}
        self._seen: set[str] = set()
        self._leaf: str | None = None
        self._place: dict[str, Any] = {}
        """The position of a line in its entry: the number of parts before it, or the call it is the result of."""

    def see(self, record: Record) -> None:
        """Read the keys about the session, which every line has."""
        self.session_id = self.session_id or text(record, "sessionId")
        self._folder = self._folder or text(record, "cwd")
        self._version = text(record, "version") or self._version
        self._branch = text(record, "gitBranch") or self._branch
        self._forked_from = self._forked_from or text(record.get("forkedFrom"), "sessionId")

    def take(self, record: Record, where: str) -> None:
        kind, own = text(record, "type"), text(record, "uuid")
        self._at = time_of(record.get("timestamp"), self._at)
        if own is not None and own in self._seen:
            self.reading.remark("duplicate lines", "changed", where)
            return
        if own is not None:
            self._seen.add(own)
        if kind == "system" and text(record, "subtype") == HEAD_LINE:
            self._leaf = text(record, "parentUuid")
            return
        message = record.get("message")
        self._place = {}
        if kind in _TITLES and (named := text(record, _TITLES[kind])) is not None:
            self._titles[kind] = named
            ignore(record, "leafUuid")
            if kind == "summary":
                self._summaries.append(record)
        elif kind == "assistant" and isinstance(message, dict):
            self._answer(record, message, own or where, where)
        elif kind == "user" and isinstance(message, dict):
            self._user(record, message, own or where, where)
        else:
            self._other(record, str(kind), own, where)
        if own is not None and self.reading.has(own):
            self._leaf = own
        ignore(record, *_ENVELOPE)
        ignore(message, "role", "type")
        ignore(record.get("forkedFrom"), "messageUuid")
        self.reading.preserve_rest(record, where, self.reading.find(own), uuid=own, **self._place)

    def done(self, id_: str | None, parent: str | None = None) -> ForeignSession:
        self._titles.pop("summary", None)
        first = next(iter(self.reading.entries.values()), None)
        for record in self._summaries:
            ends = text(record, "leafUuid")
            if ends is None or self.reading.has(ends):
                self._titles["summary"] = record["summary"]
            else:
                # Older versions write the title of a session into any file that is open.
                self.reading.preserve("titles of other sessions", record, "", first)
        title = next((self._titles[kind] for kind in _TITLES if kind in self._titles), None)
        leaf = self.reading.find(self._leaf)
        return self.reading.done(
            id_,
            title=title,
            folder=self._folder,
            version=self._version,
            branch=self._branch,
            parent_id=parent or self._forked_from,
            is_subagent=parent is not None,
            head=leaf.id if leaf is not None else None,
        )

    def _entry(self, record: Record, own: str, where: str, **more: Any) -> Entry:
        return self.reading.add(Entry(id=own, parent=text(record, "parentUuid"), at=self._at, **more), where)

    def _answer(self, record: Record, message: Record, own: str, where: str) -> None:
        reading = self.reading
        blocks = list(_blocks(message))
        parts = [part for block in blocks for part in self._parts_of(block, record, where)]
        model = text(message, "model")
        texts = [part["text"] for part in parts if part["type"] == "text"]
        known = self._answers.get(text(message, "id") or "")
        before = reading.find(text(record, "parentUuid"))
        while before is not None and before.kind == "note":
            # Hooks and snapshots write their lines between those of one answer.
            before = reading.find(before.parent)
        # A line that follows its own answer continues it; below another entry, it is a copy of the answer.
        if known is not None and before is known:
            first = len(known.parts)
            self._place = {"at": sum(giver_of(part) is None for part in known.parts)}
            known.parts += parts
            known.ended_at = self._at
            reading.alias(own, known)
            reading.index(known, first)
            reading.last = known
        else:
            known = self._entry(record, own, where, kind="answer", parts=parts, ended_at=self._at)
            if (name := text(message, "id")) is not None:
                self._answers[name] = known
                # Usage of one answer counts once, however many copies of it there are.
                self._paid.setdefault(name, known)
        usage = _usage(message.get("usage"))
        self._place = {"at": -1} if len(parts) != len(blocks) else self._place
        if model is not None and model != _NO_MODEL:
            known.model = Model(_PROVIDER, model)
            payer = self._paid.get(text(message, "id") or "", known)
            if isinstance(record.get("forkedFrom"), dict):
                reading.remark(
                    "responses copied from the session it was forked from: their usage is counted there",
                    "changed",
                    where,
                )
            else:
                payer.usage = used(usage) or payer.usage
        reading.attach_deferred(known)
        known.finish = text(message, "stop_reason") or known.finish
        # Without usage there is no step to store it with: it is preserved like an unknown key.
        if known.usage is not None and (asked := text(record, "requestId")) is not None:
            known.noted = {"request_id": asked}
        if record.get("isApiErrorMessage") is True:
            known.stopped, known.why = "failed", "\n".join(texts) or None

    def _user(self, record: Record, message: Record, own: str, where: str) -> None:
        reading, blocks = self.reading, list(_blocks(message))
        results = [block for block in blocks if block.get("type") == "tool_result"]
        if record.get("isCompactSummary") is True:
            self._compacted(record, message, own, where)
            return
        caller = reading.call_entry(results[0].get("tool_use_id")) if results else None
        self._place = {"call_id": results[0]["tool_use_id"]} if caller is not None else {}
        for block in results:
            self._result(block, record, where)
        spoken = [part for block in blocks if block not in results for part in self._parts_of(block, record, where)]
        if caller is not None and not spoken:
            # A result is part of the answer with the call, so its children are children of that answer.
            reading.alias(own, caller)
            reading.last = caller
            reading.attach_deferred(caller)
            if "toolUseResult" in record:
                self._preserve_result(record, where, caller)
            return
        words = "\n".join(part["text"] for part in spoken if part["type"] == "text")
        before = reading.find(text(record, "parentUuid")) or reading.last
        if words.startswith(_INTERRUPTED) and before is not None and before.kind == "answer":
            before.stopped, before.why = "aborted", words[:200]
        kind: Any = "aside" if record.get("isMeta") is True or words.startswith(_INTERRUPTED) else "prompt"
        entry = self._entry(record, own, where, kind=kind if spoken else "note", parts=spoken)
        reading.attach_deferred(entry)
        if "toolUseResult" in record:
            self._preserve_result(record, where, entry)

    def _preserve_result(self, record: Record, where: str, entry: Entry) -> None:
        noted = {"type": "toolUseResult", "uuid": record.get("uuid"), "toolUseResult": record["toolUseResult"]}
        self.reading.preserve("the program's notes on a tool result", noted, where, entry)

    def _result(self, block: Record, record: Record, where: str) -> None:
        reading, content = self.reading, block.get("content")
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content if content else ""}]
        files: list[dict[str, Any]] = []
        for item in blocks:
            pictures = self._pictures(item, where) if isinstance(item, dict) else []
            files += pictures
            if isinstance(item, dict) and not pictures and not isinstance(item.get("text"), str):
                reading.defer(f"blocks of kind {str(item.get('type'))[:40]}", item, where)
        texts = [item["text"] for item in blocks if isinstance(item, dict) and isinstance(item.get("text"), str)]
        output = reading.cut("\n".join(texts), where)
        failed = block.get("is_error") is True
        key, state = ("errorText", "output-error") if failed else ("output", "output-available")
        outcome = {"state": state, key: output}
        if not reading.result(block.get("tool_use_id"), outcome, self._at, files):
            reading.defer(
                "results of calls that are missing or already have one", {**plain(block), "at": self._at}, where
            )

    def _parts_of(self, block: Record, record: Record, where: str) -> Iterator[dict[str, Any]]:
        """Yield the parts of a block of a prompt or an answer."""
        reading, is_answer = self.reading, record.get("type") == "assistant"
        done: dict[str, Any] = {"state": "done"} if is_answer else {}
        match block.get("type"):
            case "text" if isinstance(block.get("text"), str):
                yield reading.text_part(block["text"], where, **done)
            case "thinking":
                seal = sealed(_PROVIDER, signature=block.get("signature"))
                yield reading.text_part(block.get("thinking"), where, "reasoning", **done, **seal)
            case "redacted_thinking":
                seal = sealed(_PROVIDER, id="redacted_thinking", signature=block.get("data"))
                yield reading.text_part("", where, "reasoning", **done, **seal)
            case "tool_use" if isinstance(block.get("id"), str):
                yield call_part(block.get("name"), block["id"], plain(block.get("input", {})))
            case "image" | "document" if files := self._pictures(block, where):
                yield from files
            case kind:
                reading.defer(f"blocks of kind {str(kind)[:40]}", block, where)

    def _pictures(self, block: Record, where: str) -> list[dict[str, Any]]:
        source = block.get("source")
        if block.get("type") not in ("image", "document") or not isinstance(source, dict):
            return []
        if source.get("type") != "base64":
            return []
        part = self.reading.file_part(source.get("media_type"), source.get("data"), where, block.get("title"))
        return [part] if part is not None else []

    def _compacted(self, record: Record, message: Record, own: str, where: str) -> None:
        """Read the summary of a compaction. The line before it marks the position of the compaction."""
        summary_text = "\n".join(block["text"] for block in _blocks(message) if isinstance(block.get("text"), str))
        boundary = self.reading.find(text(record, "parentUuid"))
        summary = {"summary": self.reading.cut(summary_text, where), "auto": True}
        if boundary is not None and boundary.kind == "compaction" and not (boundary.summary or {}).get("summary"):
            boundary.summary = {**summary, **(boundary.summary or {}), "summary": summary["summary"]}
            self.reading.alias(own, boundary)
        else:
            self._entry(record, own, where, kind="compaction", summary=summary)

    def _other(self, record: Record, kind: str, own: str | None, where: str) -> None:
        """Read a line that is not a message: a boundary, or a record to preserve."""
        subtype = text(record, "subtype")
        about = record.get("compactMetadata")
        if kind == "system" and subtype in BOUNDARIES:
            noted = about if isinstance(about, dict) else {}
            preserved = noted.get("preservedSegment")
            entry = Entry(
                id=own or where,
                parent=text(record, "parentUuid") or text(record, "logicalParentUuid"),
                at=self._at,
                kind="compaction",
                summary={"auto": noted.get("trigger") != "manual", "summarised_tokens": count(noted, "preTokens")},
                tail=text(preserved, "headUuid") or _first_preserved(noted),
            )
            self.reading.add(entry, where)
            owner: Entry | None = entry
        else:
            owner = self._entry(record, own, where, kind="note") if own is not None else None
        what = f"{kind} {subtype}" if subtype else kind
        self.reading.preserve(f"lines of kind {what[:60]}", record, where, owner)


def _first_preserved(noted: Record) -> str | None:
    preserved = noted.get("preservedMessages")
    uuids = preserved.get("uuids") if isinstance(preserved, dict) else None
    return uuids[0] if isinstance(uuids, list) and uuids and isinstance(uuids[0], str) else None


def _blocks(message: Record) -> Iterator[Record]:
    content = message.get("content")
    if isinstance(content, str):
        yield {"type": "text", "text": content}
    for block in content if isinstance(content, list) else ():
        yield block if isinstance(block, dict) else {"type": "text", "text": str(block)}


def _usage(counts: object) -> Usage:
    """Return a usage as Anthropic counts it: cached tokens are not part of the input, thinking is part of the
    output."""
    return Usage(
        input=count(counts, "input_tokens"),
        output=count(counts, "output_tokens"),
        cache_read=count(counts, "cache_read_input_tokens"),
        cache_write=count(counts, "cache_creation_input_tokens"),
    )
