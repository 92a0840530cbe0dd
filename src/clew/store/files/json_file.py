"""The ``json:`` format: one file for each session, which is replaced at every unit except while a message grows.

``messages`` is the current conversation, in the form that other programs read. Messages of other branches, and clew's
own tables, are under ``clew``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
import orjson
from msgspec.structs import replace

from clew.errors import RowUndecodable
from clew.ids import SessionIdForm
from clew.store.base import Capabilities, Damage
from clew.store.files import folder
from clew.store.files.adopt import adopt, project_hidden
from clew.store.files.codec import MISREAD, Codec, Entries, Loaded, Saving
from clew.store.files.crc import BOM, check_of, checked, is_check, is_checked, verdict, with_check, without_check
from clew.store.files.json_message import (
    decode_message,
    encode_message,
    plain_metadata,
    plain_records,
    with_unknown_keys,
)
from clew.store.files.log import is_streaming
from clew.store.files.metadata import HEADED, as_found, carried_keys, renamed, reserved_keys, session_of
from clew.store.files.record import is_marker
from clew.store.files.repair import Problem, RepairHints, repair_value
from clew.store.files.session_value import TABLES, OwnIds, SessionValue, dump_table, load_entry
from clew.transcript.iso_time import iso
from clew.transcript.line import line_messages
from clew.transcript.message import MessageRow
from clew.transcript.metadata import PLACE_KEYS, local_place
from clew.transcript.model_call import sum_usage, with_usage
from clew.transcript.session import Session
from clew.transcript.view import compaction_data

__all__ = ["JsonCodec"]

_APART: Final = ("row", "messages")
_OWN: Final = frozenset({"messages", "clew", "check"})
_SHOWN: Final = ("id", "title", "model", "createdAt", "updatedAt")
"""Keys of a file that repeat values of the session's row."""


class JsonMemo(msgspec.Struct):
    """``dirty``: memory is ahead of the file. ``others`` are keys of the file that are not only clew's, as found.

    ``unread`` are invalid messages, which are written back unchanged. ``repaired`` are messages that were repaired in
    memory, with the file's version of each, which is written back. ``faults``: the damage of the file, which is backed
    up before it is replaced; ``is_backed_up``: no backup is needed. ``damaged``: the file is unreadable, and is never
    replaced.
    """

    dirty: bool = False
    damaged: bool = False
    others: dict[str, Any] = {}
    unread: list[Any] = []
    repaired: dict[str, tuple[MessageRow, MessageRow | None]] = {}
    faults: list[Problem] = []
    is_backed_up: bool = True


