"""The sandbox for commands in an owner's session, since the owner is not the person who runs the server.

A command sees the workspace, a TMPDIR and a HOME that exist for one call, and the system folders with programs and
libraries. It sees no home folder, no other owner's files, no files of clew, and no socket outside the sandbox. It has
no network, cannot reach other processes, and gets none of the server's environment variables. The sandbox is made of
namespaces and Landlock if the kernel has both, otherwise by bubblewrap if it is installed; with neither, no command
runs.
"""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from clew.errors import ToolFailed
from clew.safe_read import leads_elsewhere
from clew.tools.process.landlock import can_filter_sockets, filter_program, landlock_abi
from clew.tools.process.program import Program, run_blocking

__all__ = ["OwnerSandbox", "find_owner_sandbox"]

_LEAST_ABI: Final = 6
"""Earlier versions of Landlock do not restrict signals to other processes."""
_PROBE_MS: Final = 10_000

# Folders with programs and libraries, and the files of /etc that contain no secrets.
_SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives"),
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts", "/etc/services", "/etc/protocols"),
    *("/etc/localtime", "/etc/timezone", "/etc/locale.alias", "/etc/os-release", "/etc/debian_version"),
    *("/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted"),
    *("/etc/mime.types", "/etc/magic", "/etc/terminfo", "/etc/python3", "/etc/perl", "/etc/fonts"),
)
_ABOUT_THE_MACHINE: Final = (
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/uptime", "/proc/version"),
    *("/proc/filesystems", "/proc/sys/kernel/osrelease", "/proc/sys/kernel/cap_last_cap"),
    *("/proc/sys/kernel/ngroups_max", "/proc/sys/vm/overcommit_memory"),
)
_DEVICES: Final = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom"))
_HOME: Final = "/tmp/home"
_ENVIRONMENT: Final = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": _HOME,
    "TMPDIR": "/tmp",
    # Git's system-wide settings are outside the sandbox, and may contain credentials.
    "GIT_CONFIG_NOSYSTEM": "1",
}
_INHERITED: Final = ("LANG", "LC_ALL", "LC_CTYPE", "TERM")
# Run nothing if the folder is not the checked one: its path may have been changed to another folder since.
_SAME_FOLDER: Final = '[ "$(stat -c %d:%i .)" = "$1" ] || { echo "the workspace leads elsewhere now"; exit 126; }; '


