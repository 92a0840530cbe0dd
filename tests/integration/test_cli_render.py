"""What a chat looks like and what its keys do, without a terminal: parts in, text out; bytes in, lines out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.fronts.cli.chat import screen
from clew.fronts.cli.chat.keyboard import Act, Editor, Key, Keys
from clew.fronts.cli.chat.screen import Screen, cut
from clew.fronts.cli.chat.slash_commands import COMMANDS, completions
from clew.fronts.cli.chat.typed_lines import KEPT, TypedLines
from clew.fronts.cli.render import Look, Reply, call_details, call_line, history_lines, split_blocks
from clew.transcript.message import Message

PLAIN = Look(colour=False)
BLOCKS = Look(colour=False, markdown=lambda text, width: f"<{text.strip()}>")


def text(said: str, state: str = "streaming") -> dict[str, Any]:
    return {"type": "text", "text": said, "state": state}


def call(state: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool-bash", "toolCallId": "c1", "state": state, "input": {"command": "ls"}, **more}


# Replies


def test_a_block_is_printed_once_when_the_next_one_begins() -> None:
    """Until then it is shown as it stands; what is over is printed whole."""
    reply = Reply(BLOCKS)
    assert list(reply.finished([text("one")], 20)) == []
    assert reply.unfinished([text("one")], 20, 5) == ["one"]
    growing = [text("one\n\ntwo **th")]
    assert list(reply.finished(growing, 20)) == ["<one>\n\n"]
    assert reply.unfinished(growing, 20, 5) == ["two **th"]
    assert list(reply.finished(growing, 20)) == []
    done = [text("one\n\ntwo **three**", "done")]
    assert list(reply.finished(done, 20)) == ["<two **three**>\n"]
    assert reply.unfinished(done, 20, 5) == []


def test_parts_are_printed_in_order_and_calls_when_they_have_a_result() -> None:
    """A later part waits for an earlier one; at the end all is printed."""
    reply = Reply(BLOCKS)
    parts = [{"type": "step-start"}, call("input-available"), text("after", "done")]
    assert list(reply.finished(parts, 60)) == [""]
    assert reply.unfinished(parts, 60, 5) == ["▸ bash ls", "after"]
    parts[1] = call("output-available", output="a\nb\n")
    assert list(reply.finished(parts, 60)) == ["✓ bash ls  a (+1 line)\n", "<after>\n"]
    waiting = [call("approval-requested")]
    assert list(Reply(BLOCKS).finished(waiting, 60)) == []
    assert list(Reply(BLOCKS).finished(waiting, 60, final=True)) == ["? bash ls  waits for your word\n"]


def test_what_a_running_command_has_printed_is_no_result() -> None:
    """It is shown below the call, its last lines, as text; the call is not done."""
    printed = "".join(f"line {number}\n" for number in range(1, 8))
    call = {"type": "tool-bash", "toolCallId": "c", "state": "output-available", "input": {"command": "make"}}
    so_far = {**call, "output": {"text": printed + "\x1b[2J"}, "preliminary": True}
    reply = Reply(PLAIN)
    assert list(reply.finished([so_far], 60)) == []
    assert reply.unfinished([so_far], 60, 9) == [
        "▸ bash make",
        *(f"  line {number}" for number in range(4, 8)),
        "  \\x1b[2J",
    ]
    assert list(reply.finished([so_far], 60, final=True)) == ["▸ bash make\n"]


def test_without_blocks_text_goes_out_as_it_comes() -> None:
    """With one newline at its end."""
    reply = Reply(PLAIN)
    out = ["".join(reply.finished([text(said, state)], 80)) for said, state in [("a ", "streaming"), ("a b", "done")]]
    assert out == ["a ", "b\n"]


def test_only_as_many_rows_are_shown_for_now_as_there_are() -> None:
    """The newest, broken between words, wide characters counted as two."""
    assert Reply(PLAIN).unfinished([text("one two three four")], 9, 2) == ["three", "four"]
    assert Reply(PLAIN).unfinished([text("線線線線")], 5, 9) == ["線線", "線線"]
    assert Reply(Look(colour=True)).unfinished([{"type": "reasoning", "text": "hm"}], 9, 9) == ["\x1b[2mhm\x1b[0m"]


@pytest.mark.parametrize(
    ("given", "whole"),
    [
        ("", ""),
        ("one\n\n", ""),
        ("one\n\ntwo", "one\n\n"),
        ("```\na\n\nb", ""),
        ("```\na\n\nb\n```\n\nafter", "```\na\n\nb\n```\n\n"),
        ("- a\n\n- b\n\n  more\n\n- c", ""),
        ("- a\n\n- b\n\nafter", "- a\n\n- b\n\n"),
        ("````\n```\n\nx\n````\n\ny", "````\n```\n\nx\n````\n\n"),
    ],
)
def test_markdown_is_cut_only_between_blocks(given: str, whole: str) -> None:
    """Never inside a fence or a list, and only where the next block has begun."""
    assert split_blocks(given) == (whole, given.removeprefix(whole))


@given(st.text(alphabet="ab `-~\n1.\t", max_size=60))
def test_a_cut_loses_nothing(given: str) -> None:
    """Whatever it is, both halves together are it."""
    assert "".join(split_blocks(given)) == given


@given(st.text(max_size=40))
def test_nothing_but_our_colours_comes_out(given: str) -> None:
    """Of texts, reasoning, calls, results, requests and what people said."""
    parts = [text(given, "done"), {"type": "reasoning", "text": given}, {"type": "file", "url": given}]
    parts += [call("output-error", errorText=given), call("output-available", output=given, toolName=given)]
    message = Message("m", "user", [text(given)], {})
    shown = "".join([*Reply(PLAIN).finished(parts, 40, final=True), *history_lines([message], PLAIN, 40)])
    shown += call_details(given, {given: given}, PLAIN) + "".join(Reply(PLAIN).unfinished(parts, 40, 9))
    assert [ch for ch in shown if not ch.isprintable() and ch not in "\n\t"] == []


def test_a_request_is_shown_with_every_argument() -> None:
    """Nothing is left out or cut, whatever its length; escapes and bidi are spelled out."""
    shown = call_details("write", {"path": "a", "content": "x" * 5_000 + "\x1b[2K\u202e"}, PLAIN)
    assert "x" * 5_000 in shown
    assert ("\\u001b[2K" in shown, "\\u202e" in shown) == (True, True)


def test_a_card_is_one_line() -> None:
    """Cut to the width, in colours that are ended."""
    shown = call_line(call("output-error", errorText="no\nsuch " * 50), Look(colour=True), 40)
    assert shown.startswith("\x1b[31m✗\x1b[0m bash ls\x1b[2m  no such ")
    assert "\n" not in shown
    assert cut("\x1b[2mabcdef\x1b[0m", 4) == "\x1b[2mabc…\x1b[0m"
    assert cut("abc", 3) == "abc"


# Keys


def test_bytes_become_keys_however_they_are_cut() -> None:
    """Characters of several bytes, sequences and pastes wait for their rest."""
    data = "hé\x1b[A\x1bb\x1b[200~one\r\ntwo\x1b[201~\x01\r".encode()
    whole = Keys().feed(data)
    assert whole == [
        Key("text", "hé"),
        Key("up"),
        Key("word-left"),
        Key("paste", "one\ntwo"),
        Key("home"),
        Key("enter"),
    ]
    keys = Keys()
    cut_up = [key for at in range(len(data)) for key in keys.feed(data[at : at + 1])]
    assert [key for key in cut_up if key.name != "text"] == [key for key in whole if key.name != "text"]
    assert "".join(key.text for key in cut_up if key.name == "text") == "hé"


def test_lines_that_come_together_are_a_paste_that_an_empty_line_ends() -> None:
    """A line with its Enter is none, and neither are lines with other keys among them."""
    assert Keys().feed(b"one\rtwo\r") == [Key("paste", "one\ntwo\n")]
    assert Keys().feed(b"one\r") == [Key("text", "one"), Key("enter")]
    assert Keys().feed(b"one\r\x04") == [Key("text", "one"), Key("enter"), Key("end-of-input")]
    editor = Editor()
    assert editor.press(Key("paste", "one\ntwo\n")) is None
    assert editor.press(Key("enter")) == Act("line", "one\ntwo")
    assert editor.press(Key("paste", "one\n\ntwo\n\n")) == Act("line", "one\n\ntwo")


def typed(editor: Editor, keys: bytes) -> list[Act]:
    return [act for key in Keys().feed(keys) if (act := editor.press(key)) is not None]


def test_a_line_is_edited_as_in_a_shell() -> None:
    """Words, ends, killing and yanking, the history and back; Ctrl-D deletes unless there is nothing."""
    editor = Editor(["first", "second"])
    assert typed(editor, b"one two three\x17\x1bb\x0b\x01\x19\x05!\r") == [Act("line", "two one !")]
    typed(editor, b"draft\x10\x10")
    assert (editor.text, editor.cursor) == ("first", 5)
    typed(editor, b"\x0e\x0e")
    assert editor.text == "draft"
    assert typed(editor, b"\x01\x04\x04\x04\x04\x04") == []
    assert typed(editor, b"\x04\x03\x1a\x0c") == [Act("end"), Act("interrupt"), Act("suspend"), Act("clear")]
    assert typed(editor, b"a\\\r") == []
    assert typed(editor, b"b\x1b\rc\r") == [Act("line", "a\nb\nc")]


def test_the_line_is_shown_around_its_cursor() -> None:
    """As much as fits, wide characters as two, what would steer a terminal as dots."""
    editor = Editor()
    editor.set("a\nb\x1bc")
    assert editor.view(20) == ("a⏎b·c", 5)
    editor.set("x" * 50)
    assert editor.view(10) == ("x" * 9, 9)
    editor.set("線" * 10)
    assert editor.view(10) == ("線" * 4, 8)


@given(st.binary(max_size=60))
def test_no_bytes_can_break_the_editor(data: bytes) -> None:
    """The cursor stays in the line, and the view in its width."""
    editor = Editor(["old"], lambda line: completions(line, ["demo/echo"], []))
    for key in Keys().feed(data):
        editor.press(key)
        assert 0 <= editor.cursor <= len(editor.text)
        shown, column = editor.view(12)
        assert column <= 11
        assert shown.isprintable()


def test_tab_completes_commands_models_and_sessions() -> None:
    """As far as all agree; then what there is."""
    editor = Editor(complete=lambda line: completions(line, ["demo/echo", "demo/long"], ["ses_1"]))
    typed(editor, b"/mo\t")
    assert editor.text == "/mode"
    typed(editor, b"l\t")
    assert editor.text == "/model "
    typed(editor, b"\t")
    assert (editor.text, list(editor.choices)) == ("/model demo/", ["/model demo/echo", "/model demo/long"])
    assert completions("/s", [], []) == ["/sessions", "/switch ", "/show"]
    assert completions("/switch s", [], ["ses_1", "other"]) == ["/switch ses_1"]
    assert completions("hello", ["demo/echo"], []) == []
    assert len(completions("/", [], [])) == len(COMMANDS)


WORDS = ("y", "yes", "once", "n", "no")


async def test_a_key_answers_a_question_that_somebody_could_have_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone; beside half a line it needs Enter. A key that begins a word goes into the line; any other is told."""
    monkeypatch.setattr(screen, "_MOMENT_S", 0.0)
    editor = Editor()
    terminal = Screen(editor)
    terminal.ask("allow? ", WORDS)
    terminal._press(Key("text", "x"))
    assert (await terminal.next(), editor.text) == (Act("key", "x", 1), "")
    for text in ("o", "yes"):
        terminal._press(Key("text", text))
        terminal._press(Key("text", "y"))
        assert editor.text == text + "y"
        terminal.clear()
    terminal._press(Key("paste", "y"))
    terminal.clear()
    terminal._press(Key("text", "Y"))
    assert (await terminal.next(), editor.text) == (Act("key", "y", 1), "")
    terminal.ask(None)
    editor.set("half")
    terminal.ask("allow? ", WORDS)
    terminal._press(Key("text", "y"))
    assert (editor.text, terminal._acts.empty()) == ("y", True)
    terminal._press(Key("enter"))
    assert await terminal.next() == Act("line", "y", 2)
    terminal.ask(None)
    assert editor.text == "half"


