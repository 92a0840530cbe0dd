"""``python -m tests.rig NAME``: runs a campaign and prints a summary; the exit code is 1 if a guarantee was broken.

``--rounds`` and ``--minutes`` limit it, and ``--seed`` is the first seed: a round that broke a guarantee is reported
with its seed, and ``--seed N --rounds 1`` repeats it. With ``--tally FILE`` a campaign continues where the last one
with that file stopped, and the summary covers all of them. ``all`` divides the minutes.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from tests.rig.budget import Budget

CAMPAIGNS: Final = ("kill", "power", "flip", "fuzz", "phases", "share", "shell", "snapshots", "chaos", "soak")
_MAX_REPORTED: Final = 20


def run_campaign(name: str, rounds: int | None, minutes: float | None, seed: int, tally: Path | None) -> bool:
    campaign: Any = importlib.import_module(f"tests.rig.{name}")
    before: dict[str, Any] = {"next": seed, "counts": {}}
    if tally is not None and tally.exists():
        before = json.loads(tally.read_text())
    remaining = campaign.ROUNDS if rounds is None else rounds
    first = int(before["next"])
    if tally is not None:
        remaining = max(remaining - (first - seed), 0)
    began = time.monotonic()
    outcome = campaign.run(Budget(remaining, minutes=minutes, seed=first))
    counts: Counter[str] = Counter(before["counts"])
    counts.update(outcome.counts)
    counts["seconds"] += round(time.monotonic() - began)
    if tally is not None:
        tally.write_text(json.dumps({"next": first + outcome.counts["rounds"], "counts": counts}, indent=1))
    for one in outcome.broken[:_MAX_REPORTED]:
        print(f"BROKEN: {one}")
    if len(outcome.broken) > _MAX_REPORTED:
        print(f"BROKEN: and {len(outcome.broken) - _MAX_REPORTED} more")
    print(f"{campaign.figure(counts)}; seeds {first} to {first + outcome.counts['rounds'] - 1}, {counts['seconds']} s")
    sys.stdout.flush()
    return not outcome.broken


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rig", description=__doc__)
    parser.add_argument("name", choices=[*CAMPAIGNS, "all"])
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tally", type=Path)
    options = parser.parse_args()
    # A campaign breaks things on purpose; clew's log lines would bury the summary.
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="clew-settings-", ignore_cleanup_errors=True) as folder:
        # Malformed inputs must not reach the settings of the user.
        os.environ["XDG_CONFIG_HOME"] = folder
        return run_campaigns(options)


def run_campaigns(options: argparse.Namespace) -> int:
    names = CAMPAIGNS if options.name == "all" else (options.name,)
    minutes = None if options.minutes is None else options.minutes / len(names)
    passed = []
    for name in names:
        tally = options.tally
        if tally is not None and len(names) > 1:
            tally = tally.with_name(f"{name}-{tally.name}")
        passed.append(run_campaign(name, options.rounds, minutes, options.seed, tally))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
