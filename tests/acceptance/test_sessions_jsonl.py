"""Sessions as JSONL files: the scenarios of the format's description, by their names, and its own examples."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from clew.ids import Mint
from clew.session.history.check import check
from clew.store.files.jsonl import JsonlCodec
from clew.store.files.opening import open_files
from clew.testing.chunks import text
from clew.testing.clock import FakeClock
from clew.testing.scribe import Scribe
from clew.testing.scripted import Gate, call, say, then, wait
from clew.tools.decorator import tool
from clew.transcript.rule import Target
from clew.transcript.usage import Usage
from tests.acceptance.jsonl_sessions import ULID, ask, engine, no_sync, place, reads, url
from tests.integration.http_client import served
from tests.readers import reader_003

from .compacting import Compacting, bulk, opened, settings, summary

__all__ = ["no_sync"]


@tool(targets=lambda given, workspace: [Target("todo", "plain", "look")])
async def read(path: str) -> str:
    """Read a file."""
    return f"{path}: " + "x" * 400


@tool(targets=lambda given, workspace: [Target("todo", "plain", "look")])
async def edit(path: str) -> str:
    """Edit a file."""
    return f"{path} was edited"


@asynccontextmanager
async def compacting(tmp_path: Path, *script: Any, summaries: Any = (), window: int = 20_000, **fields: Any) -> Any:
    """A session of the preset this store has, with less to keep than its figures say."""
    fields.setdefault("keep_recent_tokens", 400)
    config = settings(reserve_tokens=1_000, **fields)
    async with opened(
        tmp_path, script, summaries, url=url(tmp_path), config=config, tools=(read, edit), window=window
    ) as s:
        await s.begin()
        await s.allow("read", "edit", "todo")
        yield s


# The scenarios


@pytest.mark.rule("FS-1", "ID-3")
async def test_s7_1_a_new_session_is_a_folder_with_an_empty_log_and_metadata(tmp_path: Path) -> None:
    """Its name is a ULID that the server made; nobody but the owner reads any of it."""
    async with engine(tmp_path) as e:
        session = await e.create_session(title="first")
        at = place(tmp_path, session.id)
        assert sorted(path.name for path in at.iterdir()) == ["metadata.json", "session.jsonl"]
        assert (at / "session.jsonl").read_bytes() == b""
        assert reader_003.read_metadata(at)["name"] == "first"
        await e.rename_session(session.id, "renamed")
        assert (at / "session.jsonl").read_bytes() == b""
        modes = {p.stat().st_mode & 0o777 for p in (tmp_path / "store").rglob("*") if p.is_file()}
        folders = {p.stat().st_mode & 0o777 for p in (tmp_path / "store").rglob("*") if p.is_dir()}
        assert (modes, folders) == ({0o600}, {0o700})
    async with engine(tmp_path) as e:
        assert (await e.get_session(session.id)).title == "renamed"


@pytest.mark.rule("FS-1")
async def test_s7_2_messages_are_appended_and_the_file_is_never_rewritten(tmp_path: Path) -> None:
    """Every earlier state is how the file begins, and it is the same file."""
    async with engine(tmp_path, say("one"), [call("ls", {"path": "."})], say("two"), say("three")) as e:
        session = await e.create_session(workspace_root=tmp_path)
        log = place(tmp_path, session.id) / "session.jsonl"
        states, files = [log.read_bytes()], {log.stat().st_ino}
        for prompt in ("a", "b", "c"):
            await ask(e, session.id, prompt)
            states.append(log.read_bytes())
            files.add(log.stat().st_ino)
        first = (await e.messages(session.id))[0].id
        await e.rewind(session.id, first, mode="edit")
        states.append(log.read_bytes())
        assert len(files) == 1
        assert all(after.startswith(before) and after != before for before, after in pairwise(states))
        assert sorted(path.name for path in log.parent.iterdir()) == ["metadata.json", "session.jsonl"]


@pytest.mark.rule("FS-1", "FS-2")
async def test_s7_3_loading_gives_the_whole_history_with_its_overlays(tmp_path: Path) -> None:
    """Every view is the same after a restart, and the summary stands where it stood."""
    async with compacting(tmp_path) as s:
        for word in ("alpha", "beta", "gamma"):
            await s.say(bulk(word, 300))
        await s.engine.compact(s.id)
        await s.say("delta")
        before = {view: await s.engine.messages(s.id, view=view) for view in ("visible", "model", "all")}
        assert (await s.view())[0] == "user: summary the goal"
    async with engine(tmp_path) as e:
        assert {view: await e.messages(s.id, view=view) for view in before} == before
        assert await check(e.store) == []


@pytest.mark.rule("FS-1")
async def test_s7_4_metadata_follows_each_interaction(tmp_path: Path) -> None:
    """The time of the last message, and how many there are."""
    clock = FakeClock()
    async with engine(tmp_path, say("one"), say("two"), clock=clock) as e:
        session = await e.create_session()
        seen = []
        for prompt in ("a", "b"):
            clock.advance(60_000)
            await ask(e, session.id, prompt)
            metadata = reader_003.read_metadata(place(tmp_path, session.id))
            records = reader_003.read_records(place(tmp_path, session.id))
            assert metadata["messageCount"] == len(records)
            seen.append((metadata["messageCount"], metadata["lastMessageAt"]))
        assert [count for count, _ in seen] == [2, 4]
        assert seen[0][1] < seen[1][1]


@pytest.mark.rule("ST-6")
async def test_s7_5_the_list_is_sorted_by_the_last_message(tmp_path: Path) -> None:
    """Newest first, as the metadata has it; also after a restart."""
    clock = FakeClock()
    async with engine(tmp_path, *[say("ok")] * 4, clock=clock) as e:
        made = [(await e.create_session()).id for _ in range(3)]
        for index in (1, 0, 2, 0):
            clock.advance(1_000)
            await ask(e, made[index], "hi")
        expected = [made[0], made[2], made[1]]
        assert [one.id for one in (await e.list_sessions()).sessions] == expected
    async with engine(tmp_path) as e:
        assert [one.id for one in (await e.list_sessions()).sessions] == expected
    stamps = [reader_003.read_metadata(place(tmp_path, id_))["lastMessageAt"] for id_ in expected]
    assert stamps == sorted(stamps, reverse=True)


@pytest.mark.rule("FS-1", "CP-9")
async def test_s7_6_a_compaction_is_appended(tmp_path: Path) -> None:
    """One record more at the end, with what the description wants; the preset is this store's own."""
    async with compacting(tmp_path) as s:
        assert s.engine.config.compaction.preset == "overlay"
        for word in ("alpha", "beta", "gamma"):
            await s.say(bulk(word, 300))
        log = place(tmp_path, s.id) / "session.jsonl"
        before = log.read_bytes()
        await s.engine.compact(s.id)
        assert log.read_bytes().startswith(before)
        *_, last = reader_003.read_records(log.parent)
        assert (last["recordType"], last["readFiles"], last["modifiedFiles"]) == ("compaction", [], [])
        assert last["summary"].startswith("## Goal")
        [part] = await s.parts()
        assert last["tokensBefore"] == part["summarised_tokens"] < part["tokens_before"]


