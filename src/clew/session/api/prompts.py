"""Saved prompts: texts that a user sends often, each under a name, as files in their config folder."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from pathlib import Path
from typing import Final

import msgspec

from clew.errors import InvalidInput, NotFound, NotSupported
from clew.session.api.base import EnginePart
from clew.transcript.value_check import check_value
from clew.triggers.values.ledger import tag_of

__all__ = ["SavedPrompt", "SavedPrompts"]

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}", re.ASCII)
_MAX_PROMPTS: Final = 200
_MAX_CHARS: Final = 20_000


class SavedPrompt(msgspec.Struct, frozen=True):
    """A text under a name; in the config folder it is the file ``prompts/NAME.md``, an owner's in a subfolder of their
    own."""

    name: str
    text: str


class SavedPrompts(EnginePart):
    """The saved prompts, stored next to agents and skills, so that they can be edited by hand, too."""

    async def prompts(self) -> list[SavedPrompt]:
        """Return the saved prompts by name. Unreadable files are skipped."""
        return await asyncio.to_thread(_load, self._prompts_folder()) if self._host.config_folder is not None else []

    async def save_prompt(self, name: str, text: str) -> SavedPrompt:
        """Save a text under a name, replacing an existing one. At most 200 prompts of 20,000 characters; names of 1 to
        40 characters of a-z, 0-9 and ``-``."""
        if _NAME.fullmatch(name) is None:
            raise InvalidInput("a prompt's name is 1 to 40 of a-z, 0-9 and -, and does not start with -")
        check_value(text, "text")
        if not text.strip() or len(text) > _MAX_CHARS:
            raise InvalidInput(f"a saved prompt has 1 to {_MAX_CHARS:,} characters")
        try:
            await asyncio.to_thread(_save, self._prompts_folder(), name, text)
        except OSError as error:
            raise InvalidInput(f"the prompt could not be saved: {error}") from error
        return SavedPrompt(name, text)

    async def remove_prompt(self, name: str) -> None:
        """Delete a saved prompt."""
        try:
            if _NAME.fullmatch(name) is None:
                raise FileNotFoundError
            await asyncio.to_thread((self._prompts_folder() / f"{name}.md").unlink)
        except FileNotFoundError as error:
            raise NotFound("there is no saved prompt with this name", name=name[:40]) from error
        except OSError as error:
            raise InvalidInput(f"the prompt could not be removed: {error}") from error

    def _prompts_folder(self) -> Path:
        if self._host.config_folder is None:
            raise NotSupported("this engine has no config folder to store prompts in")
        folder = self._host.config_folder / "prompts"
        return folder if self.owner is None else folder / tag_of(self.owner)


def _load(folder: Path) -> list[SavedPrompt]:
    found: list[SavedPrompt] = []
    for file in sorted(folder.glob("*.md"))[:_MAX_PROMPTS]:
        try:
            with file.open(encoding="utf-8") as opened:
                text = opened.read(_MAX_CHARS)
        except (OSError, UnicodeDecodeError):
            continue
        if _NAME.fullmatch(file.stem) and text.strip():
            found.append(SavedPrompt(file.stem, text))
    return found


def _save(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    target = folder / f"{name}.md"
    if not target.exists() and len(list(folder.glob("*.md"))) >= _MAX_PROMPTS:
        raise InvalidInput(f"there are {_MAX_PROMPTS} saved prompts already; remove one first")
    # Replaced atomically: another process may read it now.
    temporary = folder / f".{name}-{secrets.token_hex(4)}"
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
