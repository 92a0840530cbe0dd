"""How much of an output is handed over: a head, a tail, and a file with the whole beside them.

Memory does not grow with the output: a :class:`Spool` keeps the first and the last bytes and writes everything to a
file in the spill folder as soon as they no longer hold it all, up to a cap. Output that is not text is described and
put beside in the same way. What the text means is not known here.
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
from clew.tools.base import MAX_OUTPUT_CHARS, File, ToolContext, ToolOutput
from clew.tools.hints import to_plain
from clew.tools.media import SNIFF_BYTES, describe, looks_binary
from clew.tools.thread import run_in_thread

__all__ = ["MAX_SPILL_BYTES", "Spool", "fit_text", "to_output"]

MAX_SPILL_BYTES: Final = 100 * 1024 * 1024
_MAX_CHAR_BYTES: Final = 4


class Spool:
    """Takes an output piece by piece; blocking, so it is fed from a thread.

    Of text longer than ``max_chars`` two ends are kept that leave ``note_chars`` for the note between them, so that
    the whole is within ``max_chars`` again. ``folder`` is made, for its owner alone, when the output turns out too
    long; names in it are drawn, never taken from a call.
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
        self._half = (max_chars - note_chars) // 2
        self._max_spill_bytes = max_spill_bytes
        self._keep = max_chars * _MAX_CHAR_BYTES // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._digest = hashlib.sha256()
        self._size = 0
        self._file: int | None = None
        self._path: Path | None = None
        self._spilled = 0
        self._trouble: str | None = None

    def write(self, data: bytes) -> None:
        self._digest.update(data)
        self._size += len(data)
        if self._file is None and self._trouble is None and self._size > 2 * self._keep:
            self._start_file()
        if self._file is not None:
            self._spill(data)
        room = self._keep - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._keep:
            del self._tail[: -self._keep]

    def newest(self, chars: int) -> str:
        """The last characters so far, as text; what is no text shows as such. Whole lines where that is possible."""
        kept = bytes((self._tail or self._head)[-chars * _MAX_CHAR_BYTES :])
        if len(kept) < chars and self._tail:
            kept = bytes(self._head[-chars:]) + kept
        text = kept.decode("utf-8", "replace")
        if len(text) <= chars and len(kept) >= self._size:
            return text
        text = text[-chars:]
        return f"…\n{text.partition(chr(10))[2] or text}"

    def finish(self) -> str:
        """The text for the model. Closes the file; call it once."""
        try:
            return self._text()
        finally:
            self.close()

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _text(self) -> str:
        whole = self._size <= 2 * self._keep
        if looks_binary(bytes(self._head[:SNIFF_BYTES])):
            what = describe("binary output", bytes(self._head[:SNIFF_BYTES]), self._size, self._digest.hexdigest())
            return f"[{what}; {self._where(whole)}]"
        if whole:
            text = (self._head + self._tail).decode("utf-8", "replace")
            if len(text) <= self._max_chars:
                return text
            head, tail = text[: self._half], text[-self._half :]
        else:
            # Neither end may show a character that was cut in two.
            head = codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(self._head))[: self._half]
            tail = bytes(self._tail[-self._keep :]).lstrip(bytes(range(0x80, 0xC0))).decode("utf-8", "replace")
            tail = tail[-self._half :]
        left_out = self._size - len(head.encode()) - len(tail.encode())
        note = f"{max(left_out, 0):,} of {self._size:,} bytes left out here, sha256 {self._digest.hexdigest()}"
        return f"{head}\n[… {note}; {self._where(whole)} …]\n{tail}"

    def _where(self, whole: bool) -> str:
        if whole and self._file is None and self._trouble is None:
            self._start_file()
        if self._trouble is not None:
            return f"the whole could not be kept: {self._trouble}"
        if self._spilled < self._size:
            return f"the first {self._spilled:,} bytes are in {self._path}"
        return f"all of it is in {self._path}"

    def _start_file(self) -> None:
        """The file, with what was taken so far: up to here head and tail are everything."""
        try:
            # The mode goes to the last folder of a path only, and the data folder is for its owner alone too.
            for folder in (self._folder.parent, self._folder):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path = self._folder / f"{self._stem}-{secrets.token_hex(8)}.txt"
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._trouble = error.strerror or str(error)
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
            self._trouble = error.strerror or str(error)
            self.close()


async def fit_text(text: str, context: ToolContext, stem: str) -> str:
    """``text`` as it is when it is short enough, else its two ends and where the whole is."""
    if len(text) <= context.max_output_chars:
        return text
    return await run_in_thread(_spool, text.encode("utf-8", "replace"), context, stem)


async def to_output(value: Any, context: ToolContext, stem: str) -> ToolOutput:
    """What a function returned, as JSON of bounded size, and the files in it."""
    if isinstance(value, ToolOutput):
        # Made by hand: as long as its maker wants it, but JSON.
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
    """The output with a value that JSON can hold, and the files that stood in it beside it."""
    files: list[File] = []
    try:
        plain = to_plain(output.value, files)
        # Texts with files among them are one text, as somebody would write it down.
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
