"""Slash commands of an editor's prompt, saved prompts among them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from clew.errors import ClewError, MessageNotFound
from clew.fronts.acp.session import OpenSession, Prompt
from clew.session.api import Operations
from clew.session.api.prompts import SavedPrompt
from clew.session.history.rewind import Rewound
from clew.transcript import part as p

__all__ = ["COMMANDS", "available_commands", "find_command"]


class Command(msgspec.Struct, frozen=True):
    """A slash command: its description, a hint at its argument, and a function that returns the stop reason."""

    description: str
    hint: str | None
    run: Callable[[OpenSession, Operations, str, Prompt], Awaitable[str]]


async def _compact(opened: OpenSession, engine: Operations, rest: str, prompt: Prompt) -> str:
    session = await engine.get_session(opened.id)
    running = opened.updates.compacting = f"compaction-{session.updated_at}"
    await opened.updates.send_compaction(running, "in_progress")
    try:
        done = await engine.compact(opened.id, rest or None)
    except (ClewError, asyncio.CancelledError) as error:
        opened.updates.compacting = None
        if prompt.cancelled or isinstance(error, asyncio.CancelledError):
            await opened.updates.send_compaction(running, "cancelled")
        else:
            await opened.updates.send_compaction(running, "failed", error=str(error))
        raise
    if done.message_id is None:
        opened.updates.compacting = None
        await opened.updates.send_compaction(running, "cancelled")
        await opened.say("Nothing to summarise yet.")
    else:
        await opened.send_summary(done.message_id)
        turns = f"{done.turns} earlier turn{'' if done.turns == 1 else 's'}"
        await opened.say(f"Summarised {turns}: {done.tokens_before:,} tokens became {done.tokens_after:,}.")
    return "end_turn"


async def _continue(opened: OpenSession, engine: Operations, rest: str, prompt: Prompt) -> str:
    return await opened.resume(prompt)


async def _retry(opened: OpenSession, engine: Operations, rest: str, prompt: Prompt) -> str:
    return await opened.resume(prompt, "again")


async def _rewind(opened: OpenSession, engine: Operations, rest: str, prompt: Prompt) -> str:
    rest, _, files = rest.partition(" ") if rest != "files" else ("", "", rest)
    prompts = [message for message in await engine.messages(opened.id) if message.is_prompt]
    number = int(rest) if rest.isascii() and rest.isdigit() else int(not rest)
    if not 1 <= number <= len(prompts):
        raise MessageNotFound(f"the conversation has {len(prompts)} of your messages; give a number from 1, the newest")
    target = prompts[-number]
    rewound = await engine.rewind(opened.id, target.id, mode="edit", files="restore" if files == "files" else "keep")
    quoted = p.first_words(" ".join(target.texts), 80)
    await opened.say(
        f"Rewound to before “{quoted}”. The messages after it left the conversation, though this editor may still show "
        "them; /unrewind restores them." + _about_files(rewound)
    )
    return "end_turn"


async def _unrewind(opened: OpenSession, engine: Operations, rest: str, prompt: Prompt) -> str:
    rewound = await engine.unrewind(opened.id, files="restore" if rest == "files" else "keep")
    await opened.say("Restored the conversation from before the rewind." + _about_files(rewound))
    return "end_turn"


def _about_files(rewound: Rewound) -> str:
    """Return a sentence about the files that were restored."""
    if rewound.files is None:
        return ""
    left = rewound.files.conflicts
    others = f"; left alone, changed by another hand: {', '.join(left)}" if left else ""
    return f" Files restored: {len(rewound.files.restored)}{others}."


async def _context(opened: OpenSession, engine: Operations, rest: str, prompt: Prompt) -> str:
    report, session = await engine.context(opened.id), await engine.get_session(opened.id)
    approx = "" if report.measured else "about "
    await opened.say(
        f"{approx}{report.used:,} of {report.limit:,} tokens used; auto-compacts at {report.threshold:,}. "
        f"Cost so far: ${session.spend.cost_usd:.4f} for {session.spend.calls} model calls."
    )
    return "end_turn"


async def _title(opened: OpenSession, engine: Operations, rest: str, prompt: Prompt) -> str:
    session = await engine.rename_session(opened.id, rest)
    await opened.say(f"Title: {session.title}" if session.title else "Title removed.")
    return "end_turn"


COMMANDS: Final[dict[str, Command]] = {
    "compact": Command("Summarise earlier turns now to free context", "what the summary must keep", _compact),
    "continue": Command("Resume a turn that was stopped, failed or reached a limit", None, _continue),
    "retry": Command("Answer the newest prompt again, as another version", None, _retry),
    "rewind": Command(
        "Rewind to before your newest message, or your Nth last", "N, or files to restore them, too", _rewind
    ),
    "unrewind": Command("Undo the newest rewind", "files to restore them, too", _unrewind),
    "context": Command("Show context use and the session's cost", None, _context),
    "title": Command("Set the session's title", "the title", _title),
}


def available_commands(saved: list[SavedPrompt]) -> list[dict[str, Any]]:
    """Return all commands as an editor lists them."""
    listed = [(name, command.description, command.hint) for name, command in COMMANDS.items()]
    listed += [(prompt.name, p.first_words(prompt.text, 80), None) for prompt in saved if prompt.name not in COMMANDS]
    return [
        {"name": name, "description": about, **({"input": {"hint": hint}} if hint else {})}
        for name, about, hint in listed
    ]


def find_command(parts: list[dict[str, Any]], saved: list[SavedPrompt]) -> tuple[Command | None, str]:
    """Return a prompt's command and its argument; for a saved prompt None and the expanded text.

    Any other text that begins with a slash, such as a path, is no command: None and an empty text.
    """
    text = p.text_of(parts[0]) if len(parts) == 1 else None
    if text is None or not text.startswith("/"):
        return None, ""
    name, _, rest = text[1:].partition(" ")
    if name in COMMANDS:
        return COMMANDS[name], rest.strip()
    words = next((prompt.text for prompt in saved if prompt.name == name), "")
    return None, f"{words}\n\n{rest}".strip() if words else ""
