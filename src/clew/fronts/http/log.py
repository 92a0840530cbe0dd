"""The log: one line per request at its end, one when a run begins or ends, and whatever else was logged meanwhile.

A line made while a request is answered, also one from a run that the request began, carries the request's id and its
session. Secrets are known by value and never written. What a client chose stands in a line only as the path of a
route, an id of the right form, or escaped: nobody can write lines of their own.
"""

from __future__ import annotations

import contextlib
import contextvars
import json
import logging
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clew.engine import Engine
from clew.errors import ViewerLagged
from clew.fronts.http.auth import STRANGER
from clew.fronts.http.sse import BODY_SEND, closing
from clew.ids import random_name
from clew.unseen import escape_unseen

__all__ = ["LogForm", "RequestLog", "about_session", "log_runs", "logging_to", "set_up"]

log = logging.getLogger("clew.http")
runs = logging.getLogger("clew.runs")

LogForm = Literal["text", "json"]
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_WINDOW_S: Final = 10.0
_MAX_STRANGE: Final = 300
_MOST_BYTES: Final = 1024 * 1024
"""How long a log file grows before it makes way; the one before it is kept beside it."""
_about: contextvars.ContextVar[dict[str, str]] = contextvars.ContextVar("about")


def about_session(request: Request, session_id: str) -> None:
    """From here on this request, and what it starts, is about a session."""
    if _ID.fullmatch(session_id):
        # A value of its own for whoever comes after: runs outlive the request that began them.
        _about.set({**_about.get({}), "session": session_id})
        request.scope["clew.session"] = session_id


class RequestLog:
    """Gives every request an id, and writes a line when its answer is over."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._since = time.monotonic()
        self._count = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = random_name()
        scope[BODY_SEND] = send
        status = 0

        async def named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], (b"x-request-id", request_id.encode())]}
            await send(message)

        began = time.perf_counter()
        token = _about.set({"request": request_id})
        try:
            await self._app(scope, receive, named)
        finally:
            _about.reset(token)
            self._tell(scope, request_id, status, (time.perf_counter() - began) * 1000)

    def _tell(self, scope: Scope, request_id: str, status: int, ms: float) -> None:
        route = scope.get("route")
        fields: dict[str, Any] = {
            "request": request_id,
            "method": scope["method"] if scope["method"].isalpha() else "?",
            # The path itself may hold anything, a secret too.
            "path": getattr(route, "path", "-"),
            "status": status,
            "ms": round(ms, 1),
        }
        if "clew.session" in scope:
            fields["session"] = scope["clew.session"]
        if scope.get(STRANGER) is not False and not self._may_say():
            return
        log.log(logging.ERROR if status >= 500 else logging.INFO, "request", extra={"fields": fields})

    def _may_say(self) -> bool:
        """Anybody can ask without a token, and as often as they like: the log has an end to what it says of them."""
        now = time.monotonic()
        if now - self._since > _WINDOW_S:
            if self._count > _MAX_STRANGE:
                log.warning("%d requests without a token are not in this log", self._count - _MAX_STRANGE)
            self._since, self._count = now, 0
        self._count += 1
        return self._count <= _MAX_STRANGE


async def log_runs(engine: Engine) -> None:
    """A line when a run begins and when it ends, with the session and the turn, until cancelled."""
    while True:
        try:
            async with closing(engine.subscribe()) as events:
                async for event in events:
                    if event.type in ("turn_started", "turn_finished"):
                        told = {"session": event.data.get("session_id"), "turn": event.data.get("turn_id")}
                        # The sentence of an error may hold what a provider or a tool said; the code says enough.
                        error = (event.data.get("error") or {}).get("code")
                        told |= {"reason": event.data.get("reason"), "error": error}
                        fields = {name: value for name, value in told.items() if value is not None}
                        runs.info(event.type, extra={"fields": fields})
            return
        except ViewerLagged:
            runs.warning("some runs are not in this log: too much happened at once")


def set_up(form: LogForm, hidden: Iterable[str]) -> None:
    """Log to stderr. ``hidden`` values are replaced wherever they turn up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(form, hidden))
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


@contextlib.contextmanager
def logging_to(path: Path, hidden: Iterable[str]) -> Iterator[None]:
    """Log to a file, and nowhere else: whoever has the terminal would find it written over."""
    handler = _FileHandler(path)
    handler.setFormatter(_Formatter("text", hidden))
    loggers = [logging.getLogger(name) for name in ("clew", "clew.http", "uvicorn")]
    told = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, before in zip(loggers, told, strict=True):
            logger.removeHandler(handler)
            logger.propagate = before


class _FileHandler(logging.Handler):
    """Each line is appended by itself: several processes may have the same file, and most never write a line."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record).encode(errors="backslashreplace") + b"\n"
        # Where nothing can be written there is nowhere to say so, either.
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._path.exists() and self._path.stat().st_size > _MOST_BYTES:
                self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            how = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(self._path, how, 0o600), "ab") as file:
                file.write(line)


class _Formatter(logging.Formatter):
    def __init__(self, form: LogForm, hidden: Iterable[str]) -> None:
        super().__init__()
        self._form = form
        plain = set(hidden)
        # Inside a JSON string a quote or a backslash is written differently.
        self._hidden = sorted(plain | {json.dumps(value)[1:-1] for value in plain}, key=len, reverse=True)

    def format(self, record: logging.LogRecord) -> str:
        fields = {**_about.get({}), **getattr(record, "fields", {})}
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        trace = self.formatException(record.exc_info) if record.exc_info and record.exc_info[0] is not None else ""
        if self._form == "json":
            said = {"at": at, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
            line = json.dumps({**said, **fields, **({"trace": trace} if trace else {})}, default=str)
        else:
            told = "".join(f" {name}={escape_unseen(str(value))}" for name, value in fields.items())
            # What belongs to a line above is indented, so that no text can pass for a line of the log.
            below = "".join(f"\n    {escape_unseen(one)}" for one in trace.splitlines())
            line = f"{at} {record.levelname} {record.name}: {escape_unseen(record.getMessage())}{told}{below}"
        for value in self._hidden:
            line = line.replace(value, "[hidden]")
        return line
