"""``clew serve`` as a process: where it is, who may come, and what a kill or a signal leaves."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import sqlite3
from pathlib import Path

import pytest

from tests.integration.http_client import bare, chat_body, reduced, texts, types
from tests.integration.processes import SLOW, SSE, command, serving, serving_logging_to, text_of, words_of

pytestmark = pytest.mark.service


async def test_it_says_where_it_is_in_one_line_and_keeps_its_token(tmp_path: Path) -> None:
    """Files only for the owner; the address is announced beside the store; a restart has the same token."""
    async with serving(tmp_path) as server:
        token = tmp_path / "config" / "clew" / "token"
        assert token.read_text().strip() == server.client.token
        assert (token.stat().st_mode & 0o777, token.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        await server.client.session()
        kept = sorted(path for path in tmp_path.iterdir() if path.name.startswith("store.db"))  # noqa: ASYNC240
        assert {path.name for path in kept} >= {"store.db", "store.db-wal", "store.db-shm", "store.db.owner"}
        assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}  # b20: nobody else on this machine reads it
        owner = json.loads((tmp_path / "store.db.owner").read_text())
        assert (owner["pid"], owner["url"]) == (server.process.pid, f"http://127.0.0.1:{server.client.port}")
        code, out, _ = await command(tmp_path, "url")
        assert (code, out) == (0, f"http://127.0.0.1:{server.client.port}/#token={server.client.token}\n")
        again = await command(tmp_path, "serve", "--port", "0")
        assert again[0] == 4
        assert f"is already served at http://127.0.0.1:{server.client.port} (process {server.process.pid});" in again[2]
        taken = await command(tmp_path, "serve", "--port", str(server.client.port), "--store", "memory:")
        assert taken[0] == 4
        code, _, rest = await server.end(signal.SIGTERM)
        assert (code, rest) == (0, "")
        first = server.client.token
    assert (await command(tmp_path, "url"))[0] == 3
    async with serving(tmp_path) as server:
        assert server.client.token == first
        assert (await server.end(signal.SIGINT))[0] == 0


@pytest.mark.rule("WR-1")
async def test_it_saves_workspaces_unless_they_are_switched_off(tmp_path: Path) -> None:
    """The changes of a session are known without any setting."""
    (tmp_path / "project").mkdir()
    for found in (200, 422):
        async with serving(tmp_path) as server:
            session_id = await server.client.session(workspace_root=str(tmp_path / "project"))
            assert (await server.client.get(f"/api/sessions/{session_id}/changes")).status == found
        (tmp_path / "config" / "clew" / "config.toml").write_text('snapshots = "off"\n')


async def test_others_may_come_only_with_a_token_of_the_users_own(tmp_path: Path) -> None:
    """Without one it does not start; with one it answers to addresses, not to names."""
    code, out, err = await command(tmp_path, "serve", "--host", "0.0.0.0", "--port", "0")
    assert (code, out) == (2, "")
    assert "CLEW_TOKEN" in err
    assert (await command(tmp_path, "serve", "--port", "0", CLEW_TOKEN="not good"))[0] == 2
    assert (await command(tmp_path, "serve", "--host", "nowhere.invalid", "--port", "0"))[0] == 2
    for port in ("99999", "-1"):
        code, _, err = await command(tmp_path, "serve", "--port", port)
        assert (code, "--port must be 0 to 65535" in err) == (2, True)
    async with serving(tmp_path, "--host", "0.0.0.0", CLEW_TOKEN="my-own-secret") as server:
        client = server.client
        assert client.token == "my-own-secret"
        assert not (tmp_path / "config" / "clew" / "token").exists()
        for host, status in [(client.host, 200), (f"10.1.2.3:{client.port}", 200), (f"a.example:{client.port}", 403)]:
            assert (await client.get("/api/sessions", headers={"host": host})).status == status


async def test_the_walls_stand_on_a_real_socket(tmp_path: Path) -> None:
    """Token, Host and Origin; bytes that are no HTTP; a body that is cut; and it goes on answering."""
    async with serving(tmp_path) as server:
        client = server.client
        assert (await client.get("/api/sessions", headers={"authorization": None})).status == 401
        assert (await client.get("/api/events", headers={"host": f"evil.example:{client.port}"})).status == 403
        assert (await client.get("/api/sessions", headers={"origin": "http://evil.example"})).status == 403
        assert (await client.get("/api/sessions", headers={"host": f"localhost:{client.port}"})).status == 200
        assert (await client.get("/api/sessions/..%2f..%2fetc")).status == 404
        assert (await client.get("/api/sessions/%FF%FE")).status == 400
        for raw in (
            b"\x16\x03\x01\x02\x00",
            b"GET\r\n\r\n",
            b"POST /api/chat HTTP/1.1\r\ncontent-length: 10\r\n\r\nab",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
            writer.write(raw)
            writer.write_eof()
            assert await reader.read(12) in (b"", b"HTTP/1.1 400", b"HTTP/1.1 403")
            writer.close()
        assert (await client.get("/api/sessions")).status == 200
        server.process.send_signal(signal.SIGTERM)
        assert b"unexpectedly" not in (await server.process.communicate())[1]


@pytest.mark.rule("SR-2")
async def test_a_cut_socket_two_viewers_and_coming_back(tmp_path: Path) -> None:
    """The run goes on without the one who left; each other viewer, early or late, ends up with what is stored."""
    async with serving(tmp_path) as server:
        client = server.client
        session_id = await client.session(model="demo/long")
        async with contextlib.AsyncExitStack() as left_early:
            body = chat_body(session_id, "40 words", model=SLOW)
            first = await left_early.enter_async_context(client.open("POST", "/api/chat", body))
            seen = await words_of(first.frames(), 3)
            async with client.open("GET", f"/api/chat/{session_id}/stream") as second:
                frames = second.frames()
                other = await words_of(frames, 1)
                await left_early.aclose()
                other += [frame async for frame in frames]
        assert other.pop() == "[DONE]"
        [_, stored] = await client.messages(session_id)
        assert len(texts(stored).split()) == 40
        assert reduced(other) == bare(stored)
        assert texts(stored).startswith(text_of(seen))


@pytest.mark.rule("SR-2")
async def test_everybody_leaves_and_the_run_is_whole(tmp_path: Path) -> None:
    """Left at the third word by the only viewer; found whole in the messages; coming back shows all of it."""
    async with serving(tmp_path) as server:
        client = server.client
        session_id = await client.session(model="demo/long")
        async with client.open("POST", "/api/chat", chat_body(session_id, "30", model=SLOW)) as reply:
            seen = await words_of(reply.frames(), 3)
        async with client.open("GET", f"/api/chat/{session_id}/stream") as reply:
            assert reply.status == 200
            *back, done = [frame async for frame in reply.frames()]
        assert done == "[DONE]"
        [_, stored] = await client.messages(session_id)
        assert reduced(back) == bare(stored)
        assert len(texts(stored).split()) == 30
        assert texts(stored).startswith(text_of(seen))
        assert (await client.get(f"/api/chat/{session_id}/stream")).status == 204


async def test_a_viewer_that_never_reads_holds_up_nobody(tmp_path: Path) -> None:
    """Its stream is far larger than what the system buffers; the run ends and others see all of it."""
    async with serving(tmp_path) as server:
        client = server.client
        session_id = await client.session(model="demo/long")
        async with client.open("POST", "/api/chat", chat_body(session_id, "60000 words")) as stalled:
            assert stalled.status == 200
            await client.idle(session_id)
            [_, stored] = await client.messages(session_id)
            assert len(texts(stored).split()) == 60_000
            assert (await client.chat(session_id, "3", "u2"))[-1]["type"] == "finish"


@pytest.mark.rule("SR-4")
async def test_a_kill_in_the_middle_of_a_stream_loses_nothing_that_was_shown(tmp_path: Path) -> None:
    """After a restart the messages hold at least what the client saw, the session is idle, the next prompt works."""
    async with serving(tmp_path) as server:
        client = server.client
        session_id = await client.session(model="demo/long")
        async with client.open("POST", "/api/chat", chat_body(session_id, "500 words", model=SLOW)) as reply:
            seen = await words_of(reply.frames(), 10)
            server.process.kill()
            await server.process.wait()
    async with serving(tmp_path) as server:
        client = server.client
        [user, stored] = await client.messages(session_id)
        assert (texts(user), stored["id"]) == ("500 words", seen[0]["messageId"])
        assert texts(stored).startswith(text_of(seen))
        assert 10 <= len(texts(stored).split()) < 500
        assert await client.status(session_id) == {"state": "idle"}
        assert (await client.get(f"/api/chat/{session_id}/stream")).status == 204
        chunks = await client.chat(session_id, "5 words", "u2")
        assert chunks[-1] == {"type": "finish", "finishReason": "stop"}
        assert len(await client.messages(session_id)) == 4


async def test_a_signal_settles_what_runs_and_ends_every_stream(tmp_path: Path) -> None:
    """The chat is shown its end, other streams end, the turn says why it was stopped."""
    async with serving(tmp_path) as server:
        client = server.client
        session_id = await client.session(model="demo/long")
        status = {"accept": "text/event-stream"}
        async with (
            client.open("POST", "/api/chat", chat_body(session_id, "500 words", model=SLOW)) as chat,
            client.open("GET", "/api/events") as events,
            client.open("GET", f"/api/sessions/{session_id}/status", headers=status) as statuses,
        ):
            frames = chat.frames()
            seen = await words_of(frames, 3)
            code, _, rest = await server.end(signal.SIGTERM)
            assert (code, rest) == (0, "")
            seen += [frame async for frame in frames]
            assert seen.pop() == "[DONE]"
            assert types(seen)[-1] == "abort"
            for reply in (events, statuses):
                assert [frame async for frame in reply.frames()]
                assert reply.finished
    async with serving(tmp_path) as server:
        client = server.client
        [_, stored] = await client.messages(session_id)
        assert reduced(seen) == bare(stored)
        turn = (await client.get(f"/api/turns/{stored['metadata']['turn_id']}")).json()
        assert (turn["status"], turn["data"]) == ("aborted", {"stopped": "the host is shutting down"})
        assert await client.status(session_id) == {"state": "idle"}
        again = await client.chat(session_id, "500 words", "u1", model=SLOW)
        assert again[-1] == {"type": "abort", "reason": "the host is shutting down"}
        assert (await client.chat(session_id, "4 words", "u2"))[-1]["type"] == "finish"


@pytest.mark.slow
@pytest.mark.rule("RP-5")
async def test_a_server_that_is_given_time_to_drain_lets_what_runs_end(tmp_path: Path) -> None:
    """The run is shown to its end and is stored whole, and the server is gone before that time is up."""
    code, _, err = await command(tmp_path, "serve", "--drain", "-1")
    assert (code, "--drain must be 0 to 86400 seconds" in err) == (2, True)
    async with serving(tmp_path, "--drain", "60") as server:
        client = server.client
        session_id = await client.session(model="demo/long")
        async with client.open("POST", "/api/chat", chat_body(session_id, "30 words", model=SLOW)) as chat:
            frames = chat.frames()
            seen = await words_of(frames, 3)
            code, seconds, rest = await server.end(signal.SIGTERM)
            assert (code, rest) == (0, "")
            assert seconds < 60
            seen += [frame async for frame in frames]
            assert seen.pop() == "[DONE]"
            assert seen[-1] == {"type": "finish", "finishReason": "stop"}


@pytest.mark.parametrize("signals", [1, 2])
async def test_no_client_can_keep_a_server_that_is_told_to_end(tmp_path: Path, signals: int) -> None:
    """With a viewer that takes nothing: gone when it has had its time, and at once when asked twice."""
    async with serving(tmp_path) as server:
        client = server.client
        session_id = await client.session(model="demo/long")
        async with client.open("POST", "/api/chat", chat_body(session_id, "60000 words")) as stalled:
            assert stalled.status == 200
            await client.idle(session_id)
            if signals == 2:
                server.process.send_signal(signal.SIGTERM)
                assert server.process.stderr is not None
                while b"shutting down" not in await server.process.stderr.readline():
                    pass
            code, _, _ = await server.end(signal.SIGTERM)
        assert code == (0 if signals == 1 else 128 + signal.SIGTERM)


HELD = """
import asyncio, time
import clew
from clew.testing.scripted import FakeProviders, ScriptedModel, call

