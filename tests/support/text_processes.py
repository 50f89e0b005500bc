"""Real `serve` processes that serve the text protocol over one store and one object storage, and a blocking client."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.server_process import BROKER_ONLY, ServeProcess
from tests.support.waiting import WAIT_S, until

from holdfast.cli.text import TextSession
from holdfast.vocabulary.errors import OutcomeUnknownError, UnavailableError

# Requests that wait for the end of a dead process's session, rotation without pauses.
BRISK = (
    *("--set", "planner.settle_ms=50", "--set", "text.request_ms=60000", "--set", "agent.rotation_check_ms=20"),
    *("--set", "log.object_interval_ms=20", "--set", "cursors.save_ms=10"),
)


def text_process(
    directory: Path, name: str, *options: str, store: str = "", env: dict[str, str] | None = None
) -> ServeProcess:
    """A node of a cluster whose objects are in `directory`, and its store, too, unless another one is named."""
    shared = (
        *("--store", store or f"sqlite:///{directory / 'store.db'}", "--objects", f"file://{directory / 'objects'}"),
        *("--text", "127.0.0.1:0", "--agent-id", name),
    )
    return ServeProcess(directory / name, *BROKER_ONLY, *BRISK, *shared, *options, env=env)


def text_address(node: ServeProcess) -> str:
    return str(json.loads(node.addresses.read_text())["text"])


@contextmanager
def session(node: ServeProcess) -> Iterator[TextSession]:
    with TextSession(text_address(node), WAIT_S) as opened:
        yield opened


def ask(node: ServeProcess, request: str) -> bytes:
    """One request on a connection of its own."""
    with session(node) as opened:
        return opened.ask(request.encode())


def state(node: ServeProcess, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ask(node, f"STATE {topic}"))
    return found


def metrics(node: ServeProcess) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ask(node, "METRICS"))
    return found


def put_until_ok(nodes: Callable[[], list[ServeProcess]], request: str) -> int:
    """PUT at one node after the other until one acknowledges; how often it was sent."""
    attempts = 0

    def acknowledged() -> bool:
        nonlocal attempts
        for node in nodes():
            attempts += 1
            try:
                if ask(node, request) == b"OK":
                    return True
            except (UnavailableError, OutcomeUnknownError, FileNotFoundError, ValueError):
                continue  # it is dead, or not up again
        return False

    until(acknowledged)
    return attempts


def read_until_empty(nodes: Sequence[ServeProcess], topic: str) -> list[str]:
    """What GET delivers, up to EMPTY, from whichever node answers."""
    found: list[str] = []

    def is_empty() -> bool:
        for node in nodes:
            try:
                with session(node) as opened:
                    while (reply := opened.ask(f"GET {topic}".encode())).startswith(b"OK "):
                        found.append(reply.removeprefix(b"OK ").decode())
            except (UnavailableError, OutcomeUnknownError, FileNotFoundError, ValueError):
                continue
            if reply == b"EMPTY":
                return True
        return False

    until(is_empty)
    return found


def read_to_the_end(node: ServeProcess, topic: str) -> list[str]:
    """Everything that GET delivers, up to EMPTY."""
    found: list[str] = []
    with session(node) as opened:
        while (reply := opened.ask(f"GET {topic}".encode())) != b"EMPTY":
            assert reply.startswith(b"OK "), reply
            found.append(reply.removeprefix(b"OK ").decode())
    return found
