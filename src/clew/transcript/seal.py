"""A seal: the digest of a settled message's parts. A settled message never changes, and this shows when one did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

import orjson

__all__ = ["seal_of"]


def seal_of(parts: Iterable[Mapping[str, Any]]) -> str:
    """The digest of these parts in this order, as 32 hex digits."""
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(orjson.dumps(part))
        digest.update(b"\n")
    return digest.hexdigest()
