"""Commands for history: move a session's head, branch, show the tree, and compare requests."""

from __future__ import annotations

import difflib
import json as jsonlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from clew.errors import ClewError
from clew.fronts.cli.command import Json, Store, flag, moment, open_store, option, plural, session_shapes, show
from clew.fronts.cli.safe_text import plain
from clew.session.history.report import RequestReport
from clew.session.history.tree import TreeBranch, TreeTurn, TreeView
from clew.transcript.part import Part, kind_of, text_of

if TYPE_CHECKING:
    from clew.session.history.file_values import FilesRestored
    from clew.session.history.rewind import Rewound
    from clew.session.history.rewind_plan import RewindMode

__all__ = [
    "BEGINNING",
    "branch",
    "diff",
    "difference",
    "draw_tree",
    "fork",
    "goto",
    "reflog",
    "restored_lines",
    "rewind",
    "tree",
    "unrewind",
]

BEGINNING: Final = "beginning"
"""The name of a session's empty start, where a turn is expected."""
_COLOURS: Final = {"+": "\x1b[32m", "-": "\x1b[31m", "@": "\x1b[36m"}
_RESET: Final = "\x1b[0m"


async def tree(session: str, /, *, store: Store = None, json: Json = False) -> None:
    """Show all turns of a session as a tree: ● is part of the conversation, ○ is not.

    Example: clew tree ses_…
    """
    async with open_store(store) as engine:
        view = await engine.tree(session)
    show(json, view, draw_tree(view))


async def reflog(session: str, /, *, store: Store = None, json: Json = False) -> None:
    """List the moves of a session's head, newest first.

    Example: clew reflog ses_…
    """
    async with open_store(store) as engine:
        moves = await engine.reflog(session)
    lines = (
        f"{move.seq:>4}  {moment(move.at)}  {move.why:<10}  {move.to_turn_id or BEGINNING:<30}  {move.text}".rstrip()
        for move in moves
    )
    show(json, {"moves": moves}, lines)


Files: TypeAlias = Annotated[
    Literal["keep", "restore", "only"],
    option("What happens to files of the workspace: keep them, restore them, too, or restore only them."),
]
Force: TypeAlias = Annotated[bool, flag("Overwrite files that another hand has changed since.")]
Overwrite: TypeAlias = Annotated[
    list[str] | None, option("Overwrite this file even if another hand has changed it; may be repeated.")
]


async def rewind(
    session: str,
    message: str,
    /,
    *,
    files: Files = "keep",
    force: Force = False,
    overwrite: Overwrite = None,
    edit: Annotated[str | None, option("Replace the message with this text.")] = None,
    run: Annotated[bool, flag("Run it now, and print the answer.")] = False,
    store: Store = None,
    json: Json = False,
) -> int:
    """Rewind to a user message. Later messages leave the conversation but stay stored.

    With --run and --json the first line is the move, and each later line a chunk.

    Example: clew rewind ses_… msg_… --edit "say it shorter" --run
    """
    from clew.fronts.cli.commands.run import follow_turn
    from clew.fronts.operations.results import show_rewound

    async with open_store(store, write=True) as engine:
        mode: RewindMode = "resend" if edit is None else "edit"
        paths = overwrite or ()
        rewound = await engine.rewind(
            session, message, mode=mode, text=edit, run=run, files=files, force=force, paths=paths
        )
        if rewound.submission is None:
            _show_move(rewound, json)
            return 0
        show(json, show_rewound(rewound), ())
        return await follow_turn(engine, session, rewound.submission, json)


