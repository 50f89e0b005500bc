"""Heaps: durable priority queues.

    async with holdfast.heaps.connect("localhost:9092") as heaps:
        await heaps.enqueue("jobs", b"resize cat.jpg", priority=5)
        async for message in heaps.pop_stream("jobs"):
            async with message:  # its lease is renewed; acknowledged at the end, negatively if this raises
                work(message.payload)

`holdfast.heaps.sync` is the same for programs without an event loop; `worker` makes a worker of a function.
"""

from holdfast.client.broker_login import LoginRefusedError
from holdfast.heap.dead_letters import DeadLetterReport
from holdfast.heap.errors import (
    BatchAbortedError,
    LeaseLostError,
    MessageNotFoundError,
    NotAHeapError,
    ProducerFencedError,
    ResourceExhaustedError,
    SequenceForgottenError,
)
from holdfast.heap.model import Enqueued, NewMessage, PartitionStats, PeekedMessage
from holdfast.heaps.client import HeapClient, connect
from holdfast.heaps.message import Message
from holdfast.heaps.worker import Worker, worker
from holdfast.security.confirmations import UnconfirmedError

__all__ = [
    "BatchAbortedError",
    "DeadLetterReport",
    "Enqueued",
    "HeapClient",
    "LeaseLostError",
    "LoginRefusedError",
    "Message",
    "MessageNotFoundError",
    "NewMessage",
    "NotAHeapError",
    "PartitionStats",
    "PeekedMessage",
    "ProducerFencedError",
    "ResourceExhaustedError",
    "SequenceForgottenError",
    "UnconfirmedError",
    "Worker",
    "connect",
    "worker",
]
