"""Every value of a session goes on every way a session goes, or the difference has a name and a reason here.

A field that a row gains makes these fail until the sample has it; then every way that forgets it fails.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

import clew
from clew.ids import Mint
from clew.interop.session_file import format_json, format_jsonl, parse_session
from clew.session.api import Engine
from clew.session.history.convert import convert
from clew.session.history.transfer import export_session, import_session
from clew.store.portable import load_portable, plan_insert
from clew.store.unit import Unit
from clew.testing.clock import FakeClock
from clew.testing.scripted import FakeProviders
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.model_call import ModelCall
from clew.transcript.portable import Blob, PortableSession, Prompt, Queued, in_order, rename_session
from clew.transcript.pruned import Pruned
from clew.transcript.session import Model, Session
from clew.transcript.turn import HeadMove, Step, Turn
from clew.transcript.usage import Usage
from tests.acceptance.conversations import echo

replace = msgspec.structs.replace
Way = Callable[[Engine, PortableSession, Path], Awaitable[PortableSession]]
WALKED = {"session", "turns", "messages", "parts", "steps", "moves", "prunes", "prompts", "blobs", "queue", "calls"}
"""Fields that hold rows, which are walked over by themselves."""
ROWS = (PortableSession, Session, Turn, MessageRow, PartRow, Step, HeadMove, Pruned, Prompt, Blob, Queued, ModelCall)


def sample(folder: Path) -> PortableSession:
    """A session that has something in every field of every row, and could have come about."""
    mint = Mint(FakeClock(1_750_000_000_000))
    ses, parent, first, second = mint.session(), mint.session(), mint.turn(), mint.turn()
    ask, answer, marker, queued = (mint.message() for _ in range(4))
    model, usage = Model("demo", "echo", "slow"), Usage(7, 5, 3, 2, 1)
    prompt, data = "be kind", b"\x00\xff"
    digest, blob = sha256(prompt.encode()).hexdigest(), sha256(data).hexdigest()
    rules = {"permission": "bash", "pattern": "ls *", "action": "allow"}
    file = {"type": "file", "mediaType": "image/png", "url": f"/api/blobs/{blob}"}
    call = {"type": "tool-ls", "toolCallId": "c1", "state": "output-available", "input": {}, "output": "x"}
    summary = {"type": "data-compaction", "data": {"summary": "so far", "tail_start_id": answer}}

    def part(index: int, data: dict[str, Any]) -> PartRow:
        return PartRow(mint.part(), index, data, 11, 12)

    return in_order(
        PortableSession(
            session=Session(
                id=ses,
                agent="assistant",
                model=model,
                created_at=1,
                updated_at=99,
                workspace_root=str(folder),
                parent_id=parent,
                parent_message_id=mint.message(),
                head_turn_id=second,
                permissions=[rules],
                metadata={"title": "t", "mine": {"deep": [1, None]}},
                prompt_tokens=7,
                completion_tokens=5,
                reasoning_tokens=3,
                cache_read=2,
                cache_write=1,
                total_tokens=usage.total,
                cost_usd=0.25,
                archived_at=98,
                owner="ada",
                alias="mine",
            ),
            turns=(
                Turn(
                    id=first,
                    session_id=ses,
                    parent_turn_id=None,
                    created_at=2,
                    status="completed",
                    settled_at=20,
                    origin_turn_id=mint.turn(),
                    data={"mine": 1},
                ),
                Turn(
                    id=second,
                    session_id=ses,
                    parent_turn_id=first,
                    created_at=21,
                    kind="compaction",
                    status="completed",
                    settled_at=22,
                ),
            ),
            links={first: (ask, answer), second: (marker,)},
            messages=(
                MessageRow(
                    *(ask, ses, "user", 3, 4),
                    {"mine": "x", "hidden_at": 22, "hidden_by": "compaction"},
                    (part(0, {"type": "text", "text": "hi"}), part(1, file)),
                ),
                MessageRow(
                    *(answer, ses, "assistant", 5, 30),
                    {
                        "usage": msgspec.to_builtins(usage),
                        "model": msgspec.to_builtins(model),
                        "system_prompt_digest": digest,
                    },
                    (part(0, call),),
                ),
                MessageRow(marker, ses, "assistant", 21, 21, {"summary": True}, (part(0, summary),)),
                MessageRow(queued, ses, "user", 50, 50, {"queued_at": 50}, (part(0, {"type": "text", "text": "l"}),)),
            ),
            steps=(
                Step(
                    turn_id=first,
                    index=0,
                    message_id=answer,
                    usage=usage,
                    model=model,
                    started_at=6,
                    finished_at=30,
                    finish_reason="stop",
                    prompt_digest=digest,
                    cost_usd=0.25,
                    data={"view": [None, 0]},
                ),
            ),
            moves=(HeadMove(1, ses, None, first, 20, "turn"), HeadMove(2, ses, first, second, 22, "compaction")),
            prunes=(Pruned(1, answer, 0, 9, 4, 40),),
            prompts=(Prompt(digest, prompt),),
            blobs=(Blob(blob, "image/png", data),),
            queue=(Queued(queued, 50, True),),
            seals=frozenset({ask, answer, marker, queued}),
            epoch=3,
            rules=(rules,),
            calls=(
                ModelCall(
                    id=mint.call(),
                    purpose="answer",
                    model=model,
                    asked_at=6,
                    session_id=ses,
                    turn_id=first,
                    step=1,
                    message_id=answer,
                    usage=usage,
                    cost_usd=0.25,
                    first_chunk_at=7,
                    ended_at=25,
                    tools_ms=5,
                    ended="completed",
                    estimated=True,
                    workspace=str(folder),
                    owner="ada",
                ),
            ),
        )
    )


def rows_of(portable: PortableSession) -> dict[str, list[Any]]:
    """Its rows by kind, each kind in its order."""
    found: dict[str, list[Any]] = {"PortableSession": [portable], "Session": [portable.session]}
    for name in sorted(WALKED - {"session", "parts"}):
        for row in getattr(portable, name):
            found.setdefault(type(row).__name__, []).append(row)
    found["PartRow"] = [part for row in portable.messages for part in row.parts]
    return found


class Counted(Mint):
    """Parts named by their place."""

    def __init__(self) -> None:
        super().__init__(FakeClock(1_750_000_000_000), lambda limit: 0)


def by_place(portable: PortableSession) -> PortableSession:
    """The session with every id of its own replaced by one that says its place."""
    names = {portable.session.id: "ses"}
    names |= {turn.id: f"trn {n}" for n, turn in enumerate(portable.turns)}
    names |= {row.id: f"msg {n}" for n, row in enumerate(portable.messages)}
    return rename_session(portable, lambda old: names.get(old, old), Counted(), new_parts=True)


def differences(before: PortableSession, after: PortableSession) -> dict[str, set[str]]:
    """The fields, by the kind of row, in which any row came out otherwise; all of them where rows are missing."""
    old, new = rows_of(by_place(before)), rows_of(by_place(after))
    wrong: dict[str, set[str]] = {}
    for kind, rows in old.items():
        for name in rows[0].__struct_fields__:
            after_it = [getattr(row, name) for row in new.get(kind, [])]
            if name not in WALKED and [getattr(row, name) for row in rows] != after_it:
                wrong.setdefault(kind, set()).add(name)
    return wrong


def test_the_sample_has_something_in_every_field(tmp_path: Path) -> None:
    """None that could be forgotten without anybody's seeing it."""
    rows = rows_of(replace(sample(tmp_path), exporter="x", exported_at=1, redacted=1))
    for kind in ROWS:
        for field in msgspec.structs.fields(kind):
            if (kind, field.name) == (Session, "spend"):
                continue  # added up from the calls for whoever looks, and never stored
            default = field.default if field.default is not msgspec.NODEFAULT else None
            if field.default_factory is not msgspec.NODEFAULT:
                default = field.default_factory()
            assert any(getattr(row, field.name) != default for row in rows[kind.__name__]), (kind, field.name)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Engine]:
    async with clew.open(url, config=clew.Config(), providers=FakeProviders(echo())) as engine:
        yield engine


