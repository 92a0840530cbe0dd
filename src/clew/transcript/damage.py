"""Damage: how a changed bit is detected, and how a damaged message is marked.

A settled message is *sealed*: the store has a digest of its parts (``seal_of``), and every reader of the message
compares it. A message that does not match is still shown, with ``DAMAGED`` in its metadata and a ``DAMAGED_PART`` where
content is missing; a model is sent ``STUB`` instead, until a person has accepted the message.
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
"""The metadata key with the reason why a message is, or may be, damaged: a sentence, or ``UNREADABLE``.

Set by the reader of a message that does not match its seal. Stored only where the rows no longer show the damage.
"""

UNREADABLE: Final = True
"""The value instead of a sentence where the metadata of the message or session is unreadable, too."""

DAMAGE_ACCEPTED: Final = "damage_accepted"
"""The metadata key with the time at which a person accepted a damaged message, and the damage."""

DAMAGED_PART: Final = "data-damaged"
"""The type of the part that replaces missing content: an AI SDK data part, so every client can show it."""

CHANGED: Final = "it was changed after it had settled: its seal does not match"
MISSING: Final = "it is missing"
UNSEALED: Final = "it has settled but its seal is missing, so a change of it cannot be detected"
LOST: Final = "it is damaged: part of its stored content is lost"
NOT_ALL_READABLE: Final = "parts of it are unreadable"

_EMPTY_HASH: Final = blake2b(digest_size=16)

STUB: Final = "[This message was damaged where it is stored. What it said is not known for sure, so it is left out.]"
"""Sent to a model in place of a damaged message, until a person has accepted it.

The text is part of requests whose digests are stored: with another one they could not be verified.
"""


def seal_of(parts: Iterable[Part]) -> str:
    """Return the digest of these parts in order, as 32 hex digits. It reveals changes to a settled message."""
    return seal_of_encoded(orjson.dumps(part) for part in parts)


def seal_of_encoded(parts: Iterable[bytes]) -> str:
    """Return the seal of parts as they are stored, without decoding: the encoding is deterministic."""
    digest = begin_seal()
    for part in parts:
        digest.update(part)
        digest.update(b"\n")
    return digest.hexdigest()


def begin_seal() -> blake2b:
    """Return the hash of a seal: each stored part is fed to it, followed by a newline."""
    return _EMPTY_HASH.copy()  # copying takes a fifth of the time of creating one


def damaged_part(of: Literal["part_id", "message_id"], id_: str, reason: str) -> dict[str, Any]:
    """Return the part that replaces a damaged part, or is added to the end of a damaged message."""
    return {"type": DAMAGED_PART, "data": {of: id_, "reason": reason}}
