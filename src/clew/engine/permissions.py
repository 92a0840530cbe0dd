"""Permissions: the rules of a session's own, and what the rules in force say of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from clew.engine.base import EnginePart
from clew.transcript.gate import check_value

# Imports inside functions: what reads shell lines is a quarter of what clew loads, and only judging needs it.
if TYPE_CHECKING:
    from clew.permissions.explain import Explanation
    from clew.transcript.rule import Rule

__all__ = ["Permissions"]


class Permissions(EnginePart):
    """What a session allows. Rules may be changed while a run goes on; what waits is judged again."""

    async def permissions(self, session_id: str) -> tuple[Rule, ...]:
        """The session's own rules, in their order. One that no longer reads shows as one that asks about all."""
        from clew.runtime.permit import stored_rules

        return stored_rules((await self._find_own(session_id)).permissions, "session")

    async def set_permissions(self, session_id: str, rules: Sequence[Mapping[str, Any]]) -> tuple[Rule, ...]:
        """Replace the session's own rules. Requests that wait are judged again by the new ones."""
        session = await self._find_own(session_id)
        await self._runtime.answers.set_rules(session.id, rules)
        return await self.permissions(session.id)

    async def explain_permission(self, session_id: str, tool: str, target: str = "") -> Explanation:
        """What would be decided about a call: ``action``, ``rule``, ``scope``, what else was ``considered``."""
        from clew.permissions.explain import explain
        from clew.runtime.explain import explain_call

        session = await self._find_own(session_id)
        check_value([tool, target], "call")
        return explain(await explain_call(self._host, session, tool, target))
