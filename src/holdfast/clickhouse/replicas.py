"""Tables that several servers keep: how they are recognized, and what is asked of all of their servers.

The one rule: what holds for one replica holds for none of the others until they are asked. Text only, but for `unreached_by_fence`.
"""

# ruff: noqa: S608 (every name and text goes through `quoting`)

import re
from typing import Final

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.quoting import quote_identifier, quote_literal

REPLICATED: Final = re.compile(r"^(Replicated|Shared)(?=\w*MergeTree$)")
"""What an engine's name begins with."""


def on_cluster(cluster: str) -> str:
    """The clause, after the name of a table."""
    return f" ON CLUSTER {quote_identifier(cluster)}" if cluster else ""


def sync_replica(name: str) -> str:
    """Have a replica fetch what others have stored. `name` is quoted already."""
    return f"SYSTEM SYNC REPLICA {name} LIGHTWEIGHT"


def quorum_settings(quorum: str, *, timeout_ms: int) -> dict[str, str | int]:
    """An insert counts when so many replicas have it: with one alone, its rows are gone with its disk.

    Quorum inserts run side by side. One that times out is of unknown outcome, and is repeated under its token.
    """
    if quorum in ("", "0"):
        return {}
    return {"insert_quorum": quorum, "insert_quorum_parallel": 1, "insert_quorum_timeout": timeout_ms}


def kill_queries(condition: str, cluster: str) -> str:
    """Kill queries, on every server of the cluster; those that do not respond are not waited for."""
    if not cluster:
        return f"KILL QUERY WHERE {condition} SYNC"
    settings = "SETTINGS distributed_ddl_task_timeout = 15, distributed_ddl_output_mode = 'null_status_on_timeout'"
    return f"KILL QUERY{on_cluster(cluster)} WHERE {condition} SYNC {settings}"


def count_queries(condition: str, cluster: str) -> str:
    """The number of running queries, on every server of the cluster that responds."""
    source = f"clusterAllReplicas({quote_literal(cluster)}, system.processes)" if cluster else "system.processes"
    settings = " SETTINGS skip_unavailable_shards = 1" if cluster else ""
    return f"SELECT count() FROM {source} WHERE {condition}{settings}"


def unreached_by_fence(connection: ClickHouseClient, database: str, table: str, cluster: str) -> str:
    """Why a table that was created in Keeper is not on every replica of `table`; empty: it is."""
    place = quote_literal(database)
    shared = connection.rows(f"SELECT engine FROM system.databases WHERE name = {place}")
    if cluster or (shared and shared[0][0] in ("Replicated", "Shared")):
        return ""
    found = connection.rows(
        f"SELECT max(total_replicas) FROM system.replicas WHERE database = {place} AND table = {quote_literal(table)}"
    )
    replicas = int(found[0][0]) if found else 0
    return (
        f"it has {replicas} replicas and the sink names no cluster, so the fence is on one of them"
        if replicas > 1
        else ""
    )
