"""The client: a server's engine for programs elsewhere, which resumes after a dropped connection.

Its operations are those of the remote engine. In addition, a prompt is sent under an id, so that it can be sent again
without running twice, and streams reconnect and yield each chunk once, in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, cast, overload
from uuid import uuid4

from clew import errors as e
from clew.fronts.remote.engine import RemoteEngine
from clew.fronts.remote.wire import Gone, Wire
from clew.live.base import Event, Status, Waiting
from clew.session.prompt.submission import TurnOutcome
from clew.transcript import chunk as chunks
from clew.transcript.session import Model
from clew.transcript.stream_cursor import StreamChunk, StreamPosition

if TYPE_CHECKING:
    from clew.session.turn.answers import Decision

__all__ = ["AsyncClient", "AsyncTurn"]

T = TypeVar("T")
_BACKOFF_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Waits between attempts to reach a server; the last one repeats."""


class _Backoff:
    """Growing waits between consecutive failures, with a limit on how long failures may last."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.reset()

    def reset(self) -> None:
        """Note a success."""
        self._failures = 0
        self._until: float | None = None

    async def after(self, error: e.StoreError) -> None:
        """Return when it is time to retry; raise the error if a retry cannot help or the time is up."""
        now = asyncio.get_running_loop().time()
        self._until = now + self._seconds if self._until is None else self._until
        # A proxy's error for a restarting server has no code of clew's.
        is_temporary = isinstance(error, Gone | e.ReplicaAway | e.StoreBusy) or type(error) is e.StoreError
        if not is_temporary or now >= self._until:
            raise error
        await self.wait_next()

    async def wait_next(self) -> None:
        """Wait until the next attempt."""
        await asyncio.sleep(_BACKOFF_S[min(self._failures, len(_BACKOFF_S) - 1)])
        self._failures += 1


class AsyncClient(RemoteEngine):
    """The sessions of a clew server, with the names and values of an engine in this process.

    ``url`` is the address of its page, ``token`` the server's or an owner's. ``timeout`` is how many seconds a
    connection may take, and how long the server may be silent before it is probed. ``patience`` is for how many seconds
    a stream or a prompt retries an unreachable server. ``tls`` is for your own certificates.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = 10.0,
        patience: float = 60.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(Wire(url, token, anywhere=True, timeout=timeout, tls=tls))
        self._patience_s = patience

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all streams. Runs on the server continue."""
        self._wire.close()

    @overload
    async def start(
        self,
        session_id: str,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        model: str | Model | dict[str, Any] | None = None,
        agent: str | None = None,
        message_id: str | None = None,
        attended: bool = True,
        output: type[T],
        metadata: Mapping[str, Any] | None = None,
    ) -> AsyncTurn[T]: ...

    @overload
    async def start(
        self,
        session_id: str,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        model: str | Model | dict[str, Any] | None = None,
        agent: str | None = None,
        message_id: str | None = None,
        attended: bool = True,
        output: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> AsyncTurn[Any]: ...

    async def start(
        self,
        session_id: str,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        model: str | Model | dict[str, Any] | None = None,
        agent: str | None = None,
        message_id: str | None = None,
        attended: bool = True,
        output: type[T] | Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> AsyncTurn[Any]:
        """Send a prompt and return its turn. The prompt is durable when this returns.

        Every refusal raises here. If the server becomes unreachable, the prompt is sent again and still runs only once.
        """
        from clew.tools.hints import schema_and_reader

        schema, read = schema_and_reader(output)
        client_message_id = message_id or uuid4().hex
        submission = await self._with_retries(
            lambda: self.submit(
                session_id,
                prompt,
                model=model,
                agent=agent,
                message_id=client_message_id,
                on_busy="reject",
                attended=attended,
                output=schema,
                metadata=metadata,
            )
        )
        if submission.queued:
            raise e.SessionBusy("this message is queued behind a running turn", session_id=session_id)
        return AsyncTurn(self, session_id, submission.message_id, read)

    def follow(self, session_id: str, message_id: str) -> AsyncTurn[Any]:
        """Return the turn of a message sent earlier, by any program: from its first part to its end."""
        return AsyncTurn(self, session_id, message_id)

    async def attach(
        self, session_id: str, *, replay: bool = True, message_id: str | None = None, after: str | None = None
    ) -> AsyncIterator[StreamChunk]:
        """Follow the running turn, or the turn of a message, across dropped connections: each chunk comes once.

        A ``data-reset`` chunk says that a message begins again: drop what you have of it. Without ``replay`` a dropped
        connection raises: without the beginning, the position is unknown.
        """
        if replay or after is not None:
            chunks_source = self.follow_from(session_id, message_id, StreamPosition(after))
        else:
            chunks_source = super().attach(session_id, replay=False, message_id=message_id)
        async with _closing(chunks_source) as source:
            async for chunk in source:
                yield chunk

    async def follow_from(
        self, session_id: str, message_id: str | None, position: StreamPosition
    ) -> AsyncIterator[StreamChunk]:
        """Yield the rest of a turn from a position, which moves along."""
        backoff = _Backoff(self._patience_s)
        while True:
            try:
                rest = super().attach(session_id, message_id=message_id, after=position.cursor)
                async with _closing(rest) as source:
                    async for chunk in source:
                        backoff.reset()
                        with self._wire.reading():
                            # Remember the message: by the next attempt its run may be over, and another run's chunks
                            # must not follow.
                            message_id = message_id or (chunk.get("messageMetadata") or {}).get("user_message_id")
                            fresh = position.take(chunk)
                        for one in fresh:
                            yield one
                return
            except e.StoreError as error:
                await backoff.after(error)

    async def subscribe(self) -> AsyncIterator[Event]:
        """Yield events of the server. Each connection starts with ``hello``: look up what happened before it."""
        backoff = _Backoff(self._patience_s)
        while True:
            try:
                async with _closing(super().subscribe()) as source:
                    async for event in source:
                        backoff.reset()
                        yield event
                raise Gone(f"the server at {self.url} has ended")
            except e.StoreError as error:
                await backoff.after(error)

    async def watch_status(self, session_id: str) -> AsyncIterator[Status]:
        """Yield the current status, then each change."""
        backoff, last_status = _Backoff(self._patience_s), None
        while True:
            try:
                async with _closing(super().watch_status(session_id)) as source:
                    async for status in source:
                        backoff.reset()
                        if status != last_status:
                            last_status = status
                            yield status
                raise Gone(f"the server at {self.url} has ended")
            except e.StoreError as error:
                await backoff.after(error)

    async def outcome(self, session_id: str, message_id: str) -> TurnOutcome:
        """Return the outcome of a message's newest turn, once it has ended."""
        get_outcome = super().outcome
        return await self._with_retries(lambda: get_outcome(session_id, message_id))

    async def _with_retries(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Retry an idempotent request until the server answers."""
        backoff = _Backoff(self._patience_s)
        while True:
            try:
                return await ask()
            except e.StoreError as error:
                await backoff.after(error)


class AsyncTurn(Generic[T]):
    """An accepted prompt and its turn: AI SDK chunks, each once and already durable.

    A loop over it ends when the turn ends or waits for a person; a new loop, after an answer or a break, continues with
    the next chunk. A ``data-reset`` chunk says that a message follows again from its first part: drop what you have of
    it. Leaving a loop does not affect the run. Only one loop at a time.
    """

    def __init__(
        self, client: AsyncClient, session_id: str, message_id: str, read: Callable[[Any], T] | None = None
    ) -> None:
        self.session_id = session_id
        self.message_id = message_id
        self._client = client
        self._position = StreamPosition()
        self._read = read

    def __aiter__(self) -> AsyncIterator[StreamChunk]:
        return self._client.follow_from(self.session_id, self.message_id, self._position)

    async def chunks(self) -> AsyncIterator[chunks.Chunk]:
        """Yield the chunks as typed values."""
        async with _closing(aiter(self)) as source:
            async for chunk in source:
                yield chunks.parse_chunk(chunk)

    async def waiting(self) -> tuple[Waiting, ...]:
        """Return the calls that wait for a person."""
        return (await self._client.get_status(self.session_id)).waiting

    async def answer(
        self, approval_id: str, decision: Decision, reason: str | None = None, pattern: str | None = None
    ) -> int:
        """Answer an approval request; return how many are still pending. At 0 the turn resumes."""
        return await self._client.answer(self.session_id, approval_id, decision, reason, pattern)

    async def wait(self) -> TurnOutcome:
        """Wait until the turn ends; return its outcome."""
        return await self._client.outcome(self.session_id, self.message_id)

    async def output(self) -> T:
        """Return the structured output, once the turn has ended. Raises ``ModelFailed`` if it ended without one."""
        from clew.session.api.turn_stream import read_output

        outcome = await self.wait()
        messages = await self._client.turn_messages(outcome.turn_id)
        last_status = next((message for message in messages if message.id == outcome.message_id), None)
        return read_output(outcome, last_status.parts if last_status is not None else (), self._read)


def _closing(source: AsyncIterator[T]) -> contextlib.aclosing[AsyncGenerator[T, None]]:
    return contextlib.aclosing(cast(AsyncGenerator[T, None], source))
