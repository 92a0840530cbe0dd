"""The sandbox around a shell: what a program may do by itself, whatever rules let it start.

It writes in the workspace and in a scratch folder, reads what is not clew's own, and has no network unless the
setting leaves it one. Landlock does it where the kernel has it, bubblewrap where that is installed; where neither is
there nothing is run. Rules are weighed before, as without it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from clew.errors import ToolFailed
from clew.tools.process.landlock import LEAST_ABI, can_filter_sockets, landlock_abi
from clew.tools.process.program import Program

__all__ = ["Mode", "Sandbox", "find_sandbox"]

Mode = Literal["workspace", "files"]

# None of a terminal's: who may open them may open the one somebody is typing in.
_DEVICES: Final = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty"))


class Sandbox(msgspec.Struct, frozen=True):
    """What the setting asks for, and who can do it here: ``by`` is None where nobody can.

    ``abi`` is the version of the kernel's Landlock, ``program`` where bubblewrap lies.
    """

    mode: Mode
    by: Literal["landlock", "bubblewrap"] | None
    abi: int = 0
    program: str = ""

    @property
    def described(self) -> str:
        """What holds inside, in sentences for the model and for whoever asks what is set."""
        if self.by is None:
            return (
                "A sandbox is asked for, and this machine has neither a Linux kernel with Landlock "
                f"(version {LEAST_ABI} or later) nor bubblewrap: no command is run."
            )
        files = (
            "Commands run in a sandbox: they can write only in the workspace and in $TMPDIR, which is emptied after "
            "each call, and cannot read clew's own files."
        )
        if self.mode == "files":
            return f"{files} The network is left open."
        if self.by == "bubblewrap" or can_filter_sockets():
            return f"{files} There is no network; sockets of this machine that have a path can be reached."
        if self.abi >= 4:
            return f"{files} TCP is closed; other ways into the network are not covered."
        return f"{files} This kernel cannot close the network."

    def around(self, program: Program, scratch: Path, closed: Sequence[str], readable: Sequence[Path] = ()) -> Program:
        """The program inside the sandbox. Raises ``ToolFailed`` where that cannot be kept apart."""
        if self.by is None:
            raise ToolFailed(f"{self.described} Change tools.sandbox in the settings of clew, or use another tool.")
        workspace = os.path.realpath(program.cwd)
        for place in closed if self.by == "landlock" else ():
            # Landlock opens whole folders: a closed one inside of the workspace could not be taken out again.
            if Path(place).is_relative_to(workspace) or Path(workspace).is_relative_to(place):
                raise ToolFailed(
                    f"{place}, which is clew's own, and the workspace {workspace} lie in one another, and the sandbox "
                    "can not keep them apart; nothing was run. Use another workspace, or keep the store elsewhere."
                )
        env = {**program.env, "TMPDIR": str(scratch)}
        if self.by == "bubblewrap":
            argv = (*self._wrapping(workspace, str(scratch), closed), *program.argv)
            return msgspec.structs.replace(program, argv=argv, env=env)
        fence = {
            "write": [workspace, os.path.realpath(scratch)],
            "read": [*_open_places("/", closed), *(os.path.realpath(one) for one in readable)],
            "devices": list(_DEVICES),
            # Names can be listed everywhere; a folder that cannot be listed breaks many a program.
            "list": ["/"],
            "network": self.mode == "files",
            "apart": "",
        }
        return msgspec.structs.replace(program, env=env, fence=fence)

    def _wrapping(self, workspace: str, scratch: str, closed: Sequence[str]) -> Iterator[str]:
        yield from (self.program, "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
        if self.mode == "workspace":
            yield "--unshare-net"
        for folder in (workspace, scratch):
            yield from ("--bind", folder, folder)
        for place in dict.fromkeys(map(os.path.realpath, closed)):
            if os.path.isdir(place):
                yield from ("--tmpfs", place)
                continue
            for file in sorted(Path(place).parent.glob("*")):
                if file.is_file() and (str(file) == place or _is_beside(str(file), place)):
                    yield from ("--ro-bind", "/dev/null", str(file))
        yield from ("--chdir", workspace, "--")


def find_sandbox(mode: Mode) -> Sandbox:
    """Who can do what the setting asks for, on this machine."""
    abi = landlock_abi()
    if abi >= LEAST_ABI:
        return Sandbox(mode, "landlock", abi)
    program = shutil.which("bwrap")
    return Sandbox(mode, "bubblewrap", program=program) if program else Sandbox(mode, None)


def _open_places(folder: str, closed: Sequence[str]) -> Iterator[str]:
    """What may be read: all there is beside the way to the closed places. A link leads to what is judged by itself."""
    real = {os.path.realpath(place) for place in closed} | set(closed)
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.path == "/dev":
            # Terminals and disks are there, too; of devices those are open that hold nothing.
            yield from _open_places("/dev/shm", closed)
            continue
        if entry.is_symlink() or any(entry.path == place or _is_beside(entry.path, place) for place in real):
            continue
        if any(Path(place).is_relative_to(entry.path) for place in real):
            yield from _open_places(entry.path, closed)
        else:
            yield entry.path


def _is_beside(path: str, store: str) -> bool:
    """A journal, a lock, a copy: what lies beside a store under its name and a suffix."""
    return path.startswith((f"{store}-", f"{store}."))