async def unrewind(
    session: str,
    /,
    *,
    files: Files = "keep",
    force: Force = False,
    overwrite: Overwrite = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Undo the newest rewind, unless messages were added after it. With --files only: the newest restore of files.

    Example: clew unrewind ses_… --files restore
    """
    async with open_store(store, write=True) as engine:
        _show_move(await engine.unrewind(session, files=files, force=force, paths=overwrite or ()), json)


async def goto(
    session: str,
    turn: str,
    /,
    *,
    files: Files = "keep",
    force: Force = False,
    overwrite: Overwrite = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Move a session's head to any turn, or to "beginning", the empty start.

    Example: clew goto ses_… trn_…
    """
    async with open_store(store, write=True) as engine:
        target = None if turn == BEGINNING else turn
        _show_move(await engine.set_head(session, target, files=files, force=force, paths=overwrite or ()), json)


def _show_move(rewound: Rewound, json: bool) -> None:
    from clew.fronts.operations.results import show_rewound

    left = len(rewound.hidden)
    gone = f"; {plural(left, 'message')} left the conversation" if left else ""
    draft = [] if rewound.draft is None else [f"draft: {rewound.draft}"]
    restored = [] if rewound.files is None else restored_lines(rewound.files)
    show(json, show_rewound(rewound), [f"now at {rewound.head_turn_id or BEGINNING}{gone}", *draft, *restored])


def _absolute(folder: str) -> Path:
    """Return a folder's absolute path: a server has another current folder."""
    return Path(folder).expanduser().absolute()


def restored_lines(files: FilesRestored) -> list[str]:
    """Return the lines about restored files."""
    lines = [f"{plural(len(files.restored), 'file')} restored"]
    lines += [f"left alone, changed by another hand: {path}" for path in files.conflicts]
    lines += [f"uncertain, the snapshot was late: {path}" for path in files.unsure]
    return lines


async def branch(
    session: str,
    message: str,
    /,
    *,
    start: Annotated[str | None, option("Copy only from this user message or summary.")] = None,
    model: str | None = None,
    worktree: Annotated[str | None, option("Make this folder for the branch, with the files of that time.")] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Create a session as a copy of the conversation up to a message. Prints its id.

    Example: clew branch ses_… msg_… --model demo/echo
    """
    folder = None if worktree is None else str(_absolute(worktree))
    async with open_store(store, write=True) as engine:
        made = await engine.branch(session, message, start_message_id=start, model=model, worktree=folder)
        [shape] = await session_shapes(engine, [made])
    show(json, shape, [made.id])


async def fork(
    turn: str,
    /,
    *,
    label: str | None = None,
    text: Annotated[str | None, option("Send this as the first prompt, and print the answer.")] = None,
    store: Store = None,
    json: Json = False,
) -> int:
    """Create a session that branches at a turn. Prints its id.

    With --text and --json the first line is the session, and each later line a chunk.

    Example: clew fork trn_… --label "another way" --text "and if it rains?"
    """
    from clew.fronts.cli.commands.run import follow_turn

    async with open_store(store, write=True) as engine:
        made = await engine.fork(turn, label=label)
        try:
            sent = None if text is None else await engine.submit(made.id, text)
        except ClewError:
            # A session whose first prompt is refused is deleted.
            await engine.delete_session(made.id)
            raise
        [shape] = await session_shapes(engine, [made])
        show(json, shape, [shape.id])
        return 0 if sent is None else await follow_turn(engine, made.id, sent, json)


async def diff(turn: str, other: str, /, *, store: Store = None, json: Json = False) -> None:
    """Compare the last requests of two turns, also of different sessions: prompt, tools and messages.

    Example: clew diff trn_… trn_…
    """
    async with open_store(store) as engine:
        before, after = await engine.request(turn), await engine.request(other)
    lines = list(difference(before, after))
    show(json, {"from": before, "to": after, "diff": lines}, () if lines else ["the requests are identical"])
    for line in () if json else lines:
        colour = _COLOURS.get(line[:1], "") if sys.stdout.isatty() else ""
        print(f"{colour}{plain(line)}{_RESET if colour else ''}")


# The tree


def draw_tree(view: TreeView) -> Iterator[str]:
    """Yield the tree line by line. An only child follows its parent without indentation."""
    below: dict[str | None, list[TreeTurn]] = {}
    for turn in view.turns:
        below.setdefault(turn.parent_turn_id, []).append(turn)
    left: dict[str | None, list[TreeBranch]] = {}
    for aside in view.branches:
        left.setdefault(aside.turn_id, []).append(aside)
    ahead = _placed(below.get(None, []), "")
    while ahead:
        turn, lead, indent = ahead.pop()
        yield f"{lead}{_turn_line(turn)}"
        for aside in left.get(turn.id, ()):
            yield f"{indent}{'│' if turn.id in below else ' '}  ↳ {_branch_line(aside)}"
        ahead += _placed(below.get(turn.id, []), indent)
    for aside in left.get(None, ()):
        yield f"↳ {_branch_line(aside)}"


def _placed(turns: list[TreeTurn], indent: str) -> list[tuple[TreeTurn, str, str]]:
    """Return each turn with its own prefix and that of its descendants, in reverse order, for use as a stack."""
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


# Comparison of requests


def difference(before: RequestReport, after: RequestReport) -> Iterator[str]:
    """Yield a unified diff of two requests; nothing if they are identical."""
    names = (before.turn_id, after.turn_id)
    return difflib.unified_diff(list(_lines(before)), list(_lines(after)), *names, lineterm="")


def _lines(request: RequestReport) -> Iterator[str]:
    """Yield a request as text, without ids: they differ in a branch."""
    yield f"model {request.model}" + (f" {request.model.variant}" if request.model.variant else "")
    yield f"max_output_tokens {request.max_output_tokens} temperature {request.temperature}"
    for section in request.prompt:
        yield f"# prompt: {section.name}"
        yield from section.text.splitlines()
    for tool in request.tools:
        yield f"# tool: {tool.name}"
        yield from tool.description.splitlines()
        yield from jsonlib.dumps(tool.input_schema, indent=1, ensure_ascii=False, sort_keys=True).splitlines()
    for message in request.messages:
        yield f"# {message.role}"
        for part in message.parts:
            yield from _part_lines(part)


def _part_lines(part: Part) -> list[str]:
    text = text_of(part, "text", "reasoning")
    if text is not None:
        return text.splitlines() if kind_of(part) == "text" else [f"({line})" for line in text.splitlines()]
    fields = {name: value for name, value in part.items() if name not in ("toolCallId", "id")}
    return jsonlib.dumps(fields, indent=1, ensure_ascii=False, sort_keys=True).splitlines()
