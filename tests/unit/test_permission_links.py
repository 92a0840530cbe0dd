"""Links that lead to clew's own places: those of the workspace, and those that a line brings along itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from clew.permissions.evaluate import evaluate
from clew.permissions.rules import own_rules
from clew.permissions.shell.tokens import word_set
from clew.session.turn.protected_paths import glob_finder, leads_to
from clew.transcript.rule import Rule
from tests.unit.permission_values import bash

NAMES = word_set(
    """7z awk cat cd cmake cp cpio dd diff echo find frob gcc git grep head install jq ls make mv npm pytest python3 rg
    rsync sed sort split strings tar tee touch unzip xz zip [ test"""
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace with one folder from which a link leads home, and one with links that stay inside it."""
    root = tmp_path.resolve()
    (root / "home/.config/clew").mkdir(parents=True)
    (root / "home/.config/clew/token").touch()
    for name in ("linked", "plain/deep"):
        (root / "w" / name).mkdir(parents=True)
    (root / "w/linked/h").symlink_to("../../home")
    (root / "w/plain/deep/up").symlink_to("..")
    return root / "w"


def action(line: str, workspace: Path) -> str:
    home = workspace.parent / "home"
    return evaluate(
        [bash(line)],
        manifest=own_rules([str(home / ".config/clew")], []),
        session=[Rule("bash", f"{name} *", "allow") for name in NAMES],
        workspace=str(workspace),
        resolve=leads_to,
        home=str(home),
        finds=glob_finder(),
    ).action


@pytest.mark.rule("PM-9")
@pytest.mark.parametrize(
    "line",
    ["grep -R x .", "grep -nR x linked", "grep --dereference-rec x", "grep -R -e x", "rg -L x", "rg --follow x linked",
     "cp -rL . out", "diff -r linked plain", "tar ch linked", "tar -c --deref .", "zip -r a.zip linked",
     "cd linked && grep -R x .", "strings @names", "xz -dc --files=names"],
)  # fmt: skip
def test_a_program_that_follows_the_links_it_finds_is_asked_about_where_one_leads_to_a_closed_place(
    line: str, workspace: Path
) -> None:
    assert action(line, workspace) == "ask"
    (workspace / "linked/h").unlink()
    # A list of further arguments may name anything; the rest is allowed once no link leads there.
    assert action(line, workspace) == ("ask" if "names" in line else "allow")


@pytest.mark.rule("PM-5", "PM-8")
@pytest.mark.parametrize(
    "line",
    ["tar xf p.tar -C linked/h", "tar cf linked/h/profile a", "git init -q linked/h/x", "git mv a linked/h/profile",
     "git clone -q ./bare linked/h/x", "zip -q linked/h/profile a", "split a linked/h/x", "cmake -B linked/h/x",
     "pytest linked/h", "cd linked/h; tar cf profile a", "cd ../home && git init -q x", "cd linked && split ../a h/x",
     "tar xf d.tar && split a d/x", "git checkout -q evil; git init -q d/x", "git merge -q x; git clone -q ./bare d/x",
     "find ../home -execdir tar cf profile a \\;"],
)  # fmt: skip
def test_a_place_to_write_is_asked_about_where_it_may_lead_out_of_the_workspace(line: str, workspace: Path) -> None:
    assert action(line, workspace) == "ask"


@pytest.mark.rule("PM-5", "PM-9")
@pytest.mark.parametrize(
    "line", ["tar xf p.tar", "tar -xzf p.tar", "tar --extract -f p.tar", "tar --get -f p.tar", "cd plain; tar xf p.tar",
             "unzip p.zip", "7z x p.7z", "tar xf p.tar -C plain -C deep", "cd linked && unzip ../p.zip"],
)  # fmt: skip
def test_unpacking_is_asked_about_where_a_link_leads_out_of_the_workspace(line: str, workspace: Path) -> None:
    """What is unpacked as `linked/h/.config/clew/token` would replace the token."""
    assert action(line, workspace) == "ask"
    (workspace / "linked/h").unlink()
    # A link to a file is replaced and not followed.
    (workspace / "linked/python").symlink_to("/bin/sh")
    assert action(line, workspace) == ("ask" if "-C" in line else "allow")


def test_a_place_inside_the_workspace_stays_allowed(workspace: Path) -> None:
    (workspace / "linked/h").unlink()
    lines = ["tar xf p.tar -C plain", "tar tf p.tar", "tar cf plain/deep/up/a.tar a", "git init x", "git clone https://a.example/x",
             "git clone https://a.example/x y && cd y && npm install", "git checkout main && cmake -B build",
             "git pull && pytest tests/test_a.py::test_b", "cd plain && tar xf p.tar", "split a plain/x"]  # fmt: skip
    assert [line for line in lines if action(line, workspace) != "allow"] == []


@pytest.mark.rule("PM-9")
@pytest.mark.parametrize(
    "line",
    ["jq -n 'input | \"linked/h/.config/clew/token\"'", "awk 1 'x=linked/h/.config/clew/token'", "cpio -o < names",
     "cat < names | cpio -p out", "7z a x.7z @names", "grep x <<E\nlinked/h/.config/clew/token\nE"],
)  # fmt: skip
def test_a_closed_place_is_found_behind_a_link_in_text_and_in_lists_of_names(line: str, workspace: Path) -> None:
    assert action(line, workspace) in ("ask", "deny")


@pytest.mark.rule("PM-9")
@pytest.mark.parametrize(
    "line",
    ["git checkout -q evil; cat d/.config/clew/token", "git merge evil && head t", "git --no-pager checkout x; cat t",
     "git pull -q\ngrep -r x d", "git mv a b; sed -n p b/t", "tar xf a.tar; cat t", "git stash pop | cat t",
     "git checkout -q evil; git diff --no-index a d/t", "git checkout evil; git commit -F t"],
)  # fmt: skip
def test_a_file_is_asked_about_where_the_same_line_may_bring_a_link_along(line: str, workspace: Path) -> None:
    assert action(line, workspace) == "ask"


def test_lines_that_follow_no_link_stay_allowed(workspace: Path) -> None:
    """Also behind a checkout, where what follows names no file or runs what the workspace holds."""
    lines = ["grep -r x .", "rg x", "cp -r plain out", "git checkout main && git pull", "git pull && npm install",
             "git checkout main && make test", "git stash; git status", "git checkout x && git log --oneline | head -5",
             "cat plain/a; grep x plain/a"]  # fmt: skip
    assert [line for line in lines if action(line, workspace) != "allow"] == []
    (workspace / "linked/h").unlink()
    assert [action(line, workspace) for line in ("grep -R x plain", "diff -r plain linked")] == ["allow", "allow"]


@pytest.mark.rule("PM-8")
@pytest.mark.parametrize(
    "line",
    ["cp a g/hooks/pre-commit", "mv a plain/../g/config", "tee g/config < a", "dd if=a of=g/config", "cp -t g config",
     "install -m 755 --target-directory=g/hooks a", "cd g; cp ../a config", "cd plain; cp ../a ../g/config",
     "touch g/x", "cp a */hooks/pre-commit", "cp a [g]/config", "git mv a g/hooks/pre-commit", "split a g/hooks/x",
     "tar xf p.tar -C g", "zip -q g/config a", "git init g/x", "git clone -q ./bare g/x", "cmake -B g",
     "rsync -a a/ g/hooks", "rsync -a a/ .git/hooks/", "gcc -o .git/hooks/x a.c", "gcc -o g/hooks/x a.c",
     "frob .git/config", "frob --output=g/config", "find . -exec frob g/{} \\;", "git init */x", "split a gi*/hooks/x"],
)  # fmt: skip
def test_no_star_covers_a_write_into_the_folder_of_git_through_a_link_or_a_program_without_a_table(
    line: str, workspace: Path
) -> None:
    """A branch may hold the link `g`; a hook or a setting behind it would run with the next command of git."""
    (workspace / "linked/h").unlink()
    (workspace / ".git/hooks").mkdir(parents=True)
    (workspace / "g").symlink_to(".git")
    (workspace / "gi").symlink_to("plain/../.git")
    assert action(line, workspace) == "ask"


@pytest.mark.rule("PM-5", "PM-8")
@pytest.mark.parametrize("line", ["git init l*/h", "split a l*/h/profile", "zip -q l*/h/x.zip a", "cmake l*/h"])
def test_a_place_that_a_glob_finds_is_asked_about_where_a_link_leads_out_of_the_workspace(
    line: str, workspace: Path
) -> None:
    (workspace.parent / "home/profile").touch()
    (workspace.parent / "home/x.zip").touch()
    assert action(line, workspace) == "ask"


def test_reading_the_folder_of_git_and_naming_it_in_a_test_stays_allowed(workspace: Path) -> None:
    (workspace / "linked/h").unlink()
    (workspace / ".git").mkdir()
    lines = ["cat .git/config", "ls -la .git", "grep -r url .git", "[ -d .git ]", "test -d .git", "find .git -name x",
             "rsync -a --exclude=.git plain/ out/", "tar --exclude=.git -czf a.tgz plain", "frob a", "split a pl*/x",
             "git mv plain/*.py linked/", "pytest plain/*.py"]  # fmt: skip
    assert [line for line in lines if action(line, workspace) != "allow"] == []
