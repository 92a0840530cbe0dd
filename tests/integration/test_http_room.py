"""Making room over HTTP, what was sent, and garbage in any field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clew.providers.base import ModelInfo
from clew.testing.scripted import FakeProviders, ScriptedModel, call, say, then
from clew.transcript.session import Model
from clew.transcript.usage import Usage
from tests.integration.http_client import served
from tests.integration.http_history import NO_TURN, NOBODY, refused, said, small, talked, turn_of
from tests.integration.test_http_runs import listening, until

# Room

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
        assert (finished["reason"], problem.keys()) == ("refused", {"code", "message", "branch", "ways", "text"})
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
    ("rewind", {"message_id": "x"}, ("message_id", "mode", "text", "run", "files", "force", "paths", "restore_files")),
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
        "force": (7, [], {}, "yes"),
        "files": (7, True, [], {}, "all"),
        "paths": (7, True, {}, "text", [7]),
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
