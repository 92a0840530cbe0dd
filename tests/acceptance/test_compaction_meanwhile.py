"""What happens during a compaction, and what it does to turns that are open or too large."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

import clew
from clew.compaction.plan import Plan
from clew.errors import RunAborted, SessionBusy, SessionNotFound
from clew.session.context.compact import Compacted
from clew.session.hooks import HookRefused
from clew.testing.scripted import Gate, call, fail, say, then, wait
from clew.transcript.usage import Usage
from tests.acceptance.errands import brief_agent
from tests.acceptance.large_talks import pairs, talk
from tests.acceptance.looking import look

from .compacting import Compacting, answer, bulk, info, opened, settings, summary

# What happens meanwhile


@pytest.mark.rule("SR-7")
async def test_a_message_sent_during_a_compaction_by_hand_runs_after_it(tmp_path: Path) -> None:
    """It is queued; what would move the head is refused."""
    gate = Gate()
    async with opened(tmp_path, summaries=[[wait(gate), say(summary("x"))]]) as s:
        await s.begin()
        await talk(s, 4, used=500)
        compacting = asyncio.create_task(s.engine.compact(s.id))
        await gate.reached.wait()
        status = await s.engine.get_status(s.id)
        assert (status.state, status.message) == ("busy", "summarising 2 earlier turns")
        sent = await s.send("next")
        assert sent.queued
        with pytest.raises(SessionBusy):
            await s.engine.compact(s.id)
        with pytest.raises(SessionBusy):
            await s.engine.prune(s.id)
        with pytest.raises(SessionBusy):
            await s.engine.delete_session(s.id)
        gate.set()
        assert (await compacting).compacted
        assert (await sent.wait()).status == "completed"
        assert s.sent() == ["user: summary x", *pairs(2, 4), "user: next"]
        await s.settled()
        await s.is_sound()


@pytest.mark.rule("SR-3")
async def test_a_compaction_by_hand_can_be_aborted(tmp_path: Path) -> None:
    """Nothing was written, and the session takes the next prompt; an interrupting one aborts it by itself."""
    first, second = Gate(), Gate()
    async with opened(tmp_path, summaries=[wait(first), wait(second)]) as s:
        await s.begin()
        await talk(s, 4, used=500)
        compacting = asyncio.create_task(s.engine.compact(s.id))
        await first.reached.wait()
        assert await s.engine.abort(s.id)
        with pytest.raises(RunAborted):
            await compacting
        assert (await s.engine.get_status(s.id)).state == "idle"
        compacting = asyncio.create_task(s.engine.compact(s.id))
        await second.reached.wait()
        sent = await s.send("me first", on_busy="interrupt")
        with pytest.raises(RunAborted):
            await compacting
        assert (await sent.wait()).status == "completed"
        await s.settled()
        assert await s.kinds() == ["normal"] * 5
        assert s.summariser.closed_early == 2
        await s.is_sound()


@pytest.mark.rule("SR-3", "CP-1")
async def test_a_turn_that_is_aborted_while_it_makes_room_is_aborted(tmp_path: Path) -> None:
    """The status said what it was doing; its message stays, the queue goes on."""
    gate = Gate()
    async with opened(tmp_path, summaries=[wait(gate)]) as s:
        await s.begin()
        await talk(s, 4, used=9_500)
        sent = await s.send("go")
        await gate.reached.wait()
        status = await s.engine.get_status(s.id)
        assert (status.state, status.message) == ("busy", "summarising 3 earlier turns")
        turn = (await s.turns())[-1]
        assert (turn.status, turn.id) == ("compacting", sent.turn_id)
        await s.engine.abort(s.id)
        assert (await sent.wait()).status == "aborted"
        await s.settled()
        assert await s.kinds() == ["normal"] * 5
        assert (await s.transcript())[-1] == "user: go"
        assert (await s.say("again")).status == "completed"
        assert (await s.kinds())[5:] == ["compaction", "normal"]
        await s.is_sound()


@pytest.mark.rule("RN-6")
async def test_a_hook_may_refuse_a_compaction_or_change_its_focus(tmp_path: Path) -> None:
    """By hand the refusal is told; a turn goes on without; observers learn what became of it."""
    async with opened(tmp_path) as s:
        seen: list[Compacted] = []
        mind = ["refuse", "refuse", "focus"]

        async def before(plan: Plan) -> Plan:
            if mind.pop(0) == "refuse":
                raise ValueError("not now")
            return msgspec.structs.replace(plan, focus="the hook's own")

        async def after(done: Compacted) -> None:
            seen.append(done)

        s.engine.hook("before_compaction", before)
        s.engine.hook("after_compaction", after)
        await s.begin()
        await talk(s, 4, used=9_100)
        with pytest.raises(HookRefused, match="not now"):
            await s.engine.compact(s.id)
        assert (await s.say("go")).status == "completed"
        assert await s.kinds() == ["normal"] * 5
        done = await s.engine.compact(s.id)
        await s.engine.host.hooks.drain()
        assert (await s.parts())[0]["focus"] == "the hook's own"
        assert seen == [done]
        assert len(s.summariser.requests) == 1


@pytest.mark.rule("ST-11")
@pytest.mark.parametrize("inside", [False, True])
async def test_a_session_may_be_deleted_while_it_is_summarised(tmp_path: Path, inside: bool) -> None:
    """By force; whoever waited is told, and nothing is left."""
    gate = Gate()
    async with opened(tmp_path, summaries=[wait(gate)]) as s:
        await s.begin()
        await talk(s, 4, used=9_500)
        if inside:
            sent = await s.send("go")
            waiting = asyncio.create_task(sent.wait())
        else:
            waiting = asyncio.create_task(s.engine.compact(s.id))  # type: ignore[arg-type]
        await gate.reached.wait()
        with pytest.raises(SessionBusy):
            await s.engine.delete_session(s.id)
        await s.engine.delete_session(s.id, force=True)
        if inside:
            assert (await waiting).status == "aborted"
        else:
            with pytest.raises(RunAborted):
                await waiting
        with pytest.raises(SessionNotFound):
            await s.engine.get_session(s.id)
        assert await s.engine.store.session_ids() == ()
        assert await s.check() == []


@pytest.mark.rule("CP-1", "RW-2")
async def test_room_is_made_for_an_unanswered_turn_that_is_the_head(tmp_path: Path) -> None:
    """A resend that is run: the summary goes above it, not below, and it is the head again once answered."""
    async with opened(tmp_path) as s:
        await s.begin()
        await talk(s, 4, used=500)
        sent = await s.send("once more")
        await sent.wait()
        await s.settled()
        await s.engine.rewind(s.id, sent.message_id)
        head = (await s.tree()).head_turn_id
        assert (await s.turns())[-1].status == "unanswered"
        s.model.add(fail(kind="overflow", text="too long"), answer("second"))
        await (await s.engine.continue_turn(s.id)).wait()
        await s.settled()
        assert await s.kinds() == ["normal"] * 4 + ["compaction", "normal"]
        assert (await s.tree()).head_turn_id == head
        assert (await s.transcript())[-1] == "assistant: second"
        await s.is_sound()


@pytest.mark.rule("CP-1", "RN-1")
async def test_room_is_made_for_a_turn_that_goes_on_after_its_step_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the head while it runs; the summary goes above it, and the requests before and after are proven."""

    @clew.tool
    async def look(n: int) -> str:
        """Gives much back."""
        return bulk(f"out{n}", 700)

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    async with opened(tmp_path, tools=[look], window=12_000) as s:
        await s.begin(agent=brief_agent(tmp_path))
        await s.allow("look")
        await talk(s, 2, used=500)
        s.model.add(*(call("look", {"n": n}) for n in range(10)))
        outcome = await s.say("go")
        assert outcome.stopped == "step_limit"
        s.model.add(fail(kind="overflow", text="too long"), answer("done"))
        outcome = await (await s.engine.continue_turn(s.id)).wait()
        await s.rest()
        assert outcome.status == "completed"
        assert (await s.kinds())[:2] == ["normal", "normal"]
        assert (await s.kinds())[-1] == "normal"
        assert set((await s.kinds())[2:-1]) == {"compaction"}
        assert (await s.tree()).head_turn_id == outcome.turn_id
        assert [(await s.engine.request(outcome.turn_id, n)).proven for n in range(11)] == [True] * 11
        await s.is_sound()


