"""web_fetch against a server on loopback, with the address policy opened for exactly that."""

from __future__ import annotations

import pytest

from clew.errors import PermissionDenied, ToolFailed
from clew.tools.web.fetch import Fetcher
from clew.transcript.rule import Target
from tests.integration.website import ZONE, Site, Zone, fetch, in_short, page, site
from tests.unit.test_tools_support import Permits

__all__ = ["site"]


def redirect(location: str, status: str = "302 Found") -> bytes:
    return page("", "text/plain", status, f"Location: {location}")


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
