"""``metadata.json``: facts about a session for other programs, without its log, and the session's row for clew."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

import msgspec
import orjson
from msgspec.structs import replace

from clew.convert import convert
from clew.store.files.crc import BOM, check_of, is_check, is_checked
from clew.transcript.iso_time import iso, milliseconds
from clew.transcript.metadata import FILE_KEYS, MAX_METADATA_BYTES, NAMING_KEY, PLACE_KEYS, merge
from clew.transcript.session import Model, Session, Spend

__all__ = [
    "HEADED",
    "End",
    "Totals",
    "as_found",
    "base_of",
    "carried_keys",
    "end_of",
    "model_of",
    "read_metadata",
    "renamed",
    "reserved_keys",
    "session_of",
    "unknown_keys",
    "with_file_keys",
    "write_metadata",
]

HEADED: Final = 2
"""The version of clew's keys since which the session's row has its spend."""

log = logging.getLogger("clew.store")

_TIMES: Final = frozenset({"createdAt", "updatedAt", "lastMessageAt", "lastActiveAt"})
_OWN: Final = frozenset(
    {
        *("id", "name", "createdAt", "lastMessageAt", "model", "messageCount", "source", "cronJobId"),
        *("systemPromptOverride", "metrics", "nextSeq", "clew", "check"),
    }
)
_WRITTEN_BY_CLEW: Final = frozenset({"messages", "clew", "check", *PLACE_KEYS, *_TIMES})
_TEXTS: Final = frozenset({"id", "title", "name", "model", "systemPromptOverride"})
_ALWAYS: Final = frozenset(
    {"id", "createdAt", "lastMessageAt", "model", "messageCount", "source", "metrics", "nextSeq"}
)
_WHERE_SET: Final = {"name": "title", "cronJobId": "cron_job_id", "systemPromptOverride": "system_prompt"}
"""Keys that are written only where the session's metadata has the other key."""
_TOTALS: Final = ("totalDurationMs", "totalTokens", "totalToolCalls", "totalTurns")
_METRICS: Final = frozenset(
    {
        *_TOTALS,
        *("inputTokens", "outputTokens", "reasoningTokens", "cacheReadTokens", "cacheWriteTokens"),
        "costUsd",
    }
)
_MAX_CARRIED: Final = 2 * MAX_METADATA_BYTES


class Totals(NamedTuple):
    """The totals of a session, as other programs count them in ``metrics``."""

    duration_ms: int = 0
    tokens: int = 0
    tool_calls: int = 0
    turns: int = 0


class End(NamedTuple):
    """The end of the log when the file was written: its last number, the last that survives a loss of power, and the
    boot id of the machine. A log that ends before that has lost acknowledged lines."""

    seq: int = 0
    synced: int = 0
    boot: str = ""

    def promised(self, boot: str) -> int:
        return self.seq if boot and boot == self.boot else self.synced


def read_metadata(data: bytes | None) -> dict[str, Any] | None:
    """Return the object in the file; None if it is unreadable, or if clew's keys were changed."""
    try:
        found = orjson.loads((data or b"").removeprefix(BOM))
    except orjson.JSONDecodeError:
        return None
    if not isinstance(found, dict):
        return None
    if "clew" in found and "check" not in found:
        found = {_unflipped(key, {"check"}): value for key, value in found.items()}
    if "check" not in found or reserved_keys(found):
        return found
    return _with_names(found) if is_checked(found.get("clew"), found["check"]) else None


def _with_names(found: dict[str, Any]) -> dict[str, Any]:
    """Return the object with the names that clew wrote where one flipped bit changed them.

    Only what is inside of ``clew`` is checked. A changed name would look like a key of another program.
    """
    own = found["clew"].get("session") if isinstance(found["clew"], dict) else None
    bag = own.get("metadata") if isinstance(own, dict) else None
    if not isinstance(bag, dict):
        return found
    written = {*_ALWAYS, *(key for key, name in _WHERE_SET.items() if bag.get(name) is not None)}
    restored = {_unflipped(key, written - found.keys()): value for key, value in found.items()}
    if isinstance(metrics := restored.get("metrics"), dict):
        restored["metrics"] = {_unflipped(key, _METRICS - metrics.keys()): value for key, value in metrics.items()}
    if isinstance(source := restored.get("source"), str):
        restored["source"] = _unflipped(source, {"cron" if bag.get("source") == "cron" else "interactive"})
    return restored


