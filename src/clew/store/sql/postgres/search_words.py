"""Words as the search of SQLite makes them, for an index and a query of PostgreSQL's: the same text, the same answers.

A word is letters and digits of any script; case and diacritics do not count. PostgreSQL's own parser would take file
names, addresses and numbers with signs for words of their own, so it is never asked.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from clew.transcript.part import data_of, text_at, text_of

__all__ = ["parse_match", "searched_text", "snippet_of", "to_tsquery", "words_of"]

MOST_CHARS: Final = 1_000_000
"""So much of a part is indexed."""
_MOST_BYTES: Final = 900_000
"""A vector of words holds a megabyte: what comes after that is not found."""
_MOST_WORD: Final = 500
_LAST_PLACE: Final = 16_383
_MOST_PLACES: Final = 255
_SNIPPET: Final = 20
_OF_CALLS: Final = ("input", "rawInput", "output", "errorText")

# Private use counts; a mark that belongs to the letter before it does not end a word.
_WORD: Final = re.compile("(?:[^\\W_]|[\ue000-\uf8ff])(?:[^\\W_]|[\u0300-\u036f\ue000-\uf8ff])*")
_PIECE: Final = re.compile(r'"((?:[^"]|"")*)"(\*?)')

Phrase = tuple[tuple[str, ...], bool]
"""Words one after the other; whether the last of them may go on."""
Hit = tuple[int, int, Phrase]
"""The places of the first and the last word of a phrase that was found."""


def searched_text(type_: str, part: Any) -> str:
    """What of a part is searched: its text, or all strings and whole numbers that a tool was given or gave back."""
    if not isinstance(part, dict):
        return ""
    if type_ in ("text", "reasoning"):
        found = text_of(part, type_)
    elif type_ == "data-compaction":
        found = text_at(data_of(part, type_) or {}, "summary")
    else:
        found = "\n".join(_atoms([part.get(key) for key in _OF_CALLS]))
    return (found or "")[:MOST_CHARS]


def _atoms(value: Any) -> Iterator[str]:
    # No recursion: what a tool gives back may be nested as deep as the gate lets it.
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
        return word.lower()[:_MOST_WORD]
    # Marks go; letters lose theirs where they are Latin. SQLite's index knows no others.
    letters = (letter for letter in word.lower() if not unicodedata.combining(letter))
    plain = ((unicodedata.normalize("NFD", letter)[0], letter) for letter in letters)
    return "".join(base if base.isascii() else letter for base, letter in plain)[:_MOST_WORD]


def words_of(text: str) -> str:
    """The words of a text with their places, as PostgreSQL reads a ``tsvector``."""
    places: dict[str, list[int]] = {}
    held = 0
    for place, found in enumerate(_WORD.finditer(text), start=1):
        word = _fold(found[0])
        known = places.get(word)
        if known is None:
            held += 4 * len(word) + 8
            if held > _MOST_BYTES:
                break
            known = places[word] = []
        if len(known) < _MOST_PLACES and (not known or known[-1] != _LAST_PLACE):
            held += 2
            known.append(min(place, _LAST_PLACE))
    return " ".join(f"'{word}':{','.join(map(str, known))}" for word, known in places.items() if word)


def parse_match(match: str) -> list[Phrase]:
    """The phrases of a planned search."""
    pieces = ((tuple(map(_fold, _WORD.findall(piece))), bool(star)) for piece, star in _PIECE.findall(match))
    return [(words, is_open) for words, is_open in pieces if words]


def to_tsquery(phrases: Sequence[Phrase]) -> str:
    """The same as PostgreSQL reads a ``tsquery``."""
    return " & ".join(
        "(" + " <-> ".join(f"'{word}'" for word in words) + (":*" if is_open else "") + ")"
        for words, is_open in phrases
    )


def snippet_of(text: str, phrases: Sequence[Phrase]) -> str:
    """Some words of the text around what was found, that between two ``**``; chosen as SQLite's index chooses them."""
    words = [(found.start(), found.end(), _fold(found[0])) for found in _WORD.finditer(text)]
    hits = sorted((hit for phrase in phrases for hit in _find(words, phrase)), key=lambda hit: hit[0])
    places = [hit[0] for hit in hits]
    begins = [place for place in range(len(words)) if place == 0 or _ends(text[words[place - 1][1] : words[place][0]])]
    best, most = 0, 0
    for place in places:
        score, centred = _score(hits, places, place, len(words))
        if score > most:
            best, most = centred, score
        sentence = begins[bisect_right(begins, place) - 1]
        if sentence < place and len(words) > _SNIPPET:
            score = _score(hits, places, sentence, len(words))[0] + (100 if sentence else 120)
            if score > most:
                best, most = sentence, score
    end = best + _SNIPPET
    pieces, at = ["…" if best else ""], words[best][0] if best else 0
    shown = hits[bisect_left(places, best) : bisect_left(places, end)]
    for first, last in _joined(hit for hit in shown if hit[1] < end):
        pieces += [text[at : words[first][0]], "**", text[words[first][0] : words[last][1]], "**"]
        at = words[last][1]
    stop, more = (words[end - 1][1], "…") if end < len(words) else (len(text), "")
    return "".join([*pieces, text[at:stop], more])


def _ends(between: str) -> bool:
    """Whether a sentence ends between two words."""
    held = between.rstrip(" \t\n\r")
    return len(held) < len(between) and held.endswith((".", ":"))


def _score(hits: Sequence[Hit], places: Sequence[int], start: int, count: int) -> tuple[int, int]:
    """What the words from ``start`` on are worth, each phrase most at its first time; where to begin to have what was
    found among them in the middle."""
    inside = hits[bisect_left(places, start) : bisect_left(places, start + _SNIPPET)]
    if not inside:
        return 0, 0
    known = len({hit[2] for hit in inside})
    first, last = inside[0][0], inside[-1][1] + 1
    centred = first - int((_SNIPPET - (last - first)) / 2)
    return 1000 * known + len(inside) - known, max(0, min(centred, count - _SNIPPET))


def _joined(hits: Iterable[Hit]) -> list[tuple[int, int]]:
    """Those that overlap as one."""
    joined: list[tuple[int, int]] = []
    for first, last, _ in hits:
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined


def _find(words: Sequence[tuple[int, int, str]], phrase: Phrase) -> Iterator[Hit]:
    """Where a phrase stands among words."""
    wanted, is_open = phrase
    last = len(wanted) - 1
    for first in range(len(words) - last):
        if all(
            words[first + place][2].startswith(word) if is_open and place == last else words[first + place][2] == word
            for place, word in enumerate(wanted)
        ):
            yield first, first + last, phrase
