"""``bash``: one command line in a fresh shell.

No state of a shell reaches the next call: no variable, no function, no directory, and no process of its group. The
environment is built from a short list, so that a command cannot read the host's keys.
"""

from __future__ import annotations

import os
import shutil
import signal as signals
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta

from clew.errors import ToolFailed
from clew.tools.base import DEFAULT_TIMEOUT_MS, ToolContext, ToolOutput
from clew.tools.decorator import FunctionTool, tool
from clew.tools.files.hard_links import files_named_outside
from clew.tools.files.paths import show_name
from clew.tools.output import Spool
from clew.tools.process.environment import environment
from clew.tools.process.owner_sandbox import find_owner_sandbox
from clew.tools.process.program import Ending, Program, run_program
from clew.tools.process.sandbox import Sandbox
from clew.tools.thread import run_in_thread
from clew.transcript.rule import Target

__all__ = ["bash", "make_bash"]

MAX_TIMEOUT_MS: Final = 600_000
# Linux accepts 128 KiB in one argument; a longer command belongs in a file.
MAX_COMMAND_CHARS: Final = 30_000
SHOWN_CHARS: Final = 4_000
"""Characters of the end of its output that are shown while a command runs."""

_MAX_NAMED: Final = 3
"""The most files that an error lists."""

_DESCRIPTION: Final = """Run a command line in bash, in the workspace.

Every call is a new shell: variables and cd do not last. There is no input. Output and errors come together, with
the exit code in the last line. Long output is cut in the middle and kept in a file. What the command leaves
running in the background is ended with it."""


def make_bash(sandbox: Sandbox | None = None, closed: Callable[[], Sequence[str]] = tuple) -> FunctionTool:
    """Return the tool; with a ``sandbox`` every command runs in one, without access to the ``closed`` paths.

    An owner's commands always run in an owner sandbox, or not at all.
    """

    # The call's time limit comes after the tool's own limit and its grace times, which end all processes.
    @tool(
        description=_DESCRIPTION if sandbox is None else f"{_DESCRIPTION}\n\n{sandbox.described}",
        needs_workspace=True,
        targets=lambda args, workspace: [Target("bash", "command", args["command"])],
        timeout_ms=MAX_TIMEOUT_MS + 15_000,
        capabilities=["shell.run"],
    )
    async def bash(
        command: Annotated[str, Meta(description="The command line.", min_length=1, max_length=MAX_COMMAND_CHARS)],
        context: ToolContext,
        timeout_ms: Annotated[int, Meta(description="When to give up.", ge=1, le=MAX_TIMEOUT_MS)] = DEFAULT_TIMEOUT_MS,
    ) -> ToolOutput:
        if context.workspace is None:
            raise ToolFailed("this session has no workspace to run a command in")
        if "\x00" in command:
            raise ToolFailed("the command holds a NUL character")
        shells = (path for path in ("/bin/bash", "/usr/bin/bash") if os.access(path, os.X_OK))
        shell = next(shells, None) or shutil.which("bash")
        if shell is None:
            raise ToolFailed("there is no bash on this machine")
        # "--" ends the options: a line that begins with a dash is a command, too.
        argv = [shell, "--noprofile", "--norc", "-c", "--", command]
        program = Program(argv=argv, cwd=context.workspace, env=environment(os.environ), timeout_ms=timeout_ms)
        if sandbox is None and context.owner is None:
            return await _run(program, context)
        scratch = Path(await run_in_thread(tempfile.mkdtemp, prefix="clew-"))
        try:
            confined_program = await run_in_thread(_confine, program, sandbox, scratch, closed(), context)
            return await _run(confined_program, context)
        finally:
            await run_in_thread(shutil.rmtree, scratch, ignore_errors=True)

    return bash


def _confine(
    program: Program, sandbox: Sandbox | None, scratch: Path, closed: Sequence[str], context: ToolContext
) -> Program:
    if context.owner is not None:
        _refuse_names_outside(program.cwd)
        return find_owner_sandbox().around(program, scratch, closed, (context.spill,))
    return program if sandbox is None else sandbox.around(program, scratch, closed, (context.spill,))


def _refuse_names_outside(workspace: Path) -> None:
    """Refuse to run a command that could read and change a file outside the workspace by a name inside.

    Hiding only that name is not enough: another command could move it, also into the workspace of a running one.
    """
    found = sorted(files_named_outside(workspace))
    if found:
        shown = ", ".join(show_name(os.path.relpath(path, workspace)) for path in found[:_MAX_NAMED])
        more = f" and {len(found) - _MAX_NAMED:,} more" if len(found) > _MAX_NAMED else ""
        raise ToolFailed(
            "An owner's commands run only where no file of the workspace has another name (hard link) outside of it: "
            f"{shown}{more} may have one. Nothing was run. Replace these by copies (`git clone --no-hardlinks` makes "
            "none), or use the other tools."
        )


async def _run(program: Program, context: ToolContext) -> ToolOutput:
    spool = Spool(context.spill, "bash", max_chars=context.max_output_chars)

    def collect(piece: bytes) -> None:
        spool.write(piece)
        context.report({"text": spool.newest(SHOWN_CHARS)})

    try:
        ending = await run_program(program, collect, context.signal)
        output = await run_in_thread(spool.finish)
    finally:
        spool.close()
    notes = _describe_ending(ending, program.timeout_ms)
    if ending.cause == "abort":
        raise ToolFailed(f"the command was aborted ({context.signal.reason or 'no reason given'}); {notes}")
    text = f"{output}{'' if output.endswith(chr(10)) or not output else chr(10)}[{notes}]"
    return ToolOutput({"text": text, "exit_code": ending.exit_code})


def _describe_ending(ending: Ending, timeout_ms: int) -> str:
    code = ending.exit_code
    names = {int(one): one.name for one in signals.Signals}
    notes = [f"exit code {code}" if code >= 0 else f"ended by {names.get(-code, f'signal {-code}')}"]
    if ending.cause == "timeout":
        notes.insert(0, f"timed out after {timeout_ms / 1000:g} s")
    if ending.leftovers and ending.cause == "exit":
        notes.append("processes left in the background were ended")
    if ending.survivors:
        notes.append(f"could not be ended, and may still run: {', '.join(ending.survivors)}")
    if ending.held:
        notes.append("something still held the output; the rest of it is not shown")
    return "; ".join(notes)


bash: Final = make_bash()
