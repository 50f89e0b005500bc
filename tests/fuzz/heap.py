"""Heap requests on the Kafka port, changed: `python -m tests.fuzz.heap --inputs 300000`.

The same gateway, connections and users as Kafka's frames have; the corpus is every message of `heap.wire`, of a heap that exists,
of one that does not, and of a topic that is none.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.fuzz.campaign import Target, main
from tests.fuzz.kafka import KafkaTarget, framed, fuzzed_gateway
from tests.support.kafka_requests import TOPIC
from tests.support.waiting import async_until

from holdfast.heap import wire
from holdfast.heap.lease_token import LeaseToken
from holdfast.heap.message_id import message_id
from holdfast.heap.model import NewMessage
from holdfast.heap.records import Origin, ProducerSequence
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.wire import encode_string

HEAP = f"{TOPIC}-jobs"
PARTITIONS = 2

PLACES: tuple[dict[str, Any], ...] = ({}, {"partition": 0}, {"partition": 1, "forwarded": True})


def corpus(topic_id: bytes) -> list[bytes]:
    """A frame of every request, each for one partition, for the whole heap, and as another node forwards it."""
    token = LeaseToken(partition=0, epoch=1, offset=0, granted_at=1).encode()
    known = message_id(topic_id, 0, 0, 1)
    rich = NewMessage(
        payload=b"p",
        priority=3,
        delay_ms=1,
        max_retries=2,
        partition_key="k",
        producer=ProducerSequence("me", 1, 2),
        headers=(("h", b"v"), ("n", None)),
    )
    moved = NewMessage(payload=b"m", origin=Origin(f"{TOPIC}-other", 1, b"0" * 16, 2, "why"))
    frames = []
    for topic in (HEAP, HEAP, HEAP, f"{TOPIC}-missing", TOPIC):
        for place in PLACES:
            where: dict[str, Any] = {"topic": topic, **place}
            requests: list[wire.HeapRequest] = [
                wire.EnqueueRequest(messages=[NewMessage(payload=b"x"), rich], **where),
                wire.EnqueueRequest(messages=[moved], **where),
                wire.PopRequest(consumer="c", max_messages=2, visibility_timeout_ms=1_000, **where),
                wire.AckRequest(tokens=[token, token], **where),
                wire.NackRequest(tokens=[token], backoff_ms=5, reason="r", **where),
                wire.ReleaseRequest(tokens=[token], **where),
                wire.ExtendRequest(tokens=[token], extension_ms=1_000, **where),
                wire.PeekRequest(limit=3, **where),
                wire.StatsRequest(**where),
                wire.CancelRequest(message_id=known, **where),
                wire.ReprioritiseRequest(message_id=known, priority=9, **where),
                wire.MoveRequest(message_id=known, reason="r", **where),
                wire.PurgeRequest(**where),
                wire.PlacesRequest(**where),
                wire.SpineRequest(**where),
                wire.EnqueueBatchRequest(
                    messages=[rich, NewMessage(payload=b"y", pinned=True)], places=[0, 1], **where
                ),
                wire.CreateRequest(partitions=2, config={"mode": "max"}, log={"durability": "local"}, **where),
                wire.DeleteRequest(force=True, confirmation_token="no such token", **where),
                wire.DescribeRequest(**where),
                wire.UpdateRequest(config={"max_retries": 3, "top_k_bound": None}, partitions=PARTITIONS, **where),
                wire.ConfirmRequest(action="heap.purge", **where),
                *(
                    wire.DeadLettersRequest(action=action, message_ids=[known], attempts_min=1, limit=2, **where)
                    for action in ("list", "replay", "delete")
                ),
            ]
            frames += [request_frame(each) for each in requests]
    return frames


def request_frame(request: wire.HeapRequest) -> bytes:
    """The request as it is sent, with its length."""
    key = ApiKey.HEAP_POP if isinstance(request, wire.PopRequest) else ApiKey.HEAP
    head = key.to_bytes(2, "big") + b"\0\0" + b"\0\0\0\1" + encode_string("fuzz", flexible=False)
    return framed(head + wire.encode_request(request))


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Target]:
    """A heap with its dead letters, beside a topic."""
    async with fuzzed_gateway(folder) as (secure, neighbour):
        heaps = secure.gateway.node.agent.heaps
        await heaps.administration.create(HEAP, PARTITIONS, {}, {"durability": "local"})
        await async_until(lambda: all(heaps.serves(HEAP, number) for number in range(PARTITIONS)))
        yield KafkaTarget(secure, neighbour, corpus(bytes.fromhex((await heaps.heap(HEAP)).id)))


if __name__ == "__main__":
    sys.exit(main("heap", opened))
