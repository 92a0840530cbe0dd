"""``clew run`` and ``clew ls`` as a person meets them: what is printed, asked and returned."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from tests.integration.command_line import Run, run
from tests.integration.http_client import texts, types
from tests.integration.processes import command, interrupted, on_a_terminal, start, text_of

__all__ = ["run"]

pytestmark = pytest.mark.service


def test_run_prints_what_the_model_says(tmp_path: Path, run: Run) -> None:
    """Text, or chunks as lines of JSON; in a session that can be gone on with; nothing else on stdout."""
    code, out, err = run("run", "hello there", "--model", "demo/echo")
    assert (code, out, err) == (0, "hello there\n", "")
    listed = json.loads(run("ls", "--json")[1])["sessions"]
    [session_id] = [session["id"] for session in listed]
    assert listed[0]["workspace_root"] == str(tmp_path)
    code, out, err = run("run", "again", "--session", session_id, "--json")
    chunks = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert (types(chunks)[0], types(chunks)[-1], text_of(chunks)) == ("start", "finish", "again")
    shown = run("show", session_id)[1]
    assert [line for line in shown.splitlines() if line.startswith("user")] == ["user: hello there", "user: again"]


def test_run_ends_with_the_code_of_what_happened(run: Run) -> None:
    """A failed run 1, usage 2, not found 3; a line on stderr that says what to do, no traceback."""
    for words, expected in [
        (("run", "404", "--model", "demo/fail"), 1),
        (("run", "x", "--model", "nonsense"), 2),
        (("run", "x", "--model", "demo/nonsense"), 2),
        (("run", ""), 2),
        (("run", "x", "--session", "non.sense"), 2),
        (("run", "x", "--session", "ses_" + "0" * 26), 3),
    ]:
        code, out, err = run(*words)
        assert (code, out) == (expected, ""), err
        assert err.startswith("clew: ")
        # What the provider itself said is a line of its own.
        assert err.count("\n") == (2 if words[-1] == "demo/fail" else 1)
    # Only the one that ran: a prompt that was refused leaves no session behind.
    assert len(json.loads(run("ls", "--json")[1])["sessions"]) == 1


def test_run_without_a_terminal_denies_what_would_be_asked(tmp_path: Path, run: Run) -> None:
    """Nobody is there to say yes; the model is told, and the turn ends."""
    code, out, _ = run("run", "!bash touch made", "--model", "demo/tools")
    assert code == 0
    assert out.startswith("bash ")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("answers", "code", "made"),
    [
        ([b"y\n"], 0, True),
        ([b"Once\n"], 0, True),
        ([b"session\n\n1\n"], 0, True),
        ([b"p\n2\n"], 0, True),
        ([b"yep\n", b"yes\n"], 0, True),
        ([b"\n", b"y\n"], 0, True),
        ([b"n\nnot today\n"], 0, False),
        ([b"deny\n\n"], 0, False),
        ([b"\x04"], 0, False),
        ([b"\x03"], 130, False),
    ],
)
async def test_run_on_a_terminal_asks(tmp_path: Path, run: Run, answers: list[bytes], code: int, made: bool) -> None:
    """The exact call is shown; yes runs it, no does not, anything else is asked again; Ctrl-C aborts the turn."""
    words = ("run", "!bash touch made", "--model", "demo/tools")
    ended, seen = await on_a_terminal(tmp_path, *words, answers=answers)
    assert ended == code, seen
    assert "? bash touch made\n" in seen
    assert seen.count("allow? [y]es once · this [s]ession · this [p]roject · [n]o: ") == len(answers)
    assert seen.count("y allows it once, s for this session, p for this project, n denies it\n") == len(answers) - 1
    assert ("bash denied" in seen) is (code == 0 and not made)
    assert ("bash denied: not today" in seen) is (b"not today" in answers[0])
    assert (tmp_path / "made").exists() is made
    [session] = json.loads((await asyncio.to_thread(run, "ls", "--json"))[1])["sessions"]
    assert seen.startswith(f"clew: session {session['id']}\n")
    assert (f"to resume: `clew continue {session['id']}`" in seen) is (code == 130)


@pytest.mark.parametrize("pause", ["", "sleep 0.2; "])
async def test_run_on_a_terminal_shows_what_came_after_an_answer(tmp_path: Path, run: Run, pause: str) -> None:
    """Once, however soon the run that goes on ends; and each call is asked for in its turn."""
    prompt = f"!bash {pause}echo one\n!bash {pause}echo two"
    code, seen = await on_a_terminal(tmp_path, "run", prompt, "--model", "demo/tools", answers=[b"y\ny\n", b"n\n\n"])
    assert code == 0, seen
    assert seen.count("allow?") == 2
    [session] = json.loads((await asyncio.to_thread(run, "ls", "--json"))[1])["sessions"]
    said = texts(json.loads((await asyncio.to_thread(run, "show", session["id"], "--json"))[1])["messages"][-1])
    assert "bash done: one" in said
    assert seen.count(said) == 1
    shown = (await asyncio.to_thread(run, "show", session["id"]))[1]
    told = re.sub(r"by [^,]+, cli, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\)", "by someone)", shown)
    assert f'assistant: bash {{"command":"{pause}echo one"}} (approved by someone) → one\n' in told
    assert f'bash {{"command":"{pause}echo two"}} (denied by someone) → [output-denied]\n' in told


async def test_ls_has_a_header_on_a_terminal(tmp_path: Path, run: Run) -> None:
    """And none in a pipe, where a program reads it."""
    await command(tmp_path, "run", "hello", "--model", "demo/echo")
    _, seen = await on_a_terminal(tmp_path, "ls", answers=[])
    header, line = seen.splitlines()
    assert header.split() == ["session", "tokens", "title"]
    assert (await asyncio.to_thread(run, "ls"))[1] == line + "\n"


@pytest.mark.rule("SR-3")
async def test_ctrl_c_aborts_the_turn_of_a_run(tmp_path: Path, run: Run) -> None:
    """Exit 130; what was said so far is stored and the turn is settled."""
    process = await start(tmp_path, "run", "500000 words", "--json", "--model", "demo/long")
    code, out, err = await interrupted(process)
    assert code == 130, err
    chunks = [json.loads(line) for line in out.splitlines()]
    assert types(chunks)[-1] == "abort"
    [session] = json.loads((await asyncio.to_thread(run, "ls", "--json"))[1])["sessions"]
    shown = json.loads((await asyncio.to_thread(run, "show", session["id"], "--json"))[1])["messages"]
    assert texts(shown[1]) == text_of(chunks)
    assert f"to resume: `clew continue {session['id']}`" in err
    assert (await asyncio.to_thread(run, "check"))[1] == "1 sessions, 0 problems\n"
