"""Counts the modules, functions and package switches that seven operations take.

``python -m tools.walk [WALK...]`` runs each operation twice on a SQLite store with demo models, traces the second
execution in all threads, and prints a table. Only frames of the ``clew`` package count. ``--list WALK`` prints the
modules of one walk in the order of their first visit, ``--write`` writes the table into docs/design.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import io
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final
from unittest.mock import patch

import clew
from clew.fronts.cli import main as run_command
from clew.fronts.http.app import make_app
from clew.transcript.session import Session
from tools.house import module_name, module_paths

PACKAGE: Final = Path(clew.__file__).parent
DESIGN: Final = Path(__file__).resolve().parents[1] / "docs" / "design.md"
MARKED: Final = re.compile(r"(<!-- table: walks -->\n)(.*?)(<!-- end -->)", re.DOTALL)
MAX_FIRST_BYTE_MODULES: Final = 143
"""A guide: 15 % above the 125 modules measured when it was set. Lower it when the walk gets shorter."""

_GENERATED: Final = frozenset({"<module>", "<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"})
"""Frames that are not functions, or only in some versions of Python."""
_TOKEN: Final = "walk-token-0123456789"
_LOADED: Final = """\
import sys
from clew.fronts.cli import main
try:
    main()
finally:
    print(sum(name.partition(".")[0] == "clew" for name in sys.modules), file=sys.stderr)
