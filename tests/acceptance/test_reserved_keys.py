"""Keys of other programs that have the names of clew's own, and keys that only look like clew's."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from clew.session.history.check import check
from clew.store.files import folder
from clew.store.files.session_value import TABLE_OF
from clew.testing.scripted import say

from . import jsonl_sessions
from .jsonl_sessions import ULID, place
from .test_sessions_json import UUID, ask, engine
from .test_unknown_keys import LOG, METADATA, MOLF, own, records_of, write

pytestmark = pytest.mark.rule("FS-7")

VALUES: list[Any] = ["yes", 7, True, {"by": "them"}, ["a", None]]
LOOKALIKES = ["turn", "unit", "after", "other", "row", "parts", "of", "id", "key", "value", "more", "gone"]
SAID = ["Which boats are in?", "I will look.", "The argo.", "go on"]


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_sync", lambda fd: None)


@pytest.mark.parametrize("name", ["check", "clew"])
@pytest.mark.parametrize("place", ["file", "user", "answer", "result"])
async def test_a_json_file_that_uses_a_name_of_clews_is_read_and_said_to_be_kept_aside(
    tmp_path: Path, name: str, place: str
) -> None:
    """Neither damage nor lost: all is shown and goes on, the key is named, and the file as it was lies beside."""
    for number, value in enumerate(value for value in VALUES if name == "check" or not isinstance(value, dict)):
        document = deepcopy(MOLF)
        at = {"file": document, "user": document["messages"][0], "answer": document["messages"][1]}
        at.get(place, document["messages"][2])[name] = value
        path = write(tmp_path / str(number), document)
        before = path.read_bytes()
        for _ in range(2):
            async with engine(tmp_path / str(number), say("Still there.")) as e:
                assert [problem.what for problem in await check(e.store)] == [
                    f"there is a key {name!r} of another program, which is clew's own: {ASIDE}"
                ]
                shown = [text for message in await e.messages(UUID, view="all") for text in message.texts]
                assert shown[:4] == SAID
                await ask(e, UUID, "And now?", model="test/model")
        read = json.loads(path.read_text(), object_pairs_hook=no_doubles)
        assert [own(message) for message in read["messages"]][:8] == MOLF["messages"]
        [aside] = (tmp_path / str(number) / "store" / "clew" / "damaged").iterdir()
        assert aside.read_bytes() == before
        # Another program writes what it reads; nothing of clew's is doubted by that.
        path.write_text(json.dumps(read))
        async with engine(tmp_path / str(number)) as e:
            assert len(await check(e.store)) == 1


ASIDE = "the next write keeps it aside"


def no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({key for key, _ in pairs}) == len(pairs)
    return dict(pairs)


@pytest.mark.parametrize("value", VALUES)
async def test_a_message_that_another_program_adds_with_a_check_of_its_own_is_shown(tmp_path: Path, value: Any) -> None:
    path = write(tmp_path, MOLF)
    async with engine(tmp_path, say("one")) as e:
        await ask(e, UUID, "And now?", model="test/model")
    document = json.loads(path.read_text())
    document["messages"].append({"role": "user", "content": "Mine.", "check": value})
    path.write_text(json.dumps(document))
    async with engine(tmp_path, say("two")) as e:
        assert len(await check(e.store)) == 1
        await ask(e, UUID, "Still?", model="test/model")
        texts = [text for message in await e.messages(UUID) for text in message.texts]
    assert texts[-5:] == ["And now?", "one", "Mine.", "Still?", "two"]


@pytest.mark.parametrize("value", VALUES)
async def test_a_record_whose_keys_look_like_clews_is_read_like_any_other(tmp_path: Path, value: Any) -> None:
    """Every name at once, on every kind of record, before and behind clew's own."""
    names = dict.fromkeys([*LOOKALIKES, "check", *(() if isinstance(value, dict) else ["clew"])], value)
    texts = records_of([{**names, **one} for one in LOG])
    at = place(tmp_path, ULID)
    at.mkdir(parents=True)
    (at / "session.jsonl").write_text(texts)
    (at / "metadata.json").write_text(json.dumps(METADATA))
    async with jsonl_sessions.engine(tmp_path, say("Still.")) as e:
        assert await check(e.store) == []
        await ask(e, ULID, "And now?", model="test/model")
    with (at / "session.jsonl").open("a") as log:
        last = json.loads((at / "session.jsonl").read_text().splitlines()[-1])["seq"]
        more = {"recordType": "message", "schemaVersion": 1, "role": "user", "timestamp": "2027-02-11T10:00:00Z"}
        log.write(json.dumps({**names, **more, "seq": last + 1, "content": [{"type": "text", "text": "Mine."}]}) + "\n")
    async with jsonl_sessions.engine(tmp_path) as e:
        assert await check(e.store) == []
        shown = [text for message in await e.messages(ULID) for text in message.texts]
    assert shown == ["Which?", "The argo.", "And now?", "Still.", "Mine."]
    assert (at / "session.jsonl").read_text().startswith(texts)


