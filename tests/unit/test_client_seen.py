"""What a client has seen: a stream cut anywhere and joined again is shown once, whole and in order."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from clew.transcript import chunk as c
from clew.transcript.fold import Fold
from clew.transcript.replay import replay
from clew.transcript.seen import Seen
from tests.rounds import rounds
from tests.unit.test_mirror import in_steps

pytestmark = pytest.mark.rule("EM-5")


def connections(seed: int) -> tuple[list[list[dict[str, Any]]], Fold]:
    """A random stream as a client gets it that is cut off now and then: what each connection shows, and the truth."""
    chance, chunks = Random(seed), in_steps(seed)
    chunks = [c.Start("m1"), *(one for one in chunks if not isinstance(one, c.Start))]
    stored, place, came = Fold("m1"), 0, list[list[c.Chunk]]()
    while place < len(chunks):
        until = len(chunks) if len(came) > 4 else min(len(chunks), place + chance.randint(1, 25))
        shown = [*replay(stored.message(), open_ids=stored.open_ids)] if came else []
        shown += chunks[place:until]
        for chunk in chunks[place:until]:
            stored.apply(chunk)
        came.append(shown)
        # Whoever is cut off has been shown less than is stored, or as much.
        lost = chance.randint(0, 5) if until < len(chunks) else 0
        came[-1] = shown[: max(1, len(shown) - lost)]
        place = until
    return [[c.chunk_dict(chunk) for chunk in one] for one in came], stored


def told(fold: Fold) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Its parts and its metadata, but for what no chunk says afterwards: what was written of a failed call's arguments
    when they stopped making sense, and that an id was used again while another text was left open under it."""
    parts = [dict(part) for part in fold.parts]
    for part in parts:
        if part.get("state") == "output-error":
            part.pop("input", None), part.pop("rawInput", None)
        if part["type"] == "reasoning":
            part["id"] = part["id"].rstrip("+")
    odd = ("__proto__", "constructor", "prototype")
    return parts, {key: value for key, value in (fold.metadata or {}).items() if key not in odd}


@pytest.mark.parametrize("seeds", [range(n, n + rounds(60)) for n in range(0, 6_000, 1_000)])
def test_a_stream_cut_anywhere_is_shown_once_and_whole(seeds: range) -> None:
    """A client that holds it against the fold, which refuses what comes twice, has what is stored."""
    for seed in seeds:
        came, stored = connections(seed)
        seen, client = Seen(), Fold("m1")
        for number, chunks in enumerate(came):
            if number:
                seen.join_again()
            for given in chunks:
                for chunk in seen.take(given):
                    client.apply(c.parse_chunk(chunk))
        assert told(client) == told(stored), seed


ENDED_AGAIN: list[list[dict[str, Any]]] = [
    [
        {"type": "start", "messageId": "m1"},
        {"type": "start-step"},
        {"type": "text-start", "id": "t1"},
        {"type": "text-delta", "id": "t1", "delta": "half"},
        {"type": "error", "errorText": "the connection was lost"},
        {"type": "finish", "finishReason": "error"},
    ],
    [
        {"type": "start", "messageId": "m1"},
        {"type": "start-step"},
        {"type": "text-start", "id": "r1"},
        {"type": "text-delta", "id": "r1", "delta": "half"},
        {"type": "finish-step"},
        {"type": "finish", "finishReason": "tool-calls"},
        {"type": "start", "messageId": "m2"},
        {"type": "abort"},
    ],
    [
        {"type": "start", "messageId": "m2"},
        {"type": "finish", "finishReason": "error"},
    ],
]
"""Connections of a server that says of a message that was cut, or aborted, how its turn went on from it."""


def test_a_message_that_has_ended_does_not_end_again() -> None:
    """Neither by another word for its end, nor by the end of the step that it was cut in."""
    seen = Seen()
    told = list[list[dict[str, Any]]]()
    for chunks in ENDED_AGAIN:
        seen.join_again()
        told.append([fresh for chunk in chunks for fresh in seen.take(chunk)])
    assert told == [ENDED_AGAIN[0], ENDED_AGAIN[1][-2:], []]
