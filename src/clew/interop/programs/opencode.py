"""Reader of opencode's sessions: one document with all of a session, as ``opencode export`` writes it.

It has ``info``, and ``messages`` of ``info`` and ``parts``. :mod:`clew.interop.programs.opencode_disk` makes such
documents of opencode's files and databases.

Version 2 stores sessions in ``session_v2`` and messages in ``session_message``: a row has a type and an object. Such
rows are converted to the older format.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

from clew.interop.density import check_records
from clew.interop.programs.foreign import (
    Entry,
    ForeignSession,
    Reading,
    Record,
    call_part,
    count,
    money,
    read_json,
    sealed,
    text,
    time_of,
    used,
)
from clew.interop.programs.remainder import ignore, plain, tracked
from clew.transcript.part import notice_part
from clew.transcript.session import Model
from clew.transcript.usage import Usage
from clew.transcript.value_check import clean_value

__all__ = ["SPOKEN", "older_messages", "read_opencode"]

_INFO: Final = frozenset(
    {"id", "sessionID", "role", "time", "parentID", "modelID", "providerID", "cost", "tokens", "finish", "error"}
    | {"summary"}
)
_SESSION: Final = frozenset(
    {"id", "title", "directory", "parentID", "time", "version", "projectID", "slug", "revert", "cost", "tokens"}
)
_ID_KEYS: Final = ("id", "sessionID", "messageID")
_STEP: Final = frozenset({"step-start", "step-finish"})
_CALL: Final = frozenset({"id", "sessionID", "messageID", "type", "callID", "tool", "state"})
_STATE: Final = frozenset({"status", "input", "output", "error", "time", "attachments", "raw"})


def read_opencode(data: bytes) -> list[ForeignSession]:
    """Return the session in this document."""
    reader = _Reader()
    # The output of the export may begin with a line of text.
    value = read_json(data[data.find(b"{") :]) if b"{" in data else None
    if not isinstance(value, dict) or not isinstance(value.get("info"), dict):
        return [reader.reading.done(None)]
    value, replaced = clean_value(value, 10)
    if replaced:
        reader.reading.remark("values that cannot be stored, replaced", "changed")
    info = tracked(value["info"])
    reader.reading.begins = orjson.dumps(info)
    found = value.pop("messages", None)
    messages = found if isinstance(found, list) else []
    check_records(len(messages), len(data))
    messages.reverse()
    while messages:
        # Taken out one by one: all of them would be in memory twice.
        message = messages.pop()
        id_, kind = text(message, "id"), text(message, "type")
        # Version 2 exports its rows.
        newer = id_ is not None and kind is not None and "info" not in message
        for older in older_messages(id_ or "", kind or "", message) if newer else (message,):
            reader.take(tracked(older))
    reader.reading.defer_rest("keys of the document", value, frozenset({"info"}), "info", type="document")
    return [reader.done(info)]


class _Reader:
    def __init__(self) -> None:
        self.reading = Reading("opencode")
        self._tip: str | None = None
        self._begins: dict[str, str | None] = {}
        self._compactions: dict[str, Entry] = {}
        self._seen: set[str] = set()

    def take(self, message: object) -> None:
        info = message.get("info") if isinstance(message, dict) else None
        parts = message.get("parts") if isinstance(message, dict) else None
        if not isinstance(info, dict):
            self.reading.preserve("unreadable messages", {"message": message}, "messages")
            return
        own = text(info, "id") or f"message {len(self._seen)}"
        if own in self._seen:
            self.reading.remark("duplicate messages", "changed", own)
            return
        self._seen.add(own)
        self._begins[own] = self._tip
        records = [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
        at = time_of((info.get("time") or {}).get("created") if isinstance(info.get("time"), dict) else None, 0)
        at = at or (self.reading.last.at if self.reading.last is not None else 0)
        if info.get("role") == "assistant":
            self._assistant(info, records, own, at)
        else:
            self._user(info, records, own, at)
        for part in records:
            state = part.get("state")
            ignore(part, *_ID_KEYS)
            ignore(part.get("time"), "start", "end")
            ignore(state.get("time") if isinstance(state, dict) else None, "start", "end")
        ignore(info.get("time"), "created", "completed")
        _usage(info.get("tokens"))
        if isinstance(message, dict):
            self.reading.preserve_rest(message, own, id=own)

    def done(self, info: Record) -> ForeignSession:
        times = info.get("time") if isinstance(info.get("time"), dict) else {}
        revert, head = info.get("revert"), self._tip
        if isinstance(revert, dict) and text(revert, "messageID") in self._begins:
            head = self._begins[revert["messageID"]]
            if head is None:
                self.reading.remark("reverted to before its first message; imported at its end", "changed")
                head = self._tip
        ignore(info, *_SESSION)
        ignore(times, "created", "updated", "archived")
        _usage(info.get("tokens"))
        rest = plain({key: value for key, value in info.items() if key not in _SESSION and value is not None})
        ignore(info, *rest)
        first = next(iter(self.reading.entries.values()), None)
        if rest:
            self.reading.preserve(
                f"keys of the session: {', '.join(sorted(rest))[:80]}", {"type": "info", **rest}, "info", first
            )
        self.reading.preserve_rest(info, "info", first, id="info")
        return self.reading.done(
            text(info, "id"),
            title=text(info, "title"),
            folder=text(info, "directory") or text(info.get("location"), "directory"),
            version=text(info, "version"),
            parent_id=text(info, "parentID") or text(info, "fork_session_id"),
            is_subagent=text(info, "parentID") is not None,
            created_at=time_of(times.get("created") if isinstance(times, dict) else None, 0),
            archived=isinstance(times, dict) and time_of(times.get("archived"), 0) > 0,
            head=head,
        )

    def _add(self, entry: Entry) -> Entry:
        added = self.reading.add(entry)
        self._tip = added.id
        return added

    def _user(self, info: Record, records: list[Record], own: str, at: int) -> None:
        reading = self.reading
        marker = next((part for part in records if part.get("type") == "compaction"), None)
        if marker is not None:
            entry = Entry(id=own, parent=self._tip, at=at, kind="compaction", tail=text(marker, "tail_start_id"))
            entry.summary = {"auto": marker.get("auto") is True}
            self._compactions[own] = self._add(entry)
        parts: list[dict[str, Any]] = []
        own_words = False
        left: list[Record] = []
        for part in records:
            if part is marker:
                continue
            made = self._part_of(part, own)
            if made is None:
                left.append(part)
            else:
                parts.append(made)
                own_words = own_words or part.get("synthetic") is not True
        if parts and marker is None:
            self._add(Entry(id=own, parent=self._tip, at=at, kind="prompt" if own_words else "aside", parts=parts))
        reading.defer_rest("the program's notes on a message", info, _INFO - {"summary"}, own, type="info", id=own)
        reading.attach_deferred(reading.last)
        for part in left if marker is None else [part for part in records if part is not marker]:
            reading.preserve(f"parts of kind {str(part.get('type'))[:40]}", part, own)

    def _part_of(self, part: Record, own: str) -> dict[str, Any] | None:
        """Return a part of a user message; None for one to preserve unchanged."""
        if part.get("type") == "text" and isinstance(part.get("text"), str) and part.get("ignored") is not True:
            made = self.reading.text_part(part["text"], own)
            return notice_part(made["text"]) if part.get("synthetic") is True else made
        if part.get("type") == "file":
            return self._file(part, own)
        return None

    def _file(self, part: Record, own: str) -> dict[str, Any] | None:
        made = self.reading.url_part(part.get("url"), own, text(part, "mime") or "application/octet-stream")
        if made is not None and (name := text(part, "filename")) is not None:
            made = {**made, "filename": name}
        return made

    def _assistant(self, info: Record, records: list[Record], own: str, at: int) -> None:
        model = Model(text(info, "providerID") or "unknown", text(info, "modelID") or "unknown")
        compaction = self._compactions.get(text(info, "parentID") or "")
        if info.get("summary") is True and compaction is not None:
            summary_text = "\n".join(text(part, "text") or "" for part in records if part.get("type") == "text")
            about = {"summary": self.reading.cut(summary_text, own), "model": str(model)}
            compaction.summary = {**(compaction.summary or {}), **about}
            metadata = {
                "type": "message",
                "info": plain(info),
                "parts": [part for part in records if part.get("type") != "text"],
            }
            self.reading.preserve("how a summary was made", metadata, own, compaction)
            return
        # A message that failed before any content has an error and its usage.
        steps = list(_steps(records)) or ([[]] if info.get("error") or _usage(info.get("tokens")).total else [])
        for number, step in enumerate(steps):
            entry = Entry(
                id=own if not number else f"{own}#{number}", parent=self._tip, at=at, kind="answer", model=model
            )
            entry.parts = [made for part in step if (made := self._answered(part, model.provider_id, own)) is not None]
            finish = next((part for part in step if part.get("type") == "step-finish"), None)
            # Older versions store usage only with the message.
            paid = finish if finish is not None else info if number == len(steps) - 1 else None
            entry.usage, entry.cost_usd = (
                (used(_usage(paid.get("tokens"))), money(paid, "cost")) if paid else (None, 0.0)
            )
            entry.finish = text(finish, "reason") or text(info, "finish")
            times = info.get("time")
            entry.ended_at = time_of(times.get("completed") if isinstance(times, dict) else None, at)
            self._add(entry)
            for part in step:
                self._rest(part, own, entry)
        self.reading.defer_rest("the program's notes on a message", info, _INFO, own, type="info", id=own)
        self.reading.attach_deferred(self.reading.last)
        error = info.get("error")
        last = self.reading.find(self._tip)
        if isinstance(error, dict) and last is not None and last.kind == "answer":
            last.stopped = "aborted" if error.get("name") == "MessageAbortedError" else "failed"
            last.why = text(error.get("data"), "message") or text(error, "name")

    def _answered(self, part: Record, provider: str, own: str) -> dict[str, Any] | None:
        match part.get("type"):
            case "text" if isinstance(part.get("text"), str):
                return self.reading.text_part(part["text"], own, state="done")
            case "reasoning":
                seal = _seal_of(part.get("metadata"), provider)
                return self.reading.text_part(part.get("text"), own, "reasoning", state="done", **seal)
            case "tool" if isinstance(part.get("callID"), str):
                return self._call(part, own)
            case "file":
                return self._file(part, own)
        return None

    def _call(self, part: Record, own: str) -> dict[str, Any]:
        state = part["state"] if isinstance(part.get("state"), dict) else {}
        made = call_part(part.get("tool"), part["callID"], plain(state.get("input", {})))
        if state.get("status") == "completed":
            output = state.get("output")
            output = self.reading.cut(output, own) if isinstance(output, str) else plain(output)
            return {**made, "state": "output-available", "output": output}
        if state.get("status") == "error":
            return {**made, "state": "output-error", "errorText": self.reading.cut(str(state.get("error")), own)}
        return made

    def _rest(self, part: Record, own: str, entry: Entry) -> None:
        """Preserve a part of an unknown kind, and the notes on a call."""
        kind = text(part, "type")
        if kind == "tool" and isinstance(part.get("callID"), str):
            state = part["state"] if isinstance(part.get("state"), dict) else {}
            for file in state.get("attachments") or () if isinstance(state.get("attachments"), list) else ():
                made = self._file(file, own) if isinstance(file, dict) else None
                if made is None:
                    self.reading.preserve("unreadable files of calls", {"file": file}, own, entry)
                else:
                    about = made["providerMetadata"]["clew"]
                    entry.parts.append({**made, "providerMetadata": {"clew": {**about, "result_of": part["callID"]}}})
            rest = {key: value for key, value in part.items() if key not in _CALL and value}
            noted = {key: value for key, value in state.items() if key not in _STATE and value}
            ignore(part, *_CALL, *rest)
            ignore(state, *_STATE, *noted)
            if rest or noted:
                notes = {"type": "tool", "callID": part["callID"], "state": noted, **rest}
                self.reading.preserve("the program's notes on a call", notes, own, entry)
        elif kind in _STEP and part.get("snapshot"):
            self.reading.preserve("snapshots of steps", part, own, entry)
        elif kind == "text" and part.get("metadata"):
            self.reading.preserve("provider metadata of a text", {**plain(part), "text": None}, own, entry)
        elif kind not in ("text", "reasoning", *_STEP) and not (kind == "file" and self._file(part, own)):
            self.reading.preserve(f"parts of kind {str(kind)[:40]}", part, own, entry)


def _steps(parts: list[Record]) -> Iterator[list[Record]]:
    """Yield the parts of a message step by step, with the markers of the step."""
    step: list[Record] = []
    for part in parts:
        if part.get("type") == "step-start" and step:
            yield step
            step = []
        step.append(part)
    if step:
        yield step


def _usage(counts: object) -> Usage:
    cache = counts.get("cache") if isinstance(counts, dict) else None
    ignore(counts, "total")
    return Usage(
        input=count(counts, "input"),
        output=count(counts, "output"),
        reasoning=count(counts, "reasoning"),
        cache_read=count(cache, "read"),
        cache_write=count(cache, "write"),
    )


def _seal_of(noted: Any, provider: str) -> dict[str, Any]:
    """Return clew's form of the metadata that the AI SDK stores for a provider."""
    for name in noted if isinstance(noted, dict) else ():
        if isinstance(about := noted[name], dict):
            secret = about.get("signature") or about.get("reasoningEncryptedContent") or about.get("redactedData")
            return sealed(name, id=about.get("itemId"), signature=secret)
    return {}


