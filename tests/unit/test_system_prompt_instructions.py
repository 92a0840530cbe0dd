"""Project instructions: which files count, in which order, and what a hostile project cannot have read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clew.system_prompt.inputs import Instruction, PromptInputs
from clew.system_prompt.instructions import Instructions, load_instructions
from clew.system_prompt.sections import MAX_INSTRUCTION_BYTES, assemble


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A user's home, with nothing in it."""
    folder = tmp_path / "home" / "ann"
    folder.mkdir(parents=True)
    return folder


def write(path: Path, text: str | bytes = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def paths(found: Instructions) -> list[str]:
    return [file.path for file in found.files]


@pytest.mark.rule("SP-1")
def test_files_are_found_from_the_root_of_the_repository_down_to_the_workspace(home: Path) -> None:
    """Outermost first, in one folder AGENTS, CLAUDE, CONTEXT; what is beside the way or above the root is not read."""
    root = home / "project"
    (root / ".git").mkdir(parents=True)
    expected = [
        Instruction(str(write(folder / name, f"{name} of {folder.name}")), f"{name} of {folder.name}")
        for folder in (root, root / "a", root / "a" / "b")
        for name in ("AGENTS.md", "CLAUDE.md", "CONTEXT.md")
    ]
    write(home / "AGENTS.md", "above the root")
    write(root / "other" / "AGENTS.md", "beside the way")
    write(root / "a" / "b" / "c" / "AGENTS.md", "below the workspace")
    write(root / "a" / "README.md", "another name")
    assert load_instructions(root / "a" / "b", home=home) == Instructions(tuple(expected))


def test_a_worktree_or_submodule_is_a_project_of_its_own(home: Path) -> None:
    """There `.git` is a file, and what is above belongs to another repository."""
    write(home / "outer" / "AGENTS.md", "outer")
    (home / "outer" / ".git").mkdir()
    write(home / "outer" / "inner" / ".git", "gitdir: ../.git/modules/inner")
    inner = write(home / "outer" / "inner" / "AGENTS.md", "inner")
    assert paths(load_instructions(home / "outer" / "inner", home=home)) == [str(inner)]


def test_without_a_repository_folders_up_to_the_home_count(home: Path) -> None:
    """They are the user's own; what is above the home is not."""
    write(home.parent / "AGENTS.md", "everybody's")
    expected = [write(folder / "AGENTS.md", "x") for folder in (home, home / "notes", home / "notes" / "today")]
    assert paths(load_instructions(home / "notes" / "today", home=home)) == [str(path) for path in expected]


def test_outside_of_the_home_only_the_workspace_itself_counts(home: Path, tmp_path: Path) -> None:
    """What lies above may be anybody's."""
    write(tmp_path / "srv" / "AGENTS.md", "above")
    own = write(tmp_path / "srv" / "app" / "AGENTS.md", "own")
    assert paths(load_instructions(tmp_path / "srv" / "app", home=home)) == [str(own)]


def test_a_folder_that_everybody_may_write_to_is_not_climbed_into(home: Path, tmp_path: Path) -> None:
    """Another user of the machine could have put a .git and instructions there, as in /tmp."""
    shared = tmp_path / "shared"
    write(shared / "AGENTS.md", "planted")
    (shared / ".git").mkdir()
    own = write(shared / "work" / "deep" / "AGENTS.md", "own")
    shared.chmod(0o1777)
    assert paths(load_instructions(shared / "work" / "deep", home=home)) == [str(own)]


@pytest.mark.parametrize("workspace", ["gone", "file", "file/below", "loop", "nul\x00"])
def test_a_workspace_that_is_none_has_no_instructions(home: Path, workspace: str) -> None:
    """Whoever starts the session is told elsewhere."""
    write(home / "file")
    (home / "loop").symlink_to("loop")
    assert load_instructions(home / workspace, home=home) == Instructions()


def test_a_file_with_two_names_is_taken_once(home: Path) -> None:
    """Many projects link one name to the other; an empty file says nothing."""
    (home / ".git").mkdir()
    agents = write(home / "AGENTS.md", "once")
    (home / "CLAUDE.md").symlink_to("AGENTS.md")
    write(home / "CONTEXT.md", " \n\n")
    (home / "sub").mkdir()
    (home / "sub" / "AGENTS.md").symlink_to("../AGENTS.md")
    assert load_instructions(home / "sub", home=home) == Instructions(
        (Instruction(str(home / "sub" / "AGENTS.md"), "once"),)
    )
    assert load_instructions(home, home=home) == Instructions((Instruction(str(agents), "once"),))


def test_a_link_may_lead_to_markdown_in_the_repository_and_nowhere_else(home: Path) -> None:
    """Not to keys in the home, to git's settings or to secrets beside it: all of that would be sent to a model."""
    root = home / "project"
    write(home / ".ssh" / "id_ed25519", "private")
    write(home / "diary.md", "private")
    write(root / ".git" / "config", "token = 1")
    write(root / "text" / "agents.md", "fine")
    cases = {
        "out": "../../.ssh/id_ed25519",
        "md": "../../diary.md",
        "git": "../.git/config",
        "docs": "../text/agents.md",
    }
    found = {}
    for name, target in cases.items():
        (root / name).mkdir()
        (root / name / "AGENTS.md").symlink_to(target)
        found[name] = load_instructions(root / name, home=home)

    def refused(name: str, why: str) -> Instructions:
        return Instructions((), (f"{root / name / 'AGENTS.md'}: ignored; it {why}",))

    assert found == {
        "out": refused("out", f"leads out of {root}"),
        "md": refused("md", f"leads out of {root}"),
        "git": refused("git", "is a link to something that is not Markdown"),
        "docs": Instructions((Instruction(str(root / "docs" / "AGENTS.md"), "fine"),)),
    }


def test_without_a_repository_a_link_may_not_leave_its_own_folder(home: Path) -> None:
    """An unpacked archive in the home is not entitled to the rest of the home."""
    write(home / "diary.md", "private")
    (home / "unpacked").mkdir()
    (home / "unpacked" / "AGENTS.md").symlink_to("../diary.md")
    assert load_instructions(home / "unpacked", home=home) == Instructions(
        (), (f"{home / 'unpacked' / 'AGENTS.md'}: ignored; it leads out of {home / 'unpacked'}",)
    )


def test_files_that_are_no_text_are_refused_and_others_repaired(home: Path) -> None:
    """Binary, a pipe, a folder; a stray byte becomes a replacement character."""
    write(home / "AGENTS.md", b"\x89PNG\r\n\x1a\n\x00\x00")
    os.mkfifo(home / "CLAUDE.md")
    write(home / "CONTEXT.md", b"caf\xe9")
    (home / "sub" / "AGENTS.md").mkdir(parents=True)
    assert load_instructions(home / "sub", home=home) == Instructions(
        (Instruction(str(home / "CONTEXT.md"), "caf\ufffd"),),
        (
            f"{home / 'sub' / 'AGENTS.md'}: ignored; it is not a regular file",
            f"{home / 'AGENTS.md'}: ignored; it is not text; save it as UTF-8",
            f"{home / 'CLAUDE.md'}: ignored; it is not a regular file",
        ),
    )


@pytest.mark.rule("SP-1")
def test_a_huge_file_is_read_up_to_the_limit_with_warnings_for_user_and_model(home: Path) -> None:
    """A hundred gigabytes cost no more than the limit."""
    path = write(home / "AGENTS.md", b"line\n" * 10_000)
    os.truncate(path, 100 << 30)
    with path.open("r+b") as file:
        file.write(b"line\n" * 10_000)
    found = load_instructions(home, home=home)
    assert found.warnings == (f"{path}: cut off after {MAX_INSTRUCTION_BYTES} of {100 << 30} bytes",)
    assert found.files == (Instruction(str(path), ("line\n" * 7_000)[:MAX_INSTRUCTION_BYTES], 100 << 30),)
    assert (
        f"[Warning: cut off; the file has {100 << 30} bytes]" in assemble(PromptInputs(instructions=found.files)).text
    )


def test_files_too_long_together_are_mentioned_to_the_user(home: Path) -> None:
    """The prompt names those that had to go."""
    folder = home
    for _ in range(5):
        write(folder / "AGENTS.md", "word\n" * 6_000)
        folder = folder / "deep"
    found = load_instructions(folder.parent, home=home)
    assert len(found.files) == 5
    assert found.warnings == (
        f"{folder.parent}: its instruction files exceed the total limit; the nearest are used first",
    )
    assert "Left out: " + str(home / "AGENTS.md") in assemble(PromptInputs(instructions=found.files)).text


def test_a_workspace_below_very_many_folders_is_looked_at_alone(home: Path) -> None:
    """Climbing is bounded."""
    folder = home.joinpath(*["d"] * 80)
    write(home / "AGENTS.md", "far away")
    own = write(folder / "AGENTS.md", "own")
    assert paths(load_instructions(folder, home=home)) == [str(own)]


def test_the_workspace_may_be_given_as_a_link(home: Path) -> None:
    """What counts is where it really is."""
    (home / "project" / ".git").mkdir(parents=True)
    real = write(home / "project" / "AGENTS.md", "x")
    (home / "link").symlink_to("project")
    assert paths(load_instructions(home / "link", home=home)) == [str(real)]


def test_the_home_is_the_users_unless_given(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And there may be none at all."""
    monkeypatch.setenv("HOME", str(home))
    outer, inner = write(home / "AGENTS.md", "x"), write(home / "a" / "AGENTS.md", "y")
    assert paths(load_instructions(home / "a")) == [str(outer), str(inner)]

    def nobody() -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", nobody)
    assert paths(load_instructions(home / "a")) == [str(inner)]
