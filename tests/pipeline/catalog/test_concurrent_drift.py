"""Two slots that find new fields at once, and a person who edits meanwhile: nobody's columns are lost."""

from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from holdfast.client.loop_thread import loop_thread
from holdfast.contracts.store import Store
from holdfast.pipeline.catalog.store import PipelineStore
from holdfast.pipeline.driver.slot_store import SlotStore
from holdfast.pipeline.model.column_mapping import Column, Mapping, mapping_json, read_mapping
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

FIRST = {"columns": [{"fieldPath": "id", "column": "id", "type": "Int64", "nullable": False}]}


@pytest.fixture
def store() -> Iterator[Store]:
    """A store on the driver's own loop."""
    stack = AsyncExitStack()
    opening = stack.enter_async_context(open_store("memory:", clock=RealClock(), random=SystemRandom()))
    yield loop_thread().submit(opening).result(10)
    loop_thread().submit(stack.aclose()).result(10)


def test_of_two_slots_that_add_columns_at_once_the_second_finds_the_first_ones(store: Store) -> None:
    catalog = PipelineStore(store, clock=RealClock(), random=SystemRandom())
    made = loop_thread().submit(catalog.create("orders")).result(10)
    parts: dict[str, dict[str, Any]] = {"source": {"topic": "t"}, "sink": {"table": "t"}, "mapping": FIRST}
    loop_thread().submit(catalog.put_parts(made.id, parts)).result(10)
    seen = read_mapping(FIRST)

    def ledger() -> SlotStore:
        return SlotStore(
            store,
            clock=RealClock(),
            random=SystemRandom(),
            pipeline_id=made.id,
            generation=1,
            consumer="c",
            timeout_ms=5_000,
        )

    def with_column(name: str) -> dict[str, object]:
        return mapping_json(Mapping((*seen.columns, Column(name, name, "Int64", True)), seen.version + 1))

    assert ledger().save_mapping(with_column("x")).revision == 2
    after = ledger().save_mapping(with_column("y"))
    assert after.revision == 2, "the first one's stay"
    revision = loop_thread().submit(catalog.revision(made.id, after.revision)).result(10)
    assert [column.column for column in revision.mapping.columns] == ["id", "x"]
