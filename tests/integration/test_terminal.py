"""``clew`` in a real terminal: an afternoon's work by keyboard alone, and what it looks like in small ones."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import sys
from pathlib import Path

import pytest

import clew
from tests.integration.processes import CLEW, environment
from tests.integration.screen import texts
from tests.integration.tmux import OpenTmux, tmux

__all__ = ["tmux"]
pytestmark = [pytest.mark.service, pytest.mark.slow]
READY = "/ commands"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def set_up(folder: Path, model: str) -> None:
    """A folder to work in, and the model that answers where none is named."""
    (folder / "config" / "clew").mkdir(parents=True)
    (folder / "config" / "clew" / "config.toml").write_text(f'default_model = "{model}"\n')
    (folder / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    (folder / "tests.sh").write_text("for n in 1 2 3; do echo test $n passed; done; cat gate; echo all passed\n")
    os.mkfifo(folder / "gate")


@pytest.mark.rule("PM-7")
def test_an_afternoon_of_work_by_keyboard_alone(tmux: OpenTmux, tmp_path: Path) -> None:
    """From the first question to a rule that is taken back, with nothing but keys."""
    set_up(tmp_path, "demo/tools")
    screen = tmux()
    # Start in a folder, and ask.
    screen.until("new session", "~ · demo/tools · ask", READY)
    screen.say("hello there")
    screen.until("› hello there\nhello there\n", READY)
    # Approve an edit as a diff.
    screen.say('!edit {"path": "calc.py", "old": "a - b", "new": "a + b"}')
    screen.until("? edit calc.py  +1 −1", "  -    return a - b\n  +    return a + b\n", "allow? [y]es once")
    screen.press("y")
    screen.until("✓ edit calc.py", READY)
    assert (tmp_path / "calc.py").read_text() == "def add(a, b):\n    return a + b\n"
    # Watch tests run live, allowed for this session.
    screen.say("!bash sh tests.sh")
    screen.until("allow?")
    screen.press("s")
    screen.until("▸ bash sh tests.sh\n", "  test 3 passed\n", "… Esc stops")
    (tmp_path / "gate").write_text("and the last one\n")
    screen.until("✓ bash sh tests.sh", READY)
    # Deny with a reason.
    screen.say("!bash touch unwanted")
    screen.until("allow?")
    screen.press("n")
    screen.until("reason (optional")
    screen.say("not in this folder")
    screen.until("⊘ bash touch unwanted", READY)
    # Queue two, and stop.
    screen.say("!bash sh tests.sh")
    screen.until("▸ bash sh tests.sh", "test 3 passed")
    screen.say("first in line")
    screen.until("⋯ first in line")
    screen.say("second in line")
    screen.until("⋯ second in line")
    screen.press("Escape")
    screen.until("stopped; partial output is saved", "2 queued, paused after a stop", READY)
    screen.say("/continue queue")
    screen.until("› first in line\nfirst in line\n", "› second in line\nsecond in line\n", READY)
    # Edit, and get a second version; compare the two.
    screen.say("/edit second, in other words")
    screen.until("second, in other words\nsecond, in other words\n", "‹ 2/2 ›", READY)
    screen.say("/compare")
    screen.until("-› second in line\n-second in line\n+› second, in other words\n+second, in other words\n", READY)
    # Rewind, and think better of it.
    screen.say("/rewind")
    screen.until("now after “first in line”; 2 messages left the conversation", "› second, in other words\n~")
    screen.press("C-u")
    screen.until("›\n~ ·")
    screen.say("/unrewind")
    screen.until("to undo\nnow after “second, in other words”\n", READY)
    # Compact.
    for number in range(4):
        screen.paste(f"{number} " + "word " * 120 + f"end of {number}")
        screen.press("Enter")
        screen.until(f"{number} word", f"end of {number}\n›\n", READY)
    screen.say("/compact")
    screen.until("── summarised", READY)
    # Search.
    screen.say("/search tests.sh")
    screen.until("for tests.sh", "❯ hello there · ")
    screen.press("Escape")
    screen.until(READY)
    # Revoke a rule.
    screen.say("/rules revoke")
    screen.until("revoke which rule?", "❯ session  allow  bash sh tests.sh")
    screen.press("Enter")
    screen.until("revoked; clew asks again", READY)
    screen.press("C-d")
    screen.until("resume with: clew chat ses_", "ended with 0")
    said, rules = asyncio.run(_stored(tmp_path))
    # Both versions are there, each with its answer, whatever was summarised since.
    assert [said.count(words) for words in ("second in line", "second, in other words")] == [2, 2]
    assert (rules, (tmp_path / "unwanted").exists()) == ([], False)


async def _stored(folder: Path) -> tuple[list[str], list[str]]:
    async with clew.open(f"sqlite:///{folder}/store.db", read_only=True) as engine:
        [session] = (await engine.list_sessions()).sessions
        own = [rule.pattern for rule in await engine.rules(session_id=session.id) if rule.scope != "agent"]
        return texts(await engine.messages(session.id, view="all")), own


def test_several_lines_an_editor_and_an_image_in_a_real_terminal(tmux: OpenTmux, tmp_path: Path) -> None:
    """Alt-Enter and a paste make lines, one's own editor takes them over, and the path of a picture sends it."""
    set_up(tmp_path, "demo/echo")
    (tmp_path / "dot.png").write_bytes(PIXEL)
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf "\\nfour" >> "$1"\n')
    editor.chmod(0o755)
    screen = tmux(VISUAL=str(editor))
    screen.until(READY)
    screen.type("one")
    screen.press("M-Enter")
    screen.paste("two\nthree")
    screen.until("› one\n  two\n  three\n")
    screen.press("C-x", "C-e")
    screen.until("› one\n  two\n  three\n  four\n")
    screen.press("Enter")
    screen.until("› one\ntwo\nthree\nfour\none two three four\n", READY)
    screen.type("see dot.png")
    screen.until("attaches: dot.png")
    screen.press("Enter")
    screen.until("› see dot.png\n[file dot.png]\n", READY)
    screen.press("C-d")
    screen.until("ended with 0")