@pytest.mark.parametrize("name", ["check", "clew"])
async def test_metadata_that_uses_a_name_of_clews_keeps_its_other_keys(tmp_path: Path, name: str) -> None:
    """The key is named before the first write, which keeps the file as it was aside."""
    at = place(tmp_path, ULID)
    at.mkdir(parents=True)
    (at / "session.jsonl").write_text(records_of(LOG))
    (at / "metadata.json").write_text(json.dumps({**METADATA, name: "yes"}))
    before = (at / "metadata.json").read_bytes()
    async with jsonl_sessions.engine(tmp_path, say("Still.")) as e:
        [problem] = await check(e.store)
        assert problem.what == f"metadata.json has a key {name!r}, which is clew's own: {ASIDE}"
        await ask(e, ULID, "And now?", model="test/model")
        assert await check(e.store) == []
    read = json.loads((at / "metadata.json").read_text())
    assert (read["color"], read["source"], read["metrics"]["latency"]) == (
        METADATA["color"],
        METADATA["source"],
        METADATA["metrics"]["latency"],
    )
    [aside] = (tmp_path / "store" / "clew" / "damaged").iterdir()
    assert aside.read_bytes() == before


@pytest.mark.parametrize("empty", [None, 0, False, {}])
async def test_a_message_with_an_empty_text_says_what_its_content_says(tmp_path: Path, empty: Any) -> None:
    document = deepcopy(MOLF)
    for message in document["messages"]:
        message["text"] = empty
    path = write(tmp_path, document)
    async with engine(tmp_path, say("Still there.")) as e:
        assert [text for message in await e.messages(UUID, view="all") for text in message.texts][:4] == SAID
        await ask(e, UUID, "And now?", model="test/model")
    assert [own(message) for message in json.loads(path.read_text())["messages"]][:8] == document["messages"]


@pytest.mark.parametrize("kind", [*TABLE_OF, "part", "metadata", "aside", "chunks", "mark", "bookmark"])
async def test_a_record_of_another_program_may_be_of_any_kind(tmp_path: Path, kind: str) -> None:
    """Also one that clew has a kind of its own for: it is passed over, and stays where it is."""
    fills: list[dict[str, Any]] = [
        {},
        {"key": "k", "value": {"a": 1}},
        {"key": ["k"], "value": [{"a": 1}]},
        {"key": "k", "gone": True},
        {"clew": {"id": "z"}},
    ]
    head = {"schemaVersion": 1, "timestamp": "2025-02-11T10:00:00Z"}
    question, answer = records_of(LOG).splitlines()
    strange = [json.dumps({"recordType": kind, "seq": 2 + n, **head, **fill}) for n, fill in enumerate(fills)]
    text = "\n".join([question, *strange, answer.replace('"seq": 2', '"seq": 9'), ""])
    at = place(tmp_path, ULID)
    at.mkdir(parents=True)
    (at / "session.jsonl").write_text(text)
    (at / "metadata.json").write_text(json.dumps(METADATA))
    for said in ("Still.", "And still."):
        async with jsonl_sessions.engine(tmp_path, say(said)) as e:
            assert await check(e.store) == []
            await ask(e, ULID, "And now?", model="test/model")
    async with jsonl_sessions.engine(tmp_path) as e:
        shown = [text for message in await e.messages(ULID) for text in message.texts]
    assert shown == ["Which?", "The argo.", "And now?", "Still.", "And now?", "And still."]
    assert (at / "session.jsonl").read_text().startswith(text)


async def test_values_of_a_log_that_clew_cannot_use_go_along_in_copies(tmp_path: Path) -> None:
    """Of known keys, in every place of a record."""
    records: list[dict[str, Any]] = [
        {
            "role": "assistant",
            "content": [
                "text-1",
                {"type": "text", "text": {"of": "text-2"}},
                {"type": "toolCall", "id": "k", "name": "bash", "arguments": "text-3"},
                {"type": "toolCall", "id": 7, "name": "bash", "arguments": {"of": "text-4"}},
            ],
        },
        {
            "role": "toolResult",
            "toolCallId": "k",
            "isError": "text-5",
            "content": [{"type": "text", "text": "r"}, {"type": "image", "data": "text-6"}],
        },
        {"role": "user", "synthetic": "text-7", "unit": "text-8", "after": "text-9", "content": "And?"},
    ]
    more = {"recordType": "compaction", "schemaVersion": 1, "seq": 9, "firstKeptSeq": 3, "summary": "S"}
    more |= {"tokensBefore": "text-10", "readFiles": ["a", {"of": "text-11"}], "modifiedFiles": "text-12"}
    at = place(tmp_path, ULID)
    at.mkdir(parents=True)
    (at / "session.jsonl").write_text(records_of(records) + json.dumps({**more, "timestamp": "text-13"}) + "\n")
    (at / "metadata.json").write_text(json.dumps(METADATA))
    async with jsonl_sessions.engine(tmp_path) as e:
        assert await check(e.store) == []
        whole = (await e.export(ULID, "json")).decode()
        reports = [message.parts for message in await e.messages(ULID, view="all")]
    assert [number for number in range(1, 14) if f'"text-{number}"' not in whole] == []
    [summary] = [part["data"] for parts in reports for part in parts if part["type"] == "data-compaction"]
    assert (summary["summarised_tokens"], summary["read_files"], summary["modified_files"]) == (0, ["a"], [])
