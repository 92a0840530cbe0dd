"""Tools that work through the editor: ``read`` sees unsaved text, ``write`` and ``edit`` change its buffers, ``bash``
can run in its terminal.

Names, arguments, targets and permissions are those of clew's own tools, which do the work wherever the editor cannot:
in sessions that it does not have open (a subagent's, one of the page), for binary files, and when it refuses to read.

In a terminal of the editor a person can watch a command run and read its output later. Permissions and environment are
those of clew's own ``bash``. The process belongs to the editor, though: background processes are not ended and there is
no sandbox. So this is off by default.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from clew.errors import ToolFailed
from clew.fronts.acp.rpc import Closed, Connection, Refused
from clew.fronts.acp.serve import Editor
from clew.fronts.acp.session import OpenSession
from clew.tools.base import DEFAULT_TIMEOUT_MS, Tool, ToolContext, ToolOutput
from clew.tools.builtin.bash import bash
from clew.tools.builtin.edit import MAX_EDIT_BYTES, edit, edited_output, plan_edit
from clew.tools.builtin.read import page_of, read, show_page
from clew.tools.builtin.write import write, written_output
from clew.tools.decorator import FunctionTool
from clew.tools.files.access import open_plain
from clew.tools.files.change import change_between, change_details, may_show, text_at
from clew.tools.files.paths import ResolvedPath, judged_path
from clew.tools.files.walk import StopCheck
from clew.tools.output import SNIFF_BYTES, Spool, looks_binary
from clew.tools.process.environment import environment
from clew.tools.thread import run_in_thread
from clew.transcript.rule import Target

__all__ = ["editor_tools"]

_TIMEOUT_S: Final = 20.0
"""Time limit for an answer of the editor; files can be read without it."""
Run = Callable[[Mapping[str, Any], ToolContext], Awaitable[ToolOutput | None]]
_MAX_BYTES: Final = 1 << 20
"""Output the editor keeps: the last bytes."""
_NOT_KNOWN: Final = "the editor did not confirm that it runs the command; its effects are unknown"
"""The command is not run by clew then: it might run twice."""


class _Files:
    """The files of one session as the editor holds them, unsaved changes included."""

    def __init__(self, editor: Editor, session_id: str) -> None:
        self._editor = editor
        self._session_id = session_id

    async def read(self, resolved: ResolvedPath) -> str | None:
        """Return the file's text; None if the editor does not give it."""
        try:
            answer = await self._ask("fs/read_text_file", resolved)
        except (Refused, Closed, TimeoutError):
            return None
        text = answer.get("content") if isinstance(answer, Mapping) else None
        return text if isinstance(text, str) and len(text) <= MAX_EDIT_BYTES else None

    async def write(self, resolved: ResolvedPath, text: str) -> str:
        """Write the file through the editor; return a remark for the tool's output, empty if it was saved."""
        try:
            await self._ask("fs/write_text_file", resolved, content=text)
        except Refused as error:
            raise ToolFailed(f"the editor did not write {resolved.shown}: {error.message[:200]}") from error
        except (Closed, TimeoutError) as error:
            raise ToolFailed(f"the editor did not answer; {resolved.shown} may or may not have been written") from error
        saved = await run_in_thread(text_at, resolved)
        return "" if saved == text else "; unsaved in the editor"

    async def _ask(self, method: str, resolved: ResolvedPath, **more: Any) -> Any:
        assert self._editor.connection is not None
        async with asyncio.timeout(_TIMEOUT_S):
            asked = {"sessionId": self._session_id, "path": str(resolved.path), **more}
            return await self._editor.connection.request(method, asked)


