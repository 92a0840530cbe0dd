"""Presets: the parameters of each source for compaction and pruning, read from ``presets.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from importlib.resources import files
from typing import Final, Literal

import msgspec

from clew.convert import convert

__all__ = ["DEFAULT_RESERVE", "Preset", "Pruning", "TailMode", "When", "presets"]

DEFAULT_RESERVE: Final = 20_000
"""Tokens reserved for the answer, or the model's maximum output if that is less."""

TailMode = Literal["turns", "tokens"]
When = Literal["before_call", "after_turn"]
Frame = Literal["single", "pair"]


class Pruning(msgspec.Struct, frozen=True, kw_only=True):
    """When outputs are trimmed and when they become stubs.

    From ``soft_pct`` of the window on, outputs keep ``keep_chars`` at each end; from ``hard_pct`` on they become stubs.
    None disables that pass. ``strict``: only above the share, not at it. A pass continues until the request is below
    ``until_pct``: each prune invalidates the provider's prompt cache, so a few large ones are better. Only outputs of
    more than ``over_chars`` characters count, and only once they have ``min_total_chars`` in total.
    """

    hard_pct: float | None
    soft_pct: float | None = None
    until_pct: float | None = None
    strict: bool = False
    over_chars: int = 400
    min_total_chars: int = 0
    keep_chars: int = 1_500

    @property
    def in_large_steps(self) -> bool:
        """True if a pass continues below the share of the window at which it started; not so in 001."""
        return self.until_pct is not None

    @property
    def newest_share(self) -> Fraction:
        """The share of the usable window in which the newest outputs are protected. In 001 only the newest steps
        are."""
        return Fraction(1, 4) if self.in_large_steps else Fraction(0)


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of one source.

    ``reserve_tokens`` None: the default reserve; ``at_pct`` None: the reserve decides. ``strict``: compaction starts
    above the threshold, not at it. ``between_turns``: a turn is never cut, whatever its size. ``output_chars``: the
    maximum length of a tool output.
    """

    pruning: Pruning
    reserve_tokens: int | None = None
    at_pct: float | None = None
    strict: bool = False
    min_messages: int = 0
    when: When = "before_call"
    frame: Frame = "single"
    tail: TailMode = "turns"
    between_turns: bool = False
    tail_turns: int = 2
    tail_budget_pct: float = 0.25
    keep_recent_tokens: int = 20_000
    summary_tokens: int = 2_048
    temperature: float = 0.2
    timeout_ms: int = 60_000
    max_steps: int = 100
    output_chars: int = 30_000


@cache
def presets() -> Mapping[str, Preset]:
    """Return the presets of ``presets.toml``, by name."""
    text = files(__package__).joinpath("presets.toml").read_text("utf-8")
    return convert(tomllib.loads(text), dict[str, Preset])
