"""The real AI SDK v6 chat against a real server: it sends, is cut off, comes back, edits, approves and denies.

``tests/node/chat.mjs`` is the client's own chat and transport; what it holds afterwards is compared with what the
server has stored, and the client's validator is asked about that.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.http_client import SocketClient, bare, texts
from tests.integration.processes import SLOW, serving

pytestmark = pytest.mark.node

# `make test-v7` names the folder of another version of the client.
NODE = Path(__file__).parents[1] / os.environ.get("CLEW_TEST_NODE", "node")


class Page:
    """A chat in a browser, as far as the AI SDK is concerned."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def do(self, order: str, **fields: Any) -> dict[str, Any]:
        """One thing a user does; what the chat holds afterwards."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": order, **fields}).encode() + b"\n")
        line = await self._process.stdout.readline()
        if not line:
            raise AssertionError((await self._process.communicate())[1].decode())
        return dict(json.loads(line))


@contextlib.asynccontextmanager
async def opened(client: SocketClient, session_id: str) -> AsyncIterator[Page]:
    if not (NODE / "node_modules" / "ai").is_dir():
        pytest.fail(f"the real client is not installed in tests/{NODE.name}: run make, which does it", pytrace=False)
    words = ["node", "chat.mjs", f"http://127.0.0.1:{client.port}", client.token, session_id]
    process = await asyncio.create_subprocess_exec(
        *words, cwd=NODE, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=1 << 24
    )
    try:
        yield Page(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketClient]:
    """One server; each test has a session of its own."""
    async with serving(tmp_path_factory.mktemp("served")) as server:
        yield server.client


async def test_it_sends_and_holds_what_is_stored(client: SocketClient) -> None:
    """Twice; the ids of assistant messages are the server's, the client's own ids are known to it."""
    session_id = await client.session(model="demo/long")
    async with opened(client, session_id) as page:
        await page.do("send", text="12 words")
        held = await page.do("send", text="just 3")
        assert (held["status"], held["error"], held["posts"]) == ("ready", None, 2)
        stored = await client.messages(session_id)
        assert [m["role"] for m in held["messages"]] == ["user", "assistant"] * 2
        for mine, theirs in zip(held["messages"], stored, strict=True):
            if mine["role"] == "assistant":
                assert bare(mine) == bare(theirs)
                assert mine["metadata"]["turn_id"] == theirs["metadata"]["turn_id"]
            else:
                assert mine["id"] == theirs["metadata"]["client_message_id"]
        assert (await page.do("validate"))["valid"] is True
        loaded = await page.do("load")
        assert [bare(m) for m in loaded["messages"]] == [bare(m) for m in stored]
        held = await page.do("send", text="and 2 more")
        assert len(texts(held["messages"][-1]).split()) == 2


@pytest.mark.rule("SR-2")
async def test_it_is_cut_off_and_comes_back(client: SocketClient) -> None:
    """The run goes on without it; its own resume gives the whole message, no word lost or doubled; then 204."""
    session_id = await client.session(model="demo/long")
    async with opened(client, session_id) as page:
        cut = await page.do("send", text="60 words", body={"model": SLOW}, cut_after=5)
        partial = texts(cut["messages"][-1])
        assert 5 <= len(partial.split()) < 60
        held = await page.do("resume")
        [_, stored] = await client.messages(session_id)
        assert (held["status"], held["posts"]) == ("ready", 1)
        assert bare(held["messages"][-1]) == bare(stored)
        assert len(held["messages"]) == 2
        assert len(texts(stored).split()) == 60
        assert texts(stored).startswith(partial)
        again = await page.do("resume")
        assert (again["status"], again["messages"]) == ("ready", held["messages"])


@pytest.mark.rule("SR-2")
async def test_a_second_page_opened_in_the_middle_shows_the_same(client: SocketClient) -> None:
    """It loads what is stored, resumes what runs, and ends with what the first one holds."""
    session_id = await client.session(model="demo/long")
    async with opened(client, session_id) as first, opened(client, session_id) as second:
        await first.do("send", text="2 words")
        await first.do("send", text="50 words", body={"model": SLOW}, cut_after=3)
        await second.do("load")
        there, here = await asyncio.gather(second.do("resume"), first.do("resume"))
        assert [m["role"] for m in there["messages"]] == ["user", "assistant"] * 2
        assert bare(there["messages"][-1]) == bare(here["messages"][-1])
        stored = await client.messages(session_id)
        assert [bare(m) for m in there["messages"]] == [bare(m) for m in stored]


@pytest.mark.rule("SR-3")
async def test_an_abort_ends_its_stream_where_the_answer_stopped(client: SocketClient) -> None:
    """It holds what is stored, is ready, and the next message is answered."""
    session_id = await client.session(model="demo/long")
    async with opened(client, session_id) as page:
        sending = asyncio.create_task(page.do("send", text="2000 words", body={"model": SLOW}))
        while not any(texts(message) for message in (await client.messages(session_id))[1:]):
            pass  # asked again as soon as it has answered
        assert (await client.post(f"/api/sessions/{session_id}/abort")).json() == {"aborted": True}
        held = await sending
        [_, stored] = await client.messages(session_id)
        assert (held["status"], held["error"]) == ("ready", None)
        assert bare(held["messages"][-1]) == bare(stored)
        assert 1 <= len(texts(stored).split()) < 2000
        assert texts((await page.do("send", text="2 words"))["messages"][-1]) == "thread stone"
        assert (await page.do("validate"))["valid"] is True


@pytest.mark.rule("SR-2", "PM-6")
async def test_it_comes_back_to_a_turn_that_somebody_else_approved(client: SocketClient, tmp_path: Path) -> None:
    """From the first part on, those before the approval too; but for the approval itself, which v6 cannot replay."""
    workspace = tmp_path / "work"
    workspace.mkdir()
    session_id = await client.session(model="demo/tools", workspace_root=str(workspace))
    async with opened(client, session_id) as page:
        await page.do("send", text="!bash sleep 1; echo hi")
        [wait] = (await client.status(session_id))["waiting"]
        answer = await client.post(f"/api/sessions/{session_id}/approvals/{wait['approval_id']}", {"decision": "once"})
        assert answer.json() == {"remaining": 0}
        held = await page.do("resume")
        [_, stored] = await client.messages(session_id)
        assert (held["status"], held["error"], len(held["messages"])) == ("ready", None, 2)
        parts = [{k: v for k, v in part.items() if k != "approval"} for part in bare(stored)["parts"]]
        assert bare(held["messages"][-1])["parts"] == parts
        assert texts(stored).startswith("bash done: hi")


@pytest.mark.rule("PM-6")
@pytest.mark.parametrize("approved", [True, False])
async def test_it_approves_or_denies_a_tool_call(client: SocketClient, tmp_path: Path, approved: bool) -> None:
    """The chat goes on by itself on the same message; the validator takes the conversation at every stage."""
    workspace = tmp_path / "work"
    workspace.mkdir()
    session_id = await client.session(model="demo/tools", workspace_root=str(workspace))
    async with opened(client, session_id) as page:
        asked = await page.do("send", text="!bash echo hi > made\n!bash echo two")
        calls = [part for part in asked["messages"][-1]["parts"] if part["type"] == "tool-bash"]
        assert [part["state"] for part in calls] == ["approval-requested"] * 2
        assert (await page.do("validate"))["valid"] is True
        assert not (workspace / "made").exists()
        done = await page.do("answer", approved=approved, reason="so be it")
        assert (done["status"], done["error"], done["posts"], done["refusals"]) == ("ready", None, 2, [])
        assert [m["role"] for m in done["messages"]] == ["user", "assistant"]
        [_, stored] = await client.messages(session_id)
        assert bare(done["messages"][-1]) == bare(stored)
        calls = [part for part in stored["parts"] if part["type"] == "tool-bash"]
        assert [part["state"] for part in calls] == ["output-available" if approved else "output-denied"] * 2
        assert [part["approval"]["approved"] for part in calls] == [approved] * 2
        assert (workspace / "made").exists() is approved
        assert texts(stored).startswith("bash")
        assert (await page.do("validate"))["valid"] is True
        after = await page.do("send", text="thank you")
        assert texts(after["messages"][-1]) == "thank you"


@pytest.mark.rule("RW-2")
async def test_it_edits_a_message_by_its_own_id_and_by_the_server_s(client: SocketClient) -> None:
    """What came after it is gone from both; once it was loaded anew the ids are the server's, and that works too."""
    session_id = await client.session(model="demo/echo")
    async with opened(client, session_id) as page:
        await page.do("send", text="one")
        held = await page.do("send", text="two")
        for text in ("other", "and another"):
            held = await page.do("edit", id=held["messages"][0]["id"], text=text)
            assert (held["status"], held["error"], held["refusals"]) == ("ready", None, [])
            stored = await client.messages(session_id)
            assert [texts(m) for m in held["messages"]] == [texts(m) for m in stored] == [text, text]
            assert bare(held["messages"][-1]) == bare(stored[-1])
            assert (await page.do("validate"))["valid"] is True
            held = await page.do("load")
        after = await page.do("send", text="three")
        assert [texts(m) for m in after["messages"]] == ["and another", "and another", "three", "three"]


