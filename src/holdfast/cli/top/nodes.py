"""A look at every node at once. A node that does not answer in time is a look that says why."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import Sequence

from holdfast.cli.top.exposition import MetricsPage
from holdfast.cli.top.snapshot import NodeLook
from holdfast.vocabulary.clock import stopwatch_ns

_TIMEOUT_S = 3.0


async def look_at(urls: Sequence[str]) -> list[NodeLook]:
    """The metrics of all nodes, concurrently."""
    return list(await asyncio.gather(*(asyncio.to_thread(_look, url) for url in urls)))


def _look(url: str) -> NodeLook:
    try:
        with urllib.request.urlopen(f"{url}/metrics", timeout=_TIMEOUT_S) as answer:  # noqa: S310 - checked by `server_url`
            text = answer.read().decode()
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        return NodeLook(url=url, at_ns=stopwatch_ns(), reason=f"unreachable: {reason}")
    return NodeLook(url=url, at_ns=stopwatch_ns(), page=MetricsPage(text))
