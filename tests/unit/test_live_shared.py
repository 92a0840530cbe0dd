"""Live layers of several processes: addresses, what is carried, and what is made of it."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from typing import Any

import msgspec
import pytest

import clew
from clew.errors import InvalidInput, NotSupported, ViewerLagged
from clew.live import shared
from clew.live.base import Event, LivePlace, Signal, Status, Word, parse_live, shown_address
from clew.live.postgres import PostgresLive, payloads
from clew.live.redis import RedisLive
from clew.live.shared import SharedLive, encode_frame, parse_frame
from clew.transcript import chunk as c


@pytest.mark.parametrize(
    ("named", "place"),
    [
        ("local", LivePlace("local")),
        ("postgres", LivePlace("postgres")),
        ("redis://h:1/0", LivePlace("redis", "redis://h:1/0")),
        ("rediss://:pw@h/0", LivePlace("redis", "rediss://:pw@h/0")),
        ("unix:///run/valkey", LivePlace("redis", "unix:///run/valkey")),
        ("valkey://h:1", LivePlace("redis", "redis://h:1")),
        ("", None),
    ],
)
def test_a_live_layer_is_named_by_a_word_or_an_address(named: str, place: LivePlace | None) -> None:
    """Nothing at all leaves it to the store."""
    assert parse_live(named) == place


@pytest.mark.parametrize("named", ["redis", "redis:", "http://h", "redis://", "redis://a b", "redis://:pw@h\n/0", "x"])
def test_what_is_no_live_layer_is_refused_and_not_repeated(named: str) -> None:
    """It may hold a password."""
    with pytest.raises(InvalidInput) as raised:
        parse_live(named)
    assert str(raised.value) == (
        "the live layer is local, postgres, or the address of a Valkey or Redis server: redis://HOST:6379/0"
    )


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:secret@host:6379/0", "redis://host:6379/0"),
        ("rediss://me:secret@host", "rediss://host"),
        ("redis://host/1?password=secret", "redis://host/1"),
        ("unix://:secret@/run/valkey?db=1", "unix:///run/valkey"),
        ("redis://:sec/ret@host/0", "redis://…"),
        ("redis://:sec@ret@host/0", "redis://…"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    """Where it cannot be told where the password ends, nothing is."""
    assert shown_address(url) == shown


@pytest.mark.parametrize("port", ["secret", "99999999"])
async def test_a_garbage_address_is_refused_in_words_without_its_password(port: str) -> None:
    """The library's own words would repeat it."""
    async with clew.open("memory:") as engine:
        assert engine.host.live.reaches_others is False
    with pytest.raises(InvalidInput, match=r"redis://HOST:PORT/0") as raised:
        async with clew.open("memory:", live=f"redis://:{port}/x@h:{port}"):
            pass
    assert port not in str(raised.value)


async def test_a_live_layer_on_postgresql_is_for_a_store_there() -> None:
    """And what is missing says how to install it."""
    with pytest.raises(InvalidInput, match="is for a store there"):
        async with clew.open("memory:", live="postgres"):
            pass


async def test_what_is_not_installed_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is imported before it is asked for."""
    for name in [name for name in sys.modules if name == "redis" or name.startswith("redis.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(NotSupported, match=r"pip install 'clew-sessions\[redis\]'"):
        async with clew.open("memory:", live="redis://h"):
            pass


def test_chunks_travel_with_their_numbers() -> None:
    """What is transient has the number of the one before it."""
    passing = c.Data("p", 1, transient=True)
    said: list[c.Chunk] = [passing, c.TextStart("t"), c.TextDelta("t", "a"), passing, c.TextEnd("t")]
    assert parse_frame(encode_frame(9, said)) == [
        (6, passing),
        (7, c.TextStart("t")),
        (8, c.TextDelta("t", "a")),
        (8, passing),
        (9, c.TextEnd("t")),
    ]


def test_notifications_are_as_few_as_fit_and_never_too_long() -> None:
    """Of a note that is too long what is short is told; one that says nothing then is left out."""
    problem = {"code": "x", "message": "m" * 9_000}
    notes: list[Any] = [("word", f"ses_{n}", Word("msg_1", 2, n)) for n in range(300)]
    notes += [("status", "s", Status("error", message="m" * 9_000, problem=problem)), ("signal", "s" * 9_000, "stop")]
    notes.append(("event", "turn_finished", {"session_id": "s", "error": problem}))
    told = list(payloads("me", notes))
    assert max(len(one.encode()) for one in told) < 8_000
    assert len(told) <= 4
    heard = [note for one in told for note in json.loads(one)[1]]
    assert [note[2]["through"] for note in heard[:300]] == [*range(300)]
    assert heard[300:] == [["status", "s", {"state": "error"}], ["event", "turn_finished", {"session_id": "s"}]]


class Ear(SharedLive):
    """A live layer that reaches whoever ``others`` are, by hand."""

    carries_chunks = True


class Server:
    """Connections to a PostgreSQL that is played; behind a pooler it delivers no notification to those who listen."""

    def __init__(self, *, pooled: bool) -> None:
        self.pooled = pooled
        self.sent: list[str] = []
        self.silences = 0

    async def execute(self, statement: str, values: tuple[str, str] | None = None) -> None:
        if values is not None:
            self.sent.append(values[1])
        elif statement == "SELECT 1":
            self.silences += 1
            if self.silences == 2:
                raise ConnectionError("gone")

    async def notifies(self, timeout: float) -> Any:  # noqa: ASYNC109 - the signature is psycopg's
        for payload in () if self.pooled or self.silences else self.sent:
            yield Notification(payload)

    async def close(self) -> None:
        pass


class Notification(msgspec.Struct):
    payload: str


@pytest.mark.parametrize(("pooled", "warnings"), [(True, 1), (False, 0)])
async def test_a_pooler_that_swallows_notifications_is_in_the_log_once(
    pooled: bool, warnings: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PgBouncer in transaction mode accepts LISTEN and delivers nothing; a new connection does not warn again."""
    live, server = PostgresLive("postgresql://pooler/clew"), Server(pooled=pooled)

    async def connect() -> Server:
        return server

    monkeypatch.setattr(live, "_connect", connect)
    for _ in range(2):
        server.silences = 0
        with pytest.raises(ConnectionError):
            await live._listen()
    assert server.sent == [json.dumps([live.origin, []], separators=(",", ":"))]
    found = [one.getMessage() for one in caplog.records]
    assert [text.partition(",")[0] for text in found] == ["no notifications arrive from PostgreSQL"] * warnings


