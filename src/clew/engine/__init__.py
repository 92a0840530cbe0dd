"""The engine: the facade every front uses. What it stands on is put together by :mod:`clew.opening`."""

from clew.engine.facade import Engine, Operations
from clew.engine.sessions import SessionList
from clew.engine.transfer import ExportFormat

__all__ = ["Engine", "ExportFormat", "Operations", "SessionList"]