@pytest.mark.rule("FS-1", "EV-2")
async def test_s7_7_sessions_of_a_schedule_are_tagged(tmp_path: Path) -> None:
    """With their source and the job; everybody else's are interactive."""
    async with engine(tmp_path) as e:
        cron = await e.create_session(metadata={"source": "cron", "cron_job_id": "nightly"})
        other = await e.create_session()
        tags = [
            (metadata["source"], metadata.get("cronJobId"))
            for metadata in (reader_003.read_metadata(place(tmp_path, one.id)) for one in (cron, other))
        ]
        assert tags == [("cron", "nightly"), ("interactive", None)]


@pytest.mark.rule("ID-3")
async def test_s7_8_an_id_that_is_no_ulid_is_a_400_and_touches_nothing(tmp_path: Path) -> None:
    """Whatever is asked for with it, and however it tries to leave the folder."""
    (tmp_path / "outside.json").write_text("{}")
    bad = ["x", "ses_" + "0" * 26, ULID.lower(), ULID + "A", "..%2F..%2Foutside", ULID[:-1] + "U", ULID[:-1] + "%0A"]
    async with served(store=url(tmp_path)) as client:
        session = await client.session()
        before = sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "store").rglob("*"))
        for id_ in bad:
            for method, path in (("GET", ""), ("GET", "/messages"), ("DELETE", ""), ("POST", "/abort")):
                answer = await client.request(method, f"/api/sessions/{id_}{path}")
                # A slash leads to no route at all; anything else is looked at whole.
                expected = (404, "not_found") if "%2F" in id_ else (400, "invalid_id")
                assert (answer.status, answer.code) == expected, id_
        assert (await client.get(f"/api/sessions/{ULID}")).status == 404
        assert sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "store").rglob("*")) == before
        assert (await client.get(f"/api/sessions/{session}")).status == 200


