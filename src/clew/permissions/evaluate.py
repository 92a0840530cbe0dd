"""Rules and targets in, one decision with its reasons out (PM-2, PM-4).

For each subject: a matching pinned manifest rule first, deny before ask before allow; else the nearest scope that
has a match, session before project before mode before manifest; in it the most specific rule, and of equals the later.
A session that only reads is denied all else before any rule is asked. Of
several subjects the strictest decides. Where nothing matches the answer is ask. Whatever goes wrong in here denies:
an evaluation that fails must not be one that lets through.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from clew.permissions.match import FileSystem, Subject, literals, match, permission_rank, show_unknown, subjects_of
from clew.permissions.modes import is_reading, mode_rules
from clew.permissions.shell.tristate import Certainty
from clew.transcript.rule import Mode, Rule, Target

__all__ = ["Action", "Considered", "Decision", "Judgement", "Scope", "evaluate", "strictest"]

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
    mode: Mode = "ask",
    tool: str | None = None,
    workspace: str | os.PathLike[str] | None = None,
    attended: bool = True,
    resolve: Callable[[str], str] | None = None,
    home: str | None = None,
    aliases: Callable[[str], Sequence[str]] | None = None,
    finds: Callable[[str], Sequence[str] | None] | None = None,
) -> Decision:
    """Decide about all ``targets`` of one call. Never raises.

    ``tool`` is the one that is called, where a whole call is decided: what it says it touches does not make it one that
    reads.
    ``workspace`` is the resolved root; relative patterns and redirects begin there. ``resolve`` turns the path of a
    redirect into one without links; without it no rule can allow a redirect. ``home``, ``aliases`` and ``finds`` are
    what :class:`~clew.permissions.file_system.FileSystem` says. ``attended`` is False where nobody can be asked:
    what would be asked is denied.
    """
    try:
        file_system = FileSystem(None if workspace is None else os.fspath(workspace), resolve, home, aliases, finds)
        scopes: _Scopes = (
            ("session", session),
            ("project", project),
            ("mode", mode_rules(mode)),
            ("manifest", manifest),
        )
        subjects = [subject for target in targets for subject in subjects_of(target, file_system)]
        reads = mode != "read_only" or (bool(subjects) and (tool is None or is_reading(tool)))
        judgements = tuple(
            _judge(subject, scopes, file_system)
            if mode != "read_only" or (reads and is_reading(subject.target.permission))
            else Judgement(subject.target, "deny", None, "mode", _ONLY_READS)
            for subject in subjects
        )
        decision = Decision("ask", None, None, None, (), "the call does not say what it would touch")
        if not reads:
            decision = Decision("deny", None, "mode", None, (), _ONLY_READS)
        if judgements:
            worst = max(judgements, key=lambda judgement: _STRICTNESS[judgement.action])
            decision = Decision(
                worst.action, worst.rule, worst.scope, worst.target, worst.considered, worst.reason, judgements
            )
        return strictest(decision, attended=attended)
    except Exception as error:
        # Fail closed: what cannot be weighed is denied, because a bug in here must not let anything through.
        reason = f"the rules could not be evaluated ({type(error).__name__}: {error}), so nothing is allowed"
        return Decision("deny", None, None, None, (), reason)


def strictest(first: Decision, *others: Decision, attended: bool = True) -> Decision:
    """The strictest of several decisions about the same call; of equals the first.

    So a subagent is kept within its parent: the call is evaluated by the rules of both. With ``attended`` False
    what any of them asks is denied.
    """
    decision = max((first, *others), key=lambda decision: _STRICTNESS[decision.action])
    if attended or decision.action != "ask":
        return decision
    reason = f"this run is unattended, and {decision.reason}"
    return msgspec.structs.replace(decision, action="deny", reason=reason)


# ---------------------------------------------------------------- one subject


class _MatchedRule(msgspec.Struct, frozen=True):
    """A rule that matched, or may have, and what it is weighed by: rank, spelled-out characters, position."""

    rule: Rule
    scope: Scope
    certainty: Certainty
    order: tuple[int, int, int]

    @property
    def action(self) -> Action:
        """A rule that may be meant and is not certain to be asks."""
        return "ask" if self.certainty is Certainty.MAYBE else self.rule.action

    @property
    def pinned(self) -> bool:
        """Only a manifest can pin; the flag means nothing on other rules."""
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
        return Judgement(subject.target, "ask", None, None, _why_unmatched(subject))
    # Pinned before near before specific: a session's rule, which a model's user may be talked into, must not be able
    # to lift what the manifest pins. The scopes come nearest first.
    if pinned := [one for one in matched if one.pinned]:
        winner = max(pinned, key=lambda one: (_STRICTNESS[one.action], one.order))
    else:
        winner = max((one for one in matched if one.scope == matched[0].scope), key=lambda one: one.order)
    considered = tuple(Considered(one.rule, one.scope, _why_not(one, winner)) for one in matched if one is not winner)
    named = f"the {'pinned ' * winner.pinned}{winner.scope} rule `{winner.rule.permission} {winner.rule.pattern}`"
    if winner.rule.is_general:
        named += f" names no tool that is known here, so it applies to every tool, and {_SAYS[winner.action]}"
        return Judgement(subject.target, winner.action, winner.rule, winner.scope, named, considered)
    if winner.certainty is Certainty.MAYBE:
        closed = subject.command is not None and subject.command.cover == "none" and subject.command.why
        reason = f"{named} may be meant by it: {closed or 'a part of it is known only to the running shell'}"
    else:
        reason = f"{named} {_SAYS[winner.action]}"
    return Judgement(subject.target, winner.action, winner.rule, winner.scope, reason, considered)


def _why_not(other: _MatchedRule, winner: _MatchedRule) -> str:
    if winner.pinned:
        return "a stricter or closer pinned rule decides" if other.pinned else "a pinned rule of the manifest decides"
    if other.scope != winner.scope:
        return f"the {winner.scope} is nearer"
    if other.order[0] != winner.order[0]:
        return "the other names the permission more exactly"
    if other.order[1] != winner.order[1]:
        return "the other pattern is more specific"
    return "the other rule is later"


def _why_unmatched(subject: Subject) -> str:
    why, command = subject.problem, subject.command
    if not why and command is not None and command.cover != "any":
        rule = f"a rule that begins with `{show_unknown(command.head)}`"
        if command.head_words == 1:
            rule = _COVERS[command.cover]
        why = f"{command.why}, so only {rule} could allow it"
    return "no rule covers it" + (f": {why}" if why else "")
