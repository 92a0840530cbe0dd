"""Permissions: a session's own rules, and why a call would be allowed, asked about or denied."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.routing import BaseRoute

from clew.engine import Engine
from clew.fronts.http import query
from clew.fronts.http.answer import answer
from clew.fronts.http.body import read
from clew.fronts.http.operation import operation
from clew.fronts.http.route import route
from clew.fronts.http.shapes import ConsideredShape, ExplainedShape, RuleList, SubjectShape
from clew.fronts.shape import RuleShape, rule_shape
from clew.permissions.evaluate import Considered
from clew.permissions.explain import Subject
from clew.permissions.rules import MAX_PATTERN_CHARS, MAX_RULES
from clew.transcript.rule import Rule

__all__ = ["Permissions"]

# Written with escapes it still fits the head of a request.
MAX_TARGET_CHARS: Final = 4_096


class NewRule(msgspec.Struct):
    """A rule as a client sends it. ``source`` is not believed; ``pinned`` is named here only to be refused."""

    permission: str
    pattern: Annotated[str, Meta(max_length=MAX_PATTERN_CHARS)]
    action: Literal["allow", "deny", "ask"]
    source: Any = None
    added_at: Annotated[int, Meta(ge=0)] | None = None
    pinned: bool | None = None


class RulesBody(msgspec.Struct):
    """All the rules the session is to have."""

    rules: Annotated[list[NewRule], Meta(max_length=MAX_RULES)]


class ExplainQuery(msgspec.Struct):
    """A call that somebody may make: a tool, and the path, command line, URL or name it would be given."""

    tool: Annotated[str, Meta(min_length=1, max_length=128)]
    target: Annotated[str, Meta(max_length=MAX_TARGET_CHARS)] = ""


class Permissions:
    """The routes about what a session may do."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def routes(self) -> list[BaseRoute]:
        session = "/api/sessions/{id}"
        return [
            route(f"{session}/permissions", GET=self._get, PUT=self._put),
            route(f"{session}/permissions/explain", GET=self._explain),
        ]

    @operation("The session's own rules.", {200: RuleList})
    async def _get(self, request: Request) -> Any:
        return answer(_listed(await self._engine.permissions(request.path_params["id"])))

    @operation("Replace the session's own rules.", {200: RuleList}, body=RulesBody, refuses=(409,))
    async def _put(self, request: Request) -> Any:
        session = await self._engine.get_session(request.path_params["id"])
        body = await read(request, RulesBody)
        # A time that was not sent is not one that is none.
        rules = [
            {name: value for name, value in msgspec.structs.asdict(rule).items() if value is not None}
            for rule in body.rules
        ]
        return answer(_listed(await self._engine.set_permissions(session.id, rules)))

    @operation("What would be decided about a call, and why.", {200: ExplainedShape}, query=ExplainQuery)
    async def _explain(self, request: Request) -> Any:
        session = await self._engine.get_session(request.path_params["id"])
        asked = query.read(request, ExplainQuery)
        shown = await self._engine.explain_permission(session.id, asked.tool, asked.target)
        subjects = [_subject(step) for step in shown.subjects]
        considered = _considered(shown.considered)
        return answer(ExplainedShape(shown.action, _rule(shown.rule), shown.scope, considered, shown.reason, subjects))


def _listed(rules: Iterable[Rule]) -> RuleList:
    return RuleList([rule_shape(rule) for rule in rules])


def _rule(rule: Rule | None) -> RuleShape | None:
    return None if rule is None else rule_shape(rule)


def _considered(others: Iterable[Considered]) -> list[ConsideredShape]:
    return [ConsideredShape(rule_shape(other.rule), other.scope, other.why) for other in others]


def _subject(step: Subject) -> SubjectShape:
    kind: Any = step.kind
    rule = _rule(step.rule)
    considered = _considered(step.considered)
    return SubjectShape(step.permission, kind, step.shown, step.action, rule, step.scope, step.reason, considered)
