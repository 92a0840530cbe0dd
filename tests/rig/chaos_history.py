"""The history of a chaos campaign: what was sent and shown, and the judge of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

__all__ = ["History", "Prompt", "View", "judge", "text_of"]


@dataclass
class Prompt:
    """A prompt that was sent. ``answer`` is the expected answer, where it is known."""

    session_id: str
    text: str
    answer: str | None
    acknowledged: bool = False


@dataclass
class View:
    """A stream as one viewer received it. ``done``: it received the end."""

    session_id: str
    replica: int
    message_id: str | None = None
    text: str = ""
    chunks: int = 0
    done: bool = False
    last: str = ""
    """The newest chunks, for debugging."""


@dataclass
class History:
    prompts: list[Prompt] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    operations: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    twice: set[tuple[str, frozenset[str]]] = field(default_factory=set)
    """Sessions that had more than one running turn at a time."""
    recoveries: list[tuple[str, float]] = field(default_factory=list)
    settled: dict[str, str] = field(default_factory=dict)
    """Messages that were read while their session was idle, as they were then."""


def text_of(message: dict[str, Any]) -> str:
    """Return the reasoning and text of a message, in order."""
    return "".join(part["text"] for part in message["parts"] if part["type"] in ("reasoning", "text"))


def judge(
    history: History, messages: dict[str, list[dict[str, Any]]], queued: dict[str, list[dict[str, Any]]], limit_s: float
) -> list[str]:
    """Return each broken guarantee as a sentence. ``messages`` is everything stored in the end, by session."""
    stored = {message["id"]: message for found in messages.values() for message in found}
    broken = [
        f"session {session} had {len(turns)} runs at once: {sorted(turns)}" for session, turns in sorted(history.twice)
    ]
    broken += _judge_prompts(history, messages, queued)
    for view in history.views:
        if view.message_id is None:
            continue
        if view.message_id not in stored:
            broken.append(
                f"message {view.message_id!r} was shown by replica {view.replica} and is not stored ({view.last})"
            )
            continue
        stored_text = text_of(stored[view.message_id])
        if not stored_text.startswith(view.text):
            at = next(
                (n for n, (a, b) in enumerate(zip(stored_text, view.text, strict=False)) if a != b), len(stored_text)
            )
            broken.append(
                f"message {view.message_id}, replica {view.replica}: shown {view.text[max(at - 40, 0) : at + 40]!r} "
                f"where {stored_text[max(at - 40, 0) : at + 40]!r} is stored (at {at})"
            )
        elif view.done and stored_text != view.text:
            broken.append(
                f"message {view.message_id} ended for a viewer of replica {view.replica} after {len(view.text)} "
                f"characters, and {len(stored_text)} are stored ({view.last})"
            )
    for message_id, before in history.settled.items():
        after = text_of(stored[message_id]) if message_id in stored else None
        if after != before:
            broken.append(f"message {message_id} was settled with {len(before)} characters and changed afterwards")
    broken += [
        f"{fault}: the sessions of the replica were released after {took:.1f} s, twice the lease is {limit_s:.1f} s"
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
    """Check that an acknowledged prompt is stored once, and that its answer is a prefix of the expected one."""
    broken = []
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    answers: dict[tuple[str, str], list[str]] = defaultdict(list)
    for session_id, found in messages.items():
        question: str | None = None
        for message in {one["id"]: one for one in [*found, *queued.get(session_id, [])]}.values():
            if message["role"] == "user":
                question = text_of(message)
                counts[session_id][question] += 1
            elif message["role"] == "assistant" and question is not None:
                answers[session_id, question].append(text_of(message))
    for prompt in history.prompts:
        count = counts[prompt.session_id][prompt.text]
        if count > 1 or (prompt.acknowledged and count == 0):
            broken.append(f"session {prompt.session_id}: {prompt.text!r} was acknowledged and is stored {count} times")
        texts = answers[prompt.session_id, prompt.text]
        if len(texts) > 1:
            broken.append(f"session {prompt.session_id}: {prompt.text!r} was answered {len(texts)} times")
        if prompt.answer is not None and not all(prompt.answer.startswith(text) for text in texts):
            broken.append(f"session {prompt.session_id}: the answer to {prompt.text!r} is not the expected one")
    return broken
