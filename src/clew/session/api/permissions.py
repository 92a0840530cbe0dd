"""Permissions: the rules of a session, and the decision of the rules in force about a call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from clew.errors import InvalidInput, RuleNotFound
from clew.session.api.base import EnginePart, without_links
from clew.transcript.session import folder_of
from clew.transcript.value_check import check_value

# Imports inside functions: the shell parser is a quarter of clew's code, and only decisions need it.
if TYPE_CHECKING:
    from clew.permissions.explain import Explanation
    from clew.transcript.rule import KeptRule, Rule, RuleScope

__all__ = ["Permissions"]


class Permissions(EnginePart):
    """The rules of a session. They may be changed during a run; pending requests are decided again."""

    async def permissions(self, session_id: str) -> tuple[Rule, ...]:
        """Return the session's own rules in order. An unreadable one is shown as one that asks about everything."""
        from clew.session.turn.permission_check import stored_rules

        session = await self._get_session(session_id)
        return stored_rules(session.permissions, "session", self._host.declared)

    async def set_permissions(self, session_id: str, rules: Sequence[Mapping[str, Any]]) -> tuple[Rule, ...]:
        """Replace the session's own rules. Pending requests are decided again by the new ones.

        A rule is a mapping with ``permission``, ``pattern`` and ``action`` (``allow``, ``deny``, ``ask``). A
        ``permission`` is ``*``, a tool, ``mcp__SERVER``, ``mcp__SERVER__TOOL``, the start of one and a star, or a
        capability such as ``fs.write``; an unknown one is refused. ``pinned`` is only for manifests.
        """
        session = await self._get_session(session_id)
        await self._runtime.rules_service.replace(session.id, rules)
        return await self.permissions(session.id)

    async def rules(
        self,
        *,
        scope: RuleScope | None = None,
        session_id: str | None = None,
        workspace: str | Path | None = None,
        agent: str | None = None,
    ) -> list[KeptRule]:
        """Return rules with their ids: those in force for a session, of a project, of an agent, or of every project.

        Those of a session come nearest first: its own, its project's, its agent's; ``scope`` selects one of these.
        """
        _check_scope(scope, ("session", "project", "agent"))
        check_value([agent, None if workspace is None else str(workspace)], "rules")
        book, session = self._runtime.rules_service, None
        if session_id is not None:
            session = await self._get_session(session_id)
        elif scope == "session":
            raise InvalidInput("name the session: rules of the scope session belong to one session")
        root, owner = (session.workspace_root, session.owner) if session is not None else (None, self.owner)
        if workspace is not None:
            root = await asyncio.to_thread(without_links, str(workspace))
        named = agent or (session.agent if session is not None else None)
        if scope == "agent" and named is None:
            raise InvalidInput("name an agent or a session")
        found: list[KeptRule] = []
        if session is not None and scope in (None, "session"):
            found += await book.of_session(session)
        if scope in (None, "project"):
            all_projects = root is None and session is None and agent is None
            folders = [root] if root is not None else []
            if all_projects:
                stored = await self._store.list_projects()
                folders = [folder for one in stored if (folder := folder_of(owner, one)) is not None]
            for folder in folders:
                found += await book.of_project(folder, owner)
        if named is not None and scope in (None, "agent"):
            if workspace is not None and self.roots is not None:
                # An agent may be defined by a file in that folder.
                root = str(await self._resolve_workspace(workspace))
            found += await book.of_agent(named, root, owner, stored=agent is None)
        return found

    async def add_rule(
        self,
        scope: Literal["session", "project"],
        permission: str,
        pattern: str,
        action: Literal["allow", "deny", "ask"],
        *,
        session_id: str | None = None,
        workspace: str | Path | None = None,
    ) -> KeptRule:
        """Add a rule to a session or to a project: its folder, or the one the session works in."""
        of, owner = await self._rules_of(scope, session_id, workspace)
        rule = {"permission": permission, "pattern": pattern, "action": action}
        return await self._runtime.rules_service.add(scope, of, rule, owner)

    async def revoke_rule(
        self, rule_id: str, *, session_id: str | None = None, workspace: str | Path | None = None
    ) -> None:
        """Remove a rule of a session or a project, by its id. An agent's rules are in its manifest."""
        check_value([rule_id], "rule")
        owner = (await self._get_session(session_id)).owner if session_id is not None else self.owner
        for rule in await self.rules(session_id=session_id, workspace=workspace):
            if rule.id != rule_id:
                continue
            if rule.scope == "agent":
                raise InvalidInput(
                    f"this rule belongs to the agent; change it in the manifest of {rule.of}, or add another"
                )
            await self._runtime.rules_service.revoke(rule.scope, rule.of, rule_id, owner)
            return
        raise RuleNotFound(f"there is no rule {rule_id}; list the rules to see their ids", rule_id=rule_id)

    async def _rules_of(
        self, scope: Literal["session", "project"], session_id: str | None, workspace: str | Path | None
    ) -> tuple[str, str | None]:
        """Return the owner of the rules: a session's id or a project's resolved folder, and the owner of either."""
        _check_scope(scope, ("session", "project"))
        session = await self._get_session(session_id) if session_id is not None else None
        if scope == "session":
            if session is None:
                raise InvalidInput("name the session of the rule")
            return session.id, session.owner
        if workspace is not None:
            return str(await self._resolve_workspace(workspace)), self.owner if session is None else session.owner
        if session is None or session.workspace_root is None:
            raise InvalidInput("name the folder of the rule: a project is a folder that sessions work in")
        return session.workspace_root, session.owner

    async def explain_permission(self, session_id: str, tool: str, target: str = "") -> Explanation:
        """Return the decision about a call that was not made: ``action``, ``rule``, ``scope``, and what else was
        ``considered``.

        ``tool`` is a tool or a capability, ``target`` the path, command line, URL or name it would be given.
        """
        from clew.permissions.explain import explain

        session = await self._get_session(session_id)
        check_value([tool, target], "call")
        return explain(await self._runtime.rules_service.decide(session, tool, target))


def _check_scope(scope: str | None, known: Sequence[str]) -> None:
    if scope is not None and scope not in known:
        raise InvalidInput(f"scope must be {' or '.join(known)}, not {scope!r}")
