"""Tests of the agent with a scripted model in a folder of their own: no key, no network."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from clew.testing.scripted import ScriptedModel, call, say
from coder import Decision, find_session, open_coder, undo, work

Asked = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder to work in; the store lies next to it."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "hello.py").write_text("print('helo')\n", "utf-8")
    return folder


async def run(folder: Path, model: ScriptedModel, task: str | None, decision: Decision, asked: Asked) -> str:
    """Open the store, do the task, and close it; return what the agent said."""

    def decide(tool: str, arguments: dict[str, Any]) -> Decision:
        asked.append((tool, arguments))
        return decision

    async with open_coder(f"sqlite:///{folder.parent}/coder.db", providers={"test": model}) as engine:
        session = await find_session(engine, folder)
        return "".join([text async for text in work(engine, session, task, decide)])


FIX = {"path": "hello.py", "old": "helo", "new": "hello"}


def test_it_reads_by_itself_and_asks_before_it_edits(folder: Path) -> None:
    """The edit is done once it is allowed, and what the agent says is shown once, before and after the question."""
    model = ScriptedModel(
        [[say("Let me look. "), call("read", {"path": "hello.py"})], call("edit", FIX), say("It is fixed.")]
    )
    asked: Asked = []
    said = asyncio.run(run(folder, model, "Fix the typo", "once", asked))
    assert (said, asked) == ("Let me look. It is fixed.", [("edit", FIX)])
    assert (folder / "hello.py").read_text("utf-8") == "print('hello')\n"


def test_an_edit_that_is_denied_changes_nothing(folder: Path) -> None:
    """The agent is told, and goes on without it."""
    model = ScriptedModel([call("edit", FIX), say("I leave it as it is.")])
    said = asyncio.run(run(folder, model, "Fix the typo", "deny", []))
    assert said == "I leave it as it is."
    assert (folder / "hello.py").read_text("utf-8") == "print('helo')\n"


def test_a_question_that_was_left_open_is_answered_by_the_next_start(folder: Path) -> None:
    """The program ended while the edit waited for an approval."""

    class Closed(Exception):
        pass

    def close(tool: str, arguments: dict[str, Any]) -> Decision:
        raise Closed

    async def leave() -> None:
        model = ScriptedModel([call("edit", FIX)])
        async with open_coder(f"sqlite:///{folder.parent}/coder.db", providers={"test": model}) as engine:
            session = await find_session(engine, folder)
            async for _ in work(engine, session, "Fix the typo", close):
                pass

    with pytest.raises(Closed):
        asyncio.run(leave())
    assert (folder / "hello.py").read_text("utf-8") == "print('helo')\n"
    asked: Asked = []
    said = asyncio.run(run(folder, ScriptedModel([say("It is fixed.")]), None, "once", asked))
    assert (said, asked) == ("It is fixed.", [("edit", FIX)])
    assert (folder / "hello.py").read_text("utf-8") == "print('hello')\n"


def test_what_lies_outside_of_the_folder_is_asked_about_and_a_secret_is_never_read(folder: Path) -> None:
    """A path that leaves the folder and a link that does; for secrets a rule decides without a question."""
    (folder.parent / "outside.txt").write_text("not yours", "utf-8")
    (folder / "link.txt").symlink_to(folder.parent / "outside.txt")
    (folder / "prod.env").write_text("KEY=not-yours-either", "utf-8")
    paths = ("../outside.txt", "link.txt", "prod.env")
    model = ScriptedModel([[call("read", {"path": path}) for path in paths], say("I cannot.")])
    asked: Asked = []
    assert asyncio.run(run(folder, model, "Read what you can", "deny", asked)) == "I cannot."
    assert "not yours" not in repr(model.requests[-1].messages)
    assert "not-yours-either" not in repr(model.requests[-1].messages)
    assert asked == [("read", {"path": "../outside.txt"}), ("read", {"path": "link.txt"})]


def test_a_task_is_taken_back_and_given_in_other_words(folder: Path) -> None:
    """The model does not see what was taken back; the store keeps it."""
    asyncio.run(run(folder, ScriptedModel([say("Done: it is red.")]), "Make it red", "once", []))

    async def take_back() -> tuple[str, int, int]:
        async with open_coder(f"sqlite:///{folder.parent}/coder.db", providers={"test": ScriptedModel([])}) as engine:
            session = await find_session(engine, folder)
            task = await undo(engine, session)
            shown, stored = await engine.messages(session), await engine.messages(session, view="all")
            return task, len(shown), len(stored)

    assert asyncio.run(take_back()) == ("Make it red", 0, 2)
    model = ScriptedModel([say("Done: it is blue.")])
    assert asyncio.run(run(folder, model, "Make it blue", "once", [])) == "Done: it is blue."
    assert "red" not in repr(model.requests[0].messages)
