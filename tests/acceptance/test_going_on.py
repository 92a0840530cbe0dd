"""Going on after a turn broke off: wherever that was, nothing is lost and no side effect happens twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

import clew
from clew.errors import NothingToContinue
from clew.fronts.http.app import make_app
from clew.fronts.http.sse import Streams
from clew.providers.base import EndpointKind, ModelRequest
from clew.session.turn.continuation import GO_ON
from clew.testing.scenario import Scenario, reduced, transcript
from clew.testing.scripted import Gate, call, cut_after, fail, say, then, think, wait
from clew.transcript.session import Model
from tests.acceptance.compacting import summary
from tests.acceptance.errands import allow
from tests.integration.http_client import HOST, TOKEN, AsgiClient
from tests.integration.wire_rules import refusals
from tests.integration.wire_server import WireServer
from tests.integration.wire_talk import Talk

from .conftest import Open

pytestmark = pytest.mark.rule("RN-8")
PAID: Final = 'charge {"card":1} → "paid"'
UNKNOWN: Final = "its effects are unknown"


class Shop:
    """Tools with effects that are counted, and a model that gets as far as it is told."""

    def __init__(self, s: Scenario, charged: list[int], stuck: Gate) -> None:
        self.s = s
        self.charged = charged
        self.stuck = stuck

    async def abandon_step(self, *step: Any, abort: asyncio.Event | None = None) -> None:
        """A turn that has charged the card and then breaks off in its next step: by itself, or by an abort there."""
        self.s.model.add(call("charge", {"card": 1}), *step)
        submission = await self.s.send("buy")
        if abort is not None:
            await abort.wait()
            assert await self.s.engine.abort(self.s.id)
        assert (await submission.wait()).status == ("failed" if abort is None else "aborted")

    async def go_on(self, **how: Any) -> list[str]:
        """Go on to the end, and what the model was sent for it."""
        self.s.model.add(say("all done"))
        outcome = await (await self.s.engine.continue_turn(self.s.id, **how)).wait()
        assert outcome.status == "completed", outcome
        return transcript(self.s.model.requests[-1].messages)

    async def turn_ids(self) -> list[str]:
        messages = await self.s.engine.messages(self.s.id)
        return list(dict.fromkeys(str(message.turn_id) for message in messages))


@asynccontextmanager
async def opened_shop(open_scenario: Open, **options: Any) -> AsyncIterator[Shop]:
    charged: list[int] = []
    stuck = Gate()

    @clew.tool
    async def charge(card: int) -> str:
        """Charge a card."""
        charged.append(card)
        return "paid"

    @clew.tool
    async def ship() -> str:
        """Ship, which takes for ever."""
        charged.append(0)
        await stuck.wait()
        return "shipped"

    async with open_scenario([], tools=[charge, ship], **options) as s:
        await s.begin()
        await allow(s, "charge", "ship")
        yield Shop(s, charged, stuck)
        assert await s.check() == []


async def acceptable(request: ModelRequest) -> list[str]:
    """What the real providers would have against a request, on each wire. Whoever asks is slow, as over any wire."""
    found: list[str] = []
    kinds: list[tuple[EndpointKind, str]] = [("anthropic", "anthropic"), ("openai-compatible", "local")]
    async with WireServer() as wire:
        for kind, provider_id in [*kinds, ("openai-responses", "openai")]:
            talk = Talk(wire, kind)
            asked = {"model": Model(provider_id, "some-model"), "system": request.system, "tools": request.tools}
            await talk.body(*request.messages, **asked)
            found += refusals(wire.requests[-1].path, wire.requests[-1].json)
            await talk.provider.close()
    return found


def dying() -> dict[str, tuple[Any, list[str]]]:
    """A step in which the connection is lost, and what of it is to be seen afterwards."""
    return {
        "before its first chunk": (fail(400), []),
        "in text": (cut_after(3, say("you will get")), ["assistant: you will  …"]),
        "in reasoning": (cut_after(2, think("let me see")), ["assistant thinks: let  …"]),
        "in a call": (
            cut_after(2, call("charge", {"card": 22222222222})),
            ['charge {"card":2222222} → error: its turn failed before it had a result; it was not run'],
        ),
        "after a call": (
            cut_after(5, call("charge", {"card": 2}), say("and")),
            [f'charge {{"card":2}} → error: its turn failed before it had a result; {UNKNOWN}', "assistant: and …"],
        ),
    }


@pytest.mark.slow
@pytest.mark.parametrize("place", list(dying()))
async def test_a_lost_connection_costs_the_step_it_was_lost_in_and_no_effect_comes_twice(
    open_scenario: Open, place: str
) -> None:
    """The turn goes on with the results it has; the step that was cut is seen by people and by no model."""
    step, left = dying()[place]
    async with opened_shop(open_scenario) as shop:
        await shop.abandon_step(step)
        assert await shop.go_on() == ["user: buy", PAID]
        assert await acceptable(shop.s.model.requests[-1]) == []
        assert shop.charged == [1]
        seen = await shop.s.transcript()
        assert seen[2:-1] == left
        assert [seen[:2], seen[-1]] == [["user: buy", PAID], "assistant: all done"]
        assert await shop.s.transcript("model") == ["user: buy", PAID, "assistant: all done"]
        assert len(await shop.turn_ids()) == 1
        unsent = [m.metadata.get("unsent_from") for m in await shop.s.engine.messages(shop.s.id)]
        assert unsent == [None, 2, None]
        with pytest.raises(NothingToContinue):
            await shop.s.engine.continue_turn(shop.s.id)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["in text", "in reasoning", "in a call"])
async def test_an_abort_while_a_model_speaks_costs_the_step_it_spoke_in(open_scenario: Open, place: str) -> None:
    """What it had done before is sent with its results, whoever ended the turn."""
    gate = Gate()
    said = {"in text": say("you will"), "in reasoning": think("let me"), "in a call": call("charge", {"card": 2})}
    async with opened_shop(open_scenario) as shop:
        await shop.abandon_step([said[place], wait(gate), say("never")], abort=gate.reached)
        assert await shop.go_on() == ["user: buy", PAID]
        assert await acceptable(shop.s.model.requests[-1]) == []
        assert (shop.charged, len(await shop.turn_ids())) == ([1], 1)


@pytest.mark.slow
async def test_an_abort_in_a_tool_tells_the_model_that_its_effects_are_unknown(open_scenario: Open) -> None:
    """The step is complete: its call is sent, as interrupted, and not run again."""
    async with opened_shop(open_scenario) as shop:
        await shop.abandon_step([say("shipping"), call("ship", {})], abort=shop.stuck.reached)
        ended = f"ship {{}} → error: aborted by the user; {UNKNOWN}"
        assert await shop.go_on() == ["user: buy", PAID, "assistant: shipping", ended]
        assert await acceptable(shop.s.model.requests[-1]) == []
        assert shop.charged == [1, 0]
        assert [m.metadata.get("unsent_from") for m in await shop.s.engine.messages(shop.s.id)] == [None] * 3


@pytest.mark.slow
async def test_an_abort_between_two_tools_keeps_the_result_of_the_first(open_scenario: Open) -> None:
    """One was paid, the other is unknown; neither is done again."""
    async with opened_shop(open_scenario) as shop:
        await shop.abandon_step([call("charge", {"card": 2}), call("ship", {})], abort=shop.stuck.reached)
        done = ['charge {"card":2} → "paid"', f"ship {{}} → error: aborted by the user; {UNKNOWN}"]
        assert await shop.go_on() == ["user: buy", PAID, *done]
        assert await acceptable(shop.s.model.requests[-1]) == []
        assert shop.charged == [1, 2, 0]


@pytest.mark.slow
async def test_a_turn_that_breaks_off_again_and_again_loses_nothing(open_scenario: Open) -> None:
    """Each attempt leaves a message that is seen; each goes on after the last complete step of all."""
    async with opened_shop(open_scenario) as shop:
        await shop.abandon_step(cut_after(2, say("one two")))
        shop.s.model.add(cut_after(2, say("three four")))
        assert (await (await shop.s.engine.continue_turn(shop.s.id)).wait()).status == "failed"
        shop.s.model.add(call("charge", {"card": 3}), cut_after(2, say("five six")))
        assert (await (await shop.s.engine.continue_turn(shop.s.id)).wait()).status == "failed"
        assert await shop.go_on() == ["user: buy", PAID, 'charge {"card":3} → "paid"']
        assert await acceptable(shop.s.model.requests[-1]) == []
        seen = [line for line in await shop.s.transcript() if line.startswith("assistant")]
        assert seen == ["assistant: one  …", "assistant: three  …", "assistant: five  …", "assistant: all done"]
        unsent = [m.metadata.get("unsent_from") for m in await shop.s.engine.messages(shop.s.id)]
        assert unsent == [None, 2, 0, 2, None]
        steps = await shop.s.engine.store.load_steps((await shop.turn_ids())[0])
        assert [step.index for step in steps] == [0, 1, 2]


@pytest.mark.slow
async def test_what_ended_at_its_length_and_then_broke_off_has_one_line_between(open_scenario: Open) -> None:
    """The line of going on stands already; a second one would be one too many."""
    async with opened_shop(open_scenario) as shop:
        shop.s.model.add(then(say("half"), finish="length"))
        await shop.s.prompt("tell")
        shop.s.model.add(cut_after(2, say("the rest")))
        assert (await (await shop.s.engine.continue_turn(shop.s.id)).wait()).status == "failed"
        assert await shop.go_on() == ["user: tell", "assistant: half", f"user: {GO_ON}"]
        assert await acceptable(shop.s.model.requests[-1]) == []


async def test_a_turn_that_something_follows_is_not_reopened(open_scenario: Open) -> None:
    """What follows was said to it as it is. A prompt works, and so does asking again, beside it."""
    async with opened_shop(open_scenario) as shop:
        await shop.abandon_step(cut_after(2, say("one two")))
        [broken] = await shop.turn_ids()
        shop.s.model.add(say("below"))
        await shop.s.prompt("well?")
        assert shop.s.model.requests[-1].messages[-2].parts[-1]["text"] == "one "
        await shop.s.engine.set_head(shop.s.id, broken)
        with pytest.raises(NothingToContinue):
            await shop.s.engine.continue_turn(shop.s.id)
        assert await shop.go_on(mode="again") == ["user: buy"]
        assert broken not in await shop.turn_ids()


async def test_asking_again_begins_anew_beside_what_came_of_it(open_scenario: Open) -> None:
    """Nothing of the first attempt is sent; it is kept, and can be gone back to and on with."""
    async with opened_shop(open_scenario) as shop:
        await shop.abandon_step(cut_after(2, say("one two")))
        [broken] = await shop.turn_ids()
        assert await shop.go_on(mode="again") == ["user: buy"]
        assert await shop.s.transcript() == ["user: buy", "assistant: all done"]
        await shop.s.engine.set_head(shop.s.id, broken)
        assert await shop.go_on() == ["user: buy", PAID]


# What is done with a turn that went on


async def went_on(shop: Shop) -> None:
    await shop.abandon_step(cut_after(2, say("SECRET half")))
    await shop.go_on()


async def test_going_back_and_forth_over_a_turn_that_went_on_changes_nothing_of_it(open_scenario: Open) -> None:
    """Rewind, un-rewind, and a prompt: what was not sent stays unsent and stays to be seen."""
    async with opened_shop(open_scenario) as shop:
        await went_on(shop)
        s, before = shop.s, [await shop.s.transcript(view) for view in ("visible", "model")]
        [user] = [message for message in await s.engine.messages(s.id) if message.role == "user"]
        await s.engine.rewind(s.id, user.id, mode="edit")
        assert await s.transcript() == []
        await s.engine.unrewind(s.id)
        assert [await s.transcript(view) for view in ("visible", "model")] == before
        s.model.add(say("later"))
        await s.prompt("and?")
        assert transcript(s.model.requests[-1].messages) == [*before[1], "user: and?"]


async def test_a_branch_and_an_export_of_a_turn_that_went_on_send_and_show_the_same(open_scenario: Open) -> None:
    """The ids are others, the cut is the same."""
    async with opened_shop(open_scenario) as shop:
        await went_on(shop)
        engine, last = shop.s.engine, (await shop.s.engine.messages(shop.s.id))[-1]
        document = await engine.export(shop.s.id, format="json")
        copies = [await engine.import_session(document), await engine.branch(shop.s.id, last.id)]
        for copy in copies:
            for view in ("visible", "model"):
                # A file tells nothing of what was still being written.
                pairs = zip(
                    transcript(await engine.messages(copy.id, view=view)), await shop.s.transcript(view), strict=True
                )
                assert [theirs for theirs, ours in pairs if theirs.removesuffix(" …") != ours.removesuffix(" …")] == []
            unsent = [m.metadata.get("unsent_from") for m in await engine.messages(copy.id)]
            assert unsent == [None, 2, None]


async def test_a_branch_of_a_turn_that_broke_off_goes_on_there(open_scenario: Open) -> None:
    """Its steps came along, so it is known there too what is complete."""
    async with opened_shop(open_scenario) as shop:
        await shop.abandon_step(cut_after(2, say("one two")))
        last = (await shop.s.engine.messages(shop.s.id))[-1]
        branch = await shop.s.engine.fork(str(last.turn_id))
        shop.s.model.add(say("there"))
        assert (await (await shop.s.engine.continue_turn(branch.id)).wait()).status == "completed"
        assert transcript(shop.s.model.requests[-1].messages) == ["user: buy", PAID]
        assert shop.charged == [1]


async def test_a_branch_that_goes_on_again_does_not_send_what_was_cut_before_it_was_made(open_scenario: Open) -> None:
    """It has no calls of its own to tell by: that a step with a call in it was cut, its turn says."""
    async with opened_shop(open_scenario) as shop:
        await shop.abandon_step(cut_after(6, say("cut words"), call("charge", {"card": 2}), say("never")))
        shop.s.model.add(cut_after(2, say("cut again")))
        assert (await (await shop.s.engine.continue_turn(shop.s.id)).wait()).status == "failed"
        branch = await shop.s.engine.branch(shop.s.id, (await shop.s.engine.messages(shop.s.id))[-1].id)
        shop.s.model.add(say("there"))
        assert (await (await shop.s.engine.continue_turn(branch.id)).wait()).status == "completed"
        assert transcript(shop.s.model.requests[-1].messages) == ["user: buy", PAID]
        assert shop.charged == [1]


async def test_a_summary_is_not_told_what_was_not_sent(open_scenario: Open) -> None:
    """Neither the summariser nor the model after it; people still find it."""
    async with opened_shop(open_scenario) as shop:
        await went_on(shop)
        shop.s.model.add(say("long " * 400), say("last " * 300), say("now"))
        for words in ("more " * 300, "again", "and"):
            await shop.s.prompt(words)
        seen = len(shop.s.model.requests)
        shop.s.model.add(say(summary("count")), say("after"))
        assert (await shop.s.engine.compact(shop.s.id)).compacted
        await shop.s.prompt("go")
        sent = [str(request.messages) for request in shop.s.model.requests]
        assert "paid" in sent[seen]
        assert [text for text in sent if "SECRET" in text] == []
        assert "SECRET" in str(await shop.s.engine.messages(shop.s.id, view="all"))


async def test_a_chat_client_that_sends_its_message_again_is_shown_what_became_of_it(open_scenario: Open) -> None:
    """It does not go on with a turn by that: no model is called."""
    async with opened_shop(open_scenario) as shop:
        client = AsgiClient(make_app(shop.s.engine, token=TOKEN, hosts={HOST}), shop.s.engine, Streams(15.0))
        shop.s.model.add(cut_after(2, say("one two")))
        first, again = await client.chat(shop.s.id, "buy"), await client.chat(shop.s.id, "buy")
        assert (reduced(first)["parts"], first[-2:]) == (reduced(again)["parts"], again[-2:])
        assert len(shop.s.model.requests) == 1


async def test_the_requests_of_a_turn_that_went_on_can_be_proven(open_scenario: Open) -> None:
    """What each step was sent is put together again from what is stored, with the cut where it was."""
    async with opened_shop(open_scenario) as shop:
        await went_on(shop)
        [turn] = await shop.turn_ids()
        assert [(await shop.s.engine.request(turn, step)).proven for step in (0, 1)] == [True, True]