@pytest.mark.slow
@pytest.mark.rule("FS-2")
async def test_s7_9_a_crash_in_an_append_costs_that_unit_at_every_byte(tmp_path: Path) -> None:
    """Wherever the last unit was cut, what was before it is there, and what comes after is never glued to it."""
    async with engine(tmp_path, say("one"), say("two")) as e:
        session = await e.create_session()
        await ask(e, session.id, "a")
        log = place(tmp_path, session.id) / "session.jsonl"
    store = await open_files("jsonl", tmp_path / "store")
    scribe = Scribe(store, session.id, Mint(), FakeClock(2_000_000_000_000))
    intact, metadata = log.read_bytes(), (log.parent / "metadata.json").read_bytes()
    loaded = store._codec.load(session.id)
    assert loaded is not None
    before = loaded.value
    await scribe.prompt("cut me off")
    await store.close()
    whole = log.read_bytes()
    assert whole.startswith(intact)
    lines = whole[len(intact) :].count(b"\n")
    assert lines >= 4
    codec = JsonlCodec(tmp_path / "store")
    (log.parent / "metadata.json").write_bytes(metadata)
    # But for its newline the last line is whole, and counts.
    for cut in range(len(intact), len(whole) - 1):
        log.write_bytes(whole[:cut])
        torn = codec.load(session.id)
        assert torn is not None
        assert (torn.value, torn.damages) == (before, ()), cut
    ends = [place + 1 for place in range(len(intact), len(whole) - 1) if whole[place : place + 1] == b"\n"]
    for cut in (*range(len(intact), len(whole), len(whole) // 12), *ends, len(whole) - 2):
        log.write_bytes(whole[:cut])
        (log.parent / "metadata.json").write_bytes(metadata)
        await _goes_on(tmp_path, session.id, log, whole[:cut])
    log.write_bytes(whole)
    store = await open_files("jsonl", tmp_path / "store")
    after = await store.find_full_session(session.id)
    assert after is not None
    assert len(after.messages) == 3
    await store.close()


async def _goes_on(tmp_path: Path, session_id: str, log: Any, torn: bytes) -> None:
    """The next unit stands on lines of its own, and all is well when the file is read again."""
    store = await open_files("jsonl", tmp_path / "store")
    scribe = Scribe(store, session_id, Mint(), FakeClock(2_000_000_000_000))
    await scribe.turn("and now?", text("fine"))
    expected = await store.find_full_session(session_id)
    assert log.read_bytes().startswith(torn[: torn.rfind(b"\n") + 1])
    assert [line for line in log.read_bytes().splitlines() if not reads(line)] == []
    await store.close()
    again = await open_files("jsonl", tmp_path / "store")
    assert await again.find_full_session(session_id) == expected
    assert await check(again) == []
    await again.close()
    numbers = [json.loads(line)["seq"] for line in log.read_bytes().split(b"\n") if reads(line)]
    assert numbers == sorted(set(numbers))


@pytest.mark.rule("SR-6", "SR-7")
async def test_s7_10_prompts_at_the_same_time_are_queued_and_not_interleaved(tmp_path: Path) -> None:
    """One turn after another, each whole, in the log as in the conversation."""
    gate = Gate()
    async with engine(tmp_path, [say("on"), wait(gate), say("e")], say("two"), say("three")) as e:
        session = await e.create_session()
        first = await e.submit(session.id, "a")
        rest = await asyncio.gather(*(e.submit(session.id, prompt) for prompt in ("b", "c")))
        assert [one.queued for one in rest] == [True, True]
        gate.set()
        for submission in (first, *rest):
            await submission.wait()
        records = reader_003.read_records(place(tmp_path, session.id))
        assert [(record["role"], reader_003.said(record)) for record in records] == [
            ("user", ["a"]),
            ("assistant", ["on", "e"]),
            ("user", ["b"]),
            ("assistant", ["two"]),
            ("user", ["c"]),
            ("assistant", ["three"]),
        ]


@pytest.mark.rule("FS-1", "CP-3")
async def test_s7_11_after_a_compaction_the_context_is_the_summary_and_what_was_kept(tmp_path: Path) -> None:
    """As an independent reader builds it from the file, and as clew sends it."""
    async with compacting(tmp_path) as s:
        for word in ("alpha", "beta", "gamma"):
            await s.say(bulk(word, 300))
        await s.engine.compact(s.id)
        await s.say("delta")
        context = reader_003.build_context(place(tmp_path, s.id))
        sent = await s.engine.messages(s.id, view="model")
        assert context[0][0] == "summary"
        assert context[0][1] in sent[0].parts[0]["text"]
        assert [said for _, said in context[1:]] == [
            [part["text"] for part in message.parts if part["type"] == "text"] for message in sent[1:]
        ]
        assert [role for role, _ in context[1:]] == [message.role for message in sent[1:]]
        assert len(context) < 1 + 8


@pytest.mark.rule("CP-14", "FS-1", "CP-3")
async def test_a_reader_gets_the_request_of_a_turn_that_was_cut_inside(tmp_path: Path) -> None:
    """It is appended again, once, since what is kept begins behind it; to clew the copy says nothing."""
    words = "do all of it, and never stop"
    off = {"enabled": False}
    counted = [Usage(input=3_000 if number in (7, 15) else 500, output=5) for number in range(20)]
    script = [then(call("read", {"path": f"{n}.txt"}), usage=usage) for n, usage in enumerate(counted)]
    async with compacting(
        tmp_path, say("hi"), *script, say("done"), keep_recent_tokens=300, window=3_400, pruning=off
    ) as s:
        await s.say("hello")
        await s.say(words)
        at = place(tmp_path, s.id)
        assert ["split" in part for part in await s.parts()] == [True, True]
        sent = await s.engine.messages(s.id, view="model")
        assert [message.role for message in sent] == ["user", "user", "assistant"]
        context = reader_003.build_context(at)
        assert [said for role, said in context if role == "user"] == [[words]]
        kept = [("read", part["input"]) for part in sent[-1].parts if "toolCallId" in part]
        assert [one for role, said in context if role == "assistant" for one in said] == [*kept, "done"]
        assert 4 < len(kept) < 20
        records = reader_003.read_records(at)
        [request] = [one["seq"] for one in records if one.get("content") == [{"type": "text", "text": words}]][:1]
        copies = [one for one in records if "copyOf" in one]
        assert {(one["role"], one["copyOf"]) for one in copies} == {("user", request)}
        assert reader_003.read_metadata(at)["messageCount"] == sum(one["recordType"] == "message" for one in records)
        before = await s.engine.store.find_full_session(s.id)
    store = await open_files("jsonl", tmp_path / "store")
    assert await store.find_full_session(s.id) == before
    assert await check(store) == []
    await store.close()


@pytest.mark.rule("FS-1")
async def test_s7_12_content_is_always_blocks(tmp_path: Path) -> None:
    """Of prompts, answers, calls, results and errors."""
    script = ([say("let me see"), call("ls", {"path": "."}), call("ls", {"path": "/nowhere"})], say("done"))
    async with engine(tmp_path, *script) as e:
        session = await e.create_session(workspace_root=tmp_path)
        await ask(e, session.id, "what is here?")
        records = reader_003.read_records(place(tmp_path, session.id))
    assert [record["role"] for record in records][:2] == ["user", "assistant"]
    assert {record["role"] for record in records} == {"user", "assistant", "toolResult"}
    assert all(isinstance(record["content"], list) for record in records)


async def _worked(s: Compacting, rounds: int = 3) -> None:
    for number in range(rounds):
        await s.say(bulk(f"round{number}", 200))


def working(rounds: int = 3, first: int = 0) -> list[Any]:
    """In each turn a file is read, one is edited, and something is said."""
    script: list[Any] = []
    for number in range(first, first + rounds):
        script += [[call("read", {"path": f"r{number}.txt"}), call("edit", {"path": f"e{number}.txt"})], say("done")]
    return script


@pytest.mark.rule("CP-5")
async def test_s7_13_a_compaction_never_cuts_between_a_call_and_its_result(tmp_path: Path) -> None:
    """Whatever is kept: each result in the reader's context has its call, and each call its result."""
    for keep in (60, 120, 240, 480):
        async with compacting(tmp_path / str(keep), *working(), keep_recent_tokens=keep) as s:
            await _worked(s)
            await s.engine.compact(s.id)
            at = place(tmp_path / str(keep), s.id)
            kept = reader_003.read_records(at)
            first = next(record["firstKeptSeq"] for record in kept if record["recordType"] == "compaction")
            kept = [record for record in kept if record["recordType"] == "message" and record["seq"] >= first]
            calls = [block["id"] for record in kept for block in record["content"] if block["type"] == "toolCall"]
            results = [record["toolCallId"] for record in kept if record["role"] == "toolResult"]
            assert sorted(calls) == sorted(results)


@pytest.mark.rule("CP-6")
async def test_s7_14_a_summary_has_its_sections(tmp_path: Path) -> None:
    """In the record, as the description names them; what a summariser wrote without them is not taken."""
    async with compacting(tmp_path, summaries=[say("no form at all"), say(summary("to find it"))]) as s:
        await _worked(s)
        await s.engine.compact(s.id)
        records = reader_003.read_records(place(tmp_path, s.id))
        [told] = [record["summary"] for record in records if record["recordType"] == "compaction"]
        for section in ("Goal", "Progress", "Key Decisions", "Next Steps", "Critical Context"):
            assert f"## {section}" in told


async def _twice(tmp_path: Path, s: Compacting) -> list[dict[str, Any]]:
    await _worked(s)
    await s.engine.compact(s.id)
    await _worked(s)
    await s.engine.compact(s.id)
    return [r for r in reader_003.read_records(place(tmp_path, s.id)) if r["recordType"] == "compaction"]


@pytest.mark.rule("CP-7")
async def test_s7_15_files_are_tracked_over_compactions(tmp_path: Path) -> None:
    """What the first one knew, the second knows too."""
    async with compacting(tmp_path, *working(), *working(first=3)) as s:
        first, second = await _twice(tmp_path, s)
        assert first["readFiles"]
        assert set(first["readFiles"]) < set(second["readFiles"])
        assert set(first["modifiedFiles"]) < set(second["modifiedFiles"])


@pytest.mark.rule("CP-7")
async def test_s7_16_a_modified_file_is_not_listed_as_read(tmp_path: Path) -> None:
    """Also when it was read in one stretch and edited in another."""
    again = [[call("edit", {"path": "r0.txt"})], say("done"), *working(2, first=3)]
    async with compacting(tmp_path, *working(), *again) as s:
        first, second = await _twice(tmp_path, s)
        assert "r0.txt" in first["readFiles"]
        assert "r0.txt" not in second["readFiles"]
        assert "r0.txt" in second["modifiedFiles"]
        assert set(second["readFiles"]).isdisjoint(second["modifiedFiles"])


@pytest.mark.rule("CP-6")
async def test_s7_17_the_second_summary_updates_the_first(tmp_path: Path) -> None:
    """The summariser is given the summary before, and told to keep what it says; the first one is not."""
    async with compacting(tmp_path, summaries=[say(summary("alpha")), say(summary("alpha and beta"))]) as s:
        await _twice(tmp_path, s)
        first, second = (_asked(request) for request in s.summariser.requests)
        assert "<previous-summary>" not in first
        assert "<previous-summary>" in second
        assert "- alpha\n" in second


@pytest.mark.rule("CP-9", "CP-6", "CP-3")
async def test_overlay_asks_and_frames_as_its_source_does(tmp_path: Path) -> None:
    """Source 003:97,158-215. History first, then the task with its sections and rules; one line before the markers."""
    async with compacting(tmp_path, summaries=[say(summary("alpha")), say(summary("alpha and beta"))]) as s:
        await _twice(tmp_path, s)
        first, second = (_asked(request) for request in s.summariser.requests)
        assert s.summariser.requests[0].system.startswith("You summarise the context of an agent.")
        markers = ("<conversation>", "</conversation>", "<previous-summary>\n## Goal\n- alpha", "RULES:", "- PRESERVE ")
        rules = ("- ADD ", "- UPDATE Progress", '- UPDATE "Next Steps"', "- PRESERVE the exact", "- REMOVE ")
        sections = ("## Goal\n[", "### Done\n- [x] [", "### Blocked\n- [", "1. [", "## Critical Context\n- [")
        for text, known in ((first, (*markers[:2], "Above is", *sections)), (second, (*markers, *rules, *sections))):
            places = [text.find(one) for one in known]
            assert places == sorted(places)
            assert -1 not in places
        [made] = [part["summary"].rstrip() for part in (await s.parts())[-1:]]
        framed, *_ = await s.engine.messages(s.id, view="model")
        assert framed.role == "user"
        line, rest = framed.parts[0]["text"].split("\n", 1)
        assert (line[-1], rest) == (":", f"<summary>\n{made}\n</summary>")


@pytest.mark.rule("CP-6")
async def test_s7_18_what_is_summarised_is_flat_text(tmp_path: Path) -> None:
    """With labels, and not as the messages or the records are."""
    async with compacting(tmp_path, *working()) as s:
        await _worked(s)
        await s.engine.compact(s.id)
        [request] = s.summariser.requests
        asked = _asked(request)
        for label in ("[User]:", "[Assistant]:", "[Assistant tool calls]: read(", "[Tool result]:"):
            assert label in asked
        assert '"recordType"' not in asked
        assert '"toolCallId"' not in asked


def _asked(request: Any) -> str:
    return "\n".join(part.get("text", "") for message in request.messages for part in message.parts)
