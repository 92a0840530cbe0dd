"""Reading the canonical inspection format: the rows of the three shared tables become a session with turns.

The rows know nothing of turns. The messages that are not hidden, and those behind a summary, are the current line, in
order of time; a prompt begins a turn and a summary is one of its own. Hidden messages become turns beside the line that
the head has left, at the time they were hidden, so that the same messages are hidden for the same reason afterwards.
Ids stay as they are; those of turns are derived.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, Literal

import msgspec

from clew.convert import convert
from clew.errors import InvalidInput
from clew.ids import derived_id
from clew.interop.validate_import import decode_json, read_record
from clew.transcript import part as p
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.metadata import MODE_KEY, PAUSED_KEY, broken_off_usd, cancelled, is_estimated, projection_of
from clew.transcript.packed import PackedRows
from clew.transcript.portable import LEFT_BEHIND, Blob, PortableSession, Queued
from clew.transcript.projection import CompactionTail, hidden_messages
from clew.transcript.session import Model, Session
from clew.transcript.turn import NOT_REPORTED, HeadMove, MoveReason, Step, Tree, Turn, TurnKind
from clew.transcript.turn_state import TurnStatus
from clew.transcript.usage import Usage

__all__ = ["KINDS", "is_canonical", "is_canonical_line", "read_canonical", "read_canonical_lines"]

KINDS: Final = ("session", "message", "part")
_EXPORTER: Final = "canonical"
_MAX_SHARED: Final = 32
"""Messages of a turn that another answer to its prompt repeats. A turn of clew has one message or two."""
_HIDDEN_ELSEWHERE: Final = "hidden by another program"
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9.+-]{1,60}/[a-z0-9.+*-]{1,100}", re.ASCII | re.IGNORECASE)
_Item = tuple[str, dict[str, Any], list[dict[str, Any]]]
"""A position, the row of a message, and the rows of its parts."""
replace = msgspec.structs.replace


def is_canonical(value: Mapping[str, Any] | None) -> bool:
    """Return whether an object is a session in this format."""
    return value is not None and "format" not in value and "session" in value and "messages" in value


def is_canonical_line(value: object) -> bool:
    """Return whether the first line of a file is a record of this format."""
    return isinstance(value, dict) and value.get("type") in KINDS and isinstance(value.get("data"), dict)


def read_canonical(value: Mapping[str, Any]) -> PortableSession:
    """Return the session in an object, whose messages may be unparsed."""

    def items() -> Iterator[_Item]:
        if not isinstance(value["messages"], list):
            raise InvalidInput("messages is not a list", where="messages")
        for index, item in enumerate(value["messages"]):
            where = f"messages[{index}]"
            read = decode_json(bytes(item), where) if isinstance(item, msgspec.Raw) else item
            read = read_record(read, dict[str, Any], where)
            row = read_record(read.get("message"), dict[str, Any], where)
            yield where, row, read_record(read.get("parts", []), list[dict[str, Any]], where)

    return _assemble("session", value["session"], items())


def read_canonical_lines(data: bytes) -> PortableSession:
    """Return the session in these lines, which may be in any order."""
    session: tuple[str, Any] | None = None
    # The number, start and end of each line.
    messages = array("Q")
    parts: dict[str, array[int]] = {}
    for number, begin, end in _lines(data):
        where = f"line {number}"
        value = decode_json(data[begin:end], where)
        if not is_canonical_line(value):
            raise InvalidInput(f"{where} is not a session, message or part with its data", where=where)
        row = value["data"]
        if value["type"] == "part":
            parts.setdefault(str(row.get("message_id")), array("Q")).extend((number, begin, end))
        elif value["type"] == "message":
            messages.extend((number, begin, end))
        elif session is None:
            session = where, row
        else:
            raise InvalidInput(f"{where} begins a second session; import them one at a time", where=where)
    if session is None:
        raise InvalidInput("the file has no session record")

    def rows_at(places: Sequence[int]) -> Iterator[tuple[str, dict[str, Any]]]:
        for at in range(0, len(places), 3):
            number, begin, end = places[at : at + 3]
            yield f"line {number}", decode_json(data[begin:end], f"line {number}")["data"]

    def items() -> Iterator[_Item]:
        for where, row in rows_at(messages):
            yield where, row, [part for _, part in rows_at(parts.pop(str(row.get("id")), array("Q")))]
        for places in parts.values():
            raise InvalidInput(f"line {places[0]} is a part of a message that is not in the file")

    return _assemble(*session, items())


def _lines(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the number, start and end of each line that is not empty."""
    number, end = 0, -1
    while end < len(data):
        number, begin = number + 1, end + 1
        end = data.find(b"\n", begin)
        end = len(data) if end < 0 else end
        if data[begin:end].strip():
            yield number, begin, end


