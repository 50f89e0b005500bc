"""Opens the cluster behind a `ClusterAddress`, once per process, and keeps it open for later tasks.

The one rule: reading creates nothing. A folder or database file that does not exist is refused: opening it would create an empty
one, and an empty log looks like a log without records.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from holdfast.client.brokers import CONTACT_MS, BrokerClient, ClusterUrls
from holdfast.client.cluster_access import ClusterAccess, DirectAccess
from holdfast.client.cluster_address import ClusterAddress
from holdfast.client.loop_thread import loop_thread, run
from holdfast.contracts.objects import Objects
from holdfast.contracts.store import Store
from holdfast.kernel.cluster_identity import read_cluster_identity
from holdfast.kernel.objects_owner import ObjectsOwner, owner_of, verify_objects
from holdfast.log.reader import LogReader
from holdfast.log.settings import LogSettings
from holdfast.log.topics import Topics
from holdfast.objects.errors import RequestRefusedError
from holdfast.objects.urls import open_objects
from holdfast.stores.sqlite.settings import parse_url
from holdfast.stores.urls import open_store, parse_store_url
from holdfast.vocabulary.clock import Clock, RealClock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import Random, SystemRandom
from holdfast.vocabulary.redaction import redacted

_log: Final = logging.getLogger(__name__)

_VISIBLE_URL: Final = (
    "a URL that every driver and executor can open: shared storage, or a folder that is mounted on all of them"
)


def discover_urls(cluster_address: ClusterAddress, *, contact_ms: int | None = CONTACT_MS) -> ClusterAddress:
    """The address with the store and objects URLs that the brokers advertise; unchanged where it has them already.

    Brokers do not advertise a URL that holds a secret, and may name files of another machine: then the address stays as it is,
    and everything is read through the brokers. `UnavailableError` if none of them answers within `contact_ms`.
    """
    if not cluster_address.bootstrap:
        return cluster_address
    asking = BrokerClient.fetch_cluster_urls(
        cluster_address.bootstrap, contact_ms=contact_ms, login=cluster_address.login
    )
    found: ClusterUrls = run(asking)
    if cluster_address.store:
        return cluster_address
    if not found.store or not found.objects:
        _log.warning(
            "the brokers at %s do not advertise their store and objects URLs (they never advertise a URL that holds a secret): "
            "reading everything through brokers; to read straight from object storage, give the options store and objects",
            cluster_address.bootstrap,
        )
        return cluster_address
    if reason := why_invisible(found.store, found.objects):
        _log.warning(
            "%s: reading everything through brokers; to read straight from object storage, give the options store and objects "
            "as this machine sees them",
            reason,
        )
        return cluster_address
    return replace(cluster_address, store=found.store, objects=found.objects)


async def open_cluster(cluster_address: ClusterAddress) -> ClusterAccess:
    """The cluster, opened at the first use in this process. On the loop's thread."""
    thread = loop_thread()
    cached = thread.resources.get(cluster_address)
    if cached is None:
        cached = thread.resources[cluster_address] = _CachedCluster(cluster_address)
        thread.on_close(cached.close)
    assert isinstance(cached, _CachedCluster)
    try:
        return await asyncio.shield(cached.opened)
    except BaseException:
        if cached.opened.done() and (cached.opened.cancelled() or cached.opened.exception() is not None):
            thread.resources.pop(cluster_address, None)  # the next use tries again
        raise


class _CachedCluster:
    """One cluster, open from the first use until the process's loop ends."""

    def __init__(self, cluster_address: ClusterAddress) -> None:
        self._closing = asyncio.Event()
        self.opened: asyncio.Future[ClusterAccess] = asyncio.get_running_loop().create_future()
        self._task = asyncio.ensure_future(self._hold(cluster_address))

    async def _hold(self, cluster_address: ClusterAddress) -> None:
        # Opened and closed by one task: some engines run tasks of their own, which only their opener may end.
        try:
            async with _open(cluster_address, RealClock(), SystemRandom()) as opened:
                self.opened.set_result(opened)
                await self._closing.wait()
        except BaseException as error:
            if self.opened.done():
                raise
            self.opened.set_exception(error)

    async def close(self) -> None:
        self._closing.set()
        await asyncio.wait((self._task,))


