"""Whether a pipeline's source and sink are there and fit, looked at one thing after the other. Synchronous, for threads.

The one rule: a check that fails says why in words, and what cannot be looked at after it is skipped and says so. Nothing changes.
"""

import re
from collections.abc import Callable
from typing import Final

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.errors import ClickHouseError, ClickHouseUnreachableError
from holdfast.clickhouse.quoting import quote_literal
from holdfast.clickhouse.types import parse_type
from holdfast.client.topic_reader import TopicReader
from holdfast.pipeline.mapping.ddl import DEDUP_WINDOW_SETTING, TableSpec
from holdfast.pipeline.mapping.table_diff import ExistingTable, TableDifferences, compare_table
from holdfast.pipeline.model.column_mapping import Mapping, make_column
from holdfast.pipeline.model.definition import EARLIEST, LATEST, ClickHouseConfig, KafkaConfig
from holdfast.pipeline.model.timestamps import parse_iso_ns
from holdfast.pipeline.service.responses import TableColumn, TableSchema, Validation, ValidationCheck
from holdfast.pipeline.sinks.clickhouse.tables import describe_table
from holdfast.vocabulary.errors import HoldfastError, InvalidError

NEEDED_GRANTS: Final = ("SELECT", "INSERT", "CREATE TABLE")
NAMES_MAX: Final = 10_000

_PRIVILEGE: Final = re.compile(r"^GRANT (.+?) ON ")


class _Checks:
    """Checks as they are made. Behind one that failed the rest is skipped."""

    def __init__(self) -> None:
        self.made: list[ValidationCheck] = []

    @property
    def ok(self) -> bool:
        return all(check.outcome != "failed" for check in self.made)

    def make(self, name: str, look_at: Callable[[], str]) -> bool:
        """Make one; its words are the details. False: it failed or was skipped."""
        if not self.ok:
            self.made.append(ValidationCheck(name=name, outcome="skipped", detail="an earlier check failed"))
            return False
        try:
            self.made.append(ValidationCheck(name=name, outcome="ok", detail=look_at()))
        except HoldfastError as error:
            self.made.append(ValidationCheck(name=name, outcome="failed", detail=str(error)))
        return self.ok

    def warn(self, name: str, detail: str) -> None:
        """What is no obstacle, but should be known."""
        self.made.append(ValidationCheck(name=name, outcome="warning", detail=detail))

    def fail(self, name: str, detail: str) -> None:
        """What is in the way."""
        self.made.append(ValidationCheck(name=name, outcome="failed", detail=detail))

    def done(self) -> Validation:
        return Validation(ok=self.ok, checks=tuple(self.made))


def validate_source(config: KafkaConfig, topic: TopicReader) -> Validation:
    """Connect, find the topic, see what is in it."""
    checks = _Checks()
    checks.make("topic", lambda: f"{config.topic} has {_count(len(topic.partitions()), 'partition')}")

    def offsets() -> str:
        bounds = topic.bounds()
        held = sum(bound.end - bound.start for bound in bounds.values())
        return f"{_count(held, 'offset')} in {_count(len(bounds), 'partition')}"

    checks.make("offsets", offsets)
    if config.start not in (EARLIEST, LATEST):
        checks.make("start", lambda: _start(config, topic))
    return checks.done()


