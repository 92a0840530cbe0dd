"""What a run stands on: the parts the engine put together, handed down as one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from clew.agents.catalog import AgentCatalog
from clew.agents.manifest import Agent
from clew.clock import Clock
from clew.config import Config
from clew.ids import Mint
from clew.live.base import Live
from clew.prompt.assemble import Prompt
from clew.prompt.skills import SkillCatalog
from clew.providers.base import ModelInfo, Providers, ToolSchema
from clew.runtime.hooks import Hooks
from clew.runtime.permit import Permit
from clew.runtime.places import OwnPlaces
from clew.store.base import Store
from clew.tools.base import Tool
from clew.transcript.rule import Rule
from clew.transcript.session import Model, Session

__all__ = ["Host", "Setting", "schemas_of"]


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """Stores, models, tools and the rest of what every run shares. ``chance`` gives numbers from 0 to 1."""

    store: Store
    live: Live
    providers: Providers
    tools: Mapping[str, Tool]
    agents: Callable[[Path | None], AgentCatalog]
    base_rules: Sequence[Rule]
    places: OwnPlaces
    hooks: Hooks
    config: Config
    clock: Clock
    mint: Mint
    chance: Callable[[], float]
    spill: Path
    config_folder: Path | None = None


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What is resolved once per turn: who answers, with what, under which rules and which prompt."""

    session: Session
    agent: Agent
    model: Model
    info: ModelInfo
    workspace: Path | None
    tools: Mapping[str, Tool]
    skills: SkillCatalog
    prompt: Prompt
    permit: Permit
    attended: bool
    depth: int

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        return schemas_of(self.tools)


def schemas_of(tools: Mapping[str, Tool]) -> tuple[ToolSchema, ...]:
    """The tools as a model is told about them."""
    return tuple(ToolSchema(tool.name, tool.description, dict(tool.input_schema)) for tool in tools.values())
