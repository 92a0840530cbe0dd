"""Commands beside a running server: those that write ask it, those that read do not need it."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import clew
from clew.errors import Invalid, NotFound, OwnedByAnotherProcess, StoreUnavailable
from clew.fronts.cli.command import open_store
from clew.fronts.cli.commands.run import follow_turn
from clew.fronts.remote.engine import RemoteEngine
from clew.fronts.remote.wire import Gone, Unauthorized, Wire
from clew.fronts.token import Token, load_token
from clew.transcript.session import Session
from tests.integration.command_line import Run, run
from tests.integration.http_client import texts, types
from tests.integration.processes import Server, command, interrupted, on_a_terminal, serving, serving_beside, start

__all__ = ["run"]

pytestmark = pytest.mark.service

NOBODY = "ses_" + "0" * 26
NO_TURN = "trn_" + "0" * 26


async def talk(server: Server, *prompts: str) -> tuple[str, list[dict[str, Any]]]:
    """A session of the server in which these were said, and its messages."""
    session_id = await server.client.session(model="demo/echo")
    for number, prompt in enumerate(prompts):
        await server.client.chat(session_id, prompt, f"u{number}")
    return session_id, await server.client.messages(session_id)


def turn_of(message: dict[str, Any]) -> str:
    return str(message["metadata"]["turn_id"])


def test_a_prompt_runs_in_the_server(tmp_path: Path, run: Run) -> None:
    """Its text or its chunks come as they would from this process, and so do its failures and exit codes."""
    with serving_beside(tmp_path) as (server, ask):
        assert run("run", "hello there", "--model", "demo/echo") == (0, "hello there\n", "")
        [session] = ask(server.client.get("/api/sessions")).json()["sessions"]
        assert session["workspace_root"] == str(tmp_path)
        code, out, err = run("run", "again", "--session", session["id"], "--json")
        chunks = [json.loads(line) for line in out.splitlines()]
        assert (code, err, types(chunks)[0], types(chunks)[-1]) == (0, "", "start", "finish")
        assert "".join(chunk.get("delta", "") for chunk in chunks) == "again"
        code, out, err = run("run", "30 words", "--model", "demo/long:slow")
        assert (code, len(out.split()), err) == (0, 30, "")
        assert run("run", "404", "--model", "demo/fail") == (
            1,
            "",
            "clew: demo has no model with that name. Choose another model. (choose another with --model)\n"
            "404: there is no such model\n",
        )
        code, out, _ = run("run", "!bash touch made", "--model", "demo/tools")
        assert (code, out) == (0, "bash failed: denied: this run is unattended, and no rule covers it\n")
        assert not (tmp_path / "made").exists()
        for words, expected in [
            (("run", "x", "--model", "nonsense"), 2),
            (("run", "x", "--session", "non.sense"), 2),
            (("run", "x", "--session", NOBODY), 3),
        ]:
            code, out, err = run(*words)
            assert (code, out, err.count("\n")) == (expected, "", 1)


@pytest.mark.parametrize("variant", [None, "slow"])
def test_chunks_go_on_after_an_answer(tmp_path: Path, run: Run, variant: str | None) -> None:
    """Each is printed once, however soon the run that continues the message is over."""
    with serving_beside(tmp_path) as (server, ask):
        # Sent by somebody who can be asked, and answered again by a command that cannot.
        session_id = ask(server.client.session(model="demo/tools", workspace_root=str(tmp_path)))
        model = {"provider_id": "demo", "model_id": "tools", "variant": variant}
        asked = ask(server.client.prompt(session_id, "!bash touch made\n!ls .", model=model)).json()
        ask(server.client.idle(session_id))
        ask(server.client.post(f"/api/sessions/{session_id}/abort", {}))
        code, out, err = run("rewind", session_id, asked["message_id"], "--run", "--json")
        assert (code, err) == (0, "")
        moved, *chunks = [json.loads(line) for line in out.splitlines()]
        assert moved["draft"] is None
        # What needed nobody's word stands before the request or behind it, as one was there in time or came later.
        [beside] = {chunk["toolCallId"] for chunk in chunks if chunk.get("toolName") == "ls"}
        lines = types([chunk for chunk in chunks if chunk.get("toolCallId") != beside])
        lines = [line for line in lines if not line.startswith("text-")]
        ended = lines.index("finish") + 1
        # Whoever comes at the very end is shown the last step without its end.
        step = lines[lines.index("tool-approval-request") : ended]
        assert step in (["tool-approval-request", "finish-step", "finish"], ["tool-approval-request", "finish"])
        rest = ["tool-output-denied", "start-step", "finish-step", "finish"]
        assert lines[ended:] in (rest, [*rest[:2], rest[3]])
        assert types(chunks).count("start") == 1
        assert types(chunks).count("tool-input-available") == 2
        said = "".join(chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta")
        assert said.count("bash denied: no person at this terminal to ask") == 1


async def test_a_request_that_was_there_before_anybody_looked_is_among_the_chunks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run may be over before it can be watched; what it asks is printed before it is answered."""
    async with clew.open("memory:") as engine:
        session = await engine.create_session(model="demo/tools", workspace_root=tmp_path)
        submission = await engine.submit(session.id, "!bash touch made")
        async for status in engine.watch_status(session.id):
            if status.waiting and await engine.find_stream(session.id) is None:
                break
        assert await follow_turn(engine, session.id, submission, json=True) == 0
    chunks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line for line in types(chunks) if not line.startswith("text-")] == [
        "start",
        "start-step",
        "tool-input-available",
        "tool-approval-request",
        "finish-step",
        "finish",
        "tool-output-denied",
        "start-step",
        "finish-step",
        "finish",
    ]