@pytest.mark.rule("CP-5")
async def test_when_nothing_settled_fits_the_tail_begins_at_the_newest_user_message(tmp_path: Path) -> None:
    """An answer larger than the window stands before it."""
    async with opened(tmp_path, infos=[info("test/large", 1_000_000)]) as s:
        await s.begin()
        s.model.add(answer(bulk("long", 12_000), 100))
        await s.say("tell me all", model="test/large")
        sent = await s.send("go", model="test/model")
        assert (await sent.wait()).status == "completed"
        await s.rest()
        [part] = await s.parts()
        assert (part["tail_start_id"], part["turns"], part["messages"]) == (sent.message_id, 1, 2)
        assert s.sent() == ["user: summary the goal", "user: go"]
        await s.is_sound()


@pytest.mark.rule("CP-5")
async def test_by_hand_a_settled_turn_that_is_too_large_is_summarised_too(tmp_path: Path) -> None:
    """Then nothing is kept, and the tail begins at the marker itself."""
    async with opened(tmp_path) as s:
        await s.begin()
        s.model.add(answer(bulk("long", 12_000), 100))
        await s.say("tell me all")
        done = await s.engine.compact(s.id)
        assert (await s.parts())[0]["tail_start_id"] == done.message_id
        assert await s.view() == ["user: summary the goal"]
        await s.say("go on")
        assert s.sent() == ["user: summary the goal", "user: go on"]
        assert (await s.engine.messages(s.id))[0].id == done.message_id
        await s.is_sound()


