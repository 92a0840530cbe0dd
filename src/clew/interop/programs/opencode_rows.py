"""opencode's newer messages, one row each, converted to the older format.

Version 2 stores sessions in ``session_v2`` and messages in ``session_message``: a row has a type and an object.
"""

from __future__ import annotations

from typing import Any, Final

from clew.interop.programs.foreign import Record, text

__all__ = ["SPOKEN", "older_messages"]

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
