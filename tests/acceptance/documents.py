"""Sessions as documents: taken out, taken in, and compared."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

import clew
from clew.interop.session_file import format_json, format_jsonl
from clew.session.api import Engine
from clew.session.history.transfer import export_session, import_session
from clew.session.host import Host
from clew.testing.scripted import FakeProviders
from clew.transcript.portable import PortableSession
from clew.transcript.session import Session
from tests.acceptance.conversations import echo

NOW = 1_800_000_000_000
FORMS = (format_json, format_jsonl)


@asynccontextmanager
async def elsewhere(kind: str, folder: Path) -> AsyncIterator[Engine]:
    """Another engine on an empty store of its own."""
    url = "memory:" if kind == "memory" else f"sqlite:///{folder}/elsewhere.db"
    async with clew.open(url, config=clew.Config(), providers=FakeProviders(echo())) as engine:
        yield engine


async def taken_in(host: Host, document: PortableSession) -> Session:
    """Imported by somebody who trusts it with the folder it comes from."""
    root = document.session.workspace_root
    return await import_session(host, document, None if root is None else Path(root))


async def exported(engine: Engine, session_id: str) -> PortableSession:
    return await export_session(engine.store, session_id, NOW)


def as_it_left(document: PortableSession) -> PortableSession:
    """The document without the note of where it came from."""
    metadata = {key: value for key, value in document.session.metadata.items() if key != "imported_from"}
    return msgspec.structs.replace(document, session=msgspec.structs.replace(document.session, metadata=metadata))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    inner = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if type(value) is list else []
    return [path, *(place for key, item in inner for place in places(item, (*path, key)))]
