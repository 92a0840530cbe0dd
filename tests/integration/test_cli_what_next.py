"""What a person reads on the command line when something is not as it should be: why, and what to do next."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

import clew
from clew.fronts.cli.render import Theme, call_details
from tests.integration.command_line import Run, run
from tests.integration.processes import command, environment, on_a_terminal

__all__ = ["run"]

pytestmark = pytest.mark.service

AFTER_CHECK = (
    "clew: `clew check --repair` repairs derived data; `clew check --accept ID` accepts a damaged message or a loss; "
    "restore anything else from a backup\n"
)


async def test_a_terminal_says_why_a_call_is_asked_about(tmp_path: Path) -> None:
    """The dangerous argument is named, not only the command."""
    words = ("run", "!bash git log --output=x", "--model", "demo/tools")
    _, seen = await on_a_terminal(tmp_path, *words, answers=[b"n\n\n"])
    assert (
        "? bash git log --output=x needs approval: no rule covers it: `--output` makes `git log` write or change "
        "files, so only a rule that begins with `git log --output=x` could allow it allow? "
    ) in " ".join(seen.split())


def test_what_of_a_call_is_asked_about_is_named_when_it_is_not_the_whole() -> None:
    theme = Theme(colour=False)
    whole = {"permission": "bash", "kind": "command", "value": "git log > out", "inside": False}
    part = {"permission": "write", "kind": "path", "value": "/srv/\x1b[2Jout", "inside": True}
    descriptor = {"targets": [whole], "target": part, "reason": "no rule covers it"}
    shown = call_details("bash", {}, theme, {"id": "apr_1", "descriptor": descriptor})
    assert shown == "? bash {}\n  needs approval: write /srv/\\x1b[2Jout: no rule covers it\n"
    assert [call_details("bash", {}, theme, other) for other in (None, {}, {"descriptor": None})] == ["? bash {}\n"] * 3


def test_an_answer_that_was_cut_off_says_so_and_how_to_go_on(tmp_path: Path, run: Run) -> None:
    """On stderr, in a pipe too; as the reason of the finish with --json."""
    folder = Path(environment(tmp_path)["XDG_CONFIG_HOME"]) / "clew"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("max_reply_bytes = 300\n")
    code, out, err = run("run", "100", "--model", "demo/long")
    [session] = json.loads(run("ls", "--json")[1])["sessions"]
    said = f"clew: the answer was cut off at the output limit; `clew continue {session['id']}` to resume\n"
    assert (code, out.split()[0], err) == (0, "thread", said)
    code, out, err = run("continue", session["id"], "--json")
    assert (code, json.loads(out.splitlines()[-1]), err) == (0, {"type": "finish", "finishReason": "length"}, said)


def test_damage_is_said_once_and_check_says_what_can_be_done(tmp_path: Path, run: Run) -> None:
    run("run", "hello there", "--model", "demo/echo")
    [session] = json.loads(run("ls", "--json")[1])["sessions"]
    with contextlib.closing(sqlite3.connect(tmp_path / "store.db")) as database, database:
        database.execute("""UPDATE chat_parts SET data_json = replace(data_json, 'there', 'theRe')
                            WHERE id = (SELECT max(id) FROM chat_parts)""")
    database.close()
    code, out, err = run("check")
    damaged = out.split()[1].rstrip(":")
    assert (code, out.count("\n"), out.splitlines()[-1], err) == (7, 2, "1 sessions, 1 problems", AFTER_CHECK)
    why = "it was changed after it had settled: its seal does not match"
    assert run("show", session["id"])[1].splitlines() == [
        "user: hello there",
        f"assistant: [damaged: {why}; to accept it as it is: clew check --accept {damaged}]",
        "assistant: hello theRe",
    ]
    assert run("check", "--accept", damaged) == (0, "1 sessions, 0 problems\n", f"accepted {damaged}\n")


def test_a_store_that_was_removed_is_not_called_one_that_never_was(tmp_path: Path, run: Run) -> None:
    """Reading, changing and looking say the same; none of them advises to begin another one in its place."""
    missing = "there is no store at {}; `clew chat` or `clew serve` creates it (store_unavailable)"
    store = tmp_path / "store.db"
    assert run("ls") == (7, "", f"clew: {missing.format(store)}\n")
    run("run", "hello there", "--model", "demo/echo")
    store.unlink()
    gone = (
        f"clew: {store} is gone, but store.db.owner next to it shows that there was a store; restore it, or remove "
        "store.db.owner too to create a new one (store_gone)\n"
    )
    for words in (("ls",), ("check",), ("archive", "ses_" + "0" * 26), ("run", "hi")):
        assert run(*words) == (7, "", gone)
    assert not store.exists()


def test_a_misspelt_setting_is_named(tmp_path: Path, run: Run) -> None:
    folder = Path(environment(tmp_path)["XDG_CONFIG_HOME"]) / "clew"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text('[tools]\nsandbx = "workspace"\n')
    code, out, err = run("config")
    assert (code, "tools.sandbox" in out) == (0, True)
    assert err == "clew: ignoring unknown keys in the config file: tools.sandbx\n"


@pytest.mark.parametrize(
    ("own", "of_the_folder", "why"),
    [
        ("[pruning]\nat_pct = 60\n", "", "pruning.at_pct must be greater than 0 and at most 1"),
        ('[providers.local]\nbase_ulr = "http://x"\n', "", "[providers.local]: base_url is missing"),
        ('default_agent = "nobody"\n', "", "unknown agent 'nobody'; available: assistant, explore"),
        ("", 'default_model = "nothing"\n', "'nothing' is not a model; use provider/model, for example demo/echo"),
    ],
)
def test_a_setting_that_would_stop_every_session_is_told_with_the_settings(
    tmp_path: Path, run: Run, own: str, of_the_folder: str, why: str
) -> None:
    """``clew config`` is where people look when something does not begin."""
    folder = Path(environment(tmp_path)["XDG_CONFIG_HOME"]) / "clew"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(own)
    (tmp_path / ".clew").mkdir()
    (tmp_path / ".clew" / "config.toml").write_text(of_the_folder)
    code, _, err = run("config")
    assert (code, err.startswith("clew: no session can be created in this folder: "), why in err) == (0, True, True), (
        err
    )


async def test_a_command_sees_the_queue_that_it_starts_through(tmp_path: Path) -> None:
    """Without a server nobody else would run it, and leaving would cut it off."""
    store = f"sqlite:///{tmp_path / 'store.db'}"

    async def stopped() -> str:
        async with clew.open(store) as engine:
            session = await engine.create_session(model="demo/echo")
            await engine.submit(session.id, "500", model="demo/long:slow")
            await engine.submit(session.id, "second", model="demo/echo")
            # Slow, so that it still runs when the command looks.
            await engine.submit(session.id, "third 20", model="demo/long:slow")
            await engine.abort(session.id)
        return session.id

    first = ("run", "first", "--model", "demo/echo", "--session")
    for words, said in ((("continue", "--queue"), "second\n"), (first, "first\n")):
        session_id = await stopped()
        code, out, err = await command(tmp_path, *words, session_id)
        goes_on = f"clew: running the queue; Ctrl-C stops it; see `clew show {session_id}` afterwards\n"
        assert (code, out, err) == (0, said, goes_on)
        async with clew.open(store, read_only=True) as engine:
            assert await engine.queue(session_id) == []
            turns = (await engine.tree(session_id)).turns
        assert {turn.status for turn in turns[1:]} == {"completed"}


def test_a_file_is_called_by_its_name(tmp_path: Path, run: Run) -> None:
    (tmp_path / "Makefile").write_text("all:\n")
    run("run", "look", "--file", "Makefile", "--model", "demo/echo")
    [session] = json.loads(run("ls", "--json")[1])["sessions"]
    assert run("show", session["id"])[1].splitlines()[:2] == ["user: look", "user: [file Makefile]"]
