"""Rendering of conversations: parts of messages in, text for a terminal out. Nothing here prints or waits.

A part is printed once it is finished, in order. Text is printed by Markdown blocks: a paragraph is rendered when the
next one begins, and does not change afterwards. The unfinished rest is shown live. Text of a model or a tool goes
through :func:`plain` first, so that only clew's own colours reach the terminal.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from clew.fronts.cli.safe_text import one_line, plain
from clew.live.base import Status
from clew.transcript import part as p
from clew.transcript.damage import NOT_ALL_READABLE
from clew.transcript.message import Message

__all__ = [
    "Reply",
    "Theme",
    "call_details",
    "call_line",
    "change_lines",
    "damage_note",
    "diff_line",
    "fallback_note",
    "history_lines",
    "indented",
    "mark_of",
    "pause_reason",
    "queue_pause",
    "split_blocks",
    "summary_line",
    "summary_of",
    "user_lines",
]

Part = Mapping[str, Any]
_MARKS: Final = {
    "input-streaming": ("·", "dim"),
    "input-available": ("▸", "cyan"),
    "approval-requested": ("?", "yellow"),
    "approval-responded": ("▸", "cyan"),
    "output-available": ("✓", "green"),
    "output-error": ("✗", "red"),
    "output-denied": ("⊘", "yellow"),
}
_CODES: Final = {"dim": 2, "bold": 1, "red": 31, "green": 32, "yellow": 33, "cyan": 36}
_SO_FAR: Final = 5
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
_ITEM: Final = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)])(?:\s|$)")
# Spaces that Python does not count as printable.
_SPACES: Final = {0xA0: " ", 0x2009: " ", 0x202F: " ", 0x3000: "  ", ord("\r"): None}
_DIFF_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}


class Theme:
    """The styling of output: with or without colours, and with or without Markdown."""

    def __init__(self, *, colour: bool, markdown: Callable[[str, int], str] | None = None) -> None:
        self._colour = colour
        self._markdown = markdown

    @property
    def has_colour(self) -> bool:
        return self._colour

    @property
    def by_block(self) -> bool:
        """Whether text is printed by complete blocks, or as it arrives."""
        return self._markdown is not None

    def style(self, text: str, name: str) -> str:
        return f"\x1b[{_CODES[name]}m{text}\x1b[0m" if self._colour and text else text

    def block(self, text: str, width: int) -> str:
        clean = plain(text.translate(_SPACES))
        return self._markdown(clean, width) if self._markdown is not None else clean


class Reply:
    """One growing assistant message, of which each part is printed once."""

    def __init__(self, theme: Theme, *, live: bool = False) -> None:
        """``live``: its questions were already shown above."""
        self._theme = theme
        self._live = live
        self._done = 0
        self._chars = 0

    def finished(self, parts: Sequence[Part], width: int, *, final: bool = False) -> Iterator[str]:
        """Yield the text that is finished and was not printed yet. ``final``: the message is complete."""
        while self._done < len(parts):
            part = parts[self._done]
            if p.kind_of(part) in ("text", "reasoning"):
                yield from self._text(part, width, final)
                if not final and p.is_growing(part):
                    return
            elif p.is_call(part):
                if not final and p.is_growing(part):
                    return
                asked = self._live and p.tool_name(part) == "question" and p.state_of(part) == "output-available"
                answer = f"{self._theme.style('✓', 'green')} {plain(one_line(p.output_text(part) or '', width - 3))}"
                yield (answer if asked else call_line(part, self._theme, width, over=True)) + "\n"
            else:
                yield _other(part)
            self._done, self._chars = self._done + 1, 0

    def _text(self, part: Part, width: int, final: bool) -> Iterator[str]:
        full_text = p.text_of(part, "text", "reasoning") or ""
        text = full_text[self._chars :]
        over = final or not p.is_growing(part)
        whole = text if over or not self._theme.by_block else split_blocks(text)[0]
        self._chars += len(whole)
        if p.kind_of(part) == "reasoning":
            if whole and (over or self._theme.by_block):
                thought = plain(whole.translate(_SPACES)).strip("\n")
                if self._theme.by_block:
                    thought = "\n".join(row for line in thought.split("\n") for row in _wrapped(line, width))
                yield self._theme.style(thought, "dim") + "\n"
        elif self._theme.by_block:
            if whole.strip():
                yield self._theme.block(whole, width) + ("\n" if over else "\n\n")
        elif whole or (over and self._chars):
            yield self._theme.block(whole, width) + ("\n" if over and not full_text.endswith("\n") else "")

    def unfinished(self, parts: Sequence[Part], width: int, rows: int) -> list[str]:
        """Return the live rows: the end of the growing text, and running calls."""
        lines: list[str] = []
        for index, part in enumerate(parts[self._done :]):
            if p.kind_of(part) in ("text", "reasoning"):
                text = (p.text_of(part, "text", "reasoning") or "")[self._chars if index == 0 else 0 :]
                # Render only the end that fits: the text may be long, and this runs often.
                tail = plain(text[-rows * width :].translate(_SPACES).expandtabs(4)).strip("\n")
                wrapped = [piece for line in tail.split("\n") for piece in _wrapped(line, width)]
                dim = p.kind_of(part) == "reasoning"
                lines += [self._theme.style(line, "dim") if dim else line for line in wrapped if tail]
            elif p.is_call(part):
                lines.append(call_line(part, self._theme, width))
                lines += [self._theme.style(f"  {line}", "dim") for line in _so_far(part, width - 2)]
        return lines[-rows:]


def _wrapped(line: str, width: int) -> Iterator[str]:
    """Yield a line in rows of at most ``width`` cells, broken between words if possible."""
    from rich.cells import cell_len, chop_cells  # only for a terminal

    while cell_len(line) > width:
        row = chop_cells(line, width)[0]
        space = row.rfind(" ") if line[len(row)] != " " else len(row)
        yield row[:space] if space > 0 else row
        line = line[space + 1 :] if space > 0 else line[len(row) :]
    yield line


def split_blocks(text: str) -> tuple[str, str]:
    """Split Markdown into complete blocks and the rest, which may still grow.

    Fenced blocks stay together, and so do the items of a list with their indented content.
    """
    fence = ""
    cut = at = 0
    listed = blank = False
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and line.strip() == mark[1]:
                fence, blank = "", False
        elif not line.strip():
            blank = True
        else:
            is_item = bool(_ITEM.match(line))
            if blank and not line.startswith((" ", "\t")) and not (listed and is_item):
                cut, listed = at, is_item
            elif at == 0:
                listed = is_item
            blank = False
            fence = mark[1] if mark else ""
        at += len(line)
    return text[:cut], text[cut:]


def call_line(part: Part, theme: Theme, width: int, *, over: bool = False) -> str:
    """Return a call on one line: its state, its arguments and its result. ``over``: no more updates will come."""
    state = str(p.state_of(part))
    mark, colour = _MARKS.get(state, ("·", "dim"))
    head = f"{p.tool_name(part)} {one_line(_gist(p.input_of(part)), max(width // 2, 20))}".rstrip()
    by = p.answer_note_of(part)
    denied = f"denied by {by['answered_by']} ({by.get('via')})" if "answered_by" in by else "denied"
    result = {"output-denied": denied, "approval-requested": "needs your approval"}.get(state, "")
    ended = ""
    if p.is_preliminary(part):
        # Running or stopped: the output so far is not the result.
        mark, colour = _MARKS["output-denied" if over else "input-available"]
        output = p.output_of(part)
        output_text = output.get("text") if isinstance(output, Mapping) else None
        lines = (output_text if isinstance(output_text, str) else p.output_text(part) or "").splitlines()
        result = f"stopped; last output: {lines[-1]}" if over and lines else "stopped" if over else ""
    elif state == "output-available":
        lines = [line for line in (p.output_text(part) or "").splitlines() if line.strip()]
        if code := p.exit_code_of(part):
            # The last line is the exit status. A failed command is a call with a result.
            (mark, colour), output_text = _MARKS["output-error"], lines.pop() if lines else f"exit code {code}"
            ended = f"  {one_line(output_text.strip('[]'), max(width // 3, 20))}"
        more = f" (+{len(lines) - 1} line{'' if len(lines) == 2 else 's'})" if len(lines) > 1 else ""
        result = (lines[0] if lines else "" if ended else "(no output)") + more
    elif state == "output-error":
        result = p.error_text(part) or ""
    room = max(width - len(head) - len(ended) - 6, 10)
    tail = f"  {one_line(result, room)}" if result else ""
    red, dim = theme.style(plain(ended), "red"), theme.style(plain(tail), "dim")
    return f"{theme.style(mark, colour)} {plain(head)}{red}{dim}"


def _so_far(part: Part, width: int) -> list[str]:
    """Return the last output lines of a running call."""
    if not p.is_preliminary(part):
        return []
    output = p.output_of(part)
    if isinstance(output, Mapping) and "session_id" in output:
        # A subagent: its current work, and the end of its text.
        does = " ".join(str(output[key]) for key in ("tool", "doing") if output.get(key))
        steps = f"step {output['steps']}" if output.get("steps") else ""
        progress = "\n".join(filter(None, (" · ".join(filter(None, (steps, does))), str(output.get("text") or ""))))
    else:
        progress = p.output_text(part) or ""
    given = plain(progress.translate(_SPACES).expandtabs(4))
    return [piece for line in given.splitlines()[-_SO_FAR:] for piece in _wrapped(line, width)][-_SO_FAR:]


def _gist(given: object) -> str:
    """Return the gist of a call: its first text argument, or all arguments."""
    if isinstance(given, Mapping):
        first = next((value for value in given.values() if isinstance(value, str)), None)
        if first is not None:
            return first
    return "" if given is None else msgspec.json.encode(given).decode()


def _other(part: Part) -> str:
    kind = p.kind_of(part)
    if kind == p.STEP_START or kind.startswith("data-"):
        return ""
    named = p.name_of(part) or ""
    return f"[{plain(kind)} {plain(one_line(named, 60))}]\n"


def call_details(
    tool: str,
    given: object,
    theme: Theme,
    approval: object = None,
    change: Sequence[str] | None = None,
    *,
    width: int = 1_000,
) -> str:
    """Return a pending call with all its exact arguments, never a model's description of it, and the reason for asking.

    ``change``: lines of a diff to show instead of the arguments.
    """
    head = f"{theme.style('?', 'yellow')} {theme.style(plain(tool), 'bold')}"
    if change is not None:
        asked = "".join(f"{line}\n" for line in change)
    elif isinstance(given, Mapping) and list(given) == ["command"] and isinstance(given["command"], str):
        # As it would be typed, not as JSON.
        lines = given["command"].split("\n")
        asked = "".join(f"{' ' if number else head} {plain(line)}\n" for number, line in enumerate(lines))
    else:
        asked = f"{head} {plain(msgspec.json.format(msgspec.json.encode(given), indent=2).decode())}\n"
    descriptor = approval.get("descriptor") if isinstance(approval, Mapping) else None
    if not isinstance(descriptor, Mapping) or not descriptor.get("reason"):
        return asked
    target = descriptor.get("target")
    about = ""
    if isinstance(target, Mapping) and [target] != descriptor.get("targets"):
        about = f"{target.get('permission')} {target.get('value')}: "
    why = plain(f"needs approval: {one_line(about + str(descriptor['reason']), 1_000)}")
    return asked + theme.style(indented(why, width), "dim") + "\n"


def change_lines(tool: str, given: object, descriptor: object, theme: Theme, width: int = 1_000) -> list[str] | None:
    """Return the change of a call as lines: a head with the counts, then the diff; None if the request has none."""
    change: Any = descriptor.get("change") if isinstance(descriptor, Mapping) else None
    if not isinstance(change, Mapping) or not isinstance(given, Mapping):
        return None
    added, removed, about = change.get("added"), change.get("removed"), change.get("note")
    counts = f"{theme.style(f'+{added}', 'green')} {theme.style(f'−{removed}', 'red')}"
    # The tool definitions of an MCP server have no path.
    path, note = plain(str(given.get("path", ""))), plain(str(about)) if about else ""
    from rich.cells import cell_len

    head = f"{theme.style('?', 'yellow')} {theme.style(tool, 'bold')} {path}  {counts}"
    # After the counts if it fits there, else below them.
    if note and cell_len(f"? {tool} {path}  +{added} −{removed}  {note}") < width:
        heads = [head + theme.style(f"  {note}", "dim")]
    else:
        heads = [head, *(theme.style(line, "dim") for line in indented(note, width).splitlines())]
    return heads + [f"  {diff_line(line, theme)}" for line in str(change.get("diff") or "").splitlines()]


def diff_line(line: str, theme: Theme) -> str:
    """Return a line of a unified diff with its colour."""
    shown, colour = plain(line.expandtabs(4)), _DIFF_COLOURS.get(line[:1])
    return theme.style(shown, colour) if colour else shown


def indented(text: str, width: int) -> str:
    """Return text indented and wrapped at words."""
    return textwrap.fill(text, max(width - 1, 12), initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def history_lines(messages: Sequence[Message], theme: Theme, width: int) -> Iterator[str]:
    """Yield finished messages as they looked live."""
    for message in messages:
        if damage := damage_note(message):
            yield "\n" + theme.style(damage, "red") + "\n"
        if (summary := summary_of(message)) is not None:
            yield theme.style(summary_line(summary), "dim") + "\n"
        elif message.role == "user":
            yield user_lines(message, theme)
        else:
            if note := fallback_note(message):
                yield "\n" + theme.style(note, "dim") + "\n"
            yield from Reply(theme).finished(message.parts, width, final=True)


def damage_note(message: Message) -> str | None:
    """Return what is wrong with a damaged message, and what to do; None if it is intact."""
    if message.damage:
        return f"[damaged: {plain(message.damage)}; to accept it as it is: clew check --accept {plain(message.id)}]"
    return f"[damaged: {NOT_ALL_READABLE}]" if message.is_unreadable else None


def fallback_note(message: Message) -> str | None:
    """Return who answered in place of an agent or a model that is unknown here; None where nothing was replaced."""
    asked, notes = message.fallback_for, []
    if agent := asked.get("agent"):
        notes.append(f"the agent {agent} is unknown here; {message.asked_agent or 'the agent of the session'} answered")
    if model := asked.get("model"):
        used = message.asked_model if isinstance(message.asked_model, Mapping) else {}
        notes.append(f"the model {model} is unknown here; {used.get('provider_id')}/{used.get('model_id')} answered")
    return plain("; ".join(notes)) or None


def stop_reason(turn: Mapping[str, Any], go_on: str) -> str | None:
    """Return why a completed turn has no complete answer, and what to do; None if it has. Takes the turn's ``data``."""
    return {
        "step_limit": f"stopped: limit of {turn.get('max_steps')} steps reached (max_steps in the agent's file); "
        f"{go_on} to resume",
        "doom_loop": f"stopped: repeating the same calls; {go_on} to resume",
        "length": f"the answer was cut off at the output limit; {go_on} to resume",
        "content_filter": "stopped by the provider's content filter",
        "error": "the model ended with an error; ask again",
        "other": f"the model stopped for an unknown reason; {go_on} to resume if the answer is incomplete",
    }.get(str(turn.get("stopped")))


