"""Tools that do little, for runs told as transcripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any


async def allow(s: Any, *tools: str) -> None:
    """Let the session run these tools without asking."""
    from clew.store.unit import PatchSession, Unit

    rules = tuple({"permission": tool, "pattern": "*", "action": "allow"} for tool in tools)
    await s.engine.store.commit(Unit(s.id, (PatchSession(permissions=rules),)))


async def ask_once(s: Any) -> str:
    status = await s.engine.get_status(s.id)
    assert status.state == "idle"
    return str(status.waiting[0].approval_id)


def brief_agent(config_home: Path, max_steps: int = 10) -> str:
    """An agent of the user's own with a step limit; ``config_home`` is what ``XDG_CONFIG_HOME`` says."""
    path = config_home / "clew" / "agents" / "brief.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\ndescription: Few steps.\nmax_steps: {max_steps}\n---\nBe brief.\n")
    return "brief"
