"""Tools as a program writes them: models as arguments and results, limits that hold, and progress on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec
import pydantic
import pytest

import clew
from clew.testing.clock import FakeClock
from clew.testing.scripted import ScriptedModel, call, say

pytestmark = [pytest.mark.anyio, pytest.mark.rule("EM-2")]


class Line(pydantic.BaseModel):
    article: str = pydantic.Field(description="Its number.", min_length=2)
    amount: Annotated[int, pydantic.Field(ge=1, le=9)] = 1


class Order(pydantic.BaseModel):
    lines: list[Line]
    note: str | None = None


class Bill(msgspec.Struct):
    total: Annotated[float, msgspec.Meta(ge=0, description="In euros.")]


@dataclass
class Place:
    street: str
    number: int


class Weight(TypedDict):
    kilos: float


@clew.tool
def send(
    order: Order,
    bill: Bill,
    place: Place,
    weight: Weight,
    days: Annotated[int, pydantic.Field(le=30, description="How long.")],
) -> dict[str, Any]:
    """Send an order."""
    assert (type(order), type(bill), type(place), type(weight)) == (Order, Bill, Place, dict)
    return {"order": order, "bill": bill, "place": place, "weight": weight, "days": days, "seal": b"\x00\xff"}


GOOD = {
    "order": {"lines": [{"article": "a7", "amount": 2}]},
    "bill": {"total": 2.5},
    "place": {"street": "Long", "number": 1},
    "weight": {"kilos": 3.0},
    "days": 4,
}


async def outputs(tool: Any, *calls: dict[str, Any]) -> list[Any]:
    """What becomes of each call, made by a model in a session: its output, or why not."""
    model = ScriptedModel([*(call(tool.name, given) for given in calls), say("done")])
    rules = [clew.Rule(tool.name, "*", "allow")]
    async with clew.open(
        "memory:", tools=[tool], builtin_tools=False, rules=rules, providers={"test": model}
    ) as engine:
        session = await engine.create_session()
        await (await engine.submit(session.id, "go")).wait()
        parts = [part for message in await engine.messages(session.id) for part in message.parts]
        return [part.get("output", part.get("errorText")) for part in parts if part["type"] == f"tool-{tool.name}"]


async def test_models_of_every_kind_are_arguments_and_results() -> None:
    """Of pydantic, msgspec, as dataclasses and TypedDicts; bytes within a result are base64, not noise."""
    [output] = await outputs(send, GOOD)
    order = {"lines": [{"article": "a7", "amount": 2}], "note": None}
    assert output == {**GOOD, "order": order, "seal": "AP8="}


async def test_limits_and_descriptions_are_in_the_schema_and_hold() -> None:
    """The model is told of them, and a call that breaks one is told which; the function is not called."""
    properties = send.input_schema["properties"]
    assert properties["days"] == {"type": "integer", "maximum": 30, "description": "How long."}
    line = properties["order"]["properties"]["lines"]["items"]
    assert (line["properties"]["article"]["minLength"], line["properties"]["article"]["description"]) == (
        2,
        "Its number.",
    )
    assert line["properties"]["amount"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 9,
        "default": 1,
        "title": "Amount",
    }
    assert "$ref" not in str(send.input_schema)
    refused = await outputs(
        send,
        {**GOOD, "days": 31},
        {**GOOD, "order": {"lines": [{"article": "a7", "amount": 10}]}},
        {**GOOD, "bill": {"total": -1.0}},
    )
    assert [text.partition(": ")[2].split(":")[0] for text in refused] == [
        "at days",
        "at order.lines[0].amount",
        "at bill.total",
    ]


class Odd:
    """No type of JSON's."""


def takes_odd(x: Odd) -> None:
    """Do."""


def takes_odd_field(x: Annotated[Odd, pydantic.Field(description="no")]) -> None:
    """Do."""


def has_field(x: int = pydantic.Field(3, ge=1)) -> None:
    """Do."""


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (takes_odd, "the tool takes_odd has a parameter that JSON cannot represent"),
        (takes_odd_field, "the tool takes_odd_field has a parameter that JSON cannot represent"),
        (has_field, "the default of x of the tool has_field is not JSON.*; a Field goes into Annotated"),
    ],
)
def test_what_json_cannot_carry_is_refused_when_the_tool_is_made(function: Any, says: str) -> None:
    """With the tool's name, and not in the first call."""
    with pytest.raises(TypeError, match=says):
        clew.tool(function)


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_generator_shows_how_far_it_is_and_its_last_value_is_the_output(kind: str, tmp_path: Any) -> None:
    """What it shows is stored as every chunk is: somebody who joins in the middle sees it."""
    clock, go_on, reported = FakeClock(), asyncio.Event(), asyncio.Event()

    @clew.tool(name="dig")
    async def slowly(deep: int) -> AsyncIterator[dict[str, Any]]:
        """Dig."""
        yield {"dug": 1}
        reported.set()
        await go_on.wait()
        yield {"dug": deep, "bill": Bill(1.0)}

    @clew.tool(name="dig")
    def steadily(deep: int, context: clew.ToolContext) -> Iterator[dict[str, Any]]:
        """Dig."""
        yield {"dug": 1}
        loop.call_soon_threadsafe(reported.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
        yield {"dug": deep, "bill": Bill(1.0)}

    async def pass_time() -> None:
        await reported.wait()
        clock.advance(1_000)

    loop = asyncio.get_running_loop()
    tool = slowly if kind == "async" else steadily
    model = ScriptedModel([call("dig", {"deep": 3}), say("done")])
    async with clew.open(
        f"sqlite:///{tmp_path}/t.db",
        tools=[tool],
        rules=[clew.Rule("dig", "*", "allow")],
        providers={"test": model},
        clock=clock,
    ) as engine:
        session = await engine.create_session()
        passing = loop.create_task(pass_time())
        shown = []
        async for chunk in await engine.start(session.id, "dig"):
            if chunk["type"] == "tool-output-available":
                shown.append((chunk["output"], chunk.get("preliminary", False)))
                if chunk.get("preliminary"):
                    stored = (await engine.messages(session.id))[-1].parts[-1]
                    assert (stored["output"], stored["preliminary"]) == ({"dug": 1}, True)
                    go_on.set()
    await passing
    assert shown == [({"dug": 1}, True), ({"dug": 3, "bill": {"total": 1.0}}, False)]


@pytest.mark.parametrize("targets", [ValueError("no idea"), None])
async def test_a_tool_that_cannot_say_what_it_touches_is_not_run_and_the_turn_goes_on(targets: Any) -> None:
    """A host's own code may raise there, too; the model is told."""

    class Loose:
        name, description = "loose", "Does something."
        input_schema: Mapping[str, Any] = {"type": "object", "properties": {}}
        timeout_ms = 1_000
        needs_workspace = asks_human = False

        def targets(self, args: Mapping[str, Any], workspace: Path | None) -> Any:
            if isinstance(targets, Exception):
                raise targets
            return targets

        async def execute(self, args: Mapping[str, Any], context: clew.ToolContext) -> clew.ToolOutput:
            raise AssertionError("it was run")

    model = ScriptedModel([call("loose", {}), say("as you say")])
    rules = [clew.Rule("*", "*", "allow")]
    async with clew.open("memory:", tools=[Loose()], rules=rules, providers={"test": model}) as engine:
        session = await engine.create_session()
        outcome = await (await engine.submit(session.id, "go")).wait()
        [told] = [part["errorText"] for part in (await engine.messages(session.id))[-1].parts if "errorText" in part]
        assert (outcome.status, "could not say what it would touch" in told) == ("completed", True)
