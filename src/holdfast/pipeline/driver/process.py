"""The driver's process: lines in, slots at work, lines out.

The one rule: `Alive` is said by the loop that does the bookkeeping, after the engine has answered it. A loop that hangs, and an
engine that hangs, both fall silent, and whoever supervises this process ends it.
"""

import logging
import os
import sys
from collections.abc import Callable
from queue import Empty, Queue
from threading import Lock, Thread
from typing import Any, BinaryIO, Final

import msgspec

from holdfast.client.loop_thread import loop_thread
from holdfast.pipeline.driver.settings import DriverStart, driver_settings, reach_of, spark_of
from holdfast.pipeline.driver.slot_processor import DriverResources
from holdfast.pipeline.driver.slot_thread import SlotThread
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.pipeline.model.driver_protocol import (
    DriverAlive,
    DriverReady,
    FromDriver,
    HaltSlot,
    QuitDriver,
    RunSlot,
    SlotClaims,
    SlotFailed,
    ToDriver,
)
from holdfast.spark.spark_session import session
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.random import SystemRandom

ENGINE_GONE: Final = 3
_QUIT_WITHIN_MS: Final = 10_000
_TICK_MS: Final = 100

_log: Final = logging.getLogger(__name__)
_decode: Final = msgspec.json.Decoder(ToDriver).decode


class MessageWriter:
    """Lines to the worker, whole and one after the other."""

    def __init__(self, out: BinaryIO) -> None:
        self._out, self._lock = out, Lock()

    def say(self, said: FromDriver) -> None:
        """One line. A worker that is gone is noticed by stdin's end."""
        line = msgspec.json.encode(said) + b"\n"
        with self._lock:
            try:
                self._out.write(line)
                self._out.flush()
            except OSError:
                _log.warning("nobody reads what this driver says")


class SlotSupervisor:
    """All slots of one worker."""

    def __init__(self, tools: DriverResources, say: Callable[[FromDriver], None]) -> None:
        self._tools, self._say = tools, say
        self._slots: dict[str, SlotThread] = {}
        self._waiting: dict[str, list[ToDriver]] = {}  # for a slot whose former run is not quite over
        self._heard: Queue[ToDriver] = Queue()
        self._alive_ms = 0

    def hear(self, line: bytes) -> None:
        """A line of the worker's, from the thread that reads them."""
        self._heard.put(_decode(line))

    def serve(self) -> int:
        """Until `Quit`; the exit code."""
        quit_by_ms = 0
        while True:
            try:
                said = self._heard.get(timeout=_TICK_MS / 1_000)
            except Empty:
                said = None
            if isinstance(said, QuitDriver):
                quit_by_ms = self._tools.clock.boot_ms() + _QUIT_WITHIN_MS
                for slot in self._slots.values():
                    slot.halt(_QUIT_WITHIN_MS // 2)
            elif said is not None:
                self._obey(said)
            if not self._tick():
                return ENGINE_GONE
            if quit_by_ms and (not self._slots or self._tools.clock.boot_ms() >= quit_by_ms):
                return 0

    def _obey(self, said: ToDriver) -> None:
        name = "" if isinstance(said, QuitDriver) else said.slot
        if name in self._waiting:
            self._waiting[name].append(said)
            return
        match said:
            case RunSlot():
                self._run(name, said)
            case SlotClaims() if name in self._slots:
                self._slots[name].claims(said)
            case HaltSlot(within_ms=within_ms) if name in self._slots:
                self._slots[name].halt(within_ms)
            case _:
                _log.info("nothing runs for %s", said)

    def _run(self, name: str, said: RunSlot) -> None:
        if name in self._slots:
            self._waiting[name] = [said]
            return
        try:
            self._slots[name] = SlotThread(said, self._tools, self._say)
        except HoldfastError as error:
            self._say(SlotFailed(slot=name, reason=str(error), lasting=True))
            return
        self._slots[name].start()

    def _tick(self) -> bool:
        """Cancel what is late, forget what is over, and say that we are alive if the engine is. False: it is not."""
        now_ms = self._tools.clock.boot_ms()
        for name, slot in list(self._slots.items()):
            slot.check(now_ms)
            if slot.over:
                del self._slots[name]
                for said in self._waiting.pop(name, ()):
                    self._obey(said)
        if now_ms >= self._alive_ms + self._tools.settings.alive_ms:
            try:
                if not self._tools.jobs.answers():
                    return False
            except Exception:
                _log.exception("the engine is gone")
                return False
            self._alive_ms = self._tools.clock.boot_ms()
            self._say(DriverAlive(at_ms=self._alive_ms))
        return True


def run_driver(start: DriverStart, lines: BinaryIO, out: BinaryIO) -> int:
    """A driver's life, from its first line to its exit code."""
    speaker = MessageWriter(out)
    clock, random = RealClock(), SystemRandom()
    settings = spark_of(start)
    spark = session(settings, app_name="holdfast-driver")
    jobs = SparkJobs(spark, remote=bool(settings.remote))
    jobs.warm_up()
    keeper = _StoreOnLoopThread(start.store)
    tools = DriverResources(
        jobs=jobs,
        store=keeper.opened(),
        cluster_address=reach_of(start),
        embedded=start.clickhouse,
        settings=driver_settings(start),
        clock=clock,
        random=random,
    )
    driver = SlotSupervisor(tools, speaker.say)
    Thread(target=_read_messages, args=(lines, driver), name="stdin", daemon=True).start()
    speaker.say(
        DriverReady(spark_version=spark.version, ui_url="" if settings.remote else spark.sparkContext.uiWebUrl or "")
    )
    code = driver.serve()
    if code == 0:
        spark.stop()
    keeper.close()
    return code


class _StoreOnLoopThread:
    """The store, on the loop thread of this process."""

    def __init__(self, url: str) -> None:
        self._context: Any = open_store(url, clock=RealClock(), random=SystemRandom())

    def opened(self) -> Any:
        """Open it."""
        return loop_thread().submit(self._context.__aenter__()).result()

    def close(self) -> None:
        """Close it."""
        loop_thread().submit(self._context.__aexit__(None, None, None)).result()


def _read_messages(lines: BinaryIO, driver: SlotSupervisor) -> None:
    """Hand lines on. When they end the worker is gone, and everything stops at once."""
    for line in lines:
        try:
            driver.hear(line)
        except msgspec.MsgspecError:
            _log.exception("a line that cannot be read")
    exit_immediately(0)


def exit_immediately(code: int) -> None:
    """End this process and its JVM without waiting for anything: the claims end by themselves."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    jvm = getattr(gateway, "proc", None)
    if jvm is not None:
        jvm.kill()
    sys.stderr.flush()
    os._exit(code)
