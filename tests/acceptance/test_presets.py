"""The presets as whoever uses clew meets them: over HTTP, from the command line, from a program."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.config import ToolsConfig
from clew.errors import InvalidInput
from clew.testing.scripted import call, say
from clew.transcript.metadata import local_place
from tests.acceptance.compacting import answer, bulk, opened, settings
from tests.acceptance.serving import PLACE, begin, dump, say_to, serving
from tests.integration.command_line import Run, run
from tests.integration.http_client import AsgiClient

__all__ = ["run"]


NOTE = "Media: messages hold images or other files"
FILE = {
    "type": "file",
    "mediaType": "text/plain",
    "filename": "map.txt",
    "url": f"data:text/plain;base64,{base64.b64encode(b'a map').decode()}",
}


async def outputs(client: AsgiClient, session_id: str, view: str) -> list[str]:
    parts = [part for message in await client.messages(session_id, view) for part in message["parts"]]
    return [str(part["output"]) for part in parts if part["type"] == "tool-dump"]


# The preset checkpoint: long outputs


@pytest.mark.rule("CP-9", "PR-3", "PR-4")
async def test_outputs_are_long_enough_for_the_checkpoint_preset_to_trim_and_then_to_clear_them(tmp_path: Path) -> None:
    """Over HTTP, with the figures as they are: what is stored stays whole, and the newest answers stay as they are."""
    calls = [then for n in range(3) for then in (call("dump", {"chars": 55_000 + n, "word": f"log{n}"}), say("seen"))]
    async with serving(tmp_path, *calls) as client:
        session_id = await begin(client)
        for text in ("one", "two", "three"):
            await say_to(client, session_id, text)
        assert [len(one) for one in await outputs(client, session_id, "model")] == [55_000, 55_001, 55_002]
        await say_to(client, session_id, "four")
        trimmed, second, whole = await outputs(client, session_id, "model")
        # One alone would free less than a fifth of what is usable.
        assert (len(second), len(whole)) == (len(trimmed), 55_002)
        assert (trimmed.startswith("log0 begins xxx"), trimmed.endswith("xxx log0 ends")) == (True, True)
        assert 3_000 < len(trimmed) < 3_400
        assert trimmed.count("x") < 3_000
        # What is left of two outputs is less than a fifth, too: by itself it is cleared when the request would not fit.
        assert (await client.post(f"/api/sessions/{session_id}/prune", {})).status == 200
        shown = await outputs(client, session_id, "model")
        assert [len(one) < 200 for one in shown] == [True, True, False], shown
        assert [len(one) for one in await outputs(client, session_id, "all")] == [55_000, 55_001, 55_002]


@pytest.mark.rule("CP-9", "PR-3", "PR-4")
async def test_a_trimmed_output_is_cleared_where_the_request_would_not_fit(tmp_path: Path) -> None:
    """Source 001:101. It was long enough before it was trimmed; else the prompt would be refused."""
    used = (16_000, 16_010, 16_020, 3_500, 29_400, 29_000)
    script = [call("dump", {"chars": 55_000}), *(answer(used=count) for count in used)]
    config = settings(preset="checkpoint", enabled=False)
    async with opened(tmp_path, script, tools=[dump], config=config, window=30_000) as s:
        await s.begin()
        await s.allow("dump")
        shown = []
        for text in ("go", "two", "three", "four", "five", bulk("six", 900)):
            assert (await s.say(text)).status == "completed"
            parts = [part for one in s.model.requests[-1].messages for part in one.parts]
            shown.append([len(part["output"]) for part in parts if part["type"] == "tool-dump"])
        assert shown[:3] == [[55_000]] * 3
        assert [size < 3_200 for [size] in shown[3:5]] == [True, True]
        assert shown[5][0] < 100


@pytest.mark.rule("CP-9", "PR-3")
@pytest.mark.parametrize(("window", "chars"), [(8_000, 30_000), (20_000, 40_000), (200_000, 60_000)])
async def test_an_output_leaves_half_of_the_window_to_all_else(window: int, chars: int, tmp_path: Path) -> None:
    """What is more than the usual is handed over only where there is room; the whole is kept beside."""
    config = settings(preset="checkpoint")
    script = [call("dump", {"chars": 90_000}), say("seen")]
    async with opened(tmp_path, script, tools=[dump], config=config, window=window) as s:
        await s.begin()
        await s.allow("dump")
        await s.say("go")
        [message] = [one for one in await s.engine.messages(s.id, view="all") if one.role == "assistant"][:1]
        [output] = [part["output"] for part in message.parts if part["type"] == "tool-dump"]
        assert chars - 1_000 < len(output) <= chars
        assert "all of it is in" in output


@pytest.mark.rule("CP-9", "PR-3")
@pytest.mark.parametrize(
    ("tools", "chars"),
    [
        (ToolsConfig(output_chars=10_000), 10_000),
        (ToolsConfig(output_chars=10_000, output_chars_by_store={"memory": 8_000, "json": 9_000}), 8_000),
        (ToolsConfig(output_chars_by_store={"memory": 8_000}, output_chars_by_tool={"dump": 70_000}), 70_000),
        (ToolsConfig(output_chars_by_tool={"other": 70_000}), 30_000),
    ],
)
async def test_how_much_of_an_output_is_handed_over_can_be_set(tools: ToolsConfig, chars: int, tmp_path: Path) -> None:
    """For all, for a kind of store, for a tool; the nearer word counts."""
    config = clew.Config(tools=tools)
    script = [call("dump", {"chars": 90_000}), say("seen")]
    async with opened(tmp_path, script, tools=[dump], config=config, window=200_000) as s:
        await s.begin()
        await s.allow("dump")
        await s.say("go")
        message = (await s.engine.messages(s.id))[-1]
        [output] = [part["output"] for part in message.parts if part["type"] == "tool-dump"]
        assert chars - 1_000 < len(output) <= chars


@pytest.mark.rule("CP-9")
async def test_room_is_made_after_each_turn_that_ends_above_80_percent_and_never_before_it(tmp_path: Path) -> None:
    """Over HTTP: the fourth turn goes past the mark, and the summary is there before anybody asks for more."""
    async with serving(
        tmp_path, *[answer(used=used) for used in (2_000, 4_000, 6_000, 7_900, 8_100)], window=10_000
    ) as client:
        session_id = await begin(client)
        kinds = []
        for text in ("one", "two", "three", "four", "five"):
            await say_to(client, session_id, bulk(text, 1_500))
            tree = (await client.get(f"/api/sessions/{session_id}/tree")).json()
            kinds.append([turn["kind"] for turn in tree["turns"] if turn["is_head"]])
        assert kinds == [["normal"]] * 4 + [["compaction"]]
        pair = (await client.messages(session_id, "model"))[:2]
        assert [(one["role"], one["metadata"].get("summary")) for one in pair] == [("user", True), ("assistant", True)]


# The preset checkpoint: the prompt knows of files


@pytest.mark.rule("SP-1", "CP-9")
async def test_a_model_is_told_that_messages_hold_files_from_the_turn_on_that_brings_them(tmp_path: Path) -> None:
    """In the prompt where a session begins with one; else in front of that turn's message, and the prompt stays."""
    async with serving(tmp_path) as client:
        model: Any = client.engine.host.providers.get("test")
        first = await begin(client)
        await say_to(client, first, "", parts=[{"type": "text", "text": "look"}, FILE])
        for text in ("and now?", "and then?"):
            await say_to(client, first, text)
        assert [NOTE in request.system for request in model.requests] == [True] * 3
        assert [_told(request, NOTE) for request in model.requests] == [0] * 3
        later = await begin(client)
        await say_to(client, later, "hello")
        await say_to(client, later, "", parts=[{"type": "text", "text": "look"}, FILE])
        for text in ("and now?", "and then?"):
            await say_to(client, later, text)
        said = model.requests[3:]
        assert [NOTE in request.system for request in said] == [False] * 4
        assert [_told(request, NOTE) for request in said] == [0, 1, 2, 3]
        assert {request.system for request in said} == {said[0].system}


