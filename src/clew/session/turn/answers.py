"""Answers to approvals and questions: bound to what was shown, valid once, and durable before they take effect.

The last answer of a step starts a new run on the same message. "For this session" and "always" also store a rule; other
pending requests that the rule covers are answered by it. The scope of that rule is one of the request's offers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from clew.actor import Actor, Via, answer_note
from clew.convert import convert
from clew.errors import AlreadyAnswered, ApprovalNotFound, ClewError, Conflict, InvalidInput, SessionBusy
from clew.live.base import Status
from clew.permissions.approval_rules import Offer, offers_for
from clew.permissions.rules import MAX_RULES
from clew.session.acquire.acquire import plan_acquire
from clew.session.acquire.live_sessions import LiveSessions, RulesChanged
from clew.session.acquire.loaded_session import load_session_state
from clew.session.acquire.prepare import load_prompt_start
from clew.session.acquire.waiting import find_damage, load_open_turn, load_waiting, open_waits
from clew.session.host import Host
from clew.session.prompt.queue import plan_resume
from clew.session.prompt.submission import Submission
from clew.session.prompt.turn_config import TurnConfig, resolve_for
from clew.session.turn.calls import Call
from clew.session.turn.mcp_tools import late_tool
from clew.session.turn.run import AcquiredSession, Resumption
from clew.session.turn.runner import Runner
from clew.store.base import Moment, get_session
from clew.store.unit import (
    EpochIs,
    Guard,
    OpenTurnIs,
    PatchSession,
    PutParts,
    PutProjectRules,
    RulesAre,
    SetEpoch,
    SetTurn,
    Unit,
    Write,
)
from clew.transcript import chunk as c
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.part import ANSWER_KEYS, OWN, approval_of, input_of, state_of, tool_name
from clew.transcript.rule import Target
from clew.transcript.session import Session, SessionState
from clew.transcript.turn import CHUNKS, Turn
from clew.transcript.wait import Wait, changed_parts, digest_call, waits_of, with_waits

__all__ = ["Answered", "Answers", "Decision"]

log = logging.getLogger("clew.answers")

_POLL_INTERVAL_MS: Final = 50
_MAX_WAIT_MS: Final = 5_000
"""How often, and for how long, to check whether another replica has stored the request of its run."""

Decision = Literal["once", "session", "project", "deny"]


class Answered(msgspec.Struct, frozen=True):
    """The effect of an answer: how many requests of the step are still open and, at 0, the resumed run."""

    remaining: int
    submission: Submission | None = None


class Answers:
    """The service that accepts answers for all sessions of one engine."""

    def __init__(self, host: Host, sessions: LiveSessions, runner: Runner) -> None:
        self._host = host
        self._sessions = sessions
        self._runner = runner

    async def answer(
        self,
        session_id: str,
        approval_id: str,
        decision: Decision,
        reason: str | None = None,
        pattern: str | None = None,
        *,
        actor: Actor,
    ) -> Answered:
        """Answer an approval request and return how many requests are still open.

        With none left, the turn is resumed before this returns. ``pattern`` is one of the request's offers and sets
        the scope of the stored rule; without it the rule covers only this call.
        """
        answer = _make_answer(decision, reason, actor)
        if pattern is not None and decision not in ("session", "project"):
            raise InvalidInput("pattern applies only to the decisions session and project; once and deny store no rule")
        return await self._answer(session_id, answer, pattern, approval_id=approval_id)

    async def answer_all(
        self,
        session_id: str,
        decision: Decision,
        reason: str | None = None,
        approval_ids: Collection[str] | None = None,
        *,
        actor: Actor,
    ) -> Answered:
        """Answer every pending approval in one unit and return how many requests are still open.

        With ``approval_ids``, answer only those of them that are pending: an answer sent twice then does not apply to
        requests made after the first one.
        """
        answer = _make_answer(decision, reason, actor)
        await self._wait_until_stored(session_id, None if approval_ids is None else frozenset(approval_ids))
        while True:
            async with self._sessions.lock(session_id):
                self._sessions.check_open(session_id)
                await get_session(self._host.store, session_id)
                turn, ending = await load_open_turn(self._host.store, session_id), self._sessions.find_run(session_id)
                if ending is None:
                    waits = [one for one in waits_of(turn) if one.kind == "approval" and one.answer is None]
                    waits = [one for one in waits if approval_ids is None or one.approval_id in approval_ids]
                    if turn is None or turn.status != "waiting" or not waits:
                        raise ApprovalNotFound("no pending approval in this session", session_id=session_id)
                    return await self._record_answers(session_id, turn, waits, answer)
            # A request of the active run is still being stored: the run ends soon, or there is nothing to answer.
            if not any(map(ending.has_asked, [None] if approval_ids is None else approval_ids)):
                raise ApprovalNotFound("no pending approval in this session", session_id=session_id)
            await ending.wait()

    async def answer_question(self, session_id: str, tool_call_id: str, output: Any, *, actor: Actor) -> Answered:
        """Answer a question of the model."""
        answer = {"output": output, "answered_by": actor.name, "via": actor.via}
        return await self._answer(session_id, answer, tool_call_id=tool_call_id)

    async def _answer(
        self, session_id: str, answer: dict[str, Any], pattern: str | None = None, **which: str
    ) -> Answered:
        # A viewer sees a request before the run that made it has ended: the answer waits for that end. The run knows
        # what was shown; a store that writes only complete steps may not have it yet.
        run = self._sessions.find_run(session_id)
        if run is not None and any(run.has_asked(request_id) for request_id in which.values()):
            await run.wait()
        elif run is None:
            await self._wait_until_stored(session_id, frozenset(which.values()))
        while True:
            async with self._sessions.lock(session_id):
                # The last answer starts a run, and none may start on a session that is being deleted or closed.
                self._sessions.check_open(session_id)
                turn, wait = await self._find_wait(session_id, **which)
                ending = self._sessions.find_run(session_id)
                if ending is None:
                    return await self._record_answers(session_id, turn, [wait], answer, pattern)
            # The run that asked has stored the question but has not ended yet.
            await ending.wait()

    async def _wait_until_stored(self, session_id: str, request_ids: frozenset[str] | None) -> None:
        """Wait until another replica's run, which shows this request, has ended and stored it; that end is near.

        The message itself tells a request that is about to be stored from one that was never made. None is any request.
        """
        store, lease, waited = self._host.store, self._host.lease, 0
        while lease.shared and waited < _MAX_WAIT_MS:
            state = await store.load_state(session_id)
            if not await lease.runs_elsewhere(store, state):
                return
            line = await store.load_line(session_id, through=state.open_turn_id, turns=1, keep_damaged=True)
            parts = [part for turn in line.turns for row in turn.messages for part in row.parts]
            ids = {id_ for part in parts for id_ in (approval_of(part.data).get("id"), part.tool_call_id) if id_}
            if not (any(approval_of(part.data) for part in parts) if request_ids is None else ids & request_ids):
                return
            await self._host.clock.sleep(_POLL_INTERVAL_MS)
            waited += _POLL_INTERVAL_MS

    async def judge_again(self, session_id: str) -> None:
        """Apply changed rules to the pending requests: those they cover need no answer.

        While a run that used the old rules is active, this happens when it ends.
        """
        async with self._sessions.lock(session_id):
            turn, run = await load_open_turn(self._host.store, session_id), self._sessions.find_run(session_id)

        async def judge() -> None:
            try:
                if run is not None:
                    await run.wait()
                async with self._sessions.lock(session_id):
                    turn = await load_open_turn(self._host.store, session_id)
                    busy = self._sessions.find_run(session_id) is not None or not self._sessions.is_open(session_id)
                    if turn is None or turn.status != "waiting" or busy:
                        return
                    waits = await self._answer_covered(session_id, turn, waits_of(turn))
                    if waits != waits_of(turn):
                        await self._resume_if_complete(session_id, turn, waits)
            except ClewError as error:
                # The rules are stored. Why the turn cannot resume is reported to the client that answers it.
                log.warning("could not apply the new rules to the requests of session %s: %s", session_id, error)

        judging = self._sessions.work(judge())
        if run is None or (turn is not None and turn.status == "waiting"):
            await judging

    async def _find_wait(
        self, session_id: str, *, approval_id: str | None = None, tool_call_id: str | None = None
    ) -> tuple[Turn, Wait]:
        store = self._host.store
        await get_session(store, session_id)
        turn = await load_open_turn(store, session_id)
        for wait in waits_of(turn):
            matches = (
                wait.approval_id == approval_id
                if approval_id is not None
                else wait.tool_call_id == tool_call_id and wait.kind == "question"
            )
            if turn is not None and matches:
                if wait.answer is not None or turn.status != "waiting":
                    raise AlreadyAnswered("this request was already answered", approval_id=approval_id)
                return turn, wait
        if approval_id is not None:
            rows = await store.load_messages(session_id, keep_damaged=True)
            if any(approval_of(part.data).get("id") == approval_id for row in rows for part in row.parts):
                raise AlreadyAnswered("this request was already answered", approval_id=approval_id)
        raise ApprovalNotFound("no pending request with this id", approval_id=approval_id, tool_call_id=tool_call_id)

    async def _load_request(self, session_id: str, turn: Turn) -> tuple[MessageRow | None, MessageRow]:
        """Return the prompt and the message with the pending requests. Raise ``Conflict`` if they are damaged."""
        user, message = await load_waiting(self._host.store, session_id, turn)
        damage = find_damage(message) or (None if user is None else find_damage(user))
        if message is None or damage is not None:
            raise Conflict(
                f"the request is damaged ({damage}): abort it, or accept the damage with `clew check --accept`",
                turn_id=turn.id,
            )
        return user, message

    async def _record_answers(
        self, session_id: str, turn: Turn, asked: Sequence[Wait], answer: dict[str, Any], pattern: str | None = None
    ) -> Answered:
        """Write these answers and the rules they store; resume the turn if they were the last ones."""
        session = await get_session(self._host.store, session_id)
        _, message = await self._load_request(session_id, turn)
        parts = [_part_of(message, wait) for wait in asked]
        for wait, part in zip(asked, parts, strict=True):
            # The answer is valid only for what was shown: same tool, same arguments, same folder.
            shown = tool_name(part.data), input_of(part.data), session.workspace_root
            if digest_call(session.id, wait.tool_call_id, *shown) != wait.digest:
                raise Conflict(
                    "the call has changed since approval was requested; abort it", tool_call_id=wait.tool_call_id
                )
        answer = {**answer, "answered_at": self._host.clock.now_ms()}
        answered = [msgspec.structs.replace(wait, answer=answer) for wait in asked]
        waits: tuple[Wait, ...] = ()
        rules: tuple[Write, Guard] | None = None
        while not waits:
            # Rule and answer are one unit, so "always" never applies to this call but not to the next.
            rules = await self._plan_rules(session, parts, answer, pattern)
            try:
                waits = await self._write_answers(session_id, turn, message, answered, rules)
            except (SessionBusy, RulesChanged):
                # Another answer or rule was written first. This one may be void now, or be added to it.
                session = await get_session(self._host.store, session_id)
        self._publish_answered(session_id, asked)
        if rules is not None:
            try:
                waits = await self._answer_covered(session_id, turn, waits)
            except Exception:
                # The answers are stored anyway, as below.
                self._sessions.show(session_id, Status("idle", waiting=open_waits(waits)))
                raise
        return await self._resume_if_complete(session_id, turn, waits)

    def _publish_answered(self, session_id: str, answered: Sequence[Wait]) -> None:
        for wait in answered:
            self._sessions.publish(
                "approval_answered", session_id, approval_id=wait.approval_id, tool_call_id=wait.tool_call_id
            )

    async def _resume_if_complete(self, session_id: str, turn: Turn, waits: tuple[Wait, ...]) -> Answered:
        """Resume the turn if every request is answered; return how many are still open."""
        left, submission = open_waits(waits), None
        if left:
            self._sessions.show(session_id, Status("idle", waiting=left))
        else:
            try:
                submission = await self._resume_turn(session_id, turn, waits)
            except Exception:
                # The answers are stored anyway: no request is pending, and the turn can be resumed.
                self._sessions.show(session_id, Status("idle"))
                raise
        return Answered(len(left), submission)

    async def _write_answers(
        self,
        session_id: str,
        turn: Turn,
        message: MessageRow,
        answered: Sequence[Wait],
        rules: tuple[Write, Guard] | None = None,
    ) -> tuple[Wait, ...]:
        """Write these answers next to the existing ones, together with the rules; return all requests."""
        host, now = self._host, self._host.clock.now_ms()

        async def ask(store: Moment) -> tuple[SessionState, Turn | None]:
            return await store.load_state(session_id), await load_open_turn(store, session_id)

        # Another replica may have written answers since: they stay, and the epoch invalidates earlier reads.
        state, present = await host.store.at_once(session_id, ask)
        by_call = {wait.tool_call_id: wait for wait in waits_of(present if present and present.id == turn.id else None)}
        for wait in answered:
            if wait.tool_call_id not in by_call or by_call[wait.tool_call_id].answer is not None:
                raise AlreadyAnswered("this request was already answered", approval_id=wait.approval_id)
            by_call[wait.tool_call_id] = wait
        waits = tuple(by_call.values())
        fold = message.fold()
        for wait in waits:
            if wait.kind == "approval" and wait.answer is not None:
                index = fold.find_tool(wait.tool_call_id)
                if index is not None and state_of(fold.part(index)) == "approval-requested":
                    fold.answer(
                        wait.tool_call_id,
                        approved=bool(wait.answer["approved"]),
                        reason=wait.answer.get("reason"),
                        note=_attribution(wait.answer),
                    )
        # The answer is durable before it takes effect: a crash now loses no human's answer.
        writes: list[Write] = [
            SetEpoch(state.epoch + 1),
            SetTurn(turn.id, "waiting", data=dict(with_waits(waits))),
        ]
        parts = changed_parts(message, fold, now)
        if parts:
            writes.append(PutParts(message.id, parts))
        guards: list[Guard] = [EpochIs(state.epoch), OpenTurnIs(turn.id)]
        if rules is not None:
            writes.append(rules[0])
            guards.append(rules[1])
        await self._sessions.commit(Unit(session_id, tuple(writes), tuple(guards), sync="power"))
        return waits

    async def _plan_rules(
        self, session: Session, parts: Sequence[PartRow], answer: Mapping[str, Any], pattern: str | None
    ) -> tuple[Write, Guard] | None:
        """Return the rules that "for this session" and "always" store, guarded against concurrent changes."""
        scope = answer.get("decision")
        if scope not in ("session", "project"):
            return None
        if scope == "project" and session.workspace_root is None:
            raise InvalidInput("a session without a workspace has no project to store a rule for; choose session")
        new: dict[tuple[Any, ...], dict[str, Any]] = {}
        now = self._host.clock.now_ms()
        for part in parts:
            # In a thread: this parses shell commands.
            offers = await asyncio.to_thread(offers_for, _targets(part), session.workspace_root, scope)
            offer = _select_offer(offers, pattern)
            rules = offer.rules if offer is not None else ()
            for rule in rules:
                record = {**msgspec.to_builtins(rule), "source": scope, "added_at": now}
                record |= {"added_by": answer["answered_by"], "via": answer["via"]}
                new[_rule_key(record)] = record
        project = str(session.project)
        known = session.permissions if scope == "session" else await self._host.store.load_project_rules(project)
        # A rule that exists already is not stored twice.
        rules_after = (*(rule for rule in known if _rule_key(rule) not in new), *new.values())
        if new and len(rules_after) > MAX_RULES:
            raise InvalidInput(f"more than {MAX_RULES} rules; revoke some first, or allow it once")
        if scope == "session":
            return PatchSession(permissions=rules_after), RulesAre(None, tuple(known))
        return PutProjectRules(project, rules_after, now), RulesAre(project, tuple(known))

    async def _answer_covered(self, session_id: str, turn: Turn, waits: tuple[Wait, ...]) -> tuple[Wait, ...]:
        """Answer the pending requests that the new rule covers."""
        user, message = await self._load_request(session_id, turn)
        config = await resolve_for(self._host, await get_session(self._host.store, session_id), user)
        covered: list[Wait] = []
        for wait in waits:
            if wait.answer is None and wait.kind == "approval":
                decision = await config.permit.decide(_targets(_part_of(message, wait)), wait.tool)
                if decision.action in ("allow", "deny"):
                    answer = {"approved": decision.action == "allow", "decision": "rule", "reason": None}
                    by: Via = "mode" if decision.scope == "mode" else "rule"
                    answer |= answer_note(Actor(by, by), self._host.clock.now_ms())
                    covered.append(msgspec.structs.replace(wait, answer=answer))
        if covered:
            try:
                waits = await self._write_answers(session_id, turn, message, covered)
            except (AlreadyAnswered, SessionBusy):
                return waits  # another replica has stored an answer meanwhile, and handles the rest
        self._publish_answered(session_id, covered)
        return waits

    async def _resume_turn(self, session_id: str, turn: Turn, waits: tuple[Wait, ...]) -> Submission:
        """Start a new run on the same message, now that every request is answered."""
        store = self._host.store
        user, _ = await self._load_request(session_id, turn)
        start = await load_prompt_start(self._host, self._sessions, session_id)
        session, loaded = start.session, start.loaded or await load_session_state(store, session_id)
        config = await resolve_for(self._host, session, user, start.last_environment)
        writes = (SetTurn(turn.id, "running", data={"waiting": [], CHUNKS: None}), *plan_resume(session, speaks=False))
        now, runner = self._host.clock.now_ms(), self._host.lease.replica_id
        await self._sessions.commit(plan_acquire(loaded, now, writes, goes_on=turn, runner=runner))
        # Read after acquiring: calls of the step that needed no approval have their results by now.
        _, message = await self._load_request(session_id, turn)
        refused = {
            wait.tool_call_id: f"{decision.target.value if decision.target else 'it'} is not allowed: {decision.reason}"
            for wait in waits
            if wait.kind == "approval" and (wait.answer or {}).get("approved")
            # An approval does not override what a rule or mode denies since.
            if (decision := await config.permit.decide(_targets(_part_of(message, wait)), wait.tool)).action == "deny"
        }
        last_n = turn.last_n(message.id) or (await store.load_tail(message.session_id, message.id)).last
        resumption = _make_resumption(self._host, message, waits, refused, config, last_n)
        asked_by, steps = user.id if user is not None else "", len(loaded.steps)
        return self._runner.start(AcquiredSession(config, turn, loaded.next_epoch, asked_by, resumption, steps))


def _attribution(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return who gave an answer, when, and through which interface."""
    return {key: answer[key] for key in ANSWER_KEYS if key in answer}


