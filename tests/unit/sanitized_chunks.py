"""Chunks put through the gate, and what comes out."""

from __future__ import annotations

from typing import Any

from clew.transcript.chunk import Chunk
from clew.transcript.chunk_sanitizer import ChunkSanitizer
from clew.transcript.fold import Fold

HIGH, LOW = "\ud83d", "\ude00"  # the two halves of 😀
GONE = "\ufffd"
REPLACED = {"clew": {"replaced": True}}


def through(*chunks: Chunk) -> list[Chunk]:
    """What leaves a new gate."""
    gate = ChunkSanitizer()
    return [clean for chunk in chunks for clean in gate.clean(chunk)]


def parts(*chunks: Chunk) -> list[dict[str, Any]]:
    """The parts that what leaves a new gate is folded into."""
    fold = Fold("m1")
    for chunk in through(*chunks):
        fold.apply(chunk)
    return fold.parts
