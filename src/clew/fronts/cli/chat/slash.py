"""The table of slash commands, their dispatch and their completion."""

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
    """A command: its arguments, its help and its function."""

    usage: str
    help: str
    run: Run


COMMANDS: Final[dict[str, Slash]] = {}
"""All commands by name, in the order of ``/help``."""


def slash(usage: str, help: str) -> Callable[[Run], Run]:
    """Register a function as the command of its name."""

    def add(run: Run) -> Run:
        COMMANDS[run.__name__.strip("_")] = Slash(usage, help, run)
        return run

    return add


async def run_slash(chat: Conversation, line: str) -> None:
    """Run a line that begins with a slash."""
    name, _, rest = line[1:].partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        raise InvalidInput(f"unknown command /{name}; type /help for commands")
    await command.run(chat, rest.strip())


def completions(line: str, chat: Conversation) -> list[tuple[str, str]]:
    """Return the completions of a line, each with a description."""
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
    "Esc stops the turn and pauses the queue. Esc twice, while nothing runs, edits one of your messages.",
    "Ctrl-C stops the turn; a second one leaves. Ctrl-D leaves. Shift-Tab switches the mode.",
    "Alt-Enter, or \\ at the end of a line, begins a new line. Ctrl-X Ctrl-E opens your editor.",
    "Ctrl-R searches the history of this folder. Tab completes. //… sends a text that begins with a slash.",
    "@path attaches a file; so does the path of an image. !command runs in your shell; its output goes to the model.",
)


@slash("", "show this list")
async def help(chat: Conversation, rest: str) -> None:
    usages = {name: f"  /{name} {command.usage}".rstrip() for name, command in COMMANDS.items()}
    column = max(map(len, usages.values())) + 2
    # On a narrow terminal the descriptions go below the commands.
    narrow = chat.terminal.attended and chat.terminal.size[0] < column + 30
    for name, usage in usages.items():
        if narrow:
            chat.say(usage)
            chat.say_wrapped(COMMANDS[name].help, " " * 6)
        else:
            chat.say_wrapped(COMMANDS[name].help, " " * column, first=f"{usage:<{column}}")
    for keys in _KEYS:
        chat.say_wrapped(keys, "  ")