async def put(engine: Engine, portable: PortableSession) -> None:
    """Write the session as it is, its sums and all."""
    bare = replace(portable.session, total_tokens=0, cost_usd=0.0)
    for name in ("prompt_tokens", "completion_tokens", "reasoning_tokens", "cache_read", "cache_write"):
        bare = replace(bare, **{name: 0})
    await engine.store.commit(Unit(bare.id, plan_insert(replace(portable, session=bare), 1), sync="power"))


async def by_a_store(engine: Engine, given: PortableSession, folder: Path) -> PortableSession:
    return await load_portable(engine.store, given.session.id)


async def by_conversion(engine: Engine, given: PortableSession, folder: Path) -> PortableSession:
    async with opened(f"sqlite:///{folder}/new.db") as target:
        done = await convert(engine.store, target.store, target.host.mint, 7)
        return await load_portable(target.store, done.moved[0].as_id)


async def by_rebuild(engine: Engine, given: PortableSession, folder: Path) -> PortableSession:
    """By way of the facts of the event log."""
    config = clew.Config(event_log=True)
    async with clew.open(f"sqlite:///{folder}/told.db", config=config, providers=FakeProviders(echo())) as told:
        await put(told, given)
        assert (await told.rebuild(folder / "rebuilt.db")).differences == ()
    async with opened(f"sqlite:///{folder}/rebuilt.db") as rebuilt:
        return await load_portable(rebuilt.store, given.session.id)


async def by_json(engine: Engine, given: PortableSession, folder: Path) -> PortableSession:
    return parse_session(format_json(await export_session(engine.store, given.session.id, 7)))


async def by_jsonl(engine: Engine, given: PortableSession, folder: Path) -> PortableSession:
    return parse_session(format_jsonl(await export_session(engine.store, given.session.id, 7)))


async def by_import(engine: Engine, given: PortableSession, folder: Path) -> PortableSession:
    async with opened(f"sqlite:///{folder}/new.db") as other:
        session = await import_session(other.host, await by_json(engine, given, folder), folder)
        return await load_portable(other.store, session.id)


