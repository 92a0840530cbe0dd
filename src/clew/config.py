"""Settings: what a host may choose, with defaults that are right for most, and where they are read from.

Only the user's own file and the environment are read, never a file of a project folder: a cloned repository must
not be able to choose where transcripts or keys go.
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

from clew.convert import fit
from clew.errors import InvalidInput
from clew.mcp_server import McpServer
from clew.type_error import misfit

__all__ = [
    "CompactionConfig",
    "Config",
    "PruningConfig",
    "ReplicaConfig",
    "SavePolicy",
    "ServerConfig",
    "SmartRecovery",
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


class SavePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When a run's chunks are stored.

    ``chunk``: at once, and a chunk is shown only after it is durable. ``step`` and ``turn``: shown at once, stored
    at the end of the step or the turn, or earlier when ``save_buffer_size`` bytes have gathered or the oldest has
    waited ``save_buffer_ms``; zero turns that limit off. What is not set is ``chunk`` where the store can keep every
    chunk, else ``step``.
    """

    save_on: Literal["chunk", "step", "turn"] | None = None
    save_buffer_size: int = 64 * 1024
    save_buffer_ms: int = 50


class SmartRecovery(msgspec.Struct, frozen=True, kw_only=True):
    """The steps taken, in this order, when history is too large to be summarised in one call."""

    prune_tool_outputs: bool = True
    chunked_summarize: bool = True
    drop_middle: bool = True


class CompactionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How old history makes room. What is not set comes from the preset; a session's own settings win.

    Without a ``preset`` the store's own counts: ``overlay`` in a ``jsonl:`` store, ``checkpoint`` in a ``json:`` one,
    else ``guide``. ``context_measure="rollup"`` sums the usage of the messages in the model view instead of sizing the
    next request.
    """

    enabled: bool = True
    preset: Literal["guide", "checkpoint", "overlay", "turn"] | None = None
    reserve_tokens: int | None = None
    tail_turns: int | None = None
    tail_budget_pct: float | None = None
    keep_recent_tokens: int | None = None
    retry_on_transient: int = 2
    smart_recovery: SmartRecovery = SmartRecovery()
    context_measure: Literal["request", "rollup"] = "request"


class PruningConfig(msgspec.Struct, frozen=True, kw_only=True):
    """When tool outputs become stubs for the model. What is not set comes from the compaction preset.

    ``at_pct`` is the part of the window from which on outputs over ``min_chars`` characters become stubs.
    ``soft_pct`` trims them to ``keep_chars`` at each end first; ``hard_pct`` is then where they become stubs.
    ``until_pct`` is the part of the window below which it stops again.
    ``min_total_chars``: below that many characters of output together nothing is pruned.
    """

    enabled: bool = True
    at_pct: float | None = None
    min_chars: int | None = None
    min_total_chars: int | None = None
    soft_pct: float | None = None
    hard_pct: float | None = None
    until_pct: float | None = None
    keep_chars: int | None = None


_Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
_Chars: TypeAlias = Annotated[int, msgspec.Meta(ge=4_000, le=1_000_000)]


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a peer may cost a server. A connection on which no token was shown yet is a stranger's.

    ``max_connections``: at most so many at once; none: what the process may open, less what the store and the tools
    need. ``max_strangers``: at most so many of them without a token; the oldest without a whole request makes room.
    ``head_s`` is how long the head of a request may take, and how long a stranger may leave an answer unread,
    ``idle_s`` how long a connection may wait for its next request. A body must come with ``body_rate`` bytes a second
    all along, and a stranger's be there after ``body_s`` seconds. ``body_bytes`` is what unfinished bodies may hold
    together, ``stranger_body_bytes`` those without a token, of which there are at most ``stranger_bodies``.
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
    """How tools run. ``sandbox`` fences in what ``bash`` starts.

    ``workspace``: it writes only in the workspace and a scratch folder, does not read clew's own files, and has no
    network. ``files``: the same, and the network is left open. Where the machine cannot do it ``bash`` is refused.
    ``output_chars`` is how much of one output is handed over, in a kind of store ``output_chars_by_store``, of a tool
    ``output_chars_by_tool``, the latter first; what none of them says comes from the compaction preset.
    """

    sandbox: Literal["off", "workspace", "files"] = "off"
    output_chars: _Chars | None = None
    output_chars_by_store: dict[Literal["sqlite", "postgresql", "jsonl", "json", "memory"], _Chars] = msgspec.field(
        default_factory=dict
    )
    output_chars_by_tool: dict[str, _Chars] = msgspec.field(default_factory=dict)


class ReplicaConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How this process is one of several on one store. What it runs is its own for ``lease_s`` from each heartbeat, of
    which there are three in that time. ``url`` is where it can be reached, as others are told it. A server that is to
    end gives what runs ``drain_s`` to do so by itself: 30 seconds where others go on, none where nobody does."""

    lease_s: _Seconds = 15.0
    drain_s: Annotated[float, msgspec.Meta(ge=0)] | None = None
    url: str | None = None


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a host may set. ``durability="power"`` makes every commit survive a loss of power.

    ``live`` is ``local``, ``postgres`` or the address of a Valkey or Redis server; ``CLEW_LIVE`` goes before it.
    ``lossy_commits`` takes a PostgreSQL server that acknowledges what its crash may take back; it is refused otherwise.
    ``event_log`` keeps a log of every settled fact beside the tables, from which they can be rebuilt.
    ``ledger_prompts`` keeps what people type in the events ledger, too, with what went out for it.
    ``duplicate_delivery_s`` is how long a delivery to a webhook whose sender does not sign its id, such as GitHub,
    counts as a duplicate of an earlier one with the same body; 0 accepts all.
    ``max_reply_bytes`` is how much of one reply of a model is taken; the step then ends as ``length``.
    ``max_steps`` is how many model calls a turn may take where its agent says nothing; else the preset says.
    ``resume="safe"``: after a restart turns that were interrupted go on by themselves, at most twice each, unless a
    tool was at work in them.
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


