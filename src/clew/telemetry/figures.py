"""Figures: counts and times of one process since it was started, and the page of plain text that tells them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

__all__ = ["Figures"]


class _Kind(NamedTuple):
    type: str
    labels: tuple[str, ...]
    help: str


_MODEL: Final = ("provider", "model")
_KINDS: Final = {
    "clew_turns_total": _Kind("counter", ("status",), "Turns that ended, by how."),
    "clew_turn_seconds": _Kind("histogram", (), "From the beginning of a turn's run to its end."),
    "clew_model_calls_total": _Kind("counter", (*_MODEL, "purpose", "ended"), "Model calls, by what for and how."),
    "clew_model_call_seconds": _Kind("histogram", _MODEL, "From asking a model to the end of its answer."),
    "clew_first_chunk_seconds": _Kind("histogram", _MODEL, "From asking a model to the first chunk of its answer."),
    "clew_tokens_total": _Kind("counter", (*_MODEL, "type"), "Tokens of all model calls; no token is of two types."),
    "clew_cost_usd_total": _Kind("counter", _MODEL, "What model calls cost, in US dollars, where prices are known."),
    "clew_tool_calls_total": _Kind("counter", ("tool", "result"), "Tool calls that were carried out."),
    "clew_tool_seconds": _Kind("histogram", ("tool",), "How long tool calls took."),
    "clew_compactions_total": _Kind("counter", ("strategy",), "Compactions, by how the past was shortened."),
}
_BOUNDS: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
_MOST: Final = 500
"""Sets of labels of one figure. Tools and models are few; whoever invents names must not fill the memory with them."""
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Figures:
    """Added to on the event loop. What is past ``_MOST`` sets of labels is counted as ``other``."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in _KINDS}
        self._buckets: dict[str, dict[tuple[str, ...], list[int]]] = {
            name: {} for name, kind in _KINDS.items() if kind.type == "histogram"
        }

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        counts = self._counts[name]
        labels = self._known(counts, labels)
        counts[labels] = counts.get(labels, 0) + by

    def time(self, name: str, seconds: float, *labels: str) -> None:
        self.count(name, *labels, by=seconds)
        buckets = self._buckets[name]
        found = buckets.setdefault(self._known(buckets, labels), [0] * (len(_BOUNDS) + 1))
        found[bisect_left(_BOUNDS, seconds)] += 1

    def text(self, now: Mapping[str, tuple[str, float]]) -> str:
        """As Prometheus reads it; ``now`` are what is so at this moment, each with its help."""
        lines: list[str] = []
        for name, kind in _KINDS.items():
            lines += (f"# HELP {name} {kind.help}", f"# TYPE {name} {kind.type}")
            for labels, value in self._counts[name].items():
                if kind.type == "counter":
                    lines.append(f"{name}{_shown(zip(kind.labels, labels, strict=True))} {value:.12g}")
                else:
                    lines += _histogram(name, kind, labels, value, self._buckets[name][labels])
        for name, (told, value) in now.items():
            type_ = "counter" if name.endswith("_total") else "gauge"
            lines += (f"# HELP {name} {told}", f"# TYPE {name} {type_}", f"{name} {value:.12g}")
        return "\n".join(lines) + "\n"

    @staticmethod
    def _known(held: Mapping[tuple[str, ...], object], labels: tuple[str, ...]) -> tuple[str, ...]:
        return labels if labels in held or len(held) < _MOST else ("other",) * len(labels)


def _histogram(name: str, kind: _Kind, labels: tuple[str, ...], total: float, buckets: list[int]) -> list[str]:
    pairs = list(zip(kind.labels, labels, strict=True))
    lines, count = [], 0
    for bound, here in zip((*_BOUNDS, None), buckets, strict=True):
        count += here
        until = "+Inf" if bound is None else f"{bound:g}"
        lines.append(f"{name}_bucket{_shown([*pairs, ('le', until)])} {count}")
    return [*lines, f"{name}_sum{_shown(pairs)} {total:.12g}", f"{name}_count{_shown(pairs)} {count}"]


def _shown(pairs: Iterable[tuple[str, str]]) -> str:
    told = ",".join(f'{key}="{value.translate(_ESCAPES)}"' for key, value in pairs)
    return f"{{{told}}}" if told else ""
