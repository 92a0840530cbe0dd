"""A store on PostgreSQL where it is not like the others: a server that fails, others that write to the database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlencode

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import clew
from clew.clock import SystemClock
from clew.errors import InternalError, SchemaTooNew, StoreUnavailable, UnsupportedValue
from clew.ids import Mint
from clew.store.base import SessionQuery
from clew.store.sql.postgres import writer as w
from clew.store.sql.postgres.connection import PostgresStatements, connect, translate
from clew.store.sql.postgres.opening import SCHEMA_VERSION, PostgresOptions, open_postgres
from clew.store.sql.postgres.store import PostgresStore
from clew.store.sql.sqlite.opening import open_sqlite
from clew.store.unit import (
    STORE_WIDE,
    AddEvent,
    Committed,
    EpochIs,
    EventIsNew,
    InsertMessage,
    JoinReplica,
    Outcome,
    PatchSession,
    RecordUsage,
    Refused,
    SetEpoch,
    Unit,
)
from clew.testing.chunks import text
from clew.testing.clock import FakeClock
from clew.testing.scribe import Scribe, settled, user_row
from clew.testing.store_suite.triggers import event
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.usage import Usage
from tests.rounds import rounds
from tests.services.postgres import Postgres
from tests.services.proxy import Proxy

pytestmark = pytest.mark.service


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[PostgresStore]:
    store = await open_postgres(url, PostgresOptions(**options))
    try:
        yield store
    finally:
        await store.close()


async def session_on(store: PostgresStore) -> Scribe:
    clock = SystemClock()
    return await Scribe.create(store, clock=clock, mint=Mint(clock))


def through(url: str, proxy: Proxy) -> str:
    """The same database by way of a proxy."""
    host, port = proxy.address
    who, _, rest = url.partition("@/")
    return f"{who}@{host}:{port}/{rest.partition('?')[0]}"


def spent(scribe: Scribe, message_id: str) -> Unit:
    """A unit without a guard that adds to what is there: done twice, it shows."""
    return Unit(scribe.session_id, (RecordUsage(message_id, Usage(input=5), 0.5, 1),))


async def answer_of(scribe: Scribe) -> str:
    message = user_row(scribe.mint, scribe.session_id, "hello", 1)
    await scribe.commit(InsertMessage(message))
    return message.id


@pytest.mark.rule("ST-12", "ST-3")
async def test_a_commit_whose_answer_was_lost_is_told_as_done_and_done_once(
    postgres_store_url: str, postgres_proxy: Proxy
) -> None:
    """The next connection finds its number in the database."""
    async with opened(through(postgres_store_url, postgres_proxy)) as store:
        scribe = await session_on(store)
        message_id = await answer_of(scribe)
        postgres_proxy.drop_reply(b"COMMIT\x00")
        assert await store.commit(spent(scribe, message_id)) == Committed()
        assert postgres_proxy.dropped.is_set()
        session = await store.find_session(scribe.session_id)
        assert session is not None
        assert (session.prompt_tokens, session.cost_usd) == (5, 0.5)


@pytest.mark.rule("ST-12")
async def test_a_number_that_was_given_up_can_never_be_committed(postgres_store_url: str) -> None:
    """A server that comes to it only after the next connection has asked fails there."""
    late, again = connect(postgres_store_url), connect(postgres_store_url)
    try:
        PostgresStatements(again).run("begin_writer", {"id": "w"})
        again.commit()
        PostgresStatements(late).first("get_store_mark", {})
        assert PostgresStatements(again).first("lock_writer", {"id": "w"}) == (0,)
        PostgresStatements(again).run("mark_writer", {"id": "w", "n": 1})
        again.commit()
        with pytest.raises(psycopg.errors.DivisionByZero) as told:
            PostgresStatements(late).run("mark_writer", {"id": "w", "n": 1})
        assert isinstance(translate(told.value, postgres_store_url), InternalError)
    finally:
        late.close()
        again.close()


@pytest.mark.rule("ST-12")
async def test_units_wait_for_a_server_that_is_away_and_reads_too(
    postgres_store_url: str, postgres_proxy: Proxy
) -> None:
    """When it is back, all of them go on by themselves, each done once."""
    async with opened(through(postgres_store_url, postgres_proxy)) as store:
        scribe = await session_on(store)
        message_id = await answer_of(scribe)
        postgres_proxy.cut()
        waiting = [store.submit(spent(scribe, message_id)) for _ in range(3)]
        read = asyncio.ensure_future(store.find_session(scribe.session_id))
        await asyncio.sleep(0)
        assert not read.done()
        assert not any(future.done() for future in waiting)
        postgres_proxy.restore()
        assert await asyncio.gather(*waiting) == [Committed()] * 3
        assert await read is not None
        session = await store.find_session(scribe.session_id)
        assert session is not None
        assert (session.prompt_tokens, session.cost_usd) == (15, 1.5)


@pytest.mark.rule("ST-12")
@pytest.mark.parametrize("wrong", [{"password": "guessed"}, {"dbname": "nowhere"}, {"user": "nobody"}])
async def test_who_is_not_let_in_is_told_what_to_look_at(postgres_store_url: str, wrong: dict[str, str]) -> None:
    """Not to see that the server runs: it does."""
    given = {**conninfo_to_dict(postgres_store_url), **wrong}
    url = f"postgresql:///{given['dbname']}?{urlencode({k: v for k, v in given.items() if v and k != 'dbname'})}"
    with pytest.raises(
        StoreUnavailable, match=r"cannot be opened .*; check the database name, the user and the password$"
    ):
        async with clew.open(url):
            pass


@pytest.mark.rule("ST-12")
async def test_a_server_that_stays_away_is_told_and_not_waited_for_without_end(
    postgres_store_url: str, postgres_proxy: Proxy
) -> None:
    """And the store is used again as soon as it is back."""
    async with opened(through(postgres_store_url, postgres_proxy), wait_ms=50) as store:
        scribe = await session_on(store)
        message_id = await answer_of(scribe)
        postgres_proxy.cut()
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            await store.commit(spent(scribe, message_id))
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            await store.find_session(scribe.session_id)
        postgres_proxy.restore()
        assert await store.commit(spent(scribe, message_id)) == Committed()
        session = await store.find_session(scribe.session_id)
        assert session is not None
        assert session.prompt_tokens == 5


@pytest.mark.rule("ST-12")
async def test_connections_that_are_ended_on_the_server_are_made_again(
    postgres: Postgres, postgres_store_url: str
) -> None:
    """As by an administrator, or a restart between two units."""
    async with opened(postgres_store_url) as store:
        scribe = await session_on(store)
        message_id = await answer_of(scribe)
        name = postgres_store_url.partition("@/")[2].partition("?")[0]
        assert postgres.terminate(name) >= 1
        assert await store.commit(spent(scribe, message_id)) == Committed()
        assert await store.find_message(scribe.session_id, message_id) is not None


@pytest.mark.rule("ST-12", "ST-3")
async def test_a_unit_that_fails_takes_nothing_of_the_others_with_it(postgres_store_url: str) -> None:
    """Those that waited with it are committed one by one, in their order."""
    async with opened(postgres_store_url) as store:
        scribe = await session_on(store)
        message_id = await answer_of(scribe)
        wrong = Unit(scribe.session_id, (PatchSession({"half": 1}), RecordUsage("nobody", Usage(), 0.0, 1)))
        stale = Unit(scribe.session_id, (PatchSession({"stale": 1}),), (EpochIs(7),))
        titled = Unit(scribe.session_id, (PatchSession({"title": "kept"}),))
        futures = [store.submit(one) for one in (spent(scribe, message_id), wrong, stale, titled)]
        first, failed, refused, last = await asyncio.gather(*futures, return_exceptions=True)
        assert (first, refused, last) == (Committed(), Refused("stale_epoch"), Committed())
        assert isinstance(failed, InternalError)
        session = await store.find_session(scribe.session_id)
        assert session is not None
        assert (session.metadata, session.prompt_tokens) == ({"title": "kept"}, 5)


@pytest.mark.rule("RP-1", "ST-12")
async def test_a_unit_goes_by_what_another_process_is_about_to_commit(
    postgres: Postgres, postgres_store_url: str
) -> None:
    """The epoch is read under a lock: whoever comes second waits, and is refused, whatever he read before."""
    async with opened(postgres_store_url) as store:
        scribe = await session_on(store)
        with psycopg.connect(postgres_store_url) as other:
            other.execute("update session_state set epoch = 1 where session_id = %s", (scribe.session_id,))
            taking = store.submit(Unit(scribe.session_id, (SetEpoch(1),), (EpochIs(0),)))
            waits = "select 1 from pg_stat_activity where wait_event_type = 'Lock'"
            await asyncio.to_thread(lambda: any(postgres.ask(waits) for _ in iter(int, 1)))
            other.commit()
        assert await taking == Refused("stale_epoch")


@pytest.mark.rule("RP-1", "ST-12")
async def test_of_many_that_take_a_session_one_gets_it(postgres_store_url: str) -> None:
    """From two processes, twelve sessions at once."""
    async with opened(postgres_store_url) as one, opened(postgres_store_url) as other:
        scribes = [await session_on(one) for _ in range(12)]

        async def race(scribe: Scribe) -> list[Outcome]:
            take = Unit(scribe.session_id, (SetEpoch(1),), (EpochIs(0),))
            return list(await asyncio.gather(*(store.commit(take) for store in (one, other, one, other))))

        for outcomes in await asyncio.gather(*map(race, scribes)):
            assert sorted(map(str, outcomes)) == sorted(map(str, [Committed(), *[Refused("stale_epoch")] * 3]))
        assert {(await other.load_state(scribe.session_id)).epoch for scribe in scribes} == {1}


@pytest.mark.rule("ST-12")
async def test_what_one_process_writes_another_goes_by_at_once(postgres_store_url: str) -> None:
    """Nothing is remembered from one transaction to the next: neither heads, nor turns, nor what was said."""
    async with opened(postgres_store_url) as one, opened(postgres_store_url) as other:
        here = await session_on(one)
        there = Scribe(other, here.session_id, here.mint, here.clock)
        for scribe in (here, there, there, here):
            await scribe.turn("asked", text("answered"))
        line = await one.load_line(here.session_id)
        assert [len(turn.messages) for turn in line.turns] == [2, 2, 2, 2]
        assert line == await other.load_line(here.session_id)
        assert (await one.verify(), await other.verify()) == ((), ())


@pytest.mark.rule("ST-12")
async def test_the_same_event_told_to_two_processes_at_once_is_in_the_ledger_once(postgres_store_url: str) -> None:
    """Both looked before either had written; the database lets one of them in, and the other is refused, not failed."""
    async with opened(postgres_store_url) as one, opened(postgres_store_url) as other:
        here = await session_on(one)
        there = await session_on(other)
        outcomes: list[Outcome] = []
        for number in range(8):
            units = [
                Unit(who.session_id, (AddEvent(event(who, f"e{number}")),), (EventIsNew("in", "test", f"e{number}"),))
                for who in (here, there)
            ]
            outcomes += await asyncio.gather(one.commit(units[0]), other.commit(units[1]))
        assert sorted(map(str, outcomes)) == sorted(map(str, [Committed(), Refused("event_exists")] * 8))


@pytest.mark.rule("ST-12")
async def test_a_server_that_forgets_what_it_acknowledged_is_refused_unless_asked_for(
    postgres: Postgres, postgres_store_url: str
) -> None:
    """Switched off for the database, as somebody in a hurry does; each new connection is looked at."""
    name = postgres_store_url.partition("@/")[2].partition("?")[0]
    async with opened(postgres_store_url) as store:
        scribe = await session_on(store)
        postgres.ask(f"alter database {name} set synchronous_commit = off")
        postgres.terminate(name)
        with pytest.raises(StoreUnavailable, match="synchronous_commit = on"):
            await scribe.commit(PatchSession({"title": "x"}))
    with pytest.raises(StoreUnavailable, match="synchronous_commit = on"):
        await open_postgres(postgres_store_url)
    async with clew.open(postgres_store_url, config=clew.Config(lossy_commits=True)) as engine:
        assert (await engine.create_session()).id


@pytest.mark.rule("RP-5", "ST-12")
async def test_a_newer_version_that_only_added_something_runs_beside_this_one(
    postgres: Postgres, postgres_store_url: str
) -> None:
    """One that did more than that refuses the older clew, before it has changed anything."""
    with psycopg.connect(postgres_store_url, autocommit=True) as newer:
        newer.execute("alter table chat_turns add column mood text")
        newer.execute("insert into schema_versions values (%s, true)", (SCHEMA_VERSION + 1,))
        async with opened(postgres_store_url) as store:
            scribe = await session_on(store)
            await scribe.turn("asked", text("answered"))
            assert len((await store.load_line(scribe.session_id)).turns) == 1
        newer.execute("insert into schema_versions values (%s, false)", (SCHEMA_VERSION + 2,))
        with pytest.raises(SchemaTooNew, match="upgrade clew"):
            await open_postgres(postgres_store_url)


@pytest.mark.rule("ST-12")
async def test_many_that_open_an_empty_database_at_once_make_one_store(database: str) -> None:
    """One makes the tables, the others wait for it; what is another program's is left alone."""
    stores = await asyncio.gather(*(open_postgres(database) for _ in range(4)))
    scribe = await session_on(stores[0])
    assert [await store.session_ids() for store in stores] == [(scribe.session_id,)] * 4
    for store in stores:
        await store.close()
    with psycopg.connect(database, autocommit=True) as other:
        other.execute("drop table schema_versions")
    with pytest.raises(StoreUnavailable, match=r"tables of another program \(writer_marks, chat_sessions, "):
        await open_postgres(database)


