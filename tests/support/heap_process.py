"""An agent with a heap as a process of its own: `python heap_process.py FOLDER`. A line of JSON per call, one per answer.

The test's side is `HeapProcess`: its calls return None if the process died before it answered.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.cluster import fast_settings
from tests.support.heap_batches import QUICK, batch_over
from tests.support.waiting import async_until

from holdfast.agent import Agent, running_agent
from holdfast.heap.model import NewMessage
from holdfast.heap.records import ProducerSequence
from holdfast.log.topics import TopicExistsError
from holdfast.objects.urls import open_objects
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.random import SystemRandom

TOPIC = "jobs"
WIDE, PARTITIONS = "wide", 3
CONFIG = {"max_retries": 0, "visibility_timeout_ms": 3_600_000, "retention_ms": 0}


class HeapProcess:
    """One life of the process."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        command = [sys.executable, "-m", "tests.support.heap_process", str(folder)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**environment}, cwd=Path(__file__).parents[2]
        )
        ready = self._read()
        if ready != "ready":
            self.end()
        assert ready == "ready"

    def call(self, name: str, **options: object) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"call": name, **options}).encode() + b"\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else None

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        code = self._process.wait(60)
        self._close()
        return code

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(60)
        self._close()

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


async def answer(agent: Agent, asked: dict[str, Any]) -> object:
    """What a call returns, as JSON can say it."""
    heaps = agent.heaps
    match asked.pop("call"):
        case "enqueue":
            key = ProducerSequence("p", 0, asked["sequence"])
            message = NewMessage(payload=asked["payload"].encode(), producer=key, priority=asked.get("priority", 0))
            made = await heaps.enqueue(TOPIC, message)
            return [made.message_id, made.duplicate]
        case "pop":
            popped = await heaps.pop(TOPIC, consumer="c", max_messages=asked.get("count", 1))
            return [[each.payload.decode(), each.lease_token.hex(), each.attempts] for each in popped]
        case "ack":
            return [str(error or "") for error in await heaps.ack(TOPIC, [bytes.fromhex(asked["token"])])]
        case "nack":
            return [str(error or "") for error in await heaps.nack(TOPIC, [bytes.fromhex(asked["token"])])]
        case "snapshot":
            await agent.service.flush(TOPIC, 0)
            return [each.offset for each in await heaps.snapshot(TOPIC)]
        case "trim":
            which = next(each for each in agent.local_heaps.open if each.topic == TOPIC)
            return await agent.local_heaps.histories[which].trim()
        case "dead":
            (letters,) = await heaps.stats(TOPIC + ".dlq")
            return [letters.enqueued, [each.payload.decode() for each in await heaps.dead_letters.list(TOPIC)]]
        case "batch":
            await wide_heap(agent)
            made_all = await heaps.enqueue_batch(WIDE, batch_over(PARTITIONS, asked["number"]))
            return [[each.message_id, each.duplicate] for each in made_all]
        case "grow":
            await wide_heap(agent)
            return (await heaps.administration.update(WIDE, {}, partitions=asked["partitions"])).partitions
        case "number":
            await wide_heap(agent)
            keyed = NewMessage(
                payload=b"x", partition_key=asked["key"], producer=ProducerSequence("n", 0, asked["number"])
            )
            one = await heaps.enqueue(WIDE, keyed)
            return [one.message_id, one.duplicate, one.partition]
        case "enqueued":
            await wide_heap(agent)
            return [each.enqueued for each in await heaps.stats(WIDE)]
        case "wide":  # once nothing is undecided
            await wide_heap(agent)
            mine = [view for which, view in agent.local_heaps.open.items() if which.topic == WIDE]
            await async_until(
                lambda: not any(view.state.reserved.prepared or view.state.reserved.to_forget for view in mine)
            )
            return [[each.ready, each.enqueued, each.reserved] for each in await heaps.stats(WIDE)]
        case _:
            return (await heaps.stats(TOPIC))[0]._asdict()


async def wide_heap(agent: Agent) -> None:
    """A heap of several partitions, served here."""
    with suppress(TopicExistsError):
        await agent.heaps.administration.create(WIDE, PARTITIONS, {"dlq": False})
    count = (await agent.heaps.heap(WIDE)).partitions
    await async_until(lambda: sum(which.topic == WIDE for which in agent.local_heaps.open) == count)


async def main(folder: str) -> None:
    clock, random = RealClock(), SystemRandom()
    async with (
        open_store(f"sqlite:///{folder}/store.db", clock=clock, random=random) as store,
        open_objects(f"file://{folder}/objects", clock=clock, random=random) as objects,
        running_agent(
            fast_settings("ann", heaps=QUICK),
            Path(folder) / "wal",
            store=store,
            objects=objects,
            clock=clock,
            random=random,
        ) as agent,
    ):
        with suppress(TopicExistsError):
            await agent.heaps.administration.create(TOPIC, 1, CONFIG)
        await async_until(lambda: sum(which.topic.startswith(TOPIC) for which in agent.local_heaps.open) == 2)
        print('"ready"', flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            try:
                found = await answer(agent, json.loads(line))
            except HoldfastError as error:
                found = f"{type(error).__name__}: {error}"
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
