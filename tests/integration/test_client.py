"""The clients of ``clew.client`` against real servers: streams that are cut, prompts whose answer is lost, approvals,
owners, refusals, and whoever answers in a server's place."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

import clew
from clew.client import AsyncClient, BadAnswer, Client, Gone, Unauthorized, attach_bytes, attach_file, chunks
from clew.fronts.remote import wire
from clew.server import Owner
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, call, say, think, wait
from tests.integration.between import between
from tests.integration.http_client import bare, held, reduced
from tests.integration.processes import serving as serving_process
from tests.integration.test_operations import TOKEN, serving

pytestmark = pytest.mark.rule("EM-5")


@contextlib.asynccontextmanager
async def scripted(*script: Any, **options: Any) -> AsyncIterator[tuple[clew.Engine, int]]:
    """An engine whose model follows a script behind a real server, and its port."""
    providers = FakeProviders(ScriptedModel(script))
    async with clew.open("memory:", providers=providers, **options) as engine, serving(engine) as remote:
        yield engine, int(remote.url.rpartition(":")[2])


def said(given: Sequence[Mapping[str, Any]]) -> str:
    return "".join(chunk["delta"] for chunk in given if chunk["type"] == "text-delta")


def without_deltas(given: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is told of a message however late one comes: arguments that are whole by then are not begun."""
    kinds = (chunk["type"] for chunk in given)
    return [kind for kind in kinds if "delta" not in kind and kind not in ("message-metadata", "tool-input-start")]


@pytest.mark.parametrize("every", [pytest.param(700, marks=pytest.mark.slow), 1100])
async def test_a_turn_that_is_cut_again_and_again_is_shown_once_and_whole(every: int, tmp_path: Path) -> None:
    """While it runs and after it is over: no chunk twice, none missing, as somebody sees it who was never cut off."""
    gate, words = Gate(), " ".join(f"word{n}" for n in range(60))
    (tmp_path / "a.txt").write_text("held")
    script = [[think("let me see"), say("One."), call("read", {"path": "a.txt"})], [say(words), wait(gate), say(words)]]
    async with scripted(*script) as (engine, port), between(port) as way, AsyncClient(way.url, token=TOKEN) as client:
        session = await client.create_session(workspace_root=tmp_path)
        way.limits = (every + number * 150 for number in count(1))
        turn = await client.start(session.id, "look")
        # The first ones are cut while the model is in the middle of it, the others when it is long over.
        seen: list[dict[str, Any]] = []
        async for chunk in turn:
            seen.append(chunk)
            if way.cuts:
                gate.set()
        assert way.cuts >= 2
        seen = held(seen)
        whole = [chunk async for chunk in engine.attach(session.id, message_id=turn.message_id)]
        assert said(seen) == said(whole) == "One." + words * 2
        assert without_deltas(seen) == without_deltas(whole)
        assert reduced(seen) == reduced(whole)
        assert without_deltas([chunk async for chunk in turn]) == []
        outcome = await turn.wait()
        assert (outcome.status, outcome.message_id) == ("completed", seen[0]["messageId"])
        again = [one async for one in client.follow(session.id, turn.message_id).chunks()]
        assert "".join(one.delta for one in again if isinstance(one, chunks.TextDelta)) == said(seen)


async def test_a_turn_that_goes_on_in_a_message_of_its_own_is_followed_to_its_end() -> None:
    """After a reminder, and cut off in between: both messages, each chunk once."""
    words = " ".join(f"word{n}" for n in range(40))
    gate = Gate()
    async with (
        scripted(say(words), [wait(gate), call("final_answer", {"name": "Graz"})]) as (engine, port),
        between(port) as way,
        AsyncClient(way.url, token=TOKEN) as client,
    ):
        session = await client.create_session()
        way.limits = iter([800])
        turn = await client.start(session.id, "where?", output={"type": "object", "properties": {"name": {}}})
        # The first message is over, and was cut off in the middle, before anybody comes back.
        await gate.reached.wait()
        seen: list[dict[str, Any]] = []
        async for chunk in turn:
            seen.append(chunk)
            gate.set()
        seen = held(seen)
        messages = [message for message in await engine.messages(session.id, view="all") if message.role == "assistant"]
        assert [one["messageId"] for one in seen if one["type"] == "start"] == [one.id for one in messages]
        assert (said(seen), len(messages), way.cuts) == (words, 2, 1)
        assert [one["data"] for one in seen if one["type"] == "data-output"] == [{"name": "Graz"}]
        whole = [chunk async for chunk in engine.attach(session.id, message_id=turn.message_id)]
        assert without_deltas(seen) == without_deltas(whole)
        assert await turn.output() == {"name": "Graz"}


