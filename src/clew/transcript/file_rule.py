"""Tokens of an image or a document, by the rules model providers publish. Pure.

Uses the dimensions recorded when the file was stored. They may be wrong, so every rule has an upper bound.
"""

from __future__ import annotations

from math import ceil, sqrt
from typing import Final

import msgspec

from clew.transcript import part as p

__all__ = ["UNKNOWN", "FileRule", "Patches", "Tiles", "image_tokens", "page_tokens"]

_MAX_PAGES: Final = 600
"""No provider accepts more pages in a request."""
_MAX_PIXELS: Final = 100_000
"""Per side; more than nearly all formats can express."""
_TILE_SIDE: Final = 512
_MAX_TILED_EDGE: Final = 2_048
_MAX_TILED_SHORT_SIDE: Final = 768


class Tiles(msgspec.Struct, frozen=True, tag_field="by", tag="tiles", forbid_unknown_fields=True):
    """An image is scaled into a square of 2,048 pixels, then to 768 on its short side, and costs ``each`` per tile."""

    base: int
    each: int


class Patches(msgspec.Struct, frozen=True, tag_field="by", tag="patches", forbid_unknown_fields=True):
    """An image is covered by squares of ``side`` pixels: at most ``most`` of them, and ``edge`` pixels per side.

    A larger image is scaled down to the largest size that fits or, with ``snaps``, until its sides are whole patches.
    ``each`` is the cost of one patch.
    """

    side: int
    most: int
    edge: int
    each: float = 1.0
    snaps: bool = False


class FileRule(msgspec.Struct, frozen=True):
    """A model's rules for counting files; None if its provider does not say. ``page`` is one page of a PDF, text and
    image."""

    image: Tiles | Patches | None = None
    page: int | None = None


UNKNOWN: Final = FileRule()


def image_tokens(part: p.Part, rule: FileRule) -> int | None:
    """Return the tokens of an image; None if its size or the rule is unknown."""
    by = rule.image
    width, height = (min(p.clew_metadata_of(part, key) or 0, _MAX_PIXELS) for key in ("width", "height"))
    if by is None or not width or not height:
        return None
    if isinstance(by, Tiles):
        scale = min(1.0, _MAX_TILED_EDGE / max(width, height))
        scale = min(scale, _MAX_TILED_SHORT_SIDE / min(width, height))
        return by.base + by.each * _cover(width * scale, height * scale, _TILE_SIDE)
    return ceil(round(_scaled_patches(width, height, by) * by.each, 3))


def page_tokens(part: p.Part, rule: FileRule) -> int | None:
    """Return the tokens of a PDF by its pages; None if their number or the rule is unknown."""
    pages = p.clew_metadata_of(part, "pages")
    return None if rule.page is None or not pages else rule.page * min(pages, _MAX_PAGES)


def _cover(width: float, height: float, side: int) -> int:
    # Round first: a side scaled to a whole number of squares must not need one more.
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