class JsonCodec(Codec):
    """A file for each session."""

    kind = "json"
    capabilities = Capabilities(
        chunk_durable=False,
        search=False,
        many_processes=False,
        session_ids=SessionIdForm.UUID,
        preset="checkpoint",
        required_metadata=PLACE_KEYS,
    )

    def files_of(self, session_id: str) -> tuple[Path, ...]:
        return (self.sessions / f"{session_id}.json",)

    def on_disk(self) -> list[str]:
        stems = (name.removesuffix(".json") for name in folder.names_in(self.sessions) if name.endswith(".json"))
        return [stem for stem in stems if SessionIdForm.UUID.value.fullmatch(stem)]

    # Reading

    def signature(self, session_id: str) -> tuple[folder.Footprint, ...]:
        return (folder.footprint(f"{self._place}/{session_id}.json"),)

    def load(self, session_id: str) -> Loaded | None:
        try:
            data = folder.read(*self.files_of(session_id))
        except OSError as error:
            if not folder.is_unreadable(error):
                raise
            return _unreadable(session_id, f"its file cannot be read: {error.strerror}")
        if data is None:
            return None
        try:
            # After the last brace there is only a newline, which may be damaged.
            document = orjson.loads(data[: data.rfind(b"}") + 1].removeprefix(BOM))
            if not isinstance(document, dict):
                raise TypeError("it holds no object")
            reading = _Reading(session_id, document, data)
            damages = tuple(Damage(what, session_id, id_) for what, id_ in reading.read())
        except MISREAD as error:
            return _unreadable(session_id, f"its file does not read: {error}")
        return Loaded(reading.value, reading.memo, damages)

    # Writing

    def plan(self, value: SessionValue, memo: Any, entries: Entries, *, sync: bool, power: bool) -> Saving | None:
        if memo is not None and memo.damaged:
            raise RowUndecodable(f"the file of session {value.session.id} is damaged, and is not written over")
        if memo is not None and not sync and is_streaming(entries):
            # The file is written once a step, since its size makes a write for every word too expensive.
            memo.dirty = True
            return None
        return self._saving(value, memo or JsonMemo())

    def is_ahead(self, memo: Any) -> bool:
        return bool(memo.dirty)

    def ahead(self, memo: Any) -> Any:
        return replace(memo, dirty=True)

    def save(self, value: SessionValue, memo: Any) -> Saving | None:
        return self._saving(value, memo) if memo.dirty else None

    def _saving(self, value: SessionValue, memo: JsonMemo) -> Saving:
        after = replace(memo, dirty=False, is_backed_up=True)

        def persist() -> None:
            folder.make_folder(self.sessions)
            (path,) = self.files_of(value.session.id)
            if not memo.is_backed_up:
                folder.keep_aside(path, self.damaged, path.name)
            try:
                data = _encode(value.copy(), memo)
            except orjson.JSONEncodeError as error:
                what = f"session {value.session.id} holds what cannot be written as JSON: {error}"
                raise RowUndecodable(what, session_id=value.session.id) from error
            # Synced whatever the unit asks for: it replaces all that was acknowledged before.
            folder.write_whole(path, data, sync=True)

        return Saving(persist, lambda: after)

    def mark(self, session_id: str, memo: Any) -> Any:
        return [list(found) for found in self.signature(session_id)]

    def is_written(self, session_id: str, mark: Any) -> bool:
        return bool(self.mark(session_id, None) != mark)

    def remove(self, session_id: str) -> None:
        for path in (*self.files_of(session_id), *self.damaged.glob(f"{session_id}.json-*")):
            path.unlink(missing_ok=True)
        folder.sync_folder(self.sessions)

    def sweep(self) -> None:
        folder.remove_temporary(self.sessions)


def _encode(value: SessionValue, memo: JsonMemo) -> bytes:
    session, others = value.session, memo.others or carried_keys(value.session)
    for message_id, (repaired, read) in memo.repaired.items():
        if value.messages.get(message_id) is repaired:
            value.messages.pop(message_id)
            value.messages.update({} if read is None else {message_id: read})
    shown, aside = _ordered(value)
    place = {**local_place(session.workspace_root), **others, **session.metadata}
    row = msgspec.to_builtins(replace(session, spend=value.spend))
    own = {
        "version": HEADED,
        "session": row,
        "session_check": check_of(row),
        "aside": [*(_fragment(shape) for shape in aside), *memo.unread],
        "tables": {
            name: [_fragment(entry) for entry in dump_table(value, name)]
            for name in TABLES
            if name not in _APART and (name != "snapshots" or value.snapshots)
        },
    }
    document = {
        **as_found(others, _shown(session) | _shown_elsewhere(session, others)),
        **{key: place[key] for key in PLACE_KEYS},
        # The row comes before everything that grows, since a list only reads that far.
        "clew": {**own, "damaged": memo.faults} if memo.faults else own,
        "messages": [_fragment(shape) for shape in shown],
    }
    known = {key: one for key, one in document.items() if one is not None}
    rest = {key: one for key, one in others.items() if key not in known and key not in _SHOWN}
    return with_check(orjson.dumps({**known, **rest})) + b"\n"


def _shown(session: Session) -> dict[str, Any]:
    times = {"createdAt": iso(session.created_at), "updatedAt": iso(session.updated_at)}
    return dict(zip(_SHOWN, (session.id, session.title, str(session.model), *times.values()), strict=True))


