"""The documentation says what the code does: diagrams, names, tables and examples are compared with it, or run."""

from __future__ import annotations

import ast
import codeop
import inspect
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import clew
from clew import errors
from clew.dispatch.events import Events
from clew.dispatch.schedules import Schedules
from clew.dispatch.webhooks import Webhooks
from clew.fronts.http.problem import status_of
from clew.live.base import EventType
from clew.providers.demo import DEMO_MODELS
from clew.runtime.hooks import CHANGING, OBSERVING
from clew.store.facts import FactType
from clew.store.sql.queries import read_sql
from clew.store.sql.sqlite.migrate import SCHEMA_VERSION
from clew.testing.chunks import reply, step, text, tool_call
from clew.testing.clock import FakeClock
from clew.testing.failpoint_names import failpoint_names
from clew.testing.scribe import Scribe
from clew.tools.builtin import BUILTIN
from clew.transcript import tool_state, turn_state
from clew.transcript.chunk import decode_rows, encode_rows

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.glob("*.md")])
OWN_PAGES = [page for page in PAGES if page.name != "CONTRIBUTING.md"]
# Links to anywhere else would have to be looked after; these two are the changelog's, the third is the reader's own.
HOSTS = {"keepachangelog.com", "semver.org"}
OWN_MACHINE = re.compile(r"127\.0\.0\.1(:\d+)?")
MACHINE_PATH = re.compile(r"(?<![\w.:/$~-])/(?:home|root|Users|tmp|var|work|opt|mnt|usr|etc|private)(?:/|\b)|[A-Z]:\\")

# Runs Python that uses await outside of a function, as `python -m asyncio` does.
RUNNER = """
import ast, asyncio, inspect, sys
code = compile(open("example.py").read(), "example.py", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
result = eval(code, {"__name__": "__main__"})
if inspect.iscoroutine(result):
    asyncio.run(result)
"""


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page in one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def section(page: Path, heading: str) -> str:
    """What stands below a heading, down to the next one."""
    match = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", prose(page), re.DOTALL | re.MULTILINE)
    assert match, f"{name_of(page)} has no section {heading}"
    return match[1]


def first_cells(table: str) -> list[str]:
    """The names in backticks that begin the rows of a table."""
    return re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)


