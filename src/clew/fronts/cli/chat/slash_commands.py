"""Slash commands, in the order of ``/help``: first those for history (``history_commands``), then these."""

from __future__ import annotations

from clew.errors import InvalidInput
from clew.fronts.cli.chat import history_commands
from clew.fronts.cli.chat.conversation import Conversation
from clew.fronts.cli.chat.slash import COMMANDS, Slash, completions, run_slash, slash
from clew.fronts.cli.command import plural
from clew.fronts.cli.commands.context import gauge
from clew.fronts.cli.commands.rules import explained, rule_lines, unknown_tool
from clew.fronts.cli.commands.sessions import excerpt
from clew.fronts.cli.render import history_lines, pause_reason
from clew.fronts.cli.safe_text import one_line
from clew.transcript.message import Message
from clew.transcript.part import texts_of
from clew.transcript.rule import MODES

__all__ = ["COMMANDS", "Slash", "completions", "history_commands", "run_slash"]

# Context


@slash("[FOCUS]", "compact older turns into a summary")
async def compact(chat: Conversation, rest: str) -> None:
    session_id = chat.require_session()

    async def work() -> None:
        done = await chat.engine.compact(session_id, rest or None)
        if not done.compacted:
            chat.note(f"nothing to compact: {done.tokens_before:,} tokens")

    # In the background, so that typing and stopping still work.
    chat.run_in_background(work())


@slash("", "replace older tool outputs by stubs in the model's view")
async def prune(chat: Conversation, rest: str) -> None:
    done = await chat.engine.prune(chat.require_session())
    what = f"pruned {done.pruned}: {done.tokens_before:,} → {done.tokens_after:,} tokens"
    chat.note(what if done.compacted else f"nothing to prune: {done.tokens_before:,} tokens")


@slash("", "show context use")
async def context(chat: Conversation, rest: str) -> None:
    chat.say_wrapped(gauge(await chat.engine.context(chat.require_session(), model=chat.model)), "  ", first="")


# Runs


@slash("[M]", "show the model, or switch to another one")
async def model(chat: Conversation, rest: str) -> None:
    if not rest:
        chat.say_wrapped(f"{chat.model_name}; available: {', '.join(chat.models)}", "  ", first="")
        return
    if chat.session is not None:
        # Fail now if the model does not exist, not with the next prompt.
        await chat.engine.context(chat.session.id, model=rest)
    chat.model = rest
    chat.note(f"model: {rest}")
    if chat.session is not None:
        chat.run_in_background(chat.refresh())


@slash("[HOW]", "list queued messages; HOW: cancel N, edit N, now N, move N TO, pause, go on")
async def queue(chat: Conversation, rest: str) -> None:
    engine, session_id = chat.engine, chat.require_session()
    waiting = await engine.queue(session_id)
    word, _, more = rest.partition(" ")
    name, _, words = more.strip().partition(" ")

    def named(position: str) -> Message:
        """Return a queued message by its number, or by its id, which stays the same when the queue changes."""
        for n, message in enumerate(waiting, start=1):
            if position in (str(n), message.id):
                return message
        raise InvalidInput(f"give a number from 1 to {len(waiting)}" if waiting else "no queued messages")

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
        others = [other for other in waiting if other.id != message.id]
        at = max(0, int(words) - 1)
        await engine.move_queued(session_id, message.id, before=others[at].id if at < len(others) else None)
    elif rest in ("pause", "go on"):
        await engine.pause_queue(session_id, paused=rest == "pause")
        if rest == "go on":
            return
    elif rest:
        raise InvalidInput("usage: /queue [cancel N | edit N | now N | move N TO | pause | go on]")
    waiting = await engine.queue(session_id)
    for position, message in enumerate(waiting, start=1):
        chat.say(f"{position:>3}  {excerpt(message)}")
    paused = pause_reason(await chat.engine.get_status(chat.require_session()), "/queue go on to resume")
    if paused is not None:
        chat.note(paused)
    if not waiting:
        chat.note("no queued messages, so nothing to pause" if rest == "pause" else "no queued messages")


@slash("[go on]", "stop the turn, or deny pending requests; with `go on`, resume the queue")
async def abort(chat: Conversation, rest: str) -> None:
    if rest not in ("", "go on"):
        raise InvalidInput("usage: /abort [go on]")
    if not await chat.engine.abort(chat.require_session(), queue="go_on" if rest else "stay"):
        chat.note("nothing was running")


@slash(
    "[again|queue]",
    "resume after a failure, a stop or a limit; `again` repeats the prompt, `queue` resumes only the queue",
)
async def continue_(chat: Conversation, rest: str) -> None:
    if rest not in ("", "again", "queue"):
        raise InvalidInput("usage: /continue [again | queue]")
    await chat.engine.continue_turn(
        chat.require_session(), mode="again" if rest == "again" else "on", queue=rest == "queue"
    )


# Permissions