def _make_answer(decision: Decision, reason: str | None, actor: Actor) -> dict[str, Any]:
    if decision not in ("once", "session", "project", "deny"):
        raise InvalidInput(f"decision must be once, session, project or deny, not {decision!r}")
    approved = {"approved": decision != "deny", "decision": decision, "reason": reason}
    return {**approved, "answered_by": actor.name, "via": actor.via}


def _rule_key(rule: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(str(rule.get(key)) for key in ("permission", "pattern", "action"))


def _select_offer(offers: Sequence[Offer], pattern: str | None) -> Offer | None:
    """Return the selected offer, or the narrowest if none was selected."""
    if pattern is None:
        return offers[0] if offers else None
    for offer in offers:
        if offer.pattern == pattern:
            return offer
    known = " · ".join(offer.pattern for offer in offers) or "none, it can only be allowed once"
    raise InvalidInput(f"the request does not offer {pattern!r}; it offers: {known}")


def _part_of(message: MessageRow, wait: Wait) -> PartRow:
    for part in message.parts:
        if part.tool_call_id == wait.tool_call_id:
            return part
    raise Conflict("the requested call no longer exists; abort the turn", message_id=message.id)


def _targets(part: PartRow) -> tuple[Target, ...]:
    """Return the targets of the request, as they were when it was judged."""
    descriptor = approval_of(part.data).get("descriptor") or {}
    return tuple(convert(target, Target) for target in descriptor.get("targets", ()))


def _make_resumption(
    host: Host,
    message: MessageRow,
    waits: tuple[Wait, ...],
    refused: Mapping[str, str],
    config: TurnConfig,
    last_n: int,
) -> Resumption:
    calls: list[Call] = []
    denied: list[str] = []
    outputs: list[c.Chunk] = []
    for wait in waits:
        answer = wait.answer or {}
        part = _part_of(message, wait)
        if wait.kind == "question":
            about = {OWN: _attribution(answer)}
            output = c.ToolOutputAvailable(wait.tool_call_id, answer.get("output"), provider_metadata=about)
            outputs.append(output)
        elif wait.tool_call_id in refused:
            outputs.append(c.ToolOutputError(tool_call_id=wait.tool_call_id, error_text=refused[wait.tool_call_id]))
        elif answer.get("approved"):
            tool = config.tools.get(wait.tool) or late_tool(host, config, wait.tool)
            if tool is None:
                outputs.append(
                    c.ToolOutputError(
                        tool_call_id=wait.tool_call_id, error_text=f"there is no tool {wait.tool!r} any more"
                    )
                )
            else:
                calls.append(Call(wait.tool_call_id, tool, dict(input_of(part.data) or {}), _targets(part)))
        else:
            denied.append(wait.tool_call_id)
    return Resumption(message, last_n, tuple(calls), tuple(denied), tuple(outputs))
