"""The remainder of a record: the keys that a reader of another program's file did not read.

Readers get their records as :class:`Tracked` objects, which note the keys that are read. The other keys are not part of
the conversation: they are preserved, and an export puts them back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

__all__ = ["REST", "Tracked", "ignore", "merged", "paths_of", "peek", "plain", "rest_of", "tracked"]

REST: Final = "rest"
"""The type of a preserved record that is the remainder of another one."""


class Tracked(dict[str, Any]):
    """A JSON object with the set of keys that were read."""

    __slots__ = ("seen",)

    def __init__(self, value: dict[str, Any]) -> None:
        super().__init__(value)
        self.seen: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.seen.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.seen.add(key)
        return super().__getitem__(key)


def tracked(value: Any) -> Any:
    """Return a JSON value whose objects are tracked, at every depth."""
    if isinstance(value, dict):
        return Tracked({key: tracked(item) if isinstance(item, dict | list) else item for key, item in value.items()})
    return [tracked(item) for item in value] if isinstance(value, list) else value


def plain(value: Any) -> Any:
    """Return a value as plain objects, and treat all of it as read: the caller stores it completely."""
    if isinstance(value, Tracked):
        value.seen.update(value)
    if isinstance(value, dict):
        return {key: plain(item) if isinstance(item, dict | list) else item for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def peek(value: dict[str, Any], key: str) -> Any:
    """Return the value of a key without noting that it was read."""
    return dict.get(value, key)


def ignore(value: object, *keys: str) -> None:
    """Treat keys as read because their values are stored elsewhere. Objects under them are still tracked."""
    if isinstance(value, Tracked):
        value.seen.update(keys)


def rest_of(value: Any) -> Any:
    """Return the keys that were not read; None if all were. In a list, an item without a remainder is null, and one
    with a remainder has its type. Keys with a null or empty value are left out."""
    if isinstance(value, Tracked):
        rest: dict[str, Any] = {}
        for key, item in value.items():
            left = rest_of(item) if key in value.seen else plain(item)
            if left not in (None, "", [], {}):
                rest[key] = left
        return rest or None
    if isinstance(value, list):
        items = [_item_of(item) for item in value]
        while items and items[-1] is None:
            items.pop()
        return items or None
    return None


def _item_of(value: Any) -> Any:
    rest = rest_of(value)
    kind = peek(value, "type") if isinstance(value, Tracked) else None
    return {"type": kind, **rest} if rest is not None and isinstance(kind, str) else rest


def merged(value: Any, rest: Any, first: int = 0) -> Any:
    """Return a value with a remainder put back. A text is treated as a list of one block.

    ``first`` is the index of the first item of the remainder's lists; below 0 their indexes are unknown. An item is
    only put into one of its type."""
    if isinstance(value, dict) and isinstance(rest, dict):
        return {**value, **{key: merged(value.get(key), item, first) for key, item in rest.items()}}
    if isinstance(value, str) and isinstance(rest, list):
        value = [{"type": "text", "text": value}]
    if isinstance(value, list) and isinstance(rest, list):
        put = dict(enumerate(rest, first)) if first >= 0 else {}
        return [_put(item, put.get(place)) for place, item in enumerate(value)]
    return rest if value is None or not isinstance(value, dict | list) else value


def _put(item: Any, rest: Any) -> Any:
    is_dict = isinstance(item, dict) and isinstance(rest, dict)
    return merged(item, rest) if is_dict and rest.get("type") == item.get("type") else item


def paths_of(rest: Any, above: str = "") -> Iterator[str]:
    """Yield the names of the keys in a remainder, with those of the objects around them."""
    if isinstance(rest, dict):
        for key, item in rest.items():
            yield from paths_of(item, f"{above}.{key}" if above else key) if key != "type" or len(rest) == 1 else ()
    elif isinstance(rest, list) and any(isinstance(item, dict | list) for item in rest):
        for item in rest:
            yield from paths_of(item, f"{above}[]") if isinstance(item, dict | list) else ()
    else:
        yield above