async def test_what_was_typed_ahead_answers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a pause it belongs to the line before the question; and an answer belongs to its own question."""
    now = 100.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    editor = Editor()
    terminal = Screen(editor)
    editor.set("so ")
    terminal.ask("allow? ", WORDS)
    for key in (Key("text", "y"), Key("text", "e"), Key("text", "s")):
        now += 0.2
        terminal._press(key)
    terminal._press(Key("enter"))
    assert (await terminal.next(), editor.text) == (Act("line", "so yes"), "")
    terminal._press(Key("text", "y"))
    assert (terminal._acts.empty(), editor.text) == (True, "")
    terminal.ask(None)
    assert editor.text == "y"
    terminal.clear()
    terminal.ask("allow? ", WORDS)
    now += 1
    terminal._press(Key("text", "y"))
    terminal.ask(None)  # answered elsewhere, before anybody took the key
    terminal.ask("allow? ", WORDS)
    now += 1
    terminal._press(Key("text", "n"))
    assert await terminal.next() == Act("key", "n", 3)


def test_what_was_typed_is_kept_for_its_owner_alone(tmp_path: Path) -> None:
    """Lines with newlines too; the newest are kept; what does not read is left out; a link is not followed."""
    path = tmp_path / "data" / "chat_history"
    past = TypedLines(path)
    assert past.load() == []
    past.add("one\ntwo")
    past.add("ü")
    assert (past.load(), path.stat().st_mode & 0o777) == (["one\ntwo", "ü"], 0o600)
    path.write_bytes(b"nonsense\n" + b"\xff\n" + b'"x"\n' * (2 * KEPT + 1))
    assert past.load() == ["x"] * KEPT
    assert len(path.read_bytes().splitlines()) == KEPT
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    past.add("no")
    assert not (tmp_path / "elsewhere").exists()
