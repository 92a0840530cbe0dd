"""What PostgreSQL reads for an answer about one session, on a database with many: that one, by an index."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from clew.errors import InvalidInput
from clew.store.sql.postgres.connection import QUERIES
from clew.store.sql.postgres.opening import open_postgres

MANY = 20_000
FILL = f"""
INSERT INTO chat_sessions (id, agent, model_json, parent_id, metadata_json, created_at, updated_at)
SELECT 's' || g, 'a', '{{}}', CASE WHEN g % 10 = 0 THEN 's' || (g / 10) END, '{{}}', g, g
FROM generate_series(1, {MANY}) g;
INSERT INTO model_calls (id, session_id, purpose, provider_id, model_id,
    input, output, reasoning, cache_read, cache_write, cost_usd, asked_at, ended)
SELECT 'c' || g, 's' || g, 'answer', 'p', 'm', 0, 0, 0, 0, 0, 0, g, 'finished' FROM generate_series(1, {MANY}) g;
"""


@pytest.mark.service
@pytest.mark.slow
@pytest.mark.rule("ST-12", "ST-15")
@pytest.mark.parametrize(("name", "given"), [("load_calls", "s7"), ("load_spend", '["s7"]')])
def test_what_one_session_has_spent_is_read_without_the_others(postgres_store_url: str, name: str, given: str) -> None:
    """Also where the planner expects more of them than there are."""
    statement, _ = QUERIES[name]
    with psycopg.connect(postgres_store_url, autocommit=True, cursor_factory=psycopg.RawCursor) as connection:
        connection.execute(FILL.encode())
        connection.execute("ANALYZE")
        plan: list[Any] = connection.execute(f"EXPLAIN {statement}".encode(), (given,)).fetchall()
    assert [line for (line,) in plan if "Seq Scan" in line] == []


@pytest.mark.rule("ST-12")
async def test_an_address_that_is_no_text_is_told_like_any_other_that_cannot_be_read() -> None:
    """As a command line hands on bytes that are not UTF-8."""
    with pytest.raises(InvalidInput, match="invalid PostgreSQL URL"):
        await open_postgres("postgresql://\udcff/x")
