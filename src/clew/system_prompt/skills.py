"""Skills: folders with a ``SKILL.md`` of instructions for a task. The index is always loaded, a body on demand.

``<user_dir>/skills/NAME/SKILL.md`` are the user's, ``<workspace>/.clew/skills/NAME/SKILL.md`` the project's; a project
skill cannot replace one of the user's. A skill is only text for the model: it grants nothing, and loading it runs
nothing. Other programs read the same files, so unknown keys are ignored; it needs a description and, if it has a name,
that must be the folder's.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from clew.errors import InvalidInput
from clew.front_matter import Scalar, parse_front_matter, split_front_matter
from clew.safe_read import FileCache, Unreadable, list_contained, read_contained, resolved, shown
from clew.system_prompt.inputs import Skill, SkillSource
from clew.system_prompt.sections import mark_unseen, one_line

__all__ = ["MAX_SKILLS", "MAX_SKILL_BYTES", "SkillCatalog", "is_skill_name"]

MAX_SKILLS: Final = 200
"""Skills read per folder, in the order of their names."""
MAX_SKILL_BYTES: Final = 64 * 1024
_MAX_DESCRIPTION: Final = 1_024
_FILE: Final = "SKILL.md"
_NAME = re.compile(r"[a-z0-9-]{1,64}")


class _SkillFile(msgspec.Struct, frozen=True):
    """The path of a skill's file, and the folder it must not leave."""

    file: Path
    inside: Path


def is_skill_name(name: str) -> bool:
    """Return whether a name has only lower case letters, digits and dashes, at most 64; checked before using it in a
    path."""
    return _NAME.fullmatch(name) is not None


class SkillCatalog:
    """The skills found at the time of loading. ``notices`` are sentences with a path each."""

    def __init__(self) -> None:
        self._skills: dict[str, tuple[Skill, _SkillFile]] = {}
        self._notices: list[str] = []

    @classmethod
    def load(cls, user_dir: Path | None, workspace: Path | None) -> SkillCatalog:
        """Return the index, read again only if a file has changed. Blocking.

        ``user_dir`` is clew's folder in the user's settings.
        """
        return _cache.get((user_dir, workspace), lambda: cls._read(user_dir, workspace))

    @classmethod
    def _read(cls, user_dir: Path | None, workspace: Path | None) -> SkillCatalog:
        catalog = cls()
        if user_dir is not None:
            catalog._add_folder(user_dir / "skills", user_dir / "skills", "user")
        if workspace is not None:
            catalog._add_folder(workspace / ".clew" / "skills", workspace, "project")
        return catalog

    @property
    def index(self) -> tuple[Skill, ...]:
        """Every skill, by name."""
        return tuple(skill for _, (skill, _) in sorted(self._skills.items()))

    @property
    def notices(self) -> tuple[str, ...]:
        return tuple(self._notices)

    def load_skill(self, name: str) -> str:
        """Return the body of a skill, for the model, under its source. Blocking. Raise ``InvalidInput``."""
        found = self._skills.get(name) if is_skill_name(name) else None
        if found is None:
            known = ", ".join(sorted(self._skills)) or "none"
            raise InvalidInput(f"there is no skill {one_line(name, 80)!r}; known are: {known}", skill=name[:80])
        skill, source = found
        try:
            with resolved(source.inside):
                file = read_contained(source.file, source.inside, MAX_SKILL_BYTES)
        except Unreadable as error:
            raise InvalidInput(f"the skill {name} {error}", skill=name) from error
        if file is None:
            raise InvalidInput(f"the skill {name} is gone", skill=name)
        owner = "the project" if skill.source == "project" else "the user"
        _, body = split_front_matter(file.text, shown(source.file))
        lines = [f"# Skill {name}", f"(a file of {owner}, {shown(source.file)})", "", mark_unseen(body)]
        if file.cut:
            lines.append(f"[Warning: cut off after {MAX_SKILL_BYTES} of {file.size} bytes]")
        return "\n".join(lines)

    def _add_folder(self, folder: Path, inside: Path, source: SkillSource) -> None:
        try:
            listing = list_contained(folder, inside, MAX_SKILLS)
        except Unreadable as error:
            self._notices.append(f"{shown(folder)}: ignored; it {error}")
            return
        if listing.more:
            self._notices.append(f"{shown(folder)}: only the first {MAX_SKILLS} skills are read")
        for name in listing.names:
            path = shown(folder / name / _FILE)
            try:
                skill = _read_index(listing.real / name / _FILE, listing.real, source, path)
            except Unreadable as error:
                self._notices.append(f"{path}: ignored; it {error}")
                continue
            if skill is None:
                continue
            if name in self._skills:
                self._notices.append(f"{path}: ignored; the user already has a skill of this name")
                continue
            self._skills[name] = (skill, _SkillFile(listing.real / name / _FILE, listing.real))


_cache: Final[FileCache[SkillCatalog]] = FileCache()


def _read_index(file: Path, inside: Path, source: SkillSource, path: str) -> Skill | None:
    """Return a skill from its front matter; None for an entry without a skill."""
    found = read_contained(file, inside, MAX_SKILL_BYTES)
    if found is None:
        return None
    folder = file.parent.name
    if not is_skill_name(folder):
        raise Unreadable("is in a folder whose name is not lower case letters, digits and dashes, at most 64")
    try:
        fields = parse_front_matter(found.text, path).fields
    except InvalidInput as error:
        raise Unreadable(f"is invalid, line {error.message.removeprefix(f'{path}:')}") from error
    texts = {
        key: one_line(field.value.text, _MAX_DESCRIPTION)
        for key, field in fields.items()
        if isinstance(field.value, Scalar)
    }
    if texts.get("name", folder) != folder:
        raise Unreadable(f"must have its folder's name, {folder}")
    description = texts.get("description", "")
    if not description:
        raise Unreadable("has no description")
    return Skill(folder, description, source, path)
