"""URLs and addresses: a corpus of ways to say "this machine" or "this network", and of ways to hide it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any

import pytest

from clew.errors import ToolFailed
from clew.tools.builtin.web_fetch import web_fetch
from clew.tools.web.fetch import Fetcher, resolve_name
from clew.tools.web.url import Address, Url, join_url, parse_url, public_only
from clew.transcript.rule import Target
from tests.unit.test_tools_support import Permits

PUBLIC = ip_address("93.184.215.14")

# Names a hostile zone, a hosts file or a cloud's resolver answers with an address of its own.
ZONE = {
    "localhost": "127.0.0.1",
    "sub.localhost": "::1",
    "localtest.me": "127.0.0.1",
    "127.0.0.1.nip.io": "127.0.0.1",
    "metadata.google.internal": "169.254.169.254",
    "metadata": "169.254.169.254",
    "intranet": "10.1.2.3",
    "router.lan": "192.168.0.1",
    "mapped.example": "::ffff:127.0.0.1",
    "nat64.example": "64:ff9b::7f00:1",
    "kubernetes.default.svc": "10.96.0.1",
}

REFUSED = """
http://127.0.0.1/
http://127.0.0.1:7717/api/sessions
http://127.255.255.254/
http://0.0.0.0/
http://0.0.0.0:80/
http://0.1.2.3/
http://10.0.0.1/
http://10.255.255.255/
http://172.16.0.1/
http://172.31.255.255/
http://192.168.1.1/
http://169.254.169.254/latest/meta-data/
http://169.254.170.2/v2/credentials
http://100.64.0.1/
http://100.100.100.200/latest/meta-data/
http://100.127.255.255/
http://168.63.129.16/
http://192.0.0.192/
http://192.0.2.1/
http://198.18.0.1/
http://198.51.100.7/
http://203.0.113.9/
http://192.88.99.1/
http://224.0.0.1/
http://239.255.255.250:1900/
http://240.0.0.1/
http://255.255.255.255/
http://[::1]/
http://[::]/
http://[0:0:0:0:0:0:0:1]/
http://[0000:0000:0000:0000:0000:0000:0000:0001]:80/
http://[::ffff:127.0.0.1]/
http://[::ffff:7f00:1]/
http://[::ffff:8.8.8.8]/
http://[::127.0.0.1]/
http://[::7f00:1]/
http://[64:ff9b::127.0.0.1]/
http://[64:ff9b::a9fe:a9fe]/
http://[64:ff9b:1::7f00:1]/
http://[2002:7f00:1::]/
http://[2002:a9fe:a9fe::1]/
http://[2001:0:7f00:1::1]/
http://[2001:db8::1]/
http://[3fff::1]/
http://[2600::5efe:7f00:1]/
http://[fe80::1]/
http://[fe80::1%25eth0]/
http://[fe80::1%eth0]/
http://[fc00::1]/
http://[fd00:ec2::254]/latest/meta-data/
http://[fec0::1]/
http://[ff02::1]/
http://[100::1]/
http://[5f00::1]/
http://2130706433/
http://017700000001/
http://0x7f000001/
http://0x7f.0x0.0x0.0x1/
http://0x7F.1/
http://0177.0.0.1/
http://0177.0000.0000.0001/
http://127.1/
http://127.0.1/
http://127.0.0.01/
http://00127.0.0.1/
http://127.0.0.1./
http://127.0.0.0x1/
http://127.0.0.1.1/
http://1.2.3/
http://256.256.256.256/
http://4294967297/
http://0/
http://0x/
http://example.com.0x7f/
http://8.8.8.010/
http://１２７.０.０.１/
http://①②⑦.⓪.⓪.①/
http://127。0。0。1/
http://127．0．0．1/
http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/
http://localhost/
http://LOCALHOST:80/
http://localhost./
http://sub.localhost/
http://localtest.me/
http://127.0.0.1.nip.io/
http://metadata/computeMetadata/v1/
http://metadata.google.internal/computeMetadata/v1/
http://intranet/
http://router.lan/
http://mapped.example/
http://nat64.example/
https://kubernetes.default.svc/
http://user@example.com/
http://user:pass@example.com/
http://example.com@127.0.0.1/
http://127.0.0.1@example.com/
http://example.com:80@127.0.0.1/
http://@127.0.0.1/
http://example.com\\@127.0.0.1/
http://127.0.0.1\\@example.com/
http:\\\\127.0.0.1/
http:/\\127.0.0.1/
http:127.0.0.1
http:///127.0.0.1/
http:/127.0.0.1/
http://
http://:80/
http://./
http://../
http://.example.com/
http://example..com/
http://-example.com/
http://example-.com/
http://exa mple.com/
http://exa%6dple.com/
http://%31%32%37.0.0.1/
http://127.0.0.1%2f@example.com/
http://example.com:99999/
http://example.com:0/
http://example.com:-80/
http://example.com:80:80/
http://example.com:８０/
http://[::1/
http://::1/
http://[::1]example.com/
http://[127.0.0.1]/
http://[v1.x]/
http://[]/
ftp://example.com/
file:///etc/passwd
file://localhost/etc/passwd
gopher://127.0.0.1:25/
data:text/html,hello
javascript:alert(1)
ws://example.com/
unix:///var/run/docker.sock
//example.com/
example.com
/etc/passwd
http
""".strip().splitlines()

# What cannot stand on a line of its own.
HIDDEN = [
    "http://example.com\x00.evil.test/",
    "http://127.0.0.1\x00.example.com/",
    "http://example.com/\r\nHost: 127.0.0.1",
    "http://exam\tple.com/",
    "http://example.com\n@127.0.0.1/",
    " http://example.com/",
    "http://example.com/ ",
    "http://example.com/\x7f",
    "http://exam\u200bple.com/",
    "http://example.com\u2028/",
    "http://exam\u00adple.com/",
    "http://\u202emoc.elpmaxe/",
    "http://example.com/\ud800",
    "http://" + "a" * 64 + ".com/",
    "http://" + "a." * 127 + "com/",
    "http://example.com/" + "a" * 5000,
    "",
]


async def zone(host: str) -> Sequence[Address]:
    return [ip_address(ZONE[host]) if host in ZONE else PUBLIC]


@pytest.fixture
def no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def connect(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError(f"connected to {args}")

    monkeypatch.setattr(asyncio, "open_connection", connect)


def test_the_corpus_is_large() -> None:
    """So that a lost line is noticed."""
    assert len(set(REFUSED)) == len(REFUSED) >= 130


@pytest.mark.parametrize("url", REFUSED + HIDDEN, ids=lambda url: repr(url)[:60])
async def test_nothing_of_this_is_ever_connected_to(url: str, no_connection: None) -> None:
    """By its spelling, or by the address behind it; by default, without any rule."""
    with pytest.raises(ToolFailed):
        await Fetcher(resolve=zone).get(url, Permits())


@pytest.mark.parametrize(
    ("url", "understood"),
    [
        ("http://example.com", Url("http", "example.com", 80, "/")),
        ("https://example.com/", Url("https", "example.com", 443, "/")),
        ("HTTP://EXAMPLE.COM:8080/Path", Url("http", "example.com", 8080, "/Path")),
        ("https://example.com:443/a?b=c&d=%20#part", Url("https", "example.com", 443, "/a?b=c&d=%20")),
        ("https://example.com./", Url("https", "example.com", 443, "/")),
        ("https://example.com?q=1", Url("https", "example.com", 443, "/?q=1")),
        ("https://bücher.example/straße", Url("https", "xn--bcher-kva.example", 443, "/stra%C3%9Fe")),
        ("http://8.8.8.8/", Url("http", "8.8.8.8", 80, "/", ip_address("8.8.8.8"))),
        (
            "http://[2606:4700:0:0::1111]:81/",
            Url("http", "2606:4700::1111", 81, "/", ip_address("2606:4700::1111")),
        ),
        ("http://example.com#@127.0.0.1/", Url("http", "example.com", 80, "/")),
        ("http://1e100.net/", Url("http", "1e100.net", 80, "/")),
        ("http://0x7f.example/", Url("http", "0x7f.example", 80, "/")),
        ("http://under_score.example/@x", Url("http", "under_score.example", 80, "/@x")),
    ],
)
def test_a_plain_url_is_understood(url: str, understood: Url) -> None:
    """One spelling comes out: lower case, ASCII, no part, no trailing point."""
    assert parse_url(url) == understood
    assert parse_url(str(understood)) == understood


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "93.184.215.14", "172.32.0.1", "100.128.0.1", "2606:4700::1111"]
)
def test_public_addresses_are_allowed(address: str) -> None:
    """A policy that refused everything would pass every other test."""
    assert public_only(ip_address(address)) is None


async def test_one_private_address_among_several_refuses_the_host(no_connection: None) -> None:
    """Else the next attempt would get there."""

    async def both(host: str) -> Sequence[Address]:
        return [PUBLIC, ip_address("127.0.0.1")]

    with pytest.raises(ToolFailed, match=r"its address 127.0.0.1 is loopback"):
        await Fetcher(resolve=both).get("http://example.com/", Permits())


async def test_the_resolver_of_the_system_is_asked() -> None:
    """For a number it needs no network; an answer comes once, whatever the protocols."""
    assert await resolve_name("127.0.0.1") == [ip_address("127.0.0.1")]


async def test_a_name_that_cannot_be_resolved_is_a_sentence() -> None:
    """Whatever the resolver raises, or when it has nothing to say."""

    async def gone(host: str) -> Sequence[Address]:
        raise OSError(-2, "Name or service not known")

    async def empty(host: str) -> Sequence[Address]:
        return []

    with pytest.raises(ToolFailed, match="cannot be resolved"):
        await Fetcher(resolve=gone).get("http://example.com/", Permits())
    with pytest.raises(ToolFailed, match="has no address"):
        await Fetcher(resolve=empty).get("http://example.com/", Permits())


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/b", "http://example.com/b"),
        ("b?c", "http://example.com/x/b?c"),
        ("//other.example/", "http://other.example/"),
        ("https://other.example:8443/é", "https://other.example:8443/%C3%A9"),
        ("../../..", "http://example.com/"),
    ],
)
def test_a_redirect_is_read_relative_to_where_it_came_from(location: str, url: str) -> None:
    """And by the same rules as the first URL."""
    assert str(join_url(parse_url("http://example.com/x/y"), location)) == url


@pytest.mark.rule("PM-5")
def test_the_target_of_a_fetch_is_the_host_as_it_will_be_connected_to() -> None:
    """Not as it was written."""
    assert list(web_fetch.targets({"url": "https://EXAMPLE.com.:8443/x"}, None)) == [
        Target("web_fetch", "host", "example.com")
    ]
    assert list(web_fetch.targets({"url": "http://bücher.example"}, None)) == [
        Target("web_fetch", "host", "xn--bcher-kva.example")
    ]
    with pytest.raises(ToolFailed):
        web_fetch.targets({"url": "http://user@example.com"}, None)
