"""Reader of Codex' sessions: rollouts of JSON lines without branches. Messages are items; events repeat them.

Two formats are read: lines of ``timestamp``, ``type`` and ``payload``, and the older one, in which bare items follow a
first line with the session's id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

import orjson

from clew.interop.programs.foreign import (
    FORKED,
    Entry,
    ForeignSession,
    Reading,
    Record,
    call_part,
    count,
    read_json,
    read_lines,
    sealed,
    text,
    time_of,
)
from clew.interop.programs.remainder import ignore, plain
from clew.transcript.session import Model
from clew.transcript.usage import Usage

__all__ = ["read_codex"]

_CALLS: Final = frozenset(
    {"function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call"}
)
_OUTPUTS: Final = frozenset({"function_call_output", "custom_tool_call_output", "tool_search_output"})
_ITEMS: Final = frozenset({"message", "reasoning", *_CALLS, *_OUTPUTS})
_ITEM: Final = ("type", "role", "id", "status", "name")
"""Keys of an item whose values are stored elsewhere or carry no information."""
_PROGRAM_TEXTS: Final = (
    "<environment_context>",
    "<user_instructions>",
    "<permissions instructions>",
    "<turn_aborted>",
    "<skill>",
    "<subagent_notification>",
    "<user_shell_command>",
    "# AGENTS.md instructions",
)
"""The beginnings of texts that Codex itself sends with the role of the user."""
_FRAME: Final = re.compile(r"</?image(?: name=[^\n]*)?>")
"""The markup that Codex puts around a picture."""
_REPEATED: Final = frozenset({"agent_message", "agent_reasoning", "agent_reasoning_raw_content", "context_compacted"})
"""Events that repeat items."""


def read_codex(data: bytes | BinaryIO) -> list[ForeignSession]:
    """Return the session in these lines."""
    return read_lines(data, _Reader())


class _Reader:
    def __init__(self) -> None:
        self.reading = Reading("codex")
        self._id: str | None = None
        self._meta: Record = {}
        self._title: str | None = None
        self._at = 0
        self._tip: str | None = None
        self._step: Entry | None = None
        self._provider = "openai"
        self._model: Model | None = None
        self._spent: Usage | None = None
        self._texts_seen = set[int]()
        """Hashes of the texts so far: the texts would be the file once more."""
        self._number = 0
        self._copied = False

    def take(self, record: Record, where: str) -> None:
        self._at = time_of(record.get("timestamp"), self._at)
        kind, payload = text(record, "type"), record.get("payload")
        if kind in _ITEMS and not isinstance(payload, dict):
            self._item(record, str(kind), where)
        elif kind is None and self._id is None and text(record, "id") is not None:
            self._begins(record, record, where)
        elif kind is None and (named := text(record, "thread_name")) is not None:
            # A line of the index next to the sessions.
            self._title = named
            ignore(record, "id", "updated_at")
        elif not isinstance(payload, dict):
            self.reading.preserve(f"lines of kind {str(kind or record.get('record_type'))[:40]}", record, where)
        elif kind == "session_meta" and self._id is None:
            self._begins(payload, record, where)
        elif kind == "response_item":
            self._item(payload, text(payload, "type") or "unknown", where)
        elif kind == "compacted":
            self._compacted(payload, record, where)
        elif kind == "event_msg":
            self._event(payload, record, where)
        else:
            if kind == "turn_context" and (model := text(payload, "model")) is not None:
                self._model = Model(self._provider, model)
            # A fork begins with its copied lines, and these with the first line of the original.
            self._copied = self._copied or kind == "session_meta"
            self.reading.preserve(f"lines of kind {str(kind)[:40]}", record, where)
        self.reading.preserve_rest(record, where)

    def done(self) -> ForeignSession:
        meta = self._meta
        head = self.reading.find(self._tip)
        source = meta.get("source")
        below = source.get("subagent") if isinstance(source, dict) else None
        spawn = below.get("thread_spawn") if isinstance(below, dict) else None
        spawned_by = text(meta, "parent_thread_id") or text(spawn, "parent_thread_id")
        if (base := text(meta.get("history_base"), "thread_id")) is not None and not self._copied:
            what = f"its beginning is in the file of session {base[:60]}, which is not available"
            self.reading.remark(what, "lost")
        if self._copied or text(meta, "forked_from_id") is not None:
            self.reading.remark(FORKED, "changed")
        return self.reading.done(
            self._id,
            title=self._title,
            folder=text(meta, "cwd"),
            branch=text(meta.get("git"), "branch"),
            version=text(meta, "cli_version"),
            parent_id=spawned_by or text(meta, "forked_from_id"),
            is_subagent=spawned_by is not None,
            created_at=time_of(meta.get("timestamp"), 0),
            head=head.id if head is not None else None,
        )

    def _begins(self, meta: Record, record: Record, where: str) -> None:
        self._id, self._meta = text(meta, "id"), meta
        self._provider = text(meta, "model_provider") or self._provider
        self.reading.preserve("lines of kind session_meta", record, where)

    def _add(self, entry: Entry, where: str) -> Entry:
        self._number += 1
        added = self.reading.add(entry, where)
        self._tip = added.id
        return added

    def _new(self, kind: Any, **more: Any) -> Entry:
        return Entry(id=str(self._number), parent=self._tip, at=self._at, kind=kind, **more)

    def _item(self, item: Record, kind: str, where: str) -> None:
        if kind == "message" and item.get("role") != "assistant":
            self._user(item, where)
        elif kind in _OUTPUTS:
            self._result(item, where)
        elif kind in ("message", "reasoning") or kind in _CALLS:
            self._answer(list(self._parts(item, kind, where)), where)
            ignore(item, *_ITEM)
            self.reading.attach_deferred(self._step)
        else:
            self.reading.preserve(f"items of kind {kind[:40]}", item, where)

    def _user(self, item: Record, where: str) -> None:
        blocks = [block for block in _blocks(item) if not _FRAME.fullmatch(text(block, "text") or "")]
        for block in _blocks(item):
            ignore(block, "type")
        parts = [part for block in blocks for part in self._block(block, where)]
        words = "\n".join(part["text"] for part in parts if part["type"] == "text")
        if item.get("role") != "user" or words.lstrip().startswith(_PROGRAM_TEXTS):
            # The instructions and environment of that program; clew sends its own.
            self.reading.preserve("the program's own instructions to the model", {**plain(item), "at": self._at}, where)
        elif parts:
            ignore(item, *_ITEM)
            # The event that repeats the prompt joins the texts.
            self._texts_seen |= {hash(words), hash("".join(part["text"] for part in parts if part["type"] == "text"))}
            self.reading.attach_deferred(self._add(self._new("prompt", parts=parts), where))
            self._step = None

    def _answer(self, parts: list[dict[str, Any]], where: str) -> None:
        """Add parts to the step, or begin the next one: a step ends with the first tool result."""
        if not parts:
            return
        self._texts_seen |= {hash(part["text"]) for part in parts if "text" in part}
        step = self._step
        if step is None or any(part.get("state", "").startswith("output-") for part in step.parts):
            step = self._step = self._add(self._new("answer", parts=parts, model=self._model), where)
        else:
            first = len(step.parts)
            step.parts += parts
            self.reading.index(step, first)
        step.ended_at = max(step.ended_at, self._at)

    def _parts(self, item: Record, kind: str, where: str) -> Iterator[dict[str, Any]]:
        reading = self.reading
        if kind == "message":
            for block in _blocks(item):
                yield from self._block(block, where, state="done")
        elif kind == "reasoning":
            blocks = [*_list(item, "summary"), *_list(item, "content")]
            for one in blocks:
                ignore(one, "type")
            thought = "\n\n".join(
                one["text"] for one in blocks if isinstance(one, dict) and isinstance(one.get("text"), str)
            )
            seal = sealed(self._provider, id=item.get("id"), signature=item.get("encrypted_content"))
            yield reading.text_part(thought, where, "reasoning", state="done", **seal)
        else:
            call_id = item.get("call_id") or item.get("id") or f"call_{self._number}_{where}"
            given = item.get("arguments", item.get("input", item.get("action")))
            if isinstance(given, str) and kind == "function_call":
                read = read_json(given.encode(errors="surrogatepass"))
                given = read if isinstance(read, dict) else {"arguments": given}
            name = text(item, "name") or {"local_shell_call": "local_shell"}.get(kind, kind.removesuffix("_call"))
            part = call_part(name, str(call_id), plain(given) if isinstance(given, dict) else {"input": plain(given)})
            if kind == "web_search_call":
                # The provider ran it, and the answer contains the results.
                part |= {"state": "output-available", "output": text(item, "status") or "completed"}
            yield part

    def _block(self, block: Record, where: str, **more: Any) -> Iterator[dict[str, Any]]:
        kind = block.get("type")
        if isinstance(block.get("text"), str):
            yield self.reading.text_part(block["text"], where, **more)
        elif kind == "input_image" and (part := self.reading.url_part(block.get("image_url"), where)) is not None:
            yield part
        else:
            self.reading.defer(f"blocks of kind {str(kind)[:40]}", block, where)

    def _result(self, item: Record, where: str) -> None:
        ignore(item, *_ITEM)
        output, failed = item.get("output", item.get("tools")), False
        if isinstance(output, dict):  # of an older version, with a `success` flag
            failed, output = output.get("success") is False, output["content"] if "content" in output else plain(output)
        files: list[dict[str, Any]] = []
        if isinstance(output, list):
            texts = [
                block["text"] for block in output if isinstance(block, dict) and isinstance(block.get("text"), str)
            ]
            found = [
                self.reading.url_part(block.get("image_url"), where) for block in output if isinstance(block, dict)
            ]
            files = [part for part in found if part is not None]
            for block in output:
                ignore(block, "type")
            output = "\n".join(texts) if texts or files else orjson.dumps(plain(output)).decode()
        result = self.reading.cut(output if isinstance(output, str) else orjson.dumps(plain(output)).decode(), where)
        key, state = ("errorText", "output-error") if failed else ("output", "output-available")
        outcome = {"state": state, key: result}
        if not self.reading.result(item.get("call_id"), outcome, self._at, files):
            self.reading.preserve(
                "results of calls that are missing or already have one", {**plain(item), "at": self._at}, where
            )

    def _compacted(self, payload: Record, record: Record, where: str) -> None:
        message = text(payload, "message")
        lines = list(_readable(payload.get("replacement_history"), message))
        if message is not None:
            # The program sends the prompts that it did not summarise before the summary.
            lines.append(message)
        elif isinstance(payload.get("replacement_history"), list):
            # The provider's summary is encrypted; the readable remainder of the conversation replaces it.
            self.reading.remark("summaries that only the provider can read", "changed", where)
        summary = {"summary": self.reading.cut("\n\n".join(lines), where), "auto": True}
        entry = self._add(self._new("compaction", summary=summary), where)
        self._step = None
        self.reading.preserve("lines of kind compacted", record, where, entry)

    def _event(self, event: Record, record: Record, where: str) -> None:
        kind = text(event, "type") or "unknown"
        # The item that the event repeats has the pictures.
        ignore(event, "images" if kind == "user_message" else "")
        message = text(event, "message") or text(event, "text")
        if kind == "token_count":
            self._count(event.get("info"), where)
        elif kind == "thread_rolled_back":
            self._roll_back(count(event, "num_turns"))
        elif kind == "turn_aborted" and self._step is not None:
            self._step.stopped, self._step.why = "aborted", text(event, "reason")
        elif kind == "user_message" and message is not None and hash(message) not in self._texts_seen:
            self._add(self._new("prompt", parts=[self.reading.text_part(message, where)]), where)
            self._step = None
            self._texts_seen.add(hash(message))
        elif kind != "user_message" and not (
            kind in _REPEATED and (message is None or hash(message) in self._texts_seen)
        ):
            self.reading.preserve(f"events of kind {kind[:40]}", record, where)

    def _count(self, info: object, where: str) -> None:
        """Add usage to the step. An event that repeats the same totals is not another call."""
        total, last = (
            (_used(info.get(f"{which}_token_usage")) for which in ("total", "last"))
            if isinstance(info, dict)
            else (None, None)
        )
        if total is None or total == self._spent:
            return
        self._spent = total
        if self._step is None:
            self.reading.remark("tokens of calls without a response, such as summaries: not counted", "lost", where)
            return
        last = last or Usage()
        self._step.usage = last if self._step.usage is None else self._step.usage + last

    def _roll_back(self, turns: int) -> None:
        """Move the tip before the last ``turns`` prompts, which were rolled back."""
        entry = self.reading.find(self._tip)
        while entry is not None and turns:
            turns -= entry.kind == "prompt"
            self._tip = entry.parent
            entry = self.reading.find(self._tip)
        self._step = None


def _readable(history: object, summary: str | None) -> Iterator[str]:
    """Yield the texts that a compaction left unchanged, except the program's own and the summary."""
    for item in history if isinstance(history, list) else ():
        words = "\n".join(one["text"] for one in _blocks(item) if isinstance(one.get("text"), str))
        role = text(item, "role")
        is_own = words.lstrip().startswith(_PROGRAM_TEXTS) or role not in (None, "user", "assistant")
        if words and words != summary and not is_own:
            yield f"{role or 'assistant'}: {words}"


def _blocks(item: object) -> list[Record]:
    content = item.get("content") if isinstance(item, dict) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _used(counts: object) -> Usage | None:
    """Return a usage as Codex counts it: cached tokens are part of the input, reasoning is part of the output."""
    if not isinstance(counts, dict):
        return None
    ignore(counts, "total_tokens")
    return Usage.from_inclusive(
        input_tokens=count(counts, "input_tokens"),
        output_tokens=count(counts, "output_tokens"),
        reasoning_tokens=count(counts, "reasoning_output_tokens"),
        cache_read_tokens=count(counts, "cached_input_tokens"),
        cache_write_tokens=count(counts, "cache_write_input_tokens"),
    )


def _list(item: Record, key: str) -> list[Any]:
    found = item.get(key)
    return found if isinstance(found, list) else []
