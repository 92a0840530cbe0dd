"""The cut: what of a conversation is summarised and what is kept word for word.

A cut lies before a user message, before an assistant message that owes no result, or at the start of a step inside an
assistant message, which is then split. A tool call and its result are one part, so no cut comes between them; a call
that still waits for its result is never summarised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import msgspec

from clew.compaction.budget import USUAL, Ruler, estimate_part, message_tokens
from clew.compaction.policy import Policy
from clew.transcript.message import Message
from clew.transcript.part import STEP_START, is_open_call, kind_of, steps_in
from clew.transcript.view import Split

__all__ = ["Cut", "plan_cut"]


class Cut(msgspec.Struct, frozen=True):
    """Where a compaction cuts. ``tail_start_id`` None: nothing is kept, so the tail begins at the marker itself.

    Of a split message ``summarised`` holds the parts that are dropped and ``kept`` the others; ``split`` counts the
    parts that were given. ``turns`` is how many user-led turns are summarised, whole or in part.
    """

    summarised: tuple[Message, ...]
    kept: tuple[Message, ...]
    tail_start_id: str | None
    split: Split | None
    turns: int
    kept_tokens: int
    warning: str | None = None


class _Place(msgspec.Struct, frozen=True):
    """The tail begins at message ``start``; of message ``at`` only the parts from ``part`` on are kept."""

    start: int
    at: int = -1
    part: int = 0


def plan_cut(
    body: Sequence[Message],
    policy: Policy,
    *,
    usable: int,
    room: int,
    open_turn_id: str | None,
    inside: bool,
    ruler: Ruler = USUAL,
    split_id: str | None = None,
    split_reach: int = 0,
) -> Cut | None:
    """Where to cut; None when there is nothing to summarise.

    ``body`` is what is sent but for the summary. ``room`` is the most the tail may take. ``inside``: the open turn
    has steps already, and is then the whole tail. The message that began the open turn is always kept; only when a
    warning was put into that turn, or it went on in a second answer, and nothing else fits, the tail begins there.

    ``split_id`` is the message that the cut in force goes through, the last of the first ``split_reach`` of the body;
    where nothing is left of it, it comes right behind them. A compaction has one split, so that as long as that message
    is in the tail no other one is cut: all of it would be sent again.
    """
    if not body:
        return None
    plan = _Plan(body, policy, usable=usable, room=room, open_turn_id=open_turn_id, ruler=ruler)
    plan.split_id, plan.split_reach = split_id, split_reach
    place = plan.by_tokens(inside) if policy.tail == "tokens" else plan.by_turns(inside)
    return None if place is None else plan.cut(place)


class _Plan:
    def __init__(
        self,
        body: Sequence[Message],
        policy: Policy,
        *,
        usable: int,
        room: int,
        open_turn_id: str | None,
        ruler: Ruler,
    ) -> None:
        self.body = tuple(body)
        self.policy = policy
        self.room = room
        self.split_id: str | None = None
        self.split_reach = 0
        self.budget = min(policy.tail_budget(usable), room)
        self.warning: str | None = None
        # What each message takes from each of its parts on, and the body from each of its messages on.
        self.inner = [_sums(estimate_part(part, ruler) for part in message.parts) for message in body]
        self.sums = _sums(self._size(at, 0) for at in range(len(body)))
        self.leads = [index for index, message in enumerate(body) if message.is_prompt]
        own = (i for i, message in enumerate(body) if message.turn_id == open_turn_id)
        self.open_at = next(own, None) if open_turn_id is not None else None
        self.newest = self.open_at if self.open_at is not None else (self.leads[-1] if self.leads else 0)
        waiting = next((i for i, message in enumerate(body) if any(map(is_open_call, message.parts))), len(body))
        # What comes from here on is never summarised as a whole: a call in it waits for its result.
        self.last_start = waiting if waiting == len(body) else self._lead_of(waiting)

    # The two ways to choose a tail

    def by_turns(self, inside: bool) -> _Place | None:
        """The newest turns; only the newest one when they take more than their share."""
        count = self.policy.tail_turns
        if not inside and count > 1:
            start = self.leads[-count] if len(self.leads) >= count else 0
            place = _Place(min(start, self.newest, self.last_start))
            if self.tokens(place) <= self.budget:
                return place
            if len(self.leads) > 1:
                self.warning = f"the last {count} turns take more than their share; only the newest is kept"
        whole = _Place(min(self.newest, self.last_start))
        if self.tokens(whole) <= self.room and (whole.start > 0 or self.tokens(whole) <= self.budget):
            return whole
        split = self._split(whole.start)
        if split is not None:
            return split
        return whole if self.tokens(whole) <= self.room else self._last_resort(whole)

    def by_tokens(self, inside: bool) -> _Place | None:
        """The newest steps and messages that make up the tokens to keep, to the next boundary that is valid."""
        first = min(self.newest, self.last_start) if inside else 0
        entries = list(self._entries(first))
        held, reached = 0, len(entries)
        while reached and held < self.budget:
            reached -= 1
            held += entries[reached][1]
        whole = _Place(first)
        if held < self.budget and self.tokens(whole) <= self.room:
            return whole
        for place, _ in entries[reached:]:
            if self._is_boundary(place) and self.tokens(place) <= self.room:
                return place
        newest = _Place(min(self.newest, self.last_start))
        if self.policy.between_turns and self.tokens(newest) <= self.room:
            return newest
        return self._last_resort(newest)

    # Inside the newest turn

    def _split(self, start: int) -> _Place | None:
        """The longest run of last steps within the budget; else the last step, if there is room for it."""
        places = [place for place in self._splits(start) if self._has_rest(place)]
        within = [place for place in places if self.tokens(place) <= self.budget]
        if within:
            return max(within, key=lambda place: (self.tokens(place), place.at, place.part))
        return places[-1] if places and self.tokens(places[-1]) <= self.room else None

    def _last_resort(self, whole: _Place) -> _Place | None:
        """As little as may be kept. For a settled turn that is nothing."""
        if self.open_at is None:
            return _Place(len(self.body)) if self.last_start == len(self.body) else None
        bare = [place for place in (*self._splits(whole.start), self._behind(whole.start)) if place is not None]
        choices = [place for place in bare if not self._has_rest(place)]
        warned = max((i for i in range(whole.start + 1, len(self.body)) if self.body[i].role == "user"), default=0)
        if not warned and whole.start < self.split_reach < len(self.body):
            # A turn that was gone on with has a second answer: it cannot be cut while what is cut already stays.
            warned = self.split_reach
        if warned and self.last_start == len(self.body) and not self.policy.between_turns:
            later = [place for place in (*self._splits(warned), self._behind(warned)) if place is not None]
            split = self._split(warned)
            choices += [*([split] if split is not None else []), _Place(warned)]
            choices += [place for place in later if not self._has_rest(place)]
            bare += later
        for place in choices:
            if self.tokens(place) <= self.room:
                return place
        self.warning = "what has to be kept takes more than there is room for"
        return min((whole, *choices, *bare), key=self.tokens)

    def _splits(self, start: int) -> Iterator[_Place]:
        """Every start of a step in the messages from ``start`` on at which something is dropped, in order."""
        for at in range(start, len(self.body)):
            message = self.body[at]
            if message.role != "assistant" or not self._may_split(start, at):
                continue
            # Of one that was cut before, and that others follow, all may go.
            last = [len(message.parts)] if message.id == self.split_id and at < len(self.body) - 1 else []
            for part in (*steps_in(message.parts), *last):
                if part and not any(map(is_open_call, message.parts[:part])):
                    yield _Place(start, at, part)

    def _behind(self, start: int) -> _Place | None:
        """All of the newest message dropped: the step that comes next begins behind it."""
        at = len(self.body) - 1
        message = self.body[at]
        if at <= start or message.role != "assistant" or any(map(is_open_call, message.parts)):
            return None
        if not self._may_split(start, at):
            return None
        if message.parts and kind_of(message.parts[-1]) == STEP_START:
            return None
        return _Place(start, at, len(message.parts))

    def _may_split(self, start: int, at: int) -> bool:
        """Whether a tail from ``start`` on may be without the first parts of message ``at``."""
        free = start >= self.split_reach or self.body[at].id == self.split_id
        return free and not self.policy.between_turns

    def _has_rest(self, place: _Place) -> bool:
        """Whether anything is kept of the newest message, beside the bare start of a step."""
        parts = self.body[place.at].parts[place.part :]
        return place.at < len(self.body) - 1 or any(kind_of(part) != STEP_START for part in parts)

    # Boundaries

    def _entries(self, first: int) -> Iterator[tuple[_Place, int]]:
        """Messages and the steps in them with their sizes, as places for a tail to begin."""
        for at in range(first, len(self.body)):
            parts = self.body[at].parts
            inner = [i for i in steps_in(parts) if i]
            borders = [0, *(inner if self.body[at].role == "assistant" else []), len(parts)]
            start = at if self.open_at is None else min(at, self.open_at)
            for index, part in enumerate(borders[:-1]):
                size = self.inner[at][part] - self.inner[at][borders[index + 1]]
                yield (_Place(start, at, part) if part or start < at else _Place(at)), size

    def _is_boundary(self, place: _Place) -> bool:
        if place.start > self.last_start:
            return False
        if self.policy.between_turns:
            return place.at < 0 and self.body[place.start].is_prompt
        if place.at < 0:
            message = self.body[place.start]
            return message.is_prompt or (message.role == "assistant" and not any(map(is_open_call, message.parts)))
        if not self._may_split(place.start, place.at):
            return False
        return place.part > 0 and not any(map(is_open_call, self.body[place.at].parts[: place.part]))

    def _lead_of(self, index: int) -> int:
        """Where the turn that holds this message begins."""
        return max((lead for lead in self.leads if lead <= index), default=0)

    # The result

    def tokens(self, place: _Place) -> int:
        """What a tail takes."""
        total = self.sums[place.start]
        return total if place.at < 0 else total - self._size(place.at, 0) + self._size(place.at, place.part)

    def _size(self, at: int, part: int) -> int:
        """What a message takes from that part on."""
        return message_tokens(self.inner[at][part])

    def cut(self, place: _Place) -> Cut | None:
        summarised, kept = list(self.body[: place.start]), list(self.body[place.start :])
        split = None
        turns = sum(lead < place.start for lead in self.leads)
        if place.start and not self.body[0].is_prompt:
            turns += 1  # the turn an earlier cut went through
        if place.at >= 0:
            message = self.body[place.at]
            split = Split(message.id, place.part)
            summarised.append(msgspec.structs.replace(message, parts=message.parts[: place.part]))
            kept[place.at - place.start] = msgspec.structs.replace(message, parts=message.parts[place.part :])
            turns += self._lead_of(place.at) >= place.start
        if not any(estimate_part(part) for message in summarised for part in message.parts):
            return None
        return Cut(
            summarised=tuple(summarised),
            kept=tuple(message for message in kept if message.parts or message.role == "user"),
            tail_start_id=self.body[place.start].id if place.start < len(self.body) else None,
            split=split,
            turns=turns,
            kept_tokens=self.tokens(place),
            warning=self.warning,
        )


def _sums(sizes: Iterable[int]) -> list[int]:
    """The sum from each place to the end; one entry more than there are sizes."""
    return [*accumulate(reversed(list(sizes)), initial=0)][::-1]
