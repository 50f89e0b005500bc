"""What the text gateway stands on."""

from dataclasses import dataclass, field

from holdfast.agent.cluster import Cluster
from holdfast.contracts.store import Store
from holdfast.cursors.service import CursorService
from holdfast.gateways.text.settings import TextCounters, TextSettings
from holdfast.log.service import LogService
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class TextBackend:
    """Services and settings of one node. `node`: its number; `agent`: its name."""

    cluster_id: str
    agent: str
    node: int
    cluster: Cluster
    log: LogService
    cursors: CursorService
    store: Store
    clock: Clock
    random: Random
    settings: TextSettings = field(default_factory=TextSettings)
    counters: TextCounters = field(default_factory=TextCounters)
