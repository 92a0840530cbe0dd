"""The command line on a store in PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shlex
import sqlite3
import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from psycopg.conninfo import conninfo_to_dict

import clew
from clew.store.base import FullSession, Store
from clew.store.unit import PutBlob, PutProjectRules
from clew.testing.chunks import text, tool_call, tool_output
from clew.testing.scribe import Scribe
from clew.testing.scripted import FakeProviders, ScriptedModel, hang
from tests.integration.command_line import Run, run
from tests.services.postgres import Postgres

__all__ = ["run"]

DOCS = Path(__file__).parents[2] / "docs"
BYTES = b"\x00\xff"

pytestmark = [pytest.mark.service, pytest.mark.rule("ST-12")]


async def fill(url: str) -> None:
    async with clew.open(url, config=clew.Config(), triggers=False) as engine:
        session = await engine.create_session(title="moved", metadata={"float": 1.5, "text": "ü\u2028", "none": None})
        scribe = Scribe(engine.store, session.id, engine.mint, engine.clock)
        await scribe.turn(
            "first", [*tool_call("bash", {"command": "ls"}), *tool_output({"out": "x \\u0041 \U0001f600"})]
        )
        _, user, _ = await scribe.turn("second", text("answered"))
        await scribe.commit(PutBlob(sha256(BYTES).hexdigest(), "text/plain", BYTES, 1), PutProjectRules("/w", (), 1))
        await engine.rewind(session.id, user)


async def told(url: str) -> list[Any]:
    """All that a store says of its sessions, but for what names them."""

    async def of(store: Store, session_id: str) -> Any:
        whole = await store.find_full_session(session_id)
        assert isinstance(whole, FullSession)
        data = [[part.data for part in row.parts] for row in whole.messages]
        known = msgspec.structs.asdict(whole.session)
        sums = [known[name] for name in ("agent", "prompt_tokens", "completion_tokens", "cost_usd")]
        kept = {
            key: value for key, value in whole.session.metadata.items() if key in ("float", "text", "none", "title")
        }
        states = [(turn.status, turn.depth) for turn in whole.tree.turns.values()]
        return data, sums, kept, sorted(states), len(whole.tree.moves), sorted(whole.seals.values())

    async with clew.open(url, config=clew.Config(), read_only=True) as engine:
        return [await of(engine.store, session_id) for session_id in await engine.store.session_ids()]


def test_a_store_is_converted_to_postgresql_and_back_and_is_sound_there(
    run: Run, tmp_path: Path, postgres_store_url: str
) -> None:
    """What the two show is compared by the command itself; a second time it finds all there."""
    old, new = f"sqlite:///{tmp_path}/old.db", f"sqlite:///{tmp_path}/new.db"
    asyncio.run(fill(old))
    before = asyncio.run(told(old))
    for source, target in ((old, postgres_store_url), (postgres_store_url, new)):
        code, out, err = run("convert", source, target)
        assert (code, err) == (0, "")
        assert "1 sessions written and compared, 0 already there" in out
        assert asyncio.run(told(target)) == before
    code, out, _ = run("convert", old, postgres_store_url)
    assert (code, "0 sessions written and compared, 1 already there" in out) == (0, True)
    code, out, err = run("check", "--store", postgres_store_url)
    assert (code, err) == (0, "")
    assert "1 sessions" in out
    code, out, err = run("convert", postgres_store_url, postgres_store_url)
    assert (code, "are the same" in err) == (2, True)


@pytest.mark.slow
def test_a_dump_is_put_back_by_the_lines_of_the_documentation(
    run: Run, tmp_path: Path, postgres: Postgres, postgres_store_url: str
) -> None:
    """Taken while the store is open; what comes out of it is sound, and is gone on with."""
    [lines] = re.findall(r"```sh\n(pg_dump.*?)```", (DOCS / "cluster.md").read_text(), re.DOTALL)
    asyncio.run(fill(postgres_store_url))
    given = conninfo_to_dict(postgres_store_url)
    env = {"PGHOST": str(given["host"]), "PGPASSWORD": str(given["password"]), "PGUSER": "postgres"}
    put_back = postgres_store_url.replace(f"/{given['dbname']}?", "/put_back?")

    async def restore() -> None:
        async with clew.open(postgres_store_url, config=clew.Config()):
            for line in lines.splitlines():
                words = shlex.split(line, comments=True)
                words = [word.replace("postgresql://clew@db/clew", postgres_store_url) for word in words]
                words = [word.replace("postgresql://clew@db/empty", put_back) for word in words]
                words = ["put_back" if word == "empty" else word for word in words]
                if words[0] == "clew":
                    checking.append(words[1:])
                    continue
                asking = [postgres.program(words[0]), *words[1:]]
                done = await asyncio.to_thread(
                    subprocess.run, asking, cwd=tmp_path, env=env, capture_output=True, text=True
                )
                assert (done.returncode, done.stderr) == (0, "")

    checking: list[list[str]] = []
    try:
        asyncio.run(restore())
        [check] = checking
        code, out, err = run(*check)
        assert (code, err, "1 sessions" in out) == (0, "", True)
        assert asyncio.run(told(put_back)) == asyncio.run(told(postgres_store_url))
        asyncio.run(fill(put_back))
        assert len(asyncio.run(told(put_back))) == 2
    finally:
        postgres.drop("put_back")


def test_commands_read_a_store_in_postgresql_and_name_what_it_cannot_do(
    run: Run, tmp_path: Path, postgres_store_url: str
) -> None:
    """Each says what to do instead, and none of them shows the password."""
    asyncio.run(fill(postgres_store_url))
    password = postgres_store_url.partition("clew:")[2].partition("@")[0]
    code, out, _ = run("ls", "--store", postgres_store_url)
    assert (code, "moved" in out) == (0, True)
    code, out, _ = run("search", "first", "--store", postgres_store_url)
    assert (code, "first" in out) == (0, True)
    code, out, err = run("backup", str(tmp_path / "copy"), "--store", postgres_store_url)
    assert (code, out) == (7, "")
    assert "pg_dump" in err
    assert password not in err


@pytest.mark.rule("EV-6")
def test_the_ledger_of_a_store_in_postgresql_is_written_too(run: Run, tmp_path: Path, postgres_store_url: str) -> None:
    """Source 004:21. With the ids of the store, and the same columns as that of a file."""
    asyncio.run(fill(postgres_store_url))
    file = tmp_path / "ledger.db"
    assert run("ledger", str(file), "--store", postgres_store_url) == (0, f"{file}\n", "")
    _, out, _ = run("ls", "--json", "--store", postgres_store_url)
    listed = {one["id"]: one["agent"] for one in json.loads(out)["sessions"]}
    with contextlib.closing(sqlite3.connect(file)) as ledger:
        assert dict(ledger.execute("SELECT id, persona FROM sessions WHERE kind = 'chat'")) == listed
        turns, roots, counted = ledger.execute(
            "SELECT count(*), count(root_turn_id), count(total_tokens) FROM turns"
        ).fetchone()
        assert turns == roots == counted > 0


@pytest.mark.rule("RP-4")
def test_a_command_takes_a_message_out_of_a_queue_that_nobody_serves_and_fires_none_of_it(
    run: Run, postgres_store_url: str
) -> None:
    """A command is gone in a moment: what it began it would have to stop."""

    async def leave() -> tuple[str, str]:
        providers = FakeProviders(ScriptedModel([hang()]))
        async with clew.open(postgres_store_url, config=clew.Config(), providers=providers) as engine:
            session = await engine.create_session(title="left")
            await engine.submit(session.id, "first")
            second = await engine.submit(session.id, "second")
            await engine.submit(session.id, "third")
            return session.id, second.message_id

    session_id, second = asyncio.run(leave())
    code, out, err = run("queue", session_id, "--cancel", second, "--store", postgres_store_url)
    assert (code, [line.split("  ")[1] for line in out.splitlines()], err) == (0, ["third"], "")


def test_a_database_that_holds_no_store_is_only_made_one_by_whoever_writes(run: Run, database: str) -> None:
    """A look makes nothing."""
    code, _, err = run("ls", "--store", database)
    assert (code, "contains no store yet; run `clew serve` to create one" in err) == (7, True)
    code, _, err = run("check", "--store", database)
    assert (code, "contains no store yet" in err) == (7, True)
