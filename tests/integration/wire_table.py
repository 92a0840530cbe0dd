"""What a user must be left with after each case of a wire, played through HTTP, and the table that tells of it.

``python -m tests.integration.wire_table`` writes the table of docs/providers.md anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clew.compaction.budget import estimate_tokens
from clew.transcript.usage import Usage
from tests.integration.wire_cases import (
    ANSWERS,
    REFUSED,
    RICH,
    WIRES,
    Break,
    Heard,
    Wire,
    broken,
    hear,
    phases,
)
from tests.integration.wire_server import Step, ok
from tests.integration.wired import PRICES, SHORT_USAGE, Found, Wired, wired

__all__ = ["DOCUMENT", "Case", "Row", "cut", "documented", "judge", "told", "whole"]

DOCUMENT = Path(__file__).parents[2] / "docs" / "providers.md"
STOPPED = {"length": "length", "content-filter": "content_filter"}
HEAD = (
    "case",
    "words kept",
    "stream, turn",
    "Anthropic",
    "OpenAI chat",
    "OpenAI responses",
    "sent with the next prompt",
)


class Case(msgspec.Struct, frozen=True):
    """A reply and what is heard of it, or ``perhaps`` less: a reset overtakes bytes that were sent before it.

    ``silent_after`` so many characters, where it falls silent.
    """

    name: str
    steps: list[Step]
    heard: Heard
    silent_after: int | None = None
    retried: bool = True
    perhaps: tuple[Heard, ...] = ()


def whole(wire: Wire) -> Iterator[Case]:
    for name, answers in ANSWERS.items():
        yield Case(name, [*ok(), *answers[wire]], hear(wire, answers[wire]))
    for name, steps in REFUSED.items():
        yield Case(name, steps, Heard(), retried=name != "400 before")


def cut(wire: Wire, count: int, how: Break, name: str) -> Case:
    heard = hear(wire, ANSWERS[RICH][wire][:count])
    words = len(heard.reasoning + heard.text + heard.arguments) if how == "falls silent" else None
    less = tuple(hear(wire, ANSWERS[RICH][wire][:n]) for n in range(count)) if how == "resets" else ()
    return Case(name, broken(wire, ANSWERS[RICH][wire][:count], how), heard, words, perhaps=less)


def expected(case: Case, found: Found) -> Found:
    """What is to be found after the reply, and short answers to whatever is asked after it."""
    heard = case.heard
    text, reasoning = heard.text, heard.reasoning
    used, estimated = heard.said or Usage(), False
    stream, ran = "stop", 0
    turn: tuple[str, str | None] = ("completed", None)
    if heard.ended:
        stream, turn = str(heard.finish), ("completed", STOPPED.get(str(heard.finish)))
        estimated = heard.said is None
    elif heard.anything or not case.retried:
        stream, turn, estimated = "error", ("failed", None), heard.anything
    else:
        # Nothing was shown of it, so it was asked again; what it had cost by then it has cost.
        text, estimated = "fine", heard.said is not None
    if estimated:
        # The rest is taken from what came of it. What was sent is known only where the wire had counted it.
        # Of arguments that are cut, as much counts as reads as JSON.
        arguments = heard.arguments if heard.arguments.endswith("}") else "{}"
        called = f"note{arguments}" if heard.called else ""
        used = msgspec.structs.replace(
            used,
            input=used.input if heard.said else max(found.usage.input - (10 if heard.ended else 0), 1),
            output=max(used.output, estimate_tokens(len(heard.text + called))),
            reasoning=max(used.reasoning, estimate_tokens(len(heard.reasoning))),
        )
    if heard.ended and heard.called:
        # Its tool ran, and the model was told what came of it.
        text, ran, stream = text + "fine", 1, "stop"
    if text.endswith("fine"):
        used = used + SHORT_USAGE
    return Found(
        reasoning=reasoning,
        text=text,
        stream=stream,
        turn=turn,
        usage=used,
        estimated=estimated,
        cost=pytest.approx(PRICES.cost(used)),  # type: ignore[arg-type]
        ran=ran,
    )


async def judge(server: Wired, case: Case) -> tuple[Found, str]:
    """Play a case, then the next prompt: what was found, and what of the turn the model was sent again."""
    session_id = await server.begin(case.steps)
    found = await server.found(session_id, await server.prompt(session_id, "go", patient_until=case.silent_after))
    wanted = [expected(msgspec.structs.replace(case, heard=heard), found) for heard in (case.heard, *case.perhaps)]
    assert found in wanted, (case.name, found, wanted[0])
    frames = await server.prompt(session_id, "and on")
    assert frames[-1] == {"type": "finish", "finishReason": "stop"}, (case.name, server.wire.refused)
    assert server.wire.refused == [], case.name
    return found, _sent(server.wire.requests[-1].json)


def _sent(body: Any) -> str:
    """What of an answer is in a request."""
    items = body.get("messages") or body["input"]
    said = [
        item for item in items if item.get("role") == "assistant" or item.get("type") in ("function_call", "reasoning")
    ]
    text = str(said)
    words = [
        name for name, sign in (("the thought", "Let me"), ("the words", "One"), ("the call", "note")) if sign in text
    ]
    words += ["the refusal"] if "I can" in text else []
    words += ["the answer"] if "fine" in text and not words else []
    return ", ".join(words) or "nothing of it"


class Row(msgspec.Struct, frozen=True):
    """A case as the table tells of it on one wire."""

    words: str
    ending: str
    bill: str
    sent: str


async def told(server: Wired, wire: Wire) -> AsyncIterator[tuple[str, Row]]:
    """Every case of the table, played and judged."""
    named = [cut(wire, count, "ends", f"cut {phase}") for phase, count in phases(wire).items()]
    for case in [*whole(wire), *named]:
        found, sent = await judge(server, case)
        words = " ".join(f"*{found.reasoning}* {found.text}".replace("**", "").split())
        ending = ", ".join(word for word in (found.stream, *found.turn) if word)
        used = found.usage
        bill = f"{used.input}+{used.cache_read}+{used.cache_write}, {used.output}+{used.reasoning}, ${found.cost:.6f}"
        if found.estimated:
            bill = f"≈ {bill}" if case.heard.said is not None else "≈ all of it"
        yield case.name, Row(words, ending, bill, sent)


def documented(wire: Wire) -> dict[str, Row]:
    """The rows of the table for this wire."""
    lines = [line for line in DOCUMENT.read_text("utf-8").splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    start = rows.index(list(HEAD)) + 1
    return {row[0]: Row(row[1], row[2], row[3 + WIRES.index(wire)], row[6]) for row in rows[start:]}


async def _write() -> None:
    by_wire: dict[Wire, dict[str, Row]] = {}
    for wire in WIRES:
        async with wired(wire) as server:
            by_wire[wire] = {name: row async for name, row in told(server, wire)}
    lines = [f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
    for name, row in by_wire["anthropic"].items():
        bills = [by_wire[wire][name].bill for wire in WIRES]
        lines.append(f"| {name} | {row.words} | {row.ending} | {' | '.join(bills)} | {row.sent} |")
    before, mark, after = DOCUMENT.read_text("utf-8").partition(lines[0])
    rest = (
        "\n".join(after.splitlines()[1:][len([x for x in after.splitlines()[1:] if x.startswith("|")]) :])
        if mark
        else ""
    )
    DOCUMENT.write_text(before + "\n".join(lines) + "\n" + rest, "utf-8")


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clew.providers.retry._FIRST_MS", 1)
        asyncio.run(_write())
