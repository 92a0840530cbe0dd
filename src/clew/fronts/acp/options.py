"""The options of a session in an editor: mode, model, effort and agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from clew.errors import InvalidInput
from clew.providers.base import ModelListing
from clew.session.api.operations import AgentList
from clew.transcript.rule import MODES, Mode
from clew.transcript.session import Model, Session

__all__ = ["Choice", "config_options", "mode_state"]

_MODES: Final[Mapping[Mode, tuple[str, str]]] = {
    "ask": ("Ask", "Asks before changes that no rule allows"),
    "accept_edits": ("Accept edits", "Edits files in this folder without asking"),
    "read_only": ("Read only", "Reads only, changes nothing"),
}
DEFAULT: Final = "default"


class Choice:
    """The effort and agent chosen for the prompts of one session while it is open in the editor.

    clew itself stores a variant for one turn only, and an agent for each message.
    """

    def __init__(self) -> None:
        self.variant: str | None = None
        self.agent: str | None = None

    def model_for(self, session: Session) -> Model | None:
        """Return the model to send with a prompt; None is the session's own."""
        if self.variant is None:
            return None
        return Model(session.model.provider_id, session.model.model_id, self.variant)


def mode_state(session: Session) -> dict[str, Any]:
    modes = [{"id": mode, "name": _MODES[mode][0], "description": _MODES[mode][1]} for mode in MODES]
    return {"currentModeId": session.mode, "availableModes": modes}


def config_options(
    session: Session, choice: Choice, models: Sequence[ModelListing], agents: AgentList
) -> list[dict[str, Any]]:
    """Return all options with their current values."""
    modes = [_value(mode, _MODES[mode][0], _MODES[mode][1]) for mode in MODES]
    options = [_select("mode", "Mode", "mode", session.mode, modes)]
    current = str(session.model)
    usable = [_value(model.id, model.id) for model in models if model.usable]
    if current not in [entry["value"] for entry in usable]:
        usable.insert(0, _value(current, current))
    options.append(_select("model", "Model", "model", current, usable))
    variants = next((model.variants for model in models if model.id == current), ())
    if variants:
        levels = [_value(DEFAULT, "Default"), *(_value(variant, variant) for variant in variants)]
        options.append(_select("effort", "Effort", "thought_level", choice.variant or DEFAULT, levels))
    named = [agent for agent in agents.agents if agent.mode == "primary"]
    if len(named) > 1:
        who = [_value(agent.name, agent.name, agent.description) for agent in named]
        if session.agent not in [agent.name for agent in named]:
            who.insert(0, _value(session.agent, session.agent))
        options.append(_select("agent", "Agent", "_agent", choice.agent or session.agent, who))
    return options


def check_value(options: Sequence[Mapping[str, Any]], config_id: str, value: object) -> str:
    """Return the value if the option offers it; otherwise raise InvalidInput."""
    option = next((option for option in options if option["id"] == config_id), None)
    if option is None:
        raise InvalidInput(f"unknown option {config_id[:100]!r}; options: {', '.join(o['id'] for o in options)}")
    values = [str(entry["value"]) for entry in option["options"]]
    if value not in values:
        raise InvalidInput(f"invalid {config_id} {str(value)[:100]!r}; values: {', '.join(values)}")
    return str(value)


def _select(id_: str, name: str, category: str, current: str, values: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    about = {"id": id_, "name": name, "category": category, "type": "select"}
    return {**about, "currentValue": current, "options": list(values)}


def _value(value: str, name: str, description: str | None = None) -> dict[str, Any]:
    return {"value": value, "name": name, **({"description": description} if description else {})}
