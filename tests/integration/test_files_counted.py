"""What pictures and documents take in the gauge: by the rule of the provider whose model is asked."""

from __future__ import annotations

import random
import struct
import zlib
from pathlib import Path
from typing import Any

import orjson
import pytest

from clew.providers.base import EndpointKind
from clew.providers.catalog import ModelFacts
from clew.providers.registry import ProviderConfig, ProviderRegistry
from clew.session.prompt.file_content import extent_of
from clew.transcript.part import clew_metadata_of
from tests.integration.http_client import Client, served
from tests.integration.sent_files import GIF, JPEG, PDF, PNG, WEBP, file_part
from tests.integration.wire_server import ANTHROPIC, OPENAI, WireServer, ok
from tests.integration.wire_talk import wire

__all__ = ["wire"]

LOOK = {"type": "text", "text": "look"}
MODELS = ("claude-sonnet-4-5", "claude-opus-4-8", "gpt-4o", "gpt-5-mini", "gpt-6-sol", "nobody-knows")


def png(width: int, height: int) -> bytes:
    return PNG[:16] + struct.pack(">II", width, height) + PNG[24:]


def jpeg(width: int, height: int) -> bytes:
    """With a comment, a table, fill bytes and a marker without a length before the frame, as cameras write them."""
    frame = b"\xff\xc2\x00\x11\x08" + struct.pack(">HH", height, width) + bytes(10)
    return b"\xff\xd8\xff\xfe\x00\x04\xff\xc0\xff\xc4\x00\x03\x00\xff\xff\xff\x01" + frame + b"\xff\xd9"


def gif(width: int, height: int) -> bytes:
    return GIF[:6] + struct.pack("<HH", width, height) + GIF[10:]


def webp(kind: bytes, body: bytes) -> bytes:
    whole = b"WEBP" + kind + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(whole)) + whole


def pdf(body: bytes) -> bytes:
    return PDF[:9] + body + PDF[9:]


def packed(objects: bytes) -> bytes:
    head = b"7 0 obj <</Type /ObjStm /N 3 /Filter /FlateDecode>>\nstream\r\n"
    return head + zlib.compress(objects) + b"\nendstream\n"


def pages(count: int) -> bytes:
    return b"".join(b"%d 0 obj <</Type /Page /Parent 1 0 R>> endobj\n" % n for n in range(count))


def reaching(wire: WireServer, kind: EndpointKind = "anthropic") -> ProviderRegistry:
    wire.always(*ok(), *(ANTHROPIC if kind == "anthropic" else OPENAI).text("seen"))
    address = wire.url if kind == "anthropic" else f"{wire.url}/v1"
    models = {name: ModelFacts(window=200_000) for name in ("eyes", *MODELS)}
    config = ProviderConfig(kind=kind, base_url=address, api_key="k", models=models)
    return ProviderRegistry({"wire": config}, default_model="wire/eyes", environ={})


async def asked(client: Client, *parts: dict[str, Any]) -> str:
    """A session with one answered prompt."""
    session = await client.session()
    sent = await client.post(f"/api/sessions/{session}/prompt", {"parts": [LOOK, *parts]})
    assert sent.status == 202, sent
    assert (await client.idle(session))["state"] == "idle"
    return session


async def noted(client: Client, session: str) -> Any:
    [part] = [one for one in (await client.messages(session))[0]["parts"] if one["type"] == "file"]
    return part["providerMetadata"]["clew"]


async def history(client: Client, session: str, model: str) -> int:
    """What the messages would take if this model was asked; it was not, so that all of it is estimated."""
    gauge = (await client.get(f"/api/sessions/{session}/context?model=wire/{model}")).json()
    assert not gauge["measured"]
    return int(gauge["parts"]["history"])


@pytest.mark.rule("US-3")
@pytest.mark.parametrize("kind", ["anthropic", "openai"])
async def test_a_picture_changes_the_gauge_by_what_the_provider_says_it_takes(
    wire: WireServer, kind: EndpointKind
) -> None:
    """By its pixels, and for each model by the rule of that; what nobody knows takes the usual."""
    async with served(providers=reaching(wire, kind)) as client:
        plain = await asked(client)
        seen = await asked(client, file_part(png(1920, 1080), "image/png", "a.png"))
        assert await noted(client, seen) == {"size": len(PNG), "width": 1920, "height": 1080}
        taken = {name: await history(client, seen, name) - await history(client, plain, name) for name in MODELS}
    assert taken == {
        "claude-sonnet-4-5": 1_560,
        "claude-opus-4-8": 2_691,
        "gpt-4o": 85 + 170 * 6,
        "gpt-5-mini": 2_443,
        "gpt-6-sol": 2_448,
        "nobody-knows": 1_500,
    }


