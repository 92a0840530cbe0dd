"""Denied tools: decides by the rules alone whether every call of a tool would be denied.

The result is the one :func:`~clew.permissions.evaluate.evaluate` gives for every plain target of that permission. If it
depends on the call, the result is False: nothing counts as denied that a rule could allow.
"""

from __future__ import annotations

from collections.abc import Sequence

from clew.permissions.globs import is_everything, literal_count, pieces_of
from clew.permissions.modes import mode_rules
from clew.transcript.rule import CAPABILITIES, Mode, Rule

__all__ = ["denies_all"]


def denies_all(
    permission: str,
    prefix: str,
    *,
    manifest: Sequence[Rule] = (),
    session: Sequence[Rule] = (),
    project: Sequence[Rule] = (),
    mode: Mode = "ask",
    capability: str | None = None,
) -> bool:
    """Return whether the rules deny every plain target of this permission whose value starts with ``prefix``.

    A star at the end of ``permission`` stands for every permission with that start. ``capability`` is the one that all
    of them certainly need. Read-only sessions are not considered.
    """
    pinned = [rule for rule in manifest if rule.pinned and _may_meet(rule, permission, prefix, capability)]
    if any(_meets_all(rule, permission, prefix, capability) and rule.action == "deny" for rule in pinned):
        return True
    if any(rule.action != "deny" for rule in pinned):
        return False
    for rules in (session, project, mode_rules(mode), manifest):
        matches = [
            (_order(rule, position), rule.action, _meets_all(rule, permission, prefix, capability))
            for position, rule in enumerate(rules)
            if _may_meet(rule, permission, prefix, capability)
        ]
        denied = max((order for order, action, meets_all in matches if action == "deny" and meets_all), default=None)
        others = [order for order, action, _ in matches if action != "deny"]
        if denied is not None:
            return all(order < denied for order in others)
        if others:
            return False
        # No rule of this scope applies; the next scope decides.
    return False


def _order(rule: Rule, position: int) -> tuple[int, int, int]:
    if rule.is_general:
        rank = 3
    elif rule.permission == "*":
        rank = 0
    else:
        rank = 1 if rule.permission in CAPABILITIES else 2 if rule.permission.endswith("*") else 3
    return rank, literal_count(rule.pattern), position


def _meets_all(rule: Rule, permission: str, prefix: str, capability: str | None) -> bool:
    """Return whether the rule applies to every such target."""
    # A star at the end is not part of the name: a rule with a longer name leaves some permissions out.
    rule_stem, stem = rule.permission.removesuffix("*"), permission.removesuffix("*")
    if rule.is_general or rule.permission == capability:
        applies = True
    elif rule_stem != rule.permission:
        applies = stem.startswith(rule_stem)
    else:
        applies = rule.permission == permission
    first, *more = pieces_of(rule.pattern)
    leaves_the_rest_open = bool(more) and not any(more) and prefix.startswith(first)
    return applies and (leaves_the_rest_open or is_everything(rule.pattern))


def _may_meet(rule: Rule, permission: str, prefix: str, capability: str | None) -> bool:
    applies, stem = rule.permission.removesuffix("*"), permission.removesuffix("*")
    is_wide, is_kind = applies != rule.permission, stem != permission
    if not (
        rule.is_general
        or rule.permission == capability
        or applies == stem
        or (is_wide and stem.startswith(applies))
        or (is_kind and applies.startswith(stem))
    ):
        return False
    first, *more = pieces_of(rule.pattern)
    return is_everything(rule.pattern) or first.startswith(prefix) or (bool(more) and prefix.startswith(first))