@clew.tool
async def hold() -> str:
    "Do what does not let go."
    print("held", flush=True)
    await asyncio.to_thread(time.sleep, 3600)
    return "over"

def open_engine(store, **options):
    rules = [clew.Rule("hold", "*", "allow")]
    providers = FakeProviders(ScriptedModel([call("hold", {})]))
    return clew.open(store, providers=providers, tools=[hold], rules=rules, **options)
"""


@pytest.mark.slow
@pytest.mark.parametrize("locked", [False, True])
async def test_an_end_is_clean_once_all_is_settled_and_one_that_cut_something_off_says_so(
    tmp_path: Path, locked: bool
) -> None:
    """A thread that does not let go holds nothing of anybody's; a turn that the store does not take is cut off."""
    (tmp_path / "held.py").write_text(HELD)
    async with serving(tmp_path, "--app", "held:open_engine") as server:
        client = server.client
        session_id = await client.session()
        await client.prompt(session_id, "go")
        assert server.process.stdout is not None
        assert await server.process.stdout.readline() == b"held\n"
        with contextlib.closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as other:
            if locked:
                other.execute("BEGIN IMMEDIATE")
            server.process.send_signal(signal.SIGTERM)
            _, err = await server.process.communicate()
    told = b"shutdown timed out and running work was cut off" in err
    assert (server.process.returncode, told) == ((1, True) if locked else (0, False))
    async with serving(tmp_path) as server:
        [_, stored] = await server.client.messages(session_id)
        turn = (await server.client.get(f"/api/turns/{stored['metadata']['turn_id']}")).json()
        how = turn["data"]["error"]["code"] if locked else turn["data"]["stopped"]
        assert (turn["status"], how) == (
            ("failed", "interrupted") if locked else ("aborted", "the host is shutting down")
        )


