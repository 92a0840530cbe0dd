"""Recall: search the messages that the model no longer sees, by words or by a message's id."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence, Set
from itertools import pairwise
from math import log
from typing import Final

import msgspec

from clew.compaction.serialise import history_text
from clew.session.prompt.files import with_files
from clew.store.base import Store
from clew.transcript.message import Message, sent_message
from clew.transcript.part import tool_name
from clew.transcript.view import find_compaction, unsent_messages

__all__ = ["recall"]

_MAX_PASSAGES: Final = 6
_MAX_CANDIDATES: Final = 64
"""Messages whose passages are compared."""
_CONTEXT_CHARS: Final = 300
_PASSAGE_CHARS: Final = 200
"""Characters of a passage: a sentence or two, in which the words of an answer occur together."""
_STRIDE_CHARS: Final = _PASSAGE_CHARS // 2
_MAX_MESSAGE_CHARS: Final = 12_000
_WORD: Final = re.compile(r"\w+")


async def recall(store: Store, session_id: str, owner: str | None, query: str) -> str:
    """Return passages of summarised or pruned messages, best first; with a message's id, that whole message."""
    line = (await store.load_line(session_id, keep_damaged=True)).turns
    pruned = {(one.message_id, one.part) for one in await store.load_pruned(session_id)}
    unsent = {message.id: len(message.parts) for message in unsent_messages(line, find_compaction(line))}
    hidden: list[Message] = []
    for entry in line:
        for row in entry.messages:
            whole = sent_message(row, entry.turn.id, entry.turn.unsent.get(row.id))
            unseen = [
                part
                for n, part in enumerate(whole.parts)
                # An earlier recall would be found instead of the messages it was about.
                if (n < unsent.get(row.id, 0) or (row.id, n) in pruned) and tool_name(part) != "recall"
            ]
            if unseen and row.id == query:
                text = history_text(await with_files(store, [whole], None, owner))
                more = f"\n[cut here; {len(text) - _MAX_MESSAGE_CHARS} characters more: ask for them by words]"
                return text if len(text) <= _MAX_MESSAGE_CHARS else text[:_MAX_MESSAGE_CHARS] + more
            if unseen:
                hidden.append(msgspec.structs.replace(whole, parts=unseen))
    # In a thread: searching a long history takes a while.
    return await asyncio.to_thread(_search, await with_files(store, hidden, None, owner), query)


def _search(messages: Iterable[Message], query: str) -> str:
    texts = [(message.id, history_text([message])) for message in messages]
    query_words = [word.casefold() for word in _WORD.findall(query)]
    # A pair of adjacent words says more than both apart; a long word also matches without its ending.
    words = {*query_words, *map(" ".join, pairwise(query_words)), *(word[:-2] for word in query_words if len(word) > 5)}
    likely = sorted(_best([text for _, text in texts], words)[:_MAX_CANDIDATES])
    passages = [
        (n, at) for n in likely for at in reversed(range(0, max(len(texts[n][1]) - _STRIDE_CHARS, 1), _STRIDE_CHARS))
    ]
    chosen: list[tuple[int, int]] = []
    for index in _best([texts[n][1][at : at + _PASSAGE_CHARS] for n, at in passages], words):
        number, at = passages[index]
        # The excerpt around another passage already contains it.
        if not any(number == other and abs(at - shown) <= _CONTEXT_CHARS for other, shown in chosen):
            chosen.append((number, at))
        if len(chosen) == _MAX_PASSAGES:
            break
    if not chosen:
        return f"nothing in the {len(texts)} messages that are out of sight holds these words"
    return "\n\n".join(f"({texts[number][0]})\n{_excerpt(texts[number][1], at)}" for number, at in chosen)


def _best(texts: Sequence[str], words: Set[str]) -> list[int]:
    """Return the indexes of texts that contain any of the words: best match first, of equals the last first."""
    folded = (text.casefold() for text in texts)
    matches = [
        (index, found) for index, text in enumerate(folded) if (found := {word for word in words if word in text})
    ]
    # Questions mostly consist of common words: a word counts more the fewer texts contain it.
    weights = {word: log(1 + len(texts) / (1 + sum(word in found for _, found in matches))) for word in words}
    scores = {index: sum(map(weights.__getitem__, found)) for index, found in matches}
    return sorted(scores, key=lambda index: (-scores[index], -index))


def _excerpt(text: str, at: int) -> str:
    first, last = max(at - _CONTEXT_CHARS, 0), at + _PASSAGE_CHARS + _CONTEXT_CHARS
    return ("…" if first else "") + text[first:last] + ("…" if last < len(text) else "")
