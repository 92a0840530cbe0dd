"""Slash commands that go back: other versions of what was said, and every other turn of the tree."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from clew.errors import InvalidInput, MessageNotFound
from clew.fronts.cli.chat.conversation import Conversation
from clew.fronts.cli.chat.slash import slash
from clew.fronts.cli.chat.versions import compared, list_versions, newest_below
from clew.fronts.cli.command import plural
from clew.fronts.cli.commands.history import BEGINNING, draw_tree
from clew.fronts.cli.commands.sessions import words_of
from clew.fronts.cli.diff import diff_line
from clew.fronts.cli.render import history_lines
from clew.session.history.rewind import Rewound
from clew.session.history.tree import TreeTurn


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
