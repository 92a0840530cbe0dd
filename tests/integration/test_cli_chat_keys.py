"""What can be done by keyboard in a chat: writing, choosing, stopping, going back; each thing a terminal promises."""

from __future__ import annotations

import asyncio
import base64
import os
import threading
import time
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.fronts.cli.chat.slash_commands import COMMANDS
from tests.integration.screen import Open, chat, texts

__all__ = ["chat"]
pytestmark = pytest.mark.service
READY = "/help for commands"


def messages(tmp_path: Path) -> list[Any]:
    """Those of the newest session."""

    async def load() -> list[Any]:
        async with clew.open(f"sqlite:///{tmp_path}/store.db", read_only=True) as engine:
            [session, *_] = (await engine.list_sessions()).sessions
            return await engine.messages(session.id)

    return asyncio.run(load())


def test_several_lines_are_written_and_what_was_typed_is_searched(chat: Open, tmp_path: Path) -> None:
    """Alt-Enter, a backslash and a paste make lines; Ctrl-R finds what was typed before."""
    screen = chat(model="demo/echo")
    screen.until(READY)
    screen.type("one\x1b\rtwo\\\rthree\x1b[200~ and\nfour\x1b[201~")
    screen.shows("› one\n  two\n  three and\n  four\n")
    screen.type("\r")
    screen.shows("› one\ntwo\nthree and\nfour\n")
    screen.idle()
    screen.send("something else", "› something else\nsomething else\n")
    screen.type("\x12three")
    screen.shows("search history: three")
    screen.shows("\n› one\n  two\n  three and\n  four\nsearch history")
    screen.type("\r")
    screen.hides("search history")
    screen.type("\x03")
    screen.idle()
    # Where the terminal does not say what is pasted, lines that come together are; a last Enter is theirs.
    screen.type("five\rsix\r")
    screen.shows("› five\n  six\n")
    screen.type("\r")
    screen.idle()
    assert texts(messages(tmp_path))[::2] == ["one\ntwo\nthree and\nfour", "something else", "five\nsix"]
    assert screen.leave() == 0


def test_files_go_along_and_a_shell_is_at_hand(chat: Open, tmp_path: Path) -> None:
    """An @ is completed and sent; an image by its path is; a command of one's own is told with the next message."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "app.py").write_text("print('hi')\n")
    screen = chat(model="demo/echo")
    screen.until(READY)
    screen.type("look at @ap")
    screen.shows(" src/app.py")
    screen.type("\x1b[B")
    screen.shows("› look at @src/app.py\n")
    screen.type("\r")
    screen.send("", "› look at @src/app.py\n[file app.py]\n")
    # What a text would take along is told before it is sent, also one that was pasted.
    (tmp_path / "my notes.txt").write_text("mine")
    screen.type("\x1b[200~as @src/app.py\nand @my\x1b[201~")
    screen.shows("\nattaches: app.py")
    screen.shows(" my notes.txt")
    screen.type("\x1b[B")
    screen.shows("and @'my notes.txt'\n")
    screen.shows("\nattaches: app.py, my notes.txt")
    screen.type("\r\r")
    screen.shows("[file app.py]\n[file my notes.txt]\n")
    screen.send("!echo here; printf '\\033[2J'; exit 3", "here\n\\x1b[2J\n", "exit code 3; sent to the model")
    screen.send("and now", "› and now\n[file my-shell.txt]\n")
    screen.send("//etc is a folder", "› /etc is a folder\n")
    [first, _, _, _, second, _, third, _] = messages(tmp_path)
    assert [part.get("filename") for part in first.parts] == [None, "app.py"]
    assert [part.get("filename") for part in second.parts] == [None, "my-shell.txt"]
    assert texts([third]) == ["/etc is a folder"]
    (tmp_path / "dot.png").write_bytes(base64.b64decode("iVBORw0KGgo="))
    # What the model does not take is refused before it is sent, and the words are handed back.
    screen.type("see dot.png\r")
    screen.shows("'dot.png' (image/png, 8 bytes) is truncated; remove it or attach it again\n")
    screen.shows("› see dot.png")
    screen.type("\x15")
    assert screen.leave() == 0


def test_the_editor_of_ones_own(chat: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-X Ctrl-E hands the line over and takes back what became of it, however slowly the two are pressed."""
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf " and more" >> "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))
    screen = chat(model="demo/echo")
    screen.until(READY)
    screen.type("some words\x18\x05")
    screen.shows("› some words and more")
    screen.type("\x18")
    time.sleep(0.3)  # as fingers need; half of a key of Esc's has been given up by then
    screen.type("\x05")
    screen.shows("› some words and more and more")
    screen.send("", "› some words and more and more\nsome words and more and more\n")
    assert screen.leave() == 0


