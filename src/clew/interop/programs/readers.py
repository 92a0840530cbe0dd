"""The programs whose sessions are read, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from clew.errors import InvalidInput
from clew.interop.programs.arrival import Program
from clew.interop.programs.claude_code import read_claude_code
from clew.interop.programs.codex import read_codex
from clew.interop.programs.foreign import Foreign
from clew.interop.programs.opencode import read_opencode
from clew.interop.programs.pi import read_pi
from clew.interop.session_file import MAX_FILE_BYTES

__all__ = ["READERS", "read_foreign"]

READERS: Final[Mapping[Program, Callable[[bytes], list[Foreign]]]] = {
    "claude-code": read_claude_code,
    "codex": read_codex,
    "pi": read_pi,
    "opencode": read_opencode,
}
_COMPRESSED: Final = (b"\x28\xb5\x2f\xfd", b"\x1f\x8b")


def read_foreign(program: Program, data: bytes) -> list[Foreign]:
    """The session in these bytes, then those of its subagents. Refused when nobody says anything in it."""
    if program not in READERS:
        raise InvalidInput(f"program must be one of {', '.join(READERS)}, not {program!r}")
    if len(data) > MAX_FILE_BYTES:
        raise InvalidInput(f"the file is larger than {MAX_FILE_BYTES} bytes")
    if data.startswith(_COMPRESSED):
        raise InvalidInput("the file is compressed; unpack it first, a rollout of Codex with `zstd -d`")
    first, *others = READERS[program](data)
    said = [one for one in (first, *others) if any(entry.kind != "note" for entry in one.entries)]
    if said and said[0] is not first:
        raise InvalidInput("only subagents speak in it: their session is in a file that is not beside it")
    if not said:
        raise InvalidInput(f"nobody says anything in it: this is no session of {program}, or one that never began")
    return said
