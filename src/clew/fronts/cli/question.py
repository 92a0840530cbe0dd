"""Pending approvals and questions, asked on a terminal one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol

from clew.fronts.cli.command import AnyEngine
from clew.fronts.cli.render import Theme, call_details, change_lines, indented
from clew.fronts.cli.safe_text import one_line, plain
from clew.live.base import Waiting
from clew.session.turn.answers import Decision
from clew.transcript.part import approval_of, call_id_of

__all__ = ["UNATTENDED", "ApprovalPrompt", "Asker", "Question"]

UNATTENDED: Final = "no person at this terminal to ask"
_ALLOW: Final = "allow? [y]es once{} · [n]o: "
_ALLOW_NARROW: Final = "allow? y{}/n: "
_KEYS: Final = "y allows it once{}, n denies it"
_WHY_ONCE: Final[Mapping[str, str]] = {
    "command": "it contains a variable, a substitution, a pattern or a folder change, so its effect is known only when "
    "the shell runs it",
    "path": "where the path leads is known only when it is used",
    "host": "the address has no host name that a rule could match",
}
_SCOPE: Final = "scope, by number: "
_WHY: Final = "reason (optional, sent to the model): "
_ANSWER: Final = "your answer: "
_DECISIONS: Final[Mapping[str, Decision]] = {
    **dict.fromkeys(("y", "yes", "once"), "once"),
    **dict.fromkeys(("s", "session"), "session"),
    **dict.fromkeys(("p", "project"), "project"),
    **dict.fromkeys(("n", "no", "deny"), "deny"),
}
_ALL: Final = ("a", "all")


class Asker(Protocol):
    """The parts of a terminal that a question uses."""

    attended: bool

    @property
    def size(self) -> tuple[int, int]: ...

    def print(self, text: str) -> None: ...

    def ask(self, question: str | None, words: Sequence[str] = ()) -> None: ...


class ApprovalPrompt:
    """Asks at most one question at a time."""

    def __init__(self, engine: Callable[[], AnyEngine], terminal: Asker, theme: Theme) -> None:
        self._engine = engine
        self._terminal = terminal
        self._theme = theme
        self._question: Question | None = None

    def __bool__(self) -> bool:
        return self._question is not None

    async def ask_next(self, session_id: str) -> None:
        """Ask the next pending request, unless a question is open."""
        waiting = (await self._engine().get_status(session_id)).waiting
        while self._question is None and waiting:
            self._question = Question(self._engine(), session_id, waiting[0])
            if await self._question.begin(self._terminal, self._theme):
                return
            self._question = None
            waiting = (await self._engine().get_status(session_id)).waiting

    async def answer(self, words: str) -> None:
        """Handle typed text, which may be only the first part of an answer."""
        question, is_over = self._question, True
        if question is not None:
            try:
                is_over = await question.take(words, self._terminal)
            finally:
                # After a refusal it may have been answered by another client; if not, it is asked again.
                if is_over:
                    self._close(question)

    def close(self, tool_call_id: str | None = None) -> None:
        """Close the open question; with ``tool_call_id`` only if it belongs to that call."""
        question = self._question
        if question is not None and tool_call_id in (None, question.wait.tool_call_id):
            self._close(question)

    def _close(self, question: Question) -> None:
        # Another question may be open by now.
        if self._question is question:
            self._question = None
            self._terminal.ask(None)


class Question:
    """One pending request, until it is answered here or by another client."""

    def __init__(self, engine: AnyEngine, session_id: str, wait: Waiting) -> None:
        self.wait = wait
        self._engine = engine
        self._session_id = session_id
        self._stage: Literal["decide", "scope", "reason", "answer"] = "answer" if wait.approval_id is None else "decide"
        self._options: list[str] = []
        self._offers: list[Mapping[str, Any]] = []
        self._decision: Decision = "session"
        self._all: list[str] = []
        self._decisions: Mapping[str, Decision] = _DECISIONS

    async def begin(self, terminal: Asker, theme: Theme) -> bool:
        """Show the request and ask. On an unattended terminal deny it and return False."""
        if not terminal.attended:
            await self.refuse(UNATTENDED)
            return False
        call = await self._call()
        given: Any = call.get("input")
        session = await self._engine.get_session(self._session_id)
        if session.workspace_root is None:
            # Without a folder there is no project to store a rule for.
            self._decisions = _without("project")
        asked = approval_of(call).get("descriptor")
        offers = asked.get("offers") if isinstance(asked, Mapping) else None
        self._offers = list(offers or ())
        if only_once := offers is not None and not self._offers:
            self._decisions = _without("session", "project")
        waiting = (await self._engine.get_status(self._session_id)).waiting
        self._all = [wait.approval_id for wait in waiting if wait.approval_id is not None]
        question = given.get("question") if isinstance(given, Mapping) else None
        if self._stage == "answer" and isinstance(question, str):
            self._options = [str(option) for option in given.get("options") or ()]
            terminal.print(theme.style(f"? {plain(question)}", "bold") + "\n")
            for number, option in enumerate(self._options, start=1):
                terminal.print(indented(f"{number}. {plain(option)}", terminal.size[0]) + "\n")
        else:
            width = terminal.size[0]
            change = change_lines(self.wait.tool, given, asked, theme, width)
            terminal.print(call_details(self.wait.tool, given, theme, call.get("approval"), change, width=width))
            if only_once:
                why = f"this can't be saved as a rule: {plain(_why_once(asked))}"
                terminal.print(theme.style(indented(why, width), "dim") + "\n")
        self.ask(terminal)
        return True

    def ask(self, terminal: Asker) -> None:
        """Ask, or repeat the question."""
        if self._stage != "decide":
            terminal.ask({"reason": _WHY, "scope": _SCOPE}.get(self._stage, _ANSWER))
            return
        allow = _ALLOW.format(self._for_each(" · this [s]ession", " · this [p]roject", " · [a]ll once"))
        narrow = _ALLOW_NARROW.format(self._for_each("/s", "/p", "/a"))
        words = (*self._decisions, *(_ALL if len(self._all) > 1 else ()))
        terminal.ask(allow if terminal.size[0] > len(allow) + 10 else narrow, words)

    async def take(self, words: str, terminal: Asker) -> bool:
        """Handle typed text; return whether it was an answer, which ends the question."""
        words = words.strip()
        if self._stage == "reason":
            await self._give("deny", words or None)
            return True
        if self._stage == "answer" and not words:
            terminal.print("an answer cannot be empty\n")
            self.ask(terminal)
            return False
        if self._stage == "answer":
            number = int(words) if words.isascii() and words.isdigit() else 0
            answer = self._options[number - 1] if 1 <= number <= len(self._options) else words
            await self._engine.answer_question(self._session_id, self.wait.tool_call_id, answer)
            return True
        if self._stage == "scope":
            number = int(words) if words.isascii() and words.isdigit() else 0
            if 1 <= number <= len(self._offers):
                await self._give(self._decision, None, str(self._offers[number - 1]["pattern"]))
                return True
            terminal.print(f"enter a number from 1 to {len(self._offers)}\n")
            self.ask(terminal)
            return False
        decision = self._decisions.get(words.lower())
        if len(self._all) > 1 and words.lower() in _ALL:
            await self._engine.answer_all(self._session_id, "once", approval_ids=self._all)
            return True
        if decision == "deny":
            self._stage = "reason"
        elif decision in ("session", "project") and len(self._offers) > 1:
            self._stage, self._decision = "scope", decision
            for number, offer in enumerate(self._offers, start=1):
                terminal.print(indented(f"{number}. {plain(str(offer.get('words')))}", terminal.size[0]) + "\n")
        elif decision is not None:
            await self._give(decision, None)
            return True
        else:
            keys = _KEYS.format(
                self._for_each(", s for this session", ", p for this project", ", a allows all pending ones once")
            )
            typed = f"{plain(one_line(words, 20))} is not an answer: " if words else ""
            terminal.print(f"{typed}{keys}\n")
        self.ask(terminal)
        return False

    def _for_each(self, session: str, project: str, every: str) -> str:
        """Return the texts of the answers that are available."""
        shown = (session if "s" in self._decisions else "", project if "p" in self._decisions else "")
        return "".join((*shown, every if len(self._all) > 1 else ""))

    async def refuse(self, reason: str | None = None) -> None:
        """Deny the request, because no answer will come."""
        await self._give("deny", reason)

    async def _give(self, decision: Decision, reason: str | None, pattern: str | None = None) -> None:
        if self.wait.approval_id is None:
            await self._engine.answer_question(self._session_id, self.wait.tool_call_id, reason or UNATTENDED)
        else:
            await self._engine.answer(self._session_id, self.wait.approval_id, decision, reason, pattern)

    async def _call(self) -> Mapping[str, Any]:
        """Return the stored call with its exact arguments."""
        newest = reversed(await self._engine.messages(self._session_id, limit=20))
        parts = (part for message in newest for part in message.parts)
        return next((part for part in parts if call_id_of(part) == self.wait.tool_call_id), {})


def _why_once(asked: Any) -> str:
    """Return why no rule can be stored for a call."""
    target = asked.get("target") if isinstance(asked, Mapping) else None
    kind = target.get("kind") if isinstance(target, Mapping) else None
    return _WHY_ONCE.get(str(kind), "no rule can match it again")


def _without(*decisions: Decision) -> dict[str, Decision]:
    return {word: decision for word, decision in _DECISIONS.items() if decision not in decisions}