@pytest.mark.rule("SR-7")
def test_escape_stops_and_the_queue_stays(chat: Open, tmp_path: Path) -> None:
    """Nothing of the queue is started; it can be reworded, put in another order, held back and sent; twice, one's own
    words are offered."""
    screen = chat(model="demo/long:slow")
    screen.until(READY)
    screen.type("2000 words\r")
    screen.shows("thread stone")
    for words in ("3 words", "4 words", "5 words", "6 words"):
        screen.type(f"{words}\r")
        screen.shows(f"⋯ {words}\n" if words != "6 words" else "⋯ and 1 more; /queue to list them\n")
    screen.type("\x1b")
    screen.shows("stopped; partial output is saved; /continue to resume; 4 queued messages,\npaused\n")
    screen.shows("4 queued, paused after a stop; /queue go on to resume\n")
    screen.type("/queue edit 2\r")
    screen.shows("› /queue edit msg_")
    screen.type(" in all\r")
    screen.shows("  2  4 words in all\n")
    screen.type("/queue move 2 1\r")
    screen.shows("  1  4 words in all\n  2  3 words\n")
    screen.type("/queue move 1 9\r")
    screen.shows("  3  6 words\n  4  4 words in all\n")
    screen.type("/queue pause\r")
    screen.shows("4 queued, paused by you; /queue go on to resume\n")
    screen.type("/queue now 4\r")
    screen.shows("› 4 words in all\n")
    screen.shows("thread stone quiet end\n")
    screen.idle()
    for number in (3, 2, 1):
        screen.type(f"/queue cancel {number}\r")
        screen.shows(f"\n{number - 1} queued" if number > 1 else "no queued messages")
    screen.type("/queue pause\r")
    screen.shows("no queued messages, so nothing to pause")
    screen.idle()
    screen.type("\x1b")
    screen.type("\x1b")
    screen.shows("edit which message?  (2 of 2)\n❯ 4 words in all")
    screen.type("\r")
    screen.shows("› 4 words in all\n~")
    screen.type("\x15")
    assert screen.leave() == 0
    assert [message.role for message in messages(tmp_path)] == ["user", "assistant"]


@pytest.mark.rule("PM-7")
def test_modes_rules_and_why_something_is_asked(chat: Open, tmp_path: Path) -> None:
    """Shift-Tab takes the next mode; an answer says why it can only be once; a rule is taken back from a list."""
    screen = chat(model="demo/tools")
    screen.until(READY)
    assert "~ · demo/tools · ask · $0.00" in screen.seen
    screen.type("\x1b[Z")
    screen.shows("mode accept_edits: edits files in this folder without asking\n")
    screen.send("!write new.txt hello", "✓ write new.txt")
    screen.shows("~ · demo/tools · accept_edits · 1% full · $0.00\n")
    screen.type("\x1b[Z")
    screen.shows("mode read_only: reads only, changes nothing\n")
    screen.send("!write other.txt hello", "denied: this session only reads")
    screen.send("/mode ask", "mode ask: asks before changes")
    screen.type("!bash echo $HOME\r")
    screen.shows("this can't be saved as a rule: it contains a variable")
    screen.until("allow? [y]es once · [n]o:")
    screen.answer("y", "✓ bash")
    screen.idle()
    screen.type("!bash touch x\r")
    screen.until("this [s]ession")
    screen.answer("s", "scope, by number:")
    screen.type("1\r")
    screen.shows("✓ bash touch x")
    screen.idle()
    screen.type("/rules revoke\r")
    screen.shows("❯ session  allow  bash touch x")
    screen.type("\r")
    screen.shows("revoked; clew asks again\n")
    screen.send("/rules revoke", "no rules of yours here")
    screen.send("/explain bsh ls", "'bsh' is not a built-in tool; did you mean bash?")
    assert screen.leave() == 0


