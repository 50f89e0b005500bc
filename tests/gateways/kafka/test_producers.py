"""InitProducerId and DescribeProducers: every version, ids that go on, and what is said about transactions."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.kafka_admin import Admin, admin_of, code, versions
from tests.support.partitions import batch

from holdfast.kafka.error_codes import ErrorCode
from holdfast.log.producer_ids import BLOCK_IDS


async def init(admin: Admin, version: int | None = None, **given: Any) -> tuple[ErrorCode, int, int]:
    answer = await admin.ask(
        "InitProducerId",
        version,
        **{"transactional_id": None, "transaction_timeout": timedelta(0), **given},
    )
    return code(answer), answer.producer_id, answer.producer_epoch


async def test_every_version_returns_a_unique_id(tmp_path: Path) -> None:
    async with admin_of(tmp_path) as admin:
        given = [await init(admin, version) for version in versions("InitProducerId") for _ in range(2)]
        assert {(refusal, epoch) for refusal, _, epoch in given} == {(ErrorCode.NONE, 0)}
        assert len({producer_id for _, producer_id, _ in given}) == len(given)


async def test_a_producer_that_keeps_its_id_gets_its_next_epoch(tmp_path: Path) -> None:
    async with admin_of(tmp_path) as admin:
        _, mine, _ = await init(admin)
        for version in (each for each in versions("InitProducerId") if each >= 3):
            assert await init(admin, version, producer_id=mine, producer_epoch=4) == (ErrorCode.NONE, mine, 5)
            again = await init(admin, version, producer_id=mine, producer_epoch=4)
            assert again == (ErrorCode.NONE, mine, 5), "the answer was lost, perhaps"


@pytest.mark.parametrize("epoch", [32_766, 32_767])
async def test_a_producer_without_epochs_left_gets_a_new_id(tmp_path: Path, epoch: int) -> None:
    async with admin_of(tmp_path) as admin:
        _, mine, _ = await init(admin)
        refusal, fresh, first = await init(admin, producer_id=mine, producer_epoch=epoch)
        assert (refusal, first) == (ErrorCode.NONE, 0)
        assert fresh != mine


async def test_a_producer_with_an_unassigned_id_gets_a_new_one(tmp_path: Path) -> None:
    async with admin_of(tmp_path) as admin:
        refusal, fresh, epoch = await init(admin, producer_id=77 * BLOCK_IDS, producer_epoch=4)
        assert (refusal, epoch) == (ErrorCode.NONE, 0)
        assert fresh != 77 * BLOCK_IDS


@pytest.mark.parametrize(("known", "epoch"), [(5, -1), (-1, 5)])
async def test_an_id_without_an_epoch_is_an_invalid_request(tmp_path: Path, known: int, epoch: int) -> None:
    async with admin_of(tmp_path) as admin:
        assert await init(admin, producer_id=known, producer_epoch=epoch) == (ErrorCode.INVALID_REQUEST, -1, -1)


async def test_transactions_are_not_supported_in_any_version(tmp_path: Path) -> None:
    async with admin_of(tmp_path) as admin:
        for version in versions("InitProducerId"):
            assert await init(admin, version, transactional_id="t") == (ErrorCode.UNSUPPORTED_VERSION, -1, -1)


async def test_an_unavailable_store_gets_a_retriable_code(tmp_path: Path) -> None:
    async with admin_of(tmp_path) as admin:
        ids = admin.backend.producer_ids
        ids._store = admin.gateway.node.store
        admin.gateway.node.store.reachable = False
        assert await init(admin) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
        admin.gateway.node.store.reachable = True
        assert (await init(admin))[0] is ErrorCode.NONE


async def test_producers_of_a_partition_are_described(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 2}) as admin:
        for sequence in range(7):
            await admin.backend.log.produce("orders", 0, batch("x", producer=4, epoch=2, sequence=sequence))
        await admin.backend.log.produce("orders", 0, batch("x", "y", producer=9, epoch=0, sequence=0))
        await admin.backend.log.produce("orders", 0, batch("nobody's"))
        before_ms = admin.backend.clock.now_ms()
        answer = await admin.ask(
            "DescribeProducers",
            topics=[
                {"name": "orders", "partition_indexes": [0, 1, 7]},
                {"name": "nowhere", "partition_indexes": [0]},
            ],
        )
        (mine, empty, unknown), (nowhere,) = (topic.partitions for topic in answer.topics)
        assert [(each.producer_id, each.producer_epoch, each.last_sequence) for each in mine.active_producers] == [
            (4, 2, 6),
            (9, 0, 1),
        ]
        for each in mine.active_producers:
            assert 0 < each.last_timestamp <= before_ms
            assert (each.coordinator_epoch, each.current_txn_start_offset) == (-1, -1)
        assert (code(empty), empty.active_producers) == (ErrorCode.NONE, ())
        for each in (unknown, nowhere):
            assert code(each) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert each.error_message
