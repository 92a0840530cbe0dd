"""The engine: the facade that every front end uses. :mod:`clew.opening` assembles its components."""

from clew.engine.facade import Engine, Operations
from clew.engine.sessions import SessionList
from clew.engine.transfer import ExportFormat

__all__ = ["Engine", "ExportFormat", "Operations", "SessionList"]
