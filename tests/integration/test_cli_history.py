"""Going back, aside and making room from the command line: what is printed, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.compaction.context import ContextParts, ContextReport
from clew.fronts.cli.app import run_command
from clew.fronts.cli.commands import COMMANDS
from clew.fronts.cli.commands.context import gauge
from clew.fronts.cli.commands.history import draw_tree
from clew.session.history.tree import TreeBranch, TreeTurn, TreeView
from clew.transcript.message import Message
from tests.integration.http_history import NO_TURN, NOBODY

SLOW = {"provider_id": "demo", "model_id": "long", "variant": "slow"}
Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """A command with a store of its own: exit code, stdout, stderr."""
    for name in ("CONFIG", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    monkeypatch.setenv("CLEW_STORE", f"sqlite:///{tmp_path}/store.db")

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code: object
        try:
            code = run_command(words)
        except SystemExit as end:
            code = end.code
        out, err = capsys.readouterr()
        return int(str(code or 0)), out, err

    return run


def ask(what: Callable[[clew.Engine], Any], *, read_only: bool = False) -> Any:
    """Do something with the store's engine."""

    async def go() -> Any:
        async with clew.open(config="user", read_only=read_only) as engine:
            return await what(engine)

    return asyncio.run(go())


def talk(*prompts: str, model: Any = "demo/echo", **fields: Any) -> str:
    """A session in which these were said and answered."""

    async def make(engine: clew.Engine) -> str:
        session = await engine.create_session(model="demo/echo", **fields)
        for prompt in prompts:
            submission = await engine.submit(session.id, prompt, model=model)
            if prompt.startswith("!"):
                async for status in engine.watch_status(session.id):
                    if status.waiting:
                        break
            else:
                await submission.wait()
        return session.id

    return str(ask(make))


def messages(session_id: str) -> list[Message]:
    return list(ask(lambda engine: engine.messages(session_id), read_only=True))


def turn_of(message: Message) -> str:
    return str(message.metadata["turn_id"])


# Going back


@pytest.mark.rule("RW-2")
def test_rewind_leaves_a_message_unanswered_or_hands_it_back(say: Say) -> None:
    """One line about where it is now; with --edit the draft on the next."""
    session_id = talk("one", "two")
    [u1, _, u2, a2] = messages(session_id)
    code, out, err = say("rewind", session_id, u2.id)
    head = turn_of(messages(session_id)[-1])
    assert (code, out, err) == (0, f"now at {head}; 1 message left the conversation\n", "")
    assert say("unrewind", session_id) == (0, f"now at {turn_of(u2)}\n", "")
    drafted = say("rewind", session_id, u2.id, "--edit", "zwei \x1b[31m")
    assert drafted == (0, f"now at {turn_of(u1)}; 2 messages left the conversation\ndraft: zwei \\x1b[31m\n", "")
    code, out, _ = say("unrewind", session_id, "--json")
    assert (code, json.loads(out)) == (0, {"head_turn_id": turn_of(u2), "hidden": [], "draft": None})
    code, out, _ = say("rewind", session_id, u2.id, "--edit", "zwei", "--json")
    assert json.loads(out) == {"head_turn_id": turn_of(u1), "hidden": [u2.id, a2.id], "draft": "zwei"}


def test_rewind_with_run_prints_the_new_answer(say: Say) -> None:
    """The text; with --json the move, then the chunks, one a line."""
    session_id = talk("one two")
    [u1, a1] = messages(session_id)
    assert say("rewind", session_id, u1.id, "--run") == (0, "one two\n", "")
    assert say("rewind", session_id, u1.id, "--edit", "three four", "--run") == (0, "three four\n", "")
    [u2, a2] = messages(session_id)
    code, out, _ = say("rewind", session_id, u2.id, "--run", "--json")
    move, *chunks = [json.loads(line) for line in out.splitlines()]
    head = turn_of(messages(session_id)[-1])
    assert (code, move) == (
        0,
        {"head_turn_id": head, "hidden": [a2.id], "draft": None, "message_id": u2.id, "queued": False},
    )
    assert [chunks[0]["type"], chunks[-1]["type"]] == ["start", "finish"]
    assert "".join(chunk.get("delta", "") for chunk in chunks) == "three four"
    assert a1.id not in [message.id for message in messages(session_id)]


