"""What client processes print for their test: a JSON object per line."""

import json
import time  # noqa: TID251 (of processes that share no clock object, and of Java's `System.nanoTime`)


def say(event: str, **facts: object) -> None:
    """Print an event, with a time that is comparable across the processes of a machine."""
    print(json.dumps({"event": event, "at": time.monotonic_ns(), **facts}), flush=True)