async def test_what_is_answered_elsewhere_is_not_asked_for_any_more(tmp_path: Path) -> None:
    """The turn goes on, and is printed."""
    async with serving(tmp_path) as server:
        session_id = await server.client.session(model="demo/tools", workspace_root=str(tmp_path))
        words = ("run", "!bash touch made", "--session", session_id)
        is_asked = asyncio.Event()
        asked = asyncio.create_task(on_a_terminal(tmp_path, *words, answers=[], is_asked=is_asked))
        await is_asked.wait()
        [waiting] = (await server.client.get(f"/api/sessions/{session_id}/status")).json()["waiting"]
        path = f"/api/sessions/{session_id}/approvals/{waiting['approval_id']}"
        assert (await server.client.post(path, {"decision": "once"})).status == 200
        code, seen = await asked
        assert (code, seen.count("allow?"), seen.count("bash done")) == (0, 1, 1), seen
        assert "(answered elsewhere)\n" in seen
        assert (tmp_path / "made").exists()


async def test_an_interrupt_aborts_the_turn_in_the_server(tmp_path: Path) -> None:
    """130, and what was printed is what is stored."""
    async with serving(tmp_path) as server:
        process = await start(tmp_path, "run", "2000 words", "--json", "--model", "demo/long:slow")
        code, out, err = await interrupted(process)
        assert (code, "aborted; partial output is saved" in err) == (130, True)
        [session] = (await server.client.get("/api/sessions")).json()["sessions"]
        [_, said] = await server.client.messages(session["id"])
        chunks = [json.loads(line) for line in out.splitlines()]
        assert "".join(c["delta"] for c in chunks if c["type"] == "text-delta") == texts(said)


def test_going_back_and_aside_in_the_server(tmp_path: Path, run: Run) -> None:
    """rewind, unrewind, goto, branch, fork and continue: printed as without a server, done by it."""
    with serving_beside(tmp_path) as (server, ask):
        session_id, [u1, a1, u2, _] = ask(talk(server, "one", "two"))
        code, out, _ = run("rewind", session_id, u2["id"], "--edit", "zwei")
        assert (code, out) == (0, f"now at {turn_of(u1)}; 2 messages left the conversation\ndraft: zwei\n")
        code, out, _ = run("unrewind", session_id, "--json")
        assert (code, json.loads(out)) == (0, {"head_turn_id": turn_of(u2), "hidden": [], "draft": None})
        code, out, _ = run("rewind", session_id, u2["id"], "--edit", "zwei drei", "--run")
        assert (code, out) == (0, "zwei drei\n")
        code, out, _ = run("goto", session_id, turn_of(u1))
        assert (code, out) == (0, f"now at {turn_of(u1)}; 2 messages left the conversation\n")
        assert run("rewind", session_id, u1["id"])[0] == 0
        assert run("continue", session_id) == (0, "one\n", "")
        assert run("continue", session_id)[0] == 4
        code, out, _ = run("branch", session_id, a1["id"], "--model", "demo/long", "--json")
        assert (code, json.loads(out)["parent_message_id"]) == (0, a1["id"])
        code, out, _ = run("fork", turn_of(u1), "--label", "aside")
        fork = ask(server.client.get(f"/api/sessions/{out.strip()}")).json()
        assert (code, fork["label"], fork["parent_id"]) == (0, "aside", session_id)
        assert run("fork", NO_TURN)[0] == 3


