"""The command line: what it prints, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import clew
from clew.testing.chunks import text
from clew.testing.scribe import Scribe
from tests.integration.command_line import Run, run

__all__ = ["run"]

EVIL = "hi \x1b]52;c;x\x07 \x9b\u202e\U000e0041"


@pytest.fixture
def session_id(run: Run) -> str:
    async def make() -> str:
        async with clew.open(config="user") as engine:
            session = await engine.create_session(title="a \x1b[31mred\x1b[0m title")
            await Scribe(engine.store, session.id, engine.mint, engine.clock).turn("hello", text(EVIL))
            return session.id

    return asyncio.run(make())


@pytest.mark.rule("ST-6", "ST-8")
def test_ls_show_check_and_backup(tmp_path: Path, run: Run, session_id: str) -> None:
    """Each prints data to stdout and ends with 0; escapes in what was written come out as text."""
    code, out, err = run("ls")
    assert (code, err) == (0, "")
    assert out.split()[0] == session_id
    assert "\x1b" not in out
    code, out, _ = run("ls", "--json")
    assert [row["id"] for row in json.loads(out)["sessions"]] == [session_id]
    code, out, _ = run("show", session_id, "--json")
    assert json.loads(out)["messages"][1]["parts"][-1]["text"] == EVIL
    assert out.rstrip("\n").isprintable()
    code, out, _ = run("export", session_id, "--format", "md")
    assert "hi U+001B]52;c;xU+0007 U+009BU+202E" in out
    code, out, _ = run("show", session_id)
    assert (code, out) == (0, "user: hello\nassistant: hi \\x1b]52;c;x\\x07 \\x9b\\u202e\\U000e0041\n")
    code, out, _ = run("check")
    assert (code, out) == (0, "1 sessions, 0 problems\n")
    code, out, _ = run("backup", str(tmp_path / "copy.db"))
    assert code == 0
    assert run("ls", "--store", f"sqlite:///{tmp_path}/copy.db")[0] == 0


def test_each_kind_of_failure_has_its_exit_code(tmp_path: Path, run: Run) -> None:
    """One line on stderr with the code, nothing on stdout, no traceback."""
    code, _, err = run("ls")
    assert (code, err.count("\n")) == (7, 1)
    assert "`clew chat` or `clew serve` creates it" in err

    async def make() -> None:
        async with clew.open(config="user"):
            pass

    asyncio.run(make())
    for words, expected, code_word in [
        (("show", "non.sense"), 2, "invalid_id"),
        (("show", "ses_" + "0" * 26), 3, "session_not_found"),
        (("ls", "--limit", "0"), 2, "invalid_input"),
        (("backup", str(tmp_path / "store.db")), 2, "invalid_input"),
        (("ls", "--store", "postgresql://127.0.0.1:1/x"), 7, "store_unavailable"),
        (("ls", "--store", "postgresql:x"), 2, "invalid_input"),
        (("ls", "--store", "postgresql://me@[::1/x"), 2, "invalid_input"),
        (("url", "--store", "postgresql://127.0.0.1:1/x"), 3, "`clew replicas` lists them"),
    ]:
        code, out, err = run(*words)
        assert (code, out) == (expected, "")
        assert err.count("\n") == 1
        assert code_word in err
        assert ("`clew ls`" in err) == (code_word == "session_not_found")


@pytest.mark.slow
def test_whoever_has_read_enough_may_close_the_pipe(tmp_path: Path) -> None:
    """No complaint, and no failure; also where the terminal cannot show what is to be shown."""
    env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "PYTHONIOENCODING": "ascii"}
    words = ["bash", "-c", 'set -o pipefail; "$0" config | true && "$0" config >&- && "$0" config']
    command = [*words, str(Path(sys.executable).with_name("clew"))]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert done.stdout.startswith("config file ")


def test_wrong_usage_is_one_line(run: Run) -> None:
    """Like every other failure, and nothing in it is taken for markup or steers the terminal."""
    for words, said in [
        (("ls", "--nope"), "Unknown option"),
        (("run", "-5 degrees"), "after --."),
        (("ls", "--limit", "abc"), "abc"),
        (("show",), "SESSION"),
        (("nonsense",), "nonsense"),
        (("ls", "[red]x[/red]"), "[red]x[/red]"),
        (("ls", "\x1b[31mx" + "y" * 200), r"\x1b[31mx" + "y" * 200),
        (("export", "x", "--format", "pdf"), "jsonl"),
    ]:
        code, out, err = run(*words)
        assert (code, out, err.count("\n"), err.endswith(" (usage)\n")) == (2, "", 1, True), err
        assert said in err


@pytest.mark.slow
def test_files_that_are_closed_or_full(tmp_path: Path) -> None:
    """Closed ones are read and written as if they were empty; what finds no room is said, in one line."""
    env = {**os.environ, "CLEW_STORE": f"sqlite:///{tmp_path}/store.db", "XDG_CONFIG_HOME": str(tmp_path)}
    clew_command = str(Path(sys.executable).with_name("clew"))

    def shell(line: str) -> tuple[int, str, str]:
        words = ["bash", "-c", line, clew_command]
        done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout, done.stderr

    assert shell('"$0" run hi --model demo/echo <&-') == (0, "hi\n", "")
    assert shell('"$0" run hi --model demo/echo >&-') == (0, "", "")
    assert shell('"$0" run hi --model demo/echo <&- >&- 2>&-') == (0, "", "")
    assert shell('"$0" show non.sense 2>&-') == (2, "", "")
    assert shell('"$0" chat <&-') == (0, "", "")
    for words in ("ls", "ls --json", "run hi --model demo/echo"):
        code, _, err = shell(f'"$0" {words} >/dev/full')
        assert (code, err) == (1, "clew: the output could not be written: No space left on device (system)\n")
    assert shell('"$0" check') == (0, "4 sessions, 0 problems\n", "")
    gone = "clew: the current folder no longer exists; start clew in another one (system)\n"
    for words in ("run hi", "chat", "run hi --store sqlite:///relative.db"):
        assert shell(f'mkdir gone && cd gone && rmdir ../gone && "$0" {words} </dev/null') == (1, "", gone)


def test_the_server_runs_on_uvloop_where_that_is_installed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it on the loop that Python brings: it is an extra."""
    made: list[asyncio.AbstractEventLoop] = []

    def new_event_loop() -> asyncio.AbstractEventLoop:
        made.append(asyncio.new_event_loop())
        return made[-1]

    refusal = (2, "", "clew: --port must be 0 to 65535 (invalid_input)\n")
    monkeypatch.setitem(sys.modules, "uvloop", SimpleNamespace(new_event_loop=new_event_loop))
    assert run("serve", "--port", "70000") == refusal
    assert [loop.is_closed() for loop in made] == [True]
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert run("serve", "--port", "70000") == refusal
    assert len(made) == 1
