"""Backups by other programs, of a store that is written at the same time. ``tests/deploy`` tries Litestream."""

from __future__ import annotations

import asyncio
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

import clew
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, say, wait
from tests.integration.command_line import Run, run
from tests.integration.test_cli_postgres import fill, told
from tests.services.postgres import Postgres
from tests.unit.pages import DOCS, blocks

__all__ = ["run"]


@pytest.mark.service
@pytest.mark.slow
@pytest.mark.rule("ST-12")
def test_a_dump_that_is_made_while_an_answer_streams_is_restored_by_the_lines_of_the_page(
    run: Run, tmp_path: Path, postgres: Postgres, postgres_store_url: str
) -> None:
    """Into an empty database: settled sessions are equal, and of the answer every word is there that was shown."""
    [lines] = [block for block in blocks(DOCS / "how-to" / "backups.md", "sh") if "pg_dump" in block]
    dump, create, restore, check = (shlex.split(line) for line in lines.splitlines())
    assert [words[0] for words in (dump, create, restore, check)] == ["pg_dump", "createdb", "pg_restore", "clew"]
    given = conninfo_to_dict(postgres_store_url)
    env = {"PGHOST": str(given["host"]), "PGPASSWORD": str(given["password"]), "PGUSER": "postgres"}
    target = postgres_store_url.replace(f"/{given['dbname']}?", "/restored?")
    addresses = {"postgresql://clew@db/clew": postgres_store_url, "postgresql://clew@db/restored": target}

    def execute(words: list[str]) -> None:
        words = [postgres.program(words[0]), *words[1:]]
        for said, meant in addresses.items():
            words = [word.replace(said, meant) for word in words]
        done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")

    gate = Gate()
    words = "one two three four five "

    async def dump_while_it_streams() -> tuple[str, str]:
        providers = FakeProviders(ScriptedModel([[say(words), wait(gate), say("six.")]]))
        async with clew.open(postgres_store_url, config=clew.Config(), providers=providers) as engine:
            session = await engine.create_session(title="streams")
            stream = await engine.start(session.id, "Count")
            shown = ""
            async for chunk in stream:
                shown += chunk.get("delta", "")
                if shown == words:
                    break
            await gate.reached.wait()
            await asyncio.to_thread(execute, dump)
            gate.set()
            assert (await stream.wait()).status == "completed"
            return session.id, shown

    async def read(url: str, session_id: str) -> list[list[str]]:
        async with clew.open(url, config=clew.Config(), read_only=True) as engine:
            return [message.texts for message in await engine.messages(session_id)]

    asyncio.run(fill(postgres_store_url))
    before = asyncio.run(told(postgres_store_url))
    session_id, shown = asyncio.run(dump_while_it_streams())
    try:
        execute(create)
        execute(restore)
        code, out, err = run(*(addresses.get(word, word) for word in check[1:]))
        assert (code, err, "2 sessions, 0 problems" in out) == (0, "", True)
        assert asyncio.run(read(target, session_id)) == [["Count"], [shown]]
        assert asyncio.run(read(postgres_store_url, session_id)) == [["Count"], [words, "six."]]
        assert [one for one in asyncio.run(told(target)) if one in before] == before
    finally:
        postgres.drop("restored")


def test_the_page_names_every_kind_of_store() -> None:
    """Each with a way to back it up."""
    table = (DOCS / "how-to" / "backups.md").read_text(encoding="utf-8").partition("\n## ")[0]
    assert set(re.findall(r"`(\w+):`", table)) == {"sqlite", "json", "jsonl", "postgresql"}