@pytest.mark.rule("CP-9", "CP-5")
@pytest.mark.parametrize(("preset", "kept"), [("overlay", 5), ("turn", 8)])
async def test_a_preset_that_keeps_tokens_keeps_the_newest_messages(tmp_path: Path, preset: str, kept: int) -> None:
    """20,000 and 30,000 of them; a message takes 4,004 here, and a tail may begin with an answer."""
    async with opened(tmp_path, config=settings(preset=preset), window=200_000) as s:
        await s.begin()
        await talk(s, 8, used=500, tokens=4_000)
        await s.engine.compact(s.id)
        assert (await s.view())[1:] == pairs(0, 8)[-kept:]
        await s.is_sound()


@pytest.mark.rule("CP-14", "CP-8")
async def test_with_the_turn_preset_a_turn_that_outgrows_the_window_ends_and_the_next_goes_on(tmp_path: Path) -> None:
    """It is not cut inside: the refusal is plain, and the next prompt finds all of it in a summary."""

    @clew.tool
    async def look(number: int) -> str:
        """Gives much back."""
        return bulk("out", 2_000)

    script = [call("look", {"number": number}) for number in range(5)]
    async with opened(tmp_path, [answer(), *script], tools=[look], config=settings(preset="turn")) as s:
        await s.begin()
        await s.allow("look")
        await s.say("hello")
        outcome = await s.say("go")
        assert (outcome.status, (outcome.error or {})["code"]) == ("failed", "context_too_large")
        assert (await s.say("and now?")).status == "completed"
        assert await s.view() == ["user: summary the goal", "user: and now?", "assistant: ok"]
        assert ["split" in part for part in await s.parts()] == [False] * len(await s.parts())
        await s.is_sound()


async def told_and_sent(s: Compacting) -> dict[str, int]:
    """How many parts of each message are told by a summary, or sent."""
    found: Counter[str] = Counter()
    tree = await s.tree()
    for turn in await s.turns():
        if turn.kind == "compaction":
            report = await s.engine.compaction(s.id, tree.links[turn.id][0])
            found.update({message.id: len(message.parts) for message in report.messages})
    sent = (await s.engine.messages(s.id, view="model"))[1:]
    return dict(found + Counter({message.id: len(message.parts) for message in sent}))