def _unflipped(text: str, names: Collection[str]) -> str:
    """Return the name from which the text differs in exactly one bit, else the text."""
    found = text.encode()
    for name in names:
        other = name.encode()
        if len(other) == len(found) and sum((a ^ b).bit_count() for a, b in zip(other, found, strict=True)) == 1:
            return name
    return text


def reserved_keys(found: Mapping[str, Any]) -> list[str]:
    """Return the keys of another program's object with the names of clew's own, which will be overwritten."""
    if isinstance(found.get("clew"), dict) or is_check(found.get("check")):
        return []
    return [key for key in ("clew", "check") if key in found]


def end_of(metadata: dict[str, Any]) -> End:
    own = metadata.get("clew")
    try:
        return convert(own.get("end", []) if isinstance(own, dict) else [], End)
    except msgspec.ValidationError:
        return End()


def base_of(metadata: Mapping[str, Any], totals: Totals) -> tuple[int, ...]:
    """Return what another program had counted before clew wrote the file, beyond what its records say."""
    own = metadata.get("clew")
    if isinstance(own, dict):
        base = own.get("base")
        is_valid = isinstance(base, list) and len(base) == len(totals) and all(isinstance(one, int) for one in base)
        return tuple(base) if isinstance(base, list) and is_valid else ()
    metrics = metadata.get("metrics")
    found = [metrics.get(key) if isinstance(metrics, dict) else None for key in _TOTALS]
    base = [max(0, one - now) if isinstance(one, int) else 0 for one, now in zip(found, totals, strict=True)]
    return tuple(base) if any(base) else ()


def write_metadata(
    session: Session,
    message_count: int,
    others: dict[str, Any],
    end: End,
    *,
    totals: Totals,
    base: tuple[int, ...] = (),
    next_seq: int = 1,
) -> bytes:
    """Return the bytes of the file for a session with its spend.

    Keys that are not clew's own are unchanged; the check only covers clew's own.
    """
    bag = session.metadata
    own: dict[str, Any] = {"version": HEADED, "session": msgspec.to_builtins(session), "end": list(end)}
    if base:
        own["base"] = list(base)
        totals = Totals(*map(sum, zip(totals, base, strict=True)))
    known: dict[str, Any] = {
        "id": session.id,
        "name": session.title,
        "createdAt": iso(session.created_at),
        "lastMessageAt": iso(session.updated_at),
        "model": str(session.model),
        "messageCount": message_count,
        "source": "cron" if bag.get("source") == "cron" else "interactive",
        "cronJobId": bag.get("cron_job_id") if bag.get("source") == "cron" else None,
        "systemPromptOverride": bag.get("system_prompt"),
        "metrics": {
            "inputTokens": session.prompt_tokens,
            "outputTokens": session.completion_tokens,
            "reasoningTokens": session.reasoning_tokens,
            "cacheReadTokens": session.cache_read,
            "cacheWriteTokens": session.cache_write,
            "costUsd": session.cost_usd,
            **dict(zip(_TOTALS, totals, strict=True)),
        },
        "nextSeq": next_seq,
        "clew": own,
        "check": check_of(own),
    }
    known |= as_found(others, {key: one for key, one in known.items() if key not in ("clew", "check")})
    if known["cronJobId"] is None and known["source"] != "interactive":
        known["cronJobId"] = others.get("cronJobId")
    rest = {key: value for key, value in others.items() if key not in _OWN}
    return orjson.dumps({**{key: one for key, one in known.items() if one is not None}, **rest}) + b"\n"


