"""History over HTTP: going back, branches and trees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clew.errors import SnapshotFailed
from clew.testing.scripted import Gate, call, say, wait
from tests.acceptance.workspaces import HeldLayer
from tests.integration.http_client import served, texts
from tests.integration.http_history import NO_TURN, refused, said, talked, turn_of

# Going back


@pytest.mark.rule("RW-2")
async def test_a_resend_leaves_the_message_unanswered() -> None:
    """200 with where the head is and what left; nothing runs; the message is the same row."""
    async with served(say("one"), say("two")) as client:
        session_id, [_, _, u2, a2] = await talked(client, "first", "second")
        answer = await client.post(f"/api/sessions/{session_id}/rewind", {"message_id": u2["id"], "later": "key"})
        assert answer.status == 200
        now = await client.messages(session_id)
        assert [texts(m) for m in now] == ["first", "one", "second"]
        assert now[-1]["id"] == u2["id"]
        assert answer.json() == {"head_turn_id": turn_of(now[-1]), "hidden": [a2["id"]], "draft": None}
        assert turn_of(now[-1]) != turn_of(u2)
        assert await client.status(session_id) == {"state": "idle"}
        [hidden] = [m for m in await client.messages(session_id, "all") if "hidden_at" in m["metadata"]]
        assert (hidden["id"], hidden["metadata"]["hidden_by"]) == (a2["id"], "rewind")


@pytest.mark.rule("RW-2")
async def test_an_edit_hands_the_text_back() -> None:
    """The head goes to the parent, none for the first message; ``text`` is the draft when it is given."""
    async with served(say("one"), say("two")) as client:
        session_id, [u1, a1, u2, a2] = await talked(client, "first", "second")
        path = f"/api/sessions/{session_id}/rewind"
        answer = await client.post(path, {"message_id": u2["id"], "mode": "edit"})
        assert answer.json() == {"head_turn_id": turn_of(u1), "hidden": [u2["id"], a2["id"]], "draft": "second"}
        answer = await client.post(path, {"message_id": u1["id"], "mode": "edit", "text": "other"})
        assert answer.json() == {"head_turn_id": None, "hidden": [u1["id"], a1["id"]], "draft": "other"}
        assert await client.messages(session_id) == []


@pytest.mark.rule("RW-2")
async def test_a_rewind_that_runs_is_202_with_the_message() -> None:
    """A resend runs the same message, an edit a new one in its place."""
    async with served(say("one"), say("again"), say("changed")) as client:
        session_id, [u1, a1] = await talked(client, "first")
        path = f"/api/sessions/{session_id}/rewind"
        resent = await client.post(path, {"message_id": u1["id"], "run": True})
        await client.idle(session_id)
        [_, again] = await client.messages(session_id)
        assert (resent.status, resent.json()) == (
            202,
            {
                "head_turn_id": turn_of(again),
                "hidden": [a1["id"]],
                "draft": None,
                "message_id": u1["id"],
                "queued": False,
            },
        )
        edited = await client.post(path, {"message_id": u1["id"], "mode": "edit", "text": "new", "run": True})
        await client.idle(session_id)
        [new, answer] = await client.messages(session_id)
        assert (edited.status, edited.json()) == (
            202,
            {
                "head_turn_id": None,
                "hidden": [u1["id"], again["id"]],
                "draft": None,
                "message_id": new["id"],
                "queued": False,
            },
        )
        assert (texts(new), texts(answer)) == ("new", "changed")


@pytest.mark.rule("RW-3")
async def test_unrewind_undoes_the_newest_rewind_until_something_is_added() -> None:
    """What left comes back as it was; then there is nothing more to undo; after a new turn it is 409."""
    async with served(say("one"), say("two"), say("three")) as client:
        session_id, [_, _, u2, _] = await talked(client, "first", "second")
        before = await client.messages(session_id)
        undo = f"/api/sessions/{session_id}/unrewind"
        assert refused(await client.post(undo)) == (409, "nothing_to_undo")
        await client.post(f"/api/sessions/{session_id}/rewind", {"message_id": u2["id"], "mode": "edit"})
        answer = await client.post(undo, {"any": "key"})
        assert (answer.status, answer.json()) == (200, {"head_turn_id": turn_of(u2), "hidden": [], "draft": None})
        assert await client.messages(session_id) == before
        await client.post(f"/api/sessions/{session_id}/rewind", {"message_id": u2["id"], "mode": "edit"})
        await client.prompt(session_id, "third")
        await client.idle(session_id)
        late = await client.post(undo)
        assert refused(late) == (409, "newer_turns")
        assert late.json()["turn_id"] == turn_of(u2)
        assert refused(await client.post(undo, b"[]")) == (400, "invalid_input")


@pytest.mark.rule("RW-3")
@pytest.mark.rule("BR-9")
async def test_the_head_goes_to_any_turn_and_the_reflog_tells() -> None:
    """Null is the empty beginning, a missing key is not; each move is noted, the newest first."""
    async with served(say("one"), say("two")) as client:
        session_id, [u1, _, u2, _] = await talked(client, "first", "second")
        path = f"/api/sessions/{session_id}/head"
        ids = [m["id"] for m in await client.messages(session_id)]
        moves = [
            ((await client.post(path, {"turn_id": turn_of(u1)})).json(), turn_of(u1), ids[2:]),
            ((await client.post(path, {"turn_id": None})).json(), None, ids[:2]),
            ((await client.post(path, {"turn_id": turn_of(u2)})).json(), turn_of(u2), []),
            ((await client.post(path, {"turn_id": turn_of(u2)})).json(), turn_of(u2), []),
        ]
        for answer, head, hidden in moves:
            assert answer == {"head_turn_id": head, "hidden": hidden, "draft": None}
        reflog = await client.get(f"/api/sessions/{session_id}/reflog")
        told = reflog.json()["moves"]
        assert (reflog.status, reflog.json().keys()) == (200, {"moves"})
        assert all(isinstance(move.pop("at"), int) for move in told)
        assert told == [
            {"seq": 5, "from_turn_id": None, "to_turn_id": turn_of(u2), "why": "goto", "text": "second"},
            {"seq": 4, "from_turn_id": turn_of(u1), "to_turn_id": None, "why": "goto", "text": ""},
            {"seq": 3, "from_turn_id": turn_of(u2), "to_turn_id": turn_of(u1), "why": "goto", "text": "first"},
            {"seq": 2, "from_turn_id": turn_of(u1), "to_turn_id": turn_of(u2), "why": "turn", "text": "second"},
            {"seq": 1, "from_turn_id": None, "to_turn_id": turn_of(u1), "why": "turn", "text": "first"},
        ]
        missing = await client.post(path, {})
        assert refused(missing) == (422, "invalid_input")
        assert "turn_id" in missing.json()["detail"]
        assert refused(await client.post(path, {"turn_id": "mine"})) == (400, "invalid_id")
        assert refused(await client.post(path, {"turn_id": NO_TURN})) == (404, "turn_not_found")


@pytest.mark.rule("RW-5")
async def test_nothing_of_it_happens_under_a_live_run() -> None:
    """409 for each, and the run is not touched; a session that waits may be rewound, its requests withdrawn."""
    gate = Gate()
    async with served(say("one"), wait(gate), call("question", {"question": "?"})) as client:
        session_id, [u1, a1] = await talked(client, "first")
        await client.prompt(session_id, "second")
        await gate.reached.wait()
        base = f"/api/sessions/{session_id}"
        for path, body in [
            (f"{base}/rewind", {"message_id": u1["id"]}),
            (f"{base}/unrewind", None),
            (f"{base}/head", {"turn_id": None}),
            (f"{base}/branch", {"from_message_id": a1["id"]}),
            (f"{base}/compact", None),
            (f"{base}/prune", None),
            (f"/api/turns/{(await client.get(f'{base}/tree')).json()['open_turn_id']}/fork", None),
        ]:
            assert refused(await client.post(path, body)) == (409, "run_in_flight"), path
        await client.post(f"{base}/abort")
        await client.idle(session_id)
        await client.prompt(session_id, "third")
        assert len((await client.idle(session_id))["waiting"]) == 1
        for name in ("compact", "prune"):
            assert refused(await client.post(f"{base}/{name}")) == (409, "waiting_for_human"), name
        assert (await client.post(f"{base}/rewind", {"message_id": u1["id"]})).status == 200
        assert await client.status(session_id) == {"state": "idle"}
        assert await said(client, session_id) == ["first"]


async def test_what_cannot_be_rewound_to_says_what_can() -> None:
    """An answer names its user message; another session's message is not there."""
    async with served(say("one"), say("two")) as client:
        session_id, [u1, a1] = await talked(client, "first")
        _, [other, _] = await talked(client, "elsewhere")
        path = f"/api/sessions/{session_id}/rewind"
        invalid = await client.post(path, {"message_id": a1["id"]})
        assert refused(invalid) == (422, "rewind_target_invalid")
        assert (u1["id"] in invalid.json()["detail"], invalid.json()["message_id"]) == (True, a1["id"])
        assert refused(await client.post(path, {"message_id": other["id"]})) == (404, "message_not_found")
        assert refused(await client.post(path, {"message_id": "mine"})) == (404, "message_not_found")
        changed = await client.post(path, {"message_id": u1["id"], "text": "other"})
        assert refused(changed) == (422, "invalid_input")
        restore = await client.post(path, {"message_id": u1["id"], "restore_files": True})
        assert refused(restore) == (422, "not_supported")
        assert await said(client, session_id) == ["first", "one"]


