"""The fence of a query, raised where its rows go.

The one rule: every owner writes the record before it raises the fence. So where the fence is newer than the record, the record is
not the one that its writers had: the store was restored from a backup. Numbers of batches would come a second time.
"""

from holdfast.pipeline.driver.streaming.stream_store import StreamStore
from holdfast.pipeline.sinks.clickhouse.stream_sink import RESTORED, RETIRED_EPOCH, ClickHouseStreamSink
from holdfast.pipeline.sinks.contract import BlockedError
from holdfast.vocabulary.errors import FencedError


def raise_fence(sink: ClickHouseStreamSink, store: StreamStore) -> int:
    """The fence number of the record's epoch. `FencedError`: a newer owner has the record. `BlockedError`: nobody may have it."""
    try:
        number = sink.fence(0, store.record.epoch)
    except FencedError as error:
        known = store.claim()  # raises if the one who fenced us has the record
        seen = "a later generation" if error.current >= RETIRED_EPOCH else f"epoch {error.current} of this generation"
        raise BlockedError(
            f"ClickHouse has seen {seen}, the store knows epochs up to {known.epoch}: {RESTORED}"
        ) from None
    sink.check_history(store.record.begun_batch)
    return number
