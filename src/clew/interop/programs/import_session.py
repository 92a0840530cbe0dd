"""Planting: a foreign session as a portable one. The tree of its entries becomes a tree of turns.

A prompt begins a turn, and what follows it is the turn's answer, step by step. Where the file goes two ways inside a
turn, the second way is a turn beside it that shares its prompt and repeats what stands before the fork. All ids follow
from the program's own, so that a session that comes again is known, message by message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec

from clew.errors import InvalidInput
from clew.ids import SessionIdForm, derived_id, derived_session_id, is_alias
from clew.interop.programs.foreign import MAX_KEPT, Entry, Foreign
from clew.interop.programs.import_report import Program
from clew.transcript import part as p
from clew.transcript.message import MessageRow, PartRow, Role
from clew.transcript.packed import PackedParts, PackedRows
from clew.transcript.portable import PortableSession
from clew.transcript.session import Model, Session
from clew.transcript.turn import HeadMove, MoveReason, Step, Turn

__all__ = ["BROKE_OFF", "Soil", "alias_of", "plant", "session_key"]

BROKE_OFF: Final = "it broke off there"
"""Why a turn ended whose last call has no result."""
_MAX_TITLE: Final = 200
_MAX_REPEATED: Final = 64 * 1024 * 1024
"""Bytes that ways of one turn may repeat of each other; a small file could ask for any number of them."""
_ENTRY_BYTES: Final = 1000
"""About what an answer takes beside its words."""
replace = msgspec.structs.replace


class Soil(msgspec.Struct, frozen=True):
    """What a store and its host give a session that comes: the form of its ids, whose it will be, who answers it, and
    the metadata it must have."""

    form: SessionIdForm
    owner: str | None
    agent: str
    model: Model
    metadata: dict[str, str] = {}


def session_key(program: Program, id_: str, owner: str | None) -> str:
    """What all ids of a session follow from. Two owners may each bring the same session."""
    return f"{owner or ''}\n{program}\n{id_}"


def alias_of(program: Program, id_: str) -> str:
    """By which a session that came is found again: the program and its own id there."""
    name = f"{program}:{id_}"
    # One that is no alias, too long or with other signs, is known by what it is made of.
    return name if is_alias(name) else f"{program}:~{sha256(name.encode()).hexdigest()}"


def plant(foreign: Foreign, soil: Soil) -> PortableSession:
    """The session as one that can be written into a store. What its entries say is taken out of them."""
    return _Planting(foreign, soil).whole()


class _Growing(msgspec.Struct):
    """A turn on its way: the messages it holds, and the entry it ends with."""

    turn: Turn
    tip: str
    held: list[str]
    entries: list[Entry]
    steps: int = 0
    parted: bool = False
    """Another turn hangs below it: nothing may be added any more."""


class _Planting:
    def __init__(self, foreign: Foreign, soil: Soil) -> None:
        self._foreign = foreign
        self._soil = soil
        self._key = session_key(foreign.program, foreign.id, soil.owner)
        self._id = derived_session_id(soil.form, self._key)
        self._turns: dict[str, _Growing] = {}
        self._rows: dict[str, MessageRow] = {}
        self._place: dict[str, str] = {}
        # Of each entry: its message, the first of its parts there, by which number they are kept, how many it said.
        self._begins: dict[str, tuple[str, int, int, int]] = {}
        self._parts = PackedParts()
        self._parts_of: dict[str, list[int]] = {}
        self._sizes: dict[str, int] = {}
        self._left_open: set[str] = set()
        self._title = p.first_words(foreign.title or foreign.first_words, _MAX_TITLE)
        self._model = next((entry.model for entry in reversed(foreign.entries) if entry.model is not None), None)
        self._notes: dict[str, str | None] = {}
        self._steps: list[Step] = []
        self._moves: list[HeadMove] = []
        self._head: str | None = None
        self._newest = 0
        self._repeated = 0

    def whole(self) -> PortableSession:
        for entry in self._foreign.entries:
            if entry.kind == "note":
                self._notes[entry.id] = entry.parent
            else:
                self._add(entry)
        head = self._real(self._foreign.head)
        if head is not None and self._place[head] != self._head:
            above, at = self._head, self._place[head]
            while above is not None and above != at:
                above = self._turns[above].turn.parent_turn_id
            self._move(at, self._foreign.updated_at, "rewind" if above == at else "goto")
        turns = tuple(self._settled(one) for one in self._turns.values())
        return PortableSession(
            exporter=f"{self._foreign.program} {self._foreign.version or ''}".strip()[:100],
            exported_at=self._foreign.updated_at,
            session=self._session(),
            turns=turns,
            links={id_: tuple(one.held) for id_, one in self._turns.items()},
            messages=PackedRows(self._whole_rows()),
            steps=tuple(self._steps),
            moves=tuple(self._moves),
            blobs=tuple(self._foreign.blobs.values()),
        )

    def _whole_rows(self) -> Iterator[MessageRow]:
        """The messages with their parts."""
        for row in sorted(self._rows.values(), key=lambda row: (row.created_at, row.id)):
            parts = tuple(part for number in self._parts_of[row.id] for part in self._parts.get(number))
            yield replace(row, parts=parts)

    # The tree

    def _real(self, id_: str | None) -> str | None:
        """The entry that a name means, notes passed over on the way up."""
        while id_ in self._notes:
            id_ = self._notes[id_]
        return id_ if id_ in self._place else None

    def _add(self, entry: Entry) -> None:
        above = self._real(entry.parent)
        match entry.kind:
            case "compaction":
                growing = self._begin(entry, self._stem(above, entry.at), "compaction")
                self._say(growing, entry, "assistant", [self._summary(entry, above)])
            case "prompt":
                growing = self._begin(entry, self._stem(above, entry.at), "normal")
                self._say(growing, entry, "user", entry.parts)
            case _:
                growing = self._open(entry, above)
                if entry.kind == "aside":
                    self._say(growing, entry, "user", entry.parts)
                else:
                    self._answer(growing, entry)
        growing.tip = entry.id
        growing.entries.append(entry)
        self._place[entry.id] = growing.turn.id

    def _stem(self, above: str | None, at: int) -> str | None:
        """The turn that ends with that entry: where the entry is not its last, one beside it that does."""
        if above is None:
            return None
        growing = self._turns[self._place[above]]
        if growing.tip != above:
            growing = self._beside(growing, above, at)
        growing.parted = True
        return growing.turn.id

    def _open(self, entry: Entry, above: str | None) -> _Growing:
        """The turn that an answer belongs to."""
        growing = self._turns[self._place[above]] if above is not None else None
        if growing is None or growing.turn.kind == "compaction" or (growing.tip == above and growing.parted):
            return self._begin(entry, self._stem(above, entry.at), "normal")
        if growing.tip == above:
            return growing
        return self._beside(growing, above or "", entry.at, begins=entry.id)

    def _beside(self, growing: _Growing, above: str, at: int, begins: str = "") -> _Growing:
        """A turn that shares another's beginning, up to an entry. What was said there stands in it once more."""
        id_ = self._name("trn_", f"{above}/beside/{begins}", growing.turn.created_at)
        if id_ in self._turns:
            return self._turns[id_]
        turn = replace(growing.turn, id=id_, created_at=max(at, growing.turn.created_at))
        made = self._turns[turn.id] = _Growing(turn, above, [], [])
        self._go(turn.parent_turn_id, turn.id, turn.created_at)
        for entry in growing.entries:
            row_id = self._begins[entry.id][0]
            if entry.kind == "answer":
                _, _, number, size = self._begins[entry.id]
                parts = [part.data for part in self._parts.get(number)[1 : 1 + size]]
                self._repeated += _ENTRY_BYTES + len(msgspec.json.encode(parts))
                if self._repeated > _MAX_REPEATED:
                    raise InvalidInput("it goes so many ways inside a turn that it would be many times as large here")
                # Not paid a second time: what it used stands with the turn it was said in.
                self._answer(made, replace(entry, id=f"{entry.id}/{turn.id}", parts=parts, usage=None, kept=[]))
            else:
                made.held.append(row_id)
            made.entries.append(entry)
            if entry.id == above:
                break
        return made

    def _begin(self, entry: Entry, parent: str | None, kind: Any) -> _Growing:
        turn = Turn(
            id=self._name("trn_", entry.id, entry.at),
            session_id=self._id,
            parent_turn_id=parent,
            created_at=entry.at,
            kind=kind,
            status="completed",
        )
        growing = self._turns[turn.id] = _Growing(turn, entry.id, [], [])
        self._go(parent, turn.id, entry.at, "compaction" if kind == "compaction" else "turn")
        return growing

    def _go(self, parent: str | None, to: str, at: int, why: MoveReason = "turn") -> None:
        if self._head != parent:
            self._move(parent, at, "rewind")
        self._move(to, at, why)

    def _move(self, to: str | None, at: int, why: MoveReason) -> None:
        self._moves.append(HeadMove(len(self._moves) + 1, self._id, self._head, to, at, why))
        self._head = to

    # What is said

    def _say(self, growing: _Growing, entry: Entry, role: Role, parts: list[dict[str, Any]]) -> None:
        metadata: dict[str, Any] = {} if entry.kind == "prompt" else {"synthetic": True}
        if entry.kind == "compaction":
            metadata["summary"] = True
        row = self._row(entry, role, metadata)
        self._hold(row, [*parts, *self._kept(entry)], entry)
        growing.held.append(row.id)

    def _answer(self, growing: _Growing, entry: Entry) -> None:
        row = self._rows[growing.held[-1]] if growing.held else None
        if row is None or row.role != "assistant":
            row = self._row(entry, "assistant", {})
            growing.held.append(row.id)
        self._hold(row, [{"type": p.STEP_START}, *entry.parts, *self._kept(entry)], entry)
        if entry.usage is not None:
            step = Step(
                turn_id=growing.turn.id,
                index=growing.steps,
                message_id=row.id,
                usage=entry.usage,
                model=entry.model or self._soil.model,
                started_at=entry.at,
                finished_at=max(entry.at, entry.ended_at),
                finish_reason=entry.finish,
                cost_usd=entry.cost_usd,
                data=entry.noted,
            )
            self._steps.append(step)
        elif entry.model is not None and "model" not in row.metadata:
            metadata = {**row.metadata, "model": msgspec.to_builtins(entry.model)}
            self._rows[row.id] = replace(self._rows[row.id], metadata=metadata)
        growing.steps += 1

    def _row(self, entry: Entry, role: Role, metadata: dict[str, Any]) -> MessageRow:
        # Messages are shown by when they were made; an older one that stands behind a newer one comes after it.
        self._newest = max(entry.at, self._newest + 1)
        id_ = self._name("msg_", entry.id, entry.at)
        return MessageRow(id_, self._id, role, self._newest, self._newest, metadata)

    def _hold(self, row: MessageRow, parts: Sequence[dict[str, Any]], entry: Entry) -> None:
        """Add what an entry said to its message. It is packed at once, and the entry holds it no more."""
        at, ended = entry.at, max(entry.at, entry.ended_at)
        first = self._sizes.get(row.id, 0)
        number = self._parts.add(
            PartRow(self._name("prt_", f"{row.id}/{index}", at), index, data, at, ended)
            for index, data in enumerate(parts, first)
        )
        self._begins[entry.id] = row.id, first, number, len(entry.parts)
        self._parts_of.setdefault(row.id, []).append(number)
        self._sizes[row.id] = first + len(parts)
        if any(p.is_open_call(part) for part in entry.parts):
            self._left_open.add(entry.id)
        entry.parts, entry.kept = [], []
        self._rows[row.id] = replace(row, updated_at=max(row.updated_at, ended))

    def _kept(self, entry: Entry) -> Iterable[dict[str, Any]]:
        """What has no place, in parts that are neither shown nor sent."""
        parts: list[dict[str, Any]] = []
        size = MAX_KEPT
        for record in entry.kept:
            size += len(msgspec.json.encode(record))
            if size >= MAX_KEPT:
                size = 0
                parts.append({"type": p.KEPT_PART, "data": {"program": self._foreign.program, "records": []}})
            parts[-1]["data"]["records"].append(record)
        return parts

    def _summary(self, entry: Entry, above: str | None) -> dict[str, Any]:
        """The part of a compaction. Its tail begins with a message, or inside one at a step."""
        tail = self._real(entry.tail)
        row_id, first = self._begins[tail][:2] if tail is not None and self._is_above(tail, above) else ("", 0)
        data: dict[str, Any] = {
            **entry.summary,
            "tail_start_id": row_id or self._name("msg_", entry.id, entry.at),
        }
        if first:
            data["split"] = {"message_id": row_id, "from_part": first}
        return {"type": p.COMPACTION_PART, "data": data}

    def _is_above(self, id_: str, above: str | None) -> bool:
        """Whether an entry stands on the way from the first to another: most often not far from that one."""
        turn_id = self._place.get(above or "")
        while turn_id is not None:
            growing = self._turns[turn_id]
            if any(entry.id == id_ for entry in growing.entries):
                return True
            turn_id = growing.turn.parent_turn_id
        return False

    # The whole

    def _settled(self, growing: _Growing) -> Turn:
        """The turn as it ended, which its last entries say."""
        entries = growing.entries
        answers = [entry for entry in entries if entry.kind == "answer"]
        ended = max(max(entry.at, entry.ended_at) for entry in entries)
        turn = replace(growing.turn, settled_at=ended)
        last = answers[-1] if answers else None
        if last is None:
            return replace(turn, status="unanswered") if entries[0].kind == "prompt" else turn
        if last.stopped == "failed":
            error = {"code": "provider_error", "message": last.why or "it failed"}
            return replace(turn, status="failed", data={"error": error})
        if last.stopped == "aborted" or last.id in self._left_open:
            return replace(turn, status="aborted", data={"stopped": last.why or BROKE_OFF})
        return turn

    def _session(self) -> Session:
        foreign = self._foreign
        metadata: dict[str, Any] = {"came_from": {"program": foreign.program, "id": foreign.id[:200]}}
        noted = {"version": foreign.version, "git_branch": foreign.branch}
        metadata["came_from"] |= {key: value[:200] for key, value in noted.items() if value}
        if self._title:
            metadata["title"] = self._title
        if foreign.is_subagent:
            metadata["kind"] = "subagent"
        parent = None
        if foreign.parent_id is not None:
            key = session_key(foreign.program, foreign.parent_id, self._soil.owner)
            metadata["came_from"]["parent"] = foreign.parent_id[:200]
            parent = derived_session_id(self._soil.form, key)
        return Session(
            id=self._id,
            agent=self._soil.agent,
            model=self._model or self._soil.model,
            created_at=foreign.created_at,
            updated_at=max(foreign.updated_at, foreign.created_at),
            workspace_root=foreign.folder,
            parent_id=parent,
            head_turn_id=self._head,
            metadata={**self._soil.metadata, **metadata},
            archived_at=foreign.updated_at if foreign.archived else None,
        )

    def _name(self, prefix: str, place: str, at: int) -> str:
        return derived_id(prefix, self._key, place, at)
