"""The ``clew`` command. Its libraries are the extra ``cli``, which programs that embed clew do not need."""

from __future__ import annotations

import sys

__all__ = ["main"]

_LIBRARIES = ("cyclopts", "prompt_toolkit", "rich")


def main() -> None:
    """Entry point of the ``clew`` command."""
    try:
        from clew.fronts.cli.app import main as run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _LIBRARIES:
            raise
        print('clew: missing packages: run pip install "clew-sessions[cli]" (not_installed)', file=sys.stderr)
        sys.exit(2)
    run()
