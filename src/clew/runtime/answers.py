"""Answers: a human's word on what waits, bound to what was asked, good once, and durable before anything follows.

The last answer of a step starts a new run on the same message. "For this session" and "always" also store a rule, and
other requests that the rule covers are answered with it. How far that rule goes is one of the offers of the request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from clew.actor import Actor, Via, answer_note
from clew.errors import AlreadyAnswered, ApprovalNotFound, ClewError, Conflict, InvalidInput, SessionBusy
from clew.fit import fit
from clew.live.base import Status
from clew.permissions.approval_rules import Offer, offers_for
from clew.permissions.rules import MAX_RULES
from clew.runtime.calls import Call
from clew.runtime.host import Host
from clew.runtime.live_sessions import LiveSessions, RulesMoved
from clew.runtime.queue import plan_resume
from clew.runtime.ready import load_outset
from clew.runtime.runner import Runner
from clew.runtime.served_tools import late_tool
from clew.runtime.setting import Setting, resolve_for
from clew.runtime.standing import load_standing
from clew.runtime.take import plan_take
from clew.runtime.taken_session import Resumption, TakenSession
from clew.runtime.waiting import find_damage, load_open_turn, load_waiting, open_waits
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
from clew.transcript.fold import Fold
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.part import ANSWER_KEYS, OWN, approval_of, input_of, state_of, tool_name
from clew.transcript.rule import Target
from clew.transcript.session import Session, SessionState
from clew.transcript.turn import Turn
from clew.transcript.wait import Wait, changed_parts, digest_call, waits_of, with_waits

__all__ = ["Answers", "Decision"]

log = logging.getLogger("clew.answers")

_AGAIN_MS: Final = 50
_LONGEST_MS: Final = 5_000
"""How often, and for how long, it is looked whether a run elsewhere has stored what it asks."""

Decision = Literal["once", "session", "project", "deny"]


class Answers:
    """Takes answers for all sessions of one engine."""

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
    ) -> int:
        """Answer a request; how many are still open. With none left the turn goes on before this returns.

        ``pattern`` is one of those the request offers: how far the rule goes that is stored; without it, no further
        than this call.
        """
        answer = _approval(decision, reason, actor)
        if pattern is not None and decision not in ("session", "project"):
            raise InvalidInput("a pattern says how far a rule goes; once and deny store none")
        return await self._answer(session_id, answer, pattern, approval_id=approval_id)

    async def answer_all(
        self,
        session_id: str,
        decision: Decision,
        reason: str | None = None,
        approval_ids: Collection[str] | None = None,
        *,
        actor: Actor,
    ) -> int:
        """Answer every request that waits, in one unit; how many questions are still open.

        With ``approval_ids`` those of these that wait: a word that is sent twice is then no word on what came after.
        """
        answer = _approval(decision, reason, actor)
        await self._until_stored(session_id, None if approval_ids is None else frozenset(approval_ids))
        while True:
            async with self._sessions.lock(session_id):
                self._sessions.check_open(session_id)
                await get_session(self._host.store, session_id)
                turn, ending = await load_open_turn(self._host.store, session_id), self._sessions.find_run(session_id)
                if ending is None:
                    waits = [one for one in waits_of(turn) if one.kind == "approval" and one.answer is None]
                    waits = [one for one in waits if approval_ids is None or one.approval_id in approval_ids]
                    if turn is None or turn.status != "waiting" or not waits:
                        raise ApprovalNotFound("nothing waits for an approval here", session_id=session_id)
                    return await self._take_answer(session_id, turn, waits, answer)
            # What a run asks is on its way to being stored; its end is near, or there is nothing to answer.
            if not any(map(ending.has_asked, [None] if approval_ids is None else approval_ids)):
                raise ApprovalNotFound("nothing waits for an approval here", session_id=session_id)
            await ending.wait()

    async def answer_question(self, session_id: str, tool_call_id: str, output: Any, *, actor: Actor) -> int:
        """Give the human's answer to a question."""
        answer = {"output": output, "answered_by": actor.name, "via": actor.via}
        return await self._answer(session_id, answer, tool_call_id=tool_call_id)

    async def _answer(self, session_id: str, answer: dict[str, Any], pattern: str | None = None, **which: str) -> int:
        # A viewer sees a request before the run that made it is over: the answer waits for that run's end. The run
        # knows what was seen; a store that keeps only whole steps does not have it yet.
        run = self._sessions.find_run(session_id)
        if run is not None and any(run.has_asked(request_id) for request_id in which.values()):
            await run.wait()
        elif run is None:
            await self._until_stored(session_id, frozenset(which.values()))
        while True:
            async with self._sessions.lock(session_id):
                # The last answer starts a run, and nothing may begin on what is being deleted or closed.
                self._sessions.check_open(session_id)
                turn, wait = await self._find_wait(session_id, **which)
                ending = self._sessions.find_run(session_id)
                if ending is None:
                    return await self._take_answer(session_id, turn, [wait], answer, pattern)
            # The run that asked has stored the question and not yet put down its pen.
            await ending.wait()

    async def _until_stored(self, session_id: str, asked: frozenset[str] | None) -> None:
        """A request that a run in another replica shows is in the store once that run is over, which is then near.

        What waits for it is told apart from what was never asked by the message itself. None is any request.
        """
        store, lease, waited = self._host.store, self._host.lease, 0
        while lease.shared and waited < _LONGEST_MS:
            state = await store.load_state(session_id)
            if not await lease.runs_elsewhere(store, state):
                return
            line = await store.load_line(session_id, through=state.open_turn_id, turns=1, keep_damaged=True)
            parts = [part for turn in line.turns for row in turn.messages for part in row.parts]
            ids = {id_ for part in parts for id_ in (approval_of(part.data).get("id"), part.tool_call_id) if id_}
            if not (any(approval_of(part.data) for part in parts) if asked is None else ids & asked):
                return
            await self._host.clock.sleep(_AGAIN_MS)
            waited += _AGAIN_MS

    async def judge_again(self, session_id: str) -> None:
        """See what waits in the light of changed rules: what they cover needs no answer of its own. While a run judged
        by the old ones, that is seen to as it ends."""
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
                    waits = await self._reconsider(session_id, turn, waits_of(turn))
                    if waits != waits_of(turn):
                        await self._follow(session_id, turn, waits)
            except ClewError as error:
                # The rules are stored. That the turn cannot go on now is for whoever answers it to be told.
                log.warning("what waits on session %s was not judged again: %s", session_id, error)

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
            meant = (
                wait.approval_id == approval_id
                if approval_id is not None
                else wait.tool_call_id == tool_call_id and wait.kind == "question"
            )
            if turn is not None and meant:
                if wait.answer is not None or turn.status != "waiting":
                    raise AlreadyAnswered("this was answered before", approval_id=approval_id)
                return turn, wait
        if approval_id is not None:
            rows = await store.load_messages(session_id, keep_damaged=True)
            if any(approval_of(part.data).get("id") == approval_id for row in rows for part in row.parts):
                raise AlreadyAnswered("this was answered before", approval_id=approval_id)
        raise ApprovalNotFound("nothing of that id waits here", approval_id=approval_id, tool_call_id=tool_call_id)

    async def _load_asked(self, session_id: str, turn: Turn) -> tuple[MessageRow | None, MessageRow]:
        """The prompt and what waits for an answer to it. What cannot be read for sure cannot be answered."""
        user, message = await load_waiting(self._host.store, session_id, turn)
        damage = find_damage(message) or (None if user is None else find_damage(user))
        if message is None or damage is not None:
            raise Conflict(
                f"what was asked cannot be read for sure ({damage}): abort it, or accept it with `clew check --accept`",
                turn_id=turn.id,
            )
        return user, message

    async def _take_answer(
        self, session_id: str, turn: Turn, asked: Sequence[Wait], answer: dict[str, Any], pattern: str | None = None
    ) -> int:
        """Write the answer to these and what follows from it; start the run when they were the last ones."""
        session = await get_session(self._host.store, session_id)
        _, message = await self._load_asked(session_id, turn)
        parts = [_part_of(message, wait) for wait in asked]
        for wait, part in zip(asked, parts, strict=True):
            # The answer is for what was shown: same tool, same arguments, same folder.
            shown = tool_name(part.data), input_of(part.data), session.workspace_root
            if digest_call(session.id, wait.tool_call_id, *shown) != wait.digest:
                raise Conflict("what was asked for has changed; the request is void", tool_call_id=wait.tool_call_id)
        answer = {**answer, "answered_at": self._host.clock.now_ms()}
        answered = [msgspec.structs.replace(wait, answer=answer) for wait in asked]
        waits: tuple[Wait, ...] = ()
        rules: tuple[Write, Guard] | None = None
        while not waits:
            # Rule and answer are one unit: "always" never counts for this call and not for the next.
            rules = await self._rules(session, parts, answer, pattern)
            try:
                waits = await self._write_answers(session_id, turn, message, answered, rules)
            except (SessionBusy, RulesMoved):
                # Somebody else's word, or rule, came first. Ours may be void now, or stand beside it.
                session = await get_session(self._host.store, session_id)
        self._tell_answered(session_id, asked)
        if rules is not None:
            waits = await self._reconsider(session_id, turn, waits)
        return await self._follow(session_id, turn, waits)

    def _tell_answered(self, session_id: str, answered: Sequence[Wait]) -> None:
        for wait in answered:
            self._sessions.publish(
                "approval_answered", session_id, approval_id=wait.approval_id, tool_call_id=wait.tool_call_id
            )

    async def _follow(self, session_id: str, turn: Turn, waits: tuple[Wait, ...]) -> int:
        """What comes of answers: the turn goes on when none is missing."""
        left = open_waits(waits)
        if left:
            self._sessions.show(session_id, Status("idle", waiting=left))
        else:
            try:
                await self._go_on(session_id, turn, waits)
            except Exception:
                # The answers are stored anyway: no request is pending, and the turn can be continued.
                self._sessions.show(session_id, Status("idle"))
                raise
        return len(left)

    async def _write_answers(
        self,
        session_id: str,
        turn: Turn,
        message: MessageRow,
        answered: Sequence[Wait],
        rules: tuple[Write, Guard] | None = None,
    ) -> tuple[Wait, ...]:
        """Write these answers beside those that are there, and rules with them; all answers."""
        host, now = self._host, self._host.clock.now_ms()

        async def ask(store: Moment) -> tuple[SessionState, Turn | None]:
            return await store.load_state(session_id), await load_open_turn(store, session_id)

        # Another replica may have taken answers since: they stay, and the epoch says so to whoever read before this.
        state, present = await host.store.at_once(session_id, ask)
        held = {wait.tool_call_id: wait for wait in waits_of(present if present and present.id == turn.id else None)}
        for wait in answered:
            if wait.tool_call_id not in held or held[wait.tool_call_id].answer is not None:
                raise AlreadyAnswered("this was answered before", approval_id=wait.approval_id)
            held[wait.tool_call_id] = wait
        waits = tuple(held.values())
        fold = Fold(message.id, parts=[part.data for part in message.parts])
        for wait in waits:
            if wait.kind == "approval" and wait.answer is not None:
                index = fold.find_tool(wait.tool_call_id)
                if index is not None and state_of(fold.part(index)) == "approval-requested":
                    fold.answer(
                        wait.tool_call_id,
                        approved=bool(wait.answer["approved"]),
                        reason=wait.answer.get("reason"),
                        note=_note_of(wait.answer),
                    )
        # The answer is durable before anything follows from it: a kill now loses no human's word.
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

    async def _rules(
        self, session: Session, parts: Sequence[PartRow], answer: Mapping[str, Any], pattern: str | None
    ) -> tuple[Write, Guard] | None:
        """The rules that "for this session" and "always" store, and that nobody has changed them meanwhile."""
        scope = answer.get("decision")
        if scope not in ("session", "project"):
            return None
        if scope == "project" and session.workspace_root is None:
            raise InvalidInput("without a workspace there is no project to remember this for; choose session")
        new: dict[tuple[Any, ...], dict[str, Any]] = {}
        now = self._host.clock.now_ms()
        for part in parts:
            # Off the loop: a shell line is read for it.
            offers = await asyncio.to_thread(offers_for, _targets(part), session.workspace_root, scope)
            offer = _picked(offers, pattern)
            rules = offer.rules if offer is not None else ()
            for rule in rules:
                said = {**msgspec.to_builtins(rule), "source": scope, "added_at": now}
                said |= {"added_by": answer["answered_by"], "via": answer["via"]}
                new[_said_by(said)] = said
        project = str(session.project)
        known = session.permissions if scope == "session" else await self._host.store.load_project_rules(project)
        # One that is there already is not kept twice.
        held = (*(rule for rule in known if _said_by(rule) not in new), *new.values())
        if new and len(held) > MAX_RULES:
            raise InvalidInput(f"more than the {MAX_RULES} rules that are kept; revoke some first, or allow it once")
        if scope == "session":
            return PatchSession(permissions=held), RulesAre(None, tuple(known))
        return PutProjectRules(project, held, now), RulesAre(project, tuple(known))

    async def _reconsider(self, session_id: str, turn: Turn, waits: tuple[Wait, ...]) -> tuple[Wait, ...]:
        """Requests that the new rule covers need no answer of their own."""
        user, message = await self._load_asked(session_id, turn)
        setting = await resolve_for(self._host, await get_session(self._host.store, session_id), user)
        covered: list[Wait] = []
        for wait in waits:
            if wait.answer is None and wait.kind == "approval":
                decision = await setting.permit.decide(_targets(_part_of(message, wait)), wait.tool)
                if decision.action in ("allow", "deny"):
                    answer = {"approved": decision.action == "allow", "decision": "rule", "reason": None}
                    by: Via = "mode" if decision.scope == "mode" else "rule"
                    answer |= answer_note(Actor(by, by), self._host.clock.now_ms())
                    covered.append(msgspec.structs.replace(wait, answer=answer))
        if covered:
            try:
                waits = await self._write_answers(session_id, turn, message, covered)
            except (AlreadyAnswered, SessionBusy):
                return waits  # somebody in another replica has answered since, and sees to the rest
        self._tell_answered(session_id, covered)
        return waits

    async def _go_on(self, session_id: str, turn: Turn, waits: tuple[Wait, ...]) -> None:
        """Every request is answered: a new run on the same message."""
        store = self._host.store
        user, _ = await self._load_asked(session_id, turn)
        outset = await load_outset(self._host, self._sessions, session_id)
        session, standing = outset.session, outset.standing or await load_standing(store, session_id)
        setting = await resolve_for(self._host, session, user, outset.told)
        writes = (SetTurn(turn.id, "running", data={"waiting": []}), *plan_resume(session, speaks=False))
        now, runner = self._host.clock.now_ms(), self._host.lease.replica_id
        await self._sessions.commit(plan_take(standing, now, writes, goes_on=turn, runner=runner))
        # Read once it is taken: a call of the step that nobody was asked about has its result by now.
        _, message = await self._load_asked(session_id, turn)
        refused = {
            wait.tool_call_id: f"{decision.target.value if decision.target else 'it'} is not allowed: {decision.reason}"
            for wait in waits
            if wait.kind == "approval" and (wait.answer or {}).get("approved")
            # A word that was given is not above what a rule or a mode has denied since.
            if (decision := await setting.permit.decide(_targets(_part_of(message, wait)), wait.tool)).action == "deny"
        }
        last_n = (await store.load_tail(message.session_id, message.id)).last
        resumption = _resume(self._host, message, waits, refused, setting, last_n)
        asked_by, steps = user.id if user is not None else "", len(standing.steps)
        self._runner.start(TakenSession(setting, turn, standing.next_epoch, asked_by, resumption, steps))