@pytest.mark.rule("SP-1", "CP-9")
@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("kept", [False, True])
async def test_after_a_compaction_the_prompt_speaks_of_files_only_where_one_is_kept(
    kept: bool, by_hand: bool, tmp_path: Path
) -> None:
    """Between turns and for a turn that needs the room: it is told anew by what is still sent."""
    # A turn that makes room for itself is one of those that are kept.
    tail = {"tail_turns": 1 if by_hand else 2, "tail_budget_pct": 0.9}
    own = {"compaction": {"preset": "guide", **tail, "pruning": {"enabled": False}}}
    async with serving(tmp_path, window=10_000, store="memory:") as client:
        model: Any = client.engine.host.providers.get("test")
        session_id = await begin(client, metadata=own)
        await say_to(client, session_id, "hello")
        if not kept:
            await say_to(client, session_id, "", parts=[{"type": "text", "text": "look"}, FILE])
        for _ in range(2):
            await say_to(client, session_id, bulk("word", 3_000))
        if kept:
            await say_to(client, session_id, "", parts=[{"type": "text", "text": "look"}, FILE])
        assert _told(model.requests[-1], NOTE) > 0
        if by_hand:
            done = (await client.post(f"/api/sessions/{session_id}/compact", {})).json()
            assert done["compacted"] is True
        await say_to(client, session_id, bulk("more", 200 if by_hand else 4_500))
        sent = model.requests[-1]
        assert any("<summary>" in str(message.parts) for message in sent.messages)
        view = await client.messages(session_id, "model")
        assert any(part["type"] == "file" for message in view for part in message["parts"]) == kept
        assert (NOTE in sent.system) == kept


