"""Files that a model takes, and files it does not: refused when they are new, named when they are history."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.providers.base import EndpointKind, ModelInfo
from clew.providers.catalog import ModelFacts
from clew.providers.registry import ProviderConfig, ProviderRegistry
from clew.session.prompt import admission
from clew.session.prompt.file_content import Content
from clew.testing.scripted import FakeProviders, ScriptedModel, say
from clew.transcript.session import Model
from tests.integration.command_line import Run, run
from tests.integration.http_client import Client, served
from tests.integration.sent_files import GIF, JPEG, MP3, PDF, PNG, WEBP, ZIP, file_part
from tests.integration.wire_server import ANTHROPIC, OPENAI, RESPONSES, WireServer, ok, refuse
from tests.integration.wire_talk import wire

__all__ = ["run", "wire"]

SONG = MP3 + bytes(600_000)
LOOK = {"type": "text", "text": "look"}
TAKEN = "text in UTF-8, image/png, image/jpeg, image/gif, image/webp, application/pdf"
ADVICE = "Remove the file, convert it to one of these, or choose another model"
ANSWERS: dict[EndpointKind, list[bytes]] = {
    "anthropic": ANTHROPIC.text("seen"),
    "openai": OPENAI.text("seen"),
    "openrouter": OPENAI.text("seen"),
    "openai-compatible": OPENAI.text("seen"),
    "openai-responses": [*RESPONSES.created(), *RESPONSES.message(0, "seen"), RESPONSES.end()],
}


def reaching(wire: WireServer, kind: EndpointKind = "anthropic", **models: ModelFacts) -> ProviderRegistry:
    """The providers of a host with one endpoint, which is the scripted one."""
    address = wire.url if kind == "anthropic" else f"{wire.url}/v1"
    config = ProviderConfig(kind=kind, base_url=address, api_key="k", models=models)
    eyes = "openai/eyes" if kind == "openrouter" else "eyes"
    return ProviderRegistry({"wire": config}, default_model=f"wire/{eyes}", environ={})


def taking(*files: str, model: str = "model") -> ModelInfo:
    return ModelInfo(model=Model("test", model), window=200_000, max_output=4_000, files=files)


async def prompt(client: Client, session: str, *parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The message as it is stored once it was answered."""
    sent = await client.post(f"/api/sessions/{session}/prompt", {"parts": [LOOK, *parts], **fields})
    assert sent.status == 202, sent
    status = await client.idle(session)
    assert status["state"] == "idle", status
    return next(one for one in await client.messages(session) if one["id"] == sent.json()["message_id"])


def line(about: str, size: int | str, why: str = "this model does not take such files") -> str:
    """What stands in the place of a file."""
    return f"[{about}, {size} bytes) is attached here and not shown: {why}.]"


def told(model: ScriptedModel) -> list[Any]:
    """What the newest request says in the user's name, part by part."""
    return [part for message in model.requests[-1].messages if message.role == "user" for part in message.parts]


# New ones


@pytest.mark.rule("RN-4")
@pytest.mark.parametrize("route", ["chat", "prompt"])
async def test_a_file_the_model_does_not_take_is_refused_and_nothing_is_stored(route: str) -> None:
    """With a code, what this model takes, and what to do; the session is as it was, and the next prompt is answered."""
    song = file_part(MP3, "audio/mpeg", "song.mp3")
    async with served(say("hello")) as client:
        session = await client.session()
        if route == "chat":
            message = {"id": "m1", "role": "user", "parts": [LOOK, song]}
            answer = await client.post("/api/chat", {"id": session, "messages": [message]})
        else:
            answer = await client.post(f"/api/sessions/{session}/prompt", {"parts": [LOOK, song]})
        assert (answer.status, answer.code, answer.json()["detail"]) == (
            422,
            "unsupported_file",
            f"'song.mp3' (audio/mpeg) cannot be sent to test/model, which accepts {TAKEN}. {ADVICE}",
        )
        assert await client.messages(session, "all") == []
        assert (await client.get(f"/api/blobs/{sha256(MP3).hexdigest()}")).status == 404
        assert (await client.chat(session, "hello"))[-1]["finishReason"] == "stop"


