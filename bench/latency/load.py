"""The load generators `requests.c` and `disk.c` as processes: started, fed with frames, and what they found."""

import json
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

from bench.kafka.programs import compiled
from bench.latency.frames import FRAMES, load_input
from bench.latency.peers import Running
from bench.latency.samples import Samples, read_samples

MARGIN_S: Final = 60.0  # beyond the time asked for: connecting, and waiting for late answers
SOURCES: Final = Path(__file__).parent
REALTIME: Final = ("chrt", "--fifo", "1")
CONNECTIONS: Final = {1_000: 1, 10_000: 8}  # at that many requests a second; others have one for each 1,250

Done = dict[str, Any]
Disturbance = Callable[[int], AbstractContextManager[object]]  # of the measured process


def connections_at(per_second: int) -> int:
    return CONNECTIONS.get(per_second, max(1, per_second // 1_250))


def undisturbed(pid: int) -> AbstractContextManager[object]:
    return nullcontext()


def open_loop(
    server: Running,
    times: Path,
    *,
    per_second: int,
    size: int,
    warm_up_s: float,
    seconds: float,
    disturbance: Disturbance = undisturbed,
    realtime: bool = False,
) -> tuple[Done, Samples]:
    """Requests that are due at fixed times, whatever became of those before. `realtime` keeps the client's own delays out."""
    connections = connections_at(per_second)
    argv = [
        "requests",
        "open",
        server.protocol,
        server.port,
        connections,
        FRAMES,
        warm_up_s,
        seconds,
        per_second,
        times,
    ]
    frames = load_input(server.new_frame, server.greeting, connections=connections, size=size)
    timeout_s = warm_up_s + seconds + MARGIN_S
    done = _run(argv, frames, timeout_s=timeout_s, disturbance=lambda _: disturbance(server.pid), realtime=realtime)
    return done, read_samples(times)


def bare_disk(
    directory: Path,
    times: Path,
    *,
    per_second: int,
    size: int,
    warm_up_s: float,
    seconds: float,
    disturbance: Disturbance = undisturbed,
) -> tuple[Done, Samples]:
    """The same schedule, written and synced by a program that then is what is disturbed."""
    argv = ["disk", directory / "bare", size, warm_up_s, seconds, per_second, times]
    done = _run(argv, b"", timeout_s=warm_up_s + seconds + MARGIN_S, disturbance=disturbance)
    return done, read_samples(times)


def closed_loop(server: Running, *, connections: int, depth: int, size: int, warm_up_s: float, seconds: float) -> Done:
    """On each connection `depth` requests are unanswered, always."""
    argv = ["requests", "closed", server.protocol, server.port, connections, FRAMES, warm_up_s, seconds, depth]
    frames = load_input(server.new_frame, server.greeting, connections=connections, size=size)
    return _run(argv, frames, timeout_s=warm_up_s + seconds + MARGIN_S)


def _run(
    argv: list[object],
    frames: bytes,
    *,
    timeout_s: float,
    disturbance: Disturbance = undisturbed,
    realtime: bool = False,
) -> Done:
    name, *rest = map(str, argv)
    words = [*REALTIME * realtime, str(compiled(name, SOURCES)), *rest]
    piped = subprocess.PIPE
    with subprocess.Popen(words, stdin=piped, stdout=piped, stderr=piped) as process:
        try:
            with disturbance(process.pid):
                out, err = process.communicate(frames, timeout=timeout_s)
        finally:
            process.kill()
    said = err.decode(errors="replace")[-300:].strip()
    if process.returncode != 0:
        raise RuntimeError(f"{name} failed: {said}")
    done: Done = json.loads(out)
    if done["failed"]:
        raise RuntimeError(f"{done['failed']} requests failed: {said}")
    return done
