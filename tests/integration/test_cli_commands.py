"""The smaller commands: queue, abort, archive, rm, diff, models, config, demo, check; and every command's help."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.fronts.cli.app import app
from clew.fronts.cli.commands.settings import TurnConfig, list_settings, redact
from tests.integration.http_history import NO_TURN, NOBODY
from tests.integration.test_cli_history import Say, ask, messages, say, talk, turn_of

__all__ = ["say"]

GROUPS = ("schedule", "hook", "rules", "token")
COMMANDS = sorted(name for name in app if not name.startswith("-") and name not in GROUPS)
COMMANDS += sorted(f"{group} {name}" for group in GROUPS for name in app[group] if not name.startswith("-"))
WITHOUT_JSON = {
    "acp",
    "serve",
    "chat",
    "mcp",
    "completion",
    "url",
    "backup",
    "ledger",
    "rm",
    "export",
    "schedule rm",
    "hook rm",
    "rules revoke",
    "token add",
    "token revoke",
    "new",
}


def failed(outcome: tuple[int, str, str], code: int, word: str) -> None:
    assert (outcome[0], outcome[1], outcome[2].count("\n")) == (code, "", 1), outcome
    assert outcome[2].endswith(f"({word})\n")


# Keeping order


def test_the_queue_is_listed_and_cancelled_from(say: Say) -> None:
    """The next one first, by clew's id or the client's own; what has gone is a conflict."""
    session_id = talk("!bash echo hi", model="demo/tools", workspace_root=Path.cwd())

    async def wait(engine: clew.Engine) -> list[str]:
        long = "a long prompt " * 20
        prompts = [await engine.submit(session_id, text, message_id=key) for text, key in [("one", "a"), (long, "b")]]
        return [submission.message_id for submission in prompts]

    [first, second] = ask(wait)
    code, out, err = say("queue", session_id)
    assert (code, err) == (0, "")
    paused = "paused until the pending request is answered\n"
    assert out == f"{first}  one\n{second}  {('a long prompt ' * 20)[:69]}…\n{paused}"
    shown = json.loads(say("queue", session_id, "--json")[1])
    assert [message["id"] for message in shown["messages"]] == [first, second]
    assert say("queue", session_id, "--cancel", "a") == (0, "".join(out.splitlines(keepends=True)[1:]), "")
    failed(say("queue", session_id, "--cancel", first), 4, "conflict")
    failed(say("queue", session_id, "--cancel", "nobody"), 3, "message_not_found")
    assert say("queue", session_id, "--cancel", second, "--json") == (0, '{"messages":[]}\n', "")


def test_abort_denies_what_waits(say: Say) -> None:
    """A second time there is nothing to stop, which is no failure."""
    session_id = talk("!bash echo hi", model="demo/tools", workspace_root=Path.cwd())
    assert say("abort", session_id) == (0, "aborted\n", "")
    assert say("abort", session_id) == (0, "nothing was running\n", "")
    assert say("abort", session_id, "--json") == (0, '{"aborted":false}\n', "")
    [_, answer] = messages(session_id)
    assert [part["state"] for part in answer.parts if "toolCallId" in part] == ["output-denied"]


def test_archive_and_rm(say: Say) -> None:
    """Out of the list and back; gone for good."""
    session_id = talk("one")
    assert say("archive", session_id) == (0, f"{session_id} is archived\n", "")
    assert say("ls") == (0, "", "")
    assert say("archive", session_id, "--undo") == (0, f"{session_id} is no longer archived\n", "")
    assert json.loads(say("archive", session_id, "--json")[1])["archived_at"] > 0
    assert say("ls", "--archived")[1].startswith(session_id)
    assert say("rm", session_id) == (0, f"deleted {session_id}\n", "")
    failed(say("rm", session_id), 3, "session_not_found")


def test_ls_prints_the_shapes_of_http(say: Say) -> None:
    """With the status and what lives in the metadata, without a session's own rules."""
    session_id = talk("one", title="Talk", metadata={"label": "aside"})
    listed = json.loads(say("ls", "--json")[1])
    [session] = listed["sessions"]
    assert (session["id"], session["title"], session["label"]) == (session_id, "Talk", "aside")
    assert (session["status"], session["kind"], "permissions" in session) == ({"state": "idle"}, "chat", False)
    assert listed["next_cursor"] is None


# Looking


