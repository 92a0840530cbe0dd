"""The sandbox around the commands of an owner's session: the owner is not the person who runs the server.

Inside there are the workspace, a TMPDIR and a HOME that last for one call, and the folders of the system that programs
are run from. Nothing else exists inside: no home folder, no other owner's files, nothing of clew's, no socket outside.
There is no network, no other process can be reached, and the environment holds nothing of the server's. Namespaces
with Landlock provide it where the kernel has both, bubblewrap where it is installed; elsewhere no command runs.
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
"""Below it Landlock leaves signals to other processes alone."""
_PROBE_MS: Final = 10_000

# What programs are run from. Nothing of /etc but what has no secret in it.
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
    # The system's own settings of git are not there, and may hold how to sign in.
    "GIT_CONFIG_NOSYSTEM": "1",
}
_PASSED_ON: Final = ("LANG", "LC_ALL", "LC_CTYPE", "TERM")
# Nothing runs where the folder is not the one that was checked: its name may lead elsewhere meanwhile.
_SAME_FOLDER: Final = '[ "$(stat -c %d:%i .)" = "$1" ] || { echo "the workspace leads elsewhere now"; exit 126; }; '


class OwnerSandbox(msgspec.Struct, frozen=True):
    """The mechanism on this machine: ``by`` is None if there is none; ``why`` then lists what was tried."""

    by: Literal["landlock", "bubblewrap"] | None
    program: str = ""
    why: str = ""

    @property
    def here(self) -> str:
        """Return how this machine provides it, as the end of a sentence."""
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
        """Return the program inside the sandbox. Raise ``ToolFailed`` where it cannot be provided.

        ``scratch`` is an empty folder that goes after the call, ``closed`` are clew's own places, and ``readable``
        folders that may be read.
        """
        if self.by is None:
            raise ToolFailed(
                "The commands of an owner's session run in a sandbox of their own, and this machine cannot provide it: "
                f"{self.why}. Nothing was run; use the other tools."
            )
        workspace = str(program.cwd)
        if leads_elsewhere(workspace):
            raise ToolFailed(f"the workspace {workspace} leads elsewhere now; nothing was run")
        for place in closed:
            if any(_overlap(place, given) for given in (workspace, *_SYSTEM)):
                raise ToolFailed(
                    f"{place} belongs to clew and overlaps a folder that this command would get; "
                    "nothing was run. Use another workspace, or keep the store elsewhere."
                )
        scratch = Path(os.path.realpath(scratch))
        own = {"/tmp": str(scratch / "tmp"), "/dev/shm": str(scratch / "shm")}
        for folder in (scratch / "tmp" / "home", scratch / "shm", scratch / "root"):
            folder.mkdir(parents=True)
        env = {name: value for name, value in program.env.items() if name in _PASSED_ON or name.startswith("GIT_")}
        env |= _ENVIRONMENT
        read = [*_SYSTEM, *(os.path.realpath(one) for one in readable)]
        if self.by == "bubblewrap":
            argv = (*self._wrapping(workspace, own, read), *program.argv)
            if can_filter_sockets():
                (scratch / "filter").write_bytes(filter_program(apart=True))
                opened = ("/bin/sh", "-c", 'exec "$@" 9< "$0"', str(scratch / "filter"))
                argv = (*opened, argv[0], "--seccomp", "9", *argv[1:])
            return msgspec.structs.replace(program, argv=argv, env=env)
        fence = {
            "write": [workspace, *own],
            "read": [*read, *_ABOUT_THE_MACHINE],
            "devices": list(_DEVICES),
            # Names can be listed in all of these but the processes of the machine.
            "list": sorted({f"/{path.split('/')[1]}" for path in (workspace, "/dev/", *read)} - {"/", "/proc"}),
            "network": False,
            "apart": str(scratch / "root"),
            "scratch": own,
        }
        return msgspec.structs.replace(program, env=env, fence=fence)

    def _wrapping(self, workspace: str, own: Mapping[str, str], read: Sequence[str]) -> Iterator[str]:
        yield from (self.program, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")
        yield from ("--proc", "/proc", "--dev", "/dev")
        for path, source in own.items():
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
    """Return why commands do not run in it on this machine; None if they do."""
    said: list[bytes] = []
    with tempfile.TemporaryDirectory(prefix="clew-", ignore_cleanup_errors=True) as folder:
        work, scratch = Path(folder).resolve() / "work", Path(folder).resolve() / "scratch"
        work.mkdir()
        program = Program(argv=["/bin/bash", "-c", "exit 0"], cwd=work, env={}, timeout_ms=_PROBE_MS)
        try:
            ending = run_blocking(sandbox.around(program, scratch, ()), said.append, threading.Event())
        except ToolFailed as error:
            return str(error)
    text = b"".join(said).decode("utf-8", "replace").strip()
    return None if ending.exit_code == 0 else text or f"it ended with exit code {ending.exit_code}"


def _overlap(one: str, other: str) -> bool:
    return Path(one).is_relative_to(other) or Path(other).is_relative_to(one)
