"""What came from another program goes on: forks have their history, models take its calls, pictures and thoughts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.providers.registry import ProviderConfig, ProviderRegistry
from tests.integration.command_line import Run, run
from tests.integration.moved_in import PROGRAMS, exported
from tests.integration.test_moving_in import CASES, taken
from tests.integration.wire_server import ANTHROPIC, WireServer, ok
from tests.integration.wired import wired

__all__ = ["run"]

FORKS = PROGRAMS / "codex/forks"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
ANTHROPIC_ID = re.compile(r"[a-zA-Z0-9_-]+")


def pi(*messages: dict[str, Any]) -> bytes:
    """A session of pi with these messages, each below the one before."""
    lines: list[dict[str, Any]] = [
        {"type": "session", "version": 3, "id": "s-1", "timestamp": "2026-03-01T09:00:00.000Z", "cwd": "/maze"}
    ]
    for number, message in enumerate(messages, start=1):
        parent = str(number - 1) if number > 1 else None
        at = f"2026-03-01T09:00:{number:02}.000Z"
        lines.append({"type": "message", "id": str(number), "parentId": parent, "timestamp": at, "message": message})
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def asked(words: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": words}]}


def answer(*content: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "provider": "anthropic", "model": "m", "stopReason": "stop", "content": list(content)}


def call(id_: str, name: str = "look") -> dict[str, Any]:
    return {"type": "toolCall", "id": id_, "name": name, "arguments": {"id": id_}}


def result(id_: str, *content: dict[str, Any]) -> dict[str, Any]:
    return {"role": "toolResult", "toolCallId": id_, "toolName": "look", "content": list(content), "isError": False}


PICTURE = {"type": "image", "data": PIXEL, "mimeType": "image/png"}


@pytest.mark.rule("IO-1")
def test_a_fork_of_codex_comes_with_the_history_that_its_base_holds(run: Run) -> None:
    """It names the base and where it was forked; what the base said since is not the fork's. A fork of a fork too."""
    code, out, err = run("import", "--from", "codex", str(FORKS), "--json")
    assert (code, err) == (0, "")
    found: dict[str, Any] = {}
    for one in json.loads(out)["sessions"]:
        assert [remark["what"] for remark in one["remarks"] if remark["fate"] == "lost"] == []
        whole = exported(run, one["session_id"])
        rows = [row for row in whole["messages"] if row["role"] == "user" and "synthetic" not in row["metadata"]]
        found[whole["session"]["metadata"]["came_from"]["id"][9:13]] = (
            [part["data"]["text"] for row in rows for part in row["parts"] if part["data"]["type"] == "text"],
            whole["session"]["parent_id"] is not None,
        )
    base, fork = ["Base one DO:bash", "Base two"], ["Fork one DO:bash", "Fork two"]
    assert found == {
        "8a0f": ([*base, "Base three after the fork"], False),
        "8adb": ([*base, *fork], True),
        "8bab": ([*base, *fork, "Fork of fork"], True),
    }


@pytest.mark.rule("IO-1")
def test_a_fork_of_codex_without_its_base_says_where_its_history_is(run: Run, tmp_path: Path) -> None:
    """A base that is not there, or names the fork itself, is no endless search."""
    [file] = FORKS.rglob("*8adb*.jsonl")
    alone = tmp_path / "alone" / file.name
    alone.parent.mkdir()
    alone.write_bytes(file.read_bytes())
    lost = [one["what"] for one in taken(run, "codex", alone)["remarks"] if one["fate"] == "lost"]
    base = "01a1eff0-8a0f-74f0-ba8b-dad835453d28"
    assert lost == [f"its beginning is in the file of session {base}, which is not available"]
    own = "01a1eff0-8adb-7100-90c4-1160d98d124e"
    alone.write_text(file.read_text().replace(base, own))
    assert run("import", "--from", "codex", str(alone), "--list")[0] == 0


