"""The OpenAPI document: of every route and of nothing else. That answers are what it says, the client checks."""

from __future__ import annotations

import re
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew import ids
from clew.fronts.http.answer import answer
from clew.fronts.http.app import make_endpoints, make_routes
from clew.fronts.http.chat import Chat
from clew.fronts.http.handlers import Handlers, Pages
from clew.fronts.http.identity import Engines
from clew.fronts.http.openapi import make_document
from clew.fronts.http.sse import Streams
from clew.fronts.web import load_page
from clew.testing.clock import FakeClock
from clew.triggers.values.webhook import key_of
from tests.integration.http_client import served
from tests.integration.http_document import check_answer, check_frame, document

OPERATIONS = [(method, path, said) for path, held in document()["paths"].items() for method, said in held.items()]


def test_every_route_and_method_is_in_it_and_nothing_else_is() -> None:
    """HEAD goes with GET and is not named."""
    routes = make_routes(None, Streams())  # type: ignore[arg-type]
    served_ = {(method, one.path) for one in routes for method in (one.methods or set()) - {"HEAD"}}
    assert {(method.upper(), path) for method, path, _ in OPERATIONS} == served_


async def test_it_is_served_behind_the_token() -> None:
    """As every route is but the page and the health of the server; and it is the one the tests hold answers against."""
    async with served() as client:
        answer = await client.get("/openapi.json")
        assert (answer.status, answer.json()) == (200, document())
        assert (await client.get("/openapi.json", headers={"authorization": None})).status == 401
        assert (await client.get("/openapi.json", headers={"sec-fetch-site": "cross-site"})).status == 403


def test_nothing_is_served_that_is_not_in_the_table_and_all_that_is_in_it() -> None:
    """A handler the table does not know, and an operation nobody answers, are found when the routes are made."""

    class New:
        async def new(self, _: Any) -> Any:
            return answer({})

    none = Engines(None)  # type: ignore[arg-type]
    own = (Pages(load_page()), Handlers(none, Streams(), None), Chat(none, Streams()))
    with pytest.raises(TypeError, match="not in the table of operations: new"):
        make_endpoints(none, (*own, New()))
    with pytest.raises(TypeError, match="no handler for page"):
        make_endpoints(none, own[1:])


def test_every_reference_leads_somewhere_and_every_schema_is_one() -> None:
    """Operations have names of their own and a summary; components that nothing refers to are not there."""
    text = str(document())
    references = set(re.findall(r"'\$ref': '#/components/(\w+)/(\w+)'", text))
    components = document()["components"]
    held = {(kind, name) for kind in ("schemas", "responses", "headers") for name in components[kind]}
    assert references == held
    for schema in components["schemas"].values():
        jsonschema_rs.meta.validate(schema)
    names = [said["operationId"] for _, _, said in OPERATIONS]
    assert len(set(names)) == len(names)
    assert [said["operationId"] for _, _, said in OPERATIONS if not said["summary"].endswith(".")] == []


def test_every_operation_says_how_it_is_refused() -> None:
    """Strangers everywhere but on the page; bad ids where there are some, bad bodies where there is one."""
    for method, path, said in OPERATIONS:
        responses = set(said["responses"])
        expected = {"403", "5XX"}
        expected |= set() if said.get("security") == [] else {"401", "429"}
        expected |= {"400", "404"} if "{" in path else set()
        expected |= {"400", "413", "422"} if "requestBody" in said else set()
        assert responses >= expected, (method, path)
        assert [status for status in responses if status.startswith("2")], (method, path)
    open_ = [path for _, path, said in OPERATIONS if said.get("security") == []]
    assert open_ == ["/", "/assets/{file}", "/api/health", "/api/health/ready", "/api/hooks/{name}"]


def test_ids_in_paths_have_their_forms() -> None:
    """A session's is an id of any store, or an alias; turns, messages and blobs have their own."""
    patterns: dict[str, set[str]] = {}
    for _, path, said in OPERATIONS:
        for parameter in said.get("parameters", ()):
            if parameter["in"] == "path":
                kinds = {"turns": "turn", "schedules": "schedule"}
                kind = kinds.get(path.split("/")[2], parameter["name"])
                patterns.setdefault(kind, set()).add(parameter["schema"].get("pattern", ""))
    clew = "[0-9a-f]{12}[0-9A-Za-z]{14}"
    assert patterns == {
        "id": {r"^[\x20-\x7e]{1,128}$"},
        "turn": {f"^trn_{clew}$"},
        "message_id": {r"^[\x20-\x7e]{1,128}$"},
        "sha256": {"^[0-9a-f]{64}$"},
        "approval_id": {""},
        "loss_id": {"^loss-[0-9a-f]{1,18}$"},
        "file": {""},
        "tool_call_id": {""},
        "schedule": {f"^sch_{clew}$"},
        "name": {r"^([0-9a-f]{16}\.)?[a-z0-9][a-z0-9_-]{0,63}$"},
    }


def test_query_parameters_have_their_types_and_defaults() -> None:
    """Those of the list, as an example of all."""
    said = document()["paths"]["/api/sessions"]["get"]["parameters"]
    assert {one["name"]: one["schema"] for one in said if one["name"] in ("limit", "kind", "archived")} == {
        "limit": {"type": "integer", "minimum": 1, "maximum": 200, "default": 50},
        "kind": {"enum": ["any", "chat", "subagent"], "default": "chat"},
        "archived": {"type": "boolean", "default": False},
    }
    explain = document()["paths"]["/api/sessions/{id}/permissions/explain"]["get"]["parameters"]
    assert [(one["name"], one["required"]) for one in explain] == [("id", True), ("tool", True), ("target", False)]


