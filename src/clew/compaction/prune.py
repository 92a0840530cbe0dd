"""Pruning: which tool outputs the model is sent as a stub, or only the ends of. The stored output does not change.

Oldest first over all turns, in one large step or not at all. Some outputs are protected: those the loop depends on
(``todo``, ``task``, ``skill``), the newest by tokens and by steps, and the newest one for each of the files last worked
on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from fractions import Fraction
from typing import Any, Final

import msgspec

from clew.compaction.budget import DEFAULT_RULER, Ruler, Window, estimate_part, estimate_tokens, reaches
from clew.compaction.files import file_path, name_of
from clew.compaction.policy import Policy
from clew.transcript.message import Message
from clew.transcript.part import giver_of, is_growing, output_text, steps_in, tool_name
from clew.transcript.pruned import Pruned, prune_part

__all__ = ["is_prunable", "min_gain", "plan_prune"]

PROTECTED_TOOLS: Final = frozenset({"todo", "task", "skill"})
PROTECTED_STEPS: Final = 3
PROTECTED_FILES: Final = 5
MIN_GAIN: Final = Fraction(1, 5)
"""The share of the usable window that a prune must free."""
LARGE_GAIN: Final = Fraction(1, 3)
"""The same for presets that prune in large steps."""
MAX_MIN_GAIN: Final = Fraction(27, 50)
STEPS_OF_ROOM: Final = 12
"""A large prune makes room for this many steps like the newest ones: at least ten if they grow a little."""
AGGRESSIVE_CHARS: Final = 400
"""The size above which outputs are pruned after a provider has rejected the request as too long."""

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
    window: Window,
    at: int,
    already: Mapping[_Key, Pruned],
    base_index: Mapping[str, int],
    ruler: Ruler = DEFAULT_RULER,
    workspace_root: str | None = None,
    inside: bool = False,
    due: bool = False,
    pressing: bool = False,
    aggressive: bool = False,
    by_hand: bool = False,
) -> tuple[Pruned, ...]:
    """Return the outputs to prune now, oldest first. ``seq`` is 0: the store numbers a prune.

    ``messages`` are as they are sent, with the ``already`` pruned outputs. ``base_index`` gives the number of parts cut
    off the front of a message. A prune that frees less than :func:`min_gain` waits until it is ``pressing``, that is,
    until the request would not fit: otherwise a prune would recur every few steps, and each one makes the provider
    reread everything after the first stub. ``inside`` means between the steps of a turn, where prunes follow closely;
    once a compaction is ``due`` there, a fifth is enough to try a prune first. ``by_hand`` prunes all but the newest
    steps, at any threshold. ``aggressive`` does the same and includes smaller outputs: for use once after a provider
    rejected a request as too long, so that its window is not what it was thought to be. Both apply even if automatic
    pruning is disabled.
    """
    rules = policy.pruning
    if not (by_hand or aggressive):
        # Check this first: it is rarely true, and a long session has many outputs.
        shares = [pct for pct in (rules.soft_pct, rules.hard_pct) if pct is not None]
        if not policy.prunes or not any(reaches(used, window.limit, pct, strict=rules.strict) for pct in shares):
            return ()
    over = min(rules.over_chars, AGGRESSIVE_CHARS) if aggressive else rules.over_chars
    share = Fraction(0) if by_hand or aggressive else rules.newest_share
    newest = _newest_parts(messages, _as_estimated(window.usable * share), ruler)
    found = _outputs(messages, already, base_index, ruler, _newest_of_files(messages, workspace_root), newest)
    outputs = [output for output in found if output.trimmed or output.chars > over]
    if by_hand or aggressive:
        return _records(((output, 0) for output in outputs if _saved(output, 0, None, ruler) > 0), at)
    # Outputs were large enough together when one of them was trimmed.
    if not any(output.trimmed for output in outputs) and sum(o.chars for o in outputs) < rules.min_total_chars:
        return ()
    planned: dict[_Key, tuple[_Output, int]] = {}
    fifth, gained = _as_estimated(window.usable * MIN_GAIN), 0
    required = min_gain(messages, policy, window, ruler)
    if not inside and sum(_saved(output, 0, None, ruler) for output in outputs) < required:
        required = fifth
    for pct, keep in ((rules.soft_pct, rules.keep_chars), (rules.hard_pct, 0)):
        if pct is None or not reaches(used - gained, window.limit, pct, strict=rules.strict):
            continue
        goal = pct if rules.until_pct is None else min(rules.until_pct, pct)
        for output in outputs:
            if gained >= required and not reaches(used - gained, window.limit, goal, strict=rules.strict):
                break
            saved = _saved(output, keep, planned.get(output.key), ruler)
            if saved > 0:
                planned[output.key] = output, keep
                gained += saved
    if gained < (fifth if due else required) and not pressing:
        return ()
    return _records((planned[output.key] for output in outputs if output.key in planned), at)


def min_gain(messages: Sequence[Message], policy: Policy, window: Window, ruler: Ruler = DEFAULT_RULER) -> int:
    """Return the estimated tokens that a prune inside a turn has to free, so that the next one is not soon."""
    if not policy.pruning.in_large_steps:
        return _as_estimated(window.usable * MIN_GAIN)
    newest_tokens, max_gain = (
        _tokens_of_steps(messages, STEPS_OF_ROOM, ruler),
        _as_estimated(window.usable * MAX_MIN_GAIN),
    )
    return max(_as_estimated(window.usable * LARGE_GAIN), min(newest_tokens, max_gain))


def is_prunable(part: Mapping[str, Any], policy: Policy) -> bool:
    """Return whether this output will be pruned once it is old enough."""
    is_long = len(output_text(part) or "") > policy.pruning.over_chars
    return is_long and tool_name(part) not in PROTECTED_TOOLS


def _saved(output: _Output, keep: int, before: tuple[_Output, int] | None, ruler: Ruler) -> int:
    """Return the tokens saved compared with what is sent now, or with what was planned ``before``."""
    if keep and (output.trimmed or output.chars <= 2 * keep or giver_of(output.part) is not None):
        return 0  # there is no middle to remove
    now = estimate_tokens(_shown_chars(output, before[1]) if before else output.chars, ruler)
    return now - estimate_tokens(_shown_chars(output, keep), ruler)


def _as_estimated(tokens: Fraction) -> int:
    """Return the estimate for a number of tokens: every estimate is a tenth higher."""
    return -int(-tokens * 11 // 10)


def _tokens_of_steps(messages: Sequence[Message], steps: int, ruler: Ruler) -> int:
    """Return the tokens of the newest ``steps`` as they are sent."""
    tokens = 0
    for message in reversed(messages):
        if message.role != "assistant" or message.is_summary:
            continue
        starts = _starts_of(message)
        tokens += sum(
            estimate_part(part, ruler) for part in message.parts[0 if len(starts) < steps else starts[-steps] :]
        )
        steps -= len(starts)
        if steps <= 0:
            break
    return tokens


def _shown_chars(output: _Output, keep: int) -> int:
    key, index = output.key
    return len(output_text(prune_part(output.part, Pruned(0, key, index, output.tokens, keep, 0))) or "")


def _records(planned: Iterable[tuple[_Output, int]], at: int) -> tuple[Pruned, ...]:
    return tuple(Pruned(0, *output.key, output.tokens, keep, at) for output, keep in planned)


def _outputs(
    messages: Sequence[Message],
    already: Mapping[_Key, Pruned],
    base_index: Mapping[str, int],
    ruler: Ruler,
    files: Set[_Key],
    protected: Mapping[str, int],
) -> Iterator[_Output]:
    """Yield every completed output that is neither protected nor already a stub, oldest first."""
    for message in messages:
        if message.role != "assistant":
            continue
        for index, part in enumerate(message.parts[: protected.get(message.id)]):
            text = output_text(part)
            if giver_of(part) is not None and (message.id, index + base_index.get(message.id, 0)) not in already:
                # A file returned by a tool is measured by its tokens and pruned as a whole.
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


def _newest_parts(messages: Sequence[Message], tokens_left: int, ruler: Ruler) -> dict[str, int]:
    """Return the messages whose end is protected, each with the index of its first protected part.

    These are the newest steps, and as many outputs before them as fit into ``tokens_left`` together with theirs.
    """
    found: dict[str, int] = {}
    steps = PROTECTED_STEPS
    for message in reversed(messages):
        if message.role != "assistant" or message.is_summary:
            continue
        starts = {*_starts_of(message)}
        for index in reversed(range(len(message.parts))):
            part = message.parts[index]
            tokens_left -= estimate_tokens(len(output_text(part) or ""), ruler)
            if giver_of(part) is not None:
                tokens_left -= estimate_part(part, ruler)
            if steps <= 0 and tokens_left < 0:
                return found
            found[message.id] = index
            steps -= index in starts
    return found


def _starts_of(message: Message) -> list[int]:
    """Return where the steps of a message begin; an imported message without steps counts as one."""
    return steps_in(message.parts) or [0]


def _newest_of_files(messages: Sequence[Message], workspace_root: str | None) -> set[_Key]:
    """Return the newest output for each of the files last read or written, as (message, index among its sent parts)."""
    found: dict[str, _Key] = {}
    for message in reversed(messages):
        for index in reversed(range(len(message.parts))):
            read_path = file_path(message.parts[index])
            path = None if read_path is None else name_of(read_path, workspace_root)
            if path is None or path in found:
                continue
            if len(found) == PROTECTED_FILES:
                return set(found.values())
            found[path] = message.id, index
    return set(found.values())
