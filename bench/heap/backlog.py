"""A heap with many messages that wait, through the SDK: rates against the same heap when it was empty, memory, and a kill -9.

Rates are of rounds: so many messages in, then as many out. An empty heap is empty again after each, and has its messages in memory;
with others that wait, the best of all are popped, most of which have to be read from the log.
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
_CALLS: Final = ((1, 20), (100, 5))  # messages of a call, and calls of each client in a round
_FILL: Final = 500  # messages of a call


async def backlog(directory: Path, seconds: float, waiting: int) -> list[Figure]:
    """The rates of an empty heap, then with so many that wait, of one server."""
    async with on_thread(holdfast_agents(directory, 1)) as (cluster, (node,)):
        await ours.create(f"sqlite:///{directory}/store.db", _TOPIC, 1, ours.LOCAL)
        async with heaps.connect(cluster.bootstrap) as client:
            await ours.usable(client, _TOPIC)
            made = [ours.OurClient(client, _TOPIC) for _ in range(CLIENTS)]
            empty = await _rates(made, seconds)
            before = resident_bytes(node.process.pid)
            await _fill(made, waiting)
            grown = resident_bytes(node.process.pid) - before
            full = await _rates(made, seconds)
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


async def _rates(clients: Sequence[QueueClient], seconds: float) -> dict[str, float]:
    """Messages a second by what is done, over rounds that take so long together."""
    found: dict[str, float] = {}
    for batch, calls in _CALLS:
        rounds, enqueue_s, take_s = 0, 0.0, 0.0
        while rounds == 0 or enqueue_s + take_s < 2 * seconds:
            rounds += 1
            enqueue_s += await _took(_enqueue(client, batch, calls) for client in clients)
            take_s += await _took(_take(client, batch, calls) for client in clients)
        messages = rounds * len(clients) * batch * calls
        label = "one by one" if batch == 1 else f"{batch} a call"
        found[f"enqueue, {label}"] = messages / enqueue_s
        found[f"pop + ack, {label}"] = messages / take_s
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
