"""The topic of a generation: checkpoints of one topic id are not taken for offsets of a topic without any."""

import pytest

from holdfast.contracts.validation import StoreLimits
from holdfast.pipeline.driver.slot_store import SlotStore
from holdfast.pipeline.driver.source_topic import GenerationTopic
from holdfast.pipeline.driver.sources import TopicBounds
from holdfast.pipeline.model.definition import Generation
from holdfast.pipeline.sinks.contract import BlockedError
from holdfast.stores.memory import MemoryStore
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

CLOCK, CHANCE = RealClock(), SystemRandom()
LIVE = Generation(number=1)


def slot_store() -> SlotStore:
    store = MemoryStore(clock=CLOCK, random=CHANCE, limits=StoreLimits())
    return SlotStore(
        store, clock=CLOCK, random=CHANCE, pipeline_id="p", generation=1, consumer="ann", timeout_ms=10_000
    )


def test_a_topic_that_has_no_id_any_more_blocks_the_slot() -> None:
    store = slot_store()
    GenerationTopic(store).check(LIVE, "orders", TopicBounds((0,), (9,), "t1"))
    moved = GenerationTopic(store)
    with pytest.raises(BlockedError, match="topic 'orders' has no id any more"):
        moved.check(LIVE, "orders", TopicBounds((0,), (9,)))
    moved.check(LIVE, "orders", TopicBounds((0,), (9,), "t1"))


def test_a_topic_that_never_had_an_id_is_read() -> None:
    topic = GenerationTopic(slot_store())
    for _ in range(2):
        topic.check(LIVE, "orders", TopicBounds((0,), (9,)))
    assert topic.id == ""
