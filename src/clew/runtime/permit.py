"""What a run may do: the rules in force for a session, asked about each target a call would touch.

A subagent's permit holds its parent's: whatever the child's own rules say, it is never freer than the one that
started it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from clew.permissions.evaluate import Decision, evaluate, strictest
from clew.store.base import Store, get_session
from clew.transcript.rule import Rule, Target

__all__ = ["Permit", "stored_rules"]


class Permit:
    """Decides for one session, with the rules as they are stored now."""

    def __init__(
        self,
        store: Store,
        session_id: str,
        manifest: Sequence[Rule],
        workspace: Path | None,
        *,
        attended: bool,
        parent: Permit | None = None,
    ) -> None:
        self._store = store
        self._session_id = session_id
        self._manifest = tuple(manifest)
        self._workspace = workspace
        self._attended = attended
        self._parent = parent

    async def decide(self, targets: Sequence[Target]) -> Decision:
        session = await get_session(self._store, self._session_id)
        project: Sequence[Rule] = ()
        if self._workspace is not None:
            project = stored_rules(await self._store.load_project_rules(str(self._workspace)), "project")
        decision = evaluate(
            targets,
            manifest=self._manifest,
            session=stored_rules(session.permissions, "session"),
            project=project,
            workspace=self._workspace,
            attended=self._attended,
        )
        return decision if self._parent is None else strictest(decision, await self._parent.decide(targets))


def stored_rules(values: Sequence[dict[str, object]], source: str) -> tuple[Rule, ...]:
    """Rules as stored; one that no longer reads is left out, which can only make things stricter or asked for."""
    rules: list[Rule] = []
    for value in values:
        try:
            rules.append(msgspec.convert({**value, "source": source, "pinned": False}, Rule))
        except msgspec.ValidationError:
            continue
    return tuple(rules)
