"""The servers that tests are given: what they promise to the tests, and that they end with the run."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
import redis

from clew.store.sql.postgres.connection import PostgresStatements, connect
from tests.services.postgres import Postgres
from tests.services.proxy import Proxy
from tests.services.valkey import Valkey

pytestmark = pytest.mark.service

STARTS = """
from tests.services.postgres import Postgres
from tests.services.valkey import Valkey
servers = Postgres(), Valkey()
print(*(word for server in servers for word in (server.pid, server.supervisor, server.folder)), flush=True)
input()
"""


def rows(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description is not None else []


def test_a_database_is_empty_and_its_role_may_not_do_everything(postgres: Postgres, database: str) -> None:
    """What needs a superuser must not pass in the tests."""
    assert rows(database, "select count(*) from pg_tables where schemaname = 'public'") == [(0,)]
    assert rows(database, "select rolname::text, rolsuper from pg_roles where rolname = current_user") == [
        ("clew", False)
    ]
    assert rows(database, "create table t (n int) ") == []


def test_a_template_is_built_once_and_copied_for_each_test(postgres: Postgres) -> None:
    """What one test writes, the next does not see."""
    built: list[str] = []

    def build(url: str) -> None:
        built.append(url)
        rows(url, "create table kept (n int)")

    names = [postgres.create(postgres.template("a template", build)) for _ in range(2)]
    rows(postgres.url(names[0]), "insert into kept values (1)")
    assert [rows(postgres.url(name), "select * from kept") for name in names] == [[(1,)], []]
    assert len(built) == 1
    for name in names:
        postgres.drop(name)


def test_a_cut_breaks_connections_and_refuses_new_ones(postgres: Postgres, postgres_proxy: Proxy) -> None:
    """Until it is mended."""
    url = postgres.url("postgres", postgres_proxy.address)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select 1")
        postgres_proxy.cut()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
    postgres_proxy.restore()
    assert rows(url, "select 1") == [(1,)]


def test_a_stall_holds_back_and_loses_nothing(postgres: Postgres, postgres_proxy: Proxy) -> None:
    """The connection stays: what was asked meanwhile is answered after it."""
    url = postgres.url("postgres", postgres_proxy.address)
    with psycopg.connect(url, autocommit=True) as connection:
        postgres_proxy.stall()
        with ThreadPoolExecutor(1) as other:
            answer = other.submit(lambda: connection.execute("select 7").fetchall())
            assert select.select([connection.fileno()], [], [], 0.05)[0] == []
            postgres_proxy.restore()
            assert answer.result(10) == [(7,)]


def test_a_dropped_reply_is_a_commit_that_nobody_heard_of(
    postgres: Postgres, database: str, postgres_proxy: Proxy
) -> None:
    """The client cannot know; the row is there."""
    rows(database, "create table t (n int)")
    name = database.partition("?")[0].rpartition("/")[2]
    with psycopg.connect(postgres.url(name, postgres_proxy.address), autocommit=True) as connection:
        postgres_proxy.drop_reply(b"insert")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("insert into t values (1)")
        assert postgres_proxy.dropped.wait(60)
    assert rows(database, "select n from t") == [(1,)]
    assert rows(postgres.url(name, postgres_proxy.address), "select n from t") == [(1,)]


def test_valkey_answers_behind_a_proxy_and_is_empty_for_each_test(valkey: Valkey, valkey_proxy: Proxy) -> None:
    with redis.Redis.from_url(valkey.url(valkey_proxy.address)) as client:
        assert client.keys() == []
        client.xadd("s", {"a": "1"})
        valkey.wipe()
        assert client.keys() == []


@pytest.mark.slow
def test_an_immediate_stop_keeps_what_was_acknowledged() -> None:
    """And the server that comes back is the same one; Valkey comes back empty."""
    server = Postgres()
    try:
        url = server.url(server.create())
        rows(url, "create table t (n int)")
        rows(url, "insert into t values (1)")
        server.restart()
        assert rows(url, "select n from t") == [(1,)]
    finally:
        server.close()
    assert not server.folder.exists()


def test_the_systems_postgres_is_used_where_it_is_installed(system_postgres: Postgres) -> None:
    [(number,)] = system_postgres.ask("select current_setting('server_version_num')::int / 10000")
    assert int(number) >= 15


def wait_for(ends: list[int]) -> None:
    for end in ends:
        assert select.select([end], [], [], 20)[0], "a server outlived its run"
        os.close(end)


@pytest.mark.slow
def test_servers_end_with_a_run_that_is_killed() -> None:
    """By SIGKILL, so that the run can do nothing; and when their supervisors are killed, whatever comes after."""
    root = Path(__file__).parents[2]
    with contextlib.ExitStack() as leaving:
        # Side by side: most of it is the making of two databases.
        runs = {
            killed: leaving.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", STARTS], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )
            for killed in ("run", "supervisors")
        }
        for killed, run in runs.items():
            leaving.callback(run.kill)
            assert run.stdout is not None
            words = run.stdout.readline().split()
            servers, supervisors = [int(words[0]), int(words[3])], [int(words[1]), int(words[4])]
            ends = [os.pidfd_open(pid) for pid in (*servers, *supervisors)]
            for pid in [run.pid] if killed == "run" else supervisors:
                os.kill(pid, signal.SIGKILL)
            wait_for(ends)
            folders = [Path(words[2]), Path(words[5])]
            assert [folder.exists() for folder in folders] == [killed == "supervisors"] * 2
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.rule("RP-4")
def test_who_holds_a_session_and_thinks_is_idle_to_the_server(postgres: Postgres, postgres_store_url: str) -> None:
    """Else the time-out that frees what a frozen process holds would never begin: in a pipeline it would be at work."""
    with connect(postgres_store_url) as connection, connection.pipeline() as pipeline:
        PostgresStatements(connection, pipeline).first("lock_state", {"id": "none"})
        question = "select state from pg_stat_activity where pid = %s"
        assert postgres.ask(question, connection.info.backend_pid) == [("idle in transaction",)]