@pytest.mark.rule("RN-4")
@pytest.mark.parametrize(
    ("data", "media_type", "detail"),
    [
        (b"", "image/png", "'x' (image/png, 0 bytes) is truncated"),
        (b"", "application/pdf", "'x' (application/pdf, 0 bytes) is truncated"),
        (PNG[:8], "image/png", "'x' (image/png, 8 bytes) is truncated"),
        (PNG[:-4], "text/plain", f"'x' (image/png, {len(PNG) - 4} bytes) is truncated"),
        (JPEG[:-2], "image/jpeg", f"'x' (image/jpeg, {len(JPEG) - 2} bytes) is truncated"),
        (GIF[:-1], "image/gif", f"'x' (image/gif, {len(GIF) - 1} bytes) is truncated"),
        (WEBP[:-1], "image/webp", f"'x' (image/webp, {len(WEBP) - 1} bytes) is truncated"),
        (PDF[:-8], "application/pdf", f"'x' (application/pdf, {len(PDF) - 8} bytes) is truncated"),
        (ZIP, "text/plain", "'x' (text/plain) cannot be sent to test/model, which accepts text"),
        (ZIP, "image/png", "'x' (application/octet-stream) cannot be sent to test/model, which accepts text"),
        (
            b"caf\xe9",
            "application/x-unknown",
            "'x' (application/x-unknown) cannot be sent to test/model, which accepts text",
        ),
        (b"\xff\xfe\x00", "text/plain", "'x' (text/plain) cannot be sent to test/model, which accepts text"),
        (ZIP, "no type at all", "'x' (application/octet-stream) cannot be sent to test/model, which accepts text"),
    ],
)
async def test_garbage_is_refused_whatever_it_says_it_is(data: bytes, media_type: str, detail: str) -> None:
    """Pictures that break off, empty ones, archives that call themselves pictures or text."""
    async with served() as client:
        session = await client.session()
        answer = await client.post(
            f"/api/sessions/{session}/prompt", {"parts": [LOOK, file_part(data, media_type, "x")]}
        )
        assert (answer.status, answer.code) == (422, "unsupported_file")
        assert answer.json()["detail"].startswith(detail)
        assert await client.messages(session, "all") == []


@pytest.mark.rule("RN-4")
@pytest.mark.parametrize(
    ("name", "data", "media_type", "stored", "text"),
    [
        ("Makefile", b"all:\n\techo hi\n", "application/octet-stream", "text/plain", "all:\n\techo hi\n"),
        ("a.toml", b"x = 1", "application/toml", "application/toml", "x = 1"),
        ("a.csv", "ä;b\n".encode(), "application/vnd.ms-excel", "text/plain", "ä;b\n"),
        ("a.py", b"\xef\xbb\xbfprint()", "image/png", "text/plain", "print()"),
        ("a.svg", b"<svg/>", "image/svg+xml", "text/plain", "<svg/>"),
        ("a.txt", "Grüße".encode("utf-16"), "text/plain;charset=utf-16", "text/plain", "Grüße"),
        ("old.txt", b"caf\xe9", "text/plain", "text/plain", "caf\ufffd"),
        ("a.log", b"\x1b[31mred\x1b[0m", "", "text/plain", "\x1b[31mred\x1b[0m"),
        ("a b]\n.sh", b"exit", None, "text/plain", "exit"),
        ("empty.py", b"", "text/x-python", "text/x-python", "(the file is empty)"),
    ],
)
async def test_a_text_is_sent_as_text_under_its_name_whatever_type_it_came_with(
    name: str, data: bytes, media_type: str | None, stored: str, text: str
) -> None:
    """Its bytes decide. It stays a file of the message, with its name, and the model reads what it says."""
    model = ScriptedModel([say("seen"), say("seen")])
    async with served(providers=FakeProviders(model, infos=[taking()])) as client:
        session = await client.session()
        message = await prompt(client, session, file_part(data, media_type, name))
        digest = sha256(data).hexdigest()
        assert message["parts"][1] == {
            "type": "file",
            "mediaType": stored,
            "filename": name,
            "url": f"/api/blobs/{digest}",
            "providerMetadata": {"clew": {"size": len(data)}},
        }
        await client.chat(session, "again")
        assert told(model)[:2] == [LOOK, {"type": "text", "text": f"[{' '.join(name.split())}]\n{text}"}]


