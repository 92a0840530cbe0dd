"""Recall: what the model can no longer see, found again by words or by a message's id."""

from __future__ import annotations

import re
from typing import Final

from clew.compaction.serialise import history_text
from clew.store.base import Store
from clew.transcript.message import sent_message
from clew.transcript.view import find_compaction, unsent_messages

__all__ = ["recall"]

_MOST: Final = 6
_AROUND: Final = 600
_WHOLE: Final = 12_000
_WORD: Final = re.compile(r"\w+")


async def recall(store: Store, session_id: str, query: str) -> str:
    """Excerpts of what was summarised or pruned, the best first; one message whole when its id is given."""
    line = (await store.load_line(session_id, keep_damaged=True)).turns
    pruned = {one.message_id for one in await store.load_pruned(session_id)}
    hidden = {message.id: message for message in unsent_messages(line, find_compaction(line))}
    for entry in line:
        for row in entry.messages:
            if row.id in pruned:
                hidden.setdefault(row.id, sent_message(row, entry.turn.id, entry.turn.unsent.get(row.id)))
    if query in hidden:
        text = history_text([hidden[query]])
        return text if len(text) <= _WHOLE else f"{text[:_WHOLE]}\n[cut here; {len(text) - _WHOLE} characters more]"
    words = [word.casefold() for word in _WORD.findall(query)]
    texts = [(message.id, history_text([message])) for message in hidden.values()]
    scored = [
        (sum(word in text.casefold() for word in words), place, id_, text) for place, (id_, text) in enumerate(texts)
    ]
    best = sorted((one for one in scored if one[0]), key=lambda one: (-one[0], -one[1]))[:_MOST]
    if not best:
        return f"nothing in the {len(hidden)} messages that are out of sight holds these words"
    return "\n\n".join(f"({id_})\n{_excerpt(text, words)}" for _, _, id_, text in best)


def _excerpt(text: str, words: list[str]) -> str:
    """The text around the first of the words."""
    folded = text.casefold()
    at = min((place for word in words if (place := folded.find(word)) >= 0), default=0)
    first, last = max(at - _AROUND // 2, 0), at + _AROUND
    return ("…" if first else "") + text[first:last] + ("…" if last < len(text) else "")
