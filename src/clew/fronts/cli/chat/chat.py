"""``clew chat``: a conversation on a terminal, or through a pipe, with the engine that has the store."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path

from clew.errors import ClewError, InvalidInput
from clew.fronts.cli.chat.conversation import AT_WORK, Conversation
from clew.fronts.cli.chat.slash_commands import completions, run_slash
from clew.fronts.cli.chat.terminal import Pipe, Terminal
from clew.fronts.cli.chat.typed_lines import TypedLines
from clew.fronts.cli.command import AnyEngine, find_server, open_store
from clew.fronts.cli.remote import RemoteEngine
from clew.fronts.cli.render import Look
from clew.fronts.cli.wire import Gone

# Imports inside functions: what draws takes long to load, and a conversation through a pipe needs none of it.

__all__ = ["chat", "is_attended"]


async def chat(store: str | None, session: str | None, model: str | None, new: bool) -> int:
    """Talk until somebody leaves; the exit code."""
    if session is not None and new:
        raise InvalidInput("--new begins a session of its own; leave the id out")
    async with open_store(store, write=True, make=True) as engine:
        attended = is_attended()
        here = await asyncio.to_thread(Path.cwd().resolve)
        talk = await _on_screen(engine, store, model, here) if attended else _through_pipe(engine, model)
        # The session that was named, else the newest of this folder; None for a new one.
        first = None if session is None else await engine.get_session(session)
        if first is None and not new:
            first = next(iter((await engine.list_sessions(limit=1, workspace=str(here))).sessions), None)
        async with talk.terminal.hold():
            code = await talk.talk(first)
            if talk.session is not None and attended:
                await _say_farewell(talk)
        return code


def is_attended() -> bool:
    """Somebody sits at a terminal on which can be drawn."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") not in (None, "", "dumb")


def _through_pipe(engine: AnyEngine, model: str | None) -> Conversation:
    return Conversation(engine, Pipe(), Look(colour=False), run_slash, model)


async def _on_screen(engine: AnyEngine, store: str | None, model: str | None, here: Path) -> Conversation:
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

    async def again() -> AnyEngine:
        return await find_server(store) if isinstance(engine, RemoteEngine) else engine

    talk = Conversation(engine, terminal, look, run_slash, model, again)
    talk.remember = typed.add
    screen.footer = talk.footer
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
