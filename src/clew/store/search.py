"""Finding sessions and messages: lists of sessions by page, and the search for text that a user typed.

Words are separated by white space, and all of them must match; the last one also matches as a prefix, which ranks
behind the word itself. Text in double quotes is a phrase. Nothing else is special: every word is quoted before an
engine sees it. A query in a script written without spaces is matched against the text itself, because a word index
would treat a whole run of such a script as one word.
"""

from __future__ import annotations

import re
import unicodedata
from hashlib import blake2b
from typing import Final, Literal

import msgspec

from clew.errors import InvalidInput
from clew.transcript.session import Session

__all__ = [
    "MAX_RANKED",
    "Cursor",
    "SearchHit",
    "SearchPage",
    "SearchPlan",
    "SearchQuery",
    "SessionPage",
    "SessionQuery",
    "ShownPage",
    "excerpt",
    "next_cursor",
    "plan_search",
]

MAX_TEXT: Final = 1_000
MAX_WORDS: Final = 64
MAX_RANKED: Final = 1_000
"""For a very common word only this many hits, the newest, are ranked."""
_EXCERPT_CHARS: Final = 60
_PIECE = re.compile(r'"([^"]*)"|([^\s"]+)')
_CONTROL = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_CURSOR = re.compile(r"([1-9][0-9]{0,8})-([0-9a-f]{8})")
# Thai and Lao, Burmese, Khmer, kana, Han, Hangul; then the halves of kana and Hangul, and the rare Han.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
    "\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff]"
)


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """The position where a page ended: sessions are listed by (updated_at, id), newest first."""

    updated_at: int
    id: str


class SessionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions to list. Archived, ephemeral and subagent sessions are left out unless requested; with ``pinned``
    all that are not pinned are."""

    limit: int = 50
    cursor: Cursor | None = None
    agent: str | None = None
    workspace: str | None = None
    parent: str | None = None
    title: str | None = None
    kind: Literal["chat", "subagent", "any"] = "chat"
    archived: bool = False
    ephemeral: bool = False
    pinned: bool = False
    owner: str | None = None


class SessionPage(msgspec.Struct, frozen=True):
    """A page of sessions as a store returns it, with the cursor as a value; ``next`` is None on the last one."""

    sessions: tuple[Session, ...]
    next: Cursor | None


class ShownPage(msgspec.Struct, frozen=True):
    """A page of sessions with their spend, and which of them have something ``unsettled`` or ``failed``."""

    sessions: tuple[Session, ...]
    next: Cursor | None
    unsettled: frozenset[str]
    failed: frozenset[str] = frozenset()


class SearchQuery(msgspec.Struct, frozen=True):
    """A search. ``limit`` is from 1 to 100, ``cursor`` is ``next_cursor`` of the page before.

    With ``wait`` everything is indexed before the answer. Without it only what can be indexed quickly is: if much is
    missing, the answer says so, and the rest is indexed in the background.
    """

    text: str
    limit: int = 20
    cursor: str | None = None
    session_id: str | None = None
    wait: bool = True
    owner: str | None = None


class SearchHit(msgspec.Struct, frozen=True):
    """A matching part. ``snippet`` is plain text with matches between two ``**``, control characters included.

    ``title`` is the session's. ``hidden``: the message is not part of the conversation any more.
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
    """A page of hits, best first; ``next_cursor`` is None on the last one.

    ``complete`` is False while some messages may not be indexed yet. ``total`` is the number of hits; with ``at_least``
    there are more, of which the newest are ranked and the others follow by age.
    """

    hits: tuple[SearchHit, ...]
    next_cursor: str | None
    complete: bool = True
    total: int = 0
    at_least: bool = False


class SearchPlan(msgspec.Struct, frozen=True):
    """A parsed query. ``match`` is None when the text itself must contain all of ``words``; ``exact`` is the same
    without a prefix, whose hits rank first."""

    match: str | None
    exact: str | None
    words: tuple[str, ...]
    limit: int
    offset: int
    session_id: str | None
    key: str
    owner: str | None = None


def plan_search(query: SearchQuery) -> SearchPlan:
    """Parse a query, or raise an error that says what is wrong with it."""
    if not 1 <= query.limit <= 100:
        raise InvalidInput(f"limit must be from 1 to 100, not {query.limit}")
    if len(query.text) > MAX_TEXT:
        raise InvalidInput(f"a search takes at most {MAX_TEXT:,} characters, not {len(query.text):,}")
    # No stored text contains U+0000 or lone surrogates, and SQLite accepts neither.
    text = _CONTROL.sub(" ", query.text)
    pieces = [(phrase or word, not phrase) for phrase, word in _PIECE.findall(text)]
    pieces = [(piece, is_word) for piece, is_word in pieces if any(map(_is_word_char, piece))]
    if not pieces:
        raise InvalidInput("a search needs a word with a letter or a digit")
    if len(pieces) > MAX_WORDS:
        raise InvalidInput(f"a search takes at most {MAX_WORDS} words, not {len(pieces)}")
    key = blake2b(f"{query.session_id}\n{text}".encode(), digest_size=4).hexdigest()
    cursor = _CURSOR.fullmatch(query.cursor) if query.cursor is not None else None
    if query.cursor is not None and (cursor is None or cursor[2] != key):
        raise InvalidInput("this cursor belongs to another search; start again without a cursor")
    quoted = ['"' + piece.replace('"', '""') + '"' for piece, _ in pieces]
    last, is_word = pieces[-1]
    # A character after the word, as in "C++", shows that the word is complete.
    prefix = "*" if is_word and _continues_word(last[-1]) else ""
    exact = None if _UNSPACED.search(text) else " AND ".join(quoted)
    match = None if exact is None else exact + prefix
    words = tuple(_bare(piece) for piece, _ in pieces)
    return SearchPlan(
        match, exact, words, query.limit, int(cursor[1]) if cursor else 0, query.session_id, key, query.owner
    )


def next_cursor(plan: SearchPlan) -> str:
    """Return the cursor of the page after this one."""
    return f"{plan.offset + plan.limit}-{plan.key}"


def _is_word_char(character: str) -> bool:
    """Return whether the tokenizer makes words of this character."""
    category = unicodedata.category(character)
    return category[0] in "LN" or category == "Co"


def _continues_word(character: str) -> bool:
    return _is_word_char(character) or unicodedata.category(character)[0] == "M"


def _bare(piece: str) -> str:
    start, end = 0, len(piece)
    while not _is_word_char(piece[start]):
        start += 1
    while not _continues_word(piece[end - 1]):
        end -= 1
    return piece[start:end]


def excerpt(text: str, words: tuple[str, ...]) -> str:
    """Return the text around the first match, marked as an index would mark it."""
    found = re.compile("|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)), re.IGNORECASE)
    first = found.search(text)
    start = max(first.start() - _EXCERPT_CHARS, 0) if first else 0
    end = (first.end() if first else 0) + _EXCERPT_CHARS
    marked = found.sub(lambda match: f"**{match[0]}**", text[start:end])
    return f"{'…' if start else ''}{marked}{'…' if end < len(text) else ''}"
