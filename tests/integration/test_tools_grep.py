"""grep: what is found, what is left out and said so, and patterns that never end."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from clew.errors import PermissionDenied, ToolFailed
from clew.tools.base import Signal
from clew.tools.builtin import grep as grep_module
from clew.tools.builtin.grep import grep
from clew.transcript.rule import Target
from tests.unit.test_tools_support import Permits, call, context_of


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    for folder in ("src/deep", ".git"):
        (root / folder).mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "key").write_text("thread of gold\n")
    (root / "a.py").write_text("the thread\nno\nTHREAD and thread\n")
    (root / "src" / "b.txt").write_bytes(b"crlf thread\r\n")
    (root / "src" / "deep" / "c.py").write_text("ünder thread, no end")
    (root / "src" / "bin").write_bytes(b"thread\x00thread")
    (root / ".git" / "HEAD").write_text("thread")
    (root / ".env").write_text("KEY=thread\n")
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "out-file").symlink_to("../outside/key")
    os.mkfifo(root / "pipe")
    return root


LEFT_OUT = [
    "[not searched: 1 × binary file]",
    "[not searched: 2 × link]",
    "[not searched: 1 × special file]",
    "[1 version control folder left out; name one in path to look inside]",
]


async def test_lines_that_fit_are_shown_with_path_and_number(workspace: Path) -> None:
    """Hidden files too; what was not searched is counted; a link that leads out is not followed."""
    assert (await call(grep, {"pattern": "thread"}, workspace)).splitlines() == [
        ".env:1: KEY=thread",
        "a.py:1: the thread",
        "a.py:3: THREAD and thread",
        "src/b.txt:1: crlf thread",
        "src/deep/c.py:1: ünder thread, no end",
        *LEFT_OUT,
    ]


@pytest.mark.parametrize(
    ("args", "lines"),
    [
        ({"pattern": "^thread", "ignore_case": True, "path": "a.py"}, ["a.py:3: THREAD and thread"]),
        ({"pattern": "thread$", "path": "src"}, ["src/b.txt:1: crlf thread", "[not searched: 1 × binary file]"]),
        ({"pattern": r"\bünder", "glob": "*.py"}, ["src/deep/c.py:1: ünder thread, no end", LEFT_OUT[3]]),
        ({"pattern": "thread", "glob": "src/*.txt"}, ["src/b.txt:1: crlf thread"]),
        ({"pattern": "nowhere", "path": "a.py"}, ["[no line fits in 1 file]"]),
        ({"pattern": "thread", "path": ".git"}, [".git/HEAD:1: thread"]),
        ({"pattern": "gold", "path": "out-file"}, ["{outside}/key:1: thread of gold"]),
        ({"pattern": "gold", "path": "out"}, ["{outside}/key:1: thread of gold"]),
    ],
)
async def test_where_to_look_can_be_narrowed(args: dict[str, Any], lines: list[str], workspace: Path) -> None:
    """By path, which may be a file; by glob, in any folder when it has no slash."""
    outside = str(workspace.parent / "outside")
    assert (await call(grep, args, workspace)).splitlines() == [line.format(outside=outside) for line in lines]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"pattern": "("}, "not a valid regular expression"),
        ({"pattern": "x" + "{1000}" * 5}, "not a valid regular expression|broke off"),
        ({"pattern": "(?P<a>x)(?P<a>y)"}, "not a valid regular expression"),
        ({"pattern": "x", "path": "missing"}, "missing does not exist"),
        ({"pattern": "x", "path": "pipe"}, "named pipe"),
        ({"pattern": "x", "glob": "../*"}, "downwards only"),
    ],
)
async def test_what_cannot_be_searched_is_a_sentence(args: dict[str, Any], words: str, workspace: Path) -> None:
    """For the pattern, the path and the glob."""
    with pytest.raises(ToolFailed, match=words):
        await call(grep, args, workspace)


async def test_many_lines_are_capped_and_counted(workspace: Path) -> None:
    """The rest is known by number; long lines are shown around the match."""
    (workspace / "many").write_text("x\n" * 700)
    lines = (await call(grep, {"pattern": "x", "path": "many"}, workspace)).splitlines()
    assert (len(lines), lines[499], lines[500]) == (501, "many:500: x", "[200 more of 700 lines are not shown]")
    (workspace / "wide").write_text("a" * 5_000 + "needle" + "b" * 5_000)
    (line,) = (await call(grep, {"pattern": "needle", "path": "wide"}, workspace)).splitlines()
    assert line.startswith("wide:1: …aaa")
    assert line.endswith("bbb…")
    assert "needle" in line
    assert len(line) < 320


async def test_a_file_of_one_endless_line_is_searched_in_pieces(workspace: Path) -> None:
    """Its memory is bounded; its line number stays one."""
    with (workspace / "flat").open("wb") as file:
        for _ in range(8):
            file.write(b"-" * 1_000_000)
        file.write(b"needle")
    assert (await call(grep, {"pattern": "needle", "path": "flat"}, workspace)).startswith("flat:1: …---")


CATASTROPHES = [r"(a+)+$", r"(a|aa)+$", r"(a*)*b", r"(.*a){25}b", r"^(([a-z])+.)+[A-Z]([a-z])+$"]


@pytest.mark.slow
@pytest.mark.parametrize("pattern", CATASTROPHES)
async def test_a_pattern_that_never_ends_is_ended_and_the_loop_goes_on(
    pattern: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process is killed; the host is not held up for a moment."""
    monkeypatch.setattr(grep_module, "SECONDS", 1.0)
    (workspace / "trap").write_text("a" * 3_000 + "!\n")
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    told = await call(grep, {"pattern": pattern, "path": "trap"}, workspace)
    ticking.cancel()
    assert "[stopped early: the pattern took too long in " in told
    assert ticks > 5


