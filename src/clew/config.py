"""The config of a host: settings with their defaults, and reading and writing the user's file.

Only the user's own file and the environment are read, never a file of a project folder: a cloned repository must not be
able to choose where transcripts or keys go.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from clew.convert import convert, explain_type_error
from clew.errors import InvalidInput
from clew.mcp_server import McpServer
from clew.platform.files import set_mode
from clew.platform.locks import locked_folder

__all__ = [
    "CompactionConfig",
    "Config",
    "PruningConfig",
    "ReplicaConfig",
    "SavePolicy",
    "ServerConfig",
    "SmartRecovery",
    "SnapshotsConfig",
    "ToolsConfig",
    "config_folder",
    "data_folder",
    "default_store_url",
    "load_config",
    "save_settings",
    "secret_values",
    "unknown_settings",
]

_SECRET_NAME: Final = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.ASCII | re.IGNORECASE)


_Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]


class SavePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The time at which a run's chunks are stored."""

    save_on: Literal["chunk", "step", "turn"] | None = None
    """``chunk``: immediately, and a chunk is shown only once it is durable. ``step`` and ``turn``: shown immediately,
    stored at the end of the step or the turn. Default: ``chunk`` if the store can store every chunk, else ``step``."""
    save_buffer_size: int = 64 * 1024
    """Buffered bytes that force a save with ``step`` and ``turn``, and slow a stream with ``chunk``; 0 disables it."""
    save_buffer_ms: int = 50
    """The age of the oldest buffered chunk that forces a save with ``step`` and ``turn``; 0 disables it."""
    parts_lag_ms: int = 250
    """How far behind a viewer, with ``chunk``, a program may be that reads only the three shared tables, for an answer
    of up to 16 KB; a longer one takes longer in proportion. At most 1000."""


class SmartRecovery(msgspec.Struct, frozen=True, kw_only=True):
    """The steps tried, in this order, when the history is too large to summarise in one call."""

    prune_tool_outputs: bool = True
    """Leave out tool outputs."""
    chunked_summarize: bool = True
    """Summarise piece by piece."""
    drop_middle: bool = True
    """Leave out the middle, with a list of its contents."""


class CompactionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The compaction of old history. None means the preset's value; a session's own settings, in its metadata under
    ``compaction``, take precedence."""

    enabled: bool = True
    """False: nothing is summarised automatically, and a request that does not fit is refused."""
    preset: Literal["guide", "checkpoint", "overlay", "turn"] | None = None
    """The set of values for compaction and pruning. Default: ``overlay`` in a ``jsonl:`` store, ``checkpoint`` in a
    ``json:`` store, else ``guide``."""
    reserve_tokens: int | None = None
    """Tokens reserved for the answer, at most half of the window."""
    tail_turns: int | None = None
    """The number of newest turns that stay verbatim."""
    tail_budget_pct: float | None = None
    """The share of the usable window that they may take, above 0 and at most 1."""
    keep_recent_tokens: int | None = None
    """The number of newest tokens that stay verbatim, instead of turns."""
    retry_on_transient: int = 2
    """How often a summary that failed temporarily is tried again."""
    summary_timeout_s: _Seconds = 60.0
    """How long a turn waits for its summary, with all retries and fallbacks; then it continues without one, or the
    middle is left out."""
    smart_recovery: SmartRecovery = SmartRecovery()
    """The steps when the history is too large for one summary."""
    context_measure: Literal["request", "rollup"] = "request"
    """``request`` sizes the next request; ``rollup`` sums the usage of the messages in the model view."""


class PruningConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The replacement of old tool outputs by stubs for the model. None means the preset's value; a session's own
    settings are in its metadata under ``compaction.pruning``."""

    enabled: bool = True
    """False: outputs are pruned only by hand."""
    at_pct: float | None = None
    """The share of the window from which outputs become stubs, in one pass."""
    min_chars: int | None = None
    """Only outputs with more characters become stubs."""
    min_total_chars: int | None = None
    """With fewer characters of output in total nothing is pruned."""
    soft_pct: float | None = None
    """The share of the window from which outputs are trimmed to their ends."""
    hard_pct: float | None = None
    """The share of the window from which trimmed outputs become stubs."""
    until_pct: float | None = None
    """The share of the window below which pruning stops. The lower, the less often a provider's cache is lost."""
    keep_chars: int | None = None
    """The number of characters that stay at each end of a trimmed output."""


