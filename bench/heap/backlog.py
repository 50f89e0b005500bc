"""A heap with many messages that wait, through the SDK: rates against an empty heap beside it, memory, and a kill -9.

Rates are of rounds: so many messages in, then as many out, of the two heaps in turn, so that whatever else the machine does slows
down both. An empty heap is empty again after each, and has its messages in memory; with others that wait, the best of all are
popped, most of which have to be read from the log.
"""

import asyncio
import time
from collections.abc import Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from bench.cluster.servers import holdfast_agents
from bench.figures import Figure
from bench.heap import ours
from bench.heap.queue import QueueClient
from bench.heap.runs import jobs
from bench.heap.threads import on_thread
from bench.kafka.processes import resident_bytes
from holdfast import heaps
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.settings import MIB

CLIENTS: Final = 64
AIM: Final = 0.7
TAKEOVER_AIM_S: Final = 5
_TOPIC: Final = "waiting"
_EMPTY: Final = "empty"
_CALLS: Final = ((1, 20), (100, 5))  # messages of a call, and calls of each client in a round
_FILL: Final = 500  # messages of a call


async def backlog(directory: Path, seconds: float, waiting: int) -> list[Figure]:
    """The rates of a heap with so many that wait and of an empty one, of one server."""
    async with (
        on_thread(holdfast_agents(directory, 1)) as (cluster, (node,)),
        heaps.connect(cluster.bootstrap) as client,
    ):
        made: list[list[ours.OurClient]] = []
        for topic in (_TOPIC, _EMPTY):
            await ours.create(f"sqlite:///{directory}/store.db", topic, 1, ours.LOCAL)
            await ours.usable(client, topic)
            made.append([ours.OurClient(client, topic) for _ in range(CLIENTS)])
        await _rates(made, seconds / 10)  # connections are made, code is warm
        before = resident_bytes(node.process.pid)
        await _fill(made[0], waiting)
        grown = resident_bytes(node.process.pid) - before
        full, empty = await _rates(made, seconds)
        began = time.perf_counter()
        node.kill()
        await asyncio.to_thread(node.start)
        await _popped(client)
        took = time.perf_counter() - began
    part = f"{waiting:,} waiting"
    return [
        *(
            Figure(part, what, "messages/s", rate, empty[what], ratio, f"ratio ≥ {AIM}", ratio >= AIM)
            for what, rate in full.items()
            for ratio in [rate / empty[what]]
        ),
        Figure(
            part, "resident memory, grown", "MiB", grown / MIB, note="of the whole server, payloads in caches included"
        ),
        Figure(
            *(part, "takeover", "s", took),
            aim=f"< {TAKEOVER_AIM_S}",
            met=took < TAKEOVER_AIM_S,
            note="from kill -9 to the next pop, with the start of a process",
        ),
    ]


class _Times:
    """What the rounds of one heap took."""

    def __init__(self) -> None:
        self.messages, self.enqueue_s, self.take_s = 0, 0.0, 0.0


async def _rates(heaps_of_clients: Sequence[Sequence[QueueClient]], seconds: float) -> list[dict[str, float]]:
    """Messages a second by what is done, of each heap, over rounds that take so long together for the first."""
    found: list[dict[str, float]] = [{} for _ in heaps_of_clients]
    for batch, calls in _CALLS:
        times = [_Times() for _ in heaps_of_clients]
        while not times[0].messages or times[0].enqueue_s + times[0].take_s < 2 * seconds:
            for clients, each in zip(heaps_of_clients, times, strict=True):
                each.messages += len(clients) * batch * calls
                each.enqueue_s += await _took(_enqueue(client, batch, calls) for client in clients)
                each.take_s += await _took(_take(client, batch, calls) for client in clients)
        label = "one by one" if batch == 1 else f"{batch} a call"
        for rates, each in zip(found, times, strict=True):
            rates[f"enqueue, {label}"] = each.messages / each.enqueue_s
            rates[f"pop + ack, {label}"] = each.messages / each.take_s
    return found


async def _took(work: Iterable[Coroutine[Any, Any, None]]) -> float:
    began = time.perf_counter()
    await asyncio.gather(*work)
    return time.perf_counter() - began


async def _enqueue(client: QueueClient, batch: int, calls: int) -> None:
    for _ in range(calls):
        await client.enqueue(jobs(batch))


async def _take(client: QueueClient, batch: int, calls: int) -> None:
    """As many as its share of the round: others may have left it less in one call."""
    left = batch * calls
    while left:
        popped = await client.pop(min(batch, left))
        await client.ack(popped)
        left -= len(popped)


async def _fill(clients: Sequence[QueueClient], waiting: int) -> None:
    left = waiting

    async def enqueue(client: QueueClient) -> None:
        nonlocal left
        while left:
            count = min(_FILL, left)
            left -= count
            await client.enqueue(jobs(count))

    await asyncio.gather(*map(enqueue, clients))


async def _popped(client: heaps.HeapClient) -> None:
    """Return once a message has been popped: the partition is served."""
    while True:
        try:
            if popped := await client.pop(_TOPIC, max_messages=1):
                return await client.ack(popped)
        except HoldfastError:
            await asyncio.sleep(0.02)