def test_the_check_of_answers_finds_what_is_wrong() -> None:
    """A control: other statuses, other shapes, other kinds of content and other frames do not pass."""
    json_ = {"content-type": "application/json"}
    check_answer("GET", "/api/health", 200, json_, b'{"version": "1", "store": "memory", "login": "token"}')
    for status, headers, body in [
        (200, json_, b'{"version": 1, "store": "memory", "login": "token"}'),
        (200, json_, b'{"store": "memory"}'),
        (418, json_, b"{}"),
        (200, {"content-type": "text/plain"}, b"ok"),
        (403, {"content-type": "application/problem+json"}, b'{"detail": "no"}'),
    ]:
        with pytest.raises((AssertionError, jsonschema_rs.ValidationError)):
            check_answer("GET", "/api/health", status, headers, body)
    with pytest.raises(jsonschema_rs.ValidationError):
        check_frame("GET", "/api/events", {"session_id": "no type"})


ID_FIELDS = re.compile(r"(?:session|turn|message|approval|event|schedule)_id|(?:next_)?cursor")


def texts_of(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in (schema, *schema.get("anyOf", ())) if one.get("type") == "string"]


def test_ids_and_cursors_say_what_they_look_like_and_frames_are_objects() -> None:
    """Wherever one stands: in a schema, in a path, in a query. Of damage the session may be called anything."""
    document = make_document()
    bare = [
        f"{name}.{field}"
        for name, component in document["components"]["schemas"].items()
        for field, schema in component.get("properties", {}).items()
        if ID_FIELDS.fullmatch(field) and name != "Damage"
        for one in texts_of(schema)
        if "pattern" not in one
    ]
    frames = []
    for path, methods in document["paths"].items():
        for method, said in methods.items():
            bare += [
                f"{method} {path} {parameter['name']}"
                for parameter in said.get("parameters", ())
                if parameter["name"] in ("id", "session", "turn", "message_id", "cursor")
                for one in texts_of(parameter["schema"])
                if "pattern" not in one
            ]
            contents = (one.get("content", {}) for one in said["responses"].values())
            frames += [one["text/event-stream"]["schema"] for one in contents if "text/event-stream" in one]
    assert bare == []
    named = {frame["$ref"].rpartition("/")[2] for frame in frames}
    assert {document["components"]["schemas"][name]["type"] for name in named} == {"object"}


def pattern_of(name: str, field: str) -> re.Pattern[str]:
    [one] = texts_of(make_document()["components"]["schemas"][name]["properties"][field])
    return re.compile(one["pattern"])


def form_of(path: str, parameter: str) -> re.Pattern[str]:
    [said] = [one for one in make_document()["paths"][path]["get"]["parameters"] if one["name"] == parameter]
    [one] = texts_of(said["schema"])
    return re.compile(one["pattern"])


@given(stamps=st.lists(st.integers(0, 2**41 - 1), min_size=1, max_size=5), number=st.integers(0, 2**60))
def test_what_is_minted_or_derived_fits_the_patterns(stamps: list[int], number: int) -> None:
    """At any time, of every form, also what is made of another program's names."""
    clock = FakeClock(ids.EPOCH_MS)
    mint = ids.Mint(clock, lambda limit: number % limit)
    for stamp in stamps:
        clock.advance(stamp // len(stamps))
        for form in ids.SessionIdForm:
            assert pattern_of("SessionShape", "id").fullmatch(mint.session(form))
            assert pattern_of("SessionShape", "id").fullmatch(ids.derived_session_id(form, str(number)))
            assert pattern_of("ChatBody", "id").fullmatch(mint.session(form))
        for name, field, made in (
            ("Message", "id", mint.message()),
            ("TreeTurn", "id", mint.turn()),
            ("TreeTurn", "id", ids.derived_id("trn_", "s", str(number), ids.EPOCH_MS + stamp)),
            ("Waiting", "approval_id", mint.approval()),
            ("LedgerEvent", "id", mint.event()),
            ("Schedule", "id", mint.schedule()),
        ):
            assert pattern_of(name, field).fullmatch(made), made


@given(name=st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=128))
def test_every_alias_and_every_id_of_a_client_fits_the_patterns(name: str) -> None:
    assert pattern_of("ChatBody", "id").fullmatch(name)
    assert pattern_of("Message", "id").fullmatch(name)
    for path in ("/api/sessions/{id}", "/api/chat/{id}/stream"):
        assert form_of(path, "id").fullmatch(name)
    assert form_of("/api/sessions", "parent").fullmatch(name)
    assert ids.is_alias(name) or name.startswith("ses_")


@pytest.mark.parametrize("owner", [None, "ada"])
def test_the_key_that_a_webhook_is_delivered_under_fits(owner: str | None) -> None:
    """An owner's holds a dot, which a name does not."""
    for said in make_document()["paths"]["/api/hooks/{name}"].values():
        [one] = said["parameters"]
        assert re.fullmatch(one["schema"]["pattern"], key_of(owner, "orders"))
