"""Permission checks: evaluate the rules in force for a session against each target of a call.

A subagent's checker includes its parent's: whatever its own rules allow, it never has more permissions than the
session that started it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from clew.convert import convert
from clew.permissions.capabilities import Declared
from clew.permissions.evaluate import Decision, denies_all, evaluate, strictest
from clew.session.turn.protected_paths import Confinement, ProtectedPaths, glob_finder, leads_to
from clew.store.base import Moment, Store, get_session
from clew.transcript.rule import Mode, Rule, Target, mark_unknown
from clew.transcript.session import Session

__all__ = ["PermissionChecker", "RulesInForce", "stored_rules"]

_INLINE_KINDS: Final = ("plain", "host")
"""Kinds of targets that need no file system access."""
_MAX_INLINE_CHARS: Final = 4_096
"""Maximum length of values that are matched on the event loop."""


class RulesInForce(msgspec.Struct, frozen=True):
    """The rules at the time of a call. Deciding reads no rules, but does resolve the paths of a shell command.

    ``own`` protects clew's own paths, ``confined`` keeps an owner's session in its workspace. A parent's
    ``confined`` does not apply to its subagent, which has the same workspace but its own spill folder.
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
    declared: Declared = {}

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
            declared=self.declared,
        )
        if self.parent is None:
            return decision
        return strictest(decision, self.parent.decide(targets, tool, own), attended=self.attended)

    def denies_server(self, permission: str, begins: str) -> bool:
        """Return whether the rules deny every plain target of an MCP server's permission with this prefix, whatever the
        rest (:mod:`clew.permissions.evaluate`)."""
        manifest = (*self.own, *self.manifest)
        session, project, mode = self.session, self.project, self.mode
        scopes = {"manifest": manifest, "session": session, "project": project}
        if denies_all(permission, begins, mode=mode, capability="mcp.call", **scopes):
            return True
        return self.parent is not None and self.parent.denies_server(permission, begins)


class PermissionChecker(msgspec.Struct, frozen=True):
    """The permission checker of one session; reads the stored rules for each call. ``declared`` are all tools' names
    with the capabilities they declare."""

    store: Store
    session_id: str
    declared: Declared
    manifest: tuple[Rule, ...]
    workspace: Path | None
    protected_paths: ProtectedPaths
    attended: bool
    parent: PermissionChecker | None = None
    project: str | None = None

    async def load(self) -> RulesInForce:
        """Return the rules in force now, including the parent's."""
        return await asyncio.to_thread(self._in_force, await self._read())

    async def decide(self, targets: Sequence[Target], tool: str) -> Decision:
        """Decide about a call of this tool with these targets."""
        stored = await self._read()
        if all(target.kind in _INLINE_KINDS and len(target.value) <= _MAX_INLINE_CHARS for target in targets):
            # Plain text is only matched. Locating clew's own paths reads a few of its own folders.
            return self._in_force(stored).decide(targets, tool)
        # In a thread: this parses shell commands and resolves links.
        return await asyncio.to_thread(lambda: self._in_force(stored).decide(targets, tool))

    async def _read(self) -> _StoredRules:
        async def ask(store: Moment) -> tuple[Session, tuple[dict[str, object], ...]]:
            project = () if self.project is None else await store.load_project_rules(self.project)
            return await get_session(store, self.session_id), project

        session, project = await self.store.at_once(self.session_id, ask)
        return _StoredRules(session, project, await self.parent._read() if self.parent is not None else None)

    def _in_force(self, stored: _StoredRules) -> RulesInForce:
        """Return the rules as read, with the current locations of clew's own paths. Blocking."""
        above = stored.parent
        parent = self.parent._in_force(above) if self.parent is not None and above is not None else None
        mode = stored.session.mode
        if mode == "accept_edits" and not self.attended:
            mode = "ask"
        if mode == "ask" and parent is not None:
            # A user who is present has accepted the edits of this turn, including those of its subagents.
            mode = parent.mode
        own, aliases = self.protected_paths.look(self.session_id)
        return RulesInForce(
            own,
            aliases,
            self.manifest,
            stored_rules(stored.session.permissions, "session", self.declared),
            stored_rules(stored.project, "project", self.declared),
            mode,
            self.workspace,
            self.attended,
            parent,
            None if stored.session.owner is None else self.protected_paths.confine(self.session_id, self.workspace),
            self.declared,
        )


class _StoredRules(msgspec.Struct, frozen=True):
    """The stored rules of a session: its own, its project's, and its parent's."""

    session: Session
    project: tuple[dict[str, object], ...]
    parent: _StoredRules | None


def stored_rules(
    values: Sequence[dict[str, object]], source: Literal["session", "project"], names: Collection[str]
) -> tuple[Rule, ...]:
    """Return the stored rules. An unreadable one may have been a denial, so it becomes "ask about everything"; one
    that matches none of ``names`` is marked as unknown."""
    rules: list[Rule] = []
    for value in values:
        try:
            rules.append(convert({**value, "source": source, "pinned": False}, Rule))
        except msgspec.ValidationError:
            rules.append(Rule("*", "*", "ask", source))
    return mark_unknown(rules, names)
