"""Server fixtures, one of each per worker: ``postgres``, ``valkey``, and one database per test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.services.program import NoService
from tests.services.proxy import Proxy

# The drivers are imported only when a test uses a server.
if TYPE_CHECKING:
    from tests.services.postgres import Postgres
    from tests.services.valkey import Valkey

__all__ = [
    "database",
    "postgres",
    "postgres_proxy",
    "postgres_store_url",
    "system_postgres",
    "valkey",
    "valkey_proxy",
    "worker_valkey",
]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """PostgreSQL 18, shared by the tests of a worker; a test that stops or kills it creates its own."""
    from tests.services.postgres import Postgres, postgres_of_the_wheel

    try:
        server = Postgres(postgres_of_the_wheel(), fsync=False)
    except NoService as missing:
        pytest.skip(str(missing))
    yield server
    server.close()


@pytest.fixture(scope="session")
def system_postgres() -> Iterator[Postgres]:
    """The system's PostgreSQL, 15 on Debian 12."""
    from tests.services.postgres import Postgres, postgres_of_the_system

    try:
        server = Postgres(postgres_of_the_system(), fsync=False)
    except NoService as missing:
        pytest.skip(str(missing))
    yield server
    server.close()


@pytest.fixture
def database(postgres: Postgres) -> Iterator[str]:
    """The URL of an empty database, dropped after the test."""
    name = postgres.create()
    yield postgres.url(name)
    postgres.drop(name)


@pytest.fixture
def postgres_proxy(postgres: Postgres) -> Iterator[Proxy]:
    """A proxy; ``postgres.url(name, postgres_proxy.address)`` connects through it."""
    with Proxy(postgres.socket) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def worker_valkey() -> Iterator[Valkey]:
    from tests.services.valkey import Valkey

    try:
        server = Valkey()
    except NoService as missing:
        pytest.skip(str(missing))
    yield server
    server.close()


@pytest.fixture
def valkey(worker_valkey: Valkey) -> Valkey:
    """Valkey 9, empty, shared by the tests of a worker; a test that stops or kills it creates its own."""
    worker_valkey.wipe()
    return worker_valkey


@pytest.fixture
def valkey_proxy(valkey: Valkey) -> Iterator[Proxy]:
    """A proxy; ``valkey.url(valkey_proxy.address)`` connects through it."""
    with Proxy(valkey.socket) as proxy:
        yield proxy


@pytest.fixture
def postgres_store_url(postgres: Postgres) -> Iterator[str]:
    """The URL of a database with an empty store, dropped after the test."""

    def build(url: str) -> None:
        import asyncio

        from clew.store.sql.postgres.opening import open_postgres

        async def make() -> None:
            await (await open_postgres(url)).close()

        # In its own event loop, whether or not the test has one.
        thread = threading.Thread(target=lambda: asyncio.run(make()))
        thread.start()
        thread.join()

    name = postgres.create(postgres.template("clew", build))
    yield postgres.url(name)
    postgres.drop(name)
