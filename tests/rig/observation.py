"""Observes everything that a store shows and sends, and compares two observations.

A difference is reported by an error, a message marked as damaged (a part ``data-damaged``, or the word in what is
sent), evidence marked as not proven, or a problem found by the judge. For text, prompts and blobs the report must be
where they are shown or sent; for missing data any problem found by the judge is enough.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from clew.errors import ClewError, InvalidInput, NotFound
from clew.session.api import Engine
from clew.session.history.check import check
from clew.testing.scripted import say
from clew.transcript.fold_part import continues
from tests.rig.history_child import open_at

__all__ = ["Observation", "compare", "observe"]

_VIEWS: Final = ("all", "visible", "model")
_DAMAGE_MARKS: Final = re.compile("damaged|missing|^aborted by host restart|^output-error$", re.IGNORECASE)
"""Texts that the model may receive in place of stored ones."""
_SEARCH_TERM: Final = "the"
_PROMPT: Final = "And now, what do we know?"


@dataclass
class Observation:
    """Everything shown, sent and reported; empty if the store did not open."""

    sessions: list[str] = field(default_factory=list)
    messages: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By session and view, then by message: role and parts."""
    blobs: dict[str, bytes] = field(default_factory=dict)
    evidence: dict[tuple[str, int], tuple[bool, list[str]]] = field(default_factory=dict)
    """By turn and step: whether it is marked as proven, and what was sent."""
    pages: dict[str, str] = field(default_factory=dict)
    """Each session, exported as Markdown."""
    sent: dict[str, list[str]] = field(default_factory=dict)
    reads: dict[str, Any] = field(default_factory=dict)
    """Other reads of a store: lists in order, trees, queues, search hits, sums."""
    problems: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)

    @property
    def reports_damage(self) -> bool:
        return bool(self.problems or self.errors)

    def fail(self, where: str, error: Exception) -> None:
        if isinstance(error, NotFound | InvalidInput):
            # "Not found" is no report: it would be the same if the data had never existed.
            self.absent.append(f"{where}: {error.code}")
        elif isinstance(error, ClewError):
            self.errors.append(f"{where}: {error.code}: {error}")
        else:
            self.crashes.append(f"{where}: {error!r}")
            self.errors.append(f"{where}: {error!r}")


async def observe(url: str, now_ms: int, known: Observation | None = None, *, ask: bool = True) -> Observation:
    """Open the store, which recovers it, and read everything, using the names in ``known`` for a copy of that store."""
    seen = Observation()
    try:
        async with open_at(url, now_ms) as engine:
            seen.problems = [str(problem) for problem in await check(engine.store)]
            await _read(engine, seen, known)
            if ask:
                for session_id in known.sessions if known else seen.sessions:
                    await _ask(engine, session_id, seen)
    except Exception as error:
        seen.fail("open", error)
    return seen


async def _read(engine: Engine, seen: Observation, known: Observation | None) -> None:
    try:
        page = await engine.list_sessions(limit=200, kind="any", archived=True, ephemeral=True)
        seen.sessions = [session.id for session in page.sessions]
        seen.reads["list"] = [(one.id, one.title, one.total_tokens, one.spend.calls) for one in page.sessions]
    except Exception as error:
        seen.fail("list", error)
    turns: list[str] = []
    for session_id in known.sessions if known else seen.sessions:
        for view in _VIEWS:
            try:
                found = await engine.messages(session_id, view=view)
            except Exception as error:
                seen.fail(f"{session_id} {view}", error)
                continue
            shown = {message.id: {"role": message.role, "parts": _plain(message.parts)} for message in found}
            seen.messages[f"{session_id} {view}"] = shown
        try:
            seen.pages[session_id] = (await engine.export(session_id, "md", hidden=True)).decode()
        except Exception as error:
            seen.fail(f"{session_id} export", error)
        try:
            tree = [(turn.id, turn.parent_turn_id, turn.status) for turn in (await engine.tree(session_id)).turns]
            seen.reads[f"{session_id} tree"] = tree
            turns += [turn_id for turn_id, *_ in tree]
            seen.reads[f"{session_id} queue"] = [_plain(one.parts) for one in await engine.queue(session_id)]
        except Exception as error:
            seen.fail(f"{session_id} tree", error)
    try:
        groups = (await engine.usage("session")).groups
        seen.reads["usage"] = sorted((str(one.key), one.calls, one.input, one.output) for one in groups)
        if engine.store.capabilities.search:
            hits = (await engine.search(_SEARCH_TERM, limit=100)).hits
            seen.reads["search"] = sorted((hit.message_id, hit.part_id) for hit in hits)
    except Exception as error:
        seen.fail("sums", error)
    for sha in known.blobs if known else _blobs_in(seen):
        try:
            blob = await engine.store.find_blob(sha)
            if blob is not None:
                seen.blobs[sha] = blob.data
        except Exception as error:
            seen.fail(f"blob {sha[:8]}", error)
    for turn_id, step in known.evidence if known else [(turn_id, 0) for turn_id in turns]:
        try:
            request = await engine.request(turn_id, step)
        except Exception as error:
            seen.fail(f"request of {turn_id}", error)
            continue
        leaves = [*_leaves(_plain(request.prompt)), *_leaves(_plain([one.parts for one in request.messages]))]
        seen.evidence[turn_id, step] = (request.proven, leaves)