def test_diff_shows_what_two_requests_differ_in(say: Say) -> None:
    """Messages that were added, another model; ids do not count, so a branch of the same is the same."""
    session_id = talk("one", "two")
    [u1, _, u2, a2] = messages(session_id)
    code, out, err = say("diff", turn_of(u1), turn_of(u2))
    assert (code, err) == (0, "")
    assert out.startswith(f"--- {turn_of(u1)}\n+++ {turn_of(u2)}\n@@")
    assert [line for line in out.splitlines()[2:] if line.startswith(("+", "-"))] == [
        "+# assistant",
        "+{",
        '+ "type": "step-start"',
        "+}",
        "+one",
        "+# user",
        "+two",
    ]
    branch = say("branch", session_id, a2.id)[1].strip()
    assert say("diff", turn_of(u2), turn_of(messages(branch)[-1])) == (0, "the requests are identical\n", "")
    other = talk("one", model="demo/long")
    told = json.loads(say("diff", turn_of(u1), turn_of(messages(other)[0]), "--json")[1])
    assert (told["from"]["model"]["model_id"], told["to"]["model"]["model_id"]) == ("echo", "long")
    assert "-model demo/echo" in told["diff"]
    failed(say("diff", turn_of(u1), NO_TURN), 3, "turn_not_found")
    failed(say("diff", "mine", NO_TURN), 2, "invalid_id")


