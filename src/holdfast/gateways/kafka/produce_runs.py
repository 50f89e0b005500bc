"""Produce requests that arrive together: read in one call, appended together, answered with one write.

A run is what one read of one connection brought of requests that differ in nothing but their batches. What all connections
brought in one turn of the event loop is appended per partition with one call, becomes one frame of the WAL, and is acknowledged
with one callback. So requests cost least when there are most of them, and a queue that formed while a disk stood still is gone
at once.

The one rule: nothing but speed depends on it. What cannot be appended together at once, for whatever reason, is halved down to the
runs of single connections, and a run that fails by itself is split into the requests it came in: those go the way of every other
request, in the order of their arrival.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final, Protocol

from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.gateways.kafka.produce import (
    PRODUCE_API,
    TOPIC_IDS_FROM,
    PartitionData,
    PartitionResult,
    failed_result,
    may_produce,
    timed_out_result,
)
from holdfast.gateways.kafka.produce_responses import ResponseTemplate, SuccessTemplates, as_named, response_template
from holdfast.gateways.kafka.response_budget import COUNTED_BYTES_MIN
from holdfast.log.batches.header import LENGTH_COVERS_FROM
from holdfast.log.pending_produce import AppendedTogether
from holdfast.vocabulary.clock import stopwatch_ns
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.histogram import COUNT_BOUNDS, Histogram, Latencies
from holdfast.vocabulary.native import native

if TYPE_CHECKING:
    from holdfast._native import ProduceRun

_log: Final = logging.getLogger(__name__)

RUN_VERSIONS: Final = (*PRODUCE_API.versions, PRODUCE_API.flexible_from, TOPIC_IDS_FROM)
_BATCH_LENGTH: Final = Struct(">8xi")

_RunKind = tuple[int, int, int, str | bytes]  # acks, timeout, version, topic: runs alike in these get one template


class RunConnection(Protocol):
    """The connection of a run."""

    def respond_to_run(self, run: "ProduceRun", response: bytes | BaseException) -> None:
        """Send all its responses, or close the connection for an error."""
        ...

    def fail(self, error: Exception) -> None:
        """Close the connection for an error of its transport."""
        ...

    def split_run(self, run: "ProduceRun") -> Callable[[], None]:
        """Start each request by itself; what it returns sends the responses that are there already."""
        ...


class RunHost(Protocol):
    """What counts the requests of all connections."""

    requests: int
    latencies: Latencies

    def released(self, size: int) -> None:
        """Requests were answered."""
        ...


def batches_of(run: "ProduceRun") -> list[memoryview]:
    """The batch of each request."""
    view, at, found = memoryview(run.payload), 0, []
    for _ in run.correlations:
        (length,) = _BATCH_LENGTH.unpack_from(view, at)
        end = at + length + LENGTH_COVERS_FROM
        found.append(view[at:end])
        at = end
    return found


class ProduceRuns:
    """The runs that arrived in one turn of the event loop."""

    def __init__(self, backend: KafkaBackend, host: RunHost) -> None:
        self._backend, self._host = backend, host
        self.inbox: list[ProduceRun] = []  # whoever adds the first of a turn calls `begin`
        self._templates = SuccessTemplates()
        self.requests_together = Histogram(COUNT_BOUNDS)

    def add(self, run: "ProduceRun") -> None:
        """Append a run soon: it gets all its responses, or is split, to start each request by itself."""
        if not self.inbox:
            self.begin()
        self.inbox.append(run)

    def begin(self) -> None:
        """Append what this turn brings, at its end."""
        asyncio.get_running_loop().call_soon(self.append)

    def append(self) -> None:
        """Append what was added, now: a request that is not in a run must not overtake it."""
        if not self.inbox:
            return
        runs = self.inbox.copy()
        self.inbox.clear()
        self._host.requests += sum([run.count for run in runs])
        groups, refused = self._grouped(runs)
        # All are begun before any is answered: a response makes room, and the request that gets it must not overtake the rest.
        begun = [
            each for (topic, number), group in groups.items() for each in self._append_together(topic, number, group)
        ]
        begun += [run.connection.split_run(run) for run in refused]
        for answer in begun:
            answer()

    def _grouped(self, runs: "list[ProduceRun]") -> "tuple[dict[tuple[str, int], list[ProduceRun]], list[ProduceRun]]":
        """Those of each partition, and those whose clients may not produce to it."""
        assert native is not None, "without it there are no runs"
        if self._backend.security is None and native.runs_alike(runs, False):
            return {(topic_of(runs[0], self._backend) or "", runs[0].partition): runs}, []
        groups: dict[tuple[str, int], list[ProduceRun]] = {}
        named: dict[tuple[str | bytes, int], list[ProduceRun]] = {}  # the same groups, by what clients call the topic
        refused: list[ProduceRun] = []
        for run in runs:
            # An id that is not known, a topic that may not be written to: each by itself will say so.
            if run.call.access is not None and not may_produce(run.call, topic_of(run, self._backend) or ""):
                refused.append(run)
                continue
            group = named.get((run.named, run.partition))
            if group is None:
                topic = topic_of(run, self._backend) or ""
                group = groups.setdefault((topic, run.partition), [])
                named[run.named, run.partition] = group
            group.append(run)
        return groups, refused

    def _append_together(self, topic: str, partition: int, group: "list[ProduceRun]") -> list[Callable[[], None]]:
        """What is to be called when all groups were begun."""
        payloads = [run.payload for run in group]
        try:
            if self._backend.tracer is None:
                appended = self._backend.log.produce_together(topic, partition, payloads)
            else:
                spans = [run.span for run in group if run.span is not None]
                appended = self._backend.log.produce_together(topic, partition, payloads, spans)
        except Exception as error:  # unexpected, so the outcome is unknown: it closes these connections, and no others
            return [partial(_fail, run, error) for run in group]
        if appended is None and len(group) > 1:
            # Too much for one append, or one of them is at fault, which must not cost the others the short way.
            half = len(group) // 2
            halves = group[:half], group[half:]
            return [each for part in halves for each in self._append_together(topic, partition, part)]
        if appended is None:
            return [group[0].connection.split_run(group[0])]
        self.requests_together.observe(len(appended.offsets))
        return [
            partial(each.wait, acks, min(timeout_ms, self._backend.settings.produce_timeout_max_ms))
            for (acks, timeout_ms, _, _), each in self._pending(topic, group, appended).items()
        ]

    def _pending(
        self, topic: str, group: "list[ProduceRun]", appended: AppendedTogether
    ) -> "dict[_RunKind, _PendingRuns]":
        """Those that were appended together, by what decides when and how they are answered."""
        assert native is not None, "without it there are no runs"
        offsets, at = appended.offsets, 0
        if native.runs_alike(group, True):
            return {_kind_of(group[0]): _PendingRuns(topic, appended, self, group, offsets)}
        pending: dict[_RunKind, _PendingRuns] = {}
        for run in group:
            kind = _kind_of(run)
            if kind not in pending:
                pending[kind] = _PendingRuns(topic, appended, self, [], [])
            end = at + run.count
            pending[kind].runs.append(run)
            pending[kind].offsets += offsets[at:end]
            at = end
        return pending

    def respond(self, runs: "list[ProduceRun]", responses: list[bytes]) -> None:
        """Send the responses to runs of several connections."""
        assert native is not None, "without it there are no runs"
        now_ns, now_ms = stopwatch_ns(), self._backend.clock.boot_ms()
        size, count, took_ns, shortest_ns, longest_ns, left, unread = native.send_responses(
            runs, responses, now_ms, now_ns, not self._backend.quotas.any, COUNTED_BYTES_MIN
        )
        latencies, others = self._host.latencies[PRODUCE_API.name], {id(run) for run, _ in left}
        if not latencies.observe_alike(count, took_ns / 1e9, least=shortest_ns / 1e9, most=longest_ns / 1e9):
            for run in runs:
                if id(run) not in others:
                    latencies.observe((now_ns - run.arrived_ns) / 1e9, run.count)
        for connection, unread_bytes in unread:
            if isinstance(unread_bytes, int):
                self._backend.responses.written(connection, unread_bytes, now_ms)
            else:
                connection.fail(unread_bytes)
        for run, response in left:
            try:
                run.connection.respond_to_run(run, response)
            except Exception:  # those of other connections must be sent all the same
                _log_failed(run)
        self._host.released(size)  # last: requests that waited for the room start now

    def template_of(self, topic: str, appended: AppendedTogether, run: "ProduceRun") -> ResponseTemplate:
        """The response to what was appended."""
        data = PartitionData(topic, run.partition, None)
        return self._templates.get(run.call, run.named, data, appended.append_time_ms, appended.start_offset)


class _PendingRuns:
    """Runs of one kind that were appended together, until they are durable, or until their timeout."""

    def __init__(
        self,
        topic: str,
        appended: AppendedTogether,
        produce_runs: ProduceRuns,
        runs: "list[ProduceRun]",
        offsets: list[int],
    ) -> None:
        self.runs, self.offsets = runs, offsets
        self._topic, self._appended, self._produce_runs = topic, appended, produce_runs
        self._timer: asyncio.TimerHandle | None = None
        self._cancel: Callable[[], None] | None = None  # of waiting until they are durable
        self._answered = False

    def wait(self, acks: int, timeout_ms: int) -> None:
        """Respond when they are as durable as `acks` asks for, or after `timeout_ms`."""
        self._cancel = self._appended.notify(self._on_durable, acks=acks)
        if not self._answered:
            after_s = max(0, timeout_ms) / 1000
            self._timer = asyncio.get_running_loop().call_later(after_s, self._expired, timeout_ms)

    def _on_durable(self, error: BaseException | None) -> None:
        if error is None:
            self._respond(partial(self._produce_runs.template_of, self._topic, self._appended))
        elif isinstance(error, HoldfastError):
            self._respond(partial(self._failed, partial(failed_result, error=error)))
        elif not self._answered:
            self._answer()
            for run in self.runs:
                _fail(run, error)

    def _expired(self, timeout_ms: int) -> None:
        self._respond(partial(self._failed, partial(timed_out_result, timeout_ms=timeout_ms)))

    def _respond(self, template_of: "Callable[[ProduceRun], ResponseTemplate]") -> None:
        if self._answered:
            return
        self._answer()
        correlations = [run.correlations for run in self.runs]
        self._produce_runs.respond(self.runs, template_of(self.runs[0]).responses(correlations, self.offsets))

    def _failed(self, outcome: Callable[[PartitionData], PartitionResult], run: "ProduceRun") -> ResponseTemplate:
        result = outcome(PartitionData(self._topic, run.partition, None))
        return response_template(run.call, as_named(run.named), result)

    def _answer(self) -> None:
        self._answered = True
        if self._timer is not None:
            self._timer.cancel()
        if self._cancel is not None:
            self._cancel()  # a producer that sends again and again what is not durable must not fill the memory


def _kind_of(run: "ProduceRun") -> _RunKind:
    return run.acks, run.timeout_ms, run.version, run.named


def _fail(run: "ProduceRun", error: BaseException) -> None:
    try:
        run.connection.respond_to_run(run, error)
    except Exception:
        _log_failed(run)


def _log_failed(run: "ProduceRun") -> None:
    _log.exception("responding to %r failed", run.client_id)


def topic_of(run: "ProduceRun", backend: KafkaBackend) -> str | None:
    """The name of the run's topic; None: its id is not known."""
    return run.named if isinstance(run.named, str) else backend.cluster.name_of(run.named.hex())
