"""One life of an agent, as far as the log needs one: it opens what an earlier life left, works, and dies where it was told to.

    python -m tests.support.log_crash.process FOLDER --die-at "publish.segments-uploaded:3"

Everything it did is in FOLDER/history.txt (`history.py` says how), from where the next life knows what its producers have to send
again. It judges nothing. Without `--die-at` it works off its quota, hands its partitions back and ends.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from tests.support.log_crash.agent_process import live_whole
from tests.support.log_crash.clients import Clients
from tests.support.log_crash.history import History
from tests.support.log_crash.kill_points import CUT, LEFTOVERS, CachedDisk, Steps
from tests.support.log_crash.partitions import LedPartitions, Parts
from tests.support.log_crash.planted_bugs import PLANTED, ClearingPublisher, plant
from tests.support.log_crash.settings import LOG, RETRIES, RETRIES_OF_FAILING, UPKEEP, WAL_FILE_BYTES
from tests.support.log_crash.step_wrappers import SteppingObjects, SteppingStore
from tests.support.log_crash.workload import PLACES

from holdfast.kernel.objects_owner import ObjectsOwner, claim_objects
from holdfast.kernel.session import HeldSession, SessionSettings, hold_session
from holdfast.log.maintenance import MaintainedAgent, MaintenanceContext, run_maintenance
from holdfast.log.model import CleanupPolicy
from holdfast.log.partition.dirty_partitions import DirtyPartitions
from holdfast.log.partition.publisher import SegmentPublisher
from holdfast.log.reader import LogReader
from holdfast.log.wal import Wal, WalDisk, WalSettings
from holdfast.log.wal.identity import wal_identity
from holdfast.objects.folder import FolderObjects, FolderSettings
from holdfast.objects.retry import RetryingObjects
from holdfast.stores.urls import open_store
from holdfast.testing.faulty_objects import FaultyObjects
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.clock import Clock, RealClock
from holdfast.vocabulary.errors import ExpiredError, HoldfastError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import SeededRandom, SystemRandom
from holdfast.vocabulary.tasks import background_tasks

HISTORY: Final = "history.txt"
SLEPT_MS: Final = 500  # a resting loop that comes so late was stopped


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """What a life is told."""
    parser = argparse.ArgumentParser(prog="child", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--agent", default="ann", help="whose WAL and session")
    parser.add_argument("--quota", type=int, default=6, help="batches each producer sends in this life; 0: no end")
    parser.add_argument("--die-at", help="LABEL:N, the step to die at")
    parser.add_argument("--stop-at", help="LABEL:N, the step to be stopped at (SIGSTOP)")
    parser.add_argument(
        "--leftovers", choices=(*LEFTOVERS, CUT, "real"), default="lost", help="what a death leaves unsynced"
    )
    parser.add_argument("--spares", type=int, default=1, help="WAL files kept to be used again")
    parser.add_argument("--ttl-ms", type=int, default=20_000)
    parser.add_argument("--whole", action="store_true", help="the real agent, not its parts")
    parser.add_argument("--read", action="store_true", help="read everything and end, without closing anything")
    parser.add_argument("--rest", action="store_true", help="after the quota give offsets back, rest, then go on")
    parser.add_argument("--reckless", action="store_true", help="never look at the session: only fences are left")
    parser.add_argument("--objects-fail", type=float, default=0.0, help="share of the objects' calls that fail")
    parser.add_argument("--objects-down-ms", type=int, default=0, help="then they all fail for so long")
    parser.add_argument("--disk-full-ms", type=int, default=0)
    parser.add_argument("--planted", choices=PLANTED)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(argv)


@asynccontextmanager
async def session_of(life: argparse.Namespace, store: SteppingStore, clock: Clock) -> AsyncIterator[HeldSession]:
    ttl_ms, random = life.ttl_ms, SystemRandom()
    settings = SessionSettings(ttl_ms=ttl_ms, renew_ms=ttl_ms // 4, margin_ms=ttl_ms // 10, stall_ms=0)
    if not life.reckless:
        async with hold_session(store, clock=clock, random=random, settings=settings) as session:
            yield session
        return
    granted = await store.open_session(ttl_ms)

    async def renew() -> None:
        while True:
            await clock.sleep_ms(ttl_ms / 4)
            await store.keep_alive(granted.id)  # and who cares

    believed = HeldSession(granted.id, 1 << 40, opened_ms=clock.boot_ms(), clock=clock, settings=settings)
    async with background_tasks(renew()):
        yield believed


async def live(told: argparse.Namespace, say: Callable[[str], None]) -> None:
    """The life."""
    clock, random = RealClock(), SystemRandom()
    cached = CachedDisk("lost" if told.leftovers == "real" else told.leftovers, clock)
    steps = Steps(say, cached, die_at=told.die_at, stop_at=told.stop_at)
    cached.steps = steps
    failpoints.install(steps)
    cached.lying = told.planted == "ack-before-sync"
    disk: WalDisk = WalDisk() if told.leftovers == "real" else cached
    history = History.load(told.folder / HISTORY)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        store = SteppingStore(
            await enter(open_store(f"sqlite:///{told.folder}/store.db", clock=clock, random=random)), steps
        )
        steps.busy = store.busy
        for _, _, former in history.said("session", told.agent):
            await store.close_session(former)  # so that nobody waits for a dead one's TTL
        folder = await enter(
            FolderObjects.open(told.folder / "objects", clock=clock, random=random, settings=FolderSettings())
        )
        faulty = FaultyObjects(folder, clock=clock, random=SeededRandom(told.seed))
        retries = RETRIES_OF_FAILING if told.objects_fail or told.objects_down_ms else RETRIES
        retried = RetryingObjects(faulty, clock=clock, random=random, settings=retries)
        objects = SteppingObjects(retried, steps)
        faulty.fail_share = 0.0 if told.read else told.objects_fail
        if told.whole:
            await live_whole(
                told, store=store, objects=objects, clock=clock, random=random, steps=steps, say=say, history=history
            )
            return
        steps("before the WAL opens")
        settings = WalSettings(file_bytes=WAL_FILE_BYTES, files_spare_max=told.spares)
        wal = await enter(
            Wal.open(
                told.folder / f"wal-{told.agent}",
                clock=clock,
                random=random,
                settings=settings,
                disk=disk,
            )
        )
        steps("WAL opened")
        wal_id = await wal_identity(wal.directory, random=random)
        session = await enter(session_of(told, store, clock))
        say(f"session {told.agent} {session.id}")
        publishing = ClearingPublisher if told.planted == "clear-buffer" else SegmentPublisher
        publisher = publishing(store=store, objects=objects, clock=clock, random=random, settings=LOG)
        if isinstance(publisher, ClearingPublisher):
            publisher.wal = wal
        parts = Parts(
            agent=told.agent,
            say=say,
            steps=steps,
            store=store,
            objects=objects,
            wal=wal,
            wal_id=wal_id,
            session=session,
            publisher=publisher,
            reading=LogReader(objects, clock=clock, settings=LOG),
            clock=clock,
            random=random,
            settings=LOG,
            dirty_partitions=DirtyPartitions(),
        )
        await _spend(told, parts, history, faulty, cached)
        steps("before the session closes")


async def _spend(
    told: argparse.Namespace, parts: Parts, history: History, faulty: FaultyObjects, disk: CachedDisk
) -> None:
    leading = LedPartitions(parts)
    await leading.take(PLACES)
    clients = Clients(
        agent=parts.agent,
        quota=told.quota,
        log=leading,
        say=parts.say,
        steps=parts.steps,
        history=history,
        clock=parts.clock,
        random=parts.random,
    )
    if told.read:
        await clients.read_everything()
        return
    async with background_tasks(
        leading.publish_when_due(),
        _upkeep(leading, parts, reckless=told.reckless),
        *clients.readers(),
        _trouble(told, parts, faulty, disk, leading),
    ):
        await clients.produce()
        if told.rest:
            await leading.give_back()
            await _rest(parts)
            await clients.produce()
        if told.objects_down_ms:
            await leading.wait_published()
        faulty.fail_share = 0.0
        await leading.hand_back()


async def _upkeep(leading: LedPartitions, parts: Parts, *, reckless: bool) -> None:
    owner = await _owner(parts)
    context = MaintenanceContext(
        store=parts.store,
        objects=parts.objects,
        owner=owner,
        clock=parts.clock,
        random=parts.random,
        log=LOG,
        settings=UPKEEP,
    )
    keep_all = CleanupPolicy(retention_ms=None)
    maintained = MaintainedAgent(
        agent=parts.agent, session=parts.session, partitions=leading.partitions, policy=lambda _: keep_all
    )
    try:
        await run_maintenance(maintained, context)
    except ExpiredError:  # the store told the sweeper, which asks it for a lease of its own
        if not reckless:
            raise
        await asyncio.Event().wait()


async def _owner(parts: Parts) -> ObjectsOwner:
    """Once object storage is there: lives begin in the middle of outages."""
    while True:
        try:
            return await claim_objects(parts.store, parts.objects, clock=parts.clock, random=parts.random)
        except (UnavailableError, OutcomeUnknownError):
            await parts.clock.sleep_ms(20)


async def _rest(parts: Parts) -> None:
    """Until it was stopped, and goes on."""
    looked_ms = parts.clock.boot_ms()
    while (now_ms := parts.clock.boot_ms()) - looked_ms < SLEPT_MS:
        looked_ms = now_ms
        parts.steps("resting")
        await parts.clock.sleep_ms(20)


async def _trouble(
    told: argparse.Namespace, parts: Parts, faulty: FaultyObjects, disk: CachedDisk, leading: LedPartitions
) -> None:
    """What is to go wrong while the others work."""
    if told.objects_down_ms:
        await parts.clock.sleep_ms(150)
        # Not while every tail is full already that goes on without objects: the outage would show nothing.
        while all(
            each.unpublished_bytes > LOG.unpublished_bytes_max // 2
            for each in leading.partitions()
            if each.partition_config.level != "object"
        ):
            await parts.clock.sleep_ms(5)
        faulty.reachable = False
        parts.say(f"down {parts.agent} {faulty.faults}")
        await parts.clock.sleep_ms(told.objects_down_ms)
        faulty.reachable = True
        parts.say(f"up {parts.agent}")
        await parts.clock.sleep_ms(300)
        parts.steps("outage over")
    if told.disk_full_ms:
        await parts.clock.sleep_ms(50)
        disk.full_until_ms = parts.clock.boot_ms() + told.disk_full_ms
        parts.say(f"full {parts.agent}")


def main(argv: Sequence[str]) -> None:
    """Live."""
    told = arguments(argv)
    told.folder.mkdir(exist_ok=True)
    descriptor = os.open(told.folder / HISTORY, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def say(line: str) -> None:
        os.write(descriptor, f"{line}\n".encode())

    say(f"life {told.agent}")
    with pytest.MonkeyPatch.context() as patch:
        if told.planted is not None:
            plant(told.planted, patch)
        try:
            asyncio.run(live(told, say))
        except* HoldfastError as failed:
            say(f"failed {told.agent} {failed.exceptions[0]!r}".replace("\n", " "))
            raise
    say(f"over {told.agent}")


if __name__ == "__main__":
    main(sys.argv[1:])
