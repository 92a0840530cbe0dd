"""Presets: the figures each source gives for compaction and pruning, as data.

``guide`` (000) is the default. ``checkpoint`` (001) looks after a turn, by a share of the window. ``overlay`` (003) and
``turn`` (004) keep a number of recent tokens. What a source does not say is as in ``guide``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

import msgspec

__all__ = ["DEFAULT_RESERVE", "PRESETS", "Frame", "Preset", "Pruning", "TailMode", "When"]

DEFAULT_RESERVE: Final = 20_000
"""Tokens kept free for the answer, or all the model can write if that is less."""

TailMode = Literal["turns", "tokens"]
When = Literal["before_call", "after_turn"]
Frame = Literal["single", "pair"]


class Pruning(msgspec.Struct, frozen=True, kw_only=True):
    """When outputs are trimmed and when they become stubs.

    From ``soft_pct`` of the window on, outputs keep ``keep_chars`` at each end; from ``hard_pct`` on they become
    stubs. None: that pass is left out. ``strict``: only above the share, not at it. Only outputs of more than
    ``over_chars`` characters count, and only once they have ``min_total_chars`` together.
    """

    hard_pct: float | None
    soft_pct: float | None = None
    strict: bool = False
    over_chars: int = 400
    min_total_chars: int = 0
    keep_chars: int = 1_500


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one source. ``reserve_tokens`` None: the default reserve; ``at_pct`` None: the reserve decides.

    ``strict``: fires above the threshold, not at it. ``tail_budget_pct`` None: no share of its own.
    """

    pruning: Pruning
    reserve_tokens: int | None = None
    at_pct: float | None = None
    strict: bool = False
    min_messages: int = 0
    when: When = "before_call"
    frame: Frame = "single"
    tail: TailMode = "turns"
    tail_turns: int = 2
    tail_budget_pct: float | None = 0.25
    keep_recent_tokens: int = 20_000
    summary_tokens: int = 2_048
    temperature: float = 0.2
    timeout_ms: int = 60_000
    max_steps: int = 100


_GUIDE_PRUNING: Final = Pruning(hard_pct=0.6)

PRESETS: Final[Mapping[str, Preset]] = MappingProxyType(
    {
        "guide": Preset(pruning=_GUIDE_PRUNING),
        "checkpoint": Preset(
            at_pct=0.8,
            min_messages=6,
            when="after_turn",
            frame="pair",
            tail_turns=4,
            tail_budget_pct=None,
            summary_tokens=4_096,
            temperature=0.3,
            max_steps=10,
            # The source takes outputs of 50,000 characters and more.
            pruning=Pruning(soft_pct=0.3, hard_pct=0.5, strict=True, over_chars=49_999, min_total_chars=50_000),
        ),
        "overlay": Preset(reserve_tokens=16_384, strict=True, tail="tokens", pruning=_GUIDE_PRUNING),
        "turn": Preset(strict=True, tail="tokens", keep_recent_tokens=30_000, pruning=_GUIDE_PRUNING),
    }
)
