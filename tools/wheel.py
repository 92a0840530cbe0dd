"""Tests the wheel in a fresh environment for each extra, with the lowest and the newest versions of its dependencies.

``python tools/wheel.py UV`` builds the wheel and tests it with every Python on the path or of pyenv. An environment has
only the wheel and its dependencies; the tool follows the quickstart in it and uses the extra.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
VERSIONS: Final = ("lowest-direct", "highest")
# Runs top-level await, as `python -m asyncio` does.
RUNNER: Final = """
import ast, asyncio, inspect
code = compile(open("example.py").read(), "example.py", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
result = eval(code, {"__name__": "__main__"})
if inspect.iscoroutine(result):
    asyncio.run(result)
"""
WIRE: Final = """
from clew.providers.pydantic_ai.wires import what_to_install
import pydantic_ai.models.{0}
assert what_to_install("{0}") is None
"""
COMMAND: Final = "from clew.fronts.cli.app import app"
EXTRAS: Final[dict[str, str]] = {
    "": "import clew, clew.testing.scripted",
    "cli": COMMAND,
    "server": "import clew.server, clew.fronts.http.serve",
    "fast": "import uvloop",
    "models": WIRE.format("openai"),
    "bedrock": WIRE.format("bedrock"),
    "google": WIRE.format("google"),
    "groq": WIRE.format("groq"),
    "mistral": WIRE.format("mistral"),
    "xai": WIRE.format("xai"),
    "postgres": "import clew.live.postgres, clew.store.sql.postgres.store",
    "redis": "import clew.live.redis",
    "acp": f"{COMMAND}; import clew.fronts.acp",
    "mcp": f"{COMMAND}; import clew.fronts.mcp",
    "otel": "import clew.telemetry.export",
    "server,models": WIRE.format("anthropic"),
    "all": "import clew.server, clew.fronts.mcp, clew.live.postgres, clew.live.redis, clew.telemetry.export",
}
"""Code that needs only this extra."""
WITH_COMMAND: Final = ("cli", "server", "acp", "mcp", "server,models", "all")
EVERYWHERE: Final = ("", "server,models", "all")
"""Extras tested with every Python; the others with the first one only."""


class Environment:
    """A fresh environment with the wheel and one extra."""

    def __init__(self, uv: str, folder: Path, python: str) -> None:
        self._uv, self.folder = uv, folder
        self.bin = folder / "env" / "bin"
        self.env = {
            name: value for name, value in os.environ.items() if not name.startswith(("CLEW_", "XDG_", "PYTHON"))
        }
        self.env |= {"HOME": str(folder), "PATH": f"{self.bin}:{self.env['PATH']}"}
        self.run(uv, "venv", "-q", "--python", python, str(folder / "env"))

    def install(self, wheel: Path, extra: str, versions: str) -> None:
        requirement = f"clew-sessions[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
        self.run(
            self._uv,
            "pip",
            "install",
            "-q",
            "--python",
            str(self.bin / "python"),
            "--resolution",
            versions,
            requirement,
        )

    def run(self, *command: str) -> str:
        done = subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)[:200]}\nended with {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def python(self, code: str) -> str:
        return self.run(str(self.bin / "python"), "-c", code)


def code_blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def run_examples(fresh: Environment, page: str) -> None:
    (fresh.folder / "example.py").write_text("\n".join(code_blocks(page, "python")), encoding="utf-8")
    fresh.python(RUNNER)


def follow_quickstart(fresh: Environment) -> None:
    """Run every example of the page, then send requests to a server."""
    run_examples(fresh, "docs/quickstart.md")
    [line] = [block for block in code_blocks("docs/quickstart.md", "bash") if "clew run" in block]
    fresh.run("bash", "-euc", line)
    serve = [str(fresh.bin / "clew"), "serve", "--port", "0", "--store", "memory:"]
    with subprocess.Popen(
        serve, cwd=fresh.folder, env=fresh.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout is not None
            base, _, token = server.stdout.readline().split()[1].partition("/#token=")
            assert "<title>" in urllib.request.urlopen(f"{base}/", timeout=30).read().decode()

            def post(path: str, body: str) -> str:
                request = urllib.request.Request(
                    f"{base}/api/{path}", body.encode(), {"Authorization": f"Bearer {token}"}
                )
                return str(urllib.request.urlopen(request, timeout=30).read().decode())

            [session] = re.findall(r'"id":"(ses_\w+)"', post("sessions", '{"model": "demo/echo"}'))
            message = '{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "softly"}]}'
            assert '"delta":"softly"' in post("chat", f'{{"id": "{session}", "messages": [{message}]}}').replace(
                " ", ""
            )
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(30)


def test_starters(uv: str, fresh: Environment) -> None:
    """Create every starter, and run its tests with what it asks for: these extras and pytest."""
    fresh.run(uv, "pip", "install", "-q", "--python", str(fresh.bin / "python"), "pytest>=8")
    kinds = [line.split()[0] for line in fresh.run(str(fresh.bin / "clew"), "new").splitlines()]
    for kind in kinds:
        fresh.run(str(fresh.bin / "clew"), "new", kind)
        fresh.run("bash", "-euc", f"cd {kind} && ../env/bin/python -m pytest -q")


def test_wheel(uv: str, wheel: Path, python: str, versions: str, extra: str) -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="clew-wheel-") as folder:
        fresh = Environment(uv, Path(folder), python)
        fresh.install(wheel, extra, versions)
        version = fresh.python("import sys; print(*sys.version_info[:2], sep='.')").strip()
        fresh.python(EXTRAS[extra])
        if not extra:
            run_examples(fresh, "README.md")
        if extra in WITH_COMMAND:
            fresh.run(str(fresh.bin / "python"), "-m", "clew", "--version")
        else:
            result = subprocess.run(
                [str(fresh.bin / "clew")], cwd=folder, env=fresh.env, capture_output=True, text=True
            )
            assert (result.returncode, "clew-sessions[cli]" in result.stderr) == (2, True), result
        if extra == "server,models":
            follow_quickstart(fresh)
            test_starters(uv, fresh)
    print(f"Python {version}, {versions}, clew-sessions[{extra}]: {time.monotonic() - began:.1f} s", flush=True)


def find_pythons() -> list[str]:
    """Return one Python of each version that runs; pyenv puts others on the path that do not."""
    found = []
    for version in PYTHONS:
        installed = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
        for python in (shutil.which(f"python{version}"), *map(str, installed)):
            if python and not subprocess.run([python, "--version"], capture_output=True).returncode:
                found.append(python)
                break
    return found


def main() -> None:
    uv = shutil.which(sys.argv[1]) or sys.exit("uv not found")
    uv = str(Path(uv).resolve())
    with tempfile.TemporaryDirectory(prefix="clew-wheel-") as folder:
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
        subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
        [wheel] = Path(folder).glob("*.whl")
        for at, python in enumerate(find_pythons()):
            for versions, extra in itertools.product(VERSIONS, EVERYWHERE if at else EXTRAS):
                test_wheel(uv, wheel, python, versions, extra)


if __name__ == "__main__":
    main()
