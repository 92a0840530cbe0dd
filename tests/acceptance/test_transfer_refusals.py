"""Documents that name what this host does not have, that are not sound, or hold secrets."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

import clew
from clew.errors import InvalidInput, SessionNotFound
from clew.ids import Mint
from clew.interop.html import format_html
from clew.interop.markdown import format_markdown
from clew.interop.redact import redact_session
from clew.interop.session_file import format_json, parse_session
from clew.session.api import Engine
from clew.session.history.check import check
from clew.session.history.transfer import import_session
from clew.store.unit import PatchSession
from clew.testing.scenario import transcript
from clew.testing.scripted import FakeProviders, ScriptedModel, call, say
from clew.transcript.portable import FreshIds, PortableSession, rename_session
from tests.acceptance.conversations import commit, echo, summarise, talk, tree_of
from tests.acceptance.documents import FORMS, as_it_left, elsewhere, exported, places, taken_in
from tests.rounds import rounds

from .conftest import Open

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
            session = await import_session(other.host, msgspec.structs.replace(document, session=moved))
            assert (session.agent, session.workspace_root, session.permissions) == ("assistant", None, [])
            assert (session.metadata["agent_was"], session.metadata["workspace_was"]) == ("librarian", gone)
            kept = await import_session(other.host, document, s.workspace)
            assert (kept.agent, kept.workspace_root, kept.permissions) == ("assistant", str(s.workspace), [])
            assert "workspace_was" not in kept.metadata
            assert "permissions" not in msgspec.json.decode(format_json(document))["session"]


@pytest.mark.rule("ST-11")
async def test_no_session_comes_to_be_its_own_ancestor(open_both: Open, tmp_path: Path) -> None:
    """Neither by itself nor by way of another: it could not be asked about, run or deleted any more."""
    replace = msgspec.structs.replace
    async with open_both(echo()) as s:
        await s.begin()
        await talk(s, "hello")
        document = await exported(s.engine, s.id)
    subagent = {**document.session.metadata, "kind": "subagent"}

    def below(document: PortableSession, parent_id: str) -> PortableSession:
        return replace(document, session=replace(document.session, parent_id=parent_id, metadata=subagent))

    mint = Mint()
    ids = [mint.session(), mint.session()]

    def named(session_id: str) -> PortableSession:
        fresh = FreshIds(mint)
        old = document.session.id
        return rename_session(document, lambda id_: session_id if id_ == old else fresh(id_), mint, new_parts=True)

    first, second = map(named, ids)
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
            session = await import_session(s.engine.host, msgspec.structs.replace(document, session=moved))
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
            await exported(s.engine, s.engine.mint.session())


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


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


async def build_context(engine: Engine, session_id: str) -> None:
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
        for message_id in document.links[turn.id]:
            with suppress(clew.Conflict, clew.Invalid):
                await engine.branch(session_id, message_id)
    with suppress(clew.Conflict, clew.Invalid):
        async for _ in engine.run(session_id, "and now?"):
            pass
        await engine.abort(session_id)


@pytest.mark.slow
@pytest.mark.rule("ST-4")
@pytest.mark.parametrize(("kind", "documents"), [("memory", rounds(400)), ("sqlite", rounds(100))])
async def test_whatever_is_let_in_the_judge_finds_nothing(
    kind: str, documents: int, open_scenario: Open, tmp_path: Path
) -> None:
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
        for _ in range(documents):
            document = msgspec.json.decode(msgspec.json.encode(whole))
            for path in rng.choices(paths, k=rng.randint(1, 3)):
                swap = at(whole, rng.choice(paths))
                with suppress(KeyError, IndexError, TypeError):
                    at(document, path[:-1])[path[-1]] = rng.choice([*odd, swap, swap, swap])
            before = await other.store.session_ids()
            try:
                parsed = parse_session(msgspec.json.encode(document))
                session = await taken_in(other.host, parsed)
            except clew.Invalid:
                assert await other.store.session_ids() == before
                continue
            taken += 1
            assert await check(other.store) == []
            await build_context(other, session.id)
            assert await check(other.store) == []
            for id_ in await other.store.session_ids():
                await other.delete_session(id_, force=True)
    assert taken > documents // 20


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
        document = redact_session(await exported(s.engine, s.id))
        assert document.redacted >= 4
        for form in FORMS:
            assert secret.encode() not in form(document)
        async with elsewhere("sqlite", tmp_path) as other:
            session = await taken_in(other.host, parse_session(format_json(document)))
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
