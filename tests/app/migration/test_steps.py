"""A migration step by step, on files: what is moved, who is refused, and every place where it may be interrupted."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from tests.support.failpoints import FailpointError, fail_at, known_failpoints

from holdfast.app.migration.entry_copy import SourceChangedError
from holdfast.app.migration.inventory import entries_of, objects_of
from holdfast.app.migration.migrate import Migration
from holdfast.app.migration.model import MigrationEnd, MigrationProgress, MigrationReport, MigrationSettings, opened_end
from holdfast.contracts.objects import AlreadyExists, Buffer, Missing, ObjectInfo, Objects, Stored
from holdfast.contracts.store import Committed, Delete, Put, Store
from holdfast.kernel.cluster_identity import cluster_identity, identity_put, read_cluster_identity
from holdfast.kernel.cluster_move import MIGRATION_KEY, MOVED_KEY, ClusterMovedError, decode_migration
from holdfast.kernel.lease import Lease, acquire, commit_fenced
from holdfast.kernel.membership import MembershipSettings, hold_membership
from holdfast.kernel.objects_owner import adopt_objects, claim_objects, owner_of, read_mark, verify_objects
from holdfast.kernel.owner_mark import NotOwnerError
from holdfast.sdk.connection import connect
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import CorruptError, FencedError, UsageError
from holdfast.vocabulary.random import SystemRandom
from holdfast.vocabulary.types import Member

pytestmark = pytest.mark.slow

CLOCK, RANDOM = RealClock(), SystemRandom()
STEPS = sorted(name for name in known_failpoints() if name.startswith("migrate."))
ENTRIES, OBJECTS = 100, 40
SMALL = MigrationSettings(parallel=3, memory_bytes_max=64, page=20, record_every=5, record_every_ms=3_600_000)


def urls(tmp_path: Path, name: str) -> tuple[str, str]:
    return f"sqlite:///{tmp_path}/{name}.db", f"file://{tmp_path}/{name}-objects"


@asynccontextmanager
async def end(tmp_path: Path, name: str) -> AsyncIterator[MigrationEnd]:
    store, objects = urls(tmp_path, name)
    async with opened_end(store, objects, create=True, clock=CLOCK, random=RANDOM) as opened:
        yield opened


async def put(store: Store, **values: object) -> None:
    puts = [Put(key.replace("__", "/"), msgspec.json.encode(value)) for key, value in values.items()]
    assert isinstance(await store.commit(apply=puts), Committed)


async def fill(source: MigrationEnd) -> str:
    """A cluster with entries, an epoch and objects; its id."""
    owner = await claim_objects(source.store, source.objects, clock=CLOCK, random=RANDOM)
    for first in range(0, ENTRIES, 50):
        await put(source.store, **{f"made__{n:05d}": {"n": n} for n in range(first, first + 50)})
    session = await source.store.open_session(30_000)
    lease = await acquire(source.store, "r", holder="ann", session=session.id, clock=CLOCK, random=RANDOM)
    assert isinstance(lease, Lease)
    await source.store.close_session(session.id)
    for n in range(OBJECTS):
        await source.objects.put(f"{owner.prefix}segments/t/{n:03d}", [b"%d" % n * (n % 7)])
    await source.objects.put("segments/of-release-0.1.0", [b"old"])
    await source.objects.put("somebody/else", [b"not of this cluster"])
    return owner.cluster


class Counters:
    """What is read of the source, and what is held of it until the target has it."""

    def __init__(self) -> None:
        self.reads = self.held = self.held_max = self.held_bytes = self.held_bytes_max = 0
        self.listed = self.put = self.ahead_max = self.listings = 0

    def counted(self, source: MigrationEnd, target: MigrationEnd) -> tuple[MigrationEnd, MigrationEnd]:
        """Both ends, counted."""
        return (
            MigrationEnd(store=source.store, objects=CountedSource(source.objects, self), location=source.location),
            MigrationEnd(store=target.store, objects=CountedTarget(target.objects, self), location=target.location),
        )


class CountedObjects:
    def __init__(self, objects: Objects, counters: Counters) -> None:
        self._objects, self._counters = objects, counters

    async def put(self, key: str, body: Sequence[Buffer]) -> Stored | AlreadyExists:
        return await self._objects.put(key, body)

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> Buffer | Missing:
        return await self._objects.get(key, start=start, end=end)

    async def get_tail(self, key: str, size_bytes: int) -> Buffer | Missing:
        return await self._objects.get_tail(key, size_bytes)

    def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        return self._objects.list(prefix, after=after)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._objects.delete(keys)


class CountedSource(CountedObjects):
    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> Buffer | Missing:
        body = await self._objects.get(key, start=start, end=end)
        if "/segments/" in f"/{key}" and not isinstance(body, Missing):
            counters = self._counters
            counters.reads += 1
            counters.held += 1
            counters.held_bytes += len(body)
            counters.held_max = max(counters.held_max, counters.held)
            counters.held_bytes_max = max(counters.held_bytes_max, counters.held_bytes)
        return body

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        counters = self._counters
        segments = prefix.count("/") and prefix not in ("owner/", "indexes/", "segments/", "shared/")
        counters.listings += bool(segments)
        copying = bool(segments) and counters.listings == 2  # the inventory was the first
        async for info in self._objects.list(prefix, after=after):
            if copying:
                counters.listed += 1
                counters.ahead_max = max(counters.ahead_max, counters.listed - counters.put)
            yield info


class CountedTarget(CountedObjects):
    async def put(self, key: str, body: Sequence[Buffer]) -> Stored | AlreadyExists:
        done = await self._objects.put(key, body)
        if "/segments/" in f"/{key}":
            self._counters.held -= 1
            self._counters.held_bytes -= sum(map(len, body))
            self._counters.put += 1
        return done


def quiet(_: MigrationProgress) -> None:
    """Progress that nobody watches."""


async def migrate(
    source: MigrationEnd, target: MigrationEnd, *, dry_run: bool = False, settings: MigrationSettings = SMALL
) -> MigrationReport:
    made = Migration(source, target, clock=CLOCK, random=RANDOM, settings=settings, on_progress=quiet)
    return await made.run(dry_run=dry_run)


async def contents(each: MigrationEnd, cluster: str) -> tuple[dict[str, bytes], dict[str, bytes]]:
    entries = {entry.key: entry.value async for page in entries_of(each.store, page=100) for entry in page}
    objects: dict[str, bytes] = {}
    async for info in objects_of(each.objects, cluster):
        body = await each.objects.get(info.key)
        assert not isinstance(body, Missing)
        objects[info.key] = bytes(body)
    return entries, objects


def with_epoch(
    found: tuple[dict[str, bytes], dict[str, bytes]], epoch: int
) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The same, with another epoch of the one lease."""
    return {**found[0], "lease/epoch/r": msgspec.json.encode({"epoch": epoch})}, found[1]


