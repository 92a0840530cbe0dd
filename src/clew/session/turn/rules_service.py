"""The rules of a session and of a project: listed together with an agent's rules, added, replaced, revoked, and asked
for the decision about a call.

Rules are stored as plain lists without ids. A rule's id is derived from its content and its owner, so it is stable as
long as the rule exists, and two equal rules are one.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from clew.errors import InvalidInput, RuleNotFound, ToolFailed
from clew.permissions.evaluate import Decision
from clew.permissions.rules import MAX_RULES, check_known, parse_rules
from clew.session.acquire.live_sessions import LiveSessions, RulesChanged
from clew.session.host import Host
from clew.session.prompt.turn_config import load_permit
from clew.session.turn.answers import Answers
from clew.session.turn.permission_check import stored_rules
from clew.store.base import get_session
from clew.store.unit import STORE_WIDE, PatchSession, PutProjectRules, RulesAre, Unit
from clew.tools.base import Tool
from clew.tools.mcp_tools import ServerScope
from clew.tools.targets import call_targets, capability_targets
from clew.transcript.rule import CAPABILITIES, KeptRule, Rule, RuleScope, Target, mark_unknown
from clew.transcript.session import Session, project_of

__all__ = ["RulesService"]

_TARGET_ARGS: Final = ("command", "path", "url", "name", "agent")
"""The arguments that name what a call would touch, as the built-in tools call them."""


class RulesService:
    """The service that reads and changes the rules of one engine, and applies changes to pending requests."""

    def __init__(self, host: Host, sessions: LiveSessions, answers: Answers) -> None:
        self._host = host
        self._sessions = sessions
        self._answers = answers

    async def of_session(self, session: Session) -> list[KeptRule]:
        return _with_ids(stored_rules(session.permissions, "session", self._host.declared), "session", session.id)

    async def of_project(self, folder: str, owner: str | None = None) -> list[KeptRule]:
        stored = await self._host.store.load_project_rules(project_of(owner, folder))
        return _with_ids(stored_rules(stored, "project", self._host.declared), "project", folder)

    async def of_agent(
        self, name: str, workspace: str | None, owner: str | None, *, stored: bool = False
    ) -> list[KeptRule]:
        """Return an agent's own rules and those of every agent, which also protect clew's own paths.

        An agent named by a session, ``stored``, may be unknown here: then the default agent is used.
        """
        catalog = await asyncio.to_thread(self._host.agents, None if workspace is None else Path(workspace), owner)
        agent = catalog.first_known(name, self._host.choices.default_agent) if stored else catalog.get(name)
        rules = mark_unknown((*self._host.base_rules, *agent.rules), self._host.declared)
        return _with_ids(rules, "agent", agent.name)

    async def decide(self, session: Session, tool: str, target: str) -> Decision:
        """Return the decision about a call of ``tool`` on ``target`` by the rules in force, without making the call."""
        workspace = Path(session.workspace_root) if session.workspace_root else None
        catalog = await asyncio.to_thread(self._host.agents, workspace, session.owner)
        agent = catalog.first_known(session.agent, self._host.choices.default_agent)
        permit = await load_permit(self._host, session, agent.rules, attended=True)
        targets = await asyncio.to_thread(_targets, self._host.tools.get(tool), tool, target, workspace)
        return await permit.decide(targets, tool)

    async def replace(self, session_id: str, rules: Sequence[Mapping[str, Any]]) -> None:
        """Replace the session's own rules."""
        parsed = parse_rules(rules, "session", added_at=self._host.clock.now_ms())
        async with self._sessions.lock(session_id):
            session = await get_session(self._host.store, session_id)
            # A client that changes one rule sends all of them.
            known = {
                (rule.permission, rule.pattern, rule.action)
                for rule in stored_rules(session.permissions, "session", ())
            }
            new_rules = [rule for rule in parsed if (rule.permission, rule.pattern, rule.action) not in known]
            await self._check(new_rules, session.workspace_root, session, session.owner)
            new = PatchSession(permissions=tuple(_as_stored(rule) for rule in parsed))
            await self._sessions.commit(Unit(session_id, (new,), sync="power"))
        await self._apply_to_session(session_id)

    async def add(
        self, scope: Literal["session", "project"], of: str, rule: Mapping[str, Any], owner: str | None = None
    ) -> KeptRule:
        """Add one rule at the end of its list; an existing one is moved there. A project's rules belong to its
        ``owner``."""
        [parsed] = parse_rules([rule], scope, added_at=self._host.clock.now_ms())
        session = await get_session(self._host.store, of) if scope == "session" else None
        await self._check([parsed], of if session is None else session.workspace_root, session, owner)
        [new] = _with_ids((parsed,), scope, of)
        await self._change(scope, of, new.id, _as_stored(parsed), owner)
        return new

    async def revoke(
        self, scope: Literal["session", "project"], of: str, rule_id: str, owner: str | None = None
    ) -> None:
        """Remove a rule."""
        await self._change(scope, of, rule_id, None, owner)

    async def _check(
        self, rules: Sequence[Rule], folder: str | None, session: Session | None, owner: str | None
    ) -> None:
        """Refuse a rule that names no tool and no MCP server of the host, the session or an agent in the folder."""
        workspace = None if folder is None else Path(folder)
        servers: set[str] = set()
        if self._host.servers is not None:
            scope_of_servers = ServerScope(
                session_id="" if session is None else session.id, owner=owner, workspace=workspace
            )
            servers |= {one.name for one in self._host.servers.states(scope_of_servers)}
        catalog = await asyncio.to_thread(self._host.agents, workspace, owner)
        servers |= {name for agent in catalog.list() for name in agent.mcp_servers or ()}
        check_known(rules, self._host.declared, servers)

    async def _change(
        self,
        scope: Literal["session", "project"],
        of: str,
        rule_id: str,
        new: dict[str, Any] | None,
        owner: str | None,
    ) -> None:
        """Remove the rule with that id from its list and append ``new``."""
        store, project = self._host.store, project_of(owner, of)
        while True:
            if scope == "session":
                known = tuple((await get_session(store, of)).permissions)
                put = PatchSession(permissions=_changed(known, scope, of, rule_id, new))
                unit = Unit(of, (put,), (RulesAre(None, known),), sync="power")
            else:
                known = await store.load_project_rules(project)
                rules = _changed(known, scope, of, rule_id, new)
                replaced = PutProjectRules(project, rules, self._host.clock.now_ms())
                unit = Unit(STORE_WIDE, (replaced,), (RulesAre(project, known),), sync="power")
            try:
                await self._sessions.commit(unit)
                break
            except RulesChanged:
                # The rules were changed concurrently, here or in another replica: apply this change to the new list.
                continue
        if scope == "session":
            await self._apply_to_session(of)
            return
        for session_id in await store.unsettled_sessions():
            session = await store.find_session(session_id)
            if session is not None and session.project == project:
                await self._apply_to_session(session_id)

    async def _apply_to_session(self, session_id: str) -> None:
        self._sessions.show_changed(session_id)
        await self._answers.judge_again(session_id)


