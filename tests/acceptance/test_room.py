"""Room: pruning, the gauge, switching to a smaller model, recall, and the proof of what a model was sent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

import clew
from clew.runtime.compact import Compacted
from clew.runtime.context import ContextParts, ContextReport
from clew.testing.scripted import call, fail, then
from clew.transcript.usage import Usage

from .compacting import Compacting, answer, bulk, info, opened, settings, texts


@clew.tool
async def look(n: int = 0, size: int = 800) -> str:
    """Gives much back."""
    return bulk(f"out{n}", size)


@clew.tool
async def todo(n: int = 0) -> str:
    """What is to be done."""
    return bulk(f"todo{n}", 800)


async def looks(s: Compacting, count: int, *, used: int | None = None, size: int = 800, first: int = 0) -> None:
    """Turns that each call a tool; ``used`` is what the provider counts at the end of the last."""
    for n in range(first, first + count):
        s.model.add(
            then(call("look", {"n": n, "size": size}), usage=Usage(100, 5)),
            answer(f"re{n}", used if n == first + count - 1 else 100),
        )
        await s.say(f"ask{n}")


def outputs(messages: Any) -> list[str]:
    return [str(part["output"]) for message in messages for part in message.parts if "output" in part]


def stub(tokens: int) -> str:
    return f"[output pruned to save room: about {tokens} tokens]"


# PR


@pytest.mark.rule("PR-1", "PR-2", "PR-4")
async def test_old_outputs_become_stubs_at_sixty_percent_oldest_first_and_only_as_many_as_needed(
    tmp_path: Path,
) -> None:
    """The last three answers are not touched; what is stored stays whole; input and state stay."""
    async with opened(tmp_path, tools=[look]) as s:
        await s.begin()
        await s.allow("look")
        await looks(s, 6, used=6_000 - 6 + 700)
        s.model.add(answer("last", 100))
        await s.say("now")
        whole = [bulk(f"out{n}", 800) for n in range(6)]
        assert outputs(s.model.requests[-1].messages) == [stub(800), *whole[1:]]
        assert outputs(await s.engine.messages(s.id, view="all")) == whole
        part = s.model.requests[-1].messages[1].parts[1]
        assert (part["state"], part["input"]) == ("output-available", {"n": 0, "size": 800})
        assert await s.kinds() == ["normal"] * 7
        await s.is_sound()


@pytest.mark.rule("PR-1")
async def test_below_the_threshold_nothing_is_pruned(tmp_path: Path) -> None:
    """One token below sixty percent."""
    async with opened(tmp_path, tools=[look]) as s:
        await s.begin()
        await s.allow("look")
        await looks(s, 6, used=6_000 - 5 - 1)  # "now" takes five
        await s.say("now")
        assert outputs(s.model.requests[-1].messages) == [bulk(f"out{n}", 800) for n in range(6)]


@pytest.mark.rule("PR-4")
async def test_what_was_pruned_stays_so_on_later_turns_and_after_a_restart(tmp_path: Path) -> None:
    """The same bytes every time: the beginning of a later request is the request before."""
    url = f"sqlite:///{tmp_path}/store.db"
    async with opened(tmp_path, tools=[look], url=url) as s:
        await s.begin()
        await s.allow("look")
        await looks(s, 6, used=6_700)
        await s.say("now")
        first = list(s.model.requests[-1].messages)
        assert outputs(first)[0] == stub(800)
        await s.say("and now")
        assert bodies(s.model.requests[-1].messages)[: len(first)] == bodies(first)
    async with opened(tmp_path, tools=[look], url=url) as s:
        await s.begin()
        await s.say("later")
        assert bodies(s.model.requests[-1].messages)[: len(first)] == bodies(first)
        assert bodies(await s.engine.messages(s.id, view="model"))[: len(first)] == bodies(first)


def bodies(messages: Any) -> list[Any]:
    return [(message.role, message.parts) for message in messages]


@pytest.mark.rule("PR-1", "PR-2", "PR-4")
async def test_by_hand_everything_that_is_not_protected_goes(tmp_path: Path) -> None:
    """Not todos, not the last three answers, not short outputs; the second time there is nothing to do."""
    async with opened(tmp_path, tools=[look, todo], window=100_000) as s:
        await s.begin()
        await s.allow("look", "todo")
        s.model.add(call("todo", {"n": 1}), answer("noted", 100))
        await s.say("note it")
        await looks(s, 1, size=100)
        await looks(s, 5, used=9_000, first=1)
        before = await s.engine.context(s.id)
        done = await s.engine.prune(s.id)
        after = await s.engine.context(s.id)
        assert done == Compacted(
            compacted=True, strategy="prune", tokens_before=9_000, tokens_after=after.used, pruned=2
        )
        assert outputs(await s.engine.messages(s.id, view="model")) == [
            bulk("todo1", 800),
            bulk("out0", 100),
            stub(800),
            stub(800),
            *(bulk(f"out{n}", 800) for n in (3, 4, 5)),
        ]
        assert (before.measured, after.measured, after.parts.pruned) == (True, False, 1_600)
        again = await s.engine.prune(s.id)
        assert again == Compacted(compacted=False, tokens_before=after.used, tokens_after=after.used)
        assert s.summariser.requests == []
        await s.is_sound()


@pytest.mark.rule("PR-2")
async def test_the_newest_output_for_each_file_is_protected(tmp_path: Path) -> None:
    """An older reading of the same file is not."""
    async with opened(tmp_path, tools=[look], window=100_000) as s:
        (s.workspace / "a.txt").write_text("alpha\n" * 200)
        await s.begin(workspace_root=str(s.workspace))
        await s.allow("look", "read")
        for _ in range(2):
            s.model.add(call("read", {"path": "a.txt"}), answer("read", 100))
            await s.say("read it")
        await looks(s, 3, used=100, size=100)
        assert (await s.engine.prune(s.id)).pruned == 1
        first, second, *_ = outputs(await s.engine.messages(s.id, view="model"))
        assert (first.startswith("[output pruned"), "alpha" in second) == (True, True)


@pytest.mark.rule("PR-3")
async def test_checkpoint_trims_first_then_clears(tmp_path: Path) -> None:
    """From 30 % the ends stay, from 50 % nothing does; outputs under the floor, lowered here, are left alone."""
    config = settings(preset="checkpoint", pruning={"min_chars": 19_999, "min_total_chars": 3_000})
    async with opened(tmp_path, tools=[look], window=100_000, config=config) as s:
        await s.begin()
        await s.allow("look")
        big = 20_000 * 11 // 40
        await looks(s, 1, used=100, size=big)
        await looks(s, 1, used=100, size=1_000, first=1)
        await looks(s, 3, used=30_001, size=10, first=2)
        whole = bulk("out0", big)
        await s.say("now")
        kept = outputs(s.model.requests[-1].messages)
        middle = f"[about {big} tokens in all; the middle was pruned to save room]"
        assert kept[0] == f"{whole[:1_500]}\n{middle}\n{whole[-1_500:]}"
        assert kept[1] == bulk("out1", 1_000)
        s.model.add(answer("more", 60_000))
        await s.say("more")
        await s.say("and more")
        assert outputs(s.model.requests[-1].messages)[:2] == [stub(big), bulk("out1", 1_000)]
        await s.is_sound()


@pytest.mark.rule("PR-3")
@pytest.mark.parametrize("by_itself", [True, False])
async def test_after_a_context_length_error_smaller_outputs_go_too_once(tmp_path: Path, by_itself: bool) -> None:
    """The aggressive mode, also when pruning by itself is switched off; the stubs stay."""
    config = settings(preset="checkpoint", pruning={"enabled": by_itself})
    async with opened(tmp_path, tools=[look], window=100_000, config=config) as s:
        await s.begin()
        await s.allow("look")
        await looks(s, 6, used=9_000, size=1_000)
        s.model.add(fail(kind="overflow", text="too long"), answer("fits"))
        assert (await s.say("now")).status == "completed"
        pruned = await s.engine.store.load_pruned(s.id)
        assert [(one.seq, one.tokens, one.keep) for one in pruned] == [(1, 1_000, 0)] * 3
        assert outputs(s.model.requests[-2].messages) == [bulk(f"out{n}", 1_000) for n in range(6)]
        await s.is_sound()


# US-3


@pytest.mark.rule("US-3")
async def test_the_gauge_is_measured_after_a_step_and_estimated_after_a_compaction(tmp_path: Path) -> None:
    """It adds up every time; for another model it is an estimate too."""
    infos = [info("test/other", 50_000)]
    async with opened(tmp_path, tools=[look], infos=infos) as s:
        await s.begin()
        empty = await s.engine.context(s.id)
        assert empty == ContextReport(
            limit=10_000,
            reserve=1_000,
            threshold=9_000,
            used=empty.parts.system + empty.parts.tools,
            measured=False,
            parts=ContextParts(empty.parts.system, empty.parts.tools, 0, 0, 0),
        )
        for n in range(4):
            s.model.add(answer(bulk(f"re{n}", 500), 1_600 + n))
            await s.say(bulk(f"ask{n}", 500))
        measured = await s.engine.context(s.id)
        assert (measured.used, measured.measured, adds_up(measured)) == (1_603, True, True)
        other = await s.engine.context(s.id, model="test/other")
        assert (other.limit, other.measured, adds_up(other)) == (50_000, False, True)
        await s.engine.compact(s.id)
        after = await s.engine.context(s.id)
        assert (after.measured, after.parts.summary > 60, adds_up(after)) == (False, True, True)
        s.model.add(answer("x", 3_000))
        await s.say("go on")
        again = await s.engine.context(s.id)
        assert (again.used, again.measured, adds_up(again)) == (3_000, True, True)


def adds_up(report: ContextReport) -> bool:
    parts = report.parts
    return report.used == parts.system + parts.tools + parts.summary + parts.history


@pytest.mark.rule("US-3")
async def test_results_that_came_after_the_model_had_spoken_are_counted_on_top(tmp_path: Path) -> None:
    """Inside a turn: what the provider counted, the outputs since, and nothing twice."""
    async with opened(tmp_path, tools=[look], window=50_000) as s:
        await s.begin()
        await s.allow("look")
        s.model.add(then(call("look", {"size": 1_000}), usage=Usage(3_000, 20)), fail(400, "no"))
        await s.say("go")
        assert (await s.engine.context(s.id)).used == 3_020 + 1_000
        s.model.add(answer("done", 4_100), fail(400, "no"))
        await s.say("again")
        assert (await s.engine.context(s.id)).used == 4_100
        await s.say("n" * 40)
        assert (await s.engine.context(s.id)).used == 4_115


@pytest.mark.rule("US-3", "BR-1")
async def test_a_branch_that_starts_later_is_not_measured_by_its_parent(tmp_path: Path) -> None:
    """A whole branch has the parent's count; one of the newest turns is estimated."""
    async with opened(tmp_path) as s:
        await s.begin()
        sent = []
        for n in range(4):
            s.model.add(answer(bulk(f"re{n}", 500), 9_500))
            sent.append((await s.send(bulk(f"ask{n}", 500))).message_id)
            await s.rest()
            await s.engine.patch_session(s.id, metadata={"compaction": {"enabled": False}})
        last = (await s.engine.messages(s.id))[-1].id
        whole = await s.engine.branch(s.id, last)
        later = await s.engine.branch(s.id, last, start_message_id=sent[-1])
        assert (await s.engine.context(whole.id)).used == 9_500
        report = await s.engine.context(later.id)
        assert (report.measured, report.used) == (False, report.parts.system + 1_008)


