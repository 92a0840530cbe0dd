"""Real models when things go wrong on the wire: refusals, cuts, garbage, silence, and nobody there.

Whatever a server does, a call ends with a whole answer or with a typed failure; what was yielded before it is legal
and was really said; and one failed call is one request.
"""

from __future__ import annotations

import asyncio
import email.utils
import random
import socket
import traceback
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from clew.providers.base import ProviderFailure, StepEnd
from clew.providers.pydantic_ai import Endpoint, EndpointKind, PydanticAIProvider, endpoint
from clew.testing.clock import FakeClock
from clew.transcript import chunk as c
from tests.integration.test_providers_wire import Items, Talk, user
from tests.integration.wire_server import (
    ANTHROPIC,
    HALF_CLOSE,
    OPENAI,
    RESET,
    Pause,
    Step,
    WireServer,
    chunked,
    ok,
    refuse,
    sse,
)

pytestmark = pytest.mark.slow

ANTHROPIC_ANSWER = [
    ANTHROPIC.start(),
    *ANTHROPIC.thinking_block(0, "hm"),
    *ANTHROPIC.text_block(1, "Grüße ", "🙂"),
    *ANTHROPIC.tool_block(2, "toolu_0123456789abcdef", "read", '{"path":', '"ä"}'),
    *ANTHROPIC.stop("tool_use"),
]
OPENAI_ANSWER = [
    OPENAI.chunk({"reasoning_content": "hm"}),
    OPENAI.chunk({"content": "Grüße "}),
    OPENAI.chunk({"content": "🙂"}),
    OPENAI.call(0, "call_0123456789abcdef", "read", '{"path":'),
    OPENAI.call(0, None, None, '"ä"}'),
    OPENAI.chunk({}, "tool_calls"),
    OPENAI.usage(),
    OPENAI.done,
]
WIRES: tuple[EndpointKind, ...] = ("anthropic", "openai-compatible")
ANSWERS: dict[str, list[bytes]] = {"anthropic": ANTHROPIC_ANSWER, "openai-compatible": OPENAI_ANSWER}


@pytest.fixture
async def wire() -> AsyncIterator[WireServer]:
    async with WireServer() as server:
        yield server


@pytest.fixture(params=["anthropic", "openai-compatible"])
async def talk(request: pytest.FixtureRequest, wire: WireServer) -> AsyncIterator[Talk]:
    """The same on both wires."""
    made = Talk(wire, request.param)
    yield made
    await made.provider.close()


@pytest.fixture
async def openai(wire: WireServer) -> AsyncIterator[Talk]:
    made = Talk(wire, "openai-compatible")
    yield made
    await made.provider.close()


@pytest.fixture
async def anthropic(wire: WireServer) -> AsyncIterator[Talk]:
    made = Talk(wire, "anthropic")
    yield made
    await made.provider.close()


def answer(talk: Talk) -> list[bytes]:
    return ANSWERS[talk.provider.endpoint.kind]


async def failed(talk: Talk, *steps: Step, into: Items | None = None) -> ProviderFailure:
    with pytest.raises(ProviderFailure) as caught:
        await talk.play(*steps, into=into)
    return caught.value


def text_of(items: Items) -> str:
    return "".join(item.delta for item in items if isinstance(item, c.TextDelta))


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


# Cut


@pytest.mark.parametrize("ending", ["end", "reset", "chunked"])
async def test_a_stream_cut_at_any_byte(talk: Talk, ending: str) -> None:
    """Up to the last whole event, in order, nothing guessed; then a failure that another try may mend.

    An answer counts as whole from the event on that says why it ended.
    """
    events = answer(talk)
    whole = b"".join(events)
    *complete, end = await talk.play(*ok(), whole)
    assert isinstance(end, StepEnd)
    ends = [index for index, event in enumerate(events) if b'"tool_calls"}' in event or b'"tool_use"' in event]
    enough = len(b"".join(events[: ends[-1] + 1]))
    longest = 0
    for at in range(0, len(whole), 1 if ending == "end" else 7):
        piece = whole[:at]
        steps: list[Step] = chunked([piece] if piece else [], end=False) if ending == "chunked" else [*ok(), piece]
        got: Items = []
        if at >= enough and ending == "end":
            assert (await talk.play(*steps))[:-1] == complete
            continue
        failure = await failed(talk, *steps, *([RESET] if ending == "reset" else []), into=got)
        assert failure.kind in (("transient", "invalid") if got else ("transient",)), (at, failure)
        assert got == complete[: len(got)], at
        # A reset may overtake bytes that were sent before it; otherwise what was heard stays heard.
        assert ending == "reset" or len(got) >= longest
        longest = len(got)
    assert len(talk.wire.requests) == len(range(0, len(whole), 1 if ending == "end" else 7)) + 1


async def test_a_stream_that_ends_in_the_middle_of_a_character_is_not_guessed(talk: Talk) -> None:
    """The event with the torn character is not used."""
    whole = b"".join(answer(talk))
    at = whole.index("🙂".encode()) + 2
    got: Items = []
    failure = await failed(talk, *ok(), whole[:at], into=got)
    assert (failure.kind in ("transient", "invalid"), text_of(got)) == (True, "Grüße ")


async def test_a_connection_that_is_closed_one_way_counts_as_cut(talk: Talk) -> None:
    """The other way being open helps nobody."""
    failure = await failed(talk, *ok(), b"".join(answer(talk)[:2]), HALF_CLOSE)
    assert failure.kind == "transient"
    await asyncio.wait_for(talk.wire.requests[0].gone.wait(), 10)