@pytest.mark.rule("RN-4")
async def test_what_a_picture_is_its_bytes_say_and_a_name_of_no_length_is_none() -> None:
    """A provider that is told another type than it finds refuses the request."""
    model = ScriptedModel([say("seen")])
    async with served(providers=FakeProviders(model)) as client:
        session = await client.session()
        message = await prompt(client, session, file_part(PNG, "image/jpeg", ""))
        assert (message["parts"][1]["mediaType"], "filename" in message["parts"][1]) == ("image/png", False)
        assert {key: told(model)[1][key] for key in ("mediaType", "url")} == {
            "mediaType": "image/png",
            "url": file_part(PNG, "image/png")["url"],
        }


@pytest.mark.rule("RN-4")
async def test_a_text_too_long_for_an_empty_window_is_refused_in_a_file_too() -> None:
    """It is sent as its text, and counts like that."""
    small = ModelInfo(model=Model("test", "model"), window=4_000, max_output=400)
    async with served(providers=FakeProviders(ScriptedModel([]), infos=[small])) as client:
        session = await client.session()
        body = {"parts": [LOOK, file_part(b"word " * 4_000, "text/plain", "long.txt")]}
        assert (await client.post(f"/api/sessions/{session}/prompt", body)).code == "message_too_large"
        assert await client.messages(session, "all") == []


@pytest.mark.rule("RN-4")
async def test_the_library_refuses_by_name_and_a_file_of_the_workspace_has_its_own(tmp_path: Path) -> None:
    """``UnsupportedFile``; ``workspace:`` files are judged like any other and keep their name."""
    (tmp_path / "Makefile").write_bytes(b"all:\n")
    (tmp_path / "a.bin").write_bytes(ZIP)
    model = ScriptedModel([say("seen")])
    async with clew.open("memory:", providers=FakeProviders(model)) as engine:
        session = await engine.create_session(workspace_root=tmp_path)
        with pytest.raises(clew.UnsupportedFile, match=r"'a.bin' \(application/octet-stream\) cannot be sent"):
            await engine.submit(session.id, [{"type": "file", "mediaType": "", "url": "workspace:a.bin"}])
        assert await engine.messages(session.id, view="all") == []
        sent = await engine.submit(session.id, [{"type": "file", "mediaType": "", "url": "workspace:Makefile"}])
        await sent.wait()
        assert told(model) == [{"type": "text", "text": "[Makefile]\nall:\n"}]


@pytest.mark.rule("RN-4")
def test_the_command_line_sends_files_along_and_says_what_is_wrong_with_one(run: Run, tmp_path: Path) -> None:
    """Exit code 2 and one line; a session that was made for the prompt does not stay."""
    (tmp_path / "Makefile").write_bytes(b"all:\n\techo hi\n")
    (tmp_path / "song.mp3").write_bytes(MP3)
    code, out, err = run("run", "look", "--file", "song.mp3", "--file", "Makefile", "--model", "demo/echo")
    said = f"'song.mp3' (audio/mpeg) cannot be sent to demo/echo, which accepts {TAKEN}. {ADVICE} (unsupported_file)"
    assert (code, out, err.strip()) == (2, "", f"clew: {said}")
    assert run("ls")[1] == ""
    code, out, _ = run("run", "look", "--file", "Makefile", "--model", "demo/echo")
    assert (code, out) == (0, "look\n[Makefile]\nall:\n\techo hi\n")
    code, _, err = run("run", "look", "--file", "nothing.txt")
    assert (code, err) == (2, "clew: nothing.txt cannot be read: No such file or directory (invalid_input)\n")


# What arrives on each wire


