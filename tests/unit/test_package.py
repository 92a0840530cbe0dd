"""The package as a whole: what importing it loads, and what it makes public."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import clew

# Top-level modules that `import clew` must not load: they belong to an extra, to a front or to the tests.
HEAVY = {
    "acp",
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


def test_the_module_is_the_command() -> None:
    """`python -m clew` is the command `clew`."""
    shown = subprocess.run([sys.executable, "-m", "clew", "--version"], check=True, capture_output=True, text=True)
    assert shown.stdout == f"{clew.__version__}\n"


def test_what_ships_for_tests_starts_no_process() -> None:
    """All of the package is in the wheel; what is killed, soaked or cut off from power lies with the tests."""
    programs = re.compile(r"^(?:import|from) (?:subprocess|signal|socket)\b|__main__", re.MULTILINE)
    files = sorted((Path(clew.__file__).parent / "testing").rglob("*.py"))
    assert [path.name for path in files if programs.search(path.read_text(encoding="utf-8"))] == []


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
    """One list, in the order of `sorted`, each name once."""
    assert list(clew.__all__) == sorted(set(clew.__all__))


def test_the_public_names_are_those_of_the_namespace() -> None:
    """Nothing public is missing from `__all__`, and nothing in it is missing from the package."""
    public = {
        name for name in dir(clew) if not name.startswith("_") and name != "annotations" and not _is_submodule(name)
    }
    listed = {name for name in clew.__all__ if not name.startswith("_") and not _is_submodule(name)}
    assert listed == public


@pytest.mark.parametrize("name", sorted(clew.__all__))
def test_a_public_name_resolves(name: str) -> None:
    """Lazy names included."""
    assert getattr(clew, name) is not None


def _is_submodule(name: str) -> bool:
    return isinstance(getattr(clew, name), ModuleType)
