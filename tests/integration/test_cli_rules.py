"""``clew rules`` and ``clew mode``: what a person allowed, seen, explained and taken back from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.command_line import Run, run

__all__ = ["run"]


@pytest.mark.rule("PM-7")
def test_a_rule_of_this_folder_is_added_listed_explained_and_revoked(run: Run, tmp_path: Path) -> None:
    """By the id that the list gives; the second time there is none."""
    assert run("rules", "add", "allow", "bash", "git status *")[0] == 0
    code, out, _ = run("rules", "--json")
    [rule] = json.loads(out)["rules"]
    assert (code, rule["scope"], rule["of"]) == (0, "project", str(tmp_path))
    assert run("rules") == (0, f"project {tmp_path}\n  {rule['id']}  allow  bash git status *\n", "")
    run("run", "hello", "--model", "demo/echo")
    session = json.loads(run("ls", "--json")[1])["sessions"][0]["id"]
    assert run("rules", "explain", "bash", "git status -s", "--session", session)[1] == (
        "allow: the project rule `bash git status *` allows it\n"
    )
    listed = run("rules", "--session", session)[1]
    assert listed.startswith(f"project {tmp_path}\n")
    assert "\nagent assistant\n" in listed
    assert run("rules", "revoke", rule["id"]) == (0, "", "")
    assert run("rules") == (0, "no rules; add one with `clew rules add`\n", "")
    assert run("rules", "revoke", rule["id"])[0] == 3
    assert run("rules", "explain", "bash", "ls")[0] == 2


@pytest.mark.rule("PM-7")
def test_a_rule_is_one_line_whatever_its_pattern_holds(run: Run, tmp_path: Path) -> None:
    """The name of a file may hold a line break and what would look like another rule behind it."""
    run("rules", "add", "allow", "write", "a\n  rule_0  deny   bash *")
    assert run("rules")[1].splitlines()[1:] == [
        f"  {json.loads(run('rules', '--json')[1])['rules'][0]['id']}  allow  write a\\n  rule_0  deny   bash *"
    ]


@pytest.mark.rule("PM-7")
def test_a_session_has_rules_of_its_own_and_a_mode(run: Run) -> None:
    """Both are shown and changed by its id."""
    run("run", "hello", "--model", "demo/echo")
    session = json.loads(run("ls", "--json")[1])["sessions"][0]["id"]
    code, made, _ = run("rules", "add", "deny", "edit", "src/**", "--session", session)
    assert (code, made.strip()) == (0, json.loads(run("rules", "--session", session, "--json")[1])["rules"][0]["id"])
    assert run("mode", session) == (0, "ask\n", "")
    assert run("mode", session, "read_only") == (0, "read_only\n", "")
    assert run("mode", session, "--json") == (0, '{"mode":"read_only"}\n', "")
    assert run("mode", session, "yolo")[0] == 2
    assert run("rules", "revoke", made.strip(), "--session", session)[0] == 0
