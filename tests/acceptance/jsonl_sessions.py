"""Sessions as JSONL files, opened, asked and edited."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.store.files import folder
from clew.testing.scripted import FakeProviders, ScriptedModel

ULID = "01JKTZ4R0M8X9V6N2B7C5D3F1G"


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_sync", lambda fd: None)


def url(tmp_path: Path) -> str:
    return f"jsonl:{tmp_path / 'store'}"


def place(tmp_path: Path, session_id: str) -> Path:
    return tmp_path / "store" / "sessions" / session_id


@asynccontextmanager
async def engine(tmp_path: Path, *script: Any, **options: Any) -> Any:
    async with clew.open(
        url(tmp_path), config=clew.Config(), providers=FakeProviders(ScriptedModel(script)), **options
    ) as opened:
        yield opened


async def ask(engine: clew.Engine, session_id: str, prompt: str, **options: Any) -> None:
    async for _ in engine.run(session_id, prompt, **options):
        pass


def reads(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
