"""Places whose content other programs run: more of them, and links that lead from them to ordinary files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clew.permissions.evaluate import evaluate
from clew.session.turn.protected_paths import leads_to
from clew.tools.builtin.edit import edit
from clew.tools.builtin.write import write
from clew.transcript.rule import Rule, Target
from tests.unit.permission_values import bash


@pytest.mark.rule("PM-7")
@pytest.mark.parametrize(
    "name",
    [
        ".env",
        ".tool-versions",
        ".lessfilter",
        "node_modules/eslint/bin/eslint.js",
        "my-env/bin/activate",
        "my-env/lib/python3.12/site-packages/six.py",
        "pyvenv.cfg",
        "bunfig.toml",
        "lefthook.toml",
        ".zlogout",
        "simple-git-hooks.cjs",
        ".Kube/config.yml",
        "rust-toolchain.toml",
        "sub/rust-toolchain",
        "tools/bazel",
        "gradle.properties",
        "NuGet.Config",
        "src/Directory.Build.targets",
        ".Renviron",
        ".pylintrc",
        "_vimrc",
    ],
)
def test_accept_edits_asks_about_more_places_whose_content_is_executed_later(name: str) -> None:
    target = Target("write", "path", f"/w/{name}", True)
    assert evaluate([target], mode="accept_edits", workspace="/w").action == "ask"


LINKS = {".envrc": "real/envrc", ".husky": "real", "x": ".envrc", "plain": "real/a.txt", "y": ".husky/pre-commit"}


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    root = Path(os.path.realpath(tmp_path))
    (root / "real").mkdir()
    for name, leads in LINKS.items():
        (root / name).symlink_to(leads)
    return root


@pytest.mark.rule("PM-7")
@pytest.mark.parametrize(
    ("name", "decided"),
    [
        (".envrc", "ask"),
        ("./real/../.envrc", "ask"),
        ("x", "ask"),
        (".husky/pre-commit", "ask"),
        ("y", "ask"),
        ("plain", "allow"),
        ("real/a.txt", "allow"),
    ],
)
def test_accept_edits_asks_about_such_a_place_that_is_a_link_to_an_ordinary_file(
    name: str, decided: str, linked: Path
) -> None:
    for one in (write, edit):
        targets = one.targets({"path": name, "old": "", "new": "", "content": ""}, linked)
        assert evaluate(targets, mode="accept_edits", workspace=linked, tool=one.name).action == decided


@pytest.mark.rule("PM-7")
@pytest.mark.parametrize(("name", "decided"), [(".envrc", "ask"), (".husky/pre-commit", "ask"), ("plain", "allow")])
def test_a_redirect_through_a_link_is_judged_by_the_name_of_the_link_too(name: str, decided: str, linked: Path) -> None:
    found = evaluate(
        [bash(f"echo x > {name}")],
        session=[Rule("bash", "echo *", "allow")],
        mode="accept_edits",
        workspace=linked,
        resolve=leads_to,
    )
    assert found.action == decided


@pytest.mark.rule("PM-8")
@pytest.mark.parametrize(
    "line",
    [
        "cp a .git/hooks/pre-commit",
        "mv a sub/.GIT/config",
        "ln -s ../../a .git/hooks/pre-commit",
        "echo x | tee .git/hooks/pre-commit",
        "install -m 755 --target-directory=.git/hooks a",
        "dd if=a of=.git/config",
        "cd .git/hooks; cp ../../a pre-commit",
    ],
)
def test_a_star_covers_no_write_into_the_folder_of_git(line: str) -> None:
    rules = [Rule("bash", f"{name} *", "allow") for name in ("cp", "mv", "ln", "echo", "tee", "install", "dd", "cd")]
    moved = line.replace(".git/", "git/").replace(".GIT/", "git/")
    assert [evaluate([bash(one)], session=rules, workspace="/w").action for one in (line, moved)] == ["ask", "allow"]
