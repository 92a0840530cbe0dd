"""Export and import: a session leaves a store as a document, and a document arrives as the same session."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clew
from clew.interop.session_file import format_json, format_jsonl, parse_session
from clew.session.api import Engine
from clew.session.history.check import check
from clew.store.unit import AddPruned, PatchMessage, PutParts, SealMessage
from clew.testing.scenario import Scenario, transcript
from clew.testing.scripted import FakeProviders, Gate, Turnout, call, fail, report, say, wait
from clew.transcript.damage import seal_of
from clew.transcript.message import PartRow
from clew.transcript.portable import LEFT_BEHIND
from clew.transcript.pruned import Pruned
from clew.transcript.turn import NOT_REPORTED
from clew.transcript.turn_state import SETTLED
from clew.transcript.usage import Usage
from tests.acceptance.conversations import (
    ACTIONS,
    act,
    commit,
    echo,
    summarise,
    summarise_inside,
    talk,
    turn_of,
)
from tests.acceptance.documents import FORMS, as_it_left, elsewhere, exported, taken_in
from tests.rounds import rounds

from .conftest import Open


async def model_view(engine: Engine, session_id: str) -> list[tuple[str, list[dict[str, Any]]]]:
    return [(message.role, message.parts) for message in await engine.messages(session_id, view="model")]


async def comes_back_the_same(s: Scenario, tmp_path: Path, session_id: str | None = None) -> None:
    """Through both forms, into an empty store of both kinds: same ids, same values, same views, nothing wrong."""
    session_id = session_id or s.id
    document = await exported(s.engine, session_id)
    assert {form.__name__: parse_session(form(document)) == document for form in FORMS} == {
        "format_json": True,
        "format_jsonl": True,
    }
    for kind in ("memory", "sqlite"):
        folder = tmp_path / f"{kind}-{session_id}-{len(document.messages)}"
        folder.mkdir()
        async with elsewhere(kind, folder) as other:
            session = await taken_in(other.host, parse_session(format_json(document)))
            assert session.id == session_id
            again = as_it_left(await exported(other, session.id))
            assert again == document
            assert format_json(again) == format_json(document)
            assert await model_view(other, session.id) == await model_view(s.engine, session_id)
            assert await other.messages(session.id, view="all") == await s.engine.messages(session_id, view="all")
            assert await check(other.store) == []


# There and back


@pytest.mark.rule("ST-5")
async def test_a_session_with_everything_comes_back_value_for_value(open_both: Open, tmp_path: Path) -> None:
    """Rewinds, a failure, a compaction, prunes of both kinds, files, unknown keys and unknown parts."""
    script = [call("ls", {}), say("one"), say("two"), fail(400), say("four"), say("five"), say("six")]
    async with open_both(script) as s:
        await s.begin(metadata={"mine": {"deep": [1, None, 2.5, "ü"]}, "label": "x"})
        (s.workspace / "a.txt").write_text("x")
        file = {
            "type": "file",
            "mediaType": "text/plain",
            "filename": "h.txt",
            "url": "data:text/plain;base64,aGVsbG8=",
        }
        first = await s.engine.submit(s.id, [file, {"type": "text", "text": "look"}], message_id="client-1")
        await first.wait()
        _, third = await talk(s, "2", "3")
        await s.engine.rewind(s.id, third, mode="edit")
        five, _ = await talk(s, "5", "6")
        await s.engine.rewind(s.id, first.message_id)
        await s.engine.unrewind(s.id)
        looked = next(row for row in await s.engine.messages(s.id) if any("toolCallId" in part for part in row.parts))
        place = next(n for n, part in enumerate(looked.parts) if "toolCallId" in part)
        odd = PartRow(s.engine.mint.part(), len(looked.parts), {"type": "data-odd", "z": {"b": 1, "a": []}}, 5, 6)
        parts = [*looked.parts, odd.data]
        await commit(
            s,
            PutParts(looked.id, (odd,)),
            SealMessage(looked.id, seal_of(parts)),
            PatchMessage(looked.id, 7, {"unknown_key": {"kept": True}}),
            AddPruned((Pruned(0, looked.id, place, 99, 2, 8),)),
            AddPruned((Pruned(0, looked.id, place, 99, 0, 9),)),
        )
        await comes_back_the_same(s, tmp_path)
        await summarise(s, five, "what was said")
        await comes_back_the_same(s, tmp_path)


@pytest.mark.rule("US-1")
async def test_what_was_estimated_comes_along_with_its_mark(
    open_both: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a call that broke off there is no step: its message alone tells what it took. One nobody counted is a step."""
    monkeypatch.setattr(FakeProviders, "cost", lambda _, model, used: used.total / 1024)
    cut = [report(Usage(900, 1)), say("half an ans"), fail()]
    uncounted = Turnout((say("all"),), Usage(), data={"usage": NOT_REPORTED})
    async with open_both([cut, uncounted, say("counted")]) as s:
        await s.begin()
        await talk(s, "1", "2", "3")
        answers = [one for one in await s.engine.messages(s.id) if one.role == "assistant"]
        assert [one.metadata["usage"].get("estimated") for one in answers] == [True, True, None]
        session = await s.engine.get_session(s.id)
        assert (session.prompt_tokens > 900, session.cost_usd) == (True, session.total_tokens / 1024)
        await comes_back_the_same(s, tmp_path)