async def _ask(engine: Engine, session_id: str, seen: Observation) -> None:
    """Send a prompt and record what the model receives."""
    model: Any = engine.host.providers.get("test")
    # One answer is enough: the first request contains what was stored.
    model._otherwise = say("So be it.")
    before = len(model.requests)
    try:
        async for _ in engine.run(session_id, _PROMPT):
            pass
        async for status in engine.watch_status(session_id):
            if status.state in ("idle", "error") and engine.is_idle(session_id):
                break
    except Exception as error:
        seen.fail(f"run on {session_id}", error)
    requests = model.requests[before:]
    seen.sent[session_id] = [
        leaf for one in requests[:1] for leaf in (one.system, *_leaves(_plain([m.parts for m in one.messages])))
    ]


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value)


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict) and value.get("type") == "data-damaged":
        yield "damaged"  # a report, whatever else it contains
    elif isinstance(value, dict):
        for key, one in value.items():
            if key not in ("id", "toolCallId", "approvalId"):
                yield from _leaves(one)
    elif isinstance(value, list):
        for one in value:
            yield from _leaves(one)


def _blobs_in(seen: Observation) -> list[str]:
    leaves = {leaf for shown in seen.messages.values() for one in shown.values() for leaf in _leaves(one["parts"])}
    return sorted({leaf.rpartition("/")[2] for leaf in leaves if "/blobs/" in leaf})


def _reports_damage(value: Any) -> bool:
    return any("damaged" in leaf.lower() for leaf in _leaves(value))


# Comparing


def compare(truth: Observation, seen: Observation, *, rolls_back: bool = False) -> tuple[set[str], list[str]]:
    """Return the kinds of differences, and every unreported difference.

    ``rolls_back``: the damage is in the newest commits, so a message may be as before them, if that is reported.
    """
    kinds: set[str] = set()
    silent: list[str] = []
    for name, shown in truth.messages.items():
        if name in seen.messages:
            _compare_shown(name, shown, seen, kinds, silent, rolls_back)
        else:
            kinds.add("does not open")
    for sha, data in seen.blobs.items():
        if hashlib.sha256(data).hexdigest() != sha:
            kinds.add("blob changed")
            silent.append(f"blob {sha[:12]} was returned with changed data")
    lost = [sha for sha in truth.blobs if sha not in seen.blobs]
    lost += [session_id for session_id in truth.sessions if session_id not in seen.sessions]
    if lost:
        kinds.add("something is missing")
        silent += [] if seen.reports_damage else [f"{one} is missing" for one in lost]
    for key, (proven, leaves) in seen.evidence.items():
        if leaves != truth.evidence[key][1]:
            kinds.add("evidence changed")
            silent += [f"the request of {key[0]} differs and is marked as proven"] if proven else []
        elif not proven and truth.evidence[key][0]:
            kinds.add("evidence not proven")
    for session_id, page in seen.pages.items():
        if not rolls_back and page != truth.pages[session_id]:
            kinds.add("exported differently")
            silent += (
                [] if "damaged" in page or seen.reports_damage else [f"{session_id}: its page differs without a report"]
            )
    for name, found in seen.reads.items():
        if name in truth.reads and found != truth.reads[name] and not rolls_back:
            kinds.add("read differently")
            silent += [] if seen.reports_damage else [f"{name}: {found} is not {truth.reads[name]}"]
    known_lines = _lines_of(truth) if rolls_back and seen.reports_damage else set()
    for session_id, leaves in seen.sent.items():
        # Without its summary the hidden messages are sent again; they belong to this session.
        own = truth.messages.get(f"{session_id} all", {}) if seen.reports_damage else {}
        written = set(_leaves([one["parts"] for one in own.values()]))
        _compare_sent(session_id, truth.sent.get(session_id, []), leaves, kinds, silent, known_lines | written)
    if seen.crashes:
        kinds.add("an error without a code")
    if not kinds and seen.reports_damage:
        kinds.add("reported, nothing shown differs")
    return kinds or {"no difference"}, silent


