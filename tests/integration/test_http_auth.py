"""Who gets in: token, Host and Origin, on every route, before anything else is looked at."""

from __future__ import annotations

import pytest

from clew.fronts.http.auth import MAX_FAILURES, AnyAddress, BearerTokens, Guard, loopback_hosts
from clew.testing.scripted import hang
from tests.integration.http_client import HOST, TOKEN, AsgiClient, served

ID = "ses_" + "0" * 26
ROUTES = [
    ("GET", "/api/sessions"),
    ("POST", "/api/sessions"),
    ("GET", f"/api/sessions/{ID}"),
    ("PATCH", f"/api/sessions/{ID}"),
    ("DELETE", f"/api/sessions/{ID}"),
    ("GET", f"/api/sessions/{ID}/messages"),
    ("POST", f"/api/sessions/{ID}/prompt"),
    ("POST", f"/api/sessions/{ID}/continue"),
    ("POST", f"/api/sessions/{ID}/abort"),
    ("GET", f"/api/sessions/{ID}/status"),
    ("GET", f"/api/sessions/{ID}/queue"),
    ("DELETE", f"/api/sessions/{ID}/queue/m"),
    ("POST", f"/api/sessions/{ID}/approvals/a"),
    ("POST", f"/api/sessions/{ID}/answers/c"),
    ("POST", "/api/chat"),
    ("GET", f"/api/chat/{ID}/stream"),
    ("GET", "/api/events"),
    ("GET", "/api/models"),
    ("GET", "/api/agents"),
    ("GET", "/api/blobs/" + "0" * 64),
    ("GET", "/api/nothing-here"),
    ("POST", "/api/health"),
    ("GET", "/api/health/"),
    ("GET", "/favicon.ico"),
    ("OPTIONS", "/api/sessions"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_no_route_answers_without_the_token(method: str, path: str) -> None:
    """Neither without one, nor with another, nor in another form; also where nothing is."""
    async with served() as client:
        for given in (None, "", TOKEN, "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x"):
            answer = await client.request(method, path, headers={"authorization": given})
            assert (answer.status, answer.code) == (401, "unauthorized"), given
            assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(("method", "path"), [*ROUTES, ("GET", "/"), ("GET", "/api/health")])
async def test_every_route_answers_only_to_its_own_host(method: str, path: str) -> None:
    """A name that somebody made point here gets nothing, with the right token too, streams and the page included."""
    async with served() as client:
        for host in ("evil.example", "evil.example:7717", "clew.test", "clew.test:7718", f"{HOST}.evil", "", None):
            answer = await client.request(method, path, headers={"host": host})
            assert (answer.status, answer.code) == (403, "forbidden_host"), host


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_pages_of_other_servers_are_refused(method: str, path: str) -> None:
    """An Origin must be this server; what a browser calls cross-site is refused too."""
    async with served() as client:
        for headers in (
            {"origin": "http://evil.example"},
            {"origin": "null"},
            {"origin": "http://clew.test:7718"},
            {"origin": f"http://{HOST}.evil.example"},
            {"origin": f"ftp://{HOST}"},
            *([{"sec-fetch-site": "cross-site"}] if path.startswith("/api/") else []),
        ):
            answer = await client.request(method, path, headers=headers)
            assert (answer.status, answer.code) == (403, "forbidden_host"), headers


async def test_our_own_page_and_clients_without_one_get_in() -> None:
    """The page's Origin, another case of Host and scheme, and no Origin at all."""
    async with served() as client:
        for headers in (
            {},
            {"origin": f"http://{HOST}"},
            {"origin": f"https://{HOST}", "sec-fetch-site": "same-origin"},
            {"host": HOST.upper()},
            {"authorization": f"bearer {TOKEN}"},
        ):
            assert (await client.get("/api/sessions", headers=headers)).status == 200, headers


async def test_health_and_the_page_need_no_token() -> None:
    """They say that clew is here, and nothing about what it holds."""
    async with served() as client:
        health = await client.get("/api/health", headers={"authorization": None})
        assert health.status == 200
        assert health.json().keys() == {"version", "store", "login"}
        page = await client.get("/", headers={"authorization": None, "sec-fetch-site": "cross-site"})
        assert page.status == 200
        assert page.headers["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.rule("RP-5")
async def test_a_server_that_drains_is_up_and_not_ready_and_sends_prompts_elsewhere() -> None:
    """Whoever balances asks without a token; a prompt is refused with nothing stored, and is told to come again."""
    async with served() as client:
        ready = await client.get("/api/health/ready", headers={"authorization": None})
        assert (ready.status, ready.json().keys()) == (200, {"version", "store", "login"})
        assert (await client.get("/api/replicas")).json() == {"replicas": []}
        session = await client.engine.create_session(title="t")
        await client.engine.drain(1)
        assert (await client.get("/api/health", headers={"authorization": None})).status == 200
        asked = [
            await client.get("/api/health/ready", headers={"authorization": None}),
            await client.post(f"/api/sessions/{session.id}/prompt", {"parts": [{"type": "text", "text": "hello"}]}),
        ]
        for reply in asked:
            assert (reply.status, reply.json()["code"], reply.headers["retry-after"]) == (503, "replica_away", "1")
        assert await client.engine.messages(session.id) == []


async def test_refusals_come_before_the_body_is_read() -> None:
    """A stranger's gigabytes are not waited for."""
    async with served() as client:
        answer = await client.post("/api/chat", headers={"authorization": None, "content-length": "999999999999"})
        assert answer.status == 401


async def test_guessing_is_slowed_down_and_never_holds_up_the_owner() -> None:
    """After some failures strangers get 429; the right token works all the same; later it begins anew."""
    async with served() as client:
        now = [0.0]
        client = AsgiClient(
            Guard(client.app, authenticate=BearerTokens(TOKEN), hosts={HOST}, now=lambda: now[0]),
            client.engine,
            client.streams,
        )
        wrong = {"authorization": "Bearer wrong"}
        seen = [(await client.get("/api/sessions", headers=wrong)).status for _ in range(MAX_FAILURES + 2)]
        assert seen == [401] * MAX_FAILURES + [429] * 2
        assert (await client.get("/api/sessions")).status == 200
        now[0] = 60.0
        assert (await client.get("/api/sessions", headers=wrong)).status == 401


async def test_a_stream_does_not_begin_for_a_wrong_host() -> None:
    """The check comes before the run is looked for, so not even its existence shows."""
    async with served(hang()) as client:
        session_id = await client.session()
        await client.prompt(session_id, "go")
        answer = await client.get(f"/api/chat/{session_id}/stream", headers={"host": "evil.example"})
        assert (answer.status, answer.code) == (403, "forbidden_host")


def test_which_hosts_a_server_answers_to() -> None:
    """On loopback its names with the port; where others may come, addresses by number and names it was given."""
    assert loopback_hosts(7717) == {"127.0.0.1:7717", "localhost:7717", "[::1]:7717"}
    assert "localhost" in loopback_hosts(80)
    hosts = AnyAddress(7717, frozenset({"box:7717"}))
    taken = ["box:7717", "192.168.1.9:7717", "[2001:db8::1]:7717", "10.0.0.1:7717"]
    assert [host for host in taken if host not in hosts] == []
    refused = ["box", "192.168.1.9", "192.168.1.9:80", "evil.example:7717", "1.2.3.4.evil:7717", "", ":7717", 7717]
    assert [host for host in refused if host in hosts] == []
