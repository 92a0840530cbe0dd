"""What a run may do: the rules in force for a session, asked about each target a call would touch.

A subagent's permit holds its parent's: whatever the child's own rules say, it is never freer than the one that
started it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from clew.permissions.evaluate import Decision, evaluate, strictest
from clew.runtime.places import OwnPlaces, glob_finder, leads_to
from clew.store.base import Store, get_session
from clew.transcript.rule import Mode, Rule, Target

__all__ = ["Permit", "RulesInForce", "stored_rules"]


class RulesInForce(msgspec.Struct, frozen=True):
    """The rules as they were when a call was made. Deciding reads no rule; where paths of a shell line lead is.

    ``own`` keeps the session out of clew's own places. Those of a parent are not weighed for its subagent, which has
    a spill folder of its own.
    """

    own: tuple[Rule, ...]
    aliases: Callable[[str], Sequence[str]]
    manifest: tuple[Rule, ...]
    session: tuple[Rule, ...]
    project: tuple[Rule, ...]
    mode: Mode
    workspace: Path | None
    attended: bool
    parent: RulesInForce | None

    def decide(self, targets: Sequence[Target], own: tuple[Rule, ...] | None = None) -> Decision:
        own = self.own if own is None else own
        decision = evaluate(
            targets,
            manifest=(*own, *self.manifest),
            session=self.session,
            project=self.project,
            mode=self.mode,
            workspace=self.workspace,
            attended=self.attended,
            resolve=leads_to,
            home=os.environ.get("HOME"),
            aliases=self.aliases,
            finds=glob_finder(),
        )
        if self.parent is None:
            return decision
        return strictest(decision, self.parent.decide(targets, own), attended=self.attended)


class Permit(msgspec.Struct, frozen=True):
    """Decides for one session, with the rules as they are stored now."""

    store: Store
    session_id: str
    manifest: tuple[Rule, ...]
    workspace: Path | None
    places: OwnPlaces
    attended: bool
    parent: Permit | None = None

    async def load(self) -> RulesInForce:
        """The rules in force now, the parent's included."""
        session = await get_session(self.store, self.session_id)
        project: tuple[Rule, ...] = ()
        if self.workspace is not None:
            project = stored_rules(await self.store.load_project_rules(str(self.workspace)), "project")
        parent = await self.parent.load() if self.parent is not None else None
        mode = session.mode
        if mode == "accept_edits" and not self.attended:
            mode = "ask"
        if mode == "ask" and parent is not None:
            # A person who is there has accepted the edits of this turn; its subagents are of the turn.
            mode = parent.mode
        return RulesInForce(
            await asyncio.to_thread(self.places.rules, self.session_id),
            await asyncio.to_thread(self.places.aliases),
            self.manifest,
            stored_rules(session.permissions, "session"),
            project,
            mode,
            self.workspace,
            self.attended,
            parent,
        )

    async def decide(self, targets: Sequence[Target]) -> Decision:
        rules = await self.load()
        # Off the loop: a shell line is parsed, and where its redirects lead is looked up.
        return await asyncio.to_thread(rules.decide, targets)


def stored_rules(values: Sequence[dict[str, object]], source: Literal["session", "project"]) -> tuple[Rule, ...]:
    """Rules as stored. One that no longer reads may have been a denial, so in its place everything is asked about."""
    rules: list[Rule] = []
    for value in values:
        try:
            rules.append(msgspec.convert({**value, "source": source, "pinned": False}, Rule))
        except msgspec.ValidationError:
            rules.append(Rule("*", "*", "ask", source))
    return tuple(rules)
