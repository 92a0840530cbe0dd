"""Patterns over host names: whole labels, any spelling of the same name, addresses only exactly.

``*.example.com`` matches every name below ``example.com``, not that name itself; elsewhere a ``*`` matches exactly one
label, never a part of one. An address is only matched by itself, in any form, or by ``*`` alone, which matches every
host.

A value that is not exactly a host name (with a port, a user, a path) cannot be allowed; rules that deny or ask match
every name found in it.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from typing import Final

from clew.permissions.globs import find_pieces, is_everything

__all__ = ["host_matches", "host_may_match", "normal_host"]

_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", re.ASCII)
_NUMBER: Final = re.compile(r"0x[0-9a-f]*|[0-9]+", re.ASCII)
_DOTS: Final = re.compile("[.\u3002\uff0e\uff61]")
# Characters that the two standards for international names encode differently: the same text, two hosts.
_AMBIGUOUS: Final = frozenset("\u00df\u1e9e\u03c2\u200c\u200d")
_CANDIDATES: Final = re.compile(r"\[[0-9a-fA-F:.]+\]|[^\s\x00-\x1f\x7f/@:?#\\\[\]<>|^%\"'`{}]+")
_ADDRESS: Final = re.compile(
    r"^(?:[a-zA-Z][a-zA-Z0-9+.-]*://)?(?:[^/@]*@)?([^/?#:\[]+|\[[^\]]*\])(?::[0-9]*)?(?:[/?#].*)?$"
)

Host = tuple[str, ...]
"""The labels of a name, or an address alone."""


def normal_host(text: str) -> Host | None:
    """Return the normal form of a host; None if ``text`` is not exactly a host."""
    if text.startswith("[") and text.endswith("]"):
        return _address(text[1:-1]) if ":" in text else None
    if ":" in text:
        return _address(text)
    labels = _labels(text)
    if labels is None:
        return None
    # A resolver treats a name that ends in a number as an address.
    return _address(text.removesuffix(".")) if _NUMBER.fullmatch(labels[-1]) else labels


def host_matches(pattern: str, host: str) -> bool:
    """Return whether ``pattern`` certainly matches ``host``."""
    labels = normal_host(host)
    if labels is None:
        return False
    return is_everything(pattern) or _matches_labels(pattern, labels)


def host_may_match(pattern: str, text: str) -> bool:
    """Return whether ``pattern`` matches any name in ``text``, for rules that deny or ask."""
    if is_everything(pattern):
        return True
    # People paste URLs; a rule that denies one must not be without effect.
    pattern = _ADDRESS.sub(r"\1", pattern)
    exact = normal_host(text)
    found = [] if exact is None else [exact]
    for name in _CANDIDATES.findall(text):
        # An almost valid name counts by its labels, so that it is not missed.
        labels = normal_host(name) or _odd_address(name)
        found.append(labels or tuple(label.lower() for label in _DOTS.split(name) if label))
    return any(_matches_labels(pattern, labels, loose=True) for labels in found)


def _matches_labels(pattern: str, labels: Host, *, loose: bool = False) -> bool:
    address = normal_host(pattern)
    if address is not None:
        return address == labels
    if len(labels) == 1 and (":" in labels[0] or labels[0].count(".") == 3):
        # A star matches an address only in rules that deny or ask: `10.*` is too vague to allow.
        return loose and _matches_star(pattern, labels[0])
    expected = [label.lower() if "*" in label else _ascii(label) for label in pattern.removesuffix(".").split(".")]
    if not all(expected):
        return False
    if expected[0] == "*" and len(expected) > 1:
        tail = expected[1:]
        if len(labels) <= len(tail):
            return False
        labels = labels[-len(tail) :]
        expected = tail
    if len(expected) != len(labels):
        return False
    return all(
        w in (label, "*") or (loose and _matches_star(w or "", label))
        for w, label in zip(expected, labels, strict=True)
    )


def _matches_star(pattern: str, text: str) -> bool:
    """Match a star inside a label or an address, which is too vague to allow, but enough to deny."""
    return "*" in pattern and find_pieces(pattern.lower().split("*"), text)


def _labels(text: str) -> Host | None:
    parts = _DOTS.split(text)
    if len(parts) > 1 and parts[-1] == "":
        parts.pop()
    labels = tuple(_ascii(part) or "" for part in parts)
    if not all(_LABEL.fullmatch(label) for label in labels) or sum(map(len, labels)) + len(labels) > 254:
        return None
    return labels


def _ascii(label: str) -> str | None:
    """Return a label in its ASCII form."""
    if label.isascii():
        return label.lower()
    if set(label) & _AMBIGUOUS or not label.isprintable():
        return None
    try:
        return unicodedata.normalize("NFKC", label).lower().encode("idna").decode("ascii")
    except UnicodeError:
        return None


def _address(text: str) -> Host | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            return None
        if address.ipv4_mapped is not None:
            return (str(address.ipv4_mapped),)
    return (str(address),)


def _odd_address(text: str) -> Host | None:
    """Parse an IPv4 address in the forms of the C library: one to four numbers, in base 8, 10 or 16."""

    parts = text.removesuffix(".").lower().split(".")
    if not 1 <= len(parts) <= 4 or not all(_NUMBER.fullmatch(part) and len(part) < 16 for part in parts):
        return None
    try:
        numbers = [_number(part) for part in parts]
    except ValueError:
        return None
    *high, low = numbers
    if any(number > 255 for number in high) or low >= 256 ** (4 - len(high)):
        return None
    value = low
    for index, number in enumerate(high):
        value += number << (8 * (3 - index))
    return (str(ipaddress.IPv4Address(value)),)


def _number(text: str) -> int:
    if text.startswith("0x"):
        return int(text[2:] or "0", 16)
    return int(text, 8) if text.startswith("0") and len(text) > 1 else int(text)
