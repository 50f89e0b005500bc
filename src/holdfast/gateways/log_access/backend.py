"""What gateways of the log stand on: this node's log, the cluster as it is seen here, and clients of the other nodes."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from holdfast.agent.administration import ClusterAdministration
from holdfast.agent.cluster import Cluster
from holdfast.client.addresses import Bootstrap
from holdfast.client.broker_login import BrokerLogin
from holdfast.log.service import LogService
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random

if TYPE_CHECKING:
    from holdfast.client.librdkafka import KafkaClient

T = TypeVar("T")
P = ParamSpec("P")

_THREADS_MAX: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBackend:
    """Services of one node. `bootstrap`: the Kafka address of the cluster, for what another node has to do.

    `login`: how this node logs in there as itself; None: nobody needs to. Callers were authorised here: other nodes trust a node.
    """

    log: LogService
    cluster: Cluster
    administration: ClusterAdministration
    bootstrap: str
    login: BrokerLogin | None = None
    clock: Clock
    random: Random


class KafkaAdmin:
    """Calls of `client.admin` on threads, with one client of the cluster, which is made for the first of them.

    The threads are its own: a coordinator that does not answer keeps them for long, and the log reads and publishes on the loop's.
    """

    def __init__(self, bootstrap: str, *, timeout_s: float, login: BrokerLogin | None = None) -> None:
        properties = login.properties() if login is not None else {}
        self._bootstrap = Bootstrap(servers=bootstrap, timeout_s=timeout_s, properties=properties)
        self._threads = ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="gateway-admin")
        self._opening = asyncio.Lock()
        self._client: KafkaClient | None = None

    async def call(self, work: "Callable[Concatenate[KafkaClient, P], T]", /, *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `work`, called with the client. Raises what it raises, and `UnavailableError`."""
        async with self._opening:
            if self._client is None:
                self._client = await asyncio.get_running_loop().run_in_executor(self._threads, self._open)
        called = partial(work, self._client, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, called)

    def _open(self) -> "KafkaClient":
        from holdfast.client.librdkafka import KafkaClient

        return KafkaClient(self._bootstrap)
