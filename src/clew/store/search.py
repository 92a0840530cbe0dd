"""Searching: what is asked, what is found, and how the text a person typed becomes a query.

Words are separated by white space, and all of them must be there; the last one also counts as the beginning of a
word. What stands in double quotes is a phrase. Nothing else has a meaning: every word is quoted before an engine sees
it. A query with a script that is written without spaces is answered by looking at the text itself, since an index
of words takes a whole run of such a script for one word.
"""

from __future__ import annotations

import re
import unicodedata
from hashlib import blake2b
from typing import Final

import msgspec

from clew.errors import InvalidInput

__all__ = [
    "MOST_RANKED",
    "SearchHit",
    "SearchPage",
    "SearchPlan",
    "SearchQuery",
    "excerpt",
    "next_cursor",
    "plan_search",
]

MAX_TEXT: Final = 1_000
MAX_WORDS: Final = 64
MOST_RANKED: Final = 1_000
"""Of a word that stands everywhere only so many hits are compared, the newest."""
_EXCERPT: Final = 60

_PIECE = re.compile(r'"([^"]*)"|([^\s"]+)')
_UNSEEN = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_CURSOR = re.compile(r"([1-9][0-9]{0,8})-([0-9a-f]{8})")
# Thai and Lao, Burmese, Khmer, kana, Han, Hangul; then the halves of kana and Hangul, and the rare Han.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
    "\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff]"
)


class SearchQuery(msgspec.Struct, frozen=True):
    """What to look for. ``limit`` is from 1 to 100, ``cursor`` is ``next_cursor`` of the page before.

    With ``wait`` everything is indexed before it is answered. Without it only what soon is: where much is missing, the
    answer says so, and the rest is indexed meanwhile.
    """

    text: str
    limit: int = 20
    cursor: str | None = None
    session_id: str | None = None
    wait: bool = True
    owner: str | None = None


class SearchHit(msgspec.Struct, frozen=True):
    """A part that matches. ``snippet`` is plain text with what matched between two ``**``, controls and all.

    ``title`` is the session's. ``hidden`` says that the message is not in the conversation any more.
    """

    session_id: str
    message_id: str
    part_id: str
    title: str | None
    snippet: str
    hidden: bool
    role: str
    created_at: int


class SearchPage(msgspec.Struct, frozen=True):
    """A page of hits, the best first; ``next_cursor`` is None on the last one.

    ``complete`` is False while there may be messages that are not indexed yet. ``total`` is how many hits there are;
    with ``at_least`` there are more, of which the newest are ranked and the others follow by age.
    """

    hits: tuple[SearchHit, ...]
    next_cursor: str | None
    complete: bool = True
    total: int = 0
    at_least: bool = False


class SearchPlan(msgspec.Struct, frozen=True):
    """A query that was understood. ``match`` is None when the text itself has to hold all of ``words``."""

    match: str | None
    words: tuple[str, ...]
    limit: int
    offset: int
    session_id: str | None
    key: str
    owner: str | None = None


def plan_search(query: SearchQuery) -> SearchPlan:
    """Understand a query, or say what is wrong with it."""
    if not 1 <= query.limit <= 100:
        raise InvalidInput(f"limit must be from 1 to 100, not {query.limit}")
    if len(query.text) > MAX_TEXT:
        raise InvalidInput(f"a search takes at most {MAX_TEXT:,} characters, not {len(query.text):,}")
    # No stored text holds U+0000 or half a surrogate pair, and neither goes through to SQLite.
    text = _UNSEEN.sub(" ", query.text)
    pieces = [(phrase or word, not phrase) for phrase, word in _PIECE.findall(text)]
    pieces = [(piece, is_word) for piece, is_word in pieces if any(map(_counts, piece))]
    if not pieces:
        raise InvalidInput("a search needs a word with a letter or a digit in it")
    if len(pieces) > MAX_WORDS:
        raise InvalidInput(f"a search takes at most {MAX_WORDS} words, not {len(pieces)}")
    key = blake2b(f"{query.session_id}\n{text}".encode(), digest_size=4).hexdigest()
    place = _CURSOR.fullmatch(query.cursor) if query.cursor is not None else None
    if query.cursor is not None and (place is None or place[2] != key):
        raise InvalidInput("the cursor is not one of this search; begin again without it")
    quoted = ['"' + piece.replace('"', '""') + '"' for piece, _ in pieces]
    last, is_word = pieces[-1]
    # Whoever typed more than the word, as in "C++", has come to its end.
    prefix = "*" if is_word and _belongs(last[-1]) else ""
    match = None if _UNSPACED.search(text) else " AND ".join(quoted) + prefix
    words = tuple(_bare(piece) for piece, _ in pieces)
    return SearchPlan(match, words, query.limit, int(place[1]) if place else 0, query.session_id, key, query.owner)


def next_cursor(plan: SearchPlan) -> str:
    """The cursor of the page after this one."""
    return f"{plan.offset + plan.limit}-{plan.key}"


def _counts(character: str) -> bool:
    """Whether the tokenizer makes words of this character."""
    category = unicodedata.category(character)
    return category[0] in "LN" or category == "Co"


def _belongs(character: str) -> bool:
    return _counts(character) or unicodedata.category(character)[0] == "M"


def _bare(piece: str) -> str:
    start, end = 0, len(piece)
    while not _counts(piece[start]):
        start += 1
    while not _belongs(piece[end - 1]):
        end -= 1
    return piece[start:end]


def excerpt(text: str, words: tuple[str, ...]) -> str:
    """The neighbourhood of the first word that is found, marked as an index would mark it."""
    found = re.compile("|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)), re.IGNORECASE)
    first = found.search(text)
    start = max(first.start() - _EXCERPT, 0) if first else 0
    end = (first.end() if first else 0) + _EXCERPT
    marked = found.sub(lambda match: f"**{match[0]}**", text[start:end])
    return f"{'…' if start else ''}{marked}{'…' if end < len(text) else ''}"
