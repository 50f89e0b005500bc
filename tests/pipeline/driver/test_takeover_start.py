"""Takeovers of a partition without a checkpoint, of which the sink has ranges."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.support.sink_values import target_of

from holdfast.contracts.validation import StoreLimits
from holdfast.pipeline.driver.sources import TopicBounds
from holdfast.pipeline.driver.takeover import SlotTakeover
from holdfast.pipeline.model.definition import ClickHouseConfig, Generation, KafkaConfig
from holdfast.pipeline.sinks.contract import BlockedError
from holdfast.registry import PartitionState
from holdfast.stores.memory import MemoryStore
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom


def own(*, written: int, latest: int) -> int:
    """Where a partition is begun whose sink has ranges up to `written`."""
    clock, random = RealClock(), SystemRandom()
    revision = msgspec.structs.replace(
        target_of(ClickHouseConfig(table="orders")).revision, source=KafkaConfig(topic="orders", start="latest")
    )
    sink = SimpleNamespace(written_beyond=lambda number, end: written if written > end else 0)
    opened = SimpleNamespace(sink=sink, revision=revision)
    store = MemoryStore(clock=clock, random=random, limits=StoreLimits())
    slot: Any = SimpleNamespace(
        owned={},
        run=SimpleNamespace(pipeline_id="p"),
        store=SimpleNamespace(partition=lambda number: PartitionState(id=number, owner="s", epoch=1)),
        revisions=SimpleNamespace(current=SimpleNamespace(generation=Generation(number=1), opened=opened, source=None)),
        retries=SimpleNamespace(clear=lambda number: None),
        resources=SimpleNamespace(store=store, clock=clock, random=random),
    )
    SlotTakeover(slot).own(0, 1, 0, TopicBounds((0,), (latest,)))
    return int(slot.owned[0].position)


def test_latest_of_a_restored_store_leaves_nothing_out() -> None:
    with pytest.raises(
        BlockedError, match="up to offset 20 of partition 0, the store knows none and would start at 25"
    ):
        own(written=20, latest=25)


@pytest.mark.parametrize("written", [0, 25])
def test_latest_is_where_the_sink_ends_or_the_sink_is_empty(written: int) -> None:
    assert own(written=written, latest=25) == 25
