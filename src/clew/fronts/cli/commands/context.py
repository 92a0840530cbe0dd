"""``clew context``, ``compact`` and ``prune``: how full a session's window is, and making it less so."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any, Final

from clew.compaction.context import ContextReport
from clew.fronts.cli.command import Json, Store, open_store, option, plural, show
from clew.session.context.compact import Compacted

__all__ = ["COMMANDS", "gauge"]

_WIDTH: Final = 20


async def context(session: str, /, *, model: str | None = None, store: Store = None, json: Json = False) -> None:
    """Show how large the next request would be, and what it is made of.

    Example: clew context ses_… --model demo/small
    """
    async with open_store(store) as engine:
        report = await engine.context(session, model=model)
    show(json, report, [gauge(report)])


async def compact(
    session: str,
    /,
    *,
    focus: Annotated[str | None, option("What the summary should not leave out.")] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Summarise the older turns of a session. They stay stored and can be read.

    Example: clew compact ses_… --focus "the names of the files"
    """
    async with open_store(store, write=True) as engine:
        if sys.stderr.isatty():
            print("clew: summarising …", file=sys.stderr)
        done = await engine.compact(session, focus)
    show(json, done, [_outcome(done, f"summarised {plural(done.turns, 'earlier turn')}", "nothing to summarise")])


async def prune(session: str, /, *, store: Store = None, json: Json = False) -> None:
    """Have the model see stubs in place of older tool outputs. What is stored stays whole.

    Example: clew prune ses_…
    """
    async with open_store(store, write=True) as engine:
        done = await engine.prune(session)
    show(json, done, [_outcome(done, f"pruned {plural(done.pruned, 'tool output')}", "nothing to prune")])


COMMANDS: Final[tuple[Callable[..., Any], ...]] = (context, compact, prune)


def _outcome(done: Compacted, what: str, nothing: str) -> str:
    if not done.compacted:
        return f"{nothing}: {done.tokens_before:,} tokens"
    return f"{what}: {done.tokens_before:,} → {done.tokens_after:,} tokens ({done.strategy})"


def gauge(report: ContextReport) -> str:
    """The context as one line: a bar, the sum, and its parts."""
    share = report.used / report.limit if report.limit else 1.0
    full = min(max(round(share * _WIDTH), 1 if report.used else 0), _WIDTH)
    parts = report.parts
    sizes = [("system", parts.system), ("tools", parts.tools), ("summary", parts.summary), ("history", parts.history)]
    held = " · ".join(f"{name} {size:,}" for name, size in sizes)
    saved = f" · pruned away {parts.pruned:,}" if parts.pruned else ""
    counted = "measured" if report.measured else "estimated"
    return (
        f"{'█' * full}{'░' * (_WIDTH - full)} {share:.0%}  {report.used:,} of {report.limit:,} tokens ({counted}), "
        f"room is made at {report.threshold:,}  {held}{saved}"
    )
