"""The live layer on PostgreSQL alone: notifications announce progress, and receivers read the journal.

All notifications use one channel, which PostgreSQL scopes to the database. They are batched and sent at a fixed
interval, however many chunks a stream has: each notification slows every commit of the server a little, and only says
how far to read. A lost one costs only time: the store is polled anyway.

A process has two connections: one that sends, through a pooler if there is one, and one that listens, which must not go
through a pooler. When it starts to listen, a third connection sends one empty notification: if nothing arrives, the log
says why replicas will lag.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from clew.errors import NotSupported
from clew.live.shared import SharedLive

__all__ = ["PostgresLive", "payloads"]

log: Final = logging.getLogger(__name__)

_CHANNEL: Final = "clew_live"
_SEND_INTERVAL_S: Final = 0.025
_SILENCE_S: Final = 10.0
_MAX_PAYLOAD_BYTES: Final = 7_800
"""PostgreSQL limits a notification to less than 8,000 bytes."""
_MAX_VALUE_BYTES: Final = 1_000
_CONNECT: Final = {"connect_timeout": 5, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(tuple[str, list[Any]]).decode


def payloads(origin: str, notes: Iterable[Any]) -> Iterator[str]:
    """Pack the notes into as few notifications as possible; a note that is too long keeps only its short values."""
    head = _encode(origin)
    batch: list[bytes] = []
    size = len(head) + 4
    for note in notes:
        data = _encode(note)
        if len(data) + len(head) + 4 > _MAX_PAYLOAD_BYTES:
            kind, first, second = note
            trimmed = msgspec.to_builtins(second)
            if isinstance(trimmed, Mapping):
                trimmed = {key: value for key, value in trimmed.items() if len(_encode(value)) <= _MAX_VALUE_BYTES}
            data = _encode((kind, first, trimmed))
            if len(data) + len(head) + 4 > _MAX_PAYLOAD_BYTES:
                continue
        if size + len(data) + 1 > _MAX_PAYLOAD_BYTES:
            yield (b"[%b,[%b]]" % (head, b",".join(batch))).decode()
            batch, size = [], len(head) + 4
        batch.append(data)
        size += len(data) + 1
    if batch:
        yield (b"[%b,[%b]]" % (head, b",".join(batch))).decode()


class PostgresLive(SharedLive):
    """Streams, status, events and signals by LISTEN and NOTIFY."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._is_delivery_checked = False
        try:
            import psycopg  # noqa: F401
        except ImportError:
            raise NotSupported("PostgreSQL needs an extra; install it: pip install 'clew-sessions[postgres]'") from None

    async def _connect(self) -> Any:
        from psycopg import AsyncConnection
        from psycopg.conninfo import conninfo_to_dict

        options: dict[str, Any] = {**_CONNECT, **conninfo_to_dict(self._url)}
        return await AsyncConnection.connect(**options, autocommit=True, prepare_threshold=None)

    async def _publish(self) -> None:
        connection = await self._connect()
        try:
            while True:
                outbox = await self.next_outbox()
                updates = (("word", session_id, progress) for session_id, progress in outbox.progress.items())
                for payload in payloads(self.origin, (*updates, *outbox.notes())):
                    await connection.execute("SELECT pg_notify(%s, %s)", (_CHANNEL, payload))
                await asyncio.sleep(_SEND_INTERVAL_S)
        finally:
            await connection.close()

    async def _listen(self) -> None:
        connection = await self._connect()
        try:
            await connection.execute(f"LISTEN {_CHANNEL}")
            self.set_connected(True)
            if not self._is_delivery_checked:
                await self._send_probe()
            while True:
                async for notification in connection.notifies(timeout=_SILENCE_S):
                    self._is_delivery_checked = True
                    self._on_payload(notification.payload)
                if not self._is_delivery_checked:
                    self._is_delivery_checked = True
                    log.warning(
                        "no notifications arrive from PostgreSQL, as behind PgBouncer in transaction mode; replicas "
                        "see each other late: use the server's direct address, or Valkey (--live redis://…)"
                    )
                # No notification for a while: check that the server still responds.
                async with asyncio.timeout(_SILENCE_S):
                    await connection.execute("SELECT 1")
        finally:
            self.set_connected(False)
            await connection.close()

    async def _send_probe(self) -> None:
        """Send a notification without content from another connection, as another replica would."""
        connection = await self._connect()
        try:
            payload = _encode((self.origin, ())).decode()
            await connection.execute("SELECT pg_notify(%s, %s)", (_CHANNEL, payload))
        finally:
            await connection.close()

    def _on_payload(self, payload: str) -> None:
        try:
            origin, notes = _decode(payload)
        except msgspec.DecodeError:
            return  # sent by another version of clew: the store is polled anyway
        for note in notes if origin != self.origin else ():
            self.on_note(note)