_REPLICA_VARIABLES: Final = {"CLEW_LEASE_S": "lease_s", "CLEW_DRAIN_S": "drain_s", "CLEW_REPLICA_URL": "url"}


def secret_values(config: Config | None = None, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The secrets this process knows: never to be written anywhere, neither into a log nor into an export.

    Those of its environment, by the names such variables have, and the keys in its settings. What is shorter than eight
    characters is none: every line would be holes.
    """
    known = [value for name, value in environ.items() if _SECRET_NAME.search(name)]
    if config is not None:
        known += [str(one.get("api_key") or "") for one in config.providers.values()]
        known += [value for server in config.mcp_servers.values() for value in server.secrets]
    return tuple(value for value in known if len(value) >= 8)


def default_store_url(environ: Mapping[str, str] = os.environ) -> str:
    """``CLEW_STORE``, else the user's own data folder."""
    if chosen := environ.get("CLEW_STORE"):
        return chosen
    return f"sqlite:///{data_folder(environ) / 'clew.db'}"


def data_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where clew keeps what is the user's own."""
    return _user_folder(environ, "XDG_DATA_HOME", ".local/share") / "clew"


def config_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the user tells clew what to do."""
    return _user_folder(environ, "XDG_CONFIG_HOME", ".config") / "clew"


def load_config(path: Path | None = None, environ: Mapping[str, str] = os.environ) -> Config:
    """The user's settings; defaults where there is no file. Keys clew does not know are left to later versions."""
    if path is None:
        path = config_folder(environ) / "config.toml"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from error
    try:
        return _with_variables(fit(tomllib.loads(text), Config), environ)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        why = misfit(error, Config) if isinstance(error, msgspec.ValidationError) else error
        raise InvalidInput(f"{path} is not a valid configuration: {why}") from error


def save_settings(path: Path, changed: Mapping[str, str | int | None]) -> None:
    """Write settings of the first level into the user's file; None takes one out. All other lines stay as they are, and
    so does what stands behind a value.

    A file in which that cannot be done line by line is refused, and left alone.
    """
    try:
        # Where it is a link, what it leads to is written.
        path = path.resolve()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _alone_in(path.parent):
            text = path.read_bytes().decode() if path.exists() else ""
            wanted = {**tomllib.loads(text), **changed}
            end = "\r" if "\r\n" in text else ""
            lines = text.split("\n")
            for name, value in changed.items():
                tables = next((at for at, line in enumerate(lines) if line.lstrip().startswith("[")), len(lines))
                at = next((at for at in range(tables) if re.match(rf"\s*{name}\s*=", lines[at])), None)
                behind = end if at is None else _behind_value(lines[at])
                line = [] if value is None else [f"{name} = {msgspec.json.encode(value).decode()}{behind}"]
                lines[slice(0, 0) if at is None else slice(at, at + 1)] = line
            written = "\n".join(lines)
            if tomllib.loads(written) != {name: value for name, value in wanted.items() if value is not None}:
                raise InvalidInput(f"{path} is written in a way that cannot be changed line by line; change it by hand")
            _put_whole(path, written)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput(f"{path} could not be changed: {error}") from error


def _behind_value(line: str) -> str:
    """The comment on a line, with the space before it, and how the line ends."""
    for at in (at for at, sign in enumerate(line) if sign == "#"):
        with contextlib.suppress(tomllib.TOMLDecodeError):
            tomllib.loads(line[:at])
            return line[len(line[:at].rstrip()) :]
    return "\r" if line.endswith("\r") else ""


def _put_whole(path: Path, text: str) -> None:
    """Whole or not at all, and at no moment for more eyes than before: it may hold keys."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    if not mode & 0o222:
        raise PermissionError(f"it may not be written; let it be, or change it by hand: {path}")
    beside = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text.encode())
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """No other thread or process changes settings meanwhile: what it had read would be put over this."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _with_variables(config: Config, environ: Mapping[str, str]) -> Config:
    """What several processes on one store differ in, or their host decides, may come from the environment."""
    if named := environ.get("CLEW_LIVE"):
        config = msgspec.structs.replace(config, live=named)
    given = {key: environ[name] for name, key in _REPLICA_VARIABLES.items() if environ.get(name)}
    if not given:
        return config
    try:
        known = {**msgspec.to_builtins(config.replica), **given}
        return msgspec.structs.replace(config, replica=fit(known, ReplicaConfig, strict=False))
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{', '.join(_REPLICA_VARIABLES)} in the environment do not fit: {error}") from error


def unknown_settings(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The keys of the user's file that no setting has, by their full names. They are ignored: one that is misspelt
    would otherwise be thought to hold."""
    path = config_folder(environ) / "config.toml"
    config = load_config(path, environ)
    return tuple(_unknown(config, tomllib.loads(path.read_text(encoding="utf-8")), "")) if path.exists() else ()


def _unknown(group: msgspec.Struct, written: Mapping[str, Any], under: str) -> Iterator[str]:
    for name, value in written.items():
        if name not in group.__struct_fields__:
            yield under + name
        elif isinstance(known := getattr(group, name), msgspec.Struct):
            yield from _unknown(known, value, f"{under}{name}.")


def _user_folder(environ: Mapping[str, str], variable: str, default: str) -> Path:
    """A folder of the user's own. A relative one would lie in the project, so it does not count, as XDG has it."""
    chosen = Path(environ.get(variable, ""))
    return chosen if chosen.is_absolute() else Path(environ.get("HOME") or "~").expanduser() / default