def _start(config: KafkaConfig, topic: TopicReader) -> str:
    ns = parse_iso_ns(config.start)
    if ns is None:
        raise InvalidError("source.start", config.start, "earliest, latest or an ISO 8601 time")
    offsets = topic.offsets_at(ns // 1_000_000)
    return ", ".join(f"{number}: {offset}" for number, offset in sorted(offsets.items())[:20])


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def validate_clickhouse(config: ClickHouseConfig, connection: ClickHouseClient) -> Validation:
    """Connect, ask for the version, find the database, see what the user may do."""
    checks = _Checks()
    checks.make("connection", lambda: f"ClickHouse {connection.value('SELECT version()')} at {connection.address}")
    checks.make("database", lambda: _database(connection, config.database or "default"))
    if checks.ok:
        _privileges(checks, connection)
    return checks.done()


def _database(connection: ClickHouseClient, name: str) -> str:
    if name not in databases(connection):
        raise InvalidError("sink.database", name, "a database that exists; databases are not created")
    return name


def _privileges(checks: _Checks, connection: ClickHouseClient) -> None:
    """As far as the server tells: roles and embedded servers do not always."""
    try:
        grants = [str(row[0]) for row in connection.rows("SHOW GRANTS")]
    except (ClickHouseError, ClickHouseUnreachableError) as error:
        checks.made.append(
            ValidationCheck(name="privileges", outcome="skipped", detail=f"the server does not tell: {error}")
        )
        return
    granted = {name.strip() for grant in grants if (found := _PRIVILEGE.match(grant)) for name in _names(found[1])}
    wanting = [name for name in NEEDED_GRANTS if not _covers(granted, name)]
    if not granted:
        checks.made.append(ValidationCheck(name="privileges", outcome="skipped", detail="the server lists no grants"))
    elif wanting:
        checks.warn("privileges", f"not seen among the user's grants: {', '.join(wanting)}")
    else:
        checks.made.append(ValidationCheck(name="privileges", outcome="ok", detail=", ".join(NEEDED_GRANTS)))


def _names(grant: str) -> list[str]:
    return re.sub(r"\([^)]*\)", "", grant).split(",")


def _covers(granted: set[str], name: str) -> bool:
    family = name.partition(" ")[0]
    return bool({name, "ALL", family} & granted) or any(each.startswith("CURRENT GRANTS") for each in granted)


def validate_table(config: ClickHouseConfig, table: TableSpec | None, connection: ClickHouseClient) -> Validation:
    """The table the sink names, against the one the mapping needs. `table` is None while there is no mapping."""
    checks = _Checks()
    name = config.table
    checks.make("connection", lambda: f"ClickHouse at {connection.address}, {connection.value('SELECT version()')}")
    if not checks.make("name", lambda: _table_name(config)):
        return checks.done()
    checks.make("database", lambda: _database(connection, config.database or "default"))
    if not checks.ok:
        return checks.done()
    found = has_table(connection, config.database or "default", name)
    if found is None:
        if not config.create_table_if_missing:
            checks.fail("table", f"{name} does not exist, and createTableIfMissing is off")
        else:
            checks.warn("table", f"{name} does not exist: it is created when the pipeline starts")
        return checks.done()
    checks.make("engine", lambda: found.engine)
    _judge(checks, table, found)
    return checks.done()


def _table_name(config: ClickHouseConfig) -> str:
    if not config.table:
        raise InvalidError("sink.table", "", "the name of a table")
    return config.table


def _judge(checks: _Checks, table: TableSpec | None, has: ExistingTable) -> None:
    if table is None:
        checks.warn("columns", "there is no mapping to compare them with yet, or sql makes the columns")
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


def _window(checks: _Checks, table: TableSpec, has: ExistingTable) -> None:
    replicated = has.engine.startswith(("Replicated", "Shared"))
    if replicated:
        return
    if has.window == 0:
        checks.fail("dedup window", f"{DEDUP_WINDOW_SETTING} is 0: a repeated insert would be stored twice")
    elif has.window < table.window:
        checks.warn("dedup window", f"the table remembers {has.window} inserts, {table.window} are configured")
    else:
        checks.made.append(ValidationCheck(name="dedup window", outcome="ok", detail=f"{has.window} inserts"))


def has_table(connection: ClickHouseClient, database: str, table: str) -> ExistingTable | None:
    """A table as it is; None: it is not there."""
    any_mapping = Mapping((make_column("x", "x", parse_type("String")),))  # only the names are looked at
    return describe_table(connection, TableSpec(database=database, name=table, mapping=any_mapping, order_by=("x",)))


def compare(connection: ClickHouseClient, table: TableSpec) -> TableDifferences | None:
    """What is between a table that should be and the one that is; None: there is none."""
    has = describe_table(connection, table)
    return None if has is None else compare_table(table, has)


# --- listings


def databases(connection: ClickHouseClient) -> list[str]:
    """All databases a user may have tables in."""
    return [str(row[0]) for row in connection.rows("SELECT name FROM system.databases ORDER BY name")[:NAMES_MAX]]


def tables(connection: ClickHouseClient, database: str) -> list[str]:
    """All tables of a database."""
    query = f"SELECT name FROM system.tables WHERE database = {quote_literal(database)} ORDER BY name"  # noqa: S608 - quoted
    return [str(row[0]) for row in connection.rows(query)[:NAMES_MAX]]


def schema(connection: ClickHouseClient, database: str, table: str) -> TableSchema:
    """A table's columns. `InvalidError`: there is no such table."""
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
