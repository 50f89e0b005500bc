"""The driver's process: messages in, slots at work, messages out.

The one rule: `DriverAlive` is sent by the loop that supervises the slots, after Spark has answered it. If the loop or Spark hangs,
none is sent, and the worker kills this process.
"""

import logging
import os
import sys
from contextlib import suppress
from queue import Empty, Queue
from threading import Lock, Thread
from typing import Any, BinaryIO, Final

import msgspec

from holdfast.client.loop_thread import loop_thread
from holdfast.pipeline.catalog.keys import SECRET_PREFIXES
from holdfast.pipeline.driver.log_messages import configure_logging
from holdfast.pipeline.driver.settings import DriverStart, cluster_address_of, driver_settings, secrets_of, spark_of
from holdfast.pipeline.driver.slot_context import DriverResources
from holdfast.pipeline.driver.slot_thread import SendMessage, SlotThread
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
from holdfast.security.master_keys import parse_master_keys
from holdfast.security.sealed_store import SealedStore
from holdfast.spark.spark_session import session
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.random import SystemRandom

SPARK_LOST: Final = 3
_QUIT_WITHIN_MS: Final = 10_000
_TICK_MS: Final = 100

_log: Final = logging.getLogger(__name__)
_decode: Final = msgspec.json.Decoder(ToDriver).decode


class MessageWriter:
    """Messages to the worker, whole and one after the other."""

    def __init__(self, out: BinaryIO) -> None:
        self._out, self._lock = out, Lock()

    def send(self, message: FromDriver) -> None:
        """One line. If stdout is closed the message is lost: the worker is gone, which the end of stdin reports."""
        line = msgspec.json.encode(message) + b"\n"
        with self._lock, suppress(OSError):
            self._out.write(line)
            self._out.flush()


class SlotSupervisor:
    """All slots of one worker."""

    def __init__(self, resources: DriverResources, send: SendMessage) -> None:
        self._resources, self._send = resources, send
        self._slots: dict[str, SlotThread] = {}
        self._deferred: dict[str, list[ToDriver]] = {}  # for a slot whose former thread has not ended yet
        self._inbox: Queue[ToDriver] = Queue()
        self._alive_ms = 0

    def receive(self, line: bytes) -> None:
        """A message of the worker's, from the thread that reads them."""
        self._inbox.put(_decode(line))

    def serve(self) -> int:
        """Until `QuitDriver`; the exit code."""
        quit_by_ms = 0
        while True:
            try:
                message = self._inbox.get(timeout=_TICK_MS / 1_000)
            except Empty:
                message = None
            if isinstance(message, QuitDriver):
                quit_by_ms = self._resources.clock.boot_ms() + _QUIT_WITHIN_MS
                for slot in self._slots.values():
                    slot.halt(_QUIT_WITHIN_MS // 2)
            elif message is not None:
                self._dispatch(message)
            if not self._tick():
                return SPARK_LOST
            if quit_by_ms and (not self._slots or self._resources.clock.boot_ms() >= quit_by_ms):
                return 0

    def _dispatch(self, message: ToDriver) -> None:
        name = "" if isinstance(message, QuitDriver) else message.slot
        if name in self._deferred:
            self._deferred[name].append(message)
            return
        match message:
            case RunSlot():
                self._run(name, message)
            case SlotClaims() if name in self._slots:
                self._slots[name].set_claims(message)
            case HaltSlot(within_ms=within_ms) if name in self._slots:
                self._slots[name].halt(within_ms)
            case _:
                _log.info("no slot %s here, ignored: %s", name, type(message).__name__)

    def _run(self, name: str, message: RunSlot) -> None:
        if name in self._slots:
            self._deferred[name] = [message]
            return
        try:
            self._slots[name] = SlotThread(message, self._resources, self._send)
        except HoldfastError as error:
            self._send(SlotFailed(slot=name, reason=str(error), lasting=True))
            return
        self._slots[name].start()

    def _tick(self) -> bool:
        """Cancel overdue batches, remove slots that have ended, report being alive. False: Spark is lost."""
        now_ms = self._resources.clock.boot_ms()
        for name, slot in list(self._slots.items()):
            slot.cancel_overdue(now_ms)
            slot.leave_behind_if_stuck(now_ms)
            if slot.ended:
                del self._slots[name]
                for message in self._deferred.pop(name, ()):
                    self._dispatch(message)
        if now_ms >= self._alive_ms + self._resources.settings.alive_ms:
            try:
                if not self._resources.jobs.responds():
                    _log.error("Spark session lost: its context was stopped")
                    return False
            except Exception as error:
                _log.error("Spark session lost: %s", " ".join(str(error).split())[:500])
                return False
            self._alive_ms = self._resources.clock.boot_ms()
            self._send(DriverAlive(at_ms=self._alive_ms))
        return True


def run_driver(start: DriverStart, lines: BinaryIO, out: BinaryIO) -> int:
    """A driver's life, from its first line to its exit code."""
    writer = MessageWriter(out)
    configure_logging(writer.send, start.log_level)
    clock, random = RealClock(), SystemRandom()
    settings = spark_of(start)
    spark = session(settings, app_name="holdfast-driver")
    jobs = SparkJobs(spark, remote=bool(settings.remote))
    jobs.warm_up()
    store = _StoreOnLoopThread(start.store, start.master_keys)
    resources = DriverResources(
        jobs=jobs,
        store=store.open(),
        cluster_address=cluster_address_of(start),
        embedded=start.clickhouse,
        sink_roots=start.sink_roots,
        checkpoints=start.checkpoints,
        python_queries=start.python_queries,
        secrets=secrets_of(start),
        settings=driver_settings(start),
        clock=clock,
        random=random,
    )
    supervisor = SlotSupervisor(resources, writer.send)
    Thread(target=_read_messages, args=(lines, supervisor), name="stdin", daemon=True).start()
    writer.send(DriverReady(spark_version=spark.version, ui_url=jobs.ui_url))
    code = supervisor.serve()
    if code == 0:
        spark.stop()
    store.close()
    return code


class _StoreOnLoopThread:
    """The store, on the loop thread of this process."""

    def __init__(self, url: str, master_keys: str) -> None:
        self._context: Any = open_store(url, clock=RealClock(), random=SystemRandom())
        self._keys = parse_master_keys("master keys", master_keys) if master_keys else None

    def open(self) -> Any:
        """Open it; secrets in it are sealed."""
        opened = loop_thread().submit(self._context.__aenter__()).result()
        return SealedStore(opened, self._keys, prefixes=SECRET_PREFIXES, random=SystemRandom())

    def close(self) -> None:
        """Close it."""
        loop_thread().submit(self._context.__aexit__(None, None, None)).result()


def _read_messages(lines: BinaryIO, supervisor: SlotSupervisor) -> None:
    """Until stdin ends: then the worker is gone, and this process exits at once."""
    for line in lines:
        try:
            supervisor.receive(line)
        except msgspec.MsgspecError as error:
            _log.error("malformed message ignored: %s", error)
    exit_immediately(0)


def exit_immediately(code: int) -> None:
    """End this process and its JVM without waiting for anything: the claims expire by themselves."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    jvm = getattr(gateway, "proc", None)
    if jvm is not None:
        jvm.kill()
    sys.stderr.flush()
    os._exit(code)
