"""The turn config: agent, model, tools, rules and system prompt of a turn, resolved once from the session and files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from clew.agents.catalog import AgentCatalog
from clew.agents.manifest import Agent
from clew.compaction.policy import session_policy
from clew.errors import ClewError, Invalid, InvalidInput, RowUndecodable
from clew.providers.base import NO_MODEL, ModelInfo, ToolSchema
from clew.providers.evidence import encode_tools, tools_digest
from clew.safe_read import confined, leads_elsewhere, resolved, shown
from clew.session.host import Host
from clew.session.turn.permission_check import PermissionChecker
from clew.session.turn.structured_output import StructuredOutput
from clew.store.base import Moment, Store
from clew.store.unit import PutPrompt
from clew.system_prompt.environment import collect_environment, environment_change, mentions_media, time_of_day
from clew.system_prompt.inputs import Delegate, Environment, Instruction, PromptInputs
from clew.system_prompt.instructions import load_instructions
from clew.system_prompt.sections import SystemPrompt, assemble, environment, sections_of
from clew.system_prompt.skills import SkillCatalog
from clew.tools.base import Tool
from clew.transcript.line import LineTurn
from clew.transcript.message import MessageRow
from clew.transcript.metadata import FALLBACK_KEY, MODEL_WAS_KEY, VARIANT_KEY
from clew.transcript.part import kind_of
from clew.transcript.rule import Rule, mark_unknown
from clew.transcript.session import Model, Session
from clew.transcript.turn import Step, Turn
from clew.workspace_config import WORKSPACE_CONFIG, find_workspace_model

__all__ = [
    "LastEnvironment",
    "ShownModel",
    "TurnConfig",
    "find_default_model",
    "load_last_environment",
    "load_permit",
    "model_for",
    "prompt_writes",
    "refresh_environment",
    "resolve",
    "resolve_for",
    "schemas_of",
]

log = logging.getLogger("clew.agents")

ShownModel: TypeAlias = tuple[Model, str | None]
"""A session's model, and the variant of its newest turn."""

_MAX_MODEL_NAME: Final = 200
_MAX_TURNS_BACK: Final = 8
"""Consecutive turns without a model call, such as failed ones, after which the environment is sent again."""


class TurnConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The config of one turn: agent, model, tools, rules and system prompt.

    ``inputs`` are the inputs of the system prompt, with the current environment. ``change`` describes what has changed
    in the environment since that prompt, for a turn that starts now. ``fallback_for`` names the ``agent`` and ``model``
    that are unknown here and were replaced.
    """

    session: Session
    agent: Agent
    model: Model
    info: ModelInfo
    workspace: Path | None
    tools: Mapping[str, Tool]
    schemas: tuple[ToolSchema, ...]
    encoded_tools: str
    form: StructuredOutput | None = None
    skills: SkillCatalog
    inputs: PromptInputs
    system_prompt: SystemPrompt
    change: str | None = None
    fallback_for: Mapping[str, str] = msgspec.field(default_factory=dict)
    permit: PermissionChecker
    attended: bool
    depth: int

    @property
    def stored_model(self) -> ShownModel:
        return self.session.model, self.session.metadata.get(VARIANT_KEY)

    @property
    def turn_model(self) -> ShownModel:
        return self.model.plain, self.model.variant

    @property
    def answer_metadata(self) -> dict[str, Any]:
        """Metadata that identifies the author of the answer: the model, and an agent other than the session's own."""
        metadata: dict[str, Any] = {"model": msgspec.to_builtins(self.model)}
        if self.agent.name != self.session.agent:
            metadata["agent"] = self.agent.name
        if self.fallback_for:
            metadata[FALLBACK_KEY] = dict(self.fallback_for)
        return metadata


class LastEnvironment(msgspec.Struct, frozen=True):
    """The environment last sent in a session: its newest turn, and the model and environment of the newest model call.

    The environment is None if it must be sent again.
    """

    last: LineTurn | None = None
    model: Model | None = None
    environment: str | None = None

    def environment_for(self, model: Model) -> str | None:
        """Return the environment if it was sent to this model."""
        return self.environment if self.model is not None and self.model.plain == model.plain else None


