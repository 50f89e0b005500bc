"""Tables that a release made whose provenance did not name the pipeline, and the statements that add it. Nothing is run here.

The one rule: nobody's rows become another's. Rows that have no pipeline belong to the only pipeline that writes the table: the
column's default gives them to it, without rewriting a part. If several pipelines write the table, they stay without one, and a
range that was begun before the migration is blocked if it may be among them (`inserts`).
"""

# ruff: noqa: S608 (every name and text goes through `quoting`)

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.quoting import qualified_name, quote_identifier, quote_literal
from holdfast.pipeline.model.column_mapping import PROVENANCE
from holdfast.pipeline.sinks.clickhouse.statements import DLQ_SUFFIX, REPLAYED_SUFFIX
from holdfast.pipeline.sinks.provenance import PIPELINE_COLUMN


def unmigrated_tables(connection: ClickHouseClient, database: str, table: str) -> tuple[str, ...]:
    """Of a pipeline's table, its DLQ and the marks: those with provenance, but without the pipeline in it."""
    names = [table, table + DLQ_SUFFIX, table + REPLAYED_SUFFIX]
    listed = ", ".join(map(quote_literal, names))
    found = connection.rows(
        f"SELECT table FROM system.columns WHERE database = {quote_literal(database)} AND table IN ({listed}) "
        f"GROUP BY table HAVING has(groupArray(name), '_generation') AND NOT has(groupArray(name), '{PIPELINE_COLUMN}')"
    )
    lacking = {str(row[0]) for row in found}
    return tuple(name for name in names if name in lacking)


def add_pipeline_column(database: str, table: str, owner: str) -> str:
    """The statement that adds the column. `owner`: the pipeline that the rows of before belong to; empty: unknown."""
    kind = PROVENANCE[PIPELINE_COLUMN]
    default = f" DEFAULT {quote_literal(owner)}" if owner else ""
    column = f"{quote_identifier(PIPELINE_COLUMN)} {kind}{default}"
    return f"ALTER TABLE {qualified_name(database, table)} ADD COLUMN IF NOT EXISTS {column}"


def pending_statements(connection: ClickHouseClient, database: str, table: str, owner: str) -> tuple[str, ...]:
    """The statements that a pipeline's tables need; none: they are up to date."""
    return tuple(add_pipeline_column(database, name, owner) for name in unmigrated_tables(connection, database, table))


def unmigrated_reason(pipeline_id: str, names: tuple[str, ...]) -> str:
    """Why a pipeline with such tables cannot go on, and what to do."""
    return (
        f"{', '.join(names)}: made by a release without the column {PIPELINE_COLUMN}, by which a pipeline finds its own rows; "
        f"holdfast pipeline migrate {pipeline_id} shows the statements that add it, and runs them with --yes"
    )
