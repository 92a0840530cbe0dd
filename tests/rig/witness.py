"""The judge of killed children: their reports, and what the store must therefore contain.

It is the same everywhere, including the controls: it must detect a child that acknowledges too early, or passing rounds
would mean nothing.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from signal import SIGKILL
from typing import Any, Final

import clew
from clew.config import Config
from clew.session.acquire.acquire import GONE, LOST, RESTART
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
    """The reports of all children of one store, and the checks of the store against them."""

    requires_chunks = True
    """Whether shown chunks must be stored; else only settled messages."""
    allows_loss_marks = False
    """Whether a message may be marked as incomplete, beyond what must be stored."""

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
        """The minimum and maximum number of chunks of its script that each message contains."""
        self._found: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {}

    def add(self, child: Child) -> None:
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
        """Open the store, which recovers it, and return all problems."""
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
        """Return everything in the store."""
        return dump(self.path)

    def min_chunks(self, stream: StreamOf) -> int:
        """Return the number of chunks of a stream that must be stored."""
        if stream.message_id in self.settled:
            return len(stream.script())
        return len(self.shown[stream.message_id]) if self.requires_chunks else 0

    def _expected(self) -> dict[str, list[Chunk]]:
        remaining = [stream for stream in self.streams.values() if stream.session_id not in self.deleted]
        return {stream.message_id: self.shown[stream.message_id][: self.min_chunks(stream)] for stream in remaining}

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
        problems += [f"{id_} is stored but was never written" for id_ in unknown]
        for stream in self.streams.values():
            row = rows.get(stream.message_id)
            if stream.session_id in self.deleted:
                problems += [f"{row.id} is stored, but its session was deleted"] if row else []
                continue
            if stream.user_id not in rows:
                problems.append(f"{stream.user_id} was accepted but is not stored")
            problems += [f"{stream.message_id} ({stream.kind}): {what}" for what in self._compare_stream(stream, row)]
            if stream.message_id in self.settled:
                if status.get(stream.turn_id) != "completed":
                    problems.append(f"{stream.turn_id} was settled but is {status.get(stream.turn_id)}")
                if row is None or seals.get(row.id) != row.seal:
                    problems.append(f"{stream.message_id} was settled, but its seal does not match")
        return problems

    def _compare_stream(self, stream: StreamOf, row: MessageRow | None) -> list[str]:
        """Check that a message is the fold of a prefix of its script, at least as long as what was shown, with
        unfinished calls ended by the restart, and that it never changes later."""
        script, shown = stream.script(), self.shown[stream.message_id]
        if shown != script[: len(shown)]:
            return ["the shown chunks are not a prefix of its script"]
        shortest = self.min_chunks(stream)
        if row is None:
            missing = [one for one in shown[:shortest] if not (isinstance(one, c.Data) and one.transient is True)]
            return [f"{len(missing)} chunks were shown, and none is stored"] if missing else []
        metadata = {key: value for key, value in row.metadata.items() if key not in ("usage", "model")}
        found = ([_restarted(part.data) for part in row.parts], metadata)
        if row.id in self._found:
            return [] if self._found[row.id] == found else ["it changed after its writer died"]
        lengths = _prefix(script, row.id, found, shortest)
        if lengths is None and self.allows_loss_marks and row.damage is not None:
            return []
        if lengths is None:
            return [f"it is not the fold of {shortest} to {len(script)} chunks of its script"]
        self._found[row.id] = found
        self.lengths[row.id] = lengths
        self.ahead += lengths[0] - len(shown)
        return []


class FileWitness(Witness):
    """A witness of a file store."""

    def __init__(self, path: Path, kind: str) -> None:
        super().__init__(path)
        self.url = f"{kind}:{path}"
        self.requires_chunks = kind == "jsonl"

    def dump(self) -> str:
        files = [path for path in sorted(self.path.rglob("*")) if path.is_file() and path.suffix != ".owner"]
        files = [path for path in files if path.stem != "cache"]  # derived from the others
        # A kill may cut a file within a character.
        return "\n".join(f"{path}\n{path.read_text(errors='surrogateescape')}" for path in files)


class DatabaseWitness(Witness):
    """A witness of a PostgreSQL database, whose server survives the kills."""

    def __init__(self, path: Path, url: str) -> None:
        super().__init__(path)
        self.url = url

    def dump(self) -> str:
        import psycopg

        lines: list[str] = []
        with psycopg.connect(self.url) as connection:
            tables = connection.execute("select tablename from pg_tables where schemaname = 'public' order by 1")
            for (table,) in tables.fetchall():
                # Writers and replicas are only valid while they run.
                if table not in ("replicas", "writer_marks"):
                    found = connection.execute(f"select t::text from {table} t order by 1".encode()).fetchall()
                    lines += [table, *(row[0] for row in found)]
        return "\n".join(lines)


def _prefix(script: list[Chunk], message_id: str, found: object, shortest: int) -> tuple[int, int] | None:
    """Return the minimum and maximum number of chunks that fold to the message; some chunks change nothing.

    At least ``shortest``; None if no number matches.
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
    """Return the part with one error text for all interrupted calls: the texts differ by how the turn ended."""
    reason, *rest = str(part.get("errorText")).partition("\n\n")
    unrun = [f"{text.partition(';')[0]}; it was not run" for text in (LOST, GONE)]
    message = {LOST: RESTART, GONE: RESTART, **dict.fromkeys(unrun, UNRUN)}.get(reason)
    return part if message is None else {**part, "errorText": "".join((message, *rest))}


def _ended(part: dict[str, Any]) -> dict[str, Any]:
    """Return the part after a restart: a call without a result has failed; its input and partial output stay.

    Its effects are unknown, except that a call with incomplete arguments did not run.
    """
    so_far = part.get("preliminary") is True
    if part.get("state") not in ("input-streaming", "input-available", "approval-requested") and not so_far:
        return part
    removed = ("approval", "inputEncoding", "rawInput", "output", "preliminary")
    remaining = {key: value for key, value in part.items() if key not in removed}
    message = UNRUN if part["state"] == "input-streaming" else RESTART
    partial = output_text(part) if so_far else None
    message = f"{message}\n\nbefore that it gave:\n{partial}" if partial else message
    child = child_data(part.get("output")) if so_far else {}
    about = {"resultProviderMetadata": {"clew": child}} if child else {}
    return {"input": {}, **remaining, **about, "state": "output-error", "errorText": message}


def dump(path: Path) -> str:
    """Return every row of every table as SQL text."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return "\n".join(connection.iterdump())


def life(witness: Witness, seed: int, failpoints: str = "", **orders: Any) -> Child:
    """Run a child until a failpoint kills it, or to its end without one."""
    with Child(Orders(store=witness.url, seed=seed, **orders), failpoints=failpoints) as child:
        code = child.wait()
        assert code == (-SIGKILL if failpoints else 0), child.how_it_ended()
    witness.add(child)
    return child
