"""``bash`` in a terminal of the editor, for people who ask for that: they see a command run, and can look at it after.

Judged and asked about like clew's own, in an environment as clean as its own. What runs there is the editor's, though:
nothing ends what a command leaves in the background, and no sandbox is around it. So it is never the usual way.
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
"""So much of the end of its output the editor is to keep."""
_PATIENCE_S: Final = 20.0
_NOT_KNOWN: Final = "the editor did not say whether it runs the command; its effects are unknown"
"""Not run here then: it might run twice."""


async def run_in_terminal(
    connection: Connection, opened: OpenSession, args: Mapping[str, Any], context: ToolContext
) -> ToolOutput | None:
    """The command, run to its end; None where the editor does not open a terminal, and nothing has been run."""
    command, timeout_ms = str(args["command"]), int(args.get("timeout_ms", DEFAULT_TIMEOUT_MS))
    shell, clean = shutil.which("bash", path="/bin:/usr/bin") or shutil.which("bash"), shutil.which("env")
    if context.workspace is None or shell is None or clean is None or "\x00" in command:
        return None
    # What the editor has in its own environment, keys among it, is not there to be read.
    words = [f"{name}={value}" for name, value in environment(os.environ).items()]
    terminal = _Terminal(connection, opened.id)
    argv = ["-i", *words, shell, "--noprofile", "--norc", "-c", "--", command]
    if not await terminal.open(clean, argv, str(context.workspace)):
        return None
    try:
        await opened.telling.tell_terminal(context.call_id, terminal.id)
        why = await terminal.wait(timeout_ms, context)
        output, code = await terminal.output()
    except (Refused, Closed, TimeoutError) as error:
        raise ToolFailed(f"the editor lost the command's terminal ({error}); its effects are unknown") from error
    finally:
        # Also where this is cancelled: what was started is ended, whoever waits for it.
        terminal.end()
    spool = Spool(context.spill, "bash", max_chars=context.max_output_chars)
    try:
        spool.write(output.encode(errors="replace"))
        shown = await run_in_thread(spool.finish)
    finally:
        spool.close()
    told = "; ".join(filter(None, (why, "ended by a signal" if code is None else f"exit code {code}")))
    if context.signal.aborted:
        raise ToolFailed(f"the command was aborted ({context.signal.reason or 'no reason given'}); {told}")
    line = "" if shown.endswith("\n") or not shown else "\n"
    return ToolOutput({"text": f"{shown}{line}[{told}]", "exit_code": -1 if code is None else code})


class _Terminal:
    """One terminal of the editor's, from its beginning to its end."""

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
        """Until it has ended, or was ended; why, where it was."""
        asked = {"sessionId": self._session_id, "terminalId": self.id}
        exited = asyncio.ensure_future(self._connection.request("terminal/wait_for_exit", asked))
        aborted = asyncio.ensure_future(context.signal.wait())
        try:
            await asyncio.wait({exited, aborted}, timeout=timeout_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
            # It has ended, or is told to: once is enough, also where this is cut off in between.
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
        """What it has written, and its exit code; None where a signal ended it."""
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
        async with asyncio.timeout(_PATIENCE_S):
            return await self._connection.request(f"terminal/{what}", {"sessionId": self._session_id, **params})
