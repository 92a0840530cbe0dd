"""Export and import: a session leaves a store as a document, and a document arrives as the same session."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clew
from clew.engine import Engine
from clew.errors import InvalidInput, SessionNotFound
from clew.history.check import check
from clew.history.transfer import export_document, import_document
from clew.ids import Mint
from clew.interop.arrival import LEFT_BEHIND, renamed
from clew.interop.document import SessionDocument
from clew.interop.html import format_html
from clew.interop.json_form import format_json
from clew.interop.jsonl_form import format_jsonl
from clew.interop.markdown import format_markdown
from clew.interop.parse import parse_document
from clew.interop.redact import redact_document
from clew.runtime.host import Host
from clew.store.unit import AddPruned, PatchMessage, PatchSession, PutParts, SealMessage
from clew.testing.scenario import Scenario, transcript
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, call, fail, say, wait
from clew.transcript.message import PartRow
from clew.transcript.pruned import Pruned
from clew.transcript.seal import seal_of
from clew.transcript.session import Session
from clew.transcript.turn_state import SETTLED

from .conftest import Open
from .test_rewind import ACTIONS, act, commit, echo, open_both, summarise, summarise_inside, talk, tree_of, turn_of

__all__ = ["open_both"]  # a fixture

NOW = 1_800_000_000_000
FORMS = (format_json, format_jsonl)


@asynccontextmanager
async def elsewhere(kind: str, folder: Path) -> AsyncIterator[Engine]:
    """Another engine on an empty store of its own."""
    url = "memory:" if kind == "memory" else f"sqlite:///{folder}/elsewhere.db"
    async with clew.open(url, config=clew.Config(), providers=FakeProviders(echo())) as engine:
        yield engine


async def taken_in(host: Host, document: SessionDocument) -> Session:
    """Imported by somebody who trusts it with the folder it comes from."""
    root = document.session.workspace_root
    return await import_document(host, document, None if root is None else Path(root))


async def exported(engine: Engine, session_id: str) -> SessionDocument:
    return await export_document(engine.store, session_id, NOW)


def as_it_left(document: SessionDocument) -> SessionDocument:
    """The document without the note of where it came from."""
    metadata = {key: value for key, value in document.session.metadata.items() if key != "imported_from"}
    return msgspec.structs.replace(document, session=msgspec.structs.replace(document.session, metadata=metadata))


async def model_view(engine: Engine, session_id: str) -> list[tuple[str, list[dict[str, Any]]]]:
    return [(message.role, message.parts) for message in await engine.messages(session_id, view="model")]


async def comes_back_the_same(s: Scenario, tmp_path: Path, session_id: str | None = None) -> None:
    """Through both forms, into an empty store of both kinds: same ids, same values, same views, nothing wrong."""
    session_id = session_id or s.id
    document = await exported(s.engine, session_id)
    assert {form.__name__: parse_document(form(document)) == document for form in FORMS} == {
        "format_json": True,
        "format_jsonl": True,
    }
    for kind in ("memory", "sqlite"):
        folder = tmp_path / f"{kind}-{session_id}-{len(document.messages)}"
        folder.mkdir()
        async with elsewhere(kind, folder) as other:
            session = await taken_in(other.host, parse_document(format_json(document)))
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
        odd = PartRow(s.engine.host.mint.part(), len(looked.parts), {"type": "data-odd", "z": {"b": 1, "a": []}}, 5, 6)
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


@settings(max_examples=20)
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
            await taken_in(other.host, parse_document(format_jsonl(document)))
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
        mint = s.engine.host.mint
        names = {turn.id: mint.turn() for turn in document.turns} | {s.id: mint.session()}
        text = format_json(document).decode()
        for old, new in names.items():
            text = text.replace(old, new)
        session = await taken_in(s.engine.host, parse_document(text.encode()))
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
        assert all(parse_document(form(document)) == document for form in FORMS)
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
        assert all(parse_document(form(document)) == document for form in FORMS)
        for kind in ("memory", "sqlite"):
            async with elsewhere(kind, tmp_path) as other:
                session = await taken_in(other.host, document)
                lines = transcript(await other.messages(session.id))
                assert lines == ["user: 1", "assistant: one", "user: 2", "assistant: so far"]
                parts = [part for row in await other.store.load_messages(session.id) for part in row.parts]
                assert all(part.id.startswith("prt_") for part in parts)
                assert await check(other.store) == []


# What this host does not have


async def test_agent_and_folder_that_are_not_here_are_noted(open_both: Open, tmp_path: Path) -> None:
    """The default agent takes over, no folder is given; both are named in the metadata."""
    async with open_both(echo()) as s:
        await s.begin()
        await talk(s, "1")
        await commit(s, PatchSession(permissions=({"permission": "bash", "pattern": "*", "action": "allow"},)))
        document = await exported(s.engine, s.id)
        gone = str(tmp_path / "gone")
        moved = msgspec.structs.replace(document.session, agent="librarian", workspace_root=gone)
        async with elsewhere("memory", tmp_path) as other:
            session = await import_document(other.host, msgspec.structs.replace(document, session=moved))
            assert (session.agent, session.workspace_root, session.permissions) == ("assistant", None, [])
            assert (session.metadata["agent_was"], session.metadata["workspace_was"]) == ("librarian", gone)
            kept = await import_document(other.host, document, s.workspace)
            assert (kept.agent, kept.workspace_root, kept.permissions) == ("assistant", str(s.workspace), [])
            assert "workspace_was" not in kept.metadata
            assert "permissions" not in msgspec.to_builtins(document.session)


@pytest.mark.rule("ST-11")
async def test_no_session_comes_to_be_its_own_ancestor(open_both: Open, tmp_path: Path) -> None:
    """Neither by itself nor by way of another: it could not be asked about, run or deleted any more."""
    replace = msgspec.structs.replace
    async with open_both(echo()) as s:
        await s.begin()
        await talk(s, "hello")
        document = await exported(s.engine, s.id)
    subagent = {**document.session.metadata, "kind": "subagent"}

    def below(document: SessionDocument, parent_id: str) -> SessionDocument:
        return replace(document, session=replace(document.session, parent_id=parent_id, metadata=subagent))

    mint = Mint()
    ids = [mint.session(), mint.session()]
    first, second = (renamed(document, session_id, mint) for session_id in ids)
    async with elsewhere("sqlite", tmp_path) as engine:
        alone = await taken_in(engine.host, below(document, document.session.id))
        assert (alone.parent_id, alone.metadata["imported_from"]["parent_id"]) == (None, document.session.id)
        assert (await taken_in(engine.host, below(first, ids[1]))).parent_id == ids[1]
        assert (await taken_in(engine.host, below(second, ids[0]))).parent_id is None
        for session_id in (document.session.id, *ids):
            await engine.explain_permission(session_id, "read", "x")
        await engine.delete_session(document.session.id)
        await engine.delete_session(ids[1])
        assert (await engine.list_sessions(kind="any")).sessions == ()


async def test_the_folder_that_a_document_names_is_not_believed(open_both: Open, tmp_path: Path) -> None:
    """What waits in its queue would read and write there, by the rules of that project."""
    async with open_both(echo()) as s:
        await s.begin()
        document = await exported(s.engine, s.id)
        for named in (str(s.workspace), "/", "."):
            moved = msgspec.structs.replace(document.session, workspace_root=named)
            session = await import_document(s.engine.host, msgspec.structs.replace(document, session=moved))
            assert (session.workspace_root, session.metadata["workspace_was"]) == (None, named)


async def test_an_import_is_announced_and_goes_on(open_both: Open, tmp_path: Path) -> None:
    """Everybody hears of it, and the conversation can be carried on."""
    async with open_both(echo()) as s:
        await s.begin()
        await talk(s, "1")
        document = await exported(s.engine, s.id)
        async with elsewhere("sqlite", tmp_path) as other:
            events = other.subscribe()
            session = await taken_in(other.host, document)
            event = await anext(aiter(events))
            assert (event.type, event.data) == ("session_created", {"session_id": session.id})
            async for _ in other.run(session.id, "2"):
                pass
            assert transcript(await other.messages(session.id)) == [
                "user: 1",
                "assistant: re 1",
                "user: 2",
                "assistant: re 2",
            ]
            assert await check(other.store) == []


# Refusals


async def test_there_is_nothing_to_export_of_a_session_that_is_not_there(open_both: Open) -> None:
    """Not found, as everywhere."""
    async with open_both(echo()) as s:
        with pytest.raises(SessionNotFound):
            await exported(s.engine, s.engine.host.mint.session())


@pytest.mark.rule("ST-4")
async def test_a_document_that_is_not_sound_writes_nothing(open_both: Open) -> None:
    """Also when it was made by hand and never parsed."""
    async with open_both(echo()) as s:
        await s.begin()
        await talk(s, "1")
        document = await exported(s.engine, s.id)
        settings_ = {"compaction": {"preset": "nonsense"}}
        broken = [
            msgspec.structs.replace(document, messages=()),
            msgspec.structs.replace(document, moves=()),
            msgspec.structs.replace(document, session=msgspec.structs.replace(document.session, id="../x")),
            msgspec.structs.replace(document, session=msgspec.structs.replace(document.session, metadata=settings_)),
        ]
        for one in broken:
            with pytest.raises(InvalidInput):
                await taken_in(s.engine.host, one)
        assert await s.engine.store.session_ids() == (s.id,)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    inner = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if type(value) is list else []
    return [path, *(place for key, item in inner for place in places(item, (*path, key)))]


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


async def looked_over(engine: Engine, session_id: str) -> None:
    """Everything that can be asked of a session is answered, or refused in plain words."""
    document = await exported(engine, session_id)
    for shown in (format_markdown, format_html):
        assert shown(document, hidden=True)
    await engine.messages(session_id, view="model")
    await engine.tree(session_id)
    await engine.reflog(session_id)
    with suppress(clew.Invalid):
        await engine.context(session_id)
    for turn in document.turns:
        await engine.turn(turn.id)
        if any(step.turn_id == turn.id for step in document.steps):
            await engine.request(turn.id)
        for message_id in turn.messages:
            with suppress(clew.Conflict, clew.Invalid):
                await engine.branch(session_id, message_id)
    with suppress(clew.Conflict, clew.Invalid):
        async for _ in engine.run(session_id, "and now?"):
            pass
        await engine.abort(session_id)


@pytest.mark.rule("ST-4")
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_whatever_is_let_in_the_judge_finds_nothing(kind: str, open_scenario: Open, tmp_path: Path) -> None:
    """Documents with one to three places changed for others of their own or for oddities; refused, or sound."""
    script = [say("one"), call("ls", {}), say("two"), call("write", {"path": "a", "content": "x"}), say("3")]
    async with open_scenario(script) as s:
        await s.begin()
        sent = await talk(s, "1", "2")
        await s.engine.rewind(s.id, sent[1])
        await s.engine.unrewind(s.id)
        await summarise(s, sent[1])
        await s.send("3")
        async for status in s.engine.watch_status(s.id):
            if status.waiting:
                break
        await s.send("later")
        whole = msgspec.json.decode(format_json(await exported(s.engine, s.id)))
    rng = random.Random(12)
    paths = places(whole)[1:]
    odd: list[Any] = [
        None,
        0,
        -1,
        2**53,
        2**62,
        1.5,
        "",
        "x",
        [],
        {},
        True,
        "waiting",
        "refused",
        "completed",
        "user",
        "unanswered",
    ]
    taken = 0
    async with elsewhere(kind, tmp_path) as other:
        for _ in range(400):
            document = msgspec.json.decode(msgspec.json.encode(whole))
            for path in rng.choices(paths, k=rng.randint(1, 3)):
                swap = at(whole, rng.choice(paths))
                with suppress(KeyError, IndexError, TypeError):
                    at(document, path[:-1])[path[-1]] = rng.choice([*odd, swap, swap, swap])
            before = await other.store.session_ids()
            try:
                parsed = parse_document(msgspec.json.encode(document))
                session = await taken_in(other.host, parsed)
            except clew.Invalid:
                assert await other.store.session_ids() == before
                continue
            taken += 1
            assert await check(other.store) == []
            await looked_over(other, session.id)
            assert await check(other.store) == []
            for id_ in await other.store.session_ids():
                await other.delete_session(id_, force=True)
    assert taken > 20


# Redaction


async def test_a_redacted_document_is_imported_and_sound(open_both: Open, tmp_path: Path) -> None:
    """Seals and digests are those of what is left; nothing of the secret is."""
    secret = "sk-live-0123456789abcdef"
    body = "data:text/plain;base64,a2V5PXNrLWxpdmUtMDEyMzQ1Njc4OWFiY2RlZg=="
    async with open_both(ScriptedModel(otherwise=lambda request: say(f"I saw {secret}"))) as s:
        await s.begin(title=f"about {secret}")
        (s.workspace / "AGENTS.md").write_text(f"Use {secret} always.")
        file = {"type": "file", "mediaType": "text/plain", "filename": ".env", "url": body}
        sent = await s.engine.submit(s.id, [file, {"type": "text", "text": f"key {secret}"}])
        await sent.wait()
        document = redact_document(await exported(s.engine, s.id))
        assert document.redacted >= 4
        for form in FORMS:
            assert secret.encode() not in form(document)
        async with elsewhere("sqlite", tmp_path) as other:
            session = await taken_in(other.host, parse_document(format_json(document)))
            assert transcript(await other.messages(session.id)) == [
                "user: [file]",
                "user: key [redacted: api key]",
                "assistant: I saw [redacted: api key]",
            ]
            assert session.title == "about [redacted: api key]"
            again = as_it_left(await exported(other, session.id))
            assert again == msgspec.structs.replace(document, redacted=0)
            assert await check(other.store) == []
        assert (await tree_of(s)).head_turn_id == document.session.head_turn_id


async def test_the_keys_in_the_settings_leave_in_no_form() -> None:
    """They need not look like keys: an endpoint of one's own may take any word for one."""
    config = clew.Config(providers={"own": {"kind": "openai-compatible", "api_key": "open sesame 42"}})
    async with clew.open("memory:", config=config, providers=FakeProviders(echo())) as engine:
        session = await engine.create_session(title="say open sesame 42")
        made = [await engine.export(session.id), await engine.export(session.id, "html")]
        assert [b"open sesame 42" in data for data in made] == [False, False]
        assert b"open sesame 42" in await engine.export(session.id, redact=False)
