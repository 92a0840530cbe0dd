"""The documentation says what the code does: diagrams, names, tables."""

from __future__ import annotations

import contextlib
import inspect
import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import clew
from clew import errors
from clew.ids import Mint
from clew.live.base import EventType
from clew.providers.base import FailureCause, FailureKind
from clew.session.hooks import CHANGING, OBSERVING
from clew.store.facts import FactType
from clew.store.sql.sqlite.migrate import SCHEMA_VERSION
from clew.store.sql.statements import read_sql
from clew.testing.chunks import reply, step, text, tool_call
from clew.testing.clock import FakeClock
from clew.testing.scribe import Scribe
from clew.transcript.chunk import decode_rows, encode_rows
from clew.triggers.events import Events
from clew.triggers.schedules import Schedules
from clew.triggers.webhooks import Webhooks
from tests.rig.failpoint_names import failpoint_names
from tests.unit.pages import DOCS, blocks, section
from tests.unit.state_diagrams import tool_diagram, turn_diagram
from tools import reference


def first_cells(table: str) -> list[str]:
    """The names in backticks that begin the rows of a table."""
    return re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)


# Diagrams


@pytest.mark.parametrize(("name", "diagram"), [("turn_state", turn_diagram()), ("tool_state", tool_diagram())])
def test_the_state_diagrams_are_drawn_from_the_tables(name: str, diagram: str) -> None:
    """A transition that is added to a table is missing from the page until it is drawn again."""
    design = (DOCS / "design.md").read_text(encoding="utf-8")
    found = re.findall(rf"<!-- diagram: {name} -->\n```mermaid\n(.*?)```\n<!-- end -->", design, re.DOTALL)
    assert found == [diagram]


# The reference


def test_the_generated_pages_are_what_the_code_says() -> None:
    """``make reference`` writes them; a page that nothing writes any more is removed."""
    written = reference.written()
    committed = {page: page.read_text(encoding="utf-8") for page in written if page.is_file()}
    assert committed == {page: text.rstrip() + "\n" for page, text in written.items()}
    assert set(reference.REFERENCE.glob("*.md")) == {page for page in written if page.parent == reference.REFERENCE}


def test_every_method_route_error_and_setting_has_its_place_in_the_reference() -> None:
    """The generator must not lose any; the names are compared with the code's own lists."""
    from clew.fronts.operations.table import OPERATIONS

    pages = {page.stem: page.read_text(encoding="utf-8") for page in reference.REFERENCE.glob("*.md")}
    headings = [line for text in pages.values() for line in re.findall(r"^### `(.+)`$", text, re.MULTILINE)]
    methods = [name for name, _ in inspect.getmembers(clew.Engine, inspect.isfunction) if not name.startswith("_")]
    for prefix, kind in (("events.", Events), ("schedules.", Schedules), ("webhooks.", Webhooks)):
        methods += [f"{prefix}{name}" for name, _ in inspect.getmembers(kind, inspect.isfunction) if name[0] != "_"]
    routes = [f"{one.method} {one.path}" for one in OPERATIONS]
    assert [name for name in (*methods, *routes) if headings.count(name) != 1] == []
    assert sorted(first_cells(pages["hooks"])) == sorted(CHANGING | OBSERVING)
    assert sorted(first_cells(pages["events"])) == sorted(get_args(EventType))
    codes = set(re.findall(r"^\| `([a-z_]+)` \|", pages["errors"], re.MULTILINE))
    assert {getattr(errors, name).code for name in errors.__all__} - codes == set()
    settings = re.findall(r"^\| `([a-z_.]+)` \| `([^`]*)` \|", pages["config"].partition("\n## ")[0], re.MULTILINE)
    assert dict(settings) == dict(_settings(clew.Config(), ""))
    kinds = section(reference.REFERENCE / "models.md", "Kinds of failures")
    assert first_cells(kinds) == list(get_args(FailureKind))
    assert first_cells(section(reference.REFERENCE / "models.md", "Causes")) == list(get_args(FailureCause))


