"""web_fetch against a server on loopback, with the address policy opened for exactly that."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import shutil
import ssl
import subprocess
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from clew.errors import PermissionDenied, ToolFailed
from clew.tools.base import Signal
from clew.tools.builtin.web_fetch import make_web_fetch
from clew.tools.web.address import Address, public_only
from clew.tools.web.fetch import Fetcher, Limits
from clew.transcript.rule import Target
from tests.unit.test_tools_support import Permits, context_of

LOOPBACK = ip_address("127.0.0.1")
Answer = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


def loopback_too(address: Address) -> str | None:
    return None if address == LOOPBACK else public_only(address)


def in_short(value: object) -> str:
    return repr(value)[-60:]


class Zone:
    """Names for the tests; each answer in turn, the last one for ever. Keeps what it was asked."""

    def __init__(self, **names: Sequence[str]) -> None:
        self.names = {name.replace("_", "."): list(answers) for name, answers in names.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str) -> Sequence[Address]:
        self.asked.append(host)
        answers = self.names[host]
        return [ip_address(each) for each in (answers.pop(0) if len(answers) > 1 else answers[0]).split()]


class Site:
    """A server that answers each path with the bytes given, and closes. Keeps the requests."""

    def __init__(self) -> None:
        self.pages: dict[str, Answer] = {}
        self.requests: list[str] = []
        self.port = 0
        self.gate = asyncio.Event()

    def url(self, path: str = "/", host: str = "site.test", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
            self.requests.append(head)
            answer = self.pages[head.split(" ")[1]]
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            else:
                await answer(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0)
    site.port = server.sockets[0].getsockname()[1]
    yield site
    site.gate.set()
    server.close()
    await server.wait_closed()


def page(
    body: bytes | str, content_type: str = "text/plain; charset=utf-8", status: str = "200 OK", *more: str
) -> bytes:
    data = body.encode() if isinstance(body, str) else body
    headers = [f"Content-Type: {content_type}", f"Content-Length: {len(data)}", *more]
    return f"HTTP/1.1 {status}\r\n{''.join(f'{line}' + chr(13) + chr(10) for line in headers)}\r\n".encode() + data


def redirect(location: str, status: str = "302 Found") -> bytes:
    return page("", "text/plain", status, f"Location: {location}")


ZONE: dict[str, Sequence[str]] = {"site_test": ["127.0.0.1"], "other_test": ["127.0.0.1"], "inner_test": ["10.0.0.1"]}


async def fetch(
    site: Site,
    path: str = "/",
    *,
    zone: Zone | None = None,
    permits: Permits | None = None,
    signal: Signal | None = None,
    tmp_path: Path = Path("/nonexistent"),
    format_: str = "text",
    url: str | None = None,
    **limits: Any,
) -> str:
    fetcher = Fetcher(policy=loopback_too, resolve=zone or Zone(**ZONE), limits=Limits(**limits))
    context = context_of(tmp_path, permit=permits or Permits(), signal=signal)
    args = {"url": url or site.url(path), "format": format_}
    told: str = (await make_web_fetch(fetcher).execute(args, context)).value
    return told


async def test_a_page_comes_as_text_with_where_it_came_from(site: Site) -> None:
    """One plain request: no cookies, no credentials, no proxy."""
    site.pages["/a?b=c"] = page("hello ünïcode")
    assert await fetch(site, "/a?b=c#part") == f"{site.url('/a?b=c')} (200, text/plain)\n\nhello ünïcode"
    assert site.requests == [
        f"GET /a?b=c HTTP/1.1\r\nHost: site.test:{site.port}\r\nUser-Agent: clew\r\n"
        "Accept: text/html, text/*;q=0.9, application/json;q=0.9, */*;q=0.1\r\n"
        "Accept-Encoding: gzip, deflate\r\nConnection: close\r\n\r\n"
    ]


async def test_html_is_read_or_given_as_its_source(site: Site) -> None:
    """As asked."""
    html = "<title>The title</title><script>no</script><h1>Way out</h1><a href='/b'>on</a>"
    site.pages["/"] = page(html, "text/html")
    assert await fetch(site) == (f"{site.url()} (200, text/html)\nThe title\n\n# Way out\n\non ({site.url('/b')})")
    assert await fetch(site, format_="html") == f"{site.url()} (200, text/html)\n\n{html}"


async def test_the_default_policy_refuses_loopback(site: Site) -> None:
    """The tests have to open it; nobody else can by accident."""
    site.pages["/"] = page("x")
    with pytest.raises(ToolFailed, match=r"its address 127.0.0.1 is loopback"):
        await Fetcher(resolve=Zone(**ZONE)).get(site.url(), Permits())
    assert site.requests == []


# redirects


@pytest.mark.rule("PM-5")
async def test_every_hop_is_put_to_the_rules_under_its_host(site: Site) -> None:
    """At connect time, each time, also for the same host."""
    site.pages["/"] = redirect("/second")
    site.pages["/second"] = redirect(site.url("/third", "other.test"), "307 Temporary Redirect")
    site.pages["/third"] = page("there")
    permits = Permits()
    assert (await fetch(site, permits=permits)).endswith("\n\nthere")
    assert permits.asked == [
        Target("web_fetch", "host", "site.test"),
        Target("web_fetch", "host", "site.test"),
        Target("web_fetch", "host", "other.test"),
    ]


@pytest.mark.rule("PM-5")
async def test_a_hop_to_a_host_that_is_not_allowed_is_denied_before_anything_is_sent(site: Site) -> None:
    """Not even its name is looked up."""
    site.pages["/"] = redirect(site.url("/x", "other.test"))
    zone = Zone(**ZONE)
    with pytest.raises(PermissionDenied):
        await fetch(site, permits=Permits("other.test"), zone=zone)
    with pytest.raises(PermissionDenied):
        await fetch(site, permits=Permits("site.test"), zone=zone)
    assert zone.asked == ["site.test"]
    assert len(site.requests) == 1


@pytest.mark.parametrize(
    "location",
    [
        "http://10.0.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/",
        "http://inner.test/",
        "http://2130706433:{port}/",
        "http://127.1:{port}/",
        "//0x7f000001:{port}/",
        "http://user@site.test:{port}/",
        "file:///etc/passwd",
        "ftp://site.test/",
        "data:text/plain,hello",
        "javascript:alert(1)",
        "http://site.test\\@10.0.0.1/",
        "http://exa mple/",
        "https://",
        "http://[bad",
        "http://site.test:{port}/" + "a" * 5000,
    ],
    ids=in_short,
)
async def test_a_redirect_to_what_would_be_refused_is_refused(location: str, site: Site) -> None:
    """Each hop is read and checked like the first."""
    site.pages["/"] = redirect(location.format(port=site.port))
    with pytest.raises(ToolFailed):
        await fetch(site)
    assert len(site.requests) == 1


async def test_redirects_end(site: Site) -> None:
    """Five are followed, a sixth is not."""
    for number in range(10):
        site.pages[f"/{number}"] = redirect(f"/{number + 1}")
    site.pages["/5"] = page("end")
    assert (await fetch(site, "/0")).endswith("\n\nend")
    site.requests.clear()
    site.pages["/5"] = redirect("/6")
    with pytest.raises(ToolFailed, match="more than 5 times"):
        await fetch(site, "/0")
    assert len(site.requests) == 6


async def test_a_redirect_without_a_place_is_an_answer(site: Site) -> None:
    """There is nowhere to go."""
    site.pages["/"] = page("gone", "text/plain", "302 Found")
    assert (await fetch(site)).endswith("(302, text/plain)\n\ngone")


async def test_a_name_is_resolved_once_a_hop_and_that_address_is_connected_to(site: Site) -> None:
    """A name that changes its mind between the check and the connection (rebinding) gains nothing."""
    site.pages["/"] = page("first")
    zone = Zone(site_test=["127.0.0.1", "10.0.0.1"])
    assert (await fetch(site, zone=zone)).endswith("first")
    assert zone.asked == ["site.test"]
    with pytest.raises(ToolFailed, match=r"10.0.0.1 is private"):
        await fetch(site, zone=zone)


async def test_a_name_that_changes_between_hops_is_checked_again(site: Site) -> None:
    """The second answer of the same name is private."""
    site.pages["/"] = redirect("/again")
    with pytest.raises(ToolFailed, match=r"10.0.0.1 is private"):
        await fetch(site, zone=Zone(site_test=["127.0.0.1", "10.0.0.1"]))
    assert len(site.requests) == 1


async def test_the_next_address_is_tried_when_one_does_not_answer(site: Site) -> None:
    """All of them were checked before."""
    site.pages["/"] = page("second")
    closed = "127.0.0.2"
    fetcher = Fetcher(
        policy=lambda address: None if address.is_loopback else "no", resolve=Zone(site_test=[f"{closed} 127.0.0.1"])
    )
    fetched = await fetcher.get(site.url(), Permits())
    assert fetched.answer.body == b"second"
    with pytest.raises(ToolFailed, match="cannot be reached"):
        await Fetcher(policy=lambda address: None, resolve=Zone(site_test=[closed])).get(site.url(), Permits())


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
    ("coding", "bomb"),
    [
        ("gzip", gzip.compress(b"\0" * 50_000_000, mtime=0)),
        ("gzip", gzip.compress(b"x" * 50_000_000, mtime=0)),
        ("deflate", zlib.compress(b"x" * 50_000_000)),
    ],
    ids=["gzip of nothing", "gzip", "deflate"],
)
async def test_a_bomb_is_not_unpacked_beyond_the_limit(coding: str, bomb: bytes, site: Site, tmp_path: Path) -> None:
    """50 kB on the wire, 50 MB unpacked: five are taken."""
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
    with pytest.raises(ToolFailed, match=r"did not come within 0.3 s"):
        await fetch(site, total_s=0.3)


async def test_a_server_that_says_nothing_ends_with_the_time(site: Site) -> None:
    """Neither does one that only takes the request."""

    async def mute(writer: asyncio.StreamWriter) -> None:
        await site.gate.wait()

    site.pages["/"] = mute
    with pytest.raises(ToolFailed, match=r"did not come within 0.2 s"):
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
