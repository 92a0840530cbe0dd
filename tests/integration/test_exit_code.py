"""How a command ended: a field for programs, words for the model, and red for people where it failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clew.fronts.cli.render import Theme, call_line
from clew.providers.registry import ProviderConfig, ProviderRegistry
from tests.integration.http_client import served
from tests.integration.wire_server import ANTHROPIC, WireServer, ok
from tests.integration.wire_talk import wire

__all__ = ["wire"]

ALLOW = {"permission": "bash", "pattern": "*", "action": "allow"}


def called(output: Any) -> dict[str, Any]:
    given = {"command": "make"}
    return {"type": "tool-bash", "toolCallId": "c", "state": "output-available", "input": given, "output": output}


@pytest.mark.slow
async def test_a_command_that_fails_is_a_result_with_its_exit_code_and_the_model_reads_it(
    tmp_path: Path, wire: WireServer
) -> None:
    """The stored part has the field, the wire has the text, and so has an export for people."""
    command = '{"command": "echo no; exit 7"}'
    asked = [ANTHROPIC.start(), *ANTHROPIC.tool_block(0, "toolu_1", "bash", command), *ANTHROPIC.stop("tool_use")]
    wire.reply(*ok(), *asked)
    wire.always(*ok(), *ANTHROPIC.text("It failed."))
    config = ProviderConfig(kind="anthropic", base_url=wire.url, api_key="k")
    providers = ProviderRegistry({"wire": config}, default_model="wire/some", environ={})
    async with served(providers=providers) as client:
        session = await client.session(workspace_root=str(tmp_path))
        await client.request("PUT", f"/api/sessions/{session}/permissions", {"rules": [ALLOW]})
        await client.chat(session, "build it")
        parts = (await client.messages(session))[-1]["parts"]
        [call] = [part for part in parts if part["type"] == "tool-bash"]
        assert (call["state"], call["output"]) == (
            "output-available",
            {"text": "no\n[exit code 7]", "exit_code": 7},
        )
        [result] = wire.requests[1].json["messages"][-1]["content"]
        assert (result["content"], result["is_error"]) == ([{"type": "text", "text": "no\n[exit code 7]"}], False)
        page = (await client.get(f"/api/sessions/{session}/export?format=md")).body.decode()
        assert ("no\n[exit code 7]" in page, "exit_code" in page) == (True, False)


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ({"text": "[exit code 0]", "exit_code": 0}, "\x1b[32m✓\x1b[0m bash make\x1b[2m  [exit code 0]\x1b[0m"),
        ({"text": "[exit code 2]", "exit_code": 2}, "\x1b[31m✗\x1b[0m bash make\x1b[31m  exit code 2\x1b[0m"),
        (
            {"text": "no rule\nstop\n[exit code 2]", "exit_code": 2},
            "\x1b[31m✗\x1b[0m bash make\x1b[31m  exit code 2\x1b[0m\x1b[2m  no rule (+1 line)\x1b[0m",
        ),
        (
            {"text": "[timed out after 5 s; ended by SIGTERM]", "exit_code": -15},
            "\x1b[31m✗\x1b[0m bash make\x1b[31m  timed out after 5 s; ende…\x1b[0m",
        ),
        ({"text": "", "exit_code": 1}, "\x1b[31m✗\x1b[0m bash make\x1b[31m  exit code 1\x1b[0m"),
        # As it was stored before.
        ("no\n[exit code 2]", "\x1b[32m✓\x1b[0m bash make\x1b[2m  no (+1 line)\x1b[0m"),
    ],
)
def test_the_terminal_shows_a_command_that_failed_in_red(output: Any, shown: str) -> None:
    """With how it ended before what it said; what was stored without the field is shown as ever."""
    assert call_line(called(output), Theme(colour=True), 80) == shown
