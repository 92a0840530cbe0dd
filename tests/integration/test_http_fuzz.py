"""Every operation of the document, with requests drawn from it and with bytes that no client should send.

Whatever comes: an answer that the document knows, never a 5xx, and from what was refused nothing in the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from clew.fronts.http.request import MAX_BODY
from tests.integration.http_client import AsgiClient
from tests.integration.http_document import document
from tests.integration.http_fuzzed import BAD_IDS, BODIED, OPERATIONS, bodies, fuzzing, id_of
from tests.integration.http_values import HOSTILE, bent, fitting
from tests.rounds import rounds

pytestmark = pytest.mark.slow
EXAMPLES = rounds(20)
FEWER = rounds(10)
"""For routes with little to draw: those of schedules and webhooks."""


class Drawn(NamedTuple):
    """A request in the making. Where an id is None, and for those in a body that is ``real``, the ones there are."""

    ids: dict[str, str | None]
    query: str
    body: Any
    real: bool


@st.composite
def requests(draw: st.DrawFn, method: str, path: str) -> Drawn:
    """Ids, a query and a body; each fits, or is bent."""
    said = document()["paths"][path][method.lower()]
    ids: dict[str, str | None] = {}
    query = []
    for parameter in said.get("parameters", ()):
        name, schema = parameter["name"], parameter["schema"]
        if parameter["in"] == "path":
            # Mostly the one that is there: behind a bad id there is nothing to find.
            other = st.sampled_from(BAD_IDS) | fitting(schema).map(lambda one: quote(one, safe=""))
            ids[name] = draw(other) if draw(st.integers(0, 5)) == 0 else None
        elif parameter["required"] or draw(st.booleans()):
            value = draw(fitting(schema)) if draw(st.booleans()) else draw(st.sampled_from(HOSTILE))
            text = value if isinstance(value, str) else json.dumps(value)
            query.append(f"{name}={quote(text.encode(errors='replace'), safe='')}")
    body = None
    if "requestBody" in said:
        schema = said["requestBody"]["content"]["application/json"]["schema"]
        body = draw(fitting(schema)) if draw(st.booleans()) else draw(bent(schema))
    return Drawn(ids, "&".join(query), body, draw(st.booleans()))


@pytest.mark.parametrize(("method", "path"), [one for one in OPERATIONS if one != ("GET", "/api/events")])
def test_every_operation_answers_what_the_document_says(method: str, path: str) -> None:
    """To requests that fit and to requests that are bent: nothing undocumented, no 5xx, no write by a refusal."""
    with asyncio.Runner() as runner:
        open_ = contextlib.AsyncExitStack()
        made = runner.run(open_.enter_async_context(fuzzing()))

        @settings(
            max_examples=FEWER if path.startswith(("/api/schedules", "/api/hooks")) else EXAMPLES,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(requests(method, path))
        def ask(drawn: Drawn) -> None:
            runner.run(made.ask(method, *filled(path, drawn, made.known)))

        ask()
        runner.run(open_.aclose())


def filled(path: str, drawn: Drawn, known: dict[str, str]) -> tuple[str, Any]:
    """The path and the body of a request, with the ids that are there."""
    chosen = {name: value or id_of(path, name, known) for name, value in drawn.ids.items()}
    body = drawn.body
    if drawn.real and isinstance(body, dict):
        own = {"id": known["id"], "from_message_id": known["message_id"], "turn_id": known["turn"]}
        if path.endswith("/rewind"):
            own["message_id"] = known["message_id"]
        body = {**body, **{name: own[name] for name in body.keys() & own.keys()}}
    return path.format(**chosen) + (f"?{drawn.query}" if drawn.query else ""), body


@pytest.mark.parametrize(
    ("method", "path", "store"),
    [(*one, store) for store, routes in (("memory", BODIED), ("file", BODIED[::6])) for one in routes],
)
async def test_no_bytes_break_a_route_that_reads_them(method: str, path: str, store: str, tmp_path: Path) -> None:
    """Each of the corpus: answered as the document says, a refusal writes nothing, and afterwards all works as ever.

    What reads a body knows no store: on a file a few routes stand for all.
    """
    async with fuzzing(tmp_path if store == "file" else None) as made:
        for data in bodies().values():
            chosen = {name: id_of(path, name, made.known) for name in re.findall(r"{(\w+)}", path)}
            await made.ask(method, path.format(**chosen), data)
        assert (await made.client.chat(await made.client.session(), "still there?"))[-1]["type"] == "finish"


async def test_no_bytes_break_a_route_that_reads_none() -> None:
    """A body where none belongs is not looked at."""
    async with fuzzing() as made:
        for method, path in OPERATIONS:
            if (method, path) in BODIED or method == "DELETE" or path == "/api/events":
                continue
            chosen = {name: id_of(path, name, made.known) for name in re.findall(r"{(\w+)}", path)}
            for data in (b"{", b"\x00" * 1000, b"[" * 10_000):
                await made.ask(method, path.format(**chosen), data)


@pytest.mark.parametrize("store", ["memory", "file"])
async def test_what_is_written_is_seen(store: str, tmp_path: Path) -> None:
    """The control: without it, nothing written would mean nothing."""
    async with fuzzing(tmp_path if store == "file" else None) as made:
        before = made.written()
        await made.client.session()
        assert made.written() != before


HEADERS: list[dict[str, str | None]] = [
    {"content-type": None},
    {"content-type": "text/plain"},
    {"content-type": "application/x-www-form-urlencoded"},
    {"content-type": "application/json; charset=utf-16"},
    {"content-type": "multipart/form-data; boundary=x"},
    {"content-type": "x" * 5_000},
    {"content-encoding": "gzip"},
    {"content-length": "-1"},
    {"content-length": "99999999999999999999999999999"},
    {"content-length": "0x10"},
    {"content-length": "١"},
    {"transfer-encoding": "chunked, identity"},
    {"accept": "text/event-stream, " * 500},
    {"accept": "application/xml"},
    {"x-http-method-override": "DELETE"},
    {"x-forwarded-host": "evil.example", "x-forwarded-for": "203.0.113.1", "forwarded": "host=evil.example"},
    {"x-original-url": "/api/health", "x-rewrite-url": "/api/health"},
    {"cookie": "token=x; " * 200},
    {"range": "bytes=0-1"},
    {"if-none-match": "*", "if-modified-since": "never"},
    {"expect": "100-continue"},
    {"upgrade": "websocket", "connection": "upgrade"},
    {"x-request-id": "a\tb", "traceparent": "00-0-0-0"},
]


@pytest.mark.parametrize("headers", HEADERS, ids=lambda headers: next(iter(headers)))
async def test_no_header_changes_what_a_request_is(headers: dict[str, str | None]) -> None:
    """Read, written and streamed as ever, or refused; no header makes it something else."""
    async with fuzzing() as made:
        client, session_id = made.client, made.known["id"]
        sent = {name: value.encode().decode("latin-1") if value else value for name, value in headers.items()}
        before = await client.messages(session_id)
        for method, path, body, good in [
            ("GET", "/api/sessions", None, {200}),
            ("GET", f"/api/sessions/{session_id}/messages", None, {200}),
            ("PATCH", f"/api/sessions/{session_id}", {"title": "t"}, {200, 413}),
            ("GET", f"/api/chat/{session_id}/stream", None, {204}),
        ]:
            assert (await client.request(method, path, body, headers=sent)).status in good, path
        assert await client.messages(session_id) == before
        stranger = await client.get("/api/sessions", headers={**sent, "authorization": None})
        assert (stranger.status, stranger.code) == (401, "unauthorized")


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "PROPFIND", "OPTIONS", "PUT", "PATCH", "DELETE", "POST", "GET"])
async def test_a_method_that_is_not_for_a_path_is_405_and_says_which_are(method: str) -> None:
    """With what the document has for it, and HEAD where it has an end."""
    async with fuzzing() as made:
        for path, said in document()["paths"].items():
            if method.lower() in said:
                continue
            chosen = {name: id_of(path, name, made.known) for name in re.findall(r"{(\w+)}", path)}
            answer = await made.client.request(method, path.format(**chosen), {})
            assert (answer.status, answer.code) == (405, "method_not_allowed"), path
            allowed = {one.upper() for one in said}
            streams = any(
                "text/event-stream" in str(one["responses"]["200"])
                for one in said.values()
                if "200" in one["responses"]
            )
            assert set(answer.headers["allow"].split(", ")) == allowed | (
                {"HEAD"} if "GET" in allowed and not streams else set()
            )


async def test_head_is_get_without_the_body_and_never_a_stream() -> None:
    """The same status and headers; a stream would have no end, so there is none."""
    async with fuzzing() as made:
        client, session_id = made.client, made.known["id"]
        for path in ("/", "/api/health", "/api/sessions", f"/api/sessions/{session_id}", "/openapi.json"):
            head, get = await client.request("HEAD", path), await client.get(path)
            assert (head.status, head.headers["content-type"]) == (get.status, get.headers["content-type"])
        for path in ("/api/events", f"/api/sessions/{session_id}/status", f"/api/chat/{session_id}/stream"):
            assert (await client.request("HEAD", path)).status == 405


async def arriving(client: AsgiClient, path: str, pieces: AsyncIterator[dict[str, Any]]) -> tuple[int, int]:
    """A POST whose body comes as told: the status of the answer, 0 for none, and how many pieces were taken."""
    taken, status = 0, 0
    headers = [(b"host", client.host.encode()), (b"authorization", f"Bearer {client.token}".encode())]
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
    }

    async def receive() -> Any:
        nonlocal taken
        taken += 1
        return await anext(pieces)

    async def send(message: Any) -> None:
        nonlocal status
        status = message.get("status", status)

    await client.app({**scope, "headers": headers, "http_version": "1.1", "scheme": "http"}, receive, send)
    return status, taken


async def test_a_body_without_an_end_is_taken_up_to_its_limit() -> None:
    """Chunks that never stop are 413 once the limit is reached, and no more of them is read."""
    piece = {"type": "http.request", "body": b" " * (1024 * 1024), "more_body": True}

    async def endless() -> AsyncIterator[dict[str, Any]]:
        while True:
            yield piece

    async with fuzzing() as made:
        before = made.written()
        status, taken = await arriving(made.client, f"/api/sessions/{made.known['id']}/prompt", endless())
        assert (status, taken, made.written()) == (413, MAX_BODY // len(piece["body"]) + 1, before)  # type: ignore[arg-type]


async def test_a_client_that_leaves_in_the_middle_of_its_body_has_sent_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """There is nobody to tell, nothing is written, and it is no failure of the server's."""

    async def leaving() -> AsyncIterator[dict[str, Any]]:
        yield {"type": "http.request", "body": b'{"text": "he', "more_body": True}
        while True:
            yield {"type": "http.disconnect"}

    async with fuzzing() as made:
        before = made.written()
        status, _ = await arriving(made.client, f"/api/sessions/{made.known['id']}/prompt", leaving())
        assert (status, made.written()) == (400, before)
        assert [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []
