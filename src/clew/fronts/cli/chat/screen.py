"""The screen: finished output scrolls above like any other output; the live rows and the input stay at the bottom.

prompt_toolkit draws the rows at the bottom: a multi-line editor, a completion menu, a footer. Finished output is
printed above them in one write together with their redraw, so that nothing flickers. The terminal is never queried, so
one that does not respond works too.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, cast

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, has_completions
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding.key_processor import KeyProcessor
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import ConditionalContainer, Dimension, HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import HighlightIncrementalSearchProcessor
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar
from rich.cells import cell_len, set_cell_size

from clew.fronts.cli.chat.action import Action
from clew.fronts.cli.chat.editor import edit_text
from clew.fronts.cli.chat.keys import bind_keys
from clew.fronts.cli.chat.picker import Picker
from clew.fronts.cli.safe_text import plain
from clew.platform.processes import END_SIGNALS, add_signal_handler, remove_signal_handler

__all__ = ["MOMENT_S", "SIGNALS", "PlainOutput", "Screen", "cut", "standard_output"]

_SGR: Final = re.compile(r"\x1b\[[0-9;]*m")
_RESET: Final = "\x1b[0m"
MOMENT_S: Final = 0.5
"""Time that a request must be visible without a key press before it accepts keys. A single key answers it only if no
other key follows within this time. So typing cannot answer it by accident."""
SIGNALS: Final = {signal.SIGINT: "interrupt", **dict.fromkeys(END_SIGNALS, "end")}
_PROMPT: Final = "› "
_COMPLETED: Final = re.compile(r"\A/|(?:\A|\s)@(?:'[^'\n]*|\S*)\Z")
_STYLES: Final = {
    "completion-menu": "noinherit",
    "completion-menu.completion": "noinherit",
    "completion-menu.completion.current": "noinherit reverse",
    "completion-menu.meta.completion": "noinherit dim",
    "completion-menu.meta.completion.current": "noinherit reverse",
    "search-toolbar": "dim",
    "search-toolbar.text": "nodim",
}


def cut(line: str, width: int) -> str:
    """Cut a styled line to ``width`` cells."""
    if cell_len(_SGR.sub("", line)) <= width:
        return line
    styles = "".join(_SGR.findall(line)[:1])
    return f"{styles}{set_cell_size(_SGR.sub('', line), max(width - 1, 0)).rstrip()}…{_RESET if styles else ''}"


class PlainOutput(Vt100_Output):
    """An output that writes each redraw at once and never queries the terminal."""

    held = False
    below = 0
    """Rows to clear next, one by one: tmux moves rows cleared from the top into its history."""

    def erase_down(self) -> None:
        if self.below:
            self.write_raw("\x1b7\x1b[2K" + "\x1b[B\x1b[2K" * (self.below - 1) + "\x1b8")
            self.below = 0
        else:
            super().erase_down()

    @property
    def responds_to_cpr(self) -> bool:
        return False

    def flush(self) -> None:
        if not self.held:
            with contextlib.suppress(OSError, ValueError):
                super().flush()

    def discard_unwritten(self) -> None:
        """Discard buffered output if the terminal is gone, so that writing it does not fail again at exit."""
        try:
            print(end="", file=self.stdout, flush=True)  # as at exit
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.stdout.fileno())
            os.close(null)


def standard_output() -> Vt100_Output:
    """Return the output of this process."""
    return PlainOutput.from_pty(sys.stdout)


class _Application(Application[None]):
    def _on_resize(self) -> None:
        # The next redraw notices the new size and erases the rows as the terminal has rewrapped them.
        self.invalidate()


def _wait_for_more(app: Application[None], keys: KeyProcessor) -> None:
    """Wait shortly after Esc, which is also the first byte of other keys, and long in a sequence like Ctrl-X Ctrl-E."""
    app.timeoutlen = 0.1 if keys.key_buffer and keys.key_buffer[0].key == Keys.Escape else 60.0


class Screen:
    """The terminal of a person."""

    attended = True
    """A person can see questions and answer them."""

    def __init__(
        self,
        history: Sequence[str] = (),
        completer: Completer | None = None,
        *,
        colour: bool = True,
    ) -> None:
        self._actions: asyncio.Queue[Action] = asyncio.Queue()
        self._lines: Sequence[str] = ()
        self._status = ""
        self.footer: Callable[[int], str] = lambda width: ""
        """Returns the footer for a width."""
        self.attachments: Callable[[str], Sequence[str]] = lambda text: ()
        """Returns the names of the files that a text would attach, shown before it is sent."""
        self._question: str | None = None
        self._words: Sequence[str] = ()
        self._asked = 0
        self._arming: asyncio.TimerHandle | None = None
        self._armed = False
        self._single_key: asyncio.TimerHandle | None = None
        self.picker: Picker | None = None
        self.pasting = False
        self._above: list[str] = []
        self._editing: asyncio.Task[Any] | None = None
        self.ended = asyncio.Event()
        """Set by a signal or when the terminal is gone: the chat must end, whatever it waits for."""
        self._busy = False
        self._drawn_at = (0, 0)
        self._output = cast(PlainOutput, standard_output())
        typing = Condition(lambda: bool(_COMPLETED.search(self.line.document.text_before_cursor)))
        self.line = Buffer(
            history=InMemoryHistory(list(history)),
            completer=completer,
            complete_while_typing=typing,
            multiline=True,
            name="line",
        )
        self.answer = Buffer(multiline=False, name="answer")
        self._app = self._make_application(colour)

    def _make_application(self, colour: bool) -> _Application:
        found = SearchToolbar(forward_search_prompt="search: ", backward_search_prompt="search history: ")
        editor = BufferControl(
            self.line,
            search_buffer_control=found.control,
            input_processors=[HighlightIncrementalSearchProcessor()],
            preview_search=True,
        )
        self._editor = Window(
            editor,
            height=lambda: Dimension(min=1, max=max(self.size[1] // 3, 1)),
            wrap_lines=True,
            dont_extend_height=True,
            get_line_prefix=lambda number, wrapped: _PROMPT if number == wrapped == 0 else "  ",
        )
        self._reply = Window(
            BufferControl(self.answer),
            height=lambda: Dimension(min=1, max=max(self.size[1] // 3, 1)),
            wrap_lines=True,
            dont_extend_height=True,
            get_line_prefix=lambda number, wrapped: "" if number or wrapped else self._approvals(),
        )
        self._list = Window(
            FormattedTextControl(self._picker_text, focusable=True, show_cursor=False),
            dont_extend_height=True,
        )
        picking, asking = Condition(lambda: self.picker is not None), Condition(lambda: self._armed)
        rows = HSplit(
            [
                Window(FormattedTextControl(self._live_text), height=self._live_height, dont_extend_height=True),
                ConditionalContainer(self._list, picking),
                ConditionalContainer(self._reply, ~picking & asking),
                ConditionalContainer(self._editor, ~picking & ~asking),
                ConditionalContainer(found, ~picking & ~asking),
                ConditionalContainer(CompletionsMenu(max_height=6), ~picking & ~asking & has_completions),
                Window(FormattedTextControl(self._footer_text), height=self._footer_height, dont_extend_height=True),
            ]
        )
        app = _Application(
            layout=Layout(rows, focused_element=self._editor),
            key_bindings=bind_keys(self),
            style=Style.from_dict(_STYLES),
            include_default_pygments_style=False,
            color_depth=None if colour else ColorDepth.DEPTH_1_BIT,
            erase_when_done=True,
            output=self._output,
        )
        app.ttimeoutlen = 0.05
        app.before_render += lambda _: self._before_drawing()
        app.after_render += lambda _: self._after_drawing()
        app.key_processor.before_key_press += lambda _: self._delay_request()
        app.key_processor.after_key_press += lambda keys: _wait_for_more(app, keys)
        return app

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        rows, columns = self._output.get_size()
        return max(columns, 10), max(rows, 4)

    @contextlib.asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Read keys and draw on the terminal while entered."""
        running = asyncio.create_task(self._app.run_async(handle_sigint=False, set_exception_handler=False))
        # Ended without being asked to: the terminal is gone.
        running.add_done_callback(lambda _: self._on_signal("end"))
        for number, kind in SIGNALS.items():
            add_signal_handler(number, self._on_signal, kind)
        try:
            yield
        finally:
            for number in SIGNALS:
                remove_signal_handler(number)
            if self._editing is not None:
                self._editing.cancel()
                await asyncio.wait({self._editing})
            self._write_above()
            # A terminal that is gone has ended the application already, or is just ending it.
            if self._app.future is not None and not self._app.future.done():
                self._app.exit()
            await asyncio.gather(running, return_exceptions=True)
            self._output.discard_unwritten()

    def _on_signal(self, kind: str) -> None:
        """Handle a signal: an open list is closed, as by the key, so that the command that waits for it ends."""
        picker = self.picker
        if picker is not None:
            picker.close()
        if kind == "end":
            self.ended.set()
        if kind == "end" or picker is None:
            self.act(kind)

    # Output

    def print(self, text: str) -> None:
        """Print text permanently, above the live rows."""
        if text:
            if not self._above:
                asyncio.get_running_loop().call_soon(self._write_above)
            self._above.append(text if text.endswith("\n") else text + "\n")

    def show(self, lines: Sequence[str], status: str = "", above: str = "") -> None:
        """Replace the live rows; print ``above`` permanently in the same redraw."""
        self._lines, self._status = lines, status
        self.print(above)
        self._app.invalidate()

    def ask(self, question: str | None, words: Sequence[str] = ()) -> None:
        """Replace the line with a question, or with None close it. ``words`` are the valid answers, if limited."""
        self._cancel_single_key()
        if question is not None and self._question is None:
            self._asked += 1
        elif question is None:
            if self._arming is not None:
                self._arming.cancel()
            self._armed, self._arming = False, None
            self.answer.reset()
            self._focus()
        self._question, self._words = question, words
        self._app.invalidate()

    def _delay_request(self) -> None:
        """Delay a request while keys are pressed: they belong to the line being typed."""
        self._cancel_single_key()
        if self._arming is not None and not self._armed:
            self._arming.cancel()
            self._arming = asyncio.get_running_loop().call_later(MOMENT_S, self._arm)

    def _cancel_single_key(self) -> None:
        if self._single_key is not None:
            self._single_key.cancel()
            self._single_key = None

    def answer_with(self, key: str) -> None:
        """Answer with one key, unless another one follows: then both begin a longer answer."""
        self.answer.insert_text(key)
        self._single_key = asyncio.get_running_loop().call_later(MOMENT_S, self._take_single_key, key)

    def _take_single_key(self, key: str) -> None:
        self._single_key = None
        self.answer.reset()
        self.act("key", key)

    def _arm(self) -> None:
        self._armed = True
        self._focus()
        self._app.invalidate()

    async def pick(self, title: str, choices: Sequence[tuple[str, str]]) -> str | None:
        """Let the person choose a value by its label; return None if cancelled."""
        if self.ended.is_set():
            return None
        self.picker = Picker(title, choices)
        self._focus()
        try:
            return await self.picker.chosen
        finally:
            self.picker = None
            self._focus()

    def _focus(self) -> None:
        window = self._list if self.picker is not None else self._reply if self._armed else self._editor
        # An active history search keeps the focus.
        if self._app.layout.current_window is not window and not (
            window is self._editor and self._app.layout.is_searching
        ):
            self._app.layout.focus(window)
        self._app.invalidate()

    def draft(self, text: str) -> None:
        """Put a text into the line, to be edited and sent."""
        if not self.line.text:
            self.line.text = text
            self.line.cursor_position = len(text)

    def clear(self) -> bool:
        """Clear the line; return whether there was any text."""
        buffer = self.answer if self._armed else self.line
        written = buffer.text
        buffer.reset()
        self._app.invalidate()
        return bool(written)

    def busy(self, busy: bool) -> None:
        """Show the key hints for a running turn."""
        self._busy = busy
        self._app.invalidate()

    async def open_editor(self) -> None:
        """Open the line in the user's editor; output is printed afterwards."""
        if self._editing is not None:
            return
        self._editing = asyncio.current_task()
        try:
            text = await edit_text(self.line.text)
            if text is not None:
                self.line.document = Document(text)
        finally:
            self._editing = None
            self._write_above()

    # Drawing

    def _write_above(self) -> None:
        if not self._above or self._editing is not None:
            return
        text, self._above = "".join(self._above), []
        if not self._app.is_running:
            self._output.write_raw(text)
            self._output.flush()
            return
        self._output.held = True
        self._erase()
        self._output.write_raw(text)
        self._app._redraw()

    def _erase(self) -> None:
        """Erase all drawn rows. A terminal that became narrower has wrapped them into more."""
        drawn = self._app.renderer.last_rendered_screen
        if drawn is None:
            return
        cursor, width = drawn.get_cursor_position(self._app.layout.current_window), self.size[0]
        lengths = [
            max((x + cell.width for x, cell in drawn.data_buffer[y].items() if cell.char.strip()), default=0)
            for y in range(drawn.height)
        ]
        rows = [max(math.ceil(cells / width), 1) for cells in lengths]
        more = sum(rows[: cursor.y]) - cursor.y + cursor.x // width
        if more > 0:
            self._output.cursor_up(more)
        self._output.below = sum(rows)
        self._app.renderer.erase(leave_alternate_screen=False)

    def _before_drawing(self) -> None:
        self._output.held = True
        drawn, (width, height) = self._app.renderer.last_rendered_screen, self.size
        wanted = min(self._app.layout.container.preferred_height(width, height).preferred, height)
        if drawn is not None and (drawn.width > width or drawn.height > wanted or self._drawn_at != (width, height)):
            self._erase()
        self._drawn_at = (width, height)

    def _after_drawing(self) -> None:
        self._output.held = False
        self._output.flush()
        if self._question is not None and self._arming is None and not self._above:
            self._arming = asyncio.get_running_loop().call_later(MOMENT_S, self._arm)

    def _live_rows(self) -> list[str]:
        width, height = self.size
        draft = self.line.text if self._armed else ""
        last = f"⋯ {plain(' '.join(draft.split()))}  (saved; answer with Enter)" if draft else ""
        rows = [cut(line, width - 1) for line in [*self._lines, *filter(None, (self._status, last))]]
        room = height - 2 - self._footer_height() - min(self.line.text.count("\n") + 1, height // 3)
        if self.picker is not None:
            room -= min(height // 2, 10)
        return rows[-room:] if room > 0 else []

    def _live_height(self) -> Dimension:
        rows = len(self._live_rows())
        return Dimension(min=0, max=rows, preferred=rows)

    def _live_text(self) -> ANSI:
        return ANSI("\n".join(self._live_rows()))

    def _picker_text(self) -> ANSI:
        width, height = self.size
        lines = self.picker.lines(min(height // 2, 10)) if self.picker is not None else []
        shown = [f"\x1b[{'7' if marked else '0'}m{cut(line, width - 1)}\x1b[0m" for marked, line in lines]
        return ANSI("\n".join(shown))

    def _approvals(self) -> str:
        return cut(self._question or "", max(self.size[0] - 9, 4))

    def _footer_height(self) -> int:
        return 0 if self.size[1] < 6 else 1 if self.size[1] < 12 else 2

    def _footer_text(self) -> ANSI:
        width = self.size[0] - 1
        rows = [self.footer(width), self._hints(width)]
        if not self._armed and self.picker is None and (attachments := self.attachments(self.line.text)):
            # Replace the hints, or the footer if there is only one row.
            rows[self._footer_height() - 1] = f"attaches: {', '.join(map(plain, attachments))}"
        return ANSI("\n".join(f"\x1b[2m{cut(line, width)}\x1b[0m" for line in rows))

    def _hints(self, width: int) -> str:
        """Return hints for the keys that work now, as many as fit."""
        if self.picker is not None:
            hints = ["↑↓ move", "Enter select", "Esc cancel", "type to filter"]
        elif self._armed:
            hints = ["Esc stops the turn", *(["press a key to answer"] if self._words and not self.line.text else [])]
        elif self._busy:
            hints = ["Esc stops", "Enter queues", "Ctrl-D leaves"]
        else:
            hints = ["/ commands", "@ files", "! shell", "Alt-Enter new line", "Shift-Tab mode", "Ctrl-R history"]
        while len(hints) > 1 and len(" · ".join(hints)) > width:
            hints.pop()
        return " · ".join(hints)

    # Input

    def act(self, kind: Any, text: str = "") -> None:
        """Queue an action; text and keys belong to the open question, if there is one."""
        self._actions.put_nowait(Action(kind, text, self._asked if self._armed and kind in ("line", "key") else 0))

    @property
    def is_asking(self) -> bool:
        return self._armed

    def takes_key(self, key: str) -> bool:
        """Return whether one key can be an answer: not if text was typed, or if it could begin a longer answer."""
        begins = any(len(word) > 1 and word.startswith(key) for word in self._words) and key not in self._words
        return bool(self._words) and self._armed and not self.answer.text and not self.line.text and not begins

    async def next(self) -> Action:
        """Return the next action."""
        while (act := await self._actions.get()).asked not in (0, self._asked if self._question is not None else 0):
            pass  # the question it was typed at has been answered
        return act
