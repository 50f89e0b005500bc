"""Heaps: create, list, describe, change, delete; and their figures."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from litestar import Response, delete, get, patch, post
from litestar.params import FromPath, FromQuery, QueryParameter

from holdfast.gateways.heap.inspection import stats
from holdfast.gateways.http.access import require, require_create_topic, visible
from holdfast.gateways.http.heap.bodies import HeapChange, NewHeap, PurgeBody, settings_of
from holdfast.gateways.http.heap.results import Figures, HeapFigures, HeapPage, Purged, heap_json
from holdfast.gateways.http.routes.bodies import decoded_body
from holdfast.gateways.http.routes.confirmations import ConfirmationsDependency, principal_of
from holdfast.gateways.http.routes.dependencies import HttpRequest
from holdfast.gateways.http.routes.heap_dependencies import HEAP_PATH, HeapsDependency
from holdfast.gateways.log_access.pages import page_of
from holdfast.heap.administration import LOG_SETTINGS
from holdfast.heap.local_heaps import DLQ_SUFFIX
from holdfast.heap.wire import PurgeRequest
from holdfast.security.acls import Operation, ResourceType
from holdfast.security.confirmations import Action
from holdfast.vocabulary.tasks import gather_limited

HEAPS_PATH = f"{HEAP_PATH}/heaps"
ONE_PATH = HEAPS_PATH + "/{topic:str}"
_STATS_AT_ONCE = 8

_NEW: msgspec.json.Decoder[Any] = msgspec.json.Decoder(NewHeap)
_CHANGE: msgspec.json.Decoder[Any] = msgspec.json.Decoder(HeapChange)
_PURGE = msgspec.json.Decoder(PurgeBody)


class _Page(msgspec.Struct):
    page_size: int
    page_token: str


@post(HEAPS_PATH, tags=["heaps"], summary="Create a heap", opt={"body": NewHeap})
async def post_heap(heaps: HeapsDependency, request: HttpRequest) -> Response[Mapping[str, Any]]:
    """Create a heap and its dead letters. 409 if the name is taken. Operations wait until its partitions have leaders."""
    data = decoded_body(_NEW, await request.body())
    require_create_topic(request, data.topic)
    made = await heaps.calls.administration.create(
        data.topic, data.partitions, settings_of(data), settings_of(data, LOG_SETTINGS)
    )
    return Response(heap_json(made), headers={"location": f"{HEAPS_PATH}/{data.topic}"})


@get(HEAPS_PATH, tags=["heaps"], summary="List heaps")
async def list_heaps(
    heaps: HeapsDependency,
    request: HttpRequest,
    page_size: Annotated[int, QueryParameter(name="page_size")] = 0,
    page_token: Annotated[str, QueryParameter(name="page_token")] = "",
) -> HeapPage:
    """Every heap that the caller may see, by name, a page at a time. Dead letters are those of the heap that names them."""
    found = [each for each in await heaps.calls.administration.list() if not each.name.endswith(DLQ_SUFFIX)]
    shown = visible(request, ResourceType.TOPIC, found, lambda each: each.name)
    page = page_of(shown, lambda each: each.name, _Page(page_size, page_token))
    return HeapPage(heaps=[heap_json(each) for each in page.items], next_page_token=page.next_page_token)


@get(ONE_PATH, tags=["heaps"], summary="Describe a heap")
async def get_heap(heaps: HeapsDependency, topic: FromPath[str]) -> Mapping[str, Any]:
    """A heap with its settings."""
    return heap_json(await heaps.calls.administration.describe(topic))


@patch(ONE_PATH, tags=["heaps"], summary="Change a heap", opt={"body": HeapChange})
async def patch_heap(heaps: HeapsDependency, request: HttpRequest, topic: FromPath[str]) -> Mapping[str, Any]:
    """Set settings, and take those that are null back to their defaults. The mode cannot be changed.

    `partitions`: more than there are; pops wait until the new ones are served. Fewer are refused.
    """
    data = decoded_body(_CHANGE, await request.body())
    changed = await heaps.calls.administration.update(topic, settings_of(data), partitions=data.partitions)
    return heap_json(changed)


@delete(ONE_PATH, tags=["heaps"], summary="Delete a heap")
async def delete_heap(
    request: HttpRequest,
    heaps: HeapsDependency,
    confirmations: ConfirmationsDependency,
    topic: FromPath[str],
    force: FromQuery[bool] = False,
    confirmation_token: FromQuery[str] = "",
) -> None:
    """Delete a heap, its dead letters and everything in both. It takes `force` and a confirmation token."""
    await heaps.calls.heap(topic)
    await confirmations.check(
        Action.DELETE_HEAP, topic, force=force, token=confirmation_token, principal=principal_of(request)
    )
    await heaps.calls.administration.delete(topic)


@post(f"{HEAP_PATH}/purge", tags=["heaps"], summary="Withdraw every message", status_code=200, opt={"body": PurgeBody})
async def purge(heaps: HeapsDependency, request: HttpRequest, confirmations: ConfirmationsDependency) -> Purged:
    """Withdraw every message of a heap, leased ones too. It takes `force` and a confirmation token."""
    data = decoded_body(_PURGE, await request.body())
    require(request, Operation.DELETE, ResourceType.TOPIC, data.topic)
    await heaps.calls.heap(data.topic)
    await confirmations.check(
        Action.PURGE_HEAP,
        data.topic,
        force=data.force,
        token=data.confirmation_token,
        principal=principal_of(request),
    )
    return Purged(purged=await heaps.calls.call(PurgeRequest(topic=data.topic)))


@get(f"{HEAP_PATH}/stats", tags=["heaps"], summary="Figures of heaps")
async def get_stats(
    heaps: HeapsDependency,
    request: HttpRequest,
    topic: Annotated[str, QueryParameter(name="topic")] = "",
    partition: Annotated[int | None, QueryParameter(name="partition")] = None,
) -> Figures:
    """What is in a heap now, and what happened so far; of every heap that the caller may see, if none is named."""
    if topic:
        require(request, Operation.DESCRIBE, ResourceType.TOPIC, topic)
        names = [topic]
    else:
        found = [each.name for each in await heaps.calls.administration.list() if not each.name.endswith(DLQ_SUFFIX)]
        names = visible(request, ResourceType.TOPIC, found, str)

    async def of(name: str) -> HeapFigures:
        return HeapFigures.of(await stats(heaps.calls, name, partition=partition))

    return Figures(heaps=await gather_limited(of, names, _STATS_AT_ONCE))


HANDLERS = (post_heap, list_heaps, get_heap, patch_heap, delete_heap, purge, get_stats)
