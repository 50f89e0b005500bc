"""A recipe as one driver works by it: its target, its sink, its source's group; opened once per version.

The one rule: a version is never swapped under a range. What was begun under one is finished by the sink of that one.
"""

from dataclasses import dataclass

from holdfast.pipeline.driver.planning import Limits
from holdfast.pipeline.driver.settings import DriverSettings
from holdfast.pipeline.nouns import ClickHouseConfig, Recipe
from holdfast.pipeline.sinks.choosing import open_sink
from holdfast.pipeline.sinks.contract import EXACTLY_ONCE, Sink, Target


@dataclass(slots=True)
class Opened:
    """One version at work."""

    recipe: Recipe
    target: Target
    sink: Sink
    ready: bool = False
    """Whether the sink was prepared, and nothing has gone wrong with it since."""

    def prepare(self) -> tuple[str, ...]:
        """Make the sink ready if it is not; what a person should know."""
        if self.ready:
            return ()
        warnings = self.sink.prepare()
        self.ready = True
        return warnings if self.sink.guarantee == EXACTLY_ONCE else (self.sink.guarantee, *warnings)

    def limits(self, settings: DriverSettings) -> Limits:
        """How large a range may be."""
        sink = self.recipe.sink
        return Limits(
            rows_max=sink.batch_size,
            bytes_max=sink.batch_bytes,
            age_ms=sink.batch_flush_interval_ms,
            ranges_max=settings.ranges_max,
        )

    @property
    def inserts_per_second(self) -> float:
        """The rate limit; 0: none."""
        sink = self.recipe.sink
        return sink.insert_rate_per_second if isinstance(sink, ClickHouseConfig) else 0.0

    @property
    def looks_first(self) -> bool:
        """Whether records are looked at before a range is begun."""
        return self.recipe.drift.unknown_fields in ("stop", "add-column")


def opened(target: Target) -> Opened:
    """A version, with its sink."""
    return Opened(target.recipe, target, open_sink(target))
