"""The policy: how a session frees context, from a preset, the user's settings and the session's own.

A preset has the parameters of one source for compaction and pruning; all are in ``presets.toml``.

The session's settings override the user's, and those override the preset. A session that names a preset other than the
user's starts from that preset, because the user's values were chosen for another one. ``enabled``,
``retry_on_transient``, ``summary_timeout_s``, ``smart_recovery`` and ``context_measure`` are in no preset and always
apply.
"""

from __future__ import annotations

import functools
import logging
import tomllib
from collections.abc import Mapping
from fractions import Fraction
from importlib.resources import files
from math import ceil
from typing import Any, Final, Literal, TypeVar

import msgspec

from clew.config import CompactionConfig, Config, PruningConfig
from clew.convert import convert, explain_type_error
from clew.errors import InvalidInput
from clew.transcript.session import Session
from clew.transcript.view import Frame

__all__ = ["Policy", "Pruning", "policy_for", "presets", "session_policy"]

log = logging.getLogger("clew.context")

_DEFAULT_RESERVE: Final = 20_000
"""Tokens reserved for the answer, or the model's maximum output if that is less."""

_TailMode = Literal["turns", "tokens"]
_When = Literal["before_call", "after_turn"]

_MINIMUM: Final = {
    "reserve_tokens": 0,
    "tail_turns": 1,
    "keep_recent_tokens": 1,
    "retry_on_transient": 0,
    "min_chars": 0,
    "min_total_chars": 0,
    "keep_chars": 1,
}
_SHARES: Final = ("tail_budget_pct", "at_pct", "soft_pct", "hard_pct", "until_pct")
_PRESET_KEYS: Final = ("reserve_tokens", "tail_turns", "tail_budget_pct", "keep_recent_tokens")
_PRUNING_KEYS: Final = ("at_pct", "min_chars", "min_total_chars", "soft_pct", "hard_pct", "until_pct", "keep_chars")
_Settings = TypeVar("_Settings", CompactionConfig, PruningConfig)


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
    maximum length of a tool output. ``sends_time``: each turn's environment note has the time of day.
    ``prompts``: what the summariser is asked with. ``repeats_by_result``: only calls with equal results repeat each
    other.
    """

    pruning: Pruning
    reserve_tokens: int | None = None
    at_pct: float | None = None
    strict: bool = False
    min_messages: int = 0
    when: _When = "before_call"
    frame: Frame | None = None
    prompts: Literal["own", "overlay"] = "own"
    tail: _TailMode = "turns"
    between_turns: bool = False
    tail_turns: int = 2
    tail_budget_pct: float = 0.25
    keep_recent_tokens: int = 20_000
    summary_tokens: int = 2_048
    temperature: float = 0.2
    max_steps: int = 100
    output_chars: int = 30_000
    sends_time: bool = False
    repeats_by_result: bool = True


@functools.cache
def presets() -> Mapping[str, Preset]:
    """Return the presets of ``presets.toml``, by name."""
    text = files(__package__).joinpath("presets.toml").read_text("utf-8")
    return convert(tomllib.loads(text), dict[str, Preset])


class Policy(Preset, frozen=True, kw_only=True):
    """Everything that decides when and how context is freed: a preset with overrides, and settings in no preset.

    Two bounds always hold, so that a small window still works: a reserve is at most half the window, and the recent
    tokens that are kept are at most half of the usable window.
    """

    preset: str
    enabled: bool = True
    prunes: bool = True
    retry_on_transient: int = 2
    timeout_ms: int = 60_000
    prune_tool_outputs: bool = True
    chunked_summarize: bool = True
    drop_middle: bool = True
    measure: Literal["request", "rollup"] = "request"

    def reserve(self, limit: int, max_output: int) -> int:
        """Return the tokens of a window of ``limit`` reserved for the model's output; never more than half."""
        wanted = min(_DEFAULT_RESERVE, max_output) if self.reserve_tokens is None else self.reserve_tokens
        return max(min(wanted, limit // 2), 0)

    def summary_cap(self, usable: int) -> int:
        """Return the maximum tokens of a summary: the preset's value, or a quarter of the usable window."""
        return max(min(self.summary_tokens, usable // 4), 1)

    def tail_budget(self, usable: int) -> int:
        """Return the maximum tokens of the tail: its share, or the recent tokens to keep."""
        if self.tail == "tokens":
            return min(self.keep_recent_tokens, usable // 2)
        # Use the decimal form, so that 0.29 of 100 is exactly 29.
        return int(usable * Fraction(str(self.tail_budget_pct)))


def policy_for(config: CompactionConfig, pruning: PruningConfig, session: Mapping[str, Any] | None) -> Policy:
    """Return the policy in force. ``session`` is the ``compaction`` value in a session's metadata.

    It has the keys of the user's ``compaction`` settings, and ``pruning`` with the keys of those. A null value counts
    as not set; unknown keys are ignored, for later versions. Raises ``InvalidInput`` naming the key.
    """
    own = _object(session, "compaction")
    own_pruning = _object(own.pop("pruning", None), "compaction.pruning")
    recovery = _object(own.pop("smart_recovery", None), "compaction.smart_recovery")
    if config.preset is None:
        config = msgspec.structs.replace(config, preset="guide")
    _check(msgspec.to_builtins(config), "compaction")
    _check(msgspec.to_builtins(pruning), "pruning")
    if own.get("preset", config.preset) != config.preset:
        config = _without(config, _PRESET_KEYS)
        pruning = _without(pruning, _PRUNING_KEYS)
    if recovery:
        own["smart_recovery"] = {**msgspec.to_builtins(config.smart_recovery), **recovery}
    merged = _merged(config, own, "compaction")
    merged_pruning = _merged(pruning, own_pruning, "compaction.pruning")
    name = merged.preset or "guide"
    preset = presets()[name]
    overrides = {name: value for name in _PRESET_KEYS if (value := getattr(merged, name)) is not None}
    overrides["tail"] = _tail_mode(own) or _tail_mode(msgspec.to_builtins(config)) or preset.tail
    overrides["pruning"] = _with_settings(_with_settings(preset.pruning, pruning), convert(own_pruning, PruningConfig))
    return Policy(
        preset=name,
        **{**{field: getattr(preset, field) for field in preset.__struct_fields__}, **overrides},
        enabled=merged.enabled,
        prunes=merged_pruning.enabled,
        retry_on_transient=merged.retry_on_transient,
        timeout_ms=ceil(merged.summary_timeout_s * 1000),
        prune_tool_outputs=merged.smart_recovery.prune_tool_outputs,
        chunked_summarize=merged.smart_recovery.chunked_summarize,
        drop_middle=merged.smart_recovery.drop_middle,
        measure=merged.context_measure,
    )


def session_policy(config: Config, session: Session) -> Policy:
    """Return the settings in force for a session: its own, then the user's, then the preset's.

    Settings are checked when they are set. A session with invalid ones must still work.
    """
    if session.compaction is not None:
        try:
            return policy_for(config.compaction, config.pruning, session.compaction)
        except InvalidInput as error:
            log.warning("ignored the invalid compaction settings of session %s: %s", session.id, error)
    return _default_policy(config.compaction, config.pruning)


@functools.lru_cache(maxsize=8)
def _default_policy(compaction: CompactionConfig, pruning: PruningConfig) -> Policy:
    """Return the policy without session settings; cached, as every turn needs it several times."""
    return policy_for(compaction, pruning, None)


def _tail_mode(settings: Mapping[str, Any]) -> _TailMode | None:
    """Return the tail mode implied by one layer of settings. Tokens are more precise, so they win."""
    if settings.get("keep_recent_tokens") is not None:
        return "tokens"
    return "turns" if settings.get("tail_turns") is not None else None


def _with_settings(pruning: Pruning, settings: PruningConfig) -> Pruning:
    """Return the pruning with one layer of settings. ``at_pct`` is a single threshold and replaces both passes."""
    soft, hard = settings.soft_pct, settings.hard_pct
    if settings.at_pct is not None:
        pruning = msgspec.structs.replace(pruning, soft_pct=soft, hard_pct=settings.at_pct, strict=False)
    if (start := hard or settings.at_pct) is not None and pruning.until_pct is not None:
        # Keep prunes large wherever they begin.
        pruning = msgspec.structs.replace(pruning, until_pct=min(pruning.until_pct, round(start * 2 / 3, 3)))
    changed: dict[str, Any] = {
        "soft_pct": soft,
        "hard_pct": hard,
        "until_pct": settings.until_pct,
        "over_chars": settings.min_chars,
        "min_total_chars": settings.min_total_chars,
        "keep_chars": settings.keep_chars,
    }
    return msgspec.structs.replace(pruning, **{key: value for key, value in changed.items() if value is not None})


def _object(value: Any, where: str) -> dict[str, Any]:
    """Return the keys that are set."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{where} must be an object")
    return {key: one for key, one in value.items() if one is not None}


def _merged(settings: _Settings, own: Mapping[str, Any], where: str) -> _Settings:
    try:
        merged = convert({**msgspec.to_builtins(settings), **own}, type(settings))
    except msgspec.ValidationError as error:
        why = explain_type_error(error, type(settings))
        raise InvalidInput(why.replace("`$.", f"`{where}.").replace("`$", f"`{where}")) from error
    _check(own, where)
    return merged


def _check(values: Mapping[str, Any], where: str) -> None:
    for key, value in values.items():
        if value is None:
            continue
        if key in _MINIMUM and value < _MINIMUM[key]:
            raise InvalidInput(f"{where}.{key} must be an integer of at least {_MINIMUM[key]}")
        if key in _SHARES and not 0 < value <= 1:
            raise InvalidInput(f"{where}.{key} must be greater than 0 and at most 1")


def _without(settings: _Settings, keys: tuple[str, ...]) -> _Settings:
    return msgspec.structs.replace(settings, **dict.fromkeys(keys))
