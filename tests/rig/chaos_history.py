"""What was said and shown while everything went wrong, and the judge of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

__all__ = ["History", "Prompt", "View", "judge", "said_in"]


@dataclass
class Prompt:
    """A prompt that was sent. ``answer`` is what its model says to it, where that is known beforehand."""

    session_id: str
    text: str
    answer: str | None
    acknowledged: bool = False


@dataclass
class View:
    """A stream as one viewer read it. ``done``: it was told that this is all."""

    session_id: str
    replica: int
    message_id: str | None = None
    said: str = ""
    chunks: int = 0
    done: bool = False
    last: str = ""
    """The newest chunks, for whoever reads what went wrong."""


@dataclass
class History:
    prompts: list[Prompt] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    operations: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    twice: set[tuple[str, frozenset[str]]] = field(default_factory=set)
    """Sessions with more than one turn at work at one moment."""
    recoveries: list[tuple[str, float]] = field(default_factory=list)
    settled: dict[str, str] = field(default_factory=dict)
    """Each message that was read while nothing ran on its session, as it was then."""


def said_in(message: dict[str, Any]) -> str:
    """Reasoning and text of a message, in order."""
    return "".join(part["text"] for part in message["parts"] if part["type"] in ("reasoning", "text"))


def judge(
    history: History, messages: dict[str, list[dict[str, Any]]], queued: dict[str, list[dict[str, Any]]], limit_s: float
) -> list[str]:
    """Each promise that was broken, in a sentence; ``messages`` is all that is stored in the end, by session."""
    stored = {message["id"]: message for found in messages.values() for message in found}
    broken = [
        f"session {session} had {len(turns)} runs at once: {sorted(turns)}" for session, turns in sorted(history.twice)
    ]
    broken += _judge_prompts(history, messages, queued)
    for view in history.views:
        if view.message_id is None:
            continue
        if view.message_id not in stored:
            broken.append(f"message {view.message_id!r} was shown by replica {view.replica} and is gone ({view.last})")
            continue
        kept = said_in(stored[view.message_id])
        if not kept.startswith(view.said):
            at = next((n for n, (a, b) in enumerate(zip(kept, view.said, strict=False)) if a != b), len(kept))
            broken.append(
                f"message {view.message_id}, replica {view.replica}: shown {view.said[max(at - 40, 0) : at + 40]!r} "
                f"where {kept[max(at - 40, 0) : at + 40]!r} is stored (at {at})"
            )
        elif view.done and kept != view.said:
            broken.append(
                f"message {view.message_id} ended for a viewer of replica {view.replica} after {len(view.said)} "
                f"characters, and {len(kept)} are stored ({view.last})"
            )
    for message_id, before in history.settled.items():
        after = said_in(stored[message_id]) if message_id in stored else None
        if after != before:
            broken.append(f"message {message_id} was settled with {len(before)} characters and changed afterwards")
    broken += [
        f"{fault}: the sessions of the replica were free after {took:.1f} s, twice the lease is {limit_s:.1f} s"
        for fault, took in history.recoveries
        if took > limit_s
    ]
    done = history.operations.total()
    if done and history.failures.total() > done / 10:
        broken.append(f"{history.failures.total()} of {done} operations failed: {dict(history.failures)}")
    return broken


def _judge_prompts(
    history: History, messages: dict[str, list[dict[str, Any]]], queued: dict[str, list[dict[str, Any]]]
) -> list[str]:
    """An acknowledged prompt is there once, and its answer is a beginning of what its model says."""
    broken = []
    told: defaultdict[str, Counter[str]] = defaultdict(Counter)
    answers: dict[tuple[str, str], list[str]] = defaultdict(list)
    for session_id, found in messages.items():
        asked: str | None = None
        for message in {one["id"]: one for one in [*found, *queued.get(session_id, [])]}.values():
            if message["role"] == "user":
                asked = said_in(message)
                told[session_id][asked] += 1
            elif message["role"] == "assistant" and asked is not None:
                answers[session_id, asked].append(said_in(message))
    for prompt in history.prompts:
        count = told[prompt.session_id][prompt.text]
        if count > 1 or (prompt.acknowledged and count == 0):
            broken.append(f"session {prompt.session_id}: {prompt.text!r} was acknowledged and is there {count} times")
        given = answers[prompt.session_id, prompt.text]
        if len(given) > 1:
            broken.append(f"session {prompt.session_id}: {prompt.text!r} was answered {len(given)} times")
        if prompt.answer is not None and not all(prompt.answer.startswith(said) for said in given):
            broken.append(f"session {prompt.session_id}: the answer to {prompt.text!r} is not what its model says")
    return broken
