"""Room: the commands that show how full a session is, and make it less so."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Final

import cyclopts

from clew.compaction.context import ContextReport
from clew.fronts.cli.command import Json, Store, end, opened, print_json
from clew.runtime.compact import Compacted

__all__ = ["COMMANDS", "gauge"]

_WIDTH: Final = 20


def context(session: str, /, *, model: str | None = None, store: Store = None, json: Json = False) -> int:
    """Show how large the next request would be, and what it is made of.

    Example: clew context ses_… --model demo/small
    """

    async def run() -> int:
        async with opened(store) as engine:
            report = await engine.context(session, model=model)
        if json:
            print_json(report)
        else:
            print(gauge(report))
        return 0

    return end(run())


def compact(
    session: str,
    /,
    *,
    focus: Annotated[str | None, cyclopts.Parameter(help="What the summary should not leave out.")] = None,
    store: Store = None,
    json: Json = False,
) -> int:
    """Summarise the older turns of a session. They stay stored and can be read.

    Example: clew compact ses_… --focus "the names of the files"
    """

    async def run() -> int:
        async with opened(store, write=True) as engine:
            if sys.stderr.isatty():
                print("clew: summarising …", file=sys.stderr)
            done = await engine.compact(session, focus)
        turns = f"{done.turns} earlier turn{'' if done.turns == 1 else 's'}"
        return _told(done, f"summarised {turns}", "nothing to summarise", json)

    return end(run())


def prune(session: str, /, *, store: Store = None, json: Json = False) -> int:
    """Have the model see stubs in place of older tool outputs. What is stored stays whole.

    Example: clew prune ses_…
    """

    async def run() -> int:
        async with opened(store, write=True) as engine:
            done = await engine.prune(session)
        outputs = f"{done.pruned} tool output{'' if done.pruned == 1 else 's'}"
        return _told(done, f"pruned {outputs}", "nothing to prune", json)

    return end(run())


COMMANDS: Final[Mapping[str, Callable[..., int]]] = {"context": context, "compact": compact, "prune": prune}


def _told(done: Compacted, what: str, nothing: str, json: bool) -> int:
    if json:
        print_json(done)
    elif done.compacted:
        print(f"{what}: {done.tokens_before:,} → {done.tokens_after:,} tokens ({done.strategy})")
    else:
        print(f"{nothing}: {done.tokens_before:,} tokens")
    return 0


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
