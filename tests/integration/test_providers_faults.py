"""Real models when things go wrong on the wire: refusals, errors inside an answer, silence, and leaving."""

from __future__ import annotations

import asyncio
import email.utils
import socket
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from clew.providers.base import EndpointKind, ProviderFailure
from clew.providers.catalog import ModelFacts
from clew.providers.pydantic_ai import Endpoint, PydanticAIProvider, endpoint
from clew.providers.registry import ProviderConfig, ProviderRegistry
from clew.testing.clock import FakeClock
from clew.transcript import chunk as c
from tests.integration.http_client import served
from tests.integration.wire_answers import answer, failed, talk, text_of
from tests.integration.wire_server import ANTHROPIC, OPENAI, RESET, Pause, Step, WireServer, ok, refuse
from tests.integration.wire_talk import Items, Talk, anthropic, openai, user, wire

__all__ = ["anthropic", "openai", "talk", "wire"]

pytestmark = pytest.mark.slow
WIRES: tuple[EndpointKind, ...] = ("anthropic", "openai-compatible")


# Refused


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (400, "bad request", "invalid"),
        (400, "This model's maximum context length is 8192 tokens", "overflow"),
        (401, "bad key", "auth"),
        (403, "not for you", "auth"),
        (404, "no such model", "invalid"),
        (408, "too slow", "transient"),
        (409, "conflict", "transient"),
        (413, "prompt is too long", "overflow"),
        (413, "no", "invalid"),
        (425, "too early", "transient"),
        (429, "slow down", "transient"),
        (500, "oops", "transient"),
        (503, "later", "transient"),
        (529, "overloaded", "transient"),
    ],
)
async def test_a_refusal_has_a_kind_and_is_one_request(talk: Talk, status: int, message: str, kind: str) -> None:
    """The SDKs would have tried some of them three times."""
    body = {"type": "error", "error": {"type": "test_error", "message": message}}
    failure = await failed(talk, *refuse(status, body))
    name = talk.provider.endpoint.provider_id
    assert (failure.kind, failure.status, failure.retry_after_ms, str(failure)) == (
        kind,
        status,
        None,
        f"{name} answered {status}: {message}",
    )
    assert len(talk.wire.requests) == 1


async def test_an_account_that_is_used_up_is_not_worth_waiting_for(openai: Talk) -> None:
    """Although it comes with the status of a rate limit."""
    body = {
        "error": {
            "message": "You exceeded your current quota",
            "type": "insufficient_quota",
            "code": "insufficient_quota",
        }
    }
    failure = await failed(openai, *refuse(429, body))
    assert (failure.kind, failure.status) == ("auth", 429)


