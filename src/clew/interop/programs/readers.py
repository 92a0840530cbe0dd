"""The programs whose sessions are read, by name."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Mapping
from typing import BinaryIO, Final

from clew.errors import InvalidInput
from clew.interop.density import check_density
from clew.interop.programs.claude_code import read_claude_code
from clew.interop.programs.codex import read_codex
from clew.interop.programs.foreign import Foreign
from clew.interop.programs.import_report import Program
from clew.interop.programs.opencode import read_opencode
from clew.interop.programs.pi import read_pi
from clew.interop.session_file import MAX_FILE_BYTES

__all__ = ["READERS", "read_foreign"]

_OF_LINES: Final[Mapping[Program, Callable[[bytes | BinaryIO], list[Foreign]]]] = {
    "claude-code": read_claude_code,
    "codex": read_codex,
    "pi": read_pi,
}
READERS: Final[Mapping[Program, Callable[[bytes], list[Foreign]]]] = {**_OF_LINES, "opencode": read_opencode}
_COMPRESSED: Final = (b"\x28\xb5\x2f\xfd", b"\x1f\x8b")
_LARGE: Final = 1 << 20


def read_foreign(program: Program, data: bytes | list[bytes]) -> list[Foreign]:
    """The session in these bytes, then those of its subagents. Refused when nobody says anything in it.

    Bytes that come in a list are taken out of it. Lines are then read from a temporary file: the bytes of a large one
    and all that is read from it need not be in memory together.
    """
    held = data if isinstance(data, list) else [data]
    del data
    if program not in READERS:
        raise InvalidInput(f"program must be one of {', '.join(READERS)}, not {program!r}")
    if len(held[0]) > MAX_FILE_BYTES:
        raise InvalidInput(f"the file is larger than {MAX_FILE_BYTES} bytes")
    if held[0].startswith(_COMPRESSED):
        raise InvalidInput("the file is compressed; unpack it first, a rollout of Codex with `zstd -d`")
    check_density(held[0], lines=program in _OF_LINES)
    spooled = _spool(held) if program in _OF_LINES else None
    if spooled is None:
        first, *others = READERS[program](held.pop())
    else:
        with spooled:
            first, *others = _OF_LINES[program](spooled)
    said = [one for one in (first, *others) if any(entry.kind != "note" for entry in one.entries)]
    if said and said[0] is not first:
        raise InvalidInput("only subagents speak in it: their session is in a file that is not beside it")
    if not said:
        raise InvalidInput(f"nobody says anything in it: this is no session of {program}, or one that never began")
    return said


def _spool(held: list[bytes]) -> BinaryIO | None:
    """The bytes in a file without a name, and nowhere else; None where they are few, or no file can be written."""
    if len(held[0]) < _LARGE:
        return None
    file: BinaryIO | None = None
    try:
        file = tempfile.TemporaryFile()  # noqa: SIM115  # whoever reads it closes it
        file.write(held[0])
        file.seek(0)
    except OSError:
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()
        return None
    held.clear()
    return file
