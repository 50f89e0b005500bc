"""Produce requests that arrive together: read in one call, appended together, answered with one write.

A run is what one read of one connection brought of requests that differ in nothing but their batches. What all connections
brought in one turn of the event loop is appended per partition with one call, becomes one frame of the WAL, and is acknowledged
with one callback. So requests cost least when there are most of them, and a queue that formed while a disk stood still is gone
at once.

The one rule: nothing but speed depends on it. Batches that cannot be appended together at once, for whatever reason, are split into
the requests they came in, and those go the way of every other request, in the order of their arrival.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from struct import Struct
from typing import Final, NamedTuple

from holdfast.gateways.kafka.api import OnResponse, RequestContext, ResponseChunks
from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.gateways.kafka.produce import (
    PRODUCE_API,
    TOPIC_IDS_FROM,
    PartitionData,
    PartitionResult,
    failed_result,
    timed_out_result,
)
from holdfast.gateways.kafka.produce_responses import ResponseTemplate, SuccessTemplates, as_named, response_template
from holdfast.log.batches.header import LENGTH_COVERS_FROM
from holdfast.log.pending_produce import AppendedTogether
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.histogram import COUNT_BOUNDS, Histogram
from holdfast.vocabulary.native import native

_log: Final = logging.getLogger(__name__)

_VERSIONS: Final = (*PRODUCE_API.versions, PRODUCE_API.flexible_from, TOPIC_IDS_FROM)
_BATCH_LENGTH: Final = Struct(">8xi")


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
    found = None if native is None else native.produce_run(data, at, most, bytes_max, _VERSIONS)
    return None if found is None else ProduceRun._make(found)


OnSplit = Callable[[], Callable[[], None]]
"""Starts each request of a run by itself; what it returns sends the responses that are there already."""


class _WaitingRun(NamedTuple):
    run: ProduceRun
    call: RequestContext
    topic: str
    on_response: OnResponse
    on_split: OnSplit


class ProduceRuns:
    """The runs that arrived in one turn of the event loop."""

    def __init__(self, backend: KafkaBackend) -> None:
        self._backend = backend
        self._runs: list[_WaitingRun] = []
        self._templates = SuccessTemplates()
        self.requests_together = Histogram(COUNT_BOUNDS)

    def add(self, run: ProduceRun, call: RequestContext, on_response: OnResponse, on_split: OnSplit) -> None:
        """Append a run soon. `on_response` gets all its responses; or `on_split` is called, to start each request by itself."""
        topic = topic_of(run, self._backend)
        if not self._runs:
            asyncio.get_running_loop().call_soon(self.append)
        # An id that is not known: each by itself will say so.
        self._runs.append(_WaitingRun(run, call, topic or "", on_response, on_split))

    def append(self) -> None:
        """Append what was added, now: a request that is not in a run must not overtake it."""
        if not self._runs:
            return
        runs, self._runs = self._runs, []
        groups: dict[tuple[str, int], list[_WaitingRun]] = {}
        for waiting in runs:
            groups.setdefault((waiting.topic, waiting.run.partition), []).append(waiting)
        # All are begun before any is answered: a response makes room, and the request that gets it must not overtake the rest.
        begun = [each for group in groups.values() for each in self._append_together(group)]
        for answer in begun:
            answer()

    def _append_together(self, group: list[_WaitingRun]) -> list[Callable[[], None]]:
        """What is to be called when all groups were begun."""
        payloads = [waiting.run.payload for waiting in group]
        try:
            appended = self._backend.log.produce_together(group[0].topic, group[0].run.partition, payloads)
        except Exception as error:  # unexpected, so the outcome is unknown: it closes these connections, and no others
            return [partial(_respond, waiting, error) for waiting in group]
        if appended is None:
            return [waiting.on_split() for waiting in group]
        self.requests_together.observe(len(appended.offsets))
        at = 0
        pending: dict[tuple[int, int], _PendingRuns] = {}
        for waiting in group:
            run = waiting.run
            kind = (run.acks, run.timeout_ms)
            if kind not in pending:
                pending[kind] = _PendingRuns(appended, self._templates)
            end = at + len(run.correlations)
            pending[kind].runs.append((waiting, appended.offsets[at:end]))
            at = end
        timeout_max_ms = self._backend.settings.produce_timeout_max_ms
        return [
            partial(each.wait, acks, min(timeout_ms, timeout_max_ms)) for (acks, timeout_ms), each in pending.items()
        ]


class _PendingRuns:
    """Runs that were appended together, until they are durable, or until their timeout."""

    def __init__(self, appended: AppendedTogether, templates: SuccessTemplates) -> None:
        self.runs: list[tuple[_WaitingRun, Sequence[int]]] = []
        self._appended, self._templates = appended, templates
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
            self._respond(partial(_failed, partial(failed_result, error=error)))
        elif not self._answered:
            self._answer()
            for waiting, _ in self.runs:
                _respond(waiting, error)

    def _expired(self, timeout_ms: int) -> None:
        self._respond(partial(_failed, partial(timed_out_result, timeout_ms=timeout_ms)))

    def _respond(self, template_of: Callable[[_WaitingRun], ResponseTemplate]) -> None:
        if self._answered:
            return
        self._answer()
        for waiting, offsets in self.runs:
            _respond(waiting, (template_of(waiting).responses(waiting.run.correlations, offsets),))

    def _succeeded(self, waiting: _WaitingRun) -> ResponseTemplate:
        run, appended = waiting.run, self._appended
        data = PartitionData(waiting.topic, run.partition, None)
        return self._templates.get(waiting.call, run.named, data, appended.append_time_ms, appended.start_offset)

    def _answer(self) -> None:
        self._answered = True
        if self._timer is not None:
            self._timer.cancel()
        if self._cancel is not None:
            self._cancel()  # a producer that sends again and again what is not durable must not fill the memory


def _failed(outcome: Callable[[PartitionData], PartitionResult], waiting: _WaitingRun) -> ResponseTemplate:
    run = waiting.run
    return response_template(
        waiting.call, as_named(run.named), outcome(PartitionData(waiting.topic, run.partition, None))
    )


def _respond(waiting: _WaitingRun, response: ResponseChunks | BaseException) -> None:
    try:
        waiting.on_response(response)
    except Exception:  # those of other connections must be sent all the same
        _log.exception("responding to %r failed", waiting.call.client_id)


def topic_of(run: ProduceRun, backend: KafkaBackend) -> str | None:
    """The name of the run's topic; None: its id is not known."""
    return run.named if isinstance(run.named, str) else backend.cluster.name_of(run.named.hex())
