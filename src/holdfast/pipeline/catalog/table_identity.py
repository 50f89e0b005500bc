"""Which table a sink writes, whatever its URL looks like: to tell another table from another password."""

from holdfast.clickhouse.client import database_of_dsn, parse_dsn, port_of
from holdfast.pipeline.model.definition import ClickHouseConfig, SinkConfig
from holdfast.pipeline.model.secret_references import masked


def table_identity(config: ClickHouseConfig, *, embedded: str) -> tuple[str, int, str, str]:
    """Server, database and table: equal for two configurations of one table, however their URLs are written."""
    parts = parse_dsn(config.dsn or embedded)
    return (parts.hostname or "").lower(), port_of(parts), database_of_config(config, embedded), config.table


def database_of_config(config: ClickHouseConfig, embedded: str) -> str:
    """The database of a sink: as configured, else from its DSN, else `default`."""
    dsn = config.dsn or embedded
    return config.database or (database_of_dsn(dsn) if dsn else "") or "default"


def table_label(sink: SinkConfig) -> str:
    """The table as text, without secrets; of a sink that is not ClickHouse its kind."""
    if not isinstance(sink, ClickHouseConfig):
        return str(sink.__struct_config__.tag)
    if not sink.dsn:
        return f"{sink.database or 'default'}.{sink.table}"
    shown = ClickHouseConfig(dsn=masked(sink.dsn)[0], database=sink.database, table=sink.table)
    host, port, database, table = table_identity(shown, embedded="")
    return f"{host}:{port}/{database}.{table}"
