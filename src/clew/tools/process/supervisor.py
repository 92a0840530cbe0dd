"""The supervisor between the host and a tool's program; ``program.py`` starts it and reads its reports.

It is the parent of all processes of the tool, including daemons: on Linux their orphans become its children, not those
of the system's first process. It ends them all when the program has ended, when the host orders it, and when the host
has died, because the kernel then closes the pipe from the host, the leash. SIGTERM comes first, SIGKILL after a grace
time; processes that survive even that are reported.

It uses only modules that are built in or load fast (``signal``, ``typing`` and ``contextlib`` do not), and imports
nothing of clew, so that it starts in a few milliseconds. The job arrives through the leash, as marshalled data after
its length; the reports are lines of text.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found, unused-ignore]
import marshal
import os
import select
import sys
import time

assert sys.platform != "win32"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

GRACE_S = 2.0
# Without a host no process waits for the result.
ORPHANED_S = 0.5
TICK_S = 0.01
# Remaining processes get a moment to end by themselves, like the last one of a pipeline.
PATIENCE_S = 0.2

_SUBREAPER = 36
_PARENT_DEATH = 1
_LINUX = sys.platform == "linux"


def main() -> None:
    leash, reports = int(sys.argv[2]), int(sys.argv[3])
    job = marshal.loads(read_exactly(leash, int.from_bytes(read_exactly(leash, 4), "big")))
    # Before the program starts: an orphan made earlier would become a child of the system's first process.
    if _LINUX:
        control_process(_SUBREAPER, 1)
    child = start(job, leash, reports)
    # The tool's output must end with the tool, not with this process. Only SIGKILL ends this process early.
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGTSTP"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    say(reports, f"began {child}")
    Watch(child, leash, reports).to_the_end()


class Watch:
    """The processes below this one, from the start of the program until all of them have ended."""

    def __init__(self, child: int, leash: int, reports: int) -> None:
        self.child, self.leash, self.reports = child, leash, reports
        self.code: int | None = None
        self.childless = False
        self.asked = ""
        self.poll = select.poll()
        self.poll.register(leash, select.POLLIN)
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(woken, False)
        self.woken = woken
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self.poll.register(woken, select.POLLIN)

    def to_the_end(self) -> None:
        term_at = kill_at = give_up_at = float("inf")
        ended = False
        while True:
            self.reap()
            now = time.monotonic()
            # Having no children is not enough: if orphans get another parent, the group may still have processes.
            if self.code is not None and self.childless and not self.group_lives():
                break
            if self.asked == "kill" and give_up_at == float("inf"):
                kill_at = term_at = now
            elif self.asked and term_at == float("inf") and kill_at == float("inf"):
                term_at = now
            elif self.code is not None and term_at == float("inf") and kill_at == float("inf"):
                term_at = now + PATIENCE_S
            if now >= give_up_at:
                break
            if now >= kill_at:
                # Repeatedly: processes that fork while they are killed are found the next time.
                self.send(signal.SIGKILL)
                give_up_at = min(give_up_at, now + GRACE_S)
            elif now >= term_at and kill_at == float("inf"):
                ended = ended or self.code is not None
                self.send(signal.SIGTERM)
                kill_at = now + (ORPHANED_S if self.asked == "gone" else GRACE_S)
            self.wait(min(term_at, kill_at) - now if min(term_at, kill_at) > now else TICK_S)
        if ended:
            say(self.reports, "ended")
        for pid, name in self.below() if self.code is None or not self.childless else ():
            say(self.reports, f"left {name} (process {pid})")
        say(self.reports, f"exit {self.code if self.code is not None else -signal.SIGKILL}")

    def wait(self, seconds: float) -> None:
        # The end of a remaining process may cause no signal, so check again soon.
        limit = seconds if self.code is None else min(seconds, TICK_S)
        for number, _ in self.poll.poll(None if limit == float("inf") else max(1, limit * 1000)):
            if number == self.woken:
                os.read(self.woken, 512)
                continue
            order = os.read(self.leash, 1)
            if not order:
                self.poll.unregister(self.leash)
            self.asked = "kill" if order == b"k" else self.asked or ("end" if order else "gone")

    def reap(self) -> None:
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if os.WIFSTOPPED(status):
                    # It asked to be traced by its parent, and would stay stopped until this process ends.
                    os.kill(pid, signal.SIGKILL)
                elif pid == self.child:
                    self.code = os.waitstatus_to_exitcode(status)
        except ChildProcessError:
            self.childless = True

    def send(self, number: int) -> None:
        targets = [(os.kill, pid) for pid, _ in self.below()]
        for kill, target in targets if _LINUX else [*targets, (os.killpg, self.child)]:
            try:  # noqa: SIM105 - contextlib takes longer to import than all the rest
                kill(target, number)
            except OSError:
                pass

    def group_lives(self) -> bool:
        """Return whether the program's group has processes: all that is visible if orphans get another parent."""
        if _LINUX:
            return False
        try:
            os.killpg(self.child, 0)
        except OSError as error:
            return isinstance(error, PermissionError)
        return True

    def below(self) -> list[tuple[int, str]]:
        """Return all living processes below this one, with their names."""
        try:
            numbers = [name for name in os.listdir("/proc") if name.isdigit()]
        except OSError:
            return []
        names: dict[int, str] = {}
        children: dict[int, list[int]] = {}
        for number in numbers:
            try:
                with open(f"/proc/{number}/stat", "rb") as file:
                    stat_line = file.read()
            except OSError:
                continue
            # The name may contain any character; the state and the parent follow its last parenthesis.
            state, parent = stat_line.rpartition(b")")[2].split()[:2]
            children.setdefault(int(parent), []).append(int(number))
            if state not in (b"Z", b"X"):
                name = stat_line.partition(b"(")[2].rpartition(b")")[0].decode("utf-8", "replace")
                names[int(number)] = "".join(one if one.isprintable() else "?" for one in name)
        found: list[tuple[int, str]] = []
        looked_at = [os.getpid()]
        for pid in looked_at:
            looked_at += children.get(pid, [])
            found += [(one, names[one]) for one in children.get(pid, []) if one in names]
        return found