@pytest.mark.rule("IO-1")
@pytest.mark.parametrize("path", [*CASES, "codex/forks", "claude-code/several"])
def test_what_is_listed_is_what_comes(run: Run, path: str) -> None:
    """Turns and subagents are counted the same way in both."""
    program = path.partition("/")[0]
    code, out, _ = run("import", "--from", program, str(PROGRAMS / path), "--list", "--json")
    listed = sorted([one["title"], one["turns"], one["subagents"]] for one in json.loads(out))
    code, out, _ = run("import", "--from", program, str(PROGRAMS / path), "--json")
    came = sorted([one["title"], one["turns"], one["subagents"]] for one in json.loads(out)["sessions"])
    assert (code, came) == (0, listed)


@pytest.mark.rule("IO-1")
@pytest.mark.parametrize("path", CASES)
def test_what_is_kept_of_another_program_is_not_shown(run: Run, path: str) -> None:
    session = taken(run, CASES[path], PROGRAMS / path)["session_id"]
    assert any(
        part["data"]["type"] == "data-kept" for row in exported(run, session)["messages"] for part in row["parts"]
    )
    for view in ("visible", "all", "model"):
        code, out, _ = run("show", session, "--view", view)
        assert (code, "data-kept" in out) == (0, False)


@pytest.mark.rule("IO-1")
async def test_what_is_kept_of_another_program_is_in_no_request() -> None:
    """Neither sent nor reported as sent."""
    file = next((PROGRAMS / "pi/3").rglob("*.jsonl")).read_bytes()
    async with clew.open("memory:", providers=ProviderRegistry(environ={})) as engine:
        session = (await engine.import_from("pi", file)).session_id
        turn = (await (await engine.submit(session, "Go on.", model="demo/echo")).wait()).turn_id
        report = await engine.request(turn)
    assert report.proven
    assert {part["type"] for message in report.messages for part in message.parts if "kept" in part["type"]} == set()


@pytest.mark.rule("IO-2")
def test_calls_go_to_claude_code_under_ids_that_its_api_takes(run: Run, tmp_path: Path) -> None:
    """Each has its own, also where two become alike; its result names it; one that is valid stays."""
    ids = ["call_1|fc_2", "call_1:fc_2", "call_1_fc_2", "toolu_1"]
    file = tmp_path / "s.jsonl"
    results = [result(id_, {"type": "text", "text": id_}) for id_ in ids]
    file.write_bytes(pi(asked("Look."), answer(*(call(id_, "mcp.maze/look") for id_ in ids)), *results))
    session = taken(run, "pi", file)["session_id"]
    code, out, _ = run("export", session, "--format", "claude-code")
    lines = [json.loads(line) for line in out.splitlines()]
    blocks = [
        block for line in lines if isinstance(line["message"]["content"], list) for block in line["message"]["content"]
    ]
    calls = {block["id"]: block["input"]["id"] for block in blocks if block["type"] == "tool_use"}
    assert calls == {
        "call_1_fc_2_3": "call_1|fc_2",
        "call_1_fc_2_2": "call_1:fc_2",
        "call_1_fc_2": "call_1_fc_2",
        "toolu_1": "toolu_1",
    }
    given = {block["tool_use_id"]: block["content"] for block in blocks if block["type"] == "tool_result"}
    assert (code, given) == (0, calls)
    assert all(ANTHROPIC_ID.fullmatch(block["name"]) for block in blocks if block["type"] == "tool_use")


@pytest.mark.rule("IO-1")
async def test_a_picture_that_a_tool_gave_back_is_sent_as_its_result() -> None:
    """Alone, and beside a text."""
    file = pi(
        asked("Look."),
        answer(call("c1"), call("c2")),
        result("c1", PICTURE),
        result("c2", {"type": "text", "text": "the door"}, PICTURE),
    )
    async with wired("anthropic") as one:
        session = (await one.client.post("/api/import-from?program=pi", file)).json()["session_id"]
        assert (await one.client.prompt(session, "And?", model="wired/m")).status == 202
        await one.client.idle(session)
        sent = one.wire.requests[0].json["messages"]
    results = [block["content"] for message in sent for block in message["content"] if block["type"] == "tool_result"]
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    assert results == [[picture], [{"type": "text", "text": "the door"}, picture]]


