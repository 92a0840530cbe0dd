"""The judgement over killed children: what they said over all their lives, and what the store must therefore hold.

It is the same everywhere, the controls included: a child that acknowledges too early must be found out by it, or its
silence elsewhere would mean nothing.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from signal import SIGKILL
from typing import Any, Final

import clew
from clew.config import Config
from clew.session.acquire.settle import GONE, LOST, RESTART
from clew.session.history.check import check
from clew.store.base import Store
from clew.transcript import chunk as c
from clew.transcript.chunk import Chunk
from clew.transcript.fold import Fold
from clew.transcript.message import MessageRow
from clew.transcript.metadata import from_stream
from clew.transcript.part import child_data, output_text
from tests.rig.child import Child, Orders, StreamOf

__all__ = ["DatabaseWitness", "FileWitness", "Witness", "dump", "life"]

UNRUN: Final = "aborted by host restart; it was not run"


class Witness:
    """What the children of one store said over all their lives, and what the store must therefore hold."""

    keeps_chunks = True
    """Whether what was shown must be there; else only what had settled."""
    takes_marks = False
    """Whether a message may say that something of it is lost, beyond what must be there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"
        self.streams: dict[str, StreamOf] = {}
        self.shown: dict[str, list[Chunk]] = {}
        self.settled: set[str] = set()
        self.deleted: set[str] = set()
        self.kills = 0
        self.mid_stream = 0
        self.ahead = 0
        self.lengths: dict[str, tuple[int, int]] = {}
        """How many chunks of its script each message was found to hold, at least and at most."""
        self._found: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {}

    def hear(self, child: Child) -> None:
        self.streams |= child.streams
        self.shown |= child.shown
        self.settled |= child.settled
        if child.was_killed:
            self.kills += 1
            self.mid_stream += child.mid_stream

    @property
    def acknowledged(self) -> int:
        return sum(map(len, self.shown.values()))

    @property
    def figure(self) -> str:
        return (
            f"{self.kills} kills ({self.mid_stream} in mid-stream), {self.acknowledged} chunks acknowledged, "
            f"{self.ahead} stored and not acknowledged"
        )

    async def judge(self) -> list[str]:
        """Open the store, which recovers it, and say everything that is not as it must be."""
        async with clew.open(self.url, config=Config()) as engine:
            problems = [str(problem) for problem in await check(engine.store, self._expected())]
            problems += await self._compare(engine.store)
        once = self.dump()
        async with clew.open(self.url, config=Config()):
            pass
        if self.dump() != once:
            problems.append("a second recovery changed the store")
        return problems

    def dump(self) -> str:
        """Everything the store holds."""
        return dump(self.path)

    def least(self, stream: StreamOf) -> int:
        """How many chunks of a stream must be stored."""
        if stream.message_id in self.settled:
            return len(stream.script())
        return len(self.shown[stream.message_id]) if self.keeps_chunks else 0

    def _expected(self) -> dict[str, list[Chunk]]:
        kept = [stream for stream in self.streams.values() if stream.session_id not in self.deleted]
        return {stream.message_id: self.shown[stream.message_id][: self.least(stream)] for stream in kept}

    async def _compare(self, store: Store) -> list[str]:
        problems: list[str] = []
        rows: dict[str, MessageRow] = {}
        status: dict[str, str] = {}
        seals: dict[str, str] = {}
        for session_id in await store.session_ids():
            rows |= {row.id: row for row in await store.load_messages(session_id, keep_damaged=True)}
            status |= {turn.id: turn.status for turn in (await store.load_tree(session_id)).turns.values()}
            seals |= await store.seals(session_id)
        if await store.pending_streams():
            problems.append("recovery left a stream in the journal")
        unknown = [id_ for id_, row in rows.items() if row.role == "assistant" and id_ not in self.streams]
        problems += [f"{id_} is stored, and nobody wrote it" for id_ in unknown]
        for stream in self.streams.values():
            row = rows.get(stream.message_id)
            if stream.session_id in self.deleted:
                problems += [f"{row.id} is stored, and its session was deleted"] if row else []
                continue
            if stream.user_id not in rows:
                problems.append(f"{stream.user_id} was taken, and is not stored")
            problems += [f"{stream.message_id} ({stream.kind}): {what}" for what in self._compare_stream(stream, row)]
            if stream.message_id in self.settled:
                if status.get(stream.turn_id) != "completed":
                    problems.append(f"{stream.turn_id} was settled, and is {status.get(stream.turn_id)}")
                if row is None or seals.get(row.id) != row.seal:
                    problems.append(f"{stream.message_id} was settled, and its seal does not say so")
        return problems

    def _compare_stream(self, stream: StreamOf, row: MessageRow | None) -> list[str]:
        """A message is the fold of a prefix of its script, no shorter than what was shown, with the calls that had no
        result then ended by the restart; later it never changes."""
        script, shown = stream.script(), self.shown[stream.message_id]
        if shown != script[: len(shown)]:
            return ["what was shown is not how its script begins"]
        shortest = self.least(stream)
        if row is None:
            kept = [one for one in shown[:shortest] if not (isinstance(one, c.Data) and one.transient is True)]
            return [f"{len(kept)} chunks were shown, and none is stored"] if kept else []
        metadata = {key: value for key, value in row.metadata.items() if key not in ("usage", "model")}
        found = ([_restarted(part.data) for part in row.parts], metadata)
        if row.id in self._found:
            return [] if self._found[row.id] == found else ["it changed after its writer had died"]
        lengths = _prefix(script, row.id, found, shortest)
        if lengths is None and self.takes_marks and row.damage is not None:
            return []
        if lengths is None:
            return [f"it is not what any {shortest} to {len(script)} chunks of its script fold to"]
        self._found[row.id] = found
        self.lengths[row.id] = lengths
        self.ahead += lengths[0] - len(shown)
        return []


