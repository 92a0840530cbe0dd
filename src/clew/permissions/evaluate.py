"""Evaluation of rules for the targets of a call: one decision with its reasons (PM-2, PM-4).

For each subject a matching pinned manifest rule decides first, deny before ask before allow; else the nearest scope
with a match, session before project before mode before manifest; in it the most specific rule (one that names the tool,
then one that names a capability, then ``*``), and of equals the later. Each capability that rules name is decided by
these and the rules for the tool; the strictest decides, and a rule that only may apply never weakens another one.
A read-only session is denied everything else before any rule is evaluated. Of several subjects the strictest decides.
Without a match the decision is to ask. An error during the evaluation denies.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from clew.permissions.capabilities import Declared, uses_of
from clew.permissions.globs import is_everything, literal_count, pieces_of
from clew.permissions.match import Subject, literals, match, permission_rank, show_unknown, subjects_of
from clew.permissions.paths import FileSystem
from clew.permissions.rules import Certainty, is_reading, mode_rules
from clew.transcript.rule import CAPABILITIES, Mode, Rule, Target

__all__ = ["Action", "Considered", "Decision", "Judgement", "Scope", "denies_all", "evaluate", "strictest"]

Action = Literal["allow", "ask", "deny"]
Scope = Literal["manifest", "session", "project", "mode"]
_Scopes = tuple[tuple[Scope, Sequence[Rule]], ...]
_STRICTNESS: Final[Mapping[Action, int]] = {"allow": 0, "ask": 1, "deny": 2}
_SAYS: Final = {"allow": "allows it", "ask": "asks", "deny": "denies it"}
_ONLY_READS: Final = "this session only reads, whatever its rules allow"
_COVERS: Final = {
    "named": "a rule that writes its program out",
    "exact": "a rule for exactly this command",
    "none": "you",
}


class Considered(msgspec.Struct, frozen=True):
    """A rule that matched and did not decide, with the reason."""

    rule: Rule
    scope: Scope
    why: str


class Judgement(msgspec.Struct, frozen=True):
    """The result for one subject. ``rule`` is None if none matched."""

    target: Target
    action: Action
    rule: Rule | None
    scope: Scope | None
    reason: str
    considered: tuple[Considered, ...] = ()


class Decision(msgspec.Struct, frozen=True):
    """The decision for a call: that of its strictest judgement, with all of them as the explanation.

    ``target`` is the one that decided: a target of the call, or a command or redirect of a shell line. ``reason`` is a
    sentence for people and for the model.
    """

    action: Action
    rule: Rule | None
    scope: Scope | None
    target: Target | None
    considered: tuple[Considered, ...]
    reason: str
    judgements: tuple[Judgement, ...] = ()


def evaluate(
    targets: Iterable[Target],
    *,
    manifest: Sequence[Rule] = (),
    session: Sequence[Rule] = (),
    project: Sequence[Rule] = (),
    mode: Mode = "ask",
    tool: str | None = None,
    workspace: str | os.PathLike[str] | None = None,
    attended: bool = True,
    resolve: Callable[[str], str] | None = None,
    home: str | None = None,
    aliases: Callable[[str], Sequence[str]] | None = None,
    finds: Callable[[str], Sequence[str] | None] | None = None,
    declared: Declared | None = None,
) -> Decision:
    """Decide about all ``targets`` of one call. Never raises.

    ``tool`` is the called tool, if a whole call is decided: a call does not count as reading only by its targets.
    ``workspace`` is the resolved root; relative patterns and redirects start there. ``resolve`` turns the path of a
    redirect into one without links; without it no rule can allow a redirect. For ``home``, ``aliases`` and ``finds``
    see :class:`~clew.permissions.paths.FileSystem`. ``attended`` is False if no person can answer: a decision to
    ask becomes a denial. ``declared`` are the capabilities of the tools.
    """
    try:
        file_system = FileSystem(None if workspace is None else os.fspath(workspace), resolve, home, aliases, finds)
        scopes: _Scopes = (
            ("session", session),
            ("project", project),
            ("mode", mode_rules(mode)),
            ("manifest", manifest),
        )
        targets = tuple(targets)
        uses = uses_of(targets, tool, declared or {})
        subjects = [
            subject
            for target, used in zip(targets, uses, strict=True)
            for subject in subjects_of(target, file_system, used)
        ]
        only_reads = mode != "read_only" or (bool(subjects) and (tool is None or is_reading(tool)))
        judgements = tuple(
            _judge(subject, scopes, file_system)
            if mode != "read_only" or (only_reads and is_reading(subject.target.permission))
            else Judgement(subject.target, "deny", None, "mode", _ONLY_READS)
            for subject in subjects
        )
        decision = Decision("ask", None, None, None, (), "the call does not say what it would touch")
        if not only_reads:
            decision = Decision("deny", None, "mode", None, (), _ONLY_READS)
        if judgements:
            strictest_judgement = max(judgements, key=lambda judgement: _STRICTNESS[judgement.action])
            decision = Decision(
                strictest_judgement.action,
                strictest_judgement.rule,
                strictest_judgement.scope,
                strictest_judgement.target,
                strictest_judgement.considered,
                strictest_judgement.reason,
                judgements,
            )
        return strictest(decision, attended=attended)
    except Exception as error:
        # Fail closed: a bug in the evaluation must not allow anything.
        reason = f"the rules could not be evaluated ({type(error).__name__}: {error}), so nothing is allowed"
        return Decision("deny", None, None, None, (), reason)


def strictest(first: Decision, *others: Decision, attended: bool = True) -> Decision:
    """Return the strictest of several decisions about the same call; of equals the first.

    It limits a subagent to its parent's rules: the call is evaluated by the rules of both. With ``attended`` False a
    decision to ask becomes a denial.
    """
    decision = max((first, *others), key=lambda decision: _STRICTNESS[decision.action])
    if attended or decision.action != "ask":
        return decision
    reason = f"this run is unattended, and {decision.reason}"
    return msgspec.structs.replace(decision, action="deny", reason=reason)


# ---------------------------------------------------------------- one subject


class _MatchedRule(msgspec.Struct, frozen=True):
    """A rule that matched or may have matched, with its order: rank, literal characters, position."""

    rule: Rule
    scope: Scope
    certainty: Certainty
    order: tuple[int, int, int]

    @property
    def action(self) -> Action:
        """Return the rule's action; an uncertain match asks."""
        return "ask" if self.certainty is Certainty.MAYBE else self.rule.action

    @property
    def capability(self) -> str | None:
        """Return the capability that the rule names, or None."""
        return self.rule.permission if self.rule.permission in CAPABILITIES else None

    @property
    def pinned(self) -> bool:
        """Return whether the rule is pinned; only a manifest's rules can be."""
        return self.scope == "manifest" and self.rule.pinned


