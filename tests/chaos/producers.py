"""Producers of a chaos run: real clients that write down each record before it is sent, and what they were told of it.

An idempotent producer never gives up, so that its outcomes become known; a plain one soon does, and librdkafka sends its records
again after errors by which a broker says that it leads no longer, whether they were appended or not. Both use every partition
in turn. The one rule: an error is `info`, unless it is known that nothing was appended.
"""

import threading
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from tests.chaos.history import Recorder

TURNS_PER_S: Final = 25
# What a broker, or the client itself, refuses before it appends anything.
REFUSED: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError._QUEUE_FULL,
    }
)
COMMON: Final = {
    "acks": "all",
    "linger.ms": 5,
    "log_level": 0,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 50,
    "topic.metadata.refresh.interval.ms": 2_000,
    "socket.timeout.ms": 8_000,
}
# No time-out: a record of an idempotent producer is acknowledged in the end. Plain ones are soon given up.
SETTINGS: Final = {
    "idempotent": {"enable.idempotence": True, "message.timeout.ms": 0},
    "plain": {"retries": 0, "message.timeout.ms": 4_000, "request.timeout.ms": 3_000},
}


class ChaosProducer:
    """One client, in a thread of its own while it is started."""

    def __init__(
        self, name: str, kind: str, bootstrap: str, topic: str, *, partitions: int, per_s: int, record: Recorder
    ) -> None:
        self.name, self._topic, self._partitions, self._record = name, topic, partitions, record
        self._per_turn = max(1, per_s // TURNS_PER_S)
        self.fatal = ""
        settings = {**COMMON, **SETTINGS[kind], "bootstrap.servers": bootstrap, "error_cb": self._failed}
        self._client = Producer(settings)
        record(name, "ok", "begin", kind=kind)
        self._ending, self._given_up, self._paused = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.sent = self.outstanding = 0

    def start(self) -> None:
        self._thread.start()

    def pause(self) -> None:
        """No records until `resume`."""
        self._paused.set()

    def resume(self) -> None:
        """Send again, if it was paused."""
        self._paused.clear()

    def end(self) -> None:
        """No more records."""
        self._ending.set()

    def flushed(self, within_s: float) -> bool:
        """Whether every record has an outcome by then; the client is gone in any case."""
        self._thread.join(within_s)
        self._given_up.set()
        self._thread.join()
        return not self.outstanding

    def _failed(self, error: KafkaError) -> None:
        if error.fatal() and not self.fatal:  # such a client sends nothing more
            self.fatal = error.str()
            self._record(self.name, "fail", "refuse", partition=-1, error=error.str())

    def _run(self) -> None:
        try:
            self._work()
        except KafkaException as error:  # raised by whatever is called after a fatal error
            self._failed(error.args[0])
        finally:
            self._client.purge()
            del self._client  # its threads connect until then

    def _work(self) -> None:
        while not self._ending.wait(1 / TURNS_PER_S):
            for _ in range(self._per_turn):
                if (
                    self.outstanding < 5_000 and not self._paused.is_set()
                ):  # while nothing is acknowledged, more records would show nothing more
                    self._send()
            self._client.poll(0)
        while self.outstanding and not self._given_up.is_set():
            self._client.poll(0.1)

    def _send(self) -> None:
        partition, number = self.sent % self._partitions, self.sent // self._partitions
        value = f"{self.name}/{partition}/{number}"
        self._record(self.name, "invoke", "send", partition=partition, value=value)
        self.sent += 1
        try:
            self._client.produce(self._topic, value.encode(), partition=partition, on_delivery=self._delivered)
        except (BufferError, KafkaException) as refused:  # by the client: it was not sent
            self._record(self.name, "fail", "send", partition=partition, value=value, error=str(refused))
            if isinstance(refused, KafkaException):
                raise
        else:
            self.outstanding += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        self.outstanding -= 1
        value = message.value()
        assert value is not None
        told = {"partition": message.partition(), "value": value.decode()}
        if error is None:
            self._record(self.name, "ok", "send", offset=message.offset(), **told)
        else:
            outcome = "fail" if error.code() in REFUSED else "info"
            self._record(self.name, outcome, "send", error=error.name(), **told)  # type: ignore[arg-type]