def _note_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return who gave an answer, when, and through which front."""
    return {key: answer[key] for key in ANSWER_KEYS if key in answer}


def _approval(decision: Decision, reason: str | None, actor: Actor) -> dict[str, Any]:
    if decision not in ("once", "session", "project", "deny"):
        raise InvalidInput(f"decision must be once, session, project or deny, not {decision!r}")
    approved = {"approved": decision != "deny", "decision": decision, "reason": reason}
    return {**approved, "answered_by": actor.name, "via": actor.via}


def _said_by(rule: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(str(rule.get(key)) for key in ("permission", "pattern", "action"))


def _picked(offers: Sequence[Offer], pattern: str | None) -> Offer | None:
    """The offer that is meant: the narrowest, where nobody has picked one."""
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
    raise Conflict("what was asked is not there any more; abort it", message_id=message.id)


def _targets(part: PartRow) -> tuple[Target, ...]:
    """What the request was about, as it was judged when it was made."""
    descriptor = approval_of(part.data).get("descriptor") or {}
    return tuple(fit(target, Target) for target in descriptor.get("targets", ()))


def _resume(
    host: Host,
    message: MessageRow,
    waits: tuple[Wait, ...],
    refused: Mapping[str, str],
    setting: Setting,
    last_n: int,
) -> Resumption:
    calls: list[Call] = []
    denied: list[str] = []
    outputs: list[c.Chunk] = []
    for wait in waits:
        answer = wait.answer or {}
        part = _part_of(message, wait)
        if wait.kind == "question":
            about = {OWN: _note_of(answer)}
            output = c.ToolOutputAvailable(wait.tool_call_id, answer.get("output"), provider_metadata=about)
            outputs.append(output)
        elif wait.tool_call_id in refused:
            outputs.append(c.ToolOutputError(tool_call_id=wait.tool_call_id, error_text=refused[wait.tool_call_id]))
        elif answer.get("approved"):
            tool = setting.tools.get(wait.tool) or late_tool(host, setting, wait.tool)
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
