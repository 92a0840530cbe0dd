"""What waits for a human's word, put to whoever sits at the editor; the answer is clew's own durable approval.

A request lives as long as what it asks for: answered elsewhere, or withdrawn with its turn, it is taken back here. An
editor that is closed answers nothing, and what waits goes on waiting.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from clew.errors import ClewError, Conflict, NotFound
from clew.fronts.acp.calls import describe_call
from clew.fronts.acp.rpc import Closed, Connection, Refused
from clew.fronts.acp.updates import UpdateSender
from clew.live.base import Waiting
from clew.session.api import Operations
from clew.session.turn.answers import Decision
from clew.transcript import part as p
from clew.transcript.message import Message

__all__ = ["Asking", "options_for"]

log = logging.getLogger("clew.acp")
_NOT_OFFERED: Final = "the editor answered with something that was not offered"


class Option(msgspec.Struct, frozen=True):
    """One answer that can be given."""

    id: str
    name: str
    kind: str
    decision: Decision
    pattern: str | None = None

    def shown(self) -> dict[str, str]:
        return {"optionId": self.id, "name": self.name, "kind": self.kind}


def options_for(call: Mapping[str, Any], folder: str | None) -> list[Option]:
    """The answers a request can be given: once, from now on as far as clew offers a rule for it, and no."""
    asked = p.approval_of(call).get("descriptor")
    offers = asked.get("offers") if isinstance(asked, Mapping) else None
    offers = [one for one in offers or () if isinstance(one, Mapping)]
    # The narrowest and the widest: a row of buttons is no place for the steps between them.
    picked = {str(one.get("pattern")): str(one.get("words")) for one in (*offers[:1], *offers[-1:])}
    options = [Option("once", "Allow once", "allow_once", "once")]
    for number, (pattern, words) in enumerate(picked.items(), start=1):
        options.append(Option(f"session-{number}", f"In this session: {words}", "allow_always", "session", pattern))
        if folder is not None:
            options.append(Option(f"project-{number}", f"In this project: {words}", "allow_always", "project", pattern))
    return [*options, Option("deny", "Reject", "reject_once", "deny")]


class Asking:
    """All that is asked in one session. ``engine`` is asked for when there is an answer: a server may be another by
    then. ``abort`` ends the session's turn."""

    def __init__(
        self,
        session_id: str,
        folder: str | None,
        engine: Callable[[], Operations],
        connection: Connection,
        telling: UpdateSender,
        *,
        by_form: bool,
        abort: Callable[[], Awaitable[None]],
    ) -> None:
        self._session_id = session_id
        self._folder = folder
        self._engine = engine
        self._connection = connection
        self._telling = telling
        self._by_form = by_form
        self._abort = abort
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self.question: Waiting | None = None
        """A question that the next prompt answers: this editor has no form for it."""

    def ask(self, waiting: tuple[Waiting, ...], newest: list[Message]) -> str | None:
        """Ask for all that waits and is not asked yet; what waits no more is asked no more. The words of a question
        that the next prompt is to answer are given back, once."""
        words = None
        open_ids = {wait.tool_call_id for wait in waiting}
        for id_ in [id_ for id_ in self._asked if id_ not in open_ids]:
            self.close(id_)
        if self.question is not None and self.question.tool_call_id not in open_ids:
            self.question = None
        calls = {p.call_id_of(part): (one.id, part) for one in newest for part in one.parts if p.is_call(part)}
        for wait in waiting:
            message_id, call = calls.get(wait.tool_call_id, ("", {}))
            if wait.tool_call_id in self._asked:
                continue
            if wait.approval_id is None and not self._by_form:
                if self.question is None:
                    self.question, words = wait, "\n".join(_question_of(call))
            else:
                put = self._ask_form if wait.approval_id is None else self._ask_permission
                task = asyncio.create_task(self._put(put(wait, message_id, call)))
                self._asked[wait.tool_call_id] = task
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
        return words

    def close(self, tool_call_id: str | None = None) -> None:
        """Ask no more; with ``tool_call_id`` only for that."""
        for id_ in [*self._asked] if tool_call_id is None else [tool_call_id]:
            if (task := self._asked.pop(id_, None)) is not None:
                task.cancel()
        if self.question is not None and tool_call_id in (None, self.question.tool_call_id):
            self.question = None

    async def leave(self) -> None:
        """Ask no more, and see answers through that were given already."""
        self.close()
        await asyncio.gather(*self._answering, return_exceptions=True)

    async def _request(self, wait: Waiting, method: str, params: Mapping[str, Any]) -> Any:
        """What the editor answers. From then on nobody takes the question back: the answer is on its way."""
        try:
            return await self._connection.request(method, params)
        finally:
            if self._asked.get(wait.tool_call_id) is asyncio.current_task():
                del self._asked[wait.tool_call_id]

    async def _put(self, asking: Awaitable[None]) -> None:
        try:
            await asking
        except Closed:
            pass  # it goes on waiting: here again, or on the page
        except (Conflict, NotFound) as error:
            log.info("what was asked was settled elsewhere: %s", error)
        except ClewError as error:
            log.warning("an answer could not be given: %s", error)
        except Exception:
            log.exception("asking in session %s failed in an unforeseen way", self._session_id)

    async def _ask_permission(self, wait: Waiting, message_id: str, call: Mapping[str, Any]) -> None:
        options = options_for(call, self._folder)
        told = {"toolCallId": self._telling.call_id(message_id, call), **describe_call(call, self._folder)}
        asked = {"sessionId": self._session_id, "toolCall": told, "options": [one.shown() for one in options]}
        try:
            answer = await self._request(wait, "session/request_permission", asked)
        except Refused as error:
            await self._answer(wait, "deny", f"the editor could not ask: {error.message[:200]}")
            return
        outcome = answer.get("outcome") if isinstance(answer, Mapping) else None
        outcome = outcome if isinstance(outcome, Mapping) else {}
        if outcome.get("outcome") == "cancelled":
            # Said for a turn that is being stopped; whichever of the two comes first, it is stopped.
            await self._abort()
            return
        chosen = outcome.get("optionId") if outcome.get("outcome") == "selected" else None
        picked = next((one for one in options if one.id == chosen), None)
        if picked is None:
            await self._answer(wait, "deny", _NOT_OFFERED)
        else:
            await self._answer(wait, picked.decision, None, picked.pattern)

    async def _answer(self, wait: Waiting, decision: Decision, reason: str | None, pattern: str | None = None) -> None:
        await self._engine().answer(self._session_id, str(wait.approval_id), decision, reason, pattern)

    async def _ask_form(self, wait: Waiting, message_id: str, call: Mapping[str, Any]) -> None:
        question, *options = _question_of(call, numbered=False)
        field = {"type": "string", "title": "Answer", **({"enum": options} if options else {})}
        asked = {
            "sessionId": self._session_id,
            "toolCallId": self._telling.call_id(message_id, call),
            "mode": "form",
            "message": question,
            "requestedSchema": {"type": "object", "properties": {"answer": field}, "required": ["answer"]},
        }
        try:
            answer = await self._request(wait, "elicitation/create", asked)
        except Refused as error:
            answer = {"action": "decline", "why": error.message}
        content = answer.get("content") if isinstance(answer, Mapping) else None
        said = content.get("answer") if isinstance(content, Mapping) else None
        if not isinstance(answer, Mapping) or answer.get("action") != "accept" or not isinstance(said, str):
            said = "The user did not answer."
        await self._engine().answer_question(self._session_id, wait.tool_call_id, said)


def _question_of(call: Mapping[str, Any], *, numbered: bool = True) -> list[str]:
    """What is asked, and the answers to choose from."""
    given = p.input_of(call)
    given = given if isinstance(given, Mapping) else {}
    options = [f"{n}. {one}" if numbered else str(one) for n, one in enumerate(given.get("options") or (), start=1)]
    return [str(given.get("question") or "The model asks something."), *options]
