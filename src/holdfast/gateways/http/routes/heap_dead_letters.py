"""Dead letters of heaps: list, look at, replay, delete; and messages that an operator sends there."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from litestar import get, post
from litestar.params import QueryParameter

from holdfast.gateways.http.access import require
from holdfast.gateways.http.heap.bodies import DeadLettersBody, DeleteLettersBody, MoveBody, ReplayBody
from holdfast.gateways.http.heap.results import ChangedMessage, DeadLettersChanged, PeekedItem, PeekedItems
from holdfast.gateways.http.routes.bodies import decoded_body
from holdfast.gateways.http.routes.confirmations import ConfirmationsDependency, principal_of
from holdfast.gateways.http.routes.dependencies import HttpRequest
from holdfast.gateways.http.routes.heap_dependencies import HEAP_PATH, HeapRoutes, HeapsDependency
from holdfast.gateways.log_access.off_loop import off_loop
from holdfast.heap.dead_letters import RATE_MAX, DeadLetterReport
from holdfast.heap.model import PeekedMessage
from holdfast.heap.wire import DeadLettersRequest, MoveRequest
from holdfast.security.acls import Operation, ResourceType
from holdfast.security.confirmations import Action
from holdfast.vocabulary.errors import OutcomeUnknownError
from holdfast.vocabulary.settings import check_between

DLQ_PATH = f"{HEAP_PATH}/dlq"
_PACED_S = 20  # a replay at a rate ends before its request does; the caller asks again

_REPLAY = msgspec.json.Decoder(ReplayBody)
_DELETE = msgspec.json.Decoder(DeleteLettersBody)
_MOVE = msgspec.json.Decoder(MoveBody)

Topic = Annotated[str, QueryParameter(name="topic")]
Limit = Annotated[int, QueryParameter(name="limit", ge=1, le=1_000)]
MessageId = Annotated[str, QueryParameter(name="message_id")]
Reason = Annotated[str, QueryParameter(name="reason_contains")]
Attempts = Annotated[int, QueryParameter(name="attempts_min")]


async def _letters(
    heaps: HeapRoutes, topic: str, message_id: str, reason: str, attempts_min: int, limit: int
) -> Sequence[PeekedMessage]:
    found: Sequence[PeekedMessage] = await heaps.calls.call(
        DeadLettersRequest(
            topic=topic,
            action="list",
            message_ids=[message_id] if message_id else None,
            reason_contains=reason,
            attempts_min=attempts_min,
            limit=limit,
        )
    )
    return found


@get(DLQ_PATH, tags=["heap dead letters"], summary="List dead letters")
async def list_letters(
    heaps: HeapsDependency,
    request: HttpRequest,
    topic: Topic,
    reason_contains: Reason = "",
    attempts_min: Attempts = 0,
    limit: Limit = 100,
) -> PeekedItems:
    """Dead letters that match, without their payloads; those that are leased are left out."""
    require(request, Operation.READ, ResourceType.TOPIC, topic)
    found = await _letters(heaps, topic, "", reason_contains, attempts_min, limit)
    return PeekedItems(items=[PeekedItem.of(each, dlq=True, payload=False) for each in found])


@get(f"{DLQ_PATH}/peek", tags=["heap dead letters"], summary="Look at dead letters")
async def peek_letters(
    heaps: HeapsDependency,
    request: HttpRequest,
    topic: Topic,
    message_id: MessageId = "",
    reason_contains: Reason = "",
    attempts_min: Attempts = 0,
    limit: Limit = 10,
) -> PeekedItems:
    """Dead letters that match, or one by its id, with their payloads."""
    require(request, Operation.READ, ResourceType.TOPIC, topic)
    found = await _letters(heaps, topic, message_id, reason_contains, attempts_min, limit)
    return PeekedItems(items=[PeekedItem.of(each, dlq=True) for each in found])


@post(
    f"{DLQ_PATH}/replay",
    tags=["heap dead letters"],
    summary="Replay dead letters",
    status_code=200,
    opt={"body": ReplayBody},
)
async def replay_letters(heaps: HeapsDependency, request: HttpRequest) -> DeadLettersChanged:
    """Send dead letters back to where they came from, attempts forgotten. With a rate, ask again while there are more.

    It ends with its client, as a deletion does.
    """
    body = await request.body()
    data = await off_loop(len(body), lambda: decoded_body(_REPLAY, body))
    require(request, Operation.ALTER, ResourceType.TOPIC, data.topic)
    limit = data.limit
    if data.rate_per_s is not None and not data.dry_run:
        check_between("rate_per_s", data.rate_per_s, 1 / _PACED_S, RATE_MAX)
        in_time = int(data.rate_per_s * _PACED_S)
        limit = in_time if limit is None else min(limit, in_time)
    report = await _while_connected(heaps, request, _asked(data, "replay", limit, data.rate_per_s))
    return _changed(data, report, limit)


@post(
    f"{DLQ_PATH}/delete",
    tags=["heap dead letters"],
    summary="Delete dead letters",
    status_code=200,
    opt={"body": DeleteLettersBody},
)
async def delete_letters(
    heaps: HeapsDependency, request: HttpRequest, confirmations: ConfirmationsDependency
) -> DeadLettersChanged:
    """Delete dead letters that match. It takes `force` and a confirmation token, unless it is a dry run."""
    body = await request.body()
    data = await off_loop(len(body), lambda: decoded_body(_DELETE, body))
    require(request, Operation.DELETE, ResourceType.TOPIC, data.topic)
    asked = _asked(data, "delete", data.limit)
    if not data.dry_run:
        await heaps.calls.heap(data.topic)
        await confirmations.check(
            Action.DELETE_DEAD_LETTERS,
            data.topic,
            force=data.force,
            token=data.confirmation_token,
            principal=principal_of(request),
        )
    report = await _while_connected(heaps, request, asked)
    return _changed(data, report, data.limit)


@post(
    f"{DLQ_PATH}/move",
    tags=["heap dead letters"],
    summary="Move a message to the dead letters",
    status_code=200,
    opt={"body": MoveBody},
)
async def move(heaps: HeapsDependency, request: HttpRequest) -> ChangedMessage:
    """Send a message to the dead letters; its lease is lost."""
    data = decoded_body(_MOVE, await request.body())
    require(request, Operation.ALTER, ResourceType.TOPIC, data.topic)
    await heaps.calls.call(MoveRequest(topic=data.topic, message_id=data.message_id, reason=data.reason))
    return ChangedMessage(message_id=data.message_id)


async def _while_connected(heaps: HeapRoutes, request: HttpRequest, asked: DeadLettersRequest) -> DeadLetterReport:
    """What was done. It ends when its client has gone, or the server stops."""
    report: DeadLetterReport | None = await heaps.waits.run(heaps.calls.call(asked), request.receive)
    if report is None:
        raise OutcomeUnknownError(f"dead letters of {asked.topic}", "the client has gone, or the server stops")
    return report


def _asked(
    data: DeadLettersBody, action: str, limit: int | None, rate_per_s: float | None = None
) -> DeadLettersRequest:
    if limit is not None:
        check_between("limit", limit, 1, 1_000_000)
    return DeadLettersRequest(
        topic=data.topic,
        action=action,
        message_ids=data.message_ids,
        reason_contains=data.reason_contains,
        attempts_min=data.attempts_min,
        moved_before_ms=data.moved_before_ms,
        limit=limit,
        dry_run=data.dry_run,
        rate_per_s=rate_per_s,
    )


def _changed(data: DeadLettersBody, report: DeadLetterReport, limit: int | None) -> DeadLettersChanged:
    more = limit is not None and report.matched >= limit and limit != data.limit
    return DeadLettersChanged(matched=report.matched, changed=report.changed, dry_run=data.dry_run, more=more)


HANDLERS = (list_letters, peek_letters, replay_letters, delete_letters, move)
