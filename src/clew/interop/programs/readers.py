"""Readers of other programs' sessions, by name of the program."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Mapping
from typing import BinaryIO, Final, cast

from clew.errors import InvalidInput
from clew.interop.density import check_density, check_foreign_density, check_records
from clew.interop.programs.claude_code import read_claude_code
from clew.interop.programs.codex import read_codex
from clew.interop.programs.foreign import ForeignSession
from clew.interop.programs.import_report import Program
from clew.interop.programs.opencode import read_opencode
from clew.interop.programs.pi import read_pi
from clew.interop.session_file import MAX_FILE_BYTES

__all__ = ["READERS", "read_foreign"]

_LINE_READERS: Final[Mapping[Program, Callable[[bytes | BinaryIO], list[ForeignSession]]]] = {
    "claude-code": read_claude_code,
    "codex": read_codex,
    "pi": read_pi,
}
READERS: Final[Mapping[Program, Callable[[bytes], list[ForeignSession]]]] = {**_LINE_READERS, "opencode": read_opencode}
_COMPRESSED: Final = (b"\x28\xb5\x2f\xfd", b"\x1f\x8b")
_SPOOL_FROM_BYTES: Final = 1 << 20


def read_foreign(program: Program, data: bytes | list[bytes]) -> list[ForeignSession]:
    """Return the session in these bytes, then those of its subagents. Raise ``InvalidInput`` if it has no messages.

    Bytes passed in a list are removed from it. Lines are then read from a temporary file, so that the bytes of a large
    file and its entries are not in memory together.
    """
    payload = data if isinstance(data, list) else [data]
    del data
    if program not in READERS:
        raise InvalidInput(f"program must be one of {', '.join(READERS)}, not {program!r}")
    if len(payload[0]) > MAX_FILE_BYTES:
        raise InvalidInput(f"the file is larger than {MAX_FILE_BYTES} bytes")
    if payload[0].startswith(_COMPRESSED):
        raise InvalidInput("the file is compressed; unpack it first, a rollout of Codex with `zstd -d`")
    check_density(payload[0], lines=program in _LINE_READERS)
    check_foreign_density(payload[0])
    if program in _LINE_READERS:
        check_records(payload[0].count(b"\n"), len(payload[0]))
    spooled = _spool(payload) if program in _LINE_READERS else None
    if spooled is None:
        first, *others = READERS[program](payload.pop())
    else:
        with spooled:
            first, *others = _LINE_READERS[program](spooled)
    sessions = [one for one in (first, *others) if any(entry.kind != "note" for entry in one.entries)]
    if sessions and sessions[0] is not first:
        raise InvalidInput("it contains only subagents; their session is in a file that is not next to it")
    if not sessions:
        raise InvalidInput(f"it contains no messages: it is not a session of {program}, or an empty one")
    return sessions


def _spool(payload: list[bytes]) -> BinaryIO | None:
    """Move the bytes to a temporary file; return None if they are few or no file can be written."""
    if len(payload[0]) < _SPOOL_FROM_BYTES:
        return None
    file: BinaryIO | None = None
    try:
        file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115  # the caller closes it
        file.write(payload[0])
        file.seek(0)
    except OSError:
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()
        return None
    payload.clear()
    return file
