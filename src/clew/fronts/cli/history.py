"""Going back and aside: the commands that move a session's head, copy its line, and show its tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import cyclopts

from clew.fronts.cli.command import AnyEngine, Json, Store, end, opened, print_json
from clew.fronts.cli.plain import plain
from clew.fronts.cli.run import follow_turn
from clew.fronts.operations.results import show_rewound, show_session
from clew.history.rewind import Rewound
from clew.history.tree import TreeBranch, TreeTurn, TreeView
from clew.transcript.session import Session

__all__ = ["COMMANDS", "drawn"]

BEGINNING: Final = "beginning"
"""What the empty beginning of a session is called where a turn is asked for."""


def tree(session: str, /, *, store: Store = None, json: Json = False) -> int:
    """Draw every turn of a session: ● is part of the conversation, ○ was left.

    Example: clew tree ses_…
    """

    async def run() -> int:
        async with opened(store) as engine:
            view = await engine.tree(session)
        if json:
            print_json(view)
        for line in () if json else drawn(view):
            print(plain(line))
        return 0

    return end(run())


def reflog(session: str, /, *, store: Store = None, json: Json = False) -> int:
    """List every move of a session's head, newest first.

    Example: clew reflog ses_…
    """

    async def run() -> int:
        async with opened(store) as engine:
            moves = await engine.reflog(session)
        if json:
            print_json({"moves": moves})
        for move in () if json else moves:
            at = datetime.fromtimestamp(move.at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
            print(
                plain(f"{move.seq:>4}  {at}  {move.why:<10}  {move.to_turn_id or BEGINNING:<30}  {move.text}".rstrip())
            )
        return 0

    return end(run())


def rewind(
    session: str,
    message: str,
    /,
    *,
    edit: Annotated[str | None, cyclopts.Parameter(help="Say this instead of what the message said.")] = None,
    run: Annotated[bool, cyclopts.Parameter(negative=(), help="Have it answered now.")] = False,
    store: Store = None,
    json: Json = False,
) -> int:
    """Go back to a user message. What came after it leaves the conversation and stays stored.

    With --run the answer is printed; with --json too, the move on the first line and a chunk on each after it.

    Example: clew rewind ses_… msg_… --edit "say it shorter" --run
    """

    async def work() -> int:
        async with opened(store, write=True) as engine:
            mode: Any = "resend" if edit is None else "edit"
            rewound = await engine.rewind(session, message, mode=mode, text=edit, run=run)
            if rewound.submission is None:
                return _moved(rewound, json)
            if json:
                print_json(show_rewound(rewound))
            return await follow_turn(engine, session, rewound.submission, json)

    return end(work())


def unrewind(session: str, /, *, store: Store = None, json: Json = False) -> int:
    """Undo the newest rewind, as long as nothing was added after it.

    Example: clew unrewind ses_…
    """

    async def run() -> int:
        async with opened(store, write=True) as engine:
            return _moved(await engine.unrewind(session), json)

    return end(run())


def goto(session: str, turn: str, /, *, store: Store = None, json: Json = False) -> int:
    """Go to any turn of a session; the word "beginning" is the time before its first.

    Example: clew goto ses_… trn_…
    """

    async def run() -> int:
        async with opened(store, write=True) as engine:
            return _moved(await engine.set_head(session, None if turn == BEGINNING else turn), json)

    return end(run())


def branch(
    session: str,
    message: str,
    /,
    *,
    start: Annotated[str | None, cyclopts.Parameter(help="Copy only from this user message or summary on.")] = None,
    model: str | None = None,
    store: Store = None,
    json: Json = False,
) -> int:
    """Make a new session that starts as a copy of the conversation up to a message. Prints its id.

    Example: clew branch ses_… msg_… --model demo/echo
    """

    async def run() -> int:
        async with opened(store, write=True) as engine:
            made = await engine.branch(session, message, start_message_id=start, model=model)
            return await _made(engine, made, json)

    return end(run())


def fork(turn: str, /, *, label: str | None = None, store: Store = None, json: Json = False) -> int:
    """Make a new session at a turn, whatever came after it. Prints its id.

    Example: clew fork trn_… --label "another way"
    """

    async def run() -> int:
        async with opened(store, write=True) as engine:
            return await _made(engine, await engine.fork(turn, label=label), json)

    return end(run())


COMMANDS: Final[Mapping[str, Callable[..., int]]] = {
    "tree": tree,
    "reflog": reflog,
    "rewind": rewind,
    "unrewind": unrewind,
    "goto": goto,
    "branch": branch,
    "fork": fork,
}


def _moved(rewound: Rewound, json: bool) -> int:
    if json:
        print_json(show_rewound(rewound))
        return 0
    left = len(rewound.hidden)
    gone = f"; {left} message{'' if left == 1 else 's'} left the conversation" if left else ""
    print(f"now at {rewound.head_turn_id or BEGINNING}{gone}")
    if rewound.draft is not None:
        print(f"draft: {plain(rewound.draft)}")
    return 0


async def _made(engine: AnyEngine, session: Session, json: bool) -> int:
    if json:
        print_json(show_session(session, await engine.get_status(session.id)))
    else:
        print(session.id)
    return 0


# The tree


def drawn(view: TreeView) -> Iterator[str]:
    """The tree line by line. A turn with one child is followed by it; only where ways part is there a fork."""
    below: dict[str | None, list[TreeTurn]] = {}
    for turn in view.turns:
        below.setdefault(turn.parent_turn_id, []).append(turn)
    left: dict[str | None, list[TreeBranch]] = {}
    for aside in view.branches:
        left.setdefault(aside.turn_id, []).append(aside)
    ahead = _beside(below.get(None, []), "")
    while ahead:
        turn, lead, indent = ahead.pop()
        yield f"{lead}{_turn_line(turn)}"
        for aside in left.get(turn.id, ()):
            yield f"{indent}{'│' if turn.id in below else ' '}  ↳ {_branch_line(aside)}"
        ahead += _beside(below.get(turn.id, []), indent)
    for aside in left.get(None, ()):
        yield f"↳ {_branch_line(aside)}"


def _beside(turns: list[TreeTurn], indent: str) -> list[tuple[TreeTurn, str, str]]:
    """Each with what stands before it and before what is below it; the first one last, to be taken first."""
    if len(turns) == 1:
        return [(turns[0], indent, indent)]
    placed = [(turn, f"{indent}├─", f"{indent}│ ") for turn in turns]
    if placed:
        placed[-1] = (turns[-1], f"{indent}└─", f"{indent}  ")
    return placed[::-1]


def _turn_line(turn: TreeTurn) -> str:
    marks: list[str] = [] if turn.status == "completed" else [turn.status]
    if turn.kind != "normal":
        marks.append("summary")
    if turn.is_head:
        marks.append("head")
    mark = f"  ({', '.join(marks)})" if marks else ""
    return f"{'●' if turn.on_line else '○'} {turn.id}{mark}  {turn.text}".rstrip()


def _branch_line(aside: TreeBranch) -> str:
    return f"{aside.session_id}  {aside.label or aside.title or ''}".rstrip()