async def test_a_prompt_whose_answer_is_lost_is_sent_again_and_runs_once() -> None:
    """Also twice in a row; the one that was taken is the one that is followed."""
    async with scripted(say("once")) as (engine, port), between(port) as way:
        async with AsyncClient(way.url, token=TOKEN) as client:
            session = await client.create_session()
            way.lost += [b"POST"] * 2
            turn = await client.start(session.id, "hello", message_id="mine")
            assert said([chunk async for chunk in turn]) == "once"
            [asked, _] = await engine.messages(session.id)
            assert (asked.metadata["client_message_id"], way.cuts) == ("mine", 2)
        async with AsyncClient(way.url, token=TOKEN, patience=0) as client:
            way.lost += [b"POST"]
            with pytest.raises(Gone, match="does not respond"):
                await client.start(session.id, "hello")


@pytest.mark.slow
async def test_a_server_that_is_killed_and_started_again_is_gone_on_with(tmp_path: Path) -> None:
    """What was shown is what is stored; what it interrupted says so, and goes on when it is told to."""
    token = {"CLEW_TOKEN": "the-same-token"}
    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(serving_process(tmp_path, **token))
        way = await stack.enter_async_context(between(first.client.port))
        client = await stack.enter_async_context(AsyncClient(way.url, token="the-same-token"))
        session = await client.create_session(model="demo/long:slow")
        turn = await client.start(session.id, "2000 words")
        statuses = aiter(client.watch_status(session.id))
        seen, second = list[dict[str, Any]](), None
        async for chunk in turn:
            seen.append(chunk)
            if second is None and len(said(seen).split()) > 20:
                assert (await anext(statuses)).state == "busy"
                first.process.send_signal(signal.SIGKILL)
                await first.process.wait()
                second = await stack.enter_async_context(serving_process(tmp_path, **token))
                way.target = second.client.port
        seen = held(seen)
        assert seen[-2:] == [
            {"type": "error", "errorText": "aborted by host restart; its effects are unknown"},
            {"type": "finish", "finishReason": "error"},
        ]
        assert reduced(seen) == reduced([one async for one in client.follow(session.id, turn.message_id)])
        [stored] = [one for one in await client.messages(session.id) if one.role == "assistant"]
        assert reduced(seen) == bare(msgspec.to_builtins(stored))
        assert (await turn.wait()).status == "failed"
        assert (await anext(statuses)).state == "idle"
        await client.continue_turn(session.id)
        await client.abort(session.id)
        assert (await client.get_session(session.id)).id == session.id


@pytest.mark.slow
async def test_a_client_without_a_loop_asks_a_person_and_goes_on(tmp_path: Path) -> None:
    """One loop until somebody is asked, another after the answer: each chunk in one of them."""
    async with clew.open("memory:") as engine, serving(engine) as remote:

        def talk() -> None:
            with Client(remote.url, token=TOKEN) as client:
                made = client.create_session(model="demo/tools", workspace_root=tmp_path, alias="my-chat")
                turn = client.start("my-chat", "!bash touch made")
                first = list(turn)
                # Whoever comes at the very end is shown the last step without its end.
                ends = [kind for kind in without_deltas(first) if kind != "finish-step"]
                assert ends[-2:] == ["tool-approval-request", "finish"]
                [asked] = turn.waiting()
                assert (asked.tool, (tmp_path / "made").exists()) == ("bash", False)
                assert turn.answer(str(asked.approval_id), "once") == 0
                second = list(turn)
                assert (without_deltas(second)[0], (tmp_path / "made").exists()) == ("tool-output-available", True)
                assert turn.wait().status == "completed"
                [_, answer] = client.messages(made.id)
                assert said([*first, *second]) == "".join(part.get("text", "") for part in answer.parts)
                assert sorted(without_deltas(second)) == sorted(set(without_deltas(second)))
                listening = client.subscribe()
                assert str(next(listening).type) == "hello"
                listening.close()
                waiting = client.watch_status(made.id)
                assert next(waiting).state == "idle"
            client.close()
            with pytest.raises(clew.StoreClosed):
                client.get_session(made.id)
            with pytest.raises(clew.StoreClosed):
                next(waiting)

        await asyncio.to_thread(talk)


