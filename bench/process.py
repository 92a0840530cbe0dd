"""What a process has used, as the system counts it; Linux only."""

from __future__ import annotations

import os
import resource
from pathlib import Path

__all__ = ["cpu_seconds", "peak_mb", "raise_file_limit", "written_bytes"]


def cpu_seconds(pid: int) -> float:
    """Of all its threads, in user and in system mode."""
    # The name of the program, in parentheses, may hold spaces.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid: int | str = "self") -> float:
    """The most memory it has held."""
    return _field(f"/proc/{pid}/status", "VmHWM") / 1024


def written_bytes(pid: int | str = "self") -> float:
    """What it has handed to the system to write, the WAL and checkpoints included."""
    return _field(f"/proc/{pid}/io", "wchar")


def raise_file_limit() -> None:
    """Every connection is a file; a shell often begins with 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 8_192 if hard == resource.RLIM_INFINITY else min(hard, 8_192)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def _field(path: str, name: str) -> float:
    return float(next(line for line in Path(path).read_text().splitlines() if line.startswith(name)).split()[1])
