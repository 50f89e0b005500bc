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
from typing import Final, NamedTuple, Protocol

from holdfast.gateways.kafka.api import RequestContext, ResponseChunks
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
from holdfast.log.batches.header import LENGTH_COVERS_FROM
from holdfast.log.pending_produce import AppendedTogether
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.histogram import COUNT_BOUNDS, Histogram
from holdfast.vocabulary.native import native
from holdfast.vocabulary.tracing import Span

_log: Final = logging.getLogger(__name__)

_VERSIONS: Final = (*PRODUCE_API.versions, PRODUCE_API.flexible_from, TOPIC_IDS_FROM)
_BATCH_LENGTH: Final = Struct(">8xi")

_RunKind = tuple[int, int, int, str | bytes]  # acks, timeout, version, topic: runs alike in these get one template


class ProduceRun(NamedTuple):
    """Requests with one batch each, all for one partition; `payload` has the batches one behind the other."""

    size_bytes: int  # of the requests, with their lengths
    version: int
    client_id: str | None
    acks: int
    timeout_ms: int
    named: str | bytes  # bytes: the topic's id
    partition: int
    correlations: list[int]
    payload: bytearray

    def batches(self) -> list[memoryview]:
        """The batch of each request."""
        view, at, found = memoryview(self.payload), 0, []
        for _ in self.correlations:
            (length,) = _BATCH_LENGTH.unpack_from(view, at)
            end = at + length + LENGTH_COVERS_FROM
            found.append(view[at:end])
            at = end
        return found


def scan_run(data: memoryview, at: int, *, most: int, bytes_max: int) -> ProduceRun | None:
    """The run at `at`, of at most `most` requests of at most `bytes_max`; None: there is none."""
    if native is None:
        return None
    found: ProduceRun | None = native.produce_run(data, at, most, bytes_max, _VERSIONS, ProduceRun)
    return found


class WaitingRun(Protocol):
    """A run on its way, as its connection keeps it."""

    @property
    def run(self) -> ProduceRun: ...

    @property
    def span(self) -> Span | None:
        """Of the run, if it is traced."""
        ...

    @property
    def call(self) -> RequestContext:
        """What all its requests are like, but for their correlation ids."""
        ...

    def respond(self, response: ResponseChunks | BaseException) -> None:
        """All its responses, or the error that closes its connection."""
        ...

    def split(self) -> Callable[[], None]:
        """Start each request by itself; what it returns sends the responses that are there already."""
        ...


class ProduceRuns:
    """The runs that arrived in one turn of the event loop."""

    def __init__(self, backend: KafkaBackend) -> None:
        self._backend = backend
        self._runs: list[WaitingRun] = []
        self._added_at_ms = 0  # the first of them
        self._templates = SuccessTemplates()
        self.requests_together = Histogram(COUNT_BOUNDS)

    def add(self, waiting: WaitingRun) -> int:
        """Append a run soon: it gets all its responses, or is split, to start each request by itself.

        Returns the boot time of the first run of this turn: one look at the clock is enough for all.
        """
        if not self._runs:
            self._added_at_ms = self._backend.clock.boot_ms()
            asyncio.get_running_loop().call_soon(self.append)
        self._runs.append(waiting)
        return self._added_at_ms

    def append(self) -> None:
        """Append what was added, now: a request that is not in a run must not overtake it."""
        if not self._runs:
            return
        runs, self._runs = self._runs, []
        groups: dict[tuple[str, int], list[WaitingRun]] = {}
        named: dict[tuple[str | bytes, int], list[WaitingRun]] = {}  # the same groups, by what clients call the topic
        refused: list[WaitingRun] = []
        for waiting in runs:
            run = waiting.run
            # An id that is not known, a topic that may not be written to: each by itself will say so.
            if waiting.call.access is not None and not may_produce(waiting.call, topic_of(run, self._backend) or ""):
                refused.append(waiting)
                continue
            group = named.get((run.named, run.partition))
            if group is None:
                topic = topic_of(run, self._backend) or ""
                group = groups.setdefault((topic, run.partition), [])
                named[run.named, run.partition] = group
            group.append(waiting)
        # All are begun before any is answered: a response makes room, and the request that gets it must not overtake the rest.
        begun = [
            each for (topic, number), group in groups.items() for each in self._append_together(topic, number, group)
        ]
        begun += [waiting.split() for waiting in refused]
        for answer in begun:
            answer()

    def _append_together(self, topic: str, partition: int, group: list[WaitingRun]) -> list[Callable[[], None]]:
        """What is to be called when all groups were begun."""
        payloads = [waiting.run.payload for waiting in group]
        try:
            if self._backend.tracer is None:
                appended = self._backend.log.produce_together(topic, partition, payloads)
            else:
                spans = [waiting.span for waiting in group if waiting.span is not None]
                appended = self._backend.log.produce_together(topic, partition, payloads, spans)
        except Exception as error:  # unexpected, so the outcome is unknown: it closes these connections, and no others
            return [partial(_respond, waiting, error) for waiting in group]
        if appended is None and len(group) > 1:
            # Too much for one append, or one of them is at fault, which must not cost the others the short way.
            half = len(group) // 2
            halves = group[:half], group[half:]
            return [each for part in halves for each in self._append_together(topic, partition, part)]
        if appended is None:
            return [group[0].split()]
        self.requests_together.observe(len(appended.offsets))
        return [
            partial(each.wait, acks, min(timeout_ms, self._backend.settings.produce_timeout_max_ms))
            for (acks, timeout_ms, _, _), each in self._pending(topic, group, appended).items()
        ]

    def _pending(
        self, topic: str, group: list[WaitingRun], appended: AppendedTogether
    ) -> "dict[_RunKind, _PendingRuns]":
        """Those that were appended together, by what decides when and how they are answered."""
        offsets, at = appended.offsets, 0
        kinds = [(run.acks, run.timeout_ms, run.version, run.named) for run in [waiting.run for waiting in group]]
        if kinds.count(kinds[0]) == len(kinds):
            return {kinds[0]: _PendingRuns(topic, appended, self._templates, group, offsets)}
        pending: dict[_RunKind, _PendingRuns] = {}
        for kind, waiting in zip(kinds, group, strict=True):
            if kind not in pending:
                pending[kind] = _PendingRuns(topic, appended, self._templates, [], [])
            end = at + len(waiting.run.correlations)
            pending[kind].runs.append(waiting)
            pending[kind].offsets += offsets[at:end]
            at = end
        return pending