@pytest.mark.rule("CP-3", "CP-5", "RN-4")
async def test_a_turn_that_is_gone_on_with_is_not_sent_again_what_was_summarised_of_its_first_answer(
    tmp_path: Path,
) -> None:
    """It goes on in a message of its own, and outgrows the window again; every part is told once, or sent."""
    looks = [call("look", {"n": n, "size": 3_000}) for n in range(9)]
    async with opened(tmp_path, [*looks[:5], fail(400, "no")], tools=[look]) as s:
        await s.begin()
        await s.allow("look")
        assert (await s.say("go")).status == "failed"
        s.model.add(*looks[5:], answer("done"))
        outcome = await (await s.engine.continue_turn(s.id)).wait()
        await s.rest()
        (entry,) = [one for one in (await s.engine.store.load_line(s.id)).turns if one.turn.kind == "normal"]
        assert (outcome.status, [row.role for row in entry.messages]) == (
            "completed",
            ["user", "assistant", "assistant"],
        )
        # The start of the step that failed is sent to nobody.
        sent = {row.id: entry.turn.unsent.get(row.id, len(row.parts)) for row in entry.messages}
        assert await told_and_sent(s) == sent
        await s.is_sound()


@pytest.mark.rule("CP-3", "CP-5", "CP-11", "RN-2")
@pytest.mark.parametrize(("after", "start"), [([], 0), ([call("look", {"n": n}) for n in range(1, 4)], 2)])
async def test_a_tail_may_begin_at_a_warning_inside_a_turn_and_nothing_falls_between(
    tmp_path: Path, after: list[Any], start: int
) -> None:
    """As long as the answer before the warning can be dropped, the request is kept. What stood before the warning is
    told by the summaries that made room, once, and is found under them."""

    @clew.tool
    async def look(n: int = 0) -> str:
        """Gives much back."""
        return bulk("out", 7_000)

    script = [call("look", {}), call("look", {}), then(call("look", {}), usage=Usage(9_500, 5)), *after, answer("done")]
    async with opened(tmp_path, script, tools=[look]) as s:
        await s.begin()
        await s.allow("look")
        outcome = await s.say("go")
        assert outcome.status == "completed"
        rows = [
            row
            for entry in (await s.engine.store.load_line(s.id)).turns
            for row in entry.messages
            if entry.turn.kind == "normal"
        ]
        assert [row.role for row in rows] == ["user", "assistant", "user", "assistant"]
        assert (await s.parts())[-1]["tail_start_id"] == rows[start].id
        assert await told_and_sent(s) == {row.id: len(row.parts) for row in rows}
        steps = range(4 + len(after))
        assert [(await s.engine.request(outcome.turn_id, n)).proven for n in steps] == [True] * len(steps)
        await s.is_sound()


@pytest.mark.rule("CP-1", "RN-6")
async def test_a_hook_that_refuses_leaves_a_turn_that_has_no_room_refused(tmp_path: Path) -> None:
    """Nothing else can be done; the summariser is not asked, and the text is handed back."""
    async with opened(tmp_path, infos=[info("test/large", 1_000_000)]) as s:

        async def before(plan: Plan) -> None:
            raise ValueError("not now")

        s.engine.hook("before_compaction", before)
        await s.begin()
        s.model.add(answer(bulk("long", 12_000), 100))
        await s.say("tell me all", model="test/large")
        outcome = await s.say("go", model="test/model")
        assert (outcome.status, (outcome.error or {})["text"]) == ("refused", "go")
        assert s.summariser.requests == []
        await s.is_sound()


@pytest.mark.rule("CP-1")
async def test_a_large_message_is_taken_when_a_short_summary_leaves_room_for_it(tmp_path: Path) -> None:
    """Where nothing else can be sent, there need be no room to spare; one a little larger is refused."""
    async with opened(tmp_path, goal="x") as s:
        await s.begin()
        fixed = (await s.engine.context(s.id)).used
        s.model.add(answer(bulk("re", 1_500), 100))
        await s.say(bulk("ask", 1_500))
        assert (await s.say(bulk("most", 10_000 - fixed - 200))).status == "completed"
        assert [part["strategy"] for part in await s.parts()] == ["summary"]
        assert (await s.say(bulk("more", 10_000 - fixed - 20))).status == "refused"
        assert (await s.say("less")).status == "completed"
        await s.is_sound()
