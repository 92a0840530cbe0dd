"""A viewer on any process sees a run of any other: the same, in order, nothing twice and nothing missing."""

from __future__ import annotations

import asyncio
import signal
from itertools import groupby
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import redis

from clew.errors import ViewerLagged
from clew.live.base import Word
from clew.live.postgres import PostgresLive
from clew.live.redis import RedisLive
from clew.session.cluster import remote_stream
from clew.session.cluster.remote_stream import load_stream_state
from clew.store.base import Store
from clew.testing.scenario import reduced
from clew.testing.scripted import Gate, ScriptedModel, call, chunks, cut_after, say, wait
from clew.transcript import chunk as c
from tests.acceptance.elsewhere import Pace, Viewer, cluster, see, sentences
from tests.rounds import rounds

if TYPE_CHECKING:
    from clew.session.prompt.submission import Submission
    from tests.services.proxy import Proxy
    from tests.services.valkey import Valkey

pytestmark = [pytest.mark.service, pytest.mark.rule("RP-2"), pytest.mark.rule("SR-8")]


def parts_of(seen: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list(reduced(seen)["parts"])


async def shown_whole(pace: Pace, submission: Submission, viewers: list[Viewer]) -> list[list[dict[str, Any]]]:
    """What each was shown of a run whose last chunk waited for all of them."""
    async with asyncio.timeout(60):
        for viewer in viewers:
            await viewer.began.wait()
        await pace.go(pace.left)
        await submission.wait()
        return [await viewer.shown for viewer in viewers]


async def test_a_viewer_elsewhere_reads_the_store_once_and_then_hears_every_chunk(
    tmp_path: Path, valkey: Valkey, record_property: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the one beside the run: every chunk by itself, and the store is not asked for it."""
    pace = Pace(sentences(Random(1), 300))
    async with cluster(f"sqlite:///{tmp_path}/x.db", lambda: RedisLive(valkey.url()), ScriptedModel([pace.pieces])) as (
        here,
        there,
    ):
        session = await here.create_session()
        submission = await here.submit(session.id, "go")
        await pace.go(20)
        viewers = [asyncio.create_task(see(engine, session.id)) for engine in (here, there)]
        await pace.go(20)
        looks: list[str] = []

        async def counted(store: Store, session_id: str, *more: Any) -> Any:
            looks.append(session_id)
            return await load_stream_state(store, session_id, *more)

        monkeypatch.setattr(remote_stream, "load_stream_state", counted)
        while pace.left:
            await pace.go(1)
            await asyncio.sleep(0.001)
        await submission.wait()
        beside, elsewhere = await asyncio.gather(*viewers)
        stored = (await here.messages(session.id))[-1].parts
        assert parts_of(beside) == parts_of(elsewhere) == stored
        assert [chunk["type"] for chunk in elsewhere][-2:] == ["finish-step", "finish"]
        assert len(looks) <= 12
        record_property("figure", f"a viewer elsewhere: {len(looks)} looks into the store for 280 chunks")


class Leaky(RedisLive):
    """Loses what it is to carry, and what it is told, now and then."""

    def __init__(self, url: str, chance: Random) -> None:
        super().__init__(url)
        self._chance = chance

    def _add_frames(self, pipe: Any, stream: Any, frames: Any) -> None:
        if self._chance.random() < 0.8:
            super()._add_frames(pipe, stream, frames)

    def on_progress(self, session_id: str, word: Word) -> None:
        if self._chance.random() < 0.8:
            super().on_progress(session_id, word)


class Deaf(RedisLive):
    """Is told nothing of what is said elsewhere."""

    def on_progress(self, session_id: str, word: Word) -> None:
        pass


async def test_a_message_that_was_cut_ends_elsewhere_as_where_it_ran(tmp_path: Path, valkey: Valkey) -> None:
    """Its step did not end, also for somebody who has it from the store; the turn is in its next message by then."""
    begun, over = Gate(), Gate()
    script = [[say("half of it"), wait(begun), cut_after(0)], [wait(over), say("whole")]]
    async with cluster(f"sqlite:///{tmp_path}/x.db", lambda: Deaf(valkey.url()), ScriptedModel(script)) as (
        here,
        there,
    ):
        session = await here.create_session()
        submission = await here.submit(session.id, "go", attended=False)
        await begun.reached.wait()
        viewers = [Viewer(engine, session.id) for engine in (here, there)]
        async with asyncio.timeout(60):
            for viewer in viewers:
                await viewer.began.wait()
            begun.set()
            told = [[chunk["type"] for chunk in await viewer.shown] for viewer in viewers]
            over.set()
            await submission.wait()
        # Words come one by one or together, as they were stored when somebody looked.
        kinds = [[kind for kind in one if kind != "message-metadata"] for one in told]
        [beside, elsewhere] = [[kind for kind, _ in groupby(one)] for one in kinds]
        assert beside == elsewhere == ["start", "start-step", "text-start", "text-delta", "text-end", "finish"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(rounds(4)))
async def test_viewers_see_what_is_stored_whatever_happens_to_valkey(
    tmp_path: Path, valkey: Valkey, valkey_proxy: Proxy, seed: int
) -> None:
    """It is wiped, cut off, stalled and comes back empty, and loses a fifth of all; viewers come and go everywhere."""
    chance = Random(seed)
    pace = Pace(sentences(chance, 250))
    url = valkey.url(valkey_proxy.address)
    async with cluster(
        f"sqlite:///{tmp_path}/x.db", lambda: Leaky(url, chance), ScriptedModel([pace.pieces]), count=3
    ) as engines:
        session = await engines[0].create_session()
        submission = await engines[0].submit(session.id, "go")
        viewers: list[Viewer] = []
        mishaps = [valkey.wipe, valkey_proxy.cut, valkey_proxy.stall, lambda: _restart(valkey)]
        while pace.left > 1:
            await pace.go(min(chance.randint(1, 12), pace.left - 1))
            await asyncio.sleep(chance.choice((0, 0, 0.002, 0.02)))
            if chance.random() < 0.5:
                viewers.append(Viewer(chance.choice(engines), session.id))
            if chance.random() < 0.2:
                chance.choice(mishaps)()
            elif chance.random() < 0.4:
                valkey_proxy.restore()
            if viewers and chance.random() < 0.1:
                viewers.pop(chance.randrange(len(viewers))).shown.cancel()
        seen = await shown_whole(pace, submission, viewers)
        stored = (await engines[0].messages(session.id))[-1].parts
        assert [parts_of(one) for one in seen] == [stored] * len(seen)
        assert {one[-1]["type"] for one in seen} <= {"finish"}


@pytest.mark.slow
async def test_a_slow_viewer_elsewhere_of_a_long_run_sees_all_of_it_though_valkey_has_let_go_of_most(
    tmp_path: Path, valkey: Valkey, valkey_proxy: Proxy
) -> None:
    """20,000 chunks go by while he reads none and his process hears nothing. What is kept for him has a bound: he is
    let go of, or reads the store, and in the end has all."""
    count, begun, last = 20_000, Gate(), Gate()
    deltas = [c.TextDelta("t", f"{n:040d} ") for n in range(count)]
    script = [
        chunks(c.TextStart("t"), *deltas[:10]),
        wait(begun),
        chunks(*deltas[10:]),
        wait(last),
        chunks(c.TextEnd("t")),
    ]
    urls = iter([valkey.url(), valkey.url(valkey_proxy.address)])
    async with cluster(f"sqlite:///{tmp_path}/x.db", lambda: RedisLive(next(urls)), ScriptedModel([script])) as (
        here,
        there,
    ):
        session = await here.create_session()
        submission = await here.submit(session.id, "go")
        await begun.reached.wait()
        slow = aiter(there.attach(session.id))
        shown: list[dict[str, Any]] = [await anext(slow)]
        valkey_proxy.stall()
        begun.set()
        await last.reached.wait()
        valkey_proxy.restore()
        last.set()
        await submission.wait()
        try:
            shown += [chunk async for chunk in slow]
        except ViewerLagged:
            shown = await see(there, session.id)
        stored = (await here.messages(session.id))[-1].parts
        assert len(stored[-1]["text"]) == 41 * count
        assert parts_of(shown) == stored
        with redis.Redis.from_url(valkey.url()) as asking:
            kept = [asking.memory_usage(key) for key in asking.scan_iter() if asking.type(key) == b"stream"]
        assert all(size < 1024 * 1024 for size in kept)


def _restart(valkey: Valkey) -> None:
    valkey.stop(signal.SIGKILL)
    valkey.start()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(rounds(3)))
async def test_viewers_see_what_is_stored_without_valkey(postgres_store_url: str, seed: int) -> None:
    """PostgreSQL alone: told how far to read, they read the journal."""
    chance = Random(seed)
    pace = Pace(sentences(chance, 200))
    model = ScriptedModel([pace.pieces])
    async with cluster(postgres_store_url, lambda: PostgresLive(postgres_store_url), model, count=3) as engines:
        session = await engines[0].create_session()
        submission = await engines[0].submit(session.id, "go")
        viewers: list[Viewer] = []
        while pace.left > 1:
            await pace.go(min(chance.randint(1, 12), pace.left - 1))
            await asyncio.sleep(chance.choice((0, 0.002, 0.02)))
            if chance.random() < 0.5:
                viewers.append(Viewer(chance.choice(engines), session.id))
        seen = await shown_whole(pace, submission, viewers)
        stored = (await engines[0].messages(session.id))[-1].parts
        assert [parts_of(one) for one in seen] == [stored] * len(seen)


async def test_a_viewer_elsewhere_is_told_how_a_run_ended(tmp_path: Path, valkey: Valkey) -> None:
    """Aborted, or waiting for a human: as the viewer beside it is, and by the same last chunk."""
    pace = Pace(sentences(Random(3), 30))
    model = ScriptedModel([pace.pieces, call("bash", {"command": "touch made"})])
    async with cluster(f"sqlite:///{tmp_path}/x.db", lambda: RedisLive(valkey.url()), model) as (here, there):
        session = await here.create_session(workspace_root=tmp_path)
        ends: list[list[Any]] = []
        for prompt in ("one", "two"):
            submission = await here.submit(session.id, prompt)
            viewers = [Viewer(engine, session.id) for engine in (here, there)]
            if prompt == "one":
                await pace.go(10)
                await asyncio.gather(*(viewer.began.wait() for viewer in viewers))
                await here.abort(session.id)
            await submission.wait() if prompt == "one" else await _waiting(here, session.id)
            ends.append([one[-1:] for one in await asyncio.gather(*(viewer.shown for viewer in viewers))])
        assert ends[0][0] == ends[0][1] == [{"type": "abort", "reason": "aborted by the user"}]
        assert ends[1][0] == [{"type": "finish", "finishReason": "tool-calls"}]
        assert ends[1][1] in ([], ends[1][0])  # it may have ended before anybody could look
        assert await there.find_stream(session.id) is None


async def test_a_turn_without_an_answer_names_no_message_elsewhere(tmp_path: Path, valkey: Valkey) -> None:
    """Aborted before its first chunk was stored: how it ended is told, and no id that is none."""
    gate = Gate()
    async with cluster(
        f"sqlite:///{tmp_path}/x.db", lambda: RedisLive(valkey.url()), ScriptedModel([[wait(gate)]])
    ) as (here, there):
        session = await here.create_session()
        submission = await here.submit(session.id, "go")
        stream = await there.find_stream(session.id)
        assert stream is not None
        viewer = asyncio.create_task(see(there, session.id))
        await gate.reached.wait()
        following: Any = there._runtime.streams.followed
        while session.id not in following:  # noqa: ASYNC110 - nobody is told of it
            await asyncio.sleep(0)
        await here.abort(session.id)
        await submission.wait()
        seen = await viewer
        assert [chunk["type"] for chunk in seen][-1] == "abort"
        assert all(chunk.get("messageId") != "" for chunk in seen)


async def _waiting(engine: Any, session_id: str) -> None:
    async for status in engine.watch_status(session_id):
        if status.waiting:
            return
