"""``clew context``, ``compact`` and ``prune``: show and reduce a session's context use."""

from __future__ import annotations

import sys
from typing import Annotated, Final

from clew.compaction.context import ContextReport
from clew.fronts.cli.command import Json, Store, open_store, option, plural, show
from clew.session.context.compact import Compacted

__all__ = ["compact", "context", "gauge", "prune"]

_WIDTH: Final = 20


async def context(session: str, /, *, model: str | None = None, store: Store = None, json: Json = False) -> None:
    """Show the size of the next request, by part.

    Example: clew context ses_… --model demo/small
    """
    async with open_store(store) as engine:
        report = await engine.context(session, model=model)
    show(json, report, [gauge(report)])


async def compact(
    session: str,
    /,
    *,
    focus: Annotated[str | None, option("Content that the summary must keep.")] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Compact the older turns of a session into a summary. They stay stored.

    Example: clew compact ses_… --focus "the names of the files"
    """
    async with open_store(store, write=True) as engine:
        if sys.stderr.isatty():
            print("clew: compacting …", file=sys.stderr)
        done = await engine.compact(session, focus)
    show(json, done, [_outcome(done, f"compacted {plural(done.turns, 'earlier turn')}", "nothing to compact")])


async def prune(session: str, /, *, store: Store = None, json: Json = False) -> None:
    """Replace older tool outputs by stubs in the model's view. The stored outputs do not change.

    Example: clew prune ses_…
    """
    async with open_store(store, write=True) as engine:
        done = await engine.prune(session)
    show(json, done, [_outcome(done, f"pruned {plural(done.pruned, 'tool output')}", "nothing to prune")])


def _outcome(done: Compacted, what: str, nothing: str) -> str:
    if not done.compacted:
        return f"{nothing}: {done.tokens_before:,} tokens"
    return f"{what}: {done.tokens_before:,} → {done.tokens_after:,} tokens ({done.strategy})"


def gauge(report: ContextReport) -> str:
    """Return the context use as one line: a bar, the total and its parts."""
    share = report.used / report.limit if report.limit else 1.0
    full = min(max(round(share * _WIDTH), 1 if report.used else 0), _WIDTH)
    parts = report.parts
    sizes = [("system", parts.system), ("tools", parts.tools), ("summary", parts.summary), ("history", parts.history)]
    breakdown = " · ".join(f"{name} {size:,}" for name, size in sizes)
    saved = f" · pruned {parts.pruned:,}" if parts.pruned else ""
    counted = "measured" if report.measured else "estimated"
    return (
        f"{'█' * full}{'░' * (_WIDTH - full)} {share:.0%}  {report.used:,} of {report.limit:,} tokens ({counted}), "
        f"auto-compacts at {report.threshold:,}  {breakdown}{saved}"
    )