@pytest.mark.rule("US-3")
async def test_a_document_takes_so_much_for_each_of_its_pages(wire: WireServer) -> None:
    """Also where they are packed, as most are; one whose pages are not found is guessed by its size."""
    async with served(providers=reaching(wire)) as client:
        bodies = [pages(1), pages(2) + packed(pages(3) + b"<</Type/Pages /Count 6>>"), b"no pages" * 500]
        sessions = [await asked(client, file_part(pdf(body), "application/pdf", "a.pdf")) for body in bodies]
        assert [(await noted(client, one)).get("pages") for one in sessions] == [1, 5, None]
        one, five, none = [await history(client, session, "claude-opus-4-8") for session in sessions]
        unknown = [await history(client, session, "nobody-knows") for session in sessions]
    assert five - one == 4 * 2_334
    assert unknown[2] == none < 1_000
    assert unknown[0] < unknown[1] < 1_000


def hostile() -> list[tuple[str, bytes, dict[str, int], int]]:
    """Files with what is noted of them and the largest estimate; made when they are asked for, since some are large."""
    return [
        ("image/png", png(65_535, 65_535), {"width": 65_535, "height": 65_535}, 40_000),
        ("image/png", png(2**32 - 1, 1), {"width": 2**32 - 1, "height": 1}, 40_000),
        ("image/png", png(0, 5), {}, 1_500),
        ("image/png", png(5, 5).replace(b"IHDR", b"IDHR"), {}, 1_500),
        ("image/gif", gif(65_535, 65_535), {"width": 65_535, "height": 65_535}, 40_000),
        ("image/jpeg", b"\xff\xd8" + b"\xff\xe0\x00\x00" * 300_000 + b"\xff\xd9", {}, 1_500),
        ("image/jpeg", JPEG, {}, 1_500),
        ("image/webp", webp(b"VP8X", b"\x00" * 4 + b"\xff" * 6), {"width": 1 << 24, "height": 1 << 24}, 40_000),
        ("image/webp", WEBP, {}, 1_500),
        ("application/pdf", pdf(b"<</Type /Pages /Count 1000000000>>" + pages(1)), {"pages": 1}, 2_400),
        ("application/pdf", pdf(b"/Type/Page " * 100_000), {"pages": 100_000}, 600 * 2_334 + 100),
        ("application/pdf", pdf(packed(pages(1) + bytes(200 << 20))), {"pages": 1}, 2_400),
        ("application/pdf", pdf(b"/ObjStm stream " * 60_000), {}, 80_000),
        ("application/pdf", pdf(b"/ObjStm " * 100_000 + b"/Type" + b" " * 1_000_000), {}, 150_000),
    ]


