"""The operations of any engine: all nouns in one class, and those that concern the host."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from clew.convert import convert
from clew.errors import BlobNotFound, Invalid, InvalidId, InvalidInput, NotFound
from clew.session.api.files import Files
from clew.session.api.history import History
from clew.session.api.permissions import Permissions
from clew.session.api.prompts import SavedPrompts
from clew.session.api.runs import Runs
from clew.session.api.servers import Servers
from clew.session.api.sessions import Sessions
from clew.session.api.settings import Settings
from clew.session.api.transfer import Transfer
from clew.snapshots.base import SnapshotStore
from clew.store.base import Blob, Damage
from clew.transcript.session import Model
from clew.transcript.spend import GROUPINGS, Grouping, UsageQuery, UsageReport, parse_bound, report

# Runtime modules are imported inside functions, so that importing clew stays fast.
if TYPE_CHECKING:
    from clew.providers.base import ModelListing
    from clew.triggers.events import Events
    from clew.triggers.schedules import Schedules
    from clew.triggers.webhooks import Webhooks

__all__ = ["AgentList", "AgentShape", "DiskUse", "Operations", "ReplicaShape"]

_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


class AgentShape(msgspec.Struct, frozen=True):
    """An agent that a session can use."""

    name: str
    description: str
    mode: Literal["primary", "subagent"]
    model: Model | None
    tools: tuple[str, ...] | None
    max_steps: int
    """The agent's own limit, or that of the store's preset."""
    source: Literal["builtin", "user", "project"]
    inspectable: bool = True
    """False: its work is shown to people only as its result."""


class AgentList(msgspec.Struct, frozen=True):
    """The available agents. ``notices`` report unusable manifests, with the reason.

    ``internal`` are the subagents that clew itself calls, for summaries and titles. No session can use them.
    """

    agents: tuple[AgentShape, ...]
    notices: tuple[str, ...]
    internal: tuple[AgentShape, ...] = ()


class ReplicaShape(msgspec.Struct, frozen=True):
    """A process that serves the store. Times are by the store's clock. ``alive``: its lease is valid; ``here``: it is
    this process."""

    id: str
    url: str | None
    version: str
    started_at: int
    beat_at: int
    lease_until: int
    draining: bool
    alive: bool
    here: bool
    sessions: tuple[str, ...]


class DiskUse(msgspec.Struct, frozen=True):
    """Bytes on disk by kind. ``database`` is None where the store is not on this machine; ``outputs`` are long outputs
    of tools; ``workspaces`` has the bytes of ``snapshots`` by workspace."""

    database: int | None
    blobs: int
    snapshots: int
    outputs: int
    workspaces: dict[str, int]


class Operations(Sessions, Runs, History, Permissions, Transfer, Files, SavedPrompts, Settings, Servers):
    """The operations of an engine, whether it runs in this process or in a server that owns the store."""

    events: Events
    schedules: Schedules
    webhooks: Webhooks

    async def models(self) -> list[ModelListing]:
        """Return the known models: usable ones first, then the others, each with the reason."""
        listed = await asyncio.to_thread(self._host.providers.models)
        chosen = self._host.choices.default_model
        if chosen is None:
            return list(listed)
        return [msgspec.structs.replace(entry, default=entry.id == str(chosen.plain)) for entry in listed]

    async def agents(self, workspace: str | Path | None = None) -> AgentList:
        """Return the agents a session can use; with a ``workspace``, including those of its project."""
        from clew.compaction.policy import presets

        folder = Path(workspace) if workspace else None
        if self.roots is not None:
            folder = await self._resolve_workspace(folder)
        catalog = await asyncio.to_thread(self._host.agents, folder, self.owner)
        # The limit of sessions without a preset of their own. If the config named none, it has the store's default.
        preset = presets()[self._host.config.compaction.preset or "guide"]
        limit = self._host.choices.max_steps or preset.max_steps
        shown: list[AgentShape] = []
        notices = [*catalog.notices]
        internal = catalog.internal()
        for agent in (*catalog.list(), *internal):
            model = None
            try:
                model = self._host.providers.parse(agent.model) if agent.model is not None else None
            except Invalid as error:
                notices.append(f"{agent.path}: its model cannot be used; {error}")
            mode = "subagent" if agent.mode == "internal" else agent.mode
            values = {"model": model, "max_steps": agent.max_steps or limit, "mode": mode}
            shown.append(convert({**msgspec.structs.asdict(agent), **values}, AgentShape))
        offered = len(shown) - len(internal)
        return AgentList(tuple(shown[:offered]), tuple(notices), tuple(shown[offered:]))

    async def blob(self, sha256: str) -> Blob:
        """Return the bytes of a file that a message refers to."""
        if not _SHA256.fullmatch(sha256):
            raise InvalidId("a blob id is a SHA-256 digest: 64 lowercase hex digits")
        blob = await self._store.find_blob(sha256, self.owner)
        if blob is None:
            raise BlobNotFound("no blob with this SHA-256", sha256=sha256)
        return blob

    async def usage(
        self, by: Grouping = "day", *, since: int | str | None = None, until: int | str | None = None
    ) -> UsageReport:
        """Return the usage and cost of all model calls, whatever their purpose, in groups.

        ``since`` is inclusive and ``until`` exclusive: epoch milliseconds or ISO 8601, in UTC unless there is an
        offset. If ``until`` is a date without a time, that day is included. Calls of deleted sessions count too.
        """
        if by not in GROUPINGS:
            raise InvalidInput(f"by must be {', '.join(GROUPINGS[:-1])} or {GROUPINGS[-1]}, not {by!r}")
        query = UsageQuery(by, parse_bound(since), parse_bound(until, is_end=True), self.owner)
        # One report at a time: each may take long, and several would occupy all readers of the store.
        async with self._usage_lock:
            return report(await self._store.load_usage(query))

    async def replicas(self) -> list[ReplicaShape]:
        """Return the processes that serve the store, oldest first, with their sessions; empty with a single owner."""
        replica_id, shown = self._host.lease.replica_id, []
        for replica in await self._store.list_replicas():
            more = {"here": replica.id == replica_id, "sessions": await self._store.run_by(replica.id)}
            shown.append(convert({**msgspec.structs.asdict(replica), **more}, ReplicaShape))
        return shown

    async def disk_use(self) -> DiskUse:
        """Return the bytes on disk by kind: database, blobs, snapshots of workspaces, long outputs of tools."""
        layer, path = self._host.snapshots, getattr(self._store, "path", None)
        workspaces = await layer.disk_use() if isinstance(layer, SnapshotStore) else {}
        blobs = await self._store.blob_bytes()
        database = None
        if isinstance(path, Path) and path.is_dir():
            blobs = await asyncio.to_thread(_bytes_below, [path / "clew" / "blobs"])
            database = await asyncio.to_thread(_bytes_below, [path]) - blobs
        elif isinstance(path, Path):
            files = [path, *(path.with_name(f"{path.name}-{end}") for end in ("wal", "shm", "journal"))]
            database = max(await asyncio.to_thread(_bytes_below, files) - blobs, 0)
        outputs = await asyncio.to_thread(_bytes_below, [self._host.spill])
        return DiskUse(database, blobs, sum(workspaces.values()), outputs, workspaces)

    async def losses(self) -> tuple[Damage, ...]:
        """Return what was acknowledged but is missing from the store, until the loss is accepted."""
        return await self._store.losses()

    async def accept_loss(self, loss_id: str) -> None:
        """Accept a loss, named by its id, so that it is no longer reported."""
        if not await self._store.accept_loss(loss_id, self._host.clock.now_ms()):
            raise NotFound(f"there is no loss {loss_id}", loss_id=loss_id)


def _bytes_below(paths: Iterable[Path]) -> int:
    """Return the bytes of these files and of those below these folders."""
    total = 0
    for path in paths:
        for file in (path, *path.rglob("*")) if path.is_dir() else (path,):
            with contextlib.suppress(OSError):
                total += file.lstat().st_size
    return total