def test_goto_and_reflog(say: Say) -> None:
    """Anywhere, also to the beginning; each move on a line, the newest first."""
    session_id = talk("one", "two")
    [u1, _, u2, _] = messages(session_id)
    assert say("goto", session_id, turn_of(u1))[1] == f"now at {turn_of(u1)}; 2 messages left the conversation\n"
    assert say("goto", session_id, "beginning")[1] == "now at beginning; 2 messages left the conversation\n"
    code, out, _ = say("goto", session_id, turn_of(u2), "--json")
    assert (code, json.loads(out)) == (0, {"head_turn_id": turn_of(u2), "hidden": [], "draft": None})
    code, out, _ = say("reflog", session_id)
    rows = [(words[0], words[3], *words[4:]) for words in map(str.split, out.splitlines())]
    assert (code, rows) == (
        0,
        [
            ("5", "goto", turn_of(u2), "two"),
            ("4", "goto", "beginning"),
            ("3", "goto", turn_of(u1), "one"),
            ("2", "turn", turn_of(u2), "two"),
            ("1", "turn", turn_of(u1), "one"),
        ],
    )
    moves = json.loads(say("reflog", session_id, "--json")[1])["moves"]
    assert [move["seq"] for move in moves] == [5, 4, 3, 2, 1]
    assert moves[1].keys() == {"seq", "from_turn_id", "to_turn_id", "at", "why", "text"}


def test_continue_goes_on_and_prints_only_what_is_new(say: Say) -> None:
    """An unanswered message is answered; what needs a permission is denied where nobody can be asked."""
    session_id = talk("one two")
    say("rewind", session_id, messages(session_id)[0].id)
    assert say("continue", session_id) == (0, "one two\n", "")
    code, out, err = say("continue", session_id)
    assert (code, out) == (4, "")
    assert "(nothing_to_continue)" in err
    assert say("continue", session_id, "--again") == (0, "one two\n", "")
    assert len(messages(session_id)) == 2
    asked = talk("!bash echo hi", model="demo/tools", workspace_root=Path.cwd())
    say("rewind", asked, messages(asked)[0].id)
    code, out, _ = say("continue", asked)
    assert (code, "denied" in out) == (0, True)
    assert [part["state"] for part in messages(asked)[1].parts if part["type"] == "tool-bash"] == ["output-denied"]
    say("rewind", session_id, messages(session_id)[0].id)
    chunks = [json.loads(line) for line in say("continue", session_id, "--json")[1].splitlines()]
    assert "".join(chunk.get("delta", "") for chunk in chunks) == "one two"


# Branches


def test_branch_and_fork_print_the_new_session(say: Say) -> None:
    """Its id, or the session as HTTP shows it."""
    session_id = talk("one", "two", "three", title="Talk")
    [u1, a1, u2, a2, *_] = messages(session_id)
    code, out, err = say("branch", session_id, a2.id, "--start", u2.id, "--model", "demo/long")
    assert (code, err) == (0, "")
    branch = ask(lambda engine: engine.get_session(out.strip()))
    assert (branch.parent_id, branch.parent_message_id, str(branch.model)) == (session_id, a2.id, "demo/long")
    assert [m.parts[-1]["text"] for m in messages(branch.id)] == ["two", "two"]
    code, out, _ = say("fork", turn_of(u1), "--label", "aside", "--json")
    shape = json.loads(out)
    assert (code, shape["label"], shape["title"], shape["status"]) == (0, "aside", "Talk (branch 2)", {"state": "idle"})
    assert (shape["parent_id"], shape["parent_message_id"]) == (session_id, a1.id)
    code, out, _ = say("fork", turn_of(u1))
    assert ask(lambda engine: engine.get_session(out.strip())).label.startswith("fork-")
    assert json.loads(say("branch", session_id, u1.id, "--json")[1]).keys() == shape.keys()


@pytest.mark.rule("BR-7")
def test_a_fork_with_a_text_prints_its_answer(say: Say) -> None:
    """The id first; with --json the session and then the chunks. One that cannot be sent leaves no fork."""
    [u1, *_] = messages(talk("one", "two"))
    code, out, err = say("fork", turn_of(u1), "--text", "and if?")
    fork_id, answer = out.split("\n", 1)
    assert (code, answer, err) == (0, "and if?\n", "")
    assert [m.parts[-1]["text"] for m in messages(fork_id)] == ["one", "one", "and if?", "and if?"]
    code, out, _ = say("fork", turn_of(u1), "--text", "so", "--json")
    shape, *chunks = [json.loads(line) for line in out.splitlines()]
    assert (code, shape["label"][:5], chunks[-1]["type"]) == (0, "fork-", "finish")
    before = len(ask(lambda engine: engine.list_sessions()).sessions)
    assert say("fork", turn_of(u1), "--text", "")[0] == 2
    assert len(ask(lambda engine: engine.list_sessions()).sessions) == before


