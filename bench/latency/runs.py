"""The runs: every peer in turn for each part and rate, in a fresh folder.

An open loop begins with a quiet disk (`sync`), its server alone on the machine. For closed loops all servers run at once and are
measured in turn, again and again, each when the others are at rest: a machine whose speed changes changes it for all of them.
What a peer cannot do is a finding, and the others go on.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.kafka.processes import busy_seconds, cpu_seconds, wait_for_idle_machine
from bench.kafka.results import BenchResults
from bench.latency.disturbances import busy_cores, pauses
from bench.latency.load import Done, bare_disk, closed_loop, open_loop, undisturbed
from bench.latency.peers import Peer, Running
from bench.latency.samples import Samples, episodes, p99_of_each_second, percentiles
from bench.latency.wal_metrics import read_histograms, wal_figures
from holdfast.vocabulary.errors import UnavailableError

OPEN_LOOP, PAUSES, BUSY, REQUESTS = PARTS = ("open-loop", "pauses", "busy", "requests")
SHAPES: Final = {"1 connection, depth 1": (1, 1), "1 connection, depth 64": (1, 64), "64 connections, depth 1": (64, 1)}
RECORD_BYTES: Final = 1024
OTHERS_CORES: Final = "run_others_cores"
REST_S: Final = 0.2
REST_WITHIN_S: Final = 5.0


@dataclass(frozen=True)
class RunPlan:
    """How much of it."""

    rates: tuple[int, ...] = (1_000, 10_000)
    seconds: float = 60.0
    warm_up_s: float = 10.0
    request_seconds: float = 1.5
    rounds: int = 1
    request_rounds: int = 9
    partitions: int = 1
    realtime: bool = False  # the client; never what is measured
    patience_s: float = 0.0  # how long a run waits for other programs to be done


@dataclass
class LatencyResults(BenchResults):
    """With the p99 of every second of every run: case → peer → one list a round."""

    seconds_p99_us: dict[str, dict[str, list[list[float]]]] = field(default_factory=dict)
    unavailable: list[tuple[str, str, str]] = field(default_factory=list)  # peer, case, why

    def settle_unavailable(self) -> None:
        """Who was never measured is missing; a run less of somebody else is a failure."""
        measured = {system for _, _, system in self.values}
        for peer, case, why in self.unavailable:
            if peer in measured:
                self.failures.append(f"{peer}, {case}: {why}")
            else:
                self.missing[peer] = why
        self.unavailable.clear()


def case_name(part: str, per_second: int) -> str:
    return f"{part} {per_second:,}/s"


class Runs:
    """All measurements of `peers`; values go to `found` as they come, `say` is for who waits."""

    def __init__(
        self,
        peers: Sequence[Peer],
        found: LatencyResults,
        plan: RunPlan,
        *,
        directory: Path,
        say: Callable[[str], None],
    ) -> None:
        self._peers, self._found, self._plan = list(peers), found, plan
        self._directory, self._say = directory, say

    def latency(self, part: str) -> None:
        for per_second in self._plan.rates:
            case = case_name(part, per_second)
            for round_ in range(self._plan.rounds):
                for peer in self._peers:
                    self._say(f"{case}, round {round_ + 1}: {peer.name}")
                    with self._one(peer, case) as folder:
                        self._open_loop(peer, part, per_second, round_, folder)

    def requests(self) -> None:
        with ExitStack() as stack:
            servers = {}
            for peer in self._peers:
                if peer.serving is not None:
                    self._say(f"{REQUESTS}: starting {peer.name}")
                    folder = stack.enter_context(
                        tempfile.TemporaryDirectory(prefix=f"{peer.name}-", dir=self._directory)
                    )
                    with self._noted(peer, REQUESTS):
                        serving = peer.serving(Path(folder) / "server", self._plan.partitions)
                        servers[peer] = stack.enter_context(serving)
            os.sync()
            wait_for_idle_machine(at_most_s=self._plan.patience_s)
            for round_ in range(self._plan.request_rounds):
                for shape in SHAPES:
                    for peer, server in servers.items():
                        self._say(f"{REQUESTS}, round {round_ + 1}, {shape}: {peer.name}")
                        with self._noted(peer, REQUESTS):
                            self._closed_loop(peer, server, shape, round_)

    @contextmanager
    def _one(self, peer: Peer, case: str) -> Iterator[Path]:
        """A run in a folder of its own. It may fail, and is tried again in the next part: a start can take too long once."""
        os.sync()
        wait_for_idle_machine(at_most_s=self._plan.patience_s)
        with (
            self._noted(peer, case),
            tempfile.TemporaryDirectory(prefix=f"{peer.name}-", dir=self._directory) as folder,
        ):
            yield Path(folder)

    @contextmanager
    def _noted(self, peer: Peer, case: str) -> Iterator[None]:
        try:
            yield
        except UnavailableError as error:
            self._found.unavailable.append((peer.name, case, str(error)))
        except Exception as error:
            self._found.failures.append(f"{peer.name}, {case}: {error!r}")

    def _open_loop(self, peer: Peer, part: str, per_second: int, round_: int, folder: Path) -> None:
        plan, times = self._plan, folder / "times"
        disturbance = pauses if part == PAUSES else undisturbed
        with (
            peer.serving(folder / "server", plan.partitions) if peer.serving else nullcontext() as server,
            busy_cores() if part == BUSY else nullcontext(),
            self._costs(case_name(part, per_second), peer, round_, server) as done,
        ):
            if server is None:
                found, samples = bare_disk(
                    folder, times, per_second=per_second, size=RECORD_BYTES, warm_up_s=plan.warm_up_s,
                    seconds=plan.seconds, disturbance=disturbance,
                )  # fmt: skip
            else:
                found, samples = open_loop(
                    server, times, per_second=per_second, size=RECORD_BYTES, warm_up_s=plan.warm_up_s,
                    seconds=plan.seconds, disturbance=disturbance, realtime=plan.realtime,
                )  # fmt: skip
            done.update(found)
        self._note_samples(peer, case_name(part, per_second), per_second, round_, samples)

    def _closed_loop(self, peer: Peer, server: Running, shape: str, round_: int) -> None:
        (connections, depth), seconds = SHAPES[shape], self._plan.request_seconds
        with self._costs(shape, peer, round_, server) as done:
            found = closed_loop(
                server, connections=connections, depth=depth, size=RECORD_BYTES, warm_up_s=seconds / 3, seconds=seconds
            )
            done.update(found, requests_s=found["requests"] / found["seconds"])
            _wait_for_rest(server)

    @contextmanager
    def _costs(self, case: str, peer: Peer, round_: int, server: Running | None) -> Iterator[Done]:
        """What the body puts there is noted, and what it cost the server, the client and others."""
        done: Done = {}
        before = read_histograms(server.metrics_url if server else None)
        server_s, busy_s, began = _cpu_seconds(server), busy_seconds(), time.monotonic()
        yield done
        server_s = _cpu_seconds(server) - server_s
        took_s, busy_s = time.monotonic() - began, busy_seconds() - busy_s
        after = read_histograms(server.metrics_url if server else None)
        values = {
            "client_cpu_us": done["client_cpu_s"] / done["requests"] * 1e6,
            "server_cpu_us": server_s / max(1, done["all_answered"]) * 1e6 if server else None,
            OTHERS_CORES: _others_cores(case, busy_s - server_s - done["client_cpu_s"], took_s),
            **{name: done.get(name) for name in ("answered_per_second", "unanswered", "requests_s")},
            **(wal_figures(before, after) if after else {"batches_per_group": done.get("batches_per_group")}),
        }
        for metric, value in values.items():
            if value is not None:
                self._found.add(case, metric, peer.name, round_, value)

    def _note_samples(self, peer: Peer, case: str, per_second: int, round_: int, samples: Samples) -> None:
        for metric, value in percentiles(samples.latency_us).items():
            self._found.add(case, metric, peer.name, round_, value)
        self._found.add(case, "late_p99_us", peer.name, round_, percentiles(samples.late_us)["p99_us"])
        p99s = p99_of_each_second(samples.latency_us, per_second)
        self._found.add(case, "episodes", peer.name, round_, float(episodes(p99s)))
        self._found.add(case, "episodes_of", peer.name, round_, float(len(p99s)))
        self._found.seconds_p99_us.setdefault(case, {}).setdefault(peer.name, []).append(p99s)


def _others_cores(case: str, others_s: float, took_s: float) -> float | None:
    """Noise. Unknown where others are busy on purpose."""
    return None if case.startswith(BUSY) else max(0.0, others_s / took_s)


def _cpu_seconds(server: Running | None) -> float:
    return cpu_seconds(server.pid) if server else 0.0


def _wait_for_rest(server: Running) -> None:
    """What it has left for later is its own cost, and nobody else's."""
    deadline_s, used_s = time.monotonic() + REST_WITHIN_S, _cpu_seconds(server)
    while time.monotonic() < deadline_s:
        time.sleep(REST_S)
        before_s, used_s = used_s, _cpu_seconds(server)
        if used_s - before_s < REST_S / 10:
            return