# MS-2


async def grown(s: Compacting, count: int = 6, tokens: int = 1_000) -> None:
    for n in range(count):
        s.model.add(answer(bulk(f"re{n}", tokens), 100))
        await s.say(bulk(f"ask{n}", tokens), model="test/large")


LARGE = [info("test/large", 1_000_000)]


@pytest.mark.rule("MS-2")
async def test_a_switch_to_a_model_that_has_room_changes_nothing(tmp_path: Path) -> None:
    """To one that has none it compacts first, for that model's window."""
    infos = [*LARGE, info("test/middle", 20_000)]
    async with opened(tmp_path, infos=infos) as s:
        await s.begin()
        await grown(s)
        await s.say("on", model="test/middle")
        assert await s.kinds() == ["normal"] * 7
        assert (await s.say("on", model="test/model")).status == "completed"
        assert (await s.kinds())[7:] == ["compaction", "normal"]
        assert s.model.requests[-1].model.model_id == "model"
        await s.is_sound()


@pytest.mark.rule("MS-2", "BR-6")
async def test_what_fits_in_no_way_is_refused_with_a_branch_that_does(tmp_path: Path) -> None:
    """The head stays, the text is handed back in status and event, and the branch request works as it is."""
    config = settings(smart_recovery={"chunked_summarize": False, "drop_middle": False})
    async with opened(tmp_path, infos=LARGE, config=config, summaries=[fail(kind="overflow")] * 9) as s:
        await s.begin()
        await grown(s)
        head = (await s.tree()).head_turn_id
        finished: list[Any] = []

        async def listen() -> None:
            async for event in s.engine.subscribe():
                if event.type == "turn_finished":
                    finished.append(event.data)
                    return

        listening = asyncio.create_task(listen())
        await asyncio.sleep(0)
        sent = await s.send("squeeze in", model="test/model")
        chunks = await s.follow()
        outcome = await sent.wait()
        await s.rest()
        await asyncio.wait_for(listening, 5)
        error = outcome.error or {}
        users = [m.id for m in await s.engine.messages(s.id) if m.role == "user"]
        last = (await s.engine.messages(s.id))[-1].id
        assert outcome.status == "refused"
        assert error == {
            "code": "context_too_large",
            "message": error["message"],
            "branch": {
                "from_message_id": last,
                "start_message_id": users[2],
                "model": {"provider_id": "test", "model_id": "model"},
            },
            "text": "squeeze in",
        }
        assert (await s.tree()).head_turn_id == head
        status = await s.engine.get_status(s.id)
        assert (status.state, status.problem) == ("error", error)
        [told] = finished
        assert (told["session_id"], told["turn_id"], told["reason"]) == (s.id, outcome.turn_id, "refused")
        assert told["problem"] == error
        if chunks:
            assert [chunk["type"] for chunk in chunks] == ["start", "error", "finish"]
        hidden = await s.engine.store.find_message(s.id, sent.message_id)
        assert hidden is not None
        assert hidden.metadata["hidden_by"] == "refused"
        assert "squeeze in" not in "".join(await s.transcript())

        branch = await s.engine.branch(s.id, **error["branch"])
        there = await s.engine.submit(branch.id, error["text"])
        assert (await there.wait()).status == "completed"
        assert (
            texts(s.model.requests[-1].messages)
            == [
                *(line for n in (2, 3, 4, 5) for line in (f"user: ask{n}", f"assistant: re{n}")),
                "user: squeeze in",
            ][-len(s.model.requests[-1].messages) :]
        )
        assert (await s.say("here again", model="test/large")).status == "completed"
        await s.is_sound()


