"""A viewer that is cut off again and again and goes on by its position, each time on another process."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, cast

import pytest

from clew.errors import ViewerLagged
from clew.live.base import Live
from clew.live.postgres import PostgresLive
from clew.live.redis import RedisLive
from clew.session.api import Engine
from clew.testing.scripted import ScriptedModel
from clew.transcript.chunk import parse_chunk
from clew.transcript.fold import Fold
from clew.transcript.stream_cursor import RESET, StreamPosition
from tests.acceptance.elsewhere import Pace, cluster, sentences
from tests.rounds import rounds

if TYPE_CHECKING:
    from tests.services.valkey import Valkey

pytestmark = [pytest.mark.service, pytest.mark.rule("RP-2"), pytest.mark.rule("SR-2")]


class Hopper:
    """A client that folds what it gets. It is strict: a chunk that comes twice, or not at all, is refused."""

    def __init__(self) -> None:
        self.position = StreamPosition()
        self.fold = Fold("")
        self.resets = self.connections = 0

    async def look(self, engine: Engine, session_id: str, asked_id: str, at_most: int) -> None:
        """Take so many chunks of a new connection, or what comes in a while."""
        self.connections += 1
        source = engine.attach(session_id, message_id=asked_id, after=self.position.cursor)
        with contextlib.suppress(TimeoutError, ViewerLagged):
            async with (
                asyncio.timeout(0.2 if at_most < 1_000 else 30),
                contextlib.aclosing(cast(Any, source)) as chunks,
            ):
                async for given in chunks:
                    for chunk in self.position.take(given):
                        if chunk["type"] == "start":
                            self.fold = Fold(str(chunk["messageId"]))
                        self.resets += chunk["type"] == RESET
                        self.fold.apply_shown(parse_chunk(chunk))
                    at_most -= 1
                    if at_most == 0:
                        return


@pytest.mark.parametrize("seed", range(rounds(2)))
@pytest.mark.parametrize("kind", ["valkey", "postgresql"])
async def test_a_viewer_that_changes_processes_has_the_stored_message(
    kind: str, seed: int, tmp_path: Path, request: pytest.FixtureRequest, record_property: Any
) -> None:
    """Wherever each connection was, and however far it read: what is stored, by the exact rest or a reset."""
    chance = Random(seed)
    pace, hopper = Pace(sentences(chance, 40)), Hopper()
    if kind == "valkey":
        valkey: Valkey = request.getfixturevalue("valkey")
        url = f"sqlite:///{tmp_path}/x.db"
    else:
        url = request.getfixturevalue("postgres_store_url")

    def make_live() -> Live:
        return RedisLive(valkey.url()) if kind == "valkey" else PostgresLive(url)

    async with cluster(url, make_live, ScriptedModel([pace.pieces]), count=3) as engines:
        session = await engines[0].create_session()
        submission = await engines[0].submit(session.id, "go")
        while pace.left:
            await pace.go(chance.randint(1, 12))
            await hopper.look(chance.choice(engines), session.id, submission.message_id, chance.randint(1, 25))
        await submission.wait()
        await hopper.look(chance.choice(engines), session.id, submission.message_id, 10_000)
        stored = (await engines[0].messages(session.id))[-1]
        assert (hopper.fold.message_id, hopper.fold.parts) == (stored.id, stored.parts)
        record_property("figure", f"{hopper.connections} connections over three processes, {hopper.resets} resets")
