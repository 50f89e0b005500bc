"""What is decided about replicated tables, and the statements that are sent for them, against a server that only writes down.

No ClickHouse that is run here can insert into a replicated table; the fence itself is tested on a real Keeper (test_keeper_fence).
"""

from dataclasses import replace

import pytest
from tests.support.recording_clickhouse import RecordingClickHouse
from tests.support.sink_values import fenced_range, rows_of, target_of

from holdfast.clickhouse.error_codes import ClickHouseErrorCode
from holdfast.clickhouse.errors import ClickHouseError
from holdfast.clickhouse.replicas import count_queries, kill_queries, quorum_settings
from holdfast.pipeline.mapping.table_diff import ExistingColumn, ExistingTable, compare_table
from holdfast.pipeline.model.definition import ClickHouseConfig
from holdfast.pipeline.sinks.clickhouse import fences, statements, tables
from holdfast.pipeline.sinks.clickhouse.fences import Fence
from holdfast.pipeline.sinks.clickhouse.inserts import FencedInsert, insert_now, insert_resolved
from holdfast.pipeline.sinks.contract import AT_LEAST_ONCE, EXACTLY_ONCE

CONFIG = ClickHouseConfig(dsn="http://h", database="shop", table="orders", engine="ReplicatedMergeTree", cluster="main")
TABLE = tables.table_of(target_of(CONFIG))
HAS = ExistingTable(
    "ReplicatedMergeTree",
    [ExistingColumn(name, str(kind)) for name, kind in TABLE.columns().items()],
    TABLE.order_by,
    10_000,
    window_s=604_800,
)


def checked(has: ExistingTable = HAS, *, unfenced: str = "") -> tables.TableCheck:
    return tables.check_table(compare_table(TABLE, has), TABLE, has, unfenced=unfenced, insert_timeout_ms=60_000)


def test_a_replicated_table_with_its_fence_in_keeper_is_exactly_once() -> None:
    assert checked() == tables.TableCheck(EXACTLY_ONCE, ())


def test_a_replicated_table_without_it_says_why_it_is_not() -> None:
    found = checked(unfenced="KeeperMap is disabled")
    assert found.guarantee == AT_LEAST_ONCE
    assert found.warnings[-1].endswith("a zombie may write beside its successor: KeeperMap is disabled")


def test_tokens_must_be_remembered_longer_than_an_insert_may_take() -> None:
    found = checked(replace(HAS, window_s=100))
    assert found.guarantee == AT_LEAST_ONCE
    assert "replicated_deduplication_window_seconds is 100, and an insert may take 60 s" in found.warnings[-1]
    assert checked(replace(HAS, window_s=120)).guarantee == EXACTLY_ONCE


def test_the_fence_is_created_on_every_server_of_the_cluster_once() -> None:
    server = RecordingClickHouse({"system.databases": [["Atomic"]]})
    assert fences.create_fence(server.client, TABLE, "ReplicatedMergeTree") == ""
    assert (
        "CREATE TABLE IF NOT EXISTS `shop`.`holdfast_fence_keeper` ON CLUSTER `main` (k String, epoch UInt64) "
        "ENGINE = KeeperMap('/holdfast/shop/fence') PRIMARY KEY k"
    ) in server.sent
    assert "SYSTEM SYNC REPLICA `shop`.`orders` LIGHTWEIGHT" in server.sent
    there = [["orders", "ReplicatedMergeTree"], ["holdfast_fence_keeper", "KeeperMap"]]
    again = RecordingClickHouse({"system.tables": there, "system.databases": [["Atomic"]]})
    assert fences.create_fence(again.client, TABLE, "ReplicatedMergeTree") == ""
    assert not any("KeeperMap(" in statement for statement in again.sent)


@pytest.mark.parametrize(
    ("code", "taken"),
    [
        (ClickHouseErrorCode.BAD_ARGUMENTS, True),
        (ClickHouseErrorCode.NO_ELEMENTS_IN_CONFIG, True),
        (ClickHouseErrorCode.ACCESS_DENIED, True),
        (ClickHouseErrorCode.KEEPER_EXCEPTION, False),
        (ClickHouseErrorCode.TIMEOUT_EXCEEDED, False),
    ],
)
def test_a_server_without_keepermap_is_a_reason_and_one_in_trouble_is_an_error(code: int, taken: bool) -> None:
    server = RecordingClickHouse(refuses={"KeeperMap": code})
    if taken:
        assert fences.create_fence(server.client, TABLE, "ReplicatedMergeTree") == "refused: KeeperMap"
        return
    with pytest.raises(ClickHouseError):
        fences.create_fence(server.client, TABLE, "ReplicatedMergeTree")


