"""A driver as a worker has it: a process that is told lines and says lines."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, Queue
from typing import TypeVar

import msgspec
from tests.support.driver_cluster import DriverCluster
from tests.support.waiting import until

from holdfast.pipeline.driver.settings import DriverStart, SparkOptions, start_line
from holdfast.pipeline.model.driver_protocol import (
    DriverAlive,
    DriverReady,
    FromDriver,
    RunSlot,
    SlotClaims,
    SlotProgress,
    ToDriver,
)
from holdfast.vocabulary.clock import RealClock

START_WITHIN_S = 180
CLAIM_MS = 20_000
LOCAL = SparkOptions(master="local[2]", quick_start=True)
S = TypeVar("S", bound=msgspec.Struct)


class DriverProcess:
    def __init__(
        self,
        world: DriverCluster,
        log: Path,
        environment: Mapping[str, str],
        *,
        spark: SparkOptions,
        settings: dict[str, float],
    ) -> None:
        self.log = log
        self.said: list[FromDriver] = []
        self.claims: dict[str, dict[str, int]] = {}
        self._lock = threading.Lock()
        self._stderr = log.open("ab")
        self._queue: Queue[FromDriver] = Queue()
        self._decode = msgspec.json.Decoder(FromDriver).decode
        self.process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.pipeline.driver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**os.environ, **environment},  # noqa: TID251
            start_new_session=True,
        )
        start = DriverStart(
            store=world.cluster_address.store,
            objects=world.cluster_address.objects,
            bootstrap=world.cluster_address.bootstrap,
            spark=spark,
            settings={"poll_ms": 50, "retry_base_ms": 50, "retry_max_ms": 500, **settings},
        )
        self._send(start_line(start))
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._ended = threading.Event()
        self._supervisor = threading.Thread(target=self._keep, daemon=True)
        self._supervisor.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._queue.put(self._decode(line))

    def _send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        with self._lock:
            self.process.stdin.write(line)
            self.process.stdin.flush()

    def tell(self, message: ToDriver) -> None:
        self._send(msgspec.json.encode(message) + b"\n")

    def hear(self) -> list[FromDriver]:
        with suppress(Empty):
            while True:
                self.said.append(self._queue.get_nowait())
        return self.said

    def heard(self, kind: type[S]) -> list[S]:
        return [each for each in self.hear() if isinstance(each, kind)]

    def await_ready(self, within_s: float = START_WITHIN_S) -> None:
        until(lambda: self.heard(DriverReady) or self.process.poll() is not None, within_s=within_s, what="ready")
        assert self.heard(DriverReady), self.log.read_text()[-4_000:]

    def work(self, slot: str, pipeline_id: str, claims: dict[int, int], *, run: bool = True) -> None:
        """Claims for a slot, renewed from now on as a worker does."""
        if run:
            self.tell(RunSlot(slot=slot, pipeline_id=pipeline_id, generation=1))
        self.claims[slot] = {str(number): epoch for number, epoch in claims.items()}
        self._renew()

    def lapse(self, slot: str) -> None:
        """The claims of a slot end now, and are not renewed."""
        epochs = self.claims.pop(slot)
        self.tell(SlotClaims(slot=slot, epochs=epochs, until_ms=RealClock().boot_ms()))

    def _renew(self) -> None:
        until_ms = RealClock().boot_ms() + CLAIM_MS
        for slot, epochs in list(self.claims.items()):
            self.tell(SlotClaims(slot=slot, epochs=epochs, until_ms=until_ms))

    def _keep(self) -> None:
        while not self._ended.wait(3):
            with suppress(OSError, ValueError):
                self._renew()

    def reached(self, slot: str) -> dict[int, int]:
        told = [each for each in self.heard(SlotProgress) if each.slot == slot]
        return {int(number): at.checkpoint for number, at in told[-1].partitions.items()} if told else {}

    @property
    def alive_ms(self) -> int:
        return max((each.at_ms for each in self.heard(DriverAlive)), default=0)

    def end(self) -> None:
        self._ended.set()
        self._supervisor.join(10)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)
        self._listener.join(10)
        for pipe in (self.process.stdin, self.process.stdout, self._stderr):
            with suppress(OSError):
                assert pipe is not None
                pipe.close()


@contextmanager
def driving(
    world: DriverCluster,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    *,
    spark: SparkOptions = LOCAL,
    start_within_s: float = START_WITHIN_S,
    **settings: float,
) -> Iterator[DriverProcess]:
    """A driver that is up, for the body. Executors on another engine are processes of their own, which start later."""
    driver = DriverProcess(world, folder / "driver.log", environment or {}, spark=spark, settings=settings)
    try:
        driver.await_ready(start_within_s)
        yield driver
    finally:
        driver.end()


def children(pid: int) -> list[int]:
    """Every process below one."""
    found, queue = [], [pid]
    while queue:
        parent = queue.pop()
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError, ValueError):
                fields = path.read_text().rpartition(")")[2].split()
                if int(fields[1]) == parent and int(path.parent.name) not in found:
                    found.append(int(path.parent.name))
                    queue.append(int(path.parent.name))
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
