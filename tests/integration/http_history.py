"""Sessions over HTTP that somebody has talked in."""

from __future__ import annotations

from typing import Any

from clew.providers.base import ModelInfo
from clew.testing.scripted import FakeProviders, ScriptedModel, say
from clew.transcript.session import Model
from tests.integration.http_client import Answer, AsgiClient, texts

NOBODY = "ses_" + "0" * 26
NO_TURN = "trn_" + "0" * 26


async def talked(client: AsgiClient, *prompts: str, **fields: Any) -> tuple[str, list[dict[str, Any]]]:
    """A session in which these were said and answered; its messages."""
    session_id = await client.session(**fields)
    for prompt in prompts:
        await client.prompt(session_id, prompt)
        await client.idle(session_id)
    return session_id, await client.messages(session_id)


async def said(client: AsgiClient, session_id: str, view: str = "visible") -> list[str]:
    return [texts(message) for message in await client.messages(session_id, view)]


def turn_of(message: dict[str, Any]) -> str:
    return str(message["metadata"]["turn_id"])


def refused(answer: Answer) -> tuple[int, str | None]:
    return answer.status, answer.code


def small(window: int, *script: Any) -> FakeProviders:
    """A model with that window, and one that summarises for it."""
    model, brief = Model("test", "model"), Model("brief", "model")
    info = ModelInfo(model=model, window=window, max_output=200, summariser=brief)
    summary = "## Goal\nTo count.\n\n## Constraints & Preferences\n- none\n\n## Progress\n### Done\n- counted\n\n"
    summary += (
        "### In Progress\n- none\n\n### Blocked\n- none\n\n## Key Decisions\n- none\n\n## Next Steps\n1. go on\n\n"
    )
    summary += "## Critical Context\n- none\n"
    models = {"test": ScriptedModel(script), "brief": ScriptedModel([], otherwise=say(summary))}
    return FakeProviders(models, infos=[info], default=model)