@pytest.mark.rule("RW-2")
async def test_it_asks_for_another_answer(client: SocketClient) -> None:
    """To the newest message, to an earlier one, and by another model; the chat holds what is stored each time."""
    session_id = await client.session(model="demo/echo")
    async with opened(client, session_id) as page:
        await page.do("send", text="4 words")
        held = await page.do("send", text="5 words")
        for _ in range(2):
            first, second = (held["messages"][place]["id"] for place in (1, 3))
            again = await page.do("regenerate")
            stored = await client.messages(session_id)
            assert (again["status"], again["error"], again["refusals"]) == ("ready", None, [])
            assert [bare(m)["parts"] for m in again["messages"]] == [bare(m)["parts"] for m in stored]
            assert (again["messages"][1]["id"], again["messages"][3]["id"] == second) == (first, False)
            held = await page.do("load")
        first = held["messages"][1]["id"]
        named = await page.do("regenerate", id=first, body={"model": "demo/long"})
        assert (named["status"], texts(named["messages"][0])) == ("ready", "4 words")
        stored = await client.messages(session_id)
        assert [m["role"] for m in stored] == ["user", "assistant"]
        assert bare(named["messages"][-1]) == bare(stored[-1])
        assert len(texts(stored[-1]).split()) == 4
        assert (await page.do("validate"))["valid"] is True


