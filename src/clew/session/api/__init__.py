"""The engine: the facade that every front end uses. :mod:`clew.compose` assembles its components."""

from clew.session.api.engine import Engine
from clew.session.api.operations import Operations
from clew.session.api.sessions import SessionList
from clew.session.api.transfer import ExportFormat

__all__ = ["Engine", "ExportFormat", "Operations", "SessionList"]