def _told(request: Any, note: str) -> int:
    return sum(note in str(part.get("text", "")) for message in request.messages for part in message.parts)


# The preset checkpoint: who works where


@pytest.mark.rule("RN-7", "FS-3")
async def test_a_json_store_refuses_a_session_without_worker_and_workspace(tmp_path: Path) -> None:
    """Over HTTP and from a program: what others go by is asked for, not made up, and cannot be taken away later."""
    async with serving(tmp_path) as client:
        for metadata in (
            {},
            {"workerId": "w"},
            {"workerId": "w", "workspaceId": ""},
            {"workerId": 3, "workspaceId": "s"},
        ):
            refused = await client.post("/api/sessions", {"metadata": metadata})
            assert (refused.status, refused.code) == (422, "invalid_input")
            missing = [key for key in PLACE if not isinstance(metadata.get(key), str) or not metadata[key]]
            assert f"a json: store needs {' and '.join(missing)} in the metadata" in refused.json()["detail"]
        session_id = await client.session(metadata=PLACE)
        patched = await client.request("PATCH", f"/api/sessions/{session_id}", {"metadata": {"workerId": None}})
        assert (patched.status, patched.code) == (422, "invalid_input")
        patched = await client.request("PATCH", f"/api/sessions/{session_id}", {"metadata": {"workerId": "w-2"}})
        assert patched.json()["metadata"] == {"workerId": "w-2", "workspaceId": "harbour"}
        with pytest.raises(InvalidInput, match="needs workerId and workspaceId"):
            await client.engine.create_session()
        assert [one.id for one in (await client.engine.list_sessions()).sessions] == [session_id]
        file = json.loads((tmp_path / "store" / "sessions" / f"{session_id}.json").read_bytes())
        assert (file["workerId"], file["workspaceId"]) == ("w-2", "harbour")
    async with serving(tmp_path, store="memory:") as client:
        assert (await client.post("/api/sessions", {})).status == 201


@pytest.mark.rule("RN-7", "FS-3")
async def test_what_clew_itself_makes_on_a_json_store_says_who_works_where(tmp_path: Path) -> None:
    """A branch and a subagent where their parent does, an event's own session in its folder."""
    script = [say("hi"), call("task", {"prompt": "look around"}), say("looked"), say("done")]
    async with serving(tmp_path, *script) as client:
        session_id = await begin(client)
        await say_to(client, session_id, "hello")
        await say_to(client, session_id, "go on")
        [child] = (await client.get(f"/api/sessions?kind=subagent&parent={session_id}")).json()["sessions"]
        asked = (await client.messages(session_id))[0]["id"]
        branch = (await client.post(f"/api/sessions/{session_id}/branch", {"from_message_id": asked})).json()
        event = {"source": "s", "source_id": "1", "text": "wake up", "routing": {"label": "porter"}}
        sent = (await client.post("/api/events", event)).json()
        await client.idle(sent["session_id"])
        woken = (await client.get(f"/api/sessions/{sent['session_id']}")).json()
        places = [{key: one["metadata"].get(key) for key in PLACE} for one in (child, branch, woken)]
        assert places == [PLACE, PLACE, local_place(None)]


