"""What a worker and its Spark driver say to each other: a line of JSON each, on the driver's stdin and stdout.

The one rule: the worker owns, the driver does. A driver acts for a slot only below `until_ms` of its last `Claims` (CLOCK_BOOTTIME,
which both processes share), and only under the epochs named there. A driver whose stdin ends stops; one that does not say `Alive`
is killed, and its claims are not renewed.
"""

from typing import Final

import msgspec

LINE_BYTES_MAX: Final = 8 * 1024 * 1024


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="say", rename="camel", omit_defaults=True):
    """One line."""


# Worker to driver


class RunSlot(_Message, frozen=True, tag="run"):
    """Begin to work for a slot of a generation.

    `slot` names it in every later line, and is the consumer's name in the generation's registry.
    """

    slot: str
    pipeline_id: str
    generation: int


class SlotClaims(_Message, frozen=True, tag="claims"):
    """The partitions a slot owns now, each with the epoch of its claim; those left out are to be let go, after what is under way.

    Said again at every renewal, with a later `until_ms`.
    """

    slot: str
    epochs: dict[str, int]
    until_ms: int


class HaltSlot(_Message, frozen=True, tag="halt"):
    """Stop working for a slot: finish nothing new, wait for what is under way at most `within_ms`, then say `Halted`."""

    slot: str
    within_ms: int = 10_000


class QuitDriver(_Message, frozen=True, tag="quit"):
    """Halt everything and exit 0."""


# Driver to worker


class DriverReady(_Message, frozen=True, tag="ready"):
    """Spark is up."""

    spark_version: str
    ui_url: str = ""


class DriverAlive(_Message, frozen=True, tag="alive"):
    """Once a second, by the thread that does the work's bookkeeping, not by one of its own: who hangs falls silent."""

    at_ms: int


class PartitionsReleased(_Message, frozen=True, tag="let-go"):
    """Nothing is under way any more for partitions that the last `Claims` left out: the worker may release them."""

    slot: str
    epochs: dict[str, int]


class PartitionProgress(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where one partition is."""

    checkpoint: int
    end: int
    lag_ms: int = 0


class SlotProgress(_Message, frozen=True, tag="progress"):
    """After every batch, and every few seconds without one. Counts are since `Run`."""

    slot: str
    rows: int = 0
    batches: int = 0
    filtered: int = 0
    dlq_rows: int = 0
    bytes_objects: int = 0
    bytes_agents: int = 0
    partitions: dict[str, PartitionProgress] = {}
    blocked: str = ""
    """Why nothing moves (a missing table, an unreachable sink); it is tried again. Empty: nothing is in the way."""
    warnings: tuple[str, ...] = ()
    """What the guarantees are short of, or what needs a person's eye; shown in the status."""


class SlotFinished(_Message, frozen=True, tag="finished"):
    """Every partition the slot owns has reached the generation's end."""

    slot: str


class SlotFailed(_Message, frozen=True, tag="failed"):
    """The slot stopped by itself. `lasting`: trying again will not help before somebody edits the pipeline."""

    slot: str
    reason: str
    lasting: bool = False


class SlotHalted(_Message, frozen=True, tag="halted"):
    """Nothing is under way for the slot any more."""

    slot: str


ToDriver = RunSlot | SlotClaims | HaltSlot | QuitDriver
FromDriver = DriverReady | DriverAlive | PartitionsReleased | SlotProgress | SlotFinished | SlotFailed | SlotHalted
