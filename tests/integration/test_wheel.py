"""The wheel: it holds the built page and the starters, and what was installed from it serves and creates them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DIST = "clew/fronts/web/dist"
STARTERS = "clew/starters"
PAGE = {"index.html": "<!doctype html><title>from the wheel</title>", "assets/index-12345678.js": "export {}"}


def build(folder: Path) -> Path:
    """A wheel of a copy of this source, with a small page where the built one goes."""
    source = folder / "source"
    ignored = shutil.ignore_patterns("__pycache__", "dist")
    shutil.copytree(ROOT / "src", source / "src", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, source / name)
    for name, content in PAGE.items():
        path = source / "src" / DIST / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.mark.service
def test_what_is_installed_from_the_wheel_serves_the_page_and_creates_starters(tmp_path: Path) -> None:
    """Built without isolation and put into a folder of its own, with nothing of the checkout on the way."""
    wheel = build(tmp_path)
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as file:
        held = {name for name in file.namelist() if name.startswith(DIST)}
        starters = {name for name in file.namelist() if name.startswith(STARTERS)}
        file.extractall(installed)
    assert held == {f"{DIST}/{name}" for name in PAGE}
    there = [path for path in (ROOT / "src" / STARTERS).rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert starters == {path.relative_to(ROOT / "src").as_posix() for path in there}
    environ = {**os.environ, "PYTHONPATH": str(installed), "HOME": str(tmp_path)}
    environ |= {"XDG_CONFIG_HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    code = "import sys, clew; from clew.fronts.cli import main; print(clew.__file__, flush=True); sys.exit(main())"
    made = subprocess.run([sys.executable, "-c", code, "new", "batch"], cwd=tmp_path, env=environ, capture_output=True)
    assert (made.returncode, made.stderr) == (0, b"")
    shipped = {path.relative_to(ROOT / "src" / STARTERS / "batch") for path in there if path.parent.name == "batch"}
    assert {path.relative_to(tmp_path / "batch") for path in (tmp_path / "batch").rglob("*")} == shipped
    command = [sys.executable, "-c", code, "serve", "--port", "0", "--store", "memory:"]
    with subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline().strip() == str(installed / "clew" / "__init__.py")
            base = server.stdout.readline().split()[1].partition("#")[0]
            for path, content in (("", PAGE["index.html"]), ("assets/index-12345678.js", "export {}")):
                with urllib.request.urlopen(base + path, timeout=10) as answer:
                    assert answer.read().decode() == content
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(10)