def test_making_room_and_keeping_order_in_the_server(tmp_path: Path, run: Run) -> None:
    """compact, prune, queue, abort, archive and rm."""
    with serving_beside(tmp_path) as (server, ask):
        session_id, _ = ask(talk(server, *(f"{n} " + "word " * 250 for n in range(5))))
        code, out, _ = run("compact", session_id, "--focus", "the numbers")
        assert (code, out.startswith("compacted 3 earlier turns: ")) == (0, True)
        code, out, _ = run("prune", session_id)
        assert (code, out.startswith("nothing to prune: ")) == (0, True)
        slow = {"provider_id": "demo", "model_id": "long", "variant": "slow"}
        ask(server.client.prompt(session_id, "2000 words", model=slow))
        queued = ask(server.client.prompt(session_id, "later", message_id="mine")).json()
        code, out, _ = run("queue", session_id)
        assert (code, out) == (0, f"{queued['message_id']}  later\n")
        assert run("queue", session_id, "--cancel", "mine") == (0, "", "")
        assert run("queue", session_id, "--cancel", "mine")[0] == 4
        assert run("rm", session_id)[0] == 4
        assert run("abort", session_id) == (0, "aborted\n", "")
        ask(server.client.idle(session_id))
        assert run("abort", session_id, "--json") == (0, '{"aborted":false}\n', "")
        assert run("archive", session_id) == (0, f"{session_id} is archived\n", "")
        assert ask(server.client.get("/api/sessions")).json()["sessions"] == []
        code, out, _ = run("archive", session_id, "--undo", "--json")
        assert (code, json.loads(out)["archived_at"]) == (0, None)
        ask(server.client.prompt(session_id, "2000 words", model=slow))
        assert run("rm", session_id, "--force") == (0, f"deleted {session_id}\n", "")
        assert run("rm", session_id)[0] == 3


def test_the_samples_are_made_by_the_server(tmp_path: Path, run: Run) -> None:
    """What the command prints is what the server has, and asking again changes nothing."""
    with serving_beside(tmp_path) as (server, ask):
        code, out, err = run("demo")
        assert (code, err) == (0, "")
        assert run("demo") == (0, out, "")
        listed = ask(server.client.get("/api/sessions")).json()["sessions"]
        titles = {session["id"]: session["title"] for session in listed}
        told = [line.split("  ", 1) for line in out.splitlines()]
        assert [titles[session_id] for session_id, _ in told] == [title for _, title in told]
        assert len(told) == 5


def test_who_may_not_ask_the_server_is_told_so(tmp_path: Path, run: Run) -> None:
    """A wrong token is 5, none 4 with the owner's pid; reading needs neither."""
    with serving_beside(tmp_path, CLEW_TOKEN="the-right-one") as (server, ask):
        session_id, _ = ask(talk(server, "one"))
        code, out, err = run("abort", session_id, CLEW_TOKEN="another-one")
        assert (code, out, err.count("\n"), "(unauthorized)" in err) == (5, "", 1, True)
        code, _, err = run("abort", session_id)
        assert (code, f"process {server.process.pid} " in err, "CLEW_TOKEN" in err) == (4, True, True)
        assert run("show", session_id)[1] == "user: one\nassistant: one\n"
        assert run("abort", session_id, CLEW_TOKEN="the-right-one")[0] == 0
    assert run("abort", session_id)[0] == 0


async def test_a_server_that_dies_is_said_to_be_gone(tmp_path: Path) -> None:
    """In the middle of a turn: 7, one line. The next command has the store to itself."""
    async with serving(tmp_path) as server:
        process = await start(tmp_path, "run", "2000 words", "--model", "demo/long:slow")
        assert process.stdout is not None
        await process.stdout.readexactly(10)
        server.process.send_signal(signal.SIGKILL)
        _, err = await process.communicate()
        assert (process.returncode, err.count(b"\n"), b"does not respond" in err) == (7, 1, True)
    [session] = json.loads((await command(tmp_path, "ls", "--json"))[1])["sessions"]
    assert (await command(tmp_path, "archive", session["id"]))[0] == 0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_a_server_that_goes_away_at_a_question_is_said_to_be_gone(tmp_path: Path, how: signal.Signals) -> None:
    """On a line of its own; nobody answered it."""
    async with serving(tmp_path) as server:
        words = ("run", "!bash touch made", "--model", "demo/tools")
        is_asked = asyncio.Event()
        asked = asyncio.create_task(on_a_terminal(tmp_path, *words, answers=[], is_asked=is_asked))
        await is_asked.wait()
        server.process.send_signal(how)
        code, seen = await asked
        assert (code, "elsewhere" in seen) == (7, False), seen
        assert "[n]o: \nclew: " in seen


