"""For a program with a web server of its own: clew's whole app to mount there (``make_app``), with the host's own way
to know who asks; or the chat that ``useChat`` speaks, as frames to send.

``chat`` and ``resume`` refuse by raising, before a response has begun; ``exception_handlers`` are for an app of
Starlette or FastAPI and make the same problems of that as clew's own server does. Needs the extra ``server``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import msgspec

from clew.engine import Engine
from clew.errors import ClewError
from clew.fronts.operations.runs import ChatBody

try:
    from clew.fronts.http.app import make_app
    from clew.fronts.http.chat import ApprovalAttempt, Approvals, begin_chat
    from clew.fronts.http.identity import Authenticate, Owner
    from clew.fronts.http.problem import HANDLERS
    from clew.fronts.http.request_body import parse_raw
    from clew.fronts.http.sse import CHAT_HEADERS, SSE_HEADERS, chunk_frames
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] == "starlette":
        raise ImportError('clew.server needs its packages: run pip install "clew[server]"') from error
    raise

__all__ = [
    "ApprovalAttempt",
    "Approvals",
    "Authenticate",
    "Owner",
    "chat",
    "exception_handlers",
    "headers",
    "make_app",
    "resume",
]

headers: Final[Mapping[str, str]] = {**SSE_HEADERS, **CHAT_HEADERS}
"""Of a response that streams a chat."""
exception_handlers: Final[Mapping[Any, Any]] = {ClewError: HANDLERS[ClewError]}
"""For what clew raises; what the host itself raises, such as a 401, is the host's to answer."""


async def chat(
    engine: Engine,
    body: bytes | Mapping[str, Any],
    *,
    create: bool = False,
    approvals: Approvals = False,
    agents: bool = False,
) -> AsyncIterator[bytes]:
    """Take what the AI SDK's transport posts and return the frames of its answer: a prompt, an edit, another answer,
    or an answer to a question of the model. Its ``id`` is a session's, or its alias; with ``create`` an unknown
    chat is created under that alias.

    What a client sends as parts of an assistant message carries no authority: with ``approvals=False`` an answer to a
    request for approval raises ``PermissionDenied``, and the host answers with ``engine.answer``. ``approvals=True``
    accepts them from every client; a function gets an ``ApprovalAttempt`` and returns True to accept it. A body that
    names an ``agent`` is refused unless ``agents`` is true.
    """
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    begun = begin_chat(engine, parse_raw(data, ChatBody), create=create, approvals=approvals, agents=agents)
    return chunk_frames(await begun)


async def resume(engine: Engine, session_id: str, *, replay: bool = True) -> AsyncIterator[bytes] | None:
    """The frames of what runs, from its message's first part, or only what comes from now on; None when nothing does,
    for which the AI SDK expects a 204."""
    await engine.get_session(session_id)
    batches = await engine.find_batches(session_id, replay=replay)
    return None if batches is None else chunk_frames(batches)
