"""Skills: an index that is always known, bodies on demand, and folders that may be anybody's."""

from __future__ import annotations

from pathlib import Path

import pytest

from clew.errors import InvalidInput
from clew.system_prompt.inputs import Skill
from clew.system_prompt.skills import MAX_SKILL_BYTES, MAX_SKILLS, SkillCatalog, is_skill_name


class Shelves:
    """A user's settings and a workspace, to put skills into."""

    def __init__(self, root: Path) -> None:
        self.user_dir = root / "config" / "clew"
        self.workspace = root / "work"
        self.user = self.user_dir / "skills"
        self.project = self.workspace / ".clew" / "skills"
        self.user.mkdir(parents=True)
        self.project.mkdir(parents=True)

    def write(self, folder: Path, name: str, *lines: str, body: str = "Do it.") -> Path:
        path = folder / name / "SKILL.md"
        path.parent.mkdir()
        path.write_text("\n".join(["---", *(lines or (f"description: does {name}",)), "---", body]))
        return path

    def load(self) -> SkillCatalog:
        return SkillCatalog.load(self.user_dir, self.workspace)


@pytest.fixture
def shelves(tmp_path: Path) -> Shelves:
    return Shelves(tmp_path)


def test_the_index_holds_the_skills_of_user_and_project_by_name(shelves: Shelves) -> None:
    """Folders without a SKILL.md and other files are no skills."""
    tables = shelves.write(shelves.user, "tables")
    charts = shelves.write(shelves.project, "charts", "name: charts", "description: Draws charts")
    (shelves.user / "drafts").mkdir()
    (shelves.user / "README.md").write_text("about")
    catalog = shelves.load()
    assert catalog.index == (
        Skill("charts", "Draws charts", "project", str(charts)),
        Skill("tables", "does tables", "user", str(tables)),
    )
    assert catalog.notices == ()


def test_a_body_is_read_when_it_is_asked_for_and_says_where_it_is_from(shelves: Shelves) -> None:
    """As it is then, not as it was when the index was made."""
    path = shelves.write(shelves.project, "charts")
    mine = shelves.write(shelves.user, "tables", body="Rows first.\n---\nThen columns.")
    catalog = shelves.load()
    path.write_text("---\ndescription: d\n---\n\nNew body.\n")
    assert catalog.load_skill("charts") == f"# Skill charts\n(a file of the project, {path})\n\nNew body."
    assert catalog.load_skill("tables") == (
        f"# Skill tables\n(a file of the user, {mine})\n\nRows first.\n---\nThen columns."
    )


@pytest.mark.parametrize(
    ("lines", "description"),
    [
        (["description: plain words # a comment"], "plain words"),
        (["description: it's C# here"], "it's C# here"),
        (['description: "quoted: \\"yes\\" # no comment" # comment'], 'quoted: "yes" # no comment'),
        (["description: 'it''s quoted'"], "it's quoted"),
        (["description: >-", "  folded", "  over lines", "license: MIT"], "folded over lines"),
        (["description: |", "  kept", "", "  lines"], "kept lines"),
        (["description: goes on", "  below", "name: same"], "goes on below"),
        (["description: ", "  only below"], "only below"),
        (["metadata:", "  description: not this one", "description: this one"], "this one"),
        (["license:", "description: after an empty one"], "after an empty one"),
    ],
)
def test_a_description_is_understood_however_yaml_writes_it(
    shelves: Shelves, lines: list[str], description: str
) -> None:
    """Other programs read the same files; keys that clew does not know are theirs."""
    shelves.write(shelves.user, "same", "allowed-tools: [Bash, Read]", *lines)
    assert [skill.description for skill in shelves.load().index] == [description]


def test_what_cannot_be_used_is_reported_and_the_rest_is_read(shelves: Shelves) -> None:
    """One notice each, nothing raised."""
    shelves.write(shelves.user, "Upper")
    shelves.write(shelves.user, "empty-text", "description: ''")
    shelves.write(shelves.user, "other-name", "name: another", "description: d")
    shelves.write(shelves.user, "works")
    shelves.write(shelves.user, "twice", "description: a", "description: b")
    (shelves.user / "headless").mkdir()
    (shelves.user / "headless" / "SKILL.md").write_text("Just text.\n---\n")
    (shelves.user / "binary").mkdir()
    (shelves.user / "binary" / "SKILL.md").write_bytes(b"\x00")
    catalog = shelves.load()
    assert [skill.name for skill in catalog.index] == ["works"]
    assert catalog.notices == (
        f"{shelves.user / 'Upper' / 'SKILL.md'}: ignored; it is in a folder whose name is not lower case letters, "
        "digits and dashes, at most 64",
        f"{shelves.user / 'binary' / 'SKILL.md'}: ignored; it is not text; save it as UTF-8",
        f"{shelves.user / 'empty-text' / 'SKILL.md'}: ignored; it has no description",
        f"{shelves.user / 'headless' / 'SKILL.md'}: ignored; it is invalid, line 1: the file must begin with a line "
        "---",
        f"{shelves.user / 'other-name' / 'SKILL.md'}: ignored; it must have its folder's name, other-name",
        f"{shelves.user / 'twice' / 'SKILL.md'}: ignored; it is invalid, line 3: description is given twice",
    )


