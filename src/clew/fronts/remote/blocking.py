"""The same client for programs without a loop: every method waits, every iterator can be looped over.

It is the other one on a thread with a loop, so there is one way to a server. What it has is listed here, name by name,
so that type checkers and readers see it; a test holds the list against the table of operations.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, overload

import msgspec

from clew.errors import StoreClosed
from clew.fronts.remote.client import AsyncClient, AsyncTurn
from clew.fronts.remote.engine import RemoteEvents, RemoteSchedules, RemoteWebhooks
from clew.history.rewind import Rewound
from clew.live.base import Waiting
from clew.runtime.submission import Submission, TurnOutcome
from clew.transcript import chunk as chunks
from clew.transcript.session import Model
from clew.triggers.schedule import Schedule

if TYPE_CHECKING:
    from clew.runtime.answers import Decision

__all__ = ["Client", "Moved", "Sent", "Turn"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
_END = object()


class _Thread:
    """A loop on a thread of its own, and whoever waits for what it does."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._closing = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="clew-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        # Under the lock: what is handed over is either ended by the closing, or refused. Nobody waits for ever.
        with self._closing:
            if self._closed:
                work.close()
                raise StoreClosed("this client is closed")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise StoreClosed("this client was closed meanwhile") from None
        except BaseException:
            # Whoever is interrupted while waiting does not leave the work behind.
            future.cancel()
            raise

    def draw(self, source: AsyncIterator[T]) -> Generator[T, None, None]:
        drawn = cast(AsyncGenerator[T, None], source)

        async def take() -> Any:
            return await anext(drawn, _END)

        async def leave() -> None:
            await drawn.aclose()

        try:
            while (value := self.run(take())) is not _END:
                yield cast(T, value)
        finally:
            with contextlib.suppress(StoreClosed):
                self.run(leave())

    def close(self) -> None:
        with self._closing:
            if self._closed:
                return
            self._closed = True
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._loop.shutdown_asyncgens()


class Sent:
    """A prompt that was taken: its message, whether it waits in the queue, and how its turn ends."""

    def __init__(self, thread: _Thread, submission: Submission) -> None:
        self.message_id = submission.message_id
        self.queued = submission.queued
        self._thread = thread
        self._submission = submission

    def wait(self) -> TurnOutcome:
        """How the turn ended; for a queued prompt, once it was fired."""
        return self._thread.run(self._submission.wait())


class Moved(msgspec.Struct, frozen=True):
    """Where the head is now. ``hidden`` left the line, in its order; ``draft`` is the text handed back for editing."""

    head_turn_id: str | None
    hidden: tuple[str, ...]
    draft: str | None = None
    submission: Sent | None = None


class _Part:
    """What has methods of an asynchronous object, done on its thread."""

    def __init__(self, target: Any, thread: _Thread) -> None:
        self._target = target
        self._thread = thread

    def _sent(self, submission: Submission) -> Sent:
        return Sent(self._thread, submission)

    def _moved(self, rewound: Rewound) -> Moved:
        taken = None if rewound.submission is None else self._sent(rewound.submission)
        return Moved(rewound.head_turn_id, tuple(rewound.hidden), rewound.draft, taken)


class _Method(Generic[P, R]):
    """A method that waits, with the signature of the asynchronous one; ``show`` makes of its value what is returned."""

    def __init__(self, method: Callable[..., Any], show: Callable[[_Part, Any], R] | None = None) -> None:
        self.method = method
        self._show = show

    def __get__(self, part: _Part, owner: type) -> Callable[P, R]:
        @functools.wraps(self.method)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            # By name: what a subclass does in another way it does here, too.
            value = part._thread.run(getattr(part._target, self.method.__name__)(*args, **kwargs))
            return cast(R, value) if self._show is None else self._show(part, value)

        return call