def _shown_elsewhere(session: Session, found: dict[str, Any]) -> dict[str, Any]:
    """Return the same values under the names that some programs have for them; these tell times in milliseconds."""
    at = session.updated_at
    return {
        "sessionId": session.id,
        "name": session.title or "",
        "lastActiveAt": iso(at) if "lastActiveAt" in found else at,
    }


def _fragment(value: Any) -> orjson.Fragment:
    return orjson.Fragment(checked(value))


def _ordered(value: SessionValue) -> tuple[list[Any], list[Any]]:
    """Return the conversation, with each summary before its tail, and all other messages."""
    line = [value.messages[id_] for _, id_ in line_messages(value.tree()) if id_ in value.messages]
    markers = [row for row in line if is_marker(row)]
    places = {row.id: place for place, row in enumerate(line)}
    turns = {message_id: turn_id for turn_id, held in reversed(value.links.items()) for message_id in held}
    before: dict[int, list[MessageRow]] = {}
    for marker in markers:
        tail = (compaction_data(marker) or {}).get("tail_start_id")
        before.setdefault(places.get(str(tail), places[marker.id]) if tail else 0, []).append(marker)
    shown: list[Any] = []
    written: set[str] = set()
    for place, row in enumerate(line):
        for marker in before.get(place, ()):
            shown += _placed(value, marker, turns)
        if not is_marker(row) and row.id not in written:
            shown += _placed(value, row, turns)
        written.add(row.id)
    return shown, [
        shape for row in value.messages.values() if row.id not in written for shape in _placed(value, row, turns)
    ]


def _placed(value: SessionValue, row: MessageRow, turns: dict[str, str]) -> list[dict[str, Any]]:
    """Return a message with the turn that holds it and that turn's parent, in case the entry of either is lost."""
    shapes = encode_message(row)
    turn = value.turns.get(turns.get(row.id, ""))
    for shape in shapes:
        if "row" in shape["clew"] and value.seals.get(row.id, row.seal) != row.seal:
            # The message was damaged before, although the file's check is valid.
            shape["clew"]["unsound"] = True
        if turn is not None and "row" in shape["clew"]:
            shape["clew"]["turn"] = [turn.id, turn.parent_turn_id]
    return shapes