async def test_the_remote_engine_gives_what_the_engine_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same values from both sides of a server, read by the same names."""
    for name in ("CONFIG", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", f"{tmp_path}/{name.lower()}")
    monkeypatch.delenv("CLEW_TOKEN", raising=False)
    store = f"sqlite:///{tmp_path}/store.db"
    async with serving(tmp_path) as server:
        session_id, [u1, _, u2, _] = await talk(server, "one", "two")
        async with open_store(store, write=True) as remote, clew.open(store, read_only=True) as engine:
            assert isinstance(remote, RemoteEngine)
            calls: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
                ("get_session", (session_id,), {}),
                ("list_sessions", (), {"limit": 5, "q": "one"}),
                ("messages", (session_id,), {"view": "all", "limit": 3}),
                ("queue", (session_id,), {}),
                ("get_status", (session_id,), {}),
                ("tree", (session_id,), {}),
                ("reflog", (session_id,), {}),
                ("context", (session_id,), {"model": "demo/small"}),
                ("turn", (turn_of(u1),), {}),
                ("request", (turn_of(u2),), {"step": 0}),
                ("turn_messages", (turn_of(u2),), {}),
                ("files", (session_id,), {}),
            ]
            for name, args, options in calls:
                there, here = getattr(remote, name), getattr(engine, name)
                found = await here(*args, **options)
                if isinstance(found, clew.SessionList):
                    # Told only to what shows the list in the same process.
                    found = replace(found, unsettled=None, failed=None)
                assert await there(*args, **options) == found, name
            assert [model.id for model in await remote.models()][:2] == ["demo/tour", "demo/echo"]
            renamed = await remote.rename_session(session_id, "Ünï")
            assert (isinstance(renamed, Session), renamed.title) == (True, "Ünï")
            assert [chunk async for chunk in remote.attach(session_id)] == []
            submission = await remote.submit(session_id, [{"type": "text", "text": "three"}], message_id="u3")
            outcome = await submission.wait()
            assert outcome == await submission.wait()
            assert (outcome.status, outcome.message_id) == ("completed", (await remote.messages(session_id))[-1].id)
            with pytest.raises(NotFound):
                await remote.compaction(session_id, u1["id"])
            with pytest.raises(NotFound):
                await remote.get_session(NOBODY)
            with pytest.raises(Invalid):
                await remote.get_session("../../health")
            with pytest.raises(Unauthorized):
                await RemoteEngine(Wire(remote.url, "wrong-token")).get_session(session_id)
            url = remote.url
    with pytest.raises(Gone):
        await RemoteEngine(Wire(url, "any")).get_session(session_id)


async def test_a_file_that_cannot_be_read_is_read_through_its_server(tmp_path: Path, monkeypatch: Any) -> None:
    """While the server is there; what a dead one announced does not hide why the file cannot be read."""
    monkeypatch.setenv("CLEW_TOKEN", "the-right-one")
    store = f"sqlite:///{tmp_path}/store.db"

    def unreadable(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("nobody can read this")

    async with serving(tmp_path, CLEW_TOKEN="the-right-one") as server:
        session_id, _ = await talk(server, "one")
        with monkeypatch.context() as patched:
            patched.setattr(clew, "open", unreadable)
            async with open_store(store) as engine:
                assert isinstance(engine, RemoteEngine)
                assert (await engine.get_session(session_id)).id == session_id
            server.process.kill()
            await server.process.wait()
            with pytest.raises(StoreUnavailable, match="nobody can read this"):
                async with open_store(store):
                    pass


def test_a_token_is_sent_only_to_an_address_a_server_announces(tmp_path: Path) -> None:
    """Never to a name, nor over anything but plain HTTP on this machine's own addresses."""
    for url in ("http://example.com:80", "https://127.0.0.1:1", "http://127.0.0.1", "nonsense", ""):
        with pytest.raises(StoreUnavailable):
            Wire(url, "secret")
    assert Wire("http://127.0.0.1:7717", "secret").url == "http://127.0.0.1:7717"
    with pytest.raises(Invalid):
        Wire("http://127.0.0.1:7717", "two\r\nlines")
    config = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert load_token(config) is None
    (tmp_path / "clew").mkdir()
    (tmp_path / "clew" / "token").write_text("kept-one\n")
    assert load_token(config) == Token("kept-one", chosen=False)
    assert load_token({**config, "CLEW_TOKEN": "chosen-one"}) == Token("chosen-one", chosen=True)
    (tmp_path / "clew" / "token").unlink()
    (tmp_path / "clew" / "token").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Invalid):
        load_token(config)


async def test_an_owner_that_serves_nothing_is_4_with_its_pid(tmp_path: Path) -> None:
    """There is nobody to ask."""
    async with clew.open(f"sqlite:///{tmp_path}/store.db") as engine:
        session = await engine.create_session(model="demo/echo")
        process = await start(tmp_path, "chat", session.id)
        _, err = await process.communicate()
        assert (process.returncode, b"(store_owned)" in err) == (4, True)
        with pytest.raises(OwnedByAnotherProcess) as raised:
            async with open_store(f"sqlite:///{tmp_path}/store.db", write=True):
                pass
    assert isinstance(raised.value.ids["pid"], int)
    assert f"process {raised.value.ids['pid']}; stop it first. While a chat or `clew serve` has" in err.decode()