class FileWitness(Witness):
    """A witness of a folder of files."""

    def __init__(self, path: Path, kind: str) -> None:
        super().__init__(path)
        self.url = f"{kind}:{path}"
        self.keeps_chunks = kind == "jsonl"

    def dump(self) -> str:
        files = [path for path in sorted(self.path.rglob("*")) if path.is_file() and path.suffix != ".owner"]
        files = [path for path in files if path.parent.name != "notes"]  # worked out from the others
        # A kill may end a file inside of a character.
        return "\n".join(f"{path}\n{path.read_text(errors='surrogateescape')}" for path in files)


class DatabaseWitness(Witness):
    """A witness of a PostgreSQL database, whose server lives on when a child is killed."""

    def __init__(self, path: Path, url: str) -> None:
        super().__init__(path)
        self.url = url

    def dump(self) -> str:
        import psycopg

        told: list[str] = []
        with psycopg.connect(self.url) as connection:
            tables = connection.execute("select tablename from pg_tables where schemaname = 'public' order by 1")
            for (table,) in tables.fetchall():
                # Who writes and who serves is true while they do.
                if table not in ("replicas", "writer_marks"):
                    found = connection.execute(f"select t::text from {table} t order by 1".encode()).fetchall()
                    told += [table, *(row[0] for row in found)]
        return "\n".join(told)


def _prefix(script: list[Chunk], message_id: str, found: object, shortest: int) -> tuple[int, int] | None:
    """The fewest and the most chunks of the script that fold to what was found; some change nothing.

    Never fewer than ``shortest``; None when no number does.
    """
    fold = Fold(message_id, metadata={})
    fewest: int | None = None
    for length in range(len(script) + 1):
        if length >= shortest and ([_ended(part) for part in fold.parts], from_stream(fold.metadata)) == found:
            fewest = length if fewest is None else fewest
        elif fewest is not None:
            return fewest, length - 1
        if length < len(script):
            fold.apply(script[length])
    return None if fewest is None else (fewest, len(script))


def _restarted(part: dict[str, Any]) -> dict[str, Any]:
    """A call of a turn that ended well says only that it was aborted, one of a replica that this is gone; here they are
    told like those of all others."""
    reason, *given = str(part.get("errorText")).partition("\n\n")
    unrun = [f"{why.partition(';')[0]}; it was not run" for why in (LOST, GONE)]
    words = {LOST: RESTART, GONE: RESTART, **dict.fromkeys(unrun, UNRUN)}.get(reason)
    return part if words is None else {**part, "errorText": "".join((words, *given))}


def _ended(part: dict[str, Any]) -> dict[str, Any]:
    """The part after a restart: a call without a result has failed, what it was told and had given so far stays.

    What it did is unknown, but that one whose arguments were still being written did nothing.
    """
    so_far = part.get("preliminary") is True
    if part.get("state") not in ("input-streaming", "input-available", "approval-requested") and not so_far:
        return part
    gone = ("approval", "inputEncoding", "rawInput", "output", "preliminary")
    kept = {key: value for key, value in part.items() if key not in gone}
    words = UNRUN if part["state"] == "input-streaming" else RESTART
    given = output_text(part) if so_far else None
    words = f"{words}\n\nbefore that it gave:\n{given}" if given else words
    child = child_data(part.get("output")) if so_far else {}
    about = {"resultProviderMetadata": {"clew": child}} if child else {}
    return {"input": {}, **kept, **about, "state": "output-error", "errorText": words}


def dump(path: Path) -> str:
    """Every table of the file with every row, as SQL text."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return "\n".join(connection.iterdump())


def life(witness: Witness, seed: int, failpoints: str = "", **orders: Any) -> Child:
    """Start a child that records until a failpoint kills it; without one, until it is done."""
    with Child(Orders(store=witness.url, seed=seed, **orders), failpoints=failpoints) as child:
        code = child.wait()
        assert code == (-SIGKILL if failpoints else 0), child.how_it_ended()
    witness.hear(child)
    return child