class _Reading:
    """The reading of one file, from its bytes and what they hold."""

    def __init__(self, session_id: str, document: dict[str, Any], data: bytes) -> None:
        self._document, self._data, self._whole = document, data, verdict(data[:-1]) == "whole"
        own = document.get("clew")
        self._own = own if isinstance(own, dict) else None
        if not isinstance(document.get("messages", []), list):
            raise TypeError("its messages are no list")
        # A file with checks is judged by them; one of another program, or of an older clew, has none.
        has_checks = "check" in document or "session_check" in (self._own or {})
        if self._own is None:
            has_checks = is_check(document.get("check"))
        self._doubted = has_checks and not self._whole and not _is_whole(document)
        if self._doubted:
            _check_frame(document)
        self._faults: list[Problem] = []
        self._strange: list[Problem] = []
        self._hints = RepairHints()
        self._verified: list[MessageRow] = []
        self.value = SessionValue.of(session_of(session_id, document, 0))
        self.memo = JsonMemo(others={key: one for key, one in document.items() if key not in _OWN})

    def read(self) -> list[Problem]:
        shapes = self._document.get("messages", [])
        if self._own is None:
            self._faults += _reserved([self._document, *shapes])
            self.memo.faults, self.memo.is_backed_up = [*self._faults], not self._faults
            return self._faults + _load_plain(self.value, shapes, self.memo.unread)
        aside, tables = self._own.get("aside"), self._own.get("tables")
        known = [(str(what), id_) for what, id_ in self._own.get("damaged", ())]
        self._read_tables(tables if isinstance(tables, dict) else {})
        plain = self._read_messages([*shapes, *(aside if isinstance(aside, list) else [])])
        for row in self._verified:
            # Its content is verified; the seal may differ in its form (``1.0`` for ``1``), or by keys that were added.
            if row.id in self.value.seals:
                self.value.seals[row.id] = row.seal
        session = self.value.row["session"]
        if self._doubted and not self._faults and self._own.get("version") == HEADED:
            # Every piece is unchanged. Another program may have rewritten the file, with keys of its own.
            others = self.memo.others
            shown = as_found(others, _shown(session))
            self._doubted = any(others.get(key) != one for key, one in shown.items())
            if not self._doubted:
                self.value.row["session"] = named = renamed(session, self._data, self._document)
                self._doubted = named is session and others.get("name", named.title or "") != (named.title or "")
        reserved = _reserved(plain)
        if self._doubted and not (self._faults or plain):
            self._faults.append(("something in its file was changed after it was written", None))
        found = [*known, *self._faults]
        # Contents that are not understood are not written back, so the file is backed up before.
        found += reserved
        self.memo.faults, self.memo.is_backed_up = [*found], not (self._doubted or self._faults or reserved)
        read = dict(self.value.messages)
        found += self._strange
        self._hints.damaged = bool(found)
        found += repair_value(self.value, self._hints)
        changed = [row for id_, row in self.value.messages.items() if read.get(id_) is not row]
        self.memo.repaired = {row.id: (row, read.get(row.id)) for row in changed}
        written = self._own.get("session")
        if isinstance(written, dict) and written.get("id") != session.id:
            # A copy of another session's file. The next write replaces it, with ids of its own.
            ids = OwnIds(self.value, session.id)
            ids.apply(self.value)
            self.memo.repaired = {
                ids(id_): (self.value.messages[ids(id_)], old) for id_, (_, old) in self.memo.repaired.items()
            }
        return found + (_load_plain(self.value, plain, self.memo.unread) if plain else [])

    def _read_messages(self, shapes: list[Any]) -> list[Any]:
        """Read the messages that clew wrote; return those of other programs."""
        held = {id_ for ids in self.value.links.values() for id_ in ids} if self._doubted else set()
        plain: list[Any] = []
        groups: dict[Any, list[Any]] = {}
        for shape in shapes:
            own = shape.get("clew") if isinstance(shape, dict) else None
            ours = (
                self._doubted and isinstance(shape, dict) and (is_check(shape.get("check")) or shape.get("id") in held)
            )
            if not isinstance(own, dict) and not ours:
                plain.append(shape)
                continue
            own = own if isinstance(own, dict) else {}
            named = next((own[key] for key in ("id", "of", "boundary") if key in own), shape.get("id"))
            groups.setdefault(named if isinstance(named, str) else id(shape), []).append(shape)
        for group in groups.values():
            try:
                self._read_message(group)
            except MISREAD as error:
                what = f"a message does not read: {type(error).__name__}: {error}"
                if self._doubted:
                    self._faults.append((what, None))
                else:
                    self._strange.append((what, None))
                    self.memo.unread += group
        return plain

    def _read_message(self, group: list[Any]) -> None:
        """Take in one message, of which the file may hold several of another program's, or a boundary."""
        carrier = next((one for one in group if isinstance(one["clew"], dict) and "row" in one["clew"]), None)
        row = decode_message(carrier, self.value.row["session"].id) if carrier is not None else None
        if self._doubted:
            written = encode_message(row) if row is not None else []
            for place, shape in enumerate(group):
                # Keys that another program added are no part of what was written.
                ours = {**written[place], "clew": shape["clew"]} if len(written) == len(group) else None
                if ours is None or not (_holds(shape, ours) and is_checked(ours, shape.get("check"))):
                    without_check(shape)
        if row is None:
            raise KeyError("clew")
        read = row if self._whole else with_unknown_keys(row, group)
        if self._doubted and carrier is not None and "unsound" not in carrier["clew"]:
            self._verified.append(read)
        if self._doubted and carrier is not None and "turn" in carrier["clew"]:
            turn_id, parent_id = carrier["clew"]["turn"]
            self._hints.turn_of[row.id] = turn_id
            self._hints.parents[turn_id] = parent_id
        self.value.messages[row.id] = read

    def _read_tables(self, tables: dict[str, Any]) -> None:
        for name, entries in tables.items():
            if name not in TABLES or not isinstance(entries, list):
                self._faults.append((f"there is a table {name!r}, which is not known", None))
                continue
            for entry in entries:
                try:
                    key, one = without_check(entry) if self._doubted else entry[:2]
                    load_entry(self.value, name, key, one)
                except MISREAD as error:
                    self._faults.append((f"an entry of {name} does not read: {type(error).__name__}: {error}", None))
                    self._hints.state_lost |= name == "state"


