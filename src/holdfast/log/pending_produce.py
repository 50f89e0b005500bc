"""Batches on their way into a partition, from the call that brought them to the answer about them."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holdfast.log.append_traces import AppendTraces, ending
from holdfast.log.batches import RecordBatch
from holdfast.log.model import ACKS_NONE, OnDurable
from holdfast.log.partition.append_place import AppendPlace
from holdfast.log.partition.appendable_log import AppendResult
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.vocabulary.tracing import Span


@dataclass(frozen=True, slots=True)
class ProduceResult:
    """Where records went. `append_time_ms` is -1 unless the topic takes append time."""

    base_offset: int
    end_offset: int
    start_offset: int
    append_time_ms: int = -1
    duplicate: bool = False


@dataclass(slots=True)
class PendingProduce:
    """Batches on their way into a partition; `appended` once they have their offsets."""

    _partition: LeadingPartition
    _batches: Sequence[RecordBatch]
    _append_time_ms: int
    _checked: "asyncio.Future[None] | None"  # None: they were checked
    appended: AppendResult | None = None
    parents: Sequence[Span] = ()  # of the span of this append; none: it has none
    traces: AppendTraces | None = None
    _place: AppendPlace | None = None
    _task: "asyncio.Future[ProduceResult] | None" = None

    def append_now(self) -> None:
        """Append if nothing has to be waited for; otherwise hold a place before all that come later."""
        if self._checked is None:
            self.appended = self._partition.append_now(self._batches)
        if self.appended is None:
            self._place = self._partition.hold_place()

    def start(self, *, acks: int) -> "asyncio.Future[ProduceResult]":
        """`finish` as a task. One that is cancelled before it began leaves its place."""
        self._task = task = asyncio.ensure_future(self.finish(acks=acks))
        task.add_done_callback(lambda _: self._leave())
        return task

    def cancel(self) -> None:
        """Wait no longer. What has no offsets yet gets none, which is noted at once: the task may not even have begun."""
        if self._task is not None and not self._task.done():
            if self.appended is None:
                self._partition.record_missed(header for header, _ in self._batches)
            self._task.cancel()

    async def finish(self, *, acks: int) -> ProduceResult:
        """Return once they are as durable as `acks` asks for. Raises what `LogService.produce` raises."""
        partition, appended = self._partition, self.appended
        if appended is None:
            try:
                appended = self.appended = await partition.append(self._batches, acks=ACKS_NONE, checked=self._checked)
            finally:
                self._leave()
        if self.traces is None or not self.parents:
            await partition.acknowledged(appended, acks=acks)
            return self._result(appended)
        span = self._begin_span(self.traces, appended)
        try:
            await partition.acknowledged(appended, acks=acks)
        except BaseException as error:
            span.end(type(error).__name__)
            raise
        span.end()
        return self._result(appended)

    def _begin_span(self, traces: AppendTraces, appended: AppendResult) -> Span:
        return traces.append(self._partition.partition_id, appended.base_offset, appended.end_offset, self.parents)

    def _leave(self) -> None:
        if self._place is not None:
            self._place.leave()

    def notify(
        self, on_result: Callable[[ProduceResult | BaseException], None], *, acks: int
    ) -> Callable[[], None] | None:
        """`finish` for what is `appended`, without a task: `on_result` is called with what it would return or raise.

        None: it was called. Otherwise what to call to wait no longer; until then it is kept.
        """
        appended = self.appended
        assert appended is not None

        def on_durable(error: BaseException | None) -> None:
            on_result(self._result(appended) if error is None else error)

        traced: OnDurable = on_durable
        if self.traces is not None and self.parents:
            traced = ending(self._begin_span(self.traces, appended), on_durable)
        return self._partition.notify_durable(appended, traced, acks=acks)

    def _result(self, appended: AppendResult) -> ProduceResult:
        start_offset = self._partition.start_offset
        return ProduceResult(
            appended.base_offset, appended.end_offset, start_offset, self._append_time_ms, appended.duplicate
        )


@dataclass(frozen=True, slots=True)
class AppendedTogether:
    """Batches of several requests that have their offsets, `offsets` has one for each; not durable yet."""

    _partition: LeadingPartition
    _appended: AppendResult
    append_time_ms: int
    _span: Span | None = None

    @property
    def offsets(self) -> list[int]:
        """The base offset of each batch."""
        return self._appended.offsets or [self._appended.base_offset]

    @property
    def start_offset(self) -> int:
        """The first offset of the partition that is still kept."""
        return self._partition.start_offset

    def notify(self, on_durable: OnDurable, *, acks: int) -> Callable[[], None] | None:
        """Call `on_durable` when all are as durable as `acks` asks for: with None, or with what `LogService.produce` raises.

        None: it was called. Otherwise what to call to wait no longer; until then it is kept.
        """
        if self._span is not None:
            on_durable = ending(self._span, on_durable)
        return self._partition.notify_durable(self._appended, on_durable, acks=acks)
