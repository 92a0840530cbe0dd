"""Chunks folded into a message."""

from __future__ import annotations

import json
from typing import Any

from clew.transcript.chunk import Chunk
from clew.transcript.fold import Fold


def folded(*pieces: list[Chunk], **given_: Any) -> Fold:
    fold = Fold("m1", **given_)
    for piece in pieces:
        for chunk in piece:
            fold.apply(chunk)
    return fold


def by_json(value: Any) -> Any:
    return json.loads(json.dumps(value))
