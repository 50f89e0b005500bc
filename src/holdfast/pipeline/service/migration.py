"""The migration of a pipeline's ClickHouse tables: shown, then run. What it consists of is in `sinks.clickhouse.migrations`."""

from collections.abc import Callable

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.pipeline.catalog.store import PipelineStore
from holdfast.pipeline.model.definition import ClickHouseConfig, Pipeline
from holdfast.pipeline.model.errors import NotReadyError
from holdfast.pipeline.service.connections import ServerConnections
from holdfast.pipeline.service.responses import MigrationStatements
from holdfast.pipeline.sinks.clickhouse.migrations import pending_statements


class TableMigration:
    """Of the pipelines of one catalog."""

    def __init__(self, catalog: PipelineStore, connections: ServerConnections) -> None:
        self._catalog, self._connections = catalog, connections

    async def pending(self, pipeline_id: str) -> MigrationStatements:
        """The statements that would be run. Nothing is changed."""
        return await self._migrate(pipeline_id, lambda connection, statement: None, applied=False)

    async def apply(self, pipeline_id: str) -> MigrationStatements:
        """Run them. Repeating it is safe: each adds a column if it does not exist."""
        return await self._migrate(
            pipeline_id, lambda connection, statement: connection.command(statement), applied=True
        )

    async def _migrate(
        self, pipeline_id: str, run: Callable[[ClickHouseClient, str], None], *, applied: bool
    ) -> MigrationStatements:
        pipeline = await self._catalog.get(pipeline_id)
        sink = await self._sink(pipeline)
        if sink is None:
            return MigrationStatements(statements=(), applied=applied)
        shared_with = await self._shared_with(pipeline, sink)
        owner = "" if shared_with else pipeline.id

        def migrate(connection: ClickHouseClient) -> tuple[str, ...]:
            statements = pending_statements(connection, sink.database or "default", sink.table, owner)
            for statement in statements:
                run(connection, statement)
            return statements

        statements = await self._connections.clickhouse(sink, migrate)
        return MigrationStatements(
            statements=statements, shared_with=shared_with if statements else (), applied=applied
        )

    async def _shared_with(self, pipeline: Pipeline, sink: ClickHouseConfig) -> tuple[str, ...]:
        mine = self._connections.table_identity(sink)
        others = [each for each in await self._catalog.list() if each.id != pipeline.id and each.revision]
        return tuple([each.name for each in others if await self._writes(each, mine)])

    async def _writes(self, pipeline: Pipeline, table: object) -> bool:
        sink = await self._sink(pipeline)
        return sink is not None and self._connections.table_identity(sink) == table

    async def _sink(self, pipeline: Pipeline) -> ClickHouseConfig | None:
        """Its ClickHouse sink; None: it has another."""
        if not pipeline.revision:
            raise NotReadyError("migrating", pipeline.name, pipeline.problems)
        sink = (await self._catalog.revision(pipeline.id, pipeline.revision)).sink
        return sink if isinstance(sink, ClickHouseConfig) else None
