"""Heaps: administration, messages, leases and dead letters."""

from collections.abc import AsyncIterable, AsyncIterator
from typing import Final

from holdfast.gateways.grpc.access import CallAccess
from holdfast.gateways.grpc.backend import GrpcBackend
from holdfast.gateways.grpc.entries import SETTINGS_MAX, check_count
from holdfast.gateways.grpc.heap_messages import enqueued, figures, heap, new_heap, new_message, new_messages, waiting
from holdfast.gateways.grpc.open_streams import open_stream, until_stopped
from holdfast.gateways.grpc.services.pop_stream import PopStream
from holdfast.gateways.heap.calls import HeapCalls
from holdfast.gateways.heap.inspection import peek, stats
from holdfast.gateways.log_access.off_loop import off_loop
from holdfast.gateways.log_access.pages import page_of
from holdfast.heap import wire
from holdfast.heap.dead_letters import DeadLetterReport
from holdfast.heap.errors import LeaseLostError
from holdfast.heap.local_heaps import DLQ_SUFFIX
from holdfast.heap.model import MESSAGES_MAX, PeekedMessage
from holdfast.log.topics import UnknownTopicError
from holdfast.security.acls import Operation, ResourceType
from holdfast.security.confirmations import ALWAYS, ANYBODY, Action
from holdfast.v1 import heap_service_pb2 as pb
from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.settings import check_between, check_one_of
from holdfast.vocabulary.tasks import gather_limited

_PEEKED: Final = 10
_STATS_AT_ONCE: Final = 8


