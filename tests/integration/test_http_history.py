"""History over HTTP: going back, branches, making room, and what was sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clew.errors import SnapshotFailed
from clew.providers.base import ModelInfo
from clew.testing.scripted import FakeProviders, ScriptedModel, call, hang, say, then
from clew.transcript.session import Model
from clew.transcript.usage import Usage
from tests.integration.http_client import Answer, AsgiClient, served, texts
from tests.integration.test_http_runs import listening, until

NOBODY = "ses_" + "0" * 26
NO_TURN = "trn_" + "0" * 26


async def talked(client: AsgiClient, *prompts: str, **fields: Any) -> tuple[str, list[dict[str, Any]]]:
    """A session in which these were said and answered; its messages."""
    session_id = await client.session(**fields)
    for prompt in prompts:
        await client.prompt(session_id, prompt)
        await client.idle(session_id)
    return session_id, await client.messages(session_id)


async def said(client: AsgiClient, session_id: str, view: str = "visible") -> list[str]:
    return [texts(message) for message in await client.messages(session_id, view)]


def turn_of(message: dict[str, Any]) -> str:
    return str(message["metadata"]["turn_id"])


def refused(answer: Answer) -> tuple[int, str | None]:
    return answer.status, answer.code


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
    async with served(say("one"), hang(), call("question", {"question": "?"})) as client:
        session_id, [u1, a1] = await talked(client, "first")
        await client.prompt(session_id, "second")
        base = f"/api/sessions/{session_id}"
        for path, body in [
            (f"{base}/rewind", {"message_id": u1["id"]}),
            (f"{base}/unrewind", None),
            (f"{base}/head", {"turn_id": None}),
            (f"{base}/branch", {"from_message_id": a1["id"]}),
            (f"{base}/compact", None),
            (f"{base}/prune", None),
            (f"/api/turns/{turn_of(u1)}/fork", None),
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
async def test_a_snapshot_that_cannot_be_brought_back_is_503() -> None:
    """And nothing has moved."""

    class Broken:
        async def take(self, session_id: str, message: Any) -> str:
            return "snap_1"

        async def preview(self, session_id: str, snapshot_id: str) -> list[str]:
            return []

        async def restore(self, session_id: str, snapshot_id: str) -> None:
            raise SnapshotFailed(f"{snapshot_id} is gone")

    async with served(say("one"), snapshots=Broken()) as client:
        session_id, [u1, _] = await talked(client, "first")
        path = f"/api/sessions/{session_id}/rewind"
        answer = await client.post(path, {"message_id": u1["id"], "restore_files": True})
        assert refused(answer) == (503, "snapshot_failed")
        assert await said(client, session_id) == ["first", "one"]


# Branches


@pytest.mark.rule("BR-1")
async def test_a_branch_is_a_session_of_its_own() -> None:
    """201 with the session, in the shape every route has; metadata merged, the model chosen, from a message on."""
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
            "metadata": {"title": "Talk", "y": 2, "ephemeral": True},
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": 15,
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
                    "title": "Talk",
                    "label": "side",
                    "from_message_id": a1["id"],
                    "turn_id": turn_of(u1),
                    "created_at": branch["created_at"],
                }
            ],
        }


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


# Room


def small(window: int, *script: Any) -> FakeProviders:
    """A model with that window, and one that summarises for it."""
    model, brief = Model("test", "model"), Model("brief", "model")
    info = ModelInfo(model=model, window=window, max_output=200, summariser=brief)
    summary = "## Goal\nTo count.\n\n## Constraints & Preferences\n- none\n\n## Progress\n### Done\n- counted\n\n"
    summary += (
        "### In Progress\n- none\n\n### Blocked\n- none\n\n## Key Decisions\n- none\n\n## Next Steps\n1. go on\n\n"
    )
    summary += "## Critical Context\n- none\n"
    models = {"test": ScriptedModel(script), "brief": ScriptedModel([], otherwise=say(summary))}
    return FakeProviders(models, infos=[info], default=model)


LONG = "word " * 400


@pytest.mark.rule("CP-1")
@pytest.mark.rule("CP-4")
async def test_a_compaction_by_hand_says_what_it_did_and_can_be_opened() -> None:
    """200 with the figures; the event tells the others; what was summarised is there word for word."""
    script = [then(say(LONG), usage=Usage(input=5_000, output=500)) for n in range(4)]
    async with served(providers=small(20_000, *script)) as client:
        session_id, before = await talked(client, "a", "b", "c", "d")
        async with listening(client) as events:
            answer = await client.post(f"/api/sessions/{session_id}/compact", {"focus": "the numbers", "more": 1})
            told = (await until(events, "context_compacted"))[-1]
        done = answer.json()
        assert answer.status == 200
        assert done == {
            "compacted": True,
            "message_id": done["message_id"],
            "strategy": "summary",
            "tokens_before": done["tokens_before"],
            "tokens_after": done["tokens_after"],
            "turns": 2,
            "pruned": 0,
        }
        assert 0 < done["tokens_after"] < done["tokens_before"]
        assert {**told, "tokens_after": done["tokens_after"]} == {
            "type": "context_compacted",
            "session_id": session_id,
            "auto": False,
            **done,
        }
        opened = await client.get(f"/api/sessions/{session_id}/compactions/{done['message_id']}")
        report = opened.json()
        assert opened.status == 200
        assert [(m["id"], m["parts"]) for m in report["messages"]] == [(m["id"], m["parts"]) for m in before[:4]]
        assert {**report, "data": report["data"]["focus"], "messages": 4} == {
            "message_id": done["message_id"],
            "turn_id": (await client.get(f"/api/sessions/{session_id}")).json()["head_turn_id"],
            "previous_id": None,
            "data": "the numbers",
            "messages": 4,
        }
        assert len(await said(client, session_id)) == 5
        used = (await client.get(f"/api/sessions/{session_id}/context")).json()["used"]
        again = (await client.post(f"/api/sessions/{session_id}/compact")).json()
        assert again == {
            "compacted": False,
            "message_id": None,
            "strategy": None,
            "tokens_before": used,
            "tokens_after": used,
            "turns": 0,
            "pruned": 0,
        }
        path = f"/api/sessions/{session_id}/compactions"
        assert refused(await client.get(f"{path}/{before[0]['id']}")) == (404, "message_not_found")
        assert refused(await client.get(f"{path}/{'x' * 200}")) == (400, "invalid_id")


@pytest.mark.rule("PR-1")
@pytest.mark.rule("PR-4")
async def test_pruning_by_hand_changes_what_is_sent_and_not_what_is_stored(tmp_path: Path) -> None:
    """200 with how many outputs became stubs; the gauge shows what that saves; a second time there is nothing."""
    (tmp_path / "big.txt").write_text("line of text\n" * 400)
    script: list[Any] = [call("grep", {"pattern": "line"}), say("found")]
    script += [say(f"{n}") for n in range(3)]
    async with served(*script) as client:
        session_id, before = await talked(client, "look", "1", "2", "3", workspace_root=str(tmp_path))
        path = f"/api/sessions/{session_id}"
        gauge = (await client.get(f"{path}/context")).json()
        done = (await client.post(f"{path}/prune", {"more": 1})).json()
        after = (await client.get(f"{path}/context")).json()
        assert done == {
            "compacted": True,
            "message_id": None,
            "strategy": "prune",
            "tokens_before": gauge["used"],
            "tokens_after": after["used"],
            "turns": 0,
            "pruned": 1,
        }
        assert (gauge["parts"]["pruned"], after["parts"]["pruned"] > 0) == (0, True)
        # What a client sees is whole, and says which output the model no longer does.
        before[1]["metadata"]["pruned"] = ["call1"]
        assert await client.messages(session_id) == before
        nothing = (await client.post(f"{path}/prune")).json()
        assert (nothing["compacted"], nothing["tokens_before"]) == (False, after["used"])
        assert refused(await client.post(f"{path}/prune", b"{")) == (400, "invalid_input")


@pytest.mark.rule("US-3")
async def test_the_gauge_is_of_the_session_s_model_or_another() -> None:
    """Measured once a step has ended, an estimate for another model."""
    info = ModelInfo(model=Model("test", "tiny"), window=1_000, max_output=100, summariser=Model("test", "tiny"))
    model = ScriptedModel([then(say("one"), usage=Usage(input=90, output=10))])
    async with served(providers=FakeProviders(model, infos=[info])) as client:
        session_id, _ = await talked(client, "first")
        path = f"/api/sessions/{session_id}/context"
        answer = await client.get(path)
        gauge = answer.json()
        assert (answer.status, gauge.pop("parts").keys()) == (200, {"system", "tools", "summary", "history", "pruned"})
        assert gauge == {"limit": 200_000, "reserve": 4_000, "threshold": 196_000, "used": 100, "measured": True}
        other = (await client.get(f"{path}?model=test/tiny")).json()
        assert (other["limit"], other["reserve"], other["measured"]) == (1_000, 100, False)
        for bad in ("nothing", "nobody/x"):
            assert refused(await client.get(f"{path}?model={bad}")) == (422, "invalid_input"), bad


@pytest.mark.rule("MS-2")
@pytest.mark.rule("BR-6")
async def test_a_refusal_after_admission_tells_the_way_out() -> None:
    """The event and the status hold the problem with its text and a branch request, which works as it is."""
    tight = ModelInfo(model=Model("test", "tight"), window=8_000, max_output=100, summariser=Model("test", "tight"))
    script = [say(LONG * 20), say("short"), say("from the branch")]
    providers = FakeProviders(ScriptedModel(script), infos=[tight])
    async with served(providers=providers) as client:
        metadata = {"compaction": {"enabled": False}}
        session_id, [_, _, u2, a2] = await talked(client, "first", "second", metadata=metadata)
        async with listening(client) as events:
            chunks = await client.chat(session_id, "third", model="test/tight")
            finished = (await until(events, "turn_finished"))[-1]
        assert [chunk["type"] for chunk in chunks] == ["start", "error", "finish"]
        problem = finished["error"]
        branch = problem["branch"]
        assert (finished["reason"], problem.keys()) == ("refused", {"code", "message", "branch", "text"})
        assert (problem["code"], problem["text"]) == ("context_too_large", "third")
        assert chunks[1]["errorText"] == problem["message"]
        assert branch == {
            "from_message_id": a2["id"],
            "start_message_id": u2["id"],
            "model": {"provider_id": "test", "model_id": "tight"},
        }
        assert await client.status(session_id) == {"state": "error", "message": problem["message"], "problem": problem}
        assert await said(client, session_id) == ["first", LONG * 20, "second", "short"]
        made = (await client.post(f"/api/sessions/{session_id}/branch", branch)).json()
        await client.prompt(made["id"], "third")
        await client.idle(made["id"])
        assert await said(client, made["id"]) == ["second", "short", "third", "from the branch"]


# What was sent


async def test_a_turn_tells_its_steps_and_a_request_is_proven(tmp_path: Path) -> None:
    """Counts, timing and digests of each step; the last request without a step, any other by its index."""
    async with served([say("look"), call("ls", {})], say("nothing")) as client:
        session_id, [u1, a1] = await talked(client, "go", workspace_root=str(tmp_path))
        answer = await client.get(f"/api/turns/{turn_of(u1)}")
        turn = answer.json()
        steps = turn.pop("steps")
        usage = {"input": 10, "output": 5, "reasoning": 0, "cache_read": 0, "cache_write": 0}
        assert answer.status == 200
        assert {**turn, "created_at": 0, "settled_at": 0, "depth": 0} == {
            "id": turn_of(u1),
            "session_id": session_id,
            "parent_turn_id": None,
            "origin_turn_id": None,
            "kind": "normal",
            "status": "completed",
            "depth": 0,
            "created_at": 0,
            "settled_at": 0,
            "data": turn["data"],
            "messages": [u1["id"], a1["id"]],
        }
        assert [(s["index"], s["message_id"], s["usage"], s["finish_reason"]) for s in steps] == [
            (0, a1["id"], usage, "tool-calls"),
            (1, a1["id"], usage, "stop"),
        ]
        assert all(s["started_at"] <= s["finished_at"] for s in steps)
        path = f"/api/turns/{turn_of(u1)}/request"
        requests = [(await client.get(f"{path}{query}")).json() for query in ("?step=0", "?step=1", "")]
        assert requests[1] == requests[2]
        for request, step in zip(requests, steps, strict=False):
            assert (request["digest"], request["recorded"], request["proven"]) == (
                step["request_digest"],
                step["request_digest"],
                True,
            )
        assert [len(request["messages"]) for request in requests[:2]] == [1, 2]
        assert requests[0].keys() == {
            "turn_id",
            "step",
            "model",
            "prompt",
            "tools",
            "messages",
            "max_output_tokens",
            "temperature",
            "digest",
            "recorded",
            "proven",
        }
        for query in ("?step=2", "?step=-1", "?step=x", "?step=1.5"):
            assert refused(await client.get(f"{path}{query}")) == (422, "invalid_input"), query
        for name in ("", "/request"):
            assert refused(await client.get(f"/api/turns/{NO_TURN}{name}")) == (404, "turn_not_found")
            assert refused(await client.get(f"/api/turns/mine{name}")) == (400, "invalid_id")


# Garbage


POSTS: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("rewind", {"message_id": "x"}, ("message_id", "mode", "text", "run", "restore_files")),
    ("head", {"turn_id": None}, ("turn_id",)),
    ("branch", {"from_message_id": "x"}, ("from_message_id", "metadata", "model", "start_message_id")),
    ("compact", {}, ("focus",)),
]


@pytest.mark.parametrize(("name", "good", "keys"), POSTS, ids=[post[0] for post in POSTS])
async def test_garbage_in_any_field_is_refused_by_name(name: str, good: dict[str, Any], keys: tuple[str, ...]) -> None:
    """422 that names the key, whatever else is in the body; nothing changes; never a 500."""
    wrong: dict[str, tuple[Any, ...]] = {
        "run": (7, [], {}, "yes"),
        "restore_files": (7, [], {}, "yes"),
        "metadata": (7, True, [], "text"),
        "mode": (7, True, [], {}, "again"),
        "model": (7, True, [], {}, "text"),
    }
    async with served(say("one")) as client:
        session_id, before = await talked(client, "first")
        path = f"/api/sessions/{session_id}/{name}"
        for key in keys:
            for value in wrong.get(key, (7, 1.5, True, [], {})):
                answer = await client.post(path, {**good, key: value})
                assert answer.status == 422, (key, value, answer)
                assert key in answer.json()["detail"], (key, value, answer)
        for body, expected in [(b"", 400), (b"[]", 400), (b"nonsense", 400), (b'{"x": "\\u0000"}', 422)]:
            if body or name != "compact":
                assert (await client.post(path, body)).status == expected, body
        assert await client.messages(session_id) == before


@pytest.mark.parametrize(
    ("method", "name", "body"),
    [
        ("POST", "rewind", {"message_id": "x"}),
        ("POST", "unrewind", None),
        ("POST", "head", {"turn_id": None}),
        ("GET", "reflog", None),
        ("POST", "branch", {"from_message_id": "x"}),
        ("GET", "tree", None),
        ("POST", "compact", None),
        ("POST", "prune", None),
        ("GET", "compactions/x", None),
        ("GET", "context", None),
    ],
)
async def test_a_session_that_is_not_there_is_404_and_no_id_400(method: str, name: str, body: Any) -> None:
    """On each route; and another method is 405."""
    async with served() as client:
        assert refused(await client.request(method, f"/api/sessions/{NOBODY}/{name}", body)) == (
            404,
            "session_not_found",
        )
        assert refused(await client.request(method, f"/api/sessions/mine/{name}", body)) == (400, "invalid_id")
        assert (await client.request("PUT", f"/api/sessions/{NOBODY}/{name}", {})).status == 405
