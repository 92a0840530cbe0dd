"""What a workspace may choose by itself: the model of the sessions that begin in it, and nothing else.

The file comes with the project, so it is held to a name: keys, addresses and all other settings are the user's own.
"""

from __future__ import annotations

import logging
import tomllib
from pathlib import Path
from typing import Final

from clew.errors import InvalidInput
from clew.safe_read import Kept, Unreadable, read_contained, shown

__all__ = ["WORKSPACE_CONFIG", "find_workspace_model"]

log = logging.getLogger("clew.config")

WORKSPACE_CONFIG: Final = Path(".clew", "config.toml")
_KEY: Final = "default_model"
_MAX_BYTES: Final = 64 * 1024


def find_workspace_model(workspace: Path) -> str | None:
    """The name under ``default_model`` in the workspace's own file; None where it says nothing. Blocking.

    Raises ``InvalidInput`` where the file does not read: whoever wrote it wanted another model than the default.
    """
    return _kept.get(workspace, lambda: _read(workspace))


_kept: Final[Kept[str | None]] = Kept()


def _read(workspace: Path) -> str | None:
    path = workspace / WORKSPACE_CONFIG
    try:
        found = read_contained(path, workspace, _MAX_BYTES)
        if found is not None and found.cut:
            raise Unreadable(f"is larger than {_MAX_BYTES} bytes")
        settings = tomllib.loads(found.text) if found is not None else {}
    except (Unreadable, ValueError, RecursionError) as error:
        # The reader of TOML gives up on deep nesting and on long numbers in its own ways.
        why = str(error) if isinstance(error, Unreadable) else f"is not TOML: {error}"
        raise InvalidInput(f"{shown(path)} {why}; mend it, or name a model") from error
    if ignored := sorted(settings.keys() - {_KEY}):
        names = shown(", ".join(ignored))
        log.info("%s: a workspace sets %s alone; the rest is your own config's: %s", shown(path), _KEY, names)
    name = settings.get(_KEY)
    if name is not None and not isinstance(name, str):
        raise InvalidInput(f"{shown(path)}: {_KEY} is a model as text, provider/model; mend it, or name a model")
    return name
