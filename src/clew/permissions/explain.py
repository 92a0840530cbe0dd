"""Explanations of decisions, for people (PM-4).

Control characters and marks for the writing direction in text from the model are escaped, so that a person reads what
will run.
"""

from __future__ import annotations

import msgspec

from clew.escape import escape_invisible
from clew.permissions.evaluate import Action, Considered, Decision, Scope
from clew.transcript.rule import Rule

__all__ = ["Explanation", "Subject", "explain"]


class Subject(msgspec.Struct, frozen=True):
    """One thing a call would touch, with the rule that decided and the others that matched."""

    permission: str
    kind: str
    shown: str
    action: Action
    rule: Rule | None
    scope: Scope | None
    reason: str
    considered: tuple[Considered, ...] = ()


class Explanation(msgspec.Struct, frozen=True):
    """The decision, its rule and scope, and every subject, the deciding one first."""

    action: Action
    rule: Rule | None
    scope: Scope | None
    considered: tuple[Considered, ...]
    reason: str
    subjects: tuple[Subject, ...] = ()


def explain(decision: Decision) -> Explanation:
    deciding = [judgement for judgement in decision.judgements if judgement.target == decision.target]
    others = [judgement for judgement in decision.judgements if judgement.target != decision.target]
    subjects = tuple(
        Subject(
            judgement.target.permission,
            judgement.target.kind,
            escape_invisible(judgement.target.value, keep="\n"),
            judgement.action,
            judgement.rule,
            judgement.scope,
            escape_invisible(judgement.reason, keep="\n"),
            judgement.considered,
        )
        for judgement in (*deciding, *others)
    )
    reason = escape_invisible(decision.reason, keep="\n")
    return Explanation(decision.action, decision.rule, decision.scope, decision.considered, reason, subjects)
