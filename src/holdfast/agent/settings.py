"""What an operator may tune about an agent, and what it counts. Stores, objects and clocks are components, passed separately."""

from dataclasses import dataclass, field

from holdfast.groups.settings import GroupSettings
from holdfast.kernel.membership import MembershipSettings
from holdfast.kernel.plan_executor import PlanExecutorSettings
from holdfast.kernel.planner import PlannerSettings
from holdfast.kernel.session import SessionSettings
from holdfast.log.maintenance import MaintenanceSettings
from holdfast.log.settings import LogSettings
from holdfast.log.wal import WalSettings
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import MIB, check_at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Who the agent is, and the settings of its parts.

    `open_retry_ms`: how often a partition that cannot be opened is tried again. `idle_ms`: how long a partition must have been
    quiet before it gives its booked offsets back, so that it can move at once. `publications_max`: side by side.
    `publish_slow_ms`: a publication that takes longer is spoken of in the log.
    `tail_bytes_max`: what all partitions may hold that object storage has not taken; from half of it on the largest are published.
    `afterglow_bytes_max`: how much of what was published last stays in RAM for readers close behind.
    `together_bytes_max`: how much one publication takes. `wal_bytes_max`: from here on, whoever keeps the oldest WAL file from
    being used again is published first.
    `hand_over_ms`: how long a polite stop lets others take over one by one; then the rest is published and released, which takes
    at most `drain_ms`. `rejoin_ms`: the pause before a new session.
    """

    id: str
    address: str = ""
    zone: str = ""
    group: str = "default"
    open_retry_ms: int = 5_000
    idle_ms: int = 30_000
    publications_max: int = 4
    publish_backoff_max_ms: int = 30_000
    publish_slow_ms: int = 5_000
    tail_bytes_max: int = 256 * MIB
    afterglow_bytes_max: int = 128 * MIB
    together_bytes_max: int = 64 * MIB
    wal_bytes_max: int = 1024 * MIB
    hand_over_ms: int = 15_000
    drain_ms: int = 15_000
    rejoin_ms: int = 1_000
    session: SessionSettings = field(default_factory=SessionSettings)
    membership: MembershipSettings = field(default_factory=MembershipSettings)
    planner: PlannerSettings = field(default_factory=PlannerSettings)
    follower: PlanExecutorSettings = field(default_factory=PlanExecutorSettings)
    log: LogSettings = field(default_factory=LogSettings)
    wal: WalSettings = field(default_factory=WalSettings)
    upkeep: MaintenanceSettings = field(default_factory=MaintenanceSettings)
    groups: GroupSettings = field(default_factory=GroupSettings)

    def __post_init__(self) -> None:
        if not self.id or not self.id.isprintable() or "/" in self.id:
            raise InvalidError("agent id", self.id, "printable text without /")
        for name in (
            "open_retry_ms",
            "idle_ms",
            "publications_max",
            "publish_backoff_max_ms",
            "publish_slow_ms",
            "tail_bytes_max",
            "together_bytes_max",
            "wal_bytes_max",
            "rejoin_ms",
        ):
            check_at_least(name, getattr(self, name), 1)
        check_at_least("afterglow_bytes_max", self.afterglow_bytes_max, 0)
        check_at_least("hand_over_ms", self.hand_over_ms, 0)
        check_at_least("drain_ms", self.drain_ms, 0)


@dataclass(slots=True)
class AgentCounters:
    """Since the process started."""

    opened: int = 0
    open_failures: int = 0
    drained: int = 0
    closed: int = 0
    publications: int = 0
    segments_published: int = 0
    bytes_published: int = 0
    publish_failures: int = 0
    lost_while_publishing: int = 0
    bookings_returned: int = 0
    sessions: int = 0
    sessions_lost: int = 0
