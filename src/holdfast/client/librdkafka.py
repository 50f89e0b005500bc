"""A synchronous client of any Kafka cluster on librdkafka, with TLS and SASL: admin calls, producers, consumers.

The one rule: no call takes longer than its timeout, and a timeout carries the last network error.
"""

import re
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient, TopicDescription  # type: ignore[attr-defined]

from holdfast.client.addresses import Bootstrap
from holdfast.client.kafka_errors import KafkaOutcomeUnknownError, kafka_error, to_holdfast_error
from holdfast.client.types import InvalidClientConfigError
from holdfast.vocabulary.clock import Clock, RealClock
from holdfast.vocabulary.errors import HoldfastError, InvalidError

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

RETRY_PAUSE_S: Final = 0.1
_COORDINATOR_MOVING: Final = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)


class KafkaClient:
    """A cluster that responded once. Admin calls go through `call`; producers and consumers share its settings."""

    def __init__(self, bootstrap: Bootstrap, *, clock: Clock | None = None) -> None:
        self.bootstrap = bootstrap
        self._clock = clock if clock is not None else RealClock()
        self._last_error: KafkaError | None = None
        self.admin = _create(AdminClient, self._settings())
        self._await_response()

    def _await_response(self) -> None:
        """The first response proves the address: a later timeout is then not due to it."""
        timeout_s = self.bootstrap.timeout_s
        found = _outcomes({"": self.admin.describe_cluster(request_timeout=timeout_s)}, timeout_s)[""]
        self.admin.poll(0)
        if isinstance(found, KafkaError):
            raise self.error(found, "cluster", str(self.bootstrap))

    def timeout_reason(self) -> str:
        """The text of a timeout, with the last network error if there was one."""
        within = f"no answer within {self.bootstrap.timeout_s:g} s"
        if self._last_error is None:
            return within
        text = re.sub(
            r"^\S+/\S+: | \(after .*", "", self._last_error.str()
        )  # without librdkafka's broker name and state
        return f"{within} ({text})"

    def call(self, request: Callable[[float], Mapping[K, "Future[T]"]]) -> dict[K, T | KafkaError]:
        """The result or the error for each key; retried while the coordinator is moving."""
        deadline_ms = self._clock.boot_ms() + self.bootstrap.timeout_s * 1_000
        while True:
            left_s = max(0.5, (deadline_ms - self._clock.boot_ms()) / 1_000)
            found = _outcomes(request(left_s), left_s)
            moving = any(isinstance(each, KafkaError) and each.code() in _COORDINATOR_MOVING for each in found.values())
            if not moving or self._clock.boot_ms() + RETRY_PAUSE_S * 1_000 > deadline_ms:
                self.admin.poll(0)
                return found
            threading.Event().wait(RETRY_PAUSE_S)

    def call_one(self, what: str, given: str, request: Callable[[float], "Future[T]"], *, change: str = "") -> T:
        """The result for one key; raises its error."""
        found = self.call(lambda left_s: {given: request(left_s)})
        return self.raise_for_errors(what, found, change=change)[given]

    def raise_for_errors(self, what: str, found: Mapping[K, T | KafkaError], *, change: str = "") -> dict[K, T]:
        """`found` if there is no error in it; otherwise raises the first."""
        results: dict[K, T] = {}
        for key, result in found.items():
            if isinstance(result, KafkaError):
                raise self.error(result, what, str(key), change=change)
            results[key] = result
        return results

    def error(self, found: KafkaError, what: str, given: str, *, change: str = "") -> HoldfastError:
        """Our error for it. If the request was a `change` and there was no response, its outcome is unknown."""
        timed_out = found.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
        if timed_out and change:
            return KafkaOutcomeUnknownError(
                f"{change} {what} {given}", f"Kafka at {self.bootstrap}: {self.timeout_reason()}"
            )
        return to_holdfast_error(found, what, given, self.bootstrap, reason=self.timeout_reason() if timed_out else "")

    def describe(self, topics: Iterable[str]) -> dict[str, TopicDescription]:
        """Each topic's description; raises when one does not exist. Never creates a topic."""
        names = list(dict.fromkeys(topics))
        for name in names:
            if not name:
                raise InvalidError("topic", name, "a name")
        described = self.call(lambda left_s: self.admin.describe_topics(TopicCollection(names), request_timeout=left_s))
        return self.raise_for_errors("topic", described)

    def producer(self, settings: Mapping[str, Any]) -> Producer:
        """A producer with this client's settings, then `settings`, then the user's."""
        return _create(Producer, self._settings(settings))

    def consumer(self, settings: Mapping[str, Any]) -> Consumer:
        """A consumer with the same settings."""
        return _create(Consumer, self._settings(settings))

    def _settings(self, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap.servers,
            "client.id": "holdfast",
            "log_level": 0,  # librdkafka writes to stderr; errors arrive through error_cb
            "error_cb": self._on_error,
            "socket.connection.setup.timeout.ms": max(1_000, int(self.bootstrap.timeout_s * 1_000)),
            "socket.timeout.ms": max(1_000, int(self.bootstrap.timeout_s * 1_000)),
            "reconnect.backoff.max.ms": 1_000,
            **(more or {}),
            **self.bootstrap.properties,
        }

    def _on_error(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # less specific than the error before it
            self._last_error = error


def _create(kind: Callable[[dict[str, Any]], T], settings: dict[str, Any]) -> T:
    try:
        return kind(settings)
    except KafkaException as refused:
        raise InvalidClientConfigError(kafka_error(refused).str()) from None


def _outcomes(futures: Mapping[K, "Future[T]"], left_s: float) -> dict[K, T | KafkaError]:
    found: dict[K, T | KafkaError] = {}
    for key, future in futures.items():
        try:
            found[key] = future.result(left_s + 2)
        except KafkaException as failure:
            found[key] = kafka_error(failure)
        except FutureTimeoutError:
            found[key] = KafkaError(KafkaError._TIMED_OUT)
    return found
