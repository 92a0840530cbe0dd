"""The footer: folder, model, mode, context use and cost, as far as they fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from rich.cells import cell_len

from clew.fronts.cli.safe_text import plain
from clew.fronts.failure_messages import failure_message
from clew.live.base import Status
from clew.transcript.rule import Mode

__all__ = ["MODE_WORDS", "Footer", "work_status"]

MODE_WORDS: Final[Mapping[Mode, str]] = {
    "ask": "asks before changes that no rule allows",
    "accept_edits": "edits files in this folder without asking",
    "read_only": "reads only, changes nothing",
}


class Footer(msgspec.Struct, frozen=True):
    """The values shown in the footer."""

    folder: str = ""
    model: str = ""
    mode: str = "ask"
    share: float | None = None
    cost_usd: float = 0.0

    def line(self, width: int) -> str:
        """Return one row. In a narrow one the folder is omitted first, then the cost; never the model and mode."""
        home, folder = str(Path.home()), self.folder
        folder = f"~{folder[len(home) :]}" if folder == home or folder.startswith(f"{home}/") else folder
        full = "" if self.share is None else f"{self.share:.0%} full"
        cost = f"${self.cost_usd:.4f}" if 0 < self.cost_usd < 0.01 else f"${self.cost_usd:.2f}"
        short = self.model.rpartition("/")[2]
        variants = (
            (folder, self.model, self.mode, full, cost),
            (f"…/{Path(folder).name}", self.model, self.mode, full, cost),
            (self.model, self.mode, full, cost),
            (self.model, self.mode, full),
            (short, self.mode, full),
            (short, self.mode),
        )
        lines = [" · ".join(plain(" ".join(part.split())) for part in variant if part) for variant in variants]
        return next((line for line in lines if cell_len(line) <= width), lines[-1])


def work_status(status: Status, now_s: float) -> str:
    """Describe the work of a running session and its duration; before a retry, the reason and the wait."""
    again = f"attempt {status.attempt}: " if status.state == "retrying" and status.attempt else ""
    known = failure_message(status.problem or {})
    if status.retry_at is not None and known is not None:
        left = max(0, round(status.retry_at / 1000 - now_s))
        return f"{again}{plain(known.happened)} Retrying {f'in {left} s' if left else 'now'}"
    running = ", ".join(dict.fromkeys(call.tool for call in status.running))
    doing = status.message or (f"{running} runs" if running else "")
    doing = doing or ("working" if status.state == "busy" else "waiting to retry")
    began = min((call.since for call in status.running), default=status.started_at)
    seconds = 0 if began is None else int(now_s - began / 1000)
    return f"{again}{plain(doing)}{f' {seconds} s' if seconds > 0 else ''}"