def test_a_project_cannot_take_the_name_of_a_users_skill(shelves: Shelves) -> None:
    """The user would load one thing and get another."""
    mine = shelves.write(shelves.user, "deploy")
    theirs = shelves.write(shelves.project, "deploy")
    catalog = shelves.load()
    assert catalog.index == (Skill("deploy", "does deploy", "user", str(mine)),)
    assert catalog.notices == (f"{theirs}: ignored; the user already has a skill of this name",)


@pytest.mark.parametrize(
    "name", ["nothing", "../tables", "tables/../tables", "/etc", "Tables", "tables\n", "", "t" * 65]
)
def test_a_name_that_is_not_in_the_index_is_refused_with_those_that_are(shelves: Shelves, name: str) -> None:
    """No path is ever made of it."""
    shelves.write(shelves.user, "tables")
    with pytest.raises(InvalidInput, match=r"there is no skill .*; known are: tables$"):
        shelves.load().load_skill(name)


def test_without_skills_a_refusal_says_none(tmp_path: Path) -> None:
    """Folders need not be there."""
    with pytest.raises(InvalidInput, match="there is no skill 'a'; known are: none"):
        SkillCatalog.load(tmp_path / "none", None).load_skill("a")


@pytest.mark.parametrize(
    ("name", "valid"), [("a", True), ("a-1", True), ("a" * 64, True), ("a" * 65, False), ("", False), ("a_b", False)]
)
def test_a_name_is_short_and_plain(name: str, valid: bool) -> None:
    """Lower case letters, digits and dashes."""
    assert is_skill_name(name) is valid


def test_links_out_of_the_folder_are_refused(shelves: Shelves, tmp_path: Path) -> None:
    """By the file, by the skill's folder, and by the whole shelf."""
    secret = tmp_path / "secret"
    secret.mkdir()
    outside = shelves.write(secret, "plan")
    (shelves.project / "file").mkdir()
    (shelves.project / "file" / "SKILL.md").symlink_to(outside)
    (shelves.project / "folder").symlink_to(outside.parent)
    shelves.user.rmdir()
    shelves.user.symlink_to(secret)
    catalog = shelves.load()
    assert [skill.name for skill in catalog.index] == ["plan"]  # the user's shelf may be a link: it is the user's
    assert catalog.notices == (
        f"{shelves.project / 'file' / 'SKILL.md'}: ignored; it leads out of {shelves.project}",
        f"{shelves.project / 'folder' / 'SKILL.md'}: ignored; it leads out of {shelves.project}",
    )
    (shelves.project / "file" / "SKILL.md").unlink()
    (shelves.project / "file").rmdir()
    (shelves.project / "folder").unlink()
    shelves.project.rmdir()
    shelves.project.symlink_to(secret)
    assert shelves.load().notices == (f"{shelves.project}: ignored; it leads out of {shelves.workspace}",)


def test_a_skill_that_changed_into_a_link_is_not_followed(shelves: Shelves, tmp_path: Path) -> None:
    """The index was made when it was still a file; one that is gone is reported too."""
    path = shelves.write(shelves.project, "charts")
    catalog = shelves.load()
    secret = tmp_path / "secret"
    secret.write_text("private")
    path.unlink()
    with pytest.raises(InvalidInput, match="the skill charts is gone"):
        catalog.load_skill("charts")
    path.symlink_to(secret)
    with pytest.raises(InvalidInput, match="the skill charts leads out of"):
        catalog.load_skill("charts")


def test_a_long_body_is_cut_with_a_warning(shelves: Shelves) -> None:
    """The model is told that there is more."""
    path = shelves.write(shelves.user, "long", body="x" * MAX_SKILL_BYTES)
    body = shelves.load().load_skill("long")
    assert body.endswith(f"x\n[Warning: cut off after {MAX_SKILL_BYTES} of {path.stat().st_size} bytes]")
    assert len(body) < MAX_SKILL_BYTES + 500


def test_only_so_many_skills_of_a_folder_are_read(shelves: Shelves) -> None:
    """The first ones by name."""
    for number in range(MAX_SKILLS + 1):
        shelves.write(shelves.project, f"skill-{number:04}")
    catalog = shelves.load()
    assert len(catalog.index) == MAX_SKILLS
    assert catalog.notices == (f"{shelves.project}: only the first {MAX_SKILLS} skills are read",)
