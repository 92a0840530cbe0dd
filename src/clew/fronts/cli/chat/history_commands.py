"""Slash commands for history: rewinds, versions, branches and the tree of turns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from clew.errors import ClewError, InvalidInput, MessageNotFound
from clew.fronts.cli.chat.conversation import Conversation
from clew.fronts.cli.chat.slash import slash
from clew.fronts.cli.chat.versions import diff_versions, list_versions, newest_descendant
from clew.fronts.cli.command import plural
from clew.fronts.cli.commands.files import changes_lines, preview_lines
from clew.fronts.cli.commands.history import BEGINNING, draw_tree, restored_lines
from clew.fronts.cli.commands.sessions import excerpt
from clew.fronts.cli.render import diff_line, history_lines
from clew.session.history.file_values import FILES_MODES, FilesMode
from clew.session.history.rewind import Rewound
from clew.session.history.tree import TreeTurn

_MAX_PREVIEW_LINES: Final = 20


@slash("[N|MSG] [TEXT]", "rewind to before your Nth last message; with TEXT, send that instead")
async def rewind(chat: Conversation, rest: str) -> None:
    session_id = chat.require_session()
    which, _, text = rest.partition(" ")
    prompts = [m for m in await chat.engine.messages(session_id) if m.is_prompt]
    which = which or "1"
    if which.isascii() and which.isdigit():
        if not 1 <= int(which) <= len(prompts):
            count = plural(len(prompts), "message")
            raise MessageNotFound(f"the conversation has only {count} of yours; see /tree and /goto for others")
        which = prompts[-int(which)].id
    text = text.strip()
    files = await _choose_files(chat, session_id, which, run=bool(text))
    if files is None:
        chat.note("nothing was rewound")
        return
    if files == "only":
        _note_files(chat, await chat.engine.rewind(session_id, which, files=files))
        return
    rewound = await chat.engine.rewind(session_id, which, mode="edit", text=text or None, run=bool(text), files=files)
    chat.forget(rewound.hidden)
    _note_files(chat, rewound)
    if rewound.submission is not None:
        # The replacement is printed in a moment, and shows the position.
        chat.note(_hidden_count(rewound))
        return
    await _note_head(chat, rewound, "; /unrewind to undo")
    if rewound.draft is not None:
        chat.terminal.draft(rewound.draft)


async def _choose_files(chat: Conversation, session_id: str, message_id: str, *, run: bool) -> FilesMode | None:
    """Ask what happens to the files that have changed since a message; None cancels the rewind.

    Without a person who can choose, files stay as they are.
    """
    try:
        preview = await chat.engine.preview_restore(session_id, message_id=message_id)
    except ClewError:
        return "keep"  # snapshots are off, or the message is refused in a moment
    if not preview.files:
        return "keep"
    lines = preview_lines(preview)
    for line in lines[:_MAX_PREVIEW_LINES]:
        chat.say(f"  {line}")
    if len(lines) > _MAX_PREVIEW_LINES:
        chat.say(f"  … and {len(lines) - _MAX_PREVIEW_LINES} more")
    choices = [("keep", "Conversation only"), ("restore", "Conversation and files"), ("only", "Files only")]
    changed = plural(len(preview.files), "file")
    chosen = await chat.terminal.pick(f"{changed} changed since then: what goes back?", choices[: 2 if run else 3])
    if not chat.terminal.attended:
        return "keep"
    return next((mode for mode in FILES_MODES if mode == chosen), None)


def _note_files(chat: Conversation, rewound: Rewound) -> None:
    for line in restored_lines(rewound.files) if rewound.files is not None else ():
        chat.note(line)


@slash("[TEXT]", "edit one of your messages; with TEXT, replace the newest and answer it")
async def edit(chat: Conversation, rest: str) -> None:
    if rest:
        await rewind(chat, f"1 {rest}")
        return
    prompts = [m for m in await chat.engine.messages(chat.require_session()) if m.is_prompt]
    chosen = await chat.terminal.pick("edit which message?", [(m.id, excerpt(m, 200)) for m in reversed(prompts)])
    if chosen is not None:
        await rewind(chat, chosen)


@slash("[MODEL]", "answer your newest message again as another version, optionally with MODEL")
async def regenerate(chat: Conversation, rest: str) -> None:
    newest = [m for m in await chat.engine.messages(chat.require_session()) if m.is_prompt][-1:]
    if not newest:
        raise MessageNotFound("no messages yet")
    if chosen := rest or chat.model:
        # A message names its model, so another model needs a new message with the same parts.
        same = newest[0].parts
        rewound = await chat.engine.rewind(
            chat.require_session(), newest[0].id, mode="edit", parts=same, model=chosen, run=True
        )
    else:
        rewound = await chat.engine.rewind(chat.require_session(), newest[0].id, run=True)
    chat.forget(rewound.hidden)


@slash("[N]", "list the versions of the newest turn; with N, switch to that one")
async def versions(chat: Conversation, rest: str) -> None:
    found = await list_versions(chat.engine, chat.require_session())
    if len(found) < 2:
        chat.note("there is only one version; /edit and /regenerate make another")
        return
    chosen = _parse_number(found, rest) if rest else await chat.terminal.pick("which version?", _version_rows(found))
    if chosen is None:
        return
    moved = await chat.engine.set_head(
        chat.require_session(), await newest_descendant(chat.engine, chat.require_session(), chosen)
    )
    chat.forget(moved.hidden)
    number = next(n for n, turn in enumerate(found, start=1) if turn.id == chosen)
    chat.note(f"‹ {number}/{len(found)} ›")
    messages = await chat.engine.turn_messages(chosen)
    chat.terminal.print("".join(history_lines(messages, chat.theme, chat.terminal.size[0])))
    chat.run_in_background(chat.refresh())


@slash("[N]", "compare this version of the newest turn with another one")
async def compare(chat: Conversation, rest: str) -> None:
    found = await list_versions(chat.engine, chat.require_session())
    here = next((turn.id for turn in found if turn.on_line), None)
    others = [turn for turn in found if turn.id != here]
    if here is None or not others:
        chat.note("there is only one version; /edit and /regenerate make another")
        return
    other = _parse_number(found, rest) if rest else others[-1].id
    names = [f"version {next(n for n, t in enumerate(found, start=1) if t.id == one)}" for one in (other, here)]
    before, after = await chat.engine.turn_messages(other), await chat.engine.turn_messages(here)
    lines = list(diff_versions(before, after, (names[0], names[1])))
    for line in lines:
        chat.terminal.print(diff_line(line, chat.theme) + "\n")
    if not lines:
        chat.note("identical")


def _version_rows(found: Sequence[TreeTurn]) -> list[tuple[str, str]]:
    return [
        (turn.id, f"{place}  {turn.text}{'  (here)' if turn.on_line else ''}")
        for place, turn in enumerate(found, start=1)
    ]


def _parse_number(found: Sequence[TreeTurn], word: str) -> str:
    if not (word.isascii() and word.isdigit() and 1 <= int(word) <= len(found)):
        raise InvalidInput(f"give a number from 1 to {len(found)}")
    return found[int(word) - 1].id


@slash("[files]", "undo the newest rewind; with files, bring those back that it restored, too")
async def unrewind(chat: Conversation, rest: str) -> None:
    if rest not in ("", "files"):
        raise InvalidInput("give nothing, or files")
    rewound = await chat.engine.unrewind(chat.require_session(), files="restore" if rest else "keep")
    _note_files(chat, rewound)
    await _note_head(chat, rewound)


async def _note_head(chat: Conversation, rewound: Rewound, way_back: str = "") -> None:
    """Print the new position, by the message it follows."""
    position = "at the beginning"
    if rewound.head_turn_id is not None:
        turn = await chat.engine.turn_messages(rewound.head_turn_id)
        quoted = next((excerpt(message, 40) for message in turn if message.is_prompt), None)
        position = "after the summary" if quoted is None else f"after “{quoted}”"
    chat.note(f"now {position}{f'; {_hidden_count(rewound)}' if rewound.hidden else ''}{way_back}")


def _hidden_count(rewound: Rewound) -> str:
    return f"{plural(len(rewound.hidden), 'message')} left the conversation"


@slash("[MSG]", "continue in a copy of the conversation up to a message")
async def branch(chat: Conversation, rest: str) -> None:
    session_id = chat.require_session()
    if not rest:
        newest = await chat.engine.messages(session_id, limit=1)
        if not newest:
            raise MessageNotFound("no messages to branch from yet")
        rest = newest[-1].id
    await chat.enter(await chat.engine.branch(session_id, rest))


@slash("", "list the files that the session changed")
async def changes(chat: Conversation, rest: str) -> None:
    for line in changes_lines(await chat.engine.changes(chat.require_session())):
        chat.say(line)


@slash("", "show all turns, including those that left the conversation")
async def tree(chat: Conversation, rest: str) -> None:
    page = await chat.engine.tree(chat.require_session(), limit=500)
    for line in draw_tree(page):
        chat.say(line)
    if page.next_cursor is not None:
        chat.say(f"older turns: clew tree {page.session_id}")


@slash("", "list moves of the head, newest first")
async def reflog(chat: Conversation, rest: str) -> None:
    for move in await chat.engine.reflog(chat.require_session(), limit=30):
        at = datetime.fromtimestamp(move.at / 1000, UTC).strftime("%m-%d %H:%M")
        chat.say(f"{move.seq:>4}  {at}  {move.why:<10}  {move.to_turn_id or BEGINNING}  {move.text}".rstrip())


@slash("TURN", "move the conversation to any turn")
async def goto(chat: Conversation, rest: str) -> None:
    if not rest:
        raise InvalidInput("give a turn id; /tree and /reflog list them")
    await _note_head(chat, await chat.engine.set_head(chat.require_session(), None if rest == BEGINNING else rest))