def _compare_shown(
    name: str, shown: dict[str, Any], seen: Observation, kinds: set[str], silent: list[str], rolls_back: bool
) -> None:
    found = seen.messages[name]
    for message_id, is_ in found.items():
        was = shown.get(message_id)
        if was == is_:
            continue
        if _reports_damage(is_["parts"]):
            kinds.add("shown as damaged")
        elif was is None:
            kinds.add("something is there that was not")
            known = any(is_ == one for one in shown.values())
            silent += [] if known or seen.reports_damage else [f"{name}: {message_id} was never written"]
        elif rolls_back and _is_earlier(was, is_):
            kinds.add("something is missing")
            silent += [] if seen.reports_damage else [f"{name}: {message_id} is as before its end"]
        else:
            kinds.add("text changed")
            silent.append(f"{name}: {message_id} is shown with changed text: {_first_difference(was, is_)}")
    missing = [message_id for message_id in shown if message_id not in found]
    if missing:
        kinds.add("something is missing")
        silent += [] if seen.reports_damage else [f"{name}: {len(missing)} messages are missing, such as {missing[0]}"]
    common = [message_id for message_id in shown if message_id in found]
    if common != [message_id for message_id in found if message_id in shown]:
        kinds.add("order changed")
        silent += [] if seen.reports_damage else [f"{name}: the order differs"]


def _is_earlier(was: dict[str, Any], is_: dict[str, Any]) -> bool:
    """Return whether the message is an earlier state, ended by a restart: a loss, but no changed text."""
    return bool(was["role"] == is_["role"] and continues(was["parts"], [_reopened(part) for part in is_["parts"]]))


def _reopened(part: dict[str, Any]) -> dict[str, Any]:
    if str(part.get("errorText", "")).startswith("aborted by host restart"):
        return {**{key: one for key, one in part.items() if key != "errorText"}, "state": "input-available"}
    return {**part, "state": "streaming"} if part.get("type") in ("text", "reasoning") else part


def _lines_of(truth: Observation) -> set[str]:
    """Return every line ever shown or sent, which a store that reports lost commits may return to."""
    shown = [leaf for found in truth.messages.values() for one in found.values() for leaf in _leaves(one["parts"])]
    sent = [leaf for _, leaves in truth.evidence.values() for leaf in leaves]
    sent += [leaf for leaves in truth.sent.values() for leaf in leaves]
    return {line for leaf in (*shown, *sent) for line in leaf.splitlines()}


def _compare_sent(
    session_id: str, was: list[str], is_: list[str], kinds: set[str], silent: list[str], known_lines: set[str]
) -> None:
    known = set(was)
    wrong = [leaf for leaf in is_ if leaf not in known and not _DAMAGE_MARKS.search(leaf)]
    wrong = [leaf for leaf in wrong if not known_lines or not known_lines.issuperset(leaf.splitlines())]
    if wrong:
        kinds.add("changed text sent")
        silent.append(f"{session_id}: the model was sent {wrong[0][:120]!r}, which was never written")
    elif is_ != was:
        kinds.add("sent with less")


def _first_difference(was: Any, is_: Any) -> str:
    before, after = list(_leaves(was)), list(_leaves(is_))
    for one, other in zip(before, after, strict=False):
        if one != other:
            index = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
            return f"{one[max(index - 10, 0) : index + 10]!r} is {other[max(index - 10, 0) : index + 10]!r}"
    return f"{len(before)} pieces are {len(after)}"
