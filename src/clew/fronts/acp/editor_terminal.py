"""The ``bash`` tool in a terminal of the editor, where a person can watch a command run and read its output later.

Permissions and environment are those of clew's own ``bash``. The process belongs to the editor, though: background
processes are not ended and there is no sandbox. So this is off by default.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from typing import Any, Final

from clew.errors import ToolFailed
from clew.fronts.acp.rpc import Closed, Connection, Refused
from clew.fronts.acp.session import OpenSession
from clew.tools.base import DEFAULT_TIMEOUT_MS, ToolContext, ToolOutput
from clew.tools.output import Spool
from clew.tools.process.environment import environment
from clew.tools.thread import run_in_thread

__all__ = ["run_in_terminal"]

_MAX_BYTES: Final = 1 << 20
"""Output the editor keeps: the last bytes."""
_TIMEOUT_S: Final = 20.0
_NOT_KNOWN: Final = "the editor did not confirm that it runs the command; its effects are unknown"
"""The command is not run by clew then: it might run twice."""


async def run_in_terminal(
    connection: Connection, opened: OpenSession, args: Mapping[str, Any], context: ToolContext
) -> ToolOutput | None:
    """Run the command to its end; None if the editor opens no terminal, so nothing has run."""
    command, timeout_ms = str(args["command"]), int(args.get("timeout_ms", DEFAULT_TIMEOUT_MS))
    shell, clean = shutil.which("bash", path="/bin:/usr/bin") or shutil.which("bash"), shutil.which("env")
    if context.workspace is None or shell is None or clean is None or "\x00" in command:
        return None
    # The editor's own environment may hold API keys.
    variables = [f"{name}={value}" for name, value in environment(os.environ).items()]
    terminal = _Terminal(connection, opened.id)
    argv = ["-i", *variables, shell, "--noprofile", "--norc", "-c", "--", command]
    if not await terminal.open(clean, argv, str(context.workspace)):
        return None
    try:
        await opened.updates.send_terminal(context.call_id, terminal.id)
        why = await terminal.wait(timeout_ms, context)
        output, code = await terminal.output()
    except (Refused, Closed, TimeoutError) as error:
        raise ToolFailed(f"the editor lost the command's terminal ({error}); its effects are unknown") from error
    finally:
        # Also when cancelled: the command must not outlive its call.
        terminal.end()
    spool = Spool(context.spill, "bash", max_chars=context.max_output_chars)
    try:
        spool.write(output.encode(errors="replace"))
        shown = await run_in_thread(spool.finish)
    finally:
        spool.close()
    outcome = "; ".join(filter(None, (why, "ended by a signal" if code is None else f"exit code {code}")))
    if context.signal.aborted:
        raise ToolFailed(f"the command was aborted ({context.signal.reason or 'no reason given'}); {outcome}")
    line = "" if shown.endswith("\n") or not shown else "\n"
    return ToolOutput({"text": f"{shown}{line}[{outcome}]", "exit_code": -1 if code is None else code})


class _Terminal:
    """A terminal of the editor, from its creation to its release."""

    def __init__(self, connection: Connection, session_id: str) -> None:
        self._connection = connection
        self._session_id = session_id
        self._ending: asyncio.Task[None] | None = None
        self._exited = False
        self.id = ""

    async def open(self, command: str, args: list[str], cwd: str) -> bool:
        asked = {"command": command, "args": args, "cwd": cwd, "env": [], "outputByteLimit": _MAX_BYTES}
        try:
            made = await self._ask("create", **asked)
        except Refused:
            return False
        except (Closed, TimeoutError) as error:
            raise ToolFailed(_NOT_KNOWN) from error
        self.id = str(made.get("terminalId") or "") if isinstance(made, Mapping) else ""
        if not self.id:
            raise ToolFailed(_NOT_KNOWN)
        return True

    async def wait(self, timeout_ms: int, context: ToolContext) -> str:
        """Wait until the command exits or is killed; return why it was killed, else an empty text."""
        asked = {"sessionId": self._session_id, "terminalId": self.id}
        exited = asyncio.ensure_future(self._connection.request("terminal/wait_for_exit", asked))
        aborted = asyncio.ensure_future(context.signal.wait())
        try:
            await asyncio.wait({exited, aborted}, timeout=timeout_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
            # Exited, or about to be killed: `end` must not kill it again, even if this is cancelled here.
            self._exited = True
            if exited.done():
                exited.result()
                return ""
            await self._ask("kill", terminalId=self.id)
            return "" if aborted.done() else f"timed out after {timeout_ms / 1000:g} s"
        finally:
            exited.cancel()
            aborted.cancel()

    async def output(self) -> tuple[str, int | None]:
        """Return the output and the exit code, None if a signal ended it."""
        given = await self._ask("output", terminalId=self.id)
        given = given if isinstance(given, Mapping) else {}
        status = given.get("exitStatus")
        code = status.get("exitCode") if isinstance(status, Mapping) else None
        cut = "[the beginning is not shown]\n" if given.get("truncated") is True else ""
        return f"{cut}{given.get('output') or ''}", code if isinstance(code, int) else None

    def end(self) -> None:
        self._ending = asyncio.create_task(self._end())
        self._ending.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _end(self) -> None:
        if not self._exited:
            await self._ask("kill", terminalId=self.id)
        await self._ask("release", terminalId=self.id)

    async def _ask(self, what: str, **params: Any) -> Any:
        async with asyncio.timeout(_TIMEOUT_S):
            return await self._connection.request(f"terminal/{what}", {"sessionId": self._session_id, **params})