@pytest.mark.parametrize(
    ("cluster", "engine", "replicas", "reason"),
    [
        ("main", "Atomic", 3, ""),
        ("", "Replicated", 3, ""),
        ("", "Shared", 3, ""),
        ("", "Atomic", 1, ""),
        ("", "Atomic", 3, "it has 3 replicas and the sink names no cluster, so the fence is on one of them"),
    ],
)
def test_a_fence_that_some_replicas_do_not_have_is_none(cluster: str, engine: str, replicas: int, reason: str) -> None:
    server = RecordingClickHouse({"system.databases": [[engine]], "system.replicas": [[replicas]]})
    assert fences.create_fence(server.client, replace(TABLE, cluster=cluster), "ReplicatedMergeTree") == reason


def test_a_table_of_one_server_has_no_business_with_keeper() -> None:
    server = RecordingClickHouse()
    assert fences.create_fence(server.client, TABLE, "MergeTree") == ""
    assert server.sent == [statements.create_fence("shop")]


def insert_of(quorum: str, *, in_keeper: bool = True) -> FencedInsert:
    rows, _ = rows_of(target_of(CONFIG), fenced_range(0, 3))
    return FencedInsert(
        database="shop",
        table="orders",
        kinds=statements.kinds_of(TABLE, rows.schema.names),
        rows=rows,
        token="t",
        place="1",
        fence="k",
        epoch=7,
        query="q",
        timeout_ms=60_000,
        fence_in=Fence("shop", in_keeper=in_keeper),
        quorum=quorum,
    )


def test_an_insert_compares_the_number_in_keeper_and_waits_for_a_majority() -> None:
    server = RecordingClickHouse()
    insert_now(server.client, insert_of("auto"))
    assert "WHERE throwIf((SELECT max(epoch) FROM `shop`.`holdfast_fence_keeper` WHERE k = 'k') > 7" in server.sent[0]
    sent = server.settings[0]
    assert (sent["insert_quorum"], sent["insert_quorum_parallel"], sent["insert_quorum_timeout"]) == ("auto", 1, 60_000)
    assert sent["insert_deduplication_token"] == "t"


@pytest.mark.parametrize("quorum", ["", "0"])
def test_no_quorum_is_asked_for_where_none_is_wanted(quorum: str) -> None:
    assert quorum_settings(quorum, timeout_ms=1) == {}
    server = RecordingClickHouse()
    insert_now(server.client, insert_of(quorum, in_keeper=False))
    assert "`holdfast_fence`" in server.sent[0]
    assert "insert_quorum" not in server.settings[0]


def test_rows_of_another_replica_are_fetched_before_they_are_counted() -> None:
    server = RecordingClickHouse({"uniqExact": [[3, 3]]})
    assert insert_resolved(server.client, insert_of("auto")) == (3, 3)
    assert server.sent[0] == "SYSTEM SYNC REPLICA `shop`.`orders` LIGHTWEIGHT"
    assert not server.settings  # they are there: nothing is inserted


def test_a_user_who_may_not_sync_a_replica_goes_on_as_before() -> None:
    server = RecordingClickHouse({"uniqExact": [[3, 3]]}, {"SYNC REPLICA": ClickHouseErrorCode.ACCESS_DENIED})
    assert insert_resolved(server.client, insert_of("auto")) == (3, 3)
    late = RecordingClickHouse({"uniqExact": [[3, 3]]}, {"SYNC REPLICA": ClickHouseErrorCode.TIMEOUT_EXCEEDED})
    with pytest.raises(ClickHouseError):
        insert_resolved(late.client, insert_of("auto"))


def test_older_inserts_are_killed_and_counted_on_every_server() -> None:
    assert kill_queries("x", "") == "KILL QUERY WHERE x SYNC"
    assert kill_queries("x", "c").startswith("KILL QUERY ON CLUSTER `c` WHERE x SYNC SETTINGS ")
    assert count_queries("x", "") == "SELECT count() FROM system.processes WHERE x"
    assert count_queries("x", "c'").startswith(
        "SELECT count() FROM clusterAllReplicas('c\\'', system.processes) WHERE x SETTINGS "
    )


def test_dead_letters_of_a_replicated_table_are_replicated() -> None:
    text = statements.create_dlq(
        "shop", "orders", 100, replace(TABLE, replica_path="/t/orders", replica_name="{replica}")
    )
    assert text.startswith("CREATE TABLE IF NOT EXISTS `shop`.`orders_dlq` ON CLUSTER `main` (")
    assert "ENGINE = ReplicatedMergeTree('/t/orders_dlq', '{replica}') ORDER BY" in text
    assert text.endswith(
        "SETTINGS replicated_deduplication_window = 100, replicated_deduplication_window_seconds = 604800"
    )
    plain = statements.create_dlq("shop", "orders", 100)
    assert plain.endswith("SETTINGS non_replicated_deduplication_window = 100")