@pytest.mark.rule("US-3")
async def test_a_file_that_lies_about_its_size_is_taken_in_and_bounded(wire: WireServer) -> None:
    """No claim, no bomb and no client's own note makes a request larger than the rule's largest number."""
    files = hostile()
    bounds = [bound for *_, bound in files]
    async with served(providers=reaching(wire)) as client:
        plain = await history(client, await asked(client), "claude-opus-4-8")
        found, used = [], []
        for media_type, data, _, _ in files:
            claims = {"clew": {"size": 7, "width": 10**9, "height": 10**9, "pages": 10**9}}
            session = await asked(client, file_part(data, media_type) | {"providerMetadata": claims})
            found.append(await noted(client, session))
            used.append([await history(client, session, name) - plain for name in ("claude-opus-4-8", "gpt-6-sol")])
    assert found == [{"size": len(data), **about} for _, data, about, _ in files]
    assert [max(two) <= max(bound, bound * 3_000 // 2_334) for two, bound in zip(used, bounds, strict=True)] == (
        [True] * len(files)
    )


@pytest.mark.rule("US-3")
async def test_a_file_of_an_older_version_is_estimated_as_it_was(wire: WireServer) -> None:
    """Of which only the bytes were counted; sent again it is looked at, since its bytes are at hand."""
    async with served(providers=reaching(wire)) as client:
        plain = await history(client, await asked(client), "claude-opus-4-8")
        exported = await client.get(f"/api/sessions/{await asked(client, file_part(png(64, 64), 'image/png'))}/export")
        older = exported.body.replace(b'"width":64', b'"old":1').replace(b'"height":64', b'"older":1')
        assert older != exported.body
        session = (await client.post("/api/import", older)).json()["id"]
        assert await history(client, session, "claude-opus-4-8") - plain == 1_500
        stored = (await client.messages(session))[0]["parts"][1]
        again = await asked(client, stored)
        assert await noted(client, again) == {"size": len(PNG), "width": 64, "height": 64}
        assert await history(client, again, "claude-opus-4-8") - plain == 9


@pytest.mark.rule("US-3")
async def test_what_a_session_from_elsewhere_claims_of_its_files_is_bounded_too(
    wire: WireServer, tmp_path: Path
) -> None:
    """Sizes whose sum no store holds: the session goes on, and the gauge shows what files may have at most."""
    async with served(providers=reaching(wire), store=f"sqlite:///{tmp_path}/store.db") as client:
        ten = [file_part(f"text {n}".encode(), "text/plain", f"{n}.txt") for n in range(10, 20)]
        session = await client.session(metadata={"compaction": {"enabled": False}})
        for _ in range(2):
            assert (await client.post(f"/api/sessions/{session}/prompt", {"parts": [LOOK, *ten]})).status == 202
            await client.idle(session)
        exported = (await client.get(f"/api/sessions/{session}/export")).body
        lying = exported.replace(b'"size":7', b'"size":%d' % 2**62)
        assert lying.count(b"%d" % 2**62) == 20
        taken = (await client.post("/api/import", lying)).json()["id"]
        assert await history(client, taken, "nobody-knows") < 20 * 5_000_000
        assert (await client.post(f"/api/sessions/{taken}/prompt", {"text": "go on"})).status == 202
        assert (await client.idle(taken))["state"] == "idle"


@pytest.mark.parametrize(
    ("media_type", "data", "extent"),
    [
        ("image/png", png(3, 4), (3, 4)),
        ("image/gif", gif(300, 4), (300, 4)),
        ("image/jpeg", jpeg(4_032, 3_024), (4_032, 3_024)),
        ("image/webp", webp(b"VP8X", b"\x10\x00\x00\x00" + b"\x7f\x07\x00" + b"\x37\x04\x00"), (1_920, 1_080)),
        ("image/webp", webp(b"VP8L", b"\x2f" + (99 | 49 << 14).to_bytes(4, "little")), (100, 50)),
        ("image/webp", webp(b"VP8 ", b"\x00\x00\x00\x9d\x01\x2a\x00\x05\xd0\x02"), (1_280, 720)),
        ("text/plain", b"3x4", None),
    ],
)
def test_how_large_a_picture_is_stands_in_its_header(
    media_type: str, data: bytes, extent: tuple[int, int] | None
) -> None:
    assert extent_of(data, media_type) == ({} if extent is None else {"width": extent[0], "height": extent[1]})


def test_no_bytes_at_all_break_the_reading_of_a_header() -> None:
    """Cut anywhere, and with bytes changed anywhere."""
    rng = random.Random(14)
    whole = {
        "image/png": png(3, 4),
        "image/gif": gif(3, 4),
        "image/jpeg": jpeg(3, 4),
        "image/webp": webp(b"VP8X", bytes(10)),
        "application/pdf": pdf(pages(2) + packed(pages(2))),
    }
    for media_type, data in whole.items():
        for _ in range(300):
            changed = bytearray(data[: rng.randrange(len(data) + 1)])
            for _ in range(min(rng.randrange(4), len(changed))):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            found = extent_of(bytes(changed), media_type)
            assert all(value > 0 for value in found.values()), (media_type, bytes(changed))


def test_what_is_noted_of_a_file_is_a_number_or_nothing() -> None:
    for value in (None, "3", -1, 1.5, [3], orjson.loads(b"1e99")):
        assert clew_metadata_of({"type": "file", "providerMetadata": {"clew": {"width": value}}}, "width") is None