def test_tree_draws_what_is_there(say: Say) -> None:
    """The line full, the rest hollow, the head by name; the JSON is the engine's view."""
    session_id = talk("one", "two")
    [u1, _, u2, _] = messages(session_id)
    say("rewind", session_id, u2.id, "--edit", "zwei", "--run")
    [_, _, u3, _] = messages(session_id)
    fork = say("fork", turn_of(u1), "--label", "aside")[1].strip()
    assert say("tree", session_id) == (
        0,
        f"● {turn_of(u1)}  one\n│  ↳ {fork}  aside\n├─○ {turn_of(u2)}  two\n└─● {turn_of(u3)}  (head)  zwei\n",
        "",
    )
    view = json.loads(say("tree", session_id, "--json")[1])
    assert (view["session_id"], view["head_turn_id"]) == (session_id, turn_of(u3))
    assert [turn["id"] for turn in view["turns"]] == [turn_of(u1), turn_of(u2), turn_of(u3)]
    assert [branch["session_id"] for branch in view["branches"]] == [fork]


def test_a_tree_is_drawn_line_by_line_whatever_its_shape() -> None:
    """Several roots, forks in forks, a summary, a branch whose place is gone; a long line is not indented."""
    below: dict[str, str | None] = {"a": None, "b": "a", "c": "b", "d": "b", "e": "d", "f": "a", "g": None}
    extra: dict[str, dict[str, Any]] = {
        "c": {"status": "failed"},
        "e": {"kind": "compaction", "text": "Goal"},
        "f": {"on_line": True, "is_head": True, "status": "unanswered"},
        "a": {"on_line": True},
    }
    turns = [_turn(name, parent, **extra.get(name, {})) for name, parent in below.items()]
    branches = (_branch("ses_1", "f", label="side"), _branch("ses_2", None, title="Lost"), _branch("ses_3", "d"))
    view = TreeView(session_id="s", head_turn_id="f", open_turn_id=None, turns=tuple(turns), branches=branches)
    assert list(draw_tree(view)) == [
        "├─● a  a",
        "│ ├─○ b  b",
        "│ │ ├─○ c  (failed)  c",
        "│ │ └─○ d  d",
        "│ │   │  ↳ ses_3",
        "│ │   ○ e  (summary)  Goal",
        "│ └─● f  (unanswered, head)  f",
        "│      ↳ ses_1  side",
        "└─○ g  g",
        "↳ ses_2  Lost",
    ]
    long = tuple(_turn(str(n), str(n - 1) if n else None) for n in range(5_000))
    straight = TreeView(session_id="s", head_turn_id=None, open_turn_id=None, turns=long, branches=())
    assert list(draw_tree(straight)) == [f"○ {n}  {n}" for n in range(5_000)]
    empty = TreeView(session_id="s", head_turn_id=None, open_turn_id=None, turns=(), branches=())
    assert list(draw_tree(empty)) == []


def _turn(name: str, parent: str | None, **fields: Any) -> TreeTurn:
    known: dict[str, Any] = {"kind": "normal", "status": "completed", "on_line": False, "is_head": False, "text": name}
    held: dict[str, Any] = {"created_at": 0, "settled_at": 0, "depth": 0, "origin_turn_id": None, "messages": ()}
    return TreeTurn(id=name, parent_turn_id=parent, **{**known, **held, **fields})


def _branch(session_id: str, turn_id: str | None, **fields: Any) -> TreeBranch:
    known: dict[str, Any] = {"title": None, "label": None, "from_message_id": None, "created_at": 0}
    return TreeBranch(session_id=session_id, turn_id=turn_id, **{**known, **fields})


# Room


def test_context_is_one_line_with_its_parts(say: Say) -> None:
    """A bar, the sum, the threshold; of another model when one is named; the JSON is the gauge."""
    session_id = talk("one two")
    code, out, err = say("context", session_id)
    report = json.loads(say("context", session_id, "--json")[1])
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert f"{report['used']:,} of 8,000 tokens (measured), auto-compacts at 7,600" in out
    small = json.loads(say("context", session_id, "--model", "demo/small", "--json")[1])
    assert (small["limit"], small["measured"]) == (2_000, False)
    parts = ContextParts(100, 200, 300, 5_400, 40)
    assert gauge(ContextReport(8_000, 400, 7_600, 6_000, False, parts)) == (
        "███████████████░░░░░ 75%  6,000 of 8,000 tokens (estimated), auto-compacts at 7,600  "
        "system 100 · tools 200 · summary 300 · history 5,400 · pruned 40"
    )
    over = gauge(ContextReport(1_000, 0, 1_000, 2_000, True, ContextParts(0, 0, 0, 2_000, 0)))
    assert over.startswith("████████████████████ 200%  2,000 of 1,000 tokens (measured)")


