"""Opens the page in a browser by way of a private file that redirects to it.

Other users of the machine can see the arguments of a process, so the token must not be among them.
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

from clew.platform.files import CLOEXEC

__all__ = ["open_browser"]

_FILE_TTL_S: Final = 60.0
_PAGE: Final = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={page}">
<title>clew</title>
<a href="{page}" rel="noreferrer">Open clew</a>
"""


def open_browser(page: str, folder: Path) -> Callable[[], None]:
    """Open ``page`` in a browser. The redirecting file lasts a minute, or until the returned function is called."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for leftover in folder.glob("open-*.html"):  # left by a killed server
        leftover.unlink(missing_ok=True)
    path = folder / f"open-{secrets.token_hex(8)}.html"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(_PAGE.format(page=html.escape(page)))
    threading.Thread(target=webbrowser.open, args=(path.as_uri(),), daemon=True).start()
    timer = threading.Timer(_FILE_TTL_S, _remove, (path,))
    timer.daemon = True
    timer.start()

    def close() -> None:
        timer.cancel()
        _remove(path)

    return close


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
