"""Files attached to a prompt, as parts of it."""

from __future__ import annotations

import base64
import mimetypes
from pathlib import Path
from typing import Any

from clew.errors import InvalidInput
from clew.session.prompt.admission import MAX_FILE_BYTES

__all__ = ["attach_bytes", "attach_file"]


def attach_file(path: str | Path) -> dict[str, Any]:
    """Return a local file as a part. The server determines its type and checks its size."""
    file = Path(path)
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}") from error
    return attach_bytes(file.name, data)


def attach_bytes(name: str, data: bytes) -> dict[str, Any]:
    """Return bytes as a file part with a name."""
    media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    url = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
    return {"type": "file", "mediaType": media_type, "filename": name, "url": url}
