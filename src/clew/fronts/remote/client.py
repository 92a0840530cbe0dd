"""The client: a server's engine for programs elsewhere, which goes on where a connection was cut.

Its operations are the remote engine's. What it adds is staying power: a prompt is sent under an id, so that it can be
sent again without being run again, and whatever is followed is joined again and shown once, whole and in order.
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
from clew.runtime.submission import TurnOutcome
from clew.transcript import chunk as chunks
from clew.transcript.seen import Seen
from clew.transcript.session import Model
from clew.transcript.turn_state import is_run

if TYPE_CHECKING:
    from clew.runtime.answers import Decision

__all__ = ["AsyncClient", "AsyncTurn"]

T = TypeVar("T")
_WAITS_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Between two looks for a server that is gone; the last one again and again."""


class _Patience:
    """Waits a little longer after each failure in a row, and gives up when they have lasted too long."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.reset()

    def reset(self) -> None:
        """It works again."""
        self._failures = 0
        self._until: float | None = None

    async def after(self, error: e.StoreError) -> None:
        """Return when it is time to try again; the error, where that would not help or not any more."""
        now = asyncio.get_running_loop().time()
        self._until = now + self._seconds if self._until is None else self._until
        # What a proxy says of a server that is being started again has no code that clew knows.
        passing = isinstance(error, Gone | e.ReplicaAway | e.StoreBusy) or type(error) is e.StoreError
        if not passing or now >= self._until:
            raise error
        await self.between()

    async def between(self) -> None:
        """Wait until the next look."""
        await asyncio.sleep(_WAITS_S[min(self._failures, len(_WAITS_S) - 1)])
        self._failures += 1


class AsyncClient(RemoteEngine):
    """The sessions of a clew server, by the names and with the values that an engine in this process has.

    ``url`` is where its page is, ``token`` the server's or an owner's. ``timeout`` is how many seconds a connection may
    take, and how long the server may be silent before it is asked whether it is still there. ``patience`` is for how
    many seconds a stream, or a prompt, looks for a server that is gone. ``tls`` is for certificates of your own.
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
        """Leave everything that is being followed. What runs on the server goes on."""
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
        """Send a prompt, which is durable when this returns, and hand out its turn.

        Every refusal raises here. A server that goes away meanwhile is sent it again, and runs it once.
        """
        from clew.tools.hints import schema_and_reader

        schema, read = schema_and_reader(output)
        named = message_id or uuid4().hex
        submission = await self._persist(
            lambda: self.submit(
                session_id,
                prompt,
                model=model,
                agent=agent,
                message_id=named,
                on_busy="reject",
                attended=attended,
                output=schema,
                metadata=metadata,
            )
        )
        if submission.queued:
            raise e.SessionBusy("this message waits in the queue behind a run", session_id=session_id)
        return AsyncTurn(self, session_id, submission.message_id, read)

    def follow(self, session_id: str, message_id: str) -> AsyncTurn[Any]:
        """The turn of a message that was sent before, by whichever program: from its first part, to its end."""
        return AsyncTurn(self, session_id, message_id)

    async def attach(
        self, session_id: str, *, replay: bool = True, message_id: str | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """What runs now, or the turn of a message, each chunk once however often the connection is cut.

        Without ``replay`` a cut is raised: nobody can say where somebody was who has not seen the beginning.
        """
        if replay:
            following = self.follow_seen(session_id, message_id, Seen())
        else:
            following = super().attach(session_id, replay=False, message_id=message_id)
        async with _closing(following) as source:
            async for chunk in source:
                yield chunk

    async def follow_seen(self, session_id: str, message_id: str | None, seen: Seen) -> AsyncIterator[dict[str, Any]]:
        """The rest of a turn for somebody who has seen some of it."""
        patience = _Patience(self._patience_s)
        while True:
            if seen.began:
                seen.join_again()
            is_news = False
            try:
                async with _closing(super().attach(session_id, message_id=message_id)) as source:
                    async for chunk in source:
                        patience.reset()
                        with self._wire.reading():
                            # By then the run may be over, and what comes of another one would be somebody else's.
                            message_id = message_id or (chunk.get("messageMetadata") or {}).get("user_message_id")
                            unseen = seen.take(chunk)
                        is_news = is_news or bool(unseen)
                        for fresh in unseen:
                            yield fresh
                if not (seen.goes_on and seen.turn_id):
                    return
                # A turn may go on in a message of its own: after a reminder, or after a cut that nobody saw. That may
                # be over by now, or wait for somebody: what came of it is there when it is looked for once more.
                if is_run((await self.turn(seen.turn_id)).status):
                    await patience.between()
                elif seen.asks or not is_news:
                    return
            except e.StoreError as error:
                await patience.after(error)

    async def subscribe(self) -> AsyncIterator[Event]:
        """What happens on the server. Each connection begins with ``hello``: what happened before it is to be looked
        up."""
        patience = _Patience(self._patience_s)
        while True:
            try:
                async with _closing(super().subscribe()) as source:
                    async for event in source:
                        patience.reset()
                        yield event
                raise Gone(f"the server at {self.url} has ended")
            except e.StoreError as error:
                await patience.after(error)

    async def watch_status(self, session_id: str) -> AsyncIterator[Status]:
        """The present status, then each change."""
        patience, last = _Patience(self._patience_s), None
        while True:
            try:
                async with _closing(super().watch_status(session_id)) as source:
                    async for status in source:
                        patience.reset()
                        if status != last:
                            last = status
                            yield status
                raise Gone(f"the server at {self.url} has ended")
            except e.StoreError as error:
                await patience.after(error)

    async def outcome(self, session_id: str, message_id: str) -> TurnOutcome:
        """How the newest turn of a message ends, once it has."""
        own = super().outcome
        return await self._persist(lambda: own(session_id, message_id))

    async def _persist(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What is answered, once the server is there; for what may be asked again."""
        patience = _Patience(self._patience_s)
        while True:
            try:
                return await ask()
            except e.StoreError as error:
                await patience.after(error)


class AsyncTurn(Generic[T]):
    """A prompt that was taken, and what comes of it: AI SDK chunks, each once and already durable.

    A loop over it ends when the turn does, or waits for a human; one that is begun again, after an answer or a break,
    goes on with what was not seen yet. Leaving a loop leaves the run alone. One loop at a time.
    """

    def __init__(
        self, client: AsyncClient, session_id: str, message_id: str, read: Callable[[Any], T] | None = None
    ) -> None:
        self.session_id = session_id
        self.message_id = message_id
        self._client = client
        self._seen = Seen()
        self._read = read

    def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        return self._client.follow_seen(self.session_id, self.message_id, self._seen)

    async def chunks(self) -> AsyncIterator[chunks.Chunk]:
        """The same as values, one class a kind."""
        async with _closing(aiter(self)) as source:
            async for chunk in source:
                yield chunks.parse_chunk(chunk)

    async def waiting(self) -> tuple[Waiting, ...]:
        """The calls that wait for a human."""
        return (await self._client.get_status(self.session_id)).waiting

    async def answer(
        self, approval_id: str, decision: Decision, reason: str | None = None, pattern: str | None = None
    ) -> int:
        """Answer a request for approval; at 0 none is open any more, and the turn goes on."""
        return await self._client.answer(self.session_id, approval_id, decision, reason, pattern)

    async def wait(self) -> TurnOutcome:
        """How the turn ended, once it has."""
        return await self._client.outcome(self.session_id, self.message_id)

    async def output(self) -> T:
        """The value that was asked for, once the turn has ended. Raises ``ModelFailed`` where it ended without one."""
        from clew.engine.turn_stream import read_output

        outcome = await self.wait()
        messages = await self._client.turn_messages(outcome.turn_id)
        last = next((message for message in messages if message.id == outcome.message_id), None)
        return read_output(outcome, last.parts if last is not None else (), self._read)


def _closing(source: AsyncIterator[T]) -> contextlib.aclosing[AsyncGenerator[T, None]]:
    return contextlib.aclosing(cast(AsyncGenerator[T, None], source))
