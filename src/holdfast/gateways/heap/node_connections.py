"""Connections to other nodes, for heap requests that are forwarded: one for each request that may take its time
(pops, and what is done with many dead letters), one for each heap whose spine requests wait for, and one for all else.

The one rule: a connection is used by all requests to its node at once, and replaced when it is lost.
"""

import asyncio
from typing import Final, TypeAlias

from holdfast.agent.cluster import Cluster
from holdfast.client.addresses import BrokerAddress
from holdfast.client.broker_login import BrokerLogin
from holdfast.client.heap_connection import HeapConnection, open_heap_connection
from holdfast.heap.wire import DeadLettersRequest, HeapRequest, PopRequest, lane_of
from holdfast.vocabulary.host_port import split_host_port

_CONNECT_S: Final = 5.0

_Key: TypeAlias = tuple[str, int, bool, int]
"""Host, port, whether requests take their time, and their lane (`lane_of`)."""


class HeapNodeConnections:
    """The connections of one node to all others. `login`: how it logs in to them."""

    def __init__(self, cluster: Cluster, login: BrokerLogin | None) -> None:
        self._cluster, self._login = cluster, login
        self._open: dict[_Key, list[HeapConnection]] = {}
        self._opening: dict[_Key, asyncio.Lock] = {}

    async def to(self, agent: str, request: HeapRequest) -> HeapConnection | None:
        """A connection to an agent; None: it is not known where it listens. `UnavailableError`."""
        member = self._cluster.reachable_member(agent)
        found = split_host_port(member.address) if member is not None else None
        if found is None or found.port is None:
            return None
        slow = isinstance(request, PopRequest | DeadLettersRequest)
        key = (found.host, found.port, slow, lane_of(request))
        async with self._opening.setdefault(key, asyncio.Lock()):
            usable = [each for each in self._open.get(key, ()) if each.lost is None]
            # Whatever waits holds up those behind it: each has a connection of its own while it waits.
            free = next((each for each in usable if not slow or not each.pending), None)
            if free is None:
                address = BrokerAddress(found.host, found.port)
                free = await open_heap_connection(address, timeout_s=_CONNECT_S, login=self._login)
                usable.append(free)
            self._open[key] = usable
            return free

    def close(self) -> None:
        """Close all of them."""
        for connection in (each for several in self._open.values() for each in several):
            connection.close()
        self._open.clear()