@asynccontextmanager
async def _open(cluster_address: ClusterAddress, clock: Clock, random: Random) -> AsyncIterator[ClusterAccess]:
    async with AsyncExitStack() as stack:
        brokers = None
        if cluster_address.bootstrap:
            brokers = BrokerClient(cluster_address.bootstrap, clock=clock, login=cluster_address.login)
            stack.push_async_callback(brokers.close)
        direct = None
        if cluster_address.store:
            _check_visible(cluster_address)
            store = await stack.enter_async_context(open_store(cluster_address.store, clock=clock, random=random))
            objects = await stack.enter_async_context(open_objects(cluster_address.objects, clock=clock, random=random))
            place = redacted(cluster_address.objects)
            owner = await _verified_owner(store, objects, clock, random, place)
            log_reader = LogReader(objects, clock=clock, settings=LogSettings())
            stack.push_async_callback(log_reader.close)
            direct = DirectAccess(store, objects, Topics(store, clock=clock, random=random), log_reader, owner)
            if brokers is not None:
                await _check_same_cluster(cluster_address, store, brokers)
        yield ClusterAccess(cluster_address, direct, brokers, clock)


async def _verified_owner(store: Store, objects: Objects, clock: Clock, random: Random, place: str) -> ObjectsOwner:
    try:
        return await verify_objects(store, objects, clock=clock, random=random, place=place)
    except RequestRefusedError as refused:  # credentials that may read and not list
        _log.warning("cannot check whose objects %s holds: %s", place, refused.reason)
        return await owner_of(store, objects, clock=clock, random=random, place=place)


def _check_visible(cluster_address: ClusterAddress) -> None:
    if reason := _why_objects_invisible(cluster_address.objects):
        raise InvalidError("option objects", redacted(cluster_address.objects), f"{_VISIBLE_URL}; {reason}")
    if reason := _why_store_invisible(cluster_address.store):
        raise InvalidError("option store", redacted(cluster_address.store), f"{_VISIBLE_URL}; {reason}")


async def _check_same_cluster(cluster_address: ClusterAddress, store: Store, brokers: BrokerClient) -> None:
    """Refuse the store of another cluster: a path that exists on two machines, say."""
    stored_id = await read_cluster_identity(store)
    broker_id = await brokers.cluster_id()
    if stored_id != broker_id:
        raise InvalidError(
            "option store",
            redacted(cluster_address.store),
            f"the store of the cluster at {cluster_address.bootstrap} ({broker_id}), not of {stored_id or 'no cluster'}",
        )


def why_invisible(store: str, objects: str) -> str:
    """Why this process cannot open these URLs; "" if nothing speaks against it."""
    return _why_store_invisible(store) or _why_objects_invisible(objects)


def _why_objects_invisible(url: str) -> str:
    """Why this process cannot open the folder of a `file:` URL; "" if it can, or if it is another kind of URL."""
    parts = urlsplit(url)
    if parts.scheme == "memory":
        return "memory: is visible to its own process only"
    folder = Path(unquote(parts.path))
    if parts.scheme == "file" and not folder.is_dir():
        return f"the objects folder {folder} does not exist on this machine"
    return ""


def _why_store_invisible(url: str) -> str:
    """The same for the file of a `sqlite:` URL."""
    parsed = parse_store_url(url)
    if parsed.parts.scheme == "memory":
        return "memory: is visible to its own process only"
    if parsed.parts.scheme == "sqlite":
        path, _ = parse_url(parsed)
        if not path.is_file():
            return f"the store's file {path} does not exist on this machine"
    return ""
