"""The live layer on Valkey or Redis: other processes hear what one says, and read its chunks without asking the store.

A run's chunks go into a stream of the server's, as many together as were shown since the last time, under the number
of the last of them; it is bounded in bytes and expires. A word on the session's channel says how far it is, and whoever
follows it reads from where they are: all of their streams in one round trip. Status, events and signals go to a channel
that all processes hear. A server that is away, or has lost everything, costs time: words say when to read, the numbers
say what is missing, and that is in the store.

A process has three connections: one that tells, one that hears, one that reads.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from clew.errors import IllegalChunk, InvalidInput, NotSupported
from clew.fit import fit_json
from clew.live.base import Word
from clew.live.location import shown_address
from clew.live.shared import SharedListening, SharedLive, SharedStream, encode_frame, parse_frame
from clew.transcript.chunk import Chunk, is_transient

if TYPE_CHECKING:
    from redis.asyncio import Redis

__all__ = ["RedisLive"]

_MOST_FRAME: Final = 256 * 1024
"""Chunks that are longer together are not carried: they are in the store."""
_MOST_STREAM: Final = 512 * 1024
_EXPIRES_MS: Final = 300_000
_ENDED_EXPIRES_MS: Final = 60_000
_CONNECT_S: Final = 2.0
_QUIET_S: Final = 5.0
"""After so long without a word the server is asked whether it is there, and given as long again to say so."""
_NEWEST: Final = 2**64 - 1
_encode: Final = msgspec.json.Encoder().encode
_notes: Final = msgspec.json.Decoder(tuple[str, list[Any]]).decode


class RedisLive(SharedLive):
    """Streams, status, events and signals over a server of Valkey's or Redis'."""

    carries_chunks: ClassVar[bool] = True

    def __init__(self, url: str, *, name: str = "") -> None:
        """``name`` keeps apart what several stores say on one server."""
        super().__init__()
        self.url = shown_address(url)
        try:
            from redis.asyncio import Redis
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
        except ImportError:
            raise NotSupported(
                "the live layer on Valkey or Redis needs the redis package: pip install 'clew[redis]'"
            ) from None
        self._prefix = f"clew:{name}" if name else "clew"

        def client() -> Redis:
            # Whether and when to try again is decided here: what waits for a server that is away would be late anyway.
            return Redis.from_url(
                url,
                socket_connect_timeout=_CONNECT_S,
                socket_timeout=_QUIET_S,
                retry=Retry(NoBackoff(), 0),
            )

        try:
            self._teller, self._hearer, self._reader = client(), client(), client()
        except ValueError:
            # What is wrong with it may hold a password: it is not repeated.
            raise InvalidInput(f"{self.url} is no address of a Valkey or Redis server: redis://HOST:PORT/0") from None
        self._pubsub: Any = None
        self._subscribing: set[asyncio.Task[None]] = set()
        self._wanted: list[tuple[str, str, asyncio.Future[list[tuple[bytes, dict[bytes, bytes]]]]]] = []
        self._reading: asyncio.Task[None] | None = None

    def _channel(self, session_id: str) -> str:
        return f"{self._prefix}:s:{session_id}"

    def _key(self, message_id: str, epoch: int) -> str:
        return f"{self._prefix}:m:{message_id}:{epoch}"

    # Telling

    async def _carry(self) -> None:
        while True:
            mail = await self.next_mail()
            pipe = self._teller.pipeline(transaction=False)
            for stream, frames in mail.frames.items():
                self._add_frames(pipe, stream, frames)
            for session_id, word in mail.words.items():
                if word.ended:
                    pipe.pexpire(self._key(word.message_id, word.epoch), _ENDED_EXPIRES_MS)
                pipe.publish(self._channel(session_id), _encode((self.origin, word)))
            notes = list(mail.notes())
            if notes:
                pipe.publish(f"{self._prefix}:all", _encode((self.origin, notes)))
            # One that the server refuses, such as a number that is there already, costs its viewers a look.
            await pipe.execute(raise_on_error=False)

    def _add_frames(self, pipe: Any, stream: SharedStream, frames: Sequence[tuple[int, Sequence[Chunk]]]) -> None:
        """All that was shown of a stream since the last time, under the number of its last chunk."""
        if not frames:
            return
        through = frames[-1][0]
        data = encode_frame(through, [chunk for _, chunks in frames for chunk in chunks])
        if len(data) > _MOST_FRAME:
            return
        kept = stream.kept
        # What is transient adds to the same number.
        again = int(kept[-1][0].partition("-")[2]) + 1 if kept and kept[-1][0].startswith(f"{through}-") else 0
        kept.append((f"{through}-{again}", len(data)))
        stream.kept_bytes += len(data)
        while stream.kept_bytes > _MOST_STREAM:
            stream.kept_bytes -= kept.popleft()[1]
        key = self._key(stream.message_id, stream.epoch)
        pipe.xadd(key, {b"c": data}, id=kept[-1][0], minid=kept[0][0], approximate=False)
        now = asyncio.get_running_loop().time()
        if now >= stream.renew_at:
            pipe.pexpire(key, _EXPIRES_MS)
            stream.renew_at = now + _EXPIRES_MS / 4_000

    # Hearing

    def listen(self, session_id: str) -> SharedListening:
        is_first = session_id not in self._listeners
        listening = super().listen(session_id)
        if self._pubsub is None or not is_first:
            # Nobody to wait for: it is subscribed to already, or will be with all the others.
            listening.miss()
        else:
            self._subscribe_soon(self._pubsub, session_id)
        return listening

    def stop_listening(self, listening: SharedListening) -> bool:
        is_last = super().stop_listening(listening)
        if is_last and self._pubsub is not None:
            self._subscribe_soon(self._pubsub, listening.session_id)
        return is_last

    def _subscribe_soon(self, pubsub: Any, session_id: str) -> None:
        """Subscribe while somebody listens, and leave when nobody does."""

        async def subscribe() -> None:
            # Past the library, which would connect anew in here while whoever hears does the same. A connection that
            # is gone is noticed there, and everything is subscribed to again.
            connection = pubsub.connection
            if connection is not None and connection.is_connected:
                word = "SUBSCRIBE" if session_id in self._listeners else "UNSUBSCRIBE"
                with contextlib.suppress(Exception):
                    await connection.send_command(word, self._channel(session_id), check_health=False)

        task = asyncio.get_running_loop().create_task(subscribe())
        self._subscribing.add(task)
        task.add_done_callback(self._subscribing.discard)

    async def _hear(self) -> None:
        async with self._hearer.pubsub() as pubsub:
            channels = [self._channel(session_id) for session_id in self._listeners]
            await pubsub.subscribe(f"{self._prefix}:all", *channels)
            self._pubsub = pubsub
            # Those that came while that was under way.
            for session_id in self._listeners:
                if self._channel(session_id) not in channels:
                    self._subscribe_soon(pubsub, session_id)
            try:
                await self._hear_from(pubsub)
            finally:
                self._pubsub = None
                self.set_connected(False)

    async def _hear_from(self, pubsub: Any) -> None:
        is_asked = False
        while True:
            message = await pubsub.get_message(timeout=_QUIET_S)
            if message is None:
                if is_asked:
                    raise ConnectionError("the server does not answer")
                is_asked = True
                await pubsub.ping()
                continue
            is_asked = False
            channel = (message["channel"] or b"").decode()
            session_id = channel.removeprefix(f"{self._prefix}:s:")
            if message["type"] == "subscribe":
                if session_id == channel:
                    if self.is_connected:
                        raise ConnectionError("the library has connected anew, and knows half of what is heard")
                    self.set_connected(True)
                for listening in self._listeners.get(session_id, ()):
                    listening.miss()
            elif message["type"] == "message":
                self._take(channel, session_id, message["data"])

    def _take(self, channel: str, session_id: str, data: bytes) -> None:
        try:
            if session_id != channel:
                origin, word = fit_json(data, tuple[str, Word])
                if origin != self.origin:
                    self.hear_word(session_id, word)
            else:
                origin, notes = _notes(data)
                for note in notes if origin != self.origin else ():
                    self.hear_note(note)
        except msgspec.DecodeError:
            pass  # of a version that says it otherwise: the store is looked at now and then

    # Reading

    async def read_chunks(self, listening: SharedListening, word: Word, after: int) -> Sequence[tuple[int, Chunk]]:
        future: asyncio.Future[list[tuple[bytes, dict[bytes, bytes]]]] = asyncio.get_running_loop().create_future()
        start, goes_on = listening.cursor, True
        if not start or int(start.partition("-")[0]) > after:
            start, goes_on = f"{after}-{_NEWEST}", False
        self._wanted.append((self._key(word.message_id, word.epoch), f"({start}", future))
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._read_wanted())
        try:
            held = await future
            chunks = [one for _, fields in held for one in parse_frame(fields[b"c"])]
        except (OSError, ValueError, KeyError, IllegalChunk):
            return ()
        if held:
            listening.cursor = held[-1][0].decode()
        following: list[tuple[int, Chunk]] = []
        for n, chunk in chunks:
            if is_transient(chunk):
                # Shown in its place, or not at all.
                following += [(n, chunk)] if n == after and (goes_on or following) else []
            elif n == after + 1:
                following.append((n, chunk))
                after = n
            elif n > after:
                break
        return following

    async def _read_wanted(self) -> None:
        """What everybody wants, in one round trip; what is wanted meanwhile, in the next."""
        while self._wanted:
            wanted, self._wanted = self._wanted, []
            pipe = self._reader.pipeline(transaction=False)
            for key, start, _ in wanted:
                pipe.xrange(key, min=start)
            try:
                answers = await pipe.execute(raise_on_error=False)
            except Exception:
                answers = [OSError("the server is away")] * len(wanted)
            for (_, _, future), answer in zip(wanted, answers, strict=True):
                if future.done():
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(OSError(type(answer).__name__))
                else:
                    future.set_result(answer)

    async def close(self) -> None:
        await super().close()
        under_way = {*self._subscribing, *([self._reading] if self._reading is not None else [])}
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        for _, _, future in self._wanted:
            future.cancel()
        for client in (self._teller, self._hearer, self._reader):
            await client.aclose()
