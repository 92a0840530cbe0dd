"""Sessions over HTTP: made, listed, looked at, changed, removed; and what the host says about itself."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from clew import errors as e
from clew.errors import InvalidInput
from clew.fronts.http.problem import problem, status_of
from clew.testing.scripted import Gate, call, hang, say, wait
from tests.integration.http_client import AsgiClient, served, texts

SESSION_KEYS = """
id agent title label workspace_root model parent_id parent_message_id kind head_turn_id metadata prompt_tokens
completion_tokens reasoning_tokens cache_read cache_write total_tokens cost_usd created_at updated_at archived_at owner
alias status mode spend pinned
"""
NOBODY = "ses_" + "0" * 26


async def test_a_new_session_has_every_field_and_absent_is_null() -> None:
    """201 with the whole shape; what was given is there, what lives in metadata is lifted out."""
    async with served() as client:
        answer = await client.post("/api/sessions", {})
        session = answer.json()
        assert answer.status == 201
        assert list(session) == SESSION_KEYS.split()
        assert [session[key] for key in ("title", "label", "workspace_root", "parent_id", "archived_at")] == [None] * 5
        assert (session["kind"], session["agent"], session["status"]) == ("chat", "assistant", {"state": "idle"})
        assert session["created_at"] == session["updated_at"] > 1_700_000_000_000
        given = {
            "agent": "explore",
            "title": "Größe",
            "model": "test/other",
            "metadata": {"label": "l", "n": 1},
            "system_prompt": "Be brief.",
            "nobody_knows": "this",
        }
        session = (await client.post("/api/sessions", given)).json()
        assert (session["agent"], session["title"], session["label"]) == ("explore", "Größe", "l")
        assert session["model"] == {"provider_id": "test", "model_id": "other"}
        assert session["metadata"] == {"label": "l", "n": 1, "title": "Größe", "system_prompt": "Be brief."}
        assert (await client.get(f"/api/sessions/{session['id']}")).json() == session


async def test_the_list_filters_and_pages(tmp_path: Path) -> None:
    """Every parameter does what it says; a cursor goes on where the page ended."""
    async with served() as client:
        first = await client.session(title="alpha", workspace_root=str(tmp_path))
        second = await client.session(title="beta", agent="explore")
        archived = await client.session(title="old")
        hidden = await client.session(metadata={"ephemeral": True})
        child = await client.session(metadata={"kind": "subagent"})
        await client.request("PATCH", f"/api/sessions/{archived}", {"archived": True})

        async def listed(query: str = "") -> list[str]:
            answer = await client.get(f"/api/sessions{query}")
            assert answer.status == 200, answer
            return [session["id"] for session in answer.json()["sessions"]]

        assert sorted(await listed()) == sorted([first, second])
        assert await listed("?agent=explore") == [second]
        assert await listed(f"?workspace={tmp_path}") == [first]
        assert await listed("?q=ALPH") == [first]
        assert await listed("?kind=subagent") == [child]
        assert sorted(await listed("?archived=true")) == sorted([first, second, archived])
        assert sorted(await listed("?ephemeral=1")) == sorted([first, second, hidden])
        assert await listed(f"?parent={first}") == []
        everything = "kind=any&archived=true&ephemeral=true"
        seen: list[str] = []
        cursor = ""
        while True:
            page = (await client.get(f"/api/sessions?{everything}&limit=2{cursor}")).json()
            seen += [session["id"] for session in page["sessions"]]
            if page["next_cursor"] is None:
                break
            cursor = f"&cursor={page['next_cursor']}"
        assert sorted(seen) == sorted([first, second, archived, hidden, child])


async def test_the_list_says_what_each_session_is_doing(tmp_path: Path) -> None:
    """Busy, waiting or idle; waiting also after a restart, from what is stored."""
    store = f"sqlite:///{tmp_path}/store.db"
    gate = Gate()
    async with served(wait(gate), call("bash", {"command": "echo hi"}), store=store) as client:
        busy, idle = await client.session(title="busy"), await client.session(title="idle")
        waiting = await client.session(title="waiting", workspace_root=str(tmp_path))
        await client.prompt(busy, "go")
        await gate.reached.wait()
        await client.prompt(waiting, "go")
        await client.idle(waiting)
        statuses = await listed_statuses(client)
        assert (statuses[busy]["state"], statuses[idle]) == ("busy", {"state": "idle"})
        assert [one["tool"] for one in statuses[waiting]["waiting"]] == ["bash"]
    async with served(store=store) as client:
        statuses = await listed_statuses(client)
        assert (statuses[busy], statuses[idle]) == ({"state": "idle"}, {"state": "idle"})
        assert [one["tool"] for one in statuses[waiting]["waiting"]] == ["bash"]


async def listed_statuses(client: AsgiClient) -> dict[str, dict]:
    sessions = (await client.get("/api/sessions")).json()["sessions"]
    return {session["id"]: session["status"] for session in sessions}


async def test_a_patch_merges_and_the_agent_never_changes() -> None:
    """Title, archive and metadata each by themselves; what is not named stays; the list keeps its order."""
    async with served() as client:
        session_id = await client.session(title="one", metadata={"a": 1, "b": 2})
        path = f"/api/sessions/{session_id}"
        before = (await client.get(path)).json()
        patched = (await client.request("PATCH", path, {"metadata": {"b": 3, "c": [4]}})).json()
        assert patched["metadata"] == {"a": 1, "b": 3, "c": [4], "title": "one"}
        patched = (await client.request("PATCH", path, {"metadata": {"c": None}})).json()
        assert patched["metadata"] == {"a": 1, "b": 3, "title": "one"}
        patched = (await client.request("PATCH", path, {"title": "two", "archived": True})).json()
        assert patched["title"] == "two"
        assert patched["archived_at"] is not None
        patched = (await client.request("PATCH", path, {"archived": False, "title": None})).json()
        assert (patched["archived_at"], patched["title"]) == (None, None)
        assert patched["updated_at"] == before["updated_at"]
        assert (await client.request("PATCH", path, {})).json() == patched
        for body in ({"agent": "explore"}, {"agent": None}, {"title": "x" * 501}, {"archived": "yes"}):
            answer = await client.request("PATCH", path, body)
            assert (answer.status, answer.code) == (422, "invalid_input"), body
        assert (await client.get(path)).json() == patched


@pytest.mark.rule("ST-11")
async def test_delete_is_refused_while_a_run_is_live_unless_forced() -> None:
    """409, then 204, then 404; forced, the run is aborted first."""
    async with served(hang()) as client:
        session_id = await client.session()
        path = f"/api/sessions/{session_id}"
        await client.prompt(session_id, "go")
        answer = await client.request("DELETE", path)
        assert (answer.status, answer.code) == (409, "run_in_flight")
        answer = await client.request("DELETE", f"{path}?force=true")
        assert (answer.status, answer.body) == (204, b"")
        assert (await client.get(path)).code == "session_not_found"
        assert (await client.request("DELETE", path)).status == 404


async def test_messages_by_view_and_page() -> None:
    """The line as it stands; limit takes from the end, before pages back by either id."""
    async with served(*[say(f"answer {n}") for n in range(3)]) as client:
        session_id = await client.session()
        for n in range(3):
            await client.chat(session_id, f"question {n}", f"u{n}")
        path = f"/api/sessions/{session_id}/messages"
        everything = await client.messages(session_id)
        assert [texts(message) for message in everything] == [
            line for n in range(3) for line in (f"question {n}", f"answer {n}")
        ]
        assert all(message.keys() == {"id", "role", "parts", "metadata"} for message in everything)
        assert everything[0]["metadata"]["client_message_id"] == "u0"
        assert await client.messages(session_id, "all") == everything
        assert len(await client.messages(session_id, "model")) == 6
        assert (await client.get(f"{path}?limit=2")).json()["messages"] == everything[-2:]
        assert (await client.get(f"{path}?limit=2&before=u2")).json()["messages"] == everything[2:4]
        assert (await client.get(f"{path}?limit=9&before={everything[2]['id']}")).json()["messages"] == everything[:2]
        assert (await client.get(f"{path}?before=nobody")).code == "message_not_found"


async def test_what_is_not_there_is_404() -> None:
    """Every route of a session that does not exist, and every path nobody serves."""
    async with served() as client:
        for method, path, body in [
            ("GET", "", None),
            ("PATCH", "", {"title": "x"}),
            ("DELETE", "", None),
            ("GET", "/messages", None),
            ("POST", "/prompt", {"text": "x"}),
            ("POST", "/continue", None),
            ("POST", "/abort", None),
            ("GET", "/status", None),
            ("GET", "/queue", None),
            ("DELETE", "/queue/m1", None),
            ("POST", "/approvals/a1", {"decision": "once"}),
            ("POST", "/answers/c1", {"output": 1}),
        ]:
            answer = await client.request(method, f"/api/sessions/{NOBODY}{path}", body)
            assert (answer.status, answer.code) == (404, "session_not_found"), path
        assert (await client.get(f"/api/chat/{NOBODY}/stream")).code == "session_not_found"
        for path in ("/api", "/api/", "/api/sessions/", f"/api/sessions/{NOBODY}/", "/nope", "/api/chat/x"):
            answer = await client.get(path)
            assert (answer.status, answer.code) == (404, "not_found"), path
        assert (await client.get("/api/blobs/" + "0" * 64)).status == 404


async def test_a_wrong_method_is_told_which_are_right() -> None:
    """405 as a problem, with every method of the path."""
    async with served() as client:
        answer = await client.request("PUT", "/api/sessions")
        assert (answer.status, answer.code) == (405, "method_not_allowed")
        assert answer.headers["allow"] == "GET, HEAD, POST"
        assert (await client.get("/api/chat")).headers["allow"] == "POST"
        # A stream has no end for HEAD to wait for.
        assert (await client.request("HEAD", "/api/events")).status == 405
        assert (await client.request("HEAD", "/api/health")).status == 200


async def test_models_and_agents() -> None:
    """What can be chosen, and which is chosen by itself."""
    async with served() as client:
        models = (await client.get("/api/models")).json()["models"]
        assert [(model["id"], model["usable"], model["default"]) for model in models] == [("test/model", True, True)]
        agents = (await client.get("/api/agents")).json()["agents"]
        assert {"assistant", "explore"} <= {agent["name"] for agent in agents}


@pytest.mark.rule("CP-6")
async def test_the_summariser_is_listed_as_a_subagent_that_is_not_inspectable() -> None:
    """Source 000:180. It has no tools, and is apart from the agents that a session can use."""
    async with served() as client:
        internal = (await client.get("/api/agents")).json()["internal"]
        assert [(one["name"], one["mode"], one["inspectable"], one["tools"]) for one in internal] == [
            ("summary", "subagent", False, []),
            ("title", "subagent", False, []),
        ]


async def test_a_file_goes_in_by_value_and_comes_out_as_a_blob() -> None:
    """The stored part names the blob; its bytes come back as they were, never as a page of ours."""
    async with served(say("seen")) as client:
        session_id = await client.session()
        data = b"<script>alert(1)</script>"
        url = "data:text/html;base64," + base64.b64encode(data).decode()
        parts = [{"type": "text", "text": "look"}, {"type": "file", "mediaType": "text/html", "url": url}]
        answer = await client.post(f"/api/sessions/{session_id}/prompt", {"parts": parts})
        assert answer.status == 202
        [message, *_] = await client.messages(session_id)
        blob = await client.get(message["parts"][1]["url"])
        assert (blob.status, blob.body) == (200, data)
        assert blob.headers["content-disposition"] == "attachment"
        assert "sandbox" in blob.headers["content-security-policy"]
        assert blob.headers["x-content-type-options"] == "nosniff"


async def test_an_error_of_our_own_is_a_500_that_gives_nothing_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has the traceback, the client has a sentence."""
    async with served() as client:

        async def broken(session_id: str) -> None:
            raise RuntimeError("the secret inside")

        monkeypatch.setattr(client.engine, "get_session", broken)
        answer = await client.get(f"/api/sessions/{NOBODY}")
        assert (answer.status, answer.code) == (500, "internal_error")
        assert b"secret" not in answer.body
        assert "the secret inside" in caplog.text