def test_versions_are_marked_gone_to_and_compared(chat: Open, tmp_path: Path) -> None:
    """Saying it in other words, or asking again by another model, makes one more at the same place."""
    screen = chat(model="demo/echo")
    screen.until(READY)
    screen.send("first try", "› first try\nfirst try\n")
    screen.send("/versions", "there is only one version; /edit and /regenerate make another")
    screen.send("/edit second try", "› second try\nsecond try\n", "‹ 2/2 ›")
    screen.send("/regenerate demo/small", "second try\n‹ 3/3 ›")
    screen.send("/compare 1", "--- version 1\n+++ version 3\n", "-› first try\n-first try\n+› second try\n")
    screen.send("/versions 1", "‹ 1/3 ›\n\n› first try\nfirst try\n")
    assert texts(messages(tmp_path)) == ["first try", "first try"]
    screen.type("/versions\r")
    screen.shows("which version?  (3 of 3)\n❯ 1  first try  (here)\n  2  second try\n  3  second try\n")
    screen.type("2")
    screen.shows("which version? 2  (1 of 3)\n❯ 2  second try")
    screen.type("\r")
    screen.shows("‹ 2/3 ›\n\n› second try\nsecond try\n")
    screen.send("/versions 9", "give a number from 1 to 3 (invalid_input)")
    assert screen.leave() == 0


def test_sessions_are_chosen_from_a_list_and_found_by_words(chat: Open, tmp_path: Path) -> None:
    """The list is filtered by what is typed, and left with Esc."""
    screen = chat(model="demo/echo")
    screen.until(READY)
    screen.send("about apples", "› about apples\nabout apples\n")
    screen.send("/new", READY)
    screen.send("about pears", "› about pears\nabout pears\n")
    screen.type("/switch\r")
    screen.shows("switch to which session?  (2 of 2)\n❯ about pears")
    screen.type("app")
    screen.shows("switch to which session? app  (1 of 2)\n❯ about apples")
    screen.type("\r")
    screen.shows("· about apples · demo/echo\n\n› about apples\nabout apples\n")
    screen.idle()
    screen.type("/search pears\r")
    screen.shows(
        "2 results for pears  (2 of 2)\n❯ about pears · assistant: about pears\n  about pears · user: about pears\n"
    )
    screen.type("\r")
    screen.shows("· about pears · demo/echo\n")
    screen.idle()
    screen.send("/search nothing-like-it", "no results")
    screen.type("/switch\r")
    screen.shows("switch to which session?")
    screen.type("\x1b")
    screen.hides("switch to which session?")
    screen.idle()
    assert screen.leave() == 0


def test_what_waits_is_printed_once_whoever_comes_back_to_it(chat: Open, tmp_path: Path) -> None:
    """A question that waited while nobody was there is asked, and what was said before it is not said again."""
    screen = chat(model="demo/tools")
    screen.until(READY)
    screen.type('!question {"question": "Which way?", "options": ["left", "right"]}\r')
    screen.until("your answer:")
    screen.type("\x04")
    assert screen.end() == 0
    again = chat()
    again.until("your answer:")
    assert again.seen.count("Which way?\n") == 1
    again.type("2\r")
    again.shows("✓ right\nquestion done: right\n")
    again.idle()
    assert (again.seen.count("Which way?\n"), again.seen.count("✓ right\n")) == (1, 1)
    assert again.leave() == 0