_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
_Chars: TypeAlias = Annotated[int, msgspec.Meta(ge=4_000, le=1_000_000)]


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a server for its clients. A connection without a valid token so far is a stranger's."""

    max_connections: _Count | None = None
    """Concurrent connections. Default: the process's file limit, less what the store and the tools need."""
    max_strangers: _Count = 2048
    """Concurrent connections of strangers; above it the oldest without a complete request is closed."""
    head_s: _Seconds = 10.0
    """Seconds for the head of a request, and for a stranger to read an answer."""
    idle_s: _Seconds = 5.0
    """Seconds until the next request of a connection."""
    body_s: _Seconds = 300.0
    """Seconds for a stranger's body, and for the first bytes of any body."""
    body_rate: _Count = 8 * 1024
    """The bytes per second at which a body must arrive."""
    body_bytes: _Count = 256 * 1024 * 1024
    """Memory for all incomplete bodies."""
    stranger_bodies: _Count = 64
    """The number of incomplete bodies of strangers."""
    stranger_body_bytes: _Count = 16 * 1024 * 1024
    """Memory for incomplete bodies of strangers."""


class ToolsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of tools."""

    sandbox: Literal["off", "workspace", "files"] = "off"
    """``workspace``: the programs that ``bash`` starts write only in the workspace and a scratch folder, cannot read
    clew's own files, and have no network. ``files``: the same, with network. Without support for it ``bash`` is
    refused."""
    output_chars: _Chars | None = None
    """Characters of one output for the model; a longer one is stored in a file. Default: the preset's."""
    output_chars_by_store: dict[Literal["sqlite", "postgresql", "jsonl", "json", "memory"], _Chars] = msgspec.field(
        default_factory=dict
    )
    """The same for a kind of store."""
    output_chars_by_tool: dict[str, _Chars] = msgspec.field(default_factory=dict)
    """The same for a tool, by its name. It takes precedence over the others."""


class SnapshotsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of snapshots of workspaces, which a rewind can restore."""

    mode: Literal["on", "off"] = "on"
    """``off``: no snapshots. ``snapshots = "off"`` is the short form."""
    wait_s: _Seconds = 10.0
    """How long a call that may change files waits for a snapshot, in seconds."""
    max_files: _Count = 200_000
    """A workspace with more files has no snapshots."""
    max_bytes: _Count = 2 * 1024**3
    """A workspace with more bytes has no snapshots."""
    max_file_bytes: _Count = 20 * 1024**2
    """Larger files are not saved."""
    include: tuple[str, ...] = ()
    """Patterns of ignored files that are saved, too."""


class ReplicaConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a process that shares its store with others."""

    lease_s: _Seconds = 15.0
    """How long the process owns its sessions after a heartbeat, of which there are three in that time."""
    drain_s: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """Seconds for active runs to finish on shutdown. Default: 30 if other replicas continue, else 0."""
    url: str | None = None
    """Its address for the others. Default: the address it serves."""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a host."""

    default_model: str | None = None
    """The model of a session that names none. Default: that of the first provider with a key, else ``demo/tour``."""
    live: str | None = None
    """How several servers on one store exchange events: ``local`` (not at all), ``postgres`` (through the store's
    database), or the address of a Valkey or Redis server. Default: ``postgres`` on a PostgreSQL store, else
    ``local``."""
    providers: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    """Endpoints and keys by the name of the provider."""
    default_agent: str = "assistant"
    """The agent of a session that names none."""
    max_steps: Annotated[int, msgspec.Meta(ge=1, le=1_000)] | None = None
    """The limit of model calls in a turn if its agent sets none. Default: the preset's."""
    save: SavePolicy = SavePolicy()
    """When chunks are stored."""
    compaction: CompactionConfig = CompactionConfig()
    """How old turns are summarised."""
    pruning: PruningConfig = PruningConfig()
    """When tool outputs become stubs for the model."""
    tools: ToolsConfig = ToolsConfig()
    """How tools run."""
    mcp_servers: dict[str, McpServer] = msgspec.field(default_factory=dict)
    """MCP servers by name, whose tools agents can use."""
    server: ServerConfig = ServerConfig()
    """Limits of a server for its clients."""
    replica: ReplicaConfig = ReplicaConfig()
    """Settings of one of several processes on a store."""
    snapshots: Literal["on", "off"] | SnapshotsConfig = SnapshotsConfig()
    """``on``, ``off``, or a table: whether and how clew saves the workspace, so that a rewind can restore files."""
    durability: Literal["process", "power"] = "process"
    """``power``: every commit survives a loss of power. ``process``: the end of each turn does, chunks may not."""
    group_window_ms: float = 0.0
    """How long the writer waits for further writes before a commit."""
    group_gap_ms: float = 1.0
    """The maximum delay of commits that contain only chunks of streams: four times the duration of the last commit, up
    to this; twice this if chunks of four or more streams arrive together."""
    lock_wait_ms: float = 60_000.0
    """How long a commit waits while another program holds the write lock."""
    lossy_commits: bool = False
    """Accept a PostgreSQL server that may lose acknowledged commits in a crash (``synchronous_commit = off``)."""
    event_log: bool = False
    """Write every settled fact to a log next to the tables, from which they can be rebuilt."""
    ledger_prompts: bool = False
    """Also record what people type in the events ledger, with the replies."""
    duplicate_delivery_s: Annotated[float, msgspec.Meta(ge=0)] = 600.0
    """For a webhook whose sender does not sign its id, such as GitHub: a delivery with the same body within this time
    is a duplicate. 0 accepts all."""
    max_reply_bytes: _Count = 8 * 1024 * 1024
    """The limit of one reply of a model; the step then ends as ``length``, and its tool calls are not run."""
    resume: Literal["off", "safe"] = "off"
    """``safe``: after a restart interrupted turns are resumed automatically, at most twice each, unless a tool was
    running in them."""

    @property
    def snapshot_settings(self) -> SnapshotsConfig:
        """The settings of snapshots, also where only the mode is given."""
        return SnapshotsConfig(mode=self.snapshots) if isinstance(self.snapshots, str) else self.snapshots


_REPLICA_VARIABLES: Final = {"CLEW_LEASE_S": "lease_s", "CLEW_DRAIN_S": "drain_s", "CLEW_REPLICA_URL": "url"}


