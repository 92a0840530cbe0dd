"""Whom an owner's token could reach, and what they would try: a machine with canaries, and attacks by tool.

Where the confinement is broken the attacks succeed, on the machine that runs the tests. So what they read, write and
end is the test's own alone: they name no file of the system's, and no process but the test's.
"""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

CANARY = "CANARY-7f3a"
"""Stands in every file, name and variable that is not ada's to see."""


MANIFEST = f"""---
name: far
description: {CANARY}
rules:
  - {{permission: bash, pattern: "{CANARY} *", action: deny}}
---
{CANARY}
"""


class Machine:
    """One user's machine, with a server and two owners; ada works in ``work``, and everything else is not hers.

    ``home`` has the administrator's settings, keys and stores, ``bob`` is another owner's folder, ``socket`` a service
    of the machine. The links in ``work`` were put there by somebody who could.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.work = home / "roots" / "ada" / "work"
        self.bob = home / "roots" / "bob"
        self.secret = self.bob / "secret.txt"
        for folder in (self.work / "docs", self.bob, home / ".ssh"):
            folder.mkdir(parents=True)
        for file in (self.secret, home / "shadow", home / ".ssh" / "id_ed25519", self.bob / f"{CANARY}.txt"):
            file.write_text(f"root:{CANARY}:\n")
        (home / ".ssh" / "authorized_keys").write_text("ssh-ed25519 the-administrators\n")
        (self.work / "docs" / "plan.txt").write_text("one\ntwo\n")
        (self.work / "way").symlink_to(self.bob)
        (self.work / "link.txt").symlink_to(self.secret)
        (self.work / "shadow.md").symlink_to(home / "shadow")
        (self.bob / "onward").symlink_to(f"/{CANARY}/x")
        self._service = socket.socket(socket.AF_UNIX)
        # The name of a socket is a short one.
        os.symlink(home, short := Path(f"/tmp/clew-{os.getpid()}-{home.stat().st_ino}"))
        self._short = short
        self._service.bind(f"{short}/service")
        self._service.listen()
        self._service.setblocking(False)
        self.socket = f"{short}/service"

    def share(self, *names: str) -> None:
        """Give ada's folder these files, which are bob's as well (hard links)."""
        for name in names:
            (bobs := self.bob / name.replace("/", "_")).write_text(MANIFEST)
            (self.work / name).parent.mkdir(parents=True, exist_ok=True)
            os.link(bobs, self.work / name)

    def close(self) -> None:
        self._service.close()
        self._short.unlink()

    @property
    def was_reached(self) -> bool:
        """Whether the service of the machine was connected to."""
        try:
            self._service.accept()
        except BlockingIOError:
            return False
        return True

    def outside(self) -> dict[str, tuple[int, bytes]]:
        """Each file that is not ada's, its mode and its bytes; what a server writes for itself is left out."""
        found: dict[str, tuple[int, bytes]] = {}
        for folder, _, names in os.walk(self.home):
            if folder.startswith((str(self.work), str(self.home / "data"))):
                continue
            for path in (Path(folder), *(Path(folder, name) for name in names if not name.startswith("store.db"))):
                status = path.lstat()
                is_file = stat.S_ISREG(status.st_mode)
                found[str(path)] = (status.st_mode, path.read_bytes() if is_file else b"")
        return found

    def canaries(self) -> tuple[str, ...]:
        """Texts that no answer to ada may hold."""
        return CANARY, (self.home / "config" / "clew" / "token").read_text().strip()


Calls = list[dict[str, Any]]


def _paths(machine: Machine, pid: int) -> list[str]:
    """Files outside, by every way of naming them."""
    return [
        *(str(machine.secret), "../../bob/secret.txt", "docs/../../../bob/secret.txt"),
        *("way/secret.txt", "link.txt", "hard.txt", "shadow.md", f"{machine.work}/../../bob/secret.txt"),
        *("way/onward", str(machine.bob / "onward")),
        *(str(machine.home / "config" / "clew" / "token"), str(machine.home / "store.db"), "~/.ssh/id_ed25519"),
        *(str(machine.home / ".ssh" / "id_ed25519"), str(machine.home / "shadow")),
        *(f"/proc/{pid}/environ", f"/proc/{pid}/root{machine.secret}", "/proc/self/cwd/../../bob/secret.txt"),
        f"/proc/{pid}/cwd/roots/bob/secret.txt",
    ]


def _folders(machine: Machine, pid: int) -> list[str]:
    bob = machine.bob
    return [str(bob), "../../bob", "way", str(machine.home), "~", "..", f"/proc/{pid}/root{bob}", f"/proc/{pid}/cwd"]


def _written(machine: Machine, pid: int) -> list[str]:
    keys = str(machine.home / ".ssh" / "authorized_keys")
    new = [str(machine.bob / "new.txt"), "../../bob/new.txt", "way/new.txt", "../beside.txt", f"{machine.home}/new/a"]
    return [*new, keys, *_paths(machine, pid)]


