"""Slash commands: what can be done from an editor's prompt beside talking. Saved prompts are among them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from clew.errors import ClewError, MessageNotFound
from clew.fronts.acp.session import OpenSession, Prompt
from clew.session.api import Operations
from clew.session.api.prompts import SavedPrompt
from clew.transcript import part as p

__all__ = ["COMMANDS", "available_commands", "find_command"]


class Command(msgspec.Struct, frozen=True):
    """What it does, how it is written behind its name, and what does it; that gives why the turn stopped."""

    description: str
    hint: str | None
    run: Callable[[OpenSession, Operations, str, Prompt], Awaitable[str]]


async def _compact(opened: OpenSession, engine: Operations, rest: str, prompt: Prompt) -> str:
    session = await engine.get_session(opened.id)
    running = opened.telling.compacting = f"compaction-{session.updated_at}"
    await opened.telling.tell_compaction(running, "in_progress")
    try:
        done = await engine.compact(opened.id, rest or None)
    except (ClewError, asyncio.CancelledError) as error:
        opened.telling.compacting = None
        if prompt.cancelled or isinstance(error, asyncio.CancelledError):
            await opened.telling.tell_compaction(running, "cancelled")
        else:
            await opened.telling.tell_compaction(running, "failed", error=str(error))
        raise
    if done.message_id is None:
        opened.telling.compacting = None
        await opened.telling.tell_compaction(running, "cancelled")
        await opened.say("There is nothing to summarise yet.")
    else:
        await opened.tell_summary(done.message_id)
        turns = f"{done.turns} earlier turn{'' if done.turns == 1 else 's'}"
        await opened.say(f"Summarised {turns}: {done.tokens_before:,} tokens became {done.tokens_after:,}.")
    return "end_turn"


async def _continue(opened: OpenSession, engine: Operations, rest: str, prompt: Prompt) -> str:
    return await opened.go_on(prompt)


async def _retry(opened: OpenSession, engine: Operations, rest: str, prompt: Prompt) -> str:
    return await opened.go_on(prompt, "again")


async def _rewind(opened: OpenSession, engine: Operations, rest: str, prompt: Prompt) -> str:
    spoken = [message for message in await engine.messages(opened.id) if message.is_prompt]
    number = int(rest) if rest.isascii() and rest.isdigit() else int(not rest)
    if not 1 <= number <= len(spoken):
        raise MessageNotFound(
            f"there are {len(spoken)} messages of yours to go back to; say which of the last, such as 1"
        )
    target = spoken[-number]
    await engine.rewind(opened.id, target.id, mode="edit")
    said = p.first_words(" ".join(target.texts), 80)
    await opened.say(
        f"Went back to before “{said}”. What came after it is out of the conversation, though this editor may still "
        "show it; /unrewind brings it back."
    )
    return "end_turn"


async def _unrewind(opened: OpenSession, engine: Operations, rest: str, prompt: Prompt) -> str:
    await engine.unrewind(opened.id)
    await opened.say("The conversation is as it was before the rewind.")
    return "end_turn"


async def _context(opened: OpenSession, engine: Operations, rest: str, prompt: Prompt) -> str:
    report, session = await engine.context(opened.id), await engine.get_session(opened.id)
    kind = "" if report.measured else "about "
    await opened.say(
        f"{kind}{report.used:,} of {report.limit:,} tokens are in use; earlier turns are summarised from "
        f"{report.threshold:,} on. So far ${session.spend.cost_usd:.4f} in {session.spend.calls} model calls."
    )
    return "end_turn"


async def _title(opened: OpenSession, engine: Operations, rest: str, prompt: Prompt) -> str:
    session = await engine.rename_session(opened.id, rest)
    await opened.say(f"The session is called {session.title}." if session.title else "The session has no title.")
    return "end_turn"


COMMANDS: Final[dict[str, Command]] = {
    "compact": Command("Summarise the earlier turns now, to make room", "what matters most", _compact),
    "continue": Command("Go on with a turn that was stopped, failed or came to a limit", None, _continue),
    "retry": Command("Have the newest prompt answered anew, beside the first answer", None, _retry),
    "rewind": Command("Take back your newest message, or your Nth last", "N", _rewind),
    "unrewind": Command("Undo the newest rewind", None, _unrewind),
    "context": Command("How full the model's window is, and what the session has cost", None, _context),
    "title": Command("Give the session a title", "the title", _title),
}


def available_commands(saved: list[SavedPrompt]) -> list[dict[str, Any]]:
    """All there are, as an editor lists them."""
    told = [(name, one.description, one.hint) for name, one in COMMANDS.items()]
    told += [(one.name, p.first_words(one.text, 80), None) for one in saved if one.name not in COMMANDS]
    return [
        {"name": name, "description": about, **({"input": {"hint": hint}} if hint else {})}
        for name, about, hint in told
    ]


def find_command(parts: list[dict[str, Any]], saved: list[SavedPrompt]) -> tuple[Command | None, str]:
    """The command that a prompt is, with what is behind its name; or the words that it stands for.

    A path that begins with a slash is no command, and neither is what nobody knows.
    """
    text = p.text_of(parts[0]) if len(parts) == 1 else None
    if text is None or not text.startswith("/"):
        return None, ""
    name, _, rest = text[1:].partition(" ")
    if name in COMMANDS:
        return COMMANDS[name], rest.strip()
    words = next((one.text for one in saved if one.name == name), "")
    return None, f"{words}\n\n{rest}".strip() if words else ""
