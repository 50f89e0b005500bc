"""The intent of a range: what the next owner reads, also if an earlier release wrote it."""

import pytest

from holdfast.pipeline.driver.slot_store import intent_of
from holdfast.registry import PartitionState
from holdfast.vocabulary.errors import CorruptError


def state(intent: str) -> PartitionState:
    return PartitionState(id=4, owner="ann", epoch=3, intent=intent)


def test_an_intent_of_the_last_release_is_read_and_names_no_pipeline() -> None:
    found = intent_of(
        state('{"start":5,"end":9,"recipe":2,"rows":null,"topic":"orders"}'), pipeline_id="p1", generation=1
    )
    assert found is not None
    assert (found.start, found.end, found.revision, found.topic) == (5, 9, 2, "orders")
    assert (found.pipeline, found.topic_id) == ("", "")


def test_an_intent_of_another_pipeline_or_generation_is_refused() -> None:
    mine = '{"start":5,"end":9,"recipe":2,"pipeline":"p1","generation":1,"topicId":"t9"}'
    found = intent_of(state(mine), pipeline_id="p1", generation=1)
    assert found is not None
    assert found.topic_id == "t9"
    for pipeline_id, generation in (("p2", 1), ("p1", 2)):
        with pytest.raises(CorruptError, match="it is of generation 1 of pipeline p1"):
            intent_of(state(mine), pipeline_id=pipeline_id, generation=generation)
