"""A summary stays in force over HTTP, while the conversation goes back inside what it kept."""

from __future__ import annotations

from typing import Any

import pytest

from clew.testing.scripted import say, then
from clew.transcript.usage import Usage
from tests.integration.http_client import AsgiClient, served, texts
from tests.integration.http_history import said, small, talked, turn_of

LONG = "word " * 400
NAMES = ("one", "two", "three", "four")
KEPT = ["three", LONG, "four", LONG]


async def compacted(client: AsgiClient) -> tuple[str, list[dict[str, Any]], dict[str, Any]]:
    """Four turns, of which the first two are summarised; the messages they had, and the figures."""
    session_id, messages = await talked(client, *NAMES)
    done = (await client.post(f"/api/sessions/{session_id}/compact")).json()
    assert (done["compacted"], done["turns"]) == (True, 2)
    return session_id, messages, done


async def gauge(client: AsgiClient, session_id: str) -> int:
    used: int = (await client.get(f"/api/sessions/{session_id}/context")).json()["used"]
    return used


async def sent(client: AsgiClient, session_id: str) -> list[str]:
    """What the next call would send; the summary by a word."""
    return ["summary" if "<summary>" in text else text for text in await said(client, session_id, "model")]


def script() -> Any:
    return small(20_000, *[then(say(LONG), usage=Usage(input=5_000, output=500)) for _ in range(12)])


@pytest.mark.rule("CP-13", "RW-4")
@pytest.mark.parametrize("way", ["again", "regenerate", "resend"])
async def test_an_answer_asked_for_anew_is_asked_with_the_summary(way: str) -> None:
    """The gauge stays where the compaction brought it, and what the model was sent is proven."""
    async with served(providers=script()) as client:
        session_id, messages, done = await compacted(client)
        path, last = f"/api/sessions/{session_id}", messages[-2]
        after = await gauge(client, session_id)
        assert after == done["tokens_after"] < done["tokens_before"] * 3 // 4
        if way == "again":
            answer = await client.post(f"{path}/continue", {"mode": "again"})
        elif way == "resend":
            answer = await client.post(f"{path}/rewind", {"message_id": last["id"], "run": True})
        else:
            body = {"id": session_id, "trigger": "regenerate-message", "messages": []}
            answer = await client.post("/api/chat", body)
        assert answer.status in (200, 202)
        await client.idle(session_id)
        assert await sent(client, session_id) == ["summary", *KEPT]
        # The model's own count is what holds now: it saw the summary, so the next figure rests on it.
        view = await client.messages(session_id)
        assert [texts(message) for message in view[1:]] == KEPT
        asked = (await client.get(f"/api/turns/{turn_of(view[-1])}/request")).json()
        shown = ["summary" if "<summary>" in texts(one) else texts(one) for one in asked["messages"]]
        assert (asked["proven"], shown) == (True, ["summary", *KEPT[:3]])
        # The summary is the same one, and opens to the same.
        opened = (await client.get(f"{path}/compactions/{done['message_id']}")).json()
        assert [message["id"] for message in opened["messages"]] == [message["id"] for message in messages[:4]]


@pytest.mark.rule("CP-13", "RW-4", "RW-3")
async def test_going_back_inside_what_was_kept_keeps_the_gauge_low() -> None:
    """Resend and edit, at the first message that was kept and at the last; un-rewinding brings back all as it was."""
    async with served(providers=script()) as client:
        session_id, messages, done = await compacted(client)
        path = f"/api/sessions/{session_id}"
        after = await gauge(client, session_id)
        everything = await client.messages(session_id, "all")
        for place, mode, left in (
            (6, "resend", ["three", LONG, "four"]),
            (6, "edit", ["three", LONG]),
            (4, "resend", ["three"]),
            (4, "edit", []),
        ):
            moved = await client.post(f"{path}/rewind", {"message_id": messages[place]["id"], "mode": mode})
            assert moved.status == 200
            assert done["message_id"] not in moved.json()["hidden"]
            assert await sent(client, session_id) == ["summary", *left], (place, mode)
            assert await gauge(client, session_id) < after
            assert (await client.post(f"{path}/unrewind")).status == 200
            assert await sent(client, session_id) == ["summary", *KEPT]
            assert await gauge(client, session_id) == after
            assert await client.messages(session_id, "all") == everything
        # Into what was summarised: the originals.
        assert (await client.post(f"{path}/rewind", {"message_id": messages[2]["id"]})).status == 200
        assert await sent(client, session_id) == ["one", LONG, "two"]
        assert (await client.post(f"{path}/unrewind")).status == 200
        assert await client.messages(session_id, "all") == everything


@pytest.mark.rule("CP-13")
async def test_what_is_carried_is_the_same_compaction_in_another_place() -> None:
    """A turn of its own right above the one that begins anew, with the marker, figures and times of the one it was."""
    async with served(providers=script()) as client:
        session_id, messages, done = await compacted(client)
        path = f"/api/sessions/{session_id}"
        made = (await client.get(path)).json()["head_turn_id"]
        before = (await client.get(f"/api/turns/{made}")).json()
        third = turn_of(messages[4])
        await client.post(f"{path}/rewind", {"message_id": messages[6]["id"]})
        head = (await client.get(f"/api/turns/{(await client.get(path)).json()['head_turn_id']}")).json()
        carried = (await client.get(f"/api/turns/{head['parent_turn_id']}")).json()
        assert carried == {
            **before,
            "id": carried["id"],
            "parent_turn_id": third,
            "depth": 3,
            "data": {**before["data"], "carried_from": made},
        }
        assert carried["messages"] == [done["message_id"]]
        # Once more from there: it still names the turn it was made as; an edit leaves it as the head.
        await client.post(f"{path}/rewind", {"message_id": messages[4]["id"], "mode": "edit"})
        again = (await client.get(f"/api/turns/{(await client.get(path)).json()['head_turn_id']}")).json()
        assert (again["kind"], again["data"]) == ("compaction", carried["data"])
        assert again["parent_turn_id"] == turn_of(messages[2])


@pytest.mark.rule("BR-4", "CP-13", "BR-7")
async def test_a_branch_inside_what_was_kept_has_the_summary_and_a_fork_has_the_path() -> None:
    """At a whole turn it lies below the copy, at a prompt above it; at what was summarised there is none."""
    async with served(providers=script()) as client:
        session_id, messages, done = await compacted(client)
        for place, left, kinds in (
            (7, KEPT, ["normal"] * 4 + ["compaction"]),
            (6, ["three", LONG, "four"], ["normal", "normal", "normal", "compaction", "normal"]),
            (5, ["three", LONG], ["normal", "normal", "normal", "compaction"]),
            (4, ["three"], ["normal", "normal", "compaction", "normal"]),
        ):
            point = messages[place]["id"]
            branch = (await client.post(f"/api/sessions/{session_id}/branch", {"from_message_id": point})).json()["id"]
            assert await sent(client, branch) == ["summary", *left]
            assert await gauge(client, branch) <= done["tokens_after"]
            tree = (await client.get(f"/api/sessions/{branch}/tree")).json()
            assert [turn["kind"] for turn in tree["turns"]] == kinds
        point = messages[3]["id"]
        branch = (await client.post(f"/api/sessions/{session_id}/branch", {"from_message_id": point})).json()["id"]
        assert await sent(client, branch) == ["one", LONG, "two", LONG]
        fork = (await client.post(f"/api/turns/{turn_of(messages[5])}/fork")).json()["id"]
        assert await sent(client, fork) == ["one", LONG, "two", LONG, "three", LONG]
