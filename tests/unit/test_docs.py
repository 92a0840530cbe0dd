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
from clew.fronts.http.problem import status_of
from clew.ids import Mint
from clew.live.base import EventType
from clew.providers.demo import DEMO_MODELS
from clew.session.hooks import CHANGING, OBSERVING
from clew.store.facts import FactType
from clew.store.sql.queries import read_sql
from clew.store.sql.sqlite.migrate import SCHEMA_VERSION
from clew.testing.chunks import reply, step, text, tool_call
from clew.testing.clock import FakeClock
from clew.testing.scribe import Scribe
from clew.tools.base import Tool
from clew.tools.builtin import BUILTIN
from clew.transcript.chunk import decode_rows, encode_rows
from clew.triggers.events import Events
from clew.triggers.schedules import Schedules
from clew.triggers.webhooks import Webhooks
from tests.rig.failpoint_names import failpoint_names
from tests.unit.pages import DOCS, blocks, section
from tests.unit.state_diagrams import tool_diagram, turn_diagram


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


# Names


def test_every_public_name_is_in_the_reference() -> None:
    """With one line about it, in the table of names; the errors have a table of their own."""
    listed = first_cells(section(DOCS / "reference.md", "Public names"))
    assert sorted(listed) == sorted(set(clew.__all__) - set(errors.__all__))


def test_every_error_code_is_in_the_reference() -> None:
    """In one row with the class."""
    rows = error_rows()
    assert [name for name in errors.__all__ if f"`{name}`" not in rows.get(getattr(errors, name).code, "")] == []


def error_rows() -> dict[str, str]:
    """The rows of the table of errors by their code, without it."""
    table = section(DOCS / "reference.md", "Errors")
    return {row[1]: row[2] for row in re.finditer(r"^\| `([a-z_]+)` \| (.*)$", table, re.M)}


def test_every_error_has_its_status_and_its_exit_code_in_the_reference() -> None:
    """As the fronts have them."""
    from clew.fronts.cli.command import EXIT_CODES

    written, expected = {}, {}
    for name in errors.__all__:
        error = getattr(errors, name)("for a test")
        _, _, status, exit_code, *_ = (cell.strip() for cell in error_rows()[error.code].split("|"))
        written[name] = (status, exit_code)
        code = next((code for kind, code in EXIT_CODES if isinstance(error, kind)), 1)
        expected[name] = (str(status_of(error)), str(code))
    assert written == expected


def test_every_method_of_the_engine_is_in_the_reference_with_its_signature() -> None:
    """Parameters in order, with their defaults; types are left to the code."""
    written = "\n".join(blocks(DOCS / "reference.md", "text"))
    expected = [f"open{_plain_signature(inspect.unwrap(clew.open))}\n"]
    for name, method in inspect.getmembers(clew.Engine, inspect.isfunction):
        if not name.startswith("_"):
            expected.append(f"{name}{_plain_signature(method)} -> ")
    for attribute, kind in (("events", Events), ("schedules", Schedules), ("webhooks", Webhooks)):
        for name, method in vars(kind).items():
            if inspect.isfunction(method) and not name.startswith("_"):
                expected.append(f"{attribute}.{name}{_plain_signature(method)} -> ")
    missing = [line for line in expected if line not in written]
    assert missing == [], "not in a block ```text of docs/reference.md, below Engine (`clew.open` above it)"


def _plain_signature(function: Any) -> str:
    signature = inspect.signature(function)
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
        if parameter.name != "self"
    ]
    return str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)).replace("'", '"')


def test_every_setting_is_in_the_reference_with_its_default() -> None:
    """Those of a group under its name, which is in the table too."""
    rows = dict(
        re.findall(r"^\| `([a-z_.]+)` \| `([^`]*)` \|", section(DOCS / "reference.md", "Settings"), re.MULTILINE)
    )
    assert rows == dict(_settings(clew.Config(), ""))


def _settings(group: msgspec.Struct, under: str) -> Iterator[tuple[str, str]]:
    for name in group.__struct_fields__:
        value = getattr(group, name)
        if isinstance(value, msgspec.Struct):
            yield f"{under}{name}", f"{type(value).__name__}()"
            yield from _settings(value, f"{under}{name}.")
        else:
            yield f"{under}{name}", json.dumps(value)