def test_models_says_which_can_be_used(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it can and its variants; the default is marked, the others say what is missing; no store is needed."""
    for name in [name for name in os.environ if name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    code, out, err = say("models")
    assert (code, err) == (0, "")
    assert " ".join(out.splitlines()[0].split()) == ("* demo/tour 200,000 tokens 400 out images documents tools :slow")
    assert "not usable: set ANTHROPIC_API_KEY\n" in out
    models = json.loads(say("models", "--json")[1])["models"]
    assert models[1] == {
        "id": "demo/echo",
        "window": 8000,
        "max_output": 400,
        "usable": True,
        "reason": None,
        "default": False,
        "variants": ["slow"],
        "files": models[0]["files"],
        "tools": False,
        "caching": False,
        "known": True,
    }


@pytest.mark.rule("MS-3")
def test_a_variant_is_named_behind_the_model_and_a_misspelt_one_is_refused(say: Say) -> None:
    """As everywhere; what there is to choose from is in the sentence, and no session is left behind."""
    wrong = say("run", "hi", "--model", "demo/echo:slwo")
    assert wrong == (2, "", "clew: demo/echo has no variant 'slwo'; it has slow (unknown_variant)\n")
    assert json.loads(say("ls", "--json")[1])["sessions"] == []
    assert say("run", "hi", "--model", "demo/echo:slow")[:2] == (0, "hi\n")
    [session] = json.loads(say("ls", "--json")[1])["sessions"]
    [asked, _] = json.loads(say("show", session["id"], "--json")[1])["messages"]
    assert asked["metadata"]["model"] == {"provider_id": "demo", "model_id": "echo", "variant": "slow"}
    assert session["model"] == {"provider_id": "demo", "model_id": "echo"}


def test_config_says_where_each_setting_was_read_and_no_secret(say: Say, tmp_path: Path, monkeypatch: Any) -> None:
    """Defaults, the file, the environment; keys and logins are hidden, wherever they stand."""
    folder = tmp_path / "CONFIG" / "clew"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(
        'default_model = "demo/echo"\n[compaction]\nenabled = false\n[providers.local]\nkind = "openai-compatible"\n'
        'base_url = "http://me:hunter2@127.0.0.1:1/v1"\napi_key = "hunter2"\napi_key_env = "MY_KEY"\n'
        '[providers.local.headers]\nx-own = "hunter2"\n'
    )
    monkeypatch.setenv("CLEW_TOKEN", "hunter2-token")
    monkeypatch.setenv("OPENAI_API_KEY", "hunter2")
    code, out, err = say("config")
    assert (code, err, "hunter2" in out) == (0, "", False)
    shown = {row["name"]: (row["value"], row["source"]) for row in json.loads(say("config", "--json")[1])["settings"]}
    assert "hunter2" not in str(shown)
    assert shown["default_model"] == ("demo/echo", "file")
    assert shown["compaction.enabled"] == (False, "file")
    assert shown["compaction.preset"] == (None, "default")
    assert shown["token"] == shown["OPENAI_API_KEY"] == ("(set)", "environment")
    assert shown["store"] == (f"sqlite:///{tmp_path}/store.db", "environment")
    assert shown["providers"] == (
        {
            "local": {
                "kind": "openai-compatible",
                "base_url": "http://…@127.0.0.1:1/v1",
                "api_key": "(set)",
                "api_key_env": "MY_KEY",
                "headers": {"x-own": "(set)"},
            }
        },
        "file",
    )
    assert redact("store", "postgresql://me:secret@host/db") == "postgresql://…@host/db"
    assert list_settings("memory:", {"HOME": str(tmp_path)})[2:4] == [
        TurnConfig("store", "memory:", "option"),
        TurnConfig("token", "(created by the first `clew serve`)", "default"),
    ]
    (folder / "config.toml").write_text("default_model = [")
    failed(say("config"), 2, "invalid_input")


# Samples and care


@pytest.mark.slow
def test_demo_fills_a_store_once(say: Say) -> None:
    """Branches and a reflog, two summaries, an approval, a queue, 2,000 turns; all sound; twice changes nothing."""
    code, out, err = say("demo")
    assert (code, err) == (0, "")
    ids = [line.split()[0] for line in out.splitlines()]
    [parted, compacted, waiting, queued, long] = ids
    tree = json.loads(say("tree", parted, "--json")[1])
    assert (len(tree["branches"]), {turn["on_line"] for turn in tree["turns"]}) == (2, {True, False})
    reasons = [move["why"] for move in json.loads(say("reflog", parted, "--json")[1])["moves"]]
    assert set(reasons) == {"turn", "rewind", "unrewind", "goto"}
    moves = json.loads(say("reflog", compacted, "--json")[1])["moves"]
    assert [move["why"] for move in moves].count("compaction") == 2
    status = {row["id"]: row["status"] for row in json.loads(say("ls", "--json")[1])["sessions"]}
    assert [wait["tool"] for wait in status[waiting]["waiting"]] == ["bash"]
    assert len(say("queue", queued)[1].splitlines()) == 4  # three that wait, and why
    assert len(json.loads(say("tree", long, "--json")[1])["turns"]) == 2_000
    titles = [row["title"] for row in json.loads(say("ls", "--json")[1])["sessions"]]
    assert len(set(titles)) == len(titles) == 7
    assert say("check") == (0, "7 sessions, 0 problems\n", "")
    assert say("check", "--json") == (0, '{"sessions":7,"problems":[]}\n', "")
    titles = [row["title"] for row in json.loads(say("ls", "--json")[1])["sessions"]]
    assert len(set(titles)) == len(titles) == 7
    assert say("demo") == (0, out, "")
    assert [row["id"] for row in json.loads(say("demo", "--json")[1])["sessions"]] == ids
    assert say("check")[1] == "7 sessions, 0 problems\n"


def test_who_has_a_token_is_told_without_it(say: Say) -> None:
    """As lines and as JSON; neither has the token or its digest."""
    assert say("token", "list", "--json") == (0, "[]\n", "")
    token = say("token", "add", "ada", "--root", "/srv/ada", "--root", "/srv/all")[1]
    assert say("token", "list") == (0, "ada\t/srv/ada\t/srv/all\n", "")
    [shown] = json.loads(say("token", "list", "--json")[1])
    assert shown == {"name": "ada", "roots": ["/srv/ada", "/srv/all"], "created_at": shown["created_at"]}
    assert token.strip() not in json.dumps(shown)


# All of them


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(say: Say, name: str) -> None:
    """And takes --store, unless it names two or is of none, and --json where it prints data."""
    code, out, _ = say(*name.split(), "--help")
    assert code == 0
    assert "--empty-" not in out
    assert f"Example: clew {name}" in out
    assert ("--store" in out) is (name not in ("convert", "completion", "new") and not name.startswith("token "))
    assert ("--json" in out) is (name not in WITHOUT_JSON)


@pytest.mark.parametrize("name", ["queue", "abort", "archive", "rm"])
def test_a_session_that_is_none_or_not_there(say: Say, name: str) -> None:
    """2 for no id, 3 for nobody's, 7 where there is no store; usage is 2 too."""
    failed(say(name, NOBODY), 7, "store_unavailable")
    talk("one")
    failed(say(name, NOBODY), 3, "session_not_found")
    for garbage in ("my own", "../..", "ses_\x1b[31m", "", "ü", "'; DROP TABLE"):
        outcome = say(name, garbage)
        failed(outcome, 2, "invalid_id")
        assert "\x1b" not in outcome[2]
    assert say(name)[0] == 2
    assert say(name, NOBODY, "--nothing")[0] == 2
    assert say(name, NOBODY, "more")[0] == 2
