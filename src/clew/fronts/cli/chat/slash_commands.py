"""Slash commands: what can be done in a chat beside talking."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Final, TypeAlias

import msgspec

from clew.errors import InvalidInput, MessageNotFound
from clew.fronts.cli.chat.conversation import Conversation
from clew.fronts.cli.command import plural
from clew.fronts.cli.commands.context import gauge
from clew.fronts.cli.commands.history import BEGINNING, draw_tree
from clew.fronts.cli.commands.rules import explained, rule_lines
from clew.fronts.cli.commands.sessions import words_of
from clew.fronts.cli.render import history_lines, pause_reason
from clew.history.rewind import Rewound
from clew.transcript.rule import MODES

__all__ = ["COMMANDS", "Slash", "completions", "run_slash"]


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
    known = {"/model": models, "/switch": sessions, "/mode": MODES}.get(name, ())
    return [f"{name} {word}" for word in known if word.startswith(rest)]


@slash("", "this list")
async def help(chat: Conversation, rest: str) -> None:
    width = max(len(f"/{name} {command.usage}") for name, command in COMMANDS.items())
    for name, command in COMMANDS.items():
        chat.say(f"  {f'/{name} {command.usage}':<{width}}  {command.help}")
    chat.say("  Ctrl-C aborts the turn, a second one leaves. Ctrl-D leaves.")
    chat.say("  A line that ends in \\ goes on in the next one; so does Alt-Enter.")


# Going back


@slash("[N|MSG] [TEXT]", "take back your Nth last message; with a text, say that instead")
async def rewind(chat: Conversation, rest: str) -> None:
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


@slash("", "undo the newest rewind")
async def unrewind(chat: Conversation, rest: str) -> None:
    _moved(chat, await chat.engine.unrewind(chat.need()))


def _moved(chat: Conversation, rewound: Rewound) -> None:
    left = plural(len(rewound.hidden), "message")
    chat.note(f"now at {rewound.head_turn_id or BEGINNING}; {left} left the conversation")


@slash("[MSG]", "go on in a copy of the conversation up to a message")
async def branch(chat: Conversation, rest: str) -> None:
    session_id = chat.need()
    if not rest:
        newest = await chat.engine.messages(session_id, limit=1)
        if not newest:
            raise MessageNotFound("there is nothing to branch from yet")
        rest = newest[-1].id
    await chat.enter(await chat.engine.branch(session_id, rest))


@slash("", "every turn, also those that were left")
async def tree(chat: Conversation, rest: str) -> None:
    page = await chat.engine.tree(chat.need(), limit=500)
    for line in draw_tree(page):
        chat.say(line)
    if page.next_cursor is not None:
        chat.say(f"older turns: clew tree {page.session_id}")


@slash("", "every move of the conversation, newest first")
async def reflog(chat: Conversation, rest: str) -> None:
    for move in await chat.engine.reflog(chat.need(), limit=30):
        at = datetime.fromtimestamp(move.at / 1000, UTC).strftime("%m-%d %H:%M")
        chat.say(f"{move.seq:>4}  {at}  {move.why:<10}  {move.to_turn_id or BEGINNING}  {move.text}".rstrip())


@slash("TURN", "go to any turn")
async def goto(chat: Conversation, rest: str) -> None:
    if not rest:
        raise InvalidInput("name a turn; /tree and /reflog list them")
    _moved(chat, await chat.engine.set_head(chat.need(), None if rest == BEGINNING else rest))


# Room


@slash("[FOCUS]", "summarise the older turns")
async def compact(chat: Conversation, rest: str) -> None:
    session_id = chat.need()

    async def work() -> None:
        done = await chat.engine.compact(session_id, rest or None)
        if not done.compacted:
            chat.note(f"nothing to summarise: {done.tokens_before:,} tokens")

    # Beside the loop, so that it can be watched, aborted and typed at.
    chat.beside(work())


@slash("", "show the model stubs in place of older tool outputs")
async def prune(chat: Conversation, rest: str) -> None:
    done = await chat.engine.prune(chat.need())
    what = f"pruned {done.pruned}: {done.tokens_before:,} → {done.tokens_after:,} tokens"
    chat.note(what if done.compacted else f"nothing to prune: {done.tokens_before:,} tokens")


@slash("", "how full the window is")
async def context(chat: Conversation, rest: str) -> None:
    chat.say(gauge(await chat.engine.context(chat.need(), model=chat.model)))


# Runs


@slash("[M]", "the model, or another one from now on")
async def model(chat: Conversation, rest: str) -> None:
    if not rest:
        chat.say(f"{chat.model_name}; there are {', '.join(chat.models)}")
        return
    if chat.session is not None:
        # Whether there is such a model is found out now, not with the next prompt.
        await chat.engine.context(chat.session.id, model=rest)
    chat.model = rest
    chat.note(f"from now on {rest}")


@slash("[cancel N]", "what waits for its turn")
async def queue(chat: Conversation, rest: str) -> None:
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
    paused = pause_reason(await chat.engine.get_status(chat.need()), "/continue queue goes on, and so does a prompt")
    if paused is not None:
        chat.note(paused)
    if not waiting:
        chat.note("nothing waits")


@slash("[go on]", "stop what runs, or deny what waits; with `go on`, the queue goes on")
async def abort(chat: Conversation, rest: str) -> None:
    if rest not in ("", "go on"):
        raise InvalidInput("write /abort, or /abort go on")
    if not await chat.engine.abort(chat.need(), queue="go_on" if rest else "stay"):
        chat.note("nothing was running")


@slash("[again|queue]", "go on after a failure, an abort or a limit; ask the same again; or the queue alone")
async def continue_(chat: Conversation, rest: str) -> None:
    if rest not in ("", "again", "queue"):
        raise InvalidInput("write /continue, /continue again, or /continue queue")
    await chat.engine.continue_turn(chat.need(), mode="again" if rest == "again" else "on", queue=rest == "queue")


# What it may do


@slash("[revoke ID]", "the rules in force here, or one of yours taken back")
async def rules(chat: Conversation, rest: str) -> None:
    word, _, rule_id = rest.partition(" ")
    if word == "revoke" and rule_id.strip():
        await chat.engine.revoke_rule(rule_id.strip(), session_id=chat.need())
        chat.note("revoked; it is asked about again")
    elif rest:
        raise InvalidInput("write /rules, or /rules revoke ID")
    else:
        for line in rule_lines(await chat.engine.rules(session_id=chat.need())):
            chat.say(line)


@slash("TOOL [TARGET]", "what would be decided about a call, and why")
async def explain(chat: Conversation, rest: str) -> None:
    tool, _, target = rest.partition(" ")
    if not tool:
        raise InvalidInput("name a tool, and what it would be given: /explain bash git push")
    for line in explained(await chat.engine.explain_permission(chat.need(), tool, target.strip())):
        chat.say(line)


@slash("[ask|accept_edits|read_only]", "how freely it works")
async def mode(chat: Conversation, rest: str) -> None:
    session = await chat.engine.get_session(chat.need())
    if rest:
        chosen = next((one for one in MODES if one == rest), None)
        if chosen is None:
            raise InvalidInput(f"there is no mode {rest!r}; there are {', '.join(MODES)}")
        session = await chat.engine.patch_session(session.id, mode=chosen)
    chat.note(f"mode {session.mode}")


# Sessions


@slash("", "the newest sessions")
async def sessions(chat: Conversation, rest: str) -> None:
    page = await chat.engine.list_sessions(limit=20)
    chat.sessions = [session.id for session in page.sessions]
    for session in page.sessions:
        here = "*" if chat.session is not None and session.id == chat.session.id else " "
        chat.say(f"{here} {session.id}  {session.title or '(untitled)'}")


@slash("ID", "go to another session")
async def switch(chat: Conversation, rest: str) -> None:
    if not rest:
        raise InvalidInput("/switch takes the id of a session; /sessions lists them")
    await chat.enter(await chat.engine.get_session(rest))


@slash("", "begin a new session")
async def new(chat: Conversation, rest: str) -> None:
    await chat.enter(None)


@slash("TEXT", "give the session a title")
async def title(chat: Conversation, rest: str) -> None:
    await chat.engine.rename_session(chat.need(), rest)
    chat.note(f"called {rest}" if rest else "without a title")


@slash("", "the whole conversation again")
async def show(chat: Conversation, rest: str) -> None:
    messages = await chat.engine.messages(chat.need())
    chat.terminal.print("".join(history_lines(messages, chat.look, chat.terminal.size[0])))


@slash("", "leave")
async def quit(chat: Conversation, rest: str) -> None:
    chat.leaving = 0