async def test_an_end_is_not_clean_where_the_store_did_not_take_how_a_turn_ended(tmp_path: Path) -> None:
    """The exit code and the log say so at once; brought back, the store has the turn settled by the next start."""
    async with serving(tmp_path) as server:
        client = server.client
        session_id = await client.session(model="demo/long")
        async with client.open("POST", "/api/chat", chat_body(session_id, "500 words", model=SLOW)) as chat:
            start = (await words_of(chat.frames(), 3))[0]
            (tmp_path / "store.db").rename(tmp_path / "elsewhere")
            server.process.send_signal(signal.SIGTERM)
            _, err = await server.process.communicate()
    turn_id = start["messageMetadata"]["turn_id"]
    told = f"turn {turn_id} has ended but could not be settled; it is settled at the next start"
    assert (server.process.returncode, err.decode().count(told)) == (1, 1)
    (tmp_path / "elsewhere").rename(tmp_path / "store.db")
    async with serving(tmp_path) as server:
        turn = (await server.client.get(f"/api/turns/{turn_id}")).json()
        assert (turn["status"], turn["data"]["error"]["code"]) == ("failed", "interrupted")


@pytest.mark.slow
@pytest.mark.parametrize("room", [0, 100])
async def test_a_log_that_nobody_reads_keeps_no_server_from_its_end(tmp_path: Path, room: int) -> None:
    """Whether its first word after the signal finds no room, or one that comes while what runs is settled."""
    (tmp_path / "held.py").write_text(HELD)
    reads, writes = os.pipe()
    with os.fdopen(reads, "rb", buffering=0) as read, os.fdopen(writes, "wb", buffering=0) as written:
        async with serving_logging_to(writes, tmp_path, "--app", "held:open_engine") as server:
            session_id = await server.client.session()
            await server.client.prompt(session_id, "go")
            assert server.process.stdout is not None
            assert await server.process.stdout.readline() == b"held\n"
            said = b""
            while (said.count(b" request "), said.count(b" turn_started ")) != (2, 1):
                said += await asyncio.to_thread(read.read, 65536)
            written.write(b"x" * (fcntl.fcntl(writes, fcntl.F_GETPIPE_SZ) - room))
            server.process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(server.process.wait(), 20) == 1


