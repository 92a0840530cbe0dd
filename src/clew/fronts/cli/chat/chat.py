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
from clew.fronts.cli.render import Look
from clew.fronts.remote.engine import RemoteEngine
from clew.fronts.remote.wire import Gone
from clew.store.location import lock_of, parse_url

# Imports inside functions: what draws takes long to load, and a conversation through a pipe needs none of it.

__all__ = ["chat", "is_attended"]

_ABOUT_TO_S: Final = (0.1, 0.2, 0.4, 0.8)
"""How long is waited between two looks whether a chat that has the store serves it by now."""


async def chat(store: str | None, session: str | None, model: str | None, new: bool) -> int:
    """Talk until somebody leaves; the exit code."""
    if session is not None and new:
        raise InvalidInput("--new begins a session of its own; leave the id out")
    attended = is_attended()
    async with contextlib.AsyncExitStack() as leaving:
        engine = await _open(store, leaving, _ABOUT_TO_S if attended else ())
        here = await asyncio.to_thread(Path.cwd().resolve)
        talk = await _on_screen(engine, store, model, here, leaving) if attended else _through_pipe(engine, model)
        # The session that was named, else the newest of this folder; None for a new one.
        first = None if session is None else await engine.get_session(session)
        if first is None and not new:
            first = next(iter((await engine.list_sessions(limit=1, workspace=str(here))).sessions), None)
        if attended:
            # Nobody waits for it to begin to talk; what it has entered by the end is left before the engine is.
            serving = asyncio.get_running_loop().create_task(_serve_beside(engine, leaving))
            leaving.push_async_callback(asyncio.wait, {serving})
        async with talk.terminal.hold():
            code = await talk.talk(first)
            if talk.session is not None and attended:
                await _say_farewell(talk)
        return code


def is_attended() -> bool:
    """Somebody sits at a terminal on which can be drawn."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") not in (None, "", "dumb")


async def _open(store: str | None, leaving: contextlib.AsyncExitStack, waits_s: Sequence[float]) -> AnyEngine:
    """The store, or the server that has it; another chat that has just taken it is about to serve it."""
    for wait_s in waits_s:
        try:
            return await leaving.enter_async_context(open_store(store, write=True, make=True))
        except OwnedByAnotherProcess as error:
            if error.ids.get("url") is not None:
                raise
            await asyncio.sleep(wait_s)
    return await leaving.enter_async_context(open_store(store, write=True, make=True))


async def _serve_beside(engine: AnyEngine, leaving: contextlib.AsyncExitStack) -> None:
    """A store has one owner: whoever comes second, a chat or a command or the page, talks to this one."""
    if isinstance(engine, RemoteEngine) or lock_of(parse_url(engine.store.url)) is None:
        return
    # By name: fronts do not import one another, and this one needs packages that may be absent. Without a port, or a
    # place for the token, the chat goes on alone.
    with contextlib.suppress(ImportError, ClewError, OSError):
        front = await asyncio.to_thread(importlib.import_module, "clew.fronts.http.serve")
        await leaving.enter_async_context(front.serving_beside(engine))


def _through_pipe(engine: AnyEngine, model: str | None) -> Conversation:
    return Conversation(engine, Pipe(), Look(colour=False), run_slash, model)


async def _on_screen(
    engine: AnyEngine, store: str | None, model: str | None, here: Path, leaving: contextlib.AsyncExitStack
) -> Conversation:
    from clew.fronts.cli.chat.completion import LineCompleter
    from clew.fronts.cli.chat.screen import Screen

    look = _look()
    typed = TypedLines(here)

    async def find_files(typed: str) -> list[str]:
        # Nobody is told why there is nothing to offer: what is typed counts as it is.
        with contextlib.suppress(ClewError, Gone):
            return await talk.engine.find_files(typed, workspace=talk.folder)
        return []

    screen = Screen(
        await asyncio.to_thread(typed.load),
        LineCompleter(lambda line: completions(line, talk), find_files),
        colour=look.has_colour,
    )
    terminal: Terminal = screen

    passing = isinstance(engine, RemoteEngine) and await engine.is_passing()

    async def again() -> AnyEngine:
        nonlocal passing
        if not isinstance(talk.engine, RemoteEngine):
            return talk.engine
        if not passing:
            return await find_server(store)
        # A chat does not come back: who is first has the store now, and the others talk to that one.
        found = await leaving.enter_async_context(open_store(store, write=True))
        await _serve_beside(found, leaving)
        passing = isinstance(found, RemoteEngine) and await found.is_passing()
        return found

    talk = Conversation(engine, terminal, look, run_slash, model, again)
    talk.remember = typed.add
    screen.footer = talk.footer
    screen.along = functools.lru_cache(maxsize=1)(lambda text: [file.name for file in named_files(text, talk.folder)])
    return talk


async def _say_farewell(talk: Conversation) -> None:
    session_id = talk.need()
    remote = isinstance(talk.engine, RemoteEngine)
    with contextlib.suppress(Gone):
        if (await talk.engine.get_status(session_id)).state in AT_WORK:
            talk.say(
                "the turn goes on in the server" if remote else "the turn is interrupted; what was written is kept"
            )
    talk.say(f"go on with: clew chat {session_id}")


def _look() -> Look:
    from rich.console import Console
    from rich.markdown import Markdown

    own = Console(highlight=False, markup=False, emoji=False)

    def markdown(text: str, width: int) -> str:
        # Links are spelled out: an address that a terminal hides behind words is one nobody has seen.
        with own.capture() as captured:
            own.print(Markdown(text, hyperlinks=False, code_theme="ansi_dark"), width=width)
        return "\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n"))

    return Look(colour=own.color_system is not None and not own.no_color, markdown=markdown)
