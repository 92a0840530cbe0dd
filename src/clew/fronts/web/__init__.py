"""The page's files, loaded once: a request can name only files that existed then, and never reaches the disk.

``dist`` is built by ``make web`` and committed. A checkout without it serves a small page that says so.
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

_SECURITY_HEADERS: Final = {
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_DENY_ALL: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_PAGE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; frame-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
# The frame that draws diagrams from model output: it has an opaque origin, runs only its own inline script, loads
# nothing, and reaches neither the page nor the server.
_DIAGRAM_FRAME: Final = "diagram.html"
_DIAGRAM_POLICY: Final = (
    "default-src 'none'; script-src 'sha256-{}'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'; sandbox allow-scripts"
)
_REVALIDATE: Final = "no-cache"
_IMMUTABLE: Final = "public, max-age=31536000, immutable"
# The build appends a hash of eight characters to file names.
_HASHED: Final = re.compile(r"-[A-Za-z0-9_-]{8}\.[a-z0-9]+")
_HTML: Final = "text/html; charset=utf-8"
_TYPES: Final = tomllib.loads(Path(__file__).with_name("media_types.toml").read_text(encoding="utf-8"))


class PageFile(msgspec.Struct, frozen=True):
    """One file with its response headers."""

    data: bytes
    media_type: str
    headers: dict[str, str]


class Page(msgspec.Struct, frozen=True):
    """The document at ``/`` and the files under ``/assets/``, by name."""

    index: PageFile
    assets: Mapping[str, PageFile]


@functools.cache
def load_page(dist: Path = DIST) -> Page:
    """Return the built page, or the one that says how to build it."""
    try:
        index = (dist / "index.html").read_bytes()
    except FileNotFoundError:
        return Page(_file(_NOT_BUILT.read_bytes(), _HTML, _REVALIDATE, _DENY_ALL), {})
    folder = dist / "assets"
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return Page(
        _file(index, _HTML, _REVALIDATE, _PAGE_POLICY),
        {path.name: _asset(path) for path in found if path.is_file() and not path.is_symlink()},
    )


def _asset(path: Path) -> PageFile:
    media_type = _TYPES.get(path.suffix.lower(), "application/octet-stream")
    cached = _IMMUTABLE if _HASHED.search(path.name) else _REVALIDATE
    data = path.read_bytes()
    if path.name != _DIAGRAM_FRAME:
        # An image opened directly is a document: its policy allows no scripts.
        return _file(data, media_type, cached, _DENY_ALL)
    script = data.partition(b"<script>")[2].rpartition(b"</script>")[0]
    policy = _DIAGRAM_POLICY.format(b64encode(sha256(script).digest()).decode())
    return _file(data, media_type, cached, policy, framed="SAMEORIGIN")


def _file(data: bytes, media_type: str, cached: str, policy: str, framed: str = "DENY") -> PageFile:
    headers = {
        "cache-control": cached,
        "content-security-policy": policy,
        "x-frame-options": framed,
        **_SECURITY_HEADERS,
    }
    return PageFile(data, media_type, {**headers, "etag": f'"{sha256(data).hexdigest()[:32]}"'})
