"""A Slack bot: a mention starts a turn in the session of its thread, and the answer is posted there once.

Slack delivers an event again when the answer is slow or lost; the event's id starts one turn, however often it comes.
Answers are posted from the ledger of events, to which clew adds each of them exactly once, also after a crash.
"""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from hashlib import sha256
from pathlib import Path
from typing import Any

import clew

Post = Callable[[str, str, str], Awaitable[None]]
"""Posts a text to a channel and thread of Slack."""

AGENT = clew.Agent(
    name="bot", description="Answers in Slack.", prompt="You answer questions in a Slack thread. Be brief.", tools=()
)


def open_bot(url: str, **given: Any) -> AbstractAsyncContextManager[clew.Engine]:
    """Open the bot's sessions. A turn that a restart interrupts goes on by itself, unless a tool was at work."""
    given = {"agents": [AGENT], "builtin_tools": False, "config": clew.Config(resume="safe"), **given}
    return clew.open(url, **given)


def is_from_slack(secret: str, body: bytes, headers: Mapping[str, str], now: float | None = None) -> bool:
    """Return whether Slack signed this request with the app's signing secret, in the last five minutes."""
    sent = headers.get("x-slack-request-timestamp", "")
    if not sent.isdecimal() or abs((now or time.time()) - int(sent)) > 300:
        return False
    expected = hmac.new(secret.encode(), f"v0:{sent}:".encode() + body, sha256).hexdigest()
    return hmac.compare_digest(f"v0={expected}".encode(), headers.get("x-slack-signature", "").encode())


async def receive(engine: clew.Engine, body: bytes) -> dict[str, str]:
    """Take a delivery of Slack's and return the response to it; the answer comes later, as a post."""
    delivery: dict[str, Any] = json.loads(body)
    if delivery.get("type") == "url_verification":
        return {"challenge": str(delivery["challenge"])}
    event = delivery.get("event", {})
    if event.get("type") != "app_mention" or "bot_id" in event:
        return {}
    thread = event.get("thread_ts", event["ts"])
    routing = clew.Routing(key=f"{event['channel']}/{thread}")
    await engine.events.receive("slack", delivery["event_id"], routing, text=event["text"])
    return {}


class Outbox:
    """Posts the answers of turns that have ended, oldest first, and remembers the last one in a file.

    An answer is posted once. If the process dies between Slack's response and the next line, it is posted once more.
    """

    def __init__(self, engine: clew.Engine, post: Post, mark: Path) -> None:
        self._engine, self._post, self._mark = engine, post, mark

    async def flush(self) -> int:
        """Post what is not posted yet; return how many. Call it from one task at a time."""
        answers = await self._find_new()
        for answer in answers:
            if answer.status in ("completed", "failed"):  # one that was interrupted goes on, and is answered later
                session = await self._engine.get_session(answer.session_id)
                channel, _, thread = str(session.metadata["routing_key"]).partition("/")
                failure = answer.data.get("error", {}).get("message", "no answer")
                text = answer.data["text"] if answer.status == "completed" else f"This failed: {failure}"
                await self._post(channel, thread, text)
            partial = self._mark.with_suffix(".part")
            partial.write_text(str(answer.seq))
            partial.replace(self._mark)
        return len(answers)

    async def _find_new(self) -> list[clew.LedgerEvent]:
        last = int(self._mark.read_text()) if self._mark.exists() else 0
        found: list[clew.LedgerEvent] = []
        cursor: str | None = None
        while True:
            page = await self._engine.events.list(source="slack", direction="out", cursor=cursor)
            found += [event for event in page.events if event.seq > last]
            cursor = page.next_cursor
            if cursor is None or page.events[-1].seq <= last:
                return found[::-1]
