"""What a run may do: the rules in force for a session, asked about each target a call would touch.

A subagent's permit holds its parent's: whatever the child's own rules say, it is never freer than the one that
started it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from clew.fit import fit
from clew.permissions.blanket import denies_all
from clew.permissions.evaluate import Decision, evaluate, strictest
from clew.runtime.confinement import Confinement
from clew.runtime.places import OwnPlaces, glob_finder, leads_to
from clew.store.base import Moment, Store, get_session
from clew.transcript.rule import Mode, Rule, Target, mark_unknown
from clew.transcript.session import Session

__all__ = ["Permit", "RulesInForce", "stored_rules"]

_COMPARED: Final = ("plain", "host")
"""Kinds of targets about which the disk is not asked."""
_SHORT: Final = 4_096
"""Characters that a thousand rules are held against in no time."""


class RulesInForce(msgspec.Struct, frozen=True):
    """The rules as they were when a call was made. Deciding reads no rule; where paths of a shell line lead is.

    ``own`` keeps the session out of clew's own places, ``confined`` an owner's session in its workspace. Those of a
    parent are not checked for its subagent, which has a spill folder of its own and the same workspace.
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
    confined: Confinement | None = None

    def decide(
        self, targets: Sequence[Target], tool: str | None = None, own: tuple[Rule, ...] | None = None
    ) -> Decision:
        if own is None and self.confined is not None and (refused := self.confined.refuse(targets)) is not None:
            return refused
        own = self.own if own is None else own
        decision = evaluate(
            targets,
            manifest=(*own, *self.manifest),
            session=self.session,
            project=self.project,
            mode=self.mode,
            tool=tool,
            workspace=self.workspace,
            attended=self.attended,
            resolve=leads_to,
            home=os.environ.get("HOME"),
            aliases=self.aliases,
            finds=glob_finder(),
        )
        if self.parent is None:
            return decision
        return strictest(decision, self.parent.decide(targets, tool, own), attended=self.attended)

    def denies_all(self, permission: str, begins: str) -> bool:
        """Whether the rules deny every plain target of the permission whose value begins so, known before there is
        one (:mod:`clew.permissions.blanket`)."""
        manifest = (*self.own, *self.manifest)
        session, project, mode = self.session, self.project, self.mode
        if denies_all(permission, begins, manifest=manifest, session=session, project=project, mode=mode):
            return True
        return self.parent is not None and self.parent.denies_all(permission, begins)


class Permit(msgspec.Struct, frozen=True):
    """Decides for one session, with the rules as they are stored now. ``names`` are those of all tools."""

    store: Store
    session_id: str
    names: Collection[str]
    manifest: tuple[Rule, ...]
    workspace: Path | None
    places: OwnPlaces
    attended: bool
    parent: Permit | None = None
    project: str | None = None

    async def load(self) -> RulesInForce:
        """The rules in force now, the parent's included."""
        return await asyncio.to_thread(self._in_force, await self._read())

    async def decide(self, targets: Sequence[Target], tool: str) -> Decision:
        """What becomes of a call of this tool that would touch these."""
        stored = await self._read()
        if all(target.kind in _COMPARED and len(target.value) <= _SHORT for target in targets):
            # A text that is compared with others. Where clew's own places are is a look at a few folders of its own.
            return self._in_force(stored).decide(targets, tool)
        # Off the loop: a shell line is parsed, and where links lead is looked up.
        return await asyncio.to_thread(lambda: self._in_force(stored).decide(targets, tool))

    async def _read(self) -> _Stored:
        async def ask(store: Moment) -> tuple[Session, tuple[dict[str, object], ...]]:
            project = () if self.project is None else await store.load_project_rules(self.project)
            return await get_session(store, self.session_id), project

        session, project = await self.store.at_once(self.session_id, ask, hot=True)
        return _Stored(session, project, await self.parent._read() if self.parent is not None else None)

    def _in_force(self, stored: _Stored) -> RulesInForce:
        """What was read, with where clew's own places are now. Blocking."""
        above = stored.parent
        parent = self.parent._in_force(above) if self.parent is not None and above is not None else None
        mode = stored.session.mode
        if mode == "accept_edits" and not self.attended:
            mode = "ask"
        if mode == "ask" and parent is not None:
            # A person who is there has accepted the edits of this turn; its subagents are of the turn.
            mode = parent.mode
        own, aliases = self.places.look(self.session_id)
        return RulesInForce(
            own,
            aliases,
            self.manifest,
            stored_rules(stored.session.permissions, "session", self.names),
            stored_rules(stored.project, "project", self.names),
            mode,
            self.workspace,
            self.attended,
            parent,
            None if stored.session.owner is None else self.places.confine(self.session_id, self.workspace),
        )


class _Stored(msgspec.Struct, frozen=True):
    """What the store holds of the rules of a session: itself, its project's, and its parent's."""

    session: Session
    project: tuple[dict[str, object], ...]
    parent: _Stored | None


def stored_rules(
    values: Sequence[dict[str, object]], source: Literal["session", "project"], names: Collection[str]
) -> tuple[Rule, ...]:
    """Return rules as stored. An unreadable one may have been a denial, so everything is asked about in its place; one
    that names none of ``names`` is marked as unknown."""
    rules: list[Rule] = []
    for value in values:
        try:
            rules.append(fit({**value, "source": source, "pinned": False}, Rule))
        except msgspec.ValidationError:
            rules.append(Rule("*", "*", "ask", source))
    return mark_unknown(rules, names)
