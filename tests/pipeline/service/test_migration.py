"""The migration of tables that an earlier release made: shown first, then run."""

import msgspec
import pytest
from tests.support.pipeline_service import PipelineServiceHarness

from holdfast.pipeline.model.definition import Pipeline

pytestmark = pytest.mark.xdist_group("pipeline-service")


async def of_before(world: PipelineServiceHarness) -> Pipeline:
    """A pipeline whose table has a row of the last release, and no column for the pipeline."""
    await world.topic()
    pipeline = await world.pipeline()
    await world.ask(
        f"CREATE TABLE default.{world.name} (id Int64, amount Nullable(Decimal(9, 2)), _generation UInt32, "
        "_topic LowCardinality(String), _partition UInt32, _offset UInt64) ENGINE = MergeTree ORDER BY id "
        "SETTINGS non_replicated_deduplication_window = 10000"
    )
    await world.ask(f"INSERT INTO default.{world.name} VALUES (7, 1, 1, '{world.name}', 0, 0)")
    return pipeline


async def neighbour(world: PipelineServiceHarness, dsn: str) -> None:
    other = await world.service.catalog.create(f"neighbour {world.name}")
    sink = {"table": world.name, "dsn": dsn}
    mapping = {"columns": [{"fieldPath": "id", "column": "id", "type": "Int64"}]}
    await world.service.catalog.put_parts(other.id, {"source": {"topic": world.name}, "sink": sink, "mapping": mapping})


async def test_the_statements_are_shown_before_they_are_run(world: PipelineServiceHarness) -> None:
    pipeline = await of_before(world)
    shown = await world.service.migration.pending(pipeline.id)
    added = "ADD COLUMN IF NOT EXISTS `_pipeline` LowCardinality(String)"
    assert shown.statements == (f"ALTER TABLE `default`.`{world.name}` {added} DEFAULT '{pipeline.id}'",)
    assert (shown.shared_with, shown.applied) == ((), False)
    diff = await world.service.inspection.diff(pipeline.id)
    assert (diff.missing, diff.statements) == (("_pipeline",), ())
    assert diff.blockers == (
        "_pipeline is missing: the table is of an earlier release, holdfast pipeline migrate adds it",
    )
    done = await world.service.migration.apply(pipeline.id)
    assert done == msgspec.structs.replace(shown, applied=True)
    assert await world.ask(f"SELECT _pipeline FROM default.{world.name}") == pipeline.id, "the row of before is its own"
    assert (await world.service.migration.pending(pipeline.id)).statements == ()
    assert (await world.service.inspection.diff(pipeline.id)).missing == ()


async def test_rows_of_a_table_with_two_writers_are_given_to_neither(world: PipelineServiceHarness) -> None:
    pipeline = await of_before(world)
    await neighbour(world, world.clickhouse.url.replace("http://", "HTTP://").rstrip("/") + "/default")
    shown = await world.service.migration.apply(pipeline.id)
    assert shown.shared_with == (f"neighbour {world.name}",)
    assert "DEFAULT" not in shown.statements[0]
    assert await world.ask(f"SELECT _pipeline FROM default.{world.name}") == ""