def pause_reason(status: Status, go_on: str) -> str | None:
    """Return why the queue is paused, and what to do; None if it is not paused."""
    if status.paused_by == "waiting":
        return "paused until the pending request is answered"
    if status.paused_by == "person":
        return f"paused by you; {go_on}"
    cause = {"abort": "a stop", "error": "a failure", "restart": "a restart"}.get(status.paused_by or "")
    return f"paused after {cause}; {go_on}" if cause else None


def queue_pause(status: Status, session_id: str) -> str | None:
    """Return the same with a shell command as the next step."""
    # A new prompt does not resume a queue that a person has paused.
    prompt = "" if status.paused_by == "person" else ", or send a prompt,"
    return pause_reason(status, f"`clew continue {session_id} --queue`{prompt} to resume")


def summary_of(message: Message) -> Mapping[str, Any] | None:
    """Return the data of a summary; None for other messages."""
    return next(
        (p.data_of(part, p.COMPACTION_PART) or {} for part in message.parts if p.kind_of(part) == p.COMPACTION_PART),
        None,
    )


def summary_line(data: Mapping[str, Any] | None) -> str:
    turns = (data or {}).get("turns")
    return f"── summarised {turns} earlier turn{'' if turns == 1 else 's'} ──" if turns else "── summarised ──"


def mark_of(part: p.Part) -> str:
    """Return a placeholder for a part without text: its kind, and the name of a file."""
    name = p.file_name_of(part) if p.kind_of(part) == "file" else None
    return f"[{p.kind_of(part)} {name}]" if name else f"[{p.kind_of(part)}]"


def user_lines(message: Message, theme: Theme) -> str:
    """Return a user message as it was typed."""
    seen = [part for part in message.parts if p.kind_of(part) not in p.UNSEEN]
    texts = [mark_of(part) if (text := p.text_of(part)) is None else text for part in seen]
    return "\n" + theme.style(f"› {plain(chr(10).join(texts).translate(_SPACES))}", "bold") + "\n"
