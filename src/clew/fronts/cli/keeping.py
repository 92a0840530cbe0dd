"""Keeping order: the commands that show a session's queue, stop it, put it away, and remove it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Final

import cyclopts

from clew.fronts.cli.command import Json, Store, end, opened, print_json, shapes
from clew.fronts.cli.plain import plain
from clew.transcript.message import Message
from clew.transcript.part import first_words as words_of
from clew.transcript.part import kind_of, text_of

__all__ = ["COMMANDS", "first_words"]


def queue(
    session: str,
    /,
    *,
    cancel: Annotated[str | None, cyclopts.Parameter(help="Take this message out of the queue.")] = None,
    store: Store = None,
    json: Json = False,
) -> int:
    """List the messages of a session that wait for their turn, the next one first.

    Example: clew queue ses_… --cancel msg_…
    """

    async def run() -> int:
        async with opened(store, write=cancel is not None) as engine:
            if cancel is not None:
                await engine.cancel_queued(session, cancel)
            waiting = await engine.queue(session)
        if json:
            print_json({"messages": waiting})
        for message in () if json else waiting:
            print(f"{message.id}  {plain(first_words(message))}")
        return 0

    return end(run())


def abort(session: str, /, *, store: Store = None, json: Json = False) -> int:
    """Stop what runs on a session, or deny what it waits for. What was written is kept.

    Example: clew abort ses_…
    """

    async def run() -> int:
        async with opened(store, write=True) as engine:
            aborted = await engine.abort(session)
        if json:
            print_json({"aborted": aborted})
        else:
            print("aborted" if aborted else "nothing was running")
        return 0

    return end(run())


def archive(
    session: str,
    /,
    *,
    undo: Annotated[bool, cyclopts.Parameter(negative=(), help="Put it back into the list.")] = False,
    store: Store = None,
    json: Json = False,
) -> int:
    """Put a session out of the list. Nothing is removed.

    Example: clew archive ses_… --undo
    """

    async def run() -> int:
        async with opened(store, write=True) as engine:
            kept = await engine.archive_session(session, archived=not undo)
            if json:
                print_json((await shapes(engine, [kept]))[0])
            else:
                print(f"{kept.id} is {'in the list again' if undo else 'archived'}")
        return 0

    return end(run())


def rm(
    session: str,
    /,
    *,
    force: Annotated[bool, cyclopts.Parameter(negative=(), help="Also while something runs on it.")] = False,
    store: Store = None,
) -> int:
    """Remove a session for good, with its subagent sessions. Branches of it stay.

    Example: clew rm ses_… --force
    """

    async def run() -> int:
        async with opened(store, write=True) as engine:
            await engine.delete_session(session, force=force)
        print(f"{plain(session)} is removed")
        return 0

    return end(run())


COMMANDS: Final[Mapping[str, Callable[..., int]]] = {"queue": queue, "abort": abort, "archive": archive, "rm": rm}


def first_words(message: Message, length: int = 70) -> str:
    """What a message begins with, on one line."""
    texts = [text_of(part, "text", "reasoning") or f"[{kind_of(part)}]" for part in message.parts]
    return words_of(" ".join(texts), length)
