"""Where a planted bug shows."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Where a bug shows: at a level, by faults that last so long, with a TTL, and with learners or without."""

    level: str
    faults: tuple[str, ...]
    lasting_s: tuple[float, float] = (0.3, 0.8)
    ttl_ms: int = 2_000
    learners: bool = True
