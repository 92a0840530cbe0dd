"""The footer: folder, model, mode, how full the window is and what was spent, as much of it as there is room for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from rich.cells import cell_len

from clew.fronts.cli.safe_text import plain
from clew.fronts.failure_messages import words_of
from clew.live.base import Status
from clew.transcript.rule import Mode

__all__ = ["MODE_WORDS", "Footer", "at_work_words"]

MODE_WORDS: Final[Mapping[Mode, str]] = {
    "ask": "asks before it changes anything that no rule allows",
    "accept_edits": "writes and edits in this folder without asking",
    "read_only": "reads, and changes nothing",
}


class Footer(msgspec.Struct, frozen=True):
    """What is always in sight."""

    folder: str = ""
    model: str = ""
    mode: str = "ask"
    share: float | None = None
    cost_usd: float = 0.0

    def line(self, width: int) -> str:
        """One row. What is narrower says less: first the folder gives way, then the spend; never model and mode."""
        home, folder = str(Path.home()), self.folder
        folder = f"~{folder[len(home) :]}" if folder == home or folder.startswith(f"{home}/") else folder
        full = "" if self.share is None else f"{self.share:.0%} full"
        cost = f"${self.cost_usd:.4f}" if 0 < self.cost_usd < 0.01 else f"${self.cost_usd:.2f}"
        short = self.model.rpartition("/")[2]
        forms = (
            (folder, self.model, self.mode, full, cost),
            (f"…/{Path(folder).name}", self.model, self.mode, full, cost),
            (self.model, self.mode, full, cost),
            (self.model, self.mode, full),
            (short, self.mode, full),
            (short, self.mode),
        )
        lines = [" · ".join(plain(" ".join(part.split())) for part in form if part) for form in forms]
        return next((line for line in lines if cell_len(line) <= width), lines[-1])


def at_work_words(status: Status, now_s: float) -> str:
    """What a session that is at work does, and for how long; before another try, why and when."""
    again = f"attempt {status.attempt}: " if status.state == "retrying" and status.attempt else ""
    known = words_of(status.problem or {})
    if status.retry_at is not None and known is not None:
        left = max(0, round(status.retry_at / 1000 - now_s))
        return f"{again}{plain(known.happened)} Trying again {f'in {left} s' if left else 'now'}"
    running = ", ".join(dict.fromkeys(call.tool for call in status.running))
    doing = status.message or (f"{running} runs" if running else "")
    doing = doing or ("working" if status.state == "busy" else "waiting to try again")
    began = min((call.since for call in status.running), default=status.started_at)
    seconds = 0 if began is None else int(now_s - began / 1000)
    return f"{again}{plain(doing)}{f' {seconds} s' if seconds > 0 else ''}"
