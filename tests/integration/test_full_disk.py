"""A disk that is really full: a server on a small file system, its readiness, its answers, and what a kill leaves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from clew.transcript.metadata import local_place
from tests.integration.http_client import chat_body, reduced, texts
from tests.integration.processes import SSE, Server, serving
from tests.integration.wire_server import OPENAI, Pause, WireServer, ok

pytestmark = [
    pytest.mark.service,
    pytest.mark.kill,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount the small file system that is filled up"),
]
KINDS = ["sqlite", "json", "jsonl"]
SIZE = 24 << 20
WORD = "0123456789abcde "


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place)], check=False, capture_output=True
    )
    if made.returncode != 0:
        pytest.skip(f"this machine mounts nothing: {made.stderr.decode()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path, left: int = 0) -> None:
    """Take all room but so many bytes."""
    found = os.statvfs(disk)
    size = max(found.f_bavail * found.f_frsize - left, 0)
    with contextlib.suppress(OSError), (disk / "filler").open("ab") as file:  # closing it may fail, too
        while size > 0:
            size -= file.write(bytes(min(size, 1 << 16)))
            file.flush()


def make_room(disk: Path) -> None:
    (disk / "filler").unlink()


def store_on(disk: Path, kind: str) -> str:
    return f"sqlite:///{disk}/store.db" if kind == "sqlite" else f"{kind}:{disk}/store"


def configure(tmp_path: Path, wire: WireServer, more: str = "") -> None:
    (tmp_path / "config/clew").mkdir(parents=True)
    (tmp_path / "config/clew/config.toml").write_text(
        f'[providers.mock]\nkind = "openai-compatible"\nbase_url = "{wire.url}/v1"\napi_key = "k"\nmodels = ["m"]\n'
        + more
    )


def long_answer(words: int) -> list[bytes]:
    return [*(OPENAI.chunk({"content": WORD * 64}) for _ in range(words // 64)), OPENAI.chunk({}, "stop"), OPENAI.done]


async def frames(server: Server, session: str, text: str) -> AsyncIterator[Any]:
    """Yield what a viewer is sent."""
    body = chat_body(session, text, f"u-{text}", model="mock/m")
    async with server.client.open("POST", "/api/chat", body, headers=SSE) as reply:
        assert reply.status == 200, await reply.read()
        async for chunk in reply.frames():
            yield chunk


async def prompt(server: Server, session: str, text: str) -> list[Any]:
    return [chunk async for chunk in frames(server, session, text)]


async def is_ready(server: Server) -> tuple[int, str | None, str]:
    reply = await server.client.get("/api/health/ready", headers={"authorization": None})
    told = reply.json()
    return reply.status, told.get("code"), told.get("detail", "")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_cannot_store_is_not_ready_until_it_can(tmp_path: Path, disk: Path, kind: str) -> None:
    """With the reason, and ready says so before a prompt is lost over it."""
    async with WireServer() as wire:
        configure(tmp_path, wire)
        wire.always(*ok(), *long_answer(64))
        async with serving(tmp_path, "--store", store_on(disk, kind)) as server:
            session = await server.client.session(title="full", metadata=local_place(None))
            assert (await is_ready(server))[:2] == (200, None)
            fill(disk)
            status, code, why = await is_ready(server)
            assert (status, code) == (503, "storage_full")
            assert "the disk is full" in why
            body = chat_body(session, "x" * 50_000, "u-1", model="mock/m")
            refused = await server.client.post("/api/chat", body)
            assert (refused.status, refused.json()["code"]) == (507, "storage_full")
            make_room(disk)
            assert (await is_ready(server))[:2] == (200, None)
            assert (await prompt(server, session, "hello"))[-1] == "[DONE]"


@pytest.mark.rule("SV-3")
@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_that_fills_the_disk_ends_as_what_was_stored(tmp_path: Path, disk: Path, kind: str) -> None:
    """No end is shown before what it ends is durable; what was shown is there after a kill as far as there was room,
    and what is missing of it is named."""
    async with WireServer() as wire:
        configure(tmp_path, wire)
        async with serving(tmp_path, "--store", store_on(disk, kind)) as server:
            session = await server.client.session(title="full", metadata=local_place(None))
            fill(disk, left=400_000)
            wire.reply(*ok(), *long_answer(60_000))
            chunks = await prompt(server, session, "write until it is full")
            shown = [chunk for chunk in chunks if chunk != "[DONE]"]
            kinds = {chunk["type"] for chunk in shown}
            assert "error" in kinds
            ends = [chunk for chunk in shown if chunk["type"] in ("finish-step", "finish")]
            words = "".join(chunk["delta"] for chunk in shown if chunk["type"] == "text-delta")
            # How much is shown before the disk is full depends on how many chunks share a commit.
            assert len(words) > 10_000
            server.process.kill()
            await server.process.communicate()
        make_room(disk)
        async with serving(tmp_path, "--store", store_on(disk, kind)) as server:
            stored = (await server.client.get(f"/api/sessions/{session}/messages")).json()["messages"]
            assert [one["role"] for one in stored] == ["user", "assistant"]
            kept = texts(stored[-1])
            assert words.startswith(kept)
            turn = (await server.client.get(f"/api/turns/{stored[-1]['metadata']['turn_id']}")).json()
            if kind == "json":
                # A step is stored as it ends: it was cut to what there was room for, and its turn says so.
                assert len(kept) > 50_000
                assert turn["status"] == "failed"
                error, lost = turn["data"]["error"], len(words) - len(kept)
                assert (error["code"], error.get("lost_chars", 0)) == ("storage_full", lost)
                assert lost == 0 or f"the last {lost} of {len(words)} characters shown are lost" in error["message"]
                assert [one["type"] for one in ends] == ["finish"]
                assert shown[-1] == {"type": "finish", "finishReason": "error"}
            else:
                assert kept == words
                assert ends == []
            wire.reply(*ok(), *long_answer(64))
            other = await server.client.session(title="next", metadata=local_place(None))
            again = reduced((await prompt(server, other, "and now?"))[:-1])
            assert texts(again) == WORD * 64


@pytest.mark.rule("SV-3")
@pytest.mark.parametrize(("kind", "save_on"), [("sqlite", "step"), ("jsonl", "turn")])
async def test_what_is_shown_before_it_is_stored_is_cut_to_the_room_there_is_and_the_loss_named(
    tmp_path: Path, disk: Path, kind: str, save_on: str
) -> None:
    """A store that could keep every chunk, and was told to keep steps or turns: the whole answer was shown."""
    async with WireServer() as wire:
        configure(tmp_path, wire, f'[save]\nsave_on = "{save_on}"\nsave_buffer_size = 0\nsave_buffer_ms = 0\n')
        async with serving(tmp_path, "--store", store_on(disk, kind)) as server:
            session = await server.client.session(title="full", metadata=local_place(None))
            fill(disk, left=200_000 if kind == "sqlite" else 40_000)
            wire.reply(*ok(), *long_answer(30_000))
            shown = (await prompt(server, session, "write until it is full"))[:-1]
            words = "".join(chunk["delta"] for chunk in shown if chunk["type"] == "text-delta")
            assert words == WORD * 29_952
            # A step is not promised where turns are stored.
            ends = [chunk["type"] for chunk in shown if chunk["type"] in ("finish-step", "finish")]
            assert ends == (["finish"] if save_on == "step" else ["finish-step", "finish"])
            assert shown[-1] == {"type": "finish", "finishReason": "error"}
            server.process.kill()
            await server.process.communicate()
        make_room(disk)
        async with serving(tmp_path, "--store", store_on(disk, kind)) as server:
            stored = (await server.client.get(f"/api/sessions/{session}/messages")).json()["messages"]
            kept = texts(stored[-1])
            assert words.startswith(kept)
            assert len(kept) > 25_000
            problem = (await server.client.status(session))["problem"]
            lost = len(words) - len(kept)
            assert (problem["code"], problem["lost_chars"]) == ("storage_full", lost)
            assert f"the last {lost} of {len(words)} characters shown are lost" in problem["message"]


@pytest.mark.rule("SV-3")
async def test_a_loss_that_cannot_be_stored_any_more_is_named_where_it_is_shown(tmp_path: Path, disk: Path) -> None:
    """The disk is full to the last page: not even the end of the turn fits, and what they stored stays."""
    async with WireServer() as wire:
        configure(tmp_path, wire, '[save]\nsave_on = "step"\n')
        async with serving(tmp_path, "--store", store_on(disk, "sqlite")) as server:
            session = await server.client.session(title="full", metadata=local_place(None))
            # Filled at a known point: a larger commit that does not fit may leave room for the end of the turn.
            gate = asyncio.Event()
            wire.reply(*ok(), *long_answer(10_048)[:-2], Pause(gate), *long_answer(20_032))
            shown, words = [], ""
            async for chunk in frames(server, session, "write until it is full"):
                if chunk == "[DONE]":
                    break
                shown.append(chunk)
                words += chunk["delta"] if chunk["type"] == "text-delta" else ""
                if len(words) == len(WORD) * 10_048 and not gate.is_set():
                    fill(disk)
                    gate.set()
            assert [one["type"] for one in shown if one["type"] in ("finish-step", "finish")] == []
            [error] = [one["errorText"] for one in shown if one["type"] == "error"]
            problem = (await server.client.status(session))["problem"]
            kept = texts((await server.client.messages(session))[-1])
            assert words.startswith(kept)
            lost = len(words) - len(kept)
            assert lost > 0
            assert (problem["lost_chars"], problem["message"]) == (lost, error)
            assert f"the last {lost} of {len(words)} characters shown are lost" in error