@pytest.mark.rule("IO-1", "IO-2")
async def test_thoughts_go_back_to_any_provider_of_the_kind_that_signed_them() -> None:
    """Signed by ``anthropic`` and sent to ``wired``, which is of its kind; signed there, exported for Claude Code."""
    thought = {"type": "thinking", "thinking": "By the door.", "thinkingSignature": "c2lnbmVk"}
    file = pi(asked("Where?"), answer(thought, {"type": "text", "text": "There."}))
    async with wired("anthropic") as one:
        session = (await one.client.post("/api/import-from?program=pi", file)).json()["session_id"]
        events = [*ANTHROPIC.thinking_block(0, "Again.", signature="b3du"), *ANTHROPIC.text_block(1, "Yes.")]
        one.wire.reply(*ok(), ANTHROPIC.start(), *events, *ANTHROPIC.stop())
        assert (await one.client.prompt(session, "Sure?", model="wired/m")).status == 202
        await one.client.idle(session)
        sent = one.wire.requests[0].json["messages"]
        out = (await one.client.get(f"/api/sessions/{session}/export?format=claude-code")).body.decode()
    assert sent[1]["content"][0] == {"type": "thinking", "thinking": "By the door.", "signature": "c2lnbmVk"}
    answers = [line["message"] for line in map(json.loads, out.splitlines()) if line["type"] == "assistant"]
    assert [(said["content"][0]["thinking"], said["content"][0]["signature"]) for said in answers] == [
        ("By the door.", "c2lnbmVk"),
        ("Again.", "b3du"),
    ]


@pytest.mark.rule("IO-1")
async def test_an_import_from_before_a_key_was_set_gets_the_default_model_of_its_next_turn(tmp_path: Path) -> None:
    """Also after turns on the demo; a model that a person chose stays, the demo too."""
    url, file = f"sqlite:///{tmp_path}/s.db", pi(asked("Where?"), answer({"type": "text", "text": "There."}))
    async with clew.open(url, providers=ProviderRegistry(environ={})) as engine:
        waits = (await engine.import_from("pi", file)).session_id
        chosen = (await engine.import_from("pi", file.replace(b'"s-1"', b'"s-2"'))).session_id
        await (await engine.submit(waits, "Hello?")).wait()
        await engine.patch_session(chosen, model="demo/tour")
        assert [str((await engine.get_session(id_)).model) for id_ in (waits, chosen)] == ["demo/tour"] * 2
    async with WireServer() as wire:
        wire.always(*ok(), *ANTHROPIC.text("Here."))
        config = ProviderConfig(kind="anthropic", base_url=wire.url, api_key="k")
        registry = ProviderRegistry({"work": config}, default_model="work/claude-x", environ={})
        async with clew.open(url, providers=registry) as engine:
            for id_ in (waits, chosen):
                await (await engine.submit(id_, "And now?")).wait()
            models = [str((await engine.get_session(id_)).model) for id_ in (waits, chosen)]
            grown = await engine.import_from("pi", file.replace(b'"s-1"', b'"s-2"'))
            assert (models, grown.outcome) == (["work/claude-x", "demo/tour"], "same")


