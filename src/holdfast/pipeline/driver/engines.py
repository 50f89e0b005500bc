"""Which engine runs a slot: as the catalog chose it for the newest revision. Another engine is another generation."""

from collections.abc import Callable

from holdfast.pipeline.driver.slot_context import DriverResources
from holdfast.pipeline.driver.slot_processor import SlotProcessor
from holdfast.pipeline.driver.slot_store import SlotStore
from holdfast.pipeline.driver.streaming.stream_processor import StreamProcessor
from holdfast.pipeline.model.driver_protocol import RunSlot
from holdfast.pipeline.model.errors import UnknownPipelineError
from holdfast.pipeline.model.query import FAST, STREAMING

Processor = SlotProcessor | StreamProcessor


def open_processor(run: RunSlot, resources: DriverResources, may_write: Callable[[], bool]) -> Processor:
    """The processor of a slot. A pipeline that is gone or without a revision gets the fast path's, which says so."""
    store = SlotStore(
        resources.store,
        clock=resources.clock,
        random=resources.random,
        pipeline_id=run.pipeline_id,
        generation=run.generation,
        consumer=run.slot,
        timeout_ms=resources.settings.store_timeout_ms,
        secrets=resources.secrets,
    )
    try:
        engine = store.pipeline().engine
    except UnknownPipelineError:
        engine = FAST
    if engine == STREAMING:
        return StreamProcessor(run, resources, may_write)
    return SlotProcessor(run, resources, may_write)
