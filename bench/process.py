"""Resource usage of a process, as the system counts it; Linux only."""

from __future__ import annotations

import os
import resource
from pathlib import Path

__all__ = ["cpu_seconds", "peak_mb", "raise_file_limit", "written_bytes"]


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of all threads, in user and system mode."""
    # The program's name, in parentheses, may contain spaces.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid: int | str = "self") -> float:
    """Return the peak memory."""
    return _field(f"/proc/{pid}/status", "VmHWM") / 1024


def written_bytes(pid: int | str = "self") -> float:
    """Return the bytes passed to the system for writing, including the WAL and checkpoints."""
    return _field(f"/proc/{pid}/io", "wchar")


def raise_file_limit() -> None:
    """Raise the limit of open files: every connection is one, and many shells allow only 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = 8_192 if hard == resource.RLIM_INFINITY else min(hard, 8_192)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))


def _field(path: str, name: str) -> float:
    return float(next(line for line in Path(path).read_text().splitlines() if line.startswith(name)).split()[1])
