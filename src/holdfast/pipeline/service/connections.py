"""Calls to the Kafka and ClickHouse servers of a pipeline, in threads, with timeouts.

The one rule: no blocking call on the event loop, and no foreign error. A server that does not answer or refuses is an
`UnavailableError` with its message.
"""

from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

import msgspec

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.errors import ClickHouseError, ClickHouseUnreachableError
from holdfast.client.broker_login import BrokerLogin
from holdfast.client.topic_reader import TopicReader
from holdfast.pipeline.catalog.secret_references import resolved
from holdfast.pipeline.catalog.source_topic import open_source_topic
from holdfast.pipeline.catalog.table_identity import table_identity
from holdfast.pipeline.model.definition import ClickHouseConfig, KafkaConfig
from holdfast.pipeline.model.secret_references import SecretReferences, masked
from holdfast.pipeline.service.settings import ServiceSettings
from holdfast.pipeline.service.threads import BoundedThreads
from holdfast.pipeline.sinks.contract import BlockedError
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError, UnavailableError

T = TypeVar("T")
P = TypeVar("P", bound=msgspec.Struct)

_GRACE_MS = 5_000  # for the response, once the server has timed out


class ServerConnections:
    """Calls of one process. `bootstrap`: this cluster's Kafka address, with `login`; `embedded`: the URL of its own ClickHouse."""

    def __init__(
        self,
        *,
        bootstrap: str,
        embedded: str,
        clock: Clock,
        settings: ServiceSettings,
        login: BrokerLogin | None = None,
        secrets: SecretReferences | None = None,
    ) -> None:
        self._secrets = secrets or SecretReferences()
        self.bootstrap, self.settings, self._login = bootstrap, settings, login
        self._embedded, self._clock = embedded, clock
        self._threads = BoundedThreads(threads_max=settings.threads_max, name="pipelines")

    async def topic(self, config: KafkaConfig, call: Callable[[TopicReader], T]) -> T:
        """Run a call against a source's topic."""
        timeout_ms = self.settings.source_timeout_ms

        def run() -> T:
            with open_source_topic(
                self._resolved("source", config),
                self.bootstrap,
                clock=self._clock,
                timeout_ms=timeout_ms,
                login=self._login,
            ) as topic:
                return call(topic)

        address = ",".join(config.brokers) or self.bootstrap
        return await self._threads.run(f"Kafka at {address}", run, timeout_ms=timeout_ms + _GRACE_MS)

    async def clickhouse(
        self, sink: ClickHouseConfig, call: Callable[[ClickHouseClient], T], *, timeout_ms: int | None = None
    ) -> T:
        """Run a call against a sink's server."""
        limit_ms = timeout_ms or self.settings.clickhouse_timeout_ms
        if not sink.dsn and not self._embedded:
            raise InvalidError("sink.dsn", "", "a URL: this cluster has no embedded ClickHouse")

        def run() -> T:
            dsn = self._resolved("sink", sink).dsn or self._embedded
            with closing(ClickHouseClient(dsn, timeout_ms=limit_ms)) as connection:
                try:
                    return call(connection)
                except (ClickHouseError, ClickHouseUnreachableError, BlockedError) as error:
                    raise UnavailableError("the sink", error.reason) from None

        return await self._threads.run("ClickHouse", run, timeout_ms=limit_ms + _GRACE_MS)

    def table_identity(self, sink: ClickHouseConfig) -> tuple[str, int, str, str] | None:
        """Server, database and table of a sink; None: it has no server."""
        given = msgspec.structs.replace(sink, dsn=masked(sink.dsn)[0])
        return table_identity(given, embedded=self._embedded) if sink.dsn or self._embedded else None

    def _resolved(self, name: str, part: P) -> P:
        return resolved(name, part, self._secrets)

    async def resolved(self, name: str, part: P) -> P:
        """A copy of a part with the secrets that it refers to, for the call that uses them."""
        return await self.work(lambda: self._resolved(name, part))

    async def work(self, call: Callable[[], T]) -> T:
        """Run a long computation off the event loop."""
        return await self._threads.run("this process", call, timeout_ms=self.settings.clickhouse_timeout_ms)

    def close(self) -> None:
        """Take no more calls."""
        self._threads.close()
