"""The status of a slot as it is stored."""

import msgspec
import pytest

from holdfast.contracts.store import Put
from holdfast.kernel.cluster_move import MOVED_KEY, ClusterMovedError, Location, MovedRecord
from holdfast.pipeline.catalog.worker_status import SlotStatus, WorkerRecord, list_workers
from holdfast.pipeline.workers.status_publisher import _STATUS_BYTES_MAX, StatusPublisher, _encode_status
from holdfast.stores.memory import MemoryStore
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.random import SeededRandom

STATUS = SlotStatus(pipeline_id="p", generation=1, slot="0", worker_id="ann", rows=7, warnings=("slow",))
WORKER = WorkerRecord(
    id="ann", host="h", pid=1, version="1", mode="leases", session="", started_at_ms=0, slots_per_pipeline_max=1
)


@pytest.mark.parametrize(("partitions", "listed"), [(1_000, True), (60_000, False)])
def test_a_status_with_too_many_partitions_for_a_value_does_not_list_them(partitions: int, listed: bool) -> None:
    epochs = {str(number): 1 for number in range(partitions)}
    value = _encode_status(msgspec.structs.replace(STATUS, epochs=epochs))
    assert len(value) <= _STATUS_BYTES_MAX
    read = msgspec.json.decode(value, type=SlotStatus)
    assert read.rows == 7
    assert read.epochs == (epochs if listed else {})
    assert read.warnings == (("slow",) if listed else ("slow", "60000 partitions are too many to list"))


async def test_a_worker_cannot_register_once_its_cluster_has_moved() -> None:
    clock, random = FakeClock(), SeededRandom(1)
    moved = MovedRecord(token="t", to=Location(store="s", objects="o"), at_ms=1, finished=True)
    async with MemoryStore.open(clock=clock, random=random) as store:
        session = await store.open_session(30_000)
        publisher = StatusPublisher(store, session.id, clock=clock, random=random)
        await store.commit(apply=[Put(MOVED_KEY, msgspec.json.encode(moved))])
        with pytest.raises(ClusterMovedError, match="--store 's' --objects 'o'"):
            await publisher.announce(WORKER)
        assert await list_workers(store) == []
