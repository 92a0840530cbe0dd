"""Patterns over host names: whole labels, any spelling of the same name, addresses only as they are.

``*.example.com`` is every name below ``example.com`` and not that name itself; elsewhere a ``*`` stands for exactly
one label, and never for a part of one. An address is allowed by itself only, in whatever form it is written, so no
star but ``*`` alone, which is every host, reaches it.

A value that is not a host name and nothing else (with a port, a user, a path) cannot be allowed; rules that deny or
ask look at every name that can be made out in it.
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
# Characters that the two standards for international names spell differently: the same text, two hosts.
_AMBIGUOUS: Final = frozenset("\u00df\u1e9e\u03c2\u200c\u200d")
_NAMELIKE: Final = re.compile(r"\[[0-9a-fA-F:.]+\]|[^\s\x00-\x1f\x7f/@:?#\\\[\]<>|^%\"'`{}]+")
_ADDRESS: Final = re.compile(
    r"^(?:[a-zA-Z][a-zA-Z0-9+.-]*://)?(?:[^/@]*@)?([^/?#:\[]+|\[[^\]]*\])(?::[0-9]*)?(?:[/?#].*)?$"
)

Host = tuple[str, ...]
"""The labels of a name, or an address alone."""


def normal_host(text: str) -> Host | None:
    """The one form of a host; None when ``text`` is not exactly a host."""
    if text.startswith("[") and text.endswith("]"):
        return _address(text[1:-1]) if ":" in text else None
    if ":" in text:
        return _address(text)
    labels = _labels(text)
    if labels is None:
        return None
    # To a resolver a name that ends in a number is an address, however oddly it is written.
    return _address(text.removesuffix(".")) if _NUMBER.fullmatch(labels[-1]) else labels


def host_matches(pattern: str, host: str) -> bool:
    """Whether ``host`` is certainly one that ``pattern`` names."""
    labels = normal_host(host)
    if labels is None:
        return False
    return is_everything(pattern) or _fits(pattern, labels)


def host_may_match(pattern: str, text: str) -> bool:
    """Whether any name in ``text`` is one that ``pattern`` names, for rules that deny or ask."""
    if is_everything(pattern):
        return True
    # People paste addresses of pages; a refusal that is written like one must not be without effect.
    pattern = _ADDRESS.sub(r"\1", pattern)
    whole = normal_host(text)
    found = [] if whole is None else [whole]
    for name in _NAMELIKE.findall(text):
        # What is nearly a name counts by its labels: nothing that may be meant is to slip by.
        labels = normal_host(name) or _odd_address(name)
        found.append(labels or tuple(label.lower() for label in _DOTS.split(name) if label))
    return any(_fits(pattern, labels, loose=True) for labels in found)


def _fits(pattern: str, labels: Host, *, loose: bool = False) -> bool:
    address = normal_host(pattern)
    if address is not None:
        return address == labels
    if len(labels) == 1 and (":" in labels[0] or labels[0].count(".") == 3):
        # No star reaches an address but in a refusal: `10.*` is too little to allow by.
        return loose and _star_fits(pattern, labels[0])
    wanted = [label.lower() if "*" in label else _ascii(label) for label in pattern.removesuffix(".").split(".")]
    if not all(wanted):
        return False
    if wanted[0] == "*" and len(wanted) > 1:
        tail = wanted[1:]
        if len(labels) <= len(tail):
            return False
        labels = labels[-len(tail) :]
        wanted = tail
    if len(wanted) != len(labels):
        return False
    return all(
        w in (label, "*") or (loose and _star_fits(w or "", label)) for w, label in zip(wanted, labels, strict=True)
    )


def _star_fits(pattern: str, text: str) -> bool:
    """A star inside a label or an address says too little to allow by, and enough to deny by."""
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
    """A label as it goes over the wire."""
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
    """An IPv4 address in the forms that the C library reads: one to four numbers, in base 8, 10 or 16."""
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
