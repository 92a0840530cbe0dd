"""Long pieces of agentic work, the same in every run: a project folder, and the steps that a model takes in it.

A step is one tool call after a sentence of text; the last step of a turn is an answer. In ``errands`` about three in
ten steps read a whole file (4 to 16 kB), the others read a passage, search, edit or run tests: 200 steps add up to
about 1.3 MB of context. In ``talk`` the prompts are long: each has 2 to 12 kB of pasted text, and the model calls few
tools and answers at length, so that there is little to prune.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.talk import text

__all__ = ["WORKS", "Step", "Turn", "Work", "make_project", "turns_of"]

_MODULES: Final = 40
_TEST_RUNS: Final = 60
_PAUSES_S: Final = (0, 90, 240, 60, 900, 45, 120, 2_400, 30)
"""Pauses before the turns, repeated. Two of nine are longer than a provider keeps a prefix."""


@dataclass(frozen=True, slots=True)
class Work:
    """The steps of each turn (and of a ``quick`` run), the kinds of steps, and the lengths of prompts and answers."""

    lengths: Sequence[int]
    quick: Sequence[int]
    kinds: Sequence[str]
    prompt: tuple[int, int] = (300, 300)
    answer: tuple[int, int] = (700, 700)


WORKS: Final[Mapping[str, Work]] = {
    # Short questions, and tasks that take an hour.
    "errands": Work(
        lengths=(8, 20, 40, 12, 60, 4, 10, 30, 16),
        quick=(6, 14, 20),
        kinds=("read", "read", "read", "passage", "grep", "edit", "edit", "test", "test", "grep"),
    ),
    "talk": Work(
        lengths=(2, 4, 3, 1, 5, 2, 3, 4, 2, 4) * 7,
        quick=(2, 4, 3, 1, 5, 2, 3, 4, 2, 4),
        kinds=("passage", "passage", "edit", "edit", "test"),
        prompt=(2_000, 12_000),
        answer=(800, 4_000),
    ),
}


@dataclass(frozen=True, slots=True)
class Step:
    """The model's text and the tool that it calls; the last step of a turn calls none."""

    text: str
    tool: str | None = None
    args: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    prompt: str
    steps: Sequence[Step]
    pause_s: int


def _functions(module: int) -> int:
    """Return the number of functions of a module, such that its file has 4 to 16 kB."""
    return 10 + module * 7 % 31


def _return(module: int, function: int) -> str:
    return f"    return total - {function} * reserve_{module:02}"


def make_project(folder: Path) -> None:
    """Write the project and commit it."""
    (folder / "src").mkdir(parents=True)
    (folder / "runs").mkdir()
    for module in range(_MODULES):
        (folder / f"src/module_{module:02}.py").write_text("\n".join(_source(module)))
    for run in range(_TEST_RUNS):
        (folder / f"runs/{run:02}.txt").write_text("\n".join(_test_output(run)))
    (folder / "test.sh").write_text('cat "runs/$1.txt"\n')
    (folder / "AGENTS.md").write_text(f"# How to work here\n\n{text(1, 3_000)}\n")
    for command in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-q", "-m", "The project")):
        settings = ("-c", "user.name=bench", "-c", "user.email=bench@example.com", "-c", "commit.gpgsign=false")
        subprocess.run(["git", "-C", str(folder), *settings, *command], check=True, stdin=subprocess.DEVNULL)


def _source(module: int) -> Iterator[str]:
    yield f'"""{text(module, 120)}."""\n'
    for function in range(_functions(module)):
        seed = module * 100 + function
        other = (module + function) % _MODULES
        yield f"def handle_{module:02}_{function:02}(order: Order, *, reserve_{module:02}: int = {seed}) -> int:"
        yield f'    """{text(seed, 90)}."""'
        yield "    total = 0"
        yield f"    for item in order.items[:{function + 3}]:"
        yield f"        # {text(seed + 9, 70)}"
        yield f"        total += item.price + handle_{other:02}_{function:02}(item.order)"
        yield f"{_return(module, function)}\n"


def _test_output(run: int) -> Iterator[str]:
    rng = random.Random(run)
    for n in range(rng.randint(10, 80)):
        yield f"tests/test_module_{(run + n) % _MODULES:02}.py::test_{text(n, 24).replace(' ', '_')} PASSED [{n:3}%]"
    for _ in range(rng.randint(0, 2)):
        yield f"FAILED: {text(rng.randint(0, 999), 80)}"
        for line in range(rng.randint(5, 25)):
            yield f"    src/module_{rng.randrange(_MODULES):02}.py:{line * 7 + 3}: {text(line, 60)}"


def turns_of(work: Work, *, quick: bool = False) -> list[Turn]:
    """Return the whole work, by turns."""
    lengths = work.quick if quick else work.lengths
    rng = random.Random(14)
    untouched = [(module, function) for module in range(_MODULES) for function in range(_functions(module))]
    rng.shuffle(untouched)
    turns = []
    for number, length in enumerate(lengths):
        steps = [_step(rng, untouched, work.kinds) for _ in range(length - 1)]
        steps.append(Step(text(rng.randrange(10_000), _between(rng, work.answer))))
        prompt = text(number + 500, _between(rng, work.prompt))
        turns.append(Turn(prompt, steps, _PAUSES_S[number % len(_PAUSES_S)]))
    return turns


def _between(rng: random.Random, ends: tuple[int, int]) -> int:
    # A fixed length draws no random number, so that a work stays the same as in earlier measurements.
    return ends[0] if ends[0] == ends[1] else rng.randint(*ends)


def _step(rng: random.Random, untouched: list[tuple[int, int]], kinds: Sequence[str]) -> Step:
    sentence = text(rng.randrange(10_000), rng.randint(60, 260))
    module = rng.randrange(_MODULES)
    match rng.choice(kinds):
        case "read":
            return Step(sentence, "read", {"path": f"src/module_{module:02}.py"})
        case "passage":
            offset = rng.randint(2, 40)
            return Step(sentence, "read", {"path": f"src/module_{module:02}.py", "offset": offset, "limit": 60})
        case "grep":
            return Step(sentence, "grep", {"pattern": rf"handle_\d+_{rng.randint(0, 9):02}\(", "path": "src"})
        case "edit":
            module, function = untouched.pop()
            old = _return(module, function)
            new = f"    # {text(function, rng.randint(60, 600))}\n{old} - {rng.randint(1, 99)}"
            return Step(sentence, "edit", {"path": f"src/module_{module:02}.py", "old": f"{old}\n", "new": f"{new}\n"})
        case _:
            return Step(sentence, "bash", {"command": f"sh test.sh {rng.randrange(_TEST_RUNS):02}"})
