"""What a soak does, as values: the long form and the short one that CI runs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a soak does."""

    seconds: float = 600
    seed: int = 1
    writers: int = 3
    readers: int = 3
    partitions: int = 6
    keys_per_writer: int = 20
    records_per_s: int = 400  # of each writer
    record_bytes: int = 400
    gap_s: tuple[float, float] = (4, 15)
    pause_s: tuple[float, float] = (1, 8)
    absence_s: tuple[float, float] = (33, 40)  # instead, at times: longer than any lease lasts


SHORT = Plan(seconds=25, gap_s=(1.5, 4), pause_s=(1, 3))
