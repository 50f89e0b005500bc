"""The status that workers publish in the store: one record per worker, one per slot and generation it runs.

    workers/{id}                                      WorkerRecord, under the worker's session
    pipeline-status/{pipeline}/{generation}/{slot}    SlotStatus, under the same session, fenced by the slot's lease
    lease/holder/slot/{pipeline}/{n}                  the holder of a slot (see `kernel.lease`)

The one rule: all of it expires with the worker's session, so what is read here was published at most a TTL ago.
"""

from typing import Final, Literal

import msgspec

from holdfast.contracts.store import Entry, Store
from holdfast.contracts.validation import prefix_end
from holdfast.kernel.keys import HOLDERS
from holdfast.kernel.lease import read_holder
from holdfast.pipeline.catalog.keys import STATUS, status_prefix
from holdfast.pipeline.model.definition import slot_resource
from holdfast.pipeline.model.driver_protocol import PartitionProgress, StreamProgress
from holdfast.vocabulary.errors import CorruptError

WORKERS: Final = "workers/"
SLOTS: Final = "slot/"

Mode = Literal["leases", "no-leases"]
DriverState = Literal["none", "starting", "ready", "restarting"]
SlotState = Literal["starting", "running", "blocked", "halting", "failed", "finished"]


class _StatusRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Ignores fields of a newer release."""


class WorkerRecord(_StatusRecord, frozen=True):
    """A live worker. `able`: it takes slots; otherwise `trouble` has the reason."""

    id: str
    host: str
    pid: int
    version: str
    mode: Mode
    session: str
    started_at_ms: int
    slots_per_pipeline_max: int
    able: bool = True
    trouble: str = ""
    lease_until_ms: int | None = None
    """Wall clock; when its leases expire unless it renews them. None without leases."""
    slots: tuple[str, ...] = ()
    """The resources it holds, `slot/{pipeline}/{n}`."""
    driver: DriverState = "none"
    spark_version: str = ""
    spark_ui_url: str = ""


class SlotStatus(_StatusRecord, frozen=True):
    """One slot of one generation, as its worker published it last. Counts are since `since_ms`."""

    pipeline_id: str
    generation: int
    slot: str
    """Its number; without leases `~{worker id}`."""
    worker_id: str
    epoch: int = 0
    """Of the slot's lease; 0 without leases."""
    state: SlotState = "starting"
    reason: str = ""
    """Why it is blocked or failed."""
    lasting: bool = False
    """Failed permanently: not retried before the pipeline is edited."""
    attempts: int = 0
    """Failures in a row."""
    since_ms: int = 0
    updated_at_ms: int = 0
    rows: int = 0
    batches: int = 0
    filtered: int = 0
    dlq_rows: int = 0
    bytes_objects: int = 0
    bytes_agents: int = 0
    partitions: dict[str, PartitionProgress] = {}
    epochs: dict[str, int] = {}
    """The partitions it owns, each with the epoch of its claim."""
    warnings: tuple[str, ...] = ()
    stream: StreamProgress | None = None
    """Of a slot that runs a streaming query."""


class SlotAssignment(_StatusRecord, frozen=True):
    """The holder of a slot, and when its lease expires (wall clock of the holder)."""

    slot: int
    worker_id: str
    epoch: int
    lease_until_ms: int | None = None


def worker_key(worker_id: str) -> str:
    """A worker."""
    return WORKERS + worker_id


def status_key(pipeline_id: str, generation: int, slot: str) -> str:
    """The status of a slot in one generation."""
    return f"{status_prefix(pipeline_id)}{generation}/{slot}"


def run_name(pipeline_id: str, generation: int, slot: str) -> str:
    """The name of a slot in one generation: for the driver, and as consumer in the generation's registry."""
    return f"{pipeline_id}.{generation}.{slot}"


def slot_of_resource(resource: str) -> tuple[str, int]:
    """The pipeline and the number in the name of a slot's lease."""
    pipeline_id, _, number = resource.removeprefix(SLOTS).rpartition("/")
    if not pipeline_id or not number.isdecimal():
        raise CorruptError(f"lease {resource}", "not slot/{pipeline}/{number}")
    return pipeline_id, int(number)


def read_worker(entry: Entry) -> WorkerRecord:
    """Decode a worker."""
    try:
        return msgspec.json.decode(entry.value, type=WorkerRecord)
    except msgspec.MsgspecError as error:
        raise CorruptError(entry.key, str(error)) from None


def read_status(entry: Entry) -> SlotStatus:
    """Decode the status of a slot."""
    try:
        return msgspec.json.decode(entry.value, type=SlotStatus)
    except msgspec.MsgspecError as error:
        raise CorruptError(entry.key, str(error)) from None


async def list_workers(store: Store) -> list[WorkerRecord]:
    """All live workers, by id."""
    return [read_worker(entry) for entry in (await store.scan(WORKERS, prefix_end(WORKERS))).entries]


async def list_statuses(store: Store, pipeline_id: str = "") -> list[SlotStatus]:
    """The status of all slots, or of those of one pipeline."""
    prefix = status_prefix(pipeline_id) if pipeline_id else STATUS
    return [read_status(entry) for entry in (await store.scan(prefix, prefix_end(prefix))).entries]


async def list_assignments(store: Store, pipeline_id: str) -> list[SlotAssignment]:
    """The holder of each slot of a pipeline, by number. Empty where workers run without leases."""
    prefix = HOLDERS + slot_resource(pipeline_id, 0).removesuffix("0")
    holders = [read_holder(entry) for entry in (await store.scan(prefix, prefix_end(prefix))).entries]
    until = {worker.id: worker.lease_until_ms for worker in await list_workers(store)} if holders else {}
    held = [
        SlotAssignment(
            slot=slot_of_resource(each.resource)[1],
            worker_id=each.holder,
            epoch=each.epoch,
            lease_until_ms=until.get(each.holder),
        )
        for each in holders
    ]
    return sorted(held, key=lambda each: each.slot)