async def by_second_import(engine: Engine, given: PortableSession, folder: Path) -> PortableSession:
    session = await import_session(engine.host, await by_json(engine, given, folder), folder)
    return await load_portable(engine.store, session.id)


async def by_branch(engine: Engine, given: PortableSession, folder: Path) -> PortableSession:
    return await load_portable(engine.store, (await engine.branch(given.session.id, given.messages[2].id)).id)


async def by_fork(engine: Engine, given: PortableSession, folder: Path) -> PortableSession:
    return await load_portable(engine.store, (await engine.fork(given.turns[-1].id)).id)


CALLS = {"ModelCall": set(ModelCall.__struct_fields__)}
"""What was paid was paid there, and is not paid again by who takes a file in, or by a branch."""
SUMS = {"prompt_tokens", "completion_tokens", "reasoning_tokens", "cache_read", "cache_write"}
IN_A_FILE = {
    **CALLS,
    # Permissions and rules count for the host they were given on, and so does whose it is; sums, seals and the
    # epoch are worked out anew.
    "Session": {"permissions", "owner", "alias", *SUMS},
    "PortableSession": {"exported_at", "seals", "rules", "epoch"},
}
IMPORTED = {
    **CALLS,
    # Where it came from is noted in its metadata.
    "Session": {"permissions", "metadata", "owner", "alias"},
    "PortableSession": {"epoch", "rules"},
}
BRANCHED = {
    **CALLS,
    # A session of its own, named as one, that begins now and was never put away, with rules of its own to come.
    "Session": {"parent_id", "parent_message_id", "created_at", "updated_at", "archived_at", "permissions", "metadata"}
    | {"alias"},
    "PortableSession": {"epoch"},
    "Turn": {"origin_turn_id"},
    # The head has gone nowhere yet but to the end of the line.
    "HeadMove": set(HeadMove.__struct_fields__),
}
WAYS: list[tuple[Way, dict[str, set[str]]]] = [
    (by_a_store, {}),
    # Opening it pauses its queue.
    (by_rebuild, {"Session": {"metadata"}}),
    (by_conversion, {"Session": {"metadata"}}),
    (by_json, IN_A_FILE),
    (by_jsonl, IN_A_FILE),
    (by_import, IMPORTED),
    # In the same store the project's rules are there already, and another owner's.
    (by_second_import, IMPORTED),
    (by_branch, BRANCHED),
    (by_fork, BRANCHED),
]


@pytest.mark.rule("ST-5", "BR-1", "FS-4")
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize(("way", "named"), WAYS, ids=[way.__name__ for way, _ in WAYS])
async def test_every_value_arrives_or_is_named(way: Way, named: dict[str, set[str]], kind: str, tmp_path: Path) -> None:
    """Of a session that has something in every field; its ids may be others, at the same places."""
    given = sample(tmp_path)
    async with opened("memory:" if kind == "memory" else f"sqlite:///{tmp_path}/old.db") as engine:
        await put(engine, given)
        after = await way(engine, given, tmp_path)
    if way in (by_branch, by_fork):
        # What waits in the queue is on no line.
        given = replace(given, messages=given.messages[:-1], queue=(), seals=given.seals - {given.messages[-1].id})
    assert differences(given, after) == named


READ: dict[type[msgspec.Struct], set[str]] = {
    PortableSession: {"exporter", "exported_at", "redacted", "session", "turns", "links", "messages", "moves"}
    | {"blobs", "queue"},
    Session: {"id", "agent", "model", "created_at", "head_turn_id", "metadata"},
    Turn: {"id", "parent_turn_id", "created_at", "kind", "status", "settled_at"},
    MessageRow: {"id", "role", "created_at", "metadata", "parts"},
    PartRow: {"data"},
    HeadMove: {"from_turn_id", "to_turn_id", "at"},
    Blob: {"sha256", "media_type", "data"},
    Queued: {"message_id"},
}
"""What a page for people is made from: the conversation, and what says where in it a message stands."""
UNREAD: dict[type[msgspec.Struct], set[str]] = {
    PortableSession: {"steps", "prunes", "prompts", "seals", "epoch", "rules", "calls"},
    Session: {"updated_at", "workspace_root", "parent_id", "parent_message_id", "permissions", "archived_at"}
    | {*SUMS, "total_tokens", "cost_usd", "spend", "owner", "alias"},
    Turn: {"session_id", "depth", "compaction_turn_id", "origin_turn_id", "data"},
    MessageRow: {"session_id", "updated_at"},
    PartRow: {"id", "index", "created_at", "updated_at"},
    HeadMove: {"seq", "session_id", "why"},
    Blob: set(),
    Queued: {"queued_at", "interrupt"},
}


def test_what_a_page_for_people_leaves_out_is_named() -> None:
    """A new field belongs to one side or the other."""
    for kind, read in READ.items():
        assert not read & UNREAD[kind]
        assert read | UNREAD[kind] == set(kind.__struct_fields__), kind
