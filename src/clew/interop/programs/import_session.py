"""Conversion of a foreign session to a portable one: its tree of entries becomes a tree of turns.

A prompt begins a turn, and the entries after it are the turn's answer, step by step. If the file branches inside a
turn, the second branch becomes a sibling turn that shares the prompt and repeats the entries before the fork. All ids
are derived from the program's own, so that a second import recognises the session, message by message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec

from clew.errors import InvalidInput
from clew.ids import SessionIdForm, derived_id, derived_session_id, is_alias
from clew.interop.programs.foreign import LINE_IDS, MAX_PRESERVED_BYTES, Entry, ForeignSession, unpacked
from clew.interop.programs.import_report import Program
from clew.transcript import part as p
from clew.transcript.message import MessageRow, PartRow, Role
from clew.transcript.packed import PackedParts, PackedRows
from clew.transcript.portable import PortableSession
from clew.transcript.session import Model, Session
from clew.transcript.turn import HeadMove, MoveReason, Step, Turn

__all__ = ["BROKE_OFF", "ImportTarget", "alias_of", "import_foreign", "session_key"]

BROKE_OFF: Final = "it broke off there"
"""The reason stored with a turn whose last call has no result."""
_MAX_TITLE: Final = 200
_MAX_REPEATED: Final = 64 * 1024 * 1024
"""Bytes that the branches inside turns may repeat, which a small file could otherwise multiply without limit."""
_ENTRY_BYTES: Final = 1000
"""Estimated size of an answer without its texts."""
replace = msgspec.structs.replace
_RELEASED: Final[list[Any]] = []
"""An empty list for all entries whose parts are imported, so that the parts can be freed. Never changed."""


class ImportTarget(msgspec.Struct, frozen=True):
    """Settings of the store and host for an imported session: the form of its ids, its owner, agent and model, and
    required metadata."""

    form: SessionIdForm
    owner: str | None
    agent: str
    model: Model
    metadata: dict[str, str] = {}


def session_key(program: Program, id_: str, owner: str | None) -> str:
    """Return the key from which all ids of a session are derived. Two owners may each import the same session."""
    return f"{owner or ''}\n{program}\n{id_}"


def alias_of(program: Program, id_: str) -> str:
    """Return the alias that identifies an imported session: the program and its id there."""
    name = f"{program}:{id_}"
    # A digest replaces an id that is too long for an alias or has invalid characters.
    return name if is_alias(name) else f"{program}:~{sha256(name.encode()).hexdigest()}"


def import_foreign(foreign: ForeignSession, target: ImportTarget) -> PortableSession:
    """Return a session that can be written into a store. The contents of the foreign entries are moved out of them."""
    return _Importer(foreign, target).whole()


class _TurnBuilder(msgspec.Struct):
    """A turn while it is built: its messages, its entries and the last of these."""

    turn: Turn
    tip: str
    held: list[str]
    entries: list[Entry]
    steps: int = 0
    parted: bool = False
    """It has a child turn, so that no more entries may be added."""


class _Importer:
    def __init__(self, foreign: ForeignSession, target: ImportTarget) -> None:
        self._foreign = foreign
        self._soil = target
        self._key = session_key(foreign.program, foreign.id, target.owner)
        self._id = derived_session_id(target.form, self._key)
        self._turns: dict[str, _TurnBuilder] = {}
        self._rows: dict[str, MessageRow] = {}
        self._place: dict[str, str] = {}
        # By entry: its message, the index of its first part there, its number in `_parts`, its count of parts.
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
        """Yield the messages with their parts."""
        for row in sorted(self._rows.values(), key=lambda row: (row.created_at, row.id)):
            parts = tuple(part for number in self._parts_of[row.id] for part in self._parts.get(number))
            yield replace(row, parts=parts)

    # The tree

    def _real(self, id_: str | None) -> str | None:
        """Return the entry of an id; for a note, its closest ancestor that is not a note."""
        while id_ in self._notes:
            id_ = self._notes[id_]
        return id_ if id_ in self._place else None

    def _add(self, entry: Entry) -> None:
        above = self._real(entry.parent)
        match entry.kind:
            case "compaction":
                builder = self._begin(entry, self._stem(above, entry.at), "compaction")
                self._say(builder, entry, "assistant", [self._summary(entry, above)])
            case "prompt":
                builder = self._begin(entry, self._stem(above, entry.at), "normal")
                self._say(builder, entry, "user", entry.parts)
            case _:
                builder = self._open(entry, above)
                if entry.kind == "aside":
                    self._say(builder, entry, "user", entry.parts)
                else:
                    self._answer(builder, entry)
        builder.tip = entry.id
        builder.entries.append(entry)
        self._place[entry.id] = builder.turn.id

    def _stem(self, above: str | None, at: int) -> str | None:
        """Return the turn that ends with that entry. If the entry is not the last of its turn, create a sibling
        turn."""
        if above is None:
            return None
        builder = self._turns[self._place[above]]
        if builder.tip != above:
            builder = self._sibling(builder, above, at)
        builder.parted = True
        return builder.turn.id

    def _open(self, entry: Entry, above: str | None) -> _TurnBuilder:
        """Return the turn that an answer belongs to."""
        builder = self._turns[self._place[above]] if above is not None else None
        if builder is None or builder.turn.kind == "compaction" or (builder.tip == above and builder.parted):
            return self._begin(entry, self._stem(above, entry.at), "normal")
        if builder.tip == above:
            return builder
        return self._sibling(builder, above or "", entry.at, begins=entry.id)

    def _sibling(self, builder: _TurnBuilder, above: str, at: int, begins: str = "") -> _TurnBuilder:
        """Return a sibling of a turn that repeats its entries up to ``above``."""
        id_ = self._name("trn_", f"{above}/beside/{begins}", builder.turn.created_at)
        if id_ in self._turns:
            return self._turns[id_]
        turn = replace(builder.turn, id=id_, created_at=max(at, builder.turn.created_at))
        made = self._turns[turn.id] = _TurnBuilder(turn, above, [], [])
        self._go(turn.parent_turn_id, turn.id, turn.created_at)
        for entry in builder.entries:
            row_id = self._begins[entry.id][0]
            if entry.kind == "answer":
                _, _, number, size = self._begins[entry.id]
                parts = [part.data for part in self._parts.get(number)[1 : 1 + size]]
                self._repeated += _ENTRY_BYTES + len(msgspec.json.encode(parts))
                if self._repeated > _MAX_REPEATED:
                    raise InvalidInput("it branches so often inside a turn that importing it would multiply its size")
                # Without usage, which counts in the original turn.
                self._answer(
                    made, replace(entry, id=f"{entry.id}/{turn.id}", parts=parts, usage=None, preserved=[], line_ids=())
                )
            else:
                made.held.append(row_id)
            made.entries.append(entry)
            if entry.id == above:
                break
        return made

    def _begin(self, entry: Entry, parent: str | None, kind: Any) -> _TurnBuilder:
        turn = Turn(
            id=self._name("trn_", entry.id, entry.at),
            session_id=self._id,
            parent_turn_id=parent,
            created_at=entry.at,
            kind=kind,
            status="completed",
        )
        builder = self._turns[turn.id] = _TurnBuilder(turn, entry.id, [], [])
        self._go(parent, turn.id, entry.at, "compaction" if kind == "compaction" else "turn")
        return builder

    def _go(self, parent: str | None, to: str, at: int, why: MoveReason = "turn") -> None:
        if self._head != parent:
            self._move(parent, at, "rewind")
        self._move(to, at, why)

    def _move(self, to: str | None, at: int, why: MoveReason) -> None:
        self._moves.append(HeadMove(len(self._moves) + 1, self._id, self._head, to, at, why))
        self._head = to

    # Messages

    def _say(self, builder: _TurnBuilder, entry: Entry, role: Role, parts: list[dict[str, Any]]) -> None:
        metadata: dict[str, Any] = {} if entry.kind == "prompt" else {"synthetic": True}
        if entry.kind == "compaction":
            metadata["summary"] = True
        row = self._row(entry, role, metadata)
        self._hold(row, [*parts, *self._preserved(entry)], entry)
        builder.held.append(row.id)

    def _answer(self, builder: _TurnBuilder, entry: Entry) -> None:
        row = self._rows[builder.held[-1]] if builder.held else None
        if row is None or row.role != "assistant":
            row = self._row(entry, "assistant", {})
            builder.held.append(row.id)
        self._hold(row, [{"type": p.STEP_START}, *entry.parts, *self._preserved(entry)], entry)
        if entry.usage is not None:
            step = Step(
                turn_id=builder.turn.id,
                index=builder.steps,
                message_id=row.id,
                usage=entry.usage,
                model=entry.model or self._soil.model,
                started_at=entry.at,
                finished_at=max(entry.at, entry.ended_at),
                finish_reason=entry.finish,
                cost_usd=entry.cost_usd,
                data=entry.noted or {},
            )
            self._steps.append(step)
        elif entry.model is not None and "model" not in row.metadata:
            metadata = {**row.metadata, "model": msgspec.to_builtins(entry.model)}
            self._rows[row.id] = replace(self._rows[row.id], metadata=metadata)
        builder.steps += 1

    def _row(self, entry: Entry, role: Role, metadata: dict[str, Any]) -> MessageRow:
        # Messages are ordered by time; one that follows a newer message gets a later time than that.
        self._newest = max(entry.at, self._newest + 1)
        id_ = self._name("msg_", entry.id, entry.at)
        return MessageRow(id_, self._id, role, self._newest, self._newest, metadata)

    def _hold(self, row: MessageRow, parts: Sequence[dict[str, Any]], entry: Entry) -> None:
        """Add an entry's parts to its message. They are packed immediately and removed from the entry."""
        at, ended = entry.at, max(entry.at, entry.ended_at)
        first = self._sizes.get(row.id, 0)
        number = self._parts.add(
            PartRow(self._name("prt_", f"{row.id}/{index}", at), index, unpacked(data), at, ended)
            for index, data in enumerate(parts, first)
        )
        self._begins[entry.id] = row.id, first, number, len(entry.parts)
        self._parts_of.setdefault(row.id, []).append(number)
        self._sizes[row.id] = first + len(parts)
        if any(p.is_open_call(part) for part in entry.parts):
            self._left_open.add(entry.id)
        entry.parts, entry.preserved = _RELEASED, _RELEASED
        self._rows[row.id] = replace(row, updated_at=max(row.updated_at, ended))

    def _preserved(self, entry: Entry) -> Iterable[dict[str, Any]]:
        """Return the preserved records in parts that are neither shown nor sent."""
        parts: list[dict[str, Any]] = []
        size = MAX_PRESERVED_BYTES
        named = [{"type": LINE_IDS, "ids": list(entry.line_ids)}] if entry.line_ids else []
        for record in (*entry.preserved, *named):
            size += len(msgspec.json.encode(record))
            if size >= MAX_PRESERVED_BYTES:
                size = 0
                parts.append({"type": p.PRESERVED_PART, "data": {"program": self._foreign.program, "records": []}})
            parts[-1]["data"]["records"].append(record)
        return parts

    def _summary(self, entry: Entry, above: str | None) -> dict[str, Any]:
        """Return the part of a compaction. Its tail begins with a message or with a step inside one."""
        tail = self._real(entry.tail)
        row_id, first = self._begins[tail][:2] if tail is not None and self._is_above(tail, above) else ("", 0)
        data: dict[str, Any] = {
            **(entry.summary or {}),
            "tail_start_id": row_id or self._name("msg_", entry.id, entry.at),
        }
        if first:
            data["split"] = {"message_id": row_id, "from_part": first}
        return {"type": p.COMPACTION_PART, "data": data}

    def _is_above(self, id_: str, above: str | None) -> bool:
        """Return whether an entry is an ancestor of another. It is usually a close one."""
        turn_id = self._place.get(above or "")
        while turn_id is not None:
            builder = self._turns[turn_id]
            if any(entry.id == id_ for entry in builder.entries):
                return True
            turn_id = builder.turn.parent_turn_id
        return False

    # The session

    def _settled(self, builder: _TurnBuilder) -> Turn:
        """Return the turn with its final status, which depends on its last answer."""
        entries = builder.entries
        answers = [entry for entry in entries if entry.kind == "answer"]
        ended = max(max(entry.at, entry.ended_at) for entry in entries)
        turn = replace(builder.turn, settled_at=ended)
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

    def _name(self, prefix: str, position: str, at: int) -> str:
        return derived_id(prefix, self._key, position, at)
