"""``python -m tests.rig NAME``: runs a campaign and prints its figure; the exit code is 1 when a promise was broken.

``--rounds`` and ``--minutes`` say how long, ``--seed`` where to begin: a round that broke a promise is told by its
seed, and ``--seed N --rounds 1`` repeats it. With ``--tally FILE`` a campaign goes on where the last one with that
file stopped, and the figure is of all of them. ``all`` divides the minutes.
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

CAMPAIGNS: Final = ("kill", "power", "flip", "fuzz", "phases", "share", "shell", "chaos", "soak")
_TOLD: Final = 20


def run_campaign(name: str, rounds: int | None, minutes: float | None, seed: int, tally: Path | None) -> bool:
    campaign: Any = importlib.import_module(f"tests.rig.{name}")
    before: dict[str, Any] = {"next": seed, "counts": {}}
    if tally is not None and tally.exists():
        before = json.loads(tally.read_text())
    wanted = campaign.ROUNDS if rounds is None else rounds
    first = int(before["next"])
    if tally is not None:
        wanted = max(wanted - (first - seed), 0)
    began = time.monotonic()
    outcome = campaign.run(Budget(wanted, minutes=minutes, seed=first))
    counts: Counter[str] = Counter(before["counts"])
    counts.update(outcome.counts)
    counts["seconds"] += round(time.monotonic() - began)
    if tally is not None:
        tally.write_text(json.dumps({"next": first + outcome.counts["rounds"], "counts": counts}, indent=1))
    for one in outcome.broken[:_TOLD]:
        print(f"BROKEN: {one}")
    if len(outcome.broken) > _TOLD:
        print(f"BROKEN: and {len(outcome.broken) - _TOLD} more")
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
    given = parser.parse_args()
    # A campaign breaks things on purpose; what clew has to say about each would bury the figure.
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="clew-settings-", ignore_cleanup_errors=True) as own:
        # Inputs nobody should send must not reach the settings of who runs this.
        os.environ["XDG_CONFIG_HOME"] = own
        return run_campaigns(given)


def run_campaigns(given: argparse.Namespace) -> int:
    names = CAMPAIGNS if given.name == "all" else (given.name,)
    minutes = None if given.minutes is None else given.minutes / len(names)
    kept = []
    for name in names:
        tally = given.tally
        if tally is not None and len(names) > 1:
            tally = tally.with_name(f"{name}-{tally.name}")
        kept.append(run_campaign(name, given.rounds, minutes, given.seed, tally))
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
