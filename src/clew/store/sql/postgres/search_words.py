"""Words as SQLite's search makes them, for PostgreSQL's index and queries: the same text gives the same results.

A word consists of letters and digits of any script; case and diacritics do not count. PostgreSQL's own parser is not
used, because it treats file names, addresses and signed numbers as single words.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from clew.transcript.part import data_of, text_at, text_of

__all__ = ["parse_match", "searched_text", "snippet_of", "to_tsquery", "words_of"]

MAX_CHARS: Final = 1_000_000
"""Characters of a part that are indexed."""
_MAX_BYTES: Final = 900_000
"""A vector of words is limited to a megabyte: words after that are not found."""
_MAX_WORD_CHARS: Final = 500
_MAX_POSITION: Final = 16_383
_MAX_POSITIONS: Final = 255
_SNIPPET_WORDS: Final = 20
_CALL_KEYS: Final = ("input", "rawInput", "output", "errorText")

# Private use characters count as letters; a combining mark does not end a word.
_WORD: Final = re.compile("(?:[^\\W_]|[\ue000-\uf8ff])(?:[^\\W_]|[\u0300-\u036f\ue000-\uf8ff])*")
_PIECE: Final = re.compile(r'"((?:[^"]|"")*)"(\*?)')

Phrase = tuple[tuple[str, ...], bool]
"""Consecutive words; whether the last one is a prefix."""
Hit = tuple[int, int, Phrase]
"""The positions of the first and last word of a match, and its phrase."""


def searched_text(type_: str, part: Any) -> str:
    """Return the searchable text of a part: its text, or all strings and whole numbers in a tool's input and output."""
    if not isinstance(part, dict):
        return ""
    if type_ in ("text", "reasoning"):
        found = text_of(part, type_)
    elif type_ == "data-compaction":
        found = text_at(data_of(part, type_) or {}, "summary")
    else:
        found = "\n".join(_atoms([part.get(key) for key in _CALL_KEYS]))
    return (found or "")[:MAX_CHARS]


def _atoms(value: Any) -> Iterator[str]:
    # No recursion: a tool's output may be nested as deep as the value check allows.
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting.extend(reversed(one.values()))
        elif isinstance(one, list):
            waiting.extend(reversed(one))
        elif isinstance(one, str) or (isinstance(one, int) and not isinstance(one, bool)):
            yield str(one)


def _fold(word: str) -> str:
    if word.isascii():
        return word.lower()[:_MAX_WORD_CHARS]
    # Combining marks are dropped, and Latin letters lose their diacritics, as in SQLite's index.
    letters = (letter for letter in word.lower() if not unicodedata.combining(letter))
    plain = ((unicodedata.normalize("NFD", letter)[0], letter) for letter in letters)
    return "".join(base if base.isascii() else letter for base, letter in plain)[:_MAX_WORD_CHARS]


def words_of(text: str) -> str:
    """Return the words of a text with their positions, in the format of a PostgreSQL ``tsvector``."""
    positions: dict[str, list[int]] = {}
    held = 0
    for position, found in enumerate(_WORD.finditer(text), start=1):
        word = _fold(found[0])
        found_positions = positions.get(word)
        if found_positions is None:
            held += 4 * len(word) + 8
            if held > _MAX_BYTES:
                break
            found_positions = positions[word] = []
        if len(found_positions) < _MAX_POSITIONS and (not found_positions or found_positions[-1] != _MAX_POSITION):
            held += 2
            found_positions.append(min(position, _MAX_POSITION))
    return " ".join(
        f"'{word}':{','.join(map(str, found_positions))}" for word, found_positions in positions.items() if word
    )


def parse_match(match: str) -> list[Phrase]:
    """Return the phrases of a planned search."""
    pieces = ((tuple(map(_fold, _WORD.findall(piece))), bool(star)) for piece, star in _PIECE.findall(match))
    return [(words, is_open) for words, is_open in pieces if words]


def to_tsquery(phrases: Sequence[Phrase]) -> str:
    """Return the phrases in the format of a PostgreSQL ``tsquery``."""
    return " & ".join(
        "(" + " <-> ".join(f"'{word}'" for word in words) + (":*" if is_open else "") + ")"
        for words, is_open in phrases
    )


def snippet_of(text: str, phrases: Sequence[Phrase]) -> str:
    """Return some words of the text around the matches, which are between two ``**``; chosen as SQLite's index does."""
    words = [(found.start(), found.end(), _fold(found[0])) for found in _WORD.finditer(text)]
    hits = sorted((hit for phrase in phrases for hit in _find_phrase(words, phrase)), key=lambda hit: hit[0])
    positions = [hit[0] for hit in hits]
    begins = [
        position
        for position in range(len(words))
        if position == 0 or _ends_sentence(text[words[position - 1][1] : words[position][0]])
    ]
    best, best_score = 0, 0
    for position in positions:
        score, centred = _score(hits, positions, position, len(words))
        if score > best_score:
            best, best_score = centred, score
        sentence = begins[bisect_right(begins, position) - 1]
        if sentence < position and len(words) > _SNIPPET_WORDS:
            score = _score(hits, positions, sentence, len(words))[0] + (100 if sentence else 120)
            if score > best_score:
                best, best_score = sentence, score
    end = best + _SNIPPET_WORDS
    pieces, at = ["…" if best else ""], words[best][0] if best else 0
    shown = hits[bisect_left(positions, best) : bisect_left(positions, end)]
    for first, last in _merge_overlapping(hit for hit in shown if hit[1] < end):
        pieces += [text[at : words[first][0]], "**", text[words[first][0] : words[last][1]], "**"]
        at = words[last][1]
    stop, more = (words[end - 1][1], "…") if end < len(words) else (len(text), "")
    return "".join([*pieces, text[at:stop], more])


def _ends_sentence(between: str) -> bool:
    """Return whether a sentence ends between two words."""
    held = between.rstrip(" \t\n\r")
    return len(held) < len(between) and held.endswith((".", ":"))


def _score(hits: Sequence[Hit], positions: Sequence[int], start: int, count: int) -> tuple[int, int]:
    """Score the words from ``start`` on, counting the first match of each phrase most; return also the start that
    centers the matches."""
    inside = hits[bisect_left(positions, start) : bisect_left(positions, start + _SNIPPET_WORDS)]
    if not inside:
        return 0, 0
    found_positions = len({hit[2] for hit in inside})
    first, last = inside[0][0], inside[-1][1] + 1
    centred = first - int((_SNIPPET_WORDS - (last - first)) / 2)
    return 1000 * found_positions + len(inside) - found_positions, max(0, min(centred, count - _SNIPPET_WORDS))


def _merge_overlapping(hits: Iterable[Hit]) -> list[tuple[int, int]]:
    """Merge overlapping matches."""
    joined: list[tuple[int, int]] = []
    for first, last, _ in hits:
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined


def _find_phrase(words: Sequence[tuple[int, int, str]], phrase: Phrase) -> Iterator[Hit]:
    """Yield the matches of a phrase among words."""
    wanted, is_open = phrase
    last = len(wanted) - 1
    for first in range(len(words) - last):
        if all(
            words[first + position][2].startswith(word)
            if is_open and position == last
            else words[first + position][2] == word
            for position, word in enumerate(wanted)
        ):
            yield first, first + last, phrase
