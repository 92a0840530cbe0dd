"""File tools that work through the editor: ``read`` sees unsaved text, ``write`` and ``edit`` change its buffers.

Names, arguments, targets and permissions are those of clew's own tools, which do the work wherever the editor cannot:
in sessions that it does not have open (a subagent's, one of the page), for binary files, and when it refuses to read.
Its terminals are used on request only (``editor_terminal``).
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from clew.errors import ToolFailed
from clew.fronts.acp.editor_terminal import run_in_terminal
from clew.fronts.acp.rpc import Closed, Refused
from clew.fronts.acp.serve import Editor
from clew.tools.base import Tool, ToolContext, ToolOutput
from clew.tools.builtin.bash import bash
from clew.tools.builtin.edit import MAX_EDIT_BYTES, edit, edited_output, plan_edit
from clew.tools.builtin.read import page_of, read, show_page
from clew.tools.builtin.write import write, written_output
from clew.tools.decorator import FunctionTool
from clew.tools.files.access import open_plain
from clew.tools.files.change import change_between, change_details, may_show, text_at
from clew.tools.files.paths import ResolvedPath, judged_path
from clew.tools.files.walk import StopCheck
from clew.tools.media import SNIFF_BYTES, looks_binary
from clew.tools.thread import run_in_thread
from clew.transcript.rule import Target

__all__ = ["editor_tools"]

_TIMEOUT_S: Final = 20.0
"""Time limit for an answer of the editor; files can be read without it."""


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


Run = Callable[[Mapping[str, Any], ToolContext], Awaitable[ToolOutput | None]]


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
        return await run_in_terminal(connection, opened, args, context)

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
