"""A driver as a real process that speaks `messages` and does a batch's commits on the real registry, without Spark.

Run as `python fake_driver.py FOLDER`. It begins ranges of ten offsets, writes each to FOLDER as a file named by its token (as a
sink that knows a range by its offsets would: twice is once), and moves the checkpoint. What it is to do else is a file in FOLDER:
`hang` (say and do nothing more), `die`, `deaf` (do not halt), `garbage` (say what nobody understands), `slow` (wait inside a range,
between its effect and its checkpoint). It starts a grandchild in a process group of its own, as Spark's Python workers are.
"""

import asyncio
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import msgspec

from holdfast.pipeline.driver.settings import parse_start_line
from holdfast.pipeline.model.definition import registry_namespace
from holdfast.pipeline.model.driver_protocol import (
    DriverAlive,
    DriverLog,
    DriverReady,
    FromDriver,
    HaltSlot,
    PartitionProgress,
    PartitionsReleased,
    QuitDriver,
    RunSlot,
    SlotClaims,
    SlotHalted,
    SlotProgress,
    ToDriver,
)
from holdfast.registry import RegistrySettings, RegistryStore
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

RANGE = 10
GRANDCHILD = "import os,sys,time; os.setpgid(0,0); open(sys.argv[1],'w').write(str(os.getpid())); time.sleep(600)"


class FakeDriver:
    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, RealClock()
        self.runs: dict[str, RunSlot] = {}
        self.claims: dict[str, SlotClaims] = {}
        self.halts: list[str] = []
        self.left_out: dict[str, dict[str, int]] = {}
        self.batches: dict[str, int] = {}
        self.registries: dict[str, RegistryStore] = {}

    def asked(self, what: str) -> bool:
        return (self.folder / what).exists()

    def send(self, message: FromDriver) -> None:
        with suppress(OSError):
            os.write(1, msgspec.json.encode(message) + b"\n")

    def receive(self, message: ToDriver) -> None:
        match message:
            case RunSlot():
                self.runs[message.slot] = message
                self.claims.pop(message.slot, None)
            case SlotClaims() if message.slot in self.runs:
                before = self.claims.get(message.slot)
                gone = {p: e for p, e in (before.epochs if before else {}).items() if message.epochs.get(p) != e}
                self.left_out.setdefault(message.slot, {}).update(gone)
                self.claims[message.slot] = message
            case HaltSlot():
                self.halts.append(message.slot)
            case QuitDriver():
                os._exit(0)

    async def work(self, store_url: str) -> None:
        async with open_store(store_url, clock=self.clock, random=SystemRandom()) as store:
            print("noise of a library", file=sys.stderr, flush=True)
            self.send(DriverLog(level="WARNING", logger="holdfast.pipeline.driver.fake", text="batch cancelled"))
            self.send(DriverReady(spark_version="0.0-fake"))
            alive_ms = 0
            while True:
                self.obey()
                if self.clock.boot_ms() - alive_ms > 200:
                    alive_ms = self.clock.boot_ms()
                    self.send(DriverAlive(at_ms=alive_ms))
                for name in list(self.runs):
                    await self.turn(name, store)
                await self.clock.sleep_ms(20)

    def obey(self) -> None:
        if self.asked("die"):
            os._exit(7)
        if self.asked("garbage"):
            os.write(1, b"java.lang.OutOfMemoryError\n")
        while self.asked("hang"):
            threading.Event().wait(0.05)

    async def turn(self, name: str, store: object) -> None:
        run, claims = self.runs[name], self.claims.get(name)
        if gone := self.left_out.pop(name, None):
            self.send(PartitionsReleased(slot=name, epochs=gone))
        if name in self.halts and not self.asked("deaf"):
            self.halts.remove(name)
            del self.runs[name]
            self.send(SlotHalted(slot=name))
            return
        if claims is None or name in self.halts:
            return
        namespace = registry_namespace(run.pipeline_id, run.generation)
        if namespace not in self.registries:
            settings = RegistrySettings(namespace=namespace, partitions=100)
            self.registries[namespace] = RegistryStore(
                store,  # type: ignore[arg-type]
                clock=self.clock,
                random=SystemRandom(),
                settings=settings,
            )
        done = {}
        for partition, epoch in claims.epochs.items():
            if self.clock.boot_ms() < claims.until_ms - 300:
                done[partition] = await self.batch(self.registries[namespace], run, int(partition), epoch)
        self.batches[name] = self.batches.get(name, 0) + 1
        partitions = {each: PartitionProgress(checkpoint=at, end=at) for each, at in done.items()}
        self.send(SlotProgress(slot=name, batches=self.batches[name], rows=sum(done.values()), partitions=partitions))

    async def batch(self, registry: RegistryStore, run: RunSlot, partition: int, epoch: int) -> int:
        state = await registry.partition(partition)
        assert state is not None
        intent = (
            state.intent or msgspec.json.encode({"start": state.checkpoint, "end": state.checkpoint + RANGE}).decode()
        )
        if not await registry.begin_range(partition, run.slot, epoch, intent):
            return state.checkpoint
        span = msgspec.json.decode(intent)
        token = f"{run.pipeline_id}.{run.generation}.{partition}.{span['start']}-{span['end']}"
        with suppress(FileExistsError):
            (self.folder / "rows" / token).touch(exist_ok=False)
        while self.asked("slow"):
            await self.clock.sleep_ms(10)
        await registry.update_checkpoint(partition, run.slot, span["end"], epoch)
        return int(span["end"])


def main() -> None:
    folder = Path(sys.argv[1])
    (folder / "rows").mkdir(exist_ok=True)
    if (folder / "no-start").exists():
        raise SystemExit("there is no Java on this machine")
    subprocess.Popen([sys.executable, "-c", GRANDCHILD, str(folder / f"grandchild.{os.getpid()}")])
    driver = FakeDriver(folder)
    start = parse_start_line(sys.stdin.buffer.readline())

    def listen() -> None:
        decode = msgspec.json.Decoder(ToDriver).decode
        for line in sys.stdin.buffer:
            driver.receive(decode(line))
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    asyncio.run(driver.work(start.store))


if __name__ == "__main__":
    main()