async def test_what_one_process_tells_the_others_hear() -> None:
    """Status, events and signals; of a status the newest."""
    one, other = Ear(), Ear()
    events, signals, statuses = other.subscribe(), other.signals(), other.watch_status("s")
    one.set_status("s", Status("busy"))
    one.set_status("s", Status("retrying", attempt=2))
    one.publish(Event("turn_started", {"session_id": "s"}))
    one.signal(Signal("s", "stop"))
    one.signal(Signal("s", "stop"))
    mail = await one.next_outbox()
    notes = json.loads(json.dumps([[*note[:2], msgspec.to_builtins(note[2])] for note in mail.notes()]))
    assert len(notes) == 3
    for note in [*notes, ["status"], ["event", "nonsense", {}], ["status", "s", {"state": 3}], 7]:
        other.on_note(note)
    assert await anext(statuses) == other.status("s") == Status("retrying", attempt=2)
    assert await anext(events) == Event("turn_started", {"session_id": "s"})
    assert await anext(signals) == Signal("s", "stop")


async def test_a_word_that_was_missed_is_a_reason_to_look() -> None:
    """The newest word is enough; when the connection was lost, no word is."""
    live = Ear()
    listening = live.listen("s")
    for n in range(5):
        live.on_progress("s", Word("m", 1, n))
    live.on_progress("s", Word("m", 0, 99))
    assert await listening.wait(0) == Word("m", 1, 4)
    assert await listening.wait(0) is None
    live.on_progress("s", Word("m", 1, 5))
    live.set_connected(False)
    assert await listening.wait(0) is None
    assert listening.is_sure is False


@pytest.mark.slow
async def test_what_waits_to_be_carried_is_bounded() -> None:
    """A server that is away holds up nobody, and fills nothing: there is a gap, and the numbers show it."""
    live = Ear()
    stream = live.open_stream("s", "m", [], epoch=1)
    stream.show([(1, c.TextStart("t"))])
    for n in range(2, 20_001):
        stream.show([(n, c.TextDelta("t", "x"))])
        live.publish(Event("session_updated", {"session_id": "s"}))
    stream.end()
    mail = await live.next_outbox()
    assert sum(len(chunks) for _, chunks in mail.frames[stream]) <= 4_096
    assert (len(mail.events), mail.progress) == (2_000, {"s": Word("m", 1, 20_000, ended=True, by_part=True)})


async def test_a_password_is_in_no_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Nor where its server cannot be reached."""
    live = RedisLive("redis://:hunter2hunter2@127.0.0.1:1/0")
    listening = live.listen("s")
    with caplog.at_level(logging.DEBUG):
        await live.open()
        live.set_status("s", Status("busy"))
        await listening.wait(5)
        assert await listening.wait(0.2) is None
        await live.close()
    assert caplog.records
    assert "hunter2" not in caplog.text
    assert live.url == "redis://127.0.0.1:1/0"


async def test_whoever_watches_a_status_looks_by_themselves_while_nothing_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was heard before is forgotten with the connection: it may be wrong by now."""
    monkeypatch.setattr(shared, "_DISCONNECTED_POLL_S", 0.001)
    live = Ear()
    live.on_note(["status", "s", {"state": "busy"}])
    assert live.status("s") == Status("busy")
    live.set_connected(False)
    assert live.status("s") is None
    assert await anext(live.watch_status("s")) is None


async def test_whoever_gets_events_subscribes_again_when_some_were_missed() -> None:
    """Those that came before it was lost are read first; a first connection costs nobody anything."""
    live = Ear()
    events = live.subscribe()
    live.set_connected(True)
    live.publish(Event("session_updated", {"session_id": "s"}))
    live._missed_updates = True
    live.set_connected(True)
    assert await anext(events) == Event("session_updated", {"session_id": "s"})
    with pytest.raises(ViewerLagged):
        await anext(events)


async def test_it_is_closed_though_a_library_takes_the_end_for_a_limit_of_its_own() -> None:
    """As those do that wait with one: the cancellation comes out as a time-out, and the work would go on for ever."""
    begun = asyncio.Event()

    class Deaf(Ear):
        async def _listen(self) -> None:
            try:
                begun.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError as error:
                if not hasattr(self, "told"):
                    self.told = True
                    raise TimeoutError from error
                raise

        _publish = _listen

    live = Deaf()
    await live.open()
    await begun.wait()
    async with asyncio.timeout(60):
        await live.close()
    assert live.told