def test_every_command_is_in_the_reference() -> None:
    """And no command that is not there."""
    from clew.fronts.cli.app import app

    commands = {name for name in app if not name.startswith("-") and name not in GROUPS}
    commands |= {f"{group} {name}" for group in GROUPS for name in app[group] if not name.startswith("-")}
    pattern = rf"^\| `clew ((?:(?:{'|'.join(GROUPS)}) )?[a-z][a-z-]*)"
    listed = re.findall(pattern, section(DOCS / "reference.md", "Commands"), re.MULTILINE)
    assert sorted(listed) == sorted(commands)


COMMANDS = ["serve", "chat", "run", "continue", "url", "ls", "show", "check", "backup", "models", "config", "demo"]
CARE_COMMANDS = ["rebuild"]
KEEPING_COMMANDS = ["queue", "abort", "archive", "rm", "diff"]
TRANSFER_COMMANDS = ["search", "export", "import"]
GROUPS = ("schedule", "hook", "rules", "token")
TRIGGER_COMMANDS = [
    "events",
    *(f"schedule {name}" for name in ("add", "ls", "show", "pause", "resume", "rm", "run")),
    *(f"hook {name}" for name in ("add", "ls", "show", "pause", "resume", "rotate", "rm")),
]
HISTORY_COMMANDS = [
    *("tree", "reflog", "rewind", "unrewind", "goto", "branch", "fork", "changes", "du", "context", "compact", "prune"),
]


@pytest.mark.parametrize(
    "command", [*COMMANDS, *CARE_COMMANDS, *KEEPING_COMMANDS, *HISTORY_COMMANDS, *TRANSFER_COMMANDS, *TRIGGER_COMMANDS]
)
def test_every_option_of_a_command_is_in_the_reference(command: str) -> None:
    """And none that the command does not take; what all take is said once."""
    from clew.fronts.cli.app import app

    found = app
    for word in command.split():
        found = found[word]
    taken = {
        name
        for argument in found.assemble_argument_collection()
        for name in argument.names
        if name.startswith("--") and not name.startswith("--no-")
    }
    table = section(DOCS / "reference.md", "Commands").replace("\\|", "/")
    [usage] = re.findall(rf"^\| `(clew {command}\b[^`]*)`", table, re.MULTILINE)
    assert set(re.findall(r"--[a-z-]+", usage)) | {"--store"} == taken


def test_every_slash_command_is_in_the_reference() -> None:
    """And none that is not there."""
    from clew.fronts.cli.chat.slash_commands import COMMANDS as SLASH

    cells = re.findall(r"^\| (`/[^|]*(?:\\\|[^|]*)*`) \|", section(DOCS / "reference.md", "Chat"), re.MULTILINE)
    assert sorted(re.findall(r"`/([a-z]+)", " ".join(cells))) == sorted(SLASH)


def test_every_route_is_in_the_reference() -> None:
    """With its method, and no route that is not there."""
    from clew.fronts.operations.table import OPERATIONS

    listed = first_cells(section(DOCS / "reference.md", "HTTP"))
    # As sets, so that a failure names the route.
    assert set(listed) == {f"{one.method} {one.path}" for one in OPERATIONS}
    assert len(listed) == len(OPERATIONS), "a route stands twice in the tables below HTTP of docs/reference.md"


def test_every_demo_model_hook_event_and_tool_is_in_the_reference() -> None:
    """Each with one line about it; of models the window, of hooks the kind, of tools what they take and need, too."""
    reference = DOCS / "reference.md"
    models = re.findall(r"^\| `(demo/\w+)` \| ([\d,]+) \|", section(reference, "Models"), re.MULTILINE)
    assert models == [(f"demo/{name}", f"{info.window:,}") for name, info in DEMO_MODELS.items()]
    hooks = re.findall(r"^\| `([\w.]+)` \| ([a-z ]+) \|", section(reference, "Hooks"), re.MULTILINE)
    kinds = [*((name, "may change") for name in CHANGING), *((name, "observes") for name in OBSERVING)]
    assert sorted(hooks) == sorted(kinds)
    cells = re.findall(r"^\| (`[^|]*`) \|", section(reference, "Events"), re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(cells))) == sorted(get_args(EventType))
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (yes|no) \|", section(reference, "Tools"), re.MULTILINE)
    assert [(name, re.findall(r"`(\w+\??)`", takes), needs) for name, takes, needs in rows] == [
        (tool.name, arguments_of(tool), "yes" if tool.needs_workspace else "no") for tool in BUILTIN
    ]


def arguments_of(tool: Tool) -> list[str]:
    """Those that may be left out with a question mark."""
    required = tool.input_schema.get("required", [])
    return [name if name in required else f"{name}?" for name in tool.input_schema["properties"]]


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


