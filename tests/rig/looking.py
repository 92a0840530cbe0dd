"""A look at everything a store shows and sends, and the comparison of two of them.

What counts as a word: an error, a message that says it is damaged (a part ``data-damaged``, or the word in what is
sent), evidence that says it is not proven, a problem named by the judge. For text, prompts and blobs the word must
stand where they are shown or sent; for what is missing it is enough that the judge names something.
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

__all__ = ["Seen", "compare", "look_at"]

_VIEWS: Final = ("all", "visible", "model")
_WORDS: Final = re.compile("damaged|missing|^aborted by host restart|^output-error$", re.IGNORECASE)
"""What the model may be sent in the place of what was stored."""
_WORD: Final = "the"
_PROMPT: Final = "And now, what do we know?"


@dataclass
class Seen:
    """What was shown, what was sent, what was said to be wrong; nothing of it when the store did not open."""

    sessions: list[str] = field(default_factory=list)
    messages: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By session and view, then by message: role and parts."""
    blobs: dict[str, bytes] = field(default_factory=dict)
    evidence: dict[tuple[str, int], tuple[bool, list[str]]] = field(default_factory=dict)
    """By turn and step: whether it is said to be proven, and what was sent."""
    pages: dict[str, str] = field(default_factory=dict)
    """Each session as a page for reading."""
    sent: dict[str, list[str]] = field(default_factory=dict)
    reads: dict[str, Any] = field(default_factory=dict)
    """What else is asked of a store: lists in their order, trees, queues, hits of a search, sums."""
    problems: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)

    @property
    def spoke(self) -> bool:
        return bool(self.problems or self.errors)

    def fail(self, where: str, error: Exception) -> None:
        if isinstance(error, NotFound | InvalidInput):
            # That something is not there is what would also be said if it never had been.
            self.absent.append(f"{where}: {error.code}")
        elif isinstance(error, ClewError):
            self.errors.append(f"{where}: {error.code}: {error}")
        else:
            self.crashes.append(f"{where}: {error!r}")
            self.errors.append(f"{where}: {error!r}")


async def look_at(url: str, now_ms: int, known: Seen | None = None, *, ask: bool = True) -> Seen:
    """Open the store, which recovers it, and look: with the names in ``known``, where it is a copy of that store."""
    seen = Seen()
    try:
        async with open_at(url, now_ms) as engine:
            seen.problems = [str(problem) for problem in await check(engine.store)]
            await _look(engine, seen, known)
            if ask:
                for session_id in known.sessions if known else seen.sessions:
                    await _ask(engine, session_id, seen)
    except Exception as error:
        seen.fail("open", error)
    return seen


async def _look(engine: Engine, seen: Seen, known: Seen | None) -> None:
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
            hits = (await engine.search(_WORD, limit=100)).hits
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


async def _ask(engine: Engine, session_id: str, seen: Seen) -> None:
    """Send a prompt, and keep what the model was sent."""
    model: Any = engine.host.providers.get("test")
    # It need not look at anything: what it is sent first is what was stored.
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
        yield "damaged"  # whatever else it says: it speaks for itself
    elif isinstance(value, dict):
        for key, one in value.items():
            if key not in ("id", "toolCallId", "approvalId"):
                yield from _leaves(one)
    elif isinstance(value, list):
        for one in value:
            yield from _leaves(one)


def _blobs_in(seen: Seen) -> list[str]:
    leaves = {leaf for shown in seen.messages.values() for one in shown.values() for leaf in _leaves(one["parts"])}
    return sorted({leaf.rpartition("/")[2] for leaf in leaves if "/blobs/" in leaf})


def _says_damaged(value: Any) -> bool:
    return any("damaged" in leaf.lower() for leaf in _leaves(value))


# Comparing