def secret_values(config: Config | None = None, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the secrets this process knows, which must not be written to a log or an export.

    They are the variables of its environment with names typical for secrets, and the keys in its config. Values
    shorter than eight characters do not count: redacting them would destroy ordinary text.
    """
    merged = [value for name, value in environ.items() if _SECRET_NAME.search(name)]
    if config is not None:
        merged += [str(one.get("api_key") or "") for one in config.providers.values()]
        merged += [value for server in config.mcp_servers.values() for value in server.secrets]
    return tuple(value for value in merged if len(value) >= 8)


def default_store_url(environ: Mapping[str, str] = os.environ) -> str:
    """Return ``CLEW_STORE``, else a store in the user's data folder."""
    if chosen := environ.get("CLEW_STORE"):
        return chosen
    return f"sqlite:///{data_folder(environ) / 'clew.db'}"


def data_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the user's data folder of clew."""
    return _user_folder(environ, "XDG_DATA_HOME", ".local/share") / "clew"


def config_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the user's config folder of clew."""
    return _user_folder(environ, "XDG_CONFIG_HOME", ".config") / "clew"


def load_config(path: Path | None = None, environ: Mapping[str, str] = os.environ) -> Config:
    """Return the user's config; defaults if there is no file. Unknown keys are ignored, for later versions."""
    if path is None:
        path = config_folder(environ) / "config.toml"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from error
    try:
        return _with_variables(convert(tomllib.loads(text), Config), environ)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        why = explain_type_error(error, Config) if isinstance(error, msgspec.ValidationError) else error
        raise InvalidInput(f"{path} is not a valid configuration: {why}") from error


def save_settings(path: Path, changed: Mapping[str, str | int | None]) -> None:
    """Write top-level settings into the user's file; None removes one. All other lines and comments stay unchanged.

    A file that cannot be changed line by line is refused, and stays unchanged.
    """
    try:
        # Write the target of a link.
        path = path.resolve()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked_folder(path.parent):
            text = path.read_bytes().decode() if path.exists() else ""
            expected = {**tomllib.loads(text), **changed}
            end = "\r" if "\r\n" in text else ""
            lines = text.split("\n")
            for name, value in changed.items():
                tables = next((at for at, line in enumerate(lines) if line.lstrip().startswith("[")), len(lines))
                at = next((at for at in range(tables) if re.match(rf"\s*{name}\s*=", lines[at])), None)
                suffix = end if at is None else _after_value(lines[at])
                line = [] if value is None else [f"{name} = {msgspec.json.encode(value).decode()}{suffix}"]
                lines[slice(0, 0) if at is None else slice(at, at + 1)] = line
            new_text = "\n".join(lines)
            if tomllib.loads(new_text) != {name: value for name, value in expected.items() if value is not None}:
                raise InvalidInput(f"{path} cannot be changed line by line; edit it yourself")
            _write_atomically(path, new_text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput(f"{path} could not be changed: {error}") from error


def _after_value(line: str) -> str:
    """Return the comment of a line with the space before it, and the line's end."""
    for at in (at for at, sign in enumerate(line) if sign == "#"):
        with contextlib.suppress(tomllib.TOMLDecodeError):
            tomllib.loads(line[:at])
            return line[len(line[:at].rstrip()) :]
    return "\r" if line.endswith("\r") else ""


def _write_atomically(path: Path, text: str) -> None:
    """Replace a file atomically, never with wider permissions than before: it may contain keys."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    if not mode & 0o222:
        raise PermissionError("the file is read-only; make it writable, or edit it yourself")
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text.encode())
            set_mode(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _with_variables(config: Config, environ: Mapping[str, str]) -> Config:
    """Apply the settings that the environment may set: those that differ between processes on one store."""
    if named := environ.get("CLEW_LIVE"):
        config = msgspec.structs.replace(config, live=named)
    from_environment = {key: environ[name] for name, key in _REPLICA_VARIABLES.items() if environ.get(name)}
    if not from_environment:
        return config
    try:
        merged = {**msgspec.to_builtins(config.replica), **from_environment}
        return msgspec.structs.replace(config, replica=convert(merged, ReplicaConfig, strict=False))
    except msgspec.ValidationError as error:
        raise InvalidInput(f"invalid {', '.join(_REPLICA_VARIABLES)} in the environment: {error}") from error


def unknown_settings(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the full names of unknown keys in the user's file. They are ignored, so a person must learn of a
    misspelt one."""
    path = config_folder(environ) / "config.toml"
    config = load_config(path, environ)
    return tuple(_unknown(config, tomllib.loads(path.read_text(encoding="utf-8")), "")) if path.exists() else ()


def _unknown(group: msgspec.Struct, new_text: Mapping[str, Any], under: str) -> Iterator[str]:
    for name, value in new_text.items():
        if name not in group.__struct_fields__:
            yield under + name
        elif isinstance(merged := getattr(group, name), msgspec.Struct):
            yield from _unknown(merged, value, f"{under}{name}.")


def _user_folder(environ: Mapping[str, str], variable: str, default: str) -> Path:
    """Return a folder of the user. A relative path would be in the project, so it is ignored, as XDG specifies."""

    chosen = Path(environ.get(variable, ""))
    return chosen if chosen.is_absolute() else Path(environ.get("HOME") or "~").expanduser() / default
