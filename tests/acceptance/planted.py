"""Facts planted in a long session, each with the plain question a model would ask for it later, and a count of what
became of them: still sent, found again by `recall`, or lost to both."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final

import msgspec

import clew
from clew.providers.base import ModelRequest
from clew.testing.scripted import ScriptedModel, call, fail, say, then
from clew.transcript.usage import Usage

from .compacting import summary

SUBJECTS: Final = tuple(
    f"{kind} {thing}"
    for thing in ("exporter", "scheduler", "cache", "importer", "mailer", "gateway", "ledger", "indexer", "router")
    for kind in ("invoice", "nightly", "session", "tenant", "webhook", "billing", "audit", "search", "draft", "photo")
)
_ENDS: Final = ("start of an output", "middle of an output", "end of an output")
_FILLER: Final = (
    "the {} was looked at and left alone",
    "checked the {}: nothing new, went on",
    "INFO {} started, then waited for its turn",
    "a test of the {} passed after the change in how it waits",
    "the {} is used by what comes after it in the same file",
    "where the {} is made, the code was moved down by a line",
)
_KINDS: Final = ("path", "decision", "number")


class Fact(msgspec.Struct, frozen=True):
    """``value`` stands nowhere else, and is what an answer to ``question`` has to hold."""

    kind: str
    place: str
    text: str
    value: str
    question: str


class Facts:
    """Makes facts, each about a subject of its own, and the long texts around them."""

    def __init__(self, seed: int = 14) -> None:
        self._rng = Random(seed)
        self._subjects = iter(SUBJECTS)
        self.planted: list[Fact] = []

    def plant(self, kind: str, place: str) -> str:
        """One more fact; its sentence."""
        subject, number = next(self._subjects), 1_000 + 37 * len(self.planted)
        name = subject.replace(" ", "_")
        text, value, question = {
            "path": (
                f"The code of the {subject} is in src/{name}/part_{number}.py.",
                f"src/{name}/part_{number}.py",
                f"In which file is the code of the {subject}?",
            ),
            "decision": (
                f"We decided that the {subject} gets plan K{number}, since the other one was slower.",
                f"plan K{number}",
                f"What was decided about the {subject}?",
            ),
            "number": (
                f"The {subject} gives up after {number}7 milliseconds.",
                f"{number}7 milliseconds",
                f"After how many milliseconds does the {subject} give up?",
            ),
            "order": (
                f"Never restart the {subject} without ticket T{number}.",
                f"Never restart the {subject} without ticket T{number}.",
                f"What did the user say about restarting the {subject}?",
            ),
        }[kind]
        self.planted.append(Fact(kind, place, text, value, question))
        return text

    def around(self, chars: int, *held: tuple[float, str]) -> str:
        """A text of so many characters with these sentences in it, each at its share of the length."""
        lines: list[str] = []
        size, left = 0, sorted(held)
        while size < chars or left:
            if left and size >= left[0][0] * chars:
                lines.append(left.pop(0)[1])
            else:
                lines.append(self._rng.choice(_FILLER).format(self._rng.choice(SUBJECTS)))
            size += len(lines[-1]) + 1
        return "\n".join(lines)

    def message(self, chars: int, place: str, *kinds: str) -> str:
        """What a person or the model says, with facts in the middle of it."""
        planted = [(0.4 + n / 10, self.plant(kind, place)) for n, kind in enumerate(kinds)]
        return self.around(chars, *planted)

    def output(self, chars: int, number: int) -> str:
        """What a tool gives back: a fact at its start, in its middle and at its end."""
        planted = [(n / 2, self.plant(_KINDS[(number + n) % 3], place)) for n, place in enumerate(_ENDS)]
        return self.around(chars, *planted)


class Worker(ScriptedModel):
    """A model that plays step after step, each counted at a token for four characters of what it was sent."""

    def __init__(self) -> None:
        super().__init__(otherwise=self._play)
        self.coming: deque[Sequence[Any]] = deque()
        self.asked_with: ModelRequest | None = None
        """What it was sent when it asked for what it could no longer see."""

    def ask(self, facts: Sequence[Fact]) -> None:
        """One step that asks `recall` for each."""
        self.coming.append([call("recall", {"query": fact.question}, id=f"ask{n}") for n, fact in enumerate(facts)])

    def _play(self, request: ModelRequest) -> Any:
        chars = len(request.system) + sum(map(len, sent_texts(request)))
        pieces = self.coming.popleft() if self.coming else [say("so be it")]
        self.asked_with = request if len(pieces) > 2 else self.asked_with
        return then(*pieces, usage=Usage(input=2_000 + chars // 4, output=10))


def sent_texts(request: ModelRequest) -> Iterator[str]:
    """Everything that stands in the messages of a request."""
    for message in request.messages:
        for part in message.parts:
            yield msgspec.json.encode(part).decode()


class Attentive(ScriptedModel):
    """A summariser that overlooks nothing: it takes over each planted sentence it is told, the newest first, as far as
    its summary may go. No summary can hold more, so what it lacks was not told, or found no room."""

    def __init__(self, facts: Facts) -> None:
        super().__init__(otherwise=self._write)
        self._facts = facts
        self.told: list[set[str]] = []
        """The sentences in each of its requests."""

    def _write(self, request: ModelRequest) -> Any:
        given = "\n".join(text for message in request.messages for text in message.texts)
        told = [fact.text for fact in self._facts.planted if fact.text in given]
        self.told.append(set(told))
        room = (request.max_output_tokens or 0) * 3 - len(summary("the work"))
        held: list[str] = []
        for text in reversed(told):
            room -= len(text) + 3
            if room < 0:
                break
            held.append(text)
        return say(summary("the work", *reversed(held)))


def no_summariser() -> ScriptedModel:
    """One whose window is always too small, so that the summary is made by rule."""
    return ScriptedModel(otherwise=lambda request: fail(400, "prompt is too long", kind="overflow"))


class Count(msgspec.Struct, frozen=True):
    """What became of facts. ``told``: to the summariser, ever. ``recalled``: not sent and found. ``lost``: neither."""

    planted: int
    told: int
    sent: int
    recalled: int
    lost: int


def bring(outputs: Sequence[str]) -> Any:
    """A tool that gives back the output of that number."""

    @clew.tool
    async def look_up(number: int, why: str) -> str:
        """Gives much back."""
        return outputs[number]

    return look_up
