"""How a driver is started and tuned. Its start is one line of JSON, the first on its stdin.

The one rule: everything about its environment is in that line, which may hold passwords and is therefore never in argv. Its work
comes as messages (`model.driver_protocol`).
"""

import os
from dataclasses import dataclass
from typing import Final

import msgspec

from holdfast.client.broker_login import BrokerLogin
from holdfast.client.cluster_address import ClusterAddress
from holdfast.pipeline.model.secret_references import SecretReferences, SecretReferenceSettings
from holdfast.spark.clusters import discover_urls
from holdfast.spark.settings import LOCAL, SparkSettings
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import SystemRandom
from holdfast.vocabulary.settings import check_at_least, check_between, settings_from

FAIR: Final = {"spark.scheduler.mode": "FAIR"}


class SparkOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """See `SparkSettings`. Values may hold secrets, so `repr` shows none."""

    master: str = LOCAL
    remote: str = ""
    driver_memory: str = "1g"
    java: str = "auto"
    ui: bool = False
    quick_start: bool = False
    executor_python: str = ""
    archives: str = ""
    conf: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"SparkOptions(master={self.master!r})"


class DriverLogin(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """See `BrokerLogin`: how the driver and its executors log in to the cluster's Kafka, as the node does."""

    mechanism: str = ""
    user: str = ""
    password: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""

    def __repr__(self) -> str:
        return f"DriverLogin(mechanism={self.mechanism!r}, user={self.user!r})"


class DriverStart(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The first line. Without `objects` the brokers at `bootstrap` are asked for it."""

    store: str
    objects: str = ""
    bootstrap: str = ""
    login: DriverLogin | None = None
    """How to log in at `bootstrap`, and TLS; None: neither."""
    clickhouse: str = ""
    """The embedded ClickHouse's URL, for sinks whose `dsn` is empty."""
    sink_roots: tuple[str, ...] = ()
    """Below which sinks may write files; none: anywhere."""
    checkpoints: str = ""
    python_queries: bool = False
    """See `DriverResources`."""
    spark: SparkOptions = SparkOptions()
    settings: dict[str, float] = {}
    """What differs from the defaults of `DriverSettings`, by name."""
    log_level: str = "info"
    env_prefix: str = ""
    secret_dir: str = ""
    """See `SecretReferenceSettings`."""
    master_keys: str = ""
    """What secrets in the store are sealed with; empty: they are not."""

    def __repr__(self) -> str:
        return f"DriverStart(bootstrap={self.bootstrap!r}, spark={self.spark!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSettings:
    """Values an operator may tune."""

    alive_ms: int = 1_000
    """How often the driver sends `DriverAlive`."""
    margin_ms: int = 3_000
    """No insert is begun this close to the expiry of the claims, and a running batch is cancelled then."""
    poll_ms: int = 200
    """How often an idle slot reads the end offsets of its partitions."""
    progress_ms: int = 2_000
    refresh_ms: int = 1_000
    """How often a slot checks whether its pipeline was edited."""
    ranges_max: int = 64
    """Ranges that one job of a slot writes at most."""
    job_timeout_ms: int = 120_000
    """A Spark job that takes longer is cancelled, and its ranges are written again. A batch may be several: one maps, one writes,
    one sends to a topic; each has this limit."""
    retry_base_ms: int = 250
    retry_max_ms: int = 15_000
    store_timeout_ms: int = 15_000

    def __post_init__(self) -> None:
        check_between("alive_ms", self.alive_ms, 50, 10_000)
        check_at_least("margin_ms", self.margin_ms, 100)
        check_at_least("poll_ms", self.poll_ms, 10)
        check_at_least("progress_ms", self.progress_ms, 100)
        check_at_least("refresh_ms", self.refresh_ms, 10)
        check_between("ranges_max", self.ranges_max, 1, 1_000)
        check_at_least("job_timeout_ms", self.job_timeout_ms, 1_000)
        check_at_least("retry_base_ms", self.retry_base_ms, 1)
        check_at_least("retry_max_ms", self.retry_max_ms, self.retry_base_ms)
        check_at_least("store_timeout_ms", self.store_timeout_ms, 100)


def start_line(start: DriverStart) -> bytes:
    """The first line, encoded."""
    return msgspec.json.encode(start) + b"\n"


def parse_start_line(line: bytes | str) -> DriverStart:
    """Decode the first line. Errors do not show it: it may hold passwords."""
    try:
        return msgspec.json.decode(line, type=DriverStart)
    except msgspec.MsgspecError as error:
        raise InvalidError("first line of a driver's stdin", "…", f"a DriverStart in JSON ({error})") from None


def driver_settings(start: DriverStart) -> DriverSettings:
    """The defaults, overridden by the worker's values."""
    return settings_from(DriverSettings, {name: int(value) for name, value in start.settings.items()})


def secrets_of(start: DriverStart) -> SecretReferences:
    """What pipelines may refer to. The driver has the variables of the server that has started it."""
    allowed = SecretReferenceSettings(env_prefix=start.env_prefix, secret_dir=start.secret_dir)
    return SecretReferences(settings=allowed, environment=os.environ)  # noqa: TID251 (a process of its own)


def cluster_address_of(start: DriverStart) -> ClusterAddress:
    """How executors reach the cluster; without the URL of its objects the brokers are asked for it."""
    login = None if start.login is None else BrokerLogin(random=SystemRandom(), **msgspec.structs.asdict(start.login))
    if start.objects:
        return ClusterAddress(bootstrap=start.bootstrap, store=start.store, objects=start.objects, login=login)
    return discover_urls(ClusterAddress(bootstrap=start.bootstrap, login=login))


def spark_of(start: DriverStart) -> SparkSettings:
    """Slots share the executors fairly unless the operator configured otherwise."""
    part = start.spark
    return SparkSettings(
        master=part.master,
        remote=part.remote,
        driver_memory=part.driver_memory,
        java=part.java,
        ui=part.ui,
        quick_start=part.quick_start,
        executor_python=part.executor_python,
        archives=part.archives,
        conf=part.conf if part.remote else {**FAIR, **part.conf},
    )
