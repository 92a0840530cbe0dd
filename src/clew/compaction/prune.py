"""Pruning: which tool outputs the model is shown as a stub, or only the ends of. The stored output is not touched.

Oldest first, and in one large step until there is room for many more. Some outputs are protected: what the loop steers
by (``todo``, ``task``, ``skill``), the newest answers of earlier turns, the newest steps of the running one, and the
newest output for each file last worked on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import dropwhile
from typing import Any, Final

import msgspec

from clew.compaction.budget import USUAL, Ruler, estimate_part, estimate_tokens, reaches
from clew.compaction.files import file_path, name_of
from clew.compaction.policy import Policy
from clew.transcript.message import Message
from clew.transcript.part import giver_of, is_growing, output_text, steps_in, tool_name
from clew.transcript.pruned import Pruned, prune_part

__all__ = ["may_go", "plan_prune"]

PROTECTED_TOOLS: Final = frozenset({"todo", "task", "skill"})
PROTECTED_MESSAGES: Final = 3
PROTECTED_STEPS: Final = 5
PROTECTED_FILES: Final = 5
WORTH: Final = 4
"""So many times what it gains a prune may make a provider read again."""
AGGRESSIVE_CHARS: Final = 400
"""Outputs over so many characters go when a provider has said that the request is too long."""

_Key = tuple[str, int]


class _Output(msgspec.Struct, frozen=True):
    """An output that may be pruned, as it is sent now. ``trimmed``: an earlier prune left only its ends."""

    key: _Key
    part: Mapping[str, Any]
    chars: int
    tokens: int
    trimmed: bool


def plan_prune(
    messages: Sequence[Message],
    policy: Policy,
    *,
    used: int,
    limit: int,
    at: int,
    already: Mapping[_Key, Pruned],
    base_index: Mapping[str, int],
    ruler: Ruler = USUAL,
    running: str | None = None,
    workspace_root: str | None = None,
    pressing: bool = False,
    aggressive: bool = False,
    by_hand: bool = False,
) -> tuple[Pruned, ...]:
    """The outputs to prune now, oldest first. ``seq`` is 0: the store numbers a prune.

    ``messages`` are as they are sent, with what is ``already`` pruned. ``base_index`` tells how many parts of a
    message are cut off at its front. ``running`` is the turn that is being answered: its old steps count like earlier
    turns. Between its steps a prune that would not get there is left until it is ``pressing``: it would come back with
    every step, and each time a provider reads all behind the first stub anew. So is any prune that gains little for
    what is read again; it would come back with every turn. ``by_hand``: all that may go, whatever the threshold.
    ``aggressive``: the same, and smaller outputs too; for once after a provider refused a request as too long. Both
    also when pruning by itself is switched off.
    """
    rules = policy.pruning
    if not (by_hand or aggressive):
        # Asked first: it is seldom so, and the outputs of a long session are many.
        shares = [pct for pct in (rules.soft_pct, rules.hard_pct) if pct is not None]
        if not policy.prunes or not any(reaches(used, limit, pct, strict=rules.strict) for pct in shares):
            return ()
    over = min(rules.over_chars, AGGRESSIVE_CHARS) if aggressive else rules.over_chars
    protected = _newest_of_files(messages, workspace_root), _newest_parts(messages, running)
    found = _outputs(messages, already, base_index, ruler, *protected)
    outputs = [one for one in found if one.trimmed or one.chars > over]
    if by_hand or aggressive:
        return _records(((one, 0) for one in outputs if _saved(one, 0, None, ruler) > 0), at)
    if sum(one.chars for one in outputs) < rules.min_total_chars:
        return ()
    planned: dict[_Key, tuple[_Output, int]] = {}
    goal, whole = 1.0, used
    for pct, keep in ((rules.soft_pct, rules.keep_chars), (rules.hard_pct, 0)):
        if pct is None or not reaches(used, limit, pct, strict=rules.strict):
            continue
        goal = pct if rules.until_pct is None else min(rules.until_pct, pct)
        for one in outputs:
            if not reaches(used, limit, goal, strict=rules.strict):
                break
            saved = _saved(one, keep, planned.get(one.key), ruler)
            if saved > 0:
                planned[one.key] = one, keep
                used -= saved
    inside = any(message.role == "assistant" and message.turn_id == running for message in messages if running)
    if inside and not pressing and reaches(used, limit, goal, strict=rules.strict):
        return ()
    taken = [planned[one.key] for one in outputs if one.key in planned]
    if taken and rules.until_pct is not None and not pressing:
        again = _tokens_from(messages, taken[0][0].part, ruler) - (whole - used)
        if (whole - used) * WORTH < again:
            return ()
    return _records(taken, at)


def may_go(part: Mapping[str, Any], policy: Policy) -> bool:
    """Whether this output is one of those that are pruned some day, once it is old enough."""
    long = len(output_text(part) or "") > policy.pruning.over_chars
    return long and tool_name(part) not in PROTECTED_TOOLS


def _saved(one: _Output, keep: int, before: tuple[_Output, int] | None, ruler: Ruler) -> int:
    """Tokens that are gained over what is sent now, or over what was planned ``before``."""
    if keep and (one.trimmed or one.chars <= 2 * keep or giver_of(one.part) is not None):
        return 0  # there is no middle to take out
    now = estimate_tokens(_shown_chars(one, before[1]) if before else one.chars, ruler)
    return now - estimate_tokens(_shown_chars(one, keep), ruler)


def _tokens_from(messages: Sequence[Message], first: Mapping[str, Any], ruler: Ruler) -> int:
    """What is sent from this part on."""
    parts = dropwhile(lambda part: part is not first, (part for message in messages for part in message.parts))
    return sum(estimate_part(part, ruler) for part in parts)


def _shown_chars(one: _Output, keep: int) -> int:
    key, index = one.key
    return len(output_text(prune_part(one.part, Pruned(0, key, index, one.tokens, keep, 0))) or "")


def _records(planned: Iterable[tuple[_Output, int]], at: int) -> tuple[Pruned, ...]:
    return tuple(Pruned(0, *one.key, one.tokens, keep, at) for one, keep in planned)


def _outputs(
    messages: Sequence[Message],
    already: Mapping[_Key, Pruned],
    base_index: Mapping[str, int],
    ruler: Ruler,
    files: Set[_Key],
    protected: Mapping[str, int],
) -> Iterator[_Output]:
    """Every completed output that is not protected and not a stub yet, oldest first."""
    for message in messages:
        if message.role != "assistant":
            continue
        for index, part in enumerate(message.parts[: protected.get(message.id)]):
            text = output_text(part)
            if giver_of(part) is not None and (message.id, index + base_index.get(message.id, 0)) not in already:
                # A file that a call gave, by what it takes: it goes as a whole.
                tokens = estimate_part(part, ruler)
                key = (message.id, index + base_index.get(message.id, 0))
                yield _Output(key, part, tokens * ruler.chars // ruler.tokens, tokens, False)
            if text is None or is_growing(part) or tool_name(part) in PROTECTED_TOOLS or (message.id, index) in files:
                continue
            key = (message.id, index + base_index.get(message.id, 0))
            before = already.get(key)
            if before is None:
                yield _Output(key, part, len(text), estimate_tokens(len(text), ruler), False)
            elif before.keep > 0:
                yield _Output(key, part, len(text), before.tokens, True)


def _newest_parts(messages: Sequence[Message], running: str | None) -> dict[str, int]:
    """The messages whose end is protected, each with the index of its first part that is."""
    found: dict[str, int] = {}
    earlier, steps = PROTECTED_MESSAGES, PROTECTED_STEPS
    for message in reversed(messages):
        if message.role != "assistant" or message.is_summary:
            continue
        if running is None or message.turn_id != running:
            if earlier:
                found[message.id] = 0
            earlier = max(earlier - 1, 0)
        elif steps:
            starts = steps_in(message.parts)
            found[message.id] = starts[-steps] if len(starts) >= steps else 0
            steps = max(steps - len(starts), 0)
    return found


def _newest_of_files(messages: Sequence[Message], workspace_root: str | None) -> set[_Key]:
    """The newest output for each of the files last read or written, as (message, index among its sent parts)."""
    found: dict[str, _Key] = {}
    for message in reversed(messages):
        for index in reversed(range(len(message.parts))):
            given = file_path(message.parts[index])
            path = None if given is None else name_of(given, workspace_root)
            if path is None or path in found:
                continue
            if len(found) == PROTECTED_FILES:
                return set(found.values())
            found[path] = message.id, index
    return set(found.values())