def schemas_of(tools: Mapping[str, Tool]) -> tuple[ToolSchema, ...]:
    """Return the tool schemas that are sent to a model."""
    return tuple(ToolSchema(tool.name, tool.description, dict(tool.input_schema)) for tool in tools.values())


async def resolve(
    host: Host,
    session: Session,
    *,
    model: str | Model | dict[str, Any] | None,
    agent: str | None,
    attended: bool,
    parent: PermissionChecker | None = None,
    depth: int = 0,
    media: bool = False,
    last_environment: LastEnvironment | None = None,
    output: Mapping[str, Any] | None = None,
    stored: bool = False,
) -> TurnConfig:
    """Resolve the turn config. A model named by the prompt comes first, then the session's.

    ``media``: the prompt has files. ``last_environment`` is given if it was just read. ``output`` is the schema of a
    structured output. An agent or model named by a session or a ``stored`` message may be unknown here, since another
    program or machine stored it: then the default is used. Naming an unknown one in a new prompt is an error.
    """
    if session.kind == "subagent" and parent is None and session.parent_id is not None:
        attended, depth = False, max(depth, 1)
    workspace = _workspace(session)
    surroundings = await _load_surroundings(host, session, workspace)
    names = (agent or session.agent, session.agent, host.choices.default_agent)
    manifest = surroundings.agents.get(agent) if agent and not stored else surroundings.agents.first_known(*names)
    chosen, info, unknown = _choose_model(host, session, manifest, surroundings, model, stored=stored)
    fallback_for = {"agent": names[0]} if manifest.name != names[0] else {}
    if unknown is not None:
        fallback_for["model"] = unknown
    tools, form = _select_tools(host, manifest, info, workspace, output)
    if last_environment is None:
        last_environment = await host.store.at_once(session.id, lambda at: load_last_environment(at, session.id))
    last, frozen = last_environment.last, last_environment.environment_for(chosen)
    media = media or await _has_media(host.store, session.id, last, frozen)
    skills = surroundings.skills if "skill" in tools else SkillCatalog()
    subagents = surroundings.agents.subagents() if "task" in tools else ()
    schemas = schemas_of(tools)
    inputs = PromptInputs(
        agent_prompt=manifest.prompt,
        agent_path=manifest.path if manifest.source == "project" else None,
        session_override=session.system_prompt,
        swapped_from=session.agent if manifest.name != session.agent else None,
        subagent=depth > 0,
        delegates=tuple(Delegate(one.name, one.description) for one in subagents),
        instructions=surroundings.instructions,
        skills=skills.index,
        environment=replace(surroundings.environment, model=str(chosen), variant=chosen.variant, media=media),
        tools=schemas,
    )
    return TurnConfig(
        session=session,
        agent=manifest,
        model=chosen,
        info=info,
        workspace=workspace,
        tools=tools,
        schemas=schemas,
        encoded_tools=encode_tools(schemas),
        form=form,
        skills=skills,
        inputs=inputs,
        system_prompt=assemble(replace(inputs, frozen_environment=frozen)),
        fallback_for=fallback_for,
        change=_environment_note(host, session, inputs, last, frozen),
        permit=await load_permit(host, session, manifest.rules, attended=attended, parent=parent),
        attended=attended,
        depth=depth,
    )


def _environment_note(
    host: Host, session: Session, inputs: PromptInputs, last: LineTurn | None, frozen: str | None
) -> str | None:
    """Return the note sent before the prompt of a turn that starts now: what differs from the system prompt."""
    now = environment(inputs)
    # A prompt that is sent again with this turn is accurate, except for the time.
    previous = last.turn.environment if last is not None and frozen is not None else None
    frozen = now if frozen is None else frozen
    if inputs.environment is not None and session_policy(host.config, session).sends_time:
        now += "\n" + time_of_day(host.clock.now_ms(), inputs.environment.zone)
    return environment_change(now, frozen, previous)


