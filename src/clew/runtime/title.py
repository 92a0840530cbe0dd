"""A title for a session after its first turn: by the provider's cheap model, else by the first words.

Never in anybody's way: it runs beside everything else, a failure is only logged, and a title somebody gave stays.
"""

from __future__ import annotations

import logging

from clew.agents.catalog import builtin_agents
from clew.errors import ClewError
from clew.providers.base import ModelRequest
from clew.providers.reply import read_text
from clew.runtime.host import Host
from clew.store.base import get_session
from clew.store.unit import PatchSession, Refused, Unit
from clew.transcript.message import Message
from clew.transcript.session import Model

__all__ = ["entitle", "first_words"]

log = logging.getLogger("clew.title")
_LONGEST = 80


async def entitle(host: Host, session_id: str) -> bool:
    """Name a session that has no name yet. True when it has one now."""
    try:
        session = await get_session(host.store, session_id)
        line = await host.store.load_line(session_id, turns=1, keep_damaged=True)
        if session.title is not None or session.kind != "chat" or not line.complete or not line.turns:
            return False
        rows = line.turns[0].messages
        if rows[0].damage is not None:
            return False
        text = " ".join(rows[0].texts)
        titler = host.providers.info(session.model).titler
        title = await _ask(host, titler, text) if titler is not None else None
        title = title or first_words(text)
        if title and (await get_session(host.store, session_id)).title is None:
            unit = Unit(session_id, (PatchSession(metadata={"title": title}),), sync="power")
            return not isinstance(await host.store.commit(unit), Refused)
    except ClewError as error:
        log.info("session %s got no title: %s", session_id, error)
    return False


def first_words(text: str) -> str:
    """The beginning of a text as one line, cut at a word."""
    line = " ".join(text.split())
    if len(line) <= _LONGEST:
        return line
    return line[: _LONGEST - 1].rsplit(" ", 1)[0] + "…"


async def _ask(host: Host, titler: Model, text: str) -> str | None:
    agent = builtin_agents()["title"]
    request = ModelRequest(
        model=titler,
        system=agent.prompt,
        messages=[Message("msg_title", "user", [{"type": "text", "text": text[:4000]}], {})],
        max_output_tokens=60,
        temperature=agent.temperature,
    )
    said, _ = await read_text(host.providers.get(titler.provider_id), request, host.config.max_reply_bytes)
    lines = [line.strip(" #\"*`'") for line in said.splitlines() if line.strip()]
    return first_words(lines[0]) if lines else None