@pytest.mark.parametrize(
    ("headers", "wait_ms"),
    [
        ({"retry-after": "7"}, 7_000),
        ({"retry-after": "0.5"}, 500),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1_500),
        ({"retry-after": "DATE"}, 40_000),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": "9" * 400}, 24 * 3600 * 1000),
        ({"retry-after": "whenever"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
async def test_what_a_provider_says_about_waiting(
    wire: WireServer, headers: dict[str, str], wait_ms: int | None
) -> None:
    """Seconds, a date by the given clock, nonsense: read safely, on both wires."""
    clock = FakeClock(1_800_000_000_000)
    date = email.utils.format_datetime(datetime.fromtimestamp(clock.now_ms() / 1000 + 40, UTC), usegmt=True)
    headers = {name: value.replace("DATE", date) for name, value in headers.items()}
    for kind in WIRES:
        talk = Talk(wire, kind, clock=clock)
        failure = await failed(talk, *refuse(429, None, headers))
        assert (failure.kind, failure.status, failure.retry_after_ms) == ("transient", 429, wait_ms)
        await talk.provider.close()


async def test_a_redirect_is_not_followed(talk: Talk) -> None:
    """A prompt goes where the user said, and nowhere else."""
    failure = await failed(talk, *refuse(307, {}, {"location": f"{talk.wire.url}/elsewhere"}))
    assert failure.kind in ("invalid", "transient", "unknown")
    assert len(talk.wire.requests) == 1


async def test_a_key_that_a_server_repeats_is_taken_out(talk: Talk) -> None:
    """Of the sentence, and of everything a traceback would show."""
    failure = await failed(talk, *refuse(401, {"error": {"message": "bad key sk-a-key-to-hide, sorry"}}))
    shown = "".join(traceback.format_exception(failure)) + repr(failure) + str(failure.ids)
    assert "sk-a-key-to-hide" not in shown
    assert str(failure).endswith("answered 401: bad key …, sorry")


async def test_an_error_page_without_end_is_not_read(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is beyond the bound stays on the wire, and the sentence stays short."""
    monkeypatch.setattr(endpoint, "LONGEST_ERROR", 1_000)
    head = b"HTTP/1.1 500 Oops\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n"
    failure = await failed(talk, head, *([b"<html>" * 1000] * 50), Pause(asyncio.Event()))
    assert (failure.kind, failure.status, len(str(failure)) <= 500) == ("transient", 500, True)


# Errors inside an answer


@pytest.mark.parametrize("began", [False, True])
@pytest.mark.parametrize(
    ("kind_on_wire", "before", "after"),
    [
        ("overloaded_error", "transient", "transient"),
        ("rate_limit_error", "transient", "transient"),
        ("api_error", "transient", "transient"),
        ("invalid_request_error", "invalid", "invalid"),
        ("authentication_error", "auth", "auth"),
        ("odd_error", "transient", "invalid"),
    ],
)
async def test_anthropic_errors_inside_a_good_stream(
    anthropic: Talk, kind_on_wire: str, before: str, after: str, began: bool
) -> None:
    """Judged by their type; one nobody knows is worth another try only while nothing was said."""
    said = [ANTHROPIC.open(0, {"type": "text", "text": ""}), ANTHROPIC.delta(0, {"type": "text_delta", "text": "hi"})]
    got: Items = []
    error = ANTHROPIC.error(kind_on_wire, "something")
    failure = await failed(anthropic, *ok(), ANTHROPIC.start(), *(said if began else ()), error, into=got)
    assert (failure.kind, text_of(got)) == ((after, "hi") if began else (before, ""))
    assert "something" in str(failure)


@pytest.mark.parametrize("began", [False, True])
@pytest.mark.parametrize(
    ("fields", "before", "after"),
    [
        ({"code": "rate_limit_exceeded"}, "transient", "transient"),
        ({"code": 502}, "transient", "transient"),
        ({"type": "server_error"}, "transient", "transient"),
        ({"code": "context_length_exceeded"}, "overflow", "overflow"),
        ({}, "transient", "invalid"),
    ],
)
async def test_openai_errors_inside_a_good_stream(
    openai: Talk, fields: dict[str, Any], before: str, after: str, began: bool
) -> None:
    """Judged by their code or type; one nobody knows is worth another try only while nothing was said."""
    got: Items = []
    said = [OPENAI.chunk({"content": "hi"})] if began else []
    failure = await failed(openai, *ok(), *said, OPENAI.error("something", **fields), into=got)
    assert (failure.kind, text_of(got)) == ((after, "hi") if began else (before, ""))


# Silence


@pytest.mark.parametrize("sent", [0, 1, 3])
async def test_silence_ends_the_call(wire: WireServer, sent: int) -> None:
    """Before the head of the answer, after it, or in its middle; the connection is let go of."""
    for kind in WIRES:
        clock = FakeClock()
        talk = Talk(wire, kind, clock=clock, idle_limit_ms=30_000)
        steps = [*ok(), *answer(talk)][:sent]
        before = len(wire.requests)
        task = asyncio.ensure_future(failed(talk, *steps, Pause(asyncio.Event())))
        request = await wire.arrived(before + 1)
        failure = await _passed(task, clock, 30_000)
        assert (failure.kind, str(failure)) == (
            "transient",
            f"{talk.provider.endpoint.provider_id} sent nothing for 30 s",
        )
        await asyncio.wait_for(request.gone.wait(), 60)
        await talk.provider.close()


async def _passed(task: asyncio.Future[ProviderFailure], clock: FakeClock, limit_ms: float) -> ProviderFailure:
    """Let the limit pass, again and again, until the call gives up: content on its way starts the wait anew."""
    while not task.done():
        for _ in range(20):
            await asyncio.sleep(0)
        clock.advance(limit_ms)
    return await task


async def test_comments_and_pings_are_silence(wire: WireServer) -> None:
    """They keep a connection alive and say nothing about an answer: they do not start the wait anew."""
    noise: dict[EndpointKind, list[bytes]] = {
        "anthropic": [ANTHROPIC.start(), ANTHROPIC.ping, b": comment\n\n", ANTHROPIC.ping],
        "openai-compatible": [b": comment\n\n", OPENAI.chunk({"role": "assistant", "content": ""}), b": comment\n\n"],
    }
    for kind, sent in noise.items():
        clock = FakeClock()
        talk = Talk(wire, kind, clock=clock, idle_limit_ms=30_000)
        gate = asyncio.Event()
        before = len(wire.requests)
        task = asyncio.ensure_future(failed(talk, *ok(), *sent, Pause(gate), *(sent[1:] * 50), Pause(asyncio.Event())))
        await wire.arrived(before + 1)
        await _settled()
        clock.advance(20_000)
        gate.set()
        await _settled()
        assert not task.done()
        clock.advance(20_000)
        assert (await task).kind == "transient"
        await talk.provider.close()


async def _settled() -> None:
    """Let what is on its way over the loopback arrive."""
    for _ in range(200):
        await asyncio.sleep(0)


async def test_a_slow_answer_is_not_silence(wire: WireServer) -> None:
    """Each bit of content starts the wait anew, however long the whole takes."""
    clock = FakeClock()
    talk = Talk(wire, "openai-compatible", clock=clock, idle_limit_ms=30_000)
    gates = [asyncio.Event() for _ in range(5)]
    pieces: list[Step] = []
    for gate in gates:
        pieces += [OPENAI.chunk({"content": "x"}), Pause(gate)]
    wire.reply(*ok(), *pieces, *OPENAI.text("end"))
    said = ""
    stream = talk.provider.stream(talk.request())
    async for item in stream:
        if isinstance(item, c.TextDelta):
            said += item.delta
            if len(said) <= len(gates):
                clock.advance(29_000)
                gates[len(said) - 1].set()
    assert said == "xxxxxend"
    await talk.provider.close()


# Leaving


@pytest.mark.parametrize("heard", [1, 3])
async def test_closing_a_stream_lets_go_of_its_connection(talk: Talk, heard: int) -> None:
    """The server sees it at once, and pays for no more words."""
    talk.wire.reply(*ok(), *answer(talk)[:-4], Pause(asyncio.Event()))
    stream = talk.provider.stream(talk.request())
    for _ in range(heard):
        await anext(stream)
    assert not talk.wire.requests[0].gone.is_set()
    await stream.aclose()
    await asyncio.wait_for(talk.wire.requests[0].gone.wait(), 60)


@pytest.mark.parametrize("head", [[], ok()])
async def test_cancelling_a_call_lets_go_of_its_connection(talk: Talk, head: list[Step]) -> None:
    """Before the answer has begun, too."""
    task = asyncio.ensure_future(talk.play(*head, Pause(asyncio.Event())))
    request = await talk.wire.arrived(1)
    await _settled()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(request.gone.wait(), 60)


async def test_a_provider_is_usable_after_anything(talk: Talk) -> None:
    """Refused, cut, cancelled, closed: the next call is answered."""
    await failed(talk, *refuse(500))
    await failed(talk, *ok(), b"".join(answer(talk))[:300], RESET)
    talk.wire.reply(*ok(), *answer(talk))
    stream = talk.provider.stream(talk.request())
    await anext(stream)
    await stream.aclose()
    await talk.provider.close()
    assert text_of(await talk.play(*ok(), *answer(talk))) == "Grüße 🙂"


# Nobody there


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:PORT", "https://127.0.0.1:SERVER", "http://no-such-host.invalid", "http://[::1]:PORT"]
)
@pytest.mark.parametrize("kind", ["anthropic", "openai-compatible"])
async def test_a_server_that_cannot_be_reached_may_be_there_later(wire: WireServer, kind: Any, address: str) -> None:
    """Refused, no TLS, no such name: said in a sentence, worth another try."""
    port = wire.url.rpartition(":")[2]
    base_url = address.replace("PORT", str(unused_port())).replace("SERVER", port)
    made = Endpoint(provider_id="p", kind=kind, base_url=base_url, api_key="k" * 20)
    provider = PydanticAIProvider(made, connect_limit_ms=1_000)
    request = Talk(wire, "openai-compatible").request(user("hello"))
    with pytest.raises(ProviderFailure, match="p could not be reached") as caught:
        await anext(provider.stream(request))
    assert (caught.value.kind, caught.value.status) == ("transient", None)
    await provider.close()


async def test_without_the_libraries_the_call_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a failure like any other, not as an import error."""
    import builtins

    real = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "openai":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    provider = PydanticAIProvider(Endpoint(provider_id="openai", kind="openai", api_key="k" * 20))
    from clew.providers.base import ModelRequest
    from clew.transcript.session import Model

    request = ModelRequest(model=Model("openai", "gpt-5"), system="", messages=(user("hi"),))
    with pytest.raises(ProviderFailure, match=r"needs a library .* run pip install .clew-sessions\[models\]") as caught:
        await anext(provider.stream(request))
    assert caught.value.kind == "unknown"


# Counts that cannot be


@pytest.mark.rule("US-1", "US-3")
@pytest.mark.parametrize(("kind", "said"), [("anthropic", 10**30), ("openai-compatible", 9 * 10**18)])
async def test_a_count_that_cannot_be_costs_no_turn(
    wire: WireServer, tmp_path: Path, kind: EndpointKind, said: int
) -> None:
    """Over HTTP, turn after turn: what was used adds up to a number that a store holds."""
    if kind == "anthropic":
        wire.always(*ok(), ANTHROPIC.start(input_tokens=said), *ANTHROPIC.text_block(0, "hi"), *ANTHROPIC.stop())
    else:
        wire.always(*ok(), *OPENAI.text("hi")[:-2], OPENAI.usage(said, 5), OPENAI.done)
    address = wire.url if kind == "anthropic" else f"{wire.url}/v1"
    config = ProviderConfig(kind=kind, base_url=address, api_key="k", models={"model": ModelFacts(window=200_000)})
    providers = ProviderRegistry({"wire": config}, default_model="wire/model", environ={})
    async with served(providers=providers, store=f"sqlite:///{tmp_path}/store.db") as client:
        session = await client.session()
        for _ in range(2):
            assert (await client.prompt(session, "go on")).status == 202
            assert await client.idle(session) == {"state": "idle"}
        assert (await client.get(f"/api/sessions/{session}")).json()["total_tokens"] == 2 * ((1 << 40) + 5)
