"""The memo: the state of the files of a ``jsonl:`` session, besides the session's value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from clew.store.files.log_lines import Ending
from clew.transcript.session import Spend

__all__ = ["AHEAD", "Memo"]

AHEAD: Final = frozenset({"messages", "links", "calls"})
"""Tables of which the stream file may have entries that the log gets later, together with their message."""

Place = tuple[int, int]


def count_calls(content: object) -> int:
    """Return the number of tool calls in the content of a record."""
    blocks = content if isinstance(content, list) else []
    return sum(block.get("type") == "toolCall" for block in blocks if isinstance(block, dict))


class Memo(msgspec.Struct):
    """The state of a session's files besides its value.

    ``end`` is the last number of the log and ``stream_end`` that of the stream file; ``ending`` and ``stream_ending``
    say how the files end. ``ahead`` has the log's version of entries that are newer in the stream file. ``places`` has
    the numbers at which the parts of a message begin; ``readable`` the messages that other programs can read; ``count``
    the number of such records, ``tool_calls`` that of the calls in them. ``base`` is what another program had counted
    before, which is added to the totals of the session. ``repaired`` are messages that were repaired in memory only:
    once one changes, all of it is written. ``synced``: the last number of the log that survives a loss of power.
    ``damaged``: the files cannot be read, and are not written to; ``damaged_files``: files that can be read in part,
    and are backed up before they change (of the log only its end). ``copied_by_hand``: the log is a copy of another
    session's. ``aside``: the copy of a session is not complete, and in a folder that no list shows. ``spend`` is the
    session's spend, None if it has to be added up again.
    """

    damaged: bool = False
    seq: int = 0
    end: int = 0
    synced: int = 0
    damaged_files: frozenset[str] = frozenset()
    spend: Spend | None = None
    ending: Ending = ""
    stream_end: int = 0
    stream_ending: Ending = ""
    streams: bool = False
    logged: bool = False
    copied_by_hand: bool = False
    aside: bool = False
    count: int = 0
    tool_calls: int = 0
    base: tuple[int, ...] = ()
    others: dict[str, Any] = {}
    places: dict[str, list[Place]] = {}
    readable: set[str] = set()
    ahead: dict[tuple[str, str], Any] = {}
    repaired: dict[str, Any] = {}

    def note(self, record: Mapping[str, Any], message_id: str, seq: int, first: int | None = None) -> None:
        """Note that other programs can read this message: the log has a record of it, from its part ``first`` on."""
        self.count += record["recordType"] == "message"
        if "copyOf" not in record:
            self.tool_calls += count_calls(record.get("content"))
        self.readable.add(message_id)
        if record.get("role") != "toolResult":
            if first is None:
                own = record["clew"]
                first = 0 if "row" in own else min((spec[1] for spec in own["parts"]), default=0)
            self.places[message_id] = [*self.places.get(message_id, ()), (seq, first)]

    def copied(self, *, streamed: bool) -> Memo:
        """Return a copy for a unit, of all that a unit may change. ``streamed``: other programs cannot read it yet."""
        if streamed:
            return replace(self, ahead=dict(self.ahead))
        copies: dict[str, Any] = {name: dict(getattr(self, name)) for name in ("places", "ahead", "repaired")}
        return replace(self, readable=set(self.readable), **copies)
