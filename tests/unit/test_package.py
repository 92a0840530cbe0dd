"""The package as a whole: what importing it loads, and what it makes public."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

import clew
from clew import errors
from clew.client import AsyncClient, Client
from clew.store.sql.sqlite.migrate import SCHEMA_VERSION
from clew.triggers.events import Events
from clew.triggers.schedules import Schedules
from clew.triggers.webhooks import Webhooks

# Top-level modules that `import clew` must not load: they belong to an extra, to a front or to the tests.
HEAVY = {
    "anthropic",
    "anyio",
    "tree_sitter",
    "cyclopts",
    "genai_prices",
    "google",
    "httpx",
    "httpx2",
    "hypothesis",
    "mcp",
    "openai",
    "opentelemetry",
    "prompt_toolkit",
    "psycopg",
    "pydantic",
    "pydantic_ai",
    "pytest",
    "redis",
    "rich",
    "sse_starlette",
    "starlette",
    "structlog",
    "uvicorn",
}

LOADED = "import json, sys; import clew; print(json.dumps(sorted(sys.modules)))"
SECONDS = "from time import perf_counter; t = perf_counter(); import {}; print(perf_counter() - t)"


def run_python(code: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def best_of_five(modules: str) -> float:
    return min(float(run_python(SECONDS.format(modules))) for _ in range(5))


def test_importing_clew_loads_nothing_heavy() -> None:
    """Servers, model libraries and terminal libraries load where they are used."""
    loaded: list[str] = json.loads(run_python(LOADED))
    assert {name.partition(".")[0] for name in loaded} & HEAVY == set()


def test_importing_clew_loads_neither_fronts_nor_test_tools() -> None:
    """The library does not know its adapters, nor the fakes that ship with it."""
    loaded: list[str] = json.loads(run_python(LOADED))
    assert [name for name in loaded if name.startswith(("clew.fronts", "clew.testing"))] == []


@pytest.mark.slow
def test_the_module_is_the_command() -> None:
    """`python -m clew` is the command `clew`."""
    shown = subprocess.run([sys.executable, "-m", "clew", "--version"], check=True, capture_output=True, text=True)
    assert shown.stdout == f"{clew.__version__} (store format {SCHEMA_VERSION})\n"


RELEASED = {"0.1.0": 22}
"""The store format of each released version."""


def test_a_new_store_format_raises_the_version() -> None:
    """Two releases with one number never write different tables."""
    assert RELEASED.get(clew.__version__, SCHEMA_VERSION) == SCHEMA_VERSION


def test_what_ships_for_tests_starts_no_process() -> None:
    """All of the package is in the wheel; what is killed, soaked or cut off from power lies with the tests."""
    programs = re.compile(r"^(?:import|from) (?:subprocess|signal|socket)\b|__main__", re.MULTILINE)
    files = sorted((Path(clew.__file__).parent / "testing").rglob("*.py"))
    assert [path.name for path in files if programs.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.slow
def test_the_time_to_import_clew_is_reported(record_property: Callable[[str, object], None]) -> None:
    """A figure beside that of the libraries it stands on; no limit is asserted."""
    ours = best_of_five("clew")
    floor = best_of_five("asyncio, sqlite3, orjson, msgspec")
    record_property(
        "figure",
        f"import clew: {ours * 1000:.0f} ms, {ours / floor:.1f} x asyncio+sqlite3+orjson+msgspec "
        f"({floor * 1000:.0f} ms)",
    )


def test_the_public_names_are_sorted() -> None:
    """Each once, in the order of `sorted`; the errors behind the others, as their own module lists them."""
    own = list(clew.__all__[: -len(errors.__all__)])
    assert own == sorted(set(own))
    assert list(clew.__all__) == [*own, *errors.__all__]


@pytest.mark.slow
@pytest.mark.rule("EM-5")
def test_the_client_needs_no_server_and_its_names_are_public() -> None:
    """Whoever talks to a server has installed the base alone; each name is there once, and nothing else is."""
    loaded: list[str] = json.loads(run_python(LOADED.replace("import clew;", "import clew.client;")))
    assert {name.partition(".")[0] for name in loaded} & {*HEAVY, "prompt_toolkit"} == set()
    from clew import client

    assert list(client.__all__) == sorted(client.__all__)
    there = {name for name in vars(client) if not name.startswith("_")} - {"annotations"}
    assert there == set(client.__all__)


def test_the_public_names_are_those_of_the_namespace() -> None:
    """Nothing that is there without an underscore is missing from `__all__`."""
    there = {name for name, value in vars(clew).items() if not isinstance(value, ModuleType)}
    assert {name for name in there if not name.startswith("_")} - {"Any", "TYPE_CHECKING"} - set(clew.__all__) == set()


@pytest.mark.parametrize("name", sorted(clew.__all__))
def test_a_public_name_resolves(name: str) -> None:
    """Lazy names included."""
    assert getattr(clew, name) is not None


def test_a_renamed_public_name_is_still_there_with_a_warning() -> None:
    """For one release."""
    with pytest.warns(DeprecationWarning, match="clew.UsageSaid is called clew.UsageUpdate now"):
        assert clew.UsageSaid is clew.UsageUpdate  # type: ignore[attr-defined,unused-ignore]


async def test_a_renamed_method_is_still_there_with_a_warning() -> None:
    """For one release."""
    async with clew.open("memory:") as engine:
        with pytest.warns(DeprecationWarning, match="Engine.figures is called Engine.metrics now"):
            old = engine.figures()
        assert old.splitlines()[0] == engine.metrics().splitlines()[0]


def test_what_an_engine_returns_is_public() -> None:
    """Every value, and what is in its fields: whoever gets one can name its type."""
    found: dict[type, str] = {}
    for owner in (clew.Engine, Events, Schedules, Webhooks):
        for name, member in inspect.getmembers(owner):
            function = member.fget if isinstance(member, property) else member
            if not name.startswith("_") and inspect.isfunction(function):
                returned = eval(function.__annotations__["return"], function.__globals__, _Names())
                collect(returned, f"{owner.__name__}.{name}", found)
    public = {getattr(clew, name) for name in clew.__all__}
    assert {where: kind.__name__ for kind, where in found.items() if kind not in public} == {}


class _Names(dict[str, Any]):
    """The public names, for annotations of what is imported for type checkers alone."""

    def __missing__(self, name: str) -> Any:
        if name in clew.__all__:
            return getattr(clew, name)
        raise KeyError(name)


def collect(kind: Any, where: str, found: dict[type, str]) -> None:
    """The classes of clew's that a type names, those in the fields of its structs too."""
    if arguments := typing.get_args(kind):
        for argument in arguments:
            collect(argument, where, found)
    elif inspect.isclass(kind) and kind.__module__.startswith("clew.") and kind not in found:
        found[kind] = where
        if issubclass(kind, msgspec.Struct):
            for field in msgspec.structs.fields(kind):
                collect(field.type, f"{kind.__name__}.{field.name}", found)


def test_every_error_is_public() -> None:
    """But for those by which something that is tried again tells itself, and which nobody else sees."""
    internal = {"SummaryFailed", "SummaryRejected", "_Unreachable"}
    for name in clew.__all__:
        getattr(clew, name)
    kinds, ahead = set(), [clew.ClewError]
    while ahead:
        kinds.add(kind := ahead.pop())
        ahead += kind.__subclasses__()
    named = {kind.__name__ for kind in kinds if not kind.__module__.startswith(("clew.fronts", "tests"))}
    assert named - internal - set(clew.__all__) == set()


@pytest.mark.rule("EM-5")
def test_a_turn_is_started_with_the_same_arguments_here_and_by_both_clients() -> None:
    """Only what comes of it differs: a stream, one that goes on after a cut, one without a loop."""
    engine, *clients = (
        [
            [(one.name, one.kind, one.default, one.annotation) for one in inspect.signature(way).parameters.values()]
            for way in typing.get_overloads(start)
        ]
        for start in (clew.Engine.start, AsyncClient.start, Client.start)
    )
    assert len(engine) == 2
    assert clients == [engine, engine]
