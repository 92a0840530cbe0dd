"""The page's files, read once: what a request may name is what was there then, and nothing is looked up for it.

``dist`` is made by ``make web`` and committed. In a checkout without it, a small page says so.
"""

from __future__ import annotations

import functools
import re
import tomllib
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

__all__ = ["DIST", "Page", "PageFile", "load_page"]

DIST: Final = Path(__file__).parent / "dist"
_NOT_BUILT: Final = Path(__file__).parent / "not_built.html"

_SAFE: Final = {
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_NOTHING: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_OWN: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; frame-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Where diagrams are drawn, from text that a model wrote: in a frame of the page, of an origin of its own, which runs the
# one script it holds, loads nothing, and reaches neither the page nor the server.
_DIAGRAMS: Final = "diagram.html"
_APART: Final = (
    "default-src 'none'; script-src 'sha256-{}'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'; sandbox allow-scripts"
)
_ASK_AGAIN: Final = "no-cache"
_FOR_GOOD: Final = "public, max-age=31536000, immutable"
# The build puts a hash of eight characters at the end of a name.
_HASHED: Final = re.compile(r"-[A-Za-z0-9_-]{8}\.[a-z0-9]+")
_HTML: Final = "text/html; charset=utf-8"
_TYPES: Final = tomllib.loads(Path(__file__).with_name("media_types.toml").read_text(encoding="utf-8"))


class PageFile(msgspec.Struct, frozen=True):
    """One file with the headers it is served under."""

    data: bytes
    media_type: str
    headers: dict[str, str]


class Page(msgspec.Struct, frozen=True):
    """What ``/`` is, and by name what lies under ``/assets/``."""

    index: PageFile
    assets: Mapping[str, PageFile]


@functools.cache
def load_page(dist: Path = DIST) -> Page:
    """The page that was built, or the one that says how to build it."""
    try:
        index = (dist / "index.html").read_bytes()
    except FileNotFoundError:
        return Page(_file(_NOT_BUILT.read_bytes(), _HTML, _ASK_AGAIN, _NOTHING), {})
    folder = dist / "assets"
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return Page(
        _file(index, _HTML, _ASK_AGAIN, _OWN),
        {path.name: _asset(path) for path in found if path.is_file() and not path.is_symlink()},
    )


def _asset(path: Path) -> PageFile:
    media_type = _TYPES.get(path.suffix.lower(), "application/octet-stream")
    cached = _FOR_GOOD if _HASHED.search(path.name) else _ASK_AGAIN
    data = path.read_bytes()
    if path.name != _DIAGRAMS:
        # An image opened by its address is a page of its own: it gets nothing to run.
        return _file(data, media_type, cached, _NOTHING)
    script = data.partition(b"<script>")[2].rpartition(b"</script>")[0]
    policy = _APART.format(b64encode(sha256(script).digest()).decode())
    return _file(data, media_type, cached, policy, framed="SAMEORIGIN")


def _file(data: bytes, media_type: str, cached: str, policy: str, framed: str = "DENY") -> PageFile:
    headers = {"cache-control": cached, "content-security-policy": policy, "x-frame-options": framed, **_SAFE}
    return PageFile(data, media_type, {**headers, "etag": f'"{sha256(data).hexdigest()[:32]}"'})