def _judge(subject: Subject, scopes: _Scopes, file_system: FileSystem) -> Judgement:
    matched: list[_MatchedRule] = []
    for scope, rules in scopes:
        for position, rule in enumerate(rules):
            result = match(rule, subject, file_system)
            if result is not Certainty.NO:
                order = (permission_rank(rule, subject.target), literals(rule, subject, file_system), position)
                matched.append(_MatchedRule(rule, scope, result, order))
    if not matched:
        return Judgement(subject.target, "ask", None, None, _explain_unmatched(subject))
    winner = _decide(matched)
    considered = tuple(
        Considered(candidate.rule, candidate.scope, _explain_loss(candidate, winner))
        for candidate in matched
        if candidate is not winner
    )
    named = f"the {'pinned ' * winner.pinned}{winner.scope} rule `{winner.rule.permission} {winner.rule.pattern}`"
    if winner.rule.is_general:
        named += f" names no tool that is known here, so it applies to every tool, and {_SAYS[winner.action]}"
        return Judgement(subject.target, winner.action, winner.rule, winner.scope, named, considered)
    if winner.certainty is Certainty.MAYBE and winner.rule.permission in CAPABILITIES:
        return Judgement(
            subject.target,
            "ask",
            winner.rule,
            winner.scope,
            f"{named} may apply: {_unknown_use(subject)}",
            considered,
        )
    if winner.certainty is Certainty.MAYBE:
        closed = subject.command is not None and subject.command.cover == "none" and subject.command.why
        reason = f"{named} may apply: {closed or 'a part of it is known only to the running shell'}"
    else:
        reason = f"{named} {_SAYS[winner.action]}"
    return Judgement(subject.target, winner.action, winner.rule, winner.scope, reason, considered)


def _decide(matched: Sequence[_MatchedRule]) -> _MatchedRule:
    """Return the rule that decides, of those that matched, which are ordered from the nearest scope to the farthest."""
    winners: list[_MatchedRule] = []
    for capability in dict.fromkeys(one.capability for one in matched if one.capability) or (None,):
        group = [one for one in matched if one.capability in (None, capability)]
        winners.append(_winner(group))
        # A rule that only may apply must not hide one that does, in a farther scope or with fewer letters.
        certain = [one for one in group if one.capability is None or one.certainty is Certainty.YES]
        if certain and winners[-1] not in certain:
            winners.append(_winner(certain))
    return max(winners, key=lambda one: _STRICTNESS[one.action])


def _winner(matched: Sequence[_MatchedRule]) -> _MatchedRule:
    # Pinned before near before specific: a session's rule, which a model may talk the user into, must not override
    # what the manifest pins.
    if pinned := [candidate for candidate in matched if candidate.pinned]:
        return max(pinned, key=lambda candidate: (_STRICTNESS[candidate.action], candidate.order))
    return max(
        (candidate for candidate in matched if candidate.scope == matched[0].scope),
        key=lambda candidate: candidate.order,
    )


def _unknown_use(subject: Subject) -> str:
    """Return why it is uncertain whether a rule on a capability applies."""
    if subject.target.kind == "command":
        return "what this command reads, writes or connects to is not certain"
    return f"{subject.target.permission} does not say all that it uses"


def _explain_loss(other: _MatchedRule, winner: _MatchedRule) -> str:
    if other.capability != winner.capability and None not in (other.capability, winner.capability):
        return f"{winner.capability} is decided by itself, and at least as strictly"
    if winner.pinned:
        return "a stricter or closer pinned rule decides" if other.pinned else "a pinned rule of the manifest decides"
    if other.scope != winner.scope:
        return f"the {winner.scope} is nearer"
    if other.order[0] != winner.order[0]:
        return "the other names the permission more exactly"
    if other.order[1] != winner.order[1]:
        return "the other pattern is more specific"
    return "the other rule is later"


def _explain_unmatched(subject: Subject) -> str:
    why, command = subject.problem, subject.command
    if not why and command is not None and command.cover != "any":
        rule = f"a rule that begins with `{show_unknown(command.head)}`"
        if command.head_words == 1:
            rule = _COVERS[command.cover]
        why = f"{command.why}, so only {rule} could allow it"
    return "no rule covers it" + (f": {why}" if why else "")


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
    of them certainly need. The result is the one :func:`evaluate` gives for each of these targets; if it depends on the
    call, it is False: nothing counts as denied that a rule could allow. Read-only sessions are not considered.
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
