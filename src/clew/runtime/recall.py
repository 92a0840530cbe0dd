"""Recall: what the model can no longer see, found again by words or by a message's id."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence, Set
from itertools import pairwise
from math import log
from typing import Final

import msgspec

from clew.compaction.serialise import history_text
from clew.runtime.files import with_files
from clew.store.base import Store
from clew.transcript.message import Message, sent_message
from clew.transcript.part import tool_name
from clew.transcript.view import find_compaction, unsent_messages

__all__ = ["recall"]

_MOST: Final = 6
_LIKELY: Final = 64
"""Messages whose passages are compared."""
_AROUND: Final = 300
_PASSAGE: Final = 200
"""Characters: a sentence or two, in which the words of an answer stand together."""
_STRIDE: Final = _PASSAGE // 2
_WHOLE: Final = 12_000
_WORD: Final = re.compile(r"\w+")


async def recall(store: Store, session_id: str, owner: str | None, query: str) -> str:
    """Passages of what was summarised or pruned, the best first; one message whole when its id is given."""
    line = (await store.load_line(session_id, keep_damaged=True)).turns
    pruned = {(one.message_id, one.part) for one in await store.load_pruned(session_id)}
    told = {message.id: len(message.parts) for message in unsent_messages(line, find_compaction(line))}
    hidden: list[Message] = []
    for entry in line:
        for row in entry.messages:
            whole = sent_message(row, entry.turn.id, entry.turn.unsent.get(row.id))
            unseen = [
                part
                for n, part in enumerate(whole.parts)
                # What an earlier recall asked, and what it found, would be found in the place of what it was about.
                if (n < told.get(row.id, 0) or (row.id, n) in pruned) and tool_name(part) != "recall"
            ]
            if unseen and row.id == query:
                text = history_text(await with_files(store, [whole], None, owner))
                more = f"\n[cut here; {len(text) - _WHOLE} characters more: ask for them by words]"
                return text if len(text) <= _WHOLE else text[:_WHOLE] + more
            if unseen:
                hidden.append(msgspec.structs.replace(whole, parts=unseen))
    # A long history takes a while to look through; meanwhile others are answered.
    return await asyncio.to_thread(_found, await with_files(store, hidden, None, owner), query)


def _found(messages: Iterable[Message], query: str) -> str:
    texts = [(message.id, history_text([message])) for message in messages]
    asked = [word.casefold() for word in _WORD.findall(query)]
    # Two words that stand side by side say more than both of them apart; a long one is also known without its ending.
    words = {*asked, *map(" ".join, pairwise(asked)), *(word[:-2] for word in asked if len(word) > 5)}
    likely = sorted(_best([text for _, text in texts], words)[:_LIKELY])
    passages = [(n, at) for n in likely for at in reversed(range(0, max(len(texts[n][1]) - _STRIDE, 1), _STRIDE))]
    chosen: list[tuple[int, int]] = []
    for place in _best([texts[n][1][at : at + _PASSAGE] for n, at in passages], words):
        number, at = passages[place]
        # What is shown around another one holds it already.
        if not any(number == other and abs(at - shown) <= _AROUND for other, shown in chosen):
            chosen.append((number, at))
        if len(chosen) == _MOST:
            break
    if not chosen:
        return f"nothing in the {len(texts)} messages that are out of sight holds these words"
    return "\n\n".join(f"({texts[number][0]})\n{_excerpt(texts[number][1], at)}" for number, at in chosen)


def _best(texts: Sequence[str], words: Set[str]) -> list[int]:
    """The texts that hold any of the words, by their places: those that hold most first, of equals the last."""
    folded = (text.casefold() for text in texts)
    held = [(place, found) for place, text in enumerate(folded) if (found := {word for word in words if word in text})]
    # A question is mostly words that stand everywhere: one counts the more the fewer texts hold it.
    weights = {word: log(1 + len(texts) / (1 + sum(word in found for _, found in held))) for word in words}
    scores = {place: sum(map(weights.__getitem__, found)) for place, found in held}
    return sorted(scores, key=lambda place: (-scores[place], -place))


def _excerpt(text: str, at: int) -> str:
    first, last = max(at - _AROUND, 0), at + _PASSAGE + _AROUND
    return ("…" if first else "") + text[first:last] + ("…" if last < len(text) else "")
