"""Pending requests on a terminal, asked one after the other."""

from __future__ import annotations

from collections.abc import Callable

from clew.fronts.cli.chat.terminal import Terminal
from clew.fronts.cli.command import AnyEngine
from clew.fronts.cli.question import Question
from clew.fronts.cli.render import Theme

__all__ = ["ApprovalPrompt"]


class ApprovalPrompt:
    """Asks at most one question at a time."""

    def __init__(self, engine: Callable[[], AnyEngine], terminal: Terminal, theme: Theme) -> None:
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
