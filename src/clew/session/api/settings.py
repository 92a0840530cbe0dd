"""Settings that a user changes while the host runs: stored in their config file, and in force immediately."""

from __future__ import annotations

import asyncio

import msgspec
from msgspec import UNSET, UnsetType

from clew.config import save_settings
from clew.errors import InvalidInput
from clew.session.api.base import EnginePart
from clew.transcript.value_check import check_value

__all__ = ["Settings", "SettingsShape"]


class SettingsShape(msgspec.Struct, frozen=True):
    """The current settings. ``default_model`` null is the first usable one, ``max_steps`` null the preset's. ``file``
    is where changes are stored; null if they last only as long as this process."""

    default_model: str | None
    default_agent: str
    max_steps: int | None
    file: str | None


class Settings(EnginePart):
    """The settings of :class:`clew.config.Config` that are user preferences. An agent's own values override them."""

    async def settings(self) -> SettingsShape:
        """Return the settings in force where nothing else is specified."""
        chosen, folder = self._host.choices, self._host.config_folder
        model = str(chosen.default_model) if chosen.default_model is not None else None
        # The location is not shown to an owner, who cannot change the settings.
        file = str(folder / "config.toml") if folder is not None and self.owner is None else None
        return SettingsShape(model, chosen.default_agent, chosen.max_steps, file)

    async def change_settings(
        self,
        *,
        default_model: str | UnsetType | None = UNSET,
        default_agent: str | UnsetType | None = UNSET,
        max_steps: int | UnsetType | None = UNSET,
    ) -> SettingsShape:
        """Change the given settings from the next turn on; None resets one. They are stored in the user's config file,
        whose other lines stay unchanged. Other processes read it when they start."""
        from clew.agents.manifest import MAX_STEPS

        check_value([default_model or None, default_agent or None], "settings")
        chosen = msgspec.structs.replace(self._host.choices)
        if default_model is not UNSET:
            chosen.default_model = self._host.providers.parse(default_model) if default_model is not None else None
        if default_agent is not UNSET:
            catalog = await asyncio.to_thread(self._host.agents, None, None)
            chosen.default_agent = catalog.get("assistant" if default_agent is None else default_agent).name
        if max_steps is not UNSET:
            if max_steps is not None and not 1 <= max_steps <= MAX_STEPS:
                raise InvalidInput(f"max_steps is a whole number from 1 to {MAX_STEPS:,}")
            chosen.max_steps = max_steps
        given = {"default_model": default_model, "default_agent": default_agent, "max_steps": max_steps}
        changed = {name: value for name, value in given.items() if not isinstance(value, UnsetType)}
        if self._host.config_folder is not None and changed:
            await asyncio.to_thread(save_settings, self._host.config_folder / "config.toml", changed)
        # Applied only once stored: both or neither.
        for name in changed:
            setattr(self._host.choices, name, getattr(chosen, name))
        return await self.settings()
