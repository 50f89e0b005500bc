"""What is special to etcd: slots for lost answers, leases of whole seconds, its mark, compaction, its quota."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.store_engines.etcd import EtcdHarness, EtcdServer, program

from holdfast.contracts.store import Absent, Committed, Conflict, Entry, NotCommitted, Put, Resync, Store
from holdfast.stores.etcd import EtcdAddress, EtcdSettings, EtcdStore
from holdfast.stores.etcd import etcd_pb2 as pb
from holdfast.stores.etcd.client import EtcdClient
from holdfast.stores.etcd.commit_slots import CommitId, CommitSlot, SlotWriter
from holdfast.stores.etcd.keyspace import Keyspace
from holdfast.stores.etcd.rpc_methods import COMPACT, LEASE_REVOKE, RANGE, TXN
from holdfast.stores.etcd.transactions import commit_request
from holdfast.testing.harness import StoreHarness
from holdfast.testing.store_contract.suite import head, put, text, write
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import ClosedError, CorruptError, InvalidError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import SystemRandom

CLOCK, RANDOM = RealClock(), SystemRandom()


@pytest.fixture
def engine() -> str:
    return "etcd"


@pytest.fixture
def etcd(harness: StoreHarness) -> EtcdHarness:
    assert isinstance(harness, EtcdHarness)
    return harness


@pytest_asyncio.fixture
async def raw(etcd: EtcdHarness) -> AsyncIterator[EtcdClient]:
    """What a person with etcdctl could do."""
    address = EtcdAddress(endpoints=(f"127.0.0.1:{etcd.server.port}",))
    async with EtcdClient.open(address, EtcdSettings(), clock=CLOCK, random=RANDOM) as client:
        yield client


def opening(etcd: EtcdHarness, **settings: int) -> AbstractAsyncContextManager[EtcdStore]:
    address = EtcdAddress(endpoints=(f"127.0.0.1:{etcd.proxy.port}",), prefix=etcd.prefix)
    patient = {"timeout_ms": 30_000, **settings}  # what is not about a time-out has none on a busy machine
    return EtcdStore.open(address, settings=EtcdSettings(**patient), clock=CLOCK, random=RANDOM)


async def etcdctl(etcd: EtcdHarness, *words: str) -> list[str]:
    """The lines etcdctl prints."""
    return await etcdctl_at(etcd.server.port, *words)


async def etcdctl_at(port: int, *words: str) -> list[str]:
    argv = [str(program("etcdctl")), "--endpoints", f"127.0.0.1:{port}", *words]
    done = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True, check=True)
    return str(done.stdout).split("\n")[:-1]


async def slots_of(etcd: EtcdHarness) -> list[str]:
    keys = await etcdctl(etcd, "get", "--prefix", "--keys-only", f"{etcd.prefix}/c/")
    return [key for key in keys if key]


# Sessions


@pytest.mark.parametrize(("asked_ms", "granted_ms"), [(100, 2_000), (2_000, 2_000), (2_001, 3_000), (30_000, 30_000)])
async def test_a_session_has_its_granted_ttl_in_whole_seconds(store: Store, asked_ms: int, granted_ms: int) -> None:
    session = await store.open_session(asked_ms)
    assert session.ttl_ms == granted_ms
    await store.close_session(session.id)


async def test_an_overdue_session_does_not_delay_the_renewal_of_others(store: Store) -> None:
    dying, living = await store.open_session(2_000), await store.open_session(60_000)
    await CLOCK.sleep_ms(dying.ttl_ms)  # what is waited for is time itself
    late = asyncio.ensure_future(store.keep_alive(dying.id))  # etcd answers when it has revoked the lease
    renewed = [await store.keep_alive(living.id) for _ in range(5)]
    assert renewed == [True] * 5
    await late


# Slots


async def test_commits_leave_no_more_slots_than_were_in_flight_at_once(etcd: EtcdHarness) -> None:
    async with opening(etcd, in_flight_max=4) as store:
        await asyncio.gather(*(put(store, f"many/{n}") for n in range(60)))
        scan = await store.scan("", chr(0x10FFFF))
        assert len(scan.entries) == 60
        assert 1 <= len(await slots_of(etcd)) <= 4
    assert await slots_of(etcd) == []


async def test_slots_are_not_watched(etcd: EtcdHarness, store: Store) -> None:
    start = await head(store)
    async with store.watch("", from_version=start) as changes:
        version = await write(store, Put("a", b"1"), Put("b", b"1"))
        changed = await anext(changes)
        assert not isinstance(changed, Resync)
        assert (changed.version, [change.key for change in changed.changes]) == (version, ["a", "b"])


async def test_an_unknown_outcome_can_be_resolved_after_its_store_was_closed(etcd: EtcdHarness) -> None:
    async with opening(etcd) as store:
        etcd.lose_answer_to("landed")
        with pytest.raises(OutcomeUnknownError) as landed:
            await put(store, "landed")
        etcd.lose_request("never")
        with pytest.raises(OutcomeUnknownError) as never:
            await put(store, "never")
    async with opening(etcd) as other:
        entry = await other.get("landed")
        assert entry is not None
        for _ in range(2):
            assert await other.resolve(landed.value.commit_id) == Committed(entry.version)
            assert await other.resolve(never.value.commit_id) == NotCommitted()
        assert await other.get("never") is None


async def test_a_commit_that_arrives_after_it_was_refused_is_not_applied(etcd: EtcdHarness, store: Store) -> None:
    async with opening(etcd, timeout_ms=5_000) as slow:
        await put(slow, "before")
        await asyncio.to_thread(etcd.server.freeze)
        try:
            with pytest.raises(OutcomeUnknownError) as late:
                await put(slow, "late")
        finally:
            await asyncio.to_thread(etcd.server.thaw)  # now the server reads what was sent
    outcome = await store.resolve(late.value.commit_id)
    entry = await store.get("late")
    assert outcome == (NotCommitted() if entry is None else Committed(entry.version))
    assert await store.resolve(late.value.commit_id) == outcome
    assert await store.get("late") == entry


@pytest.mark.parametrize("used_before", [False, True])
@pytest.mark.parametrize("refused", [False, True])
async def test_a_request_that_was_held_up_on_its_way_lands_only_if_nobody_refused_it(
    etcd: EtcdHarness, store: Store, raw: EtcdClient, used_before: bool, refused: bool
) -> None:
    if used_before:
        await put(store, "before")
    etcd.lose_request("held-up")
    with pytest.raises(OutcomeUnknownError) as lost:
        await put(store, "held-up")
    commit_id = lost.value.commit_id
    if refused:
        assert await store.resolve(commit_id) == NotCommitted()
    keyspace, sent = Keyspace(etcd.prefix), CommitId.parse(commit_id)
    assert bool(sent.at) == used_before
    slot = CommitSlot(
        SlotWriter(sent.lease), sent.number, keyspace.slot(sent.lease, sent.number), sent.at, sent.sequence
    )
    (record,) = (await raw.call(RANGE, pb.RangeRequest(key=keyspace.incarnation))).kvs
    late = await raw.call(TXN, commit_request(keyspace, [], [Put("held-up", b"0")], slot, record.value))
    assert late.succeeded == (not refused)
    outcome = NotCommitted() if refused else Committed(late.header.revision)
    assert [await store.resolve(commit_id) for _ in range(2)] == [outcome] * 2
    assert (await store.get("held-up") is None) == refused


@pytest.mark.parametrize("commit_id", ["", "nonsense", "1-2-3", "1-2-3-x", "g-1-0-1"])
async def test_an_id_of_no_commit_is_refused(store: Store, commit_id: str) -> None:
    with pytest.raises(InvalidError):
        await store.resolve(commit_id)


async def test_an_outcome_whose_writer_is_forgotten_is_not_guessed(
    etcd: EtcdHarness, store: Store, raw: EtcdClient
) -> None:
    lost = []
    for lose in (etcd.lose_answer_to, etcd.lose_request):
        lose("forgotten")
        with pytest.raises(OutcomeUnknownError) as unknown:
            await put(store, "forgotten")
        lost.append(unknown.value.commit_id)
    await raw.call(LEASE_REVOKE, pb.LeaseRevokeRequest(ID=int(lost[0].split("-")[0], 16)))
    for commit_id in lost:
        with pytest.raises(InvalidError, match="at most an hour old"):
            await store.resolve(commit_id)


async def test_a_store_whose_writer_lease_is_lost_becomes_another_writer(
    etcd: EtcdHarness, store: Store, raw: EtcdClient
) -> None:
    await put(store, "first")
    session = await store.open_session(60_000)
    (slot,) = await slots_of(etcd)
    writer = slot.split("/")[2]
    await raw.call(LEASE_REVOKE, pb.LeaseRevokeRequest(ID=int(writer, 16)))
    versions = await asyncio.gather(*(put(store, f"then/{n}", session=session.id) for n in range(5)))
    assert len(set(versions)) == 5
    assert {slot.split("/")[2] for slot in await slots_of(etcd)} - {writer}
    await store.close_session(session.id)
    dead = await store.commit(require=[Absent("x")], apply=[Put("x", b"1", session.id)])
    assert dead == Conflict({"x": None}, session.id)


async def test_a_writer_that_lost_many_answers_is_replaced(etcd: EtcdHarness) -> None:
    async with opening(etcd, writer_retired_max=2) as store:
        lost = []
        for n in range(5):
            etcd.lose_answer_to(f"many/{n}")
            with pytest.raises(OutcomeUnknownError) as unknown:
                await put(store, f"many/{n}")
            lost.append(unknown.value.commit_id)
        assert len({commit_id.split("-")[0] for commit_id in lost}) >= 2
        for n, commit_id in enumerate(lost):
            entry = await store.get(f"many/{n}")
            assert entry is not None
            assert await store.resolve(commit_id) == Committed(entry.version)


async def test_commits_cancelled_under_way_spoil_nothing_for_those_after_them(etcd: EtcdHarness) -> None:
    async with opening(etcd, in_flight_max=3) as store:
        for n in range(10):
            doomed = [asyncio.ensure_future(put(store, f"doomed/{n}/{each}")) for each in range(6)]
            await put(store, f"kept/{n}")
            for task in doomed:
                task.cancel()
            await asyncio.wait(doomed)
            for each, task in enumerate(doomed):
                if not task.cancelled():
                    assert await store.get(f"doomed/{n}/{each}") == Entry(f"doomed/{n}/{each}", b"0", task.result())
        assert len((await store.scan("kept/", "kept0")).entries) == 10


async def test_a_commit_waiting_for_room_says_so_in_time(etcd: EtcdHarness) -> None:
    async with opening(etcd, in_flight_max=1, timeout_ms=5_000) as store:
        await put(store, "first")
        await asyncio.to_thread(etcd.server.freeze)
        try:
            outcomes = await asyncio.gather(*(put(store, f"room/{n}") for n in range(3)), return_exceptions=True)
        finally:
            await asyncio.to_thread(etcd.server.thaw)
    assert isinstance(outcomes[0], OutcomeUnknownError)
    assert all(isinstance(outcome, OutcomeUnknownError | UnavailableError) for outcome in outcomes)
    assert any(isinstance(outcome, UnavailableError) for outcome in outcomes)


# Servers that freeze, vanish, or are others


async def test_a_frozen_server_is_given_up_in_time_and_used_again_when_it_goes_on(etcd: EtcdHarness) -> None:
    async with opening(etcd, timeout_ms=5_000) as store:
        version = await put(store, "a")
        session = await store.open_session(60_000)
        await asyncio.to_thread(etcd.server.freeze)
        try:
            asked = await asyncio.gather(
                store.get("a"),
                store.scan("a", "b"),
                store.keep_alive(session.id),
                store.open_session(60_000),
                put(store, "b"),
                return_exceptions=True,
            )
        finally:
            await asyncio.to_thread(etcd.server.thaw)
        assert [type(error) for error in asked] == [UnavailableError] * 4 + [OutcomeUnknownError]
        assert isinstance(asked[-1], OutcomeUnknownError)
        outcome = await store.resolve(asked[-1].commit_id)
        entry = await store.get("b")
        assert outcome == (NotCommitted() if entry is None else Committed(entry.version))
        assert await store.get("a") == Entry("a", b"0", version)
        assert await store.keep_alive(session.id)


async def test_a_store_wiped_under_an_open_client_stops_it_and_is_not_made_anew(
    etcd: EtcdHarness, store: Store
) -> None:
    session = await store.open_session(60_000)
    start = await put(store, "a")
    async with store.watch("", from_version=start) as changes:
        await etcdctl(etcd, "del", "--prefix", f"{etcd.prefix}/")
        with pytest.raises(CorruptError, match="removed"):
            await put(store, "b")
        for ask in (store.get("a"), store.keep_alive(session.id), store.commit(require=[Absent("a")])):
            with pytest.raises(CorruptError):
                await ask
        with pytest.raises(CorruptError):
            await anext(changes)
    assert await etcdctl(etcd, "get", f"{etcd.prefix}/k/b") == []
    async with etcd.client() as fresh:
        assert fresh.facts.incarnation != store.facts.incarnation


async def test_an_idle_store_learns_that_another_was_put_in_its_place(etcd: EtcdHarness, store: Store) -> None:
    async with store.watch("", from_version=await head(store)) as changes:
        await etcdctl(etcd, "put", f"{etcd.prefix}/incarnation", '{"incarnation":"other"}')
        with pytest.raises(CorruptError, match="other"):
            await anext(changes)


async def test_closing_ends_what_waits_for_a_frozen_server(etcd: EtcdHarness) -> None:
    async with opening(etcd, timeout_ms=60_000) as store:
        await put(store, "a")
        await asyncio.to_thread(etcd.server.freeze)
        try:
            asked = [asyncio.ensure_future(store.get("a")), asyncio.ensure_future(put(store, "b"))]
            await asyncio.wait(asked, timeout=0.1)
        except BaseException:
            await asyncio.to_thread(etcd.server.thaw)
            raise
    await asyncio.to_thread(etcd.server.thaw)
    ended = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(error) for error in ended] == [ClosedError, OutcomeUnknownError]


# History and size


async def test_a_watcher_behind_a_compaction_gets_resync(store: Store, raw: EtcdClient) -> None:
    start = await head(store)
    versions = [await put(store, "old", n) for n in range(5)]
    await raw.call(COMPACT, pb.CompactionRequest(revision=versions[3], physical=True))
    async with store.watch("old", from_version=start) as changes:
        assert await anext(changes) == Resync(versions[3])
        last = await anext(changes)
        assert not isinstance(last, Resync)
        assert last.version == versions[4]


async def test_a_scan_of_many_pages_shows_one_version(etcd: EtcdHarness, raw: EtcdClient) -> None:
    async with opening(etcd, scan_keys_max=3) as store:
        names = [f"page/{n:02}" for n in range(20)]
        await write(store, *(Put(name, b"0") for name in names))
        scanning = asyncio.Event()

        async def keep_changing() -> None:
            n = 0
            while not scanning.is_set():
                n += 1
                version = await write(store, *(Put(name, text(n)) for name in names))
                await raw.call(COMPACT, pb.CompactionRequest(revision=version - 2))

        changing = asyncio.ensure_future(keep_changing())
        try:
            for reverse in (False, True) * 5:
                scan = await store.scan("page/", "page0", reverse=reverse)
                assert [entry.key for entry in scan.entries] == (names[::-1] if reverse else names)
                assert len({entry.version for entry in scan.entries}) == 1
                some = await store.scan("page/", "page0", limit=7, reverse=reverse)
                assert [entry.key for entry in some.entries] == (names[::-1] if reverse else names)[:7]
                assert some.more
        finally:
            scanning.set()
            await changing


async def test_commits_too_large_for_one_watch_message_come_whole(etcd: EtcdHarness, store: Store) -> None:
    start = await head(store)
    filler = text("x" * 20_000)
    versions = [await write(store, *(Put(f"big/{n}/{each:02}", filler) for each in range(25))) for n in range(8)]
    async with store.watch("big/", from_version=start) as changes:
        for n, version in enumerate(versions):
            changed = await anext(changes)
            assert not isinstance(changed, Resync)
            assert changed.version == version
            assert [change.key for change in changed.changes] == [f"big/{n}/{each:02}" for each in range(25)]


async def test_a_full_etcd_leaves_no_doubt_about_what_was_written(tmp_path: Path) -> None:
    with EtcdServer(tmp_path, options=("--quota-backend-bytes=3000000",)).running() as server:
        address = EtcdAddress(endpoints=(f"127.0.0.1:{server.port}",))
        async with EtcdStore.open(address, clock=CLOCK, random=RANDOM) as store:
            filler, acknowledged = text("x" * 100_000), []

            async def fill() -> None:
                for _ in range(100):
                    acknowledged.append(await write(store, Put("big", filler)))

            with pytest.raises(OutcomeUnknownError, match="space") as full:
                await fill()
            with pytest.raises(UnavailableError, match="alarm"):
                await store.resolve(full.value.commit_id)
            entry = await store.get("big")
            assert entry is not None
            last = await head(store)
            for words in (("compact", str(last)), ("defrag",), ("alarm", "disarm")):
                await etcdctl_at(server.port, *words)
            outcome = await store.resolve(full.value.commit_id)
            assert outcome == (NotCommitted() if entry.version == acknowledged[-1] else Committed(entry.version))
            assert await put(store, "small") > last
