"""Requests nobody should send, by chance and many at once: each with an id is answered, and nothing is left over."""

from __future__ import annotations

import asyncio
import json
import random
import re
from typing import Any

import pytest

from clew.testing.scripted import ScriptedModel, say
from tests.integration.acp_client import connected
from tests.integration.test_acp import opened
from tests.rounds import rounds

METHODS = [
    *("initialize", "authenticate", "session/new", "session/load", "session/resume", "session/fork", "session/list"),
    *("session/prompt", "session/close", "session/set_mode", "session/set_config_option", "session/set_title"),
    *("session/archive", "session/unarchive", "session/cancel", "$/cancel_request", "x", ""),
]
KINDS = ("text", "image", "audio", "resource", "resource_link", "zzz")


def value_of(chance: random.Random, depth: int, known: dict[str, Any]) -> Any:
    """Something, mostly of the wrong type."""
    text = chance.choice(["", "a", "\0", "/", "..", "\u202e", "x" * 3000, known["sessionId"], known["cwd"]])
    number = chance.choice([None, True, False, 0, -1, 2**63, 2**70, 0.5])
    block = {
        "type": chance.choice(KINDS),
        "text": text,
        "uri": number,
        "name": "n",
        "data": "QQ==",
        "mimeType": "image/png",
    }
    found = [text, number, [block], {**block, "resource": block}]
    if depth:
        found += [[value_of(chance, depth - 1, known)], {chance.choice([*known]): value_of(chance, depth - 1, known)}]
    return chance.choice(found)


@pytest.mark.slow
@pytest.mark.rule("AC-3")
@pytest.mark.parametrize("seed", range(2))
async def test_whatever_is_asked_is_answered_and_nothing_is_left_over(tmp_path: Any, seed: int) -> None:
    """No request is without an answer, none fails in an unforeseen way, no task outlives the connection."""
    chance = random.Random(seed)
    async with opened(ScriptedModel([], otherwise=say("ok"))) as engine:
        async with connected(engine) as client:
            await client.initialize()
            folder = {"cwd": str(tmp_path), "mcpServers": []}
            known: dict[str, Any] = {"sessionId": await client.new(tmp_path), **folder}
            known |= {"prompt": [{"type": "text", "text": "hi"}], "modeId": "ask", "title": "t"}
            known |= {"configId": "mode", "value": "ask", "requestId": 7, "protocolVersion": 1, "_meta": {}}
            asked = []
            for _ in range(rounds(300)):
                params: Any = {**known, **{key: value_of(chance, 2, known) for key in chance.sample([*known], 2)}}
                params = params if chance.random() < 0.7 else value_of(chance, 3, known)
                method = chance.choice(METHODS)
                if chance.random() < 0.1:
                    client.tell(method, params)
                elif chance.random() < 0.1:
                    line = bytearray(
                        json.dumps({"jsonrpc": "2.0", "id": None, "method": method, "params": params}).encode()
                    )
                    line[chance.randrange(len(line))] = chance.randrange(32, 256)
                    client.to_agent.put_nowait(bytes(line) + b"\n")
                else:
                    asked.append(client.begin(method, params))
                if chance.random() < 0.05:
                    await client.ask("session/list")
            async with asyncio.timeout(60):
                answers = await asyncio.gather(*asked, return_exceptions=True)
            assert [one for one in answers if getattr(one, "code", 0) == -32603 and "stderr" in str(one)] == []
        # What the engine does by itself may still go on.
        left = [str(task.get_coro()) for task in asyncio.all_tasks()]
        assert [one for one in left if re.search(r"\b(OpenSession|_Agent|Connection|Asking|serve)\b", one)] == []
