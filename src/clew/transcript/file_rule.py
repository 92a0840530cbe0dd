"""What a picture or a document takes in tokens, by the rule its model's provider publishes. Pure.

Goes by what was noted of the file when it was taken in. That may be a lie: every rule has a largest number.
"""

from __future__ import annotations

from math import ceil, sqrt
from typing import Final

import msgspec

from clew.transcript import part as p

__all__ = ["UNKNOWN", "FileRule", "Patches", "Tiles", "image_tokens", "page_tokens"]

_MOST_PAGES: Final = 600
"""No provider takes more in a request."""
_MOST_PIXELS: Final = 100_000
"""Of one side; more than any format but one can say."""
_TILE: Final = 512
_TILED_EDGE: Final = 2_048
_TILED_SHORT: Final = 768


class Tiles(msgspec.Struct, frozen=True, tag_field="by", tag="tiles", forbid_unknown_fields=True):
    """Scaled into a square of 2,048 pixels, then to 768 on its short side, a picture takes ``each`` for every tile."""

    base: int
    each: int


class Patches(msgspec.Struct, frozen=True, tag_field="by", tag="patches", forbid_unknown_fields=True):
    """A picture is covered by squares of ``side`` pixels, at most ``most`` and ``edge`` pixels in a row.

    A larger one is scaled down to the largest size that fits, or where it ``snaps`` until its sides are whole patches.
    ``each`` is what one patch takes.
    """

    side: int
    most: int
    edge: int
    each: float = 1.0
    snaps: bool = False


class FileRule(msgspec.Struct, frozen=True):
    """How a model counts files; None where its provider does not say. ``page`` is one of a PDF, picture and text."""

    image: Tiles | Patches | None = None
    page: int | None = None


UNKNOWN: Final = FileRule()


def image_tokens(part: p.Part, rule: FileRule) -> int | None:
    """Tokens of a picture; None when its size was not noted, or nobody says what that takes."""
    by = rule.image
    width, height = (min(p.noted_of(part, key) or 0, _MOST_PIXELS) for key in ("width", "height"))
    if by is None or not width or not height:
        return None
    if isinstance(by, Tiles):
        scale = min(1.0, _TILED_EDGE / max(width, height))
        scale = min(scale, _TILED_SHORT / min(width, height))
        return by.base + by.each * _cover(width * scale, height * scale, _TILE)
    return ceil(round(_scaled_patches(width, height, by) * by.each, 3))


def page_tokens(part: p.Part, rule: FileRule) -> int | None:
    """Tokens of a PDF by its pages; None when they were not counted, or nobody says what one takes."""
    pages = p.noted_of(part, "pages")
    return None if rule.page is None or not pages else rule.page * min(pages, _MOST_PAGES)


def _cover(width: float, height: float, side: int) -> int:
    # Rounded first: a side that was scaled to exactly so many must not need one more.
    return ceil(round(width, 6) / side) * ceil(round(height, 6) / side)


def _scaled_patches(width: int, height: int, by: Patches) -> int:
    def fits(long: int, short: int) -> bool:
        return ceil(long / by.side) * by.side <= by.edge and _cover(long, short, by.side) <= by.most

    long, short = max(width, height), min(width, height)
    if by.snaps:
        scale = min(1.0, by.edge / long)
        if _cover(long * scale, short * scale, by.side) > by.most:
            scale = sqrt(by.side**2 * by.most / (long * short))
            inside = [length * scale / by.side for length in (long, short)]
            scale *= min(int(length) / length if length >= 1 else 1.0 for length in inside)
        return min(_cover(long * scale, short * scale, by.side), by.most)
    low, high = 1, long
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle, max(round(middle * short / long), 1)) else (low, middle - 1)
    return min(_cover(low, max(round(low * short / long), 1), by.side), by.most)
