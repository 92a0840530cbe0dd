"""The ``clew`` command. What it draws with is the extra ``cli``, which a program that embeds clew need not have."""

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
        print('clew: the command needs its packages: run pip install "clew[cli]" (not_installed)', file=sys.stderr)
        sys.exit(2)
    run()