async def test_a_summary_made_inside_a_turn_keeps_its_place(open_both: Open, tmp_path: Path) -> None:
    """Its turn hangs below a turn that came later; order in the document is by depth."""
    async with open_both(echo()) as s:
        await s.begin()
        sent = await talk(s, "1", "2", "3")
        await summarise_inside(s, await turn_of(s, sent[2]), sent[2])
        await comes_back_the_same(s, tmp_path)


@pytest.mark.rule("BR-1")
async def test_a_branch_with_gaps_in_its_prunes_comes_back(open_both: Open, tmp_path: Path) -> None:
    """Prunes are counted anew; what a step was sent stays what it was."""
    async with open_both([call("ls", {}), say("one"), call("ls", {}), say("two"), say("three")]) as s:
        await s.begin()
        await talk(s, "look", "again")
        rows = [row for row in await s.engine.messages(s.id) if any("toolCallId" in part for part in row.parts)]
        places = [next(n for n, part in enumerate(row.parts) if "toolCallId" in part) for row in rows]
        await commit(s, AddPruned((Pruned(0, rows[1].id, places[1], 9, 0, 1),)))
        await commit(s, AddPruned((Pruned(0, rows[0].id, places[0], 9, 0, 2),)))
        branch = await s.engine.branch(s.id, rows[0].id)
        document = await exported(s.engine, branch.id)
        assert [one.seq for one in document.prunes] == [1]
        await comes_back_the_same(s, tmp_path, branch.id)
        await comes_back_the_same(s, tmp_path)


async def test_what_a_step_was_sent_is_still_proven_after_an_import(open_both: Open, tmp_path: Path) -> None:
    """Prompts and tools travel with the session."""
    async with open_both([call("ls", {}), say("one"), say("two")]) as s:
        await s.begin()
        await talk(s, "look", "and?")
        document = await exported(s.engine, s.id)
        for kind in ("memory", "sqlite"):
            async with elsewhere(kind, tmp_path) as other:
                await taken_in(other.host, document)
                for turn in document.turns:
                    there, here = await s.engine.request(turn.id), await other.request(turn.id)
                    assert here == there
                    assert here.proven


