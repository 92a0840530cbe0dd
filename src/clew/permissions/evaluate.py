"""Rules and targets in, one decision with its reasons out (PM-2, PM-4).

For each subject: a matching pinned manifest rule first, deny before ask before allow; else the nearest scope that
has a match, session before project before manifest; in it the most specific rule, and of equals the later. Of
several subjects the strictest decides. Where nothing matches the answer is ask. Whatever goes wrong in here denies:
an evaluation that fails must not be one that lets through.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from clew.permissions.answers import rules_for
from clew.permissions.match import Match, Place, Subject, literals, match, permission_rank, subjects_of, visible
from clew.transcript.rule import Rule, Target

__all__ = [
    "Action",
    "Considered",
    "Decision",
    "Judgement",
    "RuleSet",
    "Scope",
    "evaluate",
    "evaluate_for_child",
    "rules_for",
    "strictest",
]

Action = Literal["allow", "ask", "deny"]
Scope = Literal["manifest", "session", "project"]
_STRICTNESS: Final[Mapping[Action, int]] = {"allow": 0, "ask": 1, "deny": 2}


class RuleSet(msgspec.Struct, frozen=True):
    """The rules in force for one session, by scope, each in the order in which they were added."""

    manifest: tuple[Rule, ...] = ()
    session: tuple[Rule, ...] = ()
    project: tuple[Rule, ...] = ()


class Considered(msgspec.Struct, frozen=True):
    """A rule that matched and did not decide, and why it did not."""

    rule: Rule
    scope: Scope
    why: str


class Judgement(msgspec.Struct, frozen=True):
    """What the rules say about one subject. ``rule`` is None where none matched."""

    target: Target
    action: Action
    rule: Rule | None
    scope: Scope | None
    reason: str
    considered: tuple[Considered, ...] = ()


class Decision(msgspec.Struct, frozen=True):
    """What is decided for a call: that of its strictest judgement, with all of them as the explanation.

    ``target`` is what decided: one of the call's targets, or one command or redirect of a shell line. ``reason`` is
    a sentence for people and for the model.
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
    workspace: str | os.PathLike[str] | None = None,
    attended: bool = True,
    resolve: Callable[[str], str] | None = None,
    home: str | None = None,
    aliases: Callable[[str], Sequence[str]] | None = None,
    finds: Callable[[str], Sequence[str] | None] | None = None,
) -> Decision:
    """Decide about all ``targets`` of one call. Never raises.

    ``workspace`` is the resolved root; relative patterns and redirects begin there. ``resolve`` turns the path of a
    redirect into one without links; without it no rule can allow a redirect. ``home``, ``aliases`` and ``finds`` are
    what :class:`~clew.permissions.place.Place` says. ``attended`` is False where nobody can be asked: what would be
    asked is denied.
    """
    try:
        place = Place(None if workspace is None else os.fspath(workspace), resolve, home, aliases, finds)
        subjects = [subject for target in targets for subject in subjects_of(target, place)]
        judgements = tuple(_judge(subject, manifest, session, project, place) for subject in subjects)
        return _attend(_decide(judgements), attended)
    except Exception as error:
        reason = f"the rules could not be evaluated ({type(error).__name__}: {error}), so nothing is allowed"
        return Decision("deny", None, None, None, (), reason)


def evaluate_for_child(
    targets: Iterable[Target],
    *,
    child: RuleSet,
    ancestors: Sequence[RuleSet],
    workspace: str | os.PathLike[str] | None = None,
    attended: bool = False,
    resolve: Callable[[str], str] | None = None,
) -> Decision:
    """Decide for a subagent: what its own rules and those of all its ancestors allow, and nothing else.

    A subagent is unattended unless the caller can carry its question to a person.
    """
    touched = tuple(targets)
    decisions = [
        evaluate(
            touched,
            manifest=rules.manifest,
            session=rules.session,
            project=rules.project,
            workspace=workspace,
            resolve=resolve,
        )
        for rules in (child, *ancestors)
    ]
    return strictest(*decisions, attended=attended)


def strictest(first: Decision, *others: Decision, attended: bool = True) -> Decision:
    """The strictest of several decisions about the same call; of equals the first.

    So a subagent is kept within its parent: the call is evaluated by the rules of both. With ``attended`` False
    what any of them asks is denied.
    """
    return _attend(max((first, *others), key=lambda decision: _STRICTNESS[decision.action]), attended)


# ---------------------------------------------------------------- one subject


