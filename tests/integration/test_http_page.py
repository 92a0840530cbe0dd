"""The web page's own files: what is served, under which headers, and what is not."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import clew
from clew.fronts.http.app import make_app
from clew.fronts.http.sse import Streams
from clew.fronts.web import load_page
from tests.integration.http_client import HOST, TOKEN, AsgiClient, served

STRANGER = {"authorization": None}
INDEX = "<!doctype html><title>page</title><script type=module src=/assets/index-Ab3_x-Z9.js></script>"
SAFE = {
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
OWN = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; frame-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
APART = (
    # The hash of "draw()", as the browser computes it.
    "default-src 'none'; script-src 'sha256-jm3FkV4tNIdBUr8jRVVl5n9PUixlaxTWD0pdpFiSH5A='; "
    "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'; sandbox allow-scripts"
)
NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def build(folder: Path) -> Path:
    """A built page, as small as one can be, with things beside it that are not part of it."""
    dist = folder / "dist"
    (dist / "assets" / "deep").mkdir(parents=True)
    (dist / "index.html").write_text(INDEX)
    (dist / "source.sha256").write_text("0" * 64)
    (dist / "assets" / "index-Ab3_x-Z9.js").write_text("export {}")
    (dist / "assets" / "plain.css").write_text("p {}")
    (dist / "assets" / "font-12345678.woff2").write_bytes(b"wOF2")
    (dist / "assets" / "odd-12345678.thing").write_bytes(b"\0")
    (dist / "assets" / "deep" / "hidden.js").write_text("no")
    (folder / "secret.txt").write_text("a secret")
    (dist / "assets" / "link-12345678.txt").symlink_to(folder / "secret.txt")
    return dist


@contextlib.asynccontextmanager
async def paged(dist: Path) -> AsyncIterator[AsgiClient]:
    async with clew.open("memory:") as engine:
        streams = Streams()
        app = make_app(engine, token=TOKEN, hosts={HOST}, streams=streams, page=load_page(dist))
        yield AsgiClient(app, engine, streams)


async def test_the_page_and_its_files_are_served_without_a_token(tmp_path: Path) -> None:
    """Each with its type, its policy, and for how long it is good."""
    async with paged(build(tmp_path)) as client:
        told = {}
        for path in ("/", "/assets/index-Ab3_x-Z9.js", "/assets/plain.css", "/assets/font-12345678.woff2"):
            answer = await client.get(path, headers=STRANGER)
            headers = answer.headers
            assert answer.status == 200
            assert headers.items() >= SAFE.items()
            assert len(headers["etag"]) == 34
            told[path] = (headers["content-type"], headers["cache-control"], headers["content-security-policy"])
        for_good = "public, max-age=31536000, immutable"
        assert told == {
            "/": ("text/html; charset=utf-8", "no-cache", OWN),
            "/assets/index-Ab3_x-Z9.js": ("text/javascript; charset=utf-8", for_good, NOTHING),
            "/assets/plain.css": ("text/css; charset=utf-8", "no-cache", NOTHING),
            "/assets/font-12345678.woff2": ("font/woff2", for_good, NOTHING),
        }
        assert (await client.get("/")).body.decode() == INDEX
        odd = await client.get("/assets/odd-12345678.thing")
        assert (odd.headers["content-type"], odd.body) == ("application/octet-stream", b"\0")


async def test_what_draws_diagrams_is_shut_in_and_only_the_page_may_frame_it(tmp_path: Path) -> None:
    """Also where somebody opens it by its address: it is of an origin of its own, and runs one script."""
    dist = build(tmp_path)
    (dist / "assets" / "diagram.html").write_text("<!doctype html><script>draw()</script>")
    async with paged(dist) as client:
        headers = (await client.get("/assets/diagram.html", headers=STRANGER)).headers
        assert (headers["content-security-policy"], headers["x-frame-options"]) == (APART, "SAMEORIGIN")
        assert (headers["content-type"], headers["cache-control"]) == ("text/html; charset=utf-8", "no-cache")


async def test_who_has_it_already_is_not_sent_it_again(tmp_path: Path) -> None:
    """By its tag, weak or among others; another page has another tag."""
    dist = build(tmp_path)
    async with paged(dist) as client:
        tag = (await client.get("/")).headers["etag"]
        for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            answer = await client.get("/", headers={"if-none-match": known})
            assert (answer.status, answer.body, answer.headers["etag"]) == (304, b"", tag)
        assert (await client.get("/", headers={"if-none-match": '"other"'})).status == 200
    (dist / "index.html").write_text("another")
    load_page.cache_clear()
    async with paged(dist) as client:
        assert (await client.get("/", headers={"if-none-match": tag})).body == b"another"


async def test_head_is_answered_for_them(tmp_path: Path) -> None:
    """With what GET would have said."""
    async with paged(build(tmp_path)) as client:
        for path in ("/", "/assets/plain.css"):
            head, get = await client.request("HEAD", path, headers=STRANGER), await client.get(path)
            assert (head.status, head.headers["etag"], head.headers["content-length"]) == (
                200,
                get.headers["etag"],
                get.headers["content-length"],
            )
        assert (await client.post("/assets/plain.css", {})).status == 405


async def test_only_what_was_there_at_the_start_is_a_file_of_the_page(tmp_path: Path) -> None:
    """Nothing beside it, nothing above it, no link out of it, nothing that came later; and the API stays the API."""
    dist = build(tmp_path)
    async with paged(dist) as client:
        (dist / "assets" / "later-12345678.js").write_text("late")
        (dist / "assets" / "plain.css").unlink()
        assert (await client.get("/assets/plain.css")).body == b"p {}"
        for name in (
            "later-12345678.js",
            "link-12345678.txt",
            "deep",
            "deep%2Fhidden.js",
            "..%2Findex.html",
            "..%2F..%2Fsecret.txt",
            "%2e%2e",
            "index.html",
            "PLAIN.CSS",
            "plain.css%00",
        ):
            answer = await client.get(f"/assets/{name}")
            assert (answer.status, answer.code) in [(404, "asset_not_found"), (404, "not_found")], name
        for path in ("/assets/deep/hidden.js", "/assets/", "/assets", "/index.html", "/source.sha256", "/api/nothing"):
            assert (await client.get(path)).code == "not_found", path
        assert (await client.get("/api/nothing", headers=STRANGER)).code == "unauthorized"
        for path in ("/", "/assets/font-12345678.woff2"):
            assert (await client.get(path, headers={"host": "evil.test"})).code == "forbidden_host"
        cross = {"sec-fetch-site": "cross-site"}
        assert (await client.get("/assets/font-12345678.woff2", headers=cross)).code == "forbidden_host"


async def test_a_checkout_without_a_build_says_how_to_make_one(tmp_path: Path) -> None:
    """A page with nothing to run on it."""
    async with paged(tmp_path / "nothing") as client:
        answer = await client.get("/", headers=STRANGER)
        assert (answer.status, "make web" in answer.body.decode()) == (200, True)
        assert answer.headers["content-security-policy"] == NOTHING
        assert (await client.get("/assets/index-12345678.js")).status == 404


async def test_the_server_serves_the_page_that_is_built() -> None:
    """Or the stand-in, whichever is there."""
    async with served() as client:
        assert (await client.get("/")).body == load_page().index.data
