"""What an operator may tune about an agent, and what it counts. Stores, objects and clocks are components, passed separately."""

from dataclasses import dataclass, field

from holdfast.agent.peers.settings import PeerSettings
from holdfast.cursors.settings import CursorSettings
from holdfast.groups.settings import GroupSettings
from holdfast.heap.settings import HeapSettings
from holdfast.kernel.early_takeover import EarlyTakeoverSettings
from holdfast.kernel.membership import MembershipSettings
from holdfast.kernel.plan_executor import PlanExecutorSettings
from holdfast.kernel.planner import PlannerSettings
from holdfast.kernel.session import SessionSettings
from holdfast.log.maintenance import MaintenanceSettings
from holdfast.log.replication.settings import ReplicaSettings
from holdfast.log.settings import LeadershipCounters, LeadershipSettings, LogSettings
from holdfast.log.wal import WalSettings
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import check_at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings(LeadershipSettings):
    """Who the agent is, and the settings of its parts. `text_address`: where it serves the text protocol, if it does.

    `hand_over_ms`: how long a graceful stop lets other agents take leases over one by one; then the rest is flushed and released,
    which takes at most `drain_ms`. `rejoin_ms`: the pause before a new session, except for the first
    one after a while. `full_disk_ms`: an agent whose disk has been full for so long asks to be drained.
    """

    id: str
    address: str = ""
    text_address: str = ""
    zone: str = ""
    group: str = "default"
    hand_over_ms: int = 15_000
    drain_ms: int = 15_000
    rejoin_ms: int = 1_000
    full_disk_ms: int = 10_000
    session: SessionSettings = field(default_factory=SessionSettings)
    membership: MembershipSettings = field(default_factory=MembershipSettings)
    planner: PlannerSettings = field(default_factory=PlannerSettings)
    follower: PlanExecutorSettings = field(default_factory=PlanExecutorSettings)
    log: LogSettings = field(default_factory=LogSettings)
    wal: WalSettings = field(default_factory=WalSettings)
    upkeep: MaintenanceSettings = field(default_factory=MaintenanceSettings)
    groups: GroupSettings = field(default_factory=GroupSettings)
    cursors: CursorSettings = field(default_factory=CursorSettings)
    heaps: HeapSettings = field(default_factory=HeapSettings)
    peers: PeerSettings = field(default_factory=PeerSettings)
    replica: ReplicaSettings = field(default_factory=ReplicaSettings)
    early_takeover: EarlyTakeoverSettings = field(default_factory=EarlyTakeoverSettings)

    def __post_init__(self) -> None:
        LeadershipSettings.__post_init__(self)  # `super()` does not work in a dataclass with slots
        if not self.id or not self.id.isprintable() or "/" in self.id:
            raise InvalidError("agent id", self.id, "printable text without /")
        check_at_least("rejoin_ms", self.rejoin_ms, 1)
        check_at_least("full_disk_ms", self.full_disk_ms, 1)
        check_at_least("hand_over_ms", self.hand_over_ms, 0)
        check_at_least("drain_ms", self.drain_ms, 0)


@dataclass(slots=True)
class AgentCounters(LeadershipCounters):
    """Since the process started. The field names are metric names."""

    sessions: int = 0
    sessions_lost: int = 0
    sessions_ended_early: int = 0
    sessions_ended_wrongly: int = 0