SPOKEN: Final = frozenset({"user", "assistant"})
"""Types of rows with messages. A session without any of them is empty."""
_STATUS: Final = {"streaming": "pending"}


def older_messages(id_: str, kind: str, data: Record) -> list[Record]:
    """Return the messages of a row, each with ``info`` and ``parts``."""
    rest = _without(data, "text", "files", "content")
    info: Record = {**rest, "id": id_, "role": "user"}
    text_part: Record = {"type": "text", "text": data.get("text")}
    match kind:
        case "user":
            files = [_file(one) for one in _records(data.get("files"))]
            return [{"info": info, "parts": [text_part, *files]}]
        case "synthetic" | "skill":
            return [{"info": info, "parts": [{**text_part, "synthetic": True}]}]
        case "shell":
            printed = text(data.get("output"), "output") or text(data, "output") or ""
            ran = {"type": "text", "text": f"$ {data.get('command')}\n{printed}", "synthetic": True}
            return [{"info": info, "parts": [ran]}]
        case "assistant":
            return [_answer(info, data)]
        case "compaction" if text(data, "summary") is not None and data.get("status") in (None, "completed"):
            # The model was sent the summary, followed by the newest messages unchanged.
            both = "\n\n".join(words for key in ("summary", "recent") if (words := text(data, key)) is not None)
            made = {"role": "assistant", "id": f"{id_}/summary", "parentID": id_, "summary": True, **_model(data)}
            how = {key: rest[key] for key in ("cost", "tokens", "time", "native") if key in rest}
            known = ("id", "type", "summary", "recent", "reason", "status", "model", *how)
            marker = {**_without(rest, *known), "type": "compaction", "auto": data.get("reason") != "manual"}
            return [
                {"info": {"id": id_, "role": "user", "time": data.get("time")}, "parts": [marker]},
                {"info": {**how, **made}, "parts": [{"type": "text", "text": both}]},
            ]
    # Not a message: it is preserved unchanged.
    return [{"info": {"id": id_, "role": "user", "time": data.get("time")}, "parts": [{**data, "type": kind}]}]