async def test_owners_files_aliases_and_outputs_travel() -> None:
    """Below a path of its host's, each with a token of their own: what another has is not there."""
    from starlette.applications import Starlette
    from starlette.routing import Mount

    def who(request: Any) -> Owner:
        return Owner(request.headers["authorization"].removeprefix("Bearer "))

    class City(msgspec.Struct):
        name: str

    async with clew.open(
        "memory:", providers=FakeProviders(ScriptedModel([call("final_answer", {"name": "Graz"})]))
    ) as engine:
        app = clew.server.make_app(engine, authenticate=who)
        async with serving(engine, Starlette(routes=[Mount("/inner", app)])) as remote:
            url = f"{remote.url}/inner/"
            async with AsyncClient(url, token="alice") as alice, AsyncClient(url, token="bob") as bob:
                session = await alice.create_session(alias="trip")
                parts = [{"type": "text", "text": "where?"}, attach_bytes("a.txt", b"held")]
                turn = await alice.start("trip", parts, output=City)
                assert await turn.output() == City("Graz")
                asked = (await alice.messages("trip"))[0]
                assert [part.get("filename") for part in asked.parts] == [None, "a.txt"]
                assert (await alice.get_session("trip")).owner == "alice"
                for refused in (bob.get_session(session.id), bob.get_session("trip"), bob.messages(session.id)):
                    with pytest.raises(clew.NotFound):
                        await refused
                with pytest.raises(clew.SessionNotFound):
                    await anext(aiter(bob.attach(session.id, message_id=turn.message_id)))
                with pytest.raises(clew.AliasTaken) as taken:
                    await alice.create_session(alias="trip")
                assert taken.value.code == "alias_taken"
                assert (await bob.list_sessions()).sessions == ()


async def test_a_refusal_is_the_error_it_was_with_its_code_and_ids(tmp_path: Path) -> None:
    """Before anything has begun."""
    nobody = "ses_" + "0" * 26
    gate = Gate()
    async with scripted([say("so far"), wait(gate)]) as (_, port):
        url = f"http://127.0.0.1:{port}"
        async with AsyncClient(url, token=TOKEN) as client:
            with pytest.raises(clew.SessionNotFound) as missing:
                await client.start(nobody, "hello")
            assert (missing.value.code, missing.value.ids) == ("session_not_found", {"session_id": nobody})
            session = await client.create_session()
            turn = await client.start(session.id, "hello")
            await gate.reached.wait()
            with pytest.raises(clew.SessionBusy) as busy:
                await client.start(session.id, "and now")
            assert busy.value.code == "run_in_flight"
            with pytest.raises(clew.MessageNotFound):
                await anext(aiter(client.follow(session.id, "nobody-sent-this")))
            gate.set()
            assert said([chunk async for chunk in turn]) == "so far"
        async with AsyncClient(url, token="another") as client:
            with pytest.raises(Unauthorized):
                await client.list_sessions()
    with pytest.raises(clew.InvalidInput, match="cannot be read"):
        attach_file(tmp_path / "nothing")
    for address in ("127.0.0.1:80", "ftp://x", "http://", "http://me:pw@x", "http://x:nan", "http://x/#token=y"):
        with pytest.raises(clew.InvalidInput, match="address"):
            AsyncClient(address)


