"""A file with the format's three tables alone, for other programs: their columns and indexes, nothing of clew's."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from clew.ids import Mint, SessionIdForm
from clew.store.sql import rows
from clew.store.sql.sqlite.connection import QUERIES, connect
from clew.store.sql.sqlite.migrate import statements
from clew.store.sql.sqlite.store import new_file
from clew.store.sql.statements import read_sql
from clew.transcript.line import line_messages
from clew.transcript.message import MessageRow
from clew.transcript.metadata import MODE_KEY, projection_of
from clew.transcript.portable import PortableSession, rename_session, tree_of, with_bytes

__all__ = ["PlainFile", "new_names", "plain_file"]

replace = msgspec.structs.replace


class PlainFile:
    """A file that is being written. ``rename`` gives sessions their new ids."""

    def __init__(self, connection: sqlite3.Connection, rename: Callable[[str], str], mint: Mint) -> None:
        self._connection, self._rename, self._mint = connection, rename, mint

    def add(self, portable: PortableSession) -> None:
        """Write a session as its own program shows it. Files are inside of their messages."""
        portable = rename_session(portable, self._rename, self._mint, new_parts=False)
        session = portable.session
        metadata = dict(session.metadata)
        if metadata.get(MODE_KEY) == "accept_edits":
            del metadata[MODE_KEY]
        # No file grants permissions. What asks or denies goes along.
        rules = [rule for rule in session.permissions if rule.get("action") != "allow"]
        row = rows.session_params(replace(session, metadata=metadata, permissions=rules))
        self._connection.execute(QUERIES["insert_session"], row)
        blobs = {blob.sha256: blob for blob in portable.blobs}
        for message in _in_order(portable):
            params = rows.message_params(replace(message, session_id=session.id))
            self._connection.execute(QUERIES["insert_message"], params)
            parts = (replace(part, data=with_bytes(part.data, blobs)) for part in message.parts)
            params_of_parts = (rows.part_params(part, message.id, session.id) for part in parts)
            self._connection.executemany(QUERIES["insert_new_part"], params_of_parts)


@contextlib.contextmanager
def plain_file(target: Path, rename: Callable[[str], str], mint: Mint) -> Iterator[PlainFile]:
    """Make a new file; it has all that was added to it, or is removed again."""
    with new_file(target), contextlib.closing(connect(target, writer=True)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        for statement in statements(read_sql("sqlite/migrations/0001_three_tables.sql")):
            connection.execute(statement)
        yield PlainFile(connection, rename, mint)
        connection.execute("COMMIT")


def new_names(session_ids: tuple[str, ...], form: SessionIdForm, mint: Mint) -> dict[str, str]:
    """Return ids of the format's kind for sessions of a store whose ids are others."""
    return {} if form is SessionIdForm.SHARED else {id_: mint.session(SessionIdForm.SHARED) for id_ in session_ids}


def _in_order(portable: PortableSession) -> Iterator[MessageRow]:
    """Yield all messages. Other programs read them by time, so those of the conversation get times in its order."""
    place = {message_id: n for n, (_, message_id) in enumerate(line_messages(tree_of(portable)))}
    shown = [row for row in portable.messages if row.id in place and projection_of(row.metadata)[0] is None]
    last: tuple[int, str] = (0, "")
    times: dict[str, int] = {}
    for row in sorted(shown, key=lambda row: place[row.id]):
        at = row.created_at if (row.created_at, row.id) > last else last[0] + 1
        times[row.id], last = at, (at, row.id)
    for row in portable.messages:
        at = times.get(row.id, row.created_at)
        yield row if at == row.created_at else replace(row, created_at=at, updated_at=max(at, row.updated_at))