def _select_tools(
    host: Host, manifest: Agent, info: ModelInfo, workspace: Path | None, output: Mapping[str, Any] | None
) -> tuple[dict[str, Tool], StructuredOutput | None]:
    """Return the tools of a turn, and the one that receives the answer if structured output is requested."""
    tools: dict[str, Tool] = {
        name: tool
        for name, tool in sorted(host.tools.items())
        if info.tools and manifest.is_offered(name) and (workspace is not None or not tool.needs_workspace)
    }
    if output is None:
        return tools, None
    form = StructuredOutput(output)
    if not info.tools:
        raise InvalidInput(f"{info.model} does not support tools, which structured output requires")
    if form.name in tools:
        raise InvalidInput(
            f"the tool {form.name} has the name reserved for structured output: rename it or remove it from the "
            "agent's tools"
        )
    return {**tools, form.name: form}, form


class _Surroundings(msgspec.Struct, frozen=True):
    """The configuration on disk around a session: agents, skills, instructions and environment. ``named`` is the
    workspace's model, or the error of its config."""

    agents: AgentCatalog
    skills: SkillCatalog
    instructions: tuple[Instruction, ...]
    environment: Environment
    named: str | InvalidInput | None


async def _load_surroundings(host: Host, session: Session, workspace: Path | None) -> _Surroundings:
    """Load the configuration around a session; files that have not changed are not read again."""
    if workspace is None:
        # Only a few of clew's own files are read.
        surroundings = _read_confined(host, session, None)
    else:
        # In a thread: workspaces may be on slow disks.
        surroundings = await asyncio.to_thread(_read_confined, host, session, workspace)
    for notice in surroundings.agents.notices:
        log.info("%s", notice)
    return surroundings


def _read_confined(host: Host, session: Session, workspace: Path | None) -> _Surroundings:
    """Read the configuration; an owner's session reads only what is in its workspace. Blocking."""
    if session.owner is not None and workspace is not None and leads_elsewhere(workspace):
        # The workspace was allowed when the session was created; the path it resolves to now was not.
        raise InvalidInput(
            f"the workspace {workspace} is now a link to another folder; start a session in the folder you mean"
        )
    with confined(None if session.owner is None else workspace):
        return _read_surroundings(host, session, workspace)


def _read_surroundings(host: Host, session: Session, workspace: Path | None) -> _Surroundings:
    named: str | InvalidInput | None = None
    try:
        named = find_workspace_model(workspace) if workspace is not None else None
    except InvalidInput as error:
        named = error
    return _Surroundings(
        host.agents(workspace, session.owner),
        SkillCatalog.load(host.config_folder, workspace) if "skill" in host.tools else SkillCatalog(),
        # For an owner's session nothing above the workspace is read, and git does not run in a folder they control.
        load_instructions(workspace, home=workspace if session.owner is not None else None).files if workspace else (),
        collect_environment(clock=host.clock, model=session.model, workspace=workspace, use_git=session.owner is None),
        named,
    )


