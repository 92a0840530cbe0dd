"""Pictures and files that tools give back: kept once, shown, sent to models that take them, and bounded."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.fronts.cli.render import Reply, Theme
from clew.providers.base import EndpointKind, ModelInfo, ModelRequest
from clew.testing.scripted import ScriptedModel, call, fail, say
from tests.integration.sent_files import PNG
from tests.integration.test_wire_kinds import spoken, surroundings
from tests.integration.wire_dialects import answer

__all__ = ["surroundings"]

pytestmark = [pytest.mark.anyio, pytest.mark.rule("EM-2")]

DIGEST = sha256(PNG).hexdigest()
WIDTH, HEIGHT = int.from_bytes(PNG[16:20], "big"), int.from_bytes(PNG[20:24], "big")


class Result:
    """An engine whose tool ``make`` gives back ``value``, and what became of one call of it."""

    def __init__(
        self, value: Any, store: str = "memory:", files: tuple[str, ...] = ("image/*",), more: tuple[Any, ...] = ()
    ) -> None:
        @clew.tool
        def make() -> Any:
            """Make something."""
            return value() if callable(value) else value

        self.model = ScriptedModel([call("make", {}), say("done"), *more])
        info = ModelInfo(model=clew.Model("test", "m"), window=100_000, max_output=1_000, files=files)
        self.opened = clew.open(
            store,
            tools=[make],
            builtin_tools=False,
            rules=[clew.Rule("make", "*", "allow")],
            providers=clew.ProviderSet({"test": self.model}, models=[info], default="test/m"),
        )

    async def __aenter__(self) -> Result:
        self.engine = await self.opened.__aenter__()
        whose = {"workerId": "w", "workspaceId": "p"}
        self.id = (await self.engine.create_session(metadata=whose)).id
        self.chunks: list[dict[str, Any]] = []
        async for chunk in self.engine.run(self.id, "go"):
            self.chunks.append(chunk)
            if chunk["type"] == "file":
                # What is shown is there already, whatever happens next.
                assert (await self.engine.blob(chunk["url"].rpartition("/")[2])).media_type == chunk["mediaType"]
        self.parts = (await self.engine.messages(self.id))[1].parts
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.opened.__aexit__(*error)

    @property
    def told(self) -> Any:
        """The output of the call, or why there is none."""
        (made,) = [part for part in self.parts if part["type"] == "tool-make"]
        return made.get("output", made.get("errorText"))

    @property
    def files(self) -> list[dict[str, Any]]:
        return [part for part in self.parts if part["type"] == "file"]

    def sent(self, index: int) -> list[tuple[str, bytes]]:
        """The files of a request, as a provider is handed them."""
        request: ModelRequest = self.model.requests[index]
        parts = [part for message in request.messages for part in message.parts if part["type"] == "file"]
        return [(part["mediaType"], base64.b64decode(part["url"].partition(",")[2])) for part in parts]


def file_of(name: str | None, data: bytes, media_type: str, call_id: str, **noted: int) -> dict[str, Any]:
    own = {"call": call_id, "size": len(data), **noted, **({"name": name} if name else {})}
    url = f"/api/blobs/{sha256(data).hexdigest()}"
    return {"type": "file", "mediaType": media_type, "url": url, "providerMetadata": {"clew": own}}


@pytest.mark.parametrize("kind", ["memory", "jsonl", "json", "sqlite"])
async def test_a_picture_among_words_is_kept_beside_the_result_and_sent_with_it(kind: str, tmp_path: Path) -> None:
    """Its name stands in the output, its bytes in the store, once; it is shown before the result that names it, and the
    next request has it, also that of a later turn."""
    path = tmp_path / "chart.png"
    path.write_bytes(PNG)
    value = ["Sales of May:", clew.File(path), "and again", clew.File(PNG)]
    store = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/s.db"}.get(kind, f"{kind}:{tmp_path}/store")
    async with Result(value, store, more=(say("again"),)) as result:
        assert result.told == "Sales of May:\n[file chart.png]\nand again\n[file]"
        call_id = next(part["toolCallId"] for part in result.parts if part["type"] == "tool-make")
        noted = {"width": WIDTH, "height": HEIGHT}
        assert result.files == [
            file_of("chart.png", PNG, "image/png", call_id, **noted),
            file_of(None, PNG, "image/png", call_id, **noted),
        ]
        types = [chunk["type"] for chunk in result.chunks]
        assert types.index("file") < types.index("tool-output-available")
        assert "[file chart.png]\n" in "".join(Reply(Theme(colour=False)).finished(result.parts, 80))
        blob = await result.engine.blob(DIGEST)
        assert (blob.media_type, blob.data) == ("image/png", PNG)
        assert result.sent(1) == [("image/png", PNG)] * 2
        await (await result.engine.submit(result.id, "and now?")).wait()
        assert result.sent(2) == [("image/png", PNG)] * 2
        # A branch has it as its own, and an export carries it.
        last = (await result.engine.messages(result.id))[-1]
        branch = await result.engine.branch(result.id, last.id)
        exported = await result.engine.export(result.id)
        page = (await result.engine.export(result.id, "html")).decode()
        assert page.count(base64.b64encode(PNG).decode()) == 2
        chat = json.loads(await result.engine.export(result.id, "openai"))["messages"]
        shown = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(PNG).decode()}"}}
        assert [one["content"] for one in chat if one["role"] == "user"] == ["go", [shown, shown], "and now?"]
        await result.engine.delete_session(result.id)
        assert (await result.engine.blob(DIGEST)).data == PNG
        await result.engine.delete_session(branch.id)
        with pytest.raises(clew.BlobNotFound):
            await result.engine.blob(DIGEST)
        again = await result.engine.import_session(exported)
        told = (await result.engine.messages(again.id))[1].parts
        assert [part["url"] for part in told if part["type"] == "file"] == [f"/api/blobs/{DIGEST}"] * 2
        assert (await result.engine.blob(DIGEST)).data == PNG


async def test_files_stand_anywhere_in_a_result_and_what_a_model_does_not_take_is_told() -> None:
    """A text is read by every model, a picture by one that takes pictures; a stranger is named with its size."""
    zipped, text = b"PK\x03\x04" + bytes(40), "a,b\n1,2\n"
    strange = clew.File(zipped, name="b.zip", media_type="no type\r\nx: y")
    value = {"shot": clew.File(PNG, name="a.png", media_type="text/html; a=b"), "all": [strange], "n": 7}
    async with Result(value, files=()) as result:
        assert result.told == {"shot": "[file a.png]", "all": ["[file b.zip]"], "n": 7}
        assert [part["mediaType"] for part in result.files] == ["image/png", "application/octet-stream"]
        why = "is attached here and not shown: this model does not take such files.]"
        assert [(kind, data.decode()) for kind, data in result.sent(1)] == [
            ("text/plain", f"[a.png (image/png, {len(PNG):,} bytes) {why}"),
            ("text/plain", f"[b.zip (application/octet-stream, 44 bytes) {why}"),
        ]
    async with Result(clew.File(text.encode(), name="t.csv")) as result:
        assert (result.told, result.files[0]["mediaType"]) == ("[file t.csv]", "text/csv")
        assert result.sent(1) == [("text/plain", f"[t.csv]\n{text}".encode())]
    async with Result(clew.File(b"x" * 50_000, name="long.txt")) as result:
        [(_, data)] = result.sent(1)
        assert (len(data) < 31_000, data.endswith(b"left out \xe2\x80\xa6]")) == (True, True)


async def test_the_last_value_of_a_generator_may_be_a_file_and_an_export_without_secrets_takes_it() -> None:
    """While it runs only names are shown. A text that holds a key is another file in an export, and is found there."""

    @clew.tool
    async def make() -> AsyncIterator[Any]:
        """Make something."""
        yield clew.File(PNG, name="draft.png")
        yield {"log": clew.File(b"key sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789", name="log.txt")}

    model = ScriptedModel([call("make", {}), say("done")])
    rules = [clew.Rule("make", "*", "allow")]
    async with clew.open("memory:", tools=[make], rules=rules, providers={"test": model}) as engine:
        session = await engine.create_session()
        await (await engine.submit(session.id, "go")).wait()
        parts = (await engine.messages(session.id))[1].parts
        [kept] = [part for part in parts if part["type"] == "file"]
        assert [part["output"] for part in parts if "output" in part] == [{"log": "[file log.txt]"}]
        exported = await engine.export(session.id)
        assert b"abcdefghijklmnopqrstuvwxyz" not in exported
        again = await engine.import_session(exported)
        [struck] = [part for part in (await engine.messages(again.id))[1].parts if part["type"] == "file"]
        assert struck["url"] != kept["url"]
        assert (await engine.blob(struck["url"].rpartition("/")[2])).data.startswith(b"key ")


async def test_a_file_that_cannot_be_taken_fails_its_call_and_nothing_is_kept(tmp_path: Path) -> None:
    """Too large, too many, not there, no file: the model is told why, and no part of it is stored."""
    os.mkfifo(tmp_path / "pipe")
    large = clew.File(bytes(10 * 1024 * 1024 + 1), name="l.bin")
    for value, told in (
        (
            [clew.File(PNG), large],
            "l.bin is too large: a file may have 10,485,760 bytes, all files of a call 20,971,520",
        ),
        ([clew.File(PNG)] * 11, "a call may return at most 10 files, not 11; none was stored"),
        (clew.File(tmp_path / "none.png"), "none.png cannot be read: No such file or directory"),
        (clew.File(tmp_path / "pipe"), "pipe is not a file"),
        (lambda: clew.File("chart.png"), "make failed: TypeError: a file is bytes or a pathlib.Path, not a str"),  # type: ignore[arg-type]
    ):
        async with Result(value) as result:
            assert (told in result.told, result.files, result.sent(1)) == (True, [], []), result.told
            with pytest.raises(clew.BlobNotFound):
                await result.engine.blob(DIGEST)


async def test_a_file_is_kept_whatever_its_path_and_its_type_are_called(tmp_path: Path) -> None:
    """A name may hold bytes that are no text, and a type may be longer than any is."""
    odd = tmp_path / os.fsdecode(b"\xff.bin")
    odd.write_bytes(b"\x00\x01")

    async with Result(clew.File(odd, media_type="a/" + "b" * 5000)) as result:
        [file] = result.files
        shown = (result.told, file["mediaType"], file["providerMetadata"]["clew"]["name"])
        assert shown == ("[file ?.bin]", "application/octet-stream", "?.bin")


async def test_an_output_made_by_hand_is_json_and_its_bytes_are_not_garbled() -> None:
    """Bytes of text are text, others are described; models become JSON, files go beside; what is none is an error."""
    async with Result(clew.ToolOutput(b"plain words")) as result:
        assert result.told == "plain words"
    async with Result(clew.ToolOutput(bytes(range(256)))) as result:
        assert result.told.startswith("[binary output: unknown type, 256 bytes, sha256 40aff2e9d2d8922e")
    async with Result(clew.ToolOutput({"usage": clew.Usage(input=3)}, files=(clew.File(PNG),))) as result:
        assert (result.told["usage"]["input"], len(result.files)) == (3, 1)
    async with Result(clew.ToolOutput({"what": object()})) as result:
        assert result.told == "make returned something that is not JSON: a object cannot be encoded as JSON"


async def test_a_tool_that_raises_generator_exit_has_failed_and_the_turn_goes_on() -> None:
    """It is no Exception, so that it once ended the turn."""

    @clew.tool
    async def leave() -> str:
        """Leave."""
        raise GeneratorExit("gone")

    model = ScriptedModel([call("leave", {}), say("done")])
    rules = [clew.Rule("leave", "*", "allow")]
    async with clew.open("memory:", tools=[leave], rules=rules, providers={"test": model}) as engine:
        session = await engine.create_session()
        outcome = await (await engine.submit(session.id, "go")).wait()
        parts = (await engine.messages(session.id))[1].parts
        assert (outcome.status, parts[1]["errorText"]) == ("completed", "leave failed: GeneratorExit: gone")


@pytest.mark.slow
@pytest.mark.rule("PV-1")
@pytest.mark.parametrize("kind", ["anthropic", "openai", "openai-responses", "google", "bedrock", "mistral"])
async def test_each_wire_carries_the_picture_of_a_call_as_it_can(kind: EndpointKind) -> None:
    """Inside the result where the wire has a place for it, else after the results, in a message of the user's."""
    async with spoken(kind, lambda n: [f"noted {n}", clew.File(PNG)] if n == 2 else f"noted {n}") as talk:
        talk.replies(answer(kind, rich=True), answer(kind, rich=False))
        session_id = await talk.client.session(title="kinds")
        rules = [{"permission": "note", "pattern": "*", "action": "allow"}]
        await talk.client.request("PUT", f"/api/sessions/{session_id}/permissions", {"rules": rules})
        frames = await talk.prompt(session_id, {"type": "text", "text": "look"})
        assert talk.wire.refused == []
        assert frames[-1] == {"type": "finish", "finishReason": "stop"}
        sent = talk.sent(1)
        found = [part in sent for part in ("noted1", "noted2", "Seefile", "<tool_result")]
        inside = kind not in ("openai", "mistral")
        assert (sent.count(base64.b64encode(PNG).decode()[:40]), found) == (1, [True, True, not inside, not inside])