@pytest.mark.rule("IO-1", "IO-2")
@pytest.mark.parametrize("provider", ["anthropic", "github-copilot", "work"])
async def test_a_thought_is_anthropics_by_the_api_that_made_it_whatever_the_provider_is_called(provider: str) -> None:
    """Sent to a provider of its kind, exported for Claude Code, and back to pi as it was; one of another API is not."""
    thought = {"type": "thinking", "thinking": "By the door.", "thinkingSignature": "c2lnbmVk"}
    said = [{"type": "text", "text": "There."}]
    apis = ["anthropic-messages", "openai-completions"]
    answers = [answer(thought, *said) | {"provider": provider, "api": api} for api in apis]
    file = pi(asked("Where?"), answers[0], asked("Sure?"), answers[1] | {"provider": "other"})
    async with wired("anthropic") as one:
        session = (await one.client.post("/api/import-from?program=pi", file)).json()["session_id"]
        assert (await one.client.prompt(session, "And?", model="wired/m")).status == 202
        await one.client.idle(session)
        sent = one.wire.requests[0].json["messages"]
        outs = [
            (await one.client.get(f"/api/sessions/{session}/export?format={form}")).body.decode().splitlines()
            for form in ("claude-code", "pi")
        ]
    signed = {"type": "thinking", "thinking": "By the door.", "signature": "c2lnbmVk"}
    assert [message["content"][0] for message in sent if message["role"] == "assistant"] == [signed, *said]
    lines = [[json.loads(line).get("message", {}) for line in out] for out in outs]
    claude, again = ([line["content"] for line in one if line.get("role") == "assistant"][:2] for one in lines)
    assert claude == [[signed, *said], said]
    assert again == [[thought, *said], [thought, *said]]
    assert [line["api"] for line in lines[1] if line.get("role") == "assistant"][:2] == apis


@pytest.mark.rule("IO-2", "FS-7")
def test_an_openai_thought_goes_back_to_pi_as_the_item_it_was(run: Run, tmp_path: Path) -> None:
    """Its summary, which pi sends again, and keys of it that nobody knows; pi keeps the item as a text."""
    items: list[dict[str, Any]] = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VhbA=="},
        {"type": "reasoning", "id": "rs_2", "summary": [{"type": "summary_text", "text": "one"}]},
        {
            "type": "reasoning",
            "id": "rs_3",
            "summary": [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}],
            "encrypted_content": "c2VhbA==",
            "status": "completed",
            "zz": {"deep": [1, None]},
        },
    ]
    said = [
        {
            "type": "thinking",
            "thinking": "\n\n".join(one["text"] for one in item["summary"]),
            "thinkingSignature": json.dumps(item),
        }
        for item in items
    ]
    made = answer(*said, {"type": "text", "text": "There."}) | {"provider": "openai", "api": "openai-responses"}
    file = tmp_path / "s.jsonl"
    file.write_bytes(pi(asked("Where?"), made))
    session = taken(run, "pi", file)["session_id"]
    code, out, err = run("export", session, "--format", "pi", "--keep-secrets")
    assert code == 0, err
    [content] = [line["message"]["content"] for line in map(json.loads, out.splitlines()) if "api" in str(line)]
    assert [json.loads(block["thinkingSignature"]) for block in content[:-1]] == items


@pytest.mark.rule("IO-1")
def test_what_a_compaction_of_codex_kept_of_the_user_is_sent_with_its_summary(run: Run, tmp_path: Path) -> None:
    """Codex goes on with the prompts of before, word for word, and the summary; what it tells the model is its own."""

    def user(words: str) -> dict[str, Any]:
        return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": words}]}

    history = [user("Where?"), user("<environment_context>x</environment_context>"), user("Look."), user("A thread.")]
    payloads = [
        ("session_meta", {"id": "0199a213-0000-7000-8000-0000000000c1", "timestamp": "2026-01-05T08:00:00.000Z"}),
        ("response_item", user("Where?")),
        (
            "response_item",
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hm."}]},
        ),
        ("response_item", user("Look.")),
        ("compacted", {"message": "A thread.", "replacement_history": history}),
        ("response_item", user("Go on.")),
    ]
    lines = [{"timestamp": "2026-01-05T08:00:01.000Z", "type": kind, "payload": one} for kind, one in payloads]
    file = tmp_path / "rollout-2026-01-05T08-00-00-0199a213-0000-7000-8000-0000000000c1.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    session = taken(run, "codex", file)["session_id"]
    code, out, err = run("show", session, "--view", "model")
    assert code == 0, err
    summary = out.partition("<summary>")[2].partition("</summary>")[0]
    assert summary.strip() == "user: Where?\n\nuser: Look.\n\nA thread."