@pytest.mark.rule("RW-6")
async def test_a_snapshot_that_cannot_be_brought_back_is_503(tmp_path: Path) -> None:
    """And nothing has moved."""

    layer = HeldLayer(tmp_path / "kept")
    async with served(say("one"), snapshots=layer) as client:
        (tmp_path / "workspace").mkdir()
        session_id, [u1, _] = await talked(client, "first", workspace_root=str(tmp_path / "workspace"))
        (tmp_path / "workspace" / "a.txt").write_text("x")
        layer.broken = SnapshotFailed("it is gone")
        path = f"/api/sessions/{session_id}/rewind"
        answer = await client.post(path, {"message_id": u1["id"], "files": "restore", "force": True})
        assert refused(answer) == (503, "snapshot_failed")
        assert await said(client, session_id) == ["first", "one"]


# Branches


@pytest.mark.rule("BR-1")
async def test_a_branch_is_a_session_of_its_own() -> None:
    """201 with the session, in the shape every route has; metadata merged, the model chosen, from a message on.

    What its parent spent it did not spend.
    """
    async with served(say("one"), say("two"), say("three")) as client:
        session_id, [_, _, u2, a2, *_] = await talked(client, "a", "b", "c", title="Talk", metadata={"x": 1, "y": 2})
        parent = (await client.get(f"/api/sessions/{session_id}")).json()
        body = {
            "from_message_id": a2["id"],
            "metadata": {"x": None, "ephemeral": True},
            "model": "test/other",
            "start_message_id": u2["id"],
        }
        answer = await client.post(f"/api/sessions/{session_id}/branch", body)
        assert answer.status == 201
        branch = answer.json()
        assert branch == {
            **parent,
            "id": branch["id"],
            "model": {"provider_id": "test", "model_id": "other"},
            "parent_id": session_id,
            "parent_message_id": a2["id"],
            "head_turn_id": branch["head_turn_id"],
            "title": "Talk (branch)",
            "metadata": {
                "title": "Talk (branch)",
                "y": 2,
                "ephemeral": True,
                "model_picked_at": branch["created_at"],
            },
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": 15,
            "spend": {"calls": 0, "tokens": 0, "cost_usd": 0.0, "subagents": 0},
            "created_at": branch["created_at"],
            "updated_at": branch["updated_at"],
        }
        assert branch == (await client.get(f"/api/sessions/{branch['id']}")).json()
        assert await said(client, branch["id"]) == ["b", "two"]
        assert await said(client, session_id) == ["a", "one", "b", "two", "c", "three"]


