"""Foreign programs: looked for, run to their end within a time, everything they print appended to one log."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.vocabulary.errors import UnavailableError


def require(program: str, *, used_for: str) -> str:
    """The path of a program. UnavailableError, which leaves the suite out, where there is none."""
    found = shutil.which(program)
    if found is None:
        raise UnavailableError(program, f"there is no program {program}, needed {used_for}")
    return found


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment, without what would configure a server."""
    return {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")} | dict(more or {})


def build(argv: Sequence[str], *, cwd: Path, log: Path, timeout_s: float, env: Mapping[str, str] | None = None) -> str:
    """Run a step of a preparation and return what it printed. UnavailableError with its last lines where it fails."""
    name = Path(argv[0]).name
    try:
        done = subprocess.run(
            argv, cwd=cwd, env=environment(env), capture_output=True, text=True, errors="replace", timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        raise UnavailableError(name, f"did not finish in {timeout_s:g} s") from None
    with log.open("a") as kept:
        kept.write(f"$ {' '.join(argv)}\n{done.stdout}{done.stderr}")
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise UnavailableError(name, f"exit code {done.returncode}: {' '.join(last)}")
    return done.stdout


def launch(
    argv: Sequence[str],
    *,
    log: Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    piped: bool = False,
) -> subprocess.Popen[str]:
    """Start a program, in a session of its own. What it prints goes into the log, or its stdout into a pipe if `piped`."""
    with log.open("a") as output:
        output.write(f"$ {' '.join(argv)[:2000]}\n")
        output.flush()
        return subprocess.Popen(
            argv, cwd=cwd, env=environment(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if piped else output,
            stderr=output, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip


@contextmanager
def started(
    argv: Sequence[str],
    *,
    log: Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    piped: bool = False,
) -> Iterator[subprocess.Popen[str]]:
    """A program for the body; killed, with all it started, at the end."""
    process = launch(argv, log=log, cwd=cwd, env=env, piped=piped)
    try:
        yield process
    finally:
        kill(process)
        if process.stdout is not None:
            process.stdout.close()


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL to the program and everything in its session; returns when it has exited."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