def test_a_description_says_more_than_its_name() -> None:
    """Every setting, method, hook, event and error has one; the generator refuses a method or an error without."""
    config = (reference.REFERENCE / "config.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z_.]+)` \| .* \| ([^|]*) \|$", config, re.MULTILINE)
    assert len(rows) > 60
    assert [name for name, meaning in rows if len(meaning.split()) < 2] == []
    for page in ("hooks.md", "events.md", "models.md"):
        cells = re.findall(r"^\| `[^`]+` \| (.*) \|$", (reference.REFERENCE / page).read_text(), re.MULTILINE)
        assert [cell for cell in cells if not cell.split("|")[-1].strip()] == []


def _settings(group: msgspec.Struct, under: str) -> Iterator[tuple[str, str]]:
    for name in group.__struct_fields__:
        value = getattr(group, name)
        if isinstance(value, msgspec.Struct):
            yield f"{under}{name}", f"{type(value).__name__}()"
            yield from _settings(value, f"{under}{name}.")
        else:
            yield f"{under}{name}", json.dumps(value)


def test_every_key_of_a_manifest_is_in_the_how_to() -> None:
    """And none that would be an error."""
    from clew.agents.manifest import _KEYS

    assert sorted(first_cells(section(DOCS / "how-to/agents.md", "Write an agent"))) == sorted(_KEYS)


def test_every_failpoint_is_in_the_how_to() -> None:
    """And none that is not there."""
    assert sorted(first_cells(section(DOCS / "how-to/tests.md", "Make it fail where you want"))) == sorted(
        failpoint_names()
    )


# The storage format

FORMAT = DOCS / "storage-format"


