"""opencode's sessions on disk, read from a database or a folder of small files as one document each."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson

from clew.errors import InvalidInput
from clew.interop.programs.foreign import read_json
from clew.interop.programs.opencode import SPOKEN, older_messages

__all__ = ["find_opencode", "read_opencode_session"]


def find_opencode(location: Path, *, is_default: bool) -> list[tuple[Path, str | None]]:
    """Return the sessions of a database, a folder or an export, without duplicates."""
    if location.is_file() and location.suffix != ".db":
        return [(location, None)]
    named = Path(os.environ.get("OPENCODE_DB") or "opencode.db") if is_default else Path("opencode.db")
    files = [location] if location.is_file() else sorted({*location.glob("opencode*.db"), location / named})
    found = {id_: file for file in files if file.is_file() for id_ in _ids_in(file)}
    if location.is_dir():
        folders = ("storage/session/*/*.json", "session/*/*.json", "project/*/storage/session/info/*.json")
        for file in (file for pattern in folders for file in sorted(location.glob(pattern))):
            if file.parent.name not in ("message", "part"):
                found.setdefault(file.stem, file)
    return [(file, id_) for id_, file in found.items()]


def read_opencode_session(path: Path, id_: str | None) -> bytes:
    """Return a session as a document of ``info`` and ``messages``."""
    if path.suffix == ".db":
        return orjson.dumps(_from_database(path, id_ or ""))
    if id_ is None:
        return path.read_bytes()
    # The oldest versions have one folder with messages and parts of a session; later ones a folder for each of both.
    oldest = path.parent.name == "info"
    root = path.parents[1] if oldest else path.parents[2]
    messages, parts = root / "message" / id_, root / "part" / id_ if oldest else root / "part"
    documents = [
        {"info": _read(file), "parts": [_read(part) for part in sorted((parts / file.stem).glob("*.json"))]}
        for file in sorted(messages.glob("*.json"))
    ]
    return orjson.dumps({"info": _read(path), "messages": sorted(documents, key=_created_at)})


def _read(file: Path) -> Any:
    """Return the value in a file; an invalid file is a text that the reader preserves."""
    data = file.read_bytes()
    value = read_json(data)
    if value is not None:
        try:
            orjson.dumps(value)
            return value
        except TypeError:
            pass
    return {"id": file.stem, "type": "unread", "unread": data.decode(errors="replace")}


def _created_at(message: dict[str, Any]) -> tuple[float, str]:
    info = message["info"] if isinstance(message["info"], dict) else {}
    times = info.get("time")
    created = times.get("created") if isinstance(times, dict) else None
    return (float(created) if isinstance(created, int | float) else 0.0, str(info.get("id")))


def _ids_in(file: Path) -> Iterator[str]:
    tables = [table for table in ("session", "session_v2") if _has(file, table)]
    if not tables:
        raise InvalidInput(f"{file} is not an opencode database: it has no sessions")
    for (id_,) in _rows(file, " UNION ".join(f"SELECT id FROM {table}" for table in tables) + " ORDER BY 1"):
        if isinstance(id_, str):
            yield id_


def _has(file: Path, table: str) -> bool:
    return any(_rows(file, "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", table))


def _from_database(file: Path, id_: str) -> dict[str, Any]:
    """Return a session of a database. Version 2 copied the sessions of version 1, and only changes its copy."""
    newer = _has(file, "session_v2") and any(_rows(file, "SELECT 1 FROM session_v2 WHERE id = ?", id_))
    table = "session_v2" if newer else "session"
    info = next(_rows(file, f"SELECT * FROM {table} WHERE id = ?", id_, named=True), None)
    if info is None:
        raise InvalidInput(f"there is no session {id_} in {file}")
    older = [] if newer or not _has(file, "message") else _older(file, id_)
    return _document(info, older or _newer(file, id_) or (_older(file, id_) if _has(file, "message") else []))


def _newer(file: Path, id_: str) -> list[dict[str, Any]]:
    if not _has(file, "session_message"):
        return []
    # The first version with this table had no `seq`.
    rows = list(_rows(file, "SELECT * FROM session_message WHERE session_id = ?", id_, named=True))
    rows.sort(key=lambda row: (row.get("seq") or 0, row["time_created"], row["id"]))
    if not any(row["type"] in SPOKEN for row in rows):
        return []
    return [made for row in rows for made in older_messages(row["id"], str(row["type"]), _object(row["data"]))]


def _older(file: Path, id_: str) -> list[dict[str, Any]]:
    messages: dict[str, dict[str, Any]] = {
        row[0]: {"info": {"id": row[0], "sessionID": id_, **_object(row[1])}, "parts": []}
        for row in _rows(file, "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id", id_)
    }
    for row in _rows(file, "SELECT message_id, id, data FROM part WHERE session_id = ? ORDER BY message_id, id", id_):
        if row[0] in messages:
            messages[row[0]]["parts"].append({"id": row[1], "messageID": row[0], **_object(row[2])})
    return list(messages.values())


def _document(info: dict[str, Any], messages: list[dict[str, Any]]) -> dict[str, Any]:
    times = {name: info.pop(f"time_{name}", None) for name in ("created", "updated", "archived", "compacting")}
    renamed: dict[str, Any] = {"parentID": info.pop("parent_id", None), "projectID": info.pop("project_id", None)}
    revert = info.pop("revert", None)
    renamed |= {"time": times, "revert": _object(revert) if isinstance(revert, str) else None}
    return {"info": {**info, **renamed}, "messages": messages}


def _object(data: object) -> dict[str, Any]:
    value = read_json(data.encode(errors="replace")) if isinstance(data, str) else None
    return value if isinstance(value, dict) else {"type": "unread", "unread": str(data)}


def _rows(file: Path, statement: str, *values: str, named: bool = False) -> Iterator[Any]:
    """Yield the rows of a statement. The file is opened read-only, since its program may be running."""
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=5)) as base:
            found = base.execute(statement, values)
            names = [column[0] for column in found.description]
            for row in found.fetchall():
                yield dict(zip(names, row, strict=True)) if named else row
    except sqlite3.Error as error:
        raise InvalidInput(f"{file} is not an opencode database: {error}") from error
