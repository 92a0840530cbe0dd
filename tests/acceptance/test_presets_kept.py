"""What presets keep and what they say of it, as whoever uses clew meets it: over HTTP, in the files, in the ledger."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from clew.testing.scripted import Gate, call, say, wait
from tests.acceptance.compacting import bulk
from tests.acceptance.serving import begin, say_to, serving
from tests.integration.command_line import Run, run
from tests.readers import reader_003

__all__ = ["run"]

SMALL = {"reserve_tokens": 1_000, "keep_recent_tokens": 2_000, "pruning": {"enabled": False}}


@pytest.mark.rule("CP-14", "CP-9", "FS-1")
async def test_a_reader_of_the_log_has_the_open_request_while_its_turn_is_summarised_inside(tmp_path: Path) -> None:
    """With the preset ``overlay``, over HTTP: also before the turn has ended, and nothing that is kept is missing."""
    gate, words = Gate(), "do all of it, and never stop"
    calls = [call("dump", {"chars": 4_000, "word": f"log{n}"}) for n in range(12)]
    async with serving(
        tmp_path, say("hi"), *calls, [wait(gate), say("done")], window=10_000, store=f"jsonl:{tmp_path / 'store'}"
    ) as client:
        session_id = await begin(client, metadata={"compaction": SMALL})
        await say_to(client, session_id, "hello")
        assert (await client.prompt(session_id, words)).status == 202
        await gate.reached.wait()
        assert (await client.status(session_id))["state"] == "busy"
        place = tmp_path / "store" / "sessions" / session_id
        for ended in (False, True):
            (role, told), *context = reader_003.build_context(place)
            assert (role, "## Goal\n- the goal" in told) == ("summary", True)
            # Appended again right before the summary, so behind the steps that were kept.
            assert [said for role, said in context if role == "user"] == [[words]]
            answers = [said[0] for role, said in context if role == "assistant"]
            kept = [arguments["word"] for _, arguments in answers[: len(answers) - ended]]
            assert 0 < len(kept) < 12
            assert kept == [f"log{n}" for n in range(12 - len(kept), 12)]
            assert [said[0].split()[0] for role, said in context if role == "toolResult"] == kept
            assert answers[len(kept) :] == ["done"] * ended
            gate.set()
            await client.idle(session_id)


@pytest.mark.rule("CP-14", "CP-9", "BR-8")
async def test_the_turn_preset_summarises_and_keeps_whole_turns_as_the_ledger_tells(tmp_path: Path) -> None:
    """Over HTTP and in plain SQL: where the summary ends the next turn is kept, from its first message on."""
    file = tmp_path / "ledger.db"
    script = [entry for _ in range(8) for entry in (*[call("dump", {"chars": 3_000})] * 4, say("seen"))]
    async with serving(tmp_path, *script, window=10_000, store=f"sqlite:///{file}") as client:
        session_id = await begin(client, metadata={"compaction": {"preset": "turn", **SMALL}})
        for number in range(8):
            await say_to(client, session_id, f"{number} go")
        parts = [part for one in await client.messages(session_id, "all") for part in one["parts"]]
        compactions = [part["data"] for part in parts if part["type"] == "data-compaction"]
        assert len(compactions) > 0
        assert ["split" in one for one in compactions] == [False] * len(compactions)
        tree = (await client.get(f"/api/sessions/{session_id}/tree")).json()["turns"]
        first = {turn["messages"][0]: turn["id"] for turn in tree if turn["kind"] == "normal"}
        kept = [first[one["tail_start_id"]] for one in compactions]
    order = [turn["id"] for turn in tree if turn["kind"] == "normal"]
    columns = "summarized_through_turn_id, first_kept_turn_id, tokens_before, tokens_after"
    with contextlib.closing(sqlite3.connect(file)) as ledger, ledger:
        rows = ledger.execute(
            f"SELECT {columns} FROM ledger_turns WHERE turn_type = 'compaction' ORDER BY created_at, id"
        ).fetchall()
    figures = [(one["tokens_before"], one["tokens_after"]) for one in compactions]
    assert rows == [(order[order.index(turn) - 1], turn, *figure) for turn, figure in zip(kept, figures, strict=True)]
    assert all(before > after > 0 for before, after in figures)


@pytest.mark.rule("CP-14", "CP-7")
@pytest.mark.parametrize("preset", ["guide", "checkpoint", "overlay", "turn"])
async def test_the_figures_of_a_compaction_compare_and_its_files_are_named_from_the_workspace(
    preset: str, tmp_path: Path
) -> None:
    """Over HTTP, in every preset: what is left is what the gauge says then; a file has one name, however called."""
    workspace = tmp_path / "project"
    (workspace / "src").mkdir(parents=True)
    (workspace / "src" / "a.py").write_text("a = 1\n")
    (workspace / "b.txt").write_text("b\n")
    named: list[dict[str, Any]] = [
        {"path": "src/a.py"},
        {"path": f"{workspace}/src/a.py"},
        {"path": "./src/../src/a.py"},
        {"path": "b.txt"},
    ]
    reads = [entry for path in named for entry in (call("read", path), say("seen"))]
    async with serving(tmp_path, *reads, window=100_000, store="memory:") as client:
        own = {"preset": preset, "tail_turns": 1}
        session_id = await begin(client, metadata={"compaction": own}, workspace_root=str(workspace))
        for number in range(4):
            await say_to(client, session_id, f"{number} {bulk('word', 3_000)}")
        for _ in range(2):
            await say_to(client, session_id, bulk("word", 3_000))
        before = (await client.get(f"/api/sessions/{session_id}/context")).json()
        done = (await client.post(f"/api/sessions/{session_id}/compact", {})).json()
        after = (await client.get(f"/api/sessions/{session_id}/context")).json()
        assert done["compacted"] is True
        assert done["tokens_after"] == after["used"]
        assert abs(done["tokens_before"] - before["used"]) < before["used"] * 0.15
        [part] = [
            one
            for m in await client.messages(session_id, "all")
            for one in m["parts"]
            if one["type"] == "data-compaction"
        ]
        data = part["data"]
        assert (data["tokens_before"], data["tokens_after"]) == (done["tokens_before"], done["tokens_after"])
        assert data["summarised_tokens"] < data["tokens_before"]
        assert (data["read_files"], data["modified_files"]) == (["b.txt", "src/a.py"], [])
        told = json.dumps(await client.messages(session_id, "model"))
        assert ("src/a.py" in told, f"{workspace}/src/a.py" in told) == (True, False)


@pytest.mark.slow
@pytest.mark.rule("CP-14", "CP-7")
@pytest.mark.parametrize("store", ["json:store", "jsonl:store", "sqlite:///store.db"])
def test_the_command_line_tells_the_same_figures_and_names(store: str, run: Run, tmp_path: Path) -> None:
    """``clew compact`` and ``clew context`` agree; the files are those of the present folder."""
    (tmp_path / "a.txt").write_text("a clew\n")
    config = tmp_path / "config" / "clew" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[compaction]\nkeep_recent_tokens = 600\n")
    of = ("--store", store)
    assert run("run", f"!read {tmp_path}/a.txt\n!read a.txt", "--model", "demo/tools", *of)[0] == 0
    session_id = run("ls", *of)[1].split()[0]
    for number in range(5):
        assert run("run", f"{number} {'word ' * 200}", "--session", session_id, *of)[0] == 0
    done = json.loads(run("compact", session_id, "--json", *of)[1])
    left = json.loads(run("context", session_id, "--json", *of)[1])
    assert (done["compacted"], done["tokens_after"]) == (True, left["used"])
    assert done["tokens_before"] > done["tokens_after"]
    shown = json.loads(run("show", session_id, "--view", "all", "--json", *of)[1])["messages"]
    [part] = [one for message in shown for one in message["parts"] if one["type"] == "data-compaction"]
    assert (part["data"]["read_files"], part["data"]["modified_files"]) == (["a.txt"], [])
