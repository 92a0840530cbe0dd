"""clew: a durable session engine for AI agents.

It records everything an agent streams, before anybody sees it, and lets people leave, come back and go on
without losing a word.
"""

from clew._version import __version__
from clew.config import Config, SavePolicy
from clew.engine import Engine, SessionList
from clew.errors import (
    ClewError,
    Conflict,
    InternalError,
    Invalid,
    InvalidId,
    InvalidInput,
    MessageNotFound,
    NotFound,
    NotSupported,
    OwnedByAnotherProcess,
    RowUndecodable,
    SchemaTooNew,
    SessionNotFound,
    StorageFull,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreGone,
    StoreReadOnly,
    StoreUnavailable,
    UnsupportedValue,
)
from clew.opening import open
from clew.tools.base import ToolContext
from clew.tools.decorator import tool
from clew.transcript.message import Message
from clew.transcript.session import Model, Session
from clew.transcript.usage import Usage

__all__ = [
    "ClewError",
    "Config",
    "Conflict",
    "Engine",
    "InternalError",
    "Invalid",
    "InvalidId",
    "InvalidInput",
    "Message",
    "MessageNotFound",
    "Model",
    "NotFound",
    "NotSupported",
    "OwnedByAnotherProcess",
    "RowUndecodable",
    "SavePolicy",
    "SchemaTooNew",
    "Session",
    "SessionList",
    "SessionNotFound",
    "StorageFull",
    "StoreBusy",
    "StoreClosed",
    "StoreError",
    "StoreGone",
    "StoreReadOnly",
    "StoreUnavailable",
    "ToolContext",
    "UnsupportedValue",
    "Usage",
    "__version__",
    "open",
    "tool",
]