def as_found(found: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Return clew's values of these keys, in the form that another program uses.

    A value of an unexpected type is unchanged, and so are the other keys of an object.
    """
    result: dict[str, Any] = {}
    for key, value in written.items():
        old = found.get(key)
        if old is None:
            result[key] = value
        elif key in _TIMES:
            at = milliseconds(old)
            same = at is None or at == milliseconds(value)
            result[key] = old if same else milliseconds(value) if isinstance(old, int) else value
        elif key == "source":
            result[key] = value if old in ("interactive", "cron") else old
        elif key == "metrics":
            result[key] = {**old, **value} if isinstance(old, dict) else old
        else:
            form = int if key in ("messageCount", "nextSeq") else str
            result[key] = value if isinstance(old, form) else old
    return result


def unknown_keys(found: Mapping[str, Any], session_id: str) -> dict[str, Any]:
    """Return the keys of a session's file that clew does not understand, which are copied with the session.

    Values that repeat the session's id are excluded, since a copy may have another id.
    """
    unknown: dict[str, Any] = {}
    for key, value in found.items():
        match key:
            case "metrics" if isinstance(value, dict):
                if more := {name: one for name, one in value.items() if name not in _METRICS}:
                    unknown[key] = more
            case "source":
                if value not in ("interactive", "cron"):
                    unknown[key] = value
            case "cronJobId":
                if found.get("source") != "cron":
                    unknown[key] = value
            case "messageCount" | "nextSeq" if isinstance(value, int):
                pass
            case _ if key in _WRITTEN_BY_CLEW or value == session_id or (key in _TEXTS and isinstance(value, str)):
                pass
            case _:
                unknown[key] = value
    return unknown


def carried_keys(session: Session) -> dict[str, Any]:
    """Return the unknown keys for the first file of a copied session."""
    carried = session.metadata.get(FILE_KEYS)
    return unknown_keys(carried, session.id) if isinstance(carried, dict) else {}


def with_file_keys(session: Session, others: Mapping[str, Any]) -> Session:
    """Return the session for a copy, with the unknown keys of its file, if it was read from one."""
    if not others:
        return session
    unknown = unknown_keys(others, session.id)
    if len(orjson.dumps(unknown)) > _MAX_CARRIED:
        log.warning("the unknown keys in the file of session %s are too large for a copy of it", session.id)
        unknown = {}
    carried = {FILE_KEYS: unknown} if unknown else {}
    return replace(session, metadata=merge(session.metadata, carried, () if carried else (FILE_KEYS,)))


def renamed(session: Session, data: bytes, document: Mapping[str, Any]) -> Session:
    """Return the session with the name in its file, if another program rewrote the file with another name.

    In a file that still has clew's form, another name is a flipped bit.
    """
    own, name = document.get("clew"), document.get("name")
    if not isinstance(own, dict) or not isinstance(name, str) or not name or not isinstance(own.get("session"), dict):
        return session
    written = own["session"].get("metadata")
    if not isinstance(written, dict) or name == written.get("title") or data == orjson.dumps(document) + b"\n":
        return session
    # A name that a person gave is never replaced by one from a model.
    return replace(session, metadata=merge(session.metadata, {"title": name}, (NAMING_KEY,)))


def session_of(session_id: str, metadata: dict[str, Any], at: int) -> Session:
    """Return the row of a session. One of another program has the default agent and its model's name."""
    own = metadata.get("clew")
    if isinstance(own, dict) and isinstance(own.get("session"), dict):
        row = convert(own["session"], Session)
        return replace(row, id=session_id, spend=Spend(0, 0, 0.0, 0))
    created = milliseconds(metadata.get("createdAt"))
    times = (metadata.get(key) for key in ("lastMessageAt", "updatedAt", "lastActiveAt"))
    updated = milliseconds(next(filter(None, times), None))
    created = at if created is None else created
    bag: dict[str, Any] = {}
    title = metadata.get("name") or metadata.get("title")
    if isinstance(title, str):
        bag["title"] = title
    if metadata.get("source") == "cron":
        bag["source"] = "cron"
        if isinstance(metadata.get("cronJobId"), str):
            bag["cron_job_id"] = metadata["cronJobId"]
    if isinstance(metadata.get("systemPromptOverride"), str):
        bag["system_prompt"] = metadata["systemPromptOverride"]
    bag |= {key: metadata[key] for key in PLACE_KEYS if isinstance(metadata.get(key), str)}
    return Session(
        id=session_id,
        agent="assistant",
        model=model_of(metadata.get("model")),
        created_at=created,
        updated_at=created if updated is None else max(created, updated),
        metadata=bag,
    )


def model_of(name: object) -> Model:
    """Return the model of ``provider/model``; a name without a provider is stored, and the default model answers."""
    provider, slash, model = str(name or "unknown").partition("/")
    return Model(provider, model) if slash and model else Model("unknown", provider)
