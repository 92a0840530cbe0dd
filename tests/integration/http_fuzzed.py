"""A server that is asked for anything, and watched: what it answers, and whether it writes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from clew.providers.registry import ProviderRegistry
from clew.store.sql.sqlite.memory import MemoryStore
from clew.store.unit import STORE_WIDE, PutSchedule, PutWebhook, Unit
from clew.triggers.values.schedule import Schedule
from clew.triggers.values.signature import new_secret
from clew.triggers.values.webhook import Webhook
from tests.integration.http_client import Answer, AsgiClient, served
from tests.integration.http_document import check_answer, document
from tests.integration.test_http_body import NOT_JSON, ODD, UNKEEPABLE

OPERATIONS = [(method.upper(), path) for path, said in document()["paths"].items() for method in said]
BODIED = [(method, path) for method, path in OPERATIONS if "requestBody" in document()["paths"][path][method.lower()]]
BAD_IDS = ["x", "ses_", "ses_" + "0" * 27, "%00", "..", "%2E%2E", "a%0A", "%F0%9F%92%A9", "%FF", "'", "*", "x" * 5000]


class Fuzzed:
    """A server with something in it, and a count of what it writes."""

    def __init__(self, client: AsgiClient, written: Callable[[], int]) -> None:
        self.client = client
        self.written = written
        self.known: dict[str, str] = {}
        self._doors = itertools.count()

    async def fill(self) -> None:
        """A session with two turns, one of them waiting, and a blob; anew when something of it is gone."""
        client = self.client
        session_id = await client.session(model="demo/echo", title="fuzzed")
        url = "data:text/plain;base64,aGk="
        parts = [{"type": "text", "text": "one"}, {"type": "file", "mediaType": "text/plain", "url": url}]
        await client.post(f"/api/sessions/{session_id}/prompt", {"parts": parts})
        await self.settle()
        question = '!question {"question": "which?"}'
        await client.prompt(session_id, question, model="demo/tools")
        await self.settle()
        messages = await client.messages(session_id)
        self.known = {
            "id": session_id,
            "message_id": messages[0]["id"],
            "turn": messages[0]["metadata"]["turn_id"],
            "sha256": messages[0]["parts"][1]["url"].rpartition("/")[2],
            "tool_call_id": next(part["toolCallId"] for part in messages[-1]["parts"] if "toolCallId" in part),
            "loss_id": "loss-1",
            "approval_id": "apr_000000000000xxxxxxxxxxxxxx",
            "file": "index-00000000.js",
        }
        await self.fill_triggers()

    async def fill_triggers(self) -> None:
        """A schedule that is not due and a webhook."""
        client = self.client
        schedule = Schedule(id=client.engine.mint.schedule(), cron="0 0 1 1 *", prompt="go", created_at=1)
        webhook = Webhook(name=f"door{next(self._doors)}", secret=new_secret(), created_at=1)
        await client.engine.store.commit(Unit(STORE_WIDE, (PutSchedule(schedule), PutWebhook(webhook))))
        self.known |= {"schedule": schedule.id, "name": webhook.name}

    async def settle(self) -> None:
        """Until nothing runs: what was accepted before must not be taken for what is refused now."""
        at_work: Any = self.client.engine._runtime.sessions
        while at_work._runs or at_work._tasks:
            waiting = [run.wait() for run in at_work._runs.values()]
            await asyncio.gather(*waiting, *at_work._tasks, return_exceptions=True)
            # Who had something to do at their end does it now.
            await asyncio.sleep(0)

    async def ask(self, method: str, path: str, body: Any = None, *, again: int = 2) -> Answer:
        """Send it and see that it does no harm. A checkpoint looks like a write, so that is tried again."""
        await self.settle()
        before = self.written()
        async with self.client.open(method, path, body) as reply:
            if reply.headers.get("content-type") == "text/event-stream":
                await anext(reply.frames())
                return Answer(reply.status, reply.headers, b"")
            answer = Answer(reply.status, reply.headers, await reply.read())
        assert answer.status < 500, (method, path, body, answer)
        check_answer(method, path, answer.status, answer.headers, answer.body)
        if answer.status >= 400:
            if again and self.written() != before:
                return await self.ask(method, path, body, again=again - 1)
            assert self.written() == before, (method, path, body, answer)
        elif method == "DELETE" and answer.status == 204 and "/queue/" not in path:
            await (self.fill() if path.startswith("/api/sessions/") else self.fill_triggers())
        return answer


@contextlib.asynccontextmanager
async def fuzzing(folder: Path | None = None) -> AsyncIterator[Fuzzed]:
    """In memory, or in a file in ``folder``; either knows how often something was written. Schedules do not fire."""
    providers = ProviderRegistry({}, default_model="demo/echo", environ={})
    async with contextlib.AsyncExitStack() as stack:
        if folder is None:
            client = await stack.enter_async_context(served(providers=providers, triggers=False))
            store = client.engine.store
            assert isinstance(store, MemoryStore)
            assert store._writer is not None
            journal = store._writer.transactions.journal
            made = Fuzzed(client, lambda: journal.commit)
        else:
            path = folder / "store.db"
            url = f"sqlite:///{path}"
            client = await stack.enter_async_context(served(providers=providers, triggers=False, store=url))
            # Changes as seen from another connection.
            watcher = stack.enter_context(contextlib.closing(sqlite3.connect(path)))
            made = Fuzzed(client, lambda: int(watcher.execute("PRAGMA data_version").fetchone()[0]))
        await made.fill()
        yield made


def id_of(path: str, name: str, known: dict[str, str]) -> str:
    kind = {"turns": "turn", "schedules": "schedule"}.get(path.split("/")[2], "id")
    return known[kind] if name == "id" else known[name]


def bodies() -> dict[str, bytes]:
    """Bytes that no client should send, and some that look like it and are fine."""
    own = {
        "one brace": b"{",
        "a lone quote": b'"',
        "spaces": b" " * 1000,
        "NUL bytes": b"\x00" * 100,
        "utf-16 without a mark": '{"text": "a"}'.encode("utf-16-le"),
        "utf-32": '{"text": "a"}'.encode("utf-32"),
        "overlong utf-8": b'{"text": "\xc0\xaf"}',
        "a huge exponent": b'{"text": "a", "metadata": {"x": 1e131071}, "output": 1e131071}',
        "a long fraction": b'{"output": 0.' + b"1" * 100_000 + b"}",
        "minus zero": b'{"output": -0, "metadata": {"x": -0.0}}',
        "-2^63-1": b'{"output": -9223372036854775809, "limit": -9223372036854775809}',
        "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        "deep and cut": b"[" * 100_000,
        "deep text": b'{"text": ' + b"[" * 1_000 + b"]" * 1_000 + b"}",
        "many keys": b"{" + b",".join(b'"k%d": 1' % n for n in range(5_000)) + b"}",
        "proto": b'{"__proto__": {"x": 1}, "constructor": {"prototype": 1}, "__class__": "os"}',
        "gzip": b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03",
        "a form with files": b'--x\r\nContent-Disposition: form-data; name="text"\r\n\r\nhi\r\n--x--\r\n',
        "an escaped key": rb'{"\u0074ext": "a", "te\u0000xt": "b"}',
        "half a pair in a key": rb'{"\ud83d": 1}',
    }
    return {**NOT_JSON, **UNKEEPABLE, **ODD, **own}