def _targets(tool: Tool | None, name: str, target: str, workspace: Path | None) -> Sequence[Target]:
    plain = [Target(name, "plain", target)]
    declared = getattr(tool, "capabilities", None)
    arguments = (*(declared.values() if isinstance(declared, Mapping) else ()), *_TARGET_ARGS)
    argument = next((one for one in arguments if tool and one in tool.input_schema.get("properties", {})), None)
    if argument == "url" and "://" not in target:
        target = f"https://{target}"
    try:
        if name in CAPABILITIES:
            # As any tool that uses it would have it.
            found: Sequence[Target] = tuple(capability_targets(name, name, target or None, workspace))
        elif tool is None or argument is None:
            return plain
        else:
            found = call_targets(tool, {argument: target}, workspace)
    except ToolFailed as error:
        raise InvalidInput(f"{name} cannot be called with this target: {error}") from error
    except (KeyError, TypeError):
        # A custom tool that needs more arguments than one.
        return plain
    # Plain targets are matched as written.
    return plain if all(one.kind == "plain" for one in found) else found


def _changed(
    stored: Sequence[dict[str, Any]],
    scope: Literal["session", "project"],
    of: str,
    rule_id: str,
    new: dict[str, Any] | None,
) -> tuple[dict[str, Any], ...]:
    ids = [one.id for one in _with_ids(stored_rules(stored, scope, ()), scope, of)]
    if new is None and rule_id not in ids:
        raise RuleNotFound(f"there is no rule {rule_id}; list the rules to see their ids", rule_id=rule_id)
    rules = [rule for id_, rule in zip(ids, stored, strict=True) if id_ != rule_id]
    rules += [new] if new is not None else []
    # Removing a rule is always possible.
    if new is not None and len(rules) > MAX_RULES:
        raise InvalidInput(f"{len(rules)} rules exceed the limit of {MAX_RULES}; revoke some first")
    return tuple(rules)


def _as_stored(rule: Rule) -> dict[str, Any]:
    return {**msgspec.to_builtins(rule), "source": rule.source}


def _with_ids(rules: Sequence[Rule], scope: RuleScope, of: str) -> list[KeptRule]:
    return [
        KeptRule(
            id=_rule_id(rule, scope, of),
            scope=scope,
            of=of,
            permission=rule.permission,
            pattern=rule.pattern,
            action=rule.action,
            added_at=rule.added_at,
            pinned=rule.pinned,
            unknown=rule.unknown,
        )
        for rule in rules
    ]


def _rule_id(rule: Rule, scope: RuleScope, of: str) -> str:
    content = msgspec.json.encode([scope, of, rule.permission, rule.pattern, rule.action, rule.pinned])
    return f"rule_{hashlib.sha256(content).hexdigest()[:20]}"