@settings(max_examples=rounds(20))
@given(seed=st.integers(0, 10**6), actions=st.lists(st.sampled_from(ACTIONS), max_size=10))
async def test_whatever_was_done_to_a_session_it_comes_back(
    seed: int, actions: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Into an empty store as it was, beside itself under other names."""
    rng = random.Random(seed)
    folder = tmp_path_factory.mktemp("transfer")
    async with clew.open("memory:", config=clew.Config(), providers=FakeProviders(echo())) as engine:
        s = await Scenario(engine, echo(), folder).begin()
        for action in actions:
            with suppress(clew.Conflict, clew.Invalid):
                await act(s, action, rng)
        document = await exported(engine, s.id)
        async with elsewhere("memory", folder) as other:
            await taken_in(other.host, parse_session(format_jsonl(document)))
            assert as_it_left(await exported(other, s.id)) == document
            assert await check(other.store) == []
        copy = await taken_in(engine.host, document)
        assert await model_view(engine, copy.id) == await model_view(engine, s.id)
        assert await check(engine.store) == []


# Names


@pytest.mark.rule("ID-3")
async def test_importing_twice_gives_two_sessions(open_both: Open, tmp_path: Path) -> None:
    """The second has new ids throughout; both say where they came from, and neither touches the other."""
    async with open_both([call("ls", {}), say("one"), *[say(f"n{n}") for n in range(9)]]) as s:
        await s.begin()
        sent = await talk(s, "1", "2", "3")
        await s.engine.rewind(s.id, sent[2])
        await summarise(s, sent[1], "so far", split={"message_id": sent[1], "from_part": 0})
        before = await exported(s.engine, s.id)
        copies = [await taken_in(s.engine.host, before) for _ in range(2)]
        assert len({s.id, *(copy.id for copy in copies)}) == 3
        assert await exported(s.engine, s.id) == before
        for copy in copies:
            assert copy.metadata["imported_from"]["session_id"] == s.id
            after = await exported(s.engine, copy.id)
            own = {row.id for row in after.messages} | {turn.id for turn in after.turns}
            old = {row.id for row in before.messages} | {turn.id for turn in before.turns}
            assert not own & old
            assert not any(id_ in format_json(as_it_left(after)).decode() for id_ in old)
            assert await model_view(s.engine, copy.id) == await model_view(s.engine, s.id)
            assert transcript(await s.engine.messages(copy.id, view="all")) == await s.transcript("all")
            assert (copy.total_tokens, copy.cost_usd) == (before.session.total_tokens, before.session.cost_usd)
        await s.engine.delete_session(s.id)
        assert await check(s.engine.store) == []


async def test_one_message_id_that_is_taken_makes_all_ids_new(tmp_path: Path, open_scenario: Open) -> None:
    """Nothing of the first try stays."""
    async with open_scenario(echo()) as s:
        await s.begin()
        await talk(s, "1")
        document = await exported(s.engine, s.id)
        mint = s.engine.mint
        names = {turn.id: mint.turn() for turn in document.turns} | {s.id: mint.session()}
        text = format_json(document).decode()
        for old, new in names.items():
            text = text.replace(old, new)
        session = await taken_in(s.engine.host, parse_session(text.encode()))
        assert session.id not in (s.id, names[s.id])
        assert session.metadata["imported_from"]["session_id"] == names[s.id]
        assert sorted(await s.engine.store.session_ids()) == sorted([s.id, session.id])
        assert await check(s.engine.store) == []


# What was open


async def waiting(s: Scenario) -> None:
    """A session that asks a human, with a prompt queued behind it and another that was cancelled."""
    await s.begin()
    await talk(s, "1")
    await s.send("2")
    async for status in s.engine.watch_status(s.id):
        if status.waiting:
            break
    await s.send("later")
    cancelled = await s.send("never mind")
    await s.engine.cancel_queued(s.id, cancelled.message_id)


async def test_what_waits_for_a_human_is_settled_and_the_queue_stays(open_both: Open, tmp_path: Path) -> None:
    """The turn is aborted and on the line, its call an error; nobody is asked again."""
    async with open_both([say("one"), call("write", {"path": "a.txt", "content": "x"}), say("three")]) as s:
        await waiting(s)
        document = await exported(s.engine, s.id)
        assert all(parse_session(form(document)) == document for form in FORMS)
        for kind in ("memory", "sqlite"):
            async with elsewhere(kind, tmp_path) as other:
                session = await taken_in(other.host, document)
                status = await other.get_status(session.id)
                assert (status.waiting, status.state) == ((), "idle")
                tree = await other.store.load_tree(session.id)
                assert {turn.status for turn in tree.turns.values()} <= SETTLED
                head = tree.turns[str(tree.head_turn_id)]
                assert (head.status, head.data) == ("aborted", {"stopped": LEFT_BEHIND})
                assert transcript(await other.messages(session.id)) == [
                    "user: 1",
                    "assistant: one",
                    "user: 2",
                    f'write {{"path":"a.txt","content":"x"}} → error: {LEFT_BEHIND}',
                ]
                assert transcript(await other.queue(session.id)) == ["user: later"]
                assert await other.store.open_calls(session.id) == ()
                assert await check(other.store) == []
                settled = await exported(other, session.id)
                again = await taken_in(other.host, settled)
                assert transcript(await other.messages(again.id, view="all")) == transcript(
                    await other.messages(session.id, view="all")
                )


async def test_a_session_is_exported_while_it_runs(open_both: Open, tmp_path: Path) -> None:
    """What was said so far is there, and ends there; the run is not disturbed."""
    gate = Gate()
    async with open_both([say("one"), [say("so far"), wait(gate)]]) as s:
        await s.begin()
        await talk(s, "1")
        async for chunk in s.engine.run(s.id, "2"):
            if "far" in chunk.get("delta", ""):
                break
        document = await exported(s.engine, s.id)
        gate.set()
        assert await s.settled() == "idle"
        assert all(parse_session(form(document)) == document for form in FORMS)
        for kind in ("memory", "sqlite"):
            async with elsewhere(kind, tmp_path) as other:
                session = await taken_in(other.host, document)
                lines = transcript(await other.messages(session.id))
                assert lines == ["user: 1", "assistant: one", "user: 2", "assistant: so far"]
                parts = [part for row in await other.store.load_messages(session.id) for part in row.parts]
                assert all(part.id.startswith("prt_") for part in parts)
                assert await check(other.store) == []