@pytest.mark.rule("MS-2", "RW-2")
async def test_a_resend_that_is_refused_stays_unanswered(tmp_path: Path) -> None:
    """It is the head, as it was, and is answered once there is room for it."""
    config = settings(smart_recovery={"chunked_summarize": False, "drop_middle": False})
    tiny = info("test/tiny", 3_000, 300)
    async with opened(tmp_path, infos=[*LARGE, tiny], config=config) as s:
        await s.begin()
        await grown(s, 3)
        s.model.add(answer("re", 100))
        sent = await s.send(bulk("mine", 2_750), model="test/large")
        await s.rest()
        await s.engine.rewind(s.id, sent.message_id)
        head = (await s.tree()).head_turn_id
        row = await s.engine.store.find_message(s.id, sent.message_id)
        assert row is not None
        # The message names the model it goes to; a smaller one since is what a configuration may bring.
        s.engine.host.providers._infos["test/large"] = msgspec.structs.replace(  # type: ignore[attr-defined]
            tiny, model=LARGE[0].model
        )
        outcome = await (await s.engine.continue_turn(s.id)).wait()
        await s.rest()
        assert (outcome.status, (outcome.error or {})["code"]) == ("refused", "context_too_large")
        tree = await s.tree()
        assert (tree.head_turn_id, tree.turns[head or ""].status) == (head, "unanswered")
        assert (await s.transcript())[-1] == f"user: {bulk('mine', 2_750)}"
        s.engine.host.providers._infos["test/large"] = LARGE[0]  # type: ignore[attr-defined]
        assert (await (await s.engine.continue_turn(s.id)).wait()).status == "completed"
        await s.rest()
        assert (await s.tree()).head_turn_id == head
        await s.is_sound()