async def load_last_environment(
    store: Moment, session_id: str, line: Sequence[LineTurn] = (), steps_of: Sequence[Sequence[Step]] = ()
) -> LastEnvironment:
    """Return the environment sent in the newest turn that called a model. ``line`` and ``steps_of`` are its end and
    steps if already read.

    After a compaction between two turns the environment is sent again; a compaction within a turn does so itself
    (:func:`refresh_environment`).
    """
    known = {steps[0].turn_id: steps for steps in steps_of}
    turns = {entry.turn.id: entry.turn for entry in line[-_MAX_TURNS_BACK - 1 :]}

    async def find(turn_id: str | None) -> Turn | None:
        return None if turn_id is None else turns.get(turn_id) or await store.find_turn(turn_id)

    line = line or (await store.load_line(session_id, turns=1, keep_damaged=True)).turns
    if not line:
        return LastEnvironment()
    nothing_sent = LastEnvironment(line[-1])
    last: Turn | None = line[-1].turn
    steps: Sequence[Step] = ()
    for _ in range(_MAX_TURNS_BACK):
        if last is None or last.kind != "normal" or (steps := known.get(last.id) or await store.load_steps(last.id)):
            break
        last = await find(last.parent_turn_id)
    if last is None or not steps:
        return nothing_sent
    above = await find(last.parent_turn_id)
    if above is not None and above.kind == "compaction" and steps[-1].view[:1] not in ((), (above.depth,)):
        # Its last step precedes its own compaction: it was stopped before a call sent the environment again.
        return nothing_sent
    try:
        prompt = await store.find_prompt(steps[-1].prompt_digest or "") or ""
        sections = sections_of(prompt, steps[-1].sections)
    except (InvalidInput, RowUndecodable):
        return nothing_sent
    frozen = next((section.text for section in sections if section.name == environment.__name__), None)
    return LastEnvironment(line[-1], steps[-1].model, frozen)


async def _has_media(store: Store, session_id: str, last: LineTurn | None, frozen: str | None) -> bool:
    """Return whether the messages before the prompt have files. Once sent, that stays so until it is sent again."""
    if last is not None and frozen is not None:
        changed = last.turn.environment or ""
        return holds_media(last.messages) or mentions_media(frozen) or mentions_media(changed)
    # Most sessions never had files and need not be read for this.
    may_have = last is not None and await store.has_files(session_id)
    view = await store.find_view(session_id, keep_damaged=True) if may_have else None
    return view is not None and any(holds_media(entry.messages) for entry in view.turns)


def holds_media(messages: Iterable[MessageRow]) -> bool:
    return any(kind_of(part.data) == "file" for message in messages for part in message.parts)


async def refresh_environment(host: Host, config: TurnConfig, *, media: bool) -> TurnConfig:
    """Return the config with the current environment: after a compaction the provider reads everything anyway."""

    def collect() -> Environment:
        return collect_environment(
            clock=host.clock,
            model=config.model,
            workspace=config.workspace,
            media=media,
            use_git=config.session.owner is None,
        )

    inputs = replace(config.inputs, environment=await asyncio.to_thread(collect))
    return replace(config, inputs=inputs, system_prompt=assemble(inputs))


def _choose_model(
    host: Host,
    session: Session,
    manifest: Agent,
    surroundings: _Surroundings,
    named: str | Model | dict[str, Any] | None,
    *,
    stored: bool,
) -> tuple[Model, ModelInfo, str | None]:
    """Return the model to use, and the name of the requested one if that is unknown here."""
    choices: list[Callable[[], Model]] = [] if named is None else [lambda: host.providers.parse(named)]
    if named is None or stored:
        choices += [
            lambda: _session_model(host, session, manifest, surroundings),
            lambda: session.model.plain,  # only its variant may be unknown
            lambda: host.providers.parse(manifest.model or ""),
            lambda: _default_model(host, _workspace(session), surroundings.named),
        ]
    failure: Invalid | None = None
    for choose in choices:
        try:
            model = choose()
            host.providers.get(model.provider_id)
            info = host.providers.info(model)
        except Invalid as error:
            failure = failure or error
            continue
        return model, info, None if failure is None else _display_name(named or session.model)
    raise failure or InvalidInput("no model is configured")


def _display_name(model: str | Model | Mapping[str, Any]) -> str:
    names = (model.get("provider_id"), model.get("model_id")) if isinstance(model, Mapping) else (str(model),)
    return "/".join(str(name) for name in names if name)[:_MAX_MODEL_NAME]


