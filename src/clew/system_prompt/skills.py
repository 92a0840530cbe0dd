"""Skills: folders with a ``SKILL.md`` that say how something is done. The index is always known, a body on demand.

``<user_dir>/skills/NAME/SKILL.md`` are the user's, ``<workspace>/.clew/skills/NAME/SKILL.md`` the project's; a
project's cannot take the name of a user's. A skill is text for the model and nothing more: it grants nothing and
nothing in it is run by being loaded. Other programs read the same files, so keys that clew does not know are passed
over; it needs a description and, if there is one, a name that is the folder's.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from clew.contained import Kept, Unreadable, list_contained, read_contained, resolved, shown
from clew.errors import InvalidInput
from clew.front_matter import Scalar, parse_front_matter, split_front_matter
from clew.system_prompt.inputs import Skill, SkillSource
from clew.system_prompt.text import mark_unseen, one_line

__all__ = ["MAX_SKILLS", "MAX_SKILL_BYTES", "SkillCatalog", "is_skill_name"]

MAX_SKILLS: Final = 200
"""So many of one folder are looked at, in the order of their names."""
MAX_SKILL_BYTES: Final = 64 * 1024
_MAX_DESCRIPTION: Final = 1_024
_FILE: Final = "SKILL.md"
_NAME = re.compile(r"[a-z0-9-]{1,64}")


class _Place(msgspec.Struct, frozen=True):
    """Where a skill's file lies, and the folder it must not lead out of."""

    file: Path
    inside: Path


def is_skill_name(name: str) -> bool:
    """Lower case letters, digits and dashes, at most 64: checked before a path is made of it."""
    return _NAME.fullmatch(name) is not None


class SkillCatalog:
    """The skills that were found, at the time they were looked for. ``notices`` are sentences with a path each."""

    def __init__(self) -> None:
        self._skills: dict[str, tuple[Skill, _Place]] = {}
        self._notices: list[str] = []

    @classmethod
    def load(cls, user_dir: Path | None, workspace: Path | None) -> SkillCatalog:
        """The index, read when something of it has changed. Blocking. ``user_dir`` is clew's folder among the user's
        settings."""
        return _kept.get((user_dir, workspace), lambda: cls._read(user_dir, workspace))

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
        """The body of a skill, for the model, under where it came from. Blocking. Raises ``InvalidInput``."""
        found = self._skills.get(name) if is_skill_name(name) else None
        if found is None:
            known = ", ".join(sorted(self._skills)) or "none"
            raise InvalidInput(f"there is no skill {one_line(name, 80)!r}; known are: {known}", skill=name[:80])
        skill, place = found
        try:
            with resolved(place.inside):
                file = read_contained(place.file, place.inside, MAX_SKILL_BYTES)
        except Unreadable as error:
            raise InvalidInput(f"the skill {name} {error}", skill=name) from error
        if file is None:
            raise InvalidInput(f"the skill {name} is gone", skill=name)
        owner = "the project" if skill.source == "project" else "the user"
        _, body = split_front_matter(file.text, shown(place.file))
        lines = [f"# Skill {name}", f"(a file of {owner}, {shown(place.file)})", "", mark_unseen(body)]
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
                self._notices.append(f"{path}: ignored; the user has a skill of that name already")
                continue
            self._skills[name] = (skill, _Place(listing.real / name / _FILE, listing.real))


_kept: Final[Kept[SkillCatalog]] = Kept()


def _read_index(file: Path, inside: Path, source: SkillSource, path: str) -> Skill | None:
    """A skill by its head; None for an entry that holds no skill."""
    found = read_contained(file, inside, MAX_SKILL_BYTES)
    if found is None:
        return None
    folder = file.parent.name
    if not is_skill_name(folder):
        raise Unreadable("lies in a folder not named with lower case letters, digits and dashes, at most 64")
    try:
        fields = parse_front_matter(found.text, path).fields
    except InvalidInput as error:
        raise Unreadable(f"does not read, line {error.message.removeprefix(f'{path}:')}") from error
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
