"""Terminal input: bytes to keys, and keys to lines, without waiting for either.

The keys are those of any shell: arrows, Home and End, Ctrl-A, -E, -K, -U, -W, -Y, words with Alt, the history with the
arrows, completion with Tab. A line that ends in a backslash goes on in the next one, as it does after Alt-Enter. What
is pasted comes as one piece, lines included; where the terminal does not say what is pasted, several lines that arrive
together are, and an empty line ends them.
"""

from __future__ import annotations

import codecs
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec
from rich.cells import get_character_cell_size

__all__ = ["Act", "Editor", "Key", "Keys"]

_PASTE_START: Final = "\x1b[200~"
_PASTE_END: Final = "\x1b[201~"
_SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O[A-Za-z])")
_SEVERAL: Final = re.compile(
    r"[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*[\r\n]+[^\x00-\x1f\x7f][^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*"
)
"""Lines that came together, with no key among them that is not a character."""
_UNFINISHED: Final = re.compile(r"\x1b(?:\[[0-9;?]*|O)?\Z")
_SEQUENCES: Final = tomllib.loads(Path(__file__).with_name("keys.toml").read_text(encoding="utf-8"))
_NAMES: Final = {sequence: name for name, sequences in _SEQUENCES.items() for sequence in sequences}


class Key(msgspec.Struct, frozen=True):
    """A key by its name; ``text`` and ``paste`` carry what they put in."""

    name: str
    text: str = ""