@pytest.mark.rule("BR-7")
async def test_a_fork_starts_at_any_turn() -> None:
    """Labelled as said, or ``fork-…``; a body is not needed."""
    async with served(say("one"), say("two")) as client:
        session_id, [u1, a1, *_] = await talked(client, "first", "second")
        path = f"/api/turns/{turn_of(u1)}/fork"
        named = await client.post(path, {"label": "try"})
        plain = await client.post(path)
        assert (named.status, plain.status) == (201, 201)
        assert (named.json()["label"], plain.json()["label"][:5]) == ("try", "fork-")
        for fork in (named.json(), plain.json()):
            assert (fork["parent_id"], fork["parent_message_id"]) == (session_id, a1["id"])
            assert await said(client, fork["id"]) == ["first", "one"]
        assert refused(await client.post(f"/api/turns/{NO_TURN}/fork")) == (404, "turn_not_found")
        assert refused(await client.post("/api/turns/mine/fork")) == (400, "invalid_id")
        labels: list[Any] = [7, [], "x" * 501, "\0"]
        for bad in labels:
            assert (await client.post(path, {"label": bad})).status == 422, bad


@pytest.mark.rule("BR-7", "EV-5")
async def test_a_settled_turn_is_forked_while_its_session_runs_and_the_fork_answers_its_first_prompt() -> None:
    """The fork runs beside its parent, which goes on; what cannot be sent leaves no fork behind."""
    gate = Gate()
    async with served(say("one"), [wait(gate), say("slow")], say("aside")) as client:
        session_id, [u1, *_] = await talked(client, "first")
        await client.prompt(session_id, "second")
        await gate.reached.wait()
        path = f"/api/turns/{turn_of(u1)}/fork"
        plain = (await client.post(path)).json()
        answer = await client.post(path, {"label": "try", "text": "and if?"})
        fork = answer.json()
        assert (answer.status, fork["label"], fork["parent_id"]) == (201, "try", session_id)
        await client.idle(fork["id"])
        assert await said(client, plain["id"]) == ["first", "one"]
        assert await said(client, fork["id"]) == ["first", "one", "and if?", "aside"]
        assert (await client.get(f"/api/sessions/{fork['id']}/queue")).json() == {"messages": []}
        texts: list[Any] = [7, [], "\0", ""]
        for bad in texts:
            assert (await client.post(path, {"text": bad})).status == 422, bad
        assert (await client.status(session_id))["state"] == "busy"
        gate.set()
        await client.idle(session_id)
        assert await said(client, session_id) == ["first", "one", "second", "slow"]
        listed = (await client.get("/api/sessions")).json()["sessions"]
        assert {one["id"] for one in listed} == {session_id, plain["id"], fork["id"]}