@pytest.mark.rule("CP-1")
def test_compact_says_what_it_gained(say: Say) -> None:
    """By a summary that show --model-view prints first; a second time there is nothing to do."""
    session_id = talk(*(f"{n} " + "word " * 250 for n in range(5)))
    code, out, err = say("compact", session_id, "--focus", "the numbers")
    assert (code, err) == (0, "")
    assert out.startswith("compacted 3 earlier turns: ")
    assert out.endswith(" tokens (summary)\n")
    shown = say("show", session_id, "--model-view")
    assert (shown[0], "the numbers" in shown[1] or "<summary>" in shown[1]) == (0, True)
    assert shown == say("show", session_id, "--view", "model")
    code, visible, told = say("show", session_id)
    assert (code, "[summary]" in visible) == (0, True)
    assert told == f"Older turns are summarised; show them with: clew show {session_id} --view all\n"
    assert say("show", session_id, "--view", "all")[2] == ""
    assert say("compact", session_id)[1].startswith("nothing to compact: ")
    done = json.loads(say("compact", session_id, "--json")[1])
    assert (done["compacted"], done.keys()) == (
        False,
        {"compacted", "message_id", "strategy", "tokens_before", "tokens_after", "turns", "pruned"},
    )


def test_prune_says_what_it_gained(say: Say, tmp_path: Path) -> None:
    """How many outputs, and the tokens before and after."""
    (tmp_path / "big.txt").write_text("line of text\n" * 400)
    lines = ['!grep {"pattern": "line"}']
    session_id = talk(workspace_root=tmp_path)

    async def fill(engine: clew.Engine) -> None:
        for prompt in (*lines, "1", "2", "3"):
            await (await engine.submit(session_id, prompt, model="demo/tools")).wait()

    ask(fill)
    code, out, err = say("prune", session_id)
    assert (code, err) == (0, "")
    assert out.startswith("pruned 1 tool output: ")
    assert say("prune", session_id)[1].startswith("nothing to prune: ")
    assert json.loads(say("prune", session_id, "--json")[1])["pruned"] == 0


# How they end


def test_what_is_not_there_is_3_what_is_no_id_2_and_what_does_not_fit_2(say: Say) -> None:
    """One line on stderr with the code, nothing on stdout."""
    session_id = talk("one")
    [user, assistant] = messages(session_id)
    for name in ("tree", "reflog", "unrewind", "context", "compact", "prune", "continue", "show"):
        _failed(say(name, NOBODY), 3, "session_not_found")
        _failed(say(name, "mi.ne"), 2, "invalid_id")
    for words, code, word in [
        (("rewind", NOBODY, user.id), 3, "session_not_found"),
        (("rewind", session_id, "nobody"), 3, "message_not_found"),
        (("rewind", session_id, "ü"), 2, "invalid_id"),
        (("rewind", session_id, assistant.id), 2, "rewind_target_invalid"),
        (("unrewind", session_id), 4, "nothing_to_undo"),
        (("goto", session_id, NO_TURN), 3, "turn_not_found"),
        (("goto", session_id, "mine"), 2, "invalid_id"),
        (("branch", session_id, "nobody"), 3, "message_not_found"),
        (("branch", session_id, user.id, "--start", assistant.id), 2, "branch_point_invalid"),
        (("branch", session_id, user.id, "--model", "nothing"), 2, "invalid_input"),
        (("fork", NO_TURN), 3, "turn_not_found"),
        (("fork", "mine"), 2, "invalid_id"),
        (("fork", turn_of(user), "--label", "x" * 501), 2, "invalid_input"),
        (("context", session_id, "--model", "nobody/x"), 2, "invalid_input"),
        (("show", session_id, "--model-view", "--view", "all"), 2, "invalid_input"),
        (("show", session_id, "--view", "nothing"), 2, "invalid_input"),
    ]:
        _failed(say(*words), code, word)
    assert say("rewind", session_id)[0] == 2
    assert say("goto", session_id, "a", "b")[0] == 2


