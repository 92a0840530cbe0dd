"""Metrics of one process since its start, and their Prometheus text format."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

__all__ = ["Metrics"]


class _Kind(NamedTuple):
    type: str
    labels: tuple[str, ...]
    help: str


_MODEL: Final = ("provider", "model")
_KINDS: Final = {
    "clew_turns_total": _Kind("counter", ("status",), "Ended turns by status."),
    "clew_turn_seconds": _Kind("histogram", (), "Duration of turns."),
    "clew_model_calls_total": _Kind("counter", (*_MODEL, "purpose", "ended"), "Model calls by purpose and outcome."),
    "clew_model_call_seconds": _Kind("histogram", _MODEL, "Time from a model request to the end of the response."),
    "clew_first_chunk_seconds": _Kind(
        "histogram", _MODEL, "Time from a model request to the first chunk of the response."
    ),
    "clew_tokens_total": _Kind("counter", (*_MODEL, "type"), "Tokens of all model calls; each token has one type."),
    "clew_cost_usd_total": _Kind("counter", _MODEL, "Cost of model calls in US dollars, where prices are known."),
    "clew_tool_calls_total": _Kind("counter", ("tool", "result"), "Executed tool calls by result."),
    "clew_tool_seconds": _Kind("histogram", ("tool",), "Duration of tool calls."),
    "clew_compactions_total": _Kind("counter", ("strategy",), "Compactions by strategy."),
}
_BOUNDS: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
_MAX_LABEL_SETS: Final = 500
"""Label sets of one metric. Normally there are few tools and models; invented names must not exhaust memory."""
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Metrics:
    """The metrics, updated on the event loop. Label sets beyond ``_MAX_LABEL_SETS`` are counted as ``other``."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in _KINDS}
        self._buckets: dict[str, dict[tuple[str, ...], list[int]]] = {
            name: {} for name, kind in _KINDS.items() if kind.type == "histogram"
        }

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        counts = self._counts[name]
        labels = self._bounded(counts, labels)
        counts[labels] = counts.get(labels, 0) + by

    def time(self, name: str, seconds: float, *labels: str) -> None:
        self.count(name, *labels, by=seconds)
        buckets = self._buckets[name]
        found = buckets.setdefault(self._bounded(buckets, labels), [0] * (len(_BOUNDS) + 1))
        found[bisect_left(_BOUNDS, seconds)] += 1

    def text(self, now: Mapping[str, tuple[str, float]]) -> str:
        """Format for Prometheus; ``now`` holds current values, each with its help text."""
        lines: list[str] = []
        for name, kind in _KINDS.items():
            lines += (f"# HELP {name} {kind.help}", f"# TYPE {name} {kind.type}")
            for labels, value in self._counts[name].items():
                if kind.type == "counter":
                    lines.append(f"{name}{_format_labels(zip(kind.labels, labels, strict=True))} {value:.12g}")
                else:
                    lines += _histogram(name, kind, labels, value, self._buckets[name][labels])
        for name, (help_text, value) in now.items():
            type_ = "counter" if name.endswith("_total") else "gauge"
            lines += (f"# HELP {name} {help_text}", f"# TYPE {name} {type_}", f"{name} {value:.12g}")
        return "\n".join(lines) + "\n"

    @staticmethod
    def _bounded(existing: Mapping[tuple[str, ...], object], labels: tuple[str, ...]) -> tuple[str, ...]:
        return labels if labels in existing or len(existing) < _MAX_LABEL_SETS else ("other",) * len(labels)


def _histogram(name: str, kind: _Kind, labels: tuple[str, ...], total: float, buckets: list[int]) -> list[str]:
    pairs = list(zip(kind.labels, labels, strict=True))
    lines, count = [], 0
    for bound, in_bucket in zip((*_BOUNDS, None), buckets, strict=True):
        count += in_bucket
        upper = "+Inf" if bound is None else f"{bound:g}"
        lines.append(f"{name}_bucket{_format_labels([*pairs, ('le', upper)])} {count}")
    return [*lines, f"{name}_sum{_format_labels(pairs)} {total:.12g}", f"{name}_count{_format_labels(pairs)} {count}"]


def _format_labels(pairs: Iterable[tuple[str, str]]) -> str:
    labels = ",".join(f'{key}="{value.translate(_ESCAPES)}"' for key, value in pairs)
    return f"{{{labels}}}" if labels else ""