class OwnerSandbox(msgspec.Struct, frozen=True):
    """The mechanism available on this machine. If ``by`` is None there is none, and ``why`` lists what was tried."""

    by: Literal["landlock", "bubblewrap"] | None
    program: str = ""
    why: str = ""

    @property
    def here(self) -> str:
        """Return how this machine provides the sandbox, as the end of a sentence."""
        if self.by is None:
            return f"this machine cannot provide it, so bash is refused: {self.why}"
        return f"this machine provides it with {'Landlock and namespaces' if self.by == 'landlock' else 'bubblewrap'}"

    def around(
        self,
        program: Program,
        scratch: Path,
        closed: Sequence[str],
        readable: Sequence[Path] = (),
    ) -> Program:
        """Return the program inside the sandbox. Raise ``ToolFailed`` if this machine cannot provide it.

        ``scratch`` is an empty folder that the caller removes after the call, ``closed`` are the paths of clew's own
        files, and ``readable`` are folders that may also be read.
        """
        if self.by is None:
            raise ToolFailed(
                "The commands of an owner's session run in a sandbox of their own, and this machine cannot provide it: "
                f"{self.why}. Nothing was run; use the other tools."
            )
        workspace = str(program.cwd)
        if leads_elsewhere(workspace):
            raise ToolFailed(f"the workspace {workspace} leads elsewhere now; nothing was run")
        for private in closed:
            if any(_overlap(private, given) for given in (workspace, *_SYSTEM)):
                raise ToolFailed(
                    f"{private} belongs to clew and overlaps a folder that this command would get; "
                    "nothing was run. Use another workspace, or keep the store elsewhere."
                )
        scratch = Path(os.path.realpath(scratch))
        writable = {"/tmp": str(scratch / "tmp"), "/dev/shm": str(scratch / "shm")}
        for folder in (scratch / "tmp" / "home", scratch / "shm", scratch / "root"):
            folder.mkdir(parents=True)
        env = {name: value for name, value in program.env.items() if name in _INHERITED or name.startswith("GIT_")}
        env |= _ENVIRONMENT
        read = [*_SYSTEM, *(os.path.realpath(folder) for folder in readable)]
        if self.by == "bubblewrap":
            argv = (*self._wrapping(workspace, writable, read), *program.argv)
            if can_filter_sockets():
                (scratch / "filter").write_bytes(filter_program(apart=True))
                opened = ("/bin/sh", "-c", 'exec "$@" 9< "$0"', str(scratch / "filter"))
                argv = (*opened, argv[0], "--seccomp", "9", *argv[1:])
            return msgspec.structs.replace(program, argv=argv, env=env)
        fence = {
            "write": [workspace, *writable],
            "read": [*read, *_ABOUT_THE_MACHINE],
            "devices": list(_DEVICES),
            # Folders whose names can be listed: all of them except /proc, which would show other processes.
            "list": sorted({f"/{path.split('/')[1]}" for path in (workspace, "/dev/", *read)} - {"/", "/proc"}),
            "network": False,
            "apart": str(scratch / "root"),
            "scratch": writable,
        }
        return msgspec.structs.replace(program, env=env, fence=fence)

    def _wrapping(self, workspace: str, writable: Mapping[str, str], read: Sequence[str]) -> Iterator[str]:
        yield from (self.program, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")
        yield from ("--proc", "/proc", "--dev", "/dev")
        for path, source in writable.items():
            yield from ("--bind", source, path)
        for path in read:
            if os.path.islink(path):
                yield from ("--symlink", os.readlink(path), path)
            elif os.path.exists(path):
                yield from ("--ro-bind", path, path)
        yield from ("--bind", workspace, workspace)
        status = os.stat(workspace, follow_symlinks=False)
        yield from ("--chdir", workspace, "--", "/bin/sh", "-c", _SAME_FOLDER + 'shift; exec "$@"', "sh")
        yield f"{status.st_dev}:{status.st_ino}"


@functools.cache
def find_owner_sandbox() -> OwnerSandbox:
    """Return the sandbox of this machine, tested once with a command that does nothing. Blocking."""
    tried: list[str] = []
    abi, bubblewrap = landlock_abi(), shutil.which("bwrap")
    if abi < _LEAST_ABI or not can_filter_sockets():
        tried.append(f"the kernel's Landlock is of version {abi}, and {_LEAST_ABI} is needed")
    elif (problem := _problem(found := OwnerSandbox("landlock"))) is None:
        return found
    else:
        tried.append(problem)
    if bubblewrap is None:
        tried.append("bubblewrap is not installed")
    elif (problem := _problem(found := OwnerSandbox("bubblewrap", bubblewrap))) is None:
        return found
    else:
        tried.append(f"bubblewrap does not work: {problem}")
    return OwnerSandbox(None, why="; ".join(tried))


def _problem(sandbox: OwnerSandbox) -> str | None:
    """Return why commands do not run in the sandbox on this machine; None if they do."""
    output: list[bytes] = []
    with tempfile.TemporaryDirectory(prefix="clew-", ignore_cleanup_errors=True) as folder:
        work, scratch = Path(folder).resolve() / "work", Path(folder).resolve() / "scratch"
        work.mkdir()
        program = Program(argv=["/bin/bash", "-c", "exit 0"], cwd=work, env={}, timeout_ms=_PROBE_MS)
        try:
            ending = run_blocking(sandbox.around(program, scratch, ()), output.append, threading.Event())
        except ToolFailed as error:
            return str(error)
    text = b"".join(output).decode("utf-8", "replace").strip()
    return None if ending.exit_code == 0 else text or f"it ended with exit code {ending.exit_code}"


def _overlap(path: str, other: str) -> bool:
    return Path(path).is_relative_to(other) or Path(other).is_relative_to(path)