@pytest.mark.parametrize(("columns", "rows"), [(120, 40), (40, 15), (20, 8)])
def test_it_can_be_used_at_any_size(tmux: OpenTmux, tmp_path: Path, columns: int, rows: int) -> None:
    """Nothing is wider than the terminal, wide characters included, and a question has its keys."""
    set_up(tmp_path, "demo/tools")
    screen = tmux(columns=columns, rows=rows)
    screen.until("›", "ask")
    screen.say("日本語のテキスト 🎉 ok")
    screen.until("ok\n›\n")
    screen.say("!bash touch made")
    screen.until("allow?")
    screen.press("y")
    screen.until("✓ bash touch made")
    screen.press("C-d")
    screen.until("ended with 0")
    assert (tmp_path / "made").exists()


def test_a_resize_while_it_answers_leaves_no_scars(tmux: OpenTmux, tmp_path: Path) -> None:
    """Made narrower and wider in the middle: each word is there once, and there is one line to write in."""
    set_up(tmp_path, "demo/long:slow")
    screen = tmux()
    screen.until(READY)
    screen.say("150 words")
    screen.until("thread stone quiet end north wall forward follow gate lantern map light story\n")
    screen.resize(50, 20)
    screen.until("thread stone quiet end north wall forward follow\n", "Esc stops")
    screen.resize(100, 30)
    screen.until("›\n", READY)
    seen = screen.seen
    said = seen.partition("I go.\n")[2].partition("\n›")[0]
    assert (len(said.split()), seen.count("›"), seen.count("Esc stops")) == (150, 2, 0)


def test_a_terminal_that_cannot_be_drawn_on_has_lines(tmp_path: Path) -> None:
    """TERM=dumb is talked to by the line, and clew alone, without a terminal, says what there is."""
    set_up(tmp_path, "demo/echo")
    here, there = os.openpty()
    env = environment(tmp_path, TERM="dumb")
    with subprocess.Popen([CLEW], stdin=there, stdout=there, stderr=there, cwd=tmp_path, env=env) as process:
        os.close(there)
        os.write(here, b"hello there\n\x04")
        assert process.wait(60) == 0
    said = os.read(here, 4096).decode()
    os.close(here)
    assert said.replace("\r", "").endswith("hello there\n")
    assert "\x1b" not in said
    alone = subprocess.run([CLEW], stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=tmp_path, env=env)
    assert (alone.returncode, alone.stdout.startswith("Usage: clew COMMAND\n"), alone.stderr) == (0, True, "")


def test_what_draws_is_not_loaded_where_nothing_is_drawn() -> None:
    """A quick command must not wait for the editor of a chat."""
    loads = "import sys, clew.fronts.cli.app, clew.fronts.cli.chat.chat as c; print('prompt_toolkit' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", loads], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
