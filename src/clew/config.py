"""The config of a host: settings with their defaults, and reading and writing the user's file.

Only the user's own file and the environment are read, never a file of a project folder: a cloned repository must not be
able to choose where transcripts or keys go.
"""

from __future__ import annotations

import contextlib
import fcntl
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
    """The time at which a run's chunks are stored.

    ``chunk``: immediately, and a chunk is shown only once it is durable. ``step`` and ``turn``: shown immediately,
    stored at the end of the step or the turn, or earlier when ``save_buffer_size`` bytes are buffered or the oldest is
    ``save_buffer_ms`` old; zero disables that limit. The default is ``chunk`` if the store can store every chunk, else
    ``step``.

    With ``chunk``, chunks are durable in a journal first. ``parts_lag_ms`` is how far behind a viewer a program may be
    that reads only the three shared tables, for an answer of up to 16 KB; a longer one takes longer in proportion.
    """

    save_on: Literal["chunk", "step", "turn"] | None = None
    save_buffer_size: int = 64 * 1024
    save_buffer_ms: int = 50
    parts_lag_ms: int = 250


class SmartRecovery(msgspec.Struct, frozen=True, kw_only=True):
    """The steps tried, in this order, when the history is too large to summarise in one call."""

    prune_tool_outputs: bool = True
    chunked_summarize: bool = True
    drop_middle: bool = True


class CompactionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The compaction of old history. Defaults come from the preset; a session's own settings take precedence.

    The default ``preset`` depends on the store: ``overlay`` for ``jsonl:``, ``checkpoint`` for ``json:``, else
    ``guide``. ``summary_timeout_s`` limits how long a turn waits for its summary, with all retries and fallbacks.
    ``context_measure="rollup"`` sums the usage of the messages in the model view instead of sizing the next request.
    """

    enabled: bool = True
    preset: Literal["guide", "checkpoint", "overlay", "turn"] | None = None
    reserve_tokens: int | None = None
    tail_turns: int | None = None
    tail_budget_pct: float | None = None
    keep_recent_tokens: int | None = None
    retry_on_transient: int = 2
    summary_timeout_s: _Seconds = 60.0
    smart_recovery: SmartRecovery = SmartRecovery()
    context_measure: Literal["request", "rollup"] = "request"


class PruningConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The replacement of old tool outputs by stubs for the model. Defaults come from the compaction preset.

    ``at_pct`` is the percentage of the context window from which outputs over ``min_chars`` characters become stubs.
    With ``soft_pct`` they are first trimmed to ``keep_chars`` at each end, and become stubs from ``hard_pct``.
    ``until_pct`` is the percentage of the window below which pruning stops.
    ``min_total_chars``: with fewer characters of output in total nothing is pruned.
    """

    enabled: bool = True
    at_pct: float | None = None
    min_chars: int | None = None
    min_total_chars: int | None = None
    soft_pct: float | None = None
    hard_pct: float | None = None
    until_pct: float | None = None
    keep_chars: int | None = None


_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
_Chars: TypeAlias = Annotated[int, msgspec.Meta(ge=4_000, le=1_000_000)]


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a server for its clients. A connection without a token so far is a stranger's.

    ``max_connections`` limits concurrent connections; by default the process's file limit, less what the store and the
    tools need. ``max_strangers`` limits those without a token; above it the oldest without a complete request is
    closed. ``head_s`` limits the time for the head of a request, and the time a stranger may leave an answer unread;
    ``idle_s`` the time until the next request of a connection. A body must arrive at ``body_rate`` bytes per second or
    more, a stranger's within ``body_s`` seconds. ``body_bytes`` limits the memory for all unfinished bodies,
    ``stranger_body_bytes`` for those without a token, of which there are at most ``stranger_bodies``.
    """

    max_connections: _Count | None = None
    max_strangers: _Count = 2048
    head_s: _Seconds = 10.0
    idle_s: _Seconds = 5.0
    body_s: _Seconds = 300.0
    body_rate: _Count = 8 * 1024
    body_bytes: _Count = 256 * 1024 * 1024
    stranger_bodies: _Count = 64
    stranger_body_bytes: _Count = 16 * 1024 * 1024


class ToolsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of tools. ``sandbox`` confines the programs that ``bash`` starts.

    ``workspace``: they write only in the workspace and a scratch folder, cannot read clew's own files, and have no
    network. ``files``: the same, with network. If the machine supports no sandbox, ``bash`` is refused.
    ``output_chars`` limits the length of an output for the model; ``output_chars_by_tool`` takes precedence, then
    ``output_chars_by_store``. The default comes from the compaction preset.
    """

    sandbox: Literal["off", "workspace", "files"] = "off"
    output_chars: _Chars | None = None
    output_chars_by_store: dict[Literal["sqlite", "postgresql", "jsonl", "json", "memory"], _Chars] = msgspec.field(
        default_factory=dict
    )
    output_chars_by_tool: dict[str, _Chars] = msgspec.field(default_factory=dict)


class SnapshotsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Snapshots of workspaces, by which a rewind brings files back, too.

    A tool call that may change files waits at most ``wait_s`` seconds for a snapshot. Workspaces with more than
    ``max_files`` files or ``max_bytes`` bytes have none; files above ``max_file_bytes`` are not covered. ``include``
    are patterns of ignored files that are covered, too.
    """

    mode: Literal["on", "off"] = "on"
    wait_s: _Seconds = 10.0
    max_files: _Count = 200_000
    max_bytes: _Count = 2 * 1024**3
    max_file_bytes: _Count = 20 * 1024**2
    include: tuple[str, ...] = ()


class ReplicaConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a process that shares its store with others. Its lease lasts ``lease_s`` from each heartbeat, of
    which there are three in that time. ``url`` is its address for the others. On shutdown active runs have ``drain_s``
    seconds to finish: by default 30 if other replicas continue, else none."""

    lease_s: _Seconds = 15.0
    drain_s: Annotated[float, msgspec.Meta(ge=0)] | None = None
    url: str | None = None


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a host. ``durability="power"`` makes every commit survive a loss of power.

    ``live`` is ``local``, ``postgres`` or the address of a Valkey or Redis server; ``CLEW_LIVE`` takes precedence.
    ``lossy_commits`` accepts a PostgreSQL server that may lose acknowledged commits in a crash; by default it is
    refused. ``event_log`` writes every settled fact to a log next to the tables, from which they can be rebuilt.
    ``ledger_prompts`` also records what people type in the events ledger, with the replies. ``duplicate_delivery_s``:
    for a webhook whose sender does not sign its id, such as GitHub, a delivery with the same body as one within this
    time counts as a duplicate; 0 accepts all. ``max_reply_bytes`` limits one reply of a model; the step then ends as
    ``length``. ``max_steps`` limits the model calls of a turn if its agent sets no limit; the default comes from the
    preset. ``snapshots`` is ``on``, ``off`` or a table of settings. ``resume="safe"``: after a restart interrupted
    turns are resumed automatically, at most twice each, unless a tool was running in them.
    """

    default_model: str | None = None
    live: str | None = None
    providers: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    default_agent: str = "assistant"
    max_steps: Annotated[int, msgspec.Meta(ge=1, le=1_000)] | None = None
    save: SavePolicy = SavePolicy()
    compaction: CompactionConfig = CompactionConfig()
    pruning: PruningConfig = PruningConfig()
    tools: ToolsConfig = ToolsConfig()
    mcp_servers: dict[str, McpServer] = msgspec.field(default_factory=dict)
    server: ServerConfig = ServerConfig()
    replica: ReplicaConfig = ReplicaConfig()
    snapshots: Literal["on", "off"] | SnapshotsConfig = SnapshotsConfig()
    durability: Literal["process", "power"] = "process"
    group_window_ms: float = 0.0
    group_gap_ms: float = 1.0
    lock_wait_ms: float = 60_000.0
    lossy_commits: bool = False
    event_log: bool = False
    ledger_prompts: bool = False
    duplicate_delivery_s: Annotated[float, msgspec.Meta(ge=0)] = 600.0
    max_reply_bytes: _Count = 8 * 1024 * 1024
    resume: Literal["off", "safe"] = "off"

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
        with _lock_folder(path.parent):
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
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Lock the folder against changes of settings by other threads and processes, which would overwrite this one."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


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
