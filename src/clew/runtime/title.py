"""The name of a session: the first words of its first message at once, a title from a model after its first turns.

The words are stored with the message. A title comes from the provider's cheap model, beside everything else and in
nobody's way: what fails or takes too long is tried again after the next turn, a few times, and the words stay. What a
person has named is never named again.
"""

from __future__ import annotations

import logging
import re
from typing import Final

from clew.agents.catalog import builtin_agents
from clew.errors import ClewError
from clew.providers.base import ModelRequest, ProviderFailure
from clew.runtime.host import Host
from clew.runtime.model_calls import ask_text
from clew.runtime.race import after, race
from clew.store.base import get_session
from clew.store.unit import NameSession, Refused, Unit
from clew.transcript.message import Message, MessageRow
from clew.transcript.part import file_name_of, kind_of, media_type_of, text_part
from clew.transcript.session import Model, Session

__all__ = ["branch_title", "entitle", "is_unnamed", "plan_words"]

log = logging.getLogger("clew.title")
_LONGEST: Final = 80
_TRIES: Final = 3
"""How often a model is asked for a title, and in how many of a session's first turns."""
_PATIENCE_MS: Final = 20_000
_BRANCH: Final = re.compile(r" \(branch(?: ([0-9]{1,9}))?\)\Z")


def plan_words(session: Session, row: MessageRow) -> tuple[NameSession, ...]:
    """The write that names a session after the message that begins it, where it has no name."""
    words = _words(row)
    begins = session.title is None and session.head_turn_id is None
    return (NameSession(words, "words"),) if begins and words else ()


def is_unnamed(session: Session) -> bool:
    """Whether a session has no title, or only its first words.

    Nobody looks for a subagent by its name: what it was told says what it is, and a title would be paid for.
    """
    words = session.title is None or (session.naming or {}).get("by") == "words"
    return words and session.kind != "subagent"


async def entitle(host: Host, session_id: str) -> bool:
    """Ask a model for the title of a session that has none, or only its first words. True when something changed."""
    try:
        session = await get_session(host.store, session_id)
        naming = session.naming or {}
        if not is_unnamed(session):
            return False
        line = await host.store.load_line(session_id, turns=_TRIES, keep_damaged=True)
        if not line.complete or not line.turns or line.turns[0].messages[0].damage is not None:
            return False
        first = line.turns[0].messages
        titler, words = host.providers.info(session.model).titler, session.title or _words(first[0])
        tries = naming.get("tries") or 0
        name = NameSession(words, "words", tries)
        if titler is not None and tries < _TRIES:
            title = await _ask(host, session, titler, _material(first))
            name = NameSession(title, "model", tries) if title else NameSession(words, "words", tries + 1)
        elif session.title is not None:
            return False
        if name.title:
            return not isinstance(await host.store.commit(Unit(session_id, (name,), sync="power")), Refused)
    except ClewError as error:
        log.info("session %s got no title: %s", session_id, error)
    return False


def branch_title(title: str, taken: list[str | None]) -> str:
    """The name of a branch: what it branched from, marked, with a number where that is ``taken`` by another."""
    base = _BRANCH.sub("", title)
    marks = (_BRANCH.search(other) for other in (title, *taken) if other and _BRANCH.sub("", other) == base)
    numbers = [int(mark[1] or 1) for mark in marks if mark is not None]
    mark = f" (branch {max(numbers) + 1})" if numbers else " (branch)"
    return base[: 500 - len(mark)] + mark


def _words(row: MessageRow) -> str:
    """The first words of a message; of one that is only files, what these are called."""
    files = [part.data for part in row.parts if kind_of(part.data) == "file"]
    names = [file_name_of(file) or media_type_of(file) or "" for file in files]
    return _one_line(" ".join(row.texts).strip() or ", ".join(names))


def _one_line(text: str) -> str:
    """The beginning of a text, cut at a word."""
    line = " ".join(text[: 100 * _LONGEST].split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1].rsplit(" ", 1)[0] + "…"


def _material(rows: tuple[MessageRow, ...]) -> str:
    """What the title is made of: what was asked; of files alone their names, and what was said to them."""
    if asked := " ".join(rows[0].texts).strip():
        return asked
    said = [text for row in rows if row.role == "assistant" for text in row.texts]
    return "\n".join((f"[{_words(rows[0])}]", *said))


async def _ask(host: Host, session: Session, titler: Model, text: str) -> str | None:
    """A title, or None when there was none to be had."""
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
        reading = await race(answer, after(host.clock, _PATIENCE_MS), grace_s=1)
        if not reading.done() or reading.cancelled():
            raise ProviderFailure("the model took too long for a title", kind="transient")
        said, _ = reading.result()
    except Exception as error:  # a provider's own bug is not the session's
        log.info("%s gave no title: %s", titler, error)
        return None
    lines = [line.strip(" #\"*`'") for line in said.splitlines() if line.strip()]
    return _one_line(lines[0]) if lines and lines[0] else None
