"""Every setting there is: its dotted name (as in a TOML file), its environment variables, its flag, its type and its default.

The everyday ones are listed here; the tuning values are the fields of the settings classes, so that a new field of a class is a
setting without another line. The one rule: `[section] name` in TOML is `HOLDFAST_SECTION_NAME` in the environment.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Final, get_type_hints

from holdfast.agent.settings import AgentSettings
from holdfast.app.config.settings import LOG_FORMATS, LOG_LEVELS, ROLES
from holdfast.gateways.http.settings import HttpSettings
from holdfast.gateways.kafka.settings import KafkaSettings
from holdfast.groups.settings import GroupSettings
from holdfast.kernel.follower import FollowerSettings
from holdfast.kernel.membership import MembershipSettings
from holdfast.kernel.planner import PlannerSettings
from holdfast.kernel.session import SessionSettings
from holdfast.log.settings import LogSettings
from holdfast.log.upkeep import UpkeepSettings
from holdfast.log.wal import WalSettings
from holdfast.objects.caching import CacheSettings

PREFIX: Final = "HOLDFAST_"
SECTIONS: Final[Mapping[str, type]] = {
    "agent": AgentSettings,
    "session": SessionSettings,
    "membership": MembershipSettings,
    "planner": PlannerSettings,
    "follower": FollowerSettings,
    "log": LogSettings,
    "wal": WalSettings,
    "upkeep": UpkeepSettings,
    "kafka": KafkaSettings,
    "http": HttpSettings,
    "groups": GroupSettings,
    "cache": CacheSettings,
}
_SCALARS: Final = (bool, int, float, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting. `everyday`: shown without `--all`. `url`: its secrets are hidden wherever it is shown."""

    name: str
    kind: Any
    default: object
    flag: str = ""
    metavar: str = ""
    help: str = ""
    choices: tuple[str, ...] = ()
    everyday: bool = False
    url: bool = False

    @property
    def variables(self) -> tuple[str, ...]:
        """Its environment variables, the one to show first."""
        by_flag = PREFIX + self.flag.removeprefix("--").replace("-", "_").upper() if self.flag else ""
        by_name = PREFIX + self.name.replace(".", "_").upper()
        return (by_flag, by_name) if by_flag and by_flag != by_name else (by_name,)


def _everyday() -> Iterator[Setting]:
    def said(name: str, default: object, flag: str, metavar: str, help_: str, **more: Any) -> Setting:
        kind = more.pop("kind", str)
        return Setting(
            name=name, kind=kind, default=default, flag=flag, metavar=metavar, help=help_, everyday=True, **more
        )

    yield said(
        "data", "holdfast-data", "--data", "DIR", "what this process keeps: WAL, names, and by default the rest too"
    )
    yield said(
        "store", "", "--store", "URL", "the coordination store (default: sqlite, in the data directory)", url=True
    )
    yield said("objects", "", "--objects", "URL", "object storage (default: a folder in the data directory)", url=True)
    yield said(
        "kafka.listen", "127.0.0.1:9092", "--kafka", "HOST:PORT", "where Kafka is spoken; port 0 picks a free one"
    )
    yield said(
        "kafka.advertise",
        "",
        "--advertise",
        "HOST:PORT",
        "what clients are told to connect to (default: where it listens)",
    )
    yield said(
        "http.listen",
        "127.0.0.1:8080",
        "--http",
        "HOST:PORT",
        "where HTTP is spoken: administration, health and metrics; port 0 picks a free one, off does without",
    )
    yield said("roles", ",".join(ROLES), "--roles", "ROLES", f"what this process does, of {','.join(ROLES)}")
    yield said(
        "agent.id", "", "--agent-id", "ID", "this agent's name (default: drawn once, kept in the data directory)"
    )
    yield said("agent.zone", "", "--zone", "ZONE", "where it stands: Kafka's rack")
    yield said("agent.group", "default", "--group", "GROUP", "the group of agents it belongs to")
    yield said(
        "insecure",
        False,
        "--insecure",
        "",
        "listen beyond loopback although nothing protects this server yet",
        kind=bool,
    )
    yield said(
        "print_addresses", "", "--print-addresses", "FILE", "write the addresses as JSON once everything listens"
    )
    yield said("logging.format", "text", "--log", "FORMAT", "how log lines look", choices=LOG_FORMATS)
    yield said("logging.level", "info", "--log-level", "LEVEL", "from which level on", choices=LOG_LEVELS)
    yield said("stop_ms", 45_000, "--stop-ms", "MS", "how long a polite stop may take", kind=int)


def _tuning(taken: set[str]) -> Iterator[Setting]:
    for section, kind in SECTIONS.items():
        kinds = get_type_hints(kind)
        for field in fields(kind):
            name = f"{section}.{field.name}"
            if kinds[field.name] in _SCALARS and field.default is not MISSING and name not in taken | _NOT_TOLD:
                yield Setting(name=name, kind=kinds[field.name], default=field.default)


_NOT_TOLD: Final = {"agent.address"}  # it follows from where the faces listen


def _catalogue() -> dict[str, Setting]:
    listed = list(_everyday())
    listed += _tuning({setting.name for setting in listed})
    return {setting.name: setting for setting in listed}


CATALOGUE: Final[Mapping[str, Setting]] = _catalogue()