# Recall


@pytest.mark.rule("CP-4")
async def test_recall_is_offered_after_a_compaction_and_finds_what_is_out_of_sight(tmp_path: Path) -> None:
    """Words that were summarised, an output that was pruned, and a whole message by its id."""
    async with opened(tmp_path, tools=[look], window=100_000) as s:
        await s.begin()
        await s.allow("look")
        s.model.add(answer("the key is under the flowerpot", 100))
        first = await s.send("where is the key?")
        await s.rest()
        await looks(s, 5, used=100)
        offered = [tool.name for tool in s.model.requests[-1].tools]
        assert "recall" not in offered
        await s.engine.compact(s.id)
        await looks(s, 4, used=100, first=5)
        await s.engine.prune(s.id)
        assert "recall" in [tool.name for tool in s.model.requests[-1].tools]
        pruned = (await s.engine.store.load_pruned(s.id))[0].message_id
        s.model.add(
            call("recall", {"query": "flowerpot"}),
            call("recall", {"query": pruned}),
            call("recall", {"query": first.message_id}),
            call("recall", {"query": "zebra"}),
            answer("found"),
        )
        await s.say("where was it?")
        told = outputs([(await s.engine.messages(s.id))[-1]])
        assert "[Assistant]: the key is under the flowerpot" in told[0]
        assert "out3" in told[1]
        assert told[2] == "[User]: where is the key?"
        assert told[3].startswith("nothing in the")
        await s.is_sound()


