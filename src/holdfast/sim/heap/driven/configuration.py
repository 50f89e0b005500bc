"""What a seed draws first: the topic, its clients, and how bad things are."""

from dataclasses import dataclass

from holdfast.heap.config import HeapConfig
from holdfast.sim.heap.driven.features import NO_FEATURES, Features
from holdfast.sim.heap.driven.network import Conditions
from holdfast.vocabulary.random import SeededRandom


@dataclass(frozen=True, slots=True, kw_only=True)
class DrivenConfiguration:
    """One topic and its traffic. `priorities`: how many there are; `incidents`: faults before everything heals.

    `ambushes`: the share of appends after which their leader is changed.
    """

    config: HeapConfig
    partitions: int
    fan_out: int
    priorities: int
    hosts: int
    producers: int
    calls: int
    consumers: int
    incidents: int
    ambushes: float
    faults_ms: float
    timeout_ms: float
    visibility_ms: int
    delayed: float
    cache_bytes_max: int
    conditions: Conditions
    features: Features = NO_FEATURES

    @property
    def k(self) -> int:
        """The topic's bound."""
        return self.config.top_k_bound


def draw_driven(random: SeededRandom, features: Features = NO_FEATURES) -> DrivenConfiguration:
    """Few faults and many: bugs show up under either."""
    rng = random.random
    roughness = rng.random()
    few = rng.random() < 0.2
    return DrivenConfiguration(
        config=HeapConfig(
            mode=rng.choice(("min", "max")),
            top_k_bound=rng.choice((1, 1, 2, 5, 10, 30)),
            visibility_timeout_ms=1_000,
            backoff_base_ms=rng.choice((0, 20)),
            backoff_cap_ms=100,
            inflight_max=rng.choice((8, 100_000)) if few else 100_000,
            leases_per_consumer_max=rng.choice((3, 10_000)) if few else 10_000,
            dlq=features.has_dead_letters,
            max_retries=max(0, features.max_retries),
            fairness=bool(features.keys),
            fairness_weights=features.weights,
            key_leases_max=features.key_leases_max,
            key_rate_per_s=features.key_rate_per_s,
            rate_per_s=features.rate_per_s,
            rate_burst=features.rate_burst,
        ),
        partitions=rng.choice((2, 2, 3, 4)),
        fan_out=rng.choice((1, 2, 4, 64)),
        priorities=rng.choice((3, 20, 1_000)),
        hosts=rng.choice((2, 4)),
        producers=rng.choice((2, 4)),
        calls=rng.choice((6, 12, 20)),
        consumers=rng.choice((1, 2, 3)),
        incidents=rng.randint(0, 2 + int(10 * roughness)),
        ambushes=rng.choice((0.0, 0.02, 0.05)),
        timeout_ms=rng.choice((30.0, 300.0)),
        faults_ms=rng.choice((400.0, 1_000.0)),
        visibility_ms=rng.choice((100, 400)),
        delayed=rng.choice((0.0, 0.1)),
        cache_bytes_max=rng.choice((0, 1 << 20)),
        conditions=Conditions(
            delay_ms=rng.choice((1.0, 5.0, 20.0)),
            sync_ms=rng.choice((1.0, 5.0, 30.0)),
            lost=rng.choice((0.0, 0.05, 0.15)) * roughness,
            waiting=rng.choice((0.0, 0.1)) * roughness,
            unreadable=rng.choice((0.0, 0.05)) * roughness,
        ),
        features=features,
    )