class _PendingRuns:
    """Runs of one kind that were appended together, until they are durable, or until their timeout."""

    def __init__(
        self,
        topic: str,
        appended: AppendedTogether,
        templates: SuccessTemplates,
        runs: list[WaitingRun],
        offsets: list[int],
    ) -> None:
        self.runs, self.offsets = runs, offsets
        self._topic, self._appended, self._templates = topic, appended, templates
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
            self._respond(self._succeeded)
        elif isinstance(error, HoldfastError):
            self._respond(partial(self._failed, partial(failed_result, error=error)))
        elif not self._answered:
            self._answer()
            for waiting in self.runs:
                _respond(waiting, error)

    def _expired(self, timeout_ms: int) -> None:
        self._respond(partial(self._failed, partial(timed_out_result, timeout_ms=timeout_ms)))

    def _respond(self, template_of: Callable[[WaitingRun], ResponseTemplate]) -> None:
        if self._answered:
            return
        self._answer()
        correlations = [waiting.run.correlations for waiting in self.runs]
        responses = template_of(self.runs[0]).responses(correlations, self.offsets)
        for waiting, response in zip(self.runs, responses, strict=True):
            try:
                waiting.respond((response,))
            except Exception:
                _log_failed(waiting)

    def _succeeded(self, waiting: WaitingRun) -> ResponseTemplate:
        run, appended = waiting.run, self._appended
        data = PartitionData(self._topic, run.partition, None)
        return self._templates.get(waiting.call, run.named, data, appended.append_time_ms, appended.start_offset)

    def _failed(self, outcome: Callable[[PartitionData], PartitionResult], waiting: WaitingRun) -> ResponseTemplate:
        result = outcome(PartitionData(self._topic, waiting.run.partition, None))
        return response_template(waiting.call, as_named(waiting.run.named), result)

    def _answer(self) -> None:
        self._answered = True
        if self._timer is not None:
            self._timer.cancel()
        if self._cancel is not None:
            self._cancel()  # a producer that sends again and again what is not durable must not fill the memory


def _respond(waiting: WaitingRun, error: BaseException) -> None:
    try:
        waiting.respond(error)
    except Exception:
        _log_failed(waiting)


def _log_failed(waiting: WaitingRun) -> None:
    """Those of other connections must be sent all the same."""
    _log.exception("responding to %r failed", waiting.call.client_id)


def topic_of(run: ProduceRun, backend: KafkaBackend) -> str | None:
    """The name of the run's topic; None: its id is not known."""
    return run.named if isinstance(run.named, str) else backend.cluster.name_of(run.named.hex())