PICTURE = file_part(PNG, "image/png")["url"]
DOCUMENT = file_part(PDF, "application/pdf")["url"]
CHAT = [
    {"type": "image_url", "image_url": {"url": PICTURE}},
    {"type": "file", "file": {"file_data": DOCUMENT, "filename": "filename.pdf"}},
]
SENT: dict[EndpointKind, list[dict[str, Any]]] = {
    "anthropic": [
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": PICTURE.partition(",")[2]},
        },
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": DOCUMENT.partition(",")[2]},
        },
    ],
    "openai": CHAT,
    "openrouter": CHAT,
    "openai-compatible": CHAT[:1],
    "openai-responses": [
        {"type": "input_image", "image_url": PICTURE, "detail": "auto"},
        {"type": "input_file", "file_data": DOCUMENT, "filename": "filename.pdf"},
    ],
}


def content_sent(wire: WireServer) -> list[dict[str, Any]]:
    """What the user's messages of the newest request hold, without marks for the cache."""
    body = wire.requests[-1].json
    said = [message for message in body.get("messages") or body["input"] if message.get("role") == "user"]
    blocks = [block for message in said for block in message["content"]]
    return [{key: value for key, value in block.items() if key != "cache_control"} for block in blocks]


@pytest.mark.slow
@pytest.mark.rule("RN-4")
@pytest.mark.parametrize("kind", list(SENT))
async def test_each_wire_carries_what_the_table_says_and_text_as_text(wire: WireServer, kind: EndpointKind) -> None:
    """Pictures and documents in the wire's own words; what it does not carry is refused before anything is sent."""
    wire.always(*ok(), *ANSWERS[kind])
    files = [file_part(PNG, "image/png", "a.png"), file_part(PDF, "application/pdf", "a.pdf")][: len(SENT[kind])]
    text_type = "input_text" if kind == "openai-responses" else "text"
    async with served(providers=reaching(wire, kind)) as client:
        session = await client.session()
        await prompt(client, session, *files, file_part(b"all:\n", "", "Makefile"))
        text = {"type": text_type, "text": "[Makefile]\nall:\n"}
        assert content_sent(wire) == [{"type": text_type, "text": "look"}, *SENT[kind], text]
        if kind == "openai-compatible":
            body = {"parts": [LOOK, file_part(PDF, "application/pdf", "a.pdf")]}
            answer = await client.post(f"/api/sessions/{session}/prompt", body)
            assert (answer.code, "a.pdf" in answer.json()["detail"]) == ("unsupported_file", True)


@pytest.mark.parametrize(
    ("kind", "model", "taken"),
    [
        ("anthropic", "claude-sonnet-5-5", (True, True)),
        ("anthropic", "claude-3-haiku-20240307", (True, False)),
        ("openai", "gpt-5", (True, True)),
        ("openai-responses", "gpt-5", (True, True)),
        ("openai", "o3-mini", (False, False)),
        ("openai", "gpt-4o", (True, True)),
        ("openrouter", "anthropic/claude-sonnet-5.5", (True, True)),
        ("openrouter", "deepseek/deepseek-chat:free", (False, True)),
        ("openai-compatible", "llama3.2:3b", (False, False)),
        ("openai-compatible", "llama3.2-vision", (True, False)),
        ("openai-compatible", "nobody-knows", (True, False)),
    ],
)
def test_what_a_model_takes_is_what_its_wire_carries_less_what_it_is_known_not_to(
    kind: EndpointKind, model: str, taken: tuple[bool, bool]
) -> None:
    """By name, also by a gateway's and with a date behind it."""
    config = ProviderConfig(kind=kind, base_url="http://127.0.0.1:9", api_key="k")
    info = ProviderRegistry({"there": config}, environ={}).info(Model("there", model))
    assert (info.takes("image/png"), info.takes("application/pdf")) == taken


# History


@pytest.mark.slow
@pytest.mark.rule("RN-4", "MS-2")
async def test_a_model_that_does_not_take_what_the_history_holds_is_told_what_is_there(wire: WireServer) -> None:
    """By a line with name, type and size; the first model has its picture back when it is asked again."""
    wire.always(*ok(), *ANSWERS["openai-compatible"])
    blind = ModelFacts(window=64_000, files=())
    async with served(providers=reaching(wire, "openai-compatible", blind=blind)) as client:
        session = await client.session()
        await prompt(client, session, file_part(PNG, "image/png", "a.png"))
        picture = content_sent(wire)[1]
        assert picture["type"] == "image_url"
        [*_, last] = await client.chat(session, "and now?", "m2", model="wire/blind")
        assert last["finishReason"] == "stop"
        there = line("a.png (image/png", len(PNG))
        messages = wire.requests[-1].json["messages"]
        assert [message["content"] for message in messages if message["role"] == "user"] == [
            [{"type": "text", "text": "look"}, {"type": "text", "text": there}],
            "and now?",
        ]
        await client.chat(session, "you again?", "m3", model="wire/eyes")
        assert wire.requests[-1].json["messages"][1]["content"][1] == picture


