"""One connection to a cluster: asks, waits no longer than it may, and says why when nothing came."""

import re
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient, TopicDescription  # type: ignore[attr-defined]

from holdfast.cli.kafka.options import Bootstrap
from holdfast.client.kafka_errors import KafkaOutcomeUnknownError, kafka_error, to_holdfast_error
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
    """A cluster that answered. Admin calls go through `ask`; producers and consumers share its settings."""

    def __init__(self, bootstrap: Bootstrap) -> None:
        self.bootstrap = bootstrap
        self._heard: KafkaError | None = None
        self.admin = _create(AdminClient, self._settings())
        self._await_answer()

    def _await_answer(self) -> None:
        """The first answer proves the address; only then is a later silence about the question."""
        timeout_s = self.bootstrap.timeout_s
        found = _outcomes({"": self.admin.describe_cluster(request_timeout=timeout_s)}, timeout_s)[""]
        self.admin.poll(0)
        if isinstance(found, KafkaError):
            raise self.error(found, "cluster", str(self.bootstrap))

    def silence(self) -> str:
        """Why nothing came, as far as the network said."""
        within = f"no answer within {self.bootstrap.timeout_s:g} s"
        if self._heard is None:
            return within
        said = re.sub(r"^\S+/\S+: | \(after .*", "", self._heard.str())  # who said it, and in which state it was
        return f"{within} ({said})"

    def ask(self, call: Callable[[float], Mapping[K, "Future[T]"]]) -> dict[K, T | KafkaError]:
        """The answer or the error for each key; a coordinator that is just moving is asked again."""
        deadline = time.monotonic() + self.bootstrap.timeout_s
        while True:
            left_s = max(0.5, deadline - time.monotonic())
            found = _outcomes(call(left_s), left_s)
            moving = any(isinstance(each, KafkaError) and each.code() in _COORDINATOR_MOVING for each in found.values())
            if not moving or time.monotonic() + RETRY_PAUSE_S > deadline:
                self.admin.poll(0)
                return found
            time.sleep(RETRY_PAUSE_S)

    def ask_one(self, what: str, given: str, call: Callable[[float], "Future[T]"], *, change: str = "") -> T:
        """The answer about one thing; raises what went wrong."""
        found = self.ask(lambda left_s: {given: call(left_s)})
        return self.good(what, found, change=change)[given]

    def good(self, what: str, found: Mapping[K, T | KafkaError], *, change: str = "") -> dict[K, T]:
        """`found` if there is no error in it; otherwise raises the first."""
        answers: dict[K, T] = {}
        for key, answer in found.items():
            if isinstance(answer, KafkaError):
                raise self.error(answer, what, str(key), change=change)
            answers[key] = answer
        return answers

    def error(self, found: KafkaError, what: str, given: str, *, change: str = "") -> HoldfastError:
        """Our error for it. Where a `change` was asked for and no answer came, nobody knows whether it was made."""
        silent = found.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
        if silent and change:
            return KafkaOutcomeUnknownError(f"{change} {what} {given}", f"Kafka at {self.bootstrap}: {self.silence()}")
        return to_holdfast_error(found, what, given, self.bootstrap, reason=self.silence() if silent else "")

    def describe(self, topics: Iterable[str]) -> dict[str, TopicDescription]:
        """Each topic's description; raises when one does not exist. Never creates a topic."""
        names = list(dict.fromkeys(topics))
        for name in names:
            if not name:
                raise InvalidError("topic", name, "a name")
        described = self.ask(lambda left_s: self.admin.describe_topics(TopicCollection(names), request_timeout=left_s))
        return self.good("topic", described)

    def producer(self, settings: Mapping[str, Any]) -> Producer:
        """A producer with this connection's settings, then `settings`, then the user's."""
        return _create(Producer, self._settings(settings))

    def consumer(self, settings: Mapping[str, Any]) -> Consumer:
        """A consumer, likewise."""
        return _create(Consumer, self._settings(settings))

    def _settings(self, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap.servers,
            "client.id": "holdfast",
            "log_level": 0,  # it would write to our stderr; what matters comes through error_cb
            "error_cb": self._on_error,
            "socket.connection.setup.timeout.ms": max(1_000, int(self.bootstrap.timeout_s * 1_000)),
            "socket.timeout.ms": max(1_000, int(self.bootstrap.timeout_s * 1_000)),
            "reconnect.backoff.max.ms": 1_000,
            **(more or {}),
            **self.bootstrap.properties,
        }

    def _on_error(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # says less than the one before it
            self._heard = error


def _create(kind: Callable[[dict[str, Any]], T], settings: dict[str, Any]) -> T:
    try:
        return kind(settings)
    except KafkaException as refused:
        raise InvalidError("--client-config", settings["client.id"], kafka_error(refused).str()) from None


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
