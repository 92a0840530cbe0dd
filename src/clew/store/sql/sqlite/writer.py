"""The two ways to run a writer: in a thread of its own, or inline.

In a thread, everything in the queue commits together, as soon as there is something; waiting callers are woken by one
call into their loop. Work on the search index goes through the same queue, in separate transactions, so units can go in
between. So do readers' requests to adopt what other programs wrote.

Inline, a unit is committed by the call that submits it, so nothing is ever waiting.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from clew.errors import InternalError, StoreClosed
from clew.store.commit_batcher import Answer
from clew.store.sql.inbox import AdoptionRequest, Inbox, Item, answer, split_batches
from clew.store.sql.sqlite.search_index import SearchIndex
from clew.store.sql.sqlite.transactions import Transactions
from clew.store.unit import Outcome, Unit

__all__ = ["InlineWriter", "ThreadedWriter", "Writer"]

log = logging.getLogger("clew.store")

T = TypeVar("T")


class Writer(Protocol):
    """The owner of the writing connection, from construction until ``close``. Called on event loops."""

    @property
    def transactions(self) -> Transactions: ...

    def submit(self, unit: Unit) -> asyncio.Future[Outcome]: ...

    def submit_all(self, units: Sequence[Unit], on_done: Callable[[Sequence[Answer]], None], *, awaited: bool) -> None:
        """Submit units as one item, together with earlier ones that the writer has not started."""
        ...

    def work(self, work: Callable[[SearchIndex], T]) -> asyncio.Future[T]:
        """Run some work on the search index as one transaction."""
        ...

    async def close(self) -> None:
        """Finish what was submitted, then stop."""
        ...


class ThreadedWriter:
    """A writer in its own thread, so that no event loop waits for the disk."""

    def __init__(self, transactions: Transactions, inbox: Inbox) -> None:
        self.transactions = transactions
        self._inbox = inbox
        name = transactions.path.name if transactions.path is not None else transactions.name
        self._thread = threading.Thread(target=self._run, name=f"clew-writer {name}", daemon=True)
        self._thread.start()

    def submit(self, unit: Unit) -> asyncio.Future[Outcome]:
        return self._inbox.put((unit,), None)

    def submit_all(self, units: Sequence[Unit], on_done: Callable[[Sequence[Answer]], None], *, awaited: bool) -> None:
        self._inbox.add(units, on_done, awaited=awaited)

    def work(self, work: Callable[[SearchIndex], T]) -> asyncio.Future[T]:
        return self._inbox.put((), work)

    async def close(self) -> None:
        self._inbox.close()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        transactions = self.transactions
        stop = False
        while not stop:
            group: list[Item] = []
            requests: list[AdoptionRequest] = []
            stop = self._inbox.take(group, requests)
            if group:
                try:
                    for batch in split_batches(group):
                        self._commit(batch)
                except BaseException as error:
                    # Every unit must get an answer, now and after this thread has stopped.
                    log.exception("the writer of %s failed", transactions.name)
                    broken = InternalError(f"the writer of {transactions.name} failed: {error!r}")
                    transactions.broken = broken
                    answer(group, [broken] * sum(item.size for item in group))
            transactions.guard.maintain(requests, wrote=bool(group))
            for request in requests:
                request.done.set()
        transactions.close()

    def _commit(self, batch: list[Item]) -> None:
        work = batch[0].work
        if work is not None:
            answer(batch, [self.transactions.work(work)])
        else:
            answer(batch, self.transactions.write([unit for item in batch for unit in item.units]))


class InlineWriter:
    """A writer that commits in the call itself, for a database that never waits: every future is done at once."""

    def __init__(self, transactions: Transactions) -> None:
        self.transactions = transactions

    def submit(self, unit: Unit) -> asyncio.Future[Outcome]:
        return _done(self._write([unit])[0])

    def submit_all(self, units: Sequence[Unit], on_done: Callable[[Sequence[Answer]], None], *, awaited: bool) -> None:
        """Commit units together. They are answered in the next iteration of the loop, as by any other writer."""
        if units:
            asyncio.get_running_loop().call_soon(on_done, self._write(units))

    def work(self, work: Callable[[SearchIndex], T]) -> asyncio.Future[T]:
        self._check_open()
        return _done(self.transactions.work(work))

    async def close(self) -> None:
        if not self.transactions.closed:
            self.transactions.close()

    def _write(self, units: Sequence[Unit]) -> list[Answer]:
        self._check_open()
        return self.transactions.write(units)

    def _check_open(self) -> None:
        if self.transactions.closed:
            raise StoreClosed("the store is closed")


def _done(result: Any) -> asyncio.Future[Any]:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)
    return future
