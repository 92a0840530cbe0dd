"""Lines cached by the owner of a store: of a long session only the newest turns are read again.

A turn after 500 turns takes a fifth of the CPU (bench/NOTES.md). A cached line is as of one commit. After every
commit the writer reports the turns and messages that its units touched; a reader then reads those turns again, and all
below them. A reader that sees a newer commit than the last reported one, or a session that another process may have
written to, reads everything. Damaged turns are not cached. The size of all lines is limited: the least recently used
is dropped first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
import orjson

from clew.store import unit as u
from clew.store.base import LineSlice
from clew.transcript.line import LineTurn
from clew.transcript.pruned import Pruned
from clew.transcript.turn_state import OPEN

__all__ = ["CachedLine", "LineCache"]

MAX_BYTES: Final = 64 << 20
_SESSIONS: Final = 10_000
"""The number of sessions whose last commit is remembered."""
_PER_PART, _PER_MESSAGE, _PER_TURN = 700, 3_100, 1_300
"""The bytes that values take in memory in addition to their text, with what is derived from them."""

_PRUNED: Final = ""
"""Touched by a prune. No message has this id."""


def _nothing(_: Any) -> Iterable[str]:
    return ()


_TOUCHED: Final[dict[type[u.Write], Callable[[Any], Iterable[str]]]] = {
    **dict.fromkeys(
        (u.AppendChunks, u.MarkFolded, u.PutParts, u.PatchMessage, u.SealMessage, u.RecordUsage, u.Enqueue, u.Dequeue),
        lambda write: (write.message_id,),
    ),
    u.RecordStep: lambda write: (write.step.message_id,),
    u.SetHidden: lambda write: write.hidden,
    **dict.fromkeys((u.SetTurn, u.FinishStep), lambda write: (write.turn_id,)),
    u.LinkMessage: lambda write: (write.turn_id,),
    u.AddPruned: lambda _: (_PRUNED,),
    # A message is on no line until it is linked; where a line ends is read each time.
    **dict.fromkeys((u.InsertMessage, u.OpenTurn, u.SetEpoch, u.SetRunner, u.PutCall, u.PutSnapshot), _nothing),
    **dict.fromkeys((u.PatchSession, u.SetTitle, u.PutPrompt, u.PutBlob, u.LinkBlob, u.PutProjectRules), _nothing),
    **dict.fromkeys((u.AddEvent, u.PutSchedule, u.DropSchedule, u.PutWebhook, u.DropWebhook), _nothing),
    **dict.fromkeys((u.JoinReplica, u.BeatReplica, u.LeaveReplica, u.DeletePortion, u.FinishCopy), _nothing),
}
"""The turns and messages whose rows a write changes. After any other write the line is dropped."""


class CachedLine(msgspec.Struct, frozen=True):
    """The line of a view as of commit ``at``, and what was touched since.

    ``places`` is the position of the turn of each turn or message id. It may contain ids that have left the line, which
    only makes more turns be read again.
    """

    turns: tuple[LineTurn, ...]
    pruned: tuple[Pruned, ...]
    compaction_turn_id: str | None
    at: int
    sizes: tuple[int, ...]
    places: dict[str, int]
    touched: dict[str, int] = {}

    @property
    def untouched(self) -> int:
        """Return the number of turns from the start that have not changed."""
        first = min((self.places[id_] for id_ in self.touched if id_ in self.places), default=len(self.turns))
        if first < len(self.turns):
            return first
        # An open turn may change without a change of its rows, by a stream.
        return len(self.turns) - bool(self.turns and self.turns[-1].turn.status in OPEN)

    @property
    def known_pruned(self) -> tuple[Pruned, ...] | None:
        return None if _PRUNED in self.touched else self.pruned


class LineCache:
    """A thread-safe cache of lines. ``is_known`` returns whether no other process has written to a session."""

    def __init__(self, is_known: Callable[[str | None], bool]) -> None:
        self._is_known = is_known
        self._max_bytes = MAX_BYTES
        self._lock = threading.Lock()
        self._lines: dict[str, CachedLine] = {}
        self._written: dict[str, int] = {}
        self._before = self._newest = -1
        self.bytes = 0

    # Called by the writer

    def committed(self, commit: int, units: Iterable[u.Unit]) -> None:
        """Report units that are durable, as commit ``commit``."""
        with self._lock:
            self._newest = commit
            for unit in units:
                self._written[unit.session_id] = commit
                for write in unit.writes if unit.session_id in self._lines else ():
                    self._touch(unit.session_id, commit, write)
            if len(self._written) > _SESSIONS:
                self._written, self._before = {}, commit

    def forget(self, commit: int, session_id: str | None = None) -> None:
        """Drop a session, or all, after a change that was not made by a unit."""
        with self._lock:
            self._newest = commit
            if session_id is not None:
                self._written[session_id] = commit
                self._drop(session_id)
                return
            self._lines, self._written, self._before, self.bytes = {}, {}, commit, 0

    def _touch(self, session_id: str, commit: int, write: u.Write) -> None:
        line = self._lines.get(session_id)
        if line is None:
            return
        if isinstance(write, u.MoveHead):
            if write.why != "turn":
                self._cut(session_id, line, write.to_turn_id)
            return
        touched = _TOUCHED.get(type(write))
        if touched is None:
            self._drop(session_id)
            return
        for id_ in touched(write):
            line.touched[id_] = commit

    def _cut(self, session_id: str, line: CachedLine, head: str | None) -> None:
        """Shorten a line to the new head: the messages below it are projected again, now and when the head returns."""
        place = next((n for n, entry in enumerate(line.turns, 1) if entry.turn.id == head), 0)
        self._drop(session_id)
        if place:
            self._put(session_id, msgspec.structs.replace(line, turns=line.turns[:place], sizes=line.sizes[:place]))

    # Called by readers

    def holds(self, session_id: str) -> bool:
        """Return whether a line of the session is cached, even an outdated one."""
        return session_id in self._lines

    def find(self, session_id: str, commit: int) -> CachedLine | None:
        """Return the line of a session for a reader that sees the store as of ``commit``."""
        with self._lock:
            line = self._lines.get(session_id)
            if line is None or commit > self._newest or commit < line.at or not self._is_known(session_id):
                return None
            return msgspec.structs.replace(line, touched=dict(line.touched))

    def keep(self, session_id: str, commit: int, line: LineSlice, known: CachedLine | None) -> None:
        """Cache a line that was read as of ``commit``. ``known`` is the cached line that it was read with."""
        same = 0
        if known is not None:
            pairs = zip(known.turns, line.turns, strict=False)
            same = next(
                (n for n, (old, new) in enumerate(pairs) if old is not new), min(len(known.turns), len(line.turns))
            )
        # Cached turns are not damaged.
        if any(entry.turn.damage or any(row.damage for row in entry.messages) for entry in line.turns[same:]):
            with self._lock:
                self._drop(session_id)
            return
        # A line that only grew shares the dictionary of the line before it, which is not used any more.
        places: dict[str, int] = {}
        if known is not None and same:
            places = known.places if same == len(known.turns) else dict(known.places)
        for place, entry in enumerate(line.turns[same:], same):
            places[entry.turn.id] = place
            places.update((row.id, place) for row in entry.messages)
        sizes = (*(known.sizes[:same] if known is not None else ()), *map(_size_of, line.turns[same:]))
        with self._lock:
            held = self._lines.get(session_id)
            if not self._is_known(session_id) or (held is not None and held.at > commit):
                return
            if held is None and self._written.get(session_id, self._before) > commit:
                return  # changes during the read were not recorded
            touched = {} if held is None else {id_: at for id_, at in held.touched.items() if at > commit}
            self._drop(session_id)
            compaction = line.turns[-1].turn.compaction_turn_id if line.turns else None
            self._put(session_id, CachedLine(line.turns, line.pruned, compaction, commit, sizes, places, touched))

    def _put(self, session_id: str, line: CachedLine) -> None:
        size = sum(line.sizes)
        if size > self._max_bytes:
            return
        self._lines[session_id] = line
        self.bytes += size
        while self.bytes > self._max_bytes:
            self._drop(next(iter(self._lines)))

    def _drop(self, session_id: str) -> None:
        line = self._lines.pop(session_id, None)
        if line is not None:
            self.bytes -= sum(line.sizes)


def _size_of(entry: LineTurn) -> int:
    """Return roughly how many bytes a turn takes in memory."""
    parts: Sequence[Any] = [part.data for row in entry.messages for part in row.parts]
    size = len(orjson.dumps([parts, entry.turn.data, [row.metadata for row in entry.messages]]))
    return size + _PER_TURN + _PER_MESSAGE * len(entry.messages) + _PER_PART * len(parts)
