"""``clew new``: each starter is created as a user would, and its own tests are run there."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import clew
from clew.fronts.cli.commands.starters import KINDS
from tests.integration.command_line import Run, run
from tests.unit.test_examples_public import PUBLIC, used

__all__ = ["run"]

STARTERS = Path(clew.__file__).parent / "starters"
RUN_ALL = """
import os, sys
import pytest

def no_network(event, given):
    host = given[1][0] if event == "socket.connect" and isinstance(given[1], tuple) else None
    host = given[0] if event == "socket.getaddrinfo" else host
    if host not in (None, "127.0.0.1", "localhost", "::1"):
        raise RuntimeError(f"a test of a starter connects to {host}")

sys.addaudithook(no_network)
codes = []
for folder in sys.argv[1:]:
    os.chdir(folder)
    codes.append(int(pytest.main(["-q", "-W", "error", "-p", "no:cacheprovider"])))
sys.exit(max(codes))
"""


def files_of(kind: str) -> list[Path]:
    return sorted(path for path in (STARTERS / kind).rglob("*") if path.is_file() and "__pycache__" not in path.parts)


@pytest.mark.slow
def test_the_tests_of_every_starter_pass_without_a_key_or_a_network(run: Run, tmp_path: Path) -> None:
    """In folders of their own, by plain pytest without plugins, as somebody who has just made them."""
    for kind in KINDS:
        code, out, err = run("new", kind, f"made/{kind}")
        assert (code, err) == (0, "")
        assert f"cd made/{kind}\n" in out
    env = {name: os.environ[name] for name in ("PATH", "PYTHONPYCACHEPREFIX") if name in os.environ}
    env |= {"HOME": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-c", RUN_ALL, *(str(tmp_path / "made" / kind) for kind in KINDS)]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" passed in ") == len(KINDS)


def test_a_starter_is_copied_under_the_name_of_its_folder(run: Run, tmp_path: Path) -> None:
    """Nothing else differs from what ships, but for the version of clew that it needs at least."""
    folder = tmp_path / "My first Batch!"
    folder.mkdir()
    assert run("new", "batch", str(folder))[0] == 0
    assert sorted(path.name for path in folder.iterdir()) == [path.name for path in files_of("batch")]
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == "my-first-batch"
    assert project["dependencies"] == [f"clew-sessions[cli,models]>={clew.__version__}"]
    assert (folder / "README.md").read_text("utf-8").startswith("# my-first-batch\n")
    for path in files_of("batch"):
        if path.name not in ("pyproject.toml", "README.md"):
            assert (folder / path.name).read_bytes() == path.read_bytes()


def test_a_folder_that_is_not_empty_is_left_as_it_is(run: Run, tmp_path: Path) -> None:
    """And so is a file of that name; the error names what to do."""
    (tmp_path / "batch").mkdir()
    (tmp_path / "batch" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for words, name in ((("batch",), "batch"), (("batch", "file"), "file"), (("batch", "link"), "link")):
        why = (
            f"clew: {name} exists and is not an empty folder; name another one: clew new KIND FOLDER (invalid_input)\n"
        )
        assert run("new", *words) == (2, "", why)
    assert [path.name for path in (tmp_path / "batch").iterdir()] == ["mine.txt"]


def test_the_starters_are_listed(run: Run) -> None:
    """Each that ships, in one line; an unknown one is refused with those there are."""
    code, listed, err = run("new")
    assert (code, err) == (0, "")
    assert sorted(line.split()[0] for line in listed.splitlines()) == sorted(path.name for path in STARTERS.iterdir())
    assert run("new", "batch", "--list") == (0, listed, "")
    code, out, err = run("new", "chess")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert all(kind in err for kind in KINDS)


@pytest.mark.rule("EM-1")
@pytest.mark.parametrize("kind", KINDS)
def test_a_starter_is_short_and_uses_public_names_alone(kind: str) -> None:
    """Its tests use ``clew.testing``, too; what its project needs are extras of clew and pytest."""
    for path in files_of(kind):
        if path.suffix != ".py":
            continue
        text = path.read_text("utf-8")
        is_test = path.name.startswith("test_")
        assert is_test or len(text.splitlines()) < 120, path
        found = {name for name in used(ast.parse(text)) if name.split(".")[0] == "clew"}
        for name in found - {"clew", "clew.server"}:
            module, _, last = name.rpartition(".")
            assert (is_test and name.startswith("clew.testing.")) or last in PUBLIC.get(module, ()), (path, name)
    project = tomllib.loads((STARTERS / kind / "pyproject.toml").read_text("utf-8"))
    modules = sorted(path.stem for path in files_of(kind) if path.suffix == ".py" and not path.stem.startswith("test_"))
    assert sorted(project["tool"]["setuptools"]["py-modules"]) == modules
    assert project["project"]["optional-dependencies"] == {"test": ["pytest>=8"]}
