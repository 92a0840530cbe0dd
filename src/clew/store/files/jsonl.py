"""The ``jsonl:`` format: a folder for each session, with its log, its metadata, and its stream while there is one."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any, Final

import msgspec

from clew.errors import RowUndecodable
from clew.ids import SessionIdForm
from clew.store.base import Capabilities, Damage
from clew.store.files import folder
from clew.store.files.codec import Entries, Loaded, Saving
from clew.store.files.log import Written, is_streaming, plan_log, plan_stream
from clew.store.files.memo import Memo
from clew.store.files.metadata import read_metadata, session_of, write_metadata
from clew.store.files.replay import replay
from clew.store.files.stamp import milliseconds
from clew.store.files.torn import END_OF_TORN, read_lines
from clew.store.session_value import SessionValue

__all__ = ["JsonlCodec"]

LOG: Final = "session.jsonl"
METADATA: Final = "metadata.json"
STREAM: Final = "stream.jsonl"
_CREATED: Final = ("row", "session")


class JsonlCodec:
    """Sessions under ``root/sessions``. Folders are made, and removed, under another name first: never by halves."""

    kind = "jsonl"
    evicts_released = False
    capabilities = Capabilities(
        chunk_durable=True,
        search=False,
        many_processes=False,
        session_ids=SessionIdForm.ULID,
        preset="overlay",
    )

    def __init__(self, root: Path) -> None:
        self._sessions = root / "sessions"
        self._aside = root / "clew" / "aside"

    def on_disk(self) -> list[str]:
        try:
            names = os.listdir(self._sessions)
        except FileNotFoundError:
            return []
        return sorted(name for name in names if SessionIdForm.ULID.value.fullmatch(name) and self._is_session(name))

    def _is_session(self, name: str) -> bool:
        """A folder without metadata and with nothing in its log was never anybody's session."""
        place = self._sessions / name
        try:
            return (place / METADATA).exists() or (place / LOG).stat().st_size > 0
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True  # somebody's it is; that it does not read is for the load to say

    def signature(self, session_id: str) -> object:
        place = self._sessions / session_id
        found = []
        for name in (STREAM, LOG, METADATA):
            try:
                stat = (place / name).stat()
                found.append((stat.st_ino, stat.st_size, stat.st_mtime_ns))
            except OSError:
                found.append((0, 0, 0))
        return tuple(found)

    # Reading

    def load(self, session_id: str) -> Loaded | None:
        place = self._sessions / session_id
        try:
            # The stream first: once its message is in the log it may go.
            stream, log = folder.read(place / STREAM), folder.read(place / LOG)
            known = folder.read(place / METADATA)
        except OSError as error:
            if not folder.is_unreadable(error):
                raise
            damage = Damage(f"{Path(error.filename).name} cannot be read: {error.strerror}", session_id)
            session = session_of(session_id, {"name": "(damaged)"}, 0)
            return Loaded(SessionValue(session), Memo(damaged=True), (damage,))
        metadata = read_metadata(known)
        if metadata is None and not log:
            return None
        lines, streamed = read_lines(log or b""), read_lines(stream or b"")
        damages = [f"line {number} of {LOG} does not read" for number in lines.bad]
        if metadata is None:
            damages += [f"{METADATA} does not read"] if known is not None else []
        memo = Memo(torn=lines.torn, stream_torn=streamed.torn, streams=stream is not None)
        memo.others = {key: one for key, one in (metadata or {}).items() if key != "clew"}
        try:
            session = session_of(session_id, metadata or {}, _first_time(lines.units))
        except msgspec.ValidationError as error:
            damages.append(f"{METADATA} does not hold a session: {error}")
            session = session_of(session_id, {}, _first_time(lines.units))
        value = SessionValue(session)
        damages += replay(value, memo, lines, streamed)
        return Loaded(value, memo, tuple(Damage(what, session_id) for what in damages))

    # Writing

    def plan(self, value: SessionValue, memo: Any, entries: Entries, *, sync: bool, power: bool) -> Saving | None:
        session = value.session
        if memo is not None and memo.damaged:
            raise RowUndecodable(f"the files of session {session.id} are damaged, and are not written over")
        if memo is None:
            written = plan_log(value, Memo(), entries) if entries else Written(b"", Memo())
            data, metadata = written.data, write_metadata(session, written.memo.count, {})
            return Saving(lambda: self._create(session.id, data, metadata), lambda: written.memo)
        place = self._sessions / session.id
        if not sync and is_streaming(entries):
            grown = plan_stream(value, memo, entries)
            return Saving(lambda: _append(place / STREAM, grown.data, power), lambda: grown.memo)
        if not memo.logged and entries.keys() <= {_CREATED}:
            # Until the first message the log stays empty, and the metadata is all there is.
            metadata = write_metadata(session, memo.count, memo.others)
            return Saving(lambda: folder.write_whole(place / METADATA, metadata, sync=True), lambda: memo)
        written = plan_log(value, memo, entries)
        drop = written.memo.streams and not written.memo.ahead and not value.journal
        if drop:
            written.memo.streams = written.memo.stream_torn = False
        metadata = write_metadata(session, written.memo.count, memo.others)

        def persist() -> None:
            _append(place / LOG, written.data, sync or power)
            # From here on the unit is durable: what is left can be worked out again from the log.
            with contextlib.suppress(OSError):
                if drop:
                    (place / STREAM).unlink(missing_ok=True)
                folder.write_whole(place / METADATA, metadata, sync=False)

        return Saving(persist, lambda: written.memo)

    def save(self, value: SessionValue, memo: Any) -> Saving | None:
        return None

    def _create(self, session_id: str, data: bytes, metadata: bytes) -> None:
        folder.make_folder(self._sessions)
        folder.make_folder(self._aside)
        made = self._aside / f"new-{session_id}"
        shutil.rmtree(made, ignore_errors=True)
        try:
            folder.make_folder(made)
            folder.append(made / LOG, data, sync=True)
            folder.write_whole(made / METADATA, metadata, sync=True)
            made.rename(self._sessions / session_id)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
        folder.sync_folder(self._sessions)

    def remove(self, session_id: str) -> None:
        folder.make_folder(self._aside)
        gone = self._aside / f"gone-{session_id}"
        shutil.rmtree(gone, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            (self._sessions / session_id).rename(gone)
        folder.sync_folder(self._sessions)
        shutil.rmtree(gone, ignore_errors=True)

    # Care

    def tidy(self, loaded: Loaded) -> None:
        value, memo = loaded.value, loaded.memo
        if memo.damaged:
            return
        place = self._sessions / value.session.id
        if memo.streams and not memo.ahead and not value.journal:
            (place / STREAM).unlink(missing_ok=True)
            memo.streams = memo.stream_torn = False
        known = read_metadata(folder.read(place / METADATA))
        wanted = write_metadata(value.session, memo.count, memo.others)
        # Another program's metadata is left alone until there is something new to say.
        if known is None or ("clew" in known and read_metadata(wanted) != known):
            folder.write_whole(place / METADATA, wanted, sync=True)
        if not (place / LOG).exists():
            folder.append(place / LOG, b"", sync=True)

    def sweep(self) -> None:
        shutil.rmtree(self._aside, ignore_errors=True)
        for session_id in self.on_disk():
            with contextlib.suppress(OSError):
                for path in (self._sessions / session_id).iterdir():
                    if folder.is_temporary(path):
                        path.unlink(missing_ok=True)

    def copy(self, target: Path) -> None:
        folder.make_folder(target / "sessions")
        for session_id in self.on_disk():
            into = target / "sessions" / session_id
            folder.make_folder(into)
            # In the order of reading: a message is in the stream or, later, in the log.
            for name in (STREAM, LOG, METADATA):
                data = folder.read(self._sessions / session_id / name)
                if data is not None:
                    folder.write_whole(into / name, data, sync=False)


def _append(path: Path, data: bytes, sync: bool) -> None:
    if not data:
        return
    if not data.startswith(END_OF_TORN) and not folder.ends_with(path, b"\n"):
        # An append failed, and what it left could not be taken back.
        data = END_OF_TORN + data
    folder.append(path, data, sync=sync)


def _first_time(units: list[list[dict[str, Any]]]) -> int:
    """When the log begins, for a session that nothing else is known of."""
    stamps = (milliseconds(record.get("timestamp")) for unit in units for record in unit)
    return next((stamp for stamp in stamps if stamp is not None), 0)
