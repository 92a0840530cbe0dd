"""A chat on a terminal ends when it is asked to, whatever it waits for, and leaves its store to other processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import clew
from tests.integration.processes import environment, serving_beside
from tests.integration.screen import drawn
from tests.rig.fork_server import Child, Forked, fork

pytestmark = [pytest.mark.service, pytest.mark.slow]
READY = "/help for commands"
_PATIENCE_S = float(os.environ.get("CLEW_TEST_PATIENCE_S", "60"))


class PtyChat:
    """``clew chat`` as a process with a pseudoterminal of its own."""

    def __init__(self, folder: Path, *arguments: str, module: str = "clew.fronts.cli.app") -> None:
        self._master, terminal = os.openpty()
        termios.tcsetwinsize(terminal, (24, 100))
        env = environment(folder, TERM="xterm-256color", VISUAL=str(folder / "editor"), SHELL="/bin/sh")
        self.process = Child(*fork(module, *arguments, env=env, folder=folder, files=(terminal, terminal, terminal)))
        os.close(terminal)
        self._sent = b""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def until(self, text: str) -> None:
        """Wait until a text is on the screen."""
        deadline = time.monotonic() + _PATIENCE_S
        while text not in (seen := drawn(self._sent.decode(errors="replace"), [(0, 100)])):
            assert time.monotonic() < deadline, f"{text} is not on:\n{seen}"
            self._read(0.05)

    def _read(self, wait_s: float) -> None:
        if select.select([self._master], [], [], wait_s)[0]:
            self._sent += os.read(self._master, 65536)

    def terminate(self) -> int:
        """Send SIGTERM; return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + _PATIENCE_S
        while self.process.poll() is None and time.monotonic() < deadline:
            # Reading fails when the process has closed its end.
            with contextlib.suppress(OSError):
                self._read(0.05)
        return self.process.wait(0)

    def hang_up(self) -> int:
        """Close the terminal, for which the kernel sends SIGHUP; return the exit code."""
        os.close(self._master)
        self._master = -1
        return self.process.wait(_PATIENCE_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self._master != -1:
            os.close(self._master)


OpenPty = Callable[..., PtyChat]


@pytest.fixture
def open_pty(tmp_path: Path) -> Iterator[OpenPty]:
    """Return a function that starts a chat; its process is killed after the test if it is still running."""
    opened: list[PtyChat] = []

    def open_(model: str, **options: str) -> PtyChat:
        opened.append(PtyChat(tmp_path, "chat", "--model", model, **options))
        opened[-1].until(READY)
        return opened[-1]

    yield open_
    for one in opened:
        one.close()


def _say_hello(open_pty: OpenPty, **options: str) -> PtyChat:
    chat = open_pty("demo/echo", **options)
    chat.type("hello\r")
    chat.until("› hello\nhello\n")
    chat.until("/ commands")
    return chat


def _open_list(line: str, title: str) -> Callable[[OpenPty], PtyChat]:
    def open_(open_pty: OpenPty) -> PtyChat:
        chat = _say_hello(open_pty)
        chat.type(f"{line}\r")
        chat.until(title)
        chat.until("type to filter")
        return chat

    return open_


def _ask_approval(open_pty: OpenPty) -> PtyChat:
    chat = open_pty("demo/tools")
    chat.type("!bash touch made\r")
    chat.until("[n]o:")
    return chat


def _ask_next_stage(key: str, text: str) -> Callable[[OpenPty], PtyChat]:
    def ask(open_pty: OpenPty) -> PtyChat:
        chat = _ask_approval(open_pty)
        chat.type(key)
        chat.until(text)
        return chat

    return ask


def _ask_question(open_pty: OpenPty) -> PtyChat:
    chat = open_pty("demo/tools")
    chat.type('!question {"question": "Which way?", "options": ["left", "right"]}\r')
    chat.until("your answer:")
    return chat


def _type_half(text: str, seen: str) -> Callable[[OpenPty], PtyChat]:
    def type_(open_pty: OpenPty) -> PtyChat:
        chat = open_pty("demo/echo")
        chat.type(text)
        chat.until(seen)
        return chat

    return type_


def _stream(open_pty: OpenPty) -> PtyChat:
    chat = open_pty("demo/long:slow")
    chat.type("2000 words\r")
    chat.until("thread stone")
    return chat


def _search(open_pty: OpenPty) -> PtyChat:
    chat = _say_hello(open_pty, module="tests.rig.endless_search")
    chat.type("/search hello\r")
    chat.until("searching")
    return chat


def _run_shell(open_pty: OpenPty) -> PtyChat:
    chat = open_pty("demo/echo")
    chat.type("!echo begun; exec cat gate\r")
    chat.until("\nbegun\n")
    return chat


def _open_editor(open_pty: OpenPty) -> PtyChat:
    chat = open_pty("demo/echo")
    chat.type("some words\x18\x05")
    chat.until("in the editor")
    return chat


STATES: dict[str, Callable[[OpenPty], PtyChat]] = {
    "list of sessions": _open_list("/switch", "switch to which session?"),
    "list of results": _open_list("/search hello", "2 results for hello"),
    "list of messages": _open_list("/edit", "edit which message?"),
    "approval": _ask_approval,
    "reason": _ask_next_stage("n", "reason (optional"),
    "scope": _ask_next_stage("s", "scope, by number:"),
    "question": _ask_question,
    "half a line": _type_half("half a li", "› half a li"),
    "half a paste": _type_half("half\x1b[200~ a paste", "› half"),
    "history search": _type_half("\x12hel", "search history: hel"),
    "completion": _type_half("/se", "/search"),
    "turn": _stream,
    "search": _search,
    "shell": _run_shell,
    "editor": _open_editor,
}
HANG_UPS = ("list of sessions", "approval", "half a line", "turn", "search", "editor")


@pytest.mark.parametrize(
    ("state", "end"),
    [
        *(pytest.param(state, PtyChat.terminate, id=f"SIGTERM-{state}") for state in STATES),
        # A closed terminal is noticed in another place, so where a list, a question or a command is waited for.
        *(pytest.param(state, PtyChat.hang_up, id=f"SIGHUP-{state}") for state in HANG_UPS),
    ],
)
def test_a_signal_ends_the_chat_in_every_state(
    open_pty: OpenPty, tmp_path: Path, state: str, end: Callable[[PtyChat], int]
) -> None:
    """The exit code is 0, and another process can open the store for writing."""
    os.mkfifo(tmp_path / "gate")
    # An editor that does not end on SIGTERM either.
    (tmp_path / "editor").write_text("#!/bin/sh\ntrap '' TERM HUP\necho in the editor\nexec cat gate\n")
    (tmp_path / "editor").chmod(0o755)
    assert end(STATES[state](open_pty)) == 0

    async def reopen() -> list[str]:
        async with clew.open(f"sqlite:///{tmp_path}/store.db") as engine:
            sessions = (await engine.list_sessions()).sessions
            return [(await engine.get_status(session.id)).state for session in sessions]

    assert asyncio.run(reopen()) in ([], ["idle"], ["waiting"])


def test_sigint_closes_an_open_list(open_pty: OpenPty) -> None:
    """As Ctrl-C does; the chat goes on."""
    chat = STATES["list of sessions"](open_pty)
    chat.process.send_signal(signal.SIGINT)
    chat.until("/ commands")
    chat.type("more\r")
    chat.until("› more\nmore\n")
    assert chat.terminate() == 0


def test_sigterm_ends_a_chat_through_a_pipe_in_the_middle_of_a_command(tmp_path: Path) -> None:
    """The input that is left is not read."""
    words = ("chat", "--model", "demo/echo")
    with tempfile.TemporaryFile() as errors:
        chat = Forked("tests.rig.endless_search", *words, env=environment(tmp_path), errors=errors, folder=tmp_path)
    with chat.stdin, chat.stdout:
        chat.stdin.write(b"/search hello\nnot read\n")
        assert chat.stdout.read(9) == b"searching"
        chat.send_signal(signal.SIGTERM)
        try:
            assert chat.wait(_PATIENCE_S) == 0
        finally:
            chat.kill()
        assert chat.stdout.read() == b""


def test_a_server_that_does_not_respond_delays_no_end(open_pty: OpenPty, tmp_path: Path) -> None:
    """Its silence is waited for ten seconds elsewhere."""
    with serving_beside(tmp_path) as (server, _):
        chat = _say_hello(open_pty)
        server.process.send_signal(signal.SIGSTOP)
        started = time.monotonic()
        assert chat.terminate() == 0
        assert time.monotonic() - started < 8