def _session_model(host: Host, session: Session, manifest: Agent, surroundings: _Surroundings) -> Model:
    """Return the session's model. A variant picked for the session applies to the next turn only; else the agent, the
    workspace or the default may set the variant of this model for every turn."""
    if session.model.variant is not None:
        return host.providers.parse(session.model)
    # An import without any API key got the demo model: it is replaced once a model is available or picked.
    is_placeholder = MODEL_WAS_KEY in session.metadata and session.model == NO_MODEL and not session.has_chosen_model
    default, named = session.model, manifest.model
    if named is None or is_placeholder:
        try:
            default = _default_model(host, _workspace(session), surroundings.named)
        except InvalidInput as error:
            # The session has a model; an error in the workspace's default must not block it.
            log.info("%s", error)
    elif named.startswith(f"{session.model}:"):
        default = host.providers.parse(named)
    return default if is_placeholder or default.plain == session.model else session.model


async def find_default_model(host: Host, workspace: Path | None, owner: str | None) -> Model:
    """Return the model to use if neither user nor agent names one: the workspace's, else the default."""
    if workspace is None:
        return _default_model(host, None, None)
    with resolved(workspace), confined(None if owner is None else workspace):
        named = await asyncio.to_thread(find_workspace_model, workspace)
    return _default_model(host, workspace, named)


def _default_model(host: Host, workspace: Path | None, named: str | InvalidInput | None) -> Model:
    if named is None:
        return host.choices.default_model or host.providers.default_model()
    if isinstance(named, InvalidInput):
        raise named
    try:
        chosen = host.providers.parse(named)
        host.providers.get(chosen.provider_id)
    except ClewError as error:
        where = shown(f"{workspace}/{WORKSPACE_CONFIG}")
        raise InvalidInput(f"{where}: default_model: {error}; fix it there, or name a model") from error
    return chosen


async def load_permit(
    host: Host, session: Session, rules: Sequence[Rule], *, attended: bool, parent: PermissionChecker | None = None
) -> PermissionChecker:
    """Return the permission checker of a session; ``rules`` are its agent's. The model need not be available.

    A subagent's session never has more permissions than its parent, whichever client resumes it: the parent's rules
    apply, too.
    """
    if session.kind == "subagent" and parent is None and session.parent_id is not None:
        attended = False
        above = await host.store.find_session(session.parent_id)
        if above is not None:
            catalog = await asyncio.to_thread(host.agents, _workspace(above), above.owner)
            manifest = catalog.first_known(above.agent, host.choices.default_agent)
            parent = await load_permit(host, above, manifest.rules, attended=False)
    declared, protected_paths = host.declared, host.protected_paths
    own = mark_unknown((*host.base_rules, *rules), declared)
    return PermissionChecker(
        host.store, session.id, declared, own, _workspace(session), protected_paths, attended, parent, session.project
    )


def _workspace(session: Session) -> Path | None:
    return Path(session.workspace_root) if session.workspace_root else None


def model_for(session: Session, user: MessageRow) -> Any:
    """Return the model that a stored message names, or None if the session's was picked after it was sent."""
    # The model named by a queued message applies when its turn starts, which is now.
    picked = user.queued_at is None and session.model_picked_since(user.created_at)
    return None if picked else user.asked_model


async def resolve_for(
    host: Host, session: Session, user: MessageRow | None, last_environment: LastEnvironment | None = None
) -> TurnConfig:
    """Resolve the config for a stored message: the agent and model it named, or the model picked since it was sent."""
    if user is None:
        return await resolve(host, session, model=None, agent=None, attended=True, last_environment=last_environment)
    return await resolve(
        host,
        session,
        model=model_for(session, user),
        agent=user.asked_agent,
        attended=user.is_attended,
        media=holds_media((user,)),
        last_environment=last_environment,
        output=user.asked_output,
        stored=True,
    )


def prompt_writes(config: TurnConfig, now: int) -> tuple[PutPrompt, PutPrompt]:
    """Return the writes that store the turn's system prompt and tools, once per digest.

    They are written in one unit with the step that refers to them: unreferenced prompts are deleted.
    """
    tools = config.encoded_tools
    return (
        PutPrompt(config.system_prompt.digest, config.system_prompt.stored_text, now),
        PutPrompt(tools_digest(tools), tools, now),
    )
