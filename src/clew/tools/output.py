"""Bounded tool outputs: the head, the tail, and a file with all of it.

Memory does not grow with the output: a :class:`Spool` stores the first and the last bytes and writes everything to a
file in the spill folder once it is longer, up to a limit. Output that is not text is described and written to a file
in the same way.
"""

from __future__ import annotations

import codecs
import hashlib
import os
import secrets
from pathlib import Path
from typing import Any, Final

import msgspec

from clew.errors import ToolFailed
from clew.platform.files import CLOEXEC, NOFOLLOW
from clew.tools.base import MAX_OUTPUT_CHARS, File, ToolContext, ToolOutput
from clew.tools.hints import to_plain
from clew.tools.media import SNIFF_BYTES, describe, looks_binary
from clew.tools.thread import run_in_thread

__all__ = ["MAX_SPILL_BYTES", "Spool", "fit_text", "to_output"]

MAX_SPILL_BYTES: Final = 100 * 1024 * 1024
_MAX_CHAR_BYTES: Final = 4


class Spool:
    """A buffer for an output that arrives in pieces; blocking, so it is filled from a thread.

    Text longer than ``max_chars`` is cut to its two ends, which leave ``note_chars`` for the note between them.
    ``folder`` is created, readable for its owner only, once the output is too long; file names in it are random, never
    taken from a call.
    """

    def __init__(
        self,
        folder: Path,
        stem: str,
        *,
        max_chars: int = MAX_OUTPUT_CHARS,
        note_chars: int = 1_000,
        max_spill_bytes: int = MAX_SPILL_BYTES,
    ) -> None:
        self._folder = folder
        self._stem = stem
        self._max_chars = max_chars
        self._half_chars = (max_chars - note_chars) // 2
        self._max_spill_bytes = max_spill_bytes
        self._keep_bytes = max_chars * _MAX_CHAR_BYTES // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._digest = hashlib.sha256()
        self._size = 0
        self._file: int | None = None
        self._path: Path | None = None
        self._spilled = 0
        self._problem: str | None = None

    def write(self, data: bytes) -> None:
        self._digest.update(data)
        self._size += len(data)
        if self._file is None and self._problem is None and self._size > 2 * self._keep_bytes:
            self._start_file()
        if self._file is not None:
            self._spill(data)
        room = self._keep_bytes - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._keep_bytes:
            del self._tail[: -self._keep_bytes]

    def newest(self, chars: int) -> str:
        """Return the last characters so far as text, in whole lines where possible."""
        tail = bytes((self._tail or self._head)[-chars * _MAX_CHAR_BYTES :])
        if len(tail) < chars and self._tail:
            tail = bytes(self._head[-chars:]) + tail
        text = tail.decode("utf-8", "replace")
        if len(text) <= chars and len(tail) >= self._size:
            return text
        text = text[-chars:]
        return f"…\n{text.partition(chr(10))[2] or text}"

    def finish(self) -> str:
        """Return the text for the model and close the file; call it once."""
        try:
            return self._text()
        finally:
            self.close()

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _text(self) -> str:
        complete = self._size <= 2 * self._keep_bytes
        if looks_binary(bytes(self._head[:SNIFF_BYTES])):
            what = describe("binary output", bytes(self._head[:SNIFF_BYTES]), self._size, self._digest.hexdigest())
            return f"[{what}; {self._where(complete)}]"
        if complete:
            text = (self._head + self._tail).decode("utf-8", "replace")
            if len(text) <= self._max_chars:
                return text
            head, tail = text[: self._half_chars], text[-self._half_chars :]
        else:
            # Neither end may show half a character.
            head = codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(self._head))[: self._half_chars]
            tail = bytes(self._tail[-self._keep_bytes :]).lstrip(bytes(range(0x80, 0xC0))).decode("utf-8", "replace")
            tail = tail[-self._half_chars :]
        left_out = self._size - len(head.encode()) - len(tail.encode())
        note = f"{max(left_out, 0):,} of {self._size:,} bytes left out here, sha256 {self._digest.hexdigest()}"
        return f"{head}\n[… {note}; {self._where(complete)} …]\n{tail}"

    def _where(self, complete: bool) -> str:
        if complete and self._file is None and self._problem is None:
            self._start_file()
        if self._problem is not None:
            return f"the whole could not be stored: {self._problem}"
        if self._spilled < self._size:
            return f"the first {self._spilled:,} bytes are in {self._path}"
        return f"all of it is in {self._path}"

    def _start_file(self) -> None:
        """Create the file and write the output so far: until now, head and tail are everything."""
        try:
            # mkdir sets the mode of the last folder only, and the data folder is for its owner only, too.
            for folder in (self._folder.parent, self._folder):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path = self._folder / f"{self._stem}-{secrets.token_hex(8)}.txt"
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW | CLOEXEC, 0o600)
        except OSError as error:
            self._problem = error.strerror or str(error)
            return
        self._spill(bytes(self._head + self._tail))

    def _spill(self, data: bytes) -> None:
        view = memoryview(data)[: self._max_spill_bytes - self._spilled]
        try:
            while view and self._file is not None:
                written = os.write(self._file, view)
                self._spilled += written
                view = view[written:]
        except OSError as error:
            self._problem = error.strerror or str(error)
            self.close()


async def fit_text(text: str, context: ToolContext, stem: str) -> str:
    """Return ``text`` if it is short enough, else its two ends and the path of the whole."""
    if len(text) <= context.max_output_chars:
        return text
    return await run_in_thread(_spool, text.encode("utf-8", "replace"), context, stem)


async def to_output(value: Any, context: ToolContext, stem: str) -> ToolOutput:
    """Return a function's result as JSON of bounded size, with the files in it."""
    if isinstance(value, ToolOutput):
        # Built by the tool itself: its length is not limited, but it must be JSON.
        if isinstance(value.value, (bytes, bytearray, memoryview)):
            return msgspec.structs.replace(value, value=(await to_output(value.value, context, stem)).value)
        return value if isinstance(value.value, str) else _as_json(value, stem)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return ToolOutput(await run_in_thread(_spool, bytes(value), context, stem))
    if isinstance(value, str):
        return ToolOutput(await fit_text(value, context, stem))
    output = _as_json(ToolOutput(value), stem)
    encoded = msgspec.json.encode(output.value)
    if len(encoded) <= context.max_output_chars:
        return output
    return ToolOutput(await run_in_thread(_spool, encoded, context, stem), files=output.files)


def _as_json(output: ToolOutput, stem: str) -> ToolOutput:
    """Return the output with a JSON value, and the files in the value moved to ``files``."""
    files: list[File] = []
    try:
        plain = to_plain(output.value, files)
        # A list of texts with files among them becomes one text.
        if files and isinstance(plain, list) and all(isinstance(item, str) for item in plain):
            plain = "\n".join(plain)
        msgspec.json.encode(plain)
    except (TypeError, ValueError, RecursionError, UnicodeEncodeError) as error:
        raise ToolFailed(f"{stem} returned something that is not JSON: {error}") from error
    return msgspec.structs.replace(output, value=plain, files=(*output.files, *files))


def _spool(data: bytes, context: ToolContext, stem: str) -> str:
    spool = Spool(context.spill, stem, max_chars=context.max_output_chars)
    spool.write(data)
    return spool.finish()