# Rows


def _assemble(where: str, session: Any, items: Iterable[_Item]) -> PortableSession:
    row = _read_session(session, where)
    blobs: dict[str, Blob] = {}
    entries: list[_Entry] = []

    def messages() -> Iterator[MessageRow]:
        for at, given, parts in items:
            message = _read_message(given, parts, row.id, blobs, at)
            entries.append(_entry(message))
            yield message

    rows = PackedRows(messages())
    order = sorted(range(len(rows)), key=lambda index: (entries[index].created_at, entries[index].id))
    if order != [*range(len(rows))]:
        rows = PackedRows(rows[index] for index in order)
    planner = _Planner(row.id)
    for index in order:
        planner.add(entries[index])
    turns, links, moves = planner.plan()
    if not planner.queue:
        row = replace(row, metadata={key: value for key, value in row.metadata.items() if key != PAUSED_KEY})
    holder = {message_id: turn.id for turn in reversed(turns) for message_id in links[turn.id]}
    return PortableSession(
        exporter=_EXPORTER,
        exported_at=row.updated_at,
        session=replace(row, head_turn_id=moves[-1].to_turn_id if moves else None),
        turns=turns,
        links=links,
        messages=rows,
        steps=_steps(row, [entries[index] for index in order if entries[index].id in holder], holder),
        moves=moves,
        blobs=tuple(blobs.values()),
        queue=tuple(planner.queue),
    )


def _read_session(value: Any, where: str) -> Session:
    """Return the session of a row, without what has authority only on its host: rules, mode, owner."""
    row = read_record(value, dict[str, Any], where)
    names = ("id", "agent", "workspace_root", "parent_id", "parent_message_id", "cost_usd", "created_at", "updated_at")
    plain = {name: row[name] for name in (*names, "archived_at") if row.get(name) is not None}
    metadata = read_record(_json(row, "metadata", where) or {}, dict[str, Any], where)
    metadata = {key: item for key, item in metadata.items() if key != MODE_KEY}
    return read_record({**plain, "model": _json(row, "model", where), "metadata": metadata}, Session, where)


def _read_message(
    value: dict[str, Any], parts: Sequence[dict[str, Any]], session_id: str, blobs: dict[str, Blob], where: str
) -> MessageRow:
    names = ("id", "role", "created_at", "updated_at")
    plain = {name: value[name] for name in names if name in value} | {"metadata": _json(value, "metadata", where) or {}}
    row = read_record(plain, MessageRow, where, session_id=session_id)
    at, by = projection_of(row.metadata)
    if isinstance(at, int) and row.queued_at is not None and by != "cancelled":
        row = replace(row, metadata={**row.metadata, **cancelled(at, _HIDDEN_ELSEWHERE)})
    read = sorted((_read_part(one, blobs, where) for one in parts), key=lambda part: (part.index, part.id))
    return replace(row, parts=tuple(replace(part, index=index) for index, part in enumerate(read)))


def _read_part(value: dict[str, Any], blobs: dict[str, Blob], where: str) -> PartRow:
    data = read_record(_json(value, "data", where), dict[str, Any], where)
    names = ("created_at", "updated_at")
    plain = {"id": value.get("id") or "", **{name: value[name] for name in names if name in value}}
    plain["data"] = _with_blob(data, blobs)
    return read_record(plain, PartRow, where, index=value.get("index", 0))


