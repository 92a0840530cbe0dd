"""The client for programs without an event loop: every method blocks, every stream is an iterator.

It runs the asynchronous client on a thread with an event loop, so there is one implementation of the protocol. Its
methods are listed by name, for type checkers and readers; a test compares the list with the table of operations.
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
from clew.live.base import Waiting
from clew.session.history.rewind import Rewound
from clew.session.prompt.submission import Submission, TurnOutcome
from clew.transcript import chunk as chunks
from clew.transcript.session import Model
from clew.triggers.values.schedule import Schedule

if TYPE_CHECKING:
    from clew.session.turn.answers import Decision

__all__ = ["Client", "Moved", "Sent", "Turn"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
_END = object()


class _Thread:
    """An event loop on its own thread, for callers that block on it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._closing = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="clew-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        # Under the lock, work is either cancelled by close() or refused: no caller waits forever.
        with self._closing:
            if self._closed:
                work.close()
                raise StoreClosed("this client is closed")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise StoreClosed("this client was closed during the call") from None
        except BaseException:
            # An interrupted caller must not leave the work running.
            future.cancel()
            raise

    def iterate(self, source: AsyncIterator[T]) -> Generator[T, None, None]:
        generator = cast(AsyncGenerator[T, None], source)

        async def next_value() -> Any:
            return await anext(generator, _END)

        async def close_source() -> None:
            await generator.aclose()

        try:
            while (value := self.run(next_value())) is not _END:
                yield cast(T, value)
        finally:
            with contextlib.suppress(StoreClosed):
                self.run(close_source())

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
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._loop.shutdown_asyncgens()


class Sent:
    """An accepted prompt: its message, whether it is queued, and the outcome of its turn."""

    def __init__(self, thread: _Thread, submission: Submission) -> None:
        self.message_id = submission.message_id
        self.queued = submission.queued
        self._thread = thread
        self._submission = submission

    def wait(self) -> TurnOutcome:
        """Wait for the outcome of the turn; a queued prompt is sent first."""
        return self._thread.run(self._submission.wait())


class Moved(msgspec.Struct, frozen=True):
    """The new position of the head. ``hidden`` messages left the line, in order; ``draft`` is text to edit."""

    head_turn_id: str | None
    hidden: tuple[str, ...]
    draft: str | None = None
    submission: Sent | None = None


class _BlockingView:
    """Blocking versions of the methods of an asynchronous object, run on its thread."""

    def __init__(self, target: Any, thread: _Thread) -> None:
        self._target = target
        self._thread = thread

    def _to_sent(self, submission: Submission) -> Sent:
        return Sent(self._thread, submission)

    def _to_moved(self, rewound: Rewound) -> Moved:
        submission = None if rewound.submission is None else self._to_sent(rewound.submission)
        return Moved(rewound.head_turn_id, tuple(rewound.hidden), rewound.draft, submission)


class _Method(Generic[P, R]):
    """A blocking method with the signature of the asynchronous one; ``show`` converts its result."""

    def __init__(self, method: Callable[..., Any], show: Callable[[_BlockingView, Any], R] | None = None) -> None:
        self.method = method
        self._show = show

    def __get__(self, part: _BlockingView, owner: type) -> Callable[P, R]:
        @functools.wraps(self.method)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            # Looked up by name, to respect overrides.
            value = part._thread.run(getattr(part._target, self.method.__name__)(*args, **kwargs))
            return cast(R, value) if self._show is None else self._show(part, value)

        return call


class _Iterator(Generic[P, R]):
    """A blocking iterator with the signature of the asynchronous one."""

    def __init__(self, method: Callable[Concatenate[Any, P], AsyncIterator[R]]) -> None:
        self.method = method

    def __get__(self, part: _BlockingView, owner: type) -> Callable[P, Generator[R, None, None]]:
        @functools.wraps(self.method)
        def call(*args: P.args, **kwargs: P.kwargs) -> Generator[R, None, None]:
            return part._thread.iterate(getattr(part._target, self.method.__name__)(*args, **kwargs))

        return call


def _blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> _Method[P, R]:
    return _Method(method)


def _submitting(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, Submission]]) -> _Method[P, Sent]:
    return _Method(method, _BlockingView._to_sent)


def _rewinding(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, Rewound]]) -> _Method[P, Moved]:
    return _Method(method, _BlockingView._to_moved)


class Events(_BlockingView):
    """The event ledger of a server."""

    receive = _blocking(RemoteEvents.receive)
    list = _blocking(RemoteEvents.list)


class Schedules(_BlockingView):
    """The schedules of a server."""

    add = _blocking(RemoteSchedules.add)
    get = _blocking(RemoteSchedules.get)
    list = _blocking(RemoteSchedules.list)
    pause = _blocking(RemoteSchedules.pause)
    preview = _blocking(RemoteSchedules.preview)
    remove = _blocking(RemoteSchedules.remove)
    resume = _blocking(RemoteSchedules.resume)
    run = _blocking(RemoteSchedules.run)
    watch = _blocking(RemoteSchedules.watch)

    def change(self, schedule_id: str, **changes: Any) -> Schedule:
        """Change, pause or resume a schedule."""
        changed: Schedule = self._thread.run(self._target.change(schedule_id, **changes))
        return changed


