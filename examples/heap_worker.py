"""A worker of a heap, and who gives it work: `python examples/heap_worker.py` beside a running `holdfast serve`.

Needs a heap called `thumbnails`: `holdfast heap create thumbnails`.
"""

import asyncio
import sys

from holdfast import heaps


@heaps.worker("thumbnails", concurrency=4)
async def make_thumbnail(message: heaps.Message) -> None:
    """Called for each message; its lease is renewed meanwhile. Raising makes it a failed attempt."""
    await asyncio.sleep(0.1)
    print(f"done: {message.payload.decode()} (priority {message.priority})")


async def main(bootstrap: str) -> None:
    """Enqueue ten messages, the last ones most urgent, and work on them until all are done."""
    async with heaps.connect(bootstrap) as client:
        for number in range(10):
            await client.enqueue("thumbnails", f"picture-{number}.jpg".encode(), priority=-number)
        serving = asyncio.ensure_future(make_thumbnail.serve(client))
        while any(part.ready or part.inflight for part in await client.stats("thumbnails")):
            await asyncio.sleep(0.2)
        make_thumbnail.stop()
        await serving


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"))
