"""A run killed in every phase: what was shown is there, nothing is stuck, and the next prompt works."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.session.history.check import check
from clew.testing.scenario import transcript
from clew.transcript.chunk import parse_chunk
from clew.transcript.fold import Fold
from clew.transcript.fold_part import continues
from clew.transcript.usage import Usage

PHASES = [
    "run.before_model_call=kill",
    "run.before_model_call=kill@2",
    "run.model_asked=kill",
    "run.before_tools=kill",
    "run.before_tools=kill@2",
    "run.tool_done=kill",
    "run.tool_done=kill@2",
    "run.before_step_end=kill",
    "run.before_step_end=kill@2",
    "run.before_settle=kill",
    "recorder.before_submit=kill@3",
    "recorder.before_show=kill@4",
    "writer.before_commit=kill@4",
    "writer.after_commit_before_ack=kill@2",
    "writer.after_commit_before_ack=kill@5",
]


IN_TOOLS = ["run.before_tools=kill", "run.tool_done=kill", "run.tool_done=kill@2", "run.before_step_end=kill"]
"""In the first step, whose model call has ended."""


def run(tmp_path: Path, failpoints: str) -> tuple[int, list[dict[str, Any]]]:
    """Run a prompt with two tool calls in a process that dies where it is told to."""
    (tmp_path / "workspace").mkdir(exist_ok=True)
    (tmp_path / "workspace" / "a.txt").write_text("alpha")
    env = {
        **os.environ,
        "CLEW_FAILPOINTS": failpoints,
        "XDG_CONFIG_HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path),
    }
    command = [sys.executable, "-m", "tests.rig.run_child", f"sqlite:///{tmp_path}/store.db"]
    command += [str(tmp_path / "workspace"), "demo/tools", "!read a.txt\n!ls ."]
    done = subprocess.run(command, env=env, capture_output=True, timeout=60, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.kill
@pytest.mark.rule("SR-4", "US-1", "US-5")
@pytest.mark.parametrize("phase", PHASES)
async def test_a_run_killed_in_any_phase_leaves_a_session_that_goes_on(tmp_path: Path, phase: str) -> None:
    """Every call has a result before the next model call; what was shown is stored; the judge finds nothing.

    What ended is booked as the model said it; of the last call, which may not have, an estimate.
    """
    code, said = run(tmp_path, phase)
    assert code == -signal.SIGKILL
    shown = said[1:]
    async with clew.open(f"sqlite:///{tmp_path}/store.db", config=clew.Config()) as engine:
        (session,) = (await engine.list_sessions()).sessions
        assert (await engine.get_status(session.id)).state == "idle"
        assert await check(engine.store) == []
        calls = await engine.store.load_calls(session.id)
        assert session.usage == sum((one.usage for one in calls), Usage())
        assert all(one.usage.total and one.estimated is (one.ended == "interrupted") for one in calls)
        assert [one.ended for one in calls] == ["completed"] or phase not in IN_TOOLS
        messages = await engine.messages(session.id)
        assert transcript(messages)[0] == "user: !read a.txt\n!ls ."
        if shown:
            fold = Fold(shown[0]["messageId"])
            for chunk in shown:
                fold.apply(parse_chunk(chunk))
            stored = next((m for m in messages if m.id == fold.message_id), None)
            assert stored is not None
            assert continues([_open(part) for part in stored.parts], fold.parts)
        last = [chunk async for chunk in engine.run(session.id, "and now?", model="demo/echo")]
        assert last[-1] == {"type": "finish", "finishReason": "stop"}
        for message in await engine.messages(session.id, view="model"):
            for part in message.parts:
                assert "toolCallId" not in part or part["state"].startswith("output-")
        assert await check(engine.store) == []


def _open(part: dict[str, Any]) -> dict[str, Any]:
    """A call that the restart ended, as it was before it."""
    if str(part.get("errorText", "")).startswith("aborted by host restart"):
        return {**{k: v for k, v in part.items() if k != "errorText"}, "state": "input-available"}
    return part


@pytest.mark.kill
@pytest.mark.rule("SV-1", "US-5")
@pytest.mark.parametrize(("phase", "kept"), [("writer.before_commit", False), ("writer.after_commit_before_ack", True)])
async def test_a_kill_leaves_a_prompt_with_the_start_of_its_answer_or_neither(
    tmp_path: Path, phase: str, kept: bool
) -> None:
    """One unit: what could have cost something is known as soon as what asked for it is."""
    code, said = run(tmp_path, f"{phase}=kill@2")
    assert (code, said[1:]) == (-signal.SIGKILL, [])
    async with clew.open(f"sqlite:///{tmp_path}/store.db", config=clew.Config()) as engine:
        (session,) = (await engine.list_sessions()).sessions
        roles = [message.role for message in await engine.messages(session.id)]
        calls = [(one.purpose, one.ended) for one in await engine.store.load_calls(session.id)]
        assert await check(engine.store) == []
    assert roles == (["user", "assistant"] if kept else [])
    assert calls == ([("answer", "interrupted")] if kept else [])


@pytest.mark.kill
async def test_the_same_run_unharmed_completes(tmp_path: Path) -> None:
    """The control: without a failpoint the program ends well and shows both results."""
    code, said = run(tmp_path, "")
    assert code == 0
    assert [chunk["type"] for chunk in said[1:]].count("tool-output-available") == 2