def schema() -> dict[str, list[str]]:
    """The tables of ``schema.sql`` with their columns in order."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db, db:
        db.executescript(read_sql("sqlite/schema.sql"))
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        return {table: [row[1] for row in db.execute(f"PRAGMA table_info({table})")] for table in tables}


def test_every_table_and_column_is_described() -> None:
    """Each table has a section of its own, whose rows are its columns in order."""
    described = {table: first_cells(section(DOCS / "storage-format.md", f"`{table}`")) for table in schema()}
    assert described == schema()


def test_the_three_tables_are_written_out_as_a_new_store_has_them() -> None:
    """For the program of somebody else that makes a database from the page."""
    made = (
        "SELECT name, sql FROM sqlite_master WHERE name IN ('chat_sessions', 'chat_messages', 'chat_parts') ORDER BY 1"
    )
    found = []
    for script in (blocks(DOCS / "storage-format.md", "sql")[0], read_sql("sqlite/schema.sql")):
        with contextlib.closing(sqlite3.connect(":memory:")) as db, db:
            db.executescript(script)
            found.append(db.execute(made).fetchall())
        db.close()
    assert len(found[0]) == 3
    assert found[0] == found[1]


def test_every_view_of_the_ledger_is_described() -> None:
    """Each has a section of its own, whose rows are its columns in order."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db, db:
        db.executescript(read_sql("sqlite/schema.sql"))
        views = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'view' ORDER BY name")]
        columns = {view: [row[1] for row in db.execute(f"PRAGMA table_info({view})")] for view in views}
    assert [view for view in views if not view.startswith("ledger_")] == []
    assert {view: first_cells(section(DOCS / "storage-format.md", f"`{view}`")) for view in views} == columns


def test_every_fact_is_described() -> None:
    """In the table of types, in the order of the source."""
    cells = re.findall(r"^\| (`[^|]*`) \|", section(DOCS / "storage-format.md", "Facts"), re.MULTILINE)
    named = re.findall(r"`(\w+\.\w+)`", " ".join(cells))
    assert sorted(named) == sorted(get_args(FactType))


def test_every_table_is_in_the_picture() -> None:
    """The diagram names nothing that does not exist."""
    [picture] = [block for block in blocks(DOCS / "storage-format.md", "mermaid") if block.startswith("erDiagram")]
    ends = re.findall(r"^    (\w+) \S+--\S+ (\w+) :", picture, re.MULTILINE)
    boxes = re.findall(r"^    (\w+) \{\n(.*?)^    \}", picture, re.DOTALL | re.MULTILINE)
    columns = {table: [line.split()[1] for line in body.splitlines()] for table, body in boxes}
    tables = schema()
    assert {name for pair in ends for name in pair} | set(columns) == set(tables)
    assert {table: [name for name in held if name not in tables[table]] for table, held in columns.items()} == {
        table: [] for table in columns
    }


def test_every_index_and_every_version_is_described() -> None:
    """An index says whose it is; a version says what it added."""
    page = (DOCS / "storage-format.md").read_text(encoding="utf-8")
    with contextlib.closing(sqlite3.connect(":memory:")) as db, db:
        db.executescript(read_sql("sqlite/schema.sql"))
        indexes = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND sql NOT NULL")]
    assert [index for index in indexes if f"`{index}`" not in page] == []
    versions = re.findall(r"^\| (\d+) \|", section(DOCS / "storage-format.md", "Changelog of the format"), re.MULTILINE)
    assert [str(version) for version in range(1, SCHEMA_VERSION + 1) if str(version) not in versions] == []


def test_the_journal_row_in_the_text_is_one() -> None:
    """It decodes, and what is encoded again is the same."""
    page = (DOCS / "storage-format.md").read_text(encoding="utf-8")
    [row] = re.findall(r"<!-- example: journal row -->\n```json\n(.*?)```", page, re.DOTALL)
    assert json.loads(encode_rows(decode_rows(row))) == json.loads(row)


async def test_the_reader_in_the_text_sees_what_is_only_in_the_journal(tmp_path: Path) -> None:
    """Half-way through a text and through the arguments of a call, and after the stream has ended."""
    [source] = blocks(DOCS / "storage-format.md", "python")
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
    [source] = blocks(DOCS / "storage-format.md", "python")
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
    cells = re.findall(r"^\| (`[^|]+) \|", section(DOCS / "design/run.md", "The run"), re.MULTILINE)
    modules = re.findall(r"`([a-z_/]+)`", " ".join(cells))
    assert len(modules) > 20
    session = Path(clew.__file__).parent / "session"
    assert [module for module in modules if not (session / f"{module}.py").is_file()] == []
