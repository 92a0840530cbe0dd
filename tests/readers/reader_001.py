"""A reader of JSON sessions, written from the description of the format alone. It knows nothing of clew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_session(folder: Path, session_id: str) -> dict[str, Any]:
    """The session, each message as the description wants it."""
    session: dict[str, Any] = json.loads((folder / "sessions" / f"{session_id}.json").read_text())
    assert isinstance(session["workerId"], str)
    assert isinstance(session["workspaceId"], str)
    # The results of calls are in the calls, too.
    session["messages"] = [message for message in session["messages"] if message["role"] != "tool"]
    for message in session["messages"]:
        assert message["role"] in ("user", "assistant")
        assert isinstance(message["text"], str)
        assert len(message.get("files", ())) <= 10
        if "usage" in message:
            assert set(message["usage"]) == {"inputTokens", "outputTokens"}
        for call in message.get("toolCalls", ()):
            assert {"id", "name", "arguments"} <= set(call)
    return session


def build_context(session: dict[str, Any]) -> list[tuple[str, str]]:
    """What a model would be sent: everything from the newest checkpoint on."""
    messages = session["messages"]
    starts = [
        place
        for place, message in enumerate(messages)
        if message.get("summary") and message["role"] == "user" and message.get("synthetic")
    ]
    return [(message["role"], message["text"]) for message in messages[starts[-1] if starts else 0 :]]
