"""The rule book: a person's own rules of a session and of a project, beside those of an agent; added and revoked.

Rules are stored as plain lists without ids of their own. A rule's id is made of what it says and whose it is, so it is
the same for as long as the rule is there, and two equal ones are one.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from clew.errors import InvalidInput, RuleNotFound
from clew.permissions.rules import MAX_RULES, check_known, parse_rules
from clew.runtime.answers import Answers
from clew.runtime.host import Host
from clew.runtime.live_sessions import LiveSessions, RulesMoved
from clew.runtime.permit import stored_rules
from clew.store.base import get_session
from clew.store.unit import STORE_WIDE, PatchSession, PutProjectRules, RulesAre, Unit
from clew.tools.served import Place
from clew.transcript.rule import Rule, mark_unknown
from clew.transcript.session import Session, project_of

__all__ = ["KeptRule", "RuleBook", "RuleScope"]

RuleScope = Literal["session", "project", "agent"]


class KeptRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule with its id and whose it is: ``of`` a session's id, a project's folder, an agent's name. ``unknown``: it
    names no known tool, and applies to every tool if it denies or asks."""

    id: str
    scope: RuleScope
    of: str
    permission: str
    pattern: str
    action: Literal["allow", "deny", "ask"]
    added_at: int | None
    pinned: bool
    unknown: bool = False


class RuleBook:
    """Reads and changes the rules of one engine. What waits is judged again by those it changes."""

    def __init__(self, host: Host, sessions: LiveSessions, answers: Answers) -> None:
        self._host = host
        self._sessions = sessions
        self._answers = answers

    async def of_session(self, session: Session) -> list[KeptRule]:
        return _kept(stored_rules(session.permissions, "session", self._host.permission_names), "session", session.id)

    async def of_project(self, folder: str, owner: str | None = None) -> list[KeptRule]:
        stored = await self._host.store.load_project_rules(project_of(owner, folder))
        return _kept(stored_rules(stored, "project", self._host.permission_names), "project", folder)

    async def of_agent(self, name: str, workspace: str | None, *, stored: bool = False) -> list[KeptRule]:
        """Return an agent's own rules and those of every agent. All agents are also kept out of clew's places.

        An agent that a session names, ``stored``, may be unknown here: then it is the default agent.
        """
        catalog = await asyncio.to_thread(self._host.agents, None if workspace is None else Path(workspace))
        agent = catalog.first_known(name, self._host.choices.default_agent) if stored else catalog.get(name)
        rules = mark_unknown((*self._host.base_rules, *agent.rules), self._host.permission_names)
        return _kept(rules, "agent", agent.name)

    async def replace(self, session_id: str, rules: Sequence[Mapping[str, Any]]) -> None:
        """Give the session these rules in the place of its own."""
        parsed = parse_rules(rules, "session", added_at=self._host.clock.now_ms())
        async with self._sessions.lock(session_id):
            session = await get_session(self._host.store, session_id)
            # A client that changes one rule sends all of them back.
            held = {
                (rule.permission, rule.pattern, rule.action)
                for rule in stored_rules(session.permissions, "session", ())
            }
            new_rules = [rule for rule in parsed if (rule.permission, rule.pattern, rule.action) not in held]
            await self._check(new_rules, session.workspace_root, session)
            new = PatchSession(permissions=tuple(_as_stored(rule) for rule in parsed))
            await self._sessions.commit(Unit(session_id, (new,), sync="power"))
        await self._judge_session(session_id)

    async def add(
        self, scope: Literal["session", "project"], of: str, rule: Mapping[str, Any], owner: str | None = None
    ) -> KeptRule:
        """Add one rule, the newest of its list. One that is there already is moved there. A project's rules are its
        ``owner``'s."""
        [parsed] = parse_rules([rule], scope, added_at=self._host.clock.now_ms())
        session = await get_session(self._host.store, of) if scope == "session" else None
        await self._check([parsed], of if session is None else session.workspace_root, session)
        [new] = _kept((parsed,), scope, of)
        await self._change(scope, of, new.id, _as_stored(parsed), owner)
        return new

    async def revoke(
        self, scope: Literal["session", "project"], of: str, rule_id: str, owner: str | None = None
    ) -> None:
        """Take a rule away."""
        await self._change(scope, of, rule_id, None, owner)

    async def _check(self, rules: Sequence[Rule], folder: str | None, session: Session | None) -> None:
        """Refuse a rule that names no tool and no MCP server of the host, the session or an agent in the folder."""
        workspace = None if folder is None else Path(folder)
        servers: set[str] = set()
        if self._host.servers is not None:
            id_, owner = ("", None) if session is None else (session.id, session.owner)
            place = Place(session_id=id_, owner=owner, workspace=workspace)
            servers |= {one.name for one in self._host.servers.states(place)}
        catalog = await asyncio.to_thread(self._host.agents, workspace)
        servers |= {name for agent in catalog.list() for name in agent.mcp_servers or ()}
        check_known(rules, self._host.permission_names, servers)

    async def _change(
        self,
        scope: Literal["session", "project"],
        of: str,
        rule_id: str,
        new: dict[str, Any] | None,
        owner: str | None,
    ) -> None:
        """Take the rule of that id out of its list and put ``new`` at the end of it."""
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
            except RulesMoved:
                # Somebody else has changed them since they were read, here or in another replica: ours goes beside it.
                continue
        if scope == "session":
            await self._judge_session(of)
            return
        for session_id in await store.unsettled_sessions():
            session = await store.find_session(session_id)
            if session is not None and session.project == project:
                await self._judge_session(session_id)

    async def _judge_session(self, session_id: str) -> None:
        self._sessions.show_changed(session_id)
        await self._answers.judge_again(session_id)


def _changed(
    held: Sequence[dict[str, Any]],
    scope: Literal["session", "project"],
    of: str,
    rule_id: str,
    new: dict[str, Any] | None,
) -> tuple[dict[str, Any], ...]:
    ids = [one.id for one in _kept(stored_rules(held, scope, ()), scope, of)]
    if new is None and rule_id not in ids:
        raise RuleNotFound(f"there is no rule {rule_id} here; list them to see which there are", rule_id=rule_id)
    rules = [rule for id_, rule in zip(ids, held, strict=True) if id_ != rule_id]
    rules += [new] if new is not None else []
    # Taking one away is never too much.
    if new is not None and len(rules) > MAX_RULES:
        raise InvalidInput(f"{len(rules)} rules are more than the {MAX_RULES} that are kept; revoke some first")
    return tuple(rules)


def _as_stored(rule: Rule) -> dict[str, Any]:
    return {**msgspec.to_builtins(rule), "source": rule.source}


def _kept(rules: Sequence[Rule], scope: RuleScope, of: str) -> list[KeptRule]:
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
    said = msgspec.json.encode([scope, of, rule.permission, rule.pattern, rule.action, rule.pinned])
    return f"rule_{hashlib.sha256(said).hexdigest()[:20]}"
