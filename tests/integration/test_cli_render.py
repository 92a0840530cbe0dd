"""What a chat looks like and what its keys do, without a terminal: parts in, text out; bytes in, lines out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

import clew
from clew.fronts.cli.attachment import with_files
from clew.fronts.cli.chat.completion import LineCompleter
from clew.fronts.cli.chat.footer import Footer, work_status
from clew.fronts.cli.chat.picker import Picker
from clew.fronts.cli.chat.screen import cut
from clew.fronts.cli.chat.slash_commands import COMMANDS, completions
from clew.fronts.cli.chat.typed_lines import MAX_LINES, TypedLines
from clew.fronts.cli.failure import failure_text
from clew.fronts.cli.render import Reply, Theme, call_details, call_line, change_lines, history_lines, split_blocks
from clew.live.base import RunningCall, Status
from clew.tools.builtin.edit import edit
from clew.tools.builtin.write import write
from clew.tools.decorator import FunctionTool
from clew.transcript.message import Message

PLAIN = Theme(colour=False)
BLOCKS = Theme(colour=False, markdown=lambda text, width: f"<{text.strip()}>")


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
    assert list(Reply(BLOCKS).finished(waiting, 60, final=True)) == ["? bash ls  needs your approval\n"]


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
    assert list(reply.finished([so_far], 60, final=True)) == ["⊘ bash make  stopped; last output: \\x1b[2J\n"]


def test_a_subagent_at_work_is_shown_by_what_it_does_and_says() -> None:
    """Below its call, as text; how a turn stands that is tried again, and what runs, is told with its seconds."""
    part = {"type": "tool-task", "toolCallId": "c", "state": "output-available", "input": {"prompt": "look"}}
    told = {"session_id": "s", "steps": 2, "tool": "read", "doing": "a\x1b.txt", "text": "so far"}
    so_far = {**part, "output": told, "preliminary": True}
    assert Reply(PLAIN).unfinished([so_far], 60, 9) == ["▸ task look", "  step 2 · read a\\x1b.txt", "  so far"]
    waits = Status("retrying", attempt=2, retry_at=9_000, problem={"cause": "rate_limit", "provider_id": "acme"})
    assert work_status(waits, 5.0) == "attempt 2: acme is limiting requests. Retrying in 4 s"
    runs = Status("busy", started_at=0, running=(RunningCall("c", "bash", 3_000),))
    assert (work_status(runs, 5.0), work_status(Status("busy", started_at=0), 5.0)) == (
        "bash runs 2 s",
        "working 5 s",
    )


def test_without_blocks_text_goes_out_as_it_comes() -> None:
    """With one newline at its end."""
    reply = Reply(PLAIN)
    out = ["".join(reply.finished([text(said, state)], 80)) for said, state in [("a ", "streaming"), ("a b", "done")]]
    assert out == ["a ", "b\n"]


def test_only_as_many_rows_are_shown_for_now_as_there_are() -> None:
    """The newest, broken between words, wide characters counted as two."""
    assert Reply(PLAIN).unfinished([text("one two three four")], 9, 2) == ["three", "four"]
    assert Reply(PLAIN).unfinished([text("線線線線")], 5, 9) == ["線線", "線線"]
    assert Reply(Theme(colour=True)).unfinished([{"type": "reasoning", "text": "hm"}], 9, 9) == ["\x1b[2mhm\x1b[0m"]


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
    shown = call_line(call("output-error", errorText="no\nsuch " * 50), Theme(colour=True), 40)
    assert shown.startswith("\x1b[31m✗\x1b[0m bash ls\x1b[2m  no such ")
    assert "\n" not in shown
    assert cut("\x1b[2mabcdef\x1b[0m", 4) == "\x1b[2mabc…\x1b[0m"
    assert cut("abc", 3) == "abc"


# What a line could become


def test_tab_completes_commands_models_and_sessions() -> None:
    """Each command with what it does; behind some of them, what they take."""
    talk: Any = SimpleNamespace(models=["demo/echo", "demo/long"], sessions=["ses_1", "other"])
    assert [line for line, _ in completions("/s", talk)] == ["/sessions", "/switch ", "/search ", "/show", "/shell "]
    assert completions("/mod", talk) == [
        ("/model ", "show the model, or switch to another one"),
        ("/mode ", "show or set the permission mode"),
    ]
    assert [line for line, _ in completions("/switch s", talk)] == ["/switch ses_1"]
    assert [line for line, _ in completions("/model demo/e", talk)] == ["/model demo/echo"]
    assert completions("hello", talk) == []
    assert len(completions("/", talk)) == len(COMMANDS)


async def test_an_at_completes_files_of_the_folder(tmp_path: Path) -> None:
    """What begins so before what only holds it; nothing hidden, nothing of what others installed."""
    for name in ("src/app.py", "app.md", "docs/map.md", ".git/app", "node_modules/app.js"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "app.log").touch()
    async with clew.open("memory:") as engine:
        completer = LineCompleter(lambda line: [], lambda typed: engine.find_files(typed, workspace=tmp_path))

        async def found(line: str) -> list[str]:
            asked = completer.get_completions_async(Document(line), CompleteEvent())
            return [completion.text async for completion in asked]

        assert await found("look at @ap") == ["app.md", "src/app.py", "docs/map.md"]
        (tmp_path / "my notes.txt").touch()
        assert await found("see @my") == await found("see @'my no") == ["'my notes.txt'"]
        assert await found("look at ap") == []
        assert await found("mail me@ap") == []


def test_files_are_named_by_an_at_and_images_by_their_path(tmp_path: Path) -> None:
    """As a terminal drops them, too; a name that is no file stays a word."""
    (tmp_path / "a b.png").write_bytes(b"\x89PNG")
    (tmp_path / "notes.txt").write_text("hello")
    said = rf"see @notes.txt, @gone.txt and {tmp_path}/a\ b.png or '{tmp_path}/a b.png' but not notes.txt"
    [words, *files] = with_files(said, tmp_path)
    assert words == {"type": "text", "text": said}
    assert [(file["filename"], file["mediaType"]) for file in files] == [
        ("notes.txt", "text/plain"),
        ("a b.png", "image/png"),
    ]


# What is always in sight


def test_the_footer_says_less_where_there_is_less_room() -> None:
    """Never more than fits; the model and the mode are last to go."""
    footer = Footer(folder="/home/of/mine", model="demo/echo", mode="read_only", share=0.123, cost_usd=0.0042)
    assert footer.line(80) == "/home/of/mine · demo/echo · read_only · 12% full · $0.0042"
    assert [footer.line(width) for width in (52, 44, 36, 28, 20)] == [
        "…/mine · demo/echo · read_only · 12% full · $0.0042",
        "demo/echo · read_only · 12% full · $0.0042",
        "demo/echo · read_only · 12% full",
        "echo · read_only · 12% full",
        "echo · read_only",
    ]


def test_a_failure_is_told_in_words_with_a_next_step_and_its_detail_below() -> None:
    """By its cause, not by what a provider wrote; what nobody has words for speaks for itself."""
    told = {"code": "model_failed", "message": "openai answered 401: no such key\nTraceback …", "cause": "key_refused"}
    assert failure_text({**told, "provider_id": "openai"}) == (
        "openai refused the key. Check the key and its permissions, or choose another model. "
        "(/model to switch)\nopenai answered 401: no such key"
    )
    assert failure_text({"code": "invalid_input", "message": "the prompt is empty."}) == "the prompt is empty"


def test_a_list_is_filtered_and_walked() -> None:
    """What is typed narrows it; as many rows as there is room for, around the one that is marked."""

    async def walk() -> tuple[list[tuple[bool, str]], str | None]:
        picker = Picker("which?", [(str(n), f"number {n}") for n in range(30)])
        picker.type("1")
        picker.move(3)
        shown = picker.lines(4)
        picker.take()
        return shown, await picker.chosen

    shown, chosen = asyncio.run(walk())
    assert shown == [
        (False, "which? 1  (12 of 30)"),
        (False, "  number 11"),
        (True, "❯ number 12"),
        (False, "  number 13"),
    ]
    assert chosen == "12"


def test_thoughts_are_broken_between_words_where_they_are_set() -> None:
    """And left as they came where a program reads them."""
    thought: list[dict[str, Any]] = [{"type": "reasoning", "text": "I will count them", "state": "done"}]
    set_by_block = Theme(colour=False, markdown=lambda text, width: text)
    assert list(Reply(set_by_block).finished(thought, 10)) == ["I will\ncount them\n"]
    assert list(Reply(PLAIN).finished(thought, 10)) == ["I will count them\n"]


# What a call would change


def test_an_edit_is_shown_as_what_it_changes(tmp_path: Path) -> None:
    """As its request says, which was made against the file as it was; where it cannot work, that is said, too."""
    (tmp_path / "a.py").write_text("one\ntwo\nthree\n")

    def shown(tool: FunctionTool, given: dict[str, Any], width: int = 200) -> list[str] | None:
        assert tool.preview is not None
        change = tool.preview(given, tmp_path)
        return change_lines(tool.name, given, {"change": msgspec.to_builtins(change)}, PLAIN, width)

    given = {"path": "a.py", "old": "two", "new": "2\x1b[2J"}
    assert shown(edit, given) == [
        "? edit a.py  +1 −1",
        "  @@ -1,3 +1,3 @@",
        "   one",
        "  -two",
        r"  +2\x1b[2J",
        "   three",
    ]
    missing = shown(edit, {**given, "old": "four"})
    assert missing is not None
    assert missing[0].startswith("? edit a.py  +1 −1  it will fail: ")
    assert (shown(edit, {**given, "old": "four"}, 40) or [])[:4] == [
        "? edit a.py  +1 −1",
        "  it will fail: old does not occur in",
        "  the file; read the file again and",
        "  copy the passage exactly",
    ]
    assert shown(write, {"path": "b.py", "content": "x\n"}) == [
        "? write b.py  +1 −0  a new file",
        "  @@ -0,0 +1 @@",
        "  +x",
    ]
    assert shown(write, {"path": "a.py", "content": "one\ntwo\n3\n"}) == [
        "? write a.py  +1 −1",
        "  @@ -1,3 +1,3 @@",
        "   one",
        "   two",
        "  -three",
        "  +3",
    ]
    assert change_lines("bash", {"command": "ls"}, {}, PLAIN) is None


# What was typed


def test_what_was_typed_is_kept_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines with newlines too; the newest are kept; what does not read is left out; a link is not followed."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    past = TypedLines(tmp_path)
    assert past.load() == []
    past.add("one\ntwo")
    past.add("ü")
    [path] = (tmp_path / "data" / "clew" / "typed").iterdir()
    assert TypedLines(tmp_path / "other").load() == []
    assert (past.load(), path.stat().st_mode & 0o777) == (["one\ntwo", "ü"], 0o600)
    path.write_bytes(b"nonsense\n" + b"\xff\n" + b'"x"\n' * (2 * MAX_LINES + 1))
    assert past.load() == ["x"] * MAX_LINES
    assert len(path.read_bytes().splitlines()) == MAX_LINES
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    past.add("no")
    assert not (tmp_path / "elsewhere").exists()
