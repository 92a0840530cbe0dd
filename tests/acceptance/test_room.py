"""Room: pruning and the gauge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import clew
from clew.compaction.context import ContextParts, ContextReport
from clew.providers.base import ModelRequest
from clew.providers.evidence import encode_tools
from clew.session.context.compact import Compacted
from clew.testing.scripted import call, fail, say, then
from clew.transcript.usage import Usage
from tests.acceptance.looking import look, looks, outputs

from .compacting import Playing, answer, bulk, info, opened, settings


@clew.tool
async def todo(n: int = 0) -> str:
    """What is to be done."""
    return bulk(f"todo{n}", 800)


def stub(tokens: int) -> str:
    return f"[output pruned to save room: about {tokens} tokens]"


# PR


@pytest.mark.rule("PR-1", "PR-2", "PR-4")
async def test_old_outputs_become_stubs_at_sixty_percent_oldest_first_and_until_it_is_below_forty(
    tmp_path: Path,
) -> None:
    """Four go and the fifth stays, as do the last three answers; what is stored stays whole; input and state stay."""
    async with opened(tmp_path, tools=[look]) as s:
        await s.begin()
        await s.allow("look")
        await looks(s, 8, used=6_000 - 6 + 700)
        s.model.add(answer("last", 100))
        await s.say("now")
        whole = [bulk(f"out{n}", 800) for n in range(8)]
        assert outputs(s.model.requests[-1].messages) == [*[stub(800)] * 4, *whole[4:]]
        assert outputs(await s.engine.messages(s.id, view="all")) == whole
        part = s.model.requests[-1].messages[1].parts[1]
        assert (part["state"], part["input"]) == ("output-available", {"n": 0, "size": 800})
        assert await s.kinds() == ["normal"] * 9
        await s.is_sound()


@pytest.mark.rule("PR-2", "PR-4")
@pytest.mark.parametrize("kind", ["sqlite:///{}/store.db", "json:{}/store", "jsonl:{}/store"])
async def test_a_prune_in_the_middle_of_a_turn_is_in_every_store_and_holds_after_a_restart(
    tmp_path: Path, kind: str
) -> None:
    """A row of its own beside the message that is still being written; steps before and after it stay provable."""
    url = kind.format(tmp_path)
    config = settings(preset="guide")
    async with opened(tmp_path, tools=[look], url=url, window=20_000, config=config) as s:
        await s.begin()
        await s.allow("look")
        for n in range(24):
            s.model.add(then(call("look", {"n": n}), usage=Usage(1_200 + 740 * n - (9_600 if n > 18 else 0), 20)))
        turn = await s.say("look at all of it")
        sent = [outputs(request.messages) for request in s.model.requests]
        assert [[n for n, text in enumerate(found) if "[output pruned" in text] for found in sent] == [
            *[[]] * 19,
            *[[*range(13)]] * 6,
        ]
        session_id = s.id
    async with opened(tmp_path, tools=[look], url=url, window=20_000) as s:
        assert [(await s.engine.request(turn.turn_id, n)).proven for n in range(25)] == [True] * 25
        assert outputs(await s.engine.messages(session_id, view="model")) == sent[-1]
        assert outputs(await s.engine.messages(session_id)) == [bulk(f"out{n}", 800) for n in range(24)]
        await s.is_sound()


@pytest.mark.rule("PR-2")
async def test_the_newest_outputs_stay_though_more_should_go(tmp_path: Path) -> None:
    """A quarter of what is usable. A compaction is due, and what may go is enough to do without one."""
    async with opened(tmp_path, tools=[look]) as s:
        await s.begin()
        await s.allow("look")
        for n in range(10):
            s.model.add(then(call("look", {"n": n}), usage=Usage(9_300 if n == 9 else 100, 20)))
        await s.say("look at all of it")
        whole = [bulk(f"out{n}", 800) for n in range(10)]
        sent = [outputs(request.messages) for request in s.model.requests]
        assert sent == [*[whole[:n] for n in range(10)], [*[stub(800)] * 7, *whole[7:]]]
        assert await s.kinds() == ["normal"]


@pytest.mark.rule("PR-1", "PR-5")
async def test_a_prune_that_gains_little_waits_until_a_compaction_is_due(tmp_path: Path) -> None:
    """Less than a fifth of what is usable: three outputs of four are protected. Then it saves a summary."""
    async with opened(tmp_path, tools=[look]) as s:
        await s.begin()
        await s.allow("look")
        await looks(s, 4)
        for n, used in enumerate((100, 100, 100, 6_700)):
            s.model.add(answer(f"re{n}", used))
            await s.say(bulk(f"pasted{n}", 900))
        s.model.add(answer("waits", 9_200))
        await s.say("now")
        await s.say("and now")
        whole = [bulk(f"out{n}", 800) for n in range(4)]
        sent = [outputs(request.messages) for request in s.model.requests[-2:]]
        assert sent == [whole, [stub(800), *whole[1:]]]
        assert await s.kinds() == ["normal"] * 10


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
    """Not todos, not the last three steps, not short outputs; the second time there is nothing to do."""
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
            compacted=True, strategy="prune", tokens_before=9_000, tokens_after=after.used, pruned=4
        )
        assert outputs(await s.engine.messages(s.id, view="model")) == [
            bulk("todo1", 800),
            bulk("out0", 100),
            *[stub(800)] * 4,
            bulk("out5", 800),
        ]
        assert (before.measured, after.measured, after.parts.pruned) == (True, False, 3_200)
        again = await s.engine.prune(s.id)
        assert again == Compacted(compacted=False, tokens_before=after.used, tokens_after=after.used)
        assert s.summariser.requests == []
        await s.is_sound()


@pytest.mark.rule("PR-2")
async def test_the_newest_output_for_each_file_is_protected(tmp_path: Path) -> None:
    """An older reading of the same file is not, whatever name each was given."""
    async with opened(tmp_path, tools=[look], window=100_000) as s:
        (s.workspace / "a.txt").write_text("alpha\n" * 200)
        await s.begin(workspace_root=str(s.workspace))
        await s.allow("look", "read")
        for path in ("a.txt", f"{s.workspace}/a.txt"):
            s.model.add(call("read", {"path": path}), answer("read", 100))
            await s.say("read it")
        await looks(s, 3, used=100, size=100)
        assert (await s.engine.prune(s.id)).pruned == 1
        first, second, *_ = outputs(await s.engine.messages(s.id, view="model"))
        assert (first.startswith("[output pruned"), "alpha" in second) == (True, True)


@pytest.mark.rule("PR-3")
async def test_checkpoint_trims_first_then_clears(tmp_path: Path) -> None:
    """Above 30 % the ends stay, above 50 % nothing does, once that frees a fifth or the request would not fit; outputs
    under the floor, lowered here, are left alone."""
    config = settings(preset="checkpoint", pruning={"min_chars": 19_999, "min_total_chars": 3_000})
    async with opened(tmp_path, tools=[look], window=100_000, config=config) as s:
        await s.begin()
        await s.allow("look")
        big = 50_000 * 11 // 40
        await looks(s, 2, used=100, size=big)
        await looks(s, 1, used=100, size=1_000, first=2)
        await looks(s, 2, used=30_001, size=10, first=3)
        await s.say("now")
        kept = outputs(s.model.requests[-1].messages)
        middle = f"[about {big} tokens in all; the middle was pruned to save room]"
        for n in (0, 1):
            whole = bulk(f"out{n}", big)
            assert kept[n] == f"{whole[:1_500]}\n{middle}\n{whole[-1_500:]}"
        assert kept[2] == bulk("out2", 1_000)
        s.model.add(answer("more", 60_000))
        await s.say("more")
        await s.say("and more")
        assert outputs(s.model.requests[-1].messages) == kept
        s.model.add(answer("again", 60_000))
        await s.say("again")
        await s.say(bulk("much", 25_000))
        assert outputs(s.model.requests[-1].messages)[:3] == [stub(big), stub(big), bulk("out2", 1_000)]
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
        assert [(one.seq, one.tokens, one.keep) for one in pruned] == [(1, 1_000, 0)] * 5
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


def dense(request: ModelRequest) -> int:
    """What a provider counts for whom every second character is a token."""
    tools = len(encode_tools(request.tools)) if request.tools else 0
    return (len(request.system) + tools + sum(len(text) for m in request.messages for text in m.texts)) // 2


@pytest.mark.rule("US-3")
async def test_after_a_compaction_the_gauge_goes_by_what_characters_took_in_the_calls_before(tmp_path: Path) -> None:
    """It is an estimate, and at most a tenth above what the next call is counted at. Before three calls were counted it
    is half of that."""

    def play(request: ModelRequest) -> Any:
        return then(say(bulk("re", 1_000)), usage=Usage(input=dense(request), output=1_800))

    async with opened(tmp_path, Playing(otherwise=play), window=60_000) as s:
        await s.begin()
        empty = await s.engine.context(s.id)
        for n in range(5):
            await s.say(bulk(f"ask{n}", 1_000))
        assert (await s.engine.compact(s.id)).compacted
        after = await s.engine.context(s.id)
        await s.say("go on")
        counted = dense(s.model.requests[-1])
        assert (after.measured, adds_up(after)) == (False, True)
        assert counted * 0.98 < after.used < counted * 1.15
        assert empty.used < (dense(s.model.requests[0]) - len(bulk("ask0", 1_000)) // 2) * 0.6
        await s.is_sound()
