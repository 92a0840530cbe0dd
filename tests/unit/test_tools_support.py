"""What the tests of the tools share: a context as a run would fill it in, and a run's answers about permissions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from clew.errors import PermissionDenied
from clew.tools.base import ChildOutcome, Signal, Tool, ToolContext
from clew.transcript.rule import Target


class Permits:
    """Answers as a run does whose rules allow everything, but for the values named; keeps what it was asked."""

    def __init__(self, *denied: str) -> None:
        self.denied = denied
        self.asked: list[Target] = []

    async def __call__(self, target: Target) -> None:
        self.asked.append(target)
        if target.value in self.denied:
            raise PermissionDenied(f"{target.value} is denied")


async def no_skill(name: str) -> str:
    raise AssertionError(f"nobody asked for {name}")


async def no_child(prompt: str, agent: str | None) -> ChildOutcome:
    raise AssertionError(f"nobody asked for {agent}")


def context_of(
    folder: Path,
    *,
    workspace: Path | None = None,
    judged: tuple[Target, ...] | None = None,
    permit: Callable[[Target], Awaitable[None]] | None = None,
    signal: Signal | None = None,
    spawn_child: Callable[[str, str | None], Awaitable[ChildOutcome]] = no_child,
    load_skill: Callable[[str], Awaitable[str]] = no_skill,
    state: dict[str, Any] | None = None,
) -> ToolContext:
    """A context whose spill folder lies in ``folder``."""
    return ToolContext(
        session_id="ses_0",
        call_id="call_0",
        signal=signal or Signal(),
        workspace=workspace,
        judged=judged,
        spill=folder / "spill",
        permit=permit or Permits(),
        spawn_child=spawn_child,
        load_skill=load_skill,
        recall=no_skill,
        state={} if state is None else state,
    )


async def call(tool: Tool, args: Mapping[str, Any], workspace: Path, **options: Any) -> Any:
    """Judge the call's targets and execute it, as a run does; the value of its output."""
    judged = tuple(tool.targets(args, workspace))
    context = context_of(workspace.parent, workspace=workspace, judged=judged, **options)
    return (await tool.execute(args, context)).value


async def test_the_answers_of_a_run_are_kept_in_order(tmp_path: Path) -> None:
    """Allowed unless named; everything asked is written down."""
    permits = Permits("/secret")
    await permits(Target("read", "path", "/open"))
    with pytest.raises(PermissionDenied):
        await permits(Target("read", "path", "/secret"))
    assert permits.asked == [Target("read", "path", "/open"), Target("read", "path", "/secret")]
