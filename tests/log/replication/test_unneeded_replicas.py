"""Which logs a host drops: those that the store says nobody counts, and nothing that is being written."""

import logging
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import msgspec
import pytest
from tests.support.replication.in_process import hosted
from tests.support.replication.logs import P, append, at, base, entry, seal, start
from tests.support.waiting import async_until
from tests.support.wal import opened

from holdfast.contracts.store import Delete, Put, Store
from holdfast.contracts.validation import StoreLimits
from holdfast.log.keys import state_key, topic_id_key
from holdfast.log.metadata import PartitionRecord
from holdfast.log.replication.messages import Ack, Answer, Mismatch, Request
from holdfast.log.replication.positions import NOWHERE
from holdfast.log.replication.replica import Replica
from holdfast.log.replication.replica_frames import StateFrame, record_frame, state_frame
from holdfast.log.replication.replica_host import ReplicaHost
from holdfast.log.replication.settings import ReplicaSettings
from holdfast.log.replication.unneeded_replicas import drop_unneeded, keep_dropping
from holdfast.log.wal import WalFrame
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SeededRandom
from holdfast.vocabulary.tasks import background_tasks

TOPIC_ID, NUMBER = P[0].hex(), P[1]
HISTORY = (start(1, 0), entry(1, 0), entry(1, 1))
LATER_MS = 10**15


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[ReplicaHost]:
    async with hosted(tmp_path / "wal", "w1") as made:
        await ask(made, append(1, NOWHERE, *HISTORY))
        yield made


@pytest.fixture
async def store() -> Store:
    made = MemoryStore(clock=RealClock(), random=SeededRandom(1), limits=StoreLimits())
    await made.commit(apply=(Put(topic_id_key(TOPIC_ID), b'{"name": "orders"}'),))
    return made


async def ask(host: ReplicaHost, message: Request) -> Answer | None:
    answers: list[Answer | None] = []
    host.handle(message, "w2", answers.append)
    await async_until(lambda: bool(answers))
    return answers[0]


async def put(store: Store, **fields: object) -> None:
    record = PartitionRecord(**fields)  # type: ignore[arg-type]
    await store.commit(apply=(Put(state_key(TOPIC_ID, NUMBER), msgspec.json.encode(record)),))


def replica_of(host: ReplicaHost) -> Replica:
    hosted_replica = host.get(P)
    assert hosted_replica is not None
    assert hosted_replica.replica is not None
    return hosted_replica.replica


async def test_a_log_is_dropped_when_a_set_without_it_has_served_and_its_promise_stays(
    host: ReplicaHost, store: Store
) -> None:
    await put(store, opened_epoch=3, opened_replicas=("w2", "w3"))
    assert await drop_unneeded(host, store, now_ms=LATER_MS) == 1
    assert (replica_of(host).promised, len(replica_of(host).log), host.budget.used_bytes) == (3, 0, 0)
    assert host.counters.dropped_logs == 1
    await put(store, opened_epoch=3, opened_replicas=("w2", "w3"), published=2)
    await async_until(partial(_released, host, store))
    assert await drop_unneeded(host, store, now_ms=LATER_MS) == 0


async def _released(host: ReplicaHost, store: Store) -> bool:
    """Whether nothing of the log is in the WAL any more, after another look."""
    assert await drop_unneeded(host, store, now_ms=LATER_MS) == 0
    return P not in host.wal.unreleased()


async def test_what_a_leader_without_replicas_wrote_here_since_is_kept(host: ReplicaHost, store: Store) -> None:
    """The topic's level was changed, and this agent leads it: its frames have the partition's name and offsets."""
    await put(store, opened_epoch=3, opened_replicas=(), published=2, reserved=100, level="local")
    for offset in range(2, 5):
        await host.wal.append(WalFrame(*P, 4, offset, 1, (b"acknowledged",)))
    assert await drop_unneeded(host, store, now_ms=LATER_MS) == 1
    await ask(host, seal(3, "w1"))  # behind the drop in the WAL
    await drop_unneeded(host, store, now_ms=LATER_MS)
    assert host.wal.unreleased()[P] == 5


@pytest.mark.parametrize(
    ("opened_epoch", "opened_replicas"), [(3, ("w1", "w2")), (0, ())], ids=["a member", "nobody has served"]
)
async def test_a_log_that_may_be_counted_is_kept(
    host: ReplicaHost, store: Store, opened_epoch: int, opened_replicas: tuple[str, ...]
) -> None:
    await put(store, opened_epoch=opened_epoch, opened_replicas=opened_replicas)
    assert await drop_unneeded(host, store, now_ms=LATER_MS) == 0
    assert replica_of(host).log.position == at(1, 2)


async def test_a_log_under_a_higher_promise_is_kept(host: ReplicaHost, store: Store) -> None:
    """A recovery may be counting it at this moment."""
    await ask(host, seal(5, "w1"))
    await put(store, opened_epoch=3, opened_replicas=("w2", "w3"))
    assert await drop_unneeded(host, store, now_ms=LATER_MS) == 0