async def serves(each: MigrationEnd) -> bool:
    """Whether a server would start here."""
    try:
        await claim_objects(each.store, each.objects, clock=CLOCK, random=RANDOM)
    except (ClusterMovedError, NotOwnerError):
        return False
    return True


async def test_everything_arrives_and_the_target_serves_the_same_cluster(tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target:
        cluster = await fill(source)
        before = await contents(source, cluster)
        shown: list[MigrationProgress] = []
        report = await Migration(
            source, target, clock=CLOCK, random=RANDOM, settings=SMALL, on_progress=shown.append
        ).run()
        after = await contents(source, cluster)
        assert await contents(target, cluster) == after == with_epoch(before, 2)
        assert (report.objects, report.copied_objects) == (OBJECTS + 1, OBJECTS + 1)
        assert report.entries == report.copied_entries == len(before[0])
        assert report.finished
        assert len(report.objects_digest) == len(report.entries_digest) == 64
        assert [each.stage for each in shown if each.done == each.total and each.total] == [
            *("inventory", "objects", "entries", "verify")
        ]
        assert await read_cluster_identity(target.store) == cluster
        assert await serves(target)
        assert isinstance(await target.objects.get("somebody/else"), Missing)
        session = await target.store.open_session(30_000)
        lease = await acquire(target.store, "r", holder="bob", session=session.id, clock=CLOCK, random=RANDOM)
        assert isinstance(lease, Lease)
        assert lease.epoch == 3  # the first holder had 1, and was fenced by 2


async def test_the_source_is_closed_and_says_where_the_cluster_is(tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target:
        await fill(source)
        await migrate(source, target)
        with pytest.raises(ClusterMovedError, match=r"has moved: start servers with --store 'sqlite:.*/b\.db'"):
            await cluster_identity(source.store, clock=CLOCK, random=RANDOM)
        # An agent that was suspended comes back with a new session, without a new start.
        session = await source.store.open_session(30_000)
        member = Member(id="ann", session=session.id)
        with pytest.raises(ClusterMovedError, match="has moved"):
            async with hold_membership(
                source.store, "agent", member, clock=CLOCK, random=RANDOM, settings=MembershipSettings()
            ):
                pytest.fail("registered")
        with pytest.raises(NotOwnerError, match="has moved, and left"):
            await verify_objects(source.store, source.objects, clock=CLOCK, random=RANDOM)
        with pytest.raises(ClusterMovedError, match="has moved"):
            async with connect(urls(tmp_path, "a")[0]):
                pytest.fail("connected")


async def test_the_commit_of_a_holder_that_was_suspended_is_refused_at_the_source(tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target:
        await fill(source)
        session = await source.store.open_session(30_000)
        lease = await acquire(source.store, "p", holder="ann", session=session.id, clock=CLOCK, random=RANDOM)
        assert isinstance(lease, Lease)
        await source.store.close_session(session.id)
        await migrate(source, target)
        with pytest.raises(FencedError):
            await commit_fenced(source.store, lease, clock=CLOCK, random=RANDOM, apply=[Put("late", b"1")])


async def test_a_release_without_this_command_is_refused_by_the_mark_of_the_objects(tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target:
        await fill(source)
        await migrate(source, target)
        found = await read_mark(source.objects)
        view = await (await owner_of(source.store, source.objects, clock=CLOCK, random=RANDOM)).view()
        assert found is not None
        assert view.recorded is not None
        assert found.number > view.recorded.number  # what such a release calls a later state of the store


async def test_a_backup_of_the_old_store_is_refused_too(tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target:
        await fill(source)
        await migrate(source, target)
        await source.store.commit(apply=[Delete(MOVED_KEY)])  # as in a backup that was made before
        assert not await serves(source)


@pytest.mark.parametrize("step", STEPS)
async def test_it_goes_on_after_every_step_and_no_two_ends_serve(step: str, tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target:
        cluster = await fill(source)
        before = await contents(source, cluster)
        with failpoints.installed(fail_at(step)), pytest.raises(FailpointError):
            await migrate(source, target)
        assert not (await serves(source) and await serves(target))
        assert await serves(target) == (step == "migrate.finished")
        if step in ("migrate.claimed", "migrate.target-marked"):
            assert await serves(source)
        report = await migrate(source, target)
        assert report.finished
        arrived = await contents(target, cluster)
        assert arrived == await contents(source, cluster)
        assert with_epoch(arrived, 0) == with_epoch(before, 0)
        assert (await serves(source), await serves(target)) == (False, True)


async def test_what_is_verified_is_not_copied_again(tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target:
        cluster = await fill(source)
        reached = 0

        def stop_later(name: str) -> None:
            nonlocal reached
            reached += name == "migrate.objects-recorded"
            if reached == 4:
                raise FailpointError(name)

        with failpoints.installed(stop_later), pytest.raises(FailpointError):
            await migrate(source, target)
        entry = await target.store.get(MIGRATION_KEY)
        assert entry is not None
        done = decode_migration(entry).objects.count
        there = len([info async for info in objects_of(target.objects, cluster)])
        assert 20 <= done <= there < OBJECTS
        counting = Counters()
        report = await migrate(*counting.counted(source, target))
        assert report.objects == OBJECTS + 1
        assert report.copied_objects == OBJECTS + 1 - there  # what was put is not sent again
        assert counting.reads == OBJECTS + 1 - done  # what was verified is not even read again


async def test_the_digest_does_not_depend_on_interruptions(tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target:
        await fill(source)
        with failpoints.installed(fail_at("migrate.objects-recorded")), pytest.raises(FailpointError):
            await migrate(source, target)
        once = await migrate(source, target)
        again = await migrate(source, target)
        assert again.finished
        assert (again.objects_digest, again.entries_digest) == (once.objects_digest, once.entries_digest)
        assert (again.copied_objects, again.copied_entries) == (0, 0)


async def test_a_dry_run_counts_and_changes_nothing(tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target:
        cluster = await fill(source)
        report = await migrate(source, target, dry_run=True)
        assert report.dry_run
        assert not report.finished
        assert report.objects == OBJECTS + 1
        assert report.entries > ENTRIES
        assert await contents(target, cluster) == ({}, {})
        assert await target.store.get(MIGRATION_KEY) is None
        assert await serves(source)


async def join(store: Store, agent: str) -> str:
    """Register an agent, as its server would; its session."""
    session = await store.open_session(30_000)
    member = Member(id=agent, session=session.id, address="127.0.0.1:9092")
    async with hold_membership(store, "agent", member, clock=CLOCK, random=RANDOM, settings=MembershipSettings()):
        return session.id


def act_at(step: str, act: Callable[[], Awaitable[object]]) -> Callable[[str], Awaitable[None] | None]:
    """A handler of failpoints: does something when a step is reached first."""
    reached: list[str] = []

    async def acting() -> None:
        await act()

    def handler(name: str) -> Awaitable[None] | None:
        if name != step or reached:
            return None
        reached.append(name)
        return acting()

    return handler


async def test_a_source_with_a_live_agent_is_refused_by_name_and_stays_open(tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target:
        await fill(source)
        session = await join(source.store, "ann")
        with pytest.raises(UsageError, match=r"in use by agent ann \(127\.0\.0\.1:9092\)"):
            await migrate(source, target)
        assert await target.store.get(MIGRATION_KEY) is None
        assert await serves(source)
        await source.store.close_session(session)
        assert (await migrate(source, target)).finished


async def test_workers_and_other_holders_of_sessions_are_named_too(tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target:
        await fill(source)
        session = await source.store.open_session(30_000)
        puts = [Put(key, b"{}", session.id) for key in ("workers/w1", "lease/holder/cron", "mine/heartbeat")]
        assert isinstance(await source.store.commit(apply=puts), Committed)
        with pytest.raises(
            UsageError, match="worker w1, the holder of lease cron, the session of mine/heartbeat: stop"
        ):
            await migrate(source, target)


async def test_an_agent_that_joins_before_the_source_is_closed_is_found_and_goes_on(tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target:
        await fill(source)
        joining = act_at("migrate.target-marked", lambda: join(source.store, "ann"))
        with failpoints.installed(joining), pytest.raises(UsageError, match="in use by agent ann"):
            await migrate(source, target)
        assert (await serves(source), await serves(target)) == (True, False)


async def test_a_target_with_another_cluster_is_refused_with_both_ids(tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target, end(tmp_path, "c") as empty:
        ours, theirs = await fill(source), await fill(target)
        with pytest.raises(UsageError, match=rf"it holds cluster {theirs}; the source is cluster {ours}"):
            await migrate(source, target)
        mixed = MigrationEnd(store=empty.store, objects=target.objects, location=empty.location)
        with pytest.raises(UsageError, match=rf"belong to cluster {theirs} .*the source is\s+cluster {ours}"):
            await migrate(source, mixed)
        await put(empty.store, mine=1)
        with pytest.raises(UsageError, match="keys such as mine, and no cluster"):
            await migrate(source, empty)
        assert await serves(source)
        assert await serves(target)


async def test_a_target_with_objects_of_nobody_is_refused(tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target:
        await fill(source)
        await target.objects.put("photos/1", [b"?"])
        with pytest.raises(UsageError, match="not empty: there is photos/1"):
            await migrate(source, target)


@pytest.mark.parametrize("step", ["migrate.claimed", "migrate.source-marked"])
async def test_a_second_attempt_with_the_objects_of_another_cluster_is_refused(step: str, tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target, end(tmp_path, "c") as other:
        await fill(source)
        theirs = await fill(other)
        before = await contents(other, theirs)
        with failpoints.installed(fail_at(step)), pytest.raises(FailpointError):
            await migrate(source, target)
        wrong = MigrationEnd(store=target.store, objects=other.objects, location=target.location)
        with pytest.raises(UsageError, match=f"belong to cluster {theirs}"):
            await migrate(source, wrong)
        assert (await serves(other), await contents(other, theirs)) == (True, before)
        assert (await migrate(source, target)).finished


async def test_objects_that_another_cluster_has_claimed_meanwhile_stay_its_own(tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target, end(tmp_path, "c") as other:
        await fill(source)
        theirs = MigrationEnd(store=other.store, objects=target.objects, location=other.location)
        claiming = act_at("migrate.claimed", lambda: fill(theirs))
        with failpoints.installed(claiming), pytest.raises(UsageError, match="since a moment ago"):
            await migrate(source, target)
        assert (await serves(theirs), await serves(source)) == (True, True)


async def test_of_two_migrations_at_once_to_different_targets_one_is_told_of_the_other(tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target, end(tmp_path, "c") as other:
        await fill(source)
        racing = act_at("migrate.target-marked", lambda: migrate(source, other))
        with failpoints.installed(racing), pytest.raises(ClusterMovedError, match=r"has moved: .*/c\.db"):
            await migrate(source, target)
        assert [await serves(each) for each in (source, target, other)] == [False, False, True]


async def test_a_server_of_an_earlier_release_at_the_target_does_not_end_the_migration(tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target:
        cluster = await fill(source)
        with failpoints.installed(fail_at("migrate.source-marked")), pytest.raises(FailpointError):
            await migrate(source, target)
        await target.store.commit(apply=[identity_put("chosen-by-an-earlier-release")])
        assert (await migrate(source, target)).finished
        assert await read_cluster_identity(target.store) == cluster


async def test_a_store_without_a_cluster_is_no_source(tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target:
        with pytest.raises(UsageError, match="there is no cluster in"):
            await migrate(source, target)


async def test_a_cluster_that_is_being_moved_cannot_be_moved_elsewhere(tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target, end(tmp_path, "c") as other:
        await fill(source)
        with failpoints.installed(fail_at("migrate.verified")), pytest.raises(FailpointError):
            await migrate(source, target)
        with pytest.raises(ClusterMovedError, match=r"is being moved: .*/b\.db"):
            await migrate(source, other)
        with pytest.raises(ClusterMovedError, match=r"is being moved here from .*/a\.db"):
            await cluster_identity(target.store, clock=CLOCK, random=RANDOM)
        assert (await migrate(source, target)).finished


@pytest.mark.parametrize("objects", ["moved", "kept"])
async def test_an_operator_may_take_the_source_back_and_migrate_again(objects: str, tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as new:
        target = (
            new if objects == "moved" else MigrationEnd(store=new.store, objects=source.objects, location=new.location)
        )
        cluster = await fill(source)
        with failpoints.installed(fail_at("migrate.verified")), pytest.raises(FailpointError):
            await migrate(source, target)
        with pytest.raises(ClusterMovedError):
            await adopt_objects(source.store, source.objects, clock=CLOCK, random=RANDOM)
        assert not await serves(source)
        await adopt_objects(source.store, source.objects, clock=CLOCK, random=RANDOM, force=True)
        assert await serves(source)
        assert not await serves(target)
        # Life goes on at the source; a second attempt takes what there is then.
        await source.store.commit(apply=[Delete("made/00007"), Put("made/new", b"1")])
        await source.objects.delete([f"{cluster}/segments/t/007"])
        await source.objects.put(f"{cluster}/segments/t/new", [b"new"])
        assert (await migrate(source, target)).finished
        assert await contents(target, cluster) == await contents(source, cluster)
        assert (await serves(source), await serves(target)) == (False, True)


async def test_a_source_that_was_taken_back_during_a_run_stops_it(tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target:
        await fill(source)

        async def take_back() -> None:
            await adopt_objects(source.store, source.objects, clock=CLOCK, random=RANDOM, force=True)

        taking = act_at("migrate.verified", take_back)
        with failpoints.installed(taking), pytest.raises(UsageError, match="opened again while it was copied"):
            await migrate(source, target)
        assert (await serves(source), await serves(target)) == (True, False)


async def test_a_write_to_the_closed_source_is_found_and_copied_next_time(tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target:
        cluster = await fill(source)
        with failpoints.installed(fail_at("migrate.entries-copied")), pytest.raises(FailpointError):
            await migrate(source, target)
        await put(source.store, made__00003={"n": "changed"}, made__late=1)
        with pytest.raises(SourceChangedError, match="key made/00003"):
            await migrate(source, target)
        assert not await serves(target)
        assert (await migrate(source, target)).finished
        assert await contents(target, cluster) == await contents(source, cluster)


@pytest.mark.parametrize("step", ["", *STEPS])
async def test_the_store_moves_alone_if_the_objects_stay(step: str, tmp_path: Path) -> None:
    store, objects = urls(tmp_path, "b")[0], urls(tmp_path, "a")[1]
    async with (
        end(tmp_path, "a") as source,
        opened_end(store, objects, create=True, clock=CLOCK, random=RANDOM, keep=source) as target,
    ):
        cluster = await fill(source)
        if step and step != "migrate.objects-recorded":
            with failpoints.installed(fail_at(step)), pytest.raises(FailpointError):
                await migrate(source, target)
            assert not (await serves(source) and await serves(target))
        report = await migrate(source, target)
        assert report.finished
        assert report.copied_objects == 0
        assert await contents(target, cluster) == await contents(source, cluster)
        assert (await serves(source), await serves(target)) == (False, True)
        await source.store.commit(apply=[Delete(MOVED_KEY)])  # as in a backup that was made before
        assert not await serves(source)


async def test_the_same_objects_given_as_a_target_are_refused_with_what_to_do(tmp_path: Path) -> None:
    store, objects = urls(tmp_path, "b")[0], urls(tmp_path, "a")[1]
    async with (
        end(tmp_path, "a") as source,
        opened_end(store, objects, create=True, clock=CLOCK, random=RANDOM) as target,
    ):
        await fill(source)
        with pytest.raises(UsageError, match="no --to-objects to leave the objects where they are"):
            await migrate(source, target)


async def test_a_copy_that_differs_is_corrupt(tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target:
        cluster = await fill(source)
        with failpoints.installed(fail_at("migrate.entries-copied")), pytest.raises(FailpointError):
            await migrate(source, target)
        await put(target.store, made__00003={"n": "other"})
        with pytest.raises(CorruptError, match="entry made/00003 is corrupt: the target has another value"):
            await migrate(source, target)
        await target.objects.delete([f"{cluster}/segments/t/013"])
        await target.objects.put(f"{cluster}/segments/t/013", [b"torn"])
        with pytest.raises(CorruptError, match="013 is corrupt"):
            await migrate(source, target)
        assert not await serves(target)


async def test_a_run_that_was_thought_dead_is_fenced_by_its_successor(tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target:
        await fill(source)

        async def second() -> None:
            assert (await migrate(source, target)).finished

        overtaken = act_at("migrate.objects-recorded", second)
        with failpoints.installed(overtaken), pytest.raises(FencedError, match="at epoch 2, this holder is at epoch 1"):
            await migrate(source, target)
        assert await serves(target)


async def test_memory_is_bounded_whatever_is_listed(tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target:
        owner = await claim_objects(source.store, source.objects, clock=CLOCK, random=RANDOM)
        for n in range(30):
            await source.objects.put(f"{owner.prefix}segments/t/{n:03d}", [bytes(1_000 if n != 9 else 50_000)])
        counting = Counters()
        settings = MigrationSettings(parallel=16, memory_bytes_max=8_000)
        assert (await migrate(*counting.counted(source, target), settings=settings)).objects == 30
        assert counting.held_bytes_max == 50_000  # one beyond the budget is copied alone
        assert counting.held_max == 4  # 1,000 bytes each, counted twice
        assert counting.ahead_max <= 5  # listed and not copied yet: however many there are, the listing waits