def schema() -> dict[str, list[str]]:
    """The tables and views of ``schema.sql`` with their columns in order."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db, db:
        db.executescript(read_sql("sqlite/schema.sql"))
        made = db.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name")
        return {name: [row[1] for row in db.execute(f"PRAGMA table_info({name})")] for (name,) in made.fetchall()}


def test_every_table_view_and_column_is_described() -> None:
    """Each has a section of its own, whose rows are its columns in order."""
    described = {
        name: first_cells(section(FORMAT / ("ledger-views.md" if is_view(name) else "tables.md"), f"`{name}`"))
        for name in schema()
    }
    assert described == schema()


def is_view(name: str) -> bool:
    return name.startswith("ledger_") and name != "ledger_events"


def test_the_three_tables_are_written_out_as_a_new_store_has_them() -> None:
    """For the program of another author that makes a database from the page."""
    made = (
        "SELECT name, sql FROM sqlite_master WHERE name IN ('chat_sessions', 'chat_messages', 'chat_parts') ORDER BY 1"
    )
    found = []
    for script in (blocks(FORMAT / "tables.md", "sql")[0], read_sql("sqlite/schema.sql")):
        with contextlib.closing(sqlite3.connect(":memory:")) as db, db:
            db.executescript(script)
            found.append(db.execute(made).fetchall())
        db.close()
    assert len(found[0]) == 3
    assert found[0] == found[1]


def test_every_fact_is_described() -> None:
    """In the table of types, in the order of the source."""
    cells = re.findall(r"^\| (`[^|]*`) \|", section(FORMAT / "search-and-ledger.md", "Facts"), re.MULTILINE)
    named = re.findall(r"`(\w+\.\w+)`", " ".join(cells))
    assert sorted(named) == sorted(get_args(FactType))


def test_every_table_is_in_the_picture() -> None:
    """The diagram names nothing that does not exist."""
    [picture] = [block for block in blocks(FORMAT / "tables.md", "mermaid") if block.startswith("erDiagram")]
    ends = re.findall(r"^    (\w+) \S+--\S+ (\w+) :", picture, re.MULTILINE)
    boxes = re.findall(r"^    (\w+) \{\n(.*?)^    \}", picture, re.DOTALL | re.MULTILINE)
    columns = {table: [line.split()[1] for line in body.splitlines()] for table, body in boxes}
    tables = {name: columns for name, columns in schema().items() if not is_view(name)}
    assert {name for pair in ends for name in pair} | set(columns) == set(tables)
    assert {table: [name for name in held if name not in tables[table]] for table, held in columns.items()} == {
        table: [] for table in columns
    }


def test_every_index_and_every_version_is_described() -> None:
    """An index says whose it is; a version says what it added."""
    page = (FORMAT / "tables.md").read_text(encoding="utf-8")
    with contextlib.closing(sqlite3.connect(":memory:")) as db, db:
        db.executescript(read_sql("sqlite/schema.sql"))
        indexes = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND sql NOT NULL")]
    assert [index for index in indexes if f"`{index}`" not in page] == []
    versions = re.findall(r"^\| (\d+) \|", section(FORMAT / "changelog.md", "Versions"), re.MULTILINE)
    assert [str(version) for version in range(1, SCHEMA_VERSION + 1) if str(version) not in versions] == []


def test_the_journal_row_in_the_text_is_one() -> None:
    """It decodes, and what is encoded again is the same."""
    page = (FORMAT / "streams.md").read_text(encoding="utf-8")
    [row] = re.findall(r"<!-- example: journal row -->\n```json\n(.*?)```", page, re.DOTALL)
    assert json.loads(encode_rows(decode_rows(row))) == json.loads(row)


async def test_the_reader_in_the_text_sees_what_is_only_in_the_journal(tmp_path: Path) -> None:
    """Half-way through a text and through the arguments of a call, and after the stream has ended."""
    [source] = blocks(FORMAT / "streams.md", "python")
    names: dict[str, Any] = {}
    exec(source, names)
    path = tmp_path / "store.db"
    async with clew.open(f"sqlite:///{path}", clock=(clock := FakeClock())) as engine:
        opened = await (await Scribe.create(engine.store, clock=clock)).prompt("go")
        recorder = opened.recorder()
        mid = recorder.message.id
        journalled = 0
        for chunk in reply(step(text("one two three"), tool_call("look", {"at": "the door", "n": 1})), id=mid):
            recorder.write(chunk)
            await recorder.flush()
            assert names["read_parts"](str(path), mid) == recorder.fold.parts
            journalled += len(await engine.store.pending_streams())
        await recorder.close(*opened.settling())
        assert names["read_parts"](str(path), mid) == recorder.fold.parts
    assert journalled > 3


async def test_the_reader_in_the_text_tells_streams_apart_whose_ids_end_the_same(tmp_path: Path) -> None:
    """One of them goes by its end, the other by its whole id."""
    [source] = blocks(FORMAT / "streams.md", "python")
    names: dict[str, Any] = {}
    exec(source, names)
    path = tmp_path / "store.db"
    async with clew.open(f"sqlite:///{path}", clock=(clock := FakeClock())) as engine:
        mint = Mint(clock, lambda limit: 7)
        streams = []
        for said in ("one", "two"):
            opened = await (await Scribe.create(engine.store, clock=clock, mint=mint)).prompt("go")
            recorder = opened.recorder()
            for chunk in text(said, open=True):
                recorder.write(chunk)
            await recorder.flush()
            streams.append((opened, recorder))
        for opened, recorder in streams:
            assert names["read_parts"](str(path), recorder.message.id) == recorder.fold.parts
            await recorder.close(*opened.settling())


def test_every_hop_of_the_walks_is_in_the_code() -> None:
    """A module that is there, and in it what the hop names."""
    source = Path(clew.__file__).parent
    hops = re.findall(r"^\d+\. (.+)$", section(DOCS / "design.md", "Four walks"), re.MULTILINE)
    assert len(hops) > 60
    for hop in [part for line in hops for part in re.split("→|; ", line)]:
        for module in re.findall(r"`([a-z_]+/[a-z_/]+)`", hop)[:1]:
            code = (source / f"{module}.py").read_text(encoding="utf-8")
            names = [name.rpartition(".")[2] for name in re.findall(r"`([A-Za-z_.]+)`", hop)]
            assert [name for name in names if not re.search(rf"\b(def|class) {name}\b", code)] == [], hop


def test_every_module_in_the_table_of_the_run_is_in_the_code() -> None:
    """Below the folder that the section names."""
    cells = re.findall(r"^\| (`[^|]+) \|", section(DOCS / "design.md", "The run"), re.MULTILINE)
    modules = re.findall(r"`([a-z_/]+)`", " ".join(cells))
    assert len(modules) > 20
    session = Path(clew.__file__).parent / "session"
    assert [module for module in modules if not (session / f"{module}.py").is_file()] == []