class _Found(msgspec.Struct, frozen=True):
    rule: Rule
    scope: Scope
    match: Match
    rank: int
    literals: int
    position: int

    @property
    def action(self) -> Action:
        """A rule that may be meant and is not certain to be asks."""
        return "ask" if self.match is Match.MAYBE else self.rule.action

    @property
    def order(self) -> tuple[int, int, int]:
        return self.rank, self.literals, self.position


def _judge(
    subject: Subject,
    manifest: Sequence[Rule],
    session: Sequence[Rule],
    project: Sequence[Rule],
    place: Place,
) -> Judgement:
    scopes: tuple[tuple[Scope, Sequence[Rule]], ...] = (
        ("session", session),
        ("project", project),
        ("manifest", manifest),
    )
    found = [hit for scope, rules in scopes for hit in _find(subject, scope, rules, place)]
    winner = _winner(found)
    if winner is None:
        return Judgement(subject.target, "ask", None, None, _unmatched(subject))
    considered = tuple(Considered(hit.rule, hit.scope, _why_not(hit, winner)) for hit in found if hit is not winner)
    return Judgement(subject.target, winner.action, winner.rule, winner.scope, _reason(winner, subject), considered)


def _find(subject: Subject, scope: Scope, rules: Sequence[Rule], place: Place) -> Iterable[_Found]:
    for position, rule in enumerate(rules):
        result = match(rule, subject, place)
        rank = permission_rank(rule, subject.target)
        if result is not Match.NO and rank is not None:
            yield _Found(rule, scope, result, rank, literals(rule, subject, place), position)


def _is_pinned(hit: _Found) -> bool:
    """Only a manifest can pin; the mark means nothing on other rules."""
    return hit.scope == "manifest" and hit.rule.pinned


def _winner(found: Sequence[_Found]) -> _Found | None:
    pinned = [hit for hit in found if _is_pinned(hit)]
    if pinned:
        return max(pinned, key=lambda hit: (_STRICTNESS[hit.action], hit.order))
    for scope in ("session", "project", "manifest"):
        hits = [hit for hit in found if hit.scope == scope]
        if hits:
            return max(hits, key=lambda hit: hit.order)
    return None


def _why_not(hit: _Found, winner: _Found) -> str:
    if _is_pinned(winner):
        return (
            "a stricter or closer pinned rule decides" if _is_pinned(hit) else "a pinned rule of the manifest decides"
        )
    if hit.scope != winner.scope:
        return f"the {winner.scope} is nearer"
    if hit.rank != winner.rank:
        return "the other names the permission more exactly"
    if hit.literals != winner.literals:
        return "the other pattern is more specific"
    return "the other rule is later"


def _unmatched(subject: Subject) -> str:
    why = subject.problem
    if not why and subject.command is not None and subject.command.cover != "any":
        command = subject.command
        rule = _COVERS[command.cover] if command.reach == 1 else f"a rule that begins with `{visible(command.head)}`"
        why = f"{command.why}, so only {rule} could allow it"
    return "no rule covers it" + (f": {why}" if why else "")


_COVERS: Final = {
    "named": "a rule that writes its program out",
    "exact": "a rule for exactly this command",
    "none": "you",
}


def _reason(winner: _Found, subject: Subject) -> str:
    pinned = "pinned " if _is_pinned(winner) else ""
    rule = f"the {pinned}{winner.scope} rule `{winner.rule.permission} {winner.rule.pattern}`"
    if winner.match is Match.MAYBE:
        closed = subject.command is not None and subject.command.cover == "none" and subject.command.why
        return f"{rule} may be meant by it: {closed or 'a part of it is known only to the running shell'}"
    return {"allow": f"{rule} allows it", "ask": f"{rule} asks", "deny": f"{rule} denies it"}[winner.action]


# ---------------------------------------------------------------- the whole


def _decide(judgements: tuple[Judgement, ...]) -> Decision:
    if not judgements:
        return Decision("ask", None, None, None, (), "the call does not say what it would touch")
    worst = max(judgements, key=lambda judgement: _STRICTNESS[judgement.action])
    return Decision(worst.action, worst.rule, worst.scope, worst.target, worst.considered, worst.reason, judgements)


def _attend(decision: Decision, attended: bool) -> Decision:
    if attended or decision.action != "ask":
        return decision
    reason = f"nobody is there to ask, and {decision.reason}"
    return msgspec.structs.replace(decision, action="deny", reason=reason)