class _Iterator(Generic[P, R]):
    """The same for what is followed."""

    def __init__(self, method: Callable[Concatenate[Any, P], AsyncIterator[R]]) -> None:
        self.method = method

    def __get__(self, part: _Part, owner: type) -> Callable[P, Generator[R, None, None]]:
        @functools.wraps(self.method)
        def call(*args: P.args, **kwargs: P.kwargs) -> Generator[R, None, None]:
            return part._thread.draw(getattr(part._target, self.method.__name__)(*args, **kwargs))

        return call


def _waits(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> _Method[P, R]:
    return _Method(method)


def _sends(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, Submission]]) -> _Method[P, Sent]:
    return _Method(method, _Part._sent)


def _moves(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, Rewound]]) -> _Method[P, Moved]:
    return _Method(method, _Part._moved)


class Events(_Part):
    """The ledger of a server."""

    receive = _waits(RemoteEvents.receive)
    list = _waits(RemoteEvents.list)


class Schedules(_Part):
    """The schedules of a server."""

    add = _waits(RemoteSchedules.add)
    get = _waits(RemoteSchedules.get)
    list = _waits(RemoteSchedules.list)
    pause = _waits(RemoteSchedules.pause)
    preview = _waits(RemoteSchedules.preview)
    remove = _waits(RemoteSchedules.remove)
    resume = _waits(RemoteSchedules.resume)
    run = _waits(RemoteSchedules.run)
    watch = _waits(RemoteSchedules.watch)

    def change(self, schedule_id: str, **changes: Any) -> Schedule:
        """Change what is given, pause, or resume."""
        changed: Schedule = self._thread.run(self._target.change(schedule_id, **changes))
        return changed


class Webhooks(_Part):
    """The webhooks of a server. A secret is there when it was just made, and empty otherwise."""

    add = _waits(RemoteWebhooks.add)
    change = _waits(RemoteWebhooks.change)
    get = _waits(RemoteWebhooks.get)
    list = _waits(RemoteWebhooks.list)
    remove = _waits(RemoteWebhooks.remove)
    rotate = _waits(RemoteWebhooks.rotate)


