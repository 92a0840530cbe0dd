"""The client for programs without an event loop: every method blocks, every stream is an iterator.

It runs the asynchronous client on a thread with an event loop, so there is one implementation of the protocol. Its
operations are made from the table; what is written here is what the asynchronous client adds to them.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from clew.errors import StoreClosed
from clew.fronts.remote.blocking_call import Moved, Sent, Thread
from clew.fronts.remote.blocking_operations import ClientOperations, Events, ScheduleOperations, Webhooks
from clew.fronts.remote.client import AsyncClient, AsyncTurn
from clew.live.base import Waiting
from clew.session.prompt.submission import TurnOutcome
from clew.transcript import chunk as chunks
from clew.transcript.session import Model
from clew.triggers.values.schedule import Schedule

if TYPE_CHECKING:
    from clew.session.turn.answers import Decision

__all__ = ["Client", "Moved", "Sent", "Turn"]

T = TypeVar("T")


class Schedules(ScheduleOperations):
    """The schedules of a server."""

    def change(self, schedule_id: str, **changes: Any) -> Schedule:
        """Change, pause or resume a schedule."""
        changed: Schedule = self.thread.run(self.target.change(schedule_id, **changes))
        return changed


class Client(ClientOperations):
    """The sessions of a clew server; :class:`AsyncClient` documents the arguments. Thread-safe."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = 10.0,
        patience: float = 60.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        target = AsyncClient(url, token=token, timeout=timeout, patience=patience, tls=tls)
        super().__init__(target, Thread())
        self._client = target
        self.url = url
        self.events = Events(target.events, self.thread)
        self.schedules = Schedules(target.schedules, self.thread)
        self.webhooks = Webhooks(target.webhooks, self.thread)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all streams. Runs on the server continue."""
        with contextlib.suppress(StoreClosed):
            self.thread.run(self._client.close())
        self.thread.close()

    @overload
    def start(
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
    ) -> Turn[T]: ...

    @overload
    def start(
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
    ) -> Turn[Any]: ...

    def start(self, session_id: str, prompt: str | Sequence[Mapping[str, Any]], **options: Any) -> Turn[Any]:
        """Send a prompt and return its turn. It is durable when this returns; every refusal raises here."""
        return Turn(self.thread, self.thread.run(self._client.start(session_id, prompt, **options)))

    def follow(self, session_id: str, message_id: str) -> Turn[Any]:
        """Return the turn of a message sent earlier, by any program: from its first part to its end."""
        return Turn(self.thread, self._client.follow(session_id, message_id))


class Turn(Generic[T]):
    """An accepted prompt and its turn; see :class:`AsyncTurn`."""

    def __init__(self, thread: Thread, turn: AsyncTurn[T]) -> None:
        self.session_id = turn.session_id
        self.message_id = turn.message_id
        self._thread = thread
        self._turn = turn

    def __iter__(self) -> Generator[dict[str, Any], None, None]:
        return self._thread.iterate(aiter(self._turn))

    def chunks(self) -> Generator[chunks.Chunk, None, None]:
        """Yield the chunks as typed values."""
        return self._thread.iterate(self._turn.chunks())

    def waiting(self) -> tuple[Waiting, ...]:
        """Return the calls that wait for a person."""
        return self._thread.run(self._turn.waiting())

    def answer(
        self, approval_id: str, decision: Decision, reason: str | None = None, pattern: str | None = None
    ) -> int:
        """Answer an approval request; return how many are still pending. At 0 the turn resumes."""
        return self._thread.run(self._turn.answer(approval_id, decision, reason, pattern))

    def wait(self) -> TurnOutcome:
        """Wait until the turn ends; return its outcome."""
        return self._thread.run(self._turn.wait())

    def output(self) -> T:
        """Return the structured output, once the turn has ended. Raises ``ModelFailed`` if it ended without one."""
        return self._thread.run(self._turn.output())