@pytest.mark.rule("ST-12")
async def test_nothing_is_left_in_a_session_of_the_server(
    postgres_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a pooler that hands connections out by transaction: after each, all a session holds is thrown away."""

    class Forgetful(psycopg.Connection[tuple[Any, ...]]):
        def _forget(self) -> None:
            if self.pgconn.pipeline_status == psycopg.pq.PipelineStatus.OFF:
                self.pgconn.exec_(b"DISCARD ALL")

        def rollback(self) -> None:
            super().rollback()
            self._forget()

    monkeypatch.setattr(psycopg, "connect", Forgetful.connect)
    real = w.Writer._transact

    def transact(self: w.Writer, units: list[Unit], work: Any) -> list[Any]:
        try:
            return real(self, units, work)
        finally:
            if self._connection is not None and not self._connection.closed:
                self._connection.rollback()

    monkeypatch.setattr(w.Writer, "_transact", transact)
    async with clew.open(postgres_store_url, config=clew.Config()) as engine:
        session = await engine.create_session()
        scribe = Scribe(engine.store, session.id, engine.mint, engine.clock)
        await scribe.turn("asked", text("answered"))
        answer = (await engine.store.load_line(session.id)).turns[0].messages[1]
        branch = await engine.branch(session.id, answer.id)
        assert len((await engine.store.load_line(branch.id)).turns) == 1
        assert len((await engine.search("answered")).hits) == 2


@pytest.mark.slow
@pytest.mark.rule("ST-12")
async def test_the_oldest_postgresql_that_is_supported_does_all_of_it(system_postgres: Postgres) -> None:
    """Debian's 15: the schema, a turn, a branch, a search, titles in any case, and moves of the head."""
    name = system_postgres.create()
    try:
        async with clew.open(system_postgres.url(name), config=clew.Config()) as engine:
            session = await engine.create_session(title="Straße nach ŁÓDŹ")
            scribe = Scribe(engine.store, session.id, engine.mint, engine.clock)
            await scribe.turn("first", text("one"))
            _, asked, answered = await scribe.turn("second", text("two"))
            branch = await engine.branch(session.id, answered)
            await engine.rewind(session.id, asked)
            lines = [(await engine.store.load_line(id_)).turns for id_ in (session.id, branch.id)]
            assert [[len(turn.messages) for turn in line] for line in lines] == [[2, 1], [2, 2]]
            assert len((await engine.search("two")).hits) == 2
            for title in ("STRASSE", "łódź"):
                listed = await engine.store.list_sessions(SessionQuery(title=title))
                assert [one.id for one in listed.sessions] == [branch.id, session.id]
            assert await engine.store.verify() == ()
    finally:
        system_postgres.drop(name)


@pytest.mark.rule("ST-12")
async def test_a_commit_that_stays_unknown_is_said_to_be_and_answers_no_later_unit(
    postgres_store_url: str, postgres_proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is not back in time: whoever asks later is not told what came of the units before."""
    async with opened(through(postgres_store_url, postgres_proxy), wait_ms=50) as store:
        scribe = await session_on(store)
        message_id = await answer_of(scribe)
        postgres_proxy.drop_reply(b"COMMIT\x00")
        disconnect = w.Writer._disconnect

        def cut(writer: w.Writer) -> None:
            disconnect(writer)
            postgres_proxy.cut()

        with monkeypatch.context() as patched:
            patched.setattr(w.Writer, "_disconnect", cut)
            with pytest.raises(StoreUnavailable, match="is unknown whether the last change was stored"):
                await store.commit(spent(scribe, message_id))
        postgres_proxy.restore()
        assert await store.commit(Unit(scribe.session_id, (PatchSession({"title": "later"}),))) == Committed()
        session = await store.find_session(scribe.session_id)
        assert session is not None
        assert (session.metadata, session.prompt_tokens) == ({"title": "later"}, 5)


@pytest.mark.slow
@pytest.mark.rule("RP-4", "ST-12")
async def test_a_process_that_was_stopped_in_a_transaction_keeps_a_session_for_some_seconds_only(
    postgres_store_url: str,
) -> None:
    """The server ends the transaction of one that says nothing; a heartbeat waits for nothing of it."""
    stopped = connect(postgres_store_url)
    async with opened(postgres_store_url, writers=1) as store:
        scribe, other = await session_on(store), await session_on(store)
        sql = PostgresStatements(stopped)
        sql.run("bound_waits", {})
        assert sql.first("lock_state", {"id": scribe.session_id}) is not None
        held = store.submit(Unit(scribe.session_id, (PatchSession({"title": "held"}),)))
        join = Unit(STORE_WIDE, (JoinReplica("r", None, "1", 60_000),))
        assert await store.commit(join) == Committed()
        assert not held.done()
        free = store.submit(Unit(other.session_id, (PatchSession({"title": "free"}),)))
        assert (await held, await free) == (Committed(), Committed())
    stopped.close()


@pytest.mark.slow
@pytest.mark.rule("ST-12", "ST-3")
async def test_a_server_that_crashes_again_and_again_loses_nothing_and_does_nothing_twice() -> None:
    """Units that add one each, without a guard, while the server is ended at once and started again."""
    server = Postgres(fsync=True)
    try:
        async with opened(server.url(server.create())) as store:
            scribes = [await session_on(store) for _ in range(4)]
            messages = [await answer_of(scribe) for scribe in scribes]
            told = [0] * len(scribes)
            crashes = rounds(3)

            async def write(place: int) -> None:
                one = RecordUsage(messages[place], Usage(input=1), 0.0, 1)
                while crashes or told[place] < 20:
                    assert await store.commit(Unit(scribes[place].session_id, (one,))) == Committed()
                    told[place] += 1

            writing = [asyncio.create_task(write(place)) for place in range(len(scribes))]
            while crashes:
                before = sum(told)
                while sum(told) < before + 20:
                    await asyncio.gather(*(store.load_state(scribe.session_id) for scribe in scribes))
                await asyncio.to_thread(server.restart)
                crashes -= 1
            await asyncio.gather(*writing)
            found = [await scribe.session() for scribe in scribes]
            assert [session.prompt_tokens for session in found] == told
            assert await store.verify() == ()
    finally:
        server.close()


VALUES: dict[str, Any] = {
    "numbers": [0, -1, 2**63 - 1, -(2**63), 0.1, 1e308, 5e-324, 1e22, 123456789.123456789],
    "letters": '\u2028 \u2029 \ud7ff \uffff \x01 \x1f \x7f \U0001f600 e\u0301 \\u0000 \\ " / \t\n\r',
    "": {"": [], "nested": [[[{"a": [None, True, False, {}]}]]]},
    "keys": {"b": 1, "a": 2, "B": 3, "ä": 4, "'": 5, '"': 6, "\\": 7},
}


@pytest.mark.rule("ST-12", "ST-4")
async def test_what_sqlite_keeps_postgresql_keeps_value_for_value(tmp_path: Path, postgres_store_url: str) -> None:
    """In parts as they were written, down to the order of keys; in metadata by their values."""
    seen: list[Any] = []
    for store in (await open_sqlite(tmp_path / "store.db"), await open_postgres(postgres_store_url)):
        clock = FakeClock()
        mint = Mint(clock, random=Random(1).randrange)
        scribe = await Scribe.create(
            store, clock=clock, mint=mint, metadata={"kept": VALUES, "title": VALUES["letters"]}
        )
        part = PartRow(mint.part(), 0, {"type": "data-x", "data": VALUES}, 1, 1)
        row = MessageRow(mint.message(), scribe.session_id, "user", 1, 1, {"kept": VALUES}, (part,))
        await scribe.commit(*settled(row))
        whole = await store.find_full_session(scribe.session_id)
        assert whole is not None
        assert whole.messages == (row,)
        assert json.dumps(whole.messages[0].parts[0].data) == json.dumps(part.data)
        seen.append(whole)
        await store.close()
    assert seen[0] == seen[1]


@pytest.mark.rule("ST-12", "ST-4")
async def test_text_that_no_postgresql_holds_is_refused_and_nothing_is_written(postgres_store_url: str) -> None:
    """The gate in front of every store lets none through; whoever gets past it is told."""
    async with opened(postgres_store_url) as store:
        scribe = await session_on(store)
        for metadata in ({"title": "a\x00b"}, {"deep": [{"a\x00": 1}]}):
            with pytest.raises(UnsupportedValue):
                await scribe.commit(PatchSession({"title": "half"}), PatchSession(metadata))
        assert (await scribe.session()).metadata == {}