@slash("[revoke [ID]]", "list the rules in force, or revoke one of yours")
async def rules(chat: Conversation, rest: str) -> None:
    word, _, rule_id = rest.partition(" ")
    if word == "revoke":
        chosen: str | None = rule_id.strip()
        if not chosen:
            own = [rule for rule in await chat.engine.rules(session_id=chat.require_session()) if rule.scope != "agent"]
            if not own:
                chat.note("no rules of yours here; the agent's rules are in its file")
                return
            rows = [(rule.id, f"{rule.scope}  {rule.action}  {rule.permission} {rule.pattern}") for rule in own]
            chosen = await chat.terminal.pick("revoke which rule?", rows)
        if chosen is not None:
            await chat.engine.revoke_rule(chosen, session_id=chat.require_session())
            chat.note("revoked; clew asks again")
    elif rest:
        raise InvalidInput("usage: /rules [revoke [ID]]")
    else:
        for line in rule_lines(await chat.engine.rules(session_id=chat.require_session())):
            chat.say(line)


@slash("TOOL [TARGET]", "explain the permission decision for a call")
async def explain(chat: Conversation, rest: str) -> None:
    tool, _, target = rest.partition(" ")
    if not tool:
        raise InvalidInput("give a tool and its target: /explain bash git push")
    for line in explained(await chat.engine.explain_permission(chat.require_session(), tool, target.strip())):
        chat.say(line)
    if remark := unknown_tool(tool):
        chat.note(remark)


@slash("[ask|accept_edits|read_only]", "show or set the permission mode")
async def mode(chat: Conversation, rest: str) -> None:
    chosen = next((known for known in MODES if known == rest), None)
    if rest and chosen is None:
        raise InvalidInput(f"unknown mode {rest!r}; modes: {', '.join(MODES)}")
    await chat.set_mode(chosen or chat.mode)


# Sessions


@slash("", "list the newest sessions")
async def sessions(chat: Conversation, rest: str) -> None:
    page = await chat.engine.list_sessions(limit=20)
    chat.sessions = [session.id for session in page.sessions]
    for session in page.sessions:
        here = "*" if chat.session is not None and session.id == chat.session.id else " "
        chat.say(f"{here} {session.id}  {session.title or '(untitled)'}")


@slash("[ID]", "switch to another session, by id or from a list")
async def switch(chat: Conversation, rest: str) -> None:
    chosen: str | None = rest
    if not rest:
        page = await chat.engine.list_sessions(limit=200)
        rows = [
            (session.id, f"{session.title or '(untitled)'}  {session.workspace_root or ''}")
            for session in page.sessions
        ]
        chosen = await chat.terminal.pick("switch to which session?", rows)
    if chosen:
        await chat.enter(await chat.engine.get_session(chosen))


@slash("TEXT", "search all sessions, and open a result")
async def search(chat: Conversation, rest: str) -> None:
    if not rest:
        raise InvalidInput("give words to search for: /search the words")
    found = await chat.engine.search(rest, limit=50, wait=True)
    if not found.hits:
        chat.note("no results")
        return
    rows = [
        (hit.session_id, f"{hit.title or '(untitled)'} · {hit.role}: {one_line(hit.snippet.replace('**', ''), 200)}")
        for hit in found.hits
    ]
    chosen = await chat.terminal.pick(f"{plural(len(rows), 'result')} for {rest}", rows)
    if chosen is not None and chosen != (chat.session.id if chat.session is not None else None):
        await chat.enter(await chat.engine.get_session(chosen))


@slash("", "create a new session")
async def new(chat: Conversation, rest: str) -> None:
    await chat.enter(None)


@slash("TEXT", "set the session's title")
async def title(chat: Conversation, rest: str) -> None:
    await chat.engine.rename_session(chat.require_session(), rest)
    chat.note(f"title: {rest}" if rest else "title removed")


@slash("", "print the whole conversation")
async def show(chat: Conversation, rest: str) -> None:
    messages = await chat.engine.messages(chat.require_session())
    chat.terminal.print("".join(history_lines(messages, chat.theme, chat.terminal.size[0])))


@slash("[NAME]", "insert one of your saved prompts into the line")
async def prompts(chat: Conversation, rest: str) -> None:
    saved = {prompt.name: prompt.text for prompt in await chat.engine.prompts()}
    if not saved:
        chat.note("no saved prompts; save one on the page, or as prompts/NAME.md next to your config.toml")
        return
    rows = [(name, f"{name}  {one_line(text, 200)}") for name, text in saved.items()]
    chosen = rest or await chat.terminal.pick("which prompt?", rows)
    if chosen is None:
        return
    if chosen not in saved:
        raise InvalidInput(f"no saved prompt {chosen!r}; saved: {', '.join(saved)}")
    chat.terminal.draft(saved[chosen])


@slash("COMMAND", "run a command in your shell; its output goes to the model with your next message")
async def shell(chat: Conversation, rest: str) -> None:
    if not rest:
        raise InvalidInput("give a command: /shell git status")
    chat.run_in_background(chat.shell.run(rest, chat.folder))


@slash("", "leave the chat")
async def quit(chat: Conversation, rest: str) -> None:
    chat.leaving = 0
