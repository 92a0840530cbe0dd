"""What tests of moving in compare: a session as its export tells it, without names that nobody chose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.integration.command_line import Run

PROGRAMS = Path(__file__).parents[1] / "fixtures" / "programs"


def exported(run: Run, session_id: str) -> dict[str, Any]:
    code, out, err = run("export", session_id, "--keep-secrets")
    assert code == 0, err
    whole: dict[str, Any] = json.loads(out)
    return whole


def told(whole: dict[str, Any]) -> dict[str, Any]:
    """The tree of an export as turns in turns: who said what, what it used, how it ended, and where the head is."""
    rows = {row["id"]: row for row in whole["messages"]}
    numbers = {id_: f"m{n}" for n, id_ in enumerate(rows, start=1)}
    places = {turn["id"]: f"t{n}" for n, turn in enumerate(whole["turns"], start=1)}

    def named(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: named(item) for key, item in value.items()}
        if isinstance(value, list):
            return [named(item) for item in value]
        return numbers.get(value, places.get(value, value)) if isinstance(value, str) else value

    def said(row: dict[str, Any]) -> dict[str, Any]:
        metadata = {key: value for key, value in row["metadata"].items() if key not in ("hidden_at", "model")}
        return {
            "id": numbers[row["id"]],
            "role": row["role"],
            "at": row["created_at"],
            **named(metadata),
            "parts": [named(part["data"]) for part in row["parts"]],
        }

    turns = [
        {
            "id": places[turn["id"]],
            "below": places.get(turn["parent_turn_id"]),
            "kind": turn["kind"],
            "status": turn["status"],
            "data": {key: value for key, value in turn["data"].items() if value is not None},
            "messages": [numbers[id_] for id_ in turn["messages"]],
        }
        for turn in whole["turns"]
    ]
    session = whole["session"]
    metadata = {
        key: value for key, value in session["metadata"].items() if key not in ("imported_from", "workspace_was")
    }
    return {
        "session": {
            **metadata,
            "model": session["model"],
            "parent": session["parent_id"] is not None,
            "folder": session["metadata"].get("workspace_was", session["workspace_root"]),
        },
        "head": places.get(session["head_turn_id"]),
        "moves": [[places.get(move["to_turn_id"]), move["why"]] for move in whole["moves"]],
        "turns": turns,
        "messages": [said(row) for row in whole["messages"]],
        "steps": [
            [
                places[step["turn_id"]],
                step["index"],
                step["model"]["model_id"],
                step["usage"],
                step["cost_usd"],
                step["finish_reason"],
                step["data"],
            ]
            for step in whole["steps"]
        ],
        "blobs": [[blob["sha256"], blob["media_type"]] for blob in whole["blobs"]],
    }
