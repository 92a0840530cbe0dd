"""Blanket denials: whether everything of a kind is denied, whatever it would be; decided by the rules, without a call.

It says what :func:`~clew.permissions.evaluate.evaluate` would say of every plain target of that kind, so it weighs the
same way. Where that depends on what a call says the answer is no: nothing is taken for denied that a rule could let
through.
"""

from __future__ import annotations

from collections.abc import Sequence

from clew.permissions.globs import is_everything, literal_count, pieces_of
from clew.permissions.modes import mode_rules
from clew.transcript.rule import Mode, Rule

__all__ = ["denies_all"]


def denies_all(
    permission: str,
    begins: str,
    *,
    manifest: Sequence[Rule] = (),
    session: Sequence[Rule] = (),
    project: Sequence[Rule] = (),
    mode: Mode = "ask",
) -> bool:
    """Whether the rules deny every plain target of this permission whose value begins so; with a star at its end, of
    every permission that begins so. That a session only reads is not weighed here."""
    pinned = [rule for rule in manifest if rule.pinned and _may_meet(rule, permission, begins)]
    if any(_meets_all(rule, permission, begins) and rule.action == "deny" for rule in pinned):
        return True
    if any(rule.action != "deny" for rule in pinned):
        return False
    for rules in (session, project, mode_rules(mode), manifest):
        met = [
            (_order(rule, at), rule.action, _meets_all(rule, permission, begins))
            for at, rule in enumerate(rules)
            if _may_meet(rule, permission, begins)
        ]
        denied = max((order for order, action, meets_all in met if action == "deny" and meets_all), default=None)
        others = [order for order, action, _ in met if action != "deny"]
        if denied is not None:
            return all(order < denied for order in others)
        if others:
            return False
        # What the rules of this scope do not meet, the next one decides.
    return False


def _order(rule: Rule, at: int) -> tuple[int, int, int]:
    rank = 2 if rule.is_general or not rule.permission.endswith("*") else 1 if rule.permission != "*" else 0
    return rank, literal_count(rule.pattern), at


def _meets_all(rule: Rule, permission: str, begins: str) -> bool:
    """Whether no target of the kind escapes the rule."""
    # A star at a permission's end is none of its letters: a rule with more letters leaves some of the kind out.
    wide, stem = rule.permission.removesuffix("*"), permission.removesuffix("*")
    if rule.is_general:
        named = True
    elif wide != rule.permission:
        named = stem.startswith(wide)
    else:
        named = rule.permission == permission
    first, *more = pieces_of(rule.pattern)
    leaves_the_rest_open = bool(more) and not any(more) and begins.startswith(first)
    return named and (leaves_the_rest_open or is_everything(rule.pattern))


def _may_meet(rule: Rule, permission: str, begins: str) -> bool:
    named, stem = rule.permission.removesuffix("*"), permission.removesuffix("*")
    is_wide, is_kind = named != rule.permission, stem != permission
    if not (
        rule.is_general or named == stem or (is_wide and stem.startswith(named)) or (is_kind and named.startswith(stem))
    ):
        return False
    first, *more = pieces_of(rule.pattern)
    return is_everything(rule.pattern) or first.startswith(begins) or (bool(more) and begins.startswith(first))