class Webhooks(_BlockingView):
    """The webhooks of a server. The secret is set only when it was just created."""

    add = _blocking(RemoteWebhooks.add)
    change = _blocking(RemoteWebhooks.change)
    get = _blocking(RemoteWebhooks.get)
    list = _blocking(RemoteWebhooks.list)
    remove = _blocking(RemoteWebhooks.remove)
    rotate = _blocking(RemoteWebhooks.rotate)


class Client(_BlockingView):
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
        """Close all streams. Runs on the server continue."""
        with contextlib.suppress(StoreClosed):
            self._thread.run(self._client.close())
        self._thread.close()

    # Sessions
    create_session = _blocking(AsyncClient.create_session)
    get_session = _blocking(AsyncClient.get_session)
    list_sessions = _blocking(AsyncClient.list_sessions)
    patch_session = _blocking(AsyncClient.patch_session)
    rename_session = _blocking(AsyncClient.rename_session)
    archive_session = _blocking(AsyncClient.archive_session)
    delete_session = _blocking(AsyncClient.delete_session)
    messages = _blocking(AsyncClient.messages)
    accept_message = _blocking(AsyncClient.accept_message)
    files = _blocking(AsyncClient.files)
    search = _blocking(AsyncClient.search)
    export = _blocking(AsyncClient.export)
    import_session = _blocking(AsyncClient.import_session)
    import_from = _blocking(AsyncClient.import_from)

    # Runs
    submit = _submitting(AsyncClient.submit)
    continue_turn = _submitting(AsyncClient.continue_turn)
    abort = _blocking(AsyncClient.abort)
    outcome = _blocking(AsyncClient.outcome)
    get_status = _blocking(AsyncClient.get_status)
    answer = _blocking(AsyncClient.answer)
    answer_all = _blocking(AsyncClient.answer_all)
    answer_question = _blocking(AsyncClient.answer_question)
    queue = _blocking(AsyncClient.queue)
    cancel_queued = _blocking(AsyncClient.cancel_queued)
    edit_queued = _blocking(AsyncClient.edit_queued)
    move_queued = _blocking(AsyncClient.move_queued)
    send_queued = _submitting(AsyncClient.send_queued)
    pause_queue = _blocking(AsyncClient.pause_queue)
    attach = _Iterator(AsyncClient.attach)
    watch_status = _Iterator(AsyncClient.watch_status)
    subscribe = _Iterator(AsyncClient.subscribe)

    # History
    rewind = _rewinding(AsyncClient.rewind)
    unrewind = _rewinding(AsyncClient.unrewind)
    set_head = _rewinding(AsyncClient.set_head)
    reflog = _blocking(AsyncClient.reflog)
    branch = _blocking(AsyncClient.branch)
    fork = _blocking(AsyncClient.fork)
    tree = _blocking(AsyncClient.tree)
    turn = _blocking(AsyncClient.turn)
    turn_messages = _blocking(AsyncClient.turn_messages)
    request = _blocking(AsyncClient.request)
    compact = _blocking(AsyncClient.compact)
    prune = _blocking(AsyncClient.prune)
    compaction = _blocking(AsyncClient.compaction)
    context = _blocking(AsyncClient.context)

    # Permissions
    permissions = _blocking(AsyncClient.permissions)
    set_permissions = _blocking(AsyncClient.set_permissions)
    rules = _blocking(AsyncClient.rules)
    add_rule = _blocking(AsyncClient.add_rule)
    revoke_rule = _blocking(AsyncClient.revoke_rule)
    explain_permission = _blocking(AsyncClient.explain_permission)

    # The server
    models = _blocking(AsyncClient.models)
    agents = _blocking(AsyncClient.agents)
    usage = _blocking(AsyncClient.usage)
    replicas = _blocking(AsyncClient.replicas)
    losses = _blocking(AsyncClient.losses)
    accept_loss = _blocking(AsyncClient.accept_loss)
    blob = _blocking(AsyncClient.blob)
    find_files = _blocking(AsyncClient.find_files)
    settings = _blocking(AsyncClient.settings)
    change_settings = _blocking(AsyncClient.change_settings)
    prompts = _blocking(AsyncClient.prompts)
    save_prompt = _blocking(AsyncClient.save_prompt)
    remove_prompt = _blocking(AsyncClient.remove_prompt)
    examples = _blocking(AsyncClient.examples)
    mcp_servers = _blocking(AsyncClient.mcp_servers)
    start_mcp_server = _blocking(AsyncClient.start_mcp_server)
    give_mcp_servers = _blocking(AsyncClient.give_mcp_servers)

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
        return Turn(self._thread, self._thread.run(self._client.start(session_id, prompt, **options)))

    def follow(self, session_id: str, message_id: str) -> Turn[Any]:
        """Return the turn of a message sent earlier, by any program: from its first part to its end."""
        return Turn(self._thread, self._client.follow(session_id, message_id))


class Turn(Generic[T]):
    """An accepted prompt and its turn; see :class:`AsyncTurn`."""

    def __init__(self, thread: _Thread, turn: AsyncTurn[T]) -> None:
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