def _json(row: Mapping[str, Any], name: str, where: str) -> Any:
    """Return the value of a JSON column, which may be text as in a table."""
    value = row.get(f"{name}_json")
    return decode_json(value.encode("utf-8", "surrogatepass"), where) if isinstance(value, str) else value


def _with_blob(data: dict[str, Any], blobs: dict[str, Blob]) -> dict[str, Any]:
    """Return a part whose bytes, if it has any, are a blob."""
    url = p.url_of(data) if p.kind_of(data) == "file" else None
    content = p.bytes_in(url) if url is not None else None
    if url is None or content is None:
        return data
    claimed = p.media_type_of(data) or url[5:].partition(",")[0].partition(";")[0]
    media_type = claimed if _MEDIA_TYPE.fullmatch(claimed) else "application/octet-stream"
    digest = sha256(content).hexdigest()
    blobs[digest] = Blob(digest, media_type, content)
    if (p.provider_data(data, p.OWN) or {}).get("size") == len(content) and claimed == media_type:
        # The part was measured where it was exported.
        return {**data, "url": p.blob_url(digest)}
    return p.stored_file(data, digest, media_type, {"size": len(content)})


# Turns


class _Entry(msgspec.Struct, frozen=True, gc=False):
    """The facts of a message that decide its place. ``at`` and ``by``: when and why it is hidden; ``tail`` is where the
    tail of a summary begins."""

    id: str
    role: str
    created_at: int
    updated_at: int
    at: int | None
    by: Literal["rewind", "compaction", "refused"]
    is_prompt: bool
    is_summary: bool
    is_cancelled: bool
    is_open: bool
    queued_at: int | None
    tail: str | None
    usage: Usage
    estimated: bool
    broken_off: float
    model: Model | None


def _entry(row: MessageRow) -> _Entry:
    at, by = projection_of(row.metadata)
    summaries = [found for part in row.parts if (found := p.data_of(part.data, p.COMPACTION_PART)) is not None]
    tail = summaries[0].get("tail_start_id") if summaries else None
    assistant = row.role == "assistant"
    try:
        model = convert(row.asked_model, Model)
    except msgspec.ValidationError:
        model = None
    return _Entry(
        id=row.id,
        role=row.role,
        created_at=row.created_at,
        updated_at=row.updated_at,
        at=at if isinstance(at, int) else None,
        by="compaction" if by == "compaction" else "refused" if by == "refused" else "rewind",
        is_prompt=row.is_prompt,
        is_summary=bool(summaries),
        is_cancelled=row.is_cancelled,
        is_open=any(p.is_open_call(part.data) for part in row.parts),
        queued_at=row.queued_at,
        tail=tail if isinstance(tail, str) else None,
        usage=row.usage if assistant else Usage(),
        estimated=assistant and is_estimated(row.metadata),
        broken_off=broken_off_usd(row.metadata) if assistant and is_estimated(row.metadata) else 0.0,
        model=model,
    )


class _TurnPlan:
    """A turn while it is planned: its own messages, behind those it shares with another turn."""

    def __init__(self, first: _Entry, kind: TurnKind, shared: Sequence[_Entry] = ()) -> None:
        self.kind: TurnKind = kind
        self.created_at = first.created_at
        self.shared = tuple(shared)
        self.own = [first]
        self.refused_at: int | None = first.at if first.by == "refused" else None
        self.settled_at: int | None = None

    @property
    def entries(self) -> tuple[_Entry, ...]:
        return (*self.shared, *self.own)

    def build(self, session_id: str, parent_id: str | None) -> Turn:
        held, data = self.entries, dict[str, Any]()
        status: TurnStatus = "completed"
        ended = max(entry.updated_at for entry in held)
        if self.refused_at is not None:
            status, ended = "refused", self.refused_at
        elif any(entry.is_open for entry in held):
            status, data = "aborted", {"stopped": LEFT_BEHIND}
        elif all(entry.role == "user" for entry in held):
            status = "unanswered"
        return Turn(
            id=derived_id("trn_", session_id, f"{_EXPORTER}/{self.own[0].id}", self.created_at),
            session_id=session_id,
            parent_turn_id=parent_id,
            created_at=self.created_at,
            kind=self.kind,
            status=status,
            settled_at=self.settled_at or ended,
            data=data,
        )


