"""``clew chat``: a conversation on a terminal, or through a pipe, with the engine that has the store."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from clew.errors import ClewError, InvalidInput, OwnedByAnotherProcess
from clew.fronts.cli.attachment import named_files
from clew.fronts.cli.chat.conversation import AT_WORK, Conversation
from clew.fronts.cli.chat.slash_commands import completions, run_slash
from clew.fronts.cli.chat.terminal import Pipe, Terminal
from clew.fronts.cli.chat.typed_lines import TypedLines
from clew.fronts.cli.command import AnyEngine, find_server, open_store
from clew.fronts.cli.render import Theme
from clew.fronts.remote.engine import RemoteEngine
from clew.fronts.remote.wire import Gone
from clew.platform import WINDOWS
from clew.store.location import lock_of, parse_url

# Imports inside functions: the drawing libraries load slowly, and a conversation through a pipe does not need them.

__all__ = ["chat", "is_attended"]

_OPEN_RETRY_S: Final = (0.1, 0.2, 0.4, 0.8)
"""Waits between attempts to open a store that another chat has locked and does not serve yet."""

_PLAIN_LINES: Final = (
    "on Windows the chat reads plain lines, and denies what needs approval; `clew serve` has a page that asks"
)

_HINT_S: Final = 3.0
"""Time for a server to say whether a turn runs, when the chat leaves. One that does not respond must not delay it."""


async def chat(store: str | None, session: str | None, model: str | None, new: bool) -> int:
    """Run a conversation; return the exit code."""
    if session is not None and new:
        raise InvalidInput("--new creates a session; omit the session id")
    attended = is_attended()
    if WINDOWS and sys.stdin.isatty():
        print(f"clew: {_PLAIN_LINES}", file=sys.stderr)
    async with contextlib.AsyncExitStack() as leaving:
        engine = await _open(store, leaving, _OPEN_RETRY_S if attended else ())
        here = await asyncio.to_thread(Path.cwd().resolve)
        talk = await _on_screen(engine, store, model, here, leaving) if attended else _through_pipe(engine, model)
        # The named session, else the newest of this folder; None for a new one.
        first = None if session is None else await engine.get_session(session)
        if first is None and not new:
            first = next(iter((await engine.list_sessions(limit=1, workspace=str(here))).sessions), None)
        if attended:
            # Typing does not wait for the server. Its context is left before the engine's.
            serving = asyncio.get_running_loop().create_task(_serve_alongside(engine, leaving))
            leaving.push_async_callback(asyncio.wait, {serving})
        async with talk.terminal.hold():
            code = await talk.talk(first)
            if talk.session is not None and attended:
                await _print_resume_hint(talk)
        return code


def is_attended() -> bool:
    """Return whether stdin and stdout are a terminal that can be drawn on; on Windows lines are read and printed."""
    return (
        not WINDOWS and sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") not in (None, "", "dumb")
    )


async def _open(store: str | None, leaving: contextlib.AsyncExitStack, waits_s: Sequence[float]) -> AnyEngine:
    """Open the store, or the server that owns it. A chat that has just opened the store serves it in a moment."""
    for wait_s in waits_s:
        try:
            return await leaving.enter_async_context(open_store(store, write=True, make=True))
        except OwnedByAnotherProcess as error:
            if error.ids.get("url") is not None:
                raise
            await asyncio.sleep(wait_s)
    return await leaving.enter_async_context(open_store(store, write=True, make=True))


async def _serve_alongside(engine: AnyEngine, leaving: contextlib.AsyncExitStack) -> None:
    """Serve the store over HTTP: it has one owner, so other chats, commands and the page connect to this process."""
    if isinstance(engine, RemoteEngine) or lock_of(parse_url(engine.store.url)) is None:
        return
    # By name: fronts do not import one another, and this one needs packages that may be absent. Without a port, or a
    # folder for the token, the chat runs alone.
    with contextlib.suppress(ImportError, ClewError, OSError):
        front = await asyncio.to_thread(importlib.import_module, "clew.fronts.http.serve")
        await leaving.enter_async_context(front.serving_alongside(engine))


def _through_pipe(engine: AnyEngine, model: str | None) -> Conversation:
    return Conversation(engine, Pipe(), Theme(colour=False), run_slash, model)


async def _on_screen(
    engine: AnyEngine, store: str | None, model: str | None, here: Path, leaving: contextlib.AsyncExitStack
) -> Conversation:
    from clew.fronts.cli.chat.completion import LineCompleter
    from clew.fronts.cli.chat.screen import Screen

    theme = _make_theme()
    typed = TypedLines(here)

    async def find_files(typed: str) -> list[str]:
        # Completion fails silently: the typed text is used as it is.
        with contextlib.suppress(ClewError, Gone):
            return await talk.engine.find_files(typed, workspace=talk.folder)
        return []

    screen = Screen(
        await asyncio.to_thread(typed.load),
        LineCompleter(lambda line: completions(line, talk), find_files),
        colour=theme.has_colour,
    )
    terminal: Terminal = screen

    passing = isinstance(engine, RemoteEngine) and await engine.is_passing()

    async def again() -> AnyEngine:
        nonlocal passing
        if not isinstance(talk.engine, RemoteEngine):
            return talk.engine
        if not passing:
            return await find_server(store)
        # A chat does not come back: the first one to open the store owns it now.
        found = await leaving.enter_async_context(open_store(store, write=True))
        await _serve_alongside(found, leaving)
        passing = isinstance(found, RemoteEngine) and await found.is_passing()
        return found

    talk = Conversation(engine, terminal, theme, run_slash, model, again)
    talk.remember = typed.add
    screen.footer = talk.footer
    screen.attachments = functools.lru_cache(maxsize=1)(
        lambda text: [file.name for file in named_files(text, talk.folder)]
    )
    return talk


async def _print_resume_hint(talk: Conversation) -> None:
    session_id = talk.require_session()
    remote = isinstance(talk.engine, RemoteEngine)
    with contextlib.suppress(Gone, TimeoutError):
        async with asyncio.timeout(_HINT_S if remote else None):
            status = await talk.engine.get_status(session_id)
        if status.state in AT_WORK:
            talk.say("the turn continues on the server" if remote else "turn interrupted; partial output is saved")
    talk.say(f"resume with: clew chat {session_id}")


def _make_theme() -> Theme:
    from rich.console import Console
    from rich.markdown import Markdown

    own = Console(highlight=False, markup=False, emoji=False)

    def markdown(text: str, width: int) -> str:
        # Addresses of links are printed: a person must see where a link leads.
        with own.capture() as captured:
            own.print(Markdown(text, hyperlinks=False, code_theme="ansi_dark"), width=width)
        return "\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n"))

    return Theme(colour=own.color_system is not None and not own.no_color, markdown=markdown)
