"""The dependencies of a run: the components that the engine created, passed down as one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from clew.agents.catalog import AgentCatalog
from clew.clock import Clock
from clew.config import Config
from clew.errors import ClewError
from clew.ids import Mint
from clew.live.base import Live
from clew.providers.base import EndpointKind, Providers
from clew.session.cluster.lease import Lease
from clew.session.hooks import Hooks
from clew.session.turn.protected_paths import ProtectedPaths
from clew.snapshots.base import SnapshotLayer
from clew.store.base import Store
from clew.telemetry.telemetry import Telemetry
from clew.tools.base import Tool, declared_capabilities
from clew.tools.mcp_tools import ToolServers
from clew.transcript.rule import Capability, Rule
from clew.transcript.session import Model

__all__ = ["Choices", "Host"]


class Choices(msgspec.Struct):
    """The current choices, read wherever the setting counts, so that a change applies from the next turn on.

    ``default_model`` None leaves the choice to the providers, ``max_steps`` None to the preset of the session.
    """

    default_model: Model | None = None
    default_agent: str = "assistant"
    max_steps: int | None = None


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The store, models, tools and other components that all runs share. ``chance`` returns numbers from 0 to 1.

    ``agents`` returns the agents of a workspace, read as the owner of the session or of the engine may; None is any.
    """

    store: Store
    live: Live
    providers: Providers
    tools: Mapping[str, Tool]
    agents: Callable[[Path | None, str | None], AgentCatalog]
    base_rules: Sequence[Rule]
    protected_paths: ProtectedPaths
    hooks: Hooks
    config: Config
    clock: Clock
    mint: Mint
    chance: Callable[[], float]
    spill: Path
    config_folder: Path | None = None
    choices: Choices = msgspec.field(default_factory=Choices)
    deps: Any = None
    lease: Lease = msgspec.field(default_factory=Lease)
    servers: ToolServers | None = None
    builtin_tools: tuple[Tool, ...] = ()
    snapshots: SnapshotLayer | None = None
    telemetry: Telemetry = msgspec.field(default_factory=Telemetry)

    @property
    def declared(self) -> Mapping[str, tuple[Capability, ...] | None]:
        """The tools that a rule may name, with their capabilities: those of this host, and clew's built-in ones even if
        disabled."""
        tools = {**{tool.name: tool for tool in self.builtin_tools}, **self.tools}
        return {name: declared_capabilities(tool) for name, tool in tools.items()}

    def find_kind(self, model: Model) -> EndpointKind | None:
        """Return the kind of endpoint of a model, if its provider reports it."""
        try:
            return self.providers.info(model).kind
        except ClewError:
            return None