# Garbage


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"data: {not json}\n\n",
        b"event: message_start\ndata: {not json}\n\n",
        b"event: message_start\ndata: \xff\xfe\n\n",
        b"data: \xff\xfe\n\n",
        b"<html><body>Welcome to the hotel network</body></html>",
        b"\x00" * 5000,
        b'data: null\n\ndata: [1]\n\ndata: "text"\n\n',
        b"event: message_stop\ndata: {}\n\n",
        b"data: [DONE]\n\n",
        b"\r\n" * 1000,
    ],
)
async def test_garbage_instead_of_an_answer_may_be_tried_again(talk: Talk, garbage: bytes) -> None:
    """Nothing of it was used."""
    got: Items = []
    failure = await failed(talk, *ok(), garbage, into=got)
    assert (failure.kind, got) == ("transient", [])


@pytest.mark.parametrize("garbage", [b"event: message_stop\ndata: {oops\n\n", b"event: ping\ndata: \xff\n\n"])
async def test_garbage_in_the_middle_of_an_answer_ends_it(talk: Talk, garbage: bytes) -> None:
    """What was said before stays said."""
    events = answer(talk)
    at = next(index for index, event in enumerate(events) if "Grüße".encode() in event) + 1
    got: Items = []
    failure = await failed(talk, *ok(), *events[:at], garbage, *events[at:], into=got)
    assert failure.kind in ("invalid", "transient")
    assert text_of(got) == "Grüße "


async def test_unknown_events_and_fields_are_passed_over(talk: Talk) -> None:
    """Providers add things."""
    known = await talk.play(*ok(), *answer(talk))
    news = [
        sse({"type": "content_block_news", "index": 0, "novelty": True}, "content_block_news"),
        sse({"object": "chat.completion.news", "choices": None, "id": "chatcmpl-1", "model": "gpt-test"}),
        b": a comment\n\n",
    ]
    mixed = [event for pair in zip(answer(talk), news * 9, strict=False) for event in pair]
    assert await talk.play(*ok(), *mixed) == known


async def test_events_in_any_order_never_make_an_illegal_chunk(talk: Talk) -> None:
    """Shuffled, doubled, dropped and bent: a whole answer or a typed failure, and the fold takes every chunk."""
    dice = random.Random(20_261_115)
    outcomes: set[str] = set()
    for _ in range(250):
        events = list(answer(talk))
        for _ in range(dice.randint(1, 6)):
            index = dice.randrange(len(events))
            trick = dice.randrange(5)
            if trick == 0:
                events.insert(index, events.pop(dice.randrange(len(events))))
            elif trick == 1:
                events.insert(index, dice.choice(events))
            elif trick == 2 and len(events) > 1:
                events.pop(index)
            elif trick == 3:
                events[index] = (
                    events[index].replace(b'"index": 0', b'"index": 1').replace(b'"index": 2', b'"index": 0')
                )
            else:
                events[index] = events[index].replace(b'": "', b'": null, "x": "', 1)
        try:
            await talk.play(*ok(), *events)
        except ProviderFailure as failure:
            outcomes.add(failure.kind)
        else:
            outcomes.add("whole")
    assert "whole" in outcomes
    assert outcomes <= {"whole", "transient", "invalid"}


async def test_a_line_without_end_does_not_fill_the_memory(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given up at a bound, long before the server is done with it."""
    monkeypatch.setattr(endpoint, "LONGEST_LINE", 100_000)
    sent: Items = []
    endless = [b"data: ", *([b"x" * 65_536] * 1_000)]
    failure = await failed(talk, *ok(), *endless, Pause(asyncio.Event()), into=sent)
    assert (failure.kind, sent) == ("transient", [])
    assert "longer than 100000 bytes" in str(failure)


async def test_late_words_for_a_text_that_was_closed_are_kept(anthropic: Talk) -> None:
    """They open a text of their own: nothing is lost and nothing is illegal."""
    got = await anthropic.play(
        *ok(),
        ANTHROPIC.start(),
        ANTHROPIC.open(0, {"type": "text", "text": ""}),
        ANTHROPIC.delta(0, {"type": "text_delta", "text": "one "}),
        *ANTHROPIC.text_block(1, "two "),
        ANTHROPIC.delta(0, {"type": "text_delta", "text": "three"}),
        ANTHROPIC.close(0),
        *ANTHROPIC.stop(),
    )
    assert text_of(got) == "one two three"
    assert len({item.id for item in got if isinstance(item, c.TextStart)}) == 3


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
        await asyncio.wait_for(request.gone.wait(), 10)
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
    await asyncio.wait_for(talk.wire.requests[0].gone.wait(), 10)


@pytest.mark.parametrize("head", [[], ok()])
async def test_cancelling_a_call_lets_go_of_its_connection(talk: Talk, head: list[Step]) -> None:
    """Before the answer has begun, too."""
    task = asyncio.ensure_future(talk.play(*head, Pause(asyncio.Event())))
    request = await talk.wire.arrived(1)
    await _settled()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(request.gone.wait(), 10)


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
        if name.startswith("httpx2"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    provider = PydanticAIProvider(Endpoint(provider_id="openai", kind="openai", api_key="k" * 20))
    from clew.providers.base import ModelRequest
    from clew.transcript.session import Model

    request = ModelRequest(model=Model("openai", "gpt-5"), system="", messages=(user("hi"),))
    with pytest.raises(ProviderFailure, match=r"openai needs libraries .* install clew\[models\]") as caught:
        await anext(provider.stream(request))
    assert caught.value.kind == "unknown"
