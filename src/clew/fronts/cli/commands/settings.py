"""``clew models``, ``agents`` and ``config``: models, agents, and all settings with their source.

Secrets are never printed, not even in part: output ends up in logs and screenshots.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit, urlunsplit

import msgspec

import clew
from clew.config import Config, config_folder, data_folder, default_store_url, load_config, unknown_settings
from clew.errors import ClewError, InvalidInput
from clew.fronts.cli.command import Json, Store, show
from clew.fronts.cli.safe_text import plain
from clew.providers.base import ModelListing
from clew.tools.process.sandbox import find_sandbox
from clew.workspace_config import find_workspace_model

__all__ = ["TurnConfig", "agents", "config", "list_settings", "models", "redact"]

Source = Literal["default", "file", "environment", "option"]
_SECRET: Final = re.compile(r"(key|token|secret|password|passwd|credential|authorization|cookie)s?$", re.IGNORECASE)
_NAMES: Final = re.compile(r"_(?:env|id|name)$", re.IGNORECASE)
_VARIABLES: Final = re.compile(
    r"CLEW_\w+|XDG_(?:CONFIG|DATA)_HOME|(?:ANTHROPIC|OPENAI|GEMINI|GOOGLE|OPENROUTER|OLLAMA)_\w+"
)
_HIDDEN: Final = "(set)"


class TurnConfig(msgspec.Struct, frozen=True):
    """One setting: its name, its effective value without secrets, and its source."""

    name: str
    value: Any
    source: Source


async def models(*, store: Store = None, json: Json = False) -> None:
    """List the models with their abilities and variants, and why unusable ones cannot be used.

    Example: clew models
    """
    # Models depend on the environment and the settings, not on a store.
    async with clew.open("memory:", config="user") as engine:
        listed = await engine.models()
    width = max((len(model.id) for model in listed), default=0)
    lines = (
        f"{'*' if model.default else ' '} {model.id:<{width}}  "
        + (f"{model.window:>9,} tokens  {_abilities(model)}" if model.usable else f"not usable: {model.reason}")
        + (f"  :{' :'.join(model.variants)}" if model.usable and model.variants else "")
        for model in listed
    )
    show(json, {"models": listed}, lines)


def _abilities(model: ModelListing) -> str:
    has = {
        "images": any(one.startswith("image/") for one in model.files),
        "documents": "application/pdf" in model.files,
        "tools": model.tools,
        "cache": model.caching,
        "(estimated limits)": not model.known,
    }
    return f"{model.max_output:>7,} out  " + " ".join(name for name, is_so in has.items() if is_so)


async def agents(*, store: Store = None, json: Json = False) -> None:
    """List the agents for sessions in this folder, then problems in their files.

    Example: clew agents
    """
    # Agents depend on the settings and the folder, not on a store.
    async with clew.open("memory:", config="user") as engine:
        found = await engine.agents(Path.cwd())
    shown = [*found.agents, *found.internal]
    width = max(len(agent.name) for agent in shown)
    lines = [
        f"{agent.name:<{width}}  {agent.mode:<8}  {agent.source:<7}  {agent.description}"
        + ("" if agent.inspectable else " (not inspectable)")
        for agent in shown
    ]
    show(json, found, [*lines, *([""] if found.notices else []), *found.notices])


async def config(*, store: Store = None, json: Json = False) -> None:
    """List all settings with their values and sources, without secrets.

    Example: clew config --json
    """
    settings = list_settings(store, os.environ)
    width = max(len(setting.name) for setting in settings)
    lines = (
        f"{name:<{width}}  {value if isinstance(value, str) else msgspec.json.encode(value).decode()}  ({source})"
        for name, value, source in map(msgspec.structs.astuple, settings)
    )
    show(json, {"settings": settings}, lines)
    if unknown := unknown_settings(os.environ):
        names = ", ".join(unknown)
        print(plain(f"clew: ignoring unknown keys in the config file: {names}"), file=sys.stderr)
    try:
        # Providers, agents and models validate their settings only when a session is created.
        async with clew.open("memory:", config="user") as engine:
            await engine.create_session(workspace_root=Path.cwd())
    except ClewError as error:
        print(plain(f"clew: no session can be created in this folder: {error} ({error.code})"), file=sys.stderr)


def list_settings(store: str | None, environ: Mapping[str, str]) -> list[TurnConfig]:
    """Return paths first, then all settings by full name, then the environment variables of clew and its providers."""
    path = config_folder(environ) / "config.toml"
    loaded = load_config(path, environ)
    written = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    chosen: Source = "option" if store else "environment" if environ.get("CLEW_STORE") else "default"
    made = path.with_name("token").exists()
    token_from: Source = "environment" if environ.get("CLEW_TOKEN") else "file" if made else "default"
    token = "(created by the first `clew serve`)" if token_from == "default" else _HIDDEN
    places = [
        TurnConfig("config file", str(path), "file" if path.exists() else "default"),
        TurnConfig(
            "data folder", str(data_folder(environ)), "environment" if "XDG_DATA_HOME" in environ else "default"
        ),
        TurnConfig("store", redact("store", store or default_store_url(environ)), chosen),
        TurnConfig("token", token, token_from),
        *_workspace_model(),
        TurnConfig("sandbox", _sandbox(loaded), "file" if loaded.tools.sandbox != "off" else "default"),
    ]
    variables = [
        TurnConfig(name, redact(name, value), "environment")
        for name, value in sorted(environ.items())
        if _VARIABLES.fullmatch(name) and value
    ]
    return [*places, *_settings(loaded, written, ""), *variables]


def _workspace_model() -> list[TurnConfig]:
    """Return the default model of the current folder, or what is wrong with its file."""
    try:
        named = find_workspace_model(Path.cwd())
    except (InvalidInput, OSError) as error:
        named = str(error)
    return [TurnConfig("model of this folder", named, "file")] if named is not None else []


def _sandbox(config: Config) -> str:
    """Return the effective sandbox of `bash` on this machine."""
    if config.tools.sandbox == "off":
        able = find_sandbox("workspace").by
        return f"off; {able} is available" if able else "off; no sandbox is available"
    return find_sandbox(config.tools.sandbox).described


def _settings(group: Config | msgspec.Struct, written: Mapping[str, Any], under: str) -> Iterator[TurnConfig]:
    for name in group.__struct_fields__:
        value = getattr(group, name)
        if isinstance(value, msgspec.Struct):
            inner = written.get(name)
            yield from _settings(value, inner if isinstance(inner, Mapping) else {}, f"{under}{name}.")
        else:
            yield TurnConfig(under + name, redact(name, value), "file" if name in written else "default")


def redact(name: str, value: Any) -> Any:
    """Return a value without secrets: values with secret names, and logins in addresses."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.to_builtins(value)
    if isinstance(value, Mapping):
        # Headers and environment variables of servers have arbitrary names, and mostly hold keys.
        return {key: _HIDDEN if name in ("headers", "env") else redact(str(key), inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redact(name, inner) for inner in value]
    if _SECRET.search(name) and not _NAMES.search(name) and value:
        return _HIDDEN
    if isinstance(value, str) and "@" in value and "//" in value:
        url = urlsplit(value)
        if url.username or url.password:
            return urlunsplit(url._replace(netloc=f"…@{url.netloc.rpartition('@')[2]}"))
    return value
