"""The title of a session: immediately the first words of its first message, after its first turns one from a model.

The words are stored with the message. The provider's cheap model writes the title in the background: if that fails or
takes too long, it is retried after the next turns, a few times, and the words stay. A title set by the user is never
replaced.
"""

from __future__ import annotations

import logging
import re
from typing import Final

from clew.agents.catalog import builtin_agents
from clew.errors import ClewError
from clew.providers.base import ModelRequest, ProviderFailure
from clew.session.cancellable import after, run_until
from clew.session.host import Host
from clew.session.model_calls import ask_text
from clew.store.base import get_session
from clew.store.unit import Refused, SetTitle, Unit
from clew.transcript.message import Message, MessageRow
from clew.transcript.part import file_name_of, kind_of, media_type_of, text_part
from clew.transcript.session import Model, Session

__all__ = ["branch_title", "entitle", "is_unnamed", "plan_words"]

log = logging.getLogger("clew.title")
_MAX_CHARS: Final = 80
_MAX_TRIES: Final = 3
"""Model calls for a title, and the number of a session's first turns in which they are made."""
_TIMEOUT_MS: Final = 20_000
_BRANCH: Final = re.compile(r" \(branch(?: ([0-9]{1,9}))?\)\Z")


def plan_words(session: Session, row: MessageRow) -> tuple[SetTitle, ...]:
    """Return the write that sets the title to the first words of the first message, if there is no title."""
    words = _first_words(row)
    begins = session.title is None and session.head_turn_id is None
    return (SetTitle(words, "words"),) if begins and words else ()


def is_unnamed(session: Session) -> bool:
    """Return whether a session has no title, or only its first words.

    Subagents get none: they are found through their parent, and a title costs a model call.
    """
    words = session.title is None or (session.naming or {}).get("by") == "words"
    return words and session.kind != "subagent"


async def entitle(host: Host, session_id: str) -> bool:
    """Ask a model for the title of an unnamed session. Return whether the title changed."""
    try:
        session = await get_session(host.store, session_id)
        naming = session.naming or {}
        if not is_unnamed(session):
            return False
        line = await host.store.load_line(session_id, turns=_MAX_TRIES, keep_damaged=True)
        if not line.complete or not line.turns or line.turns[0].messages[0].damage is not None:
            return False
        first = line.turns[0].messages
        titler, words = host.providers.info(session.model).titler, session.title or _first_words(first[0])
        tries = naming.get("tries") or 0
        name = SetTitle(words, "words", tries)
        if titler is not None and tries < _MAX_TRIES:
            title = await _request_title(host, session, titler, _title_input(first))
            name = SetTitle(title, "model", tries) if title else SetTitle(words, "words", tries + 1)
        elif session.title is not None:
            return False
        if name.title:
            return not isinstance(await host.store.commit(Unit(session_id, (name,), sync="power")), Refused)
    except ClewError as error:
        log.info("no title for session %s: %s", session_id, error)
    return False


def branch_title(title: str, others: list[str | None]) -> str:
    """Return the title of a branch: that of its origin, marked, with a number if ``taken`` by another branch."""
    base = _BRANCH.sub("", title)
    marks = (_BRANCH.search(other) for other in (title, *others) if other and _BRANCH.sub("", other) == base)
    numbers = [int(mark[1] or 1) for mark in marks if mark is not None]
    mark = f" (branch {max(numbers) + 1})" if numbers else " (branch)"
    return base[: 500 - len(mark)] + mark


def _first_words(row: MessageRow) -> str:
    """Return the first words of a message, or the names of its files if it has no text."""
    files = [part.data for part in row.parts if kind_of(part.data) == "file"]
    names = [file_name_of(file) or media_type_of(file) or "" for file in files]
    return _one_line(" ".join(row.texts).strip() or ", ".join(names))


def _one_line(text: str) -> str:
    """Return the beginning of a text as one line, cut at a word."""
    line = " ".join(text[: 100 * _MAX_CHARS].split())
    return line if len(line) <= _MAX_CHARS else line[: _MAX_CHARS - 1].rsplit(" ", 1)[0] + "…"


def _title_input(rows: tuple[MessageRow, ...]) -> str:
    """Return the input for the title: the user's text; for files alone their names and the answer."""
    if text := " ".join(rows[0].texts).strip():
        return text
    answer = [text for row in rows if row.role == "assistant" for text in row.texts]
    return "\n".join((f"[{_first_words(rows[0])}]", *answer))


async def _request_title(host: Host, session: Session, titler: Model, text: str) -> str | None:
    """Return a title, or None if the model gave none."""
    agent = builtin_agents()["title"]
    request = ModelRequest(
        model=titler,
        system=agent.prompt,
        messages=[Message("msg_title", "user", [text_part(text[:4000])], {})],
        max_output_tokens=60,
        temperature=agent.temperature,
    )
    try:
        answer = ask_text(host, session, "title", request)
        reading = await run_until(answer, after(host.clock, _TIMEOUT_MS), grace_s=1)
        if not reading.done() or reading.cancelled():
            raise ProviderFailure("the model took too long for a title", kind="transient")
        reply, _ = reading.result()
    except Exception as error:  # a bug of a provider must not affect the session
        log.info("%s returned no title: %s", titler, error)
        return None
    lines = [line.strip(" #\"*`'") for line in reply.splitlines() if line.strip()]
    return _one_line(lines[0]) if lines and lines[0] else None
