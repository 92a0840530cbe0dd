"""Every slash command, in the order of ``/help``: those that go back first, then what is here."""

from __future__ import annotations

from clew.errors import InvalidInput
from clew.fronts.cli.chat import history_commands
from clew.fronts.cli.chat.conversation import Conversation
from clew.fronts.cli.chat.slash import COMMANDS, Slash, completions, run_slash, slash
from clew.fronts.cli.command import plural
from clew.fronts.cli.commands.context import gauge
from clew.fronts.cli.commands.rules import explained, rule_lines, unknown_tool
from clew.fronts.cli.commands.sessions import words_of
from clew.fronts.cli.render import history_lines, pause_reason
from clew.fronts.cli.safe_text import one_line
from clew.transcript.message import Message
from clew.transcript.part import texts_of
from clew.transcript.rule import MODES

__all__ = ["COMMANDS", "Slash", "completions", "history_commands", "run_slash"]

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