class Keys:
    """Bytes from a terminal to keys. What is cut in the middle waits for its rest."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes) -> list[Key]:
        text, self._rest = self._rest + self._decoder.decode(data), ""
        keys: list[Key] = []
        while text:
            if text.startswith(_PASTE_START):
                pasted, end, after = text[len(_PASTE_START) :].partition(_PASTE_END)
                if not end:
                    self._rest = text
                    break
                keys.append(Key("paste", _lines(pasted)))
                text = after
            elif text[0] == "\x1b":
                if _UNFINISHED.match(text):
                    self._rest = text
                    break
                match = _SEQUENCE.match(text)
                sequence = match[0] if match else text[:2]
                keys.append(Key(_NAMES.get(sequence, "unknown")))
                text = text[len(sequence) :]
            else:
                length = next((at for at, ch in enumerate(text) if ch < " " or ch == "\x7f"), len(text))
                if _SEVERAL.fullmatch(text):
                    keys.append(Key("paste", _lines(text)))
                    break
                keys.append(Key("text", text[:length]) if length else Key(_NAMES.get(text[0], "unknown")))
                text = text[length or 1 :]
        return keys


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


class Act(msgspec.Struct, frozen=True):
    """What somebody at the keyboard wants: a line sent, or something else to happen."""

    kind: Literal["line", "interrupt", "end", "suspend", "clear", "key"]
    text: str = ""
    asked: int = 0
    """Which question it was typed at, counted from 1; 0 when at none."""


class Editor:
    """The line being written. ``complete`` gives the whole lines that a beginning could become."""

    def __init__(self, history: Sequence[str] = (), complete: Callable[[str], Sequence[str]] | None = None) -> None:
        self.text = ""
        self.cursor = 0
        self.choices: Sequence[str] = ()
        self._history = list(history)
        self._place = len(self._history)
        self._kept = ""
        self._killed = ""
        self._complete = complete

    def set(self, text: str) -> None:
        self.text, self.cursor = text, len(text)

    def remember(self, line: str) -> None:
        """Put a line at the end of the history."""
        if line and (not self._history or self._history[-1] != line):
            self._history.append(line)
        self._place = len(self._history)

    def press(self, key: Key) -> Act | None:
        """Do what a key does; what it asks others to do, if anything."""
        self.choices = ()
        if key.name in ("text", "paste"):
            self._insert(key.text)
            # A paste that nobody announced has no end but an empty line.
            return self._send() if key.name == "paste" and self.text.endswith("\n\n") else None
        if key.name == "enter":
            if self.text[: self.cursor].endswith("\\"):
                self._cut(self.cursor - 1, self.cursor)
                self._insert("\n")
                return None
            return self._send()
        if key.name == "end-of-input":
            if not self.text:
                return Act("end")
            self._cut(self.cursor, self.cursor + 1)
        elif key.name in ("interrupt", "suspend", "clear"):
            return Act(key.name)  # type: ignore[arg-type]  # the three are kinds of acts
        else:
            self._edit(key.name)
        return None

    def _send(self) -> Act:
        line, self.text, self.cursor = self.text.strip("\n"), "", 0
        return Act("line", line)

    def _edit(self, name: str) -> None:
        before, at = self.text[: self.cursor], self.cursor
        moves = {"left": at - 1, "right": at + 1, "home": before.rfind("\n") + 1, "end": self._line_end()}
        moves |= {"word-left": self._word_before(), "word-right": self._word_after()}
        if name in moves:
            self.cursor = min(max(moves[name], 0), len(self.text))
        elif name == "backspace":
            self._cut(at - 1, at)
        elif name == "delete":
            self._cut(at, at + 1)
        elif name == "newline":
            self._insert("\n")
        elif name == "yank":
            self._insert(self._killed)
        elif name == "tab":
            self._finish()
        elif name in ("up", "down"):
            self._recall(-1 if name == "up" else 1)
        else:
            ends = {"kill-end": (at, self._line_end()), "kill-start": (before.rfind("\n") + 1, at)}
            ends |= {"kill-word-before": (self._word_before(), at), "kill-word": (at, self._word_after())}
            if name in ends:
                start, end = ends[name]
                self._killed = self.text[start:end] or self._killed
                self._cut(start, end)

    def _insert(self, text: str) -> None:
        self.text = self.text[: self.cursor] + text + self.text[self.cursor :]
        self.cursor += len(text)

    def _cut(self, start: int, end: int) -> None:
        if start >= 0:
            self.text = self.text[:start] + self.text[end:]
            self.cursor = start

    def _line_end(self) -> int:
        end = self.text.find("\n", self.cursor)
        return len(self.text) if end < 0 else end

    def _word_before(self) -> int:
        return len(re.sub(r"\S+\s*\Z", "", self.text[: self.cursor]))

    def _word_after(self) -> int:
        match = re.match(r"\s*\S+", self.text[self.cursor :])
        return self.cursor + (match.end() if match else 0)

    def _recall(self, step: int) -> None:
        place = self._place + step
        if 0 <= place <= len(self._history):
            if self._place == len(self._history):
                self._kept = self.text
            self._place = place
            self.set(self._kept if place == len(self._history) else self._history[place])

    def _finish(self) -> None:
        """Write on as far as all that it could become agree; beyond that, say what there is."""
        found = list(self._complete(self.text)) if self._complete and self.cursor == len(self.text) else []
        if found:
            first, last = min(found), max(found)
            common = next((at for at, ch in enumerate(first) if last[at : at + 1] != ch), len(first))
            self.set(max(first[:common], self.text, key=len))
            self.choices = found if len(found) > 1 else ()

    def view(self, width: int) -> tuple[str, int]:
        """As much of the line around the cursor as fits into ``width`` cells, and where in them the cursor is."""
        cells = [_cell(ch) for ch in self.text]
        sizes = [get_character_cell_size(cell) for cell in cells]
        start = self.cursor
        room = max(width - 1, 1)
        while start > 0 and sum(sizes[start - 1 : self.cursor]) <= room:
            start -= 1
        end, used = start, 0
        while end < len(cells) and used + sizes[end] <= room:
            used += sizes[end]
            end += 1
        return "".join(cells[start:end]), sum(sizes[start : self.cursor])


def _cell(ch: str) -> str:
    """A character as one that takes its place and does nothing else."""
    if ch == "\n":
        return "⏎"
    return ch if ch.isprintable() else " " if ch.isspace() else "·"
