"""Ways out of the sandbox that are no files: terminals, disks, and what the system shows of other processes."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import tty

import pytest

from tests.integration.test_sandbox import Fenced, fenced, needs_landlock

__all__ = ["fenced"]


@needs_landlock
@pytest.mark.rule("PM-9")
async def test_a_command_in_the_sandbox_neither_writes_to_a_terminal_nor_reads_what_is_typed(fenced: Fenced) -> None:
    keyboard, screen = pty.openpty()
    try:
        tty.setraw(screen)
        os.write(keyboard, b"a password\n")
        name = os.ttyname(screen)
        assert await fenced.run(f"( echo x > {name} || head -c 10 < {name} ) 2> /dev/null") == "[exit code 1]"
        os.set_blocking(keyboard, False)
        with pytest.raises(BlockingIOError):
            os.read(keyboard, 10)
    finally:
        os.close(keyboard)
        os.close(screen)


@needs_landlock
@pytest.mark.rule("PM-9")
async def test_a_command_in_the_sandbox_does_not_see_the_variables_another_process_was_started_with(
    fenced: Fenced,
) -> None:
    """Not as root either, whom the kernel lets look into processes that it keeps from others."""
    host = await asyncio.create_subprocess_exec("cat", env={"API_KEY": "kept apart"}, stdin=subprocess.PIPE)
    told = await fenced.run(f"cat /proc/{host.pid}/environ 2> /dev/null; cat /dev/null && echo > /dev/null")
    await host.communicate(b"")
    assert told == "[exit code 0]"
