"""The server log: one line per request at its end, one when a run begins or ends, and all other log records.

A line logged during a request, or by a run that the request started, carries the request's id and its session. Secrets
are known by value and never written. Client input appears only as the path of a route, as a valid id, or escaped, so
that no client can forge log lines.
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

from clew.errors import ViewerLagged
from clew.escape import escape_invisible
from clew.fronts.http.auth import STRANGER
from clew.fronts.http.sse import BODY_SEND, closing
from clew.ids import random_name
from clew.platform.files import CLOEXEC, NOFOLLOW
from clew.session.api import Engine

__all__ = ["LogForm", "RequestLog", "about_session", "log_runs", "logging_to", "set_up"]

log = logging.getLogger("clew.http")
runs = logging.getLogger("clew.runs")

LogForm = Literal["text", "json"]
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_WINDOW_S: Final = 10.0
_MAX_UNAUTHENTICATED: Final = 300
_MAX_FILE_BYTES: Final = 1024 * 1024
"""Size at which the log file is rotated; one previous file is retained."""
_context: contextvars.ContextVar[dict[str, str]] = contextvars.ContextVar("about")


def about_session(request: Request, session_id: str) -> None:
    """Associate this request, and runs it starts, with a session."""
    if _ID.fullmatch(session_id):
        # A new dict, because runs outlive the request that started them.
        _context.set({**_context.get({}), "session": session_id})
        request.scope["clew.session"] = session_id


class RequestLog:
    """Middleware that gives every request an id, and logs it when its response has ended."""

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

        started = time.perf_counter()
        token = _context.set({"request": request_id})
        try:
            await self._app(scope, receive, named)
        finally:
            _context.reset(token)
            self._log_request(scope, request_id, status, (time.perf_counter() - started) * 1000)

    def _log_request(self, scope: Scope, request_id: str, status: int, ms: float) -> None:
        route = scope.get("route")
        fields: dict[str, Any] = {
            "request": request_id,
            "method": scope["method"] if scope["method"].isalpha() else "?",
            # The raw path may contain anything, including a secret.
            "path": getattr(route, "path", "-"),
            "status": status,
            "ms": round(ms, 1),
        }
        if "clew.session" in scope:
            fields["session"] = scope["clew.session"]
        if scope.get(STRANGER) is not False and not self._may_log():
            return
        log.log(logging.ERROR if status >= 500 else logging.INFO, "request", extra={"fields": fields})

    def _may_log(self) -> bool:
        """Limit the lines for unauthenticated requests, which anyone can send."""
        now = time.monotonic()
        if now - self._since > _WINDOW_S:
            if self._count > _MAX_UNAUTHENTICATED:
                log.warning("%d requests without a token were not logged", self._count - _MAX_UNAUTHENTICATED)
            self._since, self._count = now, 0
        self._count += 1
        return self._count <= _MAX_UNAUTHENTICATED


async def log_runs(engine: Engine) -> None:
    """Log the start and the end of each run, with its session and turn, until cancelled."""
    while True:
        try:
            async with closing(engine.subscribe()) as events:
                async for event in events:
                    if event.type in ("turn_started", "turn_finished"):
                        all_fields = {"session": event.data.get("session_id"), "turn": event.data.get("turn_id")}
                        # The message of an error may quote a provider or a tool; the code is enough.
                        error = (event.data.get("error") or {}).get("code")
                        all_fields |= {"reason": event.data.get("reason"), "error": error}
                        fields = {name: value for name, value in all_fields.items() if value is not None}
                        runs.info(event.type, extra={"fields": fields})
            return
        except ViewerLagged:
            runs.warning("some runs were not logged: too many events")


def set_up(form: LogForm, hidden: Iterable[str]) -> None:
    """Log to stderr. ``hidden`` values are replaced wherever they occur."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(form, hidden))
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


@contextlib.contextmanager
def logging_to(path: Path, hidden: Iterable[str]) -> Iterator[None]:
    """Log to a file only: output to stderr would overwrite the terminal's contents."""
    handler = _FileHandler(path)
    handler.setFormatter(_Formatter("text", hidden))
    loggers = [logging.getLogger(name) for name in ("clew", "clew.http", "uvicorn")]
    propagated = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, before in zip(loggers, propagated, strict=True):
            logger.removeHandler(handler)
            logger.propagate = before


class _FileHandler(logging.Handler):
    """A handler that appends each line separately: several processes may share the file, and most write no line."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record).encode(errors="backslashreplace") + b"\n"
        # If the file cannot be written, there is nowhere to report that either.
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._path.exists() and self._path.stat().st_size > _MAX_FILE_BYTES:
                self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | NOFOLLOW | CLOEXEC
            with os.fdopen(os.open(self._path, flags, 0o600), "ab") as file:
                file.write(line)


class _Formatter(logging.Formatter):
    def __init__(self, form: LogForm, hidden: Iterable[str]) -> None:
        super().__init__()
        self._form = form
        plain = set(hidden)
        # Quotes and backslashes are escaped inside JSON strings.
        self._hidden = sorted(plain | {json.dumps(value)[1:-1] for value in plain}, key=len, reverse=True)

    def format(self, record: logging.LogRecord) -> str:
        fields = {**_context.get({}), **getattr(record, "fields", {})}
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        trace = self.formatException(record.exc_info) if record.exc_info and record.exc_info[0] is not None else ""
        if self._form == "json":
            entry = {"at": at, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
            line = json.dumps({**entry, **fields, **({"trace": trace} if trace else {})}, default=str)
        else:
            details = "".join(f" {name}={escape_invisible(str(value))}" for name, value in fields.items())
            # Indent traces, so that no text can pass for a log line.
            indented = "".join(f"\n    {escape_invisible(one)}" for one in trace.splitlines())
            line = f"{at} {record.levelname} {record.name}: {escape_invisible(record.getMessage())}{details}{indented}"
        for value in self._hidden:
            line = line.replace(value, "[hidden]")
        return line