"""


class Trace:
    """The functions of the package that were called, in order, across all threads."""

    def __init__(self) -> None:
        self.calls: list[CodeType] = []

    @property
    def modules(self) -> dict[Path, tuple[CodeType, int]]:
        """Each module in the order of its first visit: the function entered first, and the number of later entries."""
        found: dict[Path, tuple[CodeType, int]] = {}
        last = ""
        for code in self.calls:
            if code.co_filename != last:
                path, last = Path(code.co_filename), code.co_filename
                first, entries = found.get(path, (code, -1))
                found[path] = (first, entries + 1)
        return found

    @property
    def functions(self) -> int:
        """The number of different functions."""
        return len({(code.co_filename, code.co_firstlineno, code.co_name) for code in self.calls})

    @property
    def package_switches(self) -> int:
        """The number of calls that are in another package than the call before."""
        packages = [package_of(code.co_filename) for code in self.calls]
        return sum(one != other for one, other in itertools.pairwise(packages))


@functools.cache
def package_of(file: str) -> str:
    """Return the top-level package or module of a file; each folder of ``session`` is a package of its own."""
    parts = module_name(PACKAGE, Path(file)).split(".")[1:]
    is_package = Path(file).name == "__init__.py" or len(parts) > 2
    return "/".join(parts[: 2 if parts[:1] == ["session"] and is_package else 1])


class Tracer:
    """A profile function for all threads that are started while it is installed. It records only on demand."""

    def __init__(self) -> None:
        self.trace = Trace()
        """The newest recording."""
        self._recording = False

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        sys.setprofile(self._on_event)
        threading.setprofile(self._on_event)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    @contextlib.contextmanager
    def record(self) -> Iterator[None]:
        """Record the calls of the block."""
        self.trace, self._recording = Trace(), True
        try:
            yield
        finally:
            self._recording = False

    def _on_event(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if not self._recording or event != "call" or code.co_name in _GENERATED:
            return
        if code.co_filename.startswith(f"{PACKAGE}{os.sep}"):
            self.trace.calls.append(code)


Walk = Callable[[Tracer, Path], None]


def _in_loop(walk: Callable[[Tracer, Path], Coroutine[Any, Any, None]]) -> Walk:
    """Run an asynchronous walk in an event loop of its own."""

    @functools.wraps(walk)
    def run(tracer: Tracer, folder: Path) -> None:
        asyncio.run(walk(tracer, folder))

    return run


@_in_loop
async def _first_byte(tracer: Tracer, folder: Path) -> None:
    async with _opened(folder) as engine:
        app = make_app(engine, token=_TOKEN)
        session = await _session(engine, folder)
        for number in range(2):
            part = {"type": "text", "text": "What is clew?"}
            message = {"id": f"u{number}", "role": "user", "parts": [part]}
            body = {"id": session.id, "messages": [message], "trigger": "submit-message"}
            await _post(app, tracer, "/api/chat", body)


@_in_loop
async def _approval(tracer: Tracer, folder: Path) -> None:
    async with _opened(folder) as engine:
        for number in range(2):
            session = await _session(engine, folder)
            with tracer.record():
                await _prompt(engine, session.id, f"run `touch file-{number}`")


@_in_loop
async def _answer(tracer: Tracer, folder: Path) -> None:
    for number in range(2):
        async with _opened(folder) as engine:
            session = await _session(engine, folder)
            await _prompt(engine, session.id, f"run `touch file-{number}`")
            [call] = (await engine.get_status(session.id)).waiting
        async with _opened(folder) as engine:
            events = engine.subscribe()
            with tracer.record():
                await engine.answer(session.id, str(call.approval_id), "once")
                async for event in events:
                    if event.type == "turn_finished":
                        break


@_in_loop
async def _rewind(tracer: Tracer, folder: Path) -> None:
    async with _opened(folder) as engine:
        session_id, prompts = await _talk(engine, folder)
        for message_id in prompts[:0:-1]:
            with tracer.record():
                await engine.rewind(session_id, message_id, mode="edit")


@_in_loop
async def _compaction(tracer: Tracer, folder: Path) -> None:
    async with _opened(folder) as engine:
        session = await _session(engine, folder, "demo/small")
        compactions = 0
        for number in range(60):
            with tracer.record():
                await _prompt(engine, session.id, f"{number}: " + "all work and no play " * 12)
            tree = await engine.store.load_tree(session.id)
            found = sum(turn.kind == "compaction" for turn in tree.turns.values())
            if found > compactions and (compactions := found) > 1:
                return
    raise RuntimeError("no turn was compacted twice")


@_in_loop
async def _branch(tracer: Tracer, folder: Path) -> None:
    async with _opened(folder) as engine:
        session_id, prompts = await _talk(engine, folder)
        for message_id in prompts[1:]:
            with tracer.record():
                await engine.branch(session_id, message_id)


def _ls(tracer: Tracer, folder: Path) -> None:
    asyncio.run(_fill(folder))
    for _ in range(2):
        with _command(folder), tracer.record():
            try:
                run_command()
            except SystemExit as end:
                if end.code:
                    raise


@_in_loop
async def _turn(tracer: Tracer, folder: Path) -> None:
    (folder / "notes.txt").write_text("Remember the milk.\n", encoding="utf-8")
    async with _opened(folder) as engine:
        session = await _session(engine, folder)
        for _ in range(2):
            with tracer.record():
                await _prompt(engine, session.id, "read notes.txt")


WALKS: Final[Mapping[str, tuple[str, Walk]]] = {
    "first-byte": ("`POST /api/chat` to the first byte of the stream", _first_byte),
    "approval": ("a prompt whose tool call waits for an approval", _approval),
    "answer": ("the approval, answered after a restart, to the end of the turn", _answer),
    "rewind": ("a rewind by one turn", _rewind),
    "compaction": ("a turn that compacts the context first", _compaction),
    "branch": ("a branch at a message", _branch),
    "ls": ("`clew ls`", _ls),
    "turn": ("a whole turn with a tool call", _turn),
}
"""Each walk by name: its description, and its function. ``approval`` and ``answer`` are one operation."""


def measure(name: str) -> Trace:
    """Run a walk in a temporary folder and return the trace of its second execution."""
    tracer = Tracer()
    with tempfile.TemporaryDirectory(prefix="clew-walk-") as folder, tracer.installed():
        WALKS[name][1](tracer, Path(folder))
    return tracer.trace


def count_loaded() -> int:
    """Return the number of modules of the package that a process of ``clew ls`` has loaded when it ends."""
    with tempfile.TemporaryDirectory(prefix="clew-walk-") as folder:
        asyncio.run(_fill(Path(folder)))
        with _command(Path(folder)):
            done = subprocess.run([sys.executable, "-c", _LOADED, *sys.argv[1:]], capture_output=True, check=True)
    return int(done.stderr)


def table(traces: Mapping[str, Trace], loaded: int | None = None) -> str:
    """Return the table of these walks, in Markdown."""
    lines = ["| walk | | modules | functions | package switches |", "|---|---|---:|---:|---:|"]
    for name, trace in traces.items():
        cells = [f"`{name}`", WALKS[name][0], f"{len(trace.modules):,}", f"{trace.functions:,}"]
        lines.append(f"| {' | '.join(cells)} | {trace.package_switches:,} |")
    if loaded is not None:
        lines += ["", f"A process of `clew ls` loads {loaded} of the {len(module_paths(PACKAGE))} modules."]
    return "\n".join(lines) + "\n"


def visits(trace: Trace) -> Iterator[str]:
    """Yield the modules in the order of their first visit: the function entered first, and how often they were entered
    again."""
    for path, (code, again) in trace.modules.items():
        yield f"{path.relative_to(PACKAGE).as_posix()}:{code.co_firstlineno} {code.co_name} (+{again})"


@contextlib.asynccontextmanager
async def _opened(folder: Path) -> AsyncIterator[clew.Engine]:
    async with clew.open(f"sqlite:///{folder}/store.db", triggers=False) as engine:
        yield engine


async def _session(engine: clew.Engine, folder: Path, model: str = "demo/tour") -> Session:
    """Create a session with a title, so that no model call for one runs during a walk."""
    return await engine.create_session(model=model, workspace_root=folder, title="A walk")


async def _prompt(engine: clew.Engine, session_id: str, text: str) -> None:
    """Send a prompt and follow its stream to the end."""
    async for _ in engine.run(session_id, text):
        pass


async def _talk(engine: clew.Engine, folder: Path) -> tuple[str, list[str]]:
    """Create a session of three turns; return its id and the ids of its prompts."""
    session = await _session(engine, folder)
    for text in ("one", "two", "three"):
        await _prompt(engine, session.id, text)
    return session.id, [message.id for message in await engine.messages(session.id) if message.role == "user"]


async def _fill(folder: Path) -> None:
    async with _opened(folder) as engine:
        await _talk(engine, folder)


@contextlib.contextmanager
def _command(folder: Path) -> Iterator[None]:
    """Set the arguments and the environment of ``clew ls``, without the user's own settings, and discard its output."""
    home = {"XDG_CONFIG_HOME": f"{folder}/config", "XDG_DATA_HOME": f"{folder}/data", "HOME": str(folder)}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CLEW_")}
    with (
        patch.object(sys, "argv", ["clew", "ls", "--store", f"sqlite:///{folder}/store.db"]),
        patch.dict(os.environ, inherited | home, clear=True),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        yield


async def _post(app: Any, tracer: Tracer, path: str, body: object) -> None:
    """Call the app as a server does; record up to the first byte of the answer's body, and read the rest."""
    headers = {"host": "clew.test", "authorization": f"Bearer {_TOKEN}", "content-type": "application/json"}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 7717),
    }
    requests = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
    ended, recording = asyncio.Event(), contextlib.ExitStack()

    async def receive() -> Any:
        if requests:
            return requests.pop()
        await ended.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start" and message["status"] != 200:
            raise RuntimeError(f"{path} answered {message['status']}")
        if message.get("body"):
            recording.close()
        if message["type"] == "http.response.body" and not message.get("more_body"):
            ended.set()

    with recording:
        recording.enter_context(tracer.record())
        await app(scope, receive, send)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="walk", description="Modules, functions and package switches of operations.")
    parser.add_argument("walks", nargs="*", metavar="WALK", help=f"all by default: {', '.join(WALKS)}")
    parser.add_argument("--list", choices=WALKS, metavar="WALK", help="print the modules of a walk by first visit")
    parser.add_argument("--write", action="store_true", help="write the table of all walks into docs/design.md")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.walks if name not in WALKS]:
        parser.error(f"no such walk: {', '.join(unknown)}; choose from {', '.join(WALKS)}")
    if options.write and options.walks:
        parser.error("--write needs all walks; name none")
    if options.list is not None:
        print("\n".join(visits(measure(options.list))))
        return
    names = options.walks or list(WALKS)
    made = table({name: measure(name) for name in names}, count_loaded() if "ls" in names else None)
    print(made, end="")
    if options.write:
        page, replaced = MARKED.subn(lambda match: match[1] + made + match[3], DESIGN.read_text(encoding="utf-8"))
        if replaced != 1:
            sys.exit(f"{DESIGN.name} has no markers for the table")
        DESIGN.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