def _answer(info: Record, data: Record) -> Record:
    error = data.get("error")
    if isinstance(error, dict):
        stopped = any(word in (text(error, "type") or "").lower() for word in ("abort", "interrupt", "cancel"))
        name = "MessageAbortedError" if stopped else text(error, "type")
        info = {**info, "error": {"name": name, "data": error}}
    parts = [_part(one, text(data.get("model"), "providerID") or "") for one in _records(data.get("content"))]
    return {"info": {**info, "role": "assistant", **_model(data)}, "parts": parts}


def _model(data: Record) -> Record:
    model = data.get("model")
    return {"providerID": text(model, "providerID"), "modelID": text(model, "id")}


def _part(record: Record, provider: str) -> Record:
    if record.get("type") in ("text", "reasoning"):
        native = record.get("native", record.get("state"))
        flat = isinstance(native, dict) and not any(isinstance(value, dict) for value in native.values())
        return {**_without(record, "native", "state"), "metadata": {provider: native} if native and flat else native}
    state = record.get("state")
    if record.get("type") != "tool" or not isinstance(state, dict):
        return record
    content = _records(state.get("content"))
    texts = [words for piece in content if (words := text(piece, "text")) is not None]
    files = [_file(piece) for piece in content if piece.get("type") == "file"]
    left = [piece for piece in content if piece.get("type") not in ("text", "file")]
    left += [more for piece in content if piece.get("type") == "text" and (more := _without(piece, "type", "text"))]
    error = state.get("error")
    now: dict[str, Any] = {key: value for key, value in state.items() if key not in ("content", "error")}
    now |= {"status": _STATUS.get(str(state.get("status")), state.get("status")), "attachments": files}
    now |= {"output": "\n".join(texts), "content": left}
    if isinstance(error, dict):
        messages = [text(error, "message") or text(error, "type") or "", *texts]
        now["error"] = "\n".join(words for words in messages if words)
        now["error_data"] = _without(error, "message")
    given = state.get("input")
    now["input"] = given if isinstance(given, dict) else {"input": given}
    return {**record, "callID": record.get("id"), "tool": record.get("name"), "state": now}


def _file(record: Record) -> Record:
    data, mime = text(record, "data"), text(record, "mime")
    url = text(record, "uri") or text(record, "url") or (f"data:{mime};base64,{data}" if data is not None else None)
    return {
        **_without(record, "data", "uri", "name"),
        "type": "file",
        "url": url,
        "mime": mime,
        "filename": text(record, "name"),
    }


def _without(record: Record, *keys: str) -> Record:
    return {key: value for key, value in record.items() if key not in keys}


def _records(value: object) -> list[Record]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