@pytest.mark.slow
@pytest.mark.rule("RN-4")
async def test_a_history_with_files_nobody_takes_stays_usable(
    tmp_path: Path, wire: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an older version stored them: a song, half a picture under a wrong type, a Makefile under a strange one."""
    store = f"sqlite:///{tmp_path}/s.db"
    model = ScriptedModel([say("seen")] * 3)
    with monkeypatch.context() as before:
        before.setattr(admission, "content_of", lambda data, claimed: Content(claimed))
        async with served(store=store, providers=FakeProviders(model, infos=[taking("*/*")])) as client:
            session = await client.session()
            await prompt(client, session, file_part(SONG, "audio/mpeg", "song.mp3"))
            half = file_part(PNG[:-8], "image/gif", "half.gif")
            message = await prompt(client, session, half, file_part(b"all:\n", "application/x-make", "Makefile"))
            assert [part["mediaType"] for part in message["parts"][1:]] == ["image/gif", "application/x-make"]
    wire.always(*ok(), *ANSWERS["anthropic"])
    async with served(store=store, providers=reaching(wire)) as client:
        chunks = await client.chat(session, "go on", "m9", model="wire/eyes")
        # Bytes that are not sent take no room: nothing was summarised for them.
        assert (chunks[-1]["finishReason"], len(wire.requests)) == ("stop", 1)
        texts = [block["text"] for block in content_sent(wire)]
        assert texts == [
            "look",
            line("song.mp3 (audio/mpeg", "600,039"),
            "look",
            line("half.gif (image/png", len(PNG) - 8, "it breaks off before its end"),
            "[Makefile]\nall:\n",
            "go on",
        ]


@pytest.mark.slow
@pytest.mark.rule("RN-4")
async def test_a_file_the_provider_refuses_costs_its_own_turn_and_no_later_one(wire: WireServer) -> None:
    """What a provider minds in a file only it knows; the turn that sent it says so, and the next goes on without it."""
    minds = refuse(400, {"type": "error", "error": {"type": "invalid_request_error", "message": "image: too wide"}})
    async with served(providers=reaching(wire)) as client:
        session = await client.session()
        wire.reply(*minds)
        body = {"parts": [LOOK, file_part(PNG, "image/png", "wide.png")]}
        assert (await client.post(f"/api/sessions/{session}/prompt", body)).status == 202
        assert "image: too wide" in (await client.idle(session))["message"]
        wire.reply(*minds)
        wire.reply(*ok(), *ANSWERS["anthropic"])
        assert (await client.chat(session, "never mind", "m2"))[-1]["finishReason"] == "stop"
        there = line("wide.png (image/png", len(PNG), "a request with it was refused")
        assert content_sent(wire) == [{"type": "text", "text": text} for text in ("look", there, "never mind")]


@pytest.mark.rule("RN-4", "RW-2")
async def test_a_message_with_a_file_can_be_edited_for_a_model_that_does_not_take_it() -> None:
    """The file is of the history already: the text changes, and the model is told what is there."""
    model = ScriptedModel([say("seen"), say("well")])
    async with served(providers=FakeProviders(model, infos=[taking("image/png"), taking(model="blind")])) as client:
        session = await client.session()
        message = await prompt(client, session, file_part(PNG, "image/png", "a.png"))
        edit = {"message_id": message["id"], "mode": "edit", "text": "tell me", "run": True, "model": "test/blind"}
        assert (await client.post(f"/api/sessions/{session}/rewind", edit)).status == 202
        await client.idle(session)
        there = line("a.png (image/png", len(PNG))
        assert told(model) == [{"type": "text", "text": "tell me"}, {"type": "text", "text": there}]