def test_a_problem_can_quote_what_was_no_proper_text() -> None:
    """A sentence with half a character in it is still a problem document."""
    answer = problem(InvalidInput("there is no \ud83d here", model="\ud83d", status=7))
    assert answer.status_code == 422
    document = json.loads(bytes(answer.body))
    assert (document["detail"], document["model"], document["status"]) == ("there is no \ufffd here", "\ufffd", 422)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (e.SessionNotFound, 404),
        (e.ApprovalNotFound, 404),
        (e.SessionBusy, 409),
        (e.WaitingForHuman, 409),
        (e.NothingToContinue, 409),
        (e.AlreadyAnswered, 409),
        (e.DuplicateMessage, 409),
        (e.NewerTurns, 409),
        (e.OwnedByAnotherProcess, 409),
        (e.InvalidId, 400),
        (e.InvalidInput, 422),
        (e.UnsupportedValue, 422),
        (e.MessageTooLarge, 422),
        (e.TooManyFiles, 422),
        (e.RewindTargetInvalid, 422),
        (e.BranchPointInvalid, 422),
        (e.ContextTooLarge, 422),
        (e.ModelFailed, 422),
        (e.NotSupported, 422),
        (e.PermissionDenied, 403),
        (e.StorageFull, 507),
        (e.StoreClosed, 503),
        (e.StoreBusy, 503),
        (e.SchemaTooNew, 503),
        (e.InternalError, 500),
    ],
)
def test_every_error_has_its_status(error: type[e.ClewError], status: int) -> None:
    """By its kind, whatever its sentence says."""
    assert status_of(error("a sentence")) == status


async def test_a_server_that_ends_takes_no_more_requests() -> None:
    """503, since what is asked for then could not be kept."""
    async with served() as client:
        client.streams.close()
        answer = await client.get("/api/sessions")
        assert (answer.status, answer.code) == (503, "store_closed")


async def test_reading_goes_on_while_a_run_streams() -> None:
    """The message being made is in GET messages as far as it was shown."""
    gate = Gate()
    async with served([say("one two"), wait(gate), say("three")]) as client:
        session_id = await client.session()
        await client.prompt(session_id, "go")
        await gate.reached.wait()
        messages = await client.messages(session_id)
        assert [texts(message) for message in messages] == ["go", "one two"]
        gate.set()
        await client.idle(session_id)
        assert texts((await client.messages(session_id))[1]) == "one twothree"
