"""Who answers a turn, with what, and under which rules: resolved once per turn, from values and files."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import msgspec

from clew.agents.catalog import AgentCatalog
from clew.agents.manifest import Agent
from clew.prompt.assemble import Prompt, assemble
from clew.prompt.environment import collect_environment
from clew.prompt.inputs import Delegate, PromptInputs
from clew.prompt.instructions import load_instructions
from clew.prompt.skills import SkillCatalog
from clew.providers.base import ModelInfo, ToolSchema
from clew.runtime.host import Host, Setting
from clew.runtime.permit import Permit
from clew.runtime.request import encode_tools, tools_digest
from clew.store.unit import PutPrompt
from clew.tools.base import Tool
from clew.transcript.message import MessageRow
from clew.transcript.session import Model, Session, parse_model

__all__ = ["keeping_prompt", "resolve", "resolve_for"]

log = logging.getLogger("clew.agents")


async def resolve(
    host: Host,
    session: Session,
    *,
    model: str | Model | dict[str, Any] | None,
    agent: str | None,
    attended: bool,
    parent: Permit | None = None,
    depth: int = 0,
) -> Setting:
    """The prompt's word first, then the session's, whose variant lasted for one turn only.

    A subagent's session is never freer than its parent, whoever goes on with it: the parent's rules come along.
    """
    if session.kind == "subagent" and parent is None and session.parent_id is not None:
        above = await host.store.find_session(session.parent_id)
        if above is not None:
            parent = (await resolve(host, above, model=None, agent=None, attended=False)).permit
        attended, depth = False, max(depth, 1)
    workspace = Path(session.workspace_root) if session.workspace_root else None
    catalog = await asyncio.to_thread(host.agents, workspace)
    for notice in catalog.notices:
        log.info("%s", notice)
    manifest = catalog.get(agent or session.agent)
    chosen = parse_model(model) if model is not None else msgspec.structs.replace(session.model, variant=None)
    host.providers.get(chosen.provider_id)
    info = host.providers.info(chosen)
    tools = _tools_of(host, manifest, info, workspace)
    if "recall" in tools and not await _is_compacted(host, session.id):
        del tools["recall"]
    skills = SkillCatalog()
    if "skill" in tools:
        skills = await asyncio.to_thread(SkillCatalog.load, host.config_folder, workspace)
    return Setting(
        session=session,
        agent=manifest,
        model=chosen,
        info=info,
        workspace=workspace,
        tools=tools,
        skills=skills,
        prompt=await asyncio.to_thread(
            _assemble, host, session, manifest, catalog, chosen, workspace, tools, skills, depth
        ),
        permit=Permit(
            host.store,
            session.id,
            (*host.base_rules, *manifest.rules),
            workspace,
            host.places,
            attended=attended,
            parent=parent,
        ),
        attended=attended,
        depth=depth,
    )


async def resolve_for(host: Host, session: Session, user: MessageRow | None) -> Setting:
    """Who answers a message that is stored: the model and agent it named when it was sent."""
    if user is None:
        return await resolve(host, session, model=None, agent=None, attended=True)
    return await resolve(host, session, model=user.asked_model, agent=user.asked_agent, attended=user.is_attended)


def keeping_prompt(setting: Setting, now: int) -> tuple[PutPrompt, PutPrompt]:
    """The writes that keep this turn's prompt and tools, once per digest.

    They go with the step that names them, in one unit: a prompt that nobody names is nobody's, and goes.
    """
    tools = encode_tools(setting.schemas)
    return (
        PutPrompt(setting.prompt.digest, setting.prompt.text, now),
        PutPrompt(tools_digest(tools), tools, now),
    )


async def _is_compacted(host: Host, session_id: str) -> bool:
    """Something on the line was summarised: there is something to recall."""
    line = await host.store.load_line(session_id, turns=1, keep_damaged=True)
    return bool(line.turns) and line.turns[-1].turn.compaction_turn_id is not None


def _tools_of(host: Host, agent: Agent, info: ModelInfo, workspace: Path | None) -> dict[str, Tool]:
    if not info.tools:
        return {}
    return {
        name: tool
        for name, tool in sorted(host.tools.items())
        if agent.is_offered(name) and (workspace is not None or not tool.needs_workspace)
    }


def _assemble(
    host: Host,
    session: Session,
    agent: Agent,
    catalog: AgentCatalog,
    model: Model,
    workspace: Path | None,
    tools: dict[str, Tool],
    skills: SkillCatalog,
    depth: int,
) -> Prompt:
    return assemble(
        PromptInputs(
            agent_prompt=agent.prompt,
            agent_path=agent.path if agent.source == "project" else None,
            session_override=session.system_prompt,
            swapped_from=session.agent if agent.name != session.agent else None,
            subagent=depth > 0,
            delegates=tuple(Delegate(a.name, a.description) for a in catalog.subagents()) if "task" in tools else (),
            instructions=load_instructions(workspace).files if workspace else (),
            skills=skills.index,
            environment=collect_environment(clock=host.clock, model=model, workspace=workspace),
            tools=tuple(ToolSchema(tool.name, tool.description, dict(tool.input_schema)) for tool in tools.values()),
        )
    )