def _reserved(objects: list[Any]) -> list[Problem]:
    """Return what another program's objects have under the names of clew's own keys, where it cannot be kept."""
    keys = [key for one in objects if isinstance(one, dict) for key in reserved_keys(one)]
    return [
        (f"there is a key {key!r} of another program, which is clew's own: the next write keeps it aside", None)
        for key in keys
    ]


def _holds(found: Any, written: Any) -> bool:
    """Return whether all that was written is there, maybe with further keys: a changed key is a lost and a new one."""
    if isinstance(found, dict) and isinstance(written, dict):
        return all(key in found and _holds(found[key], one) for key, one in written.items())
    if isinstance(found, list) and isinstance(written, list):
        return len(found) == len(written) and all(map(_holds, found, written))
    return bool(found == written)


def _check_frame(document: dict[str, Any]) -> None:
    """Raise an error unless the values without a check of their own are present, which the rest depends on."""
    own = document["clew"]
    if not is_checked(own["session"], own.get("session_check")):
        raise ValueError("what it says of the session was changed after it was written")
    if not (isinstance(document["messages"], list) and isinstance(own["aside"], list)):
        raise ValueError("its messages are not where they were written")
    if not own["tables"].keys() <= TABLES.keys():
        raise ValueError("its tables are not what was written")


def _is_whole(document: dict[str, Any]) -> bool:
    try:
        without_check(document)
    except ValueError:
        return False
    return True


def _load_plain(value: SessionValue, messages: list[Any], unread: list[Any]) -> list[Problem]:
    """Adopt messages that another program wrote. Invalid ones are preserved unchanged in ``unread``."""
    wrong: list[Problem] = []
    for shape in messages:
        if not isinstance(shape, dict) or shape.get("role") not in ("user", "assistant", "tool"):
            wrong.append(("a message is neither a user's nor an assistant's, and is passed over", None))
            unread.append(shape)
    places: dict[str, list[tuple[int, int]]] = {}
    count = len(value.messages)
    for record in plain_records(messages):
        preserved, before = record.pop("kept", ()), record.pop("before", ())
        try:
            known = dict(value.messages)
            message_id = adopt(value, {**record, "seq": record["seq"] + count}, places, preserved, before)
            if message_id is None:
                if "from" in record:
                    wrong.append(("a result belongs to no call, and is passed over", None))
                    unread.append(messages[record["from"]])
                continue
            if record.get("role") != "toolResult":
                first = len(known[message_id].parts) if message_id in known else 0
                places[message_id] = [*places.get(message_id, ()), (record["seq"], first)]
            if "from" in record:
                row = value.messages[message_id]
                found = plain_metadata(messages[record["from"]])
                if "usage" in found and "usage" in row.metadata:
                    found["usage"] = {key: one + row.metadata["usage"][key] for key, one in found["usage"].items()}
                value.messages[message_id] = replace(row, metadata={**row.metadata, **found})
        except MISREAD as error:
            wrong.append((f"a message makes no sense: {type(error).__name__}: {error}", None))
            unread += [messages[record["from"]]] if "from" in record else []
    project_hidden(value)
    total = sum_usage(value.messages.values())
    value.row["session"] = with_usage(value.row["session"], total)
    return wrong


def _unreadable(session_id: str, what: str) -> Loaded:
    """Return an empty session for an unreadable file, which is never replaced automatically."""
    session = session_of(session_id, {"title": "(damaged)"}, 0)
    return Loaded(SessionValue.of(session), JsonMemo(damaged=True), (Damage(what, session_id),))
