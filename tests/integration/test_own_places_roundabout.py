"""Roundabout ways to clew's own files: options of ``cd``, handles in /dev, bundled letters, globs that find links."""

from __future__ import annotations

import pytest

from tests.integration.http_client import AsgiClient
from tests.integration.test_own_places import Home, client, decided, freed, home

__all__ = ["client", "home"]

CERTAIN = [
    "cd -P; cat .config/clew/token",
    "cd --; cat .config/clew/token",
    "cd -L -e && cat dotfiles/clew/token",
    "cd -- ../..; cat .config/clew/token",
    "cat /dev/fd/../root{real}/dotfiles/clew/token",
    "cat /dev/fd/../environ",
    "cat /dev/./fd/../../1/environ",
    "cat /dev/stdin/../environ",
    "cat /dev/stdin/clew/token < .",
    "date -uf../../.config/clew/token",
    "date -ufshortcut/clew/token",
    "date -ufnotes.txt",
    "diff <(cat notes.txt) src/a.py",
]
PERHAPS = [
    "cat /dev/f?/../environ",
    "cat short*/clew/token",
    "cat s[h]ortcut/clew/token",
    "cat */clew/token",
    "cat sh*t/../dotfiles/clew/token",
    "cat n*.txt",
    "cat <(ls src)$x",
    "cat ?otes.[t]xt",
]
HONEST = [
    "cat /dev/stdin",
    "tee /dev/stderr",
    "wc --files0-from=/dev/stdin",
    "cd - && ls",
    "cd -P src && cat a.py",
    "diff <(ls src) <(cat src/a.py)",
    "cat src/*.py",
    "cat s?c/*.py",
    "date -u",
    "grep -rnw foo src",
    "echo *",
]


@pytest.mark.rule("PM-9")
async def test_no_roundabout_way_of_a_command_leads_to_what_is_clews_own(client: AsgiClient, home: Home) -> None:
    session_id = await freed(client, home)

    async def decisions(lines: list[str]) -> dict[str, str]:
        return {line: await decided(client, session_id, "bash", line.format(real=home.real)) for line in lines}

    assert await decisions(CERTAIN) == dict.fromkeys(CERTAIN, "deny")
    assert await decisions(PERHAPS) == dict.fromkeys(PERHAPS, "ask")
    assert await decisions(HONEST) == dict.fromkeys(HONEST, "allow")
