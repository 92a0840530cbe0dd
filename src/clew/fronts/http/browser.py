"""A browser started here gets to the page by a file of the user's own, which leads there.

Everybody on the machine can read what a program was started with, so the token must not be in it.
"""

from __future__ import annotations

import contextlib
import html
import os
import secrets
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Final

__all__ = ["open_browser"]

_LASTS_S: Final = 60.0
_PAGE: Final = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={page}">
<title>clew</title>
<a href="{page}" rel="noreferrer">Open clew</a>
"""


def open_browser(page: str, folder: Path) -> Callable[[], None]:
    """Start a browser that ends up at ``page``. The file it is given is gone after a minute, or when that is called."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for left in folder.glob("open-*.html"):  # by a server that was killed
        left.unlink(missing_ok=True)
    path = folder / f"open-{secrets.token_hex(8)}.html"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(_PAGE.format(page=html.escape(page)))
    threading.Thread(target=webbrowser.open, args=(path.as_uri(),), daemon=True).start()
    timer = threading.Timer(_LASTS_S, _remove, (path,))
    timer.daemon = True
    timer.start()

    def close() -> None:
        timer.cancel()
        _remove(path)

    return close


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