def test_no_store_is_7_and_none_is_made(say: Say, tmp_path: Path) -> None:
    """For those that write, too."""
    for words in (("tree", NOBODY), ("rewind", NOBODY, "x"), ("compact", NOBODY), ("continue", NOBODY)):
        _failed(say(*words), 7, "store_unavailable")
    assert not (tmp_path / "store.db").exists()


def test_a_run_that_fails_is_1_and_one_that_does_not_fit_6(say: Say) -> None:
    """Why is on stderr; the head is where it was when it did not fit."""
    failing = talk("404", model="demo/fail")
    code, out, err = say("rewind", failing, messages(failing)[0].id, "--run")
    words = "demo has no model with that name. Choose another model. (choose another with --model)"
    assert (code, out, err) == (1, "", f"clew: {words}\n404: there is no such model\n")
    session_id = talk("word " * 1_200, "two", metadata={"compaction": {"enabled": False}})
    code, out, err = say("rewind", session_id, messages(session_id)[2].id, "--run", "--edit", "word " * 4_800)
    assert (code, out, err.count("\n")) == (6, "", 2)
    assert f"(use `clew compact {session_id}`, `clew prune {session_id}`, `clew branch {session_id} " in err
    assert "`clew chat` for a new session)\nthe next request needs about " in err
    assert len(messages(session_id)) == 2


@pytest.mark.slow
@pytest.mark.rule("ST-9")
def test_a_store_that_somebody_else_has_is_4(say: Say) -> None:
    """Those that write say who has it; those that only look do not mind."""
    session_id = talk("one")

    async def beside(engine: clew.Engine) -> list[int]:
        return [await asyncio.to_thread(_exit_code, name, session_id) for name in ("prune", "tree")]

    assert ask(beside) == [4, 0]


def _exit_code(*words: str) -> int:
    command = [str(Path(sys.executable).with_name("clew")), *words]
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode


@pytest.mark.service
@pytest.mark.rule("SR-3")
async def test_an_interrupt_aborts_what_a_rewind_runs(tmp_path: Path) -> None:
    """130, with what was written kept."""
    url = f"sqlite:///{tmp_path}/store.db"
    async with clew.open(url) as engine:
        session = await engine.create_session(model="demo/long")
        submission = await engine.submit(session.id, "400 words", model=SLOW)
        await engine.abort(session.id)
        await submission.wait()
        [user, *_] = await engine.messages(session.id)
    command = [str(Path(sys.executable).with_name("clew")), "rewind", session.id, user.id, "--run", "--store", url]
    env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, env=env, stdout=pipe, stderr=pipe, cwd=tmp_path)
    assert process.stdout is not None
    seen = await process.stdout.readexactly(8)
    process.send_signal(signal.SIGINT)
    out, err = await process.communicate()
    assert (process.returncode, b"aborted" in err) == (130, True)
    async with clew.open(url, read_only=True) as engine:
        [_, assistant] = await engine.messages(session.id)
    assert assistant.parts[-1]["text"].strip() == (seen + out).decode().strip()


NAMES = [
    *(name for name, target in COMMANDS.items() if target.startswith(("history:", "context:"))),
    "continue",
    "show",
]


@pytest.mark.parametrize("name", NAMES)
def test_each_has_help_with_an_example(say: Say, name: str) -> None:
    """And takes --json and --store."""
    code, out, _ = say(name, "--help")
    assert code == 0
    assert f"Example: clew {name} " in out
    assert "--json" in out
    assert "--store" in out


def _failed(outcome: tuple[int, str, str], code: int, word: str) -> None:
    assert (outcome[0], outcome[1], outcome[2].count("\n")) == (code, "", 1), outcome
    assert outcome[2].endswith(f"({word})\n")


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_run_that_made_room_says_so(say: Say, options: tuple[str, ...]) -> None:
    """One line on stderr, when it did and only then; stdout has what the model said."""
    words = "word " * 150
    session_id = talk(f"1 {words}", model="demo/small")
    told: list[str] = []
    for number in range(2, 7):
        code, out, err = say("run", f"{number} {words}", "--session", session_id, *options)
        assert (code, "compacted" in out) == (0, False)
        told.append(err)
    said = [err for err in told if err]
    assert 1 <= len(said) < len(told)
    pattern = r"clew: compacted \d+ earlier turns?; they stay stored\n"
    assert all(re.fullmatch(pattern, err) for err in said)
