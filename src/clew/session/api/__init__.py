"""The engine: the facade that every front end uses. :mod:`clew.compose` assembles its components."""

from clew.interop import ExportFormat
from clew.session.api.engine import Engine
from clew.session.api.operations import Operations
from clew.session.api.sessions import SessionList

__all__ = ["Engine", "ExportFormat", "Operations", "SessionList"]
