"""The scripted model that other tests stand on: what it plays, what it remembers, where it stops."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from clew.errors import InvalidInput
from clew.providers.base import ModelInfo, ModelListing, ModelRequest, ProviderFailure, Providers, StepEnd, UsageUpdate
from clew.testing.scripted import (
    DEFAULT_USAGE,
    FakeProviders,
    Gate,
    ScriptedModel,
    call,
    chunks,
    cut_after,
    fail,
    hang,
    say,
    then,
    think,
    wait,
)
from clew.transcript import chunk as c
from clew.transcript.message import Message
from clew.transcript.session import Model
from clew.transcript.usage import Usage

Items = list[c.Chunk | UsageUpdate | StepEnd]


def request(text: str = "hello") -> ModelRequest:
    message = Message("m1", "user", [{"type": "text", "text": text}], {})
    return ModelRequest(model=Model("test", "model"), system="", messages=(message,))


async def play(model: ScriptedModel, asked: ModelRequest | None = None, into: Items | None = None) -> Items:
    got: Items = [] if into is None else into
    async for item in model.stream(asked or request()):
        got.append(item)
    return got


async def test_a_script_has_one_entry_per_call() -> None:
    """Ids are counted over all calls, so that none comes twice in a session."""
    model = ScriptedModel([say("one two"), call("read", {"path": "a"}), [think("hm"), call("ls", {}), call("ls", {})]])
    assert await play(model) == [
        c.TextStart("text1"),
        c.TextDelta("text1", "one "),
        c.TextDelta("text1", "two"),
        c.TextEnd("text1"),
        StepEnd(usage=DEFAULT_USAGE),
    ]
    assert await play(model) == [
        c.ToolInputStart("call2", "read"),
        c.ToolInputDelta("call2", '{"path": "a"}'),
        c.ToolInputAvailable("call2", "read", {"path": "a"}),
        StepEnd(usage=DEFAULT_USAGE, finish_reason="tool-calls"),
    ]
    assert await play(model) == [
        c.ReasoningStart("reasoning3"),
        c.ReasoningDelta("reasoning3", "hm"),
        c.ReasoningEnd("reasoning3"),
        c.ToolInputStart("call4", "ls"),
        c.ToolInputDelta("call4", "{}"),
        c.ToolInputAvailable("call4", "ls", {}),
        c.ToolInputStart("call5", "ls"),
        c.ToolInputDelta("call5", "{}"),
        c.ToolInputAvailable("call5", "ls", {}),
        StepEnd(usage=DEFAULT_USAGE, finish_reason="tool-calls"),
    ]
    assert (len(model.requests), model.left) == (3, 0)


async def test_a_step_may_have_its_own_usage_and_reason() -> None:
    """And what else a provider reports."""
    model = ScriptedModel([then(say("x", id="t"), usage=Usage(input=7), finish="length", response_id="r1")])
    *_, end = await play(model)
    assert end == StepEnd(usage=Usage(input=7), finish_reason="length", data={"response_id": "r1"})


async def test_a_failure_is_raised_before_the_first_chunk() -> None:
    """Its kind follows from the status unless it is given."""
    model = ScriptedModel([fail(429, retry_after_ms=1000), fail(), fail(400, kind="overflow")])
    seen = []
    for _ in range(3):
        with pytest.raises(ProviderFailure) as caught:
            await play(model)
        seen.append((caught.value.kind, caught.value.status, caught.value.retry_after_ms))
    assert seen == [("transient", 429, 1000), ("transient", None, None), ("overflow", 400, None)]


async def test_a_stream_can_break_off_anywhere() -> None:
    """After so many chunks, by a lost connection or by whatever is given."""
    model = ScriptedModel([cut_after(2, say("one two", id="t")), cut_after(0, say("x"), by=ValueError("boom"))])
    got: Items = []
    with pytest.raises(ProviderFailure, match="the connection was lost"):
        await play(model, into=got)
    assert got == [c.TextStart("t"), c.TextDelta("t", "one ")]
    with pytest.raises(ValueError, match="boom"):
        await play(model)


async def test_arguments_that_are_text_are_sent_as_they_are() -> None:
    """And end as a provider ends them: as an error of the call."""
    model = ScriptedModel([call("read", "{not json", id="c")])
    assert await play(model) == [
        c.ToolInputStart("c", "read"),
        c.ToolInputDelta("c", "{not json"),
        c.ToolInputError("c", "read", "{not json", "the arguments are not a JSON object"),
        StepEnd(usage=DEFAULT_USAGE),
    ]


async def test_a_gate_holds_the_model_until_the_test_lets_it_go() -> None:
    """And tells when it was reached."""
    gate = Gate()
    model = ScriptedModel([[say("one", id="a"), wait(gate), say("two", id="b")]])
    got: Items = []
    task = asyncio.ensure_future(play(model, into=got))
    await gate.reached.wait()
    assert got == [c.TextStart("a"), c.TextDelta("a", "one"), c.TextEnd("a")]
    gate.set()
    await task
    assert got[-1] == StepEnd(usage=DEFAULT_USAGE)
    assert model.closed_early == 0


async def test_a_call_that_hangs_can_be_cancelled_or_closed() -> None:
    """Either is counted."""
    model = ScriptedModel([[say("x"), hang()], [say("x"), hang()]])
    gate = Gate()
    model.add(wait(gate))
    stream = model.stream(request())
    await anext(stream)
    await stream.aclose()
    task = asyncio.ensure_future(play(model))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert model.closed_early == 2


async def test_an_entry_may_depend_on_the_request() -> None:
    """A function from the request to the entry; the last resort is for when the script is used up."""
    model = ScriptedModel([lambda asked: say(asked.system or "nothing", id="t")], otherwise=chunks(c.TextStart("t")))
    assert (await play(model))[1] == c.TextDelta("t", "nothing")
    assert await play(model) == [c.TextStart("t"), StepEnd(usage=DEFAULT_USAGE)]
    assert await play(model) == [c.TextStart("t"), StepEnd(usage=DEFAULT_USAGE)]


async def test_a_script_that_is_used_up_fails_the_test() -> None:
    """A call nobody expected is a finding."""
    with pytest.raises(AssertionError, match="no entry for model call number 1"):
        await play(ScriptedModel())


async def test_fake_providers_know_what_they_are_told() -> None:
    """About one model or several, with a price if the test wants one."""
    model, other = ScriptedModel(), ScriptedModel()
    small = ModelInfo(model=Model("b", "small"), window=100, max_output=10)
    made: Providers = FakeProviders(
        {"a": model, "b": other}, infos=[small], cost=lambda _, usage: usage.total / 1000, default="b/small"
    )
    assert made.get("a") is model
    assert made.info(small.model) == small
    assert made.info(Model("a", "x")) == ModelInfo(
        model=Model("a", "x"),
        window=200_000,
        max_output=4_000,
        summariser=Model("a", "x"),
        variants=("slow", "low", "high"),
    )
    assert made.cost(small.model, Usage(input=5)) == 0.005
    assert made.default_model() == small.model
    assert made.models() == [ModelListing(id="b/small", window=100, max_output=10, usable=True, default=True)]
    for ask in (lambda: made.get("c"), lambda: made.info(Model("c", "x"))):
        with pytest.raises(InvalidInput):
            ask()
    await made.close()
    assert (model.closed, other.closed) == (True, True)


@pytest.mark.slow
def test_the_scripted_model_needs_no_library_for_real_ones() -> None:
    """Tests of the runtime stay light."""
    code = "import json, sys; import clew.testing.scripted; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
    assert {name.partition(".")[0] for name in loaded} & {"pydantic_ai", "pydantic", "httpx2", "genai_prices"} == set()