async def flood(port: int) -> None:
    """A header that has no end, for as long as anybody takes it."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /api/health HTTP/1.1\r\nx-long: ")
    for _ in range(100_000):
        writer.write(b"x" * 1024)
        await writer.drain()


async def test_b32_the_head_of_a_request_has_an_end(tmp_path: Path) -> None:
    """However it is cut up: 400 as a problem, and the connection is closed; a head that is only large passes."""
    async with serving(tmp_path) as server:
        client = server.client
        for line in (b"x-a: " + b"a" * 1017 + b"\r\n", b"a" * 1024):
            reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
            writer.write(b"GET /api/health HTTP/1.1\r\nx-long: " + line * 60)
            await writer.drain()
            # All of what is too much comes at once, so that nothing is left unread when the connection is closed.
            writer.write(line * 5)
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 400 ")
            assert (b"application/problem+json" in head, json.loads(body)["code"]) == (True, "invalid_input")
            writer.close()
        with pytest.raises(ConnectionError):
            await flood(client.port)
        assert (await client.get("/api/health", headers={"x-long": "a" * 40_000})).status == 200
        assert (await client.get(f"/api/sessions?q={'a' * 40_000}")).status == 200


async def test_a_request_that_comes_in_one_piece_is_answered_however_large_its_body_is(tmp_path: Path) -> None:
    """Only a head has an end: what came behind one, in the same read, is not counted as a head, nor answered twice."""
    async with serving(tmp_path) as server:
        port, token = server.client.port, server.client.token
        for size in (1_000, 70_000, 100_000, 120_000):
            body = b" " * size + b"{}"
            head = (
                f"POST /api/sessions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {token}\r\n"
                f"connection: close\r\ncontent-length: {len(body)}\r\n\r\n"
            )
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head.encode() + body)
            answer = await reader.read()
            writer.close()
            assert (answer.startswith(b"HTTP/1.1 201 "), answer.count(b"HTTP/1.1 ")) == (True, 1), size


@pytest.mark.parametrize("form", ["text", "json"])
async def test_b31_no_secret_is_in_what_a_server_logs(tmp_path: Path, form: str) -> None:
    """The token and keys, from the environment and the settings, sent wherever they can stand; a line per request."""
    keys = {"ANTHROPIC_API_KEY": "sk-ant-0123456789", "OPENAI_API_KEY": "sk-oai-0123456789"}
    settings = tmp_path / "config" / "clew" / "config.toml"
    await asyncio.to_thread(settings.parent.mkdir, parents=True)
    await asyncio.to_thread(
        settings.write_text,
        '[providers.own]\nkind = "openai-compatible"\nbase_url = "http://127.0.0.1:9/v1"\n'
        'api_key = "own-key-0123456789"\nmodels = ["m"]\n',
    )
    async with serving(tmp_path, CLEW_LOG=form, **keys) as server:
        client = server.client
        secrets = [client.token, "own-key-0123456789", *keys.values()]
        for secret in secrets:
            await client.get(f"/api/{secret}?token={secret}")
            await client.get(f"/api/sessions/{secret}")
            await client.post("/api/sessions", {"agent": secret, "model": f"x/{secret}"})
        session_id = await client.session(model="own/m")
        await client.prompt(session_id, "call home")
        async with client.open("GET", f"/api/sessions/{session_id}/status", headers=SSE) as statuses:
            async for status in statuses.frames():
                if status["state"] == "retrying":
                    break
        await client.post(f"/api/sessions/{session_id}/abort")
        await client.idle(session_id)
        server.process.send_signal(signal.SIGTERM)
        _, err = await server.process.communicate()
    logged = err.decode()
    assert [secret for secret in secrets if secret in logged] == []
    lines = logged.splitlines()
    requests = [line for line in lines if "request" in line and "status" in line]
    assert len(requests) == 3 * len(secrets) + 5
    assert len([line for line in lines if "turn_finished" in line and session_id in line]) == 1
    if form == "json":
        assert {"at", "level", "logger", "message"} <= json.loads(lines[0]).keys()


async def test_a_form_of_log_that_is_none_is_refused(tmp_path: Path) -> None:
    """Before anything is opened."""
    code, out, err = await command(tmp_path, "serve", "--port", "0", CLEW_LOG="xml")
    assert (code, out) == (2, "")
    assert "CLEW_LOG must be text or json" in err
