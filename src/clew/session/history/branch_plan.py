"""The plan of a branch: the line of another session, cut and under new ids. Pure.

A line is a portable session with only the turns of that line, and only the messages that were read: the last one, and
every one that must change. The store copies the others without reading them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from clew.errors import BranchPointInvalid
from clew.ids import Mint
from clew.session.history.branch_line import MAX_TURNS_PER_UNIT
from clew.session.history.lookup import LocatedMessage
from clew.store import unit as u
from clew.store.copied_line import NOT_COPIED, CopiedMessage, CopiedRun, CopiedTurn
from clew.transcript.head import copied_compaction, holding_at
from clew.transcript.line import LineTurn, tail_place
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.metadata import merge
from clew.transcript.part import COMPACTION_PART, approval_of, is_open_call
from clew.transcript.portable import FreshIds, PortableSession, Rename, rename_part, rename_row, tree_of
from clew.transcript.projection import Hidden, compaction_tails, hidden_messages
from clew.transcript.session import Session
from clew.transcript.turn import CHUNKS, HeadMove, Turn, with_parent
from clew.transcript.turn_state import OPEN
from clew.transcript.view import compaction_data, compactions_of

__all__ = ["LEFT_BEHIND", "check_point", "check_turn", "cut_line", "plan_branch", "start_line"]

LEFT_BEHIND: Final = "left behind by a branch"
_ENDINGS: Final = frozenset(
    {"error", "stopped", "max_steps", "budget_from", "warned", "resumed", "swapped_from", CHUNKS}
)
"""Turn data about the end of the whole turn, which does not apply to a part of it."""
replace = msgspec.structs.replace


def check_point(point: LocatedMessage) -> Turn:
    """Return the last turn of a branch at this message; raise :class:`BranchPointInvalid` if there is none."""
    if point.turn is None:
        raise BranchPointInvalid(
            "this message was never sent; there is nothing to branch from", message_id=point.row.id
        )
    return check_turn(point.turn)


def check_turn(turn: Turn) -> Turn:
    if turn.status == "refused":
        raise BranchPointInvalid("this turn was refused; there is nothing to branch from", turn_id=turn.id)
    return turn


def cut_line(line: PortableSession, turn_id: str, point_id: str) -> PortableSession:
    """Return the line up to a message of one of its turns, with the newest compaction that applies there too.

    A compaction from further down the line is copied: below the turn if that is complete, else directly above it. One
    that was made inside the turn, after the message, did not exist when the message was the newest, and is left out.
    """
    at = next(n for n, turn in enumerate(line.turns) if turn.id == turn_id)
    above, last, below = list(line.turns[:at]), line.turns[at], line.turns[at + 1 :]
    message_ids = line.links[last.id]
    end = message_ids.index(point_id) + 1
    copied_compactions: list[Turn] = []
    if last.kind != "compaction":
        rows = {row.id: row for row in line.messages}
        entries = [
            LineTurn(turn, tuple(rows[id_] for id_ in line.links[turn.id] if id_ in rows)) for turn in line.turns
        ]
        known = list(compactions_of(entries))
        ids = [(turn.id, message_id) for turn in line.turns for message_id in line.links[turn.id]]
        holding = holding_at(ids, known, last.id, point_id)
        while above and above[-1].id not in holding and any(one.turn_id == above[-1].id for one in known):
            above.pop()
        copied_compactions = [copied_compaction(turn, turn.id, None) for turn in below if turn.id in holding][-1:]
    # A branch that ends with a user message waits for an answer, whatever followed it in the original.
    ends_whole = end == len(message_ids) and any(row.id == point_id and row.role != "user" for row in line.messages)
    turns = (*above, last, *copied_compactions) if ends_whole else (*above, *copied_compactions, last)
    return replace(line, turns=turns, links={**line.links, last.id: message_ids[:end]})


def start_line(line: PortableSession, start: MessageRow) -> PortableSession:
    """Return the line from a message on: from a user message, without summaries of what came before, or from a summary
    with what it kept."""
    entries = [(turn, message_id) for turn in line.turns for message_id in line.links[turn.id]]
    at = next((n for n, (_, message_id) in enumerate(entries) if message_id == start.id), None)
    if at is None:
        raise BranchPointInvalid("start_message_id is not at or before the branch point", message_id=start.id)
    turn = entries[at][0]
    data = compaction_data(start) if turn.kind == "compaction" else None
    if data is not None:
        tail = data.get("tail_start_id")
        ids = [(turn.id, message_id) for turn, message_id in entries]
        first = min(tail_place(ids, turn.id, tail if isinstance(tail, str) else None), at)
        positions = [n for n in range(first, len(entries)) if n >= at or entries[n][0].kind != "compaction"]
    else:
        leads = at == 0 or entries[at - 1][0] is not turn
        if start.role != "user" or start.is_synthetic or not leads:
            raise BranchPointInvalid(
                "start_message_id must be a user message that starts a turn, or a summary", message_id=start.id
            )
        positions = [n for n in range(at, len(entries)) if entries[n][0].kind != "compaction"]
    links: dict[str, tuple[str, ...]] = {}
    for n in positions:
        turn, message_id = entries[n]
        links[turn.id] = (*links.get(turn.id, ()), message_id)
    return replace(line, turns=tuple(turn for turn in line.turns if turn.id in links), links=links)


def plan_branch(
    line: PortableSession,
    child: Session,
    mint: Mint,
    now: int,
    *,
    whole: bool,
    runs: Mapping[str, Sequence[tuple[str, int]]] | None = None,
) -> tuple[tuple[u.Write, ...], ...]:
    """Return the writes that make ``child`` a copy of this line, by unit. ``whole``: its last turn was not cut.

    ``runs`` are the turns directly above a turn that are not in the line; the store copies them unchanged. A long line
    is copied in portions, into a session that no read returns before the last one.
    """
    rename = FreshIds(mint, (message_id for ids in line.links.values() for message_id in ids))
    rows = {row.id: row for row in line.messages}
    portions = [_Portion(None)]
    parent: Turn | None = None
    for turn in line.turns:
        for through, count in runs.get(turn.id, ()) if runs and parent is not None else ():
            run = CopiedRun(None, through, count, mint.turn(), mint.message(), now)
            _portion_for(portions, count, parent, is_run=True).runs.append(run)
            parent = run.last(parent, child.id)
        portion = _portion_for(portions, 1, parent)
        is_last = turn is line.turns[-1]
        is_unanswered = is_last and rows[line.links[turn.id][-1]].role == "user"
        parent = with_parent(_copied_turn(turn, rename, child.id, now, is_cut=is_last and not whole), parent)
        if is_unanswered:
            # Whatever followed it in the original, in the branch it has no answer yet.
            parent = replace(parent, status="unanswered", data=merge(parent.data, {}, _ENDINGS))
        messages: list[CopiedMessage] = []
        for message_id in line.links[turn.id]:
            copy = _changed_row(rows[message_id], rename, child.id, mint) if message_id in rows else None
            portion.rows += [copy] if copy is not None else []
            messages.append(CopiedMessage(message_id, rename(message_id), inserted=copy is not None))
        portion.add(CopiedTurn(parent, tuple(messages)))
    units = [portion.writes(line.session.id, is_portion=len(portions) > 1) for portion in portions]
    units[0].insert(0, u.InsertSession(child, unfinished=len(portions) > 1))
    if len(portions) > 1:
        units.append([u.FinishCopy()])
    if parent is not None:
        units[-1] += [u.MoveHead(parent.id, now, "branch"), *_plan_hidden(child, portions, parent, now)]
    return tuple(map(tuple, units))


class _Portion:
    """The part of a copy that one unit writes, below a turn that an earlier one has copied."""

    def __init__(self, below: Turn | None) -> None:
        self.below = below
        self.turns: list[CopiedTurn] = []
        self.runs: list[CopiedRun] = []
        self.rows: list[MessageRow] = []
        self.size = 0

    def add(self, turn: CopiedTurn) -> None:
        """Add a turn, which a run that ends the portion so far is directly above of."""
        if self.runs and self.runs[-1].above is None:
            self.runs[-1] = replace(self.runs[-1], above=turn.turn.id)
        self.turns.append(turn)

    def writes(self, source_id: str, *, is_portion: bool) -> list[u.Write]:
        inserted = [write for row in self.rows for write in (u.InsertMessage(row), u.SealMessage(row.id, row.seal))]
        copy = u.CopyLine(source_id, tuple(self.turns), tuple(self.runs), self.below, is_portion)
        return [*inserted, copy]


def _portion_for(portions: list[_Portion], count: int, below: Turn | None, *, is_run: bool = False) -> _Portion:
    """Return the portion for so many more turns: the last one if it has room."""
    last = portions[-1]
    if last.size and (last.size + count > MAX_TURNS_PER_UNIT or (is_run and last.runs and last.runs[-1].above is None)):
        portions.append(_Portion(below))
    portions[-1].size += count
    return portions[-1]


def _plan_hidden(child: Session, portions: Sequence[_Portion], head: Turn, now: int) -> list[u.Write]:
    """Return the write that hides what the copied summaries replace."""
    copies = [copy for portion in portions for copy in portion.turns]
    if any(portion.runs for portion in portions):
        return []  # runs of turns only occur where there is no summary
    tree = tree_of(
        PortableSession(
            session=replace(child, head_turn_id=head.id),
            turns=tuple(copy.turn for copy in copies),
            links={copy.turn.id: tuple(message.id for message in copy.messages) for copy in copies},
            moves=(HeadMove(1, child.id, None, head.id, now, "branch"),),
        )
    )
    rows = {row.id: row for portion in portions for row in portion.rows}
    hidden: dict[str, Hidden | None] = dict(hidden_messages(tree, compaction_tails(tree, rows)))
    return [u.SetHidden(hidden)] if hidden else []


def _copied_turn(turn: Turn, rename: Rename, session_id: str, now: int, *, is_cut: bool) -> Turn:
    status, data = turn.status, merge(turn.data, {}, ("waiting",))
    if is_cut:
        status, data = "completed", merge(data, {}, _ENDINGS)
    elif status in OPEN:
        status, data = "aborted", {**data, "stopped": LEFT_BEHIND}
    copy = rename_row(replace(turn, data=data), rename)
    if turn.carried_from is not None:
        # It refers to the original, as ``origin_turn_id`` does.
        copy = replace(copy, data={**copy.data, "carried_from": turn.carried_from})
    return replace(
        copy, session_id=session_id, origin_turn_id=turn.id, status=status, settled_at=turn.settled_at or now
    )


def _changed_row(row: MessageRow, rename: Rename, session_id: str, mint: Mint) -> MessageRow | None:
    """Return the copy of a message that must change since it names other messages or waits for a human, else None."""
    data = [_changed_part(part, rename, mint) for part in row.parts]
    if all(new is part.data for new, part in zip(data, row.parts, strict=True)):
        return None
    parts = tuple(replace(part, id=mint.part(), data=new) for new, part in zip(data, row.parts, strict=True))
    metadata = merge(row.metadata, {}, NOT_COPIED)
    return replace(row, id=rename(row.id), session_id=session_id, metadata=metadata, parts=parts)


def _changed_part(part: PartRow, rename: Rename, mint: Mint) -> dict[str, Any]:
    """Return the part as the branch stores it; the identical object if nothing changes."""
    if part.type == COMPACTION_PART:
        return rename_part(part.data, rename)
    if not is_open_call(part.data):
        return part.data
    asked = approval_of(part.data)
    answer = {"approved": False, "reason": LEFT_BEHIND, "via": "branch"}
    denied = {**asked, "id": asked.get("id") or mint.approval(), **answer}
    return {**part.data, "state": "output-denied", "approval": denied}
