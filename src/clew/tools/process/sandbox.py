"""The sandbox around a shell: limits for a program, independent of the rules that allowed it.

The program can write in the workspace and in a scratch folder, read files that are not clew's own, and has no network
unless the config allows it. Landlock is used if the kernel has it, bubblewrap if it is installed; with neither no
program is run. Rules are evaluated before, as without a sandbox.
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

# No terminals: they would include the one a person types in.
_DEVICES: Final = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty"))


class Sandbox(msgspec.Struct, frozen=True):
    """The configured mode, and what implements it on this machine: ``by`` is None if nothing does.

    ``abi`` is the version of the kernel's Landlock, ``program`` the path of bubblewrap.
    """

    mode: Mode
    by: Literal["landlock", "bubblewrap"] | None
    abi: int = 0
    program: str = ""

    @property
    def described(self) -> str:
        """Return the limits in sentences, for the model and for people."""
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
        """Return the program inside the sandbox. Raises ``ToolFailed`` if the sandbox cannot separate them."""
        if self.by is None:
            raise ToolFailed(f"{self.described} Change tools.sandbox in the settings of clew, or use another tool.")
        workspace = os.path.realpath(program.cwd)
        for path in closed if self.by == "landlock" else ():
            # Landlock opens whole folders: a closed one inside the workspace could not be excluded.
            if Path(path).is_relative_to(workspace) or Path(workspace).is_relative_to(path):
                raise ToolFailed(
                    f"{path}, which is clew's own, and the workspace {workspace} lie in one another, and the sandbox "
                    "can not keep them apart; nothing was run. Use another workspace, or keep the store elsewhere."
                )
        env = {**program.env, "TMPDIR": str(scratch)}
        if self.by == "bubblewrap":
            argv = (*self._bubblewrap_arguments(workspace, str(scratch), closed), *program.argv)
            return msgspec.structs.replace(program, argv=argv, env=env)
        fence = {
            "write": [workspace, os.path.realpath(scratch)],
            "read": [*_open_paths("/", closed), *(os.path.realpath(one) for one in readable)],
            "devices": list(_DEVICES),
            # Names can be listed everywhere; a folder that cannot be listed breaks many programs.
            "list": ["/"],
            "network": self.mode == "files",
            "apart": "",
        }
        return msgspec.structs.replace(program, env=env, fence=fence)

    def _bubblewrap_arguments(self, workspace: str, scratch: str, closed: Sequence[str]) -> Iterator[str]:
        yield from (self.program, "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
        if self.mode == "workspace":
            yield "--unshare-net"
        for folder in (workspace, scratch):
            yield from ("--bind", folder, folder)
        for path in dict.fromkeys(map(os.path.realpath, closed)):
            if os.path.isdir(path):
                yield from ("--tmpfs", path)
                continue
            for file in sorted(Path(path).parent.glob("*")):
                if file.is_file() and (str(file) == path or _is_sibling(str(file), path)):
                    yield from ("--ro-bind", "/dev/null", str(file))
        yield from ("--chdir", workspace, "--")


def find_sandbox(mode: Mode) -> Sandbox:
    """Return the sandbox for the mode on this machine."""
    abi = landlock_abi()
    if abi >= LEAST_ABI:
        return Sandbox(mode, "landlock", abi)
    program = shutil.which("bwrap")
    return Sandbox(mode, "bubblewrap", program=program) if program else Sandbox(mode, None)


def _open_paths(folder: str, closed: Sequence[str]) -> Iterator[str]:
    """Yield the paths that may be read: everything except the closed paths. Links are skipped; their targets count."""
    real = {os.path.realpath(path) for path in closed} | set(closed)
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.path == "/dev":
            # It also has terminals and disks; only devices without content are open.
            yield from _open_paths("/dev/shm", closed)
            continue
        if entry.is_symlink() or any(entry.path == path or _is_sibling(entry.path, path) for path in real):
            continue
        if any(Path(path).is_relative_to(entry.path) for path in real):
            yield from _open_paths(entry.path, closed)
        else:
            yield entry.path


def _is_sibling(path: str, store: str) -> bool:
    """Return whether a path is a store's name with a suffix: its journal, a lock, a copy."""
    return path.startswith((f"{store}-", f"{store}."))
