"""Slash commands: what can be done in a chat beside talking. A table; each entry says what it does in one line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from clew.errors import InvalidInput, MessageNotFound
from clew.fronts.cli.chat.conversation import Conversation
from clew.fronts.cli.command import named_model, plural
from clew.fronts.cli.commands.context import gauge
from clew.fronts.cli.commands.history import BEGINNING, drawn
from clew.fronts.cli.commands.sessions import words_of
from clew.fronts.cli.render import history_lines
from clew.history.rewind import Rewound

__all__ = ["COMMANDS", "Slash", "completions", "run_slash"]


class Slash(msgspec.Struct, frozen=True):
    """A command: how it is written after its name, what it does, and what does it."""

    usage: str
    help: str
    run: Callable[[Conversation, str], Awaitable[None]]


async def run_slash(chat: Conversation, line: str) -> None:
    """Do what a line that begins with a slash says."""
    name, _, rest = line[1:].partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        raise InvalidInput(f"there is no /{name}; /help lists what there is")
    await command.run(chat, rest.strip())


def completions(line: str, models: Sequence[str], sessions: Sequence[str]) -> list[str]:
    """The lines that a beginning could become."""
    name, space, rest = line.partition(" ")
    if not line.startswith("/"):
        return []
    if not space:
        return [
            f"/{known} " if command.usage else f"/{known}"
            for known, command in COMMANDS.items()
            if f"/{known}".startswith(name)
        ]
    known = {"/model": models, "/switch": sessions}.get(name, ())
    return [f"{name} {word}" for word in known if word.startswith(rest)]


async def _help(chat: Conversation, rest: str) -> None:
    width = max(len(f"/{name} {command.usage}") for name, command in COMMANDS.items())
    for name, command in COMMANDS.items():
        chat.say(f"  {f'/{name} {command.usage}':<{width}}  {command.help}")
    chat.say("  Ctrl-C aborts the turn, a second one leaves. Ctrl-D leaves.")
    chat.say("  A line that ends in \\ goes on in the next one; so does Alt-Enter.")


# Going back


async def _rewind(chat: Conversation, rest: str) -> None:
    session_id = chat.need()
    which, _, text = rest.partition(" ")
    spoken = [m for m in await chat.engine.messages(session_id) if m.is_prompt]
    which = which or "1"
    if which.isascii() and which.isdigit():
        if not 1 <= int(which) <= len(spoken):
            count = plural(len(spoken), "message")
            raise MessageNotFound(f"only {count} of yours in sight to go back to; /tree and /goto reach the others")
        which = spoken[-int(which)].id
    text = text.strip()
    rewound = await chat.engine.rewind(session_id, which, mode="edit", text=text or None, run=bool(text))
    chat.forget(rewound.hidden)
    _moved(chat, rewound)
    if rewound.submission is None and rewound.draft is not None:
        chat.terminal.draft(rewound.draft)


async def _unrewind(chat: Conversation, rest: str) -> None:
    _moved(chat, await chat.engine.unrewind(chat.need()))


async def _goto(chat: Conversation, rest: str) -> None:
    if not rest:
        raise InvalidInput("name a turn; /tree and /reflog list them")
    _moved(chat, await chat.engine.set_head(chat.need(), None if rest == BEGINNING else rest))


def _moved(chat: Conversation, rewound: Rewound) -> None:
    left = plural(len(rewound.hidden), "message")
    chat.note(f"now at {rewound.head_turn_id or BEGINNING}; {left} left the conversation")


async def _branch(chat: Conversation, rest: str) -> None:
    session_id = chat.need()
    if not rest:
        newest = await chat.engine.messages(session_id, limit=1)
        if not newest:
            raise MessageNotFound("there is nothing to branch from yet")
        rest = newest[-1].id
    await chat.enter(await chat.engine.branch(session_id, rest))


async def _tree(chat: Conversation, rest: str) -> None:
    for line in drawn(await chat.engine.tree(chat.need())):
        chat.say(line)


async def _reflog(chat: Conversation, rest: str) -> None:
    for move in (await chat.engine.reflog(chat.need()))[:30]:
        at = datetime.fromtimestamp(move.at / 1000, UTC).strftime("%m-%d %H:%M")
        chat.say(f"{move.seq:>4}  {at}  {move.why:<10}  {move.to_turn_id or BEGINNING}  {move.text}".rstrip())


# Room


async def _compact(chat: Conversation, rest: str) -> None:
    session_id = chat.need()

    async def work() -> None:
        done = await chat.engine.compact(session_id, rest or None)
        if not done.compacted:
            chat.note(f"nothing to summarise: {done.tokens_before:,} tokens")

    # Beside the loop, so that it can be watched, aborted and typed at.
    chat.beside(work())


async def _prune(chat: Conversation, rest: str) -> None:
    done = await chat.engine.prune(chat.need())
    what = f"pruned {done.pruned}: {done.tokens_before:,} → {done.tokens_after:,} tokens"
    chat.note(what if done.compacted else f"nothing to prune: {done.tokens_before:,} tokens")


async def _context(chat: Conversation, rest: str) -> None:
    chat.say(gauge(await chat.engine.context(chat.need())))


# Runs


async def _model(chat: Conversation, rest: str) -> None:
    if not rest:
        chat.say(f"{chat.model_name}; there are {', '.join(chat.models)}")
        return
    model = named_model(rest)
    if chat.session is not None:
        # Whether there is such a model is found out now, not with the next prompt.
        known = rest if isinstance(model, str) else rest.rpartition(":")[0]
        await chat.engine.context(chat.session.id, model=known)
    chat.model = model
    chat.note(f"from now on {rest}")


async def _queue(chat: Conversation, rest: str) -> None:
    waiting = await chat.engine.queue(chat.need())
    word, _, number = rest.partition(" ")
    if word == "cancel":
        number = number.strip() or "1"
        if not (number.isascii() and number.isdigit() and 1 <= int(number) <= len(waiting)):
            raise InvalidInput(f"name one of the {len(waiting)} that wait, by its number")
        await chat.engine.cancel_queued(chat.need(), waiting.pop(int(number) - 1).id)
    elif rest:
        raise InvalidInput("write /queue, or /queue cancel N")
    for place, message in enumerate(waiting, start=1):
        chat.say(f"{place:>3}  {words_of(message)}")
    if not waiting:
        chat.note("nothing waits")


async def _abort(chat: Conversation, rest: str) -> None:
    if not await chat.engine.abort(chat.need()):
        chat.note("nothing was running")


async def _continue(chat: Conversation, rest: str) -> None:
    await chat.engine.continue_turn(chat.need())


# Sessions


async def _sessions(chat: Conversation, rest: str) -> None:
    page = await chat.engine.list_sessions(limit=20)
    chat.sessions = [session.id for session in page.sessions]
    for session in page.sessions:
        here = "*" if chat.session is not None and session.id == chat.session.id else " "
        chat.say(f"{here} {session.id}  {session.title or '(untitled)'}")


async def _switch(chat: Conversation, rest: str) -> None:
    if not rest:
        raise InvalidInput("/switch takes the id of a session; /sessions lists them")
    await chat.enter(await chat.engine.get_session(rest))


async def _new(chat: Conversation, rest: str) -> None:
    await chat.enter(None)


async def _title(chat: Conversation, rest: str) -> None:
    await chat.engine.rename_session(chat.need(), rest)
    chat.note(f"called {rest}" if rest else "without a title")


async def _show(chat: Conversation, rest: str) -> None:
    messages = await chat.engine.messages(chat.need())
    chat.terminal.print("".join(history_lines(messages, chat.look, chat.terminal.size[0])))


async def _quit(chat: Conversation, rest: str) -> None:
    chat.leaving = 0


COMMANDS: Final[Mapping[str, Slash]] = {
    "help": Slash("", "this list", _help),
    "rewind": Slash("[N|MSG] [TEXT]", "take back your Nth last message; with a text, say that instead", _rewind),
    "unrewind": Slash("", "undo the newest rewind", _unrewind),
    "branch": Slash("[MSG]", "go on in a copy of the conversation up to a message", _branch),
    "tree": Slash("", "every turn, also those that were left", _tree),
    "reflog": Slash("", "every move of the conversation, newest first", _reflog),
    "goto": Slash("TURN", "go to any turn", _goto),
    "compact": Slash("[FOCUS]", "summarise the older turns", _compact),
    "prune": Slash("", "show the model stubs in place of older tool outputs", _prune),
    "context": Slash("", "how full the window is", _context),
    "model": Slash("[M]", "the model, or another one from now on", _model),
    "queue": Slash("[cancel N]", "what waits for its turn", _queue),
    "abort": Slash("", "stop what runs, or deny what waits", _abort),
    "continue": Slash("", "go on after a failure, an abort, the step limit or a cut answer", _continue),
    "sessions": Slash("", "the newest sessions", _sessions),
    "switch": Slash("ID", "go to another session", _switch),
    "new": Slash("", "begin a new session", _new),
    "title": Slash("TEXT", "give the session a title", _title),
    "show": Slash("", "the whole conversation again", _show),
    "quit": Slash("", "leave", _quit),
}
