"""The live layer on Valkey or Redis: other processes receive progress and read chunks without asking the store.

A run's chunks go into a stream on the server, batched since the last write, under the number of the last chunk; the
stream is bounded in bytes and expires. A message on the session's channel says how far it has got, and followers read
from their position, all streams of a process in one round trip. Status, events and signals go to a channel that all
processes subscribe to. If the server is down or has lost its data, that costs time only: the numbers show what is
missing, and it is in the store.

A process has three connections: to publish, to subscribe, and to read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from clew.convert import convert_json
from clew.errors import IllegalChunk, InvalidInput, NotSupported
from clew.live.base import Word, shown_address
from clew.live.shared import SharedListening, SharedLive, SharedStream, encode_frame, parse_frame
from clew.transcript.chunk import Chunk, is_transient

if TYPE_CHECKING:
    from redis.asyncio import Redis

__all__ = ["RedisLive"]

_MAX_FRAME_BYTES: Final = 256 * 1024
"""Larger batches of chunks are not sent; viewers read them from the store."""
_MAX_STREAM_BYTES: Final = 512 * 1024
_STREAM_TTL_MS: Final = 300_000
_ENDED_STREAM_TTL_MS: Final = 60_000
_CONNECT_S: Final = 2.0
_SILENCE_S: Final = 5.0
"""After this long without a message the server is pinged, and has as long again to respond."""
_MAX_SEQUENCE: Final = 2**64 - 1
_encode: Final = msgspec.json.Encoder().encode
_decode_notes: Final = msgspec.json.Decoder(tuple[str, list[Any]]).decode


class RedisLive(SharedLive):
    """Streams, status, events and signals over a Valkey or Redis server."""

    carries_chunks: ClassVar[bool] = True

    def __init__(self, url: str, *, name: str = "") -> None:
        """``name`` separates several stores on one server."""
        super().__init__()
        self.url = shown_address(url)
        try:
            from redis.asyncio import Redis
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
        except ImportError:
            raise NotSupported(
                "the live layer on Valkey or Redis needs the redis package: pip install 'clew-sessions[redis]'"
            ) from None
        self._prefix = f"clew:{name}" if name else "clew"

        def client() -> Redis:
            # Retries are handled here: a request that waited for an unreachable server would be late anyway.
            return Redis.from_url(
                url,
                socket_connect_timeout=_CONNECT_S,
                socket_timeout=_SILENCE_S,
                retry=Retry(NoBackoff(), 0),
            )

        try:
            self._publish_client, self._listen_client, self._read_client = client(), client(), client()
        except ValueError:
            # The library's message may contain a password: do not repeat it.
            raise InvalidInput(
                f"{self.url} is not the address of a Valkey or Redis server: redis://HOST:PORT/0"
            ) from None
        self._pubsub: Any = None
        self._subscribing: set[asyncio.Task[None]] = set()
        self._pending_reads: list[tuple[str, str, asyncio.Future[list[tuple[bytes, dict[bytes, bytes]]]]]] = []
        self._read_task: asyncio.Task[None] | None = None

    def _channel(self, session_id: str) -> str:
        return f"{self._prefix}:s:{session_id}"

    def _key(self, message_id: str, epoch: int) -> str:
        return f"{self._prefix}:m:{message_id}:{epoch}"

    # Publishing

    async def _publish(self) -> None:
        while True:
            outbox = await self.next_outbox()
            pipe = self._publish_client.pipeline(transaction=False)
            for stream, frames in outbox.frames.items():
                self._add_frames(pipe, stream, frames)
            for session_id, progress in outbox.progress.items():
                if progress.ended:
                    pipe.pexpire(self._key(progress.message_id, progress.epoch), _ENDED_STREAM_TTL_MS)
                pipe.publish(self._channel(session_id), _encode((self.origin, progress)))
            notes = list(outbox.notes())
            if notes:
                pipe.publish(f"{self._prefix}:all", _encode((self.origin, notes)))
            # If the server rejects a command, such as a number that already exists, viewers read the store instead.
            await pipe.execute(raise_on_error=False)

    def _add_frames(self, pipe: Any, stream: SharedStream, frames: Sequence[tuple[int, Sequence[Chunk]]]) -> None:
        """Append everything shown since the last write, under the number of its last chunk."""
        if not frames:
            return
        through = frames[-1][0]
        data = encode_frame(through, [chunk for _, chunks in frames for chunk in chunks])
        if len(data) > _MAX_FRAME_BYTES:
            return
        stored = stream.stored_frames
        # Transient chunks share the number of the chunk before them.
        sequence = int(stored[-1][0].partition("-")[2]) + 1 if stored and stored[-1][0].startswith(f"{through}-") else 0
        stored.append((f"{through}-{sequence}", len(data)))
        stream.stored_bytes += len(data)
        while stream.stored_bytes > _MAX_STREAM_BYTES:
            stream.stored_bytes -= stored.popleft()[1]
        key = self._key(stream.message_id, stream.epoch)
        pipe.xadd(key, {b"c": data}, id=stored[-1][0], minid=stored[0][0], approximate=False)
        now = asyncio.get_running_loop().time()
        if now >= stream.renew_at:
            pipe.pexpire(key, _STREAM_TTL_MS)
            stream.renew_at = now + _STREAM_TTL_MS / 4_000

    # Listening

    def listen(self, session_id: str) -> SharedListening:
        is_first = session_id not in self._listeners
        listening = super().listen(session_id)
        if self._pubsub is None or not is_first:
            # Nothing to wait for: the channel is already subscribed to, or will be with all the others.
            listening.mark_missed()
        else:
            self._subscribe_soon(self._pubsub, session_id)
        return listening

    def remove_listener(self, listening: SharedListening) -> bool:
        is_last = super().remove_listener(listening)
        if is_last and self._pubsub is not None:
            self._subscribe_soon(self._pubsub, listening.session_id)
        return is_last

    def _subscribe_soon(self, pubsub: Any, session_id: str) -> None:
        """Subscribe while there are listeners, unsubscribe after the last one."""

        async def subscribe() -> None:
            # Bypass the library, which would reconnect here while the listening task does the same. A lost connection
            # is noticed there, and all channels are subscribed to again.
            connection = pubsub.connection
            if connection is not None and connection.is_connected:
                command = "SUBSCRIBE" if session_id in self._listeners else "UNSUBSCRIBE"
                with contextlib.suppress(Exception):
                    await connection.send_command(command, self._channel(session_id), check_health=False)

        task = asyncio.get_running_loop().create_task(subscribe())
        self._subscribing.add(task)
        task.add_done_callback(self._subscribing.discard)

    async def _listen(self) -> None:
        async with self._listen_client.pubsub() as pubsub:
            channels = [self._channel(session_id) for session_id in self._listeners]
            await pubsub.subscribe(f"{self._prefix}:all", *channels)
            self._pubsub = pubsub
            # Listeners that were added in the meantime.
            for session_id in self._listeners:
                if self._channel(session_id) not in channels:
                    self._subscribe_soon(pubsub, session_id)
            try:
                await self._listen_on(pubsub)
            finally:
                self._pubsub = None
                self.set_connected(False)

    async def _listen_on(self, pubsub: Any) -> None:
        pinged = False
        while True:
            message = await pubsub.get_message(timeout=_SILENCE_S)
            if message is None:
                if pinged:
                    raise ConnectionError("the server does not respond")
                pinged = True
                await pubsub.ping()
                continue
            pinged = False
            channel = (message["channel"] or b"").decode()
            session_id = channel.removeprefix(f"{self._prefix}:s:")
            if message["type"] == "subscribe":
                if session_id == channel:
                    if self.is_connected:
                        raise ConnectionError("the library reconnected without all subscriptions")
                    self.set_connected(True)
                for listening in self._listeners.get(session_id, ()):
                    listening.mark_missed()
            elif message["type"] == "message":
                self._on_message(channel, session_id, message["data"])

    def _on_message(self, channel: str, session_id: str, data: bytes) -> None:
        try:
            if session_id != channel:
                origin, progress = convert_json(data, tuple[str, Word])
                if origin != self.origin:
                    self.on_progress(session_id, progress)
            else:
                origin, notes = _decode_notes(data)
                for note in notes if origin != self.origin else ():
                    self.on_note(note)
        except msgspec.DecodeError:
            pass  # sent by another version of clew: the store is polled anyway

    # Reading

    async def read_chunks(self, listening: SharedListening, progress: Word, after: int) -> Sequence[tuple[int, Chunk]]:
        future: asyncio.Future[list[tuple[bytes, dict[bytes, bytes]]]] = asyncio.get_running_loop().create_future()
        start, continues = listening.cursor, True
        if not start or int(start.partition("-")[0]) > after:
            start, continues = f"{after}-{_MAX_SEQUENCE}", False
        self._pending_reads.append((self._key(progress.message_id, progress.epoch), f"({start}", future))
        if self._read_task is None or self._read_task.done():
            self._read_task = asyncio.get_running_loop().create_task(self._read_pending())
        try:
            entries = await future
            chunks = [one for _, fields in entries for one in parse_frame(fields[b"c"])]
        except (OSError, ValueError, KeyError, IllegalChunk):
            return ()
        if entries:
            listening.cursor = entries[-1][0].decode()
        following: list[tuple[int, Chunk]] = []
        for n, chunk in chunks:
            if is_transient(chunk):
                # Shown in order, or not at all.
                following += [(n, chunk)] if n == after and (continues or following) else []
            elif n == after + 1:
                following.append((n, chunk))
                after = n
            elif n > after:
                break
        return following

    async def _read_pending(self) -> None:
        """Serve all pending reads in one round trip; those added meanwhile, in the next."""
        while self._pending_reads:
            pending, self._pending_reads = self._pending_reads, []
            pipe = self._read_client.pipeline(transaction=False)
            for key, start, _ in pending:
                pipe.xrange(key, min=start)
            try:
                answers = await pipe.execute(raise_on_error=False)
            except Exception:
                answers = [OSError("the server is not reachable")] * len(pending)
            for (_, _, future), answer in zip(pending, answers, strict=True):
                if future.done():
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(OSError(type(answer).__name__))
                else:
                    future.set_result(answer)

    async def close(self) -> None:
        await super().close()
        tasks = {*self._subscribing, *([self._read_task] if self._read_task is not None else [])}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _, _, future in self._pending_reads:
            future.cancel()
        for client in (self._publish_client, self._listen_client, self._read_client):
            await client.aclose()
