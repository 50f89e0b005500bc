"""What can be set in `broker_transport_options`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from holdfast.heaps.task_queue import queue_config
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import check_at_least, check_between

_OF_KOMBU: Final = (  # of connections and channels of any transport
    *("body_encoding", "client_properties", "confirm_publish", "deadletter_queue", "polling_interval"),
    *(
        "max_retries",
        "interval_start",
        "interval_step",
        "interval_max",
        "connect_retries_timeout",
        "errback",
        "callback",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportSettings:
    """`lease`: seconds until a worker that is gone loses its tasks. `partitions`, `queue_config`, `queue_log`: of new queues.

    `prefix`: before the names of heaps and topics. `connect_timeout`: seconds.
    """

    lease: float = 30.0
    partitions: int = 1
    queue_config: Mapping[str, object] = field(default_factory=dict)
    queue_log: Mapping[str, object] = field(default_factory=dict)
    prefix: str = ""
    connect_timeout: float = 5.0

    def __post_init__(self) -> None:
        check_between("lease", self.lease, 0.5, 86_400)
        check_at_least("partitions", self.partitions, 1)
        check_at_least("connect_timeout", self.connect_timeout, 0.1)

    @property
    def heap_config(self) -> dict[str, object]:
        """The settings of a new queue's heap."""
        return queue_config(self.lease, self.queue_config)


def transport_settings(options: Mapping[str, Any]) -> TransportSettings:
    """The settings in `broker_transport_options`. `InvalidError`: one is not known."""
    names = [each.name for each in fields(TransportSettings)]
    for name in options:
        if name not in names and name not in _OF_KOMBU:
            raise InvalidError("transport option", name, "one of " + ", ".join(names))
    return TransportSettings(**{name: value for name, value in options.items() if name in names})
