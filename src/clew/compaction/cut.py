"""The cut: which part of a conversation is summarised and which is kept verbatim.

A cut is before a user message, before an assistant message without open calls, or at the start of a step inside an
assistant message, which is then split. A tool call and its result are one part, so no cut separates them; a call that
still waits for its result is never summarised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import msgspec

from clew.compaction.budget import DEFAULT_RULER, Ruler, estimate_part, message_tokens
from clew.compaction.policy import Policy
from clew.transcript.message import Message
from clew.transcript.part import STEP_START, is_open_call, kind_of, steps_in
from clew.transcript.view import Split

__all__ = ["Cut", "plan_cut"]


class Cut(msgspec.Struct, frozen=True):
    """A cut. ``tail_start_id`` None: nothing is kept, so the tail begins at the marker itself.

    Of a split message ``summarised`` holds the parts that are dropped and ``tail`` the others; ``split`` counts the
    parts that were given. ``turns`` is the number of turns that are summarised, entirely or in part.
    """

    summarised: tuple[Message, ...]
    tail: tuple[Message, ...]
    tail_start_id: str | None
    split: Split | None
    turns: int
    tail_tokens: int
    warning: str | None = None


class _Position(msgspec.Struct, frozen=True):
    """The tail begins at message ``start``; of message ``at`` only the parts from ``part`` on are kept."""

    start: int
    at: int = -1
    part: int = 0


def plan_cut(
    body: Sequence[Message],
    policy: Policy,
    *,
    usable: int,
    max_tail: int,
    open_turn_id: str | None,
    inside: bool,
    ruler: Ruler = DEFAULT_RULER,
    split_id: str | None = None,
    split_reach: int = 0,
) -> Cut | None:
    """Return where to cut; None if there is nothing to summarise.

    ``body`` is what is sent without the summary. ``max_tail`` is the maximum size of the tail. ``inside``: the open
    turn already has steps and is then the whole tail. The message that began the open turn is always kept, with one
    exception: if a warning was inserted into that turn, or it continued in a second answer, and nothing else fits,
    the tail begins there.

    ``split_id`` is the message that the current cut goes through, the last of the first ``split_reach`` of the body; if
    nothing is left of it, it would come directly after them. A compaction has one split, so while that message is in
    the tail no other one can be cut: all of it would be sent again.
    """
    if not body:
        return None
    plan = _Plan(body, policy, usable=usable, max_tail=max_tail, open_turn_id=open_turn_id, ruler=ruler)
    plan.split_id, plan.split_reach = split_id, split_reach
    position = plan.by_tokens(inside) if policy.tail == "tokens" else plan.by_turns(inside)
    return None if position is None else plan.cut(position)


class _Plan:
    def __init__(
        self,
        body: Sequence[Message],
        policy: Policy,
        *,
        usable: int,
        max_tail: int,
        open_turn_id: str | None,
        ruler: Ruler,
    ) -> None:
        self.body = tuple(body)
        self.policy = policy
        self.max_tail = max_tail
        self.split_id: str | None = None
        self.split_reach = 0
        self.budget = min(policy.tail_budget(usable), max_tail)
        self.warning: str | None = None
        # The size of each message from each of its parts on, and of the body from each of its messages on.
        self.inner = [_sums(estimate_part(part, ruler) for part in message.parts) for message in body]
        self.sums = _sums(self._size(at, 0) for at in range(len(body)))
        self.leads = [index for index, message in enumerate(body) if message.is_prompt]
        own = (i for i, message in enumerate(body) if message.turn_id == open_turn_id)
        self.open_at = next(own, None) if open_turn_id is not None else None
        self.newest = self.open_at if self.open_at is not None else (self.leads[-1] if self.leads else 0)
        waiting = next((i for i, message in enumerate(body) if any(map(is_open_call, message.parts))), len(body))
        # Messages from here on are never summarised entirely: a call among them waits for its result.
        self.last_start = waiting if waiting == len(body) else self._lead_of(waiting)

    # Two ways to choose a tail

    def by_turns(self, inside: bool) -> _Position | None:
        """Return a tail of the newest turns; of only the newest one if they exceed their share."""
        count = self.policy.tail_turns
        if not inside and count > 1:
            start = self.leads[-count] if len(self.leads) >= count else 0
            position = _Position(min(start, self.newest, self.last_start))
            if self.tokens(position) <= self.budget:
                return position
            if len(self.leads) > 1:
                self.warning = f"the last {count} turns take more than their share; only the newest is kept"
        whole = _Position(min(self.newest, self.last_start))
        if self.tokens(whole) <= self.max_tail and (whole.start > 0 or self.tokens(whole) <= self.budget):
            return whole
        split = self._split(whole.start)
        if split is not None:
            return split
        return whole if self.tokens(whole) <= self.max_tail else self._last_resort(whole)

    def by_tokens(self, inside: bool) -> _Position | None:
        """Return a tail of the newest steps and messages that make up the tokens to keep, at a valid boundary."""
        first = min(self.newest, self.last_start) if inside else 0
        entries = list(self._entries(first))
        total, reached = 0, len(entries)
        while reached and total < self.budget:
            reached -= 1
            total += entries[reached][1]
        whole = _Position(first)
        if total < self.budget and self.tokens(whole) <= self.max_tail:
            return whole
        for position, _ in entries[reached:]:
            if self._is_boundary(position) and self.tokens(position) <= self.max_tail:
                return position
        newest = _Position(min(self.newest, self.last_start))
        if self.policy.between_turns and self.tokens(newest) <= self.max_tail:
            return newest
        return self._last_resort(newest)

    # Inside the newest turn

    def _split(self, start: int) -> _Position | None:
        """Return the longest sequence of last steps within the budget; else the last step, if there is room for it."""
        positions = [position for position in self._splits(start) if self._keeps_content(position)]
        within = [position for position in positions if self.tokens(position) <= self.budget]
        if within:
            return max(within, key=lambda position: (self.tokens(position), position.at, position.part))
        return positions[-1] if positions and self.tokens(positions[-1]) <= self.max_tail else None

    def _last_resort(self, whole: _Position) -> _Position | None:
        """Return the smallest tail allowed. For a settled turn that is nothing."""
        if self.open_at is None:
            return _Position(len(self.body)) if self.last_start == len(self.body) else None
        bare = [
            position
            for position in (*self._splits(whole.start), self._after_newest(whole.start))
            if position is not None
        ]
        choices = [position for position in bare if not self._keeps_content(position)]
        warned = max((i for i in range(whole.start + 1, len(self.body)) if self.body[i].role == "user"), default=0)
        if not warned and whole.start < self.split_reach < len(self.body):
            # A continued turn has a second answer, which cannot be cut while the current split is kept.
            warned = self.split_reach
        if warned and self.last_start == len(self.body) and not self.policy.between_turns:
            later = [
                position for position in (*self._splits(warned), self._after_newest(warned)) if position is not None
            ]
            split = self._split(warned)
            choices += [*([split] if split is not None else []), _Position(warned)]
            choices += [position for position in later if not self._keeps_content(position)]
            bare += later
        for position in choices:
            if self.tokens(position) <= self.max_tail:
                return position
        self.warning = "what has to be kept takes more than there is room for"
        return min((whole, *choices, *bare), key=self.tokens)

    def _splits(self, start: int) -> Iterator[_Position]:
        """Yield every step start from message ``start`` on where something would be dropped, in order."""
        for at in range(start, len(self.body)):
            message = self.body[at]
            if message.role != "assistant" or not self._may_split(start, at):
                continue
            # A message that is already split and is not the last may be dropped entirely.
            last = [len(message.parts)] if message.id == self.split_id and at < len(self.body) - 1 else []
            for part in (*steps_in(message.parts), *last):
                if part and not any(map(is_open_call, message.parts[:part])):
                    yield _Position(start, at, part)

    def _after_newest(self, start: int) -> _Position | None:
        """Return the cut that drops all of the newest message: the next step begins after it."""
        at = len(self.body) - 1
        message = self.body[at]
        if at <= start or message.role != "assistant" or any(map(is_open_call, message.parts)):
            return None
        if not self._may_split(start, at):
            return None
        if message.parts and kind_of(message.parts[-1]) == STEP_START:
            return None
        return _Position(start, at, len(message.parts))

    def _may_split(self, start: int, at: int) -> bool:
        """Return whether a tail from ``start`` on may omit the first parts of message ``at``."""
        free = start >= self.split_reach or self.body[at].id == self.split_id
        return free and not self.policy.between_turns

    def _keeps_content(self, position: _Position) -> bool:
        """Return whether anything of the newest message is kept, other than the marker of a step."""
        parts = self.body[position.at].parts[position.part :]
        return position.at < len(self.body) - 1 or any(kind_of(part) != STEP_START for part in parts)

    # Boundaries

    def _entries(self, first: int) -> Iterator[tuple[_Position, int]]:
        """Yield messages and their steps, as cuts with the size up to the next one."""
        for at in range(first, len(self.body)):
            parts = self.body[at].parts
            inner = [i for i in steps_in(parts) if i]
            borders = [0, *(inner if self.body[at].role == "assistant" else []), len(parts)]
            start = at if self.open_at is None else min(at, self.open_at)
            for index, part in enumerate(borders[:-1]):
                size = self.inner[at][part] - self.inner[at][borders[index + 1]]
                yield (_Position(start, at, part) if part or start < at else _Position(at)), size

    def _is_boundary(self, position: _Position) -> bool:
        if position.start > self.last_start:
            return False
        if self.policy.between_turns:
            return position.at < 0 and self.body[position.start].is_prompt
        if position.at < 0:
            message = self.body[position.start]
            return message.is_prompt or (message.role == "assistant" and not any(map(is_open_call, message.parts)))
        if not self._may_split(position.start, position.at):
            return False
        return position.part > 0 and not any(map(is_open_call, self.body[position.at].parts[: position.part]))

    def _lead_of(self, index: int) -> int:
        """Return the index at which the turn that holds this message begins."""
        return max((lead for lead in self.leads if lead <= index), default=0)

    # The result

    def tokens(self, position: _Position) -> int:
        """Return the size of a tail."""
        total = self.sums[position.start]
        return total if position.at < 0 else total - self._size(position.at, 0) + self._size(position.at, position.part)

    def _size(self, at: int, part: int) -> int:
        """Return the size of a message from that part on."""
        return message_tokens(self.inner[at][part])

    def cut(self, position: _Position) -> Cut | None:
        summarised, tail = list(self.body[: position.start]), list(self.body[position.start :])
        split = None
        turns = sum(lead < position.start for lead in self.leads)
        if position.start and not self.body[0].is_prompt:
            turns += 1  # the turn an earlier cut went through
        if position.at >= 0:
            message = self.body[position.at]
            split = Split(message.id, position.part)
            summarised.append(msgspec.structs.replace(message, parts=message.parts[: position.part]))
            tail[position.at - position.start] = msgspec.structs.replace(message, parts=message.parts[position.part :])
            turns += self._lead_of(position.at) >= position.start
        if not any(estimate_part(part) for message in summarised for part in message.parts):
            return None
        return Cut(
            summarised=tuple(summarised),
            tail=tuple(message for message in tail if message.parts or message.role == "user"),
            tail_start_id=self.body[position.start].id if position.start < len(self.body) else None,
            split=split,
            turns=turns,
            tail_tokens=self.tokens(position),
            warning=self.warning,
        )


def _sums(sizes: Iterable[int]) -> list[int]:
    """Return the sum from each position to the end; one entry more than there are sizes."""
    return [*accumulate(reversed(list(sizes)), initial=0)][::-1]
