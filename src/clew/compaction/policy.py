"""The policy: how a session makes room, from a preset, the user's settings and the session's own.

What a session sets wins over what the user set, and that over the preset. A session that names a preset other than
the user's starts from that preset: the user's figures were chosen for another one. ``enabled``,
``retry_on_transient``, ``smart_recovery`` and ``context_measure`` are in no preset and stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final, Literal, TypeVar

import msgspec

from clew.compaction.presets import DEFAULT_RESERVE, Preset, Pruning, TailMode, presets
from clew.config import CompactionConfig, PruningConfig
from clew.errors import InvalidInput
from clew.fit import fit
from clew.misfit import misfit

__all__ = ["Policy", "policy_for"]

_AT_LEAST: Final = {
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


class Policy(Preset, frozen=True, kw_only=True):
    """All that decides when and how room is made: a preset's figures as they were changed, and what is in none.

    Two bounds hold whatever is set, so that a small window is never wedged: a reserve is at most half the window,
    and the recent tokens that are kept are at most half of what is usable.
    """

    preset: str
    enabled: bool = True
    prunes: bool = True
    retry_on_transient: int = 2
    prune_tool_outputs: bool = True
    chunked_summarize: bool = True
    drop_middle: bool = True
    measure: Literal["request", "rollup"] = "request"

    def reserve(self, limit: int, max_output: int) -> int:
        """Tokens of a window of ``limit`` kept free for what the model writes; never more than half."""
        chosen = min(DEFAULT_RESERVE, max_output) if self.reserve_tokens is None else self.reserve_tokens
        return max(min(chosen, limit // 2), 0)

    def summary_cap(self, usable: int) -> int:
        """Tokens a summary may take at most: the preset's figure, or a quarter of what is usable."""
        return max(min(self.summary_tokens, usable // 4), 1)

    def tail_budget(self, usable: int) -> int:
        """Tokens the tail should take at most: its share, or the recent tokens that are kept."""
        if self.tail == "tokens":
            return min(self.keep_recent_tokens, usable // 2)
        # By its decimal form: 0.29 of 100 is 29, and not a little less.
        return int(usable * Fraction(str(self.tail_budget_pct)))


def policy_for(config: CompactionConfig, pruning: PruningConfig, session: Mapping[str, Any] | None) -> Policy:
    """The settings in force. ``session`` is what a session says under ``compaction`` in its metadata.

    It has the keys of the user's ``compaction`` settings, and ``pruning`` with the keys of those. A key that is null
    counts as not set; one that is not known is left to later versions. Raises ``InvalidInput`` naming the key.
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
    changed = {name: value for name in _PRESET_KEYS if (value := getattr(merged, name)) is not None}
    changed["tail"] = _tail_mode(own) or _tail_mode(msgspec.to_builtins(config)) or preset.tail
    changed["pruning"] = _shaped(_shaped(preset.pruning, pruning), fit(own_pruning, PruningConfig))
    return Policy(
        preset=name,
        **{**{field: getattr(preset, field) for field in preset.__struct_fields__}, **changed},
        enabled=merged.enabled,
        prunes=merged_pruning.enabled,
        retry_on_transient=merged.retry_on_transient,
        prune_tool_outputs=merged.smart_recovery.prune_tool_outputs,
        chunked_summarize=merged.smart_recovery.chunked_summarize,
        drop_middle=merged.smart_recovery.drop_middle,
        measure=merged.context_measure,
    )


def _tail_mode(settings: Mapping[str, Any]) -> TailMode | None:
    """What one layer of settings says of the tail by what it sets. Tokens are the finer measure, so they win."""
    if settings.get("keep_recent_tokens") is not None:
        return "tokens"
    return "turns" if settings.get("tail_turns") is not None else None


def _shaped(pruning: Pruning, settings: PruningConfig) -> Pruning:
    """The pruning with one layer of settings. ``at_pct`` is a single threshold, so it replaces the two passes."""
    soft, hard = settings.soft_pct, settings.hard_pct
    if settings.at_pct is not None:
        pruning = msgspec.structs.replace(pruning, soft_pct=soft, hard_pct=settings.at_pct, strict=False)
    if (begins := hard or settings.at_pct) is not None and pruning.until_pct is not None:
        # A step stays a large one wherever it begins.
        pruning = msgspec.structs.replace(pruning, until_pct=min(pruning.until_pct, round(begins * 2 / 3, 3)))
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
    """The keys that are set."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{where} is an object with settings")
    return {key: one for key, one in value.items() if one is not None}


def _merged(settings: _Settings, own: Mapping[str, Any], where: str) -> _Settings:
    try:
        merged = fit({**msgspec.to_builtins(settings), **own}, type(settings))
    except msgspec.ValidationError as error:
        why = misfit(error, type(settings))
        raise InvalidInput(why.replace("`$.", f"`{where}.").replace("`$", f"`{where}")) from error
    _check(own, where)
    return merged


def _check(values: Mapping[str, Any], where: str) -> None:
    for key, value in values.items():
        if value is None:
            continue
        if key in _AT_LEAST and value < _AT_LEAST[key]:
            raise InvalidInput(f"{where}.{key} is a whole number of {_AT_LEAST[key]} or more")
        if key in _SHARES and not 0 < value <= 1:
            raise InvalidInput(f"{where}.{key} is a share of more than 0 and at most 1")


def _without(settings: _Settings, keys: tuple[str, ...]) -> _Settings:
    return msgspec.structs.replace(settings, **dict.fromkeys(keys))
