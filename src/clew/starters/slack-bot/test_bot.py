"""Tests of the bot with a scripted model and a Slack that is a list: no key, no network."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import uvicorn

import clew
from bot import Outbox, is_from_slack, open_bot, receive
from bot_app import make_app, post_answers
from clew.testing.scripted import Gate, ScriptedModel, say, wait

SECRET = "slack-signing-secret"
Posts = list[tuple[str, str, str]]


def mention(event_id: str, text: str, **more: str) -> bytes:
    event = {"type": "app_mention", "channel": "C1", "ts": "17.1", "text": text, **more}
    return json.dumps({"type": "event_callback", "event_id": event_id, "event": event}).encode()


def signed(body: bytes, at: int) -> dict[str, str]:
    digest = hmac.new(SECRET.encode(), f"v0:{at}:".encode() + body, sha256).hexdigest()
    return {"x-slack-request-timestamp": str(at), "x-slack-signature": f"v0={digest}"}


class Slack:
    """A list of posts in the place of Slack, and an event that a test waits for."""

    def __init__(self) -> None:
        self.posts: Posts = []
        self.posted = asyncio.Event()

    async def post(self, channel: str, thread: str, text: str) -> None:
        self.posts.append((channel, thread, text))
        self.posted.set()


def test_only_slack_is_believed() -> None:
    """Another secret, another body, and a request that is six minutes old are refused."""
    body = mention("Ev1", "hello")
    assert is_from_slack(SECRET, body, signed(body, 1000), now=1000)
    assert not is_from_slack("another secret", body, signed(body, 1000), now=1000)
    assert not is_from_slack(SECRET, body + b" ", signed(body, 1000), now=1000)
    assert not is_from_slack(SECRET, body, signed(body, 1000), now=1360)
    assert not is_from_slack(SECRET, body, {}, now=1000)


def test_an_event_that_is_delivered_twice_is_answered_once(tmp_path: Path) -> None:
    """At the same time and again after a restart; the answer goes to the thread of the mention."""
    url, mark, slack = f"sqlite:///{tmp_path}/bot.db", tmp_path / "posted", Slack()
    model = ScriptedModel([say("It is up."), say("Since noon.")])

    async def first() -> None:
        async with open_bot(url, providers={"test": model}) as engine:
            posting = asyncio.create_task(post_answers(engine, slack.post, mark))
            await asyncio.gather(*(receive(engine, mention("Ev1", "Is it up?")) for _ in range(2)))
            await slack.posted.wait()
            posting.cancel()

    async def second() -> None:
        slack.posted = asyncio.Event()
        async with open_bot(url, providers={"test": model}) as engine:
            posting = asyncio.create_task(post_answers(engine, slack.post, mark))
            await receive(engine, mention("Ev1", "Is it up?"))
            await receive(engine, mention("Ev2", "Since when?", ts="17.2", thread_ts="17.1"))
            await slack.posted.wait()
            posting.cancel()
            assert len((await engine.list_sessions()).sessions) == 1  # one session for the thread

    asyncio.run(first())
    asyncio.run(second())
    assert slack.posts == [("C1", "17.1", "It is up."), ("C1", "17.1", "Since noon.")]
    assert len(model.requests) == 2


def test_an_answer_that_was_not_posted_is_posted_after_a_restart(tmp_path: Path) -> None:
    """The turn ended, Slack was away, and the process ended: the ledger still has the answer."""
    url, slack = f"sqlite:///{tmp_path}/bot.db", Slack()

    async def slack_is_away(*_: str) -> None:
        raise OSError("no route to Slack")

    async def run(post: Any, model: ScriptedModel, *bodies: bytes) -> None:
        async with open_bot(url, providers={"test": model}) as engine:
            ended = asyncio.Event()

            async def turn_finished(_: object) -> None:
                ended.set()

            engine.hook("turn_finished", turn_finished)
            for body in bodies:
                await receive(engine, body)
                await ended.wait()
            await Outbox(engine, post, tmp_path / "posted").flush()

    with pytest.raises(OSError, match="no route"):
        asyncio.run(run(slack_is_away, ScriptedModel([say("Yes.")]), mention("Ev1", "Are you there?")))
    for _ in range(2):
        asyncio.run(run(slack.post, ScriptedModel([])))
    assert slack.posts == [("C1", "17.1", "Yes.")]


def test_the_server_acknowledges_an_event_before_the_model_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slack waits three seconds; the event is durable by then, and the answer takes as long as it takes."""
    monkeypatch.setenv("SLACK_SIGNING_SECRET", SECRET)
    gate, slack = Gate(), Slack()
    providers = clew.ProviderSet({"test": ScriptedModel([[wait(gate), say("At last.")]])})

    async def talk() -> None:
        server = uvicorn.Server(uvicorn.Config(make_app(tmp_path, slack.post, providers), port=0, log_level="error"))
        serving = asyncio.create_task(server.serve())
        while not server.started:
            assert not serving.done()
            await asyncio.sleep(0.01)
        address = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/slack/events"

        def send(body: bytes, **headers: str) -> int:
            try:
                return int(urlopen(Request(address, body, headers or signed(body, int(time.time())))).status)
            except HTTPError as refused:
                return refused.code

        assert await asyncio.to_thread(send, mention("Ev1", "Hm?"), unsigned="yes") == 401
        for body in (mention("Ev1", "Think hard."), mention("Ev9", "I am a bot.", bot_id="B1")):
            assert await asyncio.to_thread(send, body) == 200
        await gate.reached.wait()
        assert slack.posts == []
        gate.set()
        await slack.posted.wait()
        server.should_exit = True
        await serving

    asyncio.run(talk())
    assert slack.posts == [("C1", "17.1", "At last.")]


def test_slack_checks_the_address_with_a_challenge(tmp_path: Path) -> None:
    """It is sent back, and starts no turn."""

    async def answer() -> dict[str, str]:
        async with open_bot(f"sqlite:///{tmp_path}/bot.db", providers={"test": ScriptedModel([])}) as engine:
            return await receive(engine, b'{"type": "url_verification", "challenge": "x"}')

    assert asyncio.run(answer()) == {"challenge": "x"}
