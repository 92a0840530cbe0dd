"""The portable session: one session with all its data as one value, independent of the store it came from.

Branches, conversions, exports and imports carry a session in this form. It holds the rows themselves, so a field added
to a row is carried automatically; omissions are listed explicitly: :data:`AT_HOME` for files, ``CopyLine`` for
branches.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from clew import ids
from clew._version import __version__
from clew.errors import InvalidId
from clew.ids import Mint
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.metadata import SNAPSHOT_KEY
from clew.transcript.model_call import ModelCall
from clew.transcript.packed import mapped, sorted_rows
from clew.transcript.part import COMPACTION_PART, Part, blob_of, is_call
from clew.transcript.pruned import Pruned
from clew.transcript.session import Session
from clew.transcript.turn import HeadMove, Step, Tree, Turn, with_parent
from clew.transcript.turn_state import OPEN

__all__ = [
    "AT_HOME",
    "EXPORTER",
    "LEFT_BEHIND",
    "Blob",
    "FreshIds",
    "PortableSession",
    "Prompt",
    "Queued",
    "Rename",
    "for_export",
    "in_order",
    "named_blobs",
    "rename_part",
    "rename_row",
    "rename_session",
    "rename_value",
    "tree_of",
    "with_bytes",
]

EXPORTER: Final = f"clew {__version__}"
LEFT_BEHIND: Final = "left behind by an import"
"""The error text of a call that was open in an imported session."""
replace = msgspec.structs.replace


class Prompt(msgspec.Struct, frozen=True):
    """A text that steps refer to by its SHA-256: a system prompt, or the tools of a request."""

    digest: str
    body: str


class Blob(msgspec.Struct, frozen=True):
    """The bytes of a file, stored under their SHA-256, by which messages refer to it."""

    sha256: str
    media_type: str
    data: bytes


def with_bytes(part: Part, blobs: Mapping[str, Blob]) -> dict[str, Any]:
    """Return the data of a part; a file that is one of these blobs has its bytes as a ``data:`` URL."""
    blob = blobs.get(blob_of(part) or "")
    if blob is None:
        return dict(part)
    return {**part, "url": f"data:{blob.media_type};base64,{base64.b64encode(blob.data).decode()}"}


class Queued(msgspec.Struct, frozen=True):
    """A message in the queue."""

    message_id: str
    queued_at: int
    interrupt: bool = False


class PortableSession(msgspec.Struct, frozen=True, kw_only=True):
    """One complete session.

    Messages are in the order of (created_at, id), packed if they come from a file; turns follow their parents; prunes
    are numbered from 1 without gaps. ``links`` lists the messages of each turn, ``seals`` the messages that will not
    change any more, ``rules`` those of its project. ``exported_at``, ``exporter`` and ``redacted`` (the number of
    secrets removed) describe an export file.
    """

    exporter: str = EXPORTER
    exported_at: int = 0
    redacted: int = 0
    session: Session
    turns: tuple[Turn, ...] = ()
    links: dict[str, tuple[str, ...]] = {}
    messages: Sequence[MessageRow] = ()
    steps: tuple[Step, ...] = ()
    moves: tuple[HeadMove, ...] = ()
    prunes: tuple[Pruned, ...] = ()
    prompts: tuple[Prompt, ...] = ()
    blobs: tuple[Blob, ...] = ()
    queue: tuple[Queued, ...] = ()
    seals: frozenset[str] = frozenset()
    epoch: int = 0
    rules: tuple[dict[str, Any], ...] = ()
    calls: tuple[ModelCall, ...] = ()


AT_HOME: Final[Mapping[Any, frozenset[str]]] = {
    # Permissions and the owner are valid only on their own host. Sums are computed again on import.
    Session: frozenset(
        {"permissions", "prompt_tokens", "completion_tokens", "reasoning_tokens", "cache_read", "cache_write", "spend"}
        | {"owner", "alias"}
    ),
    Turn: frozenset({"session_id", "depth", "compaction_turn_id"}),
    MessageRow: frozenset({"session_id"}),
    PartRow: frozenset({"index"}),
    HeadMove: frozenset({"seq", "session_id", "from_turn_id"}),
    # Costs were paid on this host; importing the file does not pay them again.
    PortableSession: frozenset({"links", "seals", "epoch", "rules", "calls"}),
}
"""Fields an export file omits: derived, stored elsewhere in the file, or private to this host."""


def for_export(portable: PortableSession, now: int) -> PortableSession:
    """Return the session without permissions, snapshots and fields that only its own store needs."""
    row = msgspec.structs.asdict(portable.session)

    def bare(row: MessageRow) -> MessageRow:
        return replace(row, metadata={key: value for key, value in row.metadata.items() if key != SNAPSHOT_KEY})

    messages = portable.messages
    if any(SNAPSHOT_KEY in row.metadata for row in messages):
        messages = mapped(messages, bare)
    session = Session(**{name: value for name, value in row.items() if name not in AT_HOME[Session]})
    omitted = {"seals": frozenset(), "epoch": 0, "rules": (), "calls": ()}
    return replace(portable, exported_at=now, session=session, messages=messages, **omitted)


def tree_of(portable: PortableSession) -> Tree:
    """Return the turn tree, with each turn's depth set from its parent, which precedes it."""
    turns: dict[str, Turn] = {}
    for turn in portable.turns:
        parent = turns.get(turn.parent_turn_id or "")
        is_lost = parent is None and turn.parent_turn_id is not None
        turns[turn.id] = turn if is_lost else with_parent(turn, parent)
    open_turn = next((turn.id for turn in portable.turns if turn.status in OPEN), None)
    return Tree(portable.session.head_turn_id, open_turn, turns, portable.links, portable.moves)