class HeapService:
    """`holdfast.v1.HeapService`."""

    def __init__(self, backend: GrpcBackend) -> None:
        self._backend = backend

    @property
    def _calls(self) -> HeapCalls:
        if self._backend.heaps is None:
            raise UnavailableError("heaps", "not served by this node")
        return self._backend.heaps

    # ── administration ──

    async def make_heap(self, request: pb.MakeHeapRequest, access: CallAccess) -> pb.MakeHeapResponse:
        access.require_cluster_or(Operation.CREATE, ResourceType.TOPIC, request.topic)
        config, log = new_heap(request)
        made = await self._calls.administration.create(request.topic, request.partitions or 1, config, log)
        return pb.MakeHeapResponse(heap=heap(made))

    async def delete_heap(self, request: pb.DeleteHeapRequest, access: CallAccess) -> pb.DeleteHeapResponse:
        await self._confirm(Action.DELETE_HEAP, request, access)
        await self._calls.administration.delete(request.topic)
        return pb.DeleteHeapResponse()

    async def update_heap_config(
        self, request: pb.UpdateHeapConfigRequest, access: CallAccess
    ) -> pb.UpdateHeapConfigResponse:
        check_count("set_config", request.set_config, SETTINGS_MAX)
        check_count("reset_config", request.reset_config, SETTINGS_MAX)
        if twice := sorted(set(request.set_config) & set(request.reset_config)):
            raise InvalidError("reset_config", twice, "settings that set_config does not have")
        changes = {**request.set_config, **dict.fromkeys(request.reset_config)}
        partitions = request.partitions if request.HasField("partitions") else None
        changed = await self._calls.administration.update(request.topic, changes, partitions=partitions)
        return pb.UpdateHeapConfigResponse(heap=heap(changed))

    async def list_heaps(self, request: pb.ListHeapsRequest, access: CallAccess) -> pb.ListHeapsResponse:
        found = await self._calls.administration.list()
        shown = [each for each in found if self._shown(access, each.name)]
        page = page_of(shown, lambda each: each.name, request)
        return pb.ListHeapsResponse(heaps=map(heap, page.items), next_page_token=page.next_page_token)

    async def stats(self, request: pb.StatsRequest, access: CallAccess) -> pb.StatsResponse:
        if request.topic:
            access.require(Operation.DESCRIBE, ResourceType.TOPIC, request.topic)
            names = [request.topic]
        else:
            found = await self._calls.administration.list()
            names = [each.name for each in found if self._shown(access, each.name)]
        partition = request.partition if request.HasField("partition") else None

        async def of(name: str) -> pb.HeapFigures:
            return figures(await stats(self._calls, name, partition=partition))

        return pb.StatsResponse(heaps=await gather_limited(of, names, _STATS_AT_ONCE))

    async def purge(self, request: pb.PurgeRequest, access: CallAccess) -> pb.PurgeResponse:
        await self._confirm(Action.PURGE_HEAP, request, access)
        return pb.PurgeResponse(purged=await self._calls.call(wire.PurgeRequest(topic=request.topic)))

    async def create_confirmation(
        self, request: pb.CreateConfirmationRequest, access: CallAccess
    ) -> pb.CreateConfirmationResponse:
        check_one_of("action", request.action, tuple(sorted(ALWAYS)))
        made = await self._backend.confirmations.create(request.action, request.resource, _principal(access))
        return pb.CreateConfirmationResponse(confirmation_token=made.token, expires_time_ms=made.expires_at_ms)

    async def _confirm(
        self,
        action: Action,
        request: pb.DeleteHeapRequest | pb.PurgeRequest | pb.DeleteDeadLettersRequest,
        access: CallAccess,
    ) -> None:
        await self._calls.heap(request.topic)
        await self._backend.confirmations.check(
            action,
            request.topic,
            force=request.force,
            token=request.confirmation_token,
            principal=_principal(access),
        )

    def _shown(self, access: CallAccess, name: str) -> bool:
        return not name.endswith(DLQ_SUFFIX) and access.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)

    # ── messages ──

    async def enqueue(self, request: pb.EnqueueRequest, access: CallAccess) -> pb.EnqueueResponse:
        message = await off_loop(request.ByteSize(), lambda: new_message(request))
        [found] = await self._calls.call(wire.EnqueueRequest(topic=request.topic, messages=[message]))
        return enqueued(found)

    async def enqueue_batch(self, request: pb.EnqueueBatchRequest, access: CallAccess) -> pb.EnqueueBatchResponse:
        given = request.requests
        check_between("number of requests", len(given), 1, MESSAGES_MAX)
        topic = given[0].topic
        access.require(Operation.WRITE, ResourceType.TOPIC, topic)
        messages = await off_loop(request.ByteSize(), lambda: new_messages(given))
        found = await self._calls.call(wire.EnqueueRequest(topic=topic, messages=messages))
        return pb.EnqueueBatchResponse(responses=map(enqueued, found))

    async def pop_stream(
        self, requests: AsyncIterable[pb.PopStreamRequest], access: CallAccess
    ) -> AsyncIterator[pb.PopStreamResponse]:
        """Messages as there are credits for them."""
        stream = PopStream(self._calls, access)
        with open_stream(self._backend):
            async for response in until_stopped(stream.items(requests), self._backend.stopping):
                yield response

    async def peek(self, request: pb.PeekRequest, access: CallAccess) -> pb.PeekResponse:
        limit, partition = request.limit or _PEEKED, request.partition if request.HasField("partition") else None
        items = [waiting(each) for each in await peek(self._calls, request.topic, limit=limit, partition=partition)]
        if request.include_dlq and len(items) < limit:
            items += await self._peeked_letters(request.topic, limit - len(items), partition)
        return pb.PeekResponse(items=items)

    async def _peeked_letters(self, topic: str, limit: int, partition: int | None) -> list[pb.WaitingMessage]:
        try:
            letters = await peek(self._calls, topic + DLQ_SUFFIX, limit=limit, partition=partition)
        except UnknownTopicError:
            return []  # the heap has none
        return [waiting(each, dlq=True) for each in letters]

    async def reprioritise(self, request: pb.ReprioritiseRequest, access: CallAccess) -> pb.ReprioritiseResponse:
        await self._calls.call(
            wire.ReprioritiseRequest(topic=request.topic, message_id=request.message_id, priority=request.priority)
        )
        return pb.ReprioritiseResponse()

    async def cancel(self, request: pb.CancelRequest, access: CallAccess) -> pb.CancelResponse:
        await self._calls.call(wire.CancelRequest(topic=request.topic, message_id=request.message_id))
        return pb.CancelResponse()

    # ── leases ──

    async def ack(self, request: pb.AckRequest, access: CallAccess) -> pb.AckResponse:
        await self._settle(wire.AckRequest(topic=request.topic, tokens=[request.lease_token]), request.message_id)
        return pb.AckResponse()

    async def nack(self, request: pb.NackRequest, access: CallAccess) -> pb.NackResponse:
        asked = wire.NackRequest(
            topic=request.topic,
            tokens=[request.lease_token],
            backoff_ms=request.backoff_override_ms if request.HasField("backoff_override_ms") else None,
            reason=request.reason,
        )
        await self._settle(asked, request.message_id)
        return pb.NackResponse()

    async def release(self, request: pb.ReleaseRequest, access: CallAccess) -> pb.ReleaseResponse:
        await self._settle(wire.ReleaseRequest(topic=request.topic, tokens=[request.lease_token]), request.message_id)
        return pb.ReleaseResponse()

    async def extend(self, request: pb.ExtendRequest, access: CallAccess) -> pb.ExtendResponse:
        asked = wire.ExtendRequest(topic=request.topic, tokens=[request.lease_token], extension_ms=request.extension_ms)
        return pb.ExtendResponse(lease_deadline_ms=await self._settle(asked))

    async def _settle(self, asked: wire.HeapRequest, message_id: str = "") -> int | None:
        """What became of one lease. `LeaseLostError`."""
        [found] = await self._calls.call(asked)
        if isinstance(found, wire.LostLease):
            raise LeaseLostError(asked.topic, found.message_id or message_id, found.reason)
        deadline_ms: int | None = found
        return deadline_ms

    # ── dead letters ──

    async def move_to_dlq(self, request: pb.MoveToDlqRequest, access: CallAccess) -> pb.MoveToDlqResponse:
        await self._calls.call(
            wire.MoveRequest(topic=request.topic, message_id=request.message_id, reason=request.reason)
        )
        return pb.MoveToDlqResponse()

    async def list_dead_letters(
        self, request: pb.ListDeadLettersRequest, access: CallAccess
    ) -> pb.ListDeadLettersResponse:
        letters: list[PeekedMessage] = await self._calls.call(_letters(request.topic, "list", request.filter))
        return pb.ListDeadLettersResponse(items=[waiting(each, dlq=True) for each in letters])

    async def replay_dead_letters(
        self, request: pb.ReplayDeadLettersRequest, access: CallAccess
    ) -> pb.ReplayDeadLettersResponse:
        rate_per_s = request.rate_per_s if request.HasField("rate_per_s") else None
        asked = _letters(request.topic, "replay", request.filter, request.dry_run, rate_per_s)
        report: DeadLetterReport = await self._calls.call(asked)
        return pb.ReplayDeadLettersResponse(matched=report.matched, changed=report.changed)

    async def delete_dead_letters(
        self, request: pb.DeleteDeadLettersRequest, access: CallAccess
    ) -> pb.DeleteDeadLettersResponse:
        asked = _letters(request.topic, "delete", request.filter, request.dry_run)
        if not request.dry_run:
            await self._confirm(Action.DELETE_DEAD_LETTERS, request, access)
        report: DeadLetterReport = await self._calls.call(asked)
        return pb.DeleteDeadLettersResponse(matched=report.matched, changed=report.changed)


def _principal(access: CallAccess) -> str:
    return ANYBODY if access.identity is None else str(access.identity.principal)


def _letters(
    topic: str, action: str, chosen: pb.DeadLetterFilter, dry_run: bool = False, rate_per_s: float | None = None
) -> wire.DeadLettersRequest:
    if chosen.limit < 0:
        raise InvalidError("filter.limit", chosen.limit, "at least 0")
    return wire.DeadLettersRequest(
        topic=topic,
        action=action,
        message_ids=list(chosen.message_ids) or None,
        reason_contains=chosen.reason_contains,
        attempts_min=chosen.attempts_min,
        moved_before_ms=chosen.moved_before_ms if chosen.HasField("moved_before_ms") else None,
        limit=chosen.limit or None,
        dry_run=dry_run,
        rate_per_s=rate_per_s,
    )
