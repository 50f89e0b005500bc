"""Processes without the second that a server needs for its imports: forked from one that has them.

`fork(argv, …)` is `subprocess.Popen` for `[sys.executable, "-m", module, …]`: a process of its own, which is signalled, killed and
waited for like any other. Its parent is the fork server, a process that imports and does nothing else: it has one thread, no event
loop and no open file, so a fork of it is what a new interpreter is after its imports. One per process of tests, started when first
wanted. Tests of how the program itself starts use `subprocess`.
"""

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Final

from tests.support.waiting import until

# What nearly every server imports at its start. Not what starts threads when it is imported, nor what few of them need.
IMPORTED: Final = ("holdfast.cli.main", "holdfast.cli.serve", "holdfast.app.server")
REQUEST_BYTES_MAX: Final = 1 << 20


class ForkedProcess:
    """A forked process, with what tests use of a `subprocess.Popen`."""

    def __init__(self, pid: int, status: int) -> None:
        """`status`: a pipe on which its exit code arrives."""
        self.pid, self._status = pid, status
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            told = os.read(self._status, 64)
            os.close(self._status)
            self.returncode = int(told) if told else -signal.SIGKILL  # the fork server itself is gone
        return self.returncode


def await_stopped(pid: int) -> None:
    """Return when all threads of a process have stopped, as after a SIGSTOP."""
    until(lambda: all(_state(task) in "TZX" for task in Path(f"/proc/{pid}/task").iterdir()), what="it has stopped")


def _state(task: Path) -> str:
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


class _ForkServer:
    """The client's side: starts it, and asks it for processes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # It ends with our end of the socket.
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def fork(self, request: bytes, stdin: int, stdout: int, stderr: int) -> ForkedProcess:
        read, write = os.pipe()
        try:
            with self._lock:
                socket.send_fds(self._control, [request], [stdin, stdout, stderr, write])
                told = self._control.recv(64)
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        if not told:
            os.close(read)
            raise RuntimeError("the fork server has ended")
        return ForkedProcess(int(told), read)


@cache
def _server_of(_pid: int) -> _ForkServer:
    return _ForkServer()


def fork(
    argv: Sequence[str], *, stdout: IO[bytes], stderr: IO[bytes], env: Mapping[str, str], cwd: Path
) -> ForkedProcess:
    """Run `[sys.executable, "-m", module, …]` in a new session; its standard input is empty."""
    assert list(argv[:2]) == [sys.executable, "-m"], argv
    request = json.dumps({"argv": list(argv[2:]), "env": dict(env), "cwd": str(cwd)}).encode()
    assert len(request) <= REQUEST_BYTES_MAX
    with Path(os.devnull).open("rb") as nothing:
        return _server_of(os.getpid()).fork(request, nothing.fileno(), stdout.fileno(), stderr.fileno())


class _ChildError(BaseException):
    """Leads the forked process out of the fork server's loop, past everything that would handle an error of that."""

    def __init__(self, request: dict[str, object]) -> None:
        self.request = request


def _serve(control: socket.socket) -> None:
    woken, wake = socket.socketpair()
    for each in (woken, wake):
        each.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    waited: dict[int, int] = {}  # process id → the pipe for its exit code
    while True:
        ready, _, _ = select.select([control, woken], [], [])
        if woken in ready:
            woken.recv(4096)
            _reap(waited)
        if control in ready:
            request, passed, _, _ = socket.recv_fds(control, REQUEST_BYTES_MAX, 4)
            if not request:
                return
            assert len(list(Path("/proc/self/task").iterdir())) == 1, "a fork would lose a thread"
            begun, begin = os.pipe()
            if (pid := os.fork()) == 0:
                for each in (control, woken, wake):
                    each.close()
                os.close(begun)
                os.setsid()
                os.close(begin)
                _become_child(json.loads(request), passed, list(waited.values()))
            os.close(begin)
            os.read(begun, 1)  # nothing, once the child has a session of its own: it can be signalled with its group
            for number in (begun, *passed[:3]):
                os.close(number)
            waited[pid] = passed[3]
            control.send(b"%d" % pid)


def _reap(waited: dict[int, int]) -> None:
    for pid, pipe in list(waited.items()):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with suppress(BrokenPipeError):  # nobody waits for it any longer
                os.write(pipe, b"%d" % os.waitstatus_to_exitcode(status))
            os.close(pipe)
            del waited[pid]


def _become_child(request: dict[str, object], passed: list[int], others: list[int]) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, each in enumerate(passed[:3]):
        os.dup2(each, number)
    for each in [*passed, *others]:
        os.close(each)
    raise _ChildError(request)


def _run(request: dict[str, object]) -> None:
    argv, env, cwd = request["argv"], request["env"], request["cwd"]
    assert isinstance(argv, list)
    assert isinstance(env, dict)
    assert isinstance(cwd, str)
    Path("/proc/self/comm").write_text(argv[0][:15])  # its command line is still that of the fork server
    os.chdir(cwd)
    os.environ.clear()  # noqa: TID251 (what a child process is given)
    os.environ.update(env)  # noqa: TID251
    sys.argv = argv
    sys.path[0] = cwd  # as `-m` has it
    runpy.run_module(argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what is imported stays: the collector of a child need not touch, and so copy, it
    asked: dict[str, object] | None = None
    try:
        _serve(socket.socket(fileno=int(sys.argv[1])))
    except _ChildError as child:
        asked = child.request
    if asked is not None:
        _run(asked)
