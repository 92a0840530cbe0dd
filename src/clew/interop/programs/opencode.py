"""opencode's sessions: a session, its messages and their parts, each an object of its own.

They lie in a folder of small files or in a database; what is read here is all of one session in one document, as
``opencode export`` writes it: ``info``, and ``messages`` of ``info`` and ``parts``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

from clew.interop.programs.foreign import (
    Entry,
    Foreign,
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
from clew.interop.programs.opencode_rows import older_messages
from clew.interop.programs.remainder import ignore, plain, tracked
from clew.transcript.part import notice_part
from clew.transcript.session import Model
from clew.transcript.usage import Usage
from clew.transcript.value_check import clean_value

__all__ = ["read_opencode"]

_INFO: Final = frozenset(
    {"id", "sessionID", "role", "time", "parentID", "modelID", "providerID", "cost", "tokens", "finish", "error"}
    | {"summary"}
)
_SESSION: Final = frozenset(
    {"id", "title", "directory", "parentID", "time", "version", "projectID", "slug", "revert", "cost", "tokens"}
)
_OWN: Final = ("id", "sessionID", "messageID")
_STEP: Final = frozenset({"step-start", "step-finish"})
_CALL: Final = frozenset({"id", "sessionID", "messageID", "type", "callID", "tool", "state"})
_STATE: Final = frozenset({"status", "input", "output", "error", "time", "attachments", "raw"})


def read_opencode(data: bytes) -> list[Foreign]:
    """The session in this document."""
    reader = _Reader()
    # What the export prints may begin with a line for people.
    value = read_json(data[data.find(b"{") :]) if b"{" in data else None
    if not isinstance(value, dict) or not isinstance(value.get("info"), dict):
        return [reader.reading.done(None)]
    value, replaced = clean_value(value, 10)
    if replaced:
        reader.reading.remark("values that no store can keep, replaced", "changed")
    info = tracked(value["info"])
    reader.reading.begins = orjson.dumps(info)
    messages = value.get("messages")
    for message in messages if isinstance(messages, list) else ():
        id_, kind = text(message, "id"), text(message, "type")
        # What version 2 exports are its rows.
        newer = id_ is not None and kind is not None and "info" not in message
        for one in older_messages(id_ or "", kind or "", message) if newer else (message,):
            reader.take(tracked(one))
    reader.reading.hold_rest("keys of the document", value, frozenset({"info", "messages"}), "info", type="document")
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
            self.reading.keep("messages that do not read", {"message": message}, "messages")
            return
        own = text(info, "id") or f"message {len(self._seen)}"
        if own in self._seen:
            self.reading.remark("messages that stand there twice", "changed", own)
            return
        self._seen.add(own)
        self._begins[own] = self._tip
        held = [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
        at = time_of((info.get("time") or {}).get("created") if isinstance(info.get("time"), dict) else None, 0)
        at = at or (self.reading.last.at if self.reading.last is not None else 0)
        if info.get("role") == "assistant":
            self._assistant(info, held, own, at)
        else:
            self._user(info, held, own, at)
        for part in held:
            state = part.get("state")
            ignore(part, *_OWN)
            ignore(part.get("time"), "start", "end")
            ignore(state.get("time") if isinstance(state, dict) else None, "start", "end")
        ignore(info.get("time"), "created", "completed")
        _usage(info.get("tokens"))
        if isinstance(message, dict):
            self.reading.keep_rest(message, own, id=own)

    def done(self, info: Record) -> Foreign:
        times = info.get("time") if isinstance(info.get("time"), dict) else {}
        revert, head = info.get("revert"), self._tip
        if isinstance(revert, dict) and text(revert, "messageID") in self._begins:
            head = self._begins[revert["messageID"]]
            if head is None:
                self.reading.remark("it was taken back to its beginning; here it stands at its end", "changed")
                head = self._tip
        ignore(info, *_SESSION)
        ignore(times, "created", "updated", "archived")
        _usage(info.get("tokens"))
        rest = plain({key: value for key, value in info.items() if key not in _SESSION and value is not None})
        ignore(info, *rest)
        first = next(iter(self.reading.entries.values()), None)
        if rest:
            self.reading.keep(
                f"keys of the session: {', '.join(sorted(rest))[:80]}", {"type": "info", **rest}, "info", first
            )
        self.reading.keep_rest(info, "info", first, id="info")
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

    def _user(self, info: Record, held: list[Record], own: str, at: int) -> None:
        reading = self.reading
        marker = next((part for part in held if part.get("type") == "compaction"), None)
        if marker is not None:
            entry = Entry(id=own, parent=self._tip, at=at, kind="compaction", tail=text(marker, "tail_start_id"))
            entry.summary = {"auto": marker.get("auto") is True}
            self._compactions[own] = self._add(entry)
        said: list[dict[str, Any]] = []
        own_words = False
        left: list[Record] = []
        for part in held:
            if part is marker:
                continue
            made = self._said(part, own)
            if made is None:
                left.append(part)
            else:
                said.append(made)
                own_words = own_words or part.get("synthetic") is not True
        if said and marker is None:
            self._add(Entry(id=own, parent=self._tip, at=at, kind="prompt" if own_words else "aside", parts=said))
        reading.hold_rest("what the program noted of a message", info, _INFO - {"summary"}, own, type="info", id=own)
        reading.settle(reading.last)
        for part in left if marker is None else [part for part in held if part is not marker]:
            reading.keep(f"parts of kind {str(part.get('type'))[:40]}", part, own)

    def _said(self, part: Record, own: str) -> dict[str, Any] | None:
        """A part of the user's; None for one to keep as it is."""
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

    def _assistant(self, info: Record, held: list[Record], own: str, at: int) -> None:
        model = Model(text(info, "providerID") or "unknown", text(info, "modelID") or "unknown")
        compaction = self._compactions.get(text(info, "parentID") or "")
        if info.get("summary") is True and compaction is not None:
            said = "\n".join(text(part, "text") or "" for part in held if part.get("type") == "text")
            about = {"summary": self.reading.cut(said, own), "model": str(model)}
            compaction.summary = {**compaction.summary, **about}
            kept = {
                "type": "message",
                "info": plain(info),
                "parts": [part for part in held if part.get("type") != "text"],
            }
            self.reading.keep("how a summary was made", kept, own, compaction)
            return
        # One that failed before it said anything says why, and what it used.
        steps = list(_steps(held)) or ([[]] if info.get("error") or _usage(info.get("tokens")).total else [])
        for number, step in enumerate(steps):
            entry = Entry(
                id=own if not number else f"{own}#{number}", parent=self._tip, at=at, kind="answer", model=model
            )
            entry.parts = [made for part in step if (made := self._answered(part, model.provider_id, own)) is not None]
            finish = next((part for part in step if part.get("type") == "step-finish"), None)
            # Older versions say only of the whole message what it used.
            told = finish if finish is not None else info if number == len(steps) - 1 else None
            entry.usage, entry.cost_usd = (
                (used(_usage(told.get("tokens"))), money(told, "cost")) if told else (None, 0.0)
            )
            entry.finish = text(finish, "reason") or text(info, "finish")
            times = info.get("time")
            entry.ended_at = time_of(times.get("completed") if isinstance(times, dict) else None, at)
            self._add(entry)
            for part in step:
                self._rest(part, own, entry)
        self.reading.hold_rest("what the program noted of a message", info, _INFO, own, type="info", id=own)
        self.reading.settle(self.reading.last)
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
            told = self.reading.cut(output, own) if isinstance(output, str) else plain(output)
            return {**made, "state": "output-available", "output": told}
        if state.get("status") == "error":
            return {**made, "state": "output-error", "errorText": self.reading.cut(str(state.get("error")), own)}
        return made

    def _rest(self, part: Record, own: str, entry: Entry) -> None:
        """What of a part has no place: all of one of another kind, and what is noted of a call."""
        kind = text(part, "type")
        if kind == "tool" and isinstance(part.get("callID"), str):
            state = part["state"] if isinstance(part.get("state"), dict) else {}
            for file in state.get("attachments") or () if isinstance(state.get("attachments"), list) else ():
                made = self._file(file, own) if isinstance(file, dict) else None
                if made is None:
                    self.reading.keep("pictures of calls that do not read", {"file": file}, own, entry)
                else:
                    about = made["providerMetadata"]["clew"]
                    entry.parts.append({**made, "providerMetadata": {"clew": {**about, "result_of": part["callID"]}}})
            rest = {key: value for key, value in part.items() if key not in _CALL and value}
            noted = {key: value for key, value in state.items() if key not in _STATE and value}
            ignore(part, *_CALL, *rest)
            ignore(state, *_STATE, *noted)
            if rest or noted:
                kept = {"type": "tool", "callID": part["callID"], "state": noted, **rest}
                self.reading.keep("what the program noted of a call", kept, own, entry)
        elif kind in _STEP and part.get("snapshot"):
            self.reading.keep("snapshots of steps", part, own, entry)
        elif kind == "text" and part.get("metadata"):
            self.reading.keep("what a provider noted of a text", {**plain(part), "text": None}, own, entry)
        elif kind not in ("text", "reasoning", *_STEP) and not (kind == "file" and self._file(part, own)):
            self.reading.keep(f"parts of kind {str(kind)[:40]}", part, own, entry)


def _steps(held: list[Record]) -> Iterator[list[Record]]:
    """The parts of a message step by step; what begins or ends one stands in it."""
    step: list[Record] = []
    for part in held:
        if part.get("type") == "step-start" and step:
            yield step
            step = []
        step.append(part)
    if step:
        yield step


def _usage(told: object) -> Usage:
    cache = told.get("cache") if isinstance(told, dict) else None
    ignore(told, "total")
    return Usage(
        input=count(told, "input"),
        output=count(told, "output"),
        reasoning=count(told, "reasoning"),
        cache_read=count(cache, "read"),
        cache_write=count(cache, "write"),
    )


def _seal_of(noted: Any, provider: str) -> dict[str, Any]:
    """What the AI SDK noted for a provider, in the words of clew's own."""
    for name in noted if isinstance(noted, dict) else ():
        if isinstance(about := noted[name], dict):
            secret = about.get("signature") or about.get("reasoningEncryptedContent") or about.get("redactedData")
            return sealed(name, id=about.get("itemId"), signature=secret)
    return {}