@pytest.mark.rule("BR-6")
async def test_the_tree_shows_every_turn_and_every_branch() -> None:
    """Parents before children, the head and the line marked, branches with where they left."""
    async with served(say("one"), say("two")) as client:
        session_id, [u1, a1, u2, a2] = await talked(client, "first", "second", title="Talk")
        await client.post(f"/api/sessions/{session_id}/rewind", {"message_id": u2["id"]})
        [*_, resent] = await client.messages(session_id)
        branch = (await client.post(f"/api/turns/{turn_of(u1)}/fork", {"label": "side"})).json()
        answer = await client.get(f"/api/sessions/{session_id}/tree")
        tree = answer.json()
        assert all(isinstance(turn.pop("created_at"), int) for turn in tree["turns"])
        assert all(isinstance(turn.pop("settled_at"), int) for turn in tree["turns"])
        common = {"kind": "normal", "origin_turn_id": None}
        first = {"id": turn_of(u1), "parent_turn_id": None, "text": "first"}
        second = {"id": turn_of(u2), "parent_turn_id": turn_of(u1), "text": "second"}
        depth = tree["turns"][0]["depth"]
        assert tree == {
            "session_id": session_id,
            "head_turn_id": turn_of(resent),
            "open_turn_id": None,
            "turns": [
                {
                    **common,
                    **first,
                    "depth": depth,
                    "status": "completed",
                    "on_line": True,
                    "is_head": False,
                    "messages": [u1["id"], a1["id"]],
                },
                {
                    **common,
                    **second,
                    "depth": depth + 1,
                    "status": "completed",
                    "on_line": False,
                    "is_head": False,
                    "messages": [u2["id"], a2["id"]],
                },
                {
                    **common,
                    **second,
                    "id": turn_of(resent),
                    "depth": depth + 1,
                    "status": "unanswered",
                    "on_line": True,
                    "is_head": True,
                    "messages": [u2["id"]],
                },
            ],
            "branches": [
                {
                    "session_id": branch["id"],
                    "title": "Talk (branch)",
                    "label": "side",
                    "from_message_id": a1["id"],
                    "turn_id": turn_of(u1),
                    "created_at": branch["created_at"],
                }
            ],
            "next_cursor": None,
        }
        newest = (await client.get(f"/api/sessions/{session_id}/tree?limit=2")).json()
        older = (await client.get(f"/api/sessions/{session_id}/tree?limit=2&cursor={newest['next_cursor']}")).json()
        shown = [[turn["id"] for turn in page["turns"]] for page in (older, newest)]
        assert shown == [[turn_of(u1)], [turn_of(u2), turn_of(resent)]]
        assert [page["branches"] for page in (older, newest)] == [tree["branches"], []]
        assert older["next_cursor"] is None


@pytest.mark.rule("BR-2")
async def test_what_cannot_be_branched_from_is_refused() -> None:
    """A message of another session is not there, a start after the point is none."""
    async with served(say("one"), say("two"), say("x")) as client:
        session_id, [_, a1, u2, a2] = await talked(client, "first", "second")
        _, [other, _] = await talked(client, "elsewhere")
        path = f"/api/sessions/{session_id}/branch"
        for body, expected in [
            ({"from_message_id": other["id"]}, (404, "message_not_found")),
            ({"from_message_id": ""}, (400, "invalid_id")),
            ({"from_message_id": a1["id"], "start_message_id": u2["id"]}, (422, "branch_point_invalid")),
            ({"from_message_id": a2["id"], "start_message_id": a1["id"]}, (422, "branch_point_invalid")),
            ({"from_message_id": a2["id"], "start_message_id": "nobody"}, (404, "message_not_found")),
            ({"from_message_id": a2["id"], "start_message_id": "ü"}, (400, "invalid_id")),
            ({"from_message_id": a2["id"], "model": "nothing"}, (422, "invalid_input")),
            ({"from_message_id": a2["id"], "model": {"provider_id": 1}}, (422, "invalid_input")),
            ({"from_message_id": a2["id"], "metadata": {"title": 7}}, (422, "invalid_input")),
            ({"from_message_id": a2["id"], "metadata": {"x": "\0"}}, (422, "unsupported_value")),
        ]:
            assert refused(await client.post(path, body)) == expected, body
        assert (await client.get(f"/api/sessions?parent={session_id}")).json()["sessions"] == []
