"""Slash commands: the table of what can be done in a chat beside talking, and how a line finds its command."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import msgspec

from clew.errors import InvalidInput
from clew.fronts.cli.chat.conversation import Conversation
from clew.transcript.rule import MODES

__all__ = ["COMMANDS", "Slash", "completions", "run_slash", "slash"]

Run: TypeAlias = Callable[[Conversation, str], Awaitable[None]]


class Slash(msgspec.Struct, frozen=True):
    """A command: how it is written after its name, what it does, and what does it."""

    usage: str
    help: str
    run: Run


COMMANDS: Final[dict[str, Slash]] = {}
"""Every command by its name, in the order of ``/help``."""


def slash(usage: str, help: str) -> Callable[[Run], Run]:
    """Make a function a command of its name."""

    def add(run: Run) -> Run:
        COMMANDS[run.__name__.strip("_")] = Slash(usage, help, run)
        return run

    return add


async def run_slash(chat: Conversation, line: str) -> None:
    """Do what a line that begins with a slash says."""
    name, _, rest = line[1:].partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        raise InvalidInput(f"there is no /{name}; /help lists what there is")
    await command.run(chat, rest.strip())


def completions(line: str, chat: Conversation) -> list[tuple[str, str]]:
    """The lines that a beginning could become, each with a word about it."""
    name, space, rest = line.partition(" ")
    if not line.startswith("/"):
        return []
    if not space:
        return [
            (f"/{known} " if command.usage else f"/{known}", command.help)
            for known, command in COMMANDS.items()
            if f"/{known}".startswith(name)
        ]
    taken = {"/model": chat.models, "/regenerate": chat.models, "/switch": chat.sessions, "/mode": MODES}.get(name, ())
    return [(f"{name} {word}", "") for word in taken if word.startswith(rest)]


_KEYS: Final = (
    "Esc stops the turn and pauses the queue; twice, with nothing running, it offers your words to be changed.",
    "Ctrl-C stops the turn, a second one leaves. Ctrl-D leaves. Shift-Tab takes the next mode.",
    "A line that ends in \\ goes on in the next one; so does Alt-Enter. Ctrl-X Ctrl-E opens your editor.",
    "Ctrl-R searches what you typed in this folder. Tab completes. //… says something that begins with a slash.",
    "@path sends a file along, and so does the path of an image. !command runs in your shell, and the model is told.",
)


@slash("", "this list")
async def help(chat: Conversation, rest: str) -> None:
    usages = {name: f"  /{name} {command.usage}".rstrip() for name, command in COMMANDS.items()}
    column = max(map(len, usages.values())) + 2
    # Where there is no room beside the commands, what they do is said below them.
    narrow = chat.terminal.attended and chat.terminal.size[0] < column + 30
    for name, usage in usages.items():
        if narrow:
            chat.say(usage)
            chat.say_below(COMMANDS[name].help, " " * 6)
        else:
            chat.say_below(COMMANDS[name].help, " " * column, first=f"{usage:<{column}}")
    for keys in _KEYS:
        chat.say_below(keys, "  ")
