"""``clew ls``, ``show``, ``queue``, ``abort``, ``archive``, ``pin`` and ``rm``: managing sessions."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import msgspec

from clew.errors import InvalidInput
from clew.fronts.cli.command import Json, Store, flag, moment, open_store, option, print_json, session_shapes, show
from clew.fronts.cli.render import damage_note, fallback_note, mark_of, queue_pause
from clew.fronts.cli.safe_text import plain
from clew.transcript import part as p
from clew.transcript.damage import DAMAGED_PART
from clew.transcript.message import Message

__all__ = ["abort", "archive", "excerpt", "ls", "pin", "queue", "rm", "show_"]


async def ls(
    *,
    store: Store = None,
    limit: int = 50,
    archived: bool = False,
    pinned: Annotated[bool, flag("Only pinned sessions.")] = False,
    json: Json = False,
) -> None:
    """List sessions, newest first.

    Example: clew ls --limit 10
    """
    async with open_store(store) as engine:
        page = await engine.list_sessions(limit=limit, archived=archived, pinned=pinned)
        if json:
            print_json({"sessions": await session_shapes(engine, page.sessions), "next_cursor": page.next_cursor})
            return
    if sys.stdout.isatty():
        print(f"{'session':<30}  {'tokens':>8}  title")
    for session in page.sessions:
        pin = "★ " if session.pinned else ""
        print(f"{session.id}  {session.total_tokens:>8}  {pin}{plain(session.title or '(untitled)')}")


async def show_(
    session: str,
    /,
    *,
    store: Store = None,
    view: Annotated[
        str | None,
        option("visible (the conversation, with summaries), all (also rewound and summarised messages), or model."),
    ] = None,
    model_view: Annotated[bool, flag("The messages of the next request; short for --view model.")] = False,
    ids: Annotated[bool, flag("Print the id above each message.")] = False,
    json: Json = False,
) -> None:
    """Print the messages of a session.

    Example: clew show ses_… --ids
    """
    if model_view and view not in (None, "model"):
        raise InvalidInput("--model-view conflicts with another --view; omit one of them")
    async with open_store(store) as engine:
        chosen: Any = "model" if model_view else view or "visible"  # the engine checks it
        messages = await engine.messages(session, view=chosen)
    if json:
        print_json({"messages": messages})
        return
    if chosen == "visible" and any(p.data_of(part, p.COMPACTION_PART) for one in messages for part in one.parts):
        print(f"Older turns are summarised; show them with: clew show {session} --view all", file=sys.stderr)
    for message in messages:
        if ids:
            print(message.id)
        if damage := damage_note(message):
            print(f"{message.role}: {damage}")
        if note := fallback_note(message):
            print(f"({note})")
        for part in message.parts:
            # Damage of a whole message was printed above.
            whole = "message_id" in (p.data_of(part, DAMAGED_PART) or {})
            if p.kind_of(part) not in p.UNSEEN and not whole:
                print(f"{message.role}: {plain(_part_text(part))}")


def _answer_note(part: p.Part) -> str:
    """Return who answered the request of a call, through which front and when; empty if it was not answered."""
    by = p.answer_note_of(part)
    if "answered_by" not in by:
        return ""
    approved = (p.approval_of(part) or {}).get("approved")
    verb = "answered" if approved is None else "approved" if approved else "denied"
    at = by["answered_at"]
    when = f", {moment(at)}" if isinstance(at, int) else ""
    return f" ({verb} by {by['answered_by']}, {by.get('via')}{when})"


def _part_text(part: p.Part) -> str:
    """Return a part as text; a call with its result."""
    if (summary := p.data_of(part, p.COMPACTION_PART)) is not None:
        return f"[summary] {summary.get('summary', '')}"
    if (damage := p.data_of(part, DAMAGED_PART)) is not None:
        return f"[damaged: {damage.get('reason', 'a part cannot be read')}]"
    if p.is_call(part):
        given = msgspec.json.encode(p.input_of(part)).decode()
        result = p.output_text(part) or p.error_text(part) or f"[{p.state_of(part)}]"
        return f"{p.tool_name(part)} {given}{_answer_note(part)} → {result}"
    text = p.text_of(part, "text", "reasoning")
    return mark_of(part) if text is None else text


async def queue(
    session: str,
    /,
    *,
    cancel: Annotated[str | None, option("Remove this message from the queue.")] = None,
    edit: Annotated[str | None, option("Replace this message's text with --text.")] = None,
    text: Annotated[str | None, option("The new text for --edit.")] = None,
    move: Annotated[str | None, option("Move this message to the end, or before another one.")] = None,
    before: Annotated[str | None, option("The message to move it before.")] = None,
    pause: Annotated[bool, flag("Pause the queue until --resume.")] = False,
    resume: Annotated[bool, flag("Resume the queue.")] = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """List a session's queued messages, next first; change one, or pause and resume the queue.

    Example: clew queue ses_… --move msg_… --before msg_…
    """
    from clew.fronts.cli.commands.run import see_through
    from clew.fronts.operations.results import QueueShape

    changes = [cancel is not None, edit is not None, move is not None, pause, resume]
    if sum(changes) > 1:
        raise InvalidInput("use only one of --cancel, --edit, --move, --pause and --resume")
    if (edit is None) != (text is None) or (move is None and before is not None):
        raise InvalidInput("--edit needs --text and the reverse; --before needs --move")
    async with open_store(store, write=any(changes)) as engine:
        if cancel is not None:
            await engine.cancel_queued(session, cancel)
        elif edit is not None:
            await engine.edit_queued(session, edit, text or "")
        elif move is not None:
            await engine.move_queued(session, move, before=before)
        elif pause or resume:
            await engine.pause_queue(session, paused=pause)
            await see_through(engine, session)
        waiting, status = await engine.queue(session), await engine.get_status(session)
    lines = [f"{message.id}  {excerpt(message)}" for message in waiting]
    if pause and not waiting:
        lines.append("no queued messages, so nothing to pause")
    elif (paused := queue_pause(status, session)) is not None:
        lines.append(paused)
    show(json, QueueShape(waiting, status.paused, status.paused_by), lines)


def excerpt(message: Message, length: int = 70) -> str:
    """Return the beginning of a message on one line."""
    seen = (part for part in message.parts if p.kind_of(part) not in p.UNSEEN)
    texts = (p.text_of(part, "text", "reasoning") or mark_of(part) for part in seen)
    return p.first_words(" ".join(texts), length)


async def abort(
    session: str,
    /,
    *,
    go_on: Annotated[bool, flag("Continue with the queue.")] = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """Stop a session's running turn, or deny its pending requests. Pauses the queue; partial output is saved.

    Example: clew abort ses_… --go-on
    """
    async with open_store(store, write=True) as engine:
        aborted = await engine.abort(session, queue="go_on" if go_on else "stay")
        paused = queue_pause(await engine.get_status(session), session)
    lines = ["aborted" if aborted else "nothing was running"]
    show(json, {"aborted": aborted}, lines if paused is None else [*lines, f"the queue is {paused}"])


async def archive(
    session: str,
    /,
    *,
    undo: Annotated[bool, flag("Show it in the list again.")] = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """Archive a session: hide it from the list without deleting it.

    Example: clew archive ses_… --undo
    """
    async with open_store(store, write=True) as engine:
        changed = await engine.archive_session(session, archived=not undo)
        [shape] = await session_shapes(engine, [changed])
    show(json, shape, [f"{changed.id} is {'no longer archived' if undo else 'archived'}"])


async def pin(
    session: str,
    /,
    *,
    undo: Annotated[bool, flag("Unpin it.")] = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """Pin a session to the top of the page's list; `clew ls --pinned` lists only pinned ones.

    Example: clew pin ses_… --undo
    """
    async with open_store(store, write=True) as engine:
        changed = await engine.patch_session(session, pinned=not undo)
        [shape] = await session_shapes(engine, [changed])
    show(json, shape, [f"{changed.id} is {'no longer pinned' if undo else 'pinned'}"])


async def rm(
    session: str,
    /,
    *,
    force: Annotated[bool, flag("Also while it is running.")] = False,
    store: Store = None,
) -> None:
    """Delete a session permanently, with its subagent sessions. Its branches stay.

    Example: clew rm ses_… --force
    """
    async with open_store(store, write=True) as engine:
        await engine.delete_session(session, force=force)
    print(f"deleted {plain(session)}")