@pytest.mark.rule("RN-7", "CP-9")
def test_the_command_line_fills_in_who_works_where(run: Run, tmp_path: Path) -> None:
    """``clew run`` on a ``json:`` store works as on any other, and so do the samples."""
    store = ("--store", f"json:{tmp_path}/store")
    assert run("run", "hello", "--model", "demo/echo", *store)[:2] == (0, "hello\n")
    [session] = json.loads(run("ls", "--json", *store)[1])["sessions"]
    place = {key: session["metadata"][key] for key in PLACE}
    assert place == {"workerId": "local", "workspaceId": str(tmp_path)}


# A model of the workspace's own


@pytest.mark.rule("CP-9", "RN-7")
async def test_a_workspace_may_name_the_model_of_sessions_that_begin_in_it(tmp_path: Path) -> None:
    """Between what is asked for, which wins, and the server's default; of its file only the name counts."""
    workspace = tmp_path / "project"
    (workspace / ".clew").mkdir(parents=True)
    own = workspace / ".clew" / "config.toml"
    own.write_text('default_model = "cheap/model"\n[providers.cheap]\nbase_url = "http://evil"\napi_key = "stolen"\n')
    async with serving(tmp_path) as client:
        named = {"provider_id": "cheap", "model_id": "model"}
        made = await client.post("/api/sessions", {"metadata": PLACE, "workspace_root": str(workspace)})
        assert made.json()["model"] == named
        asked = {"metadata": PLACE, "workspace_root": str(workspace), "model": "test/model"}
        assert (await client.post("/api/sessions", asked)).json()["model"]["provider_id"] == "test"
        assert (await client.post("/api/sessions", {"metadata": PLACE})).json()["model"]["provider_id"] == "test"
        await say_to(client, made.json()["id"], "hello", model="test/model")
        assert [len(client.engine.host.providers.get(one).requests) for one in ("test", "cheap")] == [1, 0]  # type: ignore[attr-defined]
        for text, why in (
            ("default_model = [", "is not TOML"),
            (f"default_model = {'[' * 30_000}", "is not TOML"),
            (f"default_model = 1{'0' * 30_000}", "is not TOML"),
            ("default_model = 3", "default_model must be a string"),
            ('default_model = "cheap"', "'cheap' is not a model; use provider/model"),
            ('default_model = "nobody/knows"', "nobody"),
        ):
            own.write_text(text)
            refused = await client.post("/api/sessions", {"metadata": PLACE, "workspace_root": str(workspace)})
            assert (refused.status, refused.code) == (422, "invalid_input")
            assert str(own) in refused.json()["detail"]
            assert why in refused.json()["detail"]
            assert (await client.post("/api/sessions", asked)).status == 201
            await say_to(client, made.json()["id"], "a file that does not read stops no session that has its model")


@pytest.mark.rule("CP-9")
def test_the_command_line_goes_by_the_model_of_its_folder(run: Run, tmp_path: Path) -> None:
    """``clew run`` without a model, and ``clew config`` says where it comes from."""
    (tmp_path / ".clew").mkdir()
    (tmp_path / ".clew" / "config.toml").write_text('default_model = "demo/echo"\n')
    assert run("run", "hello")[:2] == (0, "hello\n")
    listed = json.loads(run("config", "--json")[1])["settings"]
    assert [one["value"] for one in listed if one["name"] == "model of this folder"] == ["demo/echo"]
    (tmp_path / ".clew" / "config.toml").write_text('default_model = "demo/nothing"\n')
    code, _, err = run("run", "hello")
    assert (code, f"{tmp_path}/.clew/config.toml: default_model:" in err) == (2, True)
