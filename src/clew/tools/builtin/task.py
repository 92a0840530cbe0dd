"""``task``: a piece of work for a subagent, which has a session of its own."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from clew.tools.base import ToolContext, ToolOutput
from clew.tools.decorator import tool
from clew.tools.output import fit_text
from clew.transcript.rule import Target

__all__ = ["task"]

# A subagent's run has limits of its own; this one is for a run that ignores them.
TIMEOUT_MS: Final = 3_600_000


@tool(
    targets=lambda args, workspace: [Target("task", "plain", args.get("agent") or "")],
    capabilities=["agent.spawn"],
    timeout_ms=TIMEOUT_MS,
)
async def task(
    prompt: Annotated[str, Meta(description="All the subagent needs to know; it sees nothing else.", min_length=1)],
    context: ToolContext,
    agent: Annotated[str | None, Meta(description="Which agent; the usual one if left out.")] = None,
) -> ToolOutput:
    """Give a piece of work to a subagent and wait for what it says at the end.

    Good for a search through many files or a question of its own: what it reads does not fill this conversation.
    """
    outcome = await context.spawn_child(prompt, agent)
    text = await fit_text(outcome.text, context, "task")
    return ToolOutput({"session_id": outcome.session_id, "status": outcome.status, "text": text}, outcome.about)
