"""The memo: what is known about the files of a ``jsonl:`` session beyond its value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from clew.store.files.log_lines import Ending
from clew.transcript.session import Spend

__all__ = ["AHEAD", "Memo"]

AHEAD: Final = frozenset({"messages", "links", "calls"})
"""Tables of which the stream file may have more than the log, which gets it when the message is brought there."""

Place = tuple[int, int]


class Memo(msgspec.Struct):
    """What is known about the files of a session beyond its value.

    ``end`` is the last number of the log and ``stream_end`` that of the stream file; each says how the file ends.
    ``ahead`` holds entries that the stream file has and the log has not, as the log has them. ``places`` says at which
    numbers the parts of a message begin; ``told`` which messages others can read; ``count`` how many such records.
    ``mended`` are messages that lost lines were mended in, in memory only: once one is changed, all of it is written.
    ``synced``: the last number of the log that a loss of power cannot take. ``damaged``: the files cannot be read, and
    are not written to; ``harmed``: files that do not read in full, and are kept before they change; of the log its end.
    ``spend`` is what the session has spent, None where it is to be added up anew.
    """

    damaged: bool = False
    seq: int = 0
    end: int = 0
    synced: int = 0
    harmed: frozenset[str] = frozenset()
    spend: Spend | None = None
    ending: Ending = ""
    stream_end: int = 0
    stream_ending: Ending = ""
    streams: bool = False
    logged: bool = False
    count: int = 0
    others: dict[str, Any] = {}
    places: dict[str, list[Place]] = {}
    told: set[str] = set()
    ahead: dict[tuple[str, str], Any] = {}
    mended: dict[str, Any] = {}

    def note(self, record: Mapping[str, Any], message_id: str, seq: int, first: int | None = None) -> None:
        """Others can read this message: a record of it, from its part ``first`` on, stands in the log."""
        self.count += record["recordType"] == "message"
        self.told.add(message_id)
        if record.get("role") != "toolResult":
            if first is None:
                own = record["clew"]
                first = 0 if "row" in own else min((spec[1] for spec in own["parts"]), default=0)
            self.places[message_id] = [*self.places.get(message_id, ()), (seq, first)]

    def copied(self, *, streamed: bool) -> Memo:
        """A memo to change while the first one still holds. What is ``streamed`` is told to nobody yet."""
        if streamed:
            return replace(self, ahead=dict(self.ahead))
        copies: dict[str, Any] = {name: dict(getattr(self, name)) for name in ("places", "ahead", "mended")}
        return replace(self, told=set(self.told), **copies)
