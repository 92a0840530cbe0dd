"""The ``clew`` command."""

from clew.fronts.cli.app import main

__all__ = ["main"]