def compare(truth: Seen, seen: Seen, *, rolls_back: bool = False) -> tuple[set[str], list[str]]:
    """What kinds of difference there are, and every one that came without a word.

    ``rolls_back``: what was hit holds the newest commits, so a message may be as it was before them; if that is said.
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
            silent.append(f"blob {sha[:12]} was given out, and is not what it was")
    lost = [sha for sha in truth.blobs if sha not in seen.blobs]
    lost += [session_id for session_id in truth.sessions if session_id not in seen.sessions]
    if lost:
        kinds.add("something is missing")
        silent += [] if seen.spoke else [f"{one} is missing" for one in lost]
    for key, (proven, leaves) in seen.evidence.items():
        if leaves != truth.evidence[key][1]:
            kinds.add("evidence changed")
            silent += [f"the request of {key[0]} differs, and is said to be proven"] if proven else []
        elif not proven and truth.evidence[key][0]:
            kinds.add("evidence not proven")
    for session_id, page in seen.pages.items():
        if not rolls_back and page != truth.pages[session_id]:
            kinds.add("exported otherwise")
            silent += [] if "damaged" in page or seen.spoke else [f"{session_id}: its page differs, and says nothing"]
    for name, found in seen.reads.items():
        if name in truth.reads and found != truth.reads[name] and not rolls_back:
            kinds.add("read otherwise")
            silent += [] if seen.spoke else [f"{name}: {found} is not {truth.reads[name]}"]
    told = _lines_of(truth) if rolls_back and seen.spoke else set()
    for session_id, leaves in seen.sent.items():
        # Without its summary, what that had hidden is sent again: it was written in this session all the same.
        own = truth.messages.get(f"{session_id} all", {}) if seen.spoke else {}
        written = set(_leaves([one["parts"] for one in own.values()]))
        _compare_sent(session_id, truth.sent.get(session_id, []), leaves, kinds, silent, told | written)
    if seen.crashes:
        kinds.add("an error without a name")
    if not kinds and seen.spoke:
        kinds.add("named, nothing shown differs")
    return kinds or {"no difference"}, silent


def _compare_shown(
    name: str, shown: dict[str, Any], seen: Seen, kinds: set[str], silent: list[str], rolls_back: bool
) -> None:
    found = seen.messages[name]
    for message_id, is_ in found.items():
        was = shown.get(message_id)
        if was == is_:
            continue
        if _says_damaged(is_["parts"]):
            kinds.add("shown as damaged")
        elif was is None:
            kinds.add("something is there that was not")
            known = any(is_ == one for one in shown.values())
            silent += [] if known or seen.spoke else [f"{name}: {message_id} was never written"]
        elif rolls_back and _is_earlier(was, is_):
            kinds.add("something is missing")
            silent += [] if seen.spoke else [f"{name}: {message_id} is as it was before it ended"]
        else:
            kinds.add("text changed")
            silent.append(f"{name}: {message_id} is shown with other words: {_first_difference(was, is_)}")
    missing = [message_id for message_id in shown if message_id not in found]
    if missing:
        kinds.add("something is missing")
        silent += [] if seen.spoke else [f"{name}: {len(missing)} messages are missing, such as {missing[0]}"]
    common = [message_id for message_id in shown if message_id in found]
    if common != [message_id for message_id in found if message_id in shown]:
        kinds.add("order changed")
        silent += [] if seen.spoke else [f"{name}: the order is another"]


def _is_earlier(was: dict[str, Any], is_: dict[str, Any]) -> bool:
    """Whether the message is as it was before later commits, ended by a restart: a loss, and no other words."""
    return bool(was["role"] == is_["role"] and continues(was["parts"], [_reopened(part) for part in is_["parts"]]))


def _reopened(part: dict[str, Any]) -> dict[str, Any]:
    if str(part.get("errorText", "")).startswith("aborted by host restart"):
        return {**{key: one for key, one in part.items() if key != "errorText"}, "state": "input-available"}
    return {**part, "state": "streaming"} if part.get("type") in ("text", "reasoning") else part


def _lines_of(truth: Seen) -> set[str]:
    """Every line ever shown or sent: what a store that lost its newest commits, and says so, may go back to."""
    shown = [leaf for found in truth.messages.values() for one in found.values() for leaf in _leaves(one["parts"])]
    sent = [leaf for _, leaves in truth.evidence.values() for leaf in leaves]
    sent += [leaf for leaves in truth.sent.values() for leaf in leaves]
    return {line for leaf in (*shown, *sent) for line in leaf.splitlines()}


def _compare_sent(
    session_id: str, was: list[str], is_: list[str], kinds: set[str], silent: list[str], told: set[str]
) -> None:
    known = set(was)
    wrong = [leaf for leaf in is_ if leaf not in known and not _WORDS.search(leaf)]
    wrong = [leaf for leaf in wrong if not told or not told.issuperset(leaf.splitlines())]
    if wrong:
        kinds.add("other words sent")
        silent.append(f"{session_id}: the model was sent {wrong[0][:120]!r}, which nobody wrote")
    elif is_ != was:
        kinds.add("sent with less")


def _first_difference(was: Any, is_: Any) -> str:
    before, after = list(_leaves(was)), list(_leaves(is_))
    for one, other in zip(before, after, strict=False):
        if one != other:
            place = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
            return f"{one[max(place - 10, 0) : place + 10]!r} is {other[max(place - 10, 0) : place + 10]!r}"
    return f"{len(before)} pieces are {len(after)}"