# Proof


@pytest.mark.rule("SP-2", "CP-3", "PR-4", "BR-4")
async def test_every_request_of_a_long_session_is_proven(tmp_path: Path) -> None:
    """Tools, prunes, compactions between and inside turns, rewinds and branches; then a restart."""
    url = f"sqlite:///{tmp_path}/store.db"
    async with opened(tmp_path, tools=[look], url=url) as s:
        await s.begin()
        await s.allow("look")
        await looks(s, 6, used=6_700)
        await looks(s, 1, used=9_100, first=6)
        await looks(s, 2, used=300, first=7)
        s.model.add(*(call("look", {"n": n, "size": 2_600}) for n in range(8)), answer("done", 400))
        big = await s.send("all at once")
        await s.rest()
        assert [part.get("split") is not None for part in await s.parts()].count(True) >= 1
        await s.engine.prune(s.id)
        await s.say("after")
        await s.engine.rewind(s.id, big.message_id)
        await s.say("instead")
        branch = await s.engine.branch(s.id, (await s.engine.messages(s.id))[-1].id)
        sent = await s.engine.submit(branch.id, "over here")
        await sent.wait()
        assert await proofs(s) == {True}
        assert len(await s.engine.store.load_pruned(s.id)) > 0
        await s.is_sound()
    async with opened(tmp_path, tools=[look], url=url) as s:
        assert await proofs(s) == {True}


@pytest.mark.rule("SP-2", "BR-1")
async def test_a_copied_turn_is_proven_by_the_one_it_was_copied_from(tmp_path: Path) -> None:
    """A branch that starts later does not hold what was sent; without its parent nothing proves it any more."""
    async with opened(tmp_path) as s:
        await s.begin()
        await s.say("one")
        sent = await s.send("two")
        await s.rest()
        branch = await s.engine.branch(s.id, (await s.engine.messages(s.id))[-1].id, start_message_id=sent.message_id)
        [copied] = (await s.engine.store.load_tree(branch.id)).turns
        report = await s.engine.request(copied)
        assert (report.turn_id, report.proven, texts(report.messages)) == (
            copied,
            True,
            ["user: one", "assistant: ok", "user: two"],
        )
        await s.engine.delete_session(s.id)
        assert not (await s.engine.request(copied)).proven


async def proofs(s: Compacting) -> set[bool]:
    """Whether the request of each step of each session is what was sent."""
    found: set[bool] = set()
    for session_id in await s.engine.store.session_ids():
        tree = await s.engine.store.load_tree(session_id)
        for turn in tree.turns.values():
            for step in await s.engine.store.load_steps(turn.id):
                report = await s.engine.request(turn.id, step.index)
                assert report.proven, (turn.id, step.index, turn.origin_turn_id, texts(report.messages))
                found.add(report.proven)
    return found


@pytest.mark.rule("SP-2", "RN-6")
async def test_a_request_that_a_hook_changed_is_not_proven(tmp_path: Path) -> None:
    """What is put together again is what clew would have sent, and says that it was not that."""
    async with opened(tmp_path) as s:
        await s.begin()
        first = await s.say("one")

        async def change(request: Any) -> Any:
            return msgspec.structs.replace(request, temperature=0.9, system=request.system + "!")

        s.engine.hook("before_model_call", change)
        second = await s.say("two")
        assert (await s.engine.request(first.turn_id)).proven
        report = await s.engine.request(second.turn_id)
        assert (report.proven, report.digest == report.recorded) == (False, False)


@pytest.mark.rule("CP-3")
async def test_a_request_after_an_approval_is_proven(tmp_path: Path) -> None:
    """The step that waited and the step after it."""

    @clew.tool
    async def ask_me() -> str:
        """Asks first."""
        return "yes"

    async with opened(tmp_path, [call("ask_me", {}), answer("done")], tools=[ask_me]) as s:
        await s.begin()
        sent = await s.send("go")
        await s.rest()
        [waiting] = (await s.engine.get_status(s.id)).waiting
        await s.engine.answer(s.id, str(waiting.approval_id), "once")
        await sent.wait()
        await s.rest()
        assert [(await s.engine.request(str(sent.turn_id), n)).proven for n in (0, 1)] == [True, True]
