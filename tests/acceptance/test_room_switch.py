"""Room: switching to a smaller model, recall, and the proof of what was sent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

import clew
from clew.testing.scripted import call, fail
from tests.acceptance.looking import look, looks, outputs

from .compacting import Compacting, answer, bulk, info, opened, settings, texts

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
        await asyncio.wait_for(listening, 60)
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
            "ways": error["ways"],
            "text": "squeeze in",
        }
        assert [way["operation"] for way in error["ways"]] == ["prune", "branch", "create_session"]
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
async def test_recall_finds_what_is_out_of_sight_and_is_offered_from_the_first_turn_on(tmp_path: Path) -> None:
    """Words that were summarised, an output that was pruned, a whole message by its id. A tool that came with the first
    summary would have the provider read everything anew with the turn after."""
    async with opened(tmp_path, tools=[look], window=100_000) as s:
        await s.begin()
        await s.allow("look")
        s.model.add(answer("the key is under the flowerpot", 100))
        first = await s.send("where is the key?")
        await s.rest()
        await looks(s, 5, used=100)
        await s.engine.compact(s.id)
        await looks(s, 4, used=100, first=5)
        await s.engine.prune(s.id)
        first_tools, *others = ([tool.name for tool in request.tools] for request in s.model.requests)
        assert "recall" in first_tools
        assert others == [first_tools] * len(others)
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


async def test_recall_does_not_find_what_it_was_asked_before(tmp_path: Path) -> None:
    """Once its own calls are out of sight too, the question would be nearer to itself than the answer is. What is still
    in sight of a message that was pruned is not shown either."""
    async with opened(tmp_path, tools=[look], window=100_000) as s:
        await s.begin()
        await s.allow("look")
        s.model.add(answer(f"{bulk('wall', 2_000)} where the key hangs: at hook 4471. {bulk('wall', 2_000)}", 100))
        held = await s.say("look around")
        for n in range(8):
            s.model.add(call("recall", {"query": "where is the key, please?"}), answer(f"not yet {n}", 100))
            await s.say(f"try {n}")
        await s.engine.compact(s.id)
        await looks(s, 4, used=100)
        await s.engine.prune(s.id)
        s.model.add(
            call("recall", {"query": "where is the key, please?"}), call("recall", {"query": "re0"}), answer("found")
        )
        await s.say("where is it?")
        key, visible = outputs([(await s.engine.messages(s.id))[-1]])
        at = next(
            m.id for m in await s.engine.messages(s.id, view="all") if m.turn_id == held.turn_id and m.role != "user"
        )
        assert key.startswith(f"({at})\n…")
        assert "the key hangs: at hook 4471." in key.split("\n\n")[0]
        assert "recall(" not in key
        assert visible.startswith("nothing in the")


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