def start(job: dict[str, Any], leash: int, reports: int) -> int:
    """Start the tool's program in its own session. If it cannot be started, report that and exit."""
    trouble, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(leash)
            os.close(reports)
            become(job, tell)
        except BaseException as error:
            os.write(tell, f"{error}".encode("utf-8", "replace")[:2000])
        finally:
            os._exit(127)
    os.close(tell)
    problem = b""
    while piece := os.read(trouble, 4096):
        problem += piece
    os.close(trouble)
    if problem:
        os.waitpid(child, 0)
        say(reports, f"failed {problem.decode('utf-8', 'replace')}")
        sys.exit(1)
    return child


def become(job: dict[str, Any], tell: int) -> None:
    """Turn into the program. One in Python, of our own, runs in this interpreter: a second one takes time to start."""
    os.setsid()
    # If the supervisor is killed, the program dies with it; its other processes remain.
    if _LINUX:
        control_process(_PARENT_DEATH, signal.SIGKILL)
    for name in ("SIGPIPE", "SIGXFSZ"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    os.chdir(job["cwd"])
    if job["fence"] is not None:
        import landlock  # type: ignore[import-not-found, unused-ignore]

        if job["fence"]["apart"]:
            import private_root  # type: ignore[import-not-found, unused-ignore]

            private_root.enter(job["fence"]["apart"], job["cwd"], job["fence"])
        landlock.restrict(job["fence"])
    if job["script"] is not None:
        os.close(tell)
        run_script(job["script"])
    # Names are bytes, decoded as UTF-8 here whatever the locale.
    os.execvpe(job["argv"][0], job["argv"], job["env"])


def run_script(path: str) -> None:
    code = 1
    try:
        with open(path, encoding="utf-8") as file:
            exec(compile(file.read(), path, "exec"), {"__name__": "__main__"})
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def control_process(option: int, value: int) -> None:
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option} was refused")


def read_exactly(handle: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = os.read(handle, size - len(data))
        if not piece:
            sys.exit(1)  # The host was gone before it had said what to run.
        data += piece
    return data


def say(reports: int, line: str) -> None:
    try:  # noqa: SIM105
        os.write(reports, line.replace("\n", " ").encode("utf-8", "replace") + b"\n")
    except OSError:
        pass  # The host is gone.
