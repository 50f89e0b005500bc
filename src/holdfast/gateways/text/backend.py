"""What the text gateway stands on."""

from dataclasses import dataclass, field

from holdfast.agent.cluster import Cluster
from holdfast.contracts.store import Store
from holdfast.cursors.service import CursorService
from holdfast.gateways.text.security import TextSecurity
from holdfast.gateways.text.settings import TextCounters, TextSettings
from holdfast.log.service import LogService
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.histogram import Latencies
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tracing import Tracer


@dataclass(frozen=True, slots=True, kw_only=True)
class TextBackend:
    """Services and settings of one node. `node`: its number; `agent`: its name. `tracer`: None if traces are off."""

    cluster_id: str
    agent: str
    node: int
    cluster: Cluster
    log: LogService
    cursors: CursorService
    store: Store
    clock: Clock
    random: Random
    security: TextSecurity | None = None
    """None: connections need no AUTH, and everybody may do everything."""
    tracer: Tracer | None = None
    settings: TextSettings = field(default_factory=TextSettings)
    counters: TextCounters = field(default_factory=TextCounters)
    latencies: Latencies = field(default_factory=Latencies)
    """By verb, from the begin of a run of requests to its answers."""
