"""The command line in this process, for tests to which the process is not the point."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from clew.fronts.cli import main
from tests.integration.processes import environment

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """``clew`` with a store and a home of its own: exit code, stdout, stderr."""
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CLEW_TOKEN", raising=False)
    monkeypatch.chdir(tmp_path)

    def told(*words: str, **env: str) -> tuple[int, str, str]:
        capsys.readouterr()
        with monkeypatch.context() as patched:
            patched.setattr(sys, "argv", ["clew", *words])
            for name, value in env.items():
                patched.setenv(name, value)
            with pytest.raises(SystemExit) as end:
                main()
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return told