class Client(_Part):
    """The sessions of a clew server; :class:`AsyncClient` says what its arguments mean. Any thread may use it."""

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
        super().__init__(target, _Thread())
        self._client = target
        self.url = url
        self.events = Events(target.events, self._thread)
        self.schedules = Schedules(target.schedules, self._thread)
        self.webhooks = Webhooks(target.webhooks, self._thread)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave everything that is being followed. What runs on the server goes on."""
        with contextlib.suppress(StoreClosed):
            self._thread.run(self._client.close())
        self._thread.close()

    # Sessions
    create_session = _waits(AsyncClient.create_session)
    get_session = _waits(AsyncClient.get_session)
    list_sessions = _waits(AsyncClient.list_sessions)
    patch_session = _waits(AsyncClient.patch_session)
    rename_session = _waits(AsyncClient.rename_session)
    archive_session = _waits(AsyncClient.archive_session)
    delete_session = _waits(AsyncClient.delete_session)
    messages = _waits(AsyncClient.messages)
    accept_message = _waits(AsyncClient.accept_message)
    files = _waits(AsyncClient.files)
    search = _waits(AsyncClient.search)
    export = _waits(AsyncClient.export)
    import_session = _waits(AsyncClient.import_session)
    import_from = _waits(AsyncClient.import_from)

    # Runs
    submit = _sends(AsyncClient.submit)
    continue_turn = _sends(AsyncClient.continue_turn)
    abort = _waits(AsyncClient.abort)
    outcome = _waits(AsyncClient.outcome)
    get_status = _waits(AsyncClient.get_status)
    answer = _waits(AsyncClient.answer)
    answer_all = _waits(AsyncClient.answer_all)
    answer_question = _waits(AsyncClient.answer_question)
    queue = _waits(AsyncClient.queue)
    cancel_queued = _waits(AsyncClient.cancel_queued)
    edit_queued = _waits(AsyncClient.edit_queued)
    move_queued = _waits(AsyncClient.move_queued)
    send_queued = _sends(AsyncClient.send_queued)
    pause_queue = _waits(AsyncClient.pause_queue)
    attach = _Iterator(AsyncClient.attach)
    watch_status = _Iterator(AsyncClient.watch_status)
    subscribe = _Iterator(AsyncClient.subscribe)

    # History
    rewind = _moves(AsyncClient.rewind)
    unrewind = _moves(AsyncClient.unrewind)
    set_head = _moves(AsyncClient.set_head)
    reflog = _waits(AsyncClient.reflog)
    branch = _waits(AsyncClient.branch)
    fork = _waits(AsyncClient.fork)
    tree = _waits(AsyncClient.tree)
    turn = _waits(AsyncClient.turn)
    turn_messages = _waits(AsyncClient.turn_messages)
    request = _waits(AsyncClient.request)
    compact = _waits(AsyncClient.compact)
    prune = _waits(AsyncClient.prune)
    compaction = _waits(AsyncClient.compaction)
    context = _waits(AsyncClient.context)

    # What is allowed
    permissions = _waits(AsyncClient.permissions)
    set_permissions = _waits(AsyncClient.set_permissions)
    rules = _waits(AsyncClient.rules)
    add_rule = _waits(AsyncClient.add_rule)
    revoke_rule = _waits(AsyncClient.revoke_rule)
    explain_permission = _waits(AsyncClient.explain_permission)

    # The server
    models = _waits(AsyncClient.models)
    agents = _waits(AsyncClient.agents)
    usage = _waits(AsyncClient.usage)
    replicas = _waits(AsyncClient.replicas)
    losses = _waits(AsyncClient.losses)
    accept_loss = _waits(AsyncClient.accept_loss)
    blob = _waits(AsyncClient.blob)
    find_files = _waits(AsyncClient.find_files)
    settings = _waits(AsyncClient.settings)
    change_settings = _waits(AsyncClient.change_settings)
    prompts = _waits(AsyncClient.prompts)
    save_prompt = _waits(AsyncClient.save_prompt)
    remove_prompt = _waits(AsyncClient.remove_prompt)
    examples = _waits(AsyncClient.examples)
    mcp_servers = _waits(AsyncClient.mcp_servers)
    start_mcp_server = _waits(AsyncClient.start_mcp_server)
    give_mcp_servers = _waits(AsyncClient.give_mcp_servers)

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
        """Send a prompt, which is durable when this returns, and hand out its turn; every refusal raises here."""
        return Turn(self._thread, self._thread.run(self._client.start(session_id, prompt, **options)))

    def follow(self, session_id: str, message_id: str) -> Turn[Any]:
        """The turn of a message that was sent before, by whichever program: from its first part, to its end."""
        return Turn(self._thread, self._client.follow(session_id, message_id))


class Turn(Generic[T]):
    """A prompt that was taken, and what comes of it, as :class:`AsyncTurn` tells it."""

    def __init__(self, thread: _Thread, turn: AsyncTurn[T]) -> None:
        self.session_id = turn.session_id
        self.message_id = turn.message_id
        self._thread = thread
        self._turn = turn

    def __iter__(self) -> Generator[dict[str, Any], None, None]:
        return self._thread.draw(aiter(self._turn))

    def chunks(self) -> Generator[chunks.Chunk, None, None]:
        """The same as values, one class a kind."""
        return self._thread.draw(self._turn.chunks())

    def waiting(self) -> tuple[Waiting, ...]:
        """The calls that wait for a human."""
        return self._thread.run(self._turn.waiting())

    def answer(
        self, approval_id: str, decision: Decision, reason: str | None = None, pattern: str | None = None
    ) -> int:
        """Answer a request for approval; at 0 none is open any more, and the turn goes on."""
        return self._thread.run(self._turn.answer(approval_id, decision, reason, pattern))

    def wait(self) -> TurnOutcome:
        """How the turn ended, once it has."""
        return self._thread.run(self._turn.wait())

    def output(self) -> T:
        """The value that was asked for, once the turn has ended. Raises ``ModelFailed`` where it ended without one."""
        return self._thread.run(self._turn.output())