async def test_a_silent_server_is_not_waited_for_and_a_closed_client_says_so() -> None:
    """As long as it was told to wait; what is being followed when it is closed ends with that word."""

    async def keep_still(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    async with await asyncio.start_server(keep_still, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with AsyncClient(url, token=TOKEN, timeout=0.05, patience=0) as client:
            with pytest.raises(Gone, match=r"has not responded for 0\.05 seconds"):
                await client.models()
    gate = Gate()
    async with scripted([say("so far"), wait(gate)]) as (_, port):
        client = AsyncClient(f"http://127.0.0.1:{port}", token=TOKEN)
        session = await client.create_session()
        turn = await client.start(session.id, "hello")
        await gate.reached.wait()
        seen: list[dict[str, Any]] = []

        async def follow() -> None:
            async for chunk in turn:
                seen.append(chunk)
                if said(seen) == "so far":
                    await client.close()

        with pytest.raises(clew.StoreClosed):
            await follow()
        with pytest.raises(clew.StoreClosed):
            await client.get_session(session.id)


SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
PAGE = b"HTTP/1.1 %d Some\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>"


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", BadAnswer, "is not HTTP"),
        (b"HTTP/1.1 many OK\r\n\r\n", BadAnswer, "not a clew server"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: some\r\n\r\n", BadAnswer, "not a clew server"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", BadAnswer, "not a clew server"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 300_000, BadAnswer, "not a clew server"),
        (PAGE % 200, BadAnswer, "invalid response"),
        (b'HTTP/1.1 200 OK\r\n\r\n{"id": 5}', BadAnswer, "invalid response"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{", Gone, "does not respond"),
        (b"HTTP/1.1 200", Gone, "does not respond"),
        (b"", Gone, "does not respond"),
        (b'HTTP/1.1 413 Large\r\n\r\n{"code": "body_too_large", "detail": "no"}', clew.Invalid, "no"),
        (b'HTTP/1.1 404 No\r\n\r\n{"code": "session_not_found", "self": 1, "message": 2}', clew.SessionNotFound, "404"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 9_000, BadAnswer, "invalid response"),
        (b'HTTP/1.1 404 No\r\n\r\n{"a": ' + b"[" * 9_000, BadAnswer, "it answered 404"),
        (PAGE % 404, BadAnswer, "it answered 404"),
        (PAGE % 403, BadAnswer, "it answered 403"),
        (PAGE % 401, Unauthorized, "does not accept the token"),
        (PAGE % 502, clew.StoreError, "the server answered 502"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://x/\r\n\r\n", BadAnswer, "a redirect to 'http://x/'"),
    ],
)
async def test_what_is_no_answer_is_told_as_that(answer: bytes, kind: type[clew.ClewError], said: str) -> None:
    """By whoever sits at the address: in one sentence, and at once; what has no class of its own has its code."""

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with AsyncClient(url, token=TOKEN, patience=0) as client:
            with pytest.raises(kind, match=said) as raised:
                await client.get_session("ses_" + "0" * 26)
            assert type(raised.value) is kind
            assert raised.value.code == ("body_too_large" if b"body_too_large" in answer else kind.code)


@pytest.mark.parametrize(
    "answer",
    [
        PAGE % 200,
        *(
            SSE + b"data: " + frame + b"\n\n"
            for frame in (
                b"{",
                b"7",
                b'{"a": 1}',
                b'{"type": "start", "messageId": "m", "messageMetadata": [1]}',
                b'{"type": "message-metadata", "messageMetadata": "x"}',
                b'{"type": "data-x", "data": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
            )
        ),
        SSE + b"data: " + b"x" * (65 * 1024 * 1024),
    ],
    ids=range(8),
)
async def test_a_stream_that_makes_no_sense_is_told_as_that(answer: bytes) -> None:
    """It is not asked for again: nothing better would come."""
    asked = 0

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with AsyncClient(url, token=TOKEN) as client:
            with pytest.raises(BadAnswer):
                [chunk async for chunk in client.attach("ses_" + "0" * 26)]
    assert asked == 1


@pytest.mark.parametrize(
    "head",
    [b"\r\n", b"Content-Length: 999999999999\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\nffffffffff\r\n"],
    ids=["no length", "a length", "a chunk"],
)
@pytest.mark.parametrize("asked", ["/api/sessions", "/api/sessions/ses_1/export", "/api/events"])
async def test_an_answer_without_an_end_is_given_up(head: bytes, asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is said of its length, no more is held than an answer may have; the connection is left."""
    monkeypatch.setattr(wire, "_MAX_BODY_BYTES", 3 * 1024 * 1024)
    left = asyncio.Event()

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n" + head)
        with contextlib.suppress(OSError):
            while True:
                writer.write(b" " * 65_536)
                await writer.drain()
        writer.transport.abort()
        left.set()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        to = wire.Wire(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", TOKEN)
        async with contextlib.aclosing(to.frames(asked)) as frames:
            asking = anext(frames) if asked == "/api/events" else to.send("GET", asked)
            with pytest.raises(BadAnswer, match="its response is too large"):
                await asking
        await left.wait()


async def test_a_server_that_announces_answers_and_sends_none_is_gone() -> None:
    """To everything it says that a body comes."""
    left: asyncio.Queue[None] = asyncio.Queue()

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
            await reader.read()
        writer.transport.abort()
        left.put_nowait(None)

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with AsyncClient(url, token=TOKEN, timeout=0.1, patience=0) as client:
            with pytest.raises(Gone, match="has not responded"):
                await client.get_session("ses_" + "0" * 26)
        # What was asked for, and whether anybody is there.
        for _ in range(2):
            await left.get()


@contextlib.asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[AsyncClient]:
    """A client of somebody who says the same to everything."""

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with AsyncClient(url, token=TOKEN, patience=0) as client:
            yield client


async def test_a_page_of_somebody_elses_is_no_deed_and_no_file() -> None:
    """Where an answer has nothing to be read, its status says whether it was done; bytes are those of their digest."""
    nobody = "ses_" + "0" * 26
    async with answering(PAGE % 200) as client:
        for asked in (client.delete_session(nobody), client.export(nobody, "html"), client.blob("0" * 64)):
            with pytest.raises(BadAnswer):
                await asked
    other = b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Disposition: attachment\r\n\r\nother"
    async with answering(other) as client:
        with pytest.raises(BadAnswer, match="blob digest mismatch"):
            await client.blob("0" * 64)


async def test_an_end_is_waited_for_by_whatever_the_session_and_the_message_are_called() -> None:
    """An alias, the sender's own id of a message that runs, is over or waits; one that nobody sent is refused."""
    gate = Gate()
    async with (
        scripted([wait(gate), say("one")], say("two")) as (_, port),
        AsyncClient(f"http://127.0.0.1:{port}", token=TOKEN) as client,
        asyncio.timeout(60),
    ):
        await client.create_session(alias="letters")
        turn = await client.start("letters", "first", message_id="mine-1")
        await gate.reached.wait()
        await client.submit("letters", "second", message_id="mine-2", on_busy="queue")
        ends = [asyncio.ensure_future(client.follow("letters", f"mine-{n}").wait()) for n in (1, 2)]
        ends.append(asyncio.ensure_future(turn.wait()))
        gate.set()
        first, second, same = await asyncio.gather(*ends)
        texts = [(await client.turn_messages(end.turn_id))[-1].texts for end in (first, second)]
        assert (texts, same, await client.follow("letters", "mine-1").wait()) == ([["one"], ["two"]], first, first)
        for unknown in ("mine-3", "msg_" + "0" * 26):
            with pytest.raises(clew.MessageNotFound):
                await client.follow("letters", unknown).wait()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
async def test_a_certificate_is_looked_at(tmp_path: Path) -> None:
    """One that nobody vouches for is not talked to; the token stays here."""
    key, own = tmp_path / "key.pem", tmp_path / "cert.pem"
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(own)]
    made = await asyncio.create_subprocess_exec("openssl", "req", *kind, *name, stderr=asyncio.subprocess.DEVNULL)
    assert await made.wait() == 0
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(own, key)
    heard: list[bytes] = []

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"prompts": []}')
        writer.close()

    async with await asyncio.start_server(speak, "127.0.0.1", 0, ssl=context) as server:
        url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
        async with AsyncClient(url, token=TOKEN) as client:
            with pytest.raises(BadAnswer, match="certificate"):
                await client.prompts()
        assert heard == []
        trusting = ssl.create_default_context(cafile=str(own))
        async with AsyncClient(url, token=TOKEN, tls=trusting) as client:
            assert await client.prompts() == []
        assert f"Authorization: Bearer {TOKEN}".encode() in heard[0]