@pytest.mark.slow
async def test_what_was_found_before_the_time_ran_out_is_kept(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the file the time ran out in, and how many were not searched to the end."""
    monkeypatch.setattr(grep_module, "SECONDS", 3.0)
    (workspace / "t1").write_text("aaa\n")
    (workspace / "t2").write_text("a" * 3_000 + "!\n")
    (workspace / "t3").write_text("aaa\n")
    assert (await call(grep, {"pattern": "^(a+)+$", "glob": "t?"}, workspace)).splitlines() == [
        "t1:1: aaa",
        "[stopped early: the pattern took too long in t2, 2 files of 3 not searched to the end]",
        LEFT_OUT[3],
    ]


async def test_the_number_of_files_is_capped_and_the_rest_counted(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree of a million files ends, too."""
    monkeypatch.setattr(grep_module, "MAX_FILES", 2)
    told = await call(grep, {"pattern": "nothing", "path": "src"}, workspace)
    assert told.splitlines()[0] == "[no line fits in 2 files]"
    assert "[not searched: 1 × file beyond the first 2]" in told


async def test_an_aborted_search_ends_at_once(workspace: Path) -> None:
    """The process that searches is killed, not waited for."""
    (workspace / "trap").write_text("a" * 3_000 + "!\n")
    signal = Signal()
    searching = asyncio.create_task(call(grep, {"pattern": "(a+)+$", "path": "trap"}, workspace, signal=signal))
    asyncio.get_running_loop().call_later(0.2, signal.abort, "changed my mind")
    with pytest.raises(ToolFailed, match="aborted: changed my mind"):
        await searching


@pytest.mark.rule("PM-5")
async def test_a_file_that_may_not_be_read_is_not_searched(workspace: Path) -> None:
    """A rule for read cannot be got around by searching, not even to test a guess; each real path is asked about."""
    permits = Permits(str(workspace / ".env"))
    told = await call(grep, {"pattern": "KEY|deep", "glob": "{.env,*.txt}"}, workspace, permit=permits)
    assert told.splitlines() == [
        "[no line fits in 1 file]",
        "[not searched: 1 × file that may not be read]",
        LEFT_OUT[3],
    ]
    assert permits.asked == [
        Target("read", "path", str(workspace / ".env"), True),
        Target("read", "path", str(workspace / "src" / "b.txt"), True),
    ]


async def test_a_folder_that_was_not_judged_is_not_searched(workspace: Path) -> None:
    """A link swapped after the judgement."""
    (workspace / "place").symlink_to("src")
    judged = tuple(grep.targets({"path": "place"}, workspace))
    (workspace / "place").unlink()
    (workspace / "place").symlink_to("../outside")
    with pytest.raises(ToolFailed, match="not what was judged"):
        await grep.execute(
            {"pattern": "x", "path": "place"}, context_of(workspace.parent, workspace=workspace, judged=judged)
        )


async def test_a_file_swapped_for_a_link_during_the_search_is_not_followed(workspace: Path) -> None:
    """The searching process opens by handles and never through a link."""

    async def swap(target: Target) -> None:
        os.unlink(target.value)
        os.symlink(workspace.parent / "outside" / "key", target.value)

    told = await call(grep, {"pattern": "gold", "glob": "b.txt"}, workspace, permit=swap)
    assert "[no line fits in 1 file]" in told
    assert "[not searched: 1 × unreadable file]" in told


async def test_when_nothing_may_be_read_it_is_said(workspace: Path) -> None:
    """Without a rule that allows it, a search is empty, not free."""

    async def nothing(target: Target) -> None:
        raise PermissionDenied("no")

    told = await call(grep, {"pattern": "thread", "path": "a.py"}, workspace, permit=nothing)
    assert told.splitlines() == ["[no line fits in 0 files]", "[not searched: 1 × file that may not be read]"]


async def test_files_there_was_no_time_to_ask_about_are_counted(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow rules cost files, not the answer."""
    monkeypatch.setattr(grep_module, "SECONDS", 0.2)

    async def slow(target: Target) -> None:
        await asyncio.sleep(0.3)

    told = await call(grep, {"pattern": "nothing", "path": "src"}, workspace, permit=slow)
    assert "[stopped early: 0.2 s are over, 2 files not looked at]" in told


async def test_names_that_are_no_text_are_searched_and_shown_escaped(workspace: Path) -> None:
    """A name is bytes; a result is text."""
    path = os.fsencode(workspace) + b"/bad\xff.log"
    handle = os.open(path, os.O_CREAT | os.O_WRONLY)
    os.write(handle, b"thread\n")
    os.close(handle)
    assert (await call(grep, {"pattern": "thread", "glob": "*.log"}, workspace)).splitlines()[
        0
    ] == "bad\\udcff.log:1: thread"
