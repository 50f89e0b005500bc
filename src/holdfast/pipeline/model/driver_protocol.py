"""The messages between a worker and its Spark driver: a line of JSON each, on the driver's stdin and stdout.

The one rule: the worker owns, the driver executes. A driver works for a slot only until `until_ms` of its last `SlotClaims`
(CLOCK_BOOTTIME, which both processes share), and only under the epochs in it. A driver whose stdin ends exits; one that sends no
`DriverAlive` is killed, and its claims are not renewed.
"""

from typing import Final

import msgspec

LINE_BYTES_MAX: Final = 8 * 1024 * 1024


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="say", rename="camel", omit_defaults=True):
    """One line."""


# Worker to driver


class RunSlot(_Message, frozen=True, tag="run"):
    """Start a slot of a generation. `slot` identifies it in every later message and in the generation's registry."""

    slot: str
    pipeline_id: str
    generation: int
    name: str = ""
    """The pipeline's name, for log lines."""


class SlotClaims(_Message, frozen=True, tag="claims"):
    """The partitions a slot owns, each with the epoch of its claim. Those left out are to be released after their current batch.

    Sent again at every renewal, with a later `until_ms`.
    """

    slot: str
    epochs: dict[str, int]
    until_ms: int


class HaltSlot(_Message, frozen=True, tag="halt"):
    """Stop a slot: begin nothing, cancel the current batch after `within_ms`, then send `SlotHalted`."""

    slot: str
    within_ms: int = 10_000


class QuitDriver(_Message, frozen=True, tag="quit"):
    """Halt every slot and exit with code 0."""


# Driver to worker


class DriverReady(_Message, frozen=True, tag="ready"):
    """Spark is up."""

    spark_version: str
    ui_url: str = ""


class DriverAlive(_Message, frozen=True, tag="alive"):
    """Sent once a second by the supervising loop itself and not by a thread of its own: a loop that hangs sends none."""

    at_ms: int


class PartitionsReleased(_Message, frozen=True, tag="let-go"):
    """Partitions that the last `SlotClaims` left out are idle: the worker may release them."""

    slot: str
    epochs: dict[str, int]


class PartitionProgress(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where one partition is."""

    checkpoint: int
    end: int
    lag_ms: int = 0


class StreamProgress(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a streaming query is, as Spark reported it last. Counts of rows are of the last batch."""

    engine: str
    reason: str
    """Why this engine runs the pipeline."""
    epoch: int = 0
    batch: int = -1
    """The last batch that is done; -1: none is."""
    output_mode: str = "append"
    run_id: str = ""
    """Of the query in Spark's UI and logs."""
    watermark: str = ""
    state_rows: int = 0
    state_bytes: int = 0
    dropped_rows: int = 0
    """Rows that came later than the watermark allows."""
    input_rows: int = 0
    batch_ms: int = 0
    lag_rows: int = 0
    input_rows_total: int = 0
    late_rows_total: int = 0
    failures: int = 0
    """Queries of this slot that ended by themselves. Totals are since `RunSlot`."""
    failure: str = ""
    """Why, the last time."""
    ui_url: str = ""
    """The query's page in Spark's UI; empty: there is none."""


class SlotProgress(_Message, frozen=True, tag="progress"):
    """Sent after every batch, and every few seconds without one. Counts are since `RunSlot`."""

    slot: str
    rows: int = 0
    batches: int = 0
    filtered: int = 0
    dlq_rows: int = 0
    bytes_objects: int = 0
    bytes_agents: int = 0
    partitions: dict[str, PartitionProgress] = {}
    blocked: str = ""
    """Why the slot makes no progress (a missing table, an unreachable sink); it is retried. Empty: it does."""
    warnings: tuple[str, ...] = ()
    """Weaker guarantees and whatever an operator should check; shown in the status."""
    source_partitions: int = 0
    """How many partitions the source has; 0: not looked yet."""
    stream: StreamProgress | None = None
    """Of a slot that runs a streaming query."""


class SlotFinished(_Message, frozen=True, tag="finished"):
    """Every partition the slot owns has reached the generation's end."""

    slot: str


class SlotFailed(_Message, frozen=True, tag="failed"):
    """The slot stopped by itself. `lasting`: a retry cannot help before the pipeline is edited."""

    slot: str
    reason: str
    lasting: bool = False


class SlotHalted(_Message, frozen=True, tag="halted"):
    """The slot has stopped: none of its batches is under way, or it is stuck in a call whose effects are fenced."""

    slot: str


class DriverLog(_Message, frozen=True, tag="log"):
    """A log record of the driver's own code. What Spark and libraries log goes to stderr."""

    level: str
    logger: str
    text: str
    trace: str = ""


ToDriver = RunSlot | SlotClaims | HaltSlot | QuitDriver
FromDriver = (
    DriverReady | DriverAlive | PartitionsReleased | SlotProgress | SlotFinished | SlotFailed | SlotHalted | DriverLog
)


def slot_title(run: RunSlot) -> str:
    """A slot in log lines: `pipeline orders, slot 0`."""
    label = run.slot.removeprefix(f"{run.pipeline_id}.{run.generation}.")
    later = f" of generation {run.generation}" if run.generation > 1 else ""
    return f"pipeline {run.name or run.pipeline_id}, slot {label}{later}"
