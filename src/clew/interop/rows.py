"""A document as the rows and the tree that the rest of clew thinks in, and these as records of a document."""

from __future__ import annotations

from clew.interop.document import MessageRecord, PartRecord, SessionDocument, SessionRecord, TurnRecord
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.session import Session
from clew.transcript.turn import HeadMove, Tree, Turn, placed
from clew.transcript.turn_state import OPEN

__all__ = ["message_record", "row_of", "rows_of", "session_record", "tree_of", "turn_record"]


def session_record(session: Session) -> SessionRecord:
    """The session row without what does not travel."""
    return SessionRecord(**{name: getattr(session, name) for name in SessionRecord.__struct_fields__})


def message_record(row: MessageRow, *, without: str) -> MessageRecord:
    """The message, but for one key of its metadata."""
    return MessageRecord(
        id=row.id,
        role=row.role,
        created_at=row.created_at,
        updated_at=row.updated_at,
        metadata={key: value for key, value in row.metadata.items() if key != without},
        parts=tuple(PartRecord(part.id or None, part.data, part.created_at, part.updated_at) for part in row.parts),
    )


def turn_record(turn: Turn, held: tuple[str, ...]) -> TurnRecord:
    """The turn with the ids of what it holds."""
    return TurnRecord(
        id=turn.id,
        parent_turn_id=turn.parent_turn_id,
        created_at=turn.created_at,
        kind=turn.kind,
        status=turn.status,
        origin_turn_id=turn.origin_turn_id,
        settled_at=turn.settled_at,
        data=turn.data,
        messages=held,
    )


def row_of(record: MessageRecord, session_id: str) -> MessageRow:
    """The message as a store keeps it."""
    parts = tuple(
        PartRow(part.id or "", index, part.data, part.created_at, part.updated_at)
        for index, part in enumerate(record.parts)
    )
    return MessageRow(
        record.id, session_id, record.role, record.created_at, record.updated_at, dict(record.metadata), parts
    )


def rows_of(document: SessionDocument) -> dict[str, MessageRow]:
    """Every message by its id, in the document's order."""
    return {record.id: row_of(record, document.session.id) for record in document.messages}


def tree_of(document: SessionDocument) -> Tree:
    """The turn tree of a sound document, with every turn in its place."""
    session_id = document.session.id
    turns: dict[str, Turn] = {}
    for record in document.turns:
        turn = Turn(
            id=record.id,
            session_id=session_id,
            parent_turn_id=record.parent_turn_id,
            created_at=record.created_at,
            kind=record.kind,
            status=record.status,
            origin_turn_id=record.origin_turn_id,
            settled_at=record.settled_at,
            data=record.data,
        )
        turns[turn.id] = placed(turn, turns.get(record.parent_turn_id or ""))
    moves: list[HeadMove] = []
    at: str | None = None
    for seq, move in enumerate(document.moves, start=1):
        moves.append(HeadMove(seq, session_id, at, move.to_turn_id, move.at, move.why))
        at = move.to_turn_id
    open_turn = next((turn.id for turn in turns.values() if turn.status in OPEN), None)
    links = {record.id: record.messages for record in document.turns}
    return Tree(document.session.head_turn_id, open_turn, turns, links, tuple(moves))