def named_blobs(rows: Iterable[MessageRow]) -> set[str]:
    """Return the digests of the files these messages refer to."""
    return {digest for row in rows for part in row.parts if (digest := blob_of(part.data)) is not None}


def in_order(portable: PortableSession) -> PortableSession:
    """Return the session with sorted rows. A branch's prunes have gaps, so they are renumbered."""
    # Two copies of a session are compared row by row, and new ids may sort differently from the old ones.
    numbers = {seq: position for position, seq in enumerate(sorted({prune.seq for prune in portable.prunes}), start=1)}
    prunes = (replace(prune, seq=numbers[prune.seq]) for prune in portable.prunes)
    turns = sorted(tree_of(portable).turns.values(), key=lambda turn: (turn.depth, turn.created_at, turn.id))
    position = {turn.id: n for n, turn in enumerate(turns)}
    steps = sorted(portable.steps, key=lambda step: (position.get(step.turn_id, 0), step.index))
    return replace(
        portable,
        turns=tuple(turns),
        messages=sorted_rows(portable.messages),
        steps=tuple(_renumbered(step, numbers) for step in steps),
        prunes=tuple(sorted(prunes, key=lambda prune: (prune.seq, prune.message_id, prune.part))),
        calls=tuple(sorted(portable.calls, key=lambda call: (call.asked_at, call.id))),
        queue=tuple(
            sorted(portable.queue, key=lambda queued: (not queued.interrupt, queued.queued_at, queued.message_id))
        ),
    )


def _renumbered(step: Step, numbers: dict[int, int]) -> Step:
    """Return the step with the newest prune in its view renumbered."""
    view = step.view
    if not (len(view) > 1 and isinstance(view[1], int)):
        return step
    newest = max((number for seq, number in numbers.items() if seq <= view[1]), default=0)
    return replace(step, data={**step.data, "view": [view[0], newest, *view[2:]]})


# Renaming

Row = TypeVar("Row", bound=msgspec.Struct)
Rename = Callable[[str], str]
"""Returns the new id for an old one, and any other text unchanged."""


class FreshIds:
    """Maps each message and turn id to a new id. Ids of rows that are not copied get one that refers to nothing.

    ``messages`` are always treated as message ids: another program may use its own format.
    """

    def __init__(self, mint: Mint, messages: Iterable[str] = ()) -> None:
        self._mint = mint
        self._new: dict[str, str] = {}
        self._messages = frozenset(messages)

    def __call__(self, old: str) -> str:
        if old in self._messages and old not in self._new:
            self._new[old] = self._mint.message()
        if old not in self._new and not old.startswith(("msg_", "trn_")):
            return old
        if old not in self._new:
            is_turn = old.startswith("trn_")
            try:
                (ids.check_turn_id if is_turn else ids.check_message_id)(old)
            except InvalidId:
                return old
            self._new[old] = self._mint.turn() if is_turn else self._mint.message()
        return self._new[old]


def rename_value(value: Any, rename: Rename) -> Any:
    """Return the JSON value with every text that is an id replaced; ids inside longer texts stay."""
    if isinstance(value, str):
        return rename(value)
    if isinstance(value, dict):
        return {key: rename_value(item, rename) for key, item in value.items()}
    return [rename_value(item, rename) for item in value] if isinstance(value, list) else value


def rename_part(data: dict[str, Any], rename: Rename) -> dict[str, Any]:
    """Replace ids where clew itself writes them: in a summary, in a subagent's result, and in a request.

    Anywhere else a text that looks like an id is left unchanged.
    """
    bags = ("output", "approval") if is_call(data) else ("data",) if data.get("type") == COMPACTION_PART else ()
    return {**data, **{key: rename_value(data[key], rename) for key in bags if key in data}} if bags else data


def rename_row(row: Row, rename: Rename) -> Row:
    """Replace every id in the row and in its JSON fields; fields that hold an id are named ``id`` or ``*_id``."""
    changes: dict[str, Any] = {}
    for name, value in msgspec.structs.asdict(row).items():
        if name in ("data", "metadata"):
            changes[name] = rename_value(value, rename)
        elif value is not None and (name == "id" or name.endswith("_id")):
            changes[name] = rename(value)
    return replace(row, **changes)


def rename_session(portable: PortableSession, rename: Rename, mint: Mint, *, new_parts: bool) -> PortableSession:
    """Return the session with new ids. Parts get new ids if ``new_parts`` is set, or if they have none."""

    def rename_message(row: MessageRow) -> MessageRow:
        parts = tuple(
            replace(part, id=mint.part() if new_parts or not part.id else part.id, data=rename_part(part.data, rename))
            for part in row.parts
        )
        return replace(rename_row(row, rename), parts=parts)

    rows = ("turns", "steps", "moves", "prunes", "queue", "calls")
    return in_order(
        replace(
            portable,
            session=rename_row(portable.session, rename),
            links={rename(turn_id): tuple(map(rename, message_ids)) for turn_id, message_ids in portable.links.items()},
            messages=mapped(portable.messages, rename_message),
            seals=frozenset(rename(id_) for id_ in portable.seals),
            **{name: tuple(rename_row(row, rename) for row in getattr(portable, name)) for name in rows},
        )
    )
