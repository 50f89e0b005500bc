"""Validation of a pipeline's source, sink and table, check by check. Synchronous, for threads.

The one rule: a check that fails has a reason, and checks that depend on it are skipped. Nothing is changed.
"""

import re
from collections.abc import Callable
from typing import Final

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.errors import ClickHouseError, ClickHouseUnreachableError
from holdfast.clickhouse.quoting import quote_literal
from holdfast.clickhouse.replicas import REPLICATED
from holdfast.clickhouse.types import parse_type
from holdfast.client.topic_reader import TopicReader
from holdfast.log.topics import UnknownTopicError
from holdfast.pipeline.catalog.source_topic import unknown_topic
from holdfast.pipeline.formats.decoders import value_decoder
from holdfast.pipeline.formats.schema_registry import registry_client
from holdfast.pipeline.mapping.ddl import DEDUP_WINDOW_SETTING, TableSpec
from holdfast.pipeline.mapping.table_diff import ExistingTable, TableDifferences, compare_table
from holdfast.pipeline.model.column_mapping import Mapping, make_column
from holdfast.pipeline.model.definition import EARLIEST, LATEST, ClickHouseConfig, KafkaConfig
from holdfast.pipeline.model.timestamps import parse_iso_ns
from holdfast.pipeline.service.responses import TableColumn, TableSchema, Validation, ValidationCheck
from holdfast.pipeline.sinks.clickhouse.existing_tables import describe_table
from holdfast.pipeline.sinks.clickhouse.expressions import normalized
from holdfast.vocabulary.errors import HoldfastError, InvalidError

NEEDED_GRANTS: Final = ("SELECT", "INSERT", "CREATE TABLE")
NAMES_MAX: Final = 10_000

_PRIVILEGE: Final = re.compile(r"^GRANT (.+?) ON ")


class Checks:
    """Checks in their order. After one that failed the rest is skipped."""

    def __init__(self) -> None:
        self.made: list[ValidationCheck] = []

    @property
    def ok(self) -> bool:
        return all(check.outcome != "failed" for check in self.made)

    def run(self, name: str, check: Callable[[], str]) -> bool:
        """Run a check, which returns its detail. False: it failed or was skipped."""
        if not self.ok:
            self.made.append(ValidationCheck(name=name, outcome="skipped", detail="an earlier check failed"))
            return False
        try:
            self.made.append(ValidationCheck(name=name, outcome="ok", detail=check()))
        except HoldfastError as error:
            self.made.append(ValidationCheck(name=name, outcome="failed", detail=str(error)))
        return self.ok

    def warn(self, name: str, detail: str) -> None:
        """Add a warning."""
        self.made.append(ValidationCheck(name=name, outcome="warning", detail=detail))

    def fail(self, name: str, detail: str) -> None:
        """Add a failure."""
        self.made.append(ValidationCheck(name=name, outcome="failed", detail=detail))

    def done(self) -> Validation:
        return Validation(ok=self.ok, checks=tuple(self.made))


def validate_source(config: KafkaConfig, topic: TopicReader) -> Validation:
    """Connect, find the topic, read its offsets."""
    checks = Checks()

    def partitions() -> str:
        try:
            return f"{config.topic} has {_count(len(topic.partitions()), 'partition')}"
        except UnknownTopicError:
            raise unknown_topic(config) from None

    checks.run("topic", partitions)

    def offsets() -> str:
        bounds = topic.bounds()
        held = sum(bound.end - bound.start for bound in bounds.values())
        return f"{_count(held, 'offset')} in {_count(len(bounds), 'partition')}"

    checks.run("offsets", offsets)
    if config.start not in (EARLIEST, LATEST):
        checks.run("start", lambda: _start(config, topic))
    if config.schema_registry.url:
        checks.run("schema registry", lambda: registry_client(config.schema_registry).check())
    elif config.schema:
        checks.run("schema", lambda: _schema(config))
    return checks.done()


def _schema(config: KafkaConfig) -> str:
    value_decoder(config)
    return config.message or config.format


