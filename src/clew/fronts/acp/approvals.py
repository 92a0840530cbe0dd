"""Pending approvals and questions, sent to the editor as requests; the answer is stored as clew's own approval.

A request is cancelled when its approval is answered by another client or withdrawn with its turn. Closing the editor
answers nothing: the approval stays pending.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from clew.errors import ClewError, Conflict, NotFound
from clew.fronts.acp.rpc import Closed, Connection, Refused
from clew.fronts.acp.updates import UpdateSender, describe_call
from clew.live.base import Waiting
from clew.session.api import Operations
from clew.session.turn.answers import Decision
from clew.transcript import part as p
from clew.transcript.message import Message

__all__ = ["ApprovalRequests", "options_for"]

log = logging.getLogger("clew.acp")
_NOT_OFFERED: Final = "the editor answered with an option that was not offered"


class Option(msgspec.Struct, frozen=True):
    """An answer that a person can pick."""

    id: str
    name: str
    kind: str
    decision: Decision
    pattern: str | None = None

    def shown(self) -> dict[str, str]:
        return {"optionId": self.id, "name": self.name, "kind": self.kind}


def options_for(call: Mapping[str, Any], folder: str | None) -> list[Option]:
    """Return the answers to a request: allow once, always (where clew offers a rule for it) and deny."""
    asked = p.approval_of(call).get("descriptor")
    offers = asked.get("offers") if isinstance(asked, Mapping) else None
    offers = [offer for offer in offers or () if isinstance(offer, Mapping)]
    # Only the narrowest and the widest rule: the ones between them would be too many buttons.
    picked = {str(offer.get("pattern")): str(offer.get("words")) for offer in (*offers[:1], *offers[-1:])}
    options = [Option("once", "Allow once", "allow_once", "once")]
    for number, (pattern, words) in enumerate(picked.items(), start=1):
        options.append(Option(f"session-{number}", f"In this session: {words}", "allow_always", "session", pattern))
        if folder is not None:
            options.append(Option(f"project-{number}", f"In this project: {words}", "allow_always", "project", pattern))
    return [*options, Option("deny", "Reject", "reject_once", "deny")]


class ApprovalRequests:
    """The requests of one session. ``engine`` is called for each answer, since the server may have changed by then;
    ``abort`` ends the session's turn."""

    def __init__(
        self,
        session_id: str,
        folder: str | None,
        engine: Callable[[], Operations],
        connection: Connection,
        updates: UpdateSender,
        *,
        by_form: bool,
        abort: Callable[[], Awaitable[None]],
    ) -> None:
        self._session_id = session_id
        self._folder = folder
        self._engine = engine
        self._connection = connection
        self._updates = updates
        self._by_form = by_form
        self._abort = abort
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self.question: Waiting | None = None
        """A question that the next prompt answers, for an editor without forms."""

    def ask(self, waiting: tuple[Waiting, ...], newest: list[Message]) -> str | None:
        """Send a request for everything pending that has none yet, and cancel requests that are no longer pending.

        Return the text of a question that the next prompt is to answer, once; else None.
        """
        question_text = None
        open_ids = {wait.tool_call_id for wait in waiting}
        for id_ in [id_ for id_ in self._asked if id_ not in open_ids]:
            self.close(id_)
        if self.question is not None and self.question.tool_call_id not in open_ids:
            self.question = None
        calls = {
            p.call_id_of(part): (message.id, part) for message in newest for part in message.parts if p.is_call(part)
        }
        for wait in waiting:
            message_id, call = calls.get(wait.tool_call_id, ("", {}))
            if wait.tool_call_id in self._asked:
                continue
            if wait.approval_id is None and not self._by_form:
                if self.question is None:
                    self.question, question_text = wait, "\n".join(_question_of(call))
            else:
                put = self._ask_form if wait.approval_id is None else self._ask_permission
                task = asyncio.create_task(self._put(put(wait, message_id, call)))
                self._asked[wait.tool_call_id] = task
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
        return question_text

    def close(self, tool_call_id: str | None = None) -> None:
        """Cancel all requests, or with ``tool_call_id`` only that one's."""
        for id_ in [*self._asked] if tool_call_id is None else [tool_call_id]:
            if (task := self._asked.pop(id_, None)) is not None:
                task.cancel()
        if self.question is not None and tool_call_id in (None, self.question.tool_call_id):
            self.question = None

    async def leave(self) -> None:
        """Cancel all requests, and wait until answers already given are stored."""
        self.close()
        await asyncio.gather(*self._answering, return_exceptions=True)

    async def _request(self, wait: Waiting, method: str, params: Mapping[str, Any]) -> Any:
        """Return the editor's answer. From then on the request can no longer be cancelled."""
        try:
            return await self._connection.request(method, params)
        finally:
            if self._asked.get(wait.tool_call_id) is asyncio.current_task():
                del self._asked[wait.tool_call_id]

    async def _put(self, asking: Awaitable[None]) -> None:
        try:
            await asking
        except Closed:
            pass  # still pending: for the next editor, or on the page
        except (Conflict, NotFound) as error:
            log.info("the request was answered by another client: %s", error)
        except ClewError as error:
            log.warning("the answer was not accepted: %s", error)
        except Exception:
            log.exception("unexpected error in a request of session %s", self._session_id)

    async def _ask_permission(self, wait: Waiting, message_id: str, call: Mapping[str, Any]) -> None:
        options = options_for(call, self._folder)
        shown = {"toolCallId": self._updates.call_id(message_id, call), **describe_call(call, self._folder)}
        params = {"sessionId": self._session_id, "toolCall": shown, "options": [option.shown() for option in options]}
        try:
            answer = await self._request(wait, "session/request_permission", params)
        except Refused as error:
            await self._answer(wait, "deny", f"the editor could not ask: {error.message[:200]}")
            return
        outcome = answer.get("outcome") if isinstance(answer, Mapping) else None
        outcome = outcome if isinstance(outcome, Mapping) else {}
        if outcome.get("outcome") == "cancelled":
            # Sent for a turn that is being cancelled; session/cancel may arrive before or after it.
            await self._abort()
            return
        chosen = outcome.get("optionId") if outcome.get("outcome") == "selected" else None
        picked = next((option for option in options if option.id == chosen), None)
        if picked is None:
            await self._answer(wait, "deny", _NOT_OFFERED)
        else:
            await self._answer(wait, picked.decision, None, picked.pattern)

    async def _answer(self, wait: Waiting, decision: Decision, reason: str | None, pattern: str | None = None) -> None:
        await self._engine().answer(self._session_id, str(wait.approval_id), decision, reason, pattern)

    async def _ask_form(self, wait: Waiting, message_id: str, call: Mapping[str, Any]) -> None:
        question, *options = _question_of(call, numbered=False)
        field = {"type": "string", "title": "Answer", **({"enum": options} if options else {})}
        params = {
            "sessionId": self._session_id,
            "toolCallId": self._updates.call_id(message_id, call),
            "mode": "form",
            "message": question,
            "requestedSchema": {"type": "object", "properties": {"answer": field}, "required": ["answer"]},
        }
        try:
            answer = await self._request(wait, "elicitation/create", params)
        except Refused as error:
            answer = {"action": "decline", "why": error.message}
        content = answer.get("content") if isinstance(answer, Mapping) else None
        text = content.get("answer") if isinstance(content, Mapping) else None
        if not isinstance(answer, Mapping) or answer.get("action") != "accept" or not isinstance(text, str):
            text = "The user did not answer."
        await self._engine().answer_question(self._session_id, wait.tool_call_id, text)


def _question_of(call: Mapping[str, Any], *, numbered: bool = True) -> list[str]:
    """Return the question, then the answers to choose from."""
    given = p.input_of(call)
    given = given if isinstance(given, Mapping) else {}
    options = [
        f"{n}. {option}" if numbered else str(option) for n, option in enumerate(given.get("options") or (), start=1)
    ]
    return [str(given.get("question") or "The model asks something."), *options]
