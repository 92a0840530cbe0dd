"""The libraries of model providers: a server imports them once it answers, not in the first call."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.integration.processes import serving_alone
from tests.integration.wire_server import OPENAI, WireServer, ok

WATCHED = """
import sys
import clew

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "openai":
            print("imports openai", flush=True)

sys.meta_path.insert(0, Watch())
open_engine = clew.open
"""
CONFIG = """
default_model = "local/small"
[providers.local]
kind = "openai"
base_url = "{url}/v1"
api_key = "k"
"""


@pytest.mark.slow
async def test_a_server_imports_the_libraries_of_its_default_model_without_a_call(tmp_path: Path) -> None:
    """After its address is printed, so that they do not delay the start; a call then finds them, and is answered."""
    async with WireServer() as wire:
        wire.reply(*ok(), *OPENAI.text("hi"))
        (tmp_path / "config/clew").mkdir(parents=True)
        (tmp_path / "config/clew/config.toml").write_text(CONFIG.format(url=wire.url))
        (tmp_path / "watched.py").write_text(WATCHED)
        async with serving_alone(tmp_path, "--app", "watched:open_engine") as server:
            assert server.process.stdout is not None
            line = await asyncio.wait_for(server.process.stdout.readline(), 30)
            assert (line, wire.requests) == (b"imports openai\n", [])
            session_id = await server.client.session(title="t")
            chunks = await server.client.chat(session_id, "hello")
            assert "".join(one["delta"] for one in chunks if one["type"] == "text-delta") == "hi"
