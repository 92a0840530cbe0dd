"""The config of a workspace: it may choose the model of its new sessions, and nothing else.

The file comes with the project, so it may only name a model: keys, addresses and all other settings are the user's.
"""

from __future__ import annotations

import logging
import tomllib
from pathlib import Path
from typing import Final

from clew.errors import InvalidInput
from clew.safe_read import FileCache, Unreadable, read_contained, shown

__all__ = ["WORKSPACE_CONFIG", "find_workspace_model"]

log = logging.getLogger("clew.config")

WORKSPACE_CONFIG: Final = Path(".clew", "config.toml")
_KEY: Final = "default_model"
_MAX_BYTES: Final = 64 * 1024


def find_workspace_model(workspace: Path) -> str | None:
    """Return ``default_model`` of the workspace's own file; None if it is not set. Blocking.

    Raises ``InvalidInput`` for an invalid file: its author wanted another model than the default.
    """
    return _cache.get(workspace, lambda: _read(workspace))


_cache: Final[FileCache[str | None]] = FileCache()


def _read(workspace: Path) -> str | None:
    path = workspace / WORKSPACE_CONFIG
    try:
        found = read_contained(path, workspace, _MAX_BYTES)
        if found is not None and found.cut:
            raise Unreadable(f"is larger than {_MAX_BYTES} bytes")
        settings = tomllib.loads(found.text) if found is not None else {}
    except (Unreadable, ValueError, RecursionError) as error:
        # The TOML parser raises other errors for deep nesting and for long numbers.
        why = str(error) if isinstance(error, Unreadable) else f"is not TOML: {error}"
        raise InvalidInput(f"{shown(path)} {why}; fix it, or name a model") from error
    if ignored := sorted(settings.keys() - {_KEY}):
        names = shown(", ".join(ignored))
        log.info("%s: a workspace can only set %s; ignored (set them in your own config): %s", shown(path), _KEY, names)
    name = settings.get(_KEY)
    if name is not None and not isinstance(name, str):
        raise InvalidInput(f"{shown(path)}: {_KEY} must be a string, provider/model; fix it, or name a model")
    return name
