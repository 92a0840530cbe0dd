"""For programs with their own web server: the whole clew app to mount (``make_app``), with the host's authentication;
or the chat protocol of ``useChat``, as frames to send.

``chat`` and ``resume`` raise their refusals before a response has started. ``exception_handlers``, for a Starlette or
FastAPI app, turn them into the same problem documents that clew's own server sends. Needs the extra ``server``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import msgspec

from clew.errors import ClewError
from clew.fronts.operations.runs import ChatBody
from clew.session.api import Engine

try:
    from clew.fronts.http.app import make_app
    from clew.fronts.http.chat import ApprovalAttempt, Approvals, begin_chat
    from clew.fronts.http.identity import Authenticate, Owner
    from clew.fronts.http.problem import HANDLERS
    from clew.fronts.http.request import parse_raw
    from clew.fronts.http.sse import CHAT_HEADERS, SSE_HEADERS, chunk_frames
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] == "starlette":
        raise ImportError('clew.server needs extra packages: pip install "clew-sessions[server]"') from error
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
"""Headers of a response that streams a chat."""
exception_handlers: Final[Mapping[Any, Any]] = {ClewError: HANDLERS[ClewError]}
"""Handlers for errors raised by clew. The host handles its own, such as a 401."""


async def chat(
    engine: Engine,
    body: bytes | Mapping[str, Any],
    *,
    create: bool = False,
    approvals: Approvals = False,
    agents: bool = False,
) -> AsyncIterator[bytes]:
    """Accept a request body of the AI SDK's transport and return the frames of the response: a prompt, an edit, a
    regeneration, or an answer to a question of the model. Its ``id`` is a session's id or alias; with ``create``, an
    unknown chat is created under that alias.

    Parts of an assistant message that a client sends carry no authority: with ``approvals=False`` an answer to an
    approval request raises ``PermissionDenied``, and the host answers with ``engine.answer``. ``approvals=True``
    accepts them from every client; a function gets an ``ApprovalAttempt`` and returns True to accept it. A body that
    names an ``agent`` is refused unless ``agents`` is true.
    """
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    batches = begin_chat(engine, parse_raw(data, ChatBody), create=create, approvals=approvals, agents=agents)
    return chunk_frames(await batches)


async def resume(engine: Engine, session_id: str, *, replay: bool = True) -> AsyncIterator[bytes] | None:
    """Return the frames of the running turn; None when nothing runs, for which the AI SDK expects a 204.

    The stream starts with the first part of the turn's message or, without ``replay``, with new chunks.
    """
    await engine.get_session(session_id)
    batches = await engine.find_batches(session_id, replay=replay)
    return None if batches is None else chunk_frames(batches)
