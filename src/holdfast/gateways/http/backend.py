"""What the HTTP face stands on, as the composition root hands it over."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.gateways.http.doors import Doors
from holdfast.gateways.http.health import Check
from holdfast.gateways.http.metrics.exposition import Source
from holdfast.gateways.http.metrics.requests import RequestCounters
from holdfast.gateways.http.settings import HttpSettings
from holdfast.vocabulary.clock import Chance, Clock

if TYPE_CHECKING:
    from holdfast.pipeline.service import PipelineService


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """The services behind the face. `checks` are what `/ready` asks, `metrics` what `/metrics` shows."""

    doors: Doors
    checks: Sequence[Check]
    metrics: Sequence[Source]
    open_pipelines: Callable[[], "PipelineService"]
    """Called on a thread, because importing what it needs takes a while."""
    clock: Clock
    chance: Chance
    settings: HttpSettings = field(default_factory=HttpSettings)
    counters: RequestCounters = field(default_factory=RequestCounters)