def test_a_command_that_is_stopped_says_what_it_had_said(chat: Open, tmp_path: Path) -> None:
    """While it runs its last lines are shown, no more than five of them; stopped, it is no result."""
    os.mkfifo(tmp_path / "gate")
    screen = chat(model="demo/tools")
    screen.until(READY)
    screen.type("!bash for n in 1 2 3 4 5 6 7; do echo line $n; done; cat gate\r")
    screen.until("allow?")
    screen.answer("y", "  line 3\n  line 4\n  line 5\n  line 6\n  line 7\n")
    assert "  line 2\n" not in screen.seen
    screen.type("\x1b")
    screen.shows("stopped; partial output is saved; /continue to resume\n")
    screen.idle()
    assert "⊘ bash for n in 1 2 3 4 5 6 7; do" in screen.seen
    assert screen.leave() == 0


@pytest.mark.parametrize("columns", [80, 40])
def test_the_help_is_broken_at_words_however_narrow_the_terminal_is(chat: Open, columns: int) -> None:
    """No row but the one-word ones is as wide as the terminal, and every word of every command's help is there."""
    screen = chat(columns=columns)
    screen.until(READY)
    shown = screen.send("/help", "model.")
    rows = shown[shown.index("  /help") :].splitlines()
    assert [row for row in rows if len(row) >= columns] == []
    words = " ".join(" ".join(rows).split())
    assert [command.help for command in COMMANDS.values() if command.help not in words] == []
    assert screen.leave() == 0


@pytest.mark.rule("SR-7")
def test_who_begins_a_new_session_is_not_taken_back_to_the_old_one(
    chat: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is heard of the old one while it is looked up does not bring it back: the next words are the new one's."""
    asked, answer = threading.Event(), threading.Event()
    get_session, rename_session = clew.Engine.get_session, clew.Engine.rename_session
    renames: ContextVar[bool] = ContextVar("renames", default=False)

    async def renamed(engine: clew.Engine, *args: Any) -> Any:
        renames.set(True)
        try:
            return await rename_session(engine, *args)
        finally:
            renames.set(False)

    async def held(engine: clew.Engine, session_id: str) -> Any:
        found = await get_session(engine, session_id)
        if found.title == "Old" and not renames.get() and not asked.is_set():
            asked.set()
            await asyncio.to_thread(answer.wait, 60)
        return found

    monkeypatch.setattr(clew.Engine, "rename_session", renamed)
    monkeypatch.setattr(clew.Engine, "get_session", held)
    screen = chat(model="demo/echo")
    screen.until(READY)
    screen.send("the old one", "› the old one\nthe old one\n")
    screen.send("/title Old", "title: Old")
    assert asked.wait(60)
    screen.send("/new", READY)
    answer.set()
    screen.send("the new one", "the new one\nthe new one\n")
    assert texts(messages(tmp_path)) == ["the new one", "the new one"]
    assert screen.leave() == 0


@pytest.mark.rule("WR-2", "WR-4")
def test_files_go_back_with_a_rewind(chat: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The changes are listed; a rewind asks what goes back, the conversation alone by default; Esc rewinds nothing."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "app.py").write_text("port = 80\n")
    screen = chat(model="demo/tools")
    screen.until("/help for commands")
    screen.send("/changes", "no session yet")
    screen.type("!bash sed -i s/80/8080/ app.py\r")
    screen.until("[n]o:")
    screen.answer("y", "exit code 0")
    screen.idle()
    screen.send("/changes", "M +1 -1  app.py\n")
    screen.type("/rewind\r")
    screen.until("M +1 -1  app.py\n")
    screen.until("1 file changed since then: what goes back?")
    screen.type("\x1b")
    screen.until("nothing was rewound")
    screen.type("/rewind\r")
    screen.until("what goes back?")
    screen.type("\r")
    screen.until("2 messages left the conversation")
    assert (folder / "app.py").read_text() == "port = 8080\n"
    screen.type("\x15")
    screen.send("/unrewind", "now after")
    screen.type("/rewind\r")
    screen.until("what goes back?")
    screen.type("\x1b[B\r")
    screen.until("1 file restored")
    screen.until("2 messages left the conversation")
    assert (folder / "app.py").read_text() == "port = 80\n"
    screen.type("\x15")
    screen.send("/changes", "no changes\n")
