"""Stores to be damaged: filled with typical sessions, by a process that ends normally or is killed.

Everything follows from the fixed clock, so two specimens of a kind have the same content, which is read from an
undamaged copy.
"""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from clew.session.api import Engine
from clew.transcript.metadata import local_place
from tests.rig.history_child import open_at

__all__ = ["KINDS", "LATER", "Kind", "Specimen", "make_specimen"]

Kind = Literal["sqlite", "sqlite-killed", "jsonl", "jsonl-killed", "json"]
KINDS: Final[tuple[Kind, ...]] = ("sqlite", "sqlite-killed", "jsonl", "jsonl-killed", "json")

_START_MS: Final = 1_790_000_000_000
LATER: Final = _START_MS + 7_200_000
_NOTE: Final = base64.b64encode(b"the thread is red, the wall is grey, the way is long\n" * 40).decode()
_DOT: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Specimen(msgspec.Struct, frozen=True):
    """A store that no process has open. ``folder`` contains all of its files."""

    kind: Kind
    folder: Path

    @property
    def url(self) -> str:
        return url_of(self.kind, self.folder)

    def copied(self, target: Path) -> Specimen:
        shutil.copytree(self.folder, target)
        return Specimen(self.kind, target)

    def files(self) -> list[Path]:
        """Return the files to damage: all non-empty ones except the owner file and shared memory."""
        found = (path for path in sorted(self.folder.rglob("*")) if path.is_file() and path.stat().st_size)
        return [path for path in found if not path.name.endswith((".owner", "-shm"))]


def url_of(kind: Kind, folder: Path) -> str:
    name = kind.removesuffix("-killed")
    return f"sqlite:///{folder}/store.db" if name == "sqlite" else f"{name}:{folder}/store"


def make_specimen(kind: Kind, folder: Path) -> Specimen:
    """Fill a store in its own process, which may be killed in the middle of a turn."""
    folder.mkdir(parents=True)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            asyncio.run(_fill(url_of(kind, folder), killed=kind.endswith("-killed")))
            code = 0
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status != (-signal.SIGKILL if kind.endswith("-killed") else 0):
        raise AssertionError(f"the specimen {kind} was not created: {status}")
    return Specimen(kind, folder)


async def _fill(url: str, *, killed: bool) -> None:
    async with open_at(url, _START_MS) as engine:
        walk = (await engine.create_session(title="a walk", metadata=local_place(None))).id
        for number in range(6):
            await _ask(engine, walk, f"What of gate {number}?")
            if number == 2:
                await engine.compact(walk)
        await engine.branch(walk, (await engine.messages(walk))[-2].id, metadata={"title": "another way"})
        notes = (await engine.create_session(title="notes", metadata=local_place(None))).id
        text = f"data:text/plain;base64,{_NOTE}"
        for parts in (
            [{"type": "text", "text": "Read this."}, {"type": "file", "mediaType": "text/plain", "url": text}],
            [{"type": "text", "text": "And née 😀 this?"}, _png()],
            [{"type": "text", "text": "So what is it that we know of the labyrinth by now, in a few words?"}],
        ):
            await _ask(engine, notes, parts)
        users = [message.id for message in await engine.messages(notes) if message.role == "user"]
        await engine.rewind(notes, users[-1], mode="edit")
        await _ask(engine, notes, "Then tell me of the thread.")
        # Deleting leaves free pages.
        gone = (await engine.create_session(title="gone", metadata=local_place(None))).id
        await _ask(engine, gone, "A long word: " + "thread " * 4_000)
        await engine.delete_session(gone)
        if killed:
            await _die_in_the_middle(engine, notes)


def _png() -> dict[str, Any]:
    return {"type": "file", "mediaType": "image/png", "url": f"data:image/png;base64,{_DOT}"}


async def _die_in_the_middle(engine: Engine, session_id: str) -> None:
    seen = 0
    async for chunk in engine.run(session_id, "And once more?"):
        seen += chunk["type"] == "text-delta"
        if seen == 3:
            os.kill(os.getpid(), signal.SIGKILL)


async def _ask(engine: Engine, session_id: str, prompt: Any) -> None:
    async for _ in engine.run(session_id, prompt):
        pass


def files_of(specimen: Specimen) -> Iterator[str]:
    """Yield the names of the files, to distinguish kinds of damage."""
    for path in specimen.files():
        yield str(path.relative_to(specimen.folder))
