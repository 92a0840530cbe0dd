"""web_fetch: bodies however they come, and certificates."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import shutil
import ssl
import subprocess
import tracemalloc
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from clew.errors import ToolFailed
from clew.tools.base import Signal
from clew.tools.web.fetch import Fetcher
from clew.tools.web.url import Address
from tests.integration.website import ZONE, Site, Zone, fetch, in_short, loopback_too, page, site
from tests.unit.test_tools_support import Permits

__all__ = ["site"]


# bodies


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x;ext=1\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\nTrailer: x\r\n\r\n"


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
DEFLATE = zlib.compressobj(wbits=-15)
BARE = DEFLATE.compress(b"squeezed") + DEFLATE.flush()


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (HEAD + b"\r\nuntil the end", "until the end"),
        (b"HTTP/1.0 200\r\n\r\nold", "old"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(b"one ", b"two"), "one two"),
        (HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n" + chunked(b"longer"), "longer"),
        (HEAD + b"Content-Length: 3\r\n\r\nabcdef", "abc"),
        (HEAD + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", "abc"),
        (HEAD + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"squeezed", mtime=0), "squeezed"),
        (HEAD + b"Content-Encoding: deflate\r\n\r\n" + zlib.compress(b"squeezed"), "squeezed"),
        (HEAD + b"Content-Encoding: deflate\r\n\r\n" + BARE, "squeezed"),
        (HEAD + b"Content-Encoding: identity\r\n\r\nplain", "plain"),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + HEAD + b"\r\nlate", "late"),
        (HEAD.replace(b"\r\n", b"\n") + b"\nbare line ends", "bare line ends"),
        (HEAD + b"\r\n", "[the answer is empty]"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "[the answer is empty]"),
    ],
    ids=in_short,
)
async def test_a_body_is_read_however_it_is_framed(answer: bytes, text: str, site: Site) -> None:
    """With and without a length, in chunks, compressed, old or with something before it."""
    site.pages["/"] = answer
    assert (await fetch(site)).splitlines()[-1] == text


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nSpaced : x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Length: 1e3\r\n\r\n",
        HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n-3\r\nabc\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffffffff\r\nabc\r\n",
        HEAD + b"Content-Encoding: gzip\r\n\r\nnot gzip at all",
        HEAD + b"Content-Encoding: br\r\n\r\nx",
        HEAD + b"Content-Encoding: gzip, gzip\r\n\r\nx",
        HEAD + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
        HEAD + b"X: y\r\n" * 500 + b"\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 20,
        page("x", "text/plain", "404 Not Found"),
        page("x", "text/plain", "500 Internal Server Error"),
    ],
    ids=in_short,
)
async def test_an_answer_that_is_none_is_a_sentence(answer: bytes, site: Site) -> None:
    """A server can send anything; the tool only ever fails in words."""
    site.pages["/"] = answer
    with pytest.raises(ToolFailed):
        await fetch(site)


async def test_a_failure_says_what_the_server_said(site: Site) -> None:
    """The number and the reason."""
    site.pages["/"] = page("x", "text/plain", "404 Not Found")
    with pytest.raises(ToolFailed, match=r"^http://site\.test:\d+/ answered 404 Not Found$"):
        await fetch(site)


@pytest.mark.parametrize(
    "answer",
    [
        HEAD + b"Content-Length: 100\r\n\r\nhalf",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n9\r\nhalf",
    ],
    ids=in_short,
)
async def test_a_body_that_breaks_off_is_given_and_said_so(answer: bytes, site: Site) -> None:
    """Half a page is better than none, when it says that it is half."""
    site.pages["/"] = answer
    assert (await fetch(site)).splitlines()[1:] == ["[the server broke off before the end]", "", "half"]


async def test_a_body_too_long_is_cut(site: Site, tmp_path: Path) -> None:
    """At the limit, told, and an endless one is not read on."""

    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"\r\n")
        while True:
            writer.write(b"x" * 65_536)
            await writer.drain()

    site.pages["/"] = endless
    told = await fetch(site, tmp_path=tmp_path)
    assert told.splitlines()[1] == "[only the first 5,242,880 bytes were read]"
    assert len(told) <= 30_000
    (file,) = (tmp_path / "spill").iterdir()
    assert 5_242_880 < file.stat().st_size < 5_243_100


@pytest.mark.parametrize(
    ("coding", "byte"), [("gzip", b"\0"), ("gzip", b"x"), ("deflate", b"x")], ids=["gzip of nothing", "gzip", "deflate"]
)
async def test_a_bomb_is_not_unpacked_beyond_the_limit(coding: str, byte: bytes, site: Site, tmp_path: Path) -> None:
    """50 kB on the wire, 50 MB unpacked: five are taken."""
    bomb = gzip.compress(byte * 50_000_000) if coding == "gzip" else zlib.compress(byte * 50_000_000)
    site.pages["/"] = page(bomb, "text/plain", "200 OK", f"Content-Encoding: {coding}")
    tracemalloc.start()
    try:
        told = await fetch(site, tmp_path=tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "[only the first 5,242,880 bytes were read]" in told
    assert len(told) <= 30_000
    assert peak < 40_000_000


async def test_a_slow_body_ends_with_the_time(site: Site) -> None:
    """A byte now and then does not keep the fetch alive."""

    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Content-Length: 1000\r\n\r\n")
        while not site.gate.is_set():
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    site.pages["/"] = drip
    with pytest.raises(ToolFailed, match=r"did not arrive within 0.3 s"):
        await fetch(site, total_s=0.3)


async def test_a_server_that_says_nothing_ends_with_the_time(site: Site) -> None:
    """Neither does one that only takes the request."""

    async def mute(writer: asyncio.StreamWriter) -> None:
        await site.gate.wait()

    site.pages["/"] = mute
    with pytest.raises(ToolFailed, match=r"did not arrive within 0.2 s"):
        await fetch(site, total_s=0.2)


async def test_a_name_that_is_never_resolved_ends_with_the_time(site: Site) -> None:
    """A resolver can hang, too."""

    class Hanging(Zone):
        async def __call__(self, host: str) -> Sequence[Address]:
            await site.gate.wait()
            return []

    with pytest.raises(ToolFailed, match="not resolved in time"):
        await fetch(site, zone=Hanging(), connect_s=0.1)


async def test_an_abort_ends_the_fetch(site: Site) -> None:
    """At once, also while the server is silent."""
    asked = asyncio.Event()

    async def mute(writer: asyncio.StreamWriter) -> None:
        asked.set()
        await site.gate.wait()

    site.pages["/"] = mute
    signal = Signal()
    fetching = asyncio.create_task(fetch(site, signal=signal))
    await asked.wait()
    signal.abort("changed my mind")
    with pytest.raises(ToolFailed, match="aborted: changed my mind"):
        await fetching


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        (b"caf\xe9", "text/plain; charset=iso-8859-1", "café"),
        (b"caf\xe9", "text/plain", "caf\ufffd"),
        ("<p>да</p>".encode("cp1251"), "text/html; charset=windows-1251", "да"),
        ('{"a": "é"}'.encode(), "application/json", '{"a": "é"}'),
        (b"<rss>x</rss>", "application/rss+xml", "<rss>x</rss>"),
        (b"no type", "", "no type"),
        (b"<!DOCTYPE html><p>no type</p>", "", "no type"),
        ("é".encode("utf-16"), "text/plain", "é"),
    ],
)
async def test_text_is_read_in_its_character_set(body: bytes, content_type: str, text: str, site: Site) -> None:
    """JSON and XML are text; without a type the bytes decide."""
    site.pages["/"] = page(body, content_type)
    assert (await fetch(site)).splitlines()[-1] == text


async def test_a_bad_character_set_is_read_as_utf_8_and_said(site: Site) -> None:
    """Never an error."""
    site.pages["/"] = page("é", "text/plain; charset=klingon")
    assert (await fetch(site)).splitlines()[1:] == [
        "[the character set 'klingon' is not known; read as UTF-8]",
        "",
        "é",
    ]


@pytest.mark.parametrize("content_type", ["image/png", "application/octet-stream", "text/plain"])
async def test_binary_content_is_described(content_type: str, site: Site) -> None:
    """Whatever it says it is."""
    body = b"\x89PNG\r\n\x1a\n\x00\x00"
    site.pages["/"] = page(body, content_type)
    assert (await fetch(site)).splitlines() == [
        f"{site.url()} (200, {content_type})",
        f"[binary content: PNG image, 10 bytes, sha256 {hashlib.sha256(body).hexdigest()}; "
        "its content is not text and is not shown]",
    ]


# certificates


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for site.test, with its key, signed by itself."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    file = tmp_path_factory.mktemp("tls") / "site.pem"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=site.test -addext subjectAltName=DNS:site.test"
    )
    subprocess.run(
        [*command.split(), "-keyout", str(file.with_suffix(".key")), "-out", str(file)], check=True, capture_output=True
    )
    return file


async def test_https_checks_the_certificate_for_the_name_not_for_the_address(site: Site, certificate: Path) -> None:
    """The name goes into the handshake, though the connection goes to the address that was checked."""
    names: list[str | None] = []
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(certificate, certificate.with_suffix(".key"))
    serving.sni_callback = lambda _, name, __: names.append(name)
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0, ssl=serving)
    site.port = server.sockets[0].getsockname()[1]
    site.pages["/"] = page("in private")
    trusting = ssl.create_default_context(cafile=str(certificate))
    fetcher = Fetcher(policy=loopback_too, resolve=Zone(**ZONE), tls=trusting)
    try:
        fetched = await fetcher.get(site.url(scheme="https"), Permits())
        assert (fetched.answer.body, names) == (b"in private", ["site.test"])
        with pytest.raises(ToolFailed, match=r"certificate of other\.test is not valid"):
            await fetcher.get(site.url(host="other.test", scheme="https"), Permits())
        with pytest.raises(ToolFailed, match=r"certificate of 127\.0\.0\.1 is not valid"):
            await fetcher.get(site.url(host="127.0.0.1", scheme="https"), Permits())
        strangers = Fetcher(policy=loopback_too, resolve=Zone(**ZONE))
        with pytest.raises(ToolFailed, match=r"certificate of site\.test is not valid: self-signed"):
            await strangers.get(site.url(scheme="https"), Permits())
    finally:
        server.close()
        await server.wait_closed()


async def test_https_to_a_server_without_it_is_a_sentence(site: Site) -> None:
    """The handshake fails, in words."""

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    site.port = server.sockets[0].getsockname()[1]
    try:
        with pytest.raises(ToolFailed, match="cannot be reached"):
            await Fetcher(policy=loopback_too, resolve=Zone(**ZONE)).get(site.url(scheme="https"), Permits())
    finally:
        server.close()
        await server.wait_closed()
