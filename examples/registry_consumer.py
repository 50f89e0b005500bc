"""Share work between processes with the partition registry alone: no broker, any store.

Run it in two or three terminals with different names, stop one (Ctrl-C) or kill it (kill -9), and watch the others go on
where it was:

    python examples/registry_consumer.py sqlite:////tmp/registry.db A
    python examples/registry_consumer.py sqlite:////tmp/registry.db B

The work is made of numbers, the same in every process; yours would come from files, tables or topics. Each process runs a
consumer and a coordinator: any one of them is enough, and any may die. It ends when all work is done.
"""

import argparse
import asyncio
import signal
from contextlib import aclosing, suppress

import holdfast
from holdfast.registry import Delivery, Message, RegistrySettings


class Numbers:
    """A source: every partition has the messages 0 to `count` - 1, and then no more."""

    def __init__(self, count: int) -> None:
        self._count = count

    async def next(self, partition: int, offset: int) -> Message:
        """The message at `offset`; past the last one, wait for ever."""
        if offset >= self._count:
            await asyncio.Event().wait()
        return Message(partition=partition, offset=offset, key=f"number-{offset}", value=b"%d" % offset)


async def consume(args: argparse.Namespace) -> None:
    """Process until every partition is at its end."""
    settings = RegistrySettings(partitions=args.partitions, ttl_ms=args.ttl_ms)

    async with holdfast.connect(args.store) as hf:

        async def handle(delivery: Delivery) -> None:
            await hf.runtime.clock.sleep_ms(args.work_ms)
            message = delivery.message
            at = f"partition {message.partition} offset {message.offset} epoch {delivery.epoch}"
            print(args.name, at, flush=True)

        registry = hf.registry("example", settings=settings)
        await registry.initialize()
        coordinator = registry.coordinator()
        consumer = registry.consumer(args.name, source=Numbers(args.messages), handler=handle)
        async with coordinator.running(), consumer.following(), aclosing(registry.watch(checkpoints=True)) as views:
            async for view in views:
                if all(state.checkpoint >= args.messages for state in view.partitions.values()):
                    break
    print(f"{args.name} done", flush=True)


async def main(args: argparse.Namespace) -> None:
    """Consume; SIGINT and SIGTERM leave the registry cleanly."""
    work = asyncio.create_task(consume(args))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    with suppress(asyncio.CancelledError):
        await work


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", help="for example sqlite:////tmp/registry.db")
    parser.add_argument("name", help="this consumer's id; each process needs its own")
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--messages", type=int, default=100, help="messages per partition")
    parser.add_argument("--work-ms", type=float, default=100, help="how long one message takes")
    parser.add_argument("--ttl-ms", type=int, default=3_000, help="how long a silent consumer keeps its partitions")
    asyncio.run(main(parser.parse_args()))
