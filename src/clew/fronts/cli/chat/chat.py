"""``clew chat``: a conversation on a terminal, or through a pipe, with the engine that has the store."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from clew.config import data_folder
from clew.errors import InvalidInput
from clew.fronts.cli.chat.conversation import AT_WORK, Conversation
from clew.fronts.cli.chat.keyboard import Editor
from clew.fronts.cli.chat.screen import Screen
from clew.fronts.cli.chat.slash_commands import completions, run_slash
from clew.fronts.cli.chat.terminal import Pipe, Terminal
from clew.fronts.cli.chat.typed_lines import TypedLines
from clew.fronts.cli.command import open_store
from clew.fronts.cli.remote import RemoteEngine
from clew.fronts.cli.render import Look

# Imports inside a function: what draws Markdown takes long to load, and a conversation through a pipe needs none.

__all__ = ["chat"]


async def chat(store: str | None, session: str | None, model: str | None, new: bool) -> int:
    """Talk until somebody leaves; the exit code."""
    if session is not None and new:
        raise InvalidInput("--new begins a session of its own; leave the id out")
    async with open_store(store, write=True, make=True) as engine:
        talk: Conversation | None = None

        def complete(line: str) -> list[str]:
            return completions(line, talk.models, talk.sessions) if talk is not None else []

        typed = TypedLines(data_folder() / "chat_history")
        attended = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        editor = Editor(await asyncio.to_thread(typed.load) if attended else (), complete)
        terminal: Terminal = Screen(editor) if attended else Pipe()
        look = _look() if attended else Look(colour=False)
        talk = Conversation(engine, terminal, look, run_slash, model)
        if attended:
            talk.remember = typed.add
        # The session that was named, else the newest of this folder; None for a new one.
        first = None if session is None else await engine.get_session(session)
        if first is None and not new:
            here = await asyncio.to_thread(Path.cwd().resolve)
            first = next(iter((await engine.list_sessions(limit=1, workspace=str(here))).sessions), None)
        with terminal.hold():
            code = await talk.talk(first)
        if attended and talk.session is not None and (await engine.get_status(talk.session.id)).state in AT_WORK:
            goes_on = isinstance(engine, RemoteEngine)
            print("the turn goes on in the server" if goes_on else "the turn is interrupted; what was written is kept")
        if talk.session is not None and attended:
            print(f"go on with: clew chat {talk.session.id}")
        return code


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