async def test_a_picture_that_a_provider_refuses_is_named_and_the_turn_goes_on() -> None:
    """Nobody attached it on purpose, so that it must not fail the turn, nor any later one."""
    async with Result(clew.File(PNG, name="a.png"), more=(fail(400), say("seen"))) as result:
        outcome = await (await result.engine.submit(result.id, "again")).wait()
        assert outcome.status == "completed"
        [(_, data)] = result.sent(-1)
        why = "is attached here and not shown: a request with it was refused.]"
        assert data.decode() == f"[a.png (image/png, {len(PNG)} bytes) {why}"


async def test_a_prune_takes_old_pictures_and_the_store_keeps_them() -> None:
    """In the place of one stands a line, with every request the same; people see it as before."""
    turns = tuple(say(f"answer {n}") for n in range(5))
    async with Result(["look", clew.File(PNG, name="a.png")], more=turns) as result:
        for n in range(4):
            await (await result.engine.submit(result.id, f"turn {n}")).wait()
        assert result.sent(-1) == [("image/png", PNG)]
        await result.engine.prune(result.id)
        await (await result.engine.submit(result.id, "and now?")).wait()
        [(kind, data)] = result.sent(-1)
        assert (kind, data.startswith(b"[a.png]\n[pruned to save room: about ")) == ("text/plain", True)
        assert (await result.engine.context(result.id)).parts.pruned == 1_500
        assert (await result.engine.messages(result.id))[1].parts == result.parts


@pytest.mark.rule("EM-6")
async def test_a_tool_with_the_name_of_the_one_that_takes_an_answer_is_told() -> None:
    """It was hidden without a word."""

    @clew.tool
    def final_answer() -> str:
        """Something of the host's."""
        return "mine"

    async with clew.open("memory:", tools=[final_answer], providers={"test": ScriptedModel([])}) as engine:
        session = await engine.create_session()
        with pytest.raises(clew.InvalidInput, match="the tool final_answer has the name reserved"):
            await engine.start(session.id, "go", output={"type": "object"})
