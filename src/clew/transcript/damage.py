"""Damage: what makes a flipped bit visible, and how a message that is not what was stored says so.

A message that has settled is *sealed*: the store keeps a digest of its parts (``seal_of``), and whoever reads the
message holds it against that. One that does not fit is shown all the same, with ``DAMAGED`` in its metadata and a part
``DAMAGED_PART`` where something is not there; a model is sent ``STUB`` in its place, until a human has accepted it.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final, Literal

import orjson

from clew.transcript.part import Part

__all__ = [
    "CHANGED",
    "DAMAGED",
    "DAMAGED_PART",
    "DAMAGE_ACCEPTED",
    "LOST",
    "MISSING",
    "NOT_ALL_READABLE",
    "STUB",
    "UNREADABLE",
    "UNSEALED",
    "begin_seal",
    "damaged_part",
    "seal_of",
    "seal_of_encoded",
]

DAMAGED: Final = "damaged"
"""The metadata key that says why a message is not, or may not be, what was stored: a sentence, or ``UNREADABLE``.
Whoever reads a message that does not fit its seal puts it there; where the damage cannot be seen from the rows any more
it is stored with the message."""

UNREADABLE: Final = True
"""Stands for the sentence in a message or a session of which not even the metadata could be read."""

DAMAGE_ACCEPTED: Final = "damage_accepted"
"""The metadata key that says when a damaged message was accepted, and what was the matter with it."""

DAMAGED_PART: Final = "data-damaged"
"""The type of the part that stands where something is not there: an AI SDK data part, so every client can show it."""

CHANGED: Final = "it was changed after it had settled: its seal does not match"
MISSING: Final = "it is not there any more"
UNSEALED: Final = "it has settled, and its seal is not there: nobody can tell whether it is what was stored"
LOST: Final = "it is damaged: something of what was stored of it is lost"
NOT_ALL_READABLE: Final = "not all of it is readable"

_BEGUN: Final = blake2b(digest_size=16)

STUB: Final = "[This message was damaged where it is stored. What it said is not known for sure, so it is left out.]"
"""What a model is sent in place of a damaged message, until a human has accepted it as it is."""


def seal_of(parts: Iterable[Part]) -> str:
    """The digest of these parts in this order, as 32 hex digits. It shows when a settled message was changed."""
    return seal_of_encoded(orjson.dumps(part) for part in parts)


def seal_of_encoded(parts: Iterable[bytes]) -> str:
    """The seal of parts as they are stored, without reading them: what was encoded once is encoded the same again."""
    digest = begin_seal()
    for part in parts:
        digest.update(part)
        digest.update(b"\n")
    return digest.hexdigest()


def begin_seal() -> blake2b:
    """What a seal is made with: each part goes in as it is stored, and after it a newline."""
    return _BEGUN.copy()  # a fifth of what it takes to make one


def damaged_part(of: Literal["part_id", "message_id"], id_: str, reason: str) -> dict[str, Any]:
    """What stands in the place of a part, or at the end of a message, that is not what was stored."""
    return {"type": DAMAGED_PART, "data": {of: id_, "reason": reason}}