async def test_a_busy_session_is_an_error_it_shows(client: SocketClient) -> None:
    """A second page that sends meanwhile gets the problem as its error, and its chat stays usable."""
    session_id = await client.session(model="demo/long")
    async with opened(client, session_id) as first, opened(client, session_id) as second:
        await first.do("send", text="200 words", body={"model": SLOW}, cut_after=2)
        refused = await second.do("send", text="me too")
        assert (refused["status"], refused["refusals"]) == ("error", [409])
        assert json.loads(refused["error"])["code"] == "run_in_flight"
        await client.post(f"/api/sessions/{session_id}/abort")
        aborted = await first.do("resume")
        assert aborted["status"] == "ready"
        assert (await first.do("validate"))["valid"] is True


async def test_a_failure_in_the_stream_is_an_error_it_shows(client: SocketClient) -> None:
    """After admission the reason comes as a chunk; the next message works."""
    session_id = await client.session(model="demo/fail")
    async with opened(client, session_id) as page:
        failed = await page.do("send", text="404")
        assert (failed["status"], "404" in failed["error"]) == ("error", True)
        fine = await page.do("send", text="hello")
        assert (fine["status"], texts(fine["messages"][-1])) == ("ready", "hello")
        assert (await page.do("validate"))["valid"] is True


@pytest.mark.rule("EM-4")
async def test_a_chat_under_the_clients_own_id_is_made_and_its_metadata_is_kept(client: SocketClient) -> None:
    """As `useChat` draws it; nothing can be resumed before its first message, and an edit has metadata of its own."""
    name = "K3x9qPz0-own"
    async with opened(client, name) as page:
        held = await page.do("resume")
        assert (held["error"], held["refusals"]) == (None, [])
        held = await page.do("send", text="hello", metadata={"page": "/cart", "trigger": {"kind": "cron"}})
        assert (held["status"], held["error"], held["refusals"]) == ("ready", None, [])
        asked = held["messages"][0]
        stored = (await client.messages(name))[0]
        assert (stored["metadata"]["page"], "trigger" in stored["metadata"]) == ("/cart", False)
        held = await page.do("edit", id=asked["id"], text="hello again", metadata={"page": "/pay"})
        assert (held["status"], held["error"]) == ("ready", None)
        left = await client.messages(name)
        assert [left[0]["metadata"]["page"], len(left)] == ["/pay", 2]
    listed = (await client.get("/api/sessions")).json()["sessions"]
    assert [one["alias"] for one in listed].count(name) == 1
