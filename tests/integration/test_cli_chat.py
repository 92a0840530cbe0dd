"""``clew chat`` on a terminal of its own: what is shown, what keys do, and what nobody else can make it do."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Any

import pytest

import clew
from tests.integration.command_line import Run, run
from tests.integration.processes import environment, serving
from tests.integration.screen import Open, chat, texts
from tests.rig.fork_server import run_forked

pytestmark = pytest.mark.service
READY = "/help for commands"
OURS = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\d*[ABCDJK]|\x1b[78]|\x1b\[\?(?:1l|7[hl]|12l|25[hl]|2004[hl])|\x08")
"""Every escape clew writes: colours, moves, clearing, the cursor, where rows end, and that pastes are to be marked."""
__all__ = ["chat", "run"]


def stored(tmp_path: Path) -> list[Any]:
    """The messages of the newest session."""

    async def load() -> list[Any]:
        async with clew.open(f"sqlite:///{tmp_path}/store.db", read_only=True) as engine:
            [session, *_] = (await engine.list_sessions()).sessions
            return await engine.messages(session.id)

    return asyncio.run(load())


def sessions(tmp_path: Path) -> list[Any]:
    async def load() -> list[Any]:
        async with clew.open(f"sqlite:///{tmp_path}/store.db", read_only=True) as engine:
            return list((await engine.list_sessions()).sessions)

    return asyncio.run(load())


# Talking


def test_a_conversation(chat: Open, tmp_path: Path) -> None:
    """Markdown is set, the session goes on in its folder, and a new one is made only when asked for."""
    screen = chat(model="demo/tour")
    screen.until(READY)
    seen = screen.send("what is clew?", "› what is clew?\n", "soon full\n")
    assert "## clew" not in seen
    assert "\n • ask what is clew?," in seen
    assert "\x1b[3mwhat is clew?\x1b[0m" in screen.sent
    assert screen.leave() == 0
    [session] = sessions(tmp_path)
    assert f"resume with: clew chat {session.id}" in screen.sent
    assert (session.workspace_root, str(session.model)) == (str(tmp_path), "demo/tour")
    again = chat()
    again.until("soon full")
    assert again.leave() == 0
    assert again.seen.startswith(f"{session.id} · what is clew? · demo/tour\n\n› what is clew?\nclew\n\nA clew is ")
    new = chat(new=True)
    new.until(READY)
    assert new.leave() == 0
    assert len(sessions(tmp_path)) == 1
    named = chat(session.id)
    named.until("soon full")
    assert named.leave() == 0


def test_a_failure_is_said_and_can_be_gone_on_after(chat: Open) -> None:
    """Trying again is shown while it lasts; /continue tries once more what failed."""
    screen = chat(model="demo/fail")
    screen.until(READY)
    screen.type("429 1\r")
    screen.until("attempt ")
    screen.until("Esc stops")
    screen.idle()
    assert "› 429 1\n429 1\n" in screen.seen
    screen.send("404", "clew: demo has no model with that name. Choose another model.", "404: there is no such model\n")
    assert "\x1b[31mclew: demo has no model with that name." in screen.sent
    screen.send("/continue", "clew: demo has no model with that name.", "404: there is no such model\n")
    screen.send("/nothing", "clew: unknown command /nothing; type /help for commands (invalid_input)\n")
    screen.send("/model demo/nothing", "(invalid_input)\n")
    screen.send("/model demo/echo:slwo", "it has slow (unknown_variant)\n")
    screen.send("/model", "demo/fail; available: demo/tour, demo/echo,")
    screen.send("/help", "/rewind [N|MSG] [TEXT]", "begins a new line.")
    screen.type("/quit\r")
    assert screen.end() == 0


def test_ctrl_c_aborts_the_turn_and_a_second_one_leaves(chat: Open, tmp_path: Path) -> None:
    """What was said is kept; reasoning is dim; prompts typed meanwhile wait, are shown, and run when told to."""
    screen = chat(model="demo/long:slow")
    screen.until(READY)
    screen.type("2000 words\r")
    screen.until("thread stone")
    assert "\x1b[2mThe user asked for 2000 words. I will count them as I go.\x1b[0m\n" in screen.sent
    screen.type("3 words\r")
    screen.until("⋯ 3 words")
    screen.type("4 words\r")
    screen.until("⋯ 4 words")
    screen.type("/queue cancel 2\r")
    screen.shows("  1  3 words\n")
    screen.type("\x03")
    screen.until("stopped; partial output is saved")
    screen.until("1 queued, paused after a stop; /queue go on to resume")
    screen.type("/continue queue\r")
    screen.shows("› 3 words\n")
    screen.shows("thread stone quiet\n")
    screen.idle()
    assert "4 words" not in screen.seen.partition("stopped;")[2]
    screen.type("\x03")
    screen.until("Ctrl-C again or Ctrl-D to leave")
    screen.type("\x03")
    assert screen.end() == 130
    [first, part, second, whole] = texts(stored(tmp_path))
    assert (first, second, whole) == ("2000 words", "3 words", "thread stone quiet")
    assert 2 <= len(part.split()) < 2000


def test_leaving_in_the_middle_settles_the_turn(chat: Open) -> None:
    """What was written is kept, and the next one goes on from there."""
    screen = chat(model="demo/long:slow")
    screen.until(READY)
    screen.type("2000 words\r")
    screen.until("thread stone")
    assert screen.leave() == 0
    assert "turn interrupted; partial output is saved\n" in screen.sent
    again = chat()
    again.until("thread stone")
    again.idle()
    again.send("/model demo/echo", "model: demo/echo\n")
    again.send("hello again", "› hello again\nhello again\n")
    assert again.leave() == 0


# Being asked


def test_what_needs_a_permission_is_asked_by_key(chat: Open, tmp_path: Path) -> None:
    """The exact call is shown; one key answers it; a denial takes a reason; each call is asked for in its turn."""
    screen = chat(model="demo/tools")
    screen.until(READY)
    screen.type("!bash touch one\r")
    screen.until("allow? [y]es once")
    assert "\n? bash touch one\n" in screen.seen
    keys = "y allows it once, s for this session, p for this project, n denies it\n"
    screen.answer("x", f"x is not an answer: {keys}")
    screen.until("[n]o:")
    screen.answer("\r", keys)
    screen.until("[n]o:")
    screen.answer("ok then\r", f"ok then is not an answer: {keys}")
    screen.until("[n]o:")
    assert not (tmp_path / "one").exists()
    screen.answer("y", "✓ bash touch one")
    screen.idle()
    assert (tmp_path / "one").exists()
    screen.type("\x1b[200~!bash touch two\n!bash touch three\x1b[201~")
    screen.until("  !bash touch three")
    screen.type("\r")
    screen.until("allow?")
    screen.answer("n", "reason (optional")
    screen.type("not today\r")
    screen.until("allow?")
    screen.answer("s", "  1. exactly `touch three`\n")
    screen.until("scope, by number:")
    screen.answer("1\r", "not today")
    screen.idle()
    assert "\n⊘ bash touch two  denied\n✓ bash touch three  [exit code 0]\n" in screen.seen
    assert [(tmp_path / name).exists() for name in ("two", "three")] == [False, True]
    # "For this session" was for commands like that one.
    assert "allow?" not in screen.send("!bash touch three", "✓ bash touch three")
    assert screen.leave() == 0


def test_a_session_without_a_folder_has_no_project_to_remember_for(chat: Open, tmp_path: Path) -> None:
    """So it is not offered, and the key is none."""
    session_id = asyncio.run(_make_waiting(tmp_path))
    screen = chat(session_id)
    screen.until("allow? [y]es once · this [s]ession · [n]o:")
    screen.answer("p", "p is not an answer: y allows it once, s for this session, n denies it\n")
    screen.answer("n", "reason (optional")
    screen.type("\r")
    screen.until("web_fetch denied")
    screen.idle()
    assert screen.leave() == 0


async def _make_waiting(tmp_path: Path) -> str:
    async with clew.open(f"sqlite:///{tmp_path}/store.db") as engine:
        session = await engine.create_session(model="demo/tools")
        await engine.submit(session.id, "!web_fetch http://127.0.0.1:9/")
        async for status in engine.watch_status(session.id):
            if status.waiting:
                break
        return session.id


def test_ctrl_c_denies_what_waits(chat: Open, tmp_path: Path) -> None:
    """The turn is aborted, and nothing was done."""
    screen = chat(model="demo/tools")
    screen.until(READY)
    screen.type("!bash touch made\r")
    screen.until("allow?")
    screen.answer("x\r", "x is not an answer: ")
    screen.type("\x03")
    screen.until("stopped; partial output is saved")
    screen.idle()
    assert screen.leave() == 0
    assert not (tmp_path / "made").exists()


def test_whoever_is_typing_does_not_answer_by_accident(chat: Open, tmp_path: Path) -> None:
    """With half a line written, a key alone is no answer; the line is there again afterwards."""
    os.mkfifo(tmp_path / "gate")
    screen = chat(model="demo/tools", moment_s=0.3)
    screen.until(READY)
    screen.type("!bash cat gate; touch made\r")
    screen.until("allow?")
    screen.answer("y", "working")
    screen.type("!bash touch other\r")
    screen.until("⋯ !bash touch other")
    screen.type("half a line, y")
    screen.until("half a line, y")
    (tmp_path / "gate").write_text("open")
    screen.until("? bash touch other\n")
    screen.type(" and yes")
    screen.until("⋯ half a line, y and yes  (saved; answer with Enter)")
    screen.answer("y", "[n]o: y")
    assert not (tmp_path / "other").exists()
    screen.type("\r")
    screen.shows("✓ bash touch other")
    screen.shows("› half a line, y and yes")
    assert (tmp_path / "other").exists()
    screen.type("\x15")
    assert screen.leave() == 0


def test_a_question_is_answered_inline(chat: Open) -> None:
    """By the number of an option, or in words."""
    screen = chat(model="demo/tools")
    screen.until(READY)
    question = '!question {"question": "Which way?", "options": ["left", "right"]}\r'
    screen.type(question)
    screen.until("your answer:")
    assert "\n? Which way?\n  1. left\n  2. right\n" in screen.seen
    screen.answer("2\r", "question done: right")
    screen.idle()
    screen.type(question)
    screen.until("your answer:")
    screen.answer("neither\r", "question done: neither")
    screen.idle()
    assert screen.leave() == 0


# Slash commands


def test_going_back_and_aside(chat: Open, tmp_path: Path) -> None:
    """A rewind hands the words back or says others; it can be undone; a branch is gone on with."""
    screen = chat(model="demo/echo")
    screen.until(READY)
    for words in ("one", "two", "three"):
        screen.send(words, f"› {words}\n{words}\n")
    screen.type("/rewind\r")
    screen.until("2 messages left the conversation")
    screen.until("› three")
    screen.send(" and a half", "› three and a half\nthree and a half\n")
    screen.send("/rewind 2 zwei", "4 messages left the conversation\n\n› zwei\nzwei\n")
    assert texts(stored(tmp_path)) == ["one", "one", "zwei", "zwei"]
    screen.send("/rewind 9", "the conversation has only 2 messages of yours")
    screen.send("/unrewind", "(newer_turns)")
    tree = screen.send("/tree", "(head)  zwei")
    [first] = re.findall(r"● (trn_\w+)  one", tree)
    assert [row.split()[3] for row in screen.send("/reflog", "   1  ").splitlines() if "trn_" in row][-4:] == [
        "rewind",
        "turn",
        "turn",
        "turn",
    ]
    screen.send(f"/goto {first}", "2 messages left the conversation")
    assert texts(stored(tmp_path)) == ["one", "one"]
    screen.send("/branch", " · one (branch) · demo/echo\n\n› one\none\n")
    screen.send("aside", "› aside\naside\n")
    screen.send("/title Beside it", "title: Beside it")
    listed = screen.send("/sessions", "  Beside it\n", "  one\n")
    [branch, parent] = re.findall(r"(ses_\w+)  (?:Beside it|one)", listed)
    screen.send(f"/switch {parent}", f"{parent} · one · demo/echo\n\n› one\none\n")
    screen.send("/new", READY)
    screen.send("/show", "no session yet")
    screen.send(f"/switch {branch}", "› aside\naside\n")
    assert screen.leave() == 0


def test_making_room(chat: Open) -> None:
    """The line says how much was summarised; the gauge is one line; with nothing to do that is said."""
    screen = chat(model="demo/echo")
    screen.until(READY)
    screen.send("/compact", "no session yet")
    for number in range(5):
        # The answer, and not what was typed, which says the same behind another mark.
        said = f"{number} " + "word " * 250 + "end"
        screen.send(f"\x1b[200~{said}\x1b[201~", f"\n{number} word", "word end\n")
    screen.send("/compact the numbers", "── summarised 3 earlier turns ──\n")
    screen.send("/compact", "nothing to compact: ")
    screen.send("/context", " of 8,000 tokens")
    screen.send("/model demo/small", "model: demo/small")
    screen.send("/context", " of 2,000 tokens")
    screen.send("/model demo/echo", "model: demo/echo")
    screen.send("/prune", "nothing to prune: ")
    assert "── summarised 3 earlier turns ──\n" in screen.send("/show", "› 4 word")
    assert screen.leave() == 0


# The terminal


def test_keys_history_and_completion(chat: Open, tmp_path: Path) -> None:
    """As in a shell; what was typed is kept for its owner alone, and is there the next time."""
    screen = chat(model="demo/echo")
    screen.until(READY)
    screen.type("helo")
    screen.type("\x1b[Dl\x05 there\x01\x0b\x19")
    screen.send("", "› hello there\nhello there\n")
    screen.type("/rew\t2")
    screen.until("› /rewind 2")
    screen.type("\x15one\\\r")
    screen.until("› one\n")
    screen.send("two", "› one\ntwo\n")
    screen.type("half a line")
    screen.until("› half a line")
    screen.type("\x03")
    screen.idle()
    assert screen.leave() == 0
    [kept] = (tmp_path / "data" / "clew" / "typed").iterdir()
    assert (kept.stat().st_mode & 0o777, kept.read_text()) == (0o600, '"hello there"\n"one\\ntwo"\n')
    again = chat()
    again.until("one\ntwo\n")
    again.idle()
    again.type("\x1b[A\x1b[A\x1b[A")
    again.until("› hello there")
    again.send("", "› hello there\nhello there\n")
    assert again.leave() == 0


def test_a_resize_in_the_middle_of_an_answer(chat: Open) -> None:
    """Nothing is left of what was drawn for the old width, and the answer is whole."""
    screen = chat(model="demo/long:slow")
    screen.until(READY)
    screen.type("120 words\r")
    # Rows that the narrower terminal breaks in two.
    screen.shows("thread stone quiet end north wall forward follow gate lantern")
    screen.resize(40)
    screen.idle()
    said = screen.seen.rpartition("I go.\n")[2].partition("\n›")[0]
    assert (len(said.split()), screen.seen.count("\n›"), screen.seen.count("Esc stops")) == (120, 2, 0)
    assert max(map(len, said.split("\n"))) <= 40
    screen.resize(20, 8)
    screen.type("2 words\r")
    screen.shows("I go.\nthread stone\n")
    screen.resize(80, 24)
    screen.idle()
    screen.send("3 words", "I go.\nthread stone quiet\n")
    assert screen.leave() == 0


def test_escapes_come_out_as_text(tmp_path: Path, chat: Open) -> None:
    """Clipboard, title, colours, cursor and bidi, in titles, texts, outputs and arguments."""
    asyncio.run(_make_hostile(tmp_path))
    screen = chat()
    screen.until("allow?")
    asked = screen.seen.rpartition("? bash")[2]
    screen.answer("y", "✓ bash")
    screen.idle()
    screen.send("/tree", "(head)")
    screen.send("/sessions", "owned")
    screen.send("/show", "› say")
    assert screen.leave() == 0
    assert r"\x1b]52;c;aGk=\x07" in asked
    assert r"\u202e" in asked
    assert r"\x1b]52;c;aGk=\x07" in screen.seen
    left = OURS.sub("", screen.sent).replace("\r", "")
    assert [ch for ch in left if not ch.isprintable() and ch != "\n"] == []


async def _make_hostile(tmp_path: Path) -> None:
    evil = "\x1b]52;c;aGk=\x07\x1b[2J\x9b31m\x1b]0;owned\x07\u202egnp.exe"
    (tmp_path / "evil.txt").write_text(evil)
    async with clew.open(f"sqlite:///{tmp_path}/store.db") as engine:
        session = await engine.create_session(model="demo/echo", title=f"T{evil}", workspace_root=tmp_path)
        await (await engine.submit(session.id, f"say {evil}")).wait()
        await (await engine.submit(session.id, "!read evil.txt", model="demo/tools")).wait()
        await engine.submit(session.id, f"!bash echo '{evil}'", model="demo/tools")
        async for status in engine.watch_status(session.id):
            if status.waiting:
                break


# Elsewhere


@pytest.mark.slow
async def test_beside_a_server_it_talks_to_the_server(tmp_path: Path, chat: Open) -> None:
    """Streams, approvals and aborts; what others do to the session is shown too; leaving leaves the turn alone."""
    async with serving(tmp_path) as server:
        screen = chat(model="demo/tools")

        def approve() -> None:
            screen.until(READY)
            screen.type("!bash touch made\r")
            screen.until("allow?")
            screen.answer("y", "✓ bash touch made")
            screen.idle()
            screen.send("/model demo/long:slow", "model: ")

        def run_twice() -> int:
            # The prompt from elsewhere is shown at once, and its answer a moment later.
            screen.until("from elsewhere\n")
            screen.shows("› from elsewhere\nfrom elsewhere\n")
            screen.idle()
            screen.type("2000 words\r")
            screen.until("thread stone")
            screen.type("\x03")
            screen.until("stopped; partial output is saved")
            screen.idle()
            screen.type("2001 words\r")
            screen.until("thread stone")
            return screen.leave()

        await asyncio.to_thread(approve)
        assert (tmp_path / "made").exists()
        [session] = (await server.client.get("/api/sessions")).json()["sessions"]
        await server.client.prompt(session["id"], "from elsewhere", model="demo/echo")
        assert await asyncio.to_thread(run_twice) == 0
        assert "the turn continues on the server\n" in screen.sent
        assert (await server.client.status(session["id"]))["state"] == "busy"
        again = chat(session["id"], columns=200)
        await asyncio.to_thread(again.shows, "working")
        await asyncio.to_thread(again.shows, "thread stone quiet")
        server.process.kill()
        await asyncio.to_thread(again.shows, "clew: connection to the server lost; reconnecting.")
        again.type("hello?\r")
        await asyncio.to_thread(again.shows, "(store_unavailable)")
    async with serving(tmp_path) as server:
        await asyncio.to_thread(again.shows, "reconnected\n")
        await asyncio.to_thread(again.shows, "turn interrupted; partial output is saved; /continue to resume\n")
        # What could not be sent was handed back.
        await asyncio.to_thread(again.shows, "› hello?")
        again.type("\x15")
        await asyncio.to_thread(again.send, "/model demo/echo", "model: demo/echo\n")
        await asyncio.to_thread(again.send, "and on", "› and on\nand on\n")
        listed = (await server.client.get(f"/api/sessions/{session['id']}/messages")).json()["messages"]
        assert await asyncio.to_thread(again.leave) == 0
    [words] = [m["parts"] for m in listed if m["role"] == "assistant"][-2:-1]
    # Each word that is stored was shown, once, though it was cut in the middle.
    shown = again.said.rpartition("I go.\n")[2].partition("\nturn interrupted")[0]
    shown = re.sub(r"(?m)^(?:clew: |reconnected).*$", "", shown)
    assert shown.split() == words[-1]["text"].split()


@pytest.mark.slow
@pytest.mark.rule("ST-9")
def test_a_second_chat_talks_to_the_first_and_has_the_store_after_it(chat: Open, run: Run) -> None:
    """So does every command, and the page; whoever is left when the owner leaves goes on with what is stored."""
    first = chat(model="demo/echo")
    first.until(READY)
    first.send("one", "› one\none\n")
    second = chat(model="demo/echo", new=True)
    second.until(READY)
    second.send("two", "› two\ntwo\n")
    code, url, _ = run("url")
    assert (code, re.fullmatch(r"http://127\.0\.0\.1:\d+/#token=\S+\n", url) is not None) == (0, True)
    assert run("run", "three", "--model", "demo/echo") == (0, "three\n", "")
    assert first.leave() == 0
    second.shows("the chat that owned the store has ended; the store is open here now\n")
    second.idle()
    # A change of hands is nothing to be alarmed about.
    assert "the server is gone" not in second.sent
    second.send("four", "› four\nfour\n")
    # It serves in its turn, and nobody does when it has left.
    assert run("run", "five", "--model", "demo/echo") == (0, "five\n", "")
    assert second.leave() == 0
    assert (run("url"))[0] == 3
    assert run("check") == (0, "4 sessions, 0 problems\n", "")


def test_without_a_terminal_lines_are_prompts(tmp_path: Path) -> None:
    """One after another, with nothing on stdout but what was said; what nobody can be asked is denied."""

    def piped(lines: str, *words: str) -> tuple[int, str, str]:
        env, typed = environment(tmp_path), lines.encode()
        done = run_forked("clew.fronts.cli.app", "chat", *words, env=env, folder=tmp_path, typed=typed)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    code, out, err = piped("hello there\none \\\ntwo\n!bash touch made\n/nothing\n", "--model", "demo/tools")
    assert (code, err) == (0, "clew: unknown command /nothing; type /help for commands (invalid_input)\n")
    assert out.startswith("hello there\none \ntwo\n✗ bash touch made  denied")
    assert not (tmp_path / "made").exists()
    failed = piped("404\n", "--new", "--model", "demo/fail")
    why = "demo has no model with that name. Choose another model. (choose another with --model)"
    assert failed == (1, "", f"clew: {why}\n404: there is no such model\n")
    full = "word " * 150
    code, out, err = piped(f"{full}\n" * 5, "--new", "--model", "demo/small")
    assert (code, set(out.split())) == (0, {"word"})
    assert re.fullmatch(r"(clew: ── summarised \d+ earlier turns? ──\n)+", err)
    code, out, err = piped("hello\n", "--new", "--model", "demo/nothing")
    assert (code, out, err.count("\n"), err.endswith("(invalid_input)\n")) == (2, "", 1, True)
    for words, code in [(["non.sense"], 2), (["ses_" + "0" * 26], 3), (["x", "--new"], 2), (["a", "b"], 2)]:
        assert piped("", *words)[0] == code