def environment(folder: Path) -> dict[str, str]:
    """No settings but an example's own."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("CLEW_", "XDG_"))}
    own = {"HOME": str(folder), "PATH": f"{Path(sys.executable).parent}:{env['PATH']}"}
    return env | own | {"PYTHONDONTWRITEBYTECODE": "1"}


def execute(folder: Path, command: list[str]) -> str:
    """Run an example in a folder of its own; what it prints."""
    env = environment(folder)
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# Diagrams


@pytest.mark.parametrize("table", [turn_state, tool_state], ids=lambda module: module.__name__.rpartition(".")[2])
def test_the_state_diagrams_are_drawn_from_the_tables(table: Any) -> None:
    """A transition that is added to a table is missing from the page until it is drawn again."""
    name = table.__name__.rpartition(".")[2]
    design = (DOCS / "design.md").read_text(encoding="utf-8")
    found = re.findall(rf"<!-- diagram: {name} -->\n```mermaid\n(.*?)```\n<!-- end -->", design, re.DOTALL)
    assert found == [table.diagram()]


# Names


def test_every_public_name_is_in_the_reference() -> None:
    """With one line about it, in the table of names."""
    listed = first_cells(section(DOCS / "reference.md", "Public names"))
    assert sorted(set(clew.__all__) - set(listed)) == []
    assert sorted(set(listed) - set(clew.__all__)) == []


def test_every_error_code_is_in_the_reference() -> None:
    """In one row with the class, which says whether the class is public."""
    missing = []
    for name in errors.__all__:
        row = error_rows().get(getattr(errors, name).code, "")
        if f"`{name}`" not in row or ("public" in row.partition("|")[0]) != (name in clew.__all__):
            missing.append(name)
    assert missing == []


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
    for name, method in vars(clew.Engine).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            assert f"{name}{_plain_signature(method)} -> " in written
    for attribute, kind in (("events", Events), ("schedules", Schedules), ("webhooks", Webhooks)):
        for name, method in vars(kind).items():
            if inspect.isfunction(method) and not name.startswith("_"):
                assert f"{attribute}.{name}{_plain_signature(method)} -> " in written
    assert f"open{_plain_signature(inspect.unwrap(clew.open))}\n" in written


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
    pattern = rf"^\| `clew ((?:(?:{'|'.join(GROUPS)}) )?[a-z]+)"
    listed = re.findall(pattern, section(DOCS / "reference.md", "Commands"), re.MULTILINE)
    assert sorted(listed) == sorted(commands)


COMMANDS = ["serve", "chat", "run", "continue", "url", "ls", "show", "check", "backup", "models", "config", "demo"]
CARE_COMMANDS = ["rebuild"]
KEEPING_COMMANDS = ["queue", "abort", "archive", "rm", "diff"]
TRANSFER_COMMANDS = ["search", "export", "import"]
GROUPS = ("schedule", "hook")
TRIGGER_COMMANDS = [
    "events",
    *(f"schedule {name}" for name in ("add", "ls", "show", "pause", "resume", "rm", "run")),
    *(f"hook {name}" for name in ("add", "ls", "show", "pause", "resume", "rotate", "rm")),
]
HISTORY_COMMANDS = ["tree", "reflog", "rewind", "unrewind", "goto", "branch", "fork", "context", "compact", "prune"]


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
    from clew.fronts.cli.slash import COMMANDS as SLASH

    cells = re.findall(r"^\| (`/[^|]*(?:\\\|[^|]*)*`) \|", section(DOCS / "reference.md", "Chat"), re.MULTILINE)
    assert sorted(re.findall(r"`/([a-z]+)", " ".join(cells))) == sorted(SLASH)


def test_every_route_is_in_the_reference() -> None:
    """With its method, and no route that is not there."""
    from starlette.applications import Starlette
    from starlette.routing import Route

    from clew.fronts.http.app import make_app

    layer: Any = make_app(Any, token="for-a-test", hosts=())  # type: ignore[arg-type]  # no route is called
    while not isinstance(layer, Starlette):
        layer = layer._app
    routes = [route for route in layer.routes if isinstance(route, Route)]
    served = {f"{method} {route.path}" for route in routes for method in (route.methods or set()) - {"HEAD"}}
    listed = first_cells(section(DOCS / "reference.md", "HTTP"))
    assert sorted(listed) == sorted(served)


def test_every_demo_model_hook_event_and_tool_is_in_the_reference() -> None:
    """Each with one line about it; of models the window, of hooks the kind, of tools what they need, too."""
    reference = DOCS / "reference.md"
    models = re.findall(r"^\| `(demo/\w+)` \| ([\d,]+) \|", section(reference, "Models"), re.MULTILINE)
    assert models == [(f"demo/{name}", f"{info.window:,}") for name, info in DEMO_MODELS.items()]
    hooks = re.findall(r"^\| `([\w.]+)` \| ([a-z ]+) \|", section(reference, "Hooks"), re.MULTILINE)
    kinds = [*((name, "may change") for name in CHANGING), *((name, "observes") for name in OBSERVING)]
    assert sorted(hooks) == sorted(kinds)
    cells = re.findall(r"^\| (`[^|]*`) \|", section(reference, "Events"), re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(cells))) == sorted(get_args(EventType))
    tools = re.findall(r"^\| `(\w+)` \| (yes|no) \|", section(reference, "Tools"), re.MULTILINE)
    assert tools == [(tool.name, "yes" if tool.needs_workspace else "no") for tool in BUILTIN]


def test_every_key_of_a_manifest_is_in_the_how_to() -> None:
    """And none that would be an error."""
    from clew.agents.manifest import _KEYS

    assert sorted(first_cells(section(DOCS / "how-to.md", "Write an agent"))) == sorted(_KEYS)


def test_every_failpoint_is_in_the_how_to() -> None:
    """And none that is not there."""
    assert sorted(first_cells(section(DOCS / "how-to.md", "Make it fail where you want"))) == sorted(failpoint_names())


# The storage format


def schema() -> dict[str, list[str]]:
    """The tables of ``schema.sql`` with their columns in order."""
    with sqlite3.connect(":memory:") as db:
        db.executescript(read_sql("sqlite/schema.sql"))
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        return {table: [row[1] for row in db.execute(f"PRAGMA table_info({table})")] for table in tables}


def test_every_table_and_column_is_described() -> None:
    """Each table has a section of its own, whose rows are its columns in order."""
    described = {table: first_cells(section(DOCS / "storage-format.md", f"`{table}`")) for table in schema()}
    assert described == schema()


def test_every_view_of_the_ledger_is_described() -> None:
    """Each has a section of its own, whose rows are its columns in order."""
    with sqlite3.connect(":memory:") as db:
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
    with sqlite3.connect(":memory:") as db:
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


# Examples


NEEDS_CURL = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def shell_block(holding: str) -> str:
    """The one shell block of the README that holds a text, for an environment that is active already."""
    [shell] = [block for block in blocks(README, "bash") if holding in block]
    script = shell.replace("source .venv/bin/activate\n", "")
    assert script != shell
    return script


def test_the_example_in_the_readme_runs(tmp_path: Path) -> None:
    """To its end: an echo, a call that was asked for and answered, and what is stored."""
    [source] = blocks(README, "python")
    assert source.startswith("# example: talk.py")
    (tmp_path / "talk.py").write_text(source, encoding="utf-8")
    assert execute(tmp_path, [sys.executable, "talk.py"]).splitlines() == [
        "Follow the thread back.",
        "roll done: a 20, of course",
        "user ['text']",
        "assistant ['step-start', 'text']",
        "user ['text']",
        "assistant ['step-start', 'tool-roll', 'step-start', 'text']",
    ]


@NEEDS_CURL
def test_the_calls_in_the_readme_do_what_it_says(tmp_path: Path) -> None:
    """The shell block, as it is there, against a server: a talk, an approval, a stream cut and joined again."""
    with (tmp_path / "address.txt").open("w") as out:
        server = subprocess.Popen(["clew", "serve", "--port", "0"], cwd=tmp_path, env=environment(tmp_path), stdout=out)
    try:
        deadline = time.monotonic() + 30
        while "token=" not in (tmp_path / "address.txt").read_text():
            assert server.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        printed = execute(tmp_path, ["bash", "-eu", "-c", shell_block("post chat")])
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(10)
    pieces = re.split(r'^(?=data: \{"type":"start",|user: )', printed, flags=re.MULTILINE)[1:]
    # Between the request and what came of it the rest of that run is shown, if it has not ended by then.
    (tour, asked), (shown, cut, joined) = pieces[:2], pieces[-3:]
    assert "ball " in tour
    assert '"tool-approval-request"' in asked
    assert '{"remaining":0}' in asked
    assert "assistant: bash done: hi [exit code 0]" in shown
    assert '"finish"' not in cut
    assert joined.rstrip().endswith("data: [DONE]")
    deltas = re.findall(r'"text-delta".*"delta":"(.*)"}$', joined, re.MULTILINE)
    assert len("".join(deltas).split()) == 100
    assert cut.split('"messageId":"')[1][:30] == joined.split('"messageId":"')[1][:30]


@NEEDS_CURL
def test_the_kill_in_the_readme_loses_nothing(tmp_path: Path) -> None:
    """The shell block, as it is there: what was seen before the kill is stored, and the judge is content."""
    seen, stored, status, verdict = execute(tmp_path, ["bash", "-eu", "-c", shell_block("kill -9")]).splitlines()
    words = seen.removeprefix("seen:   ")
    assert len(words.split()) >= 20
    assert stored.removeprefix("stored: assistant: ").startswith(words)
    assert (status, verdict) == ('{"state":"idle"}', "1 sessions, 0 problems")


@pytest.mark.parametrize("page", [DOCS / "quickstart.md", DOCS / "how-to.md"], ids=name_of)
def test_the_examples_of_a_page_run_from_top_to_bottom(tmp_path: Path, page: Path) -> None:
    """In one process, one after another, as somebody who follows the page would paste them."""
    (tmp_path / "example.py").write_text("\n\n".join(blocks(page, "python")), encoding="utf-8")
    execute(tmp_path, [sys.executable, "-c", RUNNER])


@pytest.mark.parametrize("page", [DOCS / "quickstart.md", DOCS / "how-to.md"], ids=name_of)
def test_the_examples_of_a_page_can_be_pasted(page: Path) -> None:
    """Into ``python -m asyncio``, which ends an indented block at a blank line, and only there."""
    compiler = codeop.CommandCompiler()
    compiler.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    for block in blocks(page, "python"):
        held: list[str] = []
        for line in [*block.splitlines(), ""]:
            held.append(line)
            if compiler("\n".join(held), "<pasted>") is not None:
                held = []
        assert held == []


def test_every_python_block_is_an_example_that_runs() -> None:
    """A page with an example that no test runs would grow old unseen."""
    assert [name_of(page) for page in OWN_PAGES if blocks(page, "python")] == [
        "README.md",
        "docs/how-to.md",
        "docs/quickstart.md",
        "docs/storage-format.md",
    ]
    for page in OWN_PAGES:
        for block in blocks(page, "python"):
            compile(block, name_of(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


# Links and paths


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as they are made for Markdown on the web."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    """To a file of this repository, and to a heading in it where one is named."""
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        there = (page.parent / file).resolve() if file else page
        if not there.is_file() or not there.is_relative_to(ROOT) or (anchor and anchor not in anchors(there)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_page_names_a_machine_or_a_registry(page: Path) -> None:
    """Paths of one machine and addresses of package registries mean nothing to a reader."""
    content = page.read_text(encoding="utf-8")
    assert MACHINE_PATH.findall(content) == []
    named = set(re.findall(r"https?://([^/\s)>\"`]+)", content))
    assert {host for host in named - HOSTS if not OWN_MACHINE.fullmatch(host)} == set()


def test_the_search_for_machine_paths_finds_them() -> None:
    """And leaves URLs, variables and paths of a user's own folder alone."""
    for bad in ("see /home/me/x", "`/tmp/x.db`", "sqlite at /var/x", "C:\\Users"):
        assert MACHINE_PATH.search(bad), bad
    for good in ("sqlite:////folder/file.db", "~/.config/clew", "$HOME/tmp/x", "docs/opt/x.md", "read/write"):
        assert not MACHINE_PATH.search(good), good


def test_every_page_is_in_the_table_of_the_readme() -> None:
    """A page nobody can find is not there."""
    linked = set(re.findall(r"\]\(([^)#]+)\)", section(README, "Documentation")))
    assert sorted(name_of(page) for page in PAGES if page != README and name_of(page) not in linked) == []
