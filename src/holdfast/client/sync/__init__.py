"""The clients for programs without an event loop: the same names, methods and errors as in `holdfast.client`, without `await`.

    with holdfast.client.sync.Producer("localhost:9092") as producer:
        producer.send("orders", b"…", key=b"ann").result()

A `Producer` may be used by many threads at once; a `Consumer` and an `Admin` by one at a time. `send` returns a
`PendingSend`, whose `result()` waits. After a fork, the child opens clients of its own: those of its parent raise `UsageError`.
Consumers of a registry are asynchronous only, as the registry is.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.client.sync.admin import Admin
    from holdfast.client.sync.consumer import Consumer
    from holdfast.client.sync.pending_send import PendingSend
    from holdfast.client.sync.producer import Producer

__all__ = ["Admin", "Consumer", "PendingSend", "Producer"]

_HOMES = {"Admin": "admin", "Consumer": "consumer", "PendingSend": "pending_send", "Producer": "producer"}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

    def __dir__() -> list[str]:
        return sorted((*globals(), *__all__))