class EditorTool:
    """A built-in tool that works through the editor where possible; ``run`` returns None where it is not."""

    def __init__(self, own: FunctionTool, run: Run) -> None:
        self.name = own.name
        self.description = own.description
        self.input_schema = own.input_schema
        self.timeout_ms = own.timeout_ms
        self.needs_workspace = own.needs_workspace
        self.asks_human = own.asks_human
        self.preview = own.preview
        self.capabilities = own.capabilities
        self._own = own
        self._run = run

    def targets(self, args: Mapping[str, Any], workspace: Path | None) -> Sequence[Target]:
        return self._own.targets(args, workspace)

    async def execute(self, args: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        done = await self._run(args, context)
        return await self._own.execute(args, context) if done is None else done


def editor_tools(editor: Editor, *, terminals: bool = False) -> list[Tool]:
    """Return ``read``, ``write`` and ``edit`` through the editor, with ``terminals`` also ``bash``."""

    def through(run: Callable[[_Files, Mapping[str, Any], ToolContext], Awaitable[ToolOutput | None]]) -> Run:
        async def try_it(args: Mapping[str, Any], context: ToolContext) -> ToolOutput | None:
            client, is_open = editor.client, context.session_id in editor.sessions
            if not (is_open and client.reads_files and (client.writes_files or run is _read)):
                return None
            return await run(_Files(editor, context.session_id), args, context)

        return try_it

    async def in_terminal(args: Mapping[str, Any], context: ToolContext) -> ToolOutput | None:
        opened, connection = editor.sessions.get(context.session_id), editor.connection
        if opened is None or connection is None or not editor.client.terminal:
            return None
        return await _run_in_terminal(connection, opened, args, context)

    tools: list[Tool] = [
        EditorTool(read, through(_read)),
        EditorTool(write, through(_write)),
        EditorTool(edit, through(_edit)),
    ]
    return [*tools, EditorTool(bash, in_terminal)] if terminals else tools


async def _read(files: _Files, args: Mapping[str, Any], context: ToolContext) -> ToolOutput | None:
    resolved = await judged_path("read", args["path"], context)
    text = await files.read(resolved) if await run_in_thread(_may_be_text, resolved.path) else None
    is_there = bool(text) or await run_in_thread(resolved.path.exists)
    if text is None or not is_there:
        return None  # some editors return an empty text for a missing file
    data, stop_check = text.encode(errors="replace"), StopCheck(context.signal, 60)
    page = page_of(context, args.get("offset", 1), args.get("limit", 2_000))
    return ToolOutput(await run_in_thread(show_page, iter([data]), page, stop_check, lambda: (0, len(data))))


async def _write(files: _Files, args: Mapping[str, Any], context: ToolContext) -> ToolOutput | None:
    path, content = args["path"], args["content"]
    resolved = await judged_path("write", path, context)
    try:
        data = content.encode()
    except UnicodeEncodeError:
        return None
    if path.endswith(("/", "/.", "/..")) or not await run_in_thread(_may_be_text, resolved.path):
        return None
    before = await files.read(resolved)
    about = None
    if before is not None and await may_show(resolved, context):
        about = change_details(await run_in_thread(change_between, before, content))
    more = await files.write(resolved, content)
    output = written_output(resolved, data, None if before is None else len(before.encode(errors="replace")), about)
    return ToolOutput(f"{output.value}{more}", output.about)


async def _edit(files: _Files, args: Mapping[str, Any], context: ToolContext) -> ToolOutput | None:
    resolved = await judged_path("edit", args["path"], context)
    text = await files.read(resolved) if await run_in_thread(_may_be_text, resolved.path) else None
    if text is None:
        return None
    every = args.get("all") is True
    edited = await run_in_thread(plan_edit, text, args["old"], args["new"], every=every)
    more = await files.write(resolved, edited.text)
    output = edited_output(resolved, text, edited, shown=await may_show(resolved, context))
    return ToolOutput(f"{output.value}{more}", output.about)


def _may_be_text(path: Path) -> bool:
    """Return whether the path is a regular text file or does not exist; clew's own tools handle everything else."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return False
        with open_plain(path) as (handle, _):
            return not looks_binary(os.read(handle, SNIFF_BYTES))
    except FileNotFoundError:
        return True
    except (OSError, ToolFailed):
        return False


async def _run_in_terminal(
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
