"""What a driver is told before it runs: where the cluster is, and which Spark. In one environment variable, as JSON.

The one rule: never on the command line, which every user of the machine can read: a store's URL may hold a password.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from holdfast.vocabulary.errors import InvalidError

VARIABLE: Final = "HOLDFAST_DRIVER_LAUNCH"


class Launch(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The worker writes it, the driver reads it. URLs and `spark_conf` may hold secrets."""

    store: str
    objects: str = ""
    bootstrap: str = ""
    """Where this cluster speaks Kafka; empty where the worker knows of none."""
    clickhouse: str = ""
    """The embedded one: `http://user:password@host:port`; empty where there is none."""
    spark_master: str = ""
    """Empty: the default of `SparkSettings`."""
    spark_remote: str = ""
    spark_conf: dict[str, str] = {}
    log_level: str = "info"

    def __repr__(self) -> str:
        return f"Launch(spark_master={self.spark_master!r})"


def told(launch: Launch, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a driver."""
    return {**environment, VARIABLE: msgspec.json.encode(launch).decode()}


def read(environment: Mapping[str, str]) -> Launch:
    """What the worker said; `InvalidError` if this process was not started by one."""
    try:
        return msgspec.json.decode(environment.get(VARIABLE, ""), type=Launch)
    except msgspec.MsgspecError as error:
        raise InvalidError(f"environment variable {VARIABLE}", "…", f"what a worker writes there ({error})") from None
