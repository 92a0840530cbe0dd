"""The ``jsonl:`` format: a folder for each session, with its log, its metadata, and a stream file while it streams."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from clew.errors import RowUndecodable
from clew.ids import SessionIdForm
from clew.store import boot_id
from clew.store.base import Capabilities, Damage
from clew.store.files import folder
from clew.store.files.codec import Codec, Entries, Loaded, Saving
from clew.store.files.log import Written, is_streaming, plan_log, plan_stream
from clew.store.files.log_lines import Memo, read_lines
from clew.store.files.metadata import (
    End,
    Totals,
    base_of,
    carried_keys,
    end_of,
    read_metadata,
    reserved_keys,
    session_of,
    write_metadata,
)
from clew.store.files.rebuild_value import rebuild_value
from clew.store.files.repair import Problem
from clew.store.files.session_value import SessionValue
from clew.transcript.iso_time import milliseconds

__all__ = ["JsonlCodec"]

LOG: Final = "session.jsonl"
METADATA: Final = "metadata.json"
STREAM: Final = "stream.jsonl"
_CREATED: Final = ("row", "session")


class JsonlCodec(Codec):
    """A folder for each session. Folders are created and removed under another name, so that they are never partial."""

    kind = "jsonl"
    capabilities = Capabilities(
        chunk_durable=True, search=False, many_processes=False, session_ids=SessionIdForm.ULID, preset="overlay"
    )

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._aside = root / "clew" / "aside"
        self._boot = boot_id.boot_id()

    def files_of(self, session_id: str) -> tuple[Path, ...]:
        # The stream first: it may be removed once its message is in the log.
        return tuple(self.sessions / session_id / name for name in (STREAM, LOG, METADATA))

    def on_disk(self) -> list[str]:
        names = (name for name in folder.names_in(self.sessions) if SessionIdForm.ULID.value.fullmatch(name))
        return [name for name in names if self._is_session(f"{self._place}/{name}")]

    def _is_session(self, place: str) -> bool:
        """Return whether a folder is a session: it has metadata or a log that is not empty."""
        for name in (METADATA, LOG):
            try:
                if os.stat(f"{place}/{name}").st_size > 0 or name == METADATA:
                    return True
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                return True  # the load reports that it is unreadable
        return False

    def owned(self, session_id: str) -> tuple[tuple[int, ...], ...]:
        stream, log, _ = self.signature(session_id)
        return stream[:2], log[:2]

    # Reading

    def signature(self, session_id: str) -> tuple[folder.Footprint, ...]:
        return tuple(folder.footprint(f"{self._place}/{session_id}/{name}") for name in (STREAM, LOG, METADATA))

    def load(self, session_id: str) -> Loaded | None:
        try:
            stream, log, known = (folder.read(path) for path in self.files_of(session_id))
        except OSError as error:
            if not folder.is_unreadable(error):
                raise
            return _unreadable(session_id, f"{Path(error.filename).name} cannot be read: {error.strerror}")
        metadata = read_metadata(known)
        if metadata is None and not log:
            if known is None:
                return None
            return _unreadable(session_id, f"{METADATA} does not read, and there is no log")
        end = end_of(metadata or {})
        lines = read_lines(log or b"", LOG, end.promised(self._boot))
        streamed = read_lines(stream or b"", STREAM)
        memo = Memo(streams=stream is not None, synced=min(end.synced, lines.last_seq))
        memo.others = {key: one for key, one in (metadata or {}).items() if key not in ("clew", "check")}
        damages: list[Problem] = []
        damaged_files = {STREAM} if streamed.faults else set()
        damaged_files |= {LOG} if lines.faults and lines.ending == "torn" else set()
        if metadata is None and known is not None:
            damaged_files.add(METADATA)
            damages.append((f"{METADATA} does not read", None))
        for key in reserved_keys(metadata or {}):
            damaged_files.add(METADATA)
            damages.append((f"{METADATA} has a key {key!r}, which is clew's own: the next write keeps it aside", None))
        try:
            session = session_of(session_id, metadata or {}, _first_time(lines.units))
        except msgspec.ValidationError as error:
            damaged_files.add(METADATA)
            damages.append((f"{METADATA} does not hold a session: {error}", None))
            session = session_of(session_id, {}, _first_time(lines.units))
        memo.damaged_files = frozenset(damaged_files)
        value = SessionValue.of(session)
        damages += rebuild_value(value, memo, lines, streamed)
        memo.base = base_of(metadata or {}, _totals(value, memo))
        return Loaded(value, memo, tuple(Damage(what, session_id, id_) for what, id_ in damages))

    # Writing

    def plan(self, value: SessionValue, memo: Any, entries: Entries, *, sync: bool, power: bool) -> Saving | None:
        session = value.session
        if memo is not None and memo.damaged:
            raise RowUndecodable(f"the files of session {session.id} are damaged, and are not written over")
        if memo is None or memo.aside:
            written = plan_log(value, memo or Memo(), entries) if entries else Written(b"", memo or Memo())
            written.memo.synced, written.memo.aside = written.memo.end, False
            data, metadata = written.data, self._metadata(value, written.memo)
            is_begun = memo is not None
            return Saving(lambda: self._create(session.id, data, metadata, begun=is_begun), lambda: written.memo)
        place = self.sessions / session.id
        spends = any(name == "calls" for name, _ in entries)
        if not sync and is_streaming(entries) and not memo.copied_by_hand:
            grown = plan_stream(value, memo, entries)
            grown.memo.spend = None if spends else memo.spend
            return Saving(lambda: _append(place / STREAM, grown.data, power), lambda: grown.memo)
        if not memo.logged and entries.keys() <= {_CREATED}:
            # Until the first message the log stays empty, and only the metadata is written.
            metadata = self._metadata(value, memo)
            return Saving(lambda: folder.write_whole(place / METADATA, metadata, sync=True), lambda: memo)
        written = plan_log(value, memo, entries)
        after = written.memo
        drop = after.streams and not after.ahead and not value.journal
        # The stream file may be removed only once its contents in the log survive a loss of power.
        sync = sync or power or drop
        after.synced = after.end if sync else after.synced
        if drop:
            after.streams, after.stream_end, after.stream_ending = False, 0, ""
        after.damaged_files = memo.damaged_files & {STREAM} if not drop else frozenset()
        after.spend = None if spends else memo.spend
        metadata = self._metadata(value, after)

        def persist() -> None:
            _append(
                place / LOG,
                written.data,
                sync,
                self.damaged / f"{session.id}-{LOG}" if LOG in memo.damaged_files else None,
            )
            # The unit is durable now; the rest can be derived from the log.
            with contextlib.suppress(OSError):
                for name in memo.damaged_files - after.damaged_files - {LOG}:
                    folder.keep_aside(place / name, self.damaged, f"{session.id}-{name}")
                if drop:
                    (place / STREAM).unlink(missing_ok=True)
                folder.write_whole(place / METADATA, metadata, sync=False)

        return Saving(persist, lambda: after)

    def plan_copy(self, value: SessionValue, memo: Any, entries: Entries) -> Saving | None:
        written = plan_log(value, memo or Memo(), entries)
        written.memo.aside = True
        made = self._new_folder(value.session.id)

        def persist() -> None:
            if memo is None:
                folder.make_folder(self._aside)
                shutil.rmtree(made, ignore_errors=True)
                folder.make_folder(made)
            folder.append(made / LOG, written.data, sync=False)

        return Saving(persist, lambda: written.memo)

    def _metadata(self, value: SessionValue, memo: Memo) -> bytes:
        memo.spend = memo.spend or value.spend
        session = replace(value.session, spend=memo.spend)
        return write_metadata(
            session,
            memo.count,
            memo.others or carried_keys(session),
            End(memo.end, memo.synced, self._boot),
            totals=_totals(value, memo),
            base=memo.base,
            next_seq=memo.seq + 1,
        )

    def _new_folder(self, session_id: str) -> Path:
        return self._aside / f"new-{session_id}"

    def _create(self, session_id: str, data: bytes, metadata: bytes, *, begun: bool) -> None:
        """Create a session's folder; ``begun``: portions of its log are written already."""
        folder.make_folder(self.sessions)
        folder.make_folder(self._aside)
        made = self._new_folder(session_id)
        if not begun:
            shutil.rmtree(made, ignore_errors=True)
        try:
            folder.make_folder(made)
            folder.append(made / LOG, data, sync=True)
            folder.write_whole(made / METADATA, metadata, sync=True)
            made.rename(self.sessions / session_id)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
        folder.sync_folder(self.sessions)

    def mark(self, session_id: str, memo: Any) -> Any:
        return memo.end

    def is_written(self, session_id: str, mark: Any) -> bool:
        units = read_lines(folder.read(self.sessions / session_id / LOG) or b"", LOG).units
        return any(unit[0]["seq"] > mark for unit in units)

    def remove(self, session_id: str) -> None:
        folder.make_folder(self._aside)
        shutil.rmtree(self._new_folder(session_id), ignore_errors=True)
        gone = self._aside / f"gone-{session_id}"
        shutil.rmtree(gone, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            (self.sessions / session_id).rename(gone)
        folder.sync_folder(self.sessions)
        shutil.rmtree(gone, ignore_errors=True)
        for backup in self.damaged.glob(f"{session_id}-*"):
            backup.unlink(missing_ok=True)

    # Maintenance

    def tidy(self, loaded: Loaded) -> tuple[Damage, ...]:
        value, memo = loaded.value, loaded.memo
        place = self.sessions / value.session.id
        # Damaged files are left unchanged. Only metadata can be derived from a readable log.
        if any(METADATA not in damage.what for damage in loaded.damages) or memo.damaged:
            return loaded.damages
        if memo.streams and not memo.ahead and not value.journal:
            (place / STREAM).unlink(missing_ok=True)
            memo.streams, memo.stream_end, memo.stream_ending = False, 0, ""
        known = read_metadata(folder.read(place / METADATA))
        wanted = self._metadata(value, memo)
        # Another program's metadata is left unchanged until the session changes.
        if known is None or (isinstance(known.get("clew"), dict) and _plain(read_metadata(wanted)) != _plain(known)):
            for name in memo.damaged_files:
                folder.keep_aside(place / name, self.damaged, f"{value.session.id}-{name}")
            folder.write_whole(place / METADATA, wanted, sync=True)
            memo.damaged_files = frozenset()
        if not (place / LOG).exists():
            folder.append(place / LOG, b"", sync=True)
        return ()

    def sweep(self) -> None:
        shutil.rmtree(self._aside, ignore_errors=True)
        for session_id in self.on_disk():
            with contextlib.suppress(OSError):
                folder.remove_temporary(self.sessions / session_id)


def _unreadable(session_id: str, what: str) -> Loaded:
    """Return an empty session for unreadable files, which are never written to."""
    session = session_of(session_id, {"name": "(damaged)"}, 0)
    return Loaded(SessionValue.of(session), Memo(damaged=True), (Damage(what, session_id),))


def _totals(value: SessionValue, memo: Memo) -> Totals:
    """Return what the session took. A turn that has not ended counts without its time."""
    turns = [turn for turn in value.turns.values() if turn.kind == "normal"]
    took = sum(max(0, turn.settled_at - turn.created_at) for turn in turns if turn.settled_at is not None)
    return Totals(took, value.session.total_tokens, memo.tool_calls, len(turns))


def _plain(metadata: dict[str, Any] | None) -> dict[str, Any]:
    """Return metadata without the values that change with every write and are of no use for a list."""
    found = {key: one for key, one in (metadata or {}).items() if key not in ("check", "nextSeq")}
    return {**found, "clew": {**found.get("clew", {}), "end": None}}


def _append(path: Path, data: bytes, sync: bool, torn_into: Path | None = None) -> None:
    """Append lines after the last complete one. Readers may expect every line but the last to be a record."""
    if data and not data.startswith(b"\n"):
        folder.cut_torn(path, torn_into)
    if data:
        folder.append(path, data, sync=sync)


def _first_time(units: list[list[dict[str, Any]]]) -> int:
    """Return the time of the first record, for a session without metadata."""
    stamps = (milliseconds(record.get("timestamp")) for unit in units for record in unit)
    return next((stamp for stamp in stamps if stamp is not None), 0)