async def test_a_log_that_is_being_written_is_kept(host: ReplicaHost, store: Store) -> None:
    await put(store, opened_epoch=3, opened_replicas=("w2", "w3"))
    assert await drop_unneeded(host, store, now_ms=RealClock().boot_ms()) == 0


async def test_what_a_deleted_topic_left_goes_with_its_promise(host: ReplicaHost, store: Store) -> None:
    assert await drop_unneeded(host, store, now_ms=LATER_MS) == 0  # no record yet, and the topic exists
    await store.commit(apply=(Delete(topic_id_key(TOPIC_ID)),))
    assert await drop_unneeded(host, store, now_ms=LATER_MS) == 1
    assert (len(host), host.wal.unreleased()) == (0, {})


async def test_few_calls_for_many_replicas(host: ReplicaHost, store: Store) -> None:
    counted = FaultyStore(store, random=SeededRandom(2))
    for number in range(80):
        await ask(host, msgspec.structs.replace(append(1, NOWHERE, *HISTORY), partition=(P[0], number)))
    await drop_unneeded(host, counted, now_ms=LATER_MS)
    assert sum(counted.calls.values()) <= 2


async def test_everything_is_kept_while_the_store_does_not_answer(
    tmp_path: Path, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    await put(store, opened_epoch=3, opened_replicas=("w2", "w3"))
    faulty = FaultyStore(store, random=SeededRandom(2))
    faulty.reachable = False
    often = ReplicaSettings(check_ms=1)
    caplog.set_level(logging.INFO)
    async with (
        hosted(tmp_path / "wal", "w1", settings=often) as host,
        background_tasks(keep_dropping(host, faulty, clock=RealClock(), random=SeededRandom(3))),
    ):
        await ask(host, append(1, NOWHERE, *HISTORY))
        await async_until(lambda: "kept for now" in caplog.text)
        assert len(replica_of(host).log) == len(HISTORY)
        faulty.reachable = True
        await async_until(lambda: not len(replica_of(host).log))


async def mixed_up(directory: Path, *, epoch: int) -> None:
    """A WAL in which a leader without replicas wrote behind the base of a replica that promised later, and did not begin anew."""
    async with opened(directory) as wal:
        await wal.append(record_frame(P, start(1, 0)))
        await wal.append(state_frame(P, 1, StateFrame(5, at(1, 2), 0, 0, reset=False)))
        await wal.append(WalFrame(*P, epoch, 4, 1, (b"local",)))


@pytest.mark.parametrize(
    ("opened_epoch", "opened_replicas"),
    [(6, ("w2", "w3")), (5, ("w1", "w2", "w3")), (4, ("w1", "w2", "w3"))],
    ids=["not counted", "counted, nothing acknowledged", "counted, under a higher promise"],
)
async def test_a_replica_that_cannot_be_read_begins_anew_if_nobody_needs_what_it_had(
    tmp_path: Path, store: Store, opened_epoch: int, opened_replicas: tuple[str, ...]
) -> None:
    await mixed_up(tmp_path / "wal", epoch=3)
    promised = max(5, opened_epoch)
    async with hosted(tmp_path / "wal", "w1") as host:
        assert await ask(host, seal(7, "w1")) is None
        await put(store, opened_epoch=opened_epoch, opened_replicas=opened_replicas, published=5)
        assert await drop_unneeded(host, store, now_ms=LATER_MS) == 1
        assert (replica_of(host).promised, replica_of(host).log.position) == (promised, NOWHERE)
        assert isinstance(await ask(host, append(promised, at(3, 5), start(promised, 5))), Mismatch)
        assert isinstance(await ask(host, base(promised, at(3, 5))), Ack)
        assert isinstance(await ask(host, append(promised, at(3, 5), start(promised, 5))), Ack)
    async with hosted(tmp_path / "wal", "w1") as host:
        assert (replica_of(host).promised, replica_of(host).log.position) == (promised, at(promised, 5))


@pytest.mark.parametrize(
    ("opened_epoch", "opened_replicas"),
    [(3, ("w1", "w2", "w3")), (4, ("w2", "w3")), (0, ())],
    ids=["acknowledged", "promised to a recovery", "never opened"],
)
async def test_a_replica_that_cannot_be_read_answers_nothing_while_somebody_may_need_it(
    tmp_path: Path, store: Store, opened_epoch: int, opened_replicas: tuple[str, ...]
) -> None:
    await mixed_up(tmp_path / "wal", epoch=3)
    async with hosted(tmp_path / "wal", "w1") as host:
        await put(store, opened_epoch=opened_epoch, opened_replicas=opened_replicas, published=5)
        assert await drop_unneeded(host, store, now_ms=LATER_MS) == 0
        assert await ask(host, seal(7, "w1")) is None
