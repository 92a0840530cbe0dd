"""Slash commands: what can be done in a chat beside talking."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Final, TypeAlias

import msgspec

from clew.errors import InvalidInput, MessageNotFound
from clew.fronts.cli.chat.conversation import Conversation
from clew.fronts.cli.chat.versions import compared, list_versions, newest_below
from clew.fronts.cli.command import plural
from clew.fronts.cli.commands.context import gauge
from clew.fronts.cli.commands.history import BEGINNING, draw_tree
from clew.fronts.cli.commands.rules import explained, rule_lines, unknown_tool
from clew.fronts.cli.commands.sessions import words_of
from clew.fronts.cli.diff import diff_line
from clew.fronts.cli.render import history_lines, pause_reason
from clew.fronts.cli.safe_text import one_line
from clew.history.rewind import Rewound
from clew.history.tree import TreeTurn
from clew.transcript.message import Message
from clew.transcript.part import texts_of
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
    if rewound.submission is not None:
        # What is said instead is shown in a moment, and shows where.
        chat.note(_left(rewound))
        return
    await _moved(chat, rewound, "; /unrewind undoes that")
    if rewound.draft is not None:
        chat.terminal.draft(rewound.draft)


@slash("[TEXT]", "change one of your messages; with a text, the newest, which is answered anew")
async def edit(chat: Conversation, rest: str) -> None:
    if rest:
        await rewind(chat, f"1 {rest}")
        return
    spoken = [m for m in await chat.engine.messages(chat.need()) if m.is_prompt]
    chosen = await chat.terminal.pick("change which message?", [(m.id, words_of(m, 200)) for m in reversed(spoken)])
    if chosen is not None:
        await rewind(chat, chosen)


@slash("[MODEL]", "answer your newest message again, beside what came of it; with a model, by that")
async def regenerate(chat: Conversation, rest: str) -> None:
    newest = [m for m in await chat.engine.messages(chat.need()) if m.is_prompt][-1:]
    if not newest:
        raise MessageNotFound("nothing was said here yet")
    if chosen := rest or chat.model:
        # Another model is another message, with the same in it.
        same = newest[0].parts
        rewound = await chat.engine.rewind(chat.need(), newest[0].id, mode="edit", parts=same, model=chosen, run=True)
    else:
        rewound = await chat.engine.rewind(chat.need(), newest[0].id, run=True)
    chat.forget(rewound.hidden)


@slash("[N]", "the versions of the newest turn; the Nth, to go to it")
async def versions(chat: Conversation, rest: str) -> None:
    found = await list_versions(chat.engine, chat.need())
    if len(found) < 2:
        chat.note("there is one version of this; /edit and /regenerate make another")
        return
    chosen = _numbered(found, rest) if rest else await chat.terminal.pick("which version?", _version_rows(found))
    if chosen is None:
        return
    moved = await chat.engine.set_head(chat.need(), await newest_below(chat.engine, chat.need(), chosen))
    chat.forget(moved.hidden)
    place = next(n for n, turn in enumerate(found, start=1) if turn.id == chosen)
    chat.note(f"‹ {place}/{len(found)} ›")
    messages = await chat.engine.turn_messages(chosen)
    chat.terminal.print("".join(history_lines(messages, chat.look, chat.terminal.size[0])))
    chat.beside(chat.refresh())


@slash("[N]", "what differs between this version of the newest turn and another")
async def compare(chat: Conversation, rest: str) -> None:
    found = await list_versions(chat.engine, chat.need())
    here = next((turn.id for turn in found if turn.on_line), None)
    others = [turn for turn in found if turn.id != here]
    if here is None or not others:
        chat.note("there is one version of this; /edit and /regenerate make another")
        return
    other = _numbered(found, rest) if rest else others[-1].id
    names = [f"version {next(n for n, t in enumerate(found, start=1) if t.id == one)}" for one in (other, here)]
    before, after = await chat.engine.turn_messages(other), await chat.engine.turn_messages(here)
    lines = list(compared(before, after, (names[0], names[1])))
    for line in lines:
        chat.terminal.print(diff_line(line, chat.look) + "\n")
    if not lines:
        chat.note("the two say the same")


def _version_rows(found: Sequence[TreeTurn]) -> list[tuple[str, str]]:
    return [
        (turn.id, f"{place}  {turn.text}{'  (here)' if turn.on_line else ''}")
        for place, turn in enumerate(found, start=1)
    ]


def _numbered(found: Sequence[TreeTurn], word: str) -> str:
    if not (word.isascii() and word.isdigit() and 1 <= int(word) <= len(found)):
        raise InvalidInput(f"name one of the {len(found)} versions, by its number")
    return found[int(word) - 1].id


@slash("", "undo the newest rewind")
async def unrewind(chat: Conversation, rest: str) -> None:
    await _moved(chat, await chat.engine.unrewind(chat.need()))


async def _moved(chat: Conversation, rewound: Rewound, way_back: str = "") -> None:
    """Where the conversation is now, in its own words."""
    place = "at the beginning"
    if rewound.head_turn_id is not None:
        turn = await chat.engine.turn_messages(rewound.head_turn_id)
        said = next((words_of(message, 40) for message in turn if message.is_prompt), None)
        place = "after the summary" if said is None else f"after “{said}”"
    chat.note(f"now {place}{f'; {_left(rewound)}' if rewound.hidden else ''}{way_back}")


def _left(rewound: Rewound) -> str:
    return f"{plural(len(rewound.hidden), 'message')} left the conversation"


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
    await _moved(chat, await chat.engine.set_head(chat.need(), None if rest == BEGINNING else rest))


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
    chat.say_below(gauge(await chat.engine.context(chat.need(), model=chat.model)), "  ", first="")


# Runs


@slash("[M]", "the model, or another one from now on")
async def model(chat: Conversation, rest: str) -> None:
    if not rest:
        chat.say_below(f"{chat.model_name}; there are {', '.join(chat.models)}", "  ", first="")
        return
    if chat.session is not None:
        # Whether there is such a model is found out now, not with the next prompt.
        await chat.engine.context(chat.session.id, model=rest)
    chat.model = rest
    chat.note(f"from now on {rest}")
    if chat.session is not None:
        chat.beside(chat.refresh())


@slash("[HOW]", "what waits for its turn; HOW is cancel N, edit N, now N, move N TO, pause or go on")
async def queue(chat: Conversation, rest: str) -> None:
    engine, session_id = chat.engine, chat.need()
    waiting = await engine.queue(session_id)
    word, _, more = rest.partition(" ")
    name, _, words = more.strip().partition(" ")

    def named(place: str) -> Message:
        """One that waits, by its number; by its id where a number may mean another one by the time it is sent."""
        for n, message in enumerate(waiting, start=1):
            if place in (str(n), message.id):
                return message
        raise InvalidInput(f"name one of the {len(waiting)} that wait, by its number")

    if word == "cancel":
        await engine.cancel_queued(session_id, named(name or "1").id)
    elif word == "edit" and words:
        await engine.edit_queued(session_id, named(name).id, words)
    elif word == "edit":
        message = named(name or "1")
        chat.terminal.draft(f"/queue edit {message.id} " + "\n".join(texts_of(message.parts)))
        return
    elif word == "now":
        await engine.send_queued(session_id, named(name or "1").id)
        return
    elif word == "move" and words.isascii() and words.isdigit():
        message = named(name)
        others = [one for one in waiting if one.id != message.id]
        at = max(0, int(words) - 1)
        await engine.move_queued(session_id, message.id, before=others[at].id if at < len(others) else None)
    elif rest in ("pause", "go on"):
        await engine.pause_queue(session_id, paused=rest == "pause")
        if rest == "go on":
            return
    elif rest:
        raise InvalidInput("write /queue, and cancel N, edit N, now N, move N TO, pause or go on behind it")
    waiting = await engine.queue(session_id)
    for place, message in enumerate(waiting, start=1):
        chat.say(f"{place:>3}  {words_of(message)}")
    paused = pause_reason(await chat.engine.get_status(chat.need()), "/queue go on ends it")
    if paused is not None:
        chat.note(paused)
    if not waiting:
        chat.note("nothing waits, so nothing is paused" if rest == "pause" else "nothing waits")


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


@slash("[revoke [ID]]", "the rules in force here, or one of yours taken back")
async def rules(chat: Conversation, rest: str) -> None:
    word, _, rule_id = rest.partition(" ")
    if word == "revoke":
        chosen: str | None = rule_id.strip()
        if not chosen:
            own = [rule for rule in await chat.engine.rules(session_id=chat.need()) if rule.scope != "agent"]
            if not own:
                chat.note("there is no rule of yours here; those of the agent are in its file")
                return
            rows = [(one.id, f"{one.scope}  {one.action}  {one.permission} {one.pattern}") for one in own]
            chosen = await chat.terminal.pick("revoke which rule?", rows)
        if chosen is not None:
            await chat.engine.revoke_rule(chosen, session_id=chat.need())
            chat.note("revoked; it is asked about again")
    elif rest:
        raise InvalidInput("write /rules, or /rules revoke [ID]")
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
    if remark := unknown_tool(tool):
        chat.note(remark)


@slash("[ask|accept_edits|read_only]", "how freely it works")
async def mode(chat: Conversation, rest: str) -> None:
    chosen = next((one for one in MODES if one == rest), None)
    if rest and chosen is None:
        raise InvalidInput(f"there is no mode {rest!r}; there are {', '.join(MODES)}")
    await chat.set_mode(chosen or chat.mode)


# Sessions


@slash("", "the newest sessions")
async def sessions(chat: Conversation, rest: str) -> None:
    page = await chat.engine.list_sessions(limit=20)
    chat.sessions = [session.id for session in page.sessions]
    for session in page.sessions:
        here = "*" if chat.session is not None and session.id == chat.session.id else " "
        chat.say(f"{here} {session.id}  {session.title or '(untitled)'}")


@slash("[ID]", "go to another session, named or chosen from the newest")
async def switch(chat: Conversation, rest: str) -> None:
    chosen: str | None = rest
    if not rest:
        page = await chat.engine.list_sessions(limit=200)
        rows = [(one.id, f"{one.title or '(untitled)'}  {one.workspace_root or ''}") for one in page.sessions]
        chosen = await chat.terminal.pick("go to which session?", rows)
    if chosen:
        await chat.enter(await chat.engine.get_session(chosen))


@slash("TEXT", "find words in all sessions, and go to where they were said")
async def search(chat: Conversation, rest: str) -> None:
    if not rest:
        raise InvalidInput("say what to look for: /search the words")
    found = await chat.engine.search(rest, limit=50, wait=True)
    if not found.hits:
        chat.note("nothing was found")
        return
    rows = [
        (hit.session_id, f"{hit.title or '(untitled)'} · {hit.role}: {one_line(hit.snippet.replace('**', ''), 200)}")
        for hit in found.hits
    ]
    chosen = await chat.terminal.pick(f"{plural(len(rows), 'place')} with {rest}", rows)
    if chosen is not None and chosen != (chat.session.id if chat.session is not None else None):
        await chat.enter(await chat.engine.get_session(chosen))


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


@slash("[NAME]", "one of your saved prompts, put where you write")
async def prompts(chat: Conversation, rest: str) -> None:
    kept = {one.name: one.text for one in await chat.engine.prompts()}
    if not kept:
        chat.note("none are saved; save one on the page, or write it to prompts/NAME.md beside your config.toml")
        return
    rows = [(name, f"{name}  {one_line(text, 200)}") for name, text in kept.items()]
    chosen = rest or await chat.terminal.pick("which prompt?", rows)
    if chosen is None:
        return
    if chosen not in kept:
        raise InvalidInput(f"there is no saved prompt {chosen!r}; there are {', '.join(kept)}")
    chat.terminal.draft(kept[chosen])


@slash("COMMAND", "run something in your own shell; the model is told with your next message")
async def shell(chat: Conversation, rest: str) -> None:
    if not rest:
        raise InvalidInput("say what to run: /shell git status")
    chat.beside(chat.shell.run(rest, chat.folder))


@slash("", "leave")
async def quit(chat: Conversation, rest: str) -> None:
    chat.leaving = 0