def _start(config: KafkaConfig, topic: TopicReader) -> str:
    ns = parse_iso_ns(config.start)
    if ns is None:
        raise InvalidError("source.start", config.start, "earliest, latest or an ISO 8601 time")
    offsets = topic.offsets_at(ns // 1_000_000)
    return ", ".join(f"{number}: {offset}" for number, offset in sorted(offsets.items())[:20])


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def validate_clickhouse(config: ClickHouseConfig, connection: ClickHouseClient) -> Validation:
    """Connect, read the version, find the database, check the user's grants."""
    checks = Checks()
    checks.run("connection", lambda: f"ClickHouse {connection.value('SELECT version()')} at {connection.address}")
    checks.run("database", lambda: _database(connection, config.database or "default"))
    if checks.ok:
        _privileges(checks, connection)
    return checks.done()


def _database(connection: ClickHouseClient, name: str) -> str:
    if name not in databases(connection):
        raise InvalidError("sink.database", name, "a database that exists; databases are not created")
    return name


def _privileges(checks: Checks, connection: ClickHouseClient) -> None:
    """Check grants, as far as the server lists them: with roles, and embedded, it may not."""
    try:
        grants = [str(row[0]) for row in connection.rows("SHOW GRANTS")]
    except (ClickHouseError, ClickHouseUnreachableError) as error:
        checks.made.append(ValidationCheck(name="privileges", outcome="skipped", detail=f"SHOW GRANTS failed: {error}"))
        return
    granted = {name.strip() for grant in grants if (found := _PRIVILEGE.match(grant)) for name in _names(found[1])}
    missing = [name for name in NEEDED_GRANTS if not _covers(granted, name)]
    if not granted:
        checks.made.append(ValidationCheck(name="privileges", outcome="skipped", detail="the server lists no grants"))
    elif missing:
        checks.warn("privileges", f"not among the user's grants: {', '.join(missing)}")
    else:
        checks.made.append(ValidationCheck(name="privileges", outcome="ok", detail=", ".join(NEEDED_GRANTS)))


def _names(grant: str) -> list[str]:
    return re.sub(r"\([^)]*\)", "", grant).split(",")


def _covers(granted: set[str], name: str) -> bool:
    family = name.partition(" ")[0]
    return bool({name, "ALL", family} & granted) or any(each.startswith("CURRENT GRANTS") for each in granted)


def validate_table(config: ClickHouseConfig, table: TableSpec | None, connection: ClickHouseClient) -> Validation:
    """Compare the existing table with the one the mapping needs. `table` is None while there is no mapping."""
    checks = Checks()
    name = config.table
    checks.run("connection", lambda: f"ClickHouse at {connection.address}, {connection.value('SELECT version()')}")
    if not checks.run("name", lambda: _table_name(config)):
        return checks.done()
    checks.run("database", lambda: _database(connection, config.database or "default"))
    if not checks.ok:
        return checks.done()
    if table is not None:
        given = table
        if not checks.run("expressions", lambda: _expressions(normalized(connection, given))):
            return checks.done()
        table = normalized(connection, table)
    found = has_table(connection, config.database or "default", name)
    if found is None:
        if not config.create_table_if_missing:
            checks.fail("table", f"{name} does not exist, and createTableIfMissing is off")
        else:
            checks.warn("table", f"{name} does not exist: it is created when the pipeline starts")
        return checks.done()
    checks.run("engine", lambda: found.engine)
    _check_columns(checks, table, found)
    return checks.done()


def _expressions(table: TableSpec) -> str:
    given = (("ORDER BY", ", ".join(table.order_by)), ("PARTITION BY", table.partition_by), ("TTL", table.ttl))
    return ", ".join(f"{clause} {text}" for clause, text in given if text)


def _table_name(config: ClickHouseConfig) -> str:
    if not config.table:
        raise InvalidError("sink.table", "", "a table name")
    return config.table


def _check_columns(checks: Checks, table: TableSpec | None, has: ExistingTable) -> None:
    if table is None:
        checks.warn("columns", "not compared: there is no mapping yet, or sql defines the columns")
        return
    found = compare_table(table, has)
    _window(checks, table, has)
    for column in found.missing:
        checks.fail("columns", f"{column} is missing")
    for each in found.differs:
        if each.fits:
            checks.warn("columns", f"{each.column} is {each.has}, the mapping says {each.wants}: every value fits")
        else:
            reason = each.why or "it can be widened"
            checks.fail("columns", f"{each.column} is {each.has}, the mapping says {each.wants}: {reason}")
    for blocker in found.blockers:
        if not any(blocker.startswith(each.column) for each in found.differs):
            checks.fail("table", blocker)
    for warning in found.warnings:
        checks.warn("table", warning)
    if found.statements:
        checks.warn("help", "; ".join(found.statements))
    if not found.missing and not found.differs:
        checks.made.append(ValidationCheck(name="columns", outcome="ok", detail=f"all {len(table.columns())} fit"))


def _window(checks: Checks, table: TableSpec, has: ExistingTable) -> None:
    if REPLICATED.match(has.engine):
        return
    if has.window == 0:
        checks.fail("dedup window", f"{DEDUP_WINDOW_SETTING} is 0: a repeated insert would be stored twice")
    elif has.window < table.window:
        checks.warn("dedup window", f"the table remembers {has.window} inserts, {table.window} are configured")
    else:
        checks.made.append(ValidationCheck(name="dedup window", outcome="ok", detail=f"{has.window} inserts"))


def has_table(connection: ClickHouseClient, database: str, table: str) -> ExistingTable | None:
    """An existing table; None: it does not exist."""
    any_mapping = Mapping((make_column("x", "x", parse_type("String")),))  # only the names matter
    return describe_table(connection, TableSpec(database=database, name=table, mapping=any_mapping, order_by=("x",)))


def compare(connection: ClickHouseClient, table: TableSpec) -> TableDifferences | None:
    """The differences between a table as needed and as it exists; None: it does not exist."""
    has = describe_table(connection, table)
    return None if has is None else compare_table(normalized(connection, table), has)


# --- listings


def databases(connection: ClickHouseClient) -> list[str]:
    """All databases."""
    return [str(row[0]) for row in connection.rows("SELECT name FROM system.databases ORDER BY name")[:NAMES_MAX]]


def tables(connection: ClickHouseClient, database: str) -> list[str]:
    """All tables of a database."""
    query = f"SELECT name FROM system.tables WHERE database = {quote_literal(database)} ORDER BY name"  # noqa: S608 - quoted
    return [str(row[0]) for row in connection.rows(query)[:NAMES_MAX]]


def schema(connection: ClickHouseClient, database: str, table: str) -> TableSchema:
    """A table's columns. `InvalidError`: it does not exist."""
    found = has_table(connection, database, table)
    if found is None:
        raise InvalidError("table", f"{database}.{table}", "a table that exists")
    return TableSchema(
        database=database,
        table=table,
        engine=found.engine,
        order_by=tuple(found.sorting_key),
        dedup_window=found.window,
        columns=tuple(
            TableColumn(name=column.name, type=column.type, default_kind=column.default_kind)
            for column in found.columns
        ),
    )