def programs(machine: Machine, pid: int) -> Iterator[str]:
    """Command lines that read, write, change, connect or signal outside."""
    home, secret, bob = machine.home, machine.secret, machine.bob
    for path in _paths(machine, pid):
        yield f"cat {path}; python3 -c 'print(open(\"{path}\").read())'; head -c 200 < {path}"
    yield f"ls -la {bob} {home} /proc/{pid}/cwd way ../.. ; find {home} -name '*CANARY*'"
    yield f"env; set; export -p; cat /proc/{pid}/environ; cat /proc/{pid}/cmdline; strings /proc/$PPID/environ"
    yield "for one in /etc/shadow /root /home; do [ -r $one ] && echo READABLE; done"
    yield "for one in /usr /usr/bin /bin/sh /etc/passwd /usr/lib; do [ -w $one ] && echo WRITABLE; done"
    keys = f"{home}/.ssh/authorized_keys"
    for target in (keys, f"{bob}/new", "../beside", "way/new", "link.txt", "hard.txt"):
        yield f"echo x >> {target}; cp docs/plan.txt {target}; ln -sf docs {target}; tee {target} < docs/plan.txt"
    yield f"ln -s {bob} made; cat made/secret.txt; echo x > made/new; ln {secret} hard2; cat hard2; mv {secret} mine"
    yield f"rm -rf {bob} {home}/.ssh; chmod 777 {home} {secret} {home}/.ssh; touch -d 2001-01-01 {secret}"
    yield f"chown 1:1 {secret}; setfattr -n user.x -v y {secret}; truncate -s 0 {secret}; mkdir {home}/made-by-ada"
    yield f"git -C {home} init; git clone {bob} got; tar cf got.tar {home}; rsync -a {bob}/ got/; cat got/* got.tar"
    yield f"kill -9 {pid}; kill -STOP {pid}; renice 19 -p {pid}; prlimit --pid {pid} --nofile=3"
    yield f"gdb -p {pid} -batch -ex 'info proc'; strace -p {pid} -c true; python3 - <<'E'\n{_TRACE.format(pid=pid)}E"
    yield f"python3 - <<'E'\n{_CONNECT.format(path=machine.socket)}E"
    yield "curl -sm 2 http://127.0.0.1:22 http://169.254.169.254/; exec 3<>/dev/tcp/127.0.0.1/22 && cat <&3"
    yield f"unshare -m sh -c 'mount --bind {bob} docs; cat docs/secret.txt'; unshare -Urm cat {secret}"
    yield f"nsenter -t {pid} -m cat {secret}; chroot /proc/{pid}/root cat {secret}"
    yield f"bwrap --bind / / cat {secret}; sudo -n cat {secret}; su -c 'cat {secret}'"
    yield f"(setsid sh -c 'sleep 0.1; cat {secret} > stolen; echo x > {bob}/late' &); sleep 0.3; cat stolen"


_TRACE = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print("ATTACHED" if libc.ptrace(16, {pid}, 0, 0) == 0 else "no")
print("RESTORED" if libc.syscall(442, -100, b"/usr", 0, (ctypes.c_uint64 * 4)(0, 1, 0, 0), 32) == 0 else "no")
"""
_CONNECT = """
import socket
with socket.socket(socket.AF_UNIX) as one:
    try:
        one.connect("{path}")
        print("CONNECTED")
    except OSError as error:
        print("no")
"""
# A program says so when it did what it was to do.
SUCCESSES = ("ATTACHED\n", "RESTORED\n", "CONNECTED\n", "READABLE\n", "WRITABLE\n")


def _subagent(machine: Machine, pid: int) -> str:
    asked = [
        ("read", {"path": str(machine.secret)}),
        ("bash", {"command": f"cat {machine.secret}; echo x > {machine.bob}/sub"}),
    ]
    return lines(asked)


ATTACKS: Mapping[str, Callable[[Machine, int], Calls]] = {
    "read": lambda machine, pid: [{"path": path} for path in _paths(machine, pid)],
    "write": lambda machine, pid: [{"path": path, "content": "x"} for path in _written(machine, pid)],
    "edit": lambda machine, pid: [{"path": path, "old": "root:", "new": "x"} for path in _written(machine, pid)],
    "ls": lambda machine, pid: [{"path": path} for path in _folders(machine, pid)],
    "glob": lambda machine, pid: [
        *({"path": path, "pattern": "**/*"} for path in _folders(machine, pid)),
        {"pattern": "../../bob/*"},
        {"pattern": "way/*"},
        {"pattern": f"{machine.bob}/*"},
    ],
    "grep": lambda machine, pid: [
        {"path": path, "pattern": "root"} for path in (*_folders(machine, pid), *_paths(machine, pid), ".")
    ],
    "bash": lambda machine, pid: [{"command": line, "timeout_ms": 20_000} for line in programs(machine, pid)],
    "web_fetch": lambda machine, pid: [
        {"url": url} for url in ("http://127.0.0.1:22/", "http://169.254.169.254/latest/", f"file://{machine.secret}")
    ],
    "todo": lambda machine, pid: [{"items": [{"text": str(machine.secret), "status": "pending"}]}],
    # What a person answers, here the owner, is text and opens nothing.
    "question": lambda machine, pid: [],
    "task": lambda machine, pid: [{"prompt": _subagent(machine, pid)}],
    "skill": lambda machine, pid: [{"name": name} for name in ("stolen", "../../bob", str(machine.secret))],
    "recall": lambda machine, pid: [{"query": word} for word in ("root", "secret", "bob")],
    "schedule": lambda machine, pid: [{"in_minutes": 1, "prompt": _subagent(machine, pid)}],
}
"""What is asked of each tool that leads outside."""


def lines(asked: list[tuple[str, dict[str, Any]]]) -> str:
    """A prompt that has ``demo/tools`` make these calls, all in one step."""
    return "\n".join(f"!{tool} {json.dumps(args)}" for tool, args in asked)


def all_attacks(machine: Machine, pid: int) -> list[list[tuple[str, dict[str, Any]]]]:
    """Every attack, as prompts of no more calls than a step runs."""
    asked = [(tool, args) for tool, attacks in ATTACKS.items() for args in attacks(machine, pid)]
    return [asked[at : at + 100] for at in range(0, len(asked), 100)]
