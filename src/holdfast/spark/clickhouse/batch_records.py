"""The last batch of a generation, as the server or Keeper has it.

The one rule: a record says whose it is, and one of an older run never replaces that of a newer.
"""

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.keeper import compare_and_set
from holdfast.spark.clickhouse.batches import BatchRecord, Content, decode_plan
from holdfast.spark.clickhouse.errors import RunFencedError
from holdfast.spark.clickhouse.keeper_statements import KeeperScopeKey
from holdfast.spark.clickhouse.runs import Run
from holdfast.spark.clickhouse.statements import ScopeKey


def last_batch(client: ClickHouseClient, key: ScopeKey, generation: int) -> BatchRecord | None:
    """The last batch of a generation; None: it has none."""
    found = client.rows(key.last_batch(generation))
    if not found:
        return None
    batch, done, epoch, run, rows, hashed, plan = found[0]
    return BatchRecord(
        batch=int(batch),
        done=bool(done),
        epoch=int(epoch),
        run=run,
        content=Content(int(rows), int(hashed)),
        plan=decode_plan(plan),
    )


def record_batch(client: ClickHouseClient, key: ScopeKey, own: Run, record: BatchRecord) -> None:
    """Record a batch. A `ClickHouseError` of the fence, or `RunFencedError`: a newer run owns the scope."""
    if not isinstance(key, KeeperScopeKey):
        client.command(key.record_batch(own, record))
        return

    def attempt() -> bool | None:
        last = last_batch(client, key, own.generation)
        if last == record:
            return True
        if last is not None and last.epoch > own.epoch:
            raise RunFencedError(str(key), own.epoch, last.epoch)
        change = key.record_batch if last is None else key.record_next_batch
        client.command(change(own, record))
        return None

    compare_and_set(attempt, f"the record of batch {record.batch} of {key}")