class _Aside:
    """Turns beside the line, one below another, that the head left at the same moment. They hang below ``under``, or
    next to it."""

    def __init__(self, under: _TurnPlan | None, first: _Entry, turn: _TurnPlan, *, sibling: bool) -> None:
        self.under = under
        self.sibling = sibling
        self.at, self.by = first.at or 0, first.by
        self.turns = [turn]


class _Planner:
    """Plans the turns of a session from its messages, added in order of time."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._line: list[_TurnPlan] = []
        self._asides: list[_Aside] = []
        self._aside: _Aside | None = None
        self.queue: list[Queued] = []

    def add(self, entry: _Entry) -> None:
        if entry.is_cancelled:
            return
        if entry.at is not None and entry.by != "compaction":
            self._add_aside(entry)
        elif entry.is_prompt and entry.queued_at is not None:
            self.queue.append(Queued(entry.id, entry.queued_at))
        else:
            self._aside = None
            self._add_to_line(entry)

    def _add_to_line(self, entry: _Entry) -> None:
        if not entry.is_summary and not entry.is_prompt:
            self._continue_turn()
        tip = self._line[-1] if self._line else None
        if entry.is_summary or entry.is_prompt or tip is None or tip.kind == "compaction":
            self._line.append(_TurnPlan(entry, "compaction" if entry.is_summary else "normal"))
        else:
            tip.own.append(entry)

    def _continue_turn(self) -> None:
        """Put a summary that was made during a turn above it, so that the turn goes on; unless it covers the turn."""
        at = len(self._line)
        while at and self._line[at - 1].kind == "compaction":
            at -= 1
        if 0 < at < len(self._line) and not any(entry.at is not None for entry in self._line[at - 1].own):
            self._line.append(self._line.pop(at - 1))

    def _add_aside(self, entry: _Entry) -> None:
        kind: TurnKind = "compaction" if entry.is_summary else "normal"
        aside, tip = self._aside, self._line[-1] if self._line else None
        if aside is not None and (aside.at, aside.by) == (entry.at, entry.by):
            last = aside.turns[-1]
            if entry.is_summary or entry.is_prompt or last.kind == "compaction":
                aside.turns.append(_TurnPlan(entry, kind))
            else:
                last.own.append(entry)
            return
        # Sharing is limited: a file could repeat a long turn for each of its messages.
        can_share = tip is not None and tip.kind == "normal" and len(tip.own) <= _MAX_SHARED
        sibling = can_share and not entry.is_summary and not entry.is_prompt
        # Another answer to a prompt that stayed.
        shared = tip.entries if sibling and tip is not None else ()
        self._aside = _Aside(tip, entry, _TurnPlan(entry, kind, shared), sibling=sibling)
        self._asides.append(self._aside)

    def plan(self) -> tuple[tuple[Turn, ...], dict[str, tuple[str, ...]], tuple[HeadMove, ...]]:
        """Return the turns, parents first, their messages, and the moves of the head."""
        turns, links, moves = self._build()
        tails = self._tails(links)
        if not tails:
            return turns, links, moves
        # When a summary settled is when it hid what it covers: find one message that each of them covers.
        numbered = [replace(tail, at=number) for number, tail in enumerate(tails)]
        tree = Tree(moves[-1].to_turn_id, None, {turn.id: turn for turn in turns}, links, moves)
        stored = {entry.id: entry.at for one in self._line for entry in one.own if entry.at is not None}
        plans = {plan.own[0].id: plan for plan in self._line}
        for id_, hidden in hidden_messages(tree, numbered).items():
            if hidden.by == "compaction" and id_ in stored:
                plans[links[numbered[hidden.at].turn_id][0]].settled_at = stored[id_]
        return self._build()

    def _tails(self, links: Mapping[str, tuple[str, ...]]) -> list[CompactionTail]:
        """Return the tails of the summaries on the line, without their times."""
        turn_of = {held[0]: turn_id for turn_id, held in links.items()}
        summaries = [plan.own[0] for plan in self._line if plan.kind == "compaction"]
        return [CompactionTail(turn_of[entry.id], entry.tail, 0) for entry in summaries]

    def _build(self) -> tuple[tuple[Turn, ...], dict[str, tuple[str, ...]], tuple[HeadMove, ...]]:
        builder = _TreeBuilder(self._session_id)
        # A turn that was moved behind a summary has another parent than when its other answers came.
        above: dict[int, _TurnPlan | None] = dict(zip(map(id, self._line), [None, *self._line], strict=False))
        below: dict[int, list[_Aside]] = {}
        for aside in self._asides:
            under = above[id(aside.under)] if aside.sibling else aside.under
            below.setdefault(id(under), []).append(aside)
        parent: str | None = None
        builder.leave(below.get(id(None), ()), None)
        for plan in self._line:
            parent = builder.go(plan, parent)
            builder.leave(below.get(id(plan), ()), parent)
        return tuple(builder.turns), builder.links, tuple(builder.moves)


class _TreeBuilder:
    """The tree while it is built: turns, their messages, and the moves of the head."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._head: str | None = None
        self.turns: list[Turn] = []
        self.links: dict[str, tuple[str, ...]] = {}
        self.moves: list[HeadMove] = []

    def add(self, plan: _TurnPlan, parent: str | None) -> Turn:
        turn = plan.build(self._session_id, parent)
        self.turns.append(turn)
        self.links[turn.id] = tuple(entry.id for entry in plan.entries)
        return turn

    def go(self, plan: _TurnPlan, parent: str | None) -> str:
        """Add a turn that the head went to; return its id."""
        turn = self.add(plan, parent)
        self._move(turn.id, turn.created_at, "compaction" if turn.kind == "compaction" else "turn")
        return turn.id

    def leave(self, asides: Iterable[_Aside], parent: str | None) -> None:
        """Add turns that the head has left, below ``parent``, where it is."""
        for aside in asides:
            tip = parent
            for plan in aside.turns:
                tip = self.add(plan, tip).id if aside.by == "refused" else self.go(plan, tip)
            if aside.by != "refused":
                self._move(parent, aside.at, "rewind")

    def _move(self, to: str | None, at: int, why: MoveReason) -> None:
        self.moves.append(HeadMove(len(self.moves) + 1, self._session_id, self._head, to, at, why))
        self._head = to


def _steps(session: Session, entries: Sequence[_Entry], holder: Mapping[str, str]) -> tuple[Step, ...]:
    """Return a step for each answer with usage. The rows know only the session's cost: each step has its share of it,
    by tokens."""
    counted = [entry for entry in entries if entry.usage.total]
    tokens = sum(entry.usage.total for entry in counted)
    spent = sum(entry.broken_off for entry in entries)
    total, numbers = session.cost_usd - spent, dict[str, int]()
    steps: list[Step] = []
    for n, entry in enumerate(counted):
        turn_id = holder[entry.id]
        is_last = n == len(counted) - 1
        cost = session.cost_usd - spent if is_last else total * entry.usage.total / tokens
        spent += cost
        steps.append(
            Step(
                turn_id=turn_id,
                index=numbers.get(turn_id, 0),
                message_id=entry.id,
                usage=entry.usage,
                model=entry.model or session.model,
                started_at=entry.created_at,
                finished_at=min(entry.updated_at, session.updated_at),
                cost_usd=max(cost, 0.0),
                data={"usage": NOT_REPORTED} if entry.estimated else {},
            )
        )
        numbers[turn_id] = numbers.get(turn_id, 0) + 1
    return tuple(steps)
