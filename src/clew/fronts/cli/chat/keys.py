"""Key bindings of the chat, in addition to prompt_toolkit's own."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.filters import Condition, has_completions, has_focus, is_searching
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from clew.fronts.cli.chat.picker import Picker

__all__ = ["KeyTarget", "bind_keys"]


class KeyTarget(Protocol):
    """The part of the screen that key bindings use: the input line, the answer field, the open list, and actions."""

    line: Buffer
    answer: Buffer
    picker: Picker | None
    pasting: bool

    @property
    def is_asking(self) -> bool: ...

    def takes_key(self, key: str) -> bool: ...

    def answer_with(self, key: str) -> None: ...

    def act(self, kind: Any, text: str = "") -> None: ...

    async def open_editor(self) -> None: ...


def bind_keys(screen: KeyTarget) -> KeyBindings:
    """Return the key bindings; keys go to the input line, the open question, or the open list."""
    keys = KeyBindings()
    picking = Condition(lambda: screen.picker is not None)
    _bind_everywhere(keys, screen, picking)
    _bind_line(keys, screen)
    _bind_answer(keys, screen)
    _bind_list(keys, screen, picking)
    return keys


def _bind_everywhere(keys: KeyBindings, screen: KeyTarget, picking: Any) -> None:
    free = ~picking & ~is_searching

    @keys.add("escape", filter=free)
    def _(event: KeyPressEvent) -> None:
        if event.app.key_processor.input_queue:
            return  # the first part of an Alt combination that is not bound
        buffer = event.current_buffer
        if buffer.complete_state is not None:
            buffer.cancel_completion()
        else:
            screen.act("stop")

    @keys.add("c-c", filter=free)
    def _(event: KeyPressEvent) -> None:
        screen.act("interrupt")

    @keys.add("c-d", filter=free)
    def _(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.delete()
        else:
            screen.act("end")

    @keys.add("c-z", filter=free)
    def _(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()

    @keys.add("s-tab", filter=free & ~has_completions)
    def _(event: KeyPressEvent) -> None:
        screen.act("mode")


def _bind_line(keys: KeyBindings, screen: KeyTarget) -> None:
    here = has_focus(screen.line)

    @keys.add("enter", filter=here)
    def _(event: KeyPressEvent) -> None:
        line, ahead = screen.line, event.app.key_processor.input_queue
        if line.complete_state is not None and line.complete_state.current_completion is not None:
            line.complete_state = None
        elif line.document.text_before_cursor.endswith("\\"):
            line.delete_before_cursor()
            line.insert_text("\n")
        elif screen.pasting or (ahead and all(key.key == Keys.ControlM or len(key.key) == 1 for key in ahead)):
            # Lines that arrive together are a paste, even if the terminal does not mark it as one.
            screen.pasting = True
            line.insert_text("\n")
            asyncio.get_running_loop().call_soon(setattr, screen, "pasting", False)
        else:
            text = line.text.strip("\n")
            line.text = text
            line.reset(append_to_history=bool(text.strip()))
            screen.act("line", text)

    @keys.add("escape", "enter", filter=here)
    @keys.add("c-j", filter=here)
    def _(event: KeyPressEvent) -> None:
        screen.line.insert_text("\n")

    @keys.add("tab", filter=here)
    def _(event: KeyPressEvent) -> None:
        line = screen.line
        if line.complete_state is not None:
            if len(line.complete_state.completions) == 1:
                # The only completion: accept it, so that Enter sends.
                line.apply_completion(line.complete_state.completions[0])
            else:
                line.complete_next()
            return
        # Completed synchronously, so that the completion is applied before the next key.
        found = list(line.completer.get_completions(line.document, CompleteEvent(completion_requested=True)))
        if len(found) == 1:
            line.delete_before_cursor(-found[0].start_position)
            line.insert_text(found[0].text)
        else:
            line.start_completion(insert_common_part=True, select_first=False)

    @keys.add("c-x", "c-e", filter=here)
    def _(event: KeyPressEvent) -> None:
        event.app.create_background_task(screen.open_editor())


def _bind_answer(keys: KeyBindings, screen: KeyTarget) -> None:
    here = has_focus(screen.answer)

    @keys.add("enter", filter=here)
    def _(event: KeyPressEvent) -> None:
        text = screen.answer.text
        screen.answer.reset()
        screen.act("line", text)

    @keys.add(Keys.Any, filter=here & Condition(lambda: screen.is_asking))
    def _(event: KeyPressEvent) -> None:
        if event.data.isprintable() and len(event.data) == 1 and screen.takes_key(event.data.lower()):
            screen.answer_with(event.data.lower())
        elif event.data.isprintable():
            screen.answer.insert_text(event.data)


def _bind_list(keys: KeyBindings, screen: KeyTarget, picking: Any) -> None:
    def bind(*names: str) -> Any:
        def add(run: Any) -> Any:
            for name in names:
                keys.add(name, filter=picking, eager=True)(lambda event: screen.picker and run(screen.picker, event))
            return run

        return add

    bind("up", "c-p")(lambda picker, event: picker.move(-1))
    bind("down", "c-n", "tab")(lambda picker, event: picker.move(1))
    bind("pageup")(lambda picker, event: picker.move(-8))
    bind("pagedown")(lambda picker, event: picker.move(8))
    bind("enter")(lambda picker, event: picker.take())
    bind("c-c", "c-d", "c-g", "escape")(lambda picker, event: picker.close())
    bind("backspace")(lambda picker, event: picker.erase())

    @keys.add(Keys.Any, filter=picking)
    def _(event: KeyPressEvent) -> None:
        if screen.picker is not None and event.data.isprintable():
            screen.picker.type(event.data)
